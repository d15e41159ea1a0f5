/* What is allocated. */
#ifndef SLIPMALLOC_STATS_H
#define SLIPMALLOC_STATS_H

#include <stddef.h>

typedef struct {
	/* Of blocks in slabs: with the program or in a thread's cache, and the rest. */
	size_t small_taken_bytes;
	size_t small_free_bytes;
	size_t large_bytes;
	/* Of the debug build: blocks with a guard page. */
	size_t guarded_bytes;
	/* Free and resident, outside of slabs. */
	size_t kept_bytes;
	/* Usable address space. */
	size_t usable_bytes;
	size_t purged_bytes;
} stats_t;

stats_t stats_count(void);

#endif
