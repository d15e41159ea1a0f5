#include "decay.h"

#include "arena.h"
#include "depot.h"
#include "heap.h"
#include "options.h"
#include "os/os.h"

static _Atomic uint64_t last_turn_ms;
static _Atomic unsigned turns;

unsigned decay_turn(void)
{
	if (options.decay_ms < 0) {
		return atomic_load_explicit(&turns, memory_order_relaxed);
	}
	uint64_t now = os_now_ms(), last = atomic_load_explicit(&last_turn_ms, memory_order_relaxed);
	if (now - last < (uint64_t)options.decay_ms ||
	    !atomic_compare_exchange_strong_explicit(&last_turn_ms, &last, now, memory_order_relaxed, memory_order_relaxed)) {
		return atomic_load_explicit(&turns, memory_order_relaxed);
	}
	for (unsigned class = 1; class < CLASSES; class++) {
		depot_decay(class);
	}
	heap_decay();
	arena_decay();
	return 1 + atomic_fetch_add_explicit(&turns, 1, memory_order_relaxed);
}
