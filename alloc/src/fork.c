#include "fork.h"

#include <pthread.h>

#include "arena.h"
#include "cache.h"
#include "debug.h"
#include "depot.h"
#include "heap.h"
#include "lock.h"
#include "published.h"

/* With all locks held no other thread is in the middle of what the child will read. The caches of other threads are not touched
 * in the child: the kernel copies pages one by one while these threads write, so an entry of a magazine and `top` need not fit
 * together there. What such caches hold is lost to the child, at most two magazines per class and thread. */
static void before(void)
{
	debug_lock();
	region_lock();
	for (unsigned class = 1; class < CLASSES; class++) {
		depot_lock(class);
	}
	heap_lock();
	arena_lock();
	lock_all_are_mine = true;
}

static void after_in_parent(void)
{
	lock_all_are_mine = false;
	arena_unlock();
	heap_unlock();
	for (unsigned class = CLASSES - 1; class > 0; class--) {
		depot_unlock(class);
	}
	region_unlock();
	debug_unlock();
}

static void after_in_child(void)
{
	lock_all_are_mine = false;
	arena_forget_lock();
	heap_forget_locks();
	for (unsigned class = 1; class < CLASSES; class++) {
		depot_forget_lock(class);
	}
	region_forget_lock();
	debug_forget_lock();
	published_after_fork(cache_own_count());
}

void fork_register(void)
{
	pthread_atfork(before, after_in_parent, after_in_child);
}
