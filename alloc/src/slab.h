/* 64 KiB of blocks of one class, with a bit for each block that it has to give. Under the lock of the class's depot. */
#ifndef SLIPMALLOC_SLAB_H
#define SLIPMALLOC_SLAB_H

#include "region.h"

/* What misuse is called that shows when a block reaches its slab: the call that did it is long past. */
#define SLAB_FOUND_LATE "free (found late)"

static inline unsigned slab_block_count(unsigned class)
{
	return (unsigned)(SLAB_BYTES / class_bytes[class]);
}

/* A slab of this class with all of its blocks. NULL if there is no memory. */
slab_t *slab_create(unsigned class);

/* Gives a slab that has all of its blocks to the heap. */
void slab_destroy(slab_t *slab);

/* Takes up to `most` of its blocks, those with the lowest addresses, and puts the lowest on top. Returns how many. */
unsigned slab_take(slab_t *slab, unsigned class, void **bottom, unsigned most);

/* Gives pages back which only free blocks have, if no block so high was taken or given since the last call, or in any case. Whether there were
 * such pages. */
bool slab_purge(slab_t *slab, unsigned class, bool all);

/* Aborts if the block is none of this slab, or there already. */
void slab_put(slab_t *slab, unsigned class, void *block);

#endif
