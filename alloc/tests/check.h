/* For tests that link the allocator beside the C library's, under names of its own. */
#ifndef CHECK_H
#define CHECK_H

#include <malloc.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

void *slip_malloc(size_t bytes);
void slip_free(void *block);
void *slip_calloc(size_t count, size_t bytes);
void *slip_realloc(void *block, size_t bytes);
void *slip_reallocarray(void *block, size_t count, size_t bytes);
void *slip_aligned_alloc(size_t alignment, size_t bytes);
int slip_posix_memalign(void **block, size_t alignment, size_t bytes);
void *slip_memalign(size_t alignment, size_t bytes);
void *slip_valloc(size_t bytes);
void *slip_pvalloc(size_t bytes);
size_t slip_malloc_usable_size(void *block);
int slip_malloc_trim(size_t pad);
struct mallinfo2 slip_mallinfo2(void);
void slip_free_sized(void *block, size_t bytes);
void slip_free_aligned_sized(void *block, size_t alignment, size_t bytes);

#define CHECK(condition)                                                                                                   \
	do {                                                                                                               \
		if (!(condition)) {                                                                                        \
			fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);                                    \
			_Exit(1);                                                                                          \
		}                                                                                                          \
	} while (0)

/* Numbers that are the same in each run. */
static inline uint32_t next_random(uint32_t *state)
{
	uint32_t x = *state;
	x ^= x << 13;
	x ^= x >> 17;
	x ^= x << 5;
	return *state = x;
}

/* Bytes that the program has, when no other thread has a cache. */
static inline size_t bytes_taken(void)
{
	slip_malloc_trim(0);
	return slip_mallinfo2().uordblks;
}

#endif
