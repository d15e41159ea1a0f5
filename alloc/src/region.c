#include "region.h"

#include "lock.h"
#include "published.h"

/* Made usable ahead of need, so that growing costs few system calls. */
enum { MOST_SUPERSLABS_AHEAD = 16 };

/* Several times the memory of the machine, because a large block takes addresses for all of itself though it may touch little.
 * Not less than this, which is also the most that valgrind can run with. */
static const size_t USUAL_BYTES = (size_t)128 << 30;
static const size_t MOST_BYTES = (size_t)16 << 40;
static const size_t LEAST_BYTES = 4 * SUPERSLAB_BYTES;
static const size_t PAGE_BYTES = 4096;

/* Of `region.live`, for each superslab. */
#ifdef SLIPMALLOC_SECURE
static const size_t LIVE_BYTES = SUPERSLAB_BYTES / CLASS_GRANULE / 8;
#else
static const size_t LIVE_BYTES = 0;
#endif

region_t region;
static lock_t lock;

static size_t bytes_wanted(void)
{
	size_t memory = os_memory_bytes(), bytes = USUAL_BYTES;
	while (bytes < MOST_BYTES && bytes / 4 < memory) {
		bytes *= 2;
	}
	return bytes;
}

/* A page that stays unusable, the published one, descriptions of superslabs, the map of the secure build, classes of slabs, bitmaps,
 * then, from a multiple of 2 MiB on, the blocks. */
static bool reserve(size_t bytes, size_t wanted)
{
	size_t superslabs = bytes / SUPERSLAB_BYTES;
	size_t description_bytes = superslabs * sizeof(superslab_t);
	size_t class_map_bytes = superslabs * SLABS_IN_SUPERSLAB;
	size_t words = (superslabs + 63) / 64;
	size_t map_bytes = class_map_bytes + 4 * words * sizeof(uint64_t);

	map_bytes = (map_bytes + PAGE_BYTES - 1) & ~(PAGE_BYTES - 1);
	size_t live_bytes = superslabs * LIVE_BYTES;
	size_t total =
		PAGE_BYTES + PUBLISHED_BYTES + description_bytes + live_bytes + map_bytes + SUPERSLAB_BYTES + bytes;
	char *start = os_reserve(total);
	if (start == NULL) {
		return false;
	}
	char *page = start + PAGE_BYTES, *descriptions = page + PUBLISHED_BYTES;
	char *live = descriptions + description_bytes, *maps = live + live_bytes;
	if (!os_commit(page, PUBLISHED_BYTES) || !os_commit(maps, map_bytes)) {
		os_unreserve(start, total);
		return false;
	}
	published_begin(page, bytes, wanted);
	region.superslabs = (superslab_t *)descriptions;
	region.superslab_count = superslabs;
#ifdef SLIPMALLOC_SECURE
	region.live = (_Atomic uint64_t *)live;
#endif
	region.recent = (uint64_t *)maps;
	region.aged = region.recent + words;
	region.zero = region.aged + words;
	region.huge = region.zero + words;
	region.classes = (uint8_t *)(region.huge + words);
	region.base = ((uintptr_t)maps + map_bytes + SUPERSLAB_BYTES - 1) & ~(SUPERSLAB_BYTES - 1);
	region.slabs = superslabs * SLABS_IN_SUPERSLAB;
	return true;
}

bool region_is_ready(void)
{
	lock_take(&lock);
	if (region.slabs == 0) {
		size_t wanted = bytes_wanted(), bytes = wanted;
		/* Half of what is allowed: the rest is for libraries, stacks and files. */
		while (bytes > os_address_space_limit() / 2) {
			bytes /= 2;
		}
		while (bytes >= LEAST_BYTES && !reserve(bytes, wanted)) {
			bytes /= 2;
		}
	}
	bool ready = region.slabs > 0;
	lock_release(&lock);
	return ready;
}

static bool commit_live(size_t from, size_t to)
{
#ifdef SLIPMALLOC_SECURE
	return os_commit((char *)region.live + from * LIVE_BYTES, (to - from) * LIVE_BYTES);
#else
	return from <= to;
#endif
}

static bool make_usable(size_t from, size_t to)
{
	char *start = region_address(from * SLABS_IN_SUPERSLAB);
	size_t bytes = (to - from) * SUPERSLAB_BYTES;
	if (!os_commit(&region.superslabs[from], (to - from) * sizeof(superslab_t)) || !commit_live(from, to) ||
	    !os_commit(start, bytes)) {
		return false;
	}
	atomic_store_explicit(&region.usable, to, memory_order_relaxed);
	published()->usable_bytes = to * SUPERSLAB_BYTES;
	return true;
}

bool region_reach(size_t superslabs)
{
	size_t usable = atomic_load_explicit(&region.usable, memory_order_relaxed);
	if (superslabs <= usable) {
		return true;
	}
	if (superslabs > region.superslab_count) {
		return false;
	}
	size_t ahead = usable / 4 < MOST_SUPERSLABS_AHEAD ? usable / 4 : MOST_SUPERSLABS_AHEAD;
	if (ahead > region.superslab_count - superslabs) {
		ahead = region.superslab_count - superslabs;
	}
	return make_usable(usable, superslabs + ahead) || make_usable(usable, superslabs);
}

void region_lock(void)
{
	lock_take(&lock);
}

void region_unlock(void)
{
	lock_release(&lock);
}

void region_forget_lock(void)
{
	lock_forget(&lock);
}
