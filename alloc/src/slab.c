#include "slab.h"

#include "heap.h"
#include "misuse.h"

/* Fewer pages in a row are not worth a call of the kernel, which costs as much as that they come back; and so many a huge page, which is lost
 * with them. */
enum { PAGES_TO_PURGE = 4, PAGES_TO_PURGE_OF_HUGE = 8 };

#define PAGE_BYTES (SLAB_BYTES / PAGES_IN_SLAB)

static uint64_t *bitmap_of(const slab_t *slab, unsigned class)
{
	superslab_t *superslab = region_superslab(slab->number);
	unsigned number = slab->number % SLABS_IN_SUPERSLAB;
	return class_bytes[class] >= SLAB_FEW_BYTES ? superslab->free_few[number] : superslab->free_many[number];
}

/* A block is taken or given that ends here. */
static void use_up_to(slab_t *slab, size_t end)
{
	uint8_t pages = (uint8_t)((end + PAGE_BYTES - 1) / PAGE_BYTES);
	slab->used_pages = slab->used_pages > pages ? slab->used_pages : pages;
	slab->kept_pages = slab->kept_pages > pages ? slab->kept_pages : pages;
}

slab_t *slab_create(unsigned class)
{
	bool is_zero;
	size_t number = heap_take_slabs(1, &is_zero);
	if (number == HEAP_NONE) {
		return NULL;
	}
	slab_t *slab = region_slab(number);
	slab->number = (uint32_t)number;
	slab->free_blocks = slab_block_count(class);
	slab->used_pages = slab->kept_pages = PAGES_IN_SLAB;
	uint64_t *bitmap = bitmap_of(slab, class);
	unsigned left = slab->free_blocks;
	for (; left >= 64; left -= 64) {
		*bitmap++ = UINT64_MAX;
	}
	if (left > 0) {
		*bitmap = (1ull << left) - 1;
	}
	region.classes[number] = (uint8_t)class;
	return slab;
}

void slab_destroy(slab_t *slab)
{
	region.classes[slab->number] = 0;
	heap_give_slabs(slab->number, 1);
}

unsigned slab_take(slab_t *slab, unsigned class, void **bottom, unsigned most)
{
	unsigned count = slab->free_blocks < most ? slab->free_blocks : most;
	void **at = bottom + count;
	char *start = region_address(slab->number);
	uint64_t *word = bitmap_of(slab, class);
	for (; at > bottom; word++, start += 64 * (size_t)class_bytes[class]) {
		uint64_t bits = *word;
		while (bits != 0 && at > bottom) {
			*--at = start + (size_t)__builtin_ctzll(bits) * class_bytes[class];
			bits &= bits - 1;
		}
		*word = bits;
	}
	if (count > 0) {
		use_up_to(slab, (size_t)((char *)*at - (char *)region_address(slab->number)) + class_bytes[class]);
	}
	slab->free_blocks -= count;
	return count;
}

void slab_put(slab_t *slab, unsigned class, void *block)
{
	uint32_t offset = (uint32_t)((uintptr_t)block & (SLAB_BYTES - 1));
	unsigned number = class_block_number(class, offset);
	if (number * class_bytes[class] != offset || number >= slab_block_count(class)) {
		misuse(SLAB_FOUND_LATE, block, "is not the start of a block");
	}
	uint64_t *word = &bitmap_of(slab, class)[number / 64], bit = 1ull << number % 64;
	if ((*word & bit) != 0) {
		misuse(SLAB_FOUND_LATE, block, "was freed twice");
	}
	*word |= bit;
	slab->free_blocks++;
	use_up_to(slab, offset + class_bytes[class]);
}

/* A bit for each page in which a block is not free. */
static uint32_t pages_in_use(const slab_t *slab, unsigned class)
{
	const uint64_t *bitmap = bitmap_of(slab, class);
	size_t bytes = class_bytes[class];
	unsigned count = slab_block_count(class);
	uint32_t pages = 0;
	for (unsigned word = 0; word * 64 < count; word++) {
		uint64_t blocks = ~bitmap[word] & (count - word * 64 < 64 ? (1ull << (count - word * 64)) - 1 : UINT64_MAX);
		for (; blocks != 0; blocks &= blocks - 1) {
			size_t start = (word * 64 + (unsigned)__builtin_ctzll(blocks)) * bytes;
			pages |= (2u << (start + bytes - 1) / PAGE_BYTES) - (1u << start / PAGE_BYTES);
		}
	}
	return pages;
}

bool slab_purge(slab_t *slab, unsigned class, bool all)
{
	unsigned least = all ? 1 : region_superslab(slab->number)->is_filled ? PAGES_TO_PURGE_OF_HUGE : PAGES_TO_PURGE;
	unsigned from = all ? 0 : slab->used_pages, to = slab->kept_pages;
	bool has_some = false, are_kept = false;
	slab->used_pages = 0;
	if (to == PAGES_PREWARMED) {
		to = all ? PAGES_IN_SLAB : 0;
	}
	if (from + least > to || slab->free_blocks * class_bytes[class] < least * PAGE_BYTES) {
		return false;
	}
	uint32_t pages = ~pages_in_use(slab, class) & ((1u << to) - (1u << from));
	while (pages != 0) {
		unsigned first = (unsigned)__builtin_ctz(pages), length = (unsigned)__builtin_ctz(~(pages >> first));
		if (length >= least) {
			are_kept = !heap_purge_pages(slab->number, first, length) || are_kept;
			has_some = true;
		}
		pages &= ~(((1u << length) - 1) << first);
	}
	slab->kept_pages = are_kept ? slab->kept_pages : (uint8_t)from;
	return has_some;
}
