/* What our programs see of page faults of one thread, which touches fresh memory to find that out. */

#include "kernel.h"
#include "fault.h"

char LICENSE[] SEC("license") = "Dual MIT/GPL";

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct slip_faults_seen);
} faults_seen SEC(".maps");

SEC("tp_btf/page_fault_user")
int see_fault(__u64 *context)
{
	__u32 zero = 0;
	struct slip_faults_seen *seen = bpf_map_lookup_elem(&faults_seen, &zero);

	if (seen && seen->task == bpf_get_current_task()) {
		seen->begin_ns = bpf_ktime_get_ns();
	}
	return 0;
}

/* Of that one thread alone: that it is the one is known from its first fault on. */
SEC("perf_event")
int see_fault_end(struct bpf_perf_event_data *context)
{
	__u64 now = bpf_ktime_get_ns();
	__u32 zero = 0;
	struct slip_faults_seen *seen = bpf_map_lookup_elem(&faults_seen, &zero);

	if (!seen) {
		return 0;
	}
	seen->task = bpf_get_current_task();
	if (seen->begin_ns) {
		seen->ns += now - seen->begin_ns;
		seen->faults++;
		seen->begin_ns = 0;
	}
	return 0;
}
