#ifndef SLIP_MEMORY_H
#define SLIP_MEMORY_H

/* Who calls for memory, in programs without an interpreter: how often and for how long each place does, all counted, and now and then its
 * stack, which the loader unwinds. */

#include "account.h"

/* Places that are told apart: a program has some hundred, and more only if it calls from ever other depths of its stack. */
#define MEMORY_PLACES 8192

/* The caller is looked for among so many words of the stack: those that a wrapper of libc saves, and some of an allocator. */
#define CALLER_WORDS 32

/* A stack is copied of the first call of a place, and then as often as it has taken so long since: a stack stands for that time. */
#define SAMPLE_NS 1000000
/* After so many stacks of a place, they are copied more rarely: most places have one stack. */
#define OFTEN 64
#define RARELY_NS 16000000
/* Nearly each instruction that touches something for the first time is a place of its own, and most take a microsecond in all. */
#define FIRST_FAULT_NS 100000

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MEMORY_PLACES);
	__type(key, struct slip_memory_place);
	__type(value, struct slip_memory_time);
} memory_places SEC(".maps");

/* What no place had room for, by kind. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, SLIP_MEMORY_KINDS);
	__type(key, __u32);
	__type(value, struct slip_memory_count);
} memory_elsewhere SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4 << 20);
} memory_stacks SEC(".maps");

/* Too large for the stack. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct slip_memory_stack);
} memory_scratch SEC(".maps");

/* The kernel sets the lower half of the number alone. */
static __always_inline __u32 kind_of_call(__u32 number)
{
	switch (number) {
		case 9: return SLIP_MEMORY_MMAP;
		case 11: return SLIP_MEMORY_MUNMAP;
		case 12: return SLIP_MEMORY_BRK;
		case 25: return SLIP_MEMORY_MREMAP;
		case 28: return SLIP_MEMORY_MADVISE;
		default: return SLIP_MEMORY_MPROTECT;
	}
}

/* Which of the program's own functions it is called by, as far as words of the stack tell: the first that points into its code. Callers at the
 * same depth of the stack are told apart by it. */
static __always_inline __u64 find_caller(struct slip_memory_stack *scratch, const struct task_struct *task, __u64 sp)
{
	const struct mm_struct *memory = task->mm;
	__u64 begin = memory->start_code, end = memory->end_code;

	if (bpf_probe_read_user(scratch->stack, CALLER_WORDS * sizeof(__u64), (const void *) sp)) {
		return 0;
	}
	for (__u32 at = 0; at < CALLER_WORDS; at++) {
		__u64 word = ((const __u64 *) scratch->stack)[at];
		if (word >= begin && word < end) {
			return word;
		}
	}
	return 0;
}

/* Copies the stack page by page, so that one near the end of its mapping is cut there and not lost. How many bytes. */
static __always_inline __u32 copy_stack(struct slip_memory_stack *scratch, __u64 sp)
{
	__u32 length = SLIP_STACK_PAGE - (sp & (SLIP_STACK_PAGE - 1));

	if (bpf_probe_read_user(scratch->stack, length, (const void *) sp)) {
		return 0;
	}
	for (__u32 page = 1; page < SLIP_STACK_PAGES; page++) {
		if (bpf_probe_read_user(scratch->stack + length, SLIP_STACK_PAGE, (const void *) (sp + length))) {
			break;
		}
		length += SLIP_STACK_PAGE;
	}
	return length;
}

static __always_inline bool is_stack_due(const struct slip_memory_time *time, __u32 kind)
{
	__u64 ns = time->ns - time->stacks_ns;

	if (!time->stacks) {
		return kind != SLIP_MEMORY_FAULT || ns >= FIRST_FAULT_NS;
	}
	return ns >= (time->stacks < OFTEN ? SAMPLE_NS : RARELY_NS);
}

static __always_inline void send_stack(struct slip_memory_stack *scratch, const struct slip_thread *thread,
		const struct slip_memory_place *place, const struct slip_memory_time *time, const struct pt_regs *regs)
{
	scratch->place = *place;
	scratch->tid = thread->tid;
	scratch->ns = time->ns - time->stacks_ns;
	scratch->bx = regs->rbx;
	scratch->bp = regs->rbp;
	scratch->r12 = regs->r12;
	scratch->r13 = regs->r13;
	scratch->r14 = regs->r14;
	scratch->r15 = regs->r15;
	__u64 length = copy_stack(scratch, place->sp);
	/* Verifiers before Linux 5.16 or so do not find that by themselves. */
	barrier_var(length);
	if (length > sizeof scratch->stack) {
		return;
	}
	scratch->length = length;
	if (bpf_ringbuf_output(&memory_stacks, scratch, __builtin_offsetof(struct slip_memory_stack, stack) + length, BPF_RB_NO_WAKEUP)) {
		count_budget(SLIP_BUDGET_STACKS_LOST);
	}
}

/* A call of a thread for memory has ended, or a page fault: up to now its time is accounted for. */
static __always_inline void note_memory(struct task_struct *task, struct slip_thread *thread, __u32 kind)
{
	__u32 pid = thread->pid, zero = 0;

	if (!(thread->flags & SLIP_THREAD_RUNS) || !is_open(thread)) {
		return;
	}
	const struct slip_budget_target *target = bpf_map_lookup_elem(&budget_targets, &pid);
	if (!target || !(target->flags & SLIP_TARGET_SITES)) {
		return;
	}
	/* All of this part is calls and faults, so what has been added to it is this one. */
	__u64 all = thread->current[SLIP_PART_MEMORY] + thread->tail[SLIP_PART_MEMORY];
	__u64 ns = all >= thread->memory_told_ns ? all - thread->memory_told_ns : all;
	begin_change(thread);
	thread->memory_told_ns = all;
	end_change(thread);

	const struct pt_regs *regs = (const struct pt_regs *) bpf_task_pt_regs(task);
	struct slip_memory_stack *scratch = bpf_map_lookup_elem(&memory_scratch, &zero);
	if (!regs || !scratch) {
		return;
	}
	struct slip_memory_place place = {.pid = pid, .kind = kind, .ip = regs->rip, .sp = regs->rsp};
	if (kind != SLIP_MEMORY_FAULT) {
		place.caller = find_caller(scratch, task, place.sp);
	}
	struct slip_memory_time *time = bpf_map_lookup_elem(&memory_places, &place);
	if (!time) {
		const struct slip_memory_time none = {};
		bpf_map_update_elem(&memory_places, &place, &none, BPF_NOEXIST);
		time = bpf_map_lookup_elem(&memory_places, &place);
	}
	if (!time) {
		struct slip_memory_count *count = bpf_map_lookup_elem(&memory_elsewhere, &kind);
		if (count) {
			count->calls++;
			count->ns += ns;
		}
		return;
	}
	/* The place is in one thread's stack: nobody else adds to it. */
	time->calls++;
	time->ns += ns;
	if (is_stack_due(time, kind)) {
		send_stack(scratch, thread, &place, time, regs);
		/* Also if there was no room: then the next one comes as late. */
		time->stacks++;
		time->stacks_ns = time->ns;
	}
}

#endif
