/* fork() while four threads allocate: each child can allocate, free, start a thread and fork again. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

enum { THREADS = 4, SLOTS = 64, USUAL_FORKS = 500, SECONDS_FOR_A_CHILD = 60, BLOCK_BYTES = 100000 };

static atomic_bool stop;

/* What a sanitizer does when a thread starts, it does under locks that it does not take before a fork. */
static pthread_barrier_t all_run;

static void turn(unsigned char **slots, uint32_t *state)
{
	uint32_t at = next_random(state) % SLOTS;
	if (slots[at] != NULL) {
		CHECK(slots[at][0] == (unsigned char)at);
		slip_free(slots[at]);
		slots[at] = NULL;
		return;
	}
	slots[at] = slip_malloc(1 + next_random(state) % (next_random(state) % 16 == 0 ? 200000 : 2000));
	CHECK(slots[at] != NULL);
	slots[at][0] = (unsigned char)at;
}

static void empty(unsigned char **slots)
{
	for (int at = 0; at < SLOTS; at++) {
		slip_free(slots[at]);
	}
}

static void *allocate(void *argument)
{
	unsigned char *slots[SLOTS] = {0};
	uint32_t state = 7 + (uint32_t)(uintptr_t)argument;
	turn(slots, &state);
	pthread_barrier_wait(&all_run);
	while (!atomic_load_explicit(&stop, memory_order_relaxed)) {
		turn(slots, &state);
	}
	empty(slots);
	return NULL;
}

static void *allocate_a_little(void *argument)
{
	unsigned char *slots[SLOTS] = {0};
	uint32_t state = 99;
	for (int step = 0; step < 2000; step++) {
		turn(slots, &state);
	}
	empty(slots);
	return argument;
}

static bool child_is_well(pid_t child)
{
	int status;
	return waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

static void be_child(unsigned char *of_parent)
{
	pthread_t thread;
	/* A child that hangs is ended and fails the test. */
	alarm(SECONDS_FOR_A_CHILD);
	CHECK(of_parent[0] == 5 && of_parent[BLOCK_BYTES - 1] == 5);
	slip_free(of_parent);
	allocate_a_little(NULL);
	CHECK(pthread_create(&thread, NULL, allocate_a_little, NULL) == 0);
	CHECK(pthread_join(thread, NULL) == 0);
	slip_malloc_trim(0);
}

static unsigned char *take_block(void)
{
	unsigned char *block = slip_malloc(BLOCK_BYTES);
	CHECK(block != NULL);
	return memset(block, 5, BLOCK_BYTES);
}

/* Of a child, which is a process without other threads. */
static void fork_again(void)
{
	unsigned char *block = take_block();
	pid_t child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		be_child(block);
		_exit(0);
	}
	slip_free(block);
	CHECK(child_is_well(child));
}

int main(int count, char **arguments)
{
	int forks = count > 1 ? atoi(arguments[1]) : USUAL_FORKS;
	pthread_t threads[THREADS];
	CHECK(pthread_barrier_init(&all_run, NULL, THREADS + 1) == 0);
	for (uintptr_t at = 0; at < THREADS; at++) {
		CHECK(pthread_create(&threads[at], NULL, allocate, (void *)at) == 0);
	}
	pthread_barrier_wait(&all_run);
	for (int number = 0; number < forks; number++) {
		unsigned char *block = take_block();
		pid_t child = fork();
		CHECK(child >= 0);
		if (child == 0) {
			be_child(block);
			if (number % 8 == 0) {
				fork_again();
			}
			_exit(0);
		}
		slip_free(block);
		CHECK(child_is_well(child));
	}
	atomic_store(&stop, true);
	for (int at = 0; at < THREADS; at++) {
		CHECK(pthread_join(threads[at], NULL) == 0);
	}
	CHECK(bytes_taken() == 0);
	return 0;
}
