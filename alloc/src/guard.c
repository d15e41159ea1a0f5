#ifdef SLIPMALLOC_DEBUG

#include "guard.h"

#include "os/os.h"
#include "pattern.h"

enum {
	PAGE_BYTES = 4096,
	/* Of slots: from 8 KiB to 4 GiB. */
	SIZES = 20,
	/* Of one size. As many blocks as have a guard page and are in the quarantine, with the usual limit of mappings. */
	MOST_SLOTS = 65536,
};

/* For all slots of one size. */
static const size_t USUAL_BYTES = (size_t)32 << 30;
static const size_t LEAST_BYTES = (size_t)1 << 20;

static struct {
	bool is_tried;
	/* Written once, before there is a block. */
	uintptr_t base;
	size_t bytes_per_size;
	guard_counts_t counts;
	struct {
		/* Slots from here on had no block yet. */
		uint32_t unused;
		/* Those that can be used anew, the one that waits longest first. */
		uint32_t first;
		uint32_t last;
	} sizes[SIZES];
	guarded_t slots[SIZES][MOST_SLOTS];
} guard;

static size_t slot_bytes(unsigned size)
{
	return (size_t)(2 * PAGE_BYTES) << size;
}

static size_t slot_count(unsigned size)
{
	size_t count = guard.bytes_per_size / slot_bytes(size);
	return count < MOST_SLOTS ? count : MOST_SLOTS;
}

static void reserve(void)
{
	guard.is_tried = true;
	/* A quarter is left to the program, which has few: libraries, stacks, files. */
	guard.counts.most_blocks = os_most_mappings() / 4 * 3 / 2;
	/* The region has half of what is allowed. */
	size_t bytes = USUAL_BYTES, limit = os_address_space_limit() / 4 / SIZES;
	for (; bytes >= LEAST_BYTES; bytes /= 2) {
		void *start = bytes <= limit ? os_reserve(bytes * SIZES) : NULL;
		if (start != NULL) {
			guard.bytes_per_size = bytes;
			guard.base = (uintptr_t)start;
			return;
		}
	}
}

static guarded_t *take_slot(unsigned size)
{
	uint32_t number = guard.sizes[size].first;
	if (number > 0) {
		guarded_t *guarded = &guard.slots[size][number - 1];
		guard.sizes[size].first = guarded->next;
		return guarded;
	}
	if (guard.sizes[size].unused < slot_count(size)) {
		return &guard.slots[size][guard.sizes[size].unused++];
	}
	return NULL;
}

/* Where the pages of a block begin, and end. */
static char *pages_from(const guarded_t *guarded)
{
	return (char *)(guarded->start & ~(uintptr_t)(PAGE_BYTES - 1));
}

static char *pages_to(const guarded_t *guarded)
{
	return (char *)((guarded->start + guarded->bytes + PAGE_BYTES - 1) & ~(uintptr_t)(PAGE_BYTES - 1));
}

void guard_release(guarded_t *guarded)
{
	size_t at = (size_t)(guarded - guard.slots[0]);
	unsigned size = (unsigned)(at / MOST_SLOTS);
	uint32_t number = (uint32_t)(at % MOST_SLOTS) + 1;
	guarded->next = 0;
	if (guard.sizes[size].first == 0) {
		guard.sizes[size].first = number;
	} else {
		guard.slots[size][guard.sizes[size].last - 1].next = number;
	}
	guard.sizes[size].last = number;
}

void *guard_take(size_t bytes, size_t alignment)
{
	if (!guard.is_tried) {
		reserve();
	}
	size_t most = slot_bytes(SIZES - 1);
	if (guard.counts.blocks >= guard.counts.most_blocks || bytes > most || alignment > most) {
		return NULL;
	}
	size_t needed = bytes + 2 * PAGE_BYTES - 1 + (alignment > PAGE_BYTES ? alignment : 0);
	unsigned size = 0;
	guarded_t *guarded = NULL;
	for (; size < SIZES && guarded == NULL; size++) {
		guarded = needed / PAGE_BYTES * PAGE_BYTES <= slot_bytes(size) ? take_slot(size) : NULL;
	}
	if (guarded == NULL) {
		return NULL;
	}
	size--;
	size_t number = (size_t)(guarded - guard.slots[size]);
	uintptr_t end = guard.base + size * guard.bytes_per_size + (number + 1) * slot_bytes(size) - PAGE_BYTES;
	guarded->start = (end - bytes) & ~(alignment - 1);
	guarded->bytes = bytes;
	char *block = (char *)guarded->start, *from = pages_from(guarded), *to = pages_to(guarded);
	if (from < to && !os_commit(from, (size_t)(to - from))) {
		guard_release(guarded);
		return NULL;
	}
	pattern_fill(from, block);
	pattern_fill(block + bytes, to);
	guarded->is_taken = true;
	guard.counts.blocks++;
	guard.counts.bytes += bytes;
	return block;
}

bool guard_has(const void *address)
{
	return (uintptr_t)address - guard.base < SIZES * guard.bytes_per_size;
}

guarded_t *guard_find(const void *address)
{
	size_t offset = (uintptr_t)address - guard.base;
	size_t size = offset / guard.bytes_per_size;
	size_t number = offset % guard.bytes_per_size / slot_bytes((unsigned)size);
	return number < guard.sizes[size].unused ? &guard.slots[size][number] : NULL;
}

const char *guard_damage(const guarded_t *guarded)
{
	const char *block = (const char *)guarded->start;
	if (!pattern_is_whole(block + guarded->bytes, pages_to(guarded))) {
		return PATTERN_BROKEN_BEHIND;
	}
	return pattern_is_whole(pages_from(guarded), block) ? NULL : PATTERN_BROKEN_BEFORE;
}

bool guard_hide(guarded_t *guarded)
{
	char *from = pages_from(guarded), *to = pages_to(guarded);
	guarded->is_taken = false;
	guard.counts.blocks--;
	guard.counts.bytes -= guarded->bytes;
	return from == to || os_hide(from, (size_t)(to - from));
}

guard_counts_t guard_count(void)
{
	return guard.counts;
}

#endif
