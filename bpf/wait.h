#ifndef SLIP_WAIT_H
#define SLIP_WAIT_H

/* Waits: what they are for, where in the kernel, and how they add up. */

#include "file.h"
#include "maps.h"
#include "peer.h"
#include "walk.h"

/* The file that a system call is about, as far as it is about one, and its type: SLIP_FILE_NONE if the call names none, 0 if it is not known. */
static __always_inline const struct file *file_of_call(struct task_struct *task, __s32 call, const struct pt_regs *regs, __u32 *type)
{
	const struct file *file = NULL;
	__u32 number = 0;

	*type = 0;
	if (takes_file(call)) {
		file = file_of_number(task, regs->rdi);
	} else if (call == 7 || call == 271) { /* poll, ppoll */
		/* It begins with the number of the file. */
		if (regs->rsi == 1 && bpf_probe_read_user(&number, sizeof number, (const void *) regs->rdi) == 0) {
			file = file_of_number(task, number);
		} else if (!regs->rsi) {
			*type = SLIP_FILE_NONE;
		}
	} else if ((call == 23 || call == 270) && !regs->rdi) { /* select, pselect6 */
		*type = SLIP_FILE_NONE;
	}
	if (file) {
		*type = type_of_file(file);
	}
	return file;
}

/* What a thread that is blocked has called. */
static __always_inline __s32 call_of(const struct task_struct *task, const struct pt_regs *regs)
{
	/* __TASK_STOPPED and __TASK_TRACED. */
	if (task->__state & 0xc) {
		return SLIP_CALL_STOPPED;
	}
	return regs->orig_rax < 1024 ? regs->orig_rax : SLIP_CALL_NONE;
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
			&& one->call == other->call && one->file == other->file && one->kernel == other->kernel
			&& one->peer == other->peer;
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

/* Makes the last key of this kind the present one. */
static __always_inline void turn_to_kind(struct slip_thread *thread, bool preempted)
{
	if (preempted != (thread->sleeper.key.call == SLIP_CALL_PREEMPTED)) {
		struct slip_wait_key key = thread->sleeper.key;
		__u32 turn = thread->sleeper.turn;

		thread->sleeper.key = thread->other;
		thread->sleeper.turn = thread->other_turn;
		/* There may not have been any. */
		thread->sleeper.key.tid = key.tid;
		thread->other = key;
		thread->other_turn = turn;
	}
}

/* Whether a thread that loses its CPU is taken to be where it was when it lost it last. */
static __always_inline bool stands_for(const struct slip_thread *thread, const struct slip_target *target, __u64 now, __u32 turn)
{
	__u64 request = 0;

	if (now - thread->lost_cpu_ns >= SLIP_STANDS_FOR_NS || thread->sleeper.turn != turn + 1 || thread->sleeper.key.id != target->id
			|| thread->sleeper.key.stack == SLIP_STACK_UNREADABLE || bpf_get_prandom_u32() % SLIP_LOOK_ONE_IN == 0) {
		return false;
	}
	return !target->request || (read_word(target->request, &request) && request == thread->sleeper.key.request);
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

#endif
