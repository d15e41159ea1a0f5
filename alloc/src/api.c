/* The functions that programs call. What is called often is short and free of branches that could be asked elsewhere: all that is
 * unusual (no cache yet, an empty magazine, a large block, an address that is no block's) is one test that fails. */
#include <errno.h>
#include <malloc.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include "../include/slipmalloc.h"
#include "cache.h"
#include "decay.h"
#include "depot.h"
#include "heap.h"
#include "large.h"
#include "misuse.h"
#include "published.h"
#include "secure.h"
#include "stats.h"

/* The tests link the same code beside the C library's malloc(), under names of its own. */
#ifdef SLIPMALLOC_PLAIN
#define NAME(function) slip_##function
#else
#define NAME(function) function
#endif

#define LIKELY(condition) __builtin_expect(!!(condition), 1)
#define SLOW __attribute__((noinline, cold))

/* What is not declared by malloc.h, and the names for tests. */
SLIPMALLOC_API void *NAME(malloc)(size_t bytes);
SLIPMALLOC_API void NAME(free)(void *block);
SLIPMALLOC_API void *NAME(calloc)(size_t count, size_t bytes);
SLIPMALLOC_API void *NAME(realloc)(void *block, size_t bytes);
SLIPMALLOC_API void *NAME(reallocarray)(void *block, size_t count, size_t bytes);
SLIPMALLOC_API void *NAME(aligned_alloc)(size_t alignment, size_t bytes);
SLIPMALLOC_API int NAME(posix_memalign)(void **block, size_t alignment, size_t bytes);
SLIPMALLOC_API void *NAME(memalign)(size_t alignment, size_t bytes);
SLIPMALLOC_API void *NAME(valloc)(size_t bytes);
SLIPMALLOC_API void *NAME(pvalloc)(size_t bytes);
SLIPMALLOC_API size_t NAME(malloc_usable_size)(void *block);
SLIPMALLOC_API int NAME(malloc_trim)(size_t pad);
SLIPMALLOC_API struct mallinfo2 NAME(mallinfo2)(void);
SLIPMALLOC_API void NAME(free_sized)(void *block, size_t bytes);
SLIPMALLOC_API void NAME(free_aligned_sized)(void *block, size_t alignment, size_t bytes);

/* Blocks of all classes are multiples of this in size and address. */
static const size_t USUAL_ALIGNMENT = CLASS_GRANULE;

static void *take_once(size_t bytes, size_t alignment, bool *is_zero)
{
	if (bytes <= CLASS_MOST_BYTES && alignment <= CLASS_MOST_BYTES) {
		unsigned class = class_of(bytes);
		/* Slabs begin at multiples of their size, so a block has the alignment that its size has. The last class has all. */
		while (class_bytes[class] % alignment != 0) {
			class++;
		}
		*is_zero = false;
		return cache_take(class);
	}
	return region_is_ready() ? large_take(bytes, alignment, is_zero) : NULL;
}

/* Any size and alignment. Sets errno only if there is no memory. */
static SLOW void *take_slowly(size_t bytes, size_t alignment, bool *is_zero)
{
	int before = errno;
	void *block = take_once(bytes, alignment, is_zero);
	if (block == NULL && bytes <= PTRDIFF_MAX) {
		/* What this thread and the classes keep for later may be what is needed. */
		published_add(&published()->second_tries, 1);
		cache_flush();
		for (unsigned class = 1; class < CLASSES; class++) {
			depot_flush(class);
		}
		block = take_once(bytes, alignment, is_zero);
	}
	if (block == NULL) {
		published_add(&published()->failures, 1);
	}
	errno = block == NULL ? ENOMEM : before;
	return block;
}

static SLOW void put_slowly(void *block)
{
	if (block == NULL) {
		return;
	}
	size_t slab = region_slab_number(block);
	if (slab >= region.slabs) {
		misuse("free", block, "is not from this heap");
	}
	int before = errno;
	if (region.classes[slab] != 0) {
		cache_put(region.classes[slab], block);
	} else {
		large_give("free", block);
		decay_turn();
	}
	errno = before;
}

/* The class of a block that the program has, 0 if it is a large one. Aborts if it is no block. */
static unsigned check(const char *what, const void *block)
{
	size_t slab = region_slab_number(block);
	if (slab >= region.slabs) {
		misuse(what, block, "is not from this heap");
	}
	unsigned class = region.classes[slab];
	if (class != 0) {
		uint32_t offset = (uint32_t)((uintptr_t)block & (SLAB_BYTES - 1));
		unsigned number = class_block_number(class, offset);
		if (number * class_bytes[class] != offset || number >= slab_block_count(class)) {
			misuse(what, block, "is not the start of a block");
		}
		secure_check(what, block);
	}
	return class;
}

static size_t bytes_of(const char *what, const void *block)
{
	unsigned class = check(what, block);
	return class != 0 ? class_bytes[class] : large_bytes(what, block);
}

/* Tells the secure build about a block that goes to the program. */
static inline void *handed_out(void *block)
{
	if (block != NULL && region.classes[region_slab_number(block)] != 0) {
		secure_take(block);
	}
	return block;
}

static SLOW void *malloc_slowly(size_t bytes)
{
	bool is_zero;
	return handed_out(take_slowly(bytes, USUAL_ALIGNMENT, &is_zero));
}

static inline void *take_of_class(unsigned class, size_t bytes)
{
	cache_t *cache = cache_current;
	void **top = cache->top[class];
	void *block = top[-1];
	if (LIKELY(block != NULL)) {
		cache->top[class] = top - 1;
		secure_take(block);
		return block;
	}
	return malloc_slowly(bytes);
}

static __attribute__((noinline)) void *take_bigger(size_t bytes)
{
	return LIKELY(bytes <= CLASS_MOST_BYTES) ? take_of_class(class_of(bytes), bytes) : malloc_slowly(bytes);
}

static inline void *take(size_t bytes)
{
	if (LIKELY(bytes <= CLASS_LOOKUP_BYTES)) {
		return take_of_class(class_lookup[(bytes + CLASS_GRANULE - 1) / CLASS_GRANULE], bytes);
	}
	return take_bigger(bytes);
}

static inline void put(void *block)
{
	size_t slab = region_slab_number(block);
	if (LIKELY(slab < region.slabs)) {
		unsigned class = region.classes[slab];
		cache_t *cache = cache_current;
		void **top = cache->top[class];
#ifdef SLIPMALLOC_SECURE
		if (class != 0) {
			secure_put(block, class);
		}
#endif
		if (LIKELY(!magazine_is_full(top))) {
			*top = block;
			cache->top[class] = top + 1;
			return;
		}
	}
	put_slowly(block);
}

static void *take_aligned(size_t alignment, size_t bytes)
{
	bool is_zero;
	return handed_out(take_slowly(bytes, alignment < USUAL_ALIGNMENT ? USUAL_ALIGNMENT : alignment, &is_zero));
}

void *NAME(malloc)(size_t bytes)
{
	return take(bytes);
}

void NAME(free)(void *block)
{
	put(block);
}

void *NAME(calloc)(size_t count, size_t bytes)
{
	size_t total;
	if (__builtin_mul_overflow(count, bytes, &total)) {
		errno = ENOMEM;
		return NULL;
	}
	if (total <= CLASS_MOST_BYTES) {
		void *block = take(total);
		return block == NULL ? NULL : memset(block, 0, total);
	}
	bool is_zero;
	void *block = take_slowly(total, USUAL_ALIGNMENT, &is_zero);
	if (block != NULL && !is_zero) {
		memset(block, 0, total);
	}
	return block;
}

/* As glibc: with no block it is malloc(), to no bytes it is free() and returns NULL. */
void *NAME(realloc)(void *block, size_t bytes)
{
	if (block == NULL) {
		return take(bytes);
	}
	if (bytes == 0) {
		put(block);
		return NULL;
	}
	unsigned class = check("realloc", block);
	size_t had;
	if (class != 0) {
		had = class_bytes[class];
		/* Down to a half it stays: copying costs more than the rest of the block is worth. */
		if (bytes <= had && bytes > had / 2) {
			return block;
		}
		if (bytes <= had && class_of(bytes) == class) {
			return block;
		}
	} else {
		int before_resize = errno;
		had = large_bytes("realloc", block);
		if (large_resize("realloc", block, bytes)) {
			errno = before_resize;
			return block;
		}
	}
	int before = errno;
	void *moved = take(bytes);
	if (moved == NULL) {
		/* Too large a block is one that the program has. */
		errno = bytes <= had ? before : ENOMEM;
		return bytes <= had ? block : NULL;
	}
	memcpy(moved, block, bytes < had ? bytes : had);
	put(block);
	return moved;
}

void *NAME(reallocarray)(void *block, size_t count, size_t bytes)
{
	size_t total;
	if (__builtin_mul_overflow(count, bytes, &total)) {
		errno = ENOMEM;
		return NULL;
	}
	return NAME(realloc)(block, total);
}

/* As glibc 2.36: an alignment that is no power of two means the next one. */
void *NAME(memalign)(size_t alignment, size_t bytes)
{
	size_t power = USUAL_ALIGNMENT;
	if (alignment > SIZE_MAX / 2 + 1) {
		errno = EINVAL;
		return NULL;
	}
	while (power < alignment) {
		power *= 2;
	}
	return take_aligned(power, bytes);
}

void *NAME(aligned_alloc)(size_t alignment, size_t bytes)
{
	return NAME(memalign)(alignment, bytes);
}

int NAME(posix_memalign)(void **block, size_t alignment, size_t bytes)
{
	if (alignment == 0 || (alignment & (alignment - 1)) != 0 || alignment % sizeof(void *) != 0) {
		return EINVAL;
	}
	int before = errno;
	void *taken = take_aligned(alignment, bytes);
	errno = before;
	if (taken == NULL) {
		return ENOMEM;
	}
	*block = taken;
	return 0;
}

void *NAME(valloc)(size_t bytes)
{
	return take_aligned((size_t)sysconf(_SC_PAGESIZE), bytes);
}

void *NAME(pvalloc)(size_t bytes)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	if (bytes > SIZE_MAX - page) {
		errno = ENOMEM;
		return NULL;
	}
	return take_aligned(page, (bytes + page - 1) & ~(page - 1));
}

size_t NAME(malloc_usable_size)(void *block)
{
	return block == NULL ? 0 : bytes_of("malloc_usable_size", block);
}

/* Gives back all that is free, except what other threads have in their caches. `pad` has no meaning here: nothing is at the top
 * of a heap. */
int NAME(malloc_trim)(size_t pad)
{
	int before = errno;
	(void)pad;
	cache_flush();
	for (unsigned class = 1; class < CLASSES; class++) {
		depot_flush(class);
	}
	size_t given_back = heap_trim();
	errno = before;
	return given_back > 0;
}

struct mallinfo2 NAME(mallinfo2)(void)
{
	stats_t stats = stats_count();
	struct mallinfo2 information = {
		.arena = stats.small_taken_bytes + stats.small_free_bytes + stats.large_bytes + stats.kept_bytes,
		.uordblks = stats.small_taken_bytes + stats.large_bytes,
		.fordblks = stats.small_free_bytes + stats.kept_bytes,
		.keepcost = stats.kept_bytes,
	};
	return information;
}

void NAME(free_sized)(void *block, size_t bytes)
{
	if (block != NULL && bytes > bytes_of("free_sized", block)) {
		misuse("free_sized", block, "holds fewer bytes");
	}
	put(block);
}

void NAME(free_aligned_sized)(void *block, size_t alignment, size_t bytes)
{
	bool is_power = alignment != 0 && (alignment & (alignment - 1)) == 0;
	if (block != NULL && is_power && ((uintptr_t)block & (alignment - 1)) != 0) {
		misuse("free_aligned_sized", block, "has not this alignment");
	}
	NAME(free_sized)(block, bytes);
}
