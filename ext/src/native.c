#include "native.h"

#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef __SANITIZE_ADDRESS__
/* From sanitizer/allocator_interface.h, which comes with clang only. */
int __sanitizer_get_ownership(const volatile void *);
size_t __sanitizer_get_allocated_size(const volatile void *);
#endif

/* References that a string of the process gets, and how low they may get before they are filled up: each restored request may
 * drop some, and none takes them again. */
#define REFERENCES (1u << 30)
#define LOW (1u << 29)

/* Longest list of native heaps that we look through: a process has one, and one for each thread. AddressSanitizer's has a
 * part for each size of blocks. */
#ifdef __SANITIZE_ADDRESS__
# define MAX_HEAPS 1024
#else
# define MAX_HEAPS 64
#endif

typedef struct {
	uintptr_t start, end;
} range_t;

static bool is_heap(const char *map)
{
#ifdef __SANITIZE_ADDRESS__
	return !strpbrk(map, "/[");
#else
	return strstr(map, "[heap]");
#endif
}

/* Whether malloc() has given out a block that begins there, of at least so many bytes. */
static bool is_block(const void *address, size_t bytes)
{
#ifdef __SANITIZE_ADDRESS__
	return __sanitizer_get_ownership(address) && __sanitizer_get_allocated_size(address) >= bytes;
#else
	return malloc_usable_size((void *) address) >= bytes;
#endif
}

/* Their number, or -1. */
static int find_heaps(range_t *heaps)
{
	FILE *maps = fopen("/proc/self/maps", "re");
	char line[512];
	int count = 0;

	if (!maps) {
		return -1;
	}
	while (count < MAX_HEAPS && fgets(line, sizeof line, maps)) {
		unsigned long start, end;
		if (sscanf(line, "%lx-%lx rw-p", &start, &end) == 2 && is_heap(line)) {
			heaps[count++] = (range_t) {start, end};
		}
	}
	fclose(maps);
	return count;
}

/* The end of the native heap that `word` points into, or 0. */
static uintptr_t end_of(const range_t *heaps, int count, uintptr_t word)
{
	for (int i = 0; i < count; i++) {
		if (word - heaps[i].start < heaps[i].end - heaps[i].start) {
			return heaps[i].end;
		}
	}
	return 0;
}

/* Whether this is a string that counts its references. The allocator's own record of the block must agree. */
static bool is_counted_string(const zend_string *string, uintptr_t end)
{
	return (uintptr_t) string % 16 == 0 && (uintptr_t) string + _ZSTR_STRUCT_SIZE(0) <= end
#ifdef __SANITIZE_ADDRESS__
		&& is_block(string, _ZSTR_STRUCT_SIZE(0))
#endif
		&& GC_TYPE(string) == IS_STRING && !(GC_FLAGS(string) & IS_STR_INTERNED) && GC_FLAGS(string) & IS_STR_PERSISTENT
		&& ZSTR_LEN(string) < end - (uintptr_t) string - _ZSTR_STRUCT_SIZE(0)
		&& is_block(string, _ZSTR_STRUCT_SIZE(ZSTR_LEN(string))) && !ZSTR_VAL(string)[ZSTR_LEN(string)];
}

static void keep(slip_image_t *image, zend_string *string)
{
	zend_string **longer = realloc(image->strings, (image->strings_count + 1) * sizeof *longer);

	if (longer) {
		image->strings = longer;
		image->strings[image->strings_count++] = string;
		if (GC_REFCOUNT(string) < LOW) {
			GC_SET_REFCOUNT(string, REFERENCES);
		}
	}
}

bool slip_native_scan(slip_image_t *image)
{
	range_t heaps[MAX_HEAPS];
	int count = find_heaps(heaps);
	size_t pages = image->rollback.bytes / SLIP_PAGE_BYTES;

	if (count < 0) {
		return false;
	}
	for (size_t page = 0; page < pages; page++) {
		if (!(image->rollback.in_use[page / 64] >> (page % 64) & 1)) {
			continue;
		}
		const uintptr_t *words = (const uintptr_t *) (image->writable + page * SLIP_PAGE_BYTES);
		for (size_t i = 0; i < SLIP_PAGE_BYTES / sizeof *words; i++) {
			uintptr_t end = end_of(heaps, count, words[i]);
			if (end && is_counted_string((zend_string *) words[i], end)) {
				keep(image, (zend_string *) words[i]);
			}
		}
	}
	return true;
}

void slip_native_refresh(slip_image_t *image)
{
	for (size_t i = 0; i < image->strings_count; i++) {
		if (GC_REFCOUNT(image->strings[i]) < LOW) {
			GC_SET_REFCOUNT(image->strings[i], REFERENCES);
		}
	}
}
