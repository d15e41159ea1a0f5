/* Blocks of whole slabs: runs of them within a superslab up to 1 MiB, superslabs above. */
#ifndef SLIPMALLOC_LARGE_H
#define SLIPMALLOC_LARGE_H

#include <stdbool.h>
#include <stddef.h>

/* The alignment is a power of two. NULL if there is no memory. `is_zero` is whether it had better read as zero, and then whether all of it does. */
void *large_take(size_t bytes, size_t alignment, bool *is_zero);

/* These abort if `block` is no large block; `what` is the function that was called with it. */
void large_give(const char *what, void *block);
size_t large_bytes(const char *what, const void *block);
/* Makes the block longer or shorter where it is. False, and nothing changed, if it should rather move. */
bool large_resize(const char *what, void *block, size_t bytes);

#endif
