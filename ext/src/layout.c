#include "layout.h"

#include <string.h>

#include "zend_alloc_sizes.h"

slip_layout_t slip_layout;

/* Longest heap struct we look through. Upstream's 8.4 has 480 bytes; the chunk's maps follow within the first page. */
#define HEAP_WORDS 96

/* A debug build puts its own record at the end of each block. */
#if ZEND_DEBUG
# define DEBUG_BYTES 32
#else
# define DEBUG_BYTES 0
#endif

/* Bytes for a block that no bin and no run can hold. */
#define HUGE_BYTES (SLIP_CHUNK_BYTES + SLIP_PAGE_BYTES)

#define BIN_BYTES(num, size, elements, pages, x, y) size,
static const size_t bin_bytes[] = {ZEND_MM_BINS_INFO(BIN_BYTES, x, y)};

size_t slip_bin_bytes(int bin)
{
	return bin_bytes[bin];
}

/* The one word of the heap that equals `value` in this state; a bit for each candidate is cleared where it does not. */
static void keep_equal(bool *candidates, const size_t *words, size_t value)
{
	for (int i = 0; i < HEAP_WORDS; i++) {
		candidates[i] = candidates[i] && words[i] == value;
	}
}

static int only(const bool *candidates)
{
	int found = -1;
	for (int i = 0; i < HEAP_WORDS; i++) {
		if (candidates[i]) {
			if (found >= 0) {
				return -1;
			}
			found = i;
		}
	}
	return found;
}

static const char *probe_chunk(zend_mm_heap *mm)
{
	slip_chunk_t *chunk = (slip_chunk_t *) ((uintptr_t) mm & ~(SLIP_CHUNK_BYTES - 1));

	if ((char *) mm - (char *) chunk != 64) {
		return "the heap does not follow the head of its first chunk";
	}
	if (chunk->heap != mm || chunk->next != chunk || chunk->prev != chunk) {
		return "the head of a chunk is not heap, next, prev";
	}
	if (chunk->free_pages != SLIP_CHUNK_PAGES - 1 || chunk->free_tail != 1 || chunk->num != 0) {
		return "the counters of a chunk are not where they should be";
	}
	return NULL;
}

/* The page map is the only place with one bit set, seven empty words and then the run length of the first page. */
static const char *probe_free_map(zend_mm_heap *mm)
{
	char *chunk = (char *) ((uintptr_t) mm & ~(SLIP_CHUNK_BYTES - 1));
	static const uint64_t empty[7];
	size_t found = 0;

	for (size_t at = 64; at + 64 + SLIP_CHUNK_PAGES * 4 <= SLIP_PAGE_BYTES; at += 8) {
		uint64_t first;
		uint32_t run;
		memcpy(&first, chunk + at, 8);
		memcpy(&run, chunk + at + 64, 4);
		if (first == 1 && run == 0x40000001 && memcmp(chunk + at + 8, empty, sizeof empty) == 0) {
			if (found) {
				return "the page map of a chunk is ambiguous";
			}
			found = at;
		}
	}
	if (!found) {
		return "the page map of a chunk was not found";
	}
	slip_layout.free_map = found;

	/* A run of three pages must show as three bits, and go again. */
	void *run = zend_mm_alloc(mm, 3 * SLIP_PAGE_BYTES - DEBUG_BYTES);
	uint64_t bits;
	memcpy(&bits, chunk + found, 8);
	size_t page = ((char *) run - chunk) / SLIP_PAGE_BYTES;
	bool right = (uintptr_t) run - (uintptr_t) chunk < SLIP_CHUNK_BYTES && page > 0 && page < 60
		&& bits == (1 | (uint64_t) 7 << page);
	zend_mm_free(mm, run);
	memcpy(&bits, chunk + found, 8);
	return right && bits == 1 ? NULL : "the page map of a chunk does not follow its pages";
}

static const char *probe_storage(zend_mm_heap *mm, zend_mm_storage *storage)
{
	size_t *words = (size_t *) mm;
	zend_mm_storage *given = zend_mm_get_storage(mm);

	for (int i = 0; i < 8; i++) {
		if (words[i] == (size_t) given) {
			/* The engine keeps the struct in a block of the heap itself, where the first end of a request lets it be
			 * overwritten. Ours lives as long as the process. */
			slip_layout.storage = i * sizeof(size_t);
			words[i] = (size_t) storage;
			zend_mm_free(mm, given);
			return zend_mm_get_storage(mm) == storage ? NULL : "the heap's storage cannot be set";
		}
	}
	return "the heap's storage was not found";
}

static const char *probe_counters(zend_mm_heap *mm)
{
	size_t *words = (size_t *) mm;
	bool size[HEAP_WORDS], peak[HEAP_WORDS], real_size[HEAP_WORDS], real_peak[HEAP_WORDS], huge_list[HEAP_WORDS];
	bool *all[] = {size, peak, real_size, real_peak, huge_list};
	zend_mm_heap *before = zend_mm_get_heap();
	void *kept = NULL, *huge = NULL, *second = NULL;
	const char *reason = NULL;

	for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
		memset(all[i], 1, sizeof size);
	}
	zend_mm_set_heap(mm);
	for (int step = 0; step < 5; step++) {
		switch (step) {
			case 1: kept = emalloc(40); break;
			case 2: huge = emalloc(HUGE_BYTES - DEBUG_BYTES); break;
			case 3: second = emalloc(2 * HUGE_BYTES - DEBUG_BYTES); break;
			case 4: efree(second); break;
		}
		keep_equal(size, words, zend_memory_usage(false));
		keep_equal(peak, words, zend_memory_peak_usage(false));
		keep_equal(real_size, words, zend_memory_usage(true));
		keep_equal(real_peak, words, zend_memory_peak_usage(true));
		for (int i = 0; i < HEAP_WORDS; i++) {
			uintptr_t node = words[i];
			bool in_chunk = node - ((uintptr_t) mm & ~(SLIP_CHUNK_BYTES - 1)) < SLIP_CHUNK_BYTES;
			void *expected = step == 3 ? second : step >= 2 ? huge : NULL;
			size_t bytes = step == 3 ? 2 * HUGE_BYTES : HUGE_BYTES;
			if (!expected) {
				huge_list[i] = huge_list[i] && node == 0;
			} else if (huge_list[i]) {
				slip_huge_t *block = (slip_huge_t *) node;
				huge_list[i] = node % sizeof(void *) == 0 && in_chunk && block->ptr == expected && block->size == bytes
					&& (step == 3 ? block->next && block->next->ptr == huge : block->next == NULL);
			}
		}
	}
	int found[] = {only(size), only(peak), only(real_size), only(real_peak), only(huge_list)};
	for (size_t i = 0; i < sizeof found / sizeof *found; i++) {
		if (found[i] < 0) {
			reason = "the counters of the heap were not found";
		}
	}
	if (!reason) {
		slip_layout.size = found[0] * sizeof(size_t);
		slip_layout.peak = found[1] * sizeof(size_t);
		slip_layout.real_size = found[2] * sizeof(size_t);
		slip_layout.real_peak = found[3] * sizeof(size_t);
		slip_layout.huge_list = found[4] * sizeof(size_t);
	}
	efree(huge);
	efree(kept);
	zend_mm_set_heap(before);
	return reason;
}

/* After `efree` a block is the head of its bin's list; the lists of all bins lie side by side. */
static const char *probe_free_slots(zend_mm_heap *mm)
{
	size_t *words = (size_t *) mm;
	/* Not the smallest: 8.4 does not use them all, and a debug build needs room for its record. */
	static const int bins[] = {4, 5, 9, SLIP_BINS - 1};
	int first = -1;

	for (size_t i = 0; i < sizeof bins / sizeof *bins; i++) {
		void *block = zend_mm_alloc(mm, bin_bytes[bins[i]] - DEBUG_BYTES);
		bool candidates[HEAP_WORDS];
		memset(candidates, 1, sizeof candidates);
		zend_mm_free(mm, block);
		keep_equal(candidates, words, (size_t) block);
		int found = only(candidates);
		if (found < bins[i] || (first >= 0 && found - bins[i] != first)) {
			return "the free lists of the heap were not found";
		}
		first = found - bins[i];
	}
	slip_layout.free_slot = first * sizeof(size_t);
	return NULL;
}

const char *slip_layout_probe(zend_mm_heap *mm, zend_mm_storage *storage)
{
	const char *reason;

	if (sizeof bin_bytes / sizeof *bin_bytes != SLIP_BINS) {
		return "the allocator has another number of bins";
	}
	if ((reason = probe_storage(mm, storage)) == NULL) {
		/* The block of the storage was the first of its bin: begin with an empty heap. */
		zend_mm_shutdown(mm, false, true);
		const char *(*const probes[])(zend_mm_heap *) = {probe_chunk, probe_free_map, probe_counters, probe_free_slots};
		for (size_t i = 0; i < sizeof probes / sizeof *probes && !reason; i++) {
			reason = probes[i](mm);
		}
	}
	zend_mm_shutdown(mm, false, true);
	return reason;
}
