/* Blocks that end where their pages end, with pages behind them that nobody can touch. Where a block was, its description stays until
 * the place is used anew, so that an access to freed memory can be told from others.
 *
 * The addresses are cut into slots of two pages, four, and so on, of each size the same number of bytes: that costs address space
 * and nothing else, and the slot of an address is found by a division. Of a slot only the pages of its block are usable, and these not
 * at its end. Neighbours that are not usable are one mapping of the kernel, whoever had them, so two mappings a block are needed
 * while the program has it, and none for those that were freed.
 *
 * Under the lock of the debug build, but for guard_has() and guard_find(), which the handler of faults calls. */
#ifndef SLIPMALLOC_GUARD_H
#define SLIPMALLOC_GUARD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct {
	/* The last block that was here. */
	uintptr_t start;
	size_t bytes;
	/* Among those of its size that can be used anew: the number of the next one and 1, 0 for none. */
	uint32_t next;
	/* The program has it. */
	bool is_taken;
} guarded_t;

typedef struct {
	/* That the program has. */
	size_t blocks;
	size_t bytes;
	/* As many can be there at once, because of the mappings that they need. */
	size_t most_blocks;
} guard_counts_t;

/* A block that reads as zero. NULL if the kernel has no more mappings or memory, or it is too large. */
void *guard_take(size_t bytes, size_t alignment);

/* Whether the address is where such blocks are. */
bool guard_has(const void *address);

/* The block that the slot of an address has or had, NULL if it never had one or the address is in none. */
guarded_t *guard_find(const void *address);

/* What happened to the bytes beside the block that share its pages; NULL if nothing did. */
const char *guard_damage(const guarded_t *guarded);

/* The program has freed it: its pages are given back, and cannot be touched. False if the kernel refuses. */
bool guard_hide(guarded_t *guarded);

/* Another block may be put where it was. */
void guard_release(guarded_t *guarded);

guard_counts_t guard_count(void);

#endif
