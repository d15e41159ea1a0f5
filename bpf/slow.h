#ifndef SLIP_SLOW_H
#define SLIP_SLOW_H

/* How the programs that time calls to servers tell those that walk stacks of a slow one. Both run one after the other at the same moment,
 * in which the answer is read: the thread is still in the same call of PHP or Python. */

#include "kernel.h"

/* What lies further back is of an earlier moment, in which no stack was walked. */
#define SLOW_NOW_NS 100000

struct slip_slow_call {
	/* CLOCK_MONOTONIC, as `slip_call` has it; 0 if there is none, or its stack was walked. */
	__u64 end_ns;
	__u64 socket;
	/* In the initial pid namespace. */
	__u64 tid;
};

/* Both objects have the one of the first. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct slip_slow_call);
} slow_calls SEC(".maps");

/* The running thread has had a slow call on this socket, which ends now. */
static __always_inline void note_slow(__u64 socket, __u64 now)
{
	__u32 at = 0;
	struct slip_slow_call *slow = bpf_map_lookup_elem(&slow_calls, &at);

	if (slow) {
		slow->tid = (__u32) bpf_get_current_pid_tgid();
		slow->socket = socket;
		slow->end_ns = now;
	}
}

/* When the slow call ended that the running thread has had on this socket right now; 0 if it has had none. */
static __always_inline __u64 take_slow(__u64 socket)
{
	__u32 at = 0;
	struct slip_slow_call *slow = bpf_map_lookup_elem(&slow_calls, &at);

	/* Nearly always. */
	if (!slow || !slow->end_ns) {
		return 0;
	}
	__u64 end = slow->end_ns;
	bool is_own = slow->socket == socket && slow->tid == (__u32) bpf_get_current_pid_tgid();
	slow->end_ns = 0;
	return is_own && bpf_ktime_get_ns() - end < SLOW_NOW_NS ? end : 0;
}

#endif
