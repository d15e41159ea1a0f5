#include "os.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/sysinfo.h>
#include <unistd.h>

/* Linux 5.14; the header of an older C library does not know it. */
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

/* Linux 5.7. */
#ifndef MREMAP_DONTUNMAP
#define MREMAP_DONTUNMAP 4
#endif

enum { PAGE_BYTES = 4096 };

void *os_reserve(size_t bytes)
{
	void *start = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	return start == MAP_FAILED ? NULL : start;
}

void os_unreserve(void *start, size_t bytes)
{
	munmap(start, bytes);
}

bool os_commit(void *start, size_t bytes)
{
	return mprotect(start, bytes, PROT_READ | PROT_WRITE) == 0;
}

void *os_map(size_t bytes)
{
	void *start = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	return start == MAP_FAILED ? NULL : start;
}

bool os_purge(void *start, size_t bytes)
{
	return madvise(start, bytes, MADV_DONTNEED) == 0;
}

bool os_hide(void *start, size_t bytes)
{
	/* A new mapping becomes one with its neighbours, which what mprotect() leaves does not always. */
	return mmap(start, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) != MAP_FAILED;
}

bool os_move(void *to, void *from, size_t bytes)
{
	/* It is refused where memory is locked, which would not hold for the place that is left. */
	if (madvise(to, bytes, MADV_DONTNEED) != 0) {
		return false;
	}
	if (mremap(from, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED | MREMAP_DONTUNMAP, to) == to) {
		return true;
	}
	/* What was there may be gone. */
	mmap(to, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
	return false;
}

void os_use_huge_pages(void *start, size_t bytes)
{
	madvise(start, bytes, MADV_HUGEPAGE);
}

void os_use_small_pages(void *start, size_t bytes)
{
	madvise(start, bytes, MADV_NOHUGEPAGE);
}

void os_populate(void *start, size_t bytes)
{
	madvise(start, bytes, MADV_POPULATE_WRITE);
}

bool os_is_resident(const void *address)
{
	unsigned char state;
	void *page = (void *)((uintptr_t)address & ~(uintptr_t)(PAGE_BYTES - 1));
	return mincore(page, PAGE_BYTES, &state) == 0 && (state & 1) != 0;
}

size_t os_address_space_limit(void)
{
	struct rlimit limit;
	if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) {
		return SIZE_MAX;
	}
	return limit.rlim_cur;
}

size_t os_most_mappings(void)
{
	char digits[24];
	size_t number = 0;
	int fd = open("/proc/sys/vm/max_map_count", O_RDONLY | O_CLOEXEC);
	ssize_t length = fd < 0 ? 0 : read(fd, digits, sizeof digits);
	for (ssize_t at = 0; at < length && digits[at] >= '0' && digits[at] <= '9'; at++) {
		number = number * 10 + (size_t)(digits[at] - '0');
	}
	if (fd >= 0) {
		close(fd);
	}
	/* What the kernel has if nobody set it. */
	return number > 0 ? number : 65530;
}

size_t os_memory_bytes(void)
{
	struct sysinfo information;
	return sysinfo(&information) == 0 ? information.totalram * information.mem_unit : 0;
}
