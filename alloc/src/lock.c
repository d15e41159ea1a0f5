#include "lock.h"

/* About as long as the longest of the usual critical sections, filling a magazine. */
enum { SPINS = 100 };

_Thread_local bool lock_all_are_mine __attribute__((tls_model("initial-exec")));

void lock_wait(lock_t *lock)
{
	for (int spin = 0; spin < SPINS; spin++) {
		int unlocked = 0;
		if (atomic_load_explicit(&lock->state, memory_order_relaxed) == 0 &&
		    atomic_compare_exchange_weak_explicit(&lock->state, &unlocked, 1, memory_order_acquire, memory_order_relaxed)) {
			return;
		}
		__builtin_ia32_pause();
	}
	while (atomic_exchange_explicit(&lock->state, 2, memory_order_acquire) != 0) {
		os_wait(&lock->state, 2);
	}
}
