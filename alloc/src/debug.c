#ifdef SLIPMALLOC_DEBUG

#include "debug.h"

#include <errno.h>
#include <stdint.h>
#include <string.h>

#include "fault.h"
#include "guard.h"
#include "lock.h"
#include "misuse.h"
#include "options.h"
#include "published.h"
#include "region.h"
#include "text.h"
#include "unguarded.h"

#ifndef SLIPMALLOC_SECURE
#error "the debug build needs what the secure build knows of blocks without a guard page"
#endif

enum { MOST_FREED = 32768 };

typedef struct {
	void *block;
	size_t bytes;
} freed_t;

static lock_t lock;

/* What was freed last, in the order in which it was: nobody gets its addresses meanwhile. */
static struct {
	freed_t blocks[MOST_FREED];
	unsigned first;
	unsigned count;
	size_t bytes;
} quarantine;

static void release(void *block)
{
	if (guard_has(block)) {
		guard_release(guard_find(block));
	} else {
		unguarded_release(block);
	}
}

static void release_first(void)
{
	freed_t *freed = &quarantine.blocks[quarantine.first];
	quarantine.first = (quarantine.first + 1) % MOST_FREED;
	quarantine.count--;
	quarantine.bytes -= freed->bytes;
	release(freed->block);
}

static void release_all(void)
{
	while (quarantine.count > 0) {
		release_first();
	}
}

/* `bytes` are at most what is kept. */
static void keep(void *block, size_t bytes)
{
	while (quarantine.count == MOST_FREED || quarantine.bytes > options.quarantine_bytes - bytes) {
		release_first();
	}
	quarantine.blocks[(quarantine.first + quarantine.count++) % MOST_FREED] = (freed_t){block, bytes};
	quarantine.bytes += bytes;
}

static guarded_t *find_taken(const char *what, const void *block)
{
	guarded_t *guarded = guard_find(block);
	if (guarded == NULL || !guarded->is_taken) {
		misuse(what, block, "is not allocated");
	}
	if (guarded->start != (uintptr_t)block) {
		misuse(what, block, "is not the start of a block");
	}
	const char *damage = guard_damage(guarded);
	if (damage != NULL) {
		misuse(what, block, damage);
	}
	return guarded;
}

static void *take_without_guard(size_t bytes, size_t alignment)
{
	void *block = unguarded_take(bytes, alignment);
	if (block == NULL && quarantine.count > 0) {
		release_all();
		block = unguarded_take(bytes, alignment);
	}
	published_add(&published()->unguarded_taken, block != NULL);
	return block;
}

static void *take(size_t bytes, size_t alignment, bool *is_zero)
{
	int before = errno;
	lock_take(&lock);
	void *block = guard_take(bytes, alignment);
	*is_zero = block != NULL;
	if (block != NULL) {
		published_add(&published()->guarded_taken, 1);
	} else {
		block = take_without_guard(bytes, alignment);
	}
	lock_release(&lock);
	errno = block == NULL ? ENOMEM : before;
	return block;
}

void *debug_take(size_t bytes)
{
	bool is_zero;
	return take(bytes, CLASS_GRANULE, &is_zero);
}

void *debug_take_aligned(size_t alignment, size_t bytes)
{
	bool is_zero;
	return take(bytes, alignment < CLASS_GRANULE ? CLASS_GRANULE : alignment, &is_zero);
}

void *debug_take_zero(size_t bytes)
{
	bool is_zero;
	void *block = take(bytes, CLASS_GRANULE, &is_zero);
	return block == NULL || is_zero ? block : memset(block, 0, bytes);
}

/* A block that the kernel does not hide is never used again. */
static void put_guarded(void *block)
{
	guarded_t *guarded = find_taken("free", block);
	if (!guard_hide(guarded)) {
		return;
	}
	if (guarded->bytes <= options.quarantine_bytes) {
		keep(block, guarded->bytes);
	} else {
		guard_release(guarded);
	}
}

static void put_unguarded(void *block)
{
	size_t bytes = unguarded_bytes("free", block);
	if (bytes <= options.quarantine_bytes) {
		unguarded_hide(block);
		keep(block, bytes);
	} else {
		unguarded_give(block);
	}
}

void debug_put(void *block)
{
	int before = errno;
	if (block == NULL) {
		return;
	}
	lock_take(&lock);
	if (guard_has(block)) {
		put_guarded(block);
	} else {
		put_unguarded(block);
	}
	lock_release(&lock);
	errno = before;
}

size_t debug_bytes(const char *what, const void *block)
{
	lock_take(&lock);
	size_t bytes = guard_has(block) ? find_taken(what, block)->bytes : unguarded_bytes(what, block);
	lock_release(&lock);
	return bytes;
}

bool debug_resize(const void *block, size_t bytes, size_t *had)
{
	(void)bytes;
	*had = debug_bytes("realloc", block);
	return false;
}

size_t debug_trim(void)
{
	lock_take(&lock);
	release_all();
	size_t bytes = unguarded_trim();
	lock_release(&lock);
	return bytes;
}

void debug_begin(void)
{
	/* For those who look from outside. */
	region_is_ready();
	if (options.says_faults) {
		fault_begin();
	}
}

size_t debug_guarded_bytes(void)
{
	lock_take(&lock);
	size_t bytes = guard_count().bytes;
	lock_release(&lock);
	return bytes;
}

void debug_write_stats(int fd)
{
	lock_take(&lock);
	guard_counts_t counts = guard_count();
	unsigned freed = quarantine.count;
	size_t freed_bytes = quarantine.bytes;
	lock_release(&lock);
	text_t text = {0}, more = {0};
	text_add(&text, "slipmalloc: blocks with a guard page: ");
	text_add_number(&text, counts.blocks, 0);
	text_add(&text, " now, at most ");
	text_add_number(&text, counts.most_blocks, 0);
	text_add(&text, " at once, ");
	text_add_number(&text, published()->guarded_taken, 0);
	text_add(&text, " since the start; without, for want of mappings or addresses: ");
	text_add_number(&text, published()->unguarded_taken, 0);
	text_add(&text, "\n");
	os_write(fd, text.bytes, text.length);
	text_add(&more, "slipmalloc: freed blocks in the quarantine: ");
	text_add_number(&more, freed, 0);
	text_add(&more, " of ");
	text_add_number(&more, freed_bytes, 0);
	text_add(&more, " bytes\n");
	os_write(fd, more.bytes, more.length);
}

void debug_lock(void)
{
	lock_take(&lock);
}

void debug_unlock(void)
{
	lock_release(&lock);
}

void debug_forget_lock(void)
{
	lock_forget(&lock);
}

#endif
