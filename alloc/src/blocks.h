/* Blocks of the heap as the functions that programs call take and give them. What is called often is short and free of branches that
 * could be asked elsewhere: all that is unusual (no cache yet, an empty magazine, a large block, an address that is no block's) is
 * one test that fails. One file includes it: api.c, in the debug build unguarded.c. */
#ifndef SLIPMALLOC_BLOCKS_H
#define SLIPMALLOC_BLOCKS_H

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "cache.h"
#include "decay.h"
#include "depot.h"
#include "heap.h"
#include "large.h"
#include "misuse.h"
#include "published.h"
#include "secure.h"

#define LIKELY(condition) __builtin_expect(!!(condition), 1)
#define SLOW __attribute__((noinline, cold))

static void *take_once(size_t bytes, size_t alignment, bool *is_zero)
{
	if (bytes <= CLASS_MOST_BYTES && alignment <= CLASS_MOST_BYTES) {
		unsigned class = class_of(bytes);
		/* Slabs begin at multiples of their size, so a block has the alignment that its size has. The last class has all. */
		while (class_bytes[class] % alignment != 0) {
			class++;
		}
		*is_zero = false;
		return cache_take(class, bytes);
	}
	return region_is_ready() ? large_take(bytes, alignment, is_zero) : NULL;
}

/* Has the slabs all blocks that this thread and the classes keep for later. */
static void gather(void)
{
	cache_flush();
	for (unsigned class = 1; class < CLASSES; class++) {
		depot_flush(class);
	}
}

/* Any size and alignment; `is_zero` as for large_take(). Sets errno only if there is no memory. */
static SLOW void *take_slowly(size_t bytes, size_t alignment, bool *is_zero)
{
	int before = errno;
	void *block = take_once(bytes, alignment, is_zero);
	if (block == NULL && bytes <= PTRDIFF_MAX) {
		/* What is kept for later may be what is needed. */
		published_add(&published()->second_tries, 1);
		gather();
		block = take_once(bytes, alignment, is_zero);
	}
	if (block == NULL) {
		published_add(&published()->failures, 1);
	}
	errno = block == NULL ? ENOMEM : before;
	return block;
}

static SLOW void put_slowly(void *block)
{
	if (block == NULL) {
		return;
	}
	size_t slab = region_slab_number(block);
	if (slab >= region.slabs) {
		misuse("free", block, "is not from this heap");
	}
	int before = errno;
	if (region.classes[slab] != 0) {
		cache_put(region.classes[slab], block);
	} else {
		large_give("free", block);
		decay_turn();
	}
	errno = before;
}

/* The class of a block that the program has, 0 if it is a large one. Aborts if it is no block. */
static unsigned check(const char *what, const void *block)
{
	size_t slab = region_slab_number(block);
	if (slab >= region.slabs) {
		misuse(what, block, "is not from this heap");
	}
	unsigned class = region.classes[slab];
	if (class != 0) {
		uint32_t offset = (uint32_t)((uintptr_t)block & (SLAB_BYTES - 1));
		unsigned number = class_block_number(class, offset);
		if (number * class_bytes[class] != offset || number >= slab_block_count(class)) {
			misuse(what, block, "is not the start of a block");
		}
		secure_check(what, block);
	}
	return class;
}

/* What the block holds. Aborts if it is none. */
static inline size_t blocks_bytes(const char *what, const void *block)
{
	unsigned class = check(what, block);
	return class != 0 ? class_bytes[class] : large_bytes(what, block);
}

/* Tells the secure build about a block that goes to the program. */
static inline void *handed_out(void *block)
{
	if (block != NULL && region.classes[region_slab_number(block)] != 0) {
		secure_take(block);
	}
	return block;
}

static SLOW void *malloc_slowly(size_t bytes)
{
	bool is_zero = false;
	return handed_out(take_slowly(bytes, CLASS_GRANULE, &is_zero));
}

/* Compilers make this of __builtin_prefetch(.., 1) only if told that the CPU has it; every x86 CPU of 64 bits takes it, at worst for nothing. With prefetcht0
 * a line that another CPU has is fetched twice: to read it, and again for the first write. */
static inline void fetch_to_write(const void *address)
{
#ifdef __x86_64__
	__asm__ volatile("prefetchw %0" : : "m"(*(const char *)address));
#else
	__builtin_prefetch(address, 1);
#endif
}

static inline void *take_of_class(unsigned class, size_t bytes)
{
	cache_t *cache = cache_current;
	void **top = cache->top[class];
	void *block = top[-1];
	if (LIKELY(block != NULL)) {
		cache->top[class] = top - 1;
		/* The next one's first line, to write to it: what waited in a magazine is not in the CPU's cache any more, and may be in another's. */
		fetch_to_write(top[-2]);
		secure_take(block);
		return block;
	}
	return malloc_slowly(bytes);
}

static __attribute__((noinline)) void *take_bigger(size_t bytes)
{
	return LIKELY(bytes <= CLASS_MOST_BYTES) ? take_of_class(class_of(bytes), bytes) : malloc_slowly(bytes);
}

static inline void *blocks_take(size_t bytes)
{
	if (LIKELY(bytes <= CLASS_LOOKUP_BYTES)) {
		return take_of_class(class_lookup[(bytes + CLASS_GRANULE - 1) / CLASS_GRANULE], bytes);
	}
	return take_bigger(bytes);
}

static inline void blocks_put(void *block)
{
	size_t slab = region_slab_number(block);
	if (LIKELY(slab < region.slabs)) {
		unsigned class = region.classes[slab];
		cache_t *cache = cache_current;
		void **top = cache->top[class];
#ifdef SLIPMALLOC_SECURE
		if (class != 0) {
			secure_put(block, class);
		}
#endif
		if (LIKELY(!magazine_seems_full(top))) {
			*top = block;
			cache->top[class] = top + 1;
			return;
		}
	}
	put_slowly(block);
}

static inline void *blocks_take_aligned(size_t alignment, size_t bytes)
{
	bool is_zero = false;
	return handed_out(take_slowly(bytes, alignment < CLASS_GRANULE ? CLASS_GRANULE : alignment, &is_zero));
}

static inline void *blocks_take_zero(size_t bytes)
{
	if (bytes <= CLASS_MOST_BYTES) {
		void *block = blocks_take(bytes);
		return block == NULL ? NULL : memset(block, 0, bytes);
	}
	bool is_zero = true;
	void *block = take_slowly(bytes, CLASS_GRANULE, &is_zero);
	if (block != NULL && !is_zero) {
		memset(block, 0, bytes);
	}
	return block;
}

/* Whether the block can have this size where it is; `had` is what it holds. */
static inline bool blocks_resize(void *block, size_t bytes, size_t *had)
{
	unsigned class = check("realloc", block);
	if (class != 0) {
		*had = class_bytes[class];
		/* Down to a half it stays: copying costs more than the rest of the block is worth. */
		return bytes <= *had && (bytes > *had / 2 || class_of(bytes) == class);
	}
	int before = errno;
	*had = large_bytes("realloc", block);
	bool is_done = large_resize("realloc", block, bytes);
	errno = before;
	return is_done;
}

/* Gives back all that is free, except what other threads have in their caches: the bytes. */
static inline size_t blocks_trim(void)
{
	size_t before = heap_count().purged_bytes;
	gather();
	for (unsigned class = 1; class < CLASSES; class++) {
		depot_trim(class);
	}
	heap_trim();
	return heap_count().purged_bytes - before + arena_trim();
}

#endif
