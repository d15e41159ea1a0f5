#include "heap.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "zend_virtual_cwd.h"

/* Address space of each heap, and the least that is of use where the process may not have so much (ulimit -v). Only an image
 * must fit into it: what does not is mapped elsewhere and cannot be frozen. */
#define MOST_BYTES ((size_t) 1 << 30)
#define LEAST_BYTES ((size_t) 64 << 20)
#define MOST_SLOTS (MOST_BYTES / SLIP_CHUNK_BYTES)

static slip_heap_t heaps[2];
static uint8_t used[2][MOST_SLOTS];
static size_t half_bytes;
slip_heap_t *slip_heap;

slip_heap_t *slip_heap_other(void)
{
	return slip_heap == &heaps[0] ? &heaps[1] : &heaps[0];
}

static void *map(void *at, size_t bytes, int protection)
{
	int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | (at ? MAP_FIXED : 0);
	void *mapped = mmap(at, bytes, protection, flags, -1, 0);
	return mapped == MAP_FAILED ? NULL : mapped;
}

/* Outside of the halves: as the engine's own allocator does it. */
static void *map_aligned(size_t bytes, size_t alignment)
{
	char *start = map(NULL, bytes + alignment, PROT_READ | PROT_WRITE);
	if (!start) {
		return NULL;
	}
	char *aligned = (char *) (((uintptr_t) start + alignment - 1) & ~(alignment - 1));
	if (aligned > start) {
		munmap(start, aligned - start);
	}
	size_t rest = start + alignment - aligned;
	if (rest) {
		munmap(aligned + bytes, rest);
	}
	return aligned;
}

/* The heap that is being made: until the probe the engine uses a storage of its own, without data. */
static slip_heap_t *making;

static slip_heap_t *heap_of(zend_mm_storage *storage)
{
	return storage->data ? storage->data : making;
}

static void *take(zend_mm_storage *storage, size_t bytes, size_t alignment)
{
	slip_heap_t *heap = heap_of(storage);
	size_t slots = (bytes + SLIP_CHUNK_BYTES - 1) / SLIP_CHUNK_BYTES;
	size_t run = 0;

	for (size_t i = 0; i < half_bytes / SLIP_CHUNK_BYTES; i++) {
		run = heap->used[i] == SLIP_SLOT_FREE ? run + 1 : 0;
		if (run == slots) {
			size_t first = i + 1 - slots;
			char *block = heap->base + first * SLIP_CHUNK_BYTES;
			if (!map(block, bytes, PROT_READ | PROT_WRITE)) {
				return NULL;
			}
			memset(heap->used + first, SLIP_SLOT_NEXT, slots);
			heap->used[first] = SLIP_SLOT_FIRST;
			if (first + slots > heap->top) {
				heap->top = first + slots;
			}
			return block;
		}
	}
	heap->overflowed = true;
	return map_aligned(bytes, alignment);
}

static void give(zend_mm_storage *storage, void *block, size_t bytes)
{
	slip_heap_t *heap = heap_of(storage);

	if (slip_heap_owns(heap, block)) {
		size_t first = ((char *) block - heap->base) / SLIP_CHUNK_BYTES;
		size_t slots = (bytes + SLIP_CHUNK_BYTES - 1) / SLIP_CHUNK_BYTES;
		memset(heap->used + first, SLIP_SLOT_FREE, slots);
		map(block, slots * SLIP_CHUNK_BYTES, PROT_NONE);
		while (heap->top && heap->used[heap->top - 1] == SLIP_SLOT_FREE) {
			heap->top--;
		}
	} else if (!slip_heap_owns(slip_heap_other(), block)) {
		munmap(block, bytes);
	}
	/* Else a huge block of the image: the next roll-back needs its memory where it is. */
}

static bool truncate_block(zend_mm_storage *storage, void *block, size_t old_bytes, size_t new_bytes)
{
	slip_heap_t *heap = heap_of(storage);

	if (slip_heap_owns(heap, block)) {
		size_t first = ((char *) block - heap->base) / SLIP_CHUNK_BYTES;
		size_t kept = (new_bytes + SLIP_CHUNK_BYTES - 1) / SLIP_CHUNK_BYTES;
		size_t slots = (old_bytes + SLIP_CHUNK_BYTES - 1) / SLIP_CHUNK_BYTES;
		memset(heap->used + first + kept, SLIP_SLOT_FREE, slots - kept);
		map((char *) block + new_bytes, slots * SLIP_CHUNK_BYTES - new_bytes, PROT_NONE);
		return true;
	}
	if (slip_heap_owns(slip_heap_other(), block)) {
		return false;
	}
	munmap((char *) block + new_bytes, old_bytes - new_bytes);
	return true;
}

static bool extend_block(zend_mm_storage *storage, void *block, size_t old_bytes, size_t new_bytes)
{
	slip_heap_t *heap = heap_of(storage);
	size_t slots = (old_bytes + SLIP_CHUNK_BYTES - 1) / SLIP_CHUNK_BYTES;

	/* Within its last slot a block can grow where it is. */
	if (!slip_heap_owns(heap, block) || new_bytes > slots * SLIP_CHUNK_BYTES) {
		return false;
	}
	return map((char *) block + old_bytes, new_bytes - old_bytes, PROT_READ | PROT_WRITE) != NULL;
}

static const zend_mm_handlers handlers = {take, give, truncate_block, extend_block};

/* Makes a new heap in the half at `base`. */
static const char *make(slip_heap_t *heap, char *base, uint8_t *slots)
{
	const char *reason;

	heap->base = base;
	heap->used = slots;
	memcpy((void *) &heap->storage.handlers, &handlers, sizeof handlers);
	heap->storage.data = heap;
	making = heap;
	heap->mm = zend_mm_startup_ex(&handlers, NULL, 0);
	if (!heap->mm || (char *) heap->mm - base >= (ptrdiff_t) SLIP_PAGE_BYTES) {
		return "a second heap could not be made";
	}
	if ((reason = slip_layout_probe(heap->mm, &heap->storage)) != NULL) {
		return reason;
	}
	heap->first_page = malloc(SLIP_PAGE_BYTES);
	if (!heap->first_page) {
		return "out of memory";
	}
	memcpy(heap->first_page, base, SLIP_PAGE_BYTES);
	return NULL;
}

/* What a warning of the start-up has left, as of a module that is not there or is loaded twice. The engine forgets it, too, as soon as all
 * modules have started. */
static void forget_last_error(void)
{
	zend_string **left[] = {&PG(last_error_message), &PG(last_error_file)};

	for (size_t i = 0; i < sizeof left / sizeof *left; i++) {
		if (*left[i]) {
			zend_string_release(*left[i]);
			*left[i] = NULL;
		}
	}
}

const char *slip_heap_startup(void)
{
	char *space = NULL;

	half_bytes = 2 * MOST_BYTES;
	while (!space && half_bytes > LEAST_BYTES) {
		half_bytes /= 2;
		space = map(NULL, 2 * half_bytes + SLIP_CHUNK_BYTES, PROT_NONE);
	}
	if (!space) {
		return "address space for the image could not be reserved (ulimit -v?)";
	}
	char *base = (char *) (((uintptr_t) space + SLIP_CHUNK_BYTES - 1) & ~(SLIP_CHUNK_BYTES - 1));
	const char *reason;
	slip_heap = &heaps[0];
	if ((reason = make(&heaps[0], base, used[0])) || (reason = make(&heaps[1], base + half_bytes, used[1]))) {
		munmap(space, 2 * half_bytes + SLIP_CHUNK_BYTES);
		return reason;
	}
	/* These are the only blocks of the start-up that are freed later. The engine makes the former anew for each request. */
	virtual_cwd_deactivate();
	forget_last_error();
	zend_mm_set_heap(slip_heap->mm);
	zend_set_memory_limit(PG(memory_limit));
	return NULL;
}

void slip_heap_wipe(void)
{
	for (size_t slot = 0; slot < slip_heap->top; slot++) {
		if (slip_heap->used[slot] == SLIP_SLOT_FIRST) {
			/* The first page is the allocator's own. */
			char *chunk = slip_heap->base + slot * SLIP_CHUNK_BYTES;
			madvise(chunk + SLIP_PAGE_BYTES, SLIP_CHUNK_BYTES - SLIP_PAGE_BYTES, MADV_DONTNEED);
		}
	}
}

void slip_heap_free_huge(void)
{
	slip_huge_t *block = (slip_huge_t *) SLIP_HEAP_WORD(slip_heap->mm, huge_list);

	SLIP_HEAP_WORD(slip_heap->mm, huge_list) = 0;
	while (block) {
		slip_huge_t *next = block->next;
		give(&slip_heap->storage, block->ptr, block->size);
		block = next;
	}
}

void slip_heap_exchange(size_t top)
{
	slip_heap_t *other = slip_heap_other();

	/* What came and went since the image was taken is not in it. */
	if (slip_heap->top > top) {
		map(slip_heap->base + top * SLIP_CHUNK_BYTES, (slip_heap->top - top) * SLIP_CHUNK_BYTES, PROT_NONE);
		memset(slip_heap->used + top, SLIP_SLOT_FREE, slip_heap->top - top);
	}
	slip_heap->top = top;
	slip_heap->frozen = true;
	slip_heap = other;
	zend_mm_set_heap(other->mm);
}

void slip_heap_renew(slip_heap_t *heap)
{
	map(heap->base, heap->top * SLIP_CHUNK_BYTES, PROT_NONE);
	memset(heap->used, SLIP_SLOT_FREE, heap->top);
	map(heap->base, SLIP_CHUNK_BYTES, PROT_READ | PROT_WRITE);
	memcpy(heap->base, heap->first_page, SLIP_PAGE_BYTES);
	heap->used[0] = SLIP_SLOT_FIRST;
	heap->top = 1;
	heap->frozen = false;
	heap->overflowed = false;
}
