#include "cache.h"

#include <pthread.h>

#include "arena.h"
#include "decay.h"
#include "depot.h"
#include "heap.h"
#include "published.h"
#include "sample.h"

enum {
	/* Threads that allocate a little get small magazines. */
	FIRST_BLOCKS = 8,
	/* Of blocks in a magazine that is as large as it gets, and in a large one. */
	MOST_BYTES = 64 * 1024,
	MOST_BYTES_OF_LARGE = 32 * 1024,
	/* Of blocks in a magazine while much memory waits to be given back: with few, a thread comes by more often, and so to look at the clock. */
	MOST_BLOCKS_OF_SHRUNK = 16,
	/* Ends of a magazine that are met from one look at the clock to the next. */
	TURNS_PER_LOOK = 16,
	/* Of the CPU's cache. */
	LINE_BYTES = 64,
	/* Of the arena, that a cache takes. */
	PIECES = 2,
};

_Static_assert(sizeof(cache_t) <= PIECES * ARENA_PIECE_BYTES, "a cache is so many pieces of the arena");
_Static_assert(CLASSES <= 64, "a bit for each");

#define NOTHING ((void **)&magazine_none.entries[MAGAZINE_ENTRIES])

static const cache_t cache_none = {.top = {[0 ... CLASSES - 1] = NOTHING}};

/* Nobody writes to cache_none: all its magazines are empty and full. */
_Thread_local cache_t *cache_current __attribute__((tls_model("initial-exec"))) = (cache_t *)&cache_none;

/* After its end a thread may still free, in destructors of others. It gets no second cache, which nobody would give back. */
static _Thread_local bool has_ended __attribute__((tls_model("initial-exec")));

static pthread_once_t key_once = PTHREAD_ONCE_INIT;
static pthread_key_t key;
static bool has_key;

static unsigned most_blocks(unsigned class)
{
	unsigned blocks = MOST_BYTES / class_bytes[class], of_large = MOST_BYTES_OF_LARGE / class_bytes[class];
	if (of_large > MAGAZINE_MOST_BLOCKS && depot_is_shared(class)) {
		return of_large < MAGAZINE_LARGE_MOST_BLOCKS ? of_large : MAGAZINE_LARGE_MOST_BLOCKS;
	}
	return blocks < MAGAZINE_MOST_BLOCKS ? blocks : MAGAZINE_MOST_BLOCKS;
}

/* Of the magazine in use. */
static uintptr_t bytes_in_use(const cache_t *cache, unsigned class)
{
	return cache->large >> class & 1 ? MAGAZINE_LARGE_BYTES : MAGAZINE_BYTES;
}

static bool is_full(const cache_t *cache, unsigned class)
{
	return (uintptr_t)cache->top[class] % bytes_in_use(cache, class) == 0;
}

/* The magazine in use. NULL if there is none. */
static magazine_t *in_use(const cache_t *cache, unsigned class)
{
	magazine_t *magazine = (magazine_t *)((uintptr_t)(cache->top[class] - 1) & ~(bytes_in_use(cache, class) - 1));
	return magazine == &magazine_none ? NULL : magazine;
}

static void use(cache_t *cache, unsigned class, magazine_t *magazine)
{
	uint64_t bit = 1ull << class;
	cache->large = magazine_is_large(magazine) ? cache->large | bit : cache->large & ~bit;
	cache->top[class] = magazine_load(magazine);
}

static void clear(cache_t *cache)
{
	cache->large = 0;
	for (unsigned class = 0; class < CLASSES; class++) {
		cache->top[class] = NOTHING;
		cache->spare[class] = NULL;
	}
}

static void give_back(cache_t *cache)
{
	for (unsigned class = 1; class < CLASSES; class++) {
		magazine_t *loaded = in_use(cache, class);
		magazine_t *spare = cache->spare[class];
		if (loaded != NULL) {
			magazine_unload(loaded, cache->top[class]);
			depot_give_back(class, loaded);
		}
		if (spare != NULL) {
			depot_give_back(class, spare);
		}
	}
	clear(cache);
}

static void end(void *ended)
{
	cache_t *cache = ended;
	has_ended = true;
	cache_current = (cache_t *)&cache_none;
	give_back(cache);
	arena_give(cache, PIECES);
	published_add(&published()->caches, -1ull);
}

static void create_key(void)
{
	has_key = pthread_key_create(&key, end) == 0;
}

/* Gives the calling thread a cache. NULL if it must do without. */
static cache_t *begin(void)
{
	if (has_ended || !region_is_ready()) {
		return NULL;
	}
	pthread_once(&key_once, create_key);
	cache_t *cache = has_key ? arena_take(PIECES) : NULL;
	if (cache == NULL) {
		return NULL;
	}
	clear(cache);
	for (unsigned class = 1; class < CLASSES; class++) {
		unsigned most = most_blocks(class);
		cache->capacity[class] = (uint16_t)(most < FIRST_BLOCKS ? most : FIRST_BLOCKS);
	}
	cache->turns = 0;
	cache->decay_turn = 0;
	/* The first turn finds nothing unused. */
	cache->recent = UINT64_MAX;
	/* Before the next call, which may allocate. */
	cache_current = cache;
	published_add(&published()->caches, 1);
	if (pthread_setspecific(key, cache) != 0) {
		end(cache);
		return NULL;
	}
	return cache;
}

static inline cache_t *current(void)
{
	return cache_current == &cache_none ? begin() : cache_current;
}

/* Before each exchange with a depot. */
static void grow(cache_t *cache, unsigned class)
{
	unsigned most = most_blocks(class), doubled = cache->capacity[class] * 2u;
	if (most > MOST_BLOCKS_OF_SHRUNK && heap_has_shrunk()) {
		most = MOST_BLOCKS_OF_SHRUNK;
	}
	cache->capacity[class] = (uint16_t)(doubled < most ? doubled : most);
}

/* Chance says which of the blocks that come next is a sample, if one is. Blocks that are freed meanwhile and taken again come before. */
static void mark_next(cache_t *cache, unsigned class)
{
	void **top = cache->top[class];
	magazine_t *loaded = in_use(cache, class);
	if (loaded == NULL || !sample_is_on()) {
		return;
	}
	size_t before = sample_distance() / class_bytes[class];
	if (before < magazine_blocks_below(loaded, top)) {
		magazine_mark(loaded, top, (unsigned)before);
	}
}

/* No magazine of the class came to its end for a turn of decay. The spare one goes, and of that in use the lower half: if the other half is not enough,
 * it comes to its end, and the next one holds twice as many. */
static void shrink(cache_t *cache, unsigned class)
{
	unsigned most = most_blocks(class), least = most / 8;
	least = least > FIRST_BLOCKS ? FIRST_BLOCKS : least > 0 ? least : 1;
	magazine_t *loaded = in_use(cache, class), *spare = cache->spare[class];
	if (spare != NULL) {
		cache->spare[class] = NULL;
		depot_give_back(class, spare);
	}
	unsigned blocks = loaded != NULL ? magazine_blocks_below(loaded, cache->top[class]) : 0;
	if (blocks > least) {
		unsigned rest = blocks / 2 > least ? blocks / 2 : least;
		magazine_unmark(loaded);
		for (unsigned at = 0; at < blocks - rest; at++) {
			depot_put_block(class, magazine_bottom(loaded)[at]);
		}
		magazine_cut(loaded, blocks - rest);
		mark_next(cache, class);
	}
	unsigned half = cache->capacity[class] / 2u;
	cache->capacity[class] = (uint16_t)(half > least ? half : least);
}

/* At each end of a magazine, also if the thread goes on with its spare one: what it takes and gives by turns may never need the depot, and
 * the clock must be looked at all the same. Magazines of this class stay as they are. */
static void count_turn(cache_t *cache, unsigned class)
{
	cache->recent |= 1ull << class;
	if (cache->turns++ % TURNS_PER_LOOK != 0) {
		return;
	}
	uint8_t turn = (uint8_t)decay_turn();
	if (turn == cache->decay_turn) {
		return;
	}
	for (unsigned other = 1; other < CLASSES; other++) {
		if ((cache->recent >> other & 1) == 0) {
			shrink(cache, other);
		}
	}
	cache->decay_turn = turn;
	cache->recent = 1ull << class;
}

/* Has the class a magazine with blocks in use. False if there is no memory. */
static bool refill(cache_t *cache, unsigned class)
{
	magazine_t *loaded = in_use(cache, class);
	magazine_t *spare = cache->spare[class];
	count_turn(cache, class);
	/* What was set aside comes after own blocks. */
	if (loaded != NULL && spare != NULL && magazine_blocks(spare) > 0) {
		magazine_unload(loaded, cache->top[class]);
		cache->spare[class] = loaded;
		use(cache, class, spare);
		mark_next(cache, class);
		return true;
	}
	grow(cache, class);
	magazine_t *full = depot_take_full(class, loaded, cache->capacity[class]);
	if (full == NULL) {
		if (loaded != NULL) {
			/* As empty as before, but set to hold more. */
			magazine_reset(loaded, cache->capacity[class]);
			use(cache, class, loaded);
		}
		return false;
	}
	use(cache, class, full);
	mark_next(cache, class);
	return true;
}

/* Has the class a magazine with room in use. False if there is no memory for one. */
static bool make_room(cache_t *cache, unsigned class)
{
	magazine_t *loaded = in_use(cache, class);
	magazine_t *spare = cache->spare[class];
	count_turn(cache, class);
	if (spare == NULL || magazine_blocks(spare) > 0) {
		grow(cache, class);
		spare = depot_take_empty(class, spare, cache->capacity[class]);
		if (spare == NULL) {
			return false;
		}
	}
	if (loaded != NULL) {
		magazine_unload(loaded, cache->top[class]);
	}
	cache->spare[class] = loaded;
	magazine_reset(spare, cache->capacity[class]);
	use(cache, class, spare);
	return true;
}

/* What a thread gives before it has taken any block of the class is from others, which may go on to write to the same line of the
 * CPU's cache. If it got that back at once, and gave and took it over and over, each write would wait for theirs. So until it takes
 * its first block, the spare magazine has what it gives. False if that is not so, or if that is full: then the thread only gives, and
 * need not be slow at it. */
static bool set_aside(cache_t *cache, unsigned class, void *block)
{
	magazine_t *spare = cache->spare[class];
	if (class_bytes[class] >= LINE_BYTES || in_use(cache, class) != NULL) {
		return false;
	}
	if (spare == NULL) {
		count_turn(cache, class);
		grow(cache, class);
		spare = depot_take_empty(class, NULL, cache->capacity[class]);
		if (spare == NULL) {
			return false;
		}
		magazine_reset(spare, cache->capacity[class]);
		cache->spare[class] = spare;
	}
	if (magazine_blocks(spare) == spare->capacity) {
		return false;
	}
	spare->entries[spare->top++] = block;
	return true;
}

/* The magazine in use seems empty, and the block that comes next is hidden by the mark: a sample, which has a place of its own. */
static void *take_sample(cache_t *cache, unsigned class, size_t bytes)
{
	void *block = sample_take(class, bytes);
	if (block == NULL) {
		block = *--cache->top[class];
	}
	mark_next(cache, class);
	return block;
}

void *cache_take(unsigned class, size_t bytes)
{
	cache_t *cache = current();
	if (cache == NULL) {
		published_add(&published()->direct_blocks, 1);
		return depot_take_block(class);
	}
	magazine_t *loaded = in_use(cache, class);
	bool is_sample = loaded != NULL && magazine_is_empty(cache->top[class]) && magazine_unmark(loaded);
	if (!is_sample && magazine_is_empty(cache->top[class])) {
		if (!refill(cache, class)) {
			return NULL;
		}
		/* It may be the first one already. */
		is_sample = magazine_is_empty(cache->top[class]) && magazine_unmark(in_use(cache, class));
	}
	return is_sample ? take_sample(cache, class, bytes) : *--cache->top[class];
}

void cache_put(unsigned class, void *block)
{
	cache_t *cache = current();
	if (cache != NULL && set_aside(cache, class, block)) {
		return;
	}
	if (cache == NULL || (is_full(cache, class) && !make_room(cache, class))) {
		published_add(&published()->direct_blocks, 1);
		depot_put_block(class, block);
		return;
	}
	*cache->top[class]++ = block;
}

void cache_flush(void)
{
	if (cache_current != &cache_none) {
		give_back(cache_current);
	}
}

unsigned cache_own_count(void)
{
	return cache_current != &cache_none;
}
