#include "arena.h"

#include <limits.h>

#include "lock.h"
#include "published.h"

enum {
	PIECES = 64,
	PAGE_BYTES = 4096,
	PIECES_IN_PAGE = PAGE_BYTES / ARENA_PIECE_BYTES,
	/* At so many chunks a turn of decay looks, because the lock is held; and so many are asked for a row of pieces before there is a new one. */
	LOOKED_AT = 1024,
	ASKED = 16,
};

#define CHUNK_BYTES ((size_t)PIECES * ARENA_PIECE_BYTES)

/* Aligned to its size. This is its first piece; each of the maps has a bit for each piece. */
typedef struct chunk chunk_t;
struct chunk {
	/* Among those with free pieces. */
	chunk_t *next;
	chunk_t *previous;
	uint64_t free;
	/* Taken or given since the last turn of decay. */
	uint64_t recent;
	/* Free, and without memory. */
	uint64_t purged;
};

static struct {
	lock_t lock;
	chunk_t *first;
} arena;

static void list(chunk_t *chunk)
{
	chunk->previous = NULL;
	chunk->next = arena.first;
	if (arena.first != NULL) {
		arena.first->previous = chunk;
	}
	arena.first = chunk;
}

static void unlist(chunk_t *chunk)
{
	if (chunk->previous != NULL) {
		chunk->previous->next = chunk->next;
	} else {
		arena.first = chunk->next;
	}
	if (chunk->next != NULL) {
		chunk->next->previous = chunk->previous;
	}
}

/* False if there is no memory. */
static bool add_chunk(void)
{
	char *start = os_map(2 * CHUNK_BYTES - PAGE_BYTES);
	if (start == NULL) {
		return false;
	}
	size_t before = -(uintptr_t)start % CHUNK_BYTES, behind = CHUNK_BYTES - PAGE_BYTES - before;
	if (before > 0) {
		os_unreserve(start, before);
	}
	if (behind > 0) {
		os_unreserve(start + before + CHUNK_BYTES, behind);
	}
	chunk_t *chunk = (chunk_t *)(start + before);
	chunk->free = ~(uint64_t)1;
	published()->arena_bytes += CHUNK_BYTES;
	list(chunk);
	return true;
}

/* The first of each free row of so many pieces that begins at a multiple of that. */
static uint64_t free_rows(const chunk_t *chunk, unsigned pieces)
{
	uint64_t rows = chunk->free;
	if (pieces >= 2) {
		rows &= rows >> 1 & UINT64_MAX / 3;
	}
	if (pieces == 4) {
		rows &= rows >> 2 & UINT64_MAX / 15;
	}
	return rows;
}

/* NULL if there is no memory. */
static chunk_t *with_row(unsigned pieces)
{
	unsigned left = ASKED;
	for (chunk_t *chunk = arena.first; chunk != NULL && left > 0; chunk = chunk->next, left--) {
		if (free_rows(chunk, pieces) != 0) {
			return chunk;
		}
	}
	return add_chunk() ? arena.first : NULL;
}

static uint64_t row_bits(unsigned number, unsigned pieces)
{
	return ((1ull << pieces) - 1) << number;
}

void *arena_take(unsigned pieces)
{
	void *row = NULL;
	lock_take(&arena.lock);
	chunk_t *chunk = with_row(pieces);
	if (chunk != NULL) {
		unsigned number = (unsigned)__builtin_ctzll(free_rows(chunk, pieces));
		uint64_t of_page = row_bits(number / PIECES_IN_PAGE * PIECES_IN_PAGE, PIECES_IN_PAGE), bits = row_bits(number, pieces);
		published()->arena_bytes += chunk->purged & of_page ? PAGE_BYTES : 0;
		chunk->purged &= ~of_page;
		chunk->free &= ~bits;
		chunk->recent |= bits;
		if (chunk->free == 0) {
			unlist(chunk);
		}
		row = (char *)chunk + number * (size_t)ARENA_PIECE_BYTES;
	}
	lock_release(&arena.lock);
	return row;
}

void arena_give(void *row, unsigned pieces)
{
	chunk_t *chunk = (chunk_t *)((uintptr_t)row & ~(uintptr_t)(CHUNK_BYTES - 1));
	uint64_t bits = row_bits((unsigned)(((uintptr_t)row - (uintptr_t)chunk) / ARENA_PIECE_BYTES), pieces);
	lock_take(&arena.lock);
	if (chunk->free == 0) {
		list(chunk);
	}
	chunk->free |= bits;
	chunk->recent |= bits;
	lock_release(&arena.lock);
}

/* Gives back the pages that have been free for a turn, or all that are free. */
static void purge(chunk_t *chunk, bool all)
{
	uint64_t quiet = chunk->free & ~chunk->purged & (all ? UINT64_MAX : ~chunk->recent);
	chunk->recent = 0;
	for (unsigned number = PIECES_IN_PAGE; number < PIECES; number += PIECES_IN_PAGE) {
		uint64_t of_page = row_bits(number, PIECES_IN_PAGE);
		if ((quiet & of_page) == of_page && os_purge((char *)chunk + number * (size_t)ARENA_PIECE_BYTES, PAGE_BYTES)) {
			chunk->purged |= of_page;
			published()->arena_bytes -= PAGE_BYTES;
		}
	}
}

static size_t purge_chunks(unsigned most, bool all)
{
	lock_take(&arena.lock);
	uint64_t before = published()->arena_bytes;
	for (chunk_t *chunk = arena.first; chunk != NULL && most > 0; chunk = chunk->next, most--) {
		purge(chunk, all);
	}
	size_t purged = before - published()->arena_bytes;
	lock_release(&arena.lock);
	return purged;
}

void arena_decay(void)
{
	purge_chunks(LOOKED_AT, false);
}

size_t arena_trim(void)
{
	return purge_chunks(UINT_MAX, true);
}

void arena_lock(void)
{
	lock_take(&arena.lock);
}

void arena_unlock(void)
{
	lock_release(&arena.lock);
}

void arena_forget_lock(void)
{
	lock_forget(&arena.lock);
}
