/* The secure build knows for each block whether it is with the program: what is freed twice, or was no block, is found at once.
 * In the usual build these checks are nothing; it finds the same when the block reaches its slab. */
#ifndef SLIPMALLOC_SECURE_H
#define SLIPMALLOC_SECURE_H

#include "misuse.h"
#include "region.h"

#ifdef SLIPMALLOC_SECURE

/* The word of the map that has the bit for an address, by its offset in the region: a bit for each 16 bytes, set where a block of
 * the program begins. So no class need be known, and nothing be divided, to find it. */
static inline _Atomic uint64_t *secure_word(uintptr_t offset)
{
	return &region.live[offset / CLASS_GRANULE / 64];
}

static inline uint64_t secure_bit(uintptr_t offset)
{
	return 1ull << offset / CLASS_GRANULE % 64;
}

/* The block goes to the program. Atomic, because threads have blocks with bits in the same word. */
static inline void secure_take(void *block)
{
	uintptr_t offset = (uintptr_t)block - region.base;
	uint64_t bit = secure_bit(offset);
	if ((atomic_fetch_or_explicit(secure_word(offset), bit, memory_order_relaxed) & bit) != 0) {
		misuse("malloc", block, "is given out already");
	}
}

static inline _Noreturn __attribute__((cold)) void secure_refuse(const void *block, unsigned class)
{
	uint32_t offset = (uint32_t)((uintptr_t)block & (SLAB_BYTES - 1));
	bool is_start = class_block_number(class, offset) * class_bytes[class] == offset;
	misuse("free", block, is_start ? "is not allocated" : "is not the start of a block");
}

/* The block comes back, of a slab of this class. */
static inline void secure_put(void *block, unsigned class)
{
	uintptr_t offset = (uintptr_t)block - region.base;
	uint64_t bit = secure_bit(offset);
	if (offset % CLASS_GRANULE != 0 ||
	    (atomic_fetch_and_explicit(secure_word(offset), ~bit, memory_order_relaxed) & bit) == 0) {
		secure_refuse(block, class);
	}
}

/* `block` is the start of one. */
static inline void secure_check(const char *what, const void *block)
{
	uintptr_t offset = (uintptr_t)block - region.base;
	if ((atomic_load_explicit(secure_word(offset), memory_order_relaxed) & secure_bit(offset)) == 0) {
		misuse(what, block, "is not allocated");
	}
}

#else

static inline void secure_take(void *block)
{
	(void)block;
}

static inline void secure_check(const char *what, const void *block)
{
	(void)what;
	(void)block;
}

#endif

#endif
