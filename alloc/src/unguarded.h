/* Blocks of the debug build that the kernel has no guard page for. They are of the usual heap, with a pattern behind them that ends in
 * a word which holds how many bytes were asked for, or that the block was freed. Under the lock of the debug build. All but the first
 * abort if something is wrong. */
#ifndef SLIPMALLOC_UNGUARDED_H
#define SLIPMALLOC_UNGUARDED_H

#include <stddef.h>

/* NULL with errno if there is no memory. */
void *unguarded_take(size_t bytes, size_t alignment);

/* As many as were asked for. */
size_t unguarded_bytes(const char *what, const void *block);

/* The program has freed it: until it is released it holds a pattern, so what writes to it is found then. */
void unguarded_hide(void *block);

/* Gives a block to the heap that was hidden; or at once one that was not. */
void unguarded_release(void *block);
void unguarded_give(void *block);

size_t unguarded_trim(void);

#endif
