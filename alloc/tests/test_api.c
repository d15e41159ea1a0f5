/* What glibc documents: no bytes, too many bytes, alignments, errno. */
#include <errno.h>
#include <stdbool.h>
#include <string.h>

#include "check.h"

static bool is_aligned(const void *block, size_t alignment)
{
	return (uintptr_t)block % alignment == 0;
}

static void check_no_bytes(void)
{
	void *one = slip_malloc(0), *other = slip_malloc(0);
	CHECK(one != NULL && other != NULL && one != other);
	slip_free(one);
	slip_free(other);
	slip_free(NULL);
	void *none = slip_calloc(0, 8);
	CHECK(none != NULL);
	CHECK(slip_realloc(none, 0) == NULL);
	void *block = slip_realloc(NULL, 0);
	CHECK(block != NULL);
	slip_free(block);
	CHECK(slip_malloc_usable_size(NULL) == 0);
}

static void check_too_many_bytes(void)
{
	volatile size_t most = SIZE_MAX;
	char *block = slip_malloc(100);
	memset(block, 7, 100);
	errno = 0;
	CHECK(slip_malloc(most) == NULL && errno == ENOMEM);
	errno = 0;
	CHECK(slip_malloc((size_t)PTRDIFF_MAX + 1) == NULL && errno == ENOMEM);
	errno = 0;
	CHECK(slip_malloc((size_t)1 << 60) == NULL && errno == ENOMEM);
	errno = 0;
	CHECK(slip_calloc(most / 2, 3) == NULL && errno == ENOMEM);
	errno = 0;
	CHECK(slip_realloc(block, most - 4096) == NULL && errno == ENOMEM);
	errno = 0;
	CHECK(slip_reallocarray(block, most / 4, 5) == NULL && errno == ENOMEM);
	errno = 0;
	CHECK(slip_aligned_alloc(64, most - 10) == NULL && errno == ENOMEM);
	errno = 0;
	CHECK(slip_pvalloc(most) == NULL && errno == ENOMEM);
	errno = 0;
	CHECK(slip_memalign(most, 8) == NULL && errno == EINVAL);
	CHECK(block[0] == 7 && block[99] == 7);
	slip_free(block);
}

static void check_alignments(void)
{
	void *block = NULL;
	/* Of the addresses that can be had, some need all of what an alignment may cost and some need nothing, so several are taken. */
	void *taken[40];
	for (int at = 0; at < 40; at++) {
		size_t alignment = (size_t)1 << (21 + at % 5);
		taken[at] = slip_memalign(alignment, 1);
		CHECK(is_aligned(taken[at], alignment));
		*(char *)taken[at] = 1;
	}
	for (int at = 0; at < 40; at++) {
		slip_free(taken[at]);
	}
	for (size_t alignment = 8; alignment <= (size_t)16 << 20; alignment *= 2) {
		for (size_t bytes = 0; bytes <= 200000; bytes = bytes * 3 + 1) {
			CHECK(slip_posix_memalign(&block, alignment, bytes) == 0);
			CHECK(is_aligned(block, alignment) && is_aligned(block, 16));
			CHECK(slip_malloc_usable_size(block) >= bytes);
			memset(block, 1, bytes);
			slip_free_aligned_sized(block, alignment, bytes);
		}
	}
	void *before = block = &block;
	errno = 5;
	CHECK(slip_posix_memalign(&block, 0, 8) == EINVAL);
	CHECK(slip_posix_memalign(&block, 4, 8) == EINVAL);
	CHECK(slip_posix_memalign(&block, 24, 8) == EINVAL);
	CHECK(slip_posix_memalign(&block, 64, SIZE_MAX - 100) == ENOMEM);
	CHECK(block == before && errno == 5);
	block = slip_memalign(48, 100);
	CHECK(is_aligned(block, 64));
	slip_free(block);
	block = slip_aligned_alloc(4096, 1);
	CHECK(is_aligned(block, 4096));
	slip_free(block);
	block = slip_valloc(5000);
	CHECK(is_aligned(block, 4096));
	slip_free(block);
	block = slip_pvalloc(4097);
	CHECK(is_aligned(block, 4096) && slip_malloc_usable_size(block) >= 8192);
	slip_free(block);
}

static void check_errno_is_kept(void)
{
	errno = 33;
	for (size_t bytes = 1; bytes < (size_t)64 << 20; bytes *= 2) {
		void *block = slip_malloc(bytes);
		CHECK(block != NULL && errno == 33);
		block = slip_realloc(block, bytes * 2);
		CHECK(block != NULL && errno == 33);
		slip_free(block);
		CHECK(errno == 33);
	}
}

static void check_calloc(void)
{
	for (size_t bytes = 1; bytes < (size_t)8 << 20; bytes = bytes * 3 + 5) {
		for (int time = 0; time < 3; time++) {
			unsigned char *block = slip_calloc(1, bytes);
			for (size_t at = 0; at < bytes; at++) {
				CHECK(block[at] == 0);
			}
			memset(block, 255, slip_malloc_usable_size(block));
			slip_free_sized(block, bytes);
		}
	}
}

/* Growing and shrinking keeps what was there, through all kinds of blocks and back. */
static void check_realloc(void)
{
	unsigned char *block = NULL;
	size_t bytes = 0;
	uint32_t state = 1;
	for (int step = 0; step < 400; step++) {
		size_t wanted = 1 + next_random(&state) % (1u << next_random(&state) % 23);
		block = slip_realloc(block, wanted);
		CHECK(block != NULL && slip_malloc_usable_size(block) >= wanted);
		for (size_t at = 0; at < bytes && at < wanted; at++) {
			CHECK(block[at] == (unsigned char)(at * 7));
		}
		for (size_t at = 0; at < wanted; at++) {
			block[at] = (unsigned char)(at * 7);
		}
		bytes = wanted;
	}
	CHECK(slip_realloc(block, 0) == NULL);
}

int main(void)
{
	check_no_bytes();
	check_too_many_bytes();
	check_alignments();
	check_errno_is_kept();
	check_calloc();
	check_realloc();
	CHECK(bytes_taken() == 0);
	return 0;
}
