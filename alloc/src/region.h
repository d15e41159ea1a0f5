/* The one range of addresses that all blocks come from, and what describes it. */
#ifndef SLIPMALLOC_REGION_H
#define SLIPMALLOC_REGION_H

#include "class.h"
#include "superslab.h"

typedef struct {
	/* Where slab 0 begins. */
	uintptr_t base;
	/* 0 until the region is there, so that no address is in it. */
	size_t slabs;
	/* Size class of each slab; 0 for those that are free or part of a large block. */
	uint8_t *classes;
	superslab_t *superslabs;
	size_t superslab_count;
#ifdef SLIPMALLOC_SECURE
	/* A bit for each 16 bytes of superslabs, set where a block of the program begins. */
	_Atomic uint64_t *live;
#endif
	/* Superslabs that may be touched, with their description. Grows only. */
	_Atomic size_t usable;
	/* One bit for each superslab. Free ones: freed since the last turn of decay, before it, and those that read as zero. */
	uint64_t *recent;
	uint64_t *aged;
	uint64_t *zero;
	/* The kernel may give it a huge page. */
	uint64_t *huge;
} region_t;

extern region_t region;

/* Reserves the region unless that was done. False if there is no address space at all. */
bool region_is_ready(void);

/* Makes the first `superslabs` usable. Under the heap's lock. False, and nothing changed, if the region or the kernel has no more. */
bool region_reach(size_t superslabs);

/* Takes or forgets the lock; for fork(). */
void region_lock(void);
void region_unlock(void);
void region_forget_lock(void);

static inline size_t region_slab_number(const void *address)
{
	return ((uintptr_t)address - region.base) >> SLAB_SHIFT;
}

static inline char *region_address(size_t slab)
{
	return (char *)region.base + (slab << SLAB_SHIFT);
}

static inline superslab_t *region_superslab(size_t slab)
{
	return &region.superslabs[slab / SLABS_IN_SUPERSLAB];
}

static inline slab_t *region_slab(size_t slab)
{
	return &region_superslab(slab)->slabs[slab % SLABS_IN_SUPERSLAB];
}

#endif
