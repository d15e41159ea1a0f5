/* What the patterns of allocation share. Each is a program of its own, written from what the benchmark of its name is known to do.
 *
 * usage: PATTERN OPERATIONS THREADS [MODE]. Work and its order within a thread are fixed by OPERATIONS and THREADS.
 *
 * Prints nanoseconds of CPU per operation, the peak of resident memory in kB, and the file that malloc() is from. An operation is a block
 * taken and given, if the pattern says nothing else. Blocks are marked at both ends and looked at before they are given, so an allocator
 * that hands out the same memory twice does not pass. */
#ifndef MALLOC_PATTERN_H
#define MALLOC_PATTERN_H

#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "../random.h"

enum { SEED = 42, PAGE_BYTES = 4096, MOST_THREADS = 64 };

typedef struct {
	long operations;
	unsigned threads;
	const char *mode;
} arguments_t;

/* The begin of a block, which has at least as many bytes. */
typedef struct {
	uint32_t bytes;
	uint32_t mark;
} block_t;

static _Noreturn void fail(const char *what)
{
	fprintf(stderr, "error: %s\n", what);
	exit(1);
}

/* Of the thread's own generator: never 0, and no neighbours, whose first numbers would be alike. */
static inline uint32_t seed_of(unsigned thread)
{
	return (SEED + thread) * 2654435761u | 1;
}

static inline uint32_t mark_of(const block_t *block, uint32_t bytes)
{
	return ((uint32_t)((uintptr_t)block >> 3) ^ bytes) * 2654435761u;
}

/* A block that is written to: at its begin, in each page and at its end. */
static inline block_t *take(uint32_t bytes)
{
	block_t *block = malloc(bytes);
	if (block == NULL) {
		fail("no memory");
	}
	uint32_t mark = mark_of(block, bytes);
	for (size_t offset = PAGE_BYTES; offset < bytes; offset += PAGE_BYTES) {
		((unsigned char *)block)[offset] = (unsigned char)(mark >> 24);
	}
	/* The highest byte of the mark, because that is the end of the smallest block anyway. */
	((unsigned char *)block)[bytes - 1] = (unsigned char)(mark >> 24);
	block->bytes = bytes;
	block->mark = mark;
	return block;
}

static inline void give(block_t *block)
{
	if (block == NULL) {
		return;
	}
	uint32_t bytes = block->bytes, mark = mark_of(block, bytes);
	if (block->mark != mark || ((unsigned char *)block)[bytes - 1] != (unsigned char)(mark >> 24)) {
		fail("a block has changed");
	}
	/* One that was handed out twice is given twice. Volatile, because compilers drop what is written before free(). */
	*(volatile uint32_t *)&block->mark = ~mark;
	free(block);
}

/* Memory of the pattern itself, which is not asked for by malloc(). Zeroed. */
static inline void *map(size_t bytes)
{
	void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	if (memory == MAP_FAILED) {
		fail("no memory");
	}
	return memory;
}

static inline pthread_t start_thread(void *(*work)(void *), void *argument)
{
	pthread_t thread;
	if (pthread_create(&thread, NULL, work, argument) != 0) {
		fail("cannot start a thread");
	}
	return thread;
}

/* Has so many threads work, each of which is told its number, and waits for them. One is the program's own: then malloc() may know that
 * there is no other. */
static inline void work_with(unsigned threads, void *(*work)(void *))
{
	if (threads == 1) {
		work(NULL);
		return;
	}
	pthread_t started[MOST_THREADS];
	for (unsigned number = 0; number < threads; number++) {
		started[number] = start_thread(work, (void *)(uintptr_t)number);
	}
	for (unsigned number = 0; number < threads; number++) {
		pthread_join(started[number], NULL);
	}
}

static double cpu_ns(void)
{
	struct timespec now;
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
	return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

/* Not ru_maxrss, which begins with what the process had before it became this program. */
static long peak_kb(void)
{
	char line[256];
	long peak = 0;
	FILE *status = fopen("/proc/self/status", "r");
	while (status != NULL && fgets(line, sizeof line, status) != NULL) {
		sscanf(line, "VmHWM: %ld", &peak);
	}
	return peak;
}

static inline arguments_t parse(int count, char **arguments)
{
	if (count < 3) {
		fprintf(stderr, "usage: %s OPERATIONS THREADS [MODE]\n", arguments[0]);
		exit(2);
	}
	arguments_t parsed = {atol(arguments[1]), (unsigned)atoi(arguments[2]), count > 3 ? arguments[3] : ""};
	if (parsed.operations < 1 || parsed.threads < 1 || parsed.threads > MOST_THREADS) {
		fail("too few operations or threads, or too many threads");
	}
	return parsed;
}

/* Ends the pattern, which has used the CPU for all that the process did. */
static inline int report(long operations)
{
	double each_ns = cpu_ns() / (double)operations;
	long peak = peak_kb();
	Dl_info from = {0};
	dladdr(dlsym(RTLD_DEFAULT, "malloc"), &from);
	printf("%.4f %ld %s\n", each_ns, peak, from.dli_fname);
	return 0;
}

#endif
