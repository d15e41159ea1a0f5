#include "large.h"

#include "heap.h"
#include "misuse.h"
#include "options.h"
#include "os/os.h"
#include "published.h"
#include "sample.h"

/* Half a superslab: two of them share one. */
enum { MOST_SLABS_IN_RUN = SLABS_IN_SUPERSLAB / 2 };

/* Of a block so long it matters whether it will be used, which is taken from the one before it. */
#define LEAST_JUDGED_BYTES (2 * SUPERSLAB_BYTES)

/* Blocks are looked at until so many in a row were used to their end, and of those that follow one in so many: each look is four calls of the kernel. */
enum { SURE_AFTER = 4, LOOKED_AT_ONE_IN = 8 };

/* The last block so long that this thread took. It may be another one's by now. NULL if it is known whether it was used. */
static _Thread_local struct {
	const char *start;
	size_t bytes;
	bool was_used;
	bool was_used_to_end;
	/* Of those that were looked at, at most SURE_AFTER; and how many were not since then. */
	unsigned char used_in_row;
	unsigned char passed_over;
} last __attribute__((tls_model("initial-exec")));

static size_t units(size_t bytes, size_t unit)
{
	return (bytes + unit - 1) / unit;
}

static void *take(size_t bytes, size_t alignment, bool fill, bool *is_zero)
{
	/* The sums below cannot overflow then. */
	if (bytes > PTRDIFF_MAX || alignment > PTRDIFF_MAX) {
		return NULL;
	}
	bytes += bytes == 0;
	size_t slabs = units(bytes, SLAB_BYTES);
	if (slabs <= MOST_SLABS_IN_RUN && alignment <= SLAB_BYTES) {
		size_t first = heap_take_slabs((unsigned)slabs, is_zero);
		if (first == HEAP_NONE) {
			return NULL;
		}
		region_slab(first)->run = (uint32_t)slabs;
		return region_address(first);
	}
	/* A multiple of this in addresses is no multiple of it in superslabs, because the region begins at any one of them. */
	if (alignment > SUPERSLAB_BYTES) {
		bytes += alignment - SUPERSLAB_BYTES;
	}
	size_t count = units(bytes, SUPERSLAB_BYTES);
	size_t first = heap_take_superslabs(count, fill, is_zero);
	if (first == HEAP_NONE) {
		return NULL;
	}
	if (alignment > SUPERSLAB_BYTES) {
		size_t wanted = units(bytes - (alignment - SUPERSLAB_BYTES), SUPERSLAB_BYTES);
		uintptr_t start = (uintptr_t)region_address(first * SLABS_IN_SUPERSLAB);
		size_t before = (((start + alignment - 1) & ~(alignment - 1)) - start) / SUPERSLAB_BYTES;
		heap_give_superslabs(first, before);
		heap_give_superslabs(first + before + wanted, count - before - wanted);
		first += before;
		count = wanted;
	}
	region.superslabs[first].kind = SUPERSLAB_LARGE;
	region.superslabs[first].run = count;
	return region_address(first * SLABS_IN_SUPERSLAB);
}

/* Not all of these pages are there of a table that has few entries, of a stack, or of a buffer that was made to be large enough. */
static void look_at_last(void)
{
	last.was_used = os_is_resident(last.start + last.bytes / 4) && os_is_resident(last.start + last.bytes / 2) &&
			os_is_resident(last.start + last.bytes / 4 * 3);
	last.was_used_to_end = last.was_used && os_is_resident(last.start + last.bytes - 1);
	if (!last.was_used_to_end) {
		last.used_in_row = 0;
	} else if (last.used_in_row < SURE_AFTER) {
		last.used_in_row++;
	}
	last.passed_over = 0;
}

static void judge_last(void)
{
	if (last.start != NULL) {
		if (last.used_in_row < SURE_AFTER || ++last.passed_over == LOOKED_AT_ONE_IN) {
			look_at_last();
		}
		last.start = NULL;
	}
}

/* With them, what is not touched costs memory: the last superslab of a block gets one if the block has at least half of that and the one before was
 * used to its end. */
static void use_huge_pages(const void *block, size_t bytes)
{
	bool has_tail = bytes % SUPERSLAB_BYTES >= SUPERSLAB_BYTES / 2 && last.was_used_to_end;
	heap_use_huge_pages(region_slab_number(block) / SLABS_IN_SUPERSLAB, bytes / SUPERSLAB_BYTES + has_tail);
}

/* A block gets pages that others had, and huge ones, if the one that the thread took before it was used. */
static void *take_judged(size_t bytes, size_t alignment, bool *is_zero)
{
	judge_last();
	void *block = take(bytes, alignment, last.was_used && !*is_zero, is_zero);
	if (block != NULL) {
		if (last.was_used && options.huge_pages) {
			use_huge_pages(block, bytes);
		}
		last.start = block;
		last.bytes = bytes;
	}
	return block;
}

void *large_take(size_t bytes, size_t alignment, bool *is_zero)
{
	void *block = bytes < LEAST_JUDGED_BYTES ? take(bytes, alignment, false, is_zero) : take_judged(bytes, alignment, is_zero);
	if (block != NULL) {
		published_add(&published()->large_taken, 1);
		sample_large(block, bytes);
	}
	return block;
}

/* Whether an address lies within a large block that begins before it. Only to say what is wrong. */
static bool is_within(size_t slab)
{
	superslab_t *superslab = region_superslab(slab);
	if (superslab->kind == SUPERSLAB_SHARED) {
		for (unsigned at = slab % SLABS_IN_SUPERSLAB, back = 0;; at--, back++) {
			if (superslab->slabs[at].run > 0 || at == 0) {
				return superslab->slabs[at].run > back;
			}
		}
	}
	size_t back = 0;
	while (superslab->kind == SUPERSLAB_FREE && superslab > region.superslabs) {
		superslab--;
		back++;
	}
	return superslab->kind == SUPERSLAB_LARGE && superslab->run > back;
}

static superslab_t *superslab_of(const char *what, const void *block)
{
	size_t slab = region_slab_number(block);
	if (slab / SLABS_IN_SUPERSLAB >= atomic_load_explicit(&region.usable, memory_order_relaxed)) {
		misuse(what, block, "is not allocated");
	}
	superslab_t *superslab = region_superslab(slab);
	bool begins = region_address(slab) == block;
	if (begins && superslab->kind == SUPERSLAB_SHARED && region_slab(slab)->run > 0) {
		return superslab;
	}
	if (begins && superslab->kind == SUPERSLAB_LARGE && slab % SLABS_IN_SUPERSLAB == 0) {
		return superslab;
	}
	misuse(what, block, is_within(slab) ? "is not the start of a block" : "is not allocated");
}

void large_give(const char *what, void *block)
{
	superslab_t *superslab = superslab_of(what, block);
	size_t slab = region_slab_number(block);
	published_add(&published()->large_given, 1);
	/* Before another thread may have it. */
	sample_given(block);
	if (block == last.start) {
		judge_last();
	}
	if (superslab->kind == SUPERSLAB_LARGE) {
		size_t run = superslab->run;
		superslab->kind = SUPERSLAB_FREE;
		heap_give_superslabs(slab / SLABS_IN_SUPERSLAB, run);
		return;
	}
	unsigned run = region_slab(slab)->run;
	region_slab(slab)->run = 0;
	heap_give_slabs(slab, run);
}

size_t large_bytes(const char *what, const void *block)
{
	superslab_t *superslab = superslab_of(what, block);
	if (superslab->kind == SUPERSLAB_LARGE) {
		return superslab->run * SUPERSLAB_BYTES;
	}
	return region_slab(region_slab_number(block))->run * SLAB_BYTES;
}

static bool resize_slabs(size_t first, size_t wanted)
{
	slab_t *slab = region_slab(first);
	if (wanted > MOST_SLABS_IN_RUN) {
		return false;
	}
	if (wanted < slab->run) {
		heap_give_slabs(first + wanted, (unsigned)(slab->run - wanted));
	} else if (wanted > slab->run && !heap_extend_slabs(first, slab->run, (unsigned)wanted)) {
		return false;
	}
	slab->run = (uint32_t)wanted;
	return true;
}

static bool resize_superslabs(size_t first, size_t wanted)
{
	superslab_t *superslab = &region.superslabs[first];
	if (wanted < superslab->run) {
		heap_give_superslabs(first + wanted, superslab->run - wanted);
	} else if (wanted > superslab->run && !heap_extend_superslabs(first, superslab->run, wanted)) {
		return false;
	}
	superslab->run = wanted;
	return true;
}

bool large_resize(const char *what, void *block, size_t bytes)
{
	superslab_t *superslab = superslab_of(what, block);
	size_t slab = region_slab_number(block);
	if (bytes > PTRDIFF_MAX || bytes <= CLASS_MOST_BYTES) {
		return false;
	}
	bool is_shared = superslab->kind == SUPERSLAB_SHARED;
	if (!is_shared && bytes <= MOST_SLABS_IN_RUN * SLAB_BYTES) {
		return false;
	}
	bool is_done = is_shared ? resize_slabs(slab, units(bytes, SLAB_BYTES))
				 : resize_superslabs(slab / SLABS_IN_SUPERSLAB, units(bytes, SUPERSLAB_BYTES));
	if (is_done) {
		/* As one that was freed and one that was taken. */
		sample_given(block);
		sample_large(block, bytes);
	}
	return is_done;
}
