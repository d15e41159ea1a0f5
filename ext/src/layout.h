#ifndef SLIP_LAYOUT_H
#define SLIP_LAYOUT_H

#include "php.h"

/* Where the private fields of the engine's allocator are, in bytes. Distributions patch zend_alloc.c (Debian's 8.2.36 has
 * words that upstream's 8.2.36 lacks), so nothing is taken from a version number: each offset is found by doing something
 * through the public interface and watching which words follow. */
typedef struct {
	size_t size, peak, real_size, real_peak; /* counters of the heap */
	size_t huge_list;                        /* first slip_huge_t */
	size_t free_slot;                        /* ZEND_MM_BINS list heads */
	size_t storage;                          /* zend_mm_storage * */
	size_t free_map;                         /* from the start of a chunk: one bit a page, 1 = in use */
} slip_layout_t;

/* A block of 2 MiB or more, as the heap lists it. */
typedef struct slip_huge {
	void *ptr;
	size_t size;
	struct slip_huge *next;
} slip_huge_t;

/* First words of each chunk. */
typedef struct slip_chunk {
	zend_mm_heap *heap;
	struct slip_chunk *next, *prev;
	uint32_t free_pages, free_tail, num;
} slip_chunk_t;

#define SLIP_CHUNK_BYTES ((size_t) 2 << 20)
#define SLIP_PAGE_BYTES ((size_t) 4096)
#define SLIP_CHUNK_PAGES (SLIP_CHUNK_BYTES / SLIP_PAGE_BYTES)
#define SLIP_BINS 30

extern slip_layout_t slip_layout;

#define SLIP_HEAP_WORD(mm, field) (*(size_t *) ((char *) (mm) + slip_layout.field))

/* Size in bytes of the blocks of one bin. */
size_t slip_bin_bytes(int bin);

/* Finds all offsets on `mm`, a heap that holds nothing yet and is not in use, with `storage` as its storage.
 * NULL, or why the layout is not one we understand. The heap is as new afterwards. */
const char *slip_layout_probe(zend_mm_heap *mm, zend_mm_storage *storage);

#endif
