/* libslipmalloc: malloc() and its family in the place of the C library's, by LD_PRELOAD or by linking with it first.
 *
 * It replaces malloc, free, calloc, realloc, reallocarray, aligned_alloc, posix_memalign, memalign, valloc, pvalloc,
 * malloc_usable_size, malloc_trim and mallinfo2 with the behaviour that glibc documents, adds the two functions of C23 below, and
 * masks RTLD_DEEPBIND in dlopen(). C++'s new and delete call these. All are safe to call from several threads and around fork(),
 * none from a signal handler. A misuse that is found prints one line to standard error and aborts.
 *
 * Read from the environment when the library is loaded, not in set-user-ID programs:
 *   SLIP_MALLOC_STATS=1           writes what slipmalloc_write_stats() writes to standard error at exit; nothing
 *                                 in programs that close it before, as those of coreutils do
 *   SLIP_MALLOC_DECAY_MS=N        free memory is given back to the kernel N to 2N milliseconds after its last use (1000), at the
 *                                 next slow call of any thread; -1 for never
 *   SLIP_MALLOC_HUGE_PAGES=0      asks for no transparent huge pages (else for blocks of up to 1 MiB, once they
 *                                 take more than 8 MiB, and for one of 4 MiB or more if the last such one that
 *                                 the thread took was used)
 *   SLIP_MALLOC_PREWARM=LIST      makes memory resident at start: SIZE:COUNT, separated by commas
 * and by the debug build only:
 *   SLIP_MALLOC_QUARANTINE=N      freed blocks of N bytes together (67108864) and not more than 32768 of them stay inaccessible before
 *                                 another block gets their addresses; -1 bounds their number only
 *   SLIP_MALLOC_SIGSEGV=0         installs no handler of SIGSEGV: an access beyond a block, or to a freed one, is that
 *                                 signal and nothing is said of it
 */
#ifndef SLIPMALLOC_H
#define SLIPMALLOC_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

#define SLIPMALLOC_API __attribute__((visibility("default")))

/* free() for who knows the size, or alignment and size, that were asked for. Aborts if the block holds less than `size`. */
SLIPMALLOC_API void free_sized(void *block, size_t size);
SLIPMALLOC_API void free_aligned_sized(void *block, size_t alignment, size_t size);

/* Writes to a file descriptor what is allocated, by size class. Blocks in the caches of threads count as allocated. */
SLIPMALLOC_API void slipmalloc_write_stats(int fd);

#ifdef __cplusplus
}
#endif

#endif
