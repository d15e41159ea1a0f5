/* Gives out slabs and superslabs. Free superslabs are kept for a while and then given back to the kernel as a whole, because
 * a page that comes back costs as much as 200 pairs of malloc() and free(). All take the heap's lock themselves. */
#ifndef SLIPMALLOC_HEAP_H
#define SLIPMALLOC_HEAP_H

#include "region.h"

#define HEAP_NONE SIZE_MAX

typedef struct {
	size_t usable_bytes;
	/* Taken, as slabs and superslabs. */
	size_t taken_bytes;
	/* Free superslabs that were not given back yet, and free slabs of others that don't read as zero. */
	size_t kept_bytes;
	/* Given back since the start. */
	size_t purged_bytes;
} heap_counts_t;

/* `count` slabs in a row, less than a superslab has: the number of the first, HEAP_NONE if there are none. */
size_t heap_take_slabs(unsigned count, bool *are_zero);
void heap_give_slabs(size_t first, unsigned count);

/* `count` superslabs in a row: the number of the first, HEAP_NONE if there are none. Any part of them may be given back. With `fill`, which is
 * for those that will be used soon, what reads as zero gets the pages of others that are free. */
size_t heap_take_superslabs(size_t count, bool fill, bool *are_zero);
void heap_give_superslabs(size_t first, size_t count);

/* Takes what follows, too. False, and nothing changed, if that is not free. */
bool heap_extend_slabs(size_t first, unsigned count, unsigned wanted);
bool heap_extend_superslabs(size_t first, size_t count, size_t wanted);

/* Has the kernel give huge pages to these, which somebody has taken. */
void heap_use_huge_pages(size_t first, size_t count);

/* Gives back pages of a slab that somebody has taken. False if the kernel keeps them. */
bool heap_purge_pages(size_t slab, unsigned first_page, unsigned pages);

/* Gives back free superslabs that were free already at the last call, and slabs of others that have many. */
void heap_decay(void);

/* Whether the next turns of decay have many superslabs to give back. Takes no lock. */
bool heap_has_shrunk(void);

/* Gives back all that is free. */
void heap_trim(void);

heap_counts_t heap_count(void);

void heap_lock(void);
void heap_unlock(void);
void heap_forget_locks(void);

#endif
