#include "decay.h"

#include "depot.h"
#include "heap.h"
#include "options.h"
#include "os/os.h"

static _Atomic uint64_t last_turn_ms;

void decay_turn(void)
{
	if (options.decay_ms < 0) {
		return;
	}
	uint64_t now = os_now_ms(), last = atomic_load_explicit(&last_turn_ms, memory_order_relaxed);
	if (now - last < (uint64_t)options.decay_ms ||
	    !atomic_compare_exchange_strong_explicit(&last_turn_ms, &last, now, memory_order_relaxed, memory_order_relaxed)) {
		return;
	}
	for (unsigned class = 1; class < CLASSES; class++) {
		depot_decay(class);
	}
	heap_decay();
}
