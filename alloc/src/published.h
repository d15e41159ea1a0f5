/* Counters that another process can read: a page of the region, which `slip malloc stats` finds without symbols of ours.
 *
 * It is found by PUBLISHED_MAGIC, the first eight bytes of a private, anonymous, writable mapping that comes right after one that
 * cannot be read: the first page of the region stays unusable so that no other mapping merges with this one. A forked child has its
 * own, with what was counted before. Numbers are little-endian; the layout below is that of PUBLISHED_VERSION, and what is added
 * later comes at the end of a part. Nothing of the allocator depends on what stands here: a program that writes over it harms
 * nothing but the statistics.
 *
 * Nothing is counted where malloc() and free() are fast, only at exchanges of whole magazines and below. */
#ifndef SLIPMALLOC_PUBLISHED_H
#define SLIPMALLOC_PUBLISHED_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "class.h"

/* "slipheap" */
#define PUBLISHED_MAGIC 0x7061656870696c73ull

enum {
	PUBLISHED_VERSION = 1,
	PUBLISHED_BYTES = 4096,
	/* Flags. */
	PUBLISHED_SECURE = 1,
	PUBLISHED_HUGE_PAGES = 2,
	PUBLISHED_DEBUG = 4,
};

/* Of one class; changed under the lock of its depot. One cache line. */
typedef struct {
	uint32_t block_bytes;
	/* In the depot now. */
	uint32_t full_magazines;
	uint64_t slabs;
	/* Blocks that are in no slab: with the program, in caches of threads, in magazines of the depot. */
	uint64_t blocks_out;
	/* Of these, in magazines of the depot. */
	uint64_t magazine_blocks;
	/* A thread needed blocks: the depot had a full magazine, or one was filled from slabs. */
	uint64_t refills_hit;
	uint64_t refills_missed;
	/* A thread had a magazine too many: the depot kept it, or its blocks went to their slabs. */
	uint64_t returns_kept;
	uint64_t returns_emptied;
} published_class_t;

typedef struct {
	/* Written last. */
	_Atomic uint64_t magic;
	uint32_t version;
	/* Of this structure. */
	uint32_t bytes;
	uint32_t class_count;
	/* Where the first class is. */
	uint32_t class_offset;
	uint32_t flags;
	/* Forks between the process that made the region and this one. */
	uint32_t forks;

	/* Reserved, and what would have been without a limit of address space. */
	uint64_t region_bytes;
	uint64_t wanted_bytes;
	/* The following under the heap's lock. May be touched; taken as slabs and large blocks. */
	uint64_t usable_bytes;
	uint64_t taken_bytes;
	/* Free and resident, outside of slabs. */
	uint64_t kept_bytes;
	/* Taken again while resident, since the start: faults that did not happen. */
	uint64_t reused_bytes;
	/* Given back to the kernel since the start, by so many calls; calls that it refused (memory that is locked). */
	uint64_t purged_bytes;
	uint64_t purges;
	uint64_t purges_refused;
	/* Superslabs that may have a huge page. */
	uint64_t huge_bytes;
	uint64_t decay_turns;
	/* SLIP_MALLOC_DECAY_MS */
	int64_t decay_ms;

	/* Of magazines and caches, under the arena's lock. */
	uint64_t arena_bytes;
	/* The rest has no lock. Threads with a cache now, and caches that a forked child cannot use. */
	_Atomic uint64_t caches;
	_Atomic uint64_t caches_lost;
	/* Magazines that nobody had needed for a turn of decay. */
	_Atomic uint64_t magazines_decayed;
	/* Blocks of more than 32 KiB. */
	_Atomic uint64_t large_taken;
	_Atomic uint64_t large_given;
	/* Blocks that threads without a cache took and gave. */
	_Atomic uint64_t direct_blocks;
	/* There was no memory: all that is kept was gathered and the block tried once more; there was none then either. */
	_Atomic uint64_t second_tries;
	_Atomic uint64_t failures;
	/* Blocks that the debug build gave a guard page, and those that it had none for. */
	_Atomic uint64_t guarded_taken;
	_Atomic uint64_t unguarded_taken;

	/* Without class 0. */
	_Alignas(64) published_class_t classes[CLASSES - 1];
} published_t;

_Static_assert(sizeof(published_t) <= PUBLISHED_BYTES, "one page");
_Static_assert(sizeof(published_class_t) == 64, "one cache line");
_Static_assert(offsetof(published_t, classes) == 256, "as documented");

/* Until the region is there it is one that nobody reads. */
extern _Atomic(published_t *) published_page;

static inline published_t *published(void)
{
	return atomic_load_explicit(&published_page, memory_order_acquire);
}

static inline published_class_t *published_class(unsigned class)
{
	return &published()->classes[class - 1];
}

static inline void published_add(_Atomic uint64_t *count, uint64_t more)
{
	atomic_fetch_add_explicit(count, more, memory_order_relaxed);
}

/* Makes `page` the one that is counted in. It reads as zero. Under the region's lock. */
void published_begin(void *page, size_t region_bytes, size_t wanted_bytes);

/* In the child of fork(): which of the caches is its own. */
void published_after_fork(unsigned own_caches);

/* The options were read, perhaps after the region was made. */
void published_show_options(void);

#endif
