/* What is known of 2 MiB of the heap and of its 32 slabs. It lies apart from the blocks, so that a program that writes past
 * a block reaches no bookkeeping. */
#ifndef SLIPMALLOC_SUPERSLAB_H
#define SLIPMALLOC_SUPERSLAB_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
	SLAB_SHIFT = 16,
	SLABS_IN_SUPERSLAB = 32,
	PAGES_IN_SLAB = 16,
	PAGES_PREWARMED = UINT8_MAX,
	/* Bits for as many blocks of 16 bytes as a slab has, and of SLAB_FEW_BYTES or more. */
	SLAB_MANY_WORDS = (1 << SLAB_SHIFT) / 16 / 64,
	SLAB_FEW_BYTES = 64,
	SLAB_FEW_WORDS = (1 << SLAB_SHIFT) / SLAB_FEW_BYTES / 64,
};

#define SLAB_BYTES ((size_t)1 << SLAB_SHIFT)
#define SUPERSLAB_BYTES (SLAB_BYTES * SLABS_IN_SUPERSLAB)

typedef struct slab slab_t;
struct slab {
	/* Among the slabs of its class that have free blocks. */
	slab_t *next;
	slab_t *previous;
	uint32_t number;
	/* How many slabs the large block has that begins here; 0 in all other slabs. */
	uint32_t run;
	/* Blocks that are neither in a magazine nor with the program. */
	uint32_t free_blocks;
	/* 1 if the large block that begins here was told as a sample. */
	uint16_t is_sample;
	/* Of a slab of blocks: up to this page some were taken or given since the last turn of decay. */
	uint8_t used_pages;
	/* Behind this page free blocks have no memory. PAGES_PREWARMED: decay leaves all as it is. */
	uint8_t kept_pages;
};

typedef enum {
	/* Free, or not the first of a large block. */
	SUPERSLAB_FREE,
	/* Its slabs are given out one by one and in runs. */
	SUPERSLAB_SHARED,
	/* The first superslab of a large block. */
	SUPERSLAB_LARGE,
} superslab_kind_t;

/* Whole pages: they become usable together with the memory that they describe. */
typedef struct superslab superslab_t;
struct __attribute__((aligned(4096))) superslab {
	/* Among those with the same longest free run. */
	superslab_t *next;
	superslab_t *previous;
	superslab_kind_t kind;
	uint32_t free_slabs;
	/* Slabs that are free and read as zero. */
	uint32_t zero_slabs;
	/* Those that were taken or given since the last turn of decay. */
	uint32_t recent_slabs;
	/* The kernel may have given it a huge page, and so memory to slabs that were never taken. Read without the lock. */
	_Atomic bool is_filled;
	/* Superslabs of the large block. */
	size_t run;
	slab_t slabs[SLABS_IN_SUPERSLAB];
	/* Set for each block that the slab has to give: of SLAB_FEW_BYTES or more, and of fewer. Apart, because most slabs have few, and then only those
	 * are resident. */
	_Alignas(64) uint64_t free_few[SLABS_IN_SUPERSLAB][SLAB_FEW_WORDS];
	uint64_t free_many[SLABS_IN_SUPERSLAB][SLAB_MANY_WORDS];
};

#endif
