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
 *                                 take more than 16 MiB, and for one of 4 MiB or more if the last such one that
 *                                 the thread took was used)
 *   SLIP_MALLOC_PREWARM=LIST      makes memory resident at start: SIZE:COUNT, separated by commas
 *   SLIP_MALLOC_SAMPLE=N          calls slipmalloc_sampled() once in N bytes on average, at least 65536
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

/* For uprobes: these do nothing. The first is called with a block of `bytes` bytes that has been taken and stands for so many bytes of
 * blocks that were, by chance, as each byte has the same; the other one when that block is about to be freed. They are
 * called while SLIP_MALLOC_SAMPLE asks for it, once in that many bytes, or while `slipmalloc_sampling` is not 0, once in 512 KiB: a
 * counter that the kernel raises itself for a uprobe that names its offset in the file (`ref_ctr_offset`). What a thread frees and takes
 * again at once is not among what is sampled. */
SLIPMALLOC_API void slipmalloc_sampled(const void *block, size_t bytes, size_t stands_for);
SLIPMALLOC_API void slipmalloc_sample_freed(const void *block);

#ifdef __cplusplus
}
#endif

#endif
