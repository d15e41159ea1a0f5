/* The secure build knows for each block whether it is with the program: what is freed twice, or was no block, is found at once.
 * In the usual build these checks are nothing; it finds the same when the block reaches its slab. */
#ifndef SLIPMALLOC_SECURE_H
#define SLIPMALLOC_SECURE_H

#include "misuse.h"
#include "region.h"

#ifdef SLIPMALLOC_SECURE

static inline _Atomic uint64_t *secure_word(size_t slab, unsigned number)
{
	return &region_superslab(slab)->live_blocks[slab % SLABS_IN_SUPERSLAB][number / 64];
}

/* The block goes to the program. Atomic, because threads have blocks with bits in the same word. */
static inline void secure_take(void *block, unsigned class)
{
	unsigned number = class_block_number(class, (uint32_t)((uintptr_t)block & (SLAB_BYTES - 1)));
	uint64_t bit = 1ull << number % 64;
	uint64_t before =
		atomic_fetch_or_explicit(secure_word(region_slab_number(block), number), bit, memory_order_relaxed);
	if ((before & bit) != 0) {
		misuse("malloc", block, "is given out already");
	}
}

/* The block comes back. */
static inline void secure_put(void *block, size_t slab, unsigned class)
{
	uint32_t offset = (uint32_t)((uintptr_t)block & (SLAB_BYTES - 1));
	unsigned number = class_block_number(class, offset);
	if (number * class_bytes[class] != offset) {
		misuse("free", block, "is not the start of a block");
	}
	uint64_t bit = 1ull << number % 64;
	uint64_t before = atomic_fetch_and_explicit(secure_word(slab, number), ~bit, memory_order_relaxed);
	if ((before & bit) == 0) {
		misuse("free", block, "is not allocated");
	}
}

static inline void secure_check(const char *what, const void *block, size_t slab, unsigned number)
{
	if ((atomic_load_explicit(secure_word(slab, number), memory_order_relaxed) >> number % 64 & 1) == 0) {
		misuse(what, block, "is not allocated");
	}
}

#else

static inline void secure_take(void *block, unsigned class)
{
	(void)block;
	(void)class;
}

static inline void secure_put(void *block, size_t slab, unsigned class)
{
	(void)block;
	(void)slab;
	(void)class;
}

static inline void secure_check(const char *what, const void *block, size_t slab, unsigned number)
{
	(void)what;
	(void)block;
	(void)slab;
	(void)number;
}

#endif

#endif
