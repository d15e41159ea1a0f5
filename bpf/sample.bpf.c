/* Walks the stacks of PHP and CPython in the target's own context, where they stand still: when the clock of a CPU goes off,
 * and when a thread leaves its CPU. The kernel's own stack comes beside them where a thread is in the kernel. */

#include "kernel.h"
#include "sample.h"

char LICENSE[] SEC("license") = "Dual MIT/GPL";

/* The pid namespace of the loader, whose numbers it knows processes by; 0 for the initial one, in which every task has a number. */
const volatile __u64 namespace_device = 0, namespace_inode = 0;

/* Whether the kernel's own stacks are copied. */
const volatile __u64 kernel_stacks = 0;

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

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct slip_sleeper);
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
	/* Part of its stack of frames. The last frame in it may end in the next page. */
	__u8 page[PAGE_BYTES + 128] __attribute__((aligned(8)));
	/* The `_PyCFrame` that the thread state names, if it led nowhere. */
	__u64 cframe;
	__u64 registers[REGISTERS];
	__u64 c_stack[C_STACK_WORDS];
	/* What may be that of the caller, the nearest first. The second half is not used. */
	struct cframe callers[2 * MAX_CALLERS];
};

/* One for what runs with interrupts off, and one for a listing, in whose middle that may run. */
enum scratch_use { SCRATCH_OF_EVENT, SCRATCH_OF_LISTING, SCRATCHES };

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, SCRATCHES);
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

static __always_inline bool read_word(__u64 addr, __u64 *word)
{
	return bpf_probe_read_user(word, sizeof *word, (const void *) addr) == 0;
}

static __always_inline __u64 mix(__u64 hash, __u64 word)
{
	hash = (hash ^ word) * 0x9e3779b97f4a7c15ull;
	return hash ^ hash >> 29;
}

/* The state of the thread whose thread-local storage begins at `base`, which names the thread; 0 if it has none. */
static __always_inline __u64 thread_state(const struct slip_target *target, __u64 base)
{
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

/* Follows the frames from the innermost one outwards, and makes the key of the stack. Not static: the verifier looks at it once, not
 * with each call, of which there are too many. */
__noinline int follow_frames(__u64 frame)
{
	__u32 at = SCRATCH_OF_EVENT, depth = 0;
	struct scratch *scratch = bpf_map_lookup_elem(&scratches, &at);
	/* What of `page` is filled, from where in the target on. */
	__u64 begin = 0, filled = 0, last = 0;

	if (!scratch) {
		return 0;
	}
	__u32 bytes = scratch->layout.frame_bytes;
	/* One after the other: workers run the same code at the same addresses, and what lies in the register may be any number. */
	__u64 key = mix(mix(0, scratch->layout.id), scratch->sample.instruction);
	for (__u32 i = 0; i < SLIP_MAX_FRAMES; i++) {
		if (!frame) {
			break;
		}
		if (frame - begin >= filled) {
			/* A caller that lies not far below may be followed by more of them; other frames lie alone. */
			begin = last - frame < PAGE_BYTES ? frame & -PAGE_BYTES : frame;
			filled = frame - begin + 1;
			__u64 length = filled - 1 + bytes;
			barrier_var(length);
			if (length > sizeof scratch->page || bpf_probe_read_user(scratch->page, length, (const void *) begin)) {
				return 0;
			}
		}
		const __u8 *record = &scratch->page[(frame - begin) & (PAGE_BYTES - 1)];
		scratch->addrs[i] = frame;
		for (int j = 0; j < SLIP_MAX_KEYS; j++) {
			/* Below the room of one frame. */
			key = mix(key, *(const __u64 *) (record + (scratch->layout.keys[j] & 0x78)));
		}
		last = frame;
		frame = *(const __u64 *) (record + (scratch->layout.previous & 0x78));
		depth = i + 1;
	}
	if (frame) {
		scratch->sample.flags |= SLIP_SAMPLE_TRUNCATED;
	}
	scratch->sample.depth = depth;
	scratch->sample.stack = depth ? key | 1 : 0;
	return 1;
}

/* 1 if it is not 0. Without a branch: the verifier follows 8,192 of them. */
static __always_inline __u64 is_not_zero(__u64 word)
{
	__u64 negated = -word;

	/* Else the compiler sees through it. */
	barrier_var(negated);
	return (word | negated) >> 63;
}

/* Whether that can be the one at `addr`: they are chained up the stack of C, and the last one lies in the thread state. */
static __always_inline __u64 may_be_cframe(const struct cframe *cframe, __u64 addr, __u64 state)
{
	__u64 is_elsewhere = is_not_zero((cframe->previous - addr) / C_STACK_BYTES)
			& is_not_zero((cframe->previous - state) / THREAD_STATE_BYTES);

	return is_not_zero(cframe->current_frame) & is_not_zero(cframe->current_frame ^ state) & ~is_elsewhere;
}

/* Finds what may be the call of the interpreter next above `scratch->cframe`: a register points to it, or to its frame. */
static __noinline __u32 find_callers(struct scratch *scratch, const struct slip_target *target)
{
	__u64 state = scratch->sample.thread_state, from = scratch->cframe + sizeof(struct cframe);
	__u32 found = 0;

	/* Less where the stack ends before. What is not read is 0. */
	const void *above = (const void *) (from + target->indirect);
	if (bpf_probe_read_user(scratch->c_stack, sizeof scratch->c_stack, above)
			&& bpf_probe_read_user(scratch->c_stack, sizeof scratch->c_stack / 4, above)) {
		return 0;
	}
	for (int i = 0; i < C_STACK_WORDS - 1; i++) {
		struct cframe one = {scratch->c_stack[i], scratch->c_stack[i + 1]};
		__u64 differs = 1;
		for (int j = 0; j < REGISTERS; j++) {
			__u64 word = scratch->registers[j];
			differs &= is_not_zero(word ^ one.current_frame) & is_not_zero(word ^ (from + 8 * i));
		}
		scratch->callers[found & (2 * MAX_CALLERS - 1)] = one;
		found += may_be_cframe(&one, from + 8 * i, state) & ~differs & ~(found / MAX_CALLERS);
	}
	return found;
}

/* Copies the frames of a call of the interpreter. False unless they lead to those of the call before it, or it is the first one. */
static __noinline bool copy_call(struct scratch *scratch, const struct slip_target *target, const struct cframe *cframe)
{
	struct cframe outer = {};
	__u64 is_apart = 1;

	if (bpf_probe_read_user(&outer, sizeof outer, (const void *) (cframe->previous + target->indirect))) {
		return false;
	}
	/* The one in the thread state has neither. */
	bool is_first = !outer.current_frame && !outer.previous
			&& cframe->previous - scratch->sample.thread_state < THREAD_STATE_BYTES;
	if ((!outer.current_frame && !is_first) || !follow_frames(cframe->current_frame)) {
		return false;
	}
	for (__u32 i = 0; i < SLIP_MAX_FRAMES; i++) {
		if (i >= scratch->sample.depth) {
			break;
		}
		is_apart &= is_not_zero(scratch->addrs[i] ^ outer.current_frame);
	}
	return !is_apart || (scratch->sample.depth && is_first) || scratch->sample.flags & SLIP_SAMPLE_TRUNCATED;
}

/* Copies the frames of a thread of CPython 3.11 and 3.12, whose state names the call of the interpreter that it is in. */
static __always_inline bool copy_calls(struct scratch *scratch, const struct slip_target *target, __u64 cframe)
{
	struct cframe innermost = {};

	if (bpf_probe_read_user(&innermost, sizeof innermost, (const void *) (cframe + target->indirect))) {
		return false;
	}
	if (!innermost.current_frame && cframe - scratch->sample.thread_state < THREAD_STATE_BYTES) {
		/* No call is under way. */
		return true;
	}
	scratch->cframe = cframe;
	return copy_call(scratch, target, &innermost);
}

/* The same where that has failed, with the registers copied.
 *
 * The state names a call some instructions before it is known there which frame runs and which call was before it
 * (`_PyEval_EvalFrameDefault` in `Python/ceval.c`), and what an earlier call has left in their place may lead anywhere. The thread is
 * still in its caller then, and the registers hold what is about to be stored: the caller's call or its frame. */
static __noinline bool copy_caller(struct scratch *scratch, const struct slip_target *target)
{
	__u32 found = find_callers(scratch, target);

	for (__u32 i = 0; i < MAX_CALLERS; i++) {
		if (i >= found) {
			break;
		}
		scratch->sample.flags &= ~SLIP_SAMPLE_TRUNCATED;
		if (copy_call(scratch, target, &scratch->callers[i])) {
			return true;
		}
	}
	return false;
}

/* The same with these registers of the thread's. */
static __always_inline bool copy_caller_by(struct scratch *scratch, const struct slip_target *target, const struct pt_regs *regs)
{
	__u64 *to = scratch->registers;

	to[0] = regs->rax, to[1] = regs->rbx, to[2] = regs->rcx, to[3] = regs->rdx, to[4] = regs->rsi;
	to[5] = regs->rdi, to[6] = regs->rbp, to[7] = regs->r8, to[8] = regs->r9, to[9] = regs->r10;
	to[10] = regs->r11, to[11] = regs->r12, to[12] = regs->r13, to[13] = regs->r14, to[14] = regs->r15;
	return copy_caller(scratch, target);
}

/* Copies the frames that were followed. The thread has done nothing meanwhile. */
static __always_inline bool copy_frames(struct scratch *scratch)
{
	__u64 bytes = scratch->layout.frame_bytes;

	for (__u32 i = 0; i < SLIP_MAX_FRAMES; i++) {
		if (i >= scratch->sample.depth) {
			break;
		}
		/* In the loop: if the compiler keeps it on the stack, the verifier of Linux 6.1 does not know the bounds any more. */
		barrier_var(bytes);
		if (bytes > SLIP_FRAME_STRIDE
				|| bpf_probe_read_user(&scratch->frames[i * SLIP_FRAME_STRIDE], bytes, (const void *) scratch->addrs[i])) {
			return false;
		}
	}
	return true;
}

/* Sends the frames if nobody knows them yet. False if they cannot be read. */
static __always_inline bool send_stack(struct scratch *scratch, const struct slip_target *target)
{
	__u64 key = scratch->sample.stack, depth = scratch->sample.depth;
	__u8 yes = 1;

	if (!key || bpf_map_lookup_elem(&known, &key)) {
		return true;
	}
	if (!copy_frames(scratch)) {
		return false;
	}
	scratch->stack.kind = SLIP_EVENT_STACK;
	scratch->stack.id = target->id;
	scratch->stack.key = key;
	scratch->stack.depth = depth;
	scratch->stack.frame_bytes = target->frame_bytes;
	/* So that the bound is checked on the register that is used below. */
	barrier_var(depth);
	if (depth > SLIP_MAX_FRAMES) {
		return false;
	}
	__u64 bytes = sizeof scratch->stack + sizeof scratch->addrs + depth * SLIP_FRAME_STRIDE;
	/* Its names are to be read before the functions can be freed. */
	if (bpf_ringbuf_output(&events, &scratch->stack, bytes, BPF_RB_FORCE_WAKEUP)) {
		count(SLIP_COUNT_LOST);
	} else if (bpf_map_update_elem(&known, &key, &yes, BPF_ANY)) {
		count(SLIP_COUNT_FORGOTTEN);
	}
	return true;
}

/* Copies the kernel's own stack behind the ranges. */
static __always_inline void copy_kernel_stack(struct scratch *scratch, struct bpf_perf_event_data *context)
{
	__u64 at = scratch->sample.anchor_bytes;

	barrier_var(at);
	if (at > SLIP_ANCHOR_BYTES) {
		return;
	}
	long bytes = bpf_get_stack(context, &scratch->anchor[at], SLIP_KERNEL_BYTES, 0);
	if (bytes > 0) {
		scratch->sample.kernel_bytes = bytes;
	}
}

static __always_inline void send_sample(struct scratch *scratch, const struct slip_target *target)
{
	__u64 bytes = scratch->sample.anchor_bytes + scratch->sample.kernel_bytes;
	/* It is to be named at once: nothing tells this request from the next one yet, or it may end soon, and what its functions are
	 * cannot be asked then. Waits are too many for that. */
	bool is_urgent = target->request && (scratch->sample.kind == SLIP_EVENT_SAMPLE || !scratch->sample.request);

	barrier_var(bytes);
	if (bytes > SLIP_ANCHOR_BYTES + SLIP_KERNEL_BYTES) {
		return;
	}
	if (bpf_ringbuf_output(&events, &scratch->sample, sizeof scratch->sample + bytes,
				is_urgent ? BPF_RB_FORCE_WAKEUP : BPF_RB_NO_WAKEUP)) {
		count(SLIP_COUNT_LOST);
	}
}

/* Copies the frames of the running thread, whose thread-local storage begins at `base`. `rip` is 0 if it is in the kernel. Where it
 * fails `copy_caller_by()` may not. */
static __always_inline bool walk(struct scratch *scratch, const struct slip_target *target, __u64 base, __u64 rip, __u64 r14,
		__u64 r15)
{
	__u64 current = target->current, frame = 0;

	if (target->frame_bytes > SLIP_FRAME_STRIDE || target->frame_bytes < 16) {
		return false;
	}
	scratch->cframe = 0;
	scratch->layout.id = target->id;
	scratch->layout.frame_bytes = target->frame_bytes;
	scratch->layout.previous = target->previous;
	for (int i = 0; i < SLIP_MAX_KEYS; i++) {
		scratch->layout.keys[i] = target->keys[i];
	}
	if (target->request && !read_word(target->request, &scratch->sample.request)) {
		scratch->sample.request = 0;
	}
	if (target->has_threads) {
		__u64 state = thread_state(target, base);
		if (!state) {
			scratch->sample.flags |= SLIP_SAMPLE_NO_STATE;
			return true;
		}
		scratch->sample.thread_state = state;
		current += state;
	}
	if (!read_word(current, &frame)) {
		return false;
	}
	if (frame && target->is_indirect) {
		return copy_calls(scratch, target, frame);
	}
	bool in_compiled = rip >= target->compiled_begin && rip < target->compiled_end;
	if (frame && target->in_registers && (r14 == frame || in_compiled)) {
		scratch->sample.instruction = in_compiled ? 0 : r15;
		scratch->sample.flags |= SLIP_SAMPLE_HAS_INSTRUCTION;
	}
	return follow_frames(frame);
}

/* Whether the system call's first argument is a file. */
static __always_inline bool takes_file(__s32 call)
{
	switch (call) {
		case 0: case 1: /* read, write */
		case 3: /* close */
		case 16: /* ioctl */
		case 17: case 18: case 19: case 20: /* pread64, pwrite64, readv, writev */
		case 40: /* sendfile */
		case 42: case 43: case 44: case 45: case 46: case 47: /* connect, accept, sendto, recvfrom, sendmsg, recvmsg */
		case 74: case 75: case 77: /* fsync, fdatasync, ftruncate */
		case 217: /* getdents64 */
		case 275: case 277: case 285: /* splice, sync_file_range, fallocate */
		case 288: case 295: case 296: case 299: case 307: /* accept4, preadv, pwritev, recvmmsg, sendmmsg */
			return true;
		default:
			return false;
	}
}

static __always_inline __u32 type_of_file(struct task_struct *task, __u32 number)
{
	const struct fdtable *table = task->files ? task->files->fdt : NULL;
	struct file *file = NULL;

	if (!table || number >= table->max_fds || bpf_probe_read_kernel(&file, sizeof file, table->fd + number) || !file) {
		return 0;
	}
	return BPF_CORE_READ(file, f_inode, i_mode) & 0170000;
}

/* Type of the file that a system call is about, as far as it is about one. */
static __always_inline __u32 file_of_call(struct task_struct *task, __s32 call, const struct pt_regs *regs)
{
	__u32 number = 0;

	if (takes_file(call)) {
		return type_of_file(task, regs->rdi);
	}
	if (call == 7 || call == 271) { /* poll, ppoll */
		/* It begins with the number of the file. */
		if (regs->rsi == 1 && bpf_probe_read_user(&number, sizeof number, (const void *) regs->rdi) == 0) {
			return type_of_file(task, number);
		}
		return regs->rsi ? 0 : SLIP_FILE_NONE;
	}
	if (call == 23 || call == 270) { /* select, pselect6 */
		return regs->rdi ? 0 : SLIP_FILE_NONE;
	}
	return 0;
}

static __always_inline __u32 turn_now(void)
{
	__u32 at = 0;
	const __u32 *now = bpf_map_lookup_elem(&turn, &at);
	return now ? *now : 0;
}

static __always_inline struct slip_wait *wait_of(const struct slip_wait_key *key, __u32 now)
{
	return now & 1 ? bpf_map_lookup_elem(&waits_1, key) : bpf_map_lookup_elem(&waits_0, key);
}

static __always_inline void add_wait(const struct slip_wait_key *key, const struct slip_wait *wait, __u32 now)
{
	long failed = now & 1 ? bpf_map_update_elem(&waits_1, key, wait, BPF_ANY) : bpf_map_update_elem(&waits_0, key, wait, BPF_ANY);
	if (failed) {
		count(SLIP_COUNT_WAITS_LOST);
	}
}

static __always_inline bool is_same_key(const struct slip_wait_key *one, const struct slip_wait_key *other)
{
	return one->stack == other->stack && one->request == other->request && one->id == other->id && one->tid == other->tid
			&& one->call == other->call && one->file == other->file && one->kernel == other->kernel;
}

/* Whether the thread has been blocked for so long that it is asked where. To walk each stack, or the innermost frames of each, costs
 * more than all else that is done for a wait; so it is known when the wait ends, or at a listing, not when it begins. */
static __always_inline bool is_long(const struct slip_sleeper *sleeper, __u64 now)
{
	__u64 ready = sleeper->ready_ns ? sleeper->ready_ns : now;
	return kernel_stacks && ready >= sleeper->begin_ns + SLIP_LONG_WAIT_NS;
}

/* The key of the stack at which a task rests in the kernel, which is sent if nobody knows it yet; 0 if it cannot be had. */
static __always_inline __u64 kernel_stack_of(struct task_struct *task, enum scratch_use use)
{
	__u32 at = use;
	struct scratch *scratch = bpf_map_lookup_elem(&scratches, &at);
	__u64 key = 0;
	__u8 yes = 1;

	if (!scratch) {
		return 0;
	}
	long bytes = bpf_get_task_stack(task, scratch->kernel_addrs, sizeof scratch->kernel_addrs, 0);
	if (bytes <= 0) {
		return 0;
	}
	for (__u32 i = 0; i < SLIP_MAX_KERNEL_FRAMES; i++) {
		if (8 * i >= bytes) {
			break;
		}
		key = mix(key, scratch->kernel_addrs[i]);
	}
	/* Keys of the target's stacks are odd. */
	key = (key | 1) - 1;
	if (!key || bpf_map_lookup_elem(&known, &key)) {
		return key;
	}
	barrier_var(bytes);
	if (bytes < 0 || bytes > SLIP_KERNEL_BYTES) {
		return 0;
	}
	scratch->kernel = (struct slip_kernel_stack) {.kind = SLIP_EVENT_KERNEL_STACK, .bytes = bytes, .key = key};
	if (bpf_ringbuf_output(&events, &scratch->kernel, sizeof scratch->kernel + bytes, BPF_RB_NO_WAKEUP)) {
		count(SLIP_COUNT_LOST);
	} else if (bpf_map_update_elem(&known, &key, &yes, BPF_ANY)) {
		count(SLIP_COUNT_FORGOTTEN);
	}
	return key;
}

/* Counts a wait that has ended now. */
static __always_inline void end_wait(struct slip_sleeper *sleeper, __u64 now)
{
	__u64 ready = sleeper->ready_ns ? sleeper->ready_ns : now;
	struct slip_wait anew = {.count = 1, .blocked_ns = ready - sleeper->begin_ns, .ready_ns = now - ready};
	__u32 turn = turn_now();
	struct slip_wait *wait = wait_of(&sleeper->key, turn);
	if (wait) {
		/* The thread is part of the key, so nobody else adds to it. */
		wait->count += anew.count;
		wait->blocked_ns += anew.blocked_ns;
		wait->ready_ns += anew.ready_ns;
	} else {
		add_wait(&sleeper->key, &anew, turn);
	}
	sleeper->begin_ns = 0;
}

/* Counts a wait of the running thread whose end we were not told: some kernels run no program while some tasks have the CPU. */
static __always_inline void end_unseen(const struct task_struct *task, struct slip_sleeper *sleeper)
{
	__u64 now = bpf_ktime_get_ns(), since = sleeper->ready_ns ? sleeper->ready_ns : sleeper->begin_ns;
	/* Since it got the CPU. Real-time schedulers do not keep that. */
	__u64 ran = task->se.sum_exec_runtime - task->se.prev_sum_exec_runtime;

	if (ran > now - since) {
		ran = sleeper->ready_ns ? now - since : 0;
	}
	end_wait(sleeper, now - ran);
}

/* The running thread, which leaves its CPU. */
static __always_inline void begin_wait(struct task_struct *task, bool preempted)
{
	struct slip_sleeper *sleeper = bpf_task_storage_get(&sleepers, task, 0, 0);
	struct bpf_pidns_info ids;
	__u32 at = 0;

	if (sleeper) {
		ids.pid = sleeper->key.tid;
		ids.tgid = sleeper->pid;
	} else if (!task->mm || !own_ids(&ids)) {
		/* Threads of the kernel have no memory of their own. */
		return;
	}
	const struct slip_target *target = bpf_map_lookup_elem(&targets, &ids.tgid);
	struct scratch *scratch = bpf_map_lookup_elem(&scratches, &at);
	const struct pt_regs *regs = (const struct pt_regs *) bpf_task_pt_regs(task);
	if (!target || !scratch || !regs) {
		return;
	}
	if (!sleeper) {
		sleeper = bpf_task_storage_get(&sleepers, task, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
		if (!sleeper) {
			count(SLIP_COUNT_WAITS_LOST);
			return;
		}
		sleeper->key.tid = ids.pid;
		sleeper->pid = ids.tgid;
	}
	if (sleeper->begin_ns) {
		end_unseen(task, sleeper);
	}
	__s32 call = preempted ? SLIP_CALL_PREEMPTED : regs->orig_rax < 1024 ? regs->orig_rax : SLIP_CALL_NONE;
	scratch->sample = (struct slip_sample) {
		.kind = SLIP_EVENT_WAIT,
		.id = target->id,
		.time_ns = bpf_ktime_get_ns(),
		.tid = ids.pid,
		.call = call,
		.file = file_of_call(task, call, regs),
	};
	bool walked = walk(scratch, target, task->thread.fsbase, 0, regs->r14, regs->r15);
	if (!walked && scratch->cframe) {
		walked = copy_caller_by(scratch, target, regs);
	}
	if (!walked) {
		scratch->sample.flags |= SLIP_SAMPLE_FAILED;
		send_sample(scratch, target);
		return;
	}
	if (scratch->sample.flags & SLIP_SAMPLE_NO_STATE) {
		return;
	}
	struct slip_wait_key key = {
		.stack = scratch->sample.stack,
		.request = scratch->sample.request,
		.id = target->id,
		.tid = ids.pid,
		.call = call,
		.file = scratch->sample.file,
	};
	__u32 turn = turn_now();
	/* Most threads wait where they waited before. */
	if (sleeper->turn != turn + 1 || !is_same_key(&sleeper->key, &key)) {
		if (!wait_of(&key, turn)) {
			struct slip_wait none = {};
			if (!copy_anchor(scratch, target, scratch->sample.thread_state) || !send_stack(scratch, target)) {
				scratch->sample.flags |= SLIP_SAMPLE_FAILED;
			}
			send_sample(scratch, target);
			add_wait(&key, &none, turn);
		}
		sleeper->key = key;
		sleeper->turn = turn + 1;
	}
	sleeper->begin_ns = scratch->sample.time_ns;
	sleeper->ready_ns = preempted ? scratch->sample.time_ns : 0;
}

/* Arguments: whether it was preempted, the task that leaves, the one that comes. */
SEC("tp_btf/sched_switch")
int on_switch(__u64 *context)
{
	struct task_struct *previous = (struct task_struct *) context[1];

	/* A task that ends has 0x80 (TASK_DEAD). */
	if (!(previous->__state & 0x80)) {
		begin_wait(previous, context[0] || previous->__state == 0);
	}
	struct task_struct *next = (struct task_struct *) context[2];
	struct slip_sleeper *sleeper = bpf_task_storage_get(&sleepers, next, 0, 0);
	if (sleeper && sleeper->begin_ns) {
		__u64 now = bpf_ktime_get_ns();
		/* Its stack is still that of the wait. */
		if (is_long(sleeper, now) && !sleeper->key.kernel) {
			sleeper->key.kernel = kernel_stack_of(next, SCRATCH_OF_EVENT);
		}
		end_wait(sleeper, now);
	}
	return 0;
}

SEC("tp_btf/sched_wakeup")
int on_wakeup(__u64 *context)
{
	struct task_struct *task = (struct task_struct *) context[0];
	struct slip_sleeper *sleeper = bpf_task_storage_get(&sleepers, task, 0, 0);

	/* One that runs has ended its wait, and we were not told. */
	if (sleeper && sleeper->begin_ns && !sleeper->ready_ns && !task->on_cpu) {
		sleeper->ready_ns = bpf_ktime_get_ns();
		/* It has not got a CPU yet, and that it gets one we may not be told. */
		if (is_long(sleeper, sleeper->ready_ns)) {
			sleeper->key.kernel = kernel_stack_of(task, SCRATCH_OF_EVENT);
		}
	}
	return 0;
}

/* Lists the threads that are off their CPUs now. */
SEC("iter/task")
int list_sleepers(struct bpf_iter__task *context)
{
	struct task_struct *task = context->task;
	struct slip_sleeper *sleeper = task ? bpf_task_storage_get(&sleepers, task, 0, 0) : NULL;

	__u64 begin = sleeper ? *(volatile __u64 *) &sleeper->begin_ns : 0;
	if (!begin) {
		return 0;
	}
	barrier();
	struct slip_sleeper copy = *sleeper;
	if (is_long(&copy, bpf_ktime_get_ns())) {
		if (!copy.key.kernel) {
			copy.key.kernel = kernel_stack_of(task, SCRATCH_OF_LISTING);
		}
	} else if (kernel_stacks && !copy.ready_ns) {
		/* It may come to be a long one, and what is listed now would have no stack. */
		return 0;
	}
	/* Else it may have run meanwhile, or runs and we were not told. It is told when its wait ends, with the stack that it has then. */
	barrier();
	if (*(volatile __u64 *) &sleeper->begin_ns != begin || task->on_cpu) {
		return 0;
	}
	bpf_seq_write(context->meta->seq, &copy, sizeof copy);
	return 0;
}

/* Writes the names of addresses, as of ones behind a call: each that of the byte before. It lists tasks, as some kernels refuse to
 * list the elements of a map, and all is written with the first. */
SEC("iter/task")
int name_addresses(struct bpf_iter__task *context)
{
	const char format[] = "%d %pB\n";

	if (context->meta->seq_num) {
		return 0;
	}
	for (__u32 i = 0; i < SLIP_ADDRESSES; i++) {
		__u32 number = i;
		const __u64 *address = bpf_map_lookup_elem(&addresses, &number);
		if (address && *address) {
			__u64 values[] = {number, *address};
			bpf_seq_printf(context->meta->seq, format, sizeof format, values, sizeof values);
		}
	}
	return 0;
}

SEC("perf_event")
int on_clock(struct bpf_perf_event_data *context)
{
	struct bpf_pidns_info ids;
	__u32 at = 0;

	if (!own_ids(&ids)) {
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
	struct task_struct *task = (struct task_struct *) bpf_get_current_task();
	bool walked = walk(scratch, target, BPF_CORE_READ(task, thread.fsbase), in_kernel ? 0 : context->regs.rip,
			in_kernel ? 0 : context->regs.r14, context->regs.r15);
	if (!walked && scratch->cframe && !in_kernel) {
		walked = copy_caller_by(scratch, target, &context->regs);
	}
	if (walked && (scratch->sample.flags & SLIP_SAMPLE_NO_STATE
			|| (copy_anchor(scratch, target, scratch->sample.thread_state) && send_stack(scratch, target)))) {
		if (in_kernel && kernel_stacks) {
			copy_kernel_stack(scratch, context);
		}
	} else {
		scratch->sample.flags |= SLIP_SAMPLE_FAILED;
		scratch->sample.stack = 0;
		scratch->sample.depth = 0;
	}
	send_sample(scratch, target);
	return 0;
}

/* The same timer without a walk: what the machine itself takes for an event, for measurements. */
SEC("perf_event")
int on_clock_empty(struct bpf_perf_event_data *context)
{
	return 0;
}
