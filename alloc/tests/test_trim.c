/* What is said to be given back is given back: by malloc_trim() at once, by decay after two turns. */
#include <string.h>
#include <unistd.h>

#include "../src/heap.h"
#include "../src/options.h"
#include "check.h"

#define MIB ((size_t)1 << 20)

enum { BLOCKS = 65536, BLOCK_BYTES = 1000, KEEP_EACH = 2048 };

static char *blocks[BLOCKS];

static size_t resident_bytes(void)
{
	size_t size, resident;
	FILE *file = fopen("/proc/self/statm", "r");
	CHECK(file != NULL && fscanf(file, "%zu %zu", &size, &resident) == 2);
	fclose(file);
	return resident * 4096;
}

static void take_all(void)
{
	for (int at = 0; at < BLOCKS; at++) {
		blocks[at] = slip_malloc(BLOCK_BYTES);
		memset(blocks[at], 1, BLOCK_BYTES);
	}
}

static void free_all(void)
{
	for (int at = 0; at < BLOCKS; at++) {
		slip_free(blocks[at]);
	}
}

int main(void)
{
	/* Decay takes turns when this test says so. */
	options.decay_ms = -1;
	memset(blocks, 0xff, sizeof blocks);
	slip_free(slip_malloc(1));
	CHECK(bytes_taken() == 0);
	size_t before = resident_bytes();

	take_all();
	CHECK(resident_bytes() >= before + 60 * MIB);
	free_all();
	CHECK(slip_malloc_trim(0) == 1);
	CHECK(resident_bytes() < before + 2 * MIB);
	CHECK(slip_mallinfo2().keepcost == 0);
	CHECK(slip_malloc_trim(0) == 0);

	/* One block in each 2 MiB stays: the free slabs around it go all the same. */
	take_all();
	void *kept[BLOCKS / KEEP_EACH];
	for (int at = 0; at < BLOCKS / KEEP_EACH; at++) {
		kept[at] = blocks[at * KEEP_EACH];
		blocks[at * KEEP_EACH] = NULL;
	}
	free_all();
	CHECK(slip_malloc_trim(0) == 1);
	CHECK(resident_bytes() < before + 5 * MIB);
	for (int at = 0; at < BLOCKS / KEEP_EACH; at++) {
		slip_free(kept[at]);
	}
	CHECK(bytes_taken() == 0);

	char *large = slip_malloc(64 * MIB);
	memset(large, 1, 64 * MIB);
	slip_free(large);
	heap_decay();
	CHECK(resident_bytes() >= before + 60 * MIB);
	heap_decay();
	CHECK(resident_bytes() < before + 4 * MIB);
	return 0;
}
