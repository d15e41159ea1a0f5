#include "native.h"

#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "path.h"
#include "refuse.h"

#ifdef __SANITIZE_ADDRESS__
/* From sanitizer/allocator_interface.h, which comes with clang only. */
int __sanitizer_get_ownership(const volatile void *);
size_t __sanitizer_get_allocated_size(const volatile void *);
#elif defined(__GLIBC__)
# include <gnu/libc-version.h>
# define CAN_WALK 1
#endif

/* References that a string of the process gets, and how low they may get before they are filled up: each restored request may
 * drop some, and none takes them again. */
#define REFERENCES (1u << 30)
#define LOW (1u << 29)

/* Most anonymous mappings of a process whose state is saved. A worker has some 50; AddressSanitizer's malloc() has one for each
 * size of blocks. */
#define MAX_RANGES 1024

/* malloc() gives out multiples of this. */
#define GRANULE 16

/* Freed blocks of up to 1,032 bytes go to lists of the thread and stay marked as given out (tcache): 7 of each size up to glibc
 * 2.41, 16 in 2.43. */
#define CACHED_SIZES 64
#define CACHED_BLOCKS 17
#define CACHED_BLOCKS_2_41 8

typedef struct {
	uintptr_t start, end;
} range_t;

/* Where malloc() has its blocks: the heap that brk() extends, and mappings of their own for large ones. Other anonymous
 * mappings are among these. */
typedef struct {
	range_t heap;
	range_t mapped[MAX_RANGES];
	int count;
} native_t;

/* A bit for each granule of the heap: whether a block begins there. */
typedef struct {
	range_t heap;
	uint64_t *bits;
} blocks_t;

#ifdef CAN_WALK
static blocks_t blocks_at_start;
static native_t native_at_start;
#endif

static uintptr_t end_of(range_t range, uintptr_t word)
{
	return word - range.start < range.end - range.start ? range.end : 0;
}

/* The end of the mapping that `word` points into, or 0. */
static uintptr_t end_of_mapped(const native_t *native, uintptr_t word)
{
	for (int i = 0; i < native->count; i++) {
		uintptr_t end = end_of(native->mapped[i], word);
		if (end) {
			return end;
		}
	}
	return 0;
}

/* False if they cannot be read, or are too many. */
static bool find_native(native_t *native)
{
	FILE *maps = fopen("/proc/self/maps", "re");
	char line[512];
	bool all = true;

	*native = (native_t) {0};
	if (!maps) {
		return false;
	}
	while (all && fgets(line, sizeof line, maps)) {
		range_t range;
		if (sscanf(line, "%lx-%lx rw-p", &range.start, &range.end) != 2) {
			continue;
		}
		if (strstr(line, "[heap]")) {
			/* In several pieces if some of its pages have been treated in another way. */
			native->heap.start = native->heap.end == range.start ? native->heap.start : range.start;
			native->heap.end = range.end;
		} else if (!strpbrk(line, "/[")) {
			all = native->count < MAX_RANGES;
			if (all) {
				native->mapped[native->count++] = range;
			}
		}
	}
	all = all && !ferror(maps);
	fclose(maps);
	return all;
}

/* ---- all blocks of the heap ---- */

#ifdef CAN_WALK

/* Header of a block, malloc/malloc.c of glibc since 2.0: the size with three flags, before what malloc() returns. */
static size_t header_of(uintptr_t block)
{
	return ((const size_t *) block)[-1];
}

# define PREVIOUS_IN_USE 1
# define IS_MAPPED 2
# define FLAGS 7

/* A heap begins with a block and ends with what was never given out. */
static bool walk(blocks_t *blocks)
{
	uintptr_t end = blocks->heap.end + GRANULE;

	for (uintptr_t block = blocks->heap.start + GRANULE; block < blocks->heap.end;) {
		size_t bytes = header_of(block) & ~(size_t) FLAGS;
		if (bytes < 2 * GRANULE || bytes % GRANULE || bytes > end - block) {
			return false;
		}
		uintptr_t next = block + bytes;
		if (next == end) {
			return true;
		}
		if (header_of(next) & PREVIOUS_IN_USE) {
			size_t at = (block - blocks->heap.start) / GRANULE;
			blocks->bits[at / 64] |= (uint64_t) 1 << (at % 64);
		}
		block = next;
	}
	return false;
}

/* The blocks that are given out now. False if the heap is not one of glibc's. */
static bool find_blocks(blocks_t *blocks, native_t *native)
{
	void *cached[CACHED_SIZES][CACHED_BLOCKS];
	/* The library that runs, not the one that was compiled for. */
	const int each = strverscmp(gnu_get_libc_version(), "2.42") < 0 ? CACHED_BLOCKS_2_41 : CACHED_BLOCKS;
	bool done = false;

	/* Joins the freed blocks that are still marked as given out, but for those of the thread's lists. These are taken out. */
	malloc_trim(0);
	for (size_t i = 0; i < CACHED_SIZES; i++) {
		for (int j = 0; j < each; j++) {
			cached[i][j] = malloc((i + 1) * GRANULE + GRANULE / 2);
		}
	}
	if (find_native(native)) {
		size_t bytes = (native->heap.end - native->heap.start) / GRANULE / 8 + sizeof(uint64_t);
		blocks->heap = native->heap;
		/* Not from malloc(): the heap must stand still. */
		blocks->bits = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		done = blocks->bits != MAP_FAILED && walk(blocks);
		if (blocks->bits == MAP_FAILED) {
			blocks->bits = NULL;
		} else if (!done) {
			munmap(blocks->bits, bytes);
			blocks->bits = NULL;
		}
	}
	for (size_t i = 0; i < CACHED_SIZES; i++) {
		for (int j = 0; j < each; j++) {
			uintptr_t word = (uintptr_t) cached[i][j];
			if (done && end_of(blocks->heap, word)) {
				size_t at = (word - blocks->heap.start) / GRANULE;
				blocks->bits[at / 64] &= ~((uint64_t) 1 << (at % 64));
			}
			free(cached[i][j]);
		}
	}
	return done;
}

static void forget_blocks(blocks_t *blocks)
{
	if (blocks->bits) {
		munmap(blocks->bits, (blocks->heap.end - blocks->heap.start) / GRANULE / 8 + sizeof(uint64_t));
		blocks->bits = NULL;
	}
}

static bool begins(const blocks_t *blocks, uintptr_t word)
{
	size_t at = (word - blocks->heap.start) / GRANULE;
	return blocks->bits && end_of(blocks->heap, word) && blocks->bits[at / 64] >> (at % 64) & 1;
}

/* Whether malloc() has mapped a block for itself there, as it does from 128 KiB on. Its size was that of the mapping up to glibc
 * 2.41; 2.43 leaves out the last 16 bytes. */
static bool is_mapped_block(uintptr_t word, uintptr_t end)
{
	size_t header = header_of(word), bytes = header & ~(size_t) FLAGS;
	size_t mapped = bytes % SLIP_PAGE_BYTES ? bytes + GRANULE : bytes;
	return (header & FLAGS) == IS_MAPPED && bytes && mapped % SLIP_PAGE_BYTES == 0 && mapped <= end - word + GRANULE;
}

#endif

void slip_native_startup(void)
{
#ifdef CAN_WALK
	find_blocks(&blocks_at_start, &native_at_start);
#endif
}

bool slip_native_is_looked_for(void)
{
#ifdef CAN_WALK
	return blocks_at_start.bits;
#else
	return false;
#endif
}

/* ---- strings ---- */

/* Whether malloc() has given out a block that begins there, of at least so many bytes. */
static bool is_block(const void *address, size_t bytes)
{
#ifdef __SANITIZE_ADDRESS__
	return __sanitizer_get_ownership(address) && __sanitizer_get_allocated_size(address) >= bytes;
#else
	return malloc_usable_size((void *) address) >= bytes;
#endif
}

/* Whether this is a string that counts its references. The allocator's own record of the block must agree. */
static bool is_counted_string(const zend_string *string, uintptr_t end)
{
	return (uintptr_t) string + _ZSTR_STRUCT_SIZE(0) <= end
#ifdef __SANITIZE_ADDRESS__
		&& is_block(string, _ZSTR_STRUCT_SIZE(0))
#endif
		&& GC_TYPE(string) == IS_STRING && !(GC_FLAGS(string) & IS_STR_INTERNED) && GC_FLAGS(string) & IS_STR_PERSISTENT
		/* The collector's own bits, which it never sets in a string. Without this any block that begins with a pointer would be taken
		 * for one where the upper half of addresses happens to look right, as 0x5596 does: one start of the process of 64. */
		&& !(GC_TYPE_INFO(string) >> GC_INFO_SHIFT)
		&& ZSTR_LEN(string) < end - (uintptr_t) string - _ZSTR_STRUCT_SIZE(0)
		&& is_block(string, _ZSTR_STRUCT_SIZE(ZSTR_LEN(string))) && !ZSTR_VAL(string)[ZSTR_LEN(string)]
		&& (!ZSTR_H(string) || ZSTR_H(string) == zend_hash_func(ZSTR_VAL(string), ZSTR_LEN(string)));
}

static bool keep(slip_image_t *image, zend_string *string)
{
	zend_string **longer = realloc(image->strings, (image->strings_count + 1) * sizeof *longer);

	if (!longer) {
		return false;
	}
	image->strings = longer;
	image->strings[image->strings_count++] = string;
	if (GC_REFCOUNT(string) < LOW) {
		GC_SET_REFCOUNT(string, REFERENCES);
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

/* ---- the image ---- */

/* The object whose block holds this place of the request heap, or NULL. */
static zend_object *object_around(const char *place)
{
	for (uint32_t i = 1; i < EG(objects_store).top; i++) {
		zend_object *object = EG(objects_store).object_buckets[i];
		if (IS_OBJ_VALID(object)) {
			char *start = (char *) object - object->handlers->offset;
			if (place >= start && (size_t) (place - start) < zend_mm_block_size(zend_mm_get_heap(), start)) {
				return object;
			}
		}
	}
	return NULL;
}

static void refuse(const char *place)
{
	zend_object *object = object_around(place);

	if (!object) {
		slip_refuse("native", "the state points to native memory, which cannot be saved; no object holds the pointer");
		return;
	}
	zend_string *path = slip_path_to(object);
	slip_refuse("native", "object #%u of class %s cannot be part of a snapshot: it points to native memory; it is reached by %s",
		object->handle, ZSTR_VAL(object->ce->name), ZSTR_VAL(path));
	zend_string_release(path);
}

/* What a word of the image points to. */
enum target { NOTHING, STRING, FOREIGN };

static enum target classify(const native_t *native, const blocks_t *blocks, uintptr_t word)
{
	uintptr_t end = end_of(native->heap, word);

	if (word % GRANULE) {
		return NOTHING;
	}
	if (end) {
		if (is_counted_string((zend_string *) word, end)) {
			return STRING;
		}
#ifdef CAN_WALK
		return begins(blocks, word) && !begins(&blocks_at_start, word) ? FOREIGN : NOTHING;
#endif
	}
#ifdef CAN_WALK
	if (word % SLIP_PAGE_BYTES != GRANULE || (end = end_of_mapped(native, word)) == 0 || !is_mapped_block(word, end)) {
		return NOTHING;
	}
	if (is_counted_string((zend_string *) word, end)) {
		return STRING;
	}
	return end_of_mapped(&native_at_start, word) ? NOTHING : FOREIGN;
#else
	end = end_of_mapped(native, word);
	return end && is_counted_string((zend_string *) word, end) ? STRING : NOTHING;
#endif
}

static bool check(slip_image_t *image, const native_t *native, const blocks_t *blocks)
{
	size_t pages = image->rollback.bytes / SLIP_PAGE_BYTES;

	for (size_t page = 0; page < pages; page++) {
		if (!(image->rollback.in_use[page / 64] >> (page % 64) & 1)) {
			continue;
		}
		const uintptr_t *words = (const uintptr_t *) (image->writable + page * SLIP_PAGE_BYTES);
		for (size_t i = 0; i < SLIP_PAGE_BYTES / sizeof *words; i++) {
			if (!words[i] || slip_heap_owns(image->heap, (const void *) words[i])) {
				continue;
			}
			enum target target = classify(native, blocks, words[i]);
			if (target == FOREIGN) {
				refuse(image->heap->base + page * SLIP_PAGE_BYTES + i * sizeof *words);
				return false;
			}
			if (target == STRING && !keep(image, (zend_string *) words[i])) {
				slip_refuse_quietly("memory", "out of memory");
				return false;
			}
		}
	}
	return true;
}

bool slip_native_check(slip_image_t *image)
{
	native_t native;
	blocks_t blocks = {0};
	bool right;

#ifdef CAN_WALK
	if (slip_native_is_looked_for()) {
		right = find_blocks(&blocks, &native);
	} else
#endif
	{
		right = find_native(&native);
	}
	if (!right) {
		slip_refuse_quietly("native", "the memory of the process cannot be listed, or has more than %d anonymous mappings", MAX_RANGES);
		return false;
	}
	right = check(image, &native, &blocks);
#ifdef CAN_WALK
	forget_blocks(&blocks);
#endif
	return right;
}
