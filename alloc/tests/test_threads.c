/* A thousand threads come and go and free each other's blocks; nothing is lost, nothing piles up. Then a thousand are there at once, and what
 * they had goes back to the kernel. Then one thread only takes what another one only frees. */
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "../src/arena.h"
#include "../src/heap.h"
#include "../src/options.h"
#include "../src/published.h"
#include "check.h"

enum { THREADS = 1000, AT_ONCE = 8, BLOCKS = 300, SHARED = 512, FLOW = 300000, RING = 4096, STACK_BYTES = 256 << 10 };

static _Atomic(unsigned char *) shared[SHARED];
static _Atomic(void *) ring[RING];

static pthread_key_t key;
static pthread_barrier_t all_have_taken;

/* Runs when the thread's cache is gone already, because its key is younger. */
static void at_end(void *block)
{
	slip_free(block);
	block = slip_malloc(5000);
	CHECK(block != NULL);
	slip_free(slip_realloc(block, 50));
}

static void *come_and_go(void *argument)
{
	CHECK(pthread_setspecific(key, slip_malloc(40)) == 0);
	uint32_t state = 1 + (uint32_t)(uintptr_t)argument;
	unsigned char *own[BLOCKS];
	for (int at = 0; at < BLOCKS; at++) {
		size_t bytes = 2 + next_random(&state) % (next_random(&state) % 50 == 0 ? 100000 : 700);
		own[at] = slip_malloc(bytes);
		CHECK(own[at] != NULL);
		own[at][0] = own[at][bytes - 1] = (unsigned char)at;
	}
	for (int at = 0; at < BLOCKS; at++) {
		CHECK(own[at][0] == (unsigned char)at);
		slip_free(atomic_exchange(&shared[next_random(&state) % SHARED], own[at]));
	}
	return NULL;
}

/* A thread that gives what it was handed does not get it back at once: beside it lies what others have, and both would write to one
 * line of the CPU's cache. */
static void *take_beside(void *handed)
{
	slip_free(handed);
	void *own[4];
	for (int at = 0; at < 4; at++) {
		own[at] = slip_malloc(8);
		CHECK((uintptr_t)own[at] / 64 != (uintptr_t)handed / 64);
	}
	/* What one that has ended gives back is free for all. */
	pthread_barrier_wait(&all_have_taken);
	for (int at = 0; at < 4; at++) {
		slip_free(own[at]);
	}
	return NULL;
}

static void share_no_line(void)
{
	pthread_t threads[AT_ONCE];
	void *handed[AT_ONCE];
	CHECK(pthread_barrier_init(&all_have_taken, NULL, AT_ONCE) == 0);
	for (int at = 0; at < AT_ONCE; at++) {
		CHECK((handed[at] = slip_malloc(8)) != NULL);
	}
	for (int at = 0; at < AT_ONCE; at++) {
		CHECK(pthread_create(&threads[at], NULL, take_beside, handed[at]) == 0);
	}
	for (int at = 0; at < AT_ONCE; at++) {
		CHECK(pthread_join(threads[at], NULL) == 0);
	}
}

/* All have a cache at the same time. */
static void *be_there(void *barrier)
{
	void *block = slip_malloc(100);
	CHECK(block != NULL);
	pthread_barrier_wait(barrier);
	CHECK(atomic_load(&published()->caches) > 1);
	pthread_barrier_wait(barrier);
	slip_free(block);
	return NULL;
}

static void all_at_once(void)
{
	static pthread_t threads[THREADS];
	pthread_attr_t small;
	pthread_barrier_t barrier;
	CHECK(pthread_attr_init(&small) == 0 && pthread_attr_setstacksize(&small, STACK_BYTES) == 0);
	CHECK(pthread_barrier_init(&barrier, NULL, THREADS + 1) == 0);
	for (int at = 0; at < THREADS; at++) {
		CHECK(pthread_create(&threads[at], &small, be_there, &barrier) == 0);
	}
	pthread_barrier_wait(&barrier);
	CHECK(atomic_load(&published()->caches) == THREADS + 1);
	pthread_barrier_wait(&barrier);
	for (int at = 0; at < THREADS; at++) {
		CHECK(pthread_join(threads[at], NULL) == 0);
	}
	CHECK(atomic_load(&published()->caches) == 1);
}

static void *produce(void *argument)
{
	for (size_t at = 0; at < FLOW; at++) {
		void *block = slip_malloc(16 + at % 500), *expected = NULL;
		*(size_t *)block = at;
		while (!atomic_compare_exchange_weak(&ring[at % RING], &expected, block)) {
			expected = NULL;
			sched_yield();
		}
	}
	return argument;
}

static void consume(void)
{
	for (size_t at = 0; at < FLOW; at++) {
		void *block;
		while ((block = atomic_exchange(&ring[at % RING], NULL)) == NULL) {
			sched_yield();
		}
		CHECK(*(size_t *)block == at);
		slip_free(block);
	}
}

int main(void)
{
	pthread_t threads[AT_ONCE], producer;
	slip_free(slip_malloc(1));
	CHECK(pthread_key_create(&key, at_end) == 0);
	share_no_line();
	CHECK(bytes_taken() == 0);
	for (uintptr_t started = 0; started < THREADS; started += AT_ONCE) {
		for (int at = 0; at < AT_ONCE; at++) {
			CHECK(pthread_create(&threads[at], NULL, come_and_go, (void *)(started + (uintptr_t)at)) == 0);
		}
		for (int at = 0; at < AT_ONCE; at++) {
			CHECK(pthread_join(threads[at], NULL) == 0);
		}
	}
	for (int at = 0; at < SHARED; at++) {
		slip_free(shared[at]);
	}
	CHECK(bytes_taken() == 0);

	/* Decay takes turns when this test says so, from here on. */
	options.decay_ms = -1;
	uint64_t arena_bytes = published()->arena_bytes;
	all_at_once();
	/* What one generation of threads leaves, the next one takes. */
	uint64_t of_many = published()->arena_bytes;
	all_at_once();
	CHECK(of_many > arena_bytes && published()->arena_bytes <= of_many);
	/* Nor does it stay if none comes: the first turn is that in which they were there. */
	arena_decay();
	arena_decay();
	CHECK(published()->arena_bytes < of_many / 4);
	CHECK(bytes_taken() == 0);

	CHECK(pthread_create(&producer, NULL, produce, NULL) == 0);
	consume();
	CHECK(pthread_join(producer, NULL) == 0);
	CHECK(bytes_taken() == 0);
	/* Never more than 2 MiB lived at once, and caches hold a few more. */
	CHECK(heap_count().usable_bytes <= (size_t)64 << 20);
	return 0;
}
