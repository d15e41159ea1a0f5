/* The loop of bench_random_mixed, written anew: a random slot of the working set is freed if it is taken, and filled with a block of 16 to
 * 1039 bytes otherwise. usage: random_mixed OPERATIONS WORKING_SET [MODE [THREADS [private|shared]]]
 *
 *   mixed         slot and size come from the same bits, as in the original: with a power of two each slot always asks for one size
 *   decorrelated  the size comes from other bits
 *   touch         the same, and every line of the block is written
 *   null          the loop without an allocator
 *
 * Threads have OPERATIONS each, and each its own working set (private), or one together (shared): then blocks are mostly given by another
 * thread than took them. Modes with threads are mixed and decorrelated.
 *
 * Prints nanoseconds of CPU per operation, and the process's seconds of user and of kernel, which the kernel tells apart by its tick. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <time.h>

#include "random.h"

enum { SEED = 42, MOST_THREADS = 64, LINE_BYTES = 64, LEAST_BYTES = 16, SIZE_MASK = 0x3FF };

static __attribute__((noinline)) void operate_mixed(unsigned char **slots, uint32_t working_set, long operations)
{
	uint32_t state = SEED;
	for (long done = 0; done < operations; done++) {
		uint32_t random = next(&state), at = random % working_set;
		if (slots[at] != NULL) {
			free(slots[at]);
			slots[at] = NULL;
		} else {
			unsigned char *block = malloc(LEAST_BYTES + (random & SIZE_MASK));
			block[0] = (unsigned char)random;
			slots[at] = block;
		}
	}
}

static inline size_t other_bytes(uint32_t random)
{
	return LEAST_BYTES + ((random * 2654435761u) >> 20 & SIZE_MASK);
}

static inline __attribute__((always_inline)) void operate_apart(unsigned char **slots, uint32_t working_set, long operations, int is_touched)
{
	uint32_t state = SEED;
	for (long done = 0; done < operations; done++) {
		uint32_t random = next(&state), at = random % working_set;
		if (slots[at] != NULL) {
			free(slots[at]);
			slots[at] = NULL;
		} else {
			size_t bytes = other_bytes(random);
			unsigned char *block = malloc(bytes);
			block[0] = (unsigned char)random;
			for (size_t offset = LINE_BYTES; is_touched && offset < bytes; offset += LINE_BYTES) {
				block[offset] = (unsigned char)random;
			}
			slots[at] = block;
		}
	}
}

static __attribute__((noinline)) void operate_decorrelated(unsigned char **slots, uint32_t working_set, long operations)
{
	operate_apart(slots, working_set, operations, 0);
}

static __attribute__((noinline)) void operate_touch(unsigned char **slots, uint32_t working_set, long operations)
{
	operate_apart(slots, working_set, operations, 1);
}

static __attribute__((noinline)) void operate_null(unsigned char **slots, uint32_t working_set, long operations)
{
	static unsigned char buffer[2048];
	unsigned char *volatile start = buffer;
	uint32_t state = SEED;
	for (long done = 0; done < operations; done++) {
		uint32_t random = next(&state), at = random % working_set;
		if (slots[at] != NULL) {
			slots[at] = NULL;
		} else {
			unsigned char *block = start + (random & SIZE_MASK);
			block[0] = (unsigned char)random;
			slots[at] = block;
		}
	}
}

static struct {
	long operations;
	uint32_t working_set;
	int is_decorrelated;
	int is_shared;
	_Atomic(unsigned char *) *slots;
} team;

static void *operate_with_others(void *number)
{
	_Atomic(unsigned char *) *slots = team.slots + (team.is_shared ? 0 : (uintptr_t)number * team.working_set);
	uint32_t state = (SEED + (uint32_t)(uintptr_t)number) * 2654435761u | 1;
	for (long done = 0; done < team.operations; done++) {
		uint32_t random = next(&state);
		_Atomic(unsigned char *) *slot = &slots[random % team.working_set];
		unsigned char *block = atomic_exchange_explicit(slot, NULL, memory_order_acq_rel);
		if (block == NULL) {
			block = malloc(team.is_decorrelated ? other_bytes(random) : LEAST_BYTES + (random & SIZE_MASK));
			block[0] = (unsigned char)random;
			/* Another thread may have filled it. */
			block = atomic_exchange_explicit(slot, block, memory_order_acq_rel);
		}
		free(block);
	}
	return NULL;
}

static int operate_with_threads(unsigned threads)
{
	pthread_t started[MOST_THREADS];
	for (unsigned number = 0; number < threads; number++) {
		if (pthread_create(&started[number], NULL, operate_with_others, (void *)(uintptr_t)number) != 0) {
			return -1;
		}
	}
	for (unsigned number = 0; number < threads; number++) {
		pthread_join(started[number], NULL);
	}
	return 0;
}

static double cpu_ns(void)
{
	struct timespec now;
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
	return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

static double seconds(struct timeval time)
{
	return (double)time.tv_sec + (double)time.tv_usec / 1e6;
}

int main(int count, char **arguments)
{
	if (count < 3) {
		fprintf(stderr, "usage: random_mixed OPERATIONS WORKING_SET [mixed|decorrelated|touch|null [THREADS [private|shared]]]\n");
		return 2;
	}
	long operations = atol(arguments[1]);
	uint32_t working_set = (uint32_t)atol(arguments[2]);
	const char *mode = count > 3 ? arguments[3] : "mixed";
	unsigned threads = count > 4 ? (unsigned)atoi(arguments[4]) : 1;
	int is_shared = count > 5 && strcmp(arguments[5], "shared") == 0;
	if (operations < 1 || working_set < 1 || threads < 1 || threads > MOST_THREADS) {
		return 2;
	}
	uint32_t slot_count = working_set * (is_shared ? 1 : threads);
	unsigned char **slots = mmap(NULL, slot_count * sizeof *slots, PROT_READ | PROT_WRITE,
				     MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	if (slots == MAP_FAILED) {
		return 1;
	}
	double before_ns = cpu_ns();
	if (threads > 1) {
		team.operations = operations;
		team.working_set = working_set;
		team.is_decorrelated = strcmp(mode, "decorrelated") == 0;
		team.is_shared = is_shared;
		team.slots = (void *)slots;
		if (operate_with_threads(threads) != 0) {
			return 1;
		}
	} else if (strcmp(mode, "null") == 0) {
		operate_null(slots, working_set, operations);
	} else if (strcmp(mode, "decorrelated") == 0) {
		operate_decorrelated(slots, working_set, operations);
	} else {
		(strcmp(mode, "touch") == 0 ? operate_touch : operate_mixed)(slots, working_set, operations);
	}
	for (uint32_t at = 0; at < slot_count && strcmp(mode, "null") != 0; at++) {
		free(slots[at]);
	}
	double each_ns = (cpu_ns() - before_ns) / (double)operations / threads;
	struct rusage usage;
	getrusage(RUSAGE_SELF, &usage);
	printf("%.4f %.6f %.6f\n", each_ns, seconds(usage.ru_utime), seconds(usage.ru_stime));
	return 0;
}
