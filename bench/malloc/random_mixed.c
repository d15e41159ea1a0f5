/* The loop of bench_random_mixed, written anew: a random slot of the working set is freed if it is taken, and filled with a block of 16 to
 * 1039 bytes otherwise. usage: random_mixed OPERATIONS WORKING_SET [mixed|touch|null]
 *
 *   mixed   slot and size come from the same bits, as in the original: with a power of two each slot always asks for one size
 *   touch   the size comes from other bits, and every line of the block is written
 *   null    the loop without an allocator
 *
 * Prints nanoseconds of CPU per operation. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "random.h"

enum { SEED = 42, LINE_BYTES = 64, LEAST_BYTES = 16, SIZE_MASK = 0x3FF };

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

static __attribute__((noinline)) void operate_touch(unsigned char **slots, uint32_t working_set, long operations)
{
	uint32_t state = SEED;
	for (long done = 0; done < operations; done++) {
		uint32_t random = next(&state), at = random % working_set;
		if (slots[at] != NULL) {
			free(slots[at]);
			slots[at] = NULL;
		} else {
			size_t bytes = LEAST_BYTES + ((random * 2654435761u) >> 20 & SIZE_MASK);
			unsigned char *block = malloc(bytes);
			for (size_t offset = 0; offset < bytes; offset += LINE_BYTES) {
				block[offset] = (unsigned char)random;
			}
			slots[at] = block;
		}
	}
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

static double cpu_ns(void)
{
	struct timespec now;
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
	return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

int main(int count, char **arguments)
{
	if (count < 3) {
		fprintf(stderr, "usage: random_mixed OPERATIONS WORKING_SET [mixed|touch|null]\n");
		return 2;
	}
	long operations = atol(arguments[1]);
	uint32_t working_set = (uint32_t)atol(arguments[2]);
	const char *mode = count > 3 ? arguments[3] : "mixed";
	unsigned char **slots = mmap(NULL, working_set * sizeof *slots, PROT_READ | PROT_WRITE,
				     MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	if (slots == MAP_FAILED) {
		return 1;
	}
	double before_ns = cpu_ns();
	if (strcmp(mode, "null") == 0) {
		operate_null(slots, working_set, operations);
	} else {
		(strcmp(mode, "touch") == 0 ? operate_touch : operate_mixed)(slots, working_set, operations);
		for (uint32_t at = 0; at < working_set; at++) {
			free(slots[at]);
		}
	}
	printf("%.4f\n", (cpu_ns() - before_ns) / (double)operations);
	return 0;
}
