#ifndef SLIP_HEAP_H
#define SLIP_HEAP_H

#include "layout.h"

/* One of the two heaps of the process, with its half of the reserved address space. At each time one of them is the
 * engine's request heap; the other is new, or frozen: its memory is the image. The space is reserved before the master
 * forks, so that a block has the same address in every worker. */
typedef struct {
	zend_mm_heap *mm;
	zend_mm_storage storage;
	char *base;         /* first byte of its half, on a chunk boundary */
	size_t top;         /* slots from here on were never taken */
	uint8_t *used;      /* one byte a slot of SLIP_CHUNK_BYTES: slip_slot */
	void *first_page;   /* what the first page of a new heap holds */
	bool frozen;
	bool overflowed;    /* a block did not fit into the half and lies elsewhere */
} slip_heap_t;

enum slip_slot { SLIP_SLOT_FREE, SLIP_SLOT_FIRST, SLIP_SLOT_NEXT };

/* The heap that the engine uses for requests. */
extern slip_heap_t *slip_heap;

/* Reserves the space, makes the two heaps and gives the engine the first one. Call once, before the process forks and
 * while nothing of the engine's own heap is needed any more. NULL, or why it was not possible; the engine then has its
 * own heap as before. */
const char *slip_heap_startup(void);

slip_heap_t *slip_heap_other(void);

static inline bool slip_heap_owns(const slip_heap_t *heap, const void *address)
{
	return (uintptr_t) address - (uintptr_t) heap->base < heap->top * SLIP_CHUNK_BYTES;
}

/* Gives the huge blocks of the request heap back, as the engine does a moment later: what it needs for that, the list of them,
 * can lie in blocks of the image that the request has freed, and must not be rolled back before. */
void slip_heap_free_huge(void);

/* The request heap becomes frozen, with its first `top` slots, and the other one the request heap. Only between requests. */
void slip_heap_exchange(size_t top);

/* Empties the request heap of what the request has left in it, which would show in later blocks that are longer than what
 * they hold. Only when nothing of it is used any more. */
void slip_heap_wipe(void);

/* Throws away what a frozen heap holds and makes it new. */
void slip_heap_renew(slip_heap_t *heap);

#endif
