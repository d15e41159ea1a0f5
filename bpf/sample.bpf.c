/* Walks the stacks of PHP and CPython in the target's own context, where they stand still: when the clock of a CPU goes off,
 * and when a thread leaves its CPU. The kernel's own stack comes beside them where a thread is in the kernel. */

#include "allocation.h"
#include "native.h"
#include "slow.h"
#include "wait.h"
#include "walk.h"

char LICENSE[] SEC("license") = "Dual MIT/GPL";

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

/* The running thread, which leaves its CPU. Returns when, or 0 if it is not looked at. */
static __always_inline __u64 begin_wait(struct task_struct *task, bool preempted)
{
	struct slip_thread *thread = bpf_task_storage_get(&sleepers, task, 0, 0);
	struct bpf_pidns_info ids;
	__u32 at = 0;

	const __u32 *generation_now = bpf_map_lookup_elem(&generation, &at);
	struct scratch *scratch = bpf_map_lookup_elem(&scratches, &at);
	if (!generation_now || !scratch) {
		return 0;
	}
	if (!thread || thread->generation != *generation_now) {
		__u32 now = *generation_now;
		if (thread) {
			ids.pid = thread->sleeper.key.tid;
			ids.tgid = thread->sleeper.pid;
		} else if (!task->mm || !own_ids(&ids)) {
			/* Threads of the kernel have no memory of their own. */
			return 0;
		}
		const struct slip_target *known = bpf_map_lookup_elem(&targets, &ids.tgid);
		if (!known) {
			return 0;
		}
		if (!thread) {
			thread = bpf_task_storage_get(&sleepers, task, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
		}
		if (!thread) {
			count(SLIP_COUNT_WAITS_LOST);
			return 0;
		}
		thread->sleeper.key.tid = ids.pid;
		thread->sleeper.pid = ids.tgid;
		thread->target = *known;
		/* After `exec` all lies elsewhere. */
		thread->state = thread->outermost = 0;
		thread->generation = now;
	}
	const struct slip_target *target = &thread->target;
	struct slip_sleeper *sleeper = &thread->sleeper;
	if (sleeper->begin_ns) {
		end_unseen(task, sleeper);
	}
	__u64 now = bpf_ktime_get_ns();
	__u32 turn = turn_now();
	turn_to_kind(thread, preempted);
	if (preempted && stands_for(thread, target, now, turn)) {
		sleeper->begin_ns = sleeper->ready_ns = now;
		return now;
	}
	const struct pt_regs *regs = (const struct pt_regs *) bpf_task_pt_regs(task);
	if (!regs) {
		return 0;
	}
	__s32 call = preempted ? SLIP_CALL_PREEMPTED : call_of(task, regs);
	__u32 type = 0;
	const struct file *file = file_of_call(task, call, regs, &type);
	scratch->sample = (struct slip_sample) {
		.kind = SLIP_EVENT_WAIT,
		.id = target->id,
		.time_ns = now,
		.tid = sleeper->key.tid,
		.call = call,
		.file = type,
		.peer = type == TYPE_SOCKET ? peer_of(file) : 0,
	};
	scratch->outermost = thread->outermost;
	scratch->state = now - thread->state_ns < SLIP_STATE_NS ? thread->state : 0;
	bool walked = walk(scratch, target, task->thread.fsbase, 0, regs->r14, regs->r15);
	if (!walked && scratch->cframe) {
		walked = copy_caller_by(scratch, target, regs);
	}
	thread->outermost = scratch->outermost;
	if (!scratch->state) {
		thread->state = scratch->sample.thread_state;
		thread->state_ns = now;
	}
	if (!walked) {
		/* How long it waits is known all the same. */
		scratch->sample.flags |= SLIP_SAMPLE_FAILED;
		scratch->sample.stack = SLIP_STACK_UNREADABLE;
	} else if (scratch->sample.flags & SLIP_SAMPLE_NO_STATE) {
		return now;
	}
	struct slip_wait_key key = {
		.stack = scratch->sample.stack,
		.request = scratch->sample.request,
		.id = target->id,
		.tid = sleeper->key.tid,
		.call = call,
		.file = scratch->sample.file,
		.peer = scratch->sample.peer,
	};
	/* Most threads wait where they waited before. */
	if (sleeper->turn != turn + 1 || !is_same_key(&sleeper->key, &key)) {
		if (!wait_of(&key, turn)) {
			struct slip_wait none = {};
			if (walked && (!copy_anchor(scratch, target, scratch->sample.thread_state) || !send_stack(scratch, target))) {
				scratch->sample.flags |= SLIP_SAMPLE_FAILED;
			}
			send_sample(scratch, target);
			add_wait(&key, &none, turn);
		}
		sleeper->key = key;
		sleeper->turn = turn + 1;
	}
	sleeper->begin_ns = now;
	sleeper->ready_ns = 0;
	if (preempted) {
		sleeper->ready_ns = thread->lost_cpu_ns = now;
	}
	return now;
}

/* The one of a task that has no CPU, or NULL. */
static __always_inline struct slip_sleeper *sleeper_of(struct task_struct *task)
{
	struct slip_thread *thread = bpf_task_storage_get(&sleepers, task, 0, 0);
	return thread && thread->sleeper.begin_ns ? &thread->sleeper : NULL;
}

/* Arguments: whether it was preempted, the task that leaves, the one that comes. */
SEC("tp_btf/sched_switch")
int on_switch(__u64 *context)
{
	struct task_struct *previous = (struct task_struct *) context[1];
	__u64 now = 0;

	/* A task that ends has 0x80 (TASK_DEAD). */
	if (!(previous->__state & 0x80)) {
		now = begin_wait(previous, context[0] || previous->__state == 0);
	}
	struct task_struct *next = (struct task_struct *) context[2];
	struct slip_sleeper *sleeper = sleeper_of(next);
	if (sleeper) {
		/* One look at the clock for both. */
		now = now ? now : bpf_ktime_get_ns();
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
	struct slip_sleeper *sleeper = sleeper_of(task);

	/* One that runs has ended its wait, and we were not told. */
	if (sleeper && !sleeper->ready_ns && !task->on_cpu) {
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
	struct slip_thread *thread = task ? bpf_task_storage_get(&sleepers, task, 0, 0) : NULL;
	struct slip_sleeper *sleeper = thread ? &thread->sleeper : NULL;

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
	scratch->outermost = scratch->state = 0;
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
		if (native_stacks) {
			send_native(&scratch->sample, task, &context->regs, in_kernel);
		}
	} else {
		scratch->sample.flags |= SLIP_SAMPLE_FAILED;
		scratch->sample.stack = 0;
		scratch->sample.depth = 0;
	}
	send_sample(scratch, target);
	return 0;
}

/* A thread has read from a socket. If that ended a slow call, its stack is told, with the moment of that end. Arguments: the socket, what
 * was read, flags. */
SEC("tp_btf/sock_recv_length")
int on_slow_call(__u64 *context)
{
	__u64 end = take_slow(context[0]);
	struct bpf_pidns_info ids;
	__u32 at = SCRATCH_OF_EVENT;

	if (!end || !own_ids(&ids)) {
		return 0;
	}
	struct task_struct *task = bpf_get_current_task_btf();
	const struct slip_target *target = bpf_map_lookup_elem(&targets, &ids.tgid);
	struct scratch *scratch = bpf_map_lookup_elem(&scratches, &at);
	const struct pt_regs *regs = (const struct pt_regs *) bpf_task_pt_regs(task);
	if (!target || !scratch || !regs) {
		return 0;
	}
	scratch->sample = (struct slip_sample) {
		.kind = SLIP_EVENT_SAMPLE,
		.id = target->id,
		.time_ns = end,
		.tid = ids.pid,
	};
	scratch->outermost = scratch->state = 0;
	bool walked = walk(scratch, target, task->thread.fsbase, 0, regs->r14, regs->r15);
	if (!walked && scratch->cframe) {
		walked = copy_caller_by(scratch, target, regs);
	}
	if (!walked || (!(scratch->sample.flags & SLIP_SAMPLE_NO_STATE)
			&& (!copy_anchor(scratch, target, scratch->sample.thread_state) || !send_stack(scratch, target)))) {
		scratch->sample.flags |= SLIP_SAMPLE_FAILED;
		scratch->sample.stack = 0;
		scratch->sample.depth = 0;
	}
	send_sample(scratch, target);
	return 0;
}

/* A thread has called the function that was asked for: as if the clock had found it there. For comparisons with what a debugger sees. */
SEC("uprobe")
int on_function(struct pt_regs *regs)
{
	struct bpf_pidns_info ids;
	__u32 at = SCRATCH_OF_EVENT;

	if (!own_ids(&ids)) {
		return 0;
	}
	const struct slip_target *target = bpf_map_lookup_elem(&targets, &ids.tgid);
	struct scratch *scratch = bpf_map_lookup_elem(&scratches, &at);
	if (!target || !scratch) {
		return 0;
	}
	scratch->sample = (struct slip_sample) {
		.kind = SLIP_EVENT_SAMPLE,
		.id = target->id,
		.time_ns = bpf_ktime_get_ns(),
		.tid = ids.pid,
	};
	struct task_struct *task = (struct task_struct *) bpf_get_current_task();
	scratch->outermost = scratch->state = 0;
	bool walked = walk(scratch, target, BPF_CORE_READ(task, thread.fsbase), regs->rip, regs->r14, regs->r15);
	if (!walked && scratch->cframe) {
		walked = copy_caller_by(scratch, target, regs);
	}
	if (walked && copy_anchor(scratch, target, scratch->sample.thread_state) && send_stack(scratch, target)) {
		send_native(&scratch->sample, task, regs, false);
	} else {
		scratch->sample.flags |= SLIP_SAMPLE_FAILED;
	}
	send_sample(scratch, target);
	return 0;
}

/* libslipmalloc.so tells of a block that it has given out. Arguments: the block, its bytes, how many bytes of blocks it stands for. */
SEC("uprobe")
int on_allocated(struct pt_regs *regs)
{
	struct slip_allocation allocation = {.kind = SLIP_EVENT_ALLOCATED};
	__u32 at = SCRATCH_OF_EVENT;

	const struct slip_target *target = begin_allocation(&allocation);
	struct scratch *scratch = bpf_map_lookup_elem(&scratches, &at);
	if (!target || !scratch) {
		return 0;
	}
	allocation.block = regs->rdi;
	allocation.bytes = regs->rsi;
	allocation.stands_for = regs->rdx;
	if (!take_scratch(scratch, allocation.tid)) {
		send_allocation(&allocation);
		return 0;
	}
	scratch->sample = (struct slip_sample) {
		.kind = SLIP_EVENT_SAMPLE,
		.id = target->id,
		.time_ns = allocation.time_ns,
		.tid = allocation.tid,
	};
	struct task_struct *task = (struct task_struct *) bpf_get_current_task();
	scratch->outermost = scratch->state = 0;
	/* The library may have saved the engine's registers and have others in them: it is no code that the engine has compiled. */
	bool walked = walk(scratch, target, BPF_CORE_READ(task, thread.fsbase), 0, regs->r14, regs->r15);
	if (!walked && scratch->cframe) {
		walked = copy_caller_by(scratch, target, regs);
	}
	bool has_stack = walked && (scratch->sample.flags & SLIP_SAMPLE_NO_STATE
			|| (copy_anchor(scratch, target, scratch->sample.thread_state) && send_stack(scratch, target)));
	/* Without its stack it still counts. */
	allocation.has_sample = has_stack && is_scratch_of(scratch, allocation.tid);
	send_allocation(&allocation);
	if (allocation.has_sample) {
		send_sample(scratch, target);
	}
	scratch->owner = 0;
	return 0;
}

/* libslipmalloc.so is about to take back a block that it has told of. Argument: the block. */
SEC("uprobe")
int on_freed(struct pt_regs *regs)
{
	struct slip_allocation allocation = {.kind = SLIP_EVENT_FREED};

	if (begin_allocation(&allocation)) {
		allocation.block = regs->rdi;
		send_allocation(&allocation);
	}
	return 0;
}

/* The same timer without a walk: what the machine itself takes for an event, for measurements. */
SEC("perf_event")
int on_clock_empty(struct bpf_perf_event_data *context)
{
	return 0;
}
