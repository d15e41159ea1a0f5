/* Walks the stacks of PHP and CPython in the target's own context, where they stand still. */

#include "kernel.h"
#include "sample.h"

char LICENSE[] SEC("license") = "Dual MIT/GPL";

/* The pid namespace of the loader, whose numbers it knows processes by. */
const volatile __u64 namespace_device = 0, namespace_inode = 0;

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4096);
	__type(key, __u32);
	__type(value, struct slip_target);
} targets SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 8 << 20);
} events SEC(".maps");

/* Stacks whose frames have been sent. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 65536);
	__type(key, __u64);
	__type(value, __u8);
} known SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, SLIP_COUNTERS);
	__type(key, __u32);
	__type(value, __u64);
} counters SEC(".maps");

/* Too large for the stack. The frames have room for one more, so that an index that is out of bounds by the verifier's reckoning
 * is not. */
struct scratch {
	struct slip_sample sample;
	__u8 anchor[SLIP_ANCHOR_BYTES];
	struct slip_stack stack;
	__u64 addrs[SLIP_MAX_FRAMES];
	__u8 frames[(SLIP_MAX_FRAMES + 1) * SLIP_FRAME_STRIDE];
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct scratch);
} scratches SEC(".maps");

static __always_inline void count(enum slip_counter which)
{
	__u32 at = which;
	__u64 *counter = bpf_map_lookup_elem(&counters, &at);
	if (counter) {
		*counter += 1;
	}
}

static __always_inline bool read_word(__u64 addr, __u64 *word)
{
	return bpf_probe_read_user(word, sizeof *word, (const void *) addr) == 0;
}

static __always_inline __u64 mix(__u64 hash, __u64 word)
{
	hash = (hash ^ word) * 0x9e3779b97f4a7c15ull;
	return hash ^ hash >> 29;
}

/* The state of the running thread, which names the thread; 0 if it has none. */
static __always_inline __u64 thread_state(const struct slip_target *target)
{
	struct task_struct *task = (struct task_struct *) bpf_get_current_task();
	__u64 base = BPF_CORE_READ(task, thread.fsbase);

	for (int i = 0; i < SLIP_MAX_SLOTS; i++) {
		__u64 state = 0, owner = 0;
		if (target->slots[i] && read_word(base + target->slots[i], &state) && state
				&& read_word(state + target->thread_id, &owner) && owner == base) {
			return state;
		}
	}
	return 0;
}

/* Copies the ranges. */
static __always_inline bool copy_anchor(struct scratch *scratch, const struct slip_target *target, __u64 state)
{
	__u32 at = 0;

	for (int i = 0; i < SLIP_MAX_RANGES; i++) {
		const struct slip_range *range = &target->ranges[i];
		__u32 bytes = range->bytes;
		if (i >= target->range_count) {
			break;
		}
		if (at > SLIP_ANCHOR_BYTES - SLIP_RANGE_BYTES || bytes > SLIP_RANGE_BYTES) {
			return false;
		}
		__u64 addr = range->addr + (range->of_thread ? state : 0);
		if (bpf_probe_read_user(&scratch->anchor[at], bytes, (const void *) addr)) {
			return false;
		}
		at += bytes;
	}
	scratch->sample.anchor_bytes = at;
	return true;
}

/* Copies the frames from the innermost one outwards, and makes the key of the stack. */
static __always_inline bool copy_frames(struct scratch *scratch, const struct slip_target *target, __u64 frame)
{
	__u64 key = mix(target->id, scratch->sample.instruction);
	__u32 bytes = target->frame_bytes, depth = 0;

	if (bytes > SLIP_FRAME_STRIDE || bytes < 16) {
		return false;
	}
	for (__u32 i = 0; i < SLIP_MAX_FRAMES; i++) {
		__u8 *record = &scratch->frames[i * SLIP_FRAME_STRIDE];
		if (!frame) {
			break;
		}
		if (bpf_probe_read_user(record, bytes, (const void *) frame)) {
			return false;
		}
		scratch->addrs[i] = frame;
		for (int j = 0; j < SLIP_MAX_KEYS; j++) {
			/* Below the room of one frame. */
			key = mix(key, *(__u64 *) (record + (target->keys[j] & 0x78)));
		}
		frame = *(__u64 *) (record + (target->previous & 0x78));
		depth = i + 1;
	}
	if (frame) {
		scratch->sample.flags |= SLIP_SAMPLE_TRUNCATED;
	}
	scratch->sample.depth = depth;
	scratch->sample.stack = depth ? key | 1 : 0;
	return true;
}

/* Sends the frames if nobody knows them yet. */
static __always_inline void send_stack(struct scratch *scratch, const struct slip_target *target)
{
	__u64 key = scratch->sample.stack, depth = scratch->sample.depth;
	__u8 yes = 1;

	if (!key || bpf_map_lookup_elem(&known, &key)) {
		return;
	}
	/* So that the bound is checked on the register that is used below. */
	barrier_var(depth);
	if (depth > SLIP_MAX_FRAMES) {
		return;
	}
	scratch->stack.kind = SLIP_EVENT_STACK;
	scratch->stack.id = target->id;
	scratch->stack.key = key;
	scratch->stack.depth = depth;
	scratch->stack.frame_bytes = target->frame_bytes;
	__u64 bytes = sizeof scratch->stack + sizeof scratch->addrs + depth * SLIP_FRAME_STRIDE;
	/* Its names are to be read before the functions can be freed. */
	if (bpf_ringbuf_output(&events, &scratch->stack, bytes, BPF_RB_FORCE_WAKEUP)) {
		count(SLIP_COUNT_LOST);
	} else if (bpf_map_update_elem(&known, &key, &yes, BPF_ANY)) {
		count(SLIP_COUNT_FORGOTTEN);
	}
}

static __always_inline bool walk(struct scratch *scratch, const struct slip_target *target, __u64 r14, __u64 r15)
{
	__u64 current = target->current, frame = 0;

	if (target->has_threads) {
		__u64 state = thread_state(target);
		if (!state) {
			scratch->sample.flags |= SLIP_SAMPLE_NO_STATE;
			return true;
		}
		scratch->sample.thread_state = state;
		current += state;
	}
	if (!copy_anchor(scratch, target, scratch->sample.thread_state) || !read_word(current, &frame)) {
		return false;
	}
	if (frame && target->is_indirect && !read_word(frame + target->indirect, &frame)) {
		return false;
	}
	if (frame && target->in_registers && r14 == frame) {
		scratch->sample.instruction = r15;
		scratch->sample.flags |= SLIP_SAMPLE_HAS_INSTRUCTION;
	}
	return copy_frames(scratch, target, frame);
}

SEC("perf_event")
int on_clock(struct bpf_perf_event_data *context)
{
	struct bpf_pidns_info ids;
	__u32 at = 0;

	if (bpf_get_ns_current_pid_tgid(namespace_device, namespace_inode, &ids, sizeof ids)) {
		return 0;
	}
	const struct slip_target *target = bpf_map_lookup_elem(&targets, &ids.tgid);
	if (!target) {
		return 0;
	}
	struct scratch *scratch = bpf_map_lookup_elem(&scratches, &at);
	if (!scratch) {
		return 0;
	}
	count(SLIP_COUNT_EVENTS);
	bool in_kernel = (context->regs.cs & 3) != 3;
	scratch->sample = (struct slip_sample) {
		.kind = SLIP_EVENT_SAMPLE,
		.id = target->id,
		.time_ns = bpf_ktime_get_ns(),
		.tid = ids.pid,
		.flags = in_kernel ? SLIP_SAMPLE_IN_KERNEL : 0,
	};
	if (walk(scratch, target, in_kernel ? 0 : context->regs.r14, context->regs.r15)) {
		send_stack(scratch, target);
	} else {
		scratch->sample.flags |= SLIP_SAMPLE_FAILED;
		scratch->sample.stack = 0;
		scratch->sample.depth = 0;
	}
	__u64 bytes = scratch->sample.anchor_bytes;
	barrier_var(bytes);
	if (bytes > SLIP_ANCHOR_BYTES) {
		return 0;
	}
	if (bpf_ringbuf_output(&events, &scratch->sample, sizeof scratch->sample + bytes, BPF_RB_NO_WAKEUP)) {
		count(SLIP_COUNT_LOST);
	}
	return 0;
}

/* The same timer without a walk: what the machine itself takes for an event, for measurements. */
SEC("perf_event")
int on_clock_empty(struct bpf_perf_event_data *context)
{
	return 0;
}
