#ifndef SLIP_SLOW_H
#define SLIP_SLOW_H

/* How the programs that time calls to servers tell those that walk stacks of a slow one. Both run one after the other at the same moment,
 * in which the answer is read: the thread is still in the same call of PHP or Python. The first ones forget what they told before: what the second
 * ones find is of this moment. */

#include "kernel.h"

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

/* Something is read, which may not end a slow call. */
static __always_inline void forget_slow(void)
{
	__u32 at = 0;
	struct slip_slow_call *slow = bpf_map_lookup_elem(&slow_calls, &at);

	if (slow) {
		slow->end_ns = 0;
	}
}

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
	return is_own ? end : 0;
}

#endif
