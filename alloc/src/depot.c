#include "depot.h"

#include <sched.h>

#include "lock.h"
#include "misuse.h"
#include "published.h"

/* So many full magazines of a class are kept, and more where blocks that went into slabs because of that were taken from slabs again by another thread:
 * threads that hand blocks over to others need room for all that are under way, and one by one these take twice as long. What a
 * thread frees and does not take again, or takes itself, is not evidence of that, and goes into slabs, where it serves any class. */
enum { MOST_ROOM_BYTES = 4 << 20 };

/* At so many slabs a turn of decay looks, and gives back pages of so many, because the lock is held. */
enum { LOOKED_AT = 1024, PURGED = 32 };

/* So many full magazines of a list others leave to its own CPUs, which will take again what they gave last. */
enum { LEFT_TO_OWN = 2 };

/* Magazines that were given on one CPU, whose caches have them and their blocks. Several small blocks share a line, which threads would write to by turns
 * if each got the other's. */
typedef struct {
	magazine_t *full;
	/* Small and large ones. */
	magazine_t *empty[2];
	unsigned full_count;
} lists_t;

typedef struct {
	_Alignas(64) lock_t lock;
	unsigned full_count;
	/* The least since the last turn of decay. */
	unsigned least_full;
	/* For so many more full magazines than the least there is room. */
	unsigned more_room;
	/* The thread whose full magazine was emptied into slabs last since there is that room, or NULL. */
	const void *overflowed_by;
	/* Read without the lock. */
	_Atomic bool is_shared;
	/* The number of the lists of the CPU that is here, or was last; and how often it was another one than before since the last turn of decay. */
	unsigned char own;
	unsigned moves;
	lists_t lists[DEPOT_LISTS];
	/* Slabs with free blocks. Blocks are taken from the first; slabs come back at the end, which gives them time to become free. */
	slab_t *first;
	slab_t *last;
} depot_t;

static depot_t depots[CLASSES];

static void append(depot_t *depot, slab_t *slab)
{
	slab->next = NULL;
	slab->previous = depot->last;
	if (depot->last != NULL) {
		depot->last->next = slab;
	} else {
		depot->first = slab;
	}
	depot->last = slab;
}

static void unlink_slab(depot_t *depot, slab_t *slab)
{
	if (slab->previous != NULL) {
		slab->previous->next = slab->next;
	} else {
		depot->first = slab->next;
	}
	if (slab->next != NULL) {
		slab->next->previous = slab->previous;
	} else {
		depot->last = slab->previous;
	}
}

static void push(magazine_t **list, magazine_t *magazine)
{
	magazine->next = *list;
	*list = magazine;
}

static magazine_t *pop(magazine_t **list)
{
	magazine_t *magazine = *list;
	if (magazine != NULL) {
		*list = magazine->next;
	}
	return magazine;
}

static slab_t *add_slab(depot_t *depot, unsigned class)
{
	slab_t *slab = slab_create(class);
	if (slab != NULL) {
		append(depot, slab);
		published_class(class)->slabs++;
	}
	return slab;
}

static void remove_slab(depot_t *depot, unsigned class, slab_t *slab)
{
	unlink_slab(depot, slab);
	published_class(class)->slabs--;
	slab_destroy(slab);
}

/* Up to `most` blocks: of the slabs that have some until half is there, so that a heap full of holes doesn't make for a turn
 * per block; of a new slab if there are none at all. */
static unsigned take_blocks(depot_t *depot, unsigned class, void **bottom, unsigned most)
{
	unsigned count = 0;
	while (count == 0 || (count < most / 2 && depot->first != NULL)) {
		if (depot->first == NULL && add_slab(depot, class) == NULL) {
			break;
		}
		slab_t *slab = depot->first;
		count += slab_take(slab, class, bottom + count, most - count);
		if (slab->free_blocks == 0) {
			unlink_slab(depot, slab);
		}
	}
	published_class(class)->blocks_out += count;
	return count;
}

/* A slab that has all of its blocks goes, unless it is the only one of the class with free blocks. */
static void put_block(depot_t *depot, unsigned class, void *block)
{
	size_t number = region_slab_number(block);
	if (region.classes[number] != class) {
		misuse(SLAB_FOUND_LATE, block, "was freed twice");
	}
	slab_t *slab = region_slab(number);
	slab_put(slab, class, block);
	published_class(class)->blocks_out--;
	if (slab->free_blocks == 1) {
		append(depot, slab);
	}
	if (slab->free_blocks == slab_block_count(class) && depot->first != depot->last) {
		remove_slab(depot, class, slab);
	}
}

static void empty_into_slabs(depot_t *depot, unsigned class, magazine_t *magazine)
{
	while (magazine_blocks(magazine) > 0) {
		put_block(depot, class, magazine->entries[--magazine->top]);
	}
}

/* What other processes see of the full magazines. */
static void show_full(const depot_t *depot, unsigned class, unsigned more, unsigned fewer)
{
	published_class_t *counts = published_class(class);
	counts->full_magazines = depot->full_count;
	counts->magazine_blocks += (uint64_t)more - fewer;
}

/* At the begin of each exchange: on which CPU this runs. */
static void note_cpu(depot_t *depot)
{
	unsigned own = (unsigned)sched_getcpu() % DEPOT_LISTS;
	if (depot->own != own) {
		depot->own = (unsigned char)own;
		if (++depot->moves == DEPOT_MOVES_IF_SHARED) {
			atomic_store_explicit(&depot->is_shared, true, memory_order_relaxed);
			/* Of larger ones. */
			depot->more_room /= MAGAZINE_LARGE_PIECES;
		}
	}
}

bool depot_is_shared(unsigned class)
{
	return atomic_load_explicit(&depots[class].is_shared, memory_order_relaxed);
}

/* From the own list, or from another one that has more than is left to its own. */
static magazine_t *pop_full(depot_t *depot, unsigned class, unsigned left)
{
	lists_t *lists = &depot->lists[depot->own];
	for (unsigned at = 1; at < DEPOT_LISTS && lists->full_count == 0; at++) {
		lists_t *other = &depot->lists[(depot->own + at) % DEPOT_LISTS];
		lists = other->full_count > left ? other : lists;
	}
	magazine_t *magazine = pop(&lists->full);
	if (magazine != NULL) {
		lists->full_count--;
		depot->full_count--;
		show_full(depot, class, 0, magazine_blocks(magazine));
		if (depot->least_full > depot->full_count) {
			depot->least_full = depot->full_count;
		}
	}
	return magazine;
}

static void push_full(depot_t *depot, unsigned class, magazine_t *magazine)
{
	lists_t *lists = &depot->lists[depot->own];
	push(&lists->full, magazine);
	lists->full_count++;
	depot->full_count++;
	show_full(depot, class, magazine_blocks(magazine), 0);
	published_class(class)->returns_kept++;
}

static void push_empty(depot_t *depot, magazine_t *magazine)
{
	push(&depot->lists[depot->own].empty[magazine_is_large(magazine)], magazine);
}

static magazine_t *pop_empty(depot_t *depot, bool is_large)
{
	magazine_t *magazine = NULL;
	for (unsigned at = 0; magazine == NULL && at < DEPOT_LISTS; at++) {
		magazine = pop(&depot->lists[(depot->own + at) % DEPOT_LISTS].empty[is_large]);
	}
	return magazine;
}

static magazine_t *take_empty(depot_t *depot, unsigned blocks)
{
	magazine_t *magazine = pop_empty(depot, blocks > MAGAZINE_MOST_BLOCKS);
	return magazine != NULL ? magazine : magazine_create(blocks);
}

static bool has_room(const depot_t *depot)
{
	return depot->full_count < DEPOT_LEAST_ROOM + depot->more_room;
}

/* Blocks are taken from slabs. Twice the room if that is for want of it: another thread's went there. */
static void find_more_room(depot_t *depot, unsigned class)
{
	if (depot->overflowed_by != NULL && depot->overflowed_by != __builtin_thread_pointer()) {
		unsigned blocks = depot_is_shared(class) ? MAGAZINE_LARGE_MOST_BLOCKS : MAGAZINE_MOST_BLOCKS;
		unsigned most = MOST_ROOM_BYTES / (blocks * (unsigned)class_bytes[class]);
		depot->overflowed_by = NULL;
		depot->more_room = depot->more_room * 2 + DEPOT_LEAST_ROOM;
		depot->more_room = depot->more_room < most ? depot->more_room : most;
	}
}

magazine_t *depot_take_full(unsigned class, magazine_t *empty, unsigned blocks)
{
	depot_t *depot = &depots[class];
	lock_take(&depot->lock);
	note_cpu(depot);
	magazine_t *magazine = pop_full(depot, class, LEFT_TO_OWN);
	if (magazine != NULL) {
		published_class(class)->refills_hit++;
		if (empty != NULL) {
			push_empty(depot, empty);
		}
		lock_release(&depot->lock);
		return magazine;
	}
	find_more_room(depot, class);
	magazine = empty != NULL && blocks <= magazine_most(empty) ? empty : take_empty(depot, blocks);
	magazine = magazine != NULL ? magazine : empty;
	if (magazine != NULL) {
		magazine_reset(magazine, blocks);
		magazine->top = (uint16_t)(magazine->top + take_blocks(depot, class, magazine_top(magazine), magazine->capacity));
		published_class(class)->refills_missed++;
		bool has_blocks = magazine_blocks(magazine) > 0;
		magazine_t *left = has_blocks ? empty : magazine;
		if (left != NULL && magazine != empty) {
			push_empty(depot, left);
		}
		magazine = has_blocks ? magazine : NULL;
	}
	lock_release(&depot->lock);
	return magazine;
}

magazine_t *depot_take_empty(unsigned class, magazine_t *full, unsigned blocks)
{
	depot_t *depot = &depots[class];
	lock_take(&depot->lock);
	note_cpu(depot);
	magazine_t *magazine = NULL;
	if (full == NULL || has_room(depot)) {
		magazine = take_empty(depot, blocks);
	}
	if (magazine == NULL && full != NULL) {
		depot->overflowed_by = __builtin_thread_pointer();
		empty_into_slabs(depot, class, full);
		published_class(class)->returns_emptied++;
		magazine = full;
	} else if (full != NULL) {
		push_full(depot, class, full);
	}
	lock_release(&depot->lock);
	return magazine;
}

void depot_give_back(unsigned class, magazine_t *magazine)
{
	depot_t *depot = &depots[class];
	lock_take(&depot->lock);
	note_cpu(depot);
	unsigned blocks = magazine_blocks(magazine);
	/* Only a full one is worth another thread's exchange. */
	if (blocks > 0 && blocks == magazine->capacity && has_room(depot)) {
		push_full(depot, class, magazine);
		magazine = NULL;
	} else if (blocks > 0) {
		empty_into_slabs(depot, class, magazine);
		published_class(class)->returns_emptied++;
	}
	lock_release(&depot->lock);
	if (magazine != NULL) {
		magazine_destroy(magazine);
	}
}

void *depot_take_block(unsigned class)
{
	void *block = NULL;
	lock_take(&depots[class].lock);
	take_blocks(&depots[class], class, &block, 1);
	lock_release(&depots[class].lock);
	return block;
}

void depot_put_block(unsigned class, void *block)
{
	lock_take(&depots[class].lock);
	put_block(&depots[class], class, block);
	lock_release(&depots[class].lock);
}

/* Those that are taken from next come first. */
static void purge_slabs(depot_t *depot, unsigned class, bool all)
{
	unsigned looked_at = 0, purged = 0;
	for (slab_t *slab = depot->first; slab != NULL && (all || (looked_at < LOOKED_AT && purged < PURGED)); slab = slab->next) {
		looked_at++;
		purged += slab_purge(slab, class, all);
	}
}

static void flush(unsigned class, bool all)
{
	depot_t *depot = &depots[class];
	lock_take(&depot->lock);
	unsigned count = all ? depot->full_count : depot->least_full;
	if (!all && count > 0) {
		published_add(&published()->magazines_decayed, count);
	}
	/* What was not needed is more than enough room. */
	depot->more_room -= depot->more_room < count ? depot->more_room : count;
	depot->overflowed_by = NULL;
	while (count-- > 0) {
		magazine_t *magazine = pop_full(depot, class, 0);
		empty_into_slabs(depot, class, magazine);
		magazine_destroy(magazine);
	}
	for (int is_large = 0; is_large < 2; is_large++) {
		for (magazine_t *empty; (empty = pop_empty(depot, is_large)) != NULL;) {
			magazine_destroy(empty);
		}
	}
	depot->least_full = depot->full_count;
	if (!all) {
		bool is_shared = depot->moves >= DEPOT_MOVES_IF_SHARED;
		depot->moves = 0;
		atomic_store_explicit(&depot->is_shared, is_shared, memory_order_relaxed);
		purge_slabs(depot, class, false);
	}
	lock_release(&depot->lock);
}

void depot_decay(unsigned class)
{
	flush(class, false);
}

void depot_flush(unsigned class)
{
	flush(class, true);
	/* The slab that put_block() kept. */
	depot_t *depot = &depots[class];
	lock_take(&depot->lock);
	slab_t *slab = depot->first;
	if (slab != NULL && slab->free_blocks == slab_block_count(class)) {
		remove_slab(depot, class, slab);
	}
	lock_release(&depot->lock);
}

void depot_trim(unsigned class)
{
	lock_take(&depots[class].lock);
	purge_slabs(&depots[class], class, true);
	lock_release(&depots[class].lock);
}

void depot_prewarm(unsigned class, size_t blocks)
{
	depot_t *depot = &depots[class];
	lock_take(&depot->lock);
	for (size_t created = 0; created < blocks; created += slab_block_count(class)) {
		slab_t *slab = add_slab(depot, class);
		if (slab == NULL) {
			break;
		}
		os_populate(region_address(slab->number), SLAB_BYTES);
		slab->kept_pages = PAGES_PREWARMED;
	}
	lock_release(&depot->lock);
}

depot_counts_t depot_count(unsigned class)
{
	depot_t *depot = &depots[class];
	lock_take(&depot->lock);
	const published_class_t *shown = published_class(class);
	depot_counts_t counts = {
		.slabs = shown->slabs,
		.free_blocks = shown->slabs * slab_block_count(class) - shown->blocks_out + shown->magazine_blocks,
		.exchanges = shown->refills_hit + shown->refills_missed + shown->returns_kept + shown->returns_emptied,
	};
	lock_release(&depot->lock);
	return counts;
}

void depot_lock(unsigned class)
{
	lock_take(&depots[class].lock);
}

void depot_unlock(unsigned class)
{
	lock_release(&depots[class].lock);
}

void depot_forget_lock(unsigned class)
{
	lock_forget(&depots[class].lock);
}
