/* A lock of one word: 0 free, 1 taken, 2 taken and somebody may sleep.
 *
 * Order, outermost first: that of the debug build, region, depots by class, the heap's two, arena. fork() takes them all in this
 * order. */
#ifndef SLIPMALLOC_LOCK_H
#define SLIPMALLOC_LOCK_H

#include "os/os.h"

typedef struct {
	atomic_int state;
} lock_t;

/* True in a thread between the two ends of its fork(): it has all locks already, and what other libraries do in their own
 * handlers of fork() may allocate. And in one that aborts, for handlers of SIGABRT. */
extern _Thread_local bool lock_all_are_mine __attribute__((tls_model("initial-exec")));

void lock_wait(lock_t *lock);

static inline void lock_take(lock_t *lock)
{
	int unlocked = 0;
	if (lock_all_are_mine) {
		return;
	}
	if (!atomic_compare_exchange_strong_explicit(&lock->state, &unlocked, 1, memory_order_acquire, memory_order_relaxed)) {
		lock_wait(lock);
	}
}

static inline void lock_release(lock_t *lock)
{
	if (lock_all_are_mine) {
		return;
	}
	if (atomic_exchange_explicit(&lock->state, 0, memory_order_release) == 2) {
		os_wake_one(&lock->state);
	}
}

/* In the child of fork(), where those who slept do not exist. */
static inline void lock_forget(lock_t *lock)
{
	atomic_store_explicit(&lock->state, 0, memory_order_relaxed);
}

#endif
