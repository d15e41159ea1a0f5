#include "arena.h"

#include <limits.h>

#include "lock.h"
#include "published.h"

enum {
	PIECES = 64,
	PAGE_BYTES = 4096,
	PIECES_IN_PAGE = PAGE_BYTES / ARENA_PIECE_BYTES,
	/* At so many chunks a turn of decay looks, because the lock is held. */
	LOOKED_AT = 1024,
};

#define CHUNK_BYTES ((size_t)PIECES * ARENA_PIECE_BYTES)
#define PIECES_OF_FIRST_PAGE ((uint64_t)(1 << PIECES_IN_PAGE) - 1)

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

void *arena_take(void)
{
	void *piece = NULL;
	lock_take(&arena.lock);
	if (arena.first != NULL || add_chunk()) {
		chunk_t *chunk = arena.first;
		unsigned number = (unsigned)__builtin_ctzll(chunk->free);
		uint64_t of_page = PIECES_OF_FIRST_PAGE << number / PIECES_IN_PAGE * PIECES_IN_PAGE;
		published()->arena_bytes += chunk->purged & of_page ? PAGE_BYTES : 0;
		chunk->purged &= ~of_page;
		chunk->free &= ~(1ull << number);
		chunk->recent |= 1ull << number;
		if (chunk->free == 0) {
			unlist(chunk);
		}
		piece = (char *)chunk + number * (size_t)ARENA_PIECE_BYTES;
	}
	lock_release(&arena.lock);
	return piece;
}

void arena_give(void *piece)
{
	chunk_t *chunk = (chunk_t *)((uintptr_t)piece & ~(uintptr_t)(CHUNK_BYTES - 1));
	uint64_t bit = 1ull << ((uintptr_t)piece - (uintptr_t)chunk) / ARENA_PIECE_BYTES;
	lock_take(&arena.lock);
	if (chunk->free == 0) {
		list(chunk);
	}
	chunk->free |= bit;
	chunk->recent |= bit;
	lock_release(&arena.lock);
}

/* Gives back the pages that have been free for a turn, or all that are free. */
static void purge(chunk_t *chunk, bool all)
{
	uint64_t quiet = chunk->free & ~chunk->purged & (all ? UINT64_MAX : ~chunk->recent);
	chunk->recent = 0;
	for (unsigned number = PIECES_IN_PAGE; number < PIECES; number += PIECES_IN_PAGE) {
		uint64_t of_page = PIECES_OF_FIRST_PAGE << number;
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
