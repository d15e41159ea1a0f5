/* A stack of free blocks of one class: an array, so that no pointer lies within a free block.
 *
 * It is aligned to its size and grows up to its end, so "full" is that the low bits of `top` are zero. The entry below the
 * lowest block is NULL, so "empty" is that the entry taken is NULL. Where that entry is sets how many blocks it holds. */
#ifndef SLIPMALLOC_MAGAZINE_H
#define SLIPMALLOC_MAGAZINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "arena.h"

enum {
	MAGAZINE_BYTES = ARENA_PIECE_BYTES,
	MAGAZINE_ENTRIES = MAGAZINE_BYTES / sizeof(void *) - 2,
	MAGAZINE_MOST_BLOCKS = MAGAZINE_ENTRIES - 1,
};

typedef struct magazine magazine_t;
struct __attribute__((aligned(MAGAZINE_BYTES))) magazine {
	union {
		/* In a list of a depot. */
		magazine_t *next;
		/* While a cache has the magazine loaded: the block that is hidden by the mark. */
		void *marked;
	};
	/* Entry where the next block goes; while a cache has the magazine loaded, the entry that is marked, 0 for none. */
	uint32_t top;
	/* How many it holds when it is full. */
	uint32_t capacity;
	void *entries[MAGAZINE_ENTRIES];
};

/* In the place of a magazine where there is none: it is empty and full. */
extern const magazine_t magazine_none;

static inline bool magazine_is_full(void *const *top)
{
	return (uintptr_t)top % MAGAZINE_BYTES == 0;
}

static inline bool magazine_is_empty(void *const *top)
{
	return top[-1] == NULL;
}

/* The magazine that `top` points into. NULL if that is no magazine. */
static inline magazine_t *magazine_of(void **top)
{
	magazine_t *magazine = (magazine_t *)((uintptr_t)(top - 1) & ~(uintptr_t)(MAGAZINE_BYTES - 1));
	return magazine == &magazine_none ? NULL : magazine;
}

/* Where the next block goes, while no thread cache has the magazine loaded. */
static inline void **magazine_top(magazine_t *magazine)
{
	return &magazine->entries[magazine->top];
}

/* The same, and from now on one has it. */
static inline void **magazine_load(magazine_t *magazine)
{
	void **top = magazine_top(magazine);
	magazine->top = 0;
	return top;
}

/* Blocks in a magazine that is loaded. */
static inline unsigned magazine_blocks_below(const magazine_t *magazine, void **top)
{
	return (unsigned)(top - magazine->entries) + magazine->capacity - MAGAZINE_ENTRIES;
}

/* Who comes to this block of a loaded magazine finds it empty. `before` blocks come first. */
static inline void magazine_mark(magazine_t *magazine, void **top, unsigned before)
{
	void **entry = top - 1 - before;
	magazine->marked = *entry;
	magazine->top = (uint32_t)(entry - magazine->entries);
	*entry = NULL;
}

/* The block at the mark is as any other again. False if there is no mark. */
static inline bool magazine_unmark(magazine_t *magazine)
{
	if (magazine->top == 0) {
		return false;
	}
	magazine->entries[magazine->top] = magazine->marked;
	magazine->top = 0;
	return true;
}

static inline void magazine_unload(magazine_t *magazine, void **top)
{
	magazine_unmark(magazine);
	magazine->top = (uint32_t)(top - magazine->entries);
}

/* The lowest block of a magazine. */
static inline void **magazine_bottom(magazine_t *magazine)
{
	return &magazine->entries[MAGAZINE_ENTRIES - magazine->capacity];
}

/* The `count` lowest blocks are somebody else's: it holds so many fewer from now on. */
static inline void magazine_cut(magazine_t *magazine, unsigned count)
{
	magazine->capacity -= count;
	magazine->entries[MAGAZINE_MOST_BLOCKS - magazine->capacity] = NULL;
}

/* Blocks in a magazine that is not loaded. */
static inline unsigned magazine_blocks(const magazine_t *magazine)
{
	return magazine->top + magazine->capacity - MAGAZINE_ENTRIES;
}

/* Has an empty magazine hold up to `blocks`. */
static inline void magazine_reset(magazine_t *magazine, unsigned blocks)
{
	magazine->entries[MAGAZINE_MOST_BLOCKS - blocks] = NULL;
	magazine->top = MAGAZINE_ENTRIES - blocks;
	magazine->capacity = blocks;
}

#endif
