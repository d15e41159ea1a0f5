#ifndef SLIP_MAPS_H
#define SLIP_MAPS_H

/* What the programs share with the loader, and what one of them has while it runs. */

#include "kernel.h"
#include "sample.h"

/* The pid namespace of the loader, whose numbers it knows processes by; 0 for the initial one, in which every task has a number. */
const volatile __u64 namespace_device = 0, namespace_inode = 0;

/* Whether the kernel's own stacks are copied. */
const volatile __u64 kernel_stacks = 0;

/* Whether stacks of native code are copied. */
const volatile __u64 native_stacks = 0;

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

/* Stacks whose frames have been sent, the kernel's among them. */
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

/* Waits that have ended, in the map whose turn it is. The loader empties the other one, which no program uses any more: what
 * is taken out of a map while a program adds to it is lost. */
struct waits {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__type(key, struct slip_wait_key);
	__type(value, struct slip_wait);
} waits_0 SEC(".maps"), waits_1 SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} turn SEC(".maps");

/* How often the targets have changed, plus one. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} generation SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct slip_thread);
} sleepers SEC(".maps");

/* Addresses in the kernel whose names are asked for; 0 for none. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, SLIP_ADDRESSES);
	__type(key, __u32);
	__type(value, __u64);
} addresses SEC(".maps");

/* General registers without the stack pointer. */
#define REGISTERS 15

/* So far above a call of the interpreter its caller is looked for, if no register says where it is: C code between two calls takes
 * some hundred bytes of the stack, the largest in CPython 2 KB (`list_sort_impl`). */
#define C_STACK_WORDS 512

/* Of what looks like it on the way there, so many are tried: most are registers that were saved. */
#define MAX_CALLERS 8

/* Most that a thread's stack of C is taken to have. */
#define C_STACK_BYTES (1ull << 30)

/* A thread state of CPython 3.11 and 3.12 holds the outermost `_PyCFrame` within so many bytes. */
#define THREAD_STATE_BYTES 1024

/* What CPython 3.11 and 3.12 keep on the stack of C for each call of the interpreter. */
struct cframe {
	__u64 current_frame, previous;
};

/* Frames that lie close together are read at once, those of one page: a read takes 15 ns before its first byte, and frames of 17 calls
 * took half of the time at a switch. */
#define PAGE_BYTES 4096

/* What `follow_frames()` says. */
enum { FOLLOWED = 1, FOLLOWED_TO = 2 };

/* Too large for the stack. The frames have room for one more, so that an index that is out of bounds by the verifier's reckoning
 * is not. */
struct scratch {
	struct slip_sample sample;
	/* The kernel's stack comes behind the ranges. */
	__u8 anchor[SLIP_ANCHOR_BYTES + SLIP_KERNEL_BYTES];
	struct slip_stack stack;
	__u64 addrs[SLIP_MAX_FRAMES];
	__u8 frames[(SLIP_MAX_FRAMES + 1) * SLIP_FRAME_STRIDE];
	struct slip_kernel_stack kernel;
	__u64 kernel_addrs[SLIP_MAX_KERNEL_FRAMES];
	/* The target's, for `follow_frames()`. */
	struct {
		__u32 id, frame_bytes, previous, keys[SLIP_MAX_KEYS];
	} layout;
	/* Of `follow_frames()`: whether it has not come to the frame in question. Here, because the verifier follows what is in
	 * registers. */
	__u64 is_apart;
	/* The state of the thread if that need not be looked up, else 0. */
	__u64 state;
	/* Where the outermost frame may lie; 0 if nobody knows. When frames have been followed, where it does. */
	volatile __u64 outermost;
	/* Of `follow_frames()`: from where in the target on `page` is filled, and how many addresses a frame in it may have. Here, because what is
	 * loaded from here may be anything: the verifier then follows one loop of a stack, where it followed all ways through 128. */
	volatile __u64 page_begin, page_filled;
	/* Of the target: first the begin of a thread state, then part of the stack of frames. The last frame in it may end in the next
	 * page. */
	__u8 page[PAGE_BYTES + 128] __attribute__((aligned(8)));
	/* The `_PyCFrame` that the thread state names, if it led nowhere. */
	__u64 cframe;
	__u64 registers[REGISTERS];
	__u64 c_stack[C_STACK_WORDS];
	/* What may be that of the caller, the nearest first. The second half is not used. */
	struct cframe callers[2 * MAX_CALLERS];
	/* Of programs that may lose their CPU on the way: the thread whose stack is being copied, or 0. */
	__u64 owner;
};

/* One for what runs with interrupts off, and one for a listing, in whose middle that may run. */
enum scratch_use { SCRATCH_OF_EVENT, SCRATCH_OF_LISTING, SCRATCHES };

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, SCRATCHES);
	__type(key, __u32);
	__type(value, struct scratch);
} scratches SEC(".maps");

/* Too large for the stack. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct slip_native);
} natives SEC(".maps");

static __always_inline void count(enum slip_counter which)
{
	__u32 at = which;
	__u64 *counter = bpf_map_lookup_elem(&counters, &at);
	if (counter) {
		*counter += 1;
	}
}

/* The numbers of the running thread and its process; false if the loader has none for them. */
static __always_inline bool own_ids(struct bpf_pidns_info *ids)
{
	if (namespace_inode) {
		return bpf_get_ns_current_pid_tgid(namespace_device, namespace_inode, ids, sizeof *ids) == 0;
	}
	__u64 both = bpf_get_current_pid_tgid();
	ids->pid = both;
	ids->tgid = both >> 32;
	return true;
}

#endif
