/* Memory for magazines and thread caches: pieces, and up to four of them in a row. */
#ifndef SLIPMALLOC_ARENA_H
#define SLIPMALLOC_ARENA_H

#include <stddef.h>

enum { ARENA_PIECE_BYTES = 1024 };

/* A row of 1, 2 or 4 pieces, aligned to its size, with anything in it. NULL if there is no memory. */
void *arena_take(unsigned pieces);
void arena_give(void *row, unsigned pieces);

/* Gives pages back of which no piece was taken or given since the last call. */
void arena_decay(void);
/* Gives back all pages of which each piece is free: the bytes. */
size_t arena_trim(void);

void arena_lock(void);
void arena_unlock(void);
void arena_forget_lock(void);

#endif
