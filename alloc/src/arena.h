/* Memory for magazines and thread caches, in pieces of one size that are never given back to the kernel. */
#ifndef SLIPMALLOC_ARENA_H
#define SLIPMALLOC_ARENA_H

enum { ARENA_PIECE_BYTES = 1024 };

/* One piece, aligned to its size, with anything in it. NULL if there is no memory. */
void *arena_take(void);
void arena_give(void *piece);

void arena_lock(void);
void arena_unlock(void);
void arena_forget_lock(void);

#endif
