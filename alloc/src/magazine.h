/* A stack of free blocks of one class: an array, so that no pointer lies within a free block.
 *
 * It is aligned to its size and grows up to its end, so "full" is that the low bits of `top` are zero. The entry below the
 * lowest block is NULL, so "empty" is that the entry taken is NULL. Where that entry is sets how many blocks it holds.
 *
 * Threads that go to a depot by turns get large ones: each time they do, some lines go from one CPU's cache to the other's, and then
 * they do so less often. */
#ifndef SLIPMALLOC_MAGAZINE_H
#define SLIPMALLOC_MAGAZINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "arena.h"

enum {
	MAGAZINE_BYTES = ARENA_PIECE_BYTES,
	MAGAZINE_LARGE_PIECES = 4,
	MAGAZINE_LARGE_BYTES = MAGAZINE_LARGE_PIECES * ARENA_PIECE_BYTES,
	MAGAZINE_HEADER = 2,
	MAGAZINE_ENTRIES = MAGAZINE_BYTES / sizeof(void *) - MAGAZINE_HEADER,
	/* The lowest entry is always NULL. */
	MAGAZINE_MOST_BLOCKS = MAGAZINE_ENTRIES - 1,
	MAGAZINE_LARGE_MOST_BLOCKS = MAGAZINE_LARGE_BYTES / sizeof(void *) - MAGAZINE_HEADER - 1,
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
	uint16_t top;
	/* How many it holds when it is full. */
	uint16_t capacity;
	/* Entries that there are. */
	uint32_t end;
	void *entries[];
};

/* In the place of a magazine where there is none: it is empty and full. */
extern const magazine_t magazine_none;

/* A large one may not be: it has such an entry in each piece. */
static inline bool magazine_seems_full(void *const *top)
{
	return (uintptr_t)top % MAGAZINE_BYTES == 0;
}

static inline bool magazine_is_empty(void *const *top)
{
	return top[-1] == NULL;
}

static inline bool magazine_is_large(const magazine_t *magazine)
{
	return magazine->end > MAGAZINE_ENTRIES;
}

/* The most that it can be set to hold. */
static inline unsigned magazine_most(const magazine_t *magazine)
{
	return magazine->end - 1;
}

/* One that holds up to `blocks`, or a smaller one if there is not so much memory. Nothing is set but how large it is. NULL if there is no memory. */
static inline magazine_t *magazine_create(unsigned blocks)
{
	magazine_t *magazine = blocks > MAGAZINE_MOST_BLOCKS ? arena_take(MAGAZINE_LARGE_PIECES) : NULL;
	if (magazine != NULL) {
		magazine->end = MAGAZINE_LARGE_MOST_BLOCKS + 1;
		return magazine;
	}
	magazine = arena_take(1);
	if (magazine != NULL) {
		magazine->end = MAGAZINE_ENTRIES;
	}
	return magazine;
}

static inline void magazine_destroy(magazine_t *magazine)
{
	arena_give(magazine, magazine_is_large(magazine) ? MAGAZINE_LARGE_PIECES : 1);
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
	return (unsigned)(top - magazine->entries) + magazine->capacity - magazine->end;
}

/* Who comes to this block of a loaded magazine finds it empty. `before` blocks come first. */
static inline void magazine_mark(magazine_t *magazine, void **top, unsigned before)
{
	void **entry = top - 1 - before;
	magazine->marked = *entry;
	magazine->top = (uint16_t)(entry - magazine->entries);
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
	magazine->top = (uint16_t)(top - magazine->entries);
}

/* The lowest block of a magazine. */
static inline void **magazine_bottom(magazine_t *magazine)
{
	return &magazine->entries[magazine->end - magazine->capacity];
}

/* The `count` lowest blocks are somebody else's: it holds so many fewer from now on. */
static inline void magazine_cut(magazine_t *magazine, unsigned count)
{
	magazine->capacity = (uint16_t)(magazine->capacity - count);
	magazine_bottom(magazine)[-1] = NULL;
}

/* Blocks in a magazine that is not loaded. */
static inline unsigned magazine_blocks(const magazine_t *magazine)
{
	return (unsigned)magazine->top + magazine->capacity - magazine->end;
}

/* Has an empty magazine hold up to `blocks`, or as many as it can. */
static inline void magazine_reset(magazine_t *magazine, unsigned blocks)
{
	blocks = blocks < magazine_most(magazine) ? blocks : magazine_most(magazine);
	magazine->capacity = (uint16_t)blocks;
	magazine->top = (uint16_t)(magazine->end - blocks);
	magazine_bottom(magazine)[-1] = NULL;
}

#endif
