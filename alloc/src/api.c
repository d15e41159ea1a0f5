/* The functions that programs call, with what glibc documents of them: errno, no bytes, alignments. */
#include <errno.h>
#include <malloc.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include "../include/slipmalloc.h"
#include "class.h"
#include "misuse.h"
#include "stats.h"

/* Where blocks come from. */
#ifdef SLIPMALLOC_DEBUG
#include "debug.h"
#define BLOCKS(function) debug_##function
#else
#include "blocks.h"
#define BLOCKS(function) blocks_##function
#endif

/* The tests link the same code beside the C library's malloc(), under names of its own. */
#ifdef SLIPMALLOC_PLAIN
#define NAME(function) slip_##function
#else
#define NAME(function) function
#endif

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

void *NAME(malloc)(size_t bytes)
{
	return BLOCKS(take)(bytes);
}

void NAME(free)(void *block)
{
	BLOCKS(put)(block);
}

void *NAME(calloc)(size_t count, size_t bytes)
{
	size_t total;
	if (__builtin_mul_overflow(count, bytes, &total)) {
		errno = ENOMEM;
		return NULL;
	}
	return BLOCKS(take_zero)(total);
}

/* As glibc: with no block it is malloc(), to no bytes it is free() and returns NULL. */
void *NAME(realloc)(void *block, size_t bytes)
{
	if (block == NULL) {
		return BLOCKS(take)(bytes);
	}
	if (bytes == 0) {
		BLOCKS(put)(block);
		return NULL;
	}
	size_t had;
	if (BLOCKS(resize)(block, bytes, &had)) {
		return block;
	}
	int before = errno;
	void *moved = BLOCKS(take)(bytes);
	if (moved == NULL) {
		/* Too large a block is one that the program has. */
		errno = bytes <= had ? before : ENOMEM;
		return bytes <= had ? block : NULL;
	}
	memcpy(moved, block, bytes < had ? bytes : had);
	BLOCKS(put)(block);
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
	size_t power = CLASS_GRANULE;
	if (alignment > SIZE_MAX / 2 + 1) {
		errno = EINVAL;
		return NULL;
	}
	while (power < alignment) {
		power *= 2;
	}
	return BLOCKS(take_aligned)(power, bytes);
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
	void *taken = BLOCKS(take_aligned)(alignment, bytes);
	errno = before;
	if (taken == NULL) {
		return ENOMEM;
	}
	*block = taken;
	return 0;
}

void *NAME(valloc)(size_t bytes)
{
	return BLOCKS(take_aligned)((size_t)sysconf(_SC_PAGESIZE), bytes);
}

void *NAME(pvalloc)(size_t bytes)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	if (bytes > SIZE_MAX - page) {
		errno = ENOMEM;
		return NULL;
	}
	return BLOCKS(take_aligned)(page, (bytes + page - 1) & ~(page - 1));
}

size_t NAME(malloc_usable_size)(void *block)
{
	return block == NULL ? 0 : BLOCKS(bytes)("malloc_usable_size", block);
}

/* Gives back all that is free, except what other threads have in their caches. `pad` has no meaning here: nothing is at the top
 * of a heap. */
int NAME(malloc_trim)(size_t pad)
{
	int before = errno;
	(void)pad;
	size_t given_back = BLOCKS(trim)();
	errno = before;
	return given_back > 0;
}

struct mallinfo2 NAME(mallinfo2)(void)
{
	stats_t stats = stats_count();
	struct mallinfo2 information = {
		.arena = stats.small_taken_bytes + stats.small_free_bytes + stats.large_bytes + stats.guarded_bytes + stats.kept_bytes,
		.uordblks = stats.small_taken_bytes + stats.large_bytes + stats.guarded_bytes,
		.fordblks = stats.small_free_bytes + stats.kept_bytes,
		.keepcost = stats.kept_bytes,
	};
	return information;
}

void NAME(free_sized)(void *block, size_t bytes)
{
	if (block != NULL && bytes > BLOCKS(bytes)("free_sized", block)) {
		misuse("free_sized", block, "holds fewer bytes");
	}
	BLOCKS(put)(block);
}

void NAME(free_aligned_sized)(void *block, size_t alignment, size_t bytes)
{
	bool is_power = alignment != 0 && (alignment & (alignment - 1)) == 0;
	if (block != NULL && is_power && ((uintptr_t)block & (alignment - 1)) != 0) {
		misuse("free_aligned_sized", block, "has not this alignment");
	}
	NAME(free_sized)(block, bytes);
}
