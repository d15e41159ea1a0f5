#include "rollback.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "proc.h"

/* Debian 12 has older headers than the kernels that PHP runs on. From include/uapi/linux/{userfaultfd,fs}.h of 6.7. */
#ifndef UFFD_USER_MODE_ONLY
# define UFFD_USER_MODE_ONLY 1
#endif
#ifndef UFFD_FEATURE_WP_UNPOPULATED
# define UFFD_FEATURE_WP_UNPOPULATED (1 << 13)
#endif
#ifndef UFFD_FEATURE_WP_ASYNC
# define UFFD_FEATURE_WP_ASYNC (1 << 15)
#endif
#ifndef UFFD_FEATURE_WP_HUGETLBFS_SHMEM
# define UFFD_FEATURE_WP_HUGETLBFS_SHMEM (1 << 12)
#endif
#ifndef PAGEMAP_SCAN
struct page_region {
	__u64 start, end, categories;
};
struct pm_scan_arg {
	__u64 size, flags, start, end, walk_end, vec, vec_len, max_pages;
	__u64 category_inverted, category_mask, category_anyof_mask, return_mask;
};
# define PAGEMAP_SCAN _IOWR('f', 16, struct pm_scan_arg)
# define PAGE_IS_WRITTEN (1 << 1)
# define PAGE_IS_FILE (1 << 2)
# define PAGE_IS_PRESENT (1 << 3)
# define PAGE_IS_SWAPPED (1 << 4)
#endif

/* A page that was dirty in this many requests is expected to be dirty in the next one: not protected, always copied.
 * It costs 0.2 to 0.4 us to copy a page for nothing, 1.1 us to take the fault of a protected one and 6 us more to look for it. */
#define SCORE_LEARNED 2

/* How often a learned page may be found unchanged before it is protected again, at most. At first that is once; each time that
 * it was wrong the next is twice as long. Many pages are written in each request and hold the same afterwards: counts of
 * references rise and fall. */
#define PATIENCE_MAX 63

/* Requests after which each page was looked at once for ageing. */
#define AGEING_REQUESTS 64

/* Above this share of dirty pages one copy of everything is cheaper than looking: percent. */
#define WHOLE_PERCENT 40
#define WHOLE_REQUESTS 64

/* Finding written pages costs 3 ns for each page of the image by write protection, and 25 ns for each that requests touch
 * without. An image of more pages than this is taken for one of which requests touch a small part. */
#define LARGE_PAGES 4096

/* Runs of one answer of the kernel when it is asked about a few pages. */
#define NEW_RUNS 32

#define PAGES(rollback) ((rollback)->bytes / SLIP_PAGE_BYTES)

const char *const slip_mechanism_names[SLIP_MECHANISMS] = {"auto", "userfault", "scan", "pagemap", "copy", "remap"};

static bool in_use(const slip_rollback_t *rollback, size_t page)
{
	return rollback->in_use[page / 64] >> (page % 64) & 1;
}

static bool protect(const slip_rollback_t *rollback, size_t page, size_t pages, bool on)
{
	struct uffdio_writeprotect arguments = {
		.range = {(uintptr_t) rollback->base + page * SLIP_PAGE_BYTES, pages * SLIP_PAGE_BYTES},
		.mode = on ? UFFDIO_WRITEPROTECT_MODE_WP : 0,
	};
	return ioctl(rollback->userfault_fd, UFFDIO_WRITEPROTECT, &arguments) == 0;
}

static void copy(const slip_rollback_t *rollback, size_t page, size_t pages)
{
	memcpy(rollback->base + page * SLIP_PAGE_BYTES, rollback->saved + page * SLIP_PAGE_BYTES, pages * SLIP_PAGE_BYTES);
}

/* Which pages are asked for: those that were written since they were protected, which the kernel answers fast but counts
 * pages among that were never touched; those that the process has a copy of; or those that it has touched at all. */
enum wanted { WRITTEN, OWN, TOUCHED };

/* Runs of pages in [*start, end), into `found`. `*start` becomes where to go on. Number of runs, or -1. */
static long scan(slip_rollback_t *rollback, enum wanted wanted, uintptr_t *start, uintptr_t end, struct page_region *found,
	size_t room)
{
	struct pm_scan_arg arguments = {
		.size = sizeof arguments,
		.start = *start,
		.end = end,
		.vec = (uintptr_t) found,
		.vec_len = room,
		.return_mask = wanted == TOUCHED ? PAGE_IS_FILE | PAGE_IS_PRESENT : wanted == OWN ? PAGE_IS_PRESENT : PAGE_IS_WRITTEN,
	};
	if (wanted == WRITTEN) {
		arguments.category_mask = PAGE_IS_WRITTEN;
	} else {
		arguments.category_inverted = arguments.category_mask = wanted == OWN ? PAGE_IS_FILE : 0;
		/* In memory, or in swap. */
		arguments.category_anyof_mask = PAGE_IS_PRESENT | PAGE_IS_SWAPPED;
	}
	long runs = ioctl(rollback->pagemap_fd, PAGEMAP_SCAN, &arguments);
	*start = arguments.walk_end;
	return runs;
}

static uintptr_t address_of(const slip_rollback_t *rollback, size_t page)
{
	return (uintptr_t) rollback->base + page * SLIP_PAGE_BYTES;
}

static size_t page_of(const slip_rollback_t *rollback, uintptr_t address)
{
	return (address - (uintptr_t) rollback->base) / SLIP_PAGE_BYTES;
}

static const char *start_userfault(slip_rollback_t *rollback)
{
	struct uffdio_api api = {
		.api = UFFD_API,
		.features = UFFD_FEATURE_WP_ASYNC | UFFD_FEATURE_WP_UNPOPULATED | UFFD_FEATURE_WP_HUGETLBFS_SHMEM,
	};
	struct uffdio_register range = {
		.range = {(uintptr_t) rollback->base, rollback->bytes},
		.mode = UFFDIO_REGISTER_MODE_WP,
	};
	rollback->userfault_fd = (int) syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK | UFFD_USER_MODE_ONLY);
	if (rollback->userfault_fd < 0) {
		return "userfaultfd is refused";
	}
	if (ioctl(rollback->userfault_fd, UFFDIO_API, &api) != 0) {
		return "userfaultfd has no asynchronous write protection (Linux 6.7)";
	}
	/* Nothing is protected yet. A page that was never touched has no entry in the page tables, and where there are none the
	 * scan takes 2 MiB at a step; protecting it would make one. */
	return ioctl(rollback->userfault_fd, UFFDIO_REGISTER, &range) == 0 ? NULL : "userfaultfd cannot watch this memory";
}

static const char *start_scan(slip_rollback_t *rollback)
{
	uintptr_t start = (uintptr_t) rollback->base;

	if (rollback->pagemap_fd < 0 && (rollback->pagemap_fd = slip_proc_open("/proc/self/pagemap")) < 0) {
		return "/proc/self/pagemap cannot be opened";
	}
	return scan(rollback, OWN, &start, start + SLIP_PAGE_BYTES, rollback->found, 1) < 0 ? "PAGEMAP_SCAN is refused" : NULL;
}

static const char *start_pagemap(slip_rollback_t *rollback)
{
	uint64_t entry;

	if (rollback->pagemap_fd < 0 && (rollback->pagemap_fd = slip_proc_open("/proc/self/pagemap")) < 0) {
		return "/proc/self/pagemap cannot be opened";
	}
	off_t at = (off_t) ((uintptr_t) rollback->base / SLIP_PAGE_BYTES * sizeof entry);
	return pread(rollback->pagemap_fd, &entry, sizeof entry, at) == sizeof entry ? NULL : "/proc/self/pagemap cannot be read";
}

static void close_descriptors(slip_rollback_t *rollback)
{
	if (rollback->userfault_fd >= 0) {
		close(rollback->userfault_fd);
	}
	if (rollback->pagemap_fd >= 0) {
		close(rollback->pagemap_fd);
	}
	rollback->userfault_fd = rollback->pagemap_fd = -1;
}

static const char *try_mechanism(slip_rollback_t *rollback, enum slip_mechanism mechanism)
{
	const char *reason = NULL;

	switch (mechanism) {
		case SLIP_USERFAULT:
			if ((reason = start_scan(rollback)) == NULL) {
				reason = start_userfault(rollback);
			}
			break;
		case SLIP_SCAN:
			reason = start_scan(rollback);
			break;
		case SLIP_PAGEMAP:
			reason = start_pagemap(rollback);
			break;
		default:
			break;
	}
	if (reason) {
		close_descriptors(rollback);
	} else {
		rollback->mechanism = mechanism;
	}
	return reason;
}

static bool map_file(slip_rollback_t *rollback)
{
	return mmap(rollback->base, rollback->bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED | MAP_NORESERVE,
		rollback->fd, 0) != MAP_FAILED;
}

bool slip_rollback_start(slip_rollback_t *rollback, enum slip_mechanism wanted, const char **reason)
{
	*reason = NULL;
	rollback->userfault_fd = rollback->pagemap_fd = -1;
	rollback->found_room = PAGES(rollback);
	for (rollback->end_page = PAGES(rollback); rollback->end_page && !in_use(rollback, rollback->end_page - 1); rollback->end_page--) {
	}
	rollback->score = calloc(PAGES(rollback), 1);
	rollback->patience = calloc(PAGES(rollback), 1);
	rollback->found = malloc(rollback->found_room * sizeof(struct page_region));
	if (!rollback->score || !rollback->patience || !rollback->found || !map_file(rollback)) {
		*reason = "out of memory";
		slip_rollback_stop(rollback);
		return false;
	}
	/* A huge page would be copied whole for one written byte. */
	madvise(rollback->base, rollback->bytes, MADV_NOHUGEPAGE);
	if (wanted == SLIP_AUTO) {
		wanted = PAGES(rollback) > LARGE_PAGES ? SLIP_SCAN : SLIP_USERFAULT;
	}
	for (enum slip_mechanism mechanism = wanted;; mechanism++) {
		const char *refused = try_mechanism(rollback, mechanism);
		if (!refused) {
			return true;
		}
		if (!*reason) {
			*reason = refused;
		}
	}
}

static bool is_learned(const slip_rollback_t *rollback, size_t page)
{
	return rollback->score[page] >= SCORE_LEARNED;
}

static void score_up(slip_rollback_t *rollback, size_t page)
{
	if (!is_learned(rollback, page) && ++rollback->score[page] == SCORE_LEARNED) {
		rollback->score[page] += rollback->patience[page];
	}
}

/* Has the next write to a page that is as it should be raise a fault. */
static bool watch(const slip_rollback_t *rollback, size_t page)
{
	if (rollback->mechanism == SLIP_USERFAULT) {
		return protect(rollback, page, 1, true);
	}
	return madvise(rollback->base + page * SLIP_PAGE_BYTES, SLIP_PAGE_BYTES, MADV_DONTNEED) == 0;
}

/* Lets the pages of one window age, before anything is copied: a page that the last request did not change loses a point,
 * and a page that is no longer learned is watched again. If it is written before its next turn it is learned at once, and
 * for longer. */
static bool age(slip_rollback_t *rollback)
{
	size_t pages = PAGES(rollback), step = (pages + AGEING_REQUESTS - 1) / AGEING_REQUESTS;

	for (size_t i = 0; i < step; i++) {
		size_t page = rollback->window;
		rollback->window = rollback->window + 1 == pages ? 0 : rollback->window + 1;
		if (rollback->score[page] == 0) {
			rollback->patience[page] = 0;
			continue;
		}
		const char *now = rollback->base + page * SLIP_PAGE_BYTES, *saved = rollback->saved + page * SLIP_PAGE_BYTES;
		bool learned = is_learned(rollback, page);
		if (!learned || memcmp(now, saved, SLIP_PAGE_BYTES) == 0) {
			rollback->score[page]--;
		}
		if (learned && !is_learned(rollback, page)) {
			rollback->patience[page] = MIN(2 * rollback->patience[page] + 1, PATIENCE_MAX);
			if (!watch(rollback, page)) {
				return false;
			}
		}
	}
	return true;
}

/* Protects the pages of [first, last) that are not learned. */
static bool protect_new(slip_rollback_t *rollback, size_t first, size_t last)
{
	for (size_t page = first; page < last; first = ++page) {
		while (page < last && !is_learned(rollback, page)) {
			page++;
		}
		if (page > first && !protect(rollback, first, page - first, true)) {
			return false;
		}
	}
	return true;
}

/* Pages that the kernel calls written and that were not expected to be: written indeed, read for the first time, or never
 * touched. Those that the process has a copy of are put back. All are protected then, but where a whole table of page entries
 * is missing: the kernel passes over those fast. */
static bool put_back_new(slip_rollback_t *rollback, size_t first, size_t last)
{
	uintptr_t start = address_of(rollback, first), end = address_of(rollback, last);
	struct page_region touched[NEW_RUNS];
	size_t done = first;

	while (start < end) {
		long runs = scan(rollback, TOUCHED, &start, end, touched, NEW_RUNS);
		if (runs < 0) {
			return false;
		}
		for (long i = 0; i < runs; i++) {
			size_t page = page_of(rollback, touched[i].start), behind = page_of(rollback, touched[i].end);
			if (touched[i].categories & PAGE_IS_FILE) {
				continue;
			}
			copy(rollback, page, behind - page);
			rollback->dirty_pages += behind - page;
			for (; page < behind; page++) {
				score_up(rollback, page);
			}
		}
		for (long i = 0; i < runs; i++) {
			size_t page = page_of(rollback, touched[i].start) / SLIP_CHUNK_PAGES * SLIP_CHUNK_PAGES;
			size_t behind = page_of(rollback, touched[i].end) + SLIP_CHUNK_PAGES - 1;
			behind = MIN(behind / SLIP_CHUNK_PAGES * SLIP_CHUNK_PAGES, last);
			if (behind > done && !protect_new(rollback, MAX(page, done), behind)) {
				return false;
			}
			done = MAX(done, behind);
		}
	}
	return true;
}

/* From `page` on, up to `end`: the first page that is learned, or the first that is not. */
static size_t next_page(const slip_rollback_t *rollback, size_t page, size_t end, bool learned)
{
	while (page < end && is_learned(rollback, page) != learned) {
		page++;
	}
	return page;
}

static void put_back_learned(slip_rollback_t *rollback)
{
	size_t end = rollback->end_page;

	for (size_t page = 0, behind; (page = next_page(rollback, page, end, true)) < end; page = behind) {
		behind = next_page(rollback, page, end, false);
		copy(rollback, page, behind - page);
		rollback->learned_pages += behind - page;
	}
	rollback->dirty_pages += rollback->learned_pages;
}

/* Of the whole process, any thread may write. Every first write to a page that is protected or absent is counted. */
static uint64_t count_faults(void)
{
	struct rusage usage;
	getrusage(RUSAGE_SELF, &usage);
	return (uint64_t) usage.ru_minflt + usage.ru_majflt;
}

static bool run_userfault(slip_rollback_t *rollback)
{
	uintptr_t start = (uintptr_t) rollback->base, end = address_of(rollback, rollback->end_page);

	put_back_learned(rollback);
	while (start < end) {
		long runs = scan(rollback, WRITTEN, &start, end, rollback->found, rollback->found_room);
		if (runs < 0) {
			return false;
		}
		for (long i = 0; i < runs; i++) {
			struct page_region *run = (struct page_region *) rollback->found + i;
			size_t page = page_of(rollback, run->start), last = page_of(rollback, run->end), behind;
			for (; (page = next_page(rollback, page, last, false)) < last; page = behind) {
				behind = next_page(rollback, page, last, true);
				if (!put_back_new(rollback, page, behind)) {
					return false;
				}
			}
		}
	}
	return true;
}

/* A page that is no longer the file's own: copied back if it is learned, else given up, so that it is the file's again. */
static bool put_back(slip_rollback_t *rollback, size_t page, size_t last)
{
	rollback->dirty_pages += last - page;
	for (size_t i = page; i < last; i++) {
		score_up(rollback, i);
	}
	while (page < last) {
		bool learned = is_learned(rollback, page);
		size_t end = page + 1;
		while (end < last && is_learned(rollback, end) == learned) {
			end++;
		}
		if (learned) {
			copy(rollback, page, end - page);
			rollback->learned_pages += end - page;
		} else if (madvise(rollback->base + page * SLIP_PAGE_BYTES, (end - page) * SLIP_PAGE_BYTES, MADV_DONTNEED) != 0) {
			return false;
		}
		page = end;
	}
	return true;
}

static bool run_scan(slip_rollback_t *rollback)
{
	uintptr_t start = (uintptr_t) rollback->base, end = address_of(rollback, rollback->end_page);

	while (start < end) {
		long runs = scan(rollback, OWN, &start, end, rollback->found, rollback->found_room);
		if (runs < 0) {
			return false;
		}
		for (long i = 0; i < runs; i++) {
			struct page_region *run = (struct page_region *) rollback->found + i;
			if (!put_back(rollback, page_of(rollback, run->start), page_of(rollback, run->end))) {
				return false;
			}
		}
	}
	return true;
}

/* Bits of an entry, from Documentation/admin-guide/mm/pagemap.rst: in memory or in swap, and not the file's page. */
static bool is_own(uint64_t entry)
{
	return entry >> 62 != 0 && !(entry >> 61 & 1);
}

static bool run_pagemap(slip_rollback_t *rollback)
{
	uint64_t *entries = rollback->found;
	size_t pages = PAGES(rollback);
	ssize_t bytes = (ssize_t) (pages * sizeof *entries);
	off_t at = (off_t) ((uintptr_t) rollback->base / SLIP_PAGE_BYTES * sizeof *entries);

	if (pread(rollback->pagemap_fd, entries, bytes, at) != bytes) {
		return false;
	}
	for (size_t page = 0; page < pages; page++) {
		size_t last = page;
		while (last < pages && is_own(entries[last])) {
			last++;
		}
		if (last > page && !put_back(rollback, page, last)) {
			return false;
		}
		page = last;
	}
	return true;
}

static bool run_watched(slip_rollback_t *rollback)
{
	uint64_t faults = count_faults();
	bool done;

	if (!age(rollback)) {
		return false;
	}
	if (faults == rollback->faults) {
		/* Asking the kernel costs as much as 30 pages or more, and most requests write what is learned alone. */
		put_back_learned(rollback);
		return true;
	}
	switch (rollback->mechanism) {
		case SLIP_USERFAULT: done = run_userfault(rollback); break;
		case SLIP_SCAN: done = run_scan(rollback); break;
		default: done = run_pagemap(rollback); break;
	}
	rollback->faults = count_faults();
	return done;
}

static void copy_all(slip_rollback_t *rollback)
{
	size_t pages = PAGES(rollback);

	for (size_t page = 0; page < pages; page++) {
		size_t last = page;
		while (last < pages && in_use(rollback, last)) {
			last++;
		}
		if (last > page) {
			copy(rollback, page, last - page);
			rollback->dirty_pages += last - page;
			page = last;
		}
	}
}

bool slip_rollback_run(slip_rollback_t *rollback)
{
	bool done = true;

	rollback->dirty_pages = rollback->learned_pages = 0;
	if (rollback->whole && rollback->mechanism != SLIP_REMAP) {
		copy_all(rollback);
		if (--rollback->whole == 0 && rollback->mechanism == SLIP_USERFAULT) {
			memset(rollback->score, 0, PAGES(rollback));
			return protect(rollback, 0, PAGES(rollback), true);
		}
		return true;
	}
	switch (rollback->mechanism) {
		case SLIP_REMAP: done = map_file(rollback); break;
		case SLIP_COPY: copy_all(rollback); break;
		default: done = run_watched(rollback); break;
	}
	if (done && rollback->mechanism < SLIP_COPY && rollback->dirty_pages * 100 > rollback->used_pages * WHOLE_PERCENT) {
		rollback->whole = WHOLE_REQUESTS;
		return rollback->mechanism != SLIP_USERFAULT || protect(rollback, 0, PAGES(rollback), false);
	}
	return done;
}

bool slip_rollback_verify(const slip_rollback_t *rollback)
{
	for (size_t page = 0; page < PAGES(rollback); page++) {
		size_t at = page * SLIP_PAGE_BYTES;
		if (in_use(rollback, page) && memcmp(rollback->base + at, rollback->saved + at, SLIP_PAGE_BYTES) != 0) {
			return false;
		}
	}
	return true;
}

void slip_rollback_stop(slip_rollback_t *rollback)
{
	close_descriptors(rollback);
	free(rollback->score);
	free(rollback->patience);
	free(rollback->found);
	rollback->score = rollback->patience = NULL;
	rollback->found = NULL;
}
