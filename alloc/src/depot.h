/* What all threads share of one class: full magazines, which move from thread to thread as a whole, and slabs. Each call takes
 * the lock of the class. */
#ifndef SLIPMALLOC_DEPOT_H
#define SLIPMALLOC_DEPOT_H

#include "magazine.h"
#include "slab.h"

/* Magazines are kept in so many lists, by CPU: those whose numbers are a multiple of it apart share one. */
enum { DEPOT_LISTS = 8 };

/* So many full magazines are kept in any case. */
enum { DEPOT_LEAST_ROOM = 4 };

/* A depot to which another CPU came than before so often since the last turn of decay is shared. Each time its lines, and those of the counters, go from
 * cache to cache. */
enum { DEPOT_MOVES_IF_SHARED = 1024 };

typedef struct {
	size_t slabs;
	/* In slabs and in magazines of the depot. */
	size_t free_blocks;
	/* Magazines that came or went with blocks. */
	uint64_t exchanges;
} depot_counts_t;

/* Whether threads on several CPUs go to this depot by turns. */
bool depot_is_shared(unsigned class);

/* A magazine with blocks for an empty one (or none), filled with up to `blocks` from slabs if the depot has none that is.
 * NULL if there is no memory; then the empty one stays with the caller. */
magazine_t *depot_take_full(unsigned class, magazine_t *empty, unsigned blocks);

/* An empty magazine that holds `blocks`, if possible, for one with blocks, or for none. NULL only if none was given and there is no memory. */
magazine_t *depot_take_empty(unsigned class, magazine_t *full, unsigned blocks);

/* Of a cache that ends. */
void depot_give_back(unsigned class, magazine_t *magazine);

/* For threads without a cache. */
void *depot_take_block(unsigned class);
void depot_put_block(unsigned class, void *block);

/* Gives the blocks of magazines that nobody needed since the last call back to their slabs, and pages of slabs in which no block was. */
void depot_decay(unsigned class);
/* Gives the blocks of all magazines back to their slabs. */
void depot_flush(unsigned class);
/* Gives back all pages of slabs in which each block is free. */
void depot_trim(unsigned class);

/* Has at least so many more blocks in slabs, resident, as far as there is memory. */
void depot_prewarm(unsigned class, size_t blocks);

depot_counts_t depot_count(unsigned class);

void depot_lock(unsigned class);
void depot_unlock(unsigned class);
void depot_forget_lock(unsigned class);

#endif
