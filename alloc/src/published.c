#include "published.h"

#include "options.h"

static published_t nowhere;

_Atomic(published_t *) published_page = &nowhere;

void published_show_options(void)
{
	published_t *page = published();
	page->decay_ms = options.decay_ms;
	page->flags = options.huge_pages ? PUBLISHED_HUGE_PAGES : 0;
#if defined SLIPMALLOC_DEBUG
	page->flags |= PUBLISHED_DEBUG;
#elif defined SLIPMALLOC_SECURE
	page->flags |= PUBLISHED_SECURE;
#endif
}

void published_begin(void *start, size_t region_bytes, size_t wanted_bytes)
{
	published_t *page = start;
	page->version = PUBLISHED_VERSION;
	page->bytes = sizeof *page;
	page->class_count = CLASSES - 1;
	page->class_offset = offsetof(published_t, classes);
	page->region_bytes = region_bytes;
	page->wanted_bytes = wanted_bytes;
	for (unsigned class = 1; class < CLASSES; class++) {
		page->classes[class - 1].block_bytes = class_bytes[class];
	}
	atomic_store_explicit(&published_page, page, memory_order_release);
	published_show_options();
	atomic_store_explicit(&page->magic, PUBLISHED_MAGIC, memory_order_release);
}

void published_after_fork(unsigned own_caches)
{
	published_t *page = published();
	uint64_t caches = atomic_load_explicit(&page->caches, memory_order_relaxed);
	page->forks++;
	published_add(&page->caches_lost, caches - own_caches);
	atomic_store_explicit(&page->caches, own_caches, memory_order_relaxed);
}
