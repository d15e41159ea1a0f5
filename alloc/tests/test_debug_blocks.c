/* The debug build: where blocks lie, how many have a guard page, and what the quarantine keeps. */
#include <string.h>

#include "../src/guard.h"
#include "../src/options.h"
#include "../src/published.h"
#include "check.h"

enum { MOST_BLOCKS = 80000, PAGE_BYTES = 4096, TURNS = 50000 };

static char *blocks[MOST_BLOCKS];

static size_t mappings(void)
{
	size_t lines = 0;
	FILE *file = fopen("/proc/self/maps", "r");
	CHECK(file != NULL);
	for (int byte; (byte = fgetc(file)) != EOF;) {
		lines += byte == '\n';
	}
	fclose(file);
	return lines;
}

/* A block ends where its pages do, but for what its alignment leaves, and holds what was asked for. */
static void check_places(void)
{
	for (size_t alignment = 16; alignment <= (size_t)1 << 20; alignment *= 4) {
		for (size_t bytes = 0; bytes < 3000000; bytes = bytes * 3 + 1) {
			char *block = slip_memalign(alignment, bytes);
			size_t left = -(uintptr_t)(block + bytes) % PAGE_BYTES;
			CHECK(guard_has(block) && left < alignment && (uintptr_t)block % alignment == 0);
			CHECK(slip_malloc_usable_size(block) == bytes);
			memset(block, 1, bytes);
			slip_free(block);
		}
	}
}

/* Beyond the kernel's limit of mappings there are blocks, and they are counted. */
static void check_limit(void)
{
	size_t most = guard_count().most_blocks, count = most + most / 8;
	if (count > MOST_BLOCKS) {
		fprintf(stderr, "vm.max_map_count allows %zu guard pages: not reached\n", most);
		return;
	}
	size_t mappings_before = mappings();
	for (int time = 0; time < 2; time++) {
		uint64_t unguarded = published()->unguarded_taken;
		for (size_t at = 0; at < count; at++) {
			size_t bytes = at * 7 % 300;
			blocks[at] = slip_malloc(bytes);
			CHECK(blocks[at] != NULL && slip_malloc_usable_size(blocks[at]) == bytes);
			memset(blocks[at], (int)at, bytes);
		}
		CHECK(guard_count().blocks == most && published()->unguarded_taken - unguarded == count - most);
		CHECK(mappings() < mappings_before + 2 * most + 100);
		for (size_t at = 0; at < count; at++) {
			size_t bytes = at * 7 % 300;
			CHECK(bytes == 0 || (blocks[at][0] == (char)at && blocks[at][bytes - 1] == (char)at));
			slip_free(blocks[at]);
		}
		CHECK(guard_count().blocks == 0);
		/* What was freed needs none. */
		CHECK(mappings() < mappings_before + 100);
	}
	CHECK(bytes_taken() == 0);
}

/* How many blocks are freed until an address comes again, if it does. */
static int turns_until_again(size_t bytes)
{
	char *first = slip_malloc(bytes), *block = NULL;
	slip_free(first);
	int turns = 0;
	while (turns < TURNS && block != first) {
		turns++;
		block = slip_malloc(bytes);
		slip_free(block);
	}
	return turns;
}

static void check_quarantine(void)
{
	options.quarantine_bytes = 1000000;
	slip_malloc_trim(0);
	int turns = turns_until_again(1000);
	CHECK(turns >= 1000 && turns < TURNS);
	/* Small ones are bounded by their number. */
	turns = turns_until_again(1);
	CHECK(turns >= 30000 && turns < TURNS);
	/* The memory of a block that is larger than all of it is not kept, and does not push others out. */
	slip_malloc_trim(0);
	char *small = slip_malloc(1000);
	slip_free(small);
	slip_free(slip_malloc(1000001));
	char *other = slip_malloc(1000);
	CHECK(other != small);
	slip_free(other);
	options.quarantine_bytes = 64 << 20;
	CHECK(bytes_taken() == 0);
}

int main(void)
{
	check_places();
	check_limit();
	check_quarantine();
	return 0;
}
