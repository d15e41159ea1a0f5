/* What is free goes back to the kernel while the program goes on, also if that needs little and if single blocks are left everywhere. */
#include <string.h>
#include <sys/mman.h>

#include "../src/decay.h"
#include "../src/depot.h"
#include "../src/heap.h"
#include "../src/options.h"
#include "../src/published.h"
#include "check.h"

#define MIB ((size_t)1 << 20)

enum { BLOCKS = 1 << 16, BLOCK_BYTES = 1000, SERVED = 20, TURNS = 1000, LARGE_BLOCKS = 1024, LARGE_BYTES = 32768, IN_SUPERSLAB = 64 };

static void *blocks[BLOCKS];

static void serve(void)
{
	static const size_t sizes[] = {24, 100, 200, 500, 1000, 2000, 4000};
	void *served[SERVED];
	for (unsigned turn = 0; turn < TURNS; turn++) {
		size_t bytes = sizes[turn % (sizeof sizes / sizeof *sizes)];
		for (unsigned at = 0; at < SERVED; at++) {
			served[at] = slip_malloc(bytes);
			CHECK(served[at] != NULL);
		}
		for (unsigned at = 0; at < SERVED; at++) {
			slip_free(served[at]);
		}
	}
}

/* No exchange with a depot is needed for what is taken and given by turns then. */
static void shrink_and_serve(void)
{
	options.decay_ms = -1;
	for (unsigned at = 0; at < BLOCKS; at++) {
		blocks[at] = slip_malloc(BLOCK_BYTES);
		CHECK(blocks[at] != NULL);
	}
	for (unsigned at = 0; at < BLOCKS; at++) {
		slip_free(blocks[at]);
	}
	CHECK(heap_count().kept_bytes > 48 * MIB);
	/* Each look at the clock is a turn. */
	options.decay_ms = 0;
	serve();
	CHECK(heap_count().kept_bytes < 4 * MIB);
}

/* No superslab is free as a whole. */
static void leave_one_in_each(void)
{
	options.decay_ms = -1;
	for (unsigned at = 0; at < LARGE_BLOCKS; at++) {
		blocks[at] = slip_malloc(LARGE_BYTES);
		CHECK(blocks[at] != NULL);
	}
	for (unsigned at = 0; at < LARGE_BLOCKS; at++) {
		if (at % IN_SUPERSLAB != 0) {
			slip_free(blocks[at]);
		}
	}
	options.decay_ms = 0;
	/* Magazines, then what is free since, then what goes because of that. */
	for (unsigned turn = 0; turn < 4; turn++) {
		decay_turn();
	}
	CHECK(heap_count().kept_bytes < 4 * MIB);
	for (unsigned at = 0; at < LARGE_BLOCKS; at += IN_SUPERSLAB) {
		slip_free(blocks[at]);
	}
}

static size_t resident_pages(void *start, size_t bytes)
{
	static unsigned char states[SUPERSLAB_BYTES / 4096];
	size_t count = 0;
	CHECK(bytes <= SUPERSLAB_BYTES && mincore(start, bytes, states) == 0);
	for (size_t at = 0; at < bytes / 4096; at++) {
		count += states[at] & 1;
	}
	return count;
}

/* Nor does what describes superslabs that are free keep memory. */
static void forget_descriptions(void)
{
	options.decay_ms = -1;
	bool is_zero;
	size_t first = heap_take_superslabs(3, false, &is_zero);
	CHECK(first != HEAP_NONE);
	superslab_t *described = &region.superslabs[first];
	for (unsigned at = 0; at < 3; at++) {
		described[at].slabs[SLABS_IN_SUPERSLAB - 1].run = 0;
	}
	heap_give_superslabs(first, 3);
	CHECK(resident_pages(described, 3 * sizeof *described) >= 3);
	heap_decay();
	heap_decay();
	CHECK(resident_pages(described, 3 * sizeof *described) == 0);
}

/* With a huge page the first touch of a superslab gives memory to all of its slabs. Stands for that: this one touches what it was not given. */
static void empty_what_was_filled(void)
{
	options.decay_ms = -1;
	enum { SLABS = 20 * SLABS_IN_SUPERSLAB };
	static size_t slabs[SLABS];
	bool is_zero;
	heap_trim();
	for (unsigned at = 0; at < SLABS; at++) {
		slabs[at] = heap_take_slabs(1, &is_zero);
		CHECK(slabs[at] != HEAP_NONE);
	}
	/* Of one that had no slab in use before. */
	size_t begun = slabs[SLABS - 1];
	superslab_t *superslab = region_superslab(begun);
	char *start = region_address(begun - begun % SLABS_IN_SUPERSLAB);
	unsigned free_slabs = (unsigned)__builtin_popcount(superslab->free_slabs & superslab->zero_slabs);
	CHECK(superslab->is_filled && free_slabs > 0);
	for (unsigned at = 0; at < SLABS_IN_SUPERSLAB; at++) {
		if ((superslab->free_slabs & superslab->zero_slabs) >> at & 1) {
			*(volatile char *)(start + at * SLAB_BYTES) = 0;
		}
	}
	size_t kept = heap_count().kept_bytes, before = resident_pages(start, SUPERSLAB_BYTES);
	uint64_t huge_bytes = published()->huge_bytes;
	CHECK(before >= free_slabs);
	heap_decay();
	heap_decay();
	/* Else the kernel would make one huge page of the rest and of new memory, when it comes by. */
	CHECK(published()->huge_bytes == huge_bytes - SUPERSLAB_BYTES);
	CHECK(resident_pages(start, SUPERSLAB_BYTES) <= before - free_slabs && heap_count().kept_bytes <= kept);
	for (unsigned at = 0; at < SLABS; at++) {
		heap_give_slabs(slabs[at], 1);
	}
}

/* Of slabs that are in use, pages of free blocks go if no block so high was needed for a turn. Those that were prewarmed stay. */
static void empty_pages_of_slabs(void)
{
	enum { BYTES = 1280, IN_SLAB = SLAB_BYTES / BYTES, LEFT = 8, LEFT_PAGES = (LEFT * BYTES + 4095) / 4096 };
	/* Nothing else here has blocks of it. */
	unsigned class = class_of(BYTES);
	char *taken[IN_SLAB + 1];
	options.decay_ms = -1;
	for (unsigned at = 0; at < IN_SLAB; at++) {
		taken[at] = depot_take_block(class);
		CHECK(taken[at] != NULL);
		memset(taken[at], (int)at + 1, BYTES);
	}
	CHECK((uintptr_t)taken[0] % SLAB_BYTES == 0 && resident_pages(taken[0], SLAB_BYTES) == PAGES_IN_SLAB);
	for (unsigned at = LEFT; at < IN_SLAB; at++) {
		depot_put_block(class, taken[at]);
	}
	depot_decay(class);
	CHECK(resident_pages(taken[0], SLAB_BYTES) == PAGES_IN_SLAB);
	depot_decay(class);
	CHECK(resident_pages(taken[0], SLAB_BYTES) == LEFT_PAGES);
	for (unsigned at = 0; at < LEFT * BYTES; at++) {
		CHECK(taken[0][at] == (char)(at / BYTES + 1));
	}

	depot_prewarm(class, IN_SLAB);
	for (unsigned at = LEFT; at <= IN_SLAB; at++) {
		taken[at] = depot_take_block(class);
	}
	char *prewarmed = taken[IN_SLAB];
	CHECK((uintptr_t)prewarmed % SLAB_BYTES == 0);
	depot_decay(class);
	depot_decay(class);
	/* Nor do they go because there is no memory for something else: what is gathered then need not come back from the kernel. */
	CHECK(slip_malloc((size_t)1 << 46) == NULL);
	CHECK(resident_pages(prewarmed, SLAB_BYTES) == PAGES_IN_SLAB);
	slip_malloc_trim(0);
	CHECK(resident_pages(prewarmed, SLAB_BYTES) == 1);
	for (unsigned at = 0; at <= IN_SLAB; at++) {
		depot_put_block(class, taken[at]);
	}
}

/* What a thread keeps of a class goes if it takes and gives others. */
static void empty_magazines(void)
{
	enum { BYTES = 1408, COUNT = 300 };
	unsigned class = class_of(BYTES);
	options.decay_ms = -1;
	for (unsigned at = 0; at < COUNT; at++) {
		blocks[at] = slip_malloc(BYTES);
		CHECK(blocks[at] != NULL);
	}
	for (unsigned at = 0; at < COUNT; at++) {
		slip_free(blocks[at]);
	}
	CHECK(published_class(class)->blocks_out > 40);
	options.decay_ms = 0;
	serve();
	CHECK(published_class(class)->blocks_out <= 8);
	/* What is left is as good as before. */
	serve();
	for (unsigned at = 0; at < COUNT; at++) {
		blocks[at] = slip_malloc(BYTES);
		CHECK(blocks[at] != NULL);
		memset(blocks[at], 1, BYTES);
	}
	for (unsigned at = 0; at < COUNT; at++) {
		slip_free(blocks[at]);
	}
}

/* A heap has shrunk if a fifth of it or more is free and will be given back. */
static void shrink_heap(void)
{
	enum { SUPERSLABS = 20, FEW = 3, FIFTH = 4 };
	options.decay_ms = -1;
	bool is_zero;
	CHECK(region_is_ready() && heap_count().taken_bytes == 0 && !heap_has_shrunk());
	size_t first = heap_take_superslabs(SUPERSLABS, false, &is_zero);
	CHECK(first != HEAP_NONE);
	heap_give_superslabs(first, FEW);
	CHECK(!heap_has_shrunk());
	heap_give_superslabs(first + FEW, FIFTH + 1 - FEW);
	CHECK(heap_has_shrunk());
	heap_decay();
	CHECK(heap_has_shrunk());
	heap_decay();
	CHECK(!heap_has_shrunk());
	heap_give_superslabs(first + FIFTH + 1, SUPERSLABS - FIFTH - 1);
	CHECK(heap_has_shrunk());
	heap_trim();
	CHECK(!heap_has_shrunk());
}

int main(void)
{
	shrink_heap();
	shrink_and_serve();
	leave_one_in_each();
	forget_descriptions();
	empty_what_was_filled();
	empty_pages_of_slabs();
	empty_magazines();
	return 0;
}
