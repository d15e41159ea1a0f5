/* All that the allocator asks of the kernel. Nothing here allocates, and errno is undefined after each call. */
#ifndef SLIPMALLOC_OS_H
#define SLIPMALLOC_OS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Address space that cannot be read or written yet and is charged to nobody. NULL if there is none. */
void *os_reserve(size_t bytes);
void os_unreserve(void *start, size_t bytes);

/* Makes reserved pages usable; they read as zero. False if the kernel refuses them (overcommit 2, RLIMIT_DATA). */
bool os_commit(void *start, size_t bytes);

/* Usable pages of their own. NULL if there are none. */
void *os_map(size_t bytes);

/* Gives pages back; they read as zero afterwards. False if they were kept (locked in memory): then they hold what they held. */
bool os_purge(void *start, size_t bytes);

/* Makes usable pages what os_reserve() gives, without what they held. False if the kernel refuses, and they may be as before. */
bool os_hide(void *start, size_t bytes);

/* Moves pages to where there are none: what they were at reads as zero then, and both places stay usable. False, and nothing changed, if the
 * kernel refuses (before 5.7, too many mappings, locked memory). */
bool os_move(void *to, void *from, size_t bytes);

void os_use_huge_pages(void *start, size_t bytes);
/* No more of them, also for what has pages already. */
void os_use_small_pages(void *start, size_t bytes);

/* Makes pages resident, if the kernel can do that in one call (5.14). */
void os_populate(void *start, size_t bytes);

/* Whether the page that an address lies in has memory. False if the kernel does not say. */
bool os_is_resident(const void *address);

/* RLIMIT_AS, SIZE_MAX if there is none. */
size_t os_address_space_limit(void);

/* vm.max_map_count: as many mappings may a process have. */
size_t os_most_mappings(void);

/* Memory of the machine, 0 if unknown. */
size_t os_memory_bytes(void);

/* A clock that only goes forward, as coarse as the kernel's tick, read without entering the kernel. */
uint64_t os_now_ms(void);

/* Sleeps while *word is `expected`, until os_wake_one() or for no reason. */
void os_wait(atomic_int *word, int expected);
void os_wake_one(atomic_int *word);

void os_write(int fd, const char *text, size_t bytes);

#endif
