#ifndef SLIP_ALLOCATION_H
#define SLIP_ALLOCATION_H

/* Blocks that libslipmalloc.so tells of, by two functions that do nothing else (`alloc/src/sample.h`). */

#include "maps.h"

/* If so much waits in the ring, the loader is woken: a program may take blocks as fast as it can. */
#define ALLOCATIONS_ENOUGH (2 << 20)

/* Fills in whose block it is; NULL if nobody asks for that process. */
static __always_inline const struct slip_target *begin_allocation(struct slip_allocation *allocation)
{
	struct bpf_pidns_info ids;

	if (!own_ids(&ids)) {
		return NULL;
	}
	const struct slip_target *target = bpf_map_lookup_elem(&targets, &ids.tgid);
	if (target) {
		allocation->id = target->id;
		allocation->time_ns = bpf_ktime_get_ns();
		allocation->tid = ids.pid;
	}
	return target;
}

static __always_inline void send_allocation(struct slip_allocation *allocation)
{
	__u64 flags = bpf_ringbuf_query(&events, BPF_RB_AVAIL_DATA) > ALLOCATIONS_ENOUGH ? BPF_RB_FORCE_WAKEUP : BPF_RB_NO_WAKEUP;

	if (bpf_ringbuf_output(&events, allocation, sizeof *allocation, flags)) {
		count(SLIP_COUNT_LOST);
	}
}

/* A program at a function of a target may lose its CPU in the middle, since Linux 6.0, and another thread on that CPU come to the same
 * function. Who finds the scratch taken does without a stack. Between the look and the word that it is taken lie some instructions: who has
 * lost it there sees so in the end. */
static __always_inline bool take_scratch(struct scratch *scratch, __u32 tid)
{
	volatile __u64 *owner = &scratch->owner;

	if (*owner) {
		return false;
	}
	*owner = tid;
	return true;
}

static __always_inline bool is_scratch_of(const struct scratch *scratch, __u32 tid)
{
	return *(const volatile __u64 *) &scratch->owner == tid;
}

#endif
