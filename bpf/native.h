#ifndef SLIP_NATIVE_H
#define SLIP_NATIVE_H

/* Copies the inner end of a thread's stack of native code, which the loader unwinds. */

#include "maps.h"

/* A page of the target that is not in memory ends the copy, so it is made page by page. */
#define NATIVE_PAGE 4096

/* Above the stack pointer that a program began with, so much belongs to its first function. */
#define FIRST_FRAME_BYTES 64

/* If so much waits in the ring, the loader is woken: stacks of native code are large. */
#define RING_ENOUGH (2 << 20)

/* Where the stack from `sp` on ends, as far as that is known: of the first thread where the program began, of others at their local
 * storage, which the C library puts at the end of their stacks. */
static __always_inline __u64 end_of_stack(struct task_struct *task, __u64 sp)
{
	__u64 first = BPF_CORE_READ(task, mm, start_stack) + FIRST_FRAME_BYTES, own = BPF_CORE_READ(task, thread.fsbase);

	return own > sp && own - sp < SLIP_NATIVE_BYTES ? own : first;
}

/* Copies the stack from `sp` on. How many bytes. */
static __always_inline __u64 copy_native_stack(struct slip_native *native, __u64 sp, __u64 end)
{
	__u64 length = end - sp;

	barrier_var(length);
	if (length <= SLIP_NATIVE_BYTES && bpf_probe_read_user(native->stack, length, (const void *) sp) == 0) {
		return length;
	}
	length = NATIVE_PAGE - (sp & (NATIVE_PAGE - 1));
	if (bpf_probe_read_user(native->stack, length, (const void *) sp)) {
		return 0;
	}
	for (__u32 page = 1; page < SLIP_NATIVE_BYTES / NATIVE_PAGE; page++) {
		if (bpf_probe_read_user(native->stack + length, NATIVE_PAGE, (const void *) (sp + length))) {
			break;
		}
		length += NATIVE_PAGE;
	}
	return length;
}

/* How many bytes `r15` to `rbx` have in `struct pt_regs`, which begins with them. */
#define KEPT_BYTES 48

/* Copies the registers with which the running thread went into the kernel, by address: loads from there and from the context of the clock are
 * the same instructions to the compiler, and different ones to the verifier. */
static __always_inline bool copy_registers_of_entry(struct slip_native *native)
{
	const struct pt_regs *regs = (const struct pt_regs *) bpf_task_pt_regs(bpf_get_current_task_btf());

	return regs && bpf_probe_read_kernel(&native->r15, KEPT_BYTES, &regs->r15) == 0
			&& bpf_probe_read_kernel(&native->ip, sizeof native->ip, &regs->rip) == 0
			&& bpf_probe_read_kernel(&native->sp, sizeof native->sp, &regs->rsp) == 0;
}

static __always_inline void copy_registers(struct slip_native *native, const struct pt_regs *regs)
{
	native->ip = regs->rip;
	native->sp = regs->rsp;
	native->r15 = regs->r15;
	native->r14 = regs->r14;
	native->r13 = regs->r13;
	native->r12 = regs->r12;
	native->bp = regs->rbp;
	native->bx = regs->rbx;
}

/* Sends what the running thread does outside of the kernel, for the sample that is about to be sent. `regs` are those of the context. */
static __always_inline void send_native(const struct slip_sample *sample, struct task_struct *task, const struct pt_regs *regs,
		bool in_kernel)
{
	__u32 at = 0;
	struct slip_native *native = bpf_map_lookup_elem(&natives, &at);

	if (!native) {
		return;
	}
	if (!in_kernel) {
		copy_registers(native, regs);
	} else if (!copy_registers_of_entry(native)) {
		return;
	}
	native->kind = SLIP_EVENT_NATIVE;
	native->id = sample->id;
	native->time_ns = sample->time_ns;
	native->tid = sample->tid;
	__u64 length = copy_native_stack(native, native->sp, end_of_stack(task, native->sp));
	/* Verifiers before Linux 5.16 or so do not find that by themselves. */
	barrier_var(length);
	if (length > SLIP_NATIVE_BYTES) {
		return;
	}
	native->length = length;
	__u64 flags = bpf_ringbuf_query(&events, BPF_RB_AVAIL_DATA) > RING_ENOUGH ? BPF_RB_FORCE_WAKEUP : BPF_RB_NO_WAKEUP;
	if (bpf_ringbuf_output(&events, native, __builtin_offsetof(struct slip_native, stack) + length, flags)) {
		count(SLIP_COUNT_LOST);
	}
}

#endif
