/* The debug build finds what programs do wrong where they do it: each block has pages of its own and an inaccessible one behind it
 * (guard.h), and what was freed stays inaccessible for a while. It is slow, and takes at least a page for each block. The kernel bounds
 * how many mappings a process has: blocks beyond that are of the usual heap, with a pattern behind them (unguarded.h). In other builds
 * all of this is nothing. */
#ifndef SLIPMALLOC_DEBUG_H
#define SLIPMALLOC_DEBUG_H

#include <stdbool.h>
#include <stddef.h>

#ifdef SLIPMALLOC_DEBUG

/* Blocks, in the place of blocks.h. */
void *debug_take(size_t bytes);
void *debug_take_aligned(size_t alignment, size_t bytes);
void *debug_take_zero(size_t bytes);
void debug_put(void *block);
/* As many bytes as were asked for: the rest of the page is not the program's. */
size_t debug_bytes(const char *what, const void *block);
/* Never: a block that moves each time shows who kept its old address. */
bool debug_resize(const void *block, size_t bytes, size_t *had);
/* Ends the quarantine, too: the bytes that were given back. */
size_t debug_trim(void);

/* When the options are read. */
void debug_begin(void);

/* Bytes of blocks that the program has, of those with a guard page. */
size_t debug_guarded_bytes(void);
void debug_write_stats(int fd);

/* Takes or forgets the lock; for fork(). */
void debug_lock(void);
void debug_unlock(void);
void debug_forget_lock(void);

#else

static inline void debug_begin(void)
{
}

static inline size_t debug_guarded_bytes(void)
{
	return 0;
}

static inline void debug_write_stats(int fd)
{
	(void)fd;
}

static inline void debug_lock(void)
{
}

static inline void debug_unlock(void)
{
}

static inline void debug_forget_lock(void)
{
}

#endif

#endif
