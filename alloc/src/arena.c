#include "arena.h"

#include "lock.h"
#include "published.h"

enum { CHUNK_BYTES = 64 * 1024 };

typedef struct piece piece_t;
struct piece {
	piece_t *next;
};

static struct {
	lock_t lock;
	piece_t *free;
	/* Of the newest chunk. */
	char *unused;
	char *end;
} arena;

void *arena_take(void)
{
	lock_take(&arena.lock);
	void *piece = arena.free;
	if (piece != NULL) {
		arena.free = arena.free->next;
	} else {
		if (arena.unused == arena.end) {
			arena.unused = os_map(CHUNK_BYTES);
			arena.end = arena.unused == NULL ? NULL : arena.unused + CHUNK_BYTES;
			published()->arena_bytes += arena.unused == NULL ? 0 : CHUNK_BYTES;
		}
		if (arena.unused != NULL) {
			piece = arena.unused;
			arena.unused += ARENA_PIECE_BYTES;
		}
	}
	lock_release(&arena.lock);
	return piece;
}

void arena_give(void *given)
{
	piece_t *piece = given;
	lock_take(&arena.lock);
	piece->next = arena.free;
	arena.free = piece;
	lock_release(&arena.lock);
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
