#include "slab.h"

#include "heap.h"
#include "misuse.h"

static uint64_t *bitmap_of(const slab_t *slab)
{
	return region_superslab(slab->number)->free_blocks[slab->number % SLABS_IN_SUPERSLAB];
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
	uint64_t *bitmap = bitmap_of(slab);
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
	uint64_t *word = bitmap_of(slab);
	for (; at > bottom; word++, start += 64 * (size_t)class_bytes[class]) {
		uint64_t bits = *word;
		while (bits != 0 && at > bottom) {
			*--at = start + (size_t)__builtin_ctzll(bits) * class_bytes[class];
			bits &= bits - 1;
		}
		*word = bits;
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
	uint64_t *word = &bitmap_of(slab)[number / 64], bit = 1ull << number % 64;
	if ((*word & bit) != 0) {
		misuse(SLAB_FOUND_LATE, block, "was freed twice");
	}
	*word |= bit;
	slab->free_blocks++;
}
