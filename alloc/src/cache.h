/* What one thread has at hand: of each class a magazine in use and a spare one, which is full or empty. With two, a program that
 * takes and frees by turns at the edge of a magazine does not go to the depot each time. The spare one may also have the blocks
 * that were set aside when the thread began with the class. */
#ifndef SLIPMALLOC_CACHE_H
#define SLIPMALLOC_CACHE_H

#include "class.h"
#include "magazine.h"

typedef struct {
	/* Of the magazine in use: where the next block goes. The block below comes next. */
	void **top[CLASSES];
	magazine_t *spare[CLASSES];
	/* Of these classes a magazine came to its end since the last turn of decay that the thread met: a bit each. */
	uint64_t recent;
	/* Of these classes the magazine in use is a large one. */
	uint64_t large;
	/* Blocks that an empty magazine is set to hold. */
	uint16_t capacity[CLASSES];
	/* Ends of a magazine, and the last turn of decay, as far as so many bits tell. */
	uint8_t turns;
	uint8_t decay_turn;
} cache_t;

/* Never NULL: threads without a cache have one of magazines that are empty and full, so that the fast paths need no test of
 * their own. The same holds for class 0, which stands for all that is no block of a slab. */
extern _Thread_local cache_t *cache_current __attribute__((tls_model("initial-exec")));

/* When the fast path cannot: a block for so many bytes, NULL if there is no memory. */
void *cache_take(unsigned class, size_t bytes);
void cache_put(unsigned class, void *block);

/* Empties the cache of the calling thread. */
void cache_flush(void);

/* 1 if the calling thread has a cache, else 0. */
unsigned cache_own_count(void);

#endif
