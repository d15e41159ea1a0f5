#ifndef SLIP_ACCOUNT_H
#define SLIP_ACCOUNT_H

/* The times of a thread: at each moment it is in one part, and each nanosecond is added to one sum. */

#include "kernel.h"
#include "budget.h"

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct slip_thread);
} threads SEC(".maps");

/* By pid. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4096);
	__type(key, __u32);
	__type(value, struct slip_budget_target);
} budget_targets SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4 << 20);
} served SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, SLIP_BUDGET_COUNTERS);
	__type(key, __u32);
	__type(value, __u64);
} budget_counters SEC(".maps");

/* Too large for the stack. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct slip_served);
} served_scratch SEC(".maps");

/* Only its keys are used: a loop calls a function for each, as bpf_loop() would, which came with Linux 5.17. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, SLIP_OPEN);
	__type(key, __u32);
	__type(value, __u8);
} open_places SEC(".maps");

static __always_inline void count_budget(enum slip_budget_counter which)
{
	__u32 at = which;
	__u64 *counter = bpf_map_lookup_elem(&budget_counters, &at);
	if (counter) {
		*counter += 1;
	}
}

/* Who lists threads meanwhile sees an odd number, or another one than before. Only the CPU that the thread has or had last changes
 * it, or the one that wakes it: these never do so at once. */
static __always_inline void begin_change(struct slip_thread *thread)
{
	*(volatile __u64 *) &thread->sequence += 1;
	barrier();
}

static __always_inline void end_change(struct slip_thread *thread)
{
	barrier();
	*(volatile __u64 *) &thread->sequence += 1;
}

static __always_inline bool is_open(const struct slip_thread *thread)
{
	return thread->opened != 0;
}

/* Whether all that the thread works on has been answered. */
static __always_inline bool is_after(const struct slip_thread *thread)
{
	return thread->opened && thread->responded == thread->opened;
}

/* Adds the time up to `now` to the part that the thread is in. */
static __always_inline void account(struct slip_thread *thread, __u64 now)
{
	__u64 ns = now - thread->since_ns;
	__u32 part = thread->part;

	if ((__s64) ns <= 0) {
		return;
	}
	begin_change(thread);
	thread->since_ns = now;
	if (part == SLIP_IDLE) {
		thread->idle_ns += ns;
	} else {
		part = part < SLIP_PARTS ? part : SLIP_PART_OTHER;
		if (is_after(thread)) {
			thread->tail[part] += ns;
		} else {
			thread->current[part] += ns;
		}
		if (thread->opened > 1) {
			thread->shared_ns += ns;
		}
		if (part == SLIP_PART_CONNECT) {
			thread->connecting_ns += ns;
		}
		__u32 endpoint = thread->endpoint;
		if (endpoint < SLIP_ENDPOINTS) {
			struct slip_endpoint_time *time = &thread->endpoints[endpoint];
			if (part == SLIP_PART_WAIT) {
				time->wait_ns += ns;
			} else if (part == SLIP_PART_WAKE) {
				time->wake_ns += ns;
			} else if (part == SLIP_PART_TRANSFER) {
				time->transfer_ns += ns;
			}
		}
	}
	end_change(thread);
}

/* What a thread that has a CPU does with it. */
static __always_inline __u32 running_part(const struct slip_thread *thread)
{
	__u32 flags = thread->flags;

	if (flags & (SLIP_THREAD_IN_FAULT | SLIP_THREAD_IN_MEMORY_CALL)) {
		return SLIP_PART_MEMORY;
	}
	if (flags & SLIP_THREAD_CONNECTING) {
		return SLIP_PART_CONNECT;
	}
	if (flags & SLIP_THREAD_TRANSFERS) {
		return SLIP_PART_TRANSFER;
	}
	return flags & SLIP_THREAD_BOOTS ? SLIP_PART_BOOT : SLIP_PART_CODE;
}

/* The thread has a CPU. What comes from now on finds it busy, until it waits for events again. */
static __always_inline void note_running(struct slip_thread *thread, __u64 since)
{
	if (thread->flags & SLIP_THREAD_POLLS) {
		thread->looped_ns = since;
	}
	thread->flags &= ~(SLIP_THREAD_OFF | SLIP_THREAD_POLLS);
	thread->endpoint = SLIP_ENDPOINT_NONE;
	thread->part = running_part(thread);
}

/* An event loop reads what came at `arrived`. It has kept that waiting, unless it was waiting for it. Data that came first is read first
 * as a rule, so what has been counted already is what is before the last one that was read. */
static __always_inline void note_waited(struct slip_thread *thread, __u64 arrived, __u64 now)
{
	__u64 begin = arrived > thread->loop_blocked_until_ns ? arrived : thread->loop_blocked_until_ns;

	if (arrived <= thread->looped_ns || now <= begin) {
		return;
	}
	begin_change(thread);
	thread->loop_blocked_ns += now - begin;
	thread->loop_blocked_until_ns = now;
	end_change(thread);
}

/* The thread runs, whatever we were told: some kernels run no program while some tasks have the CPU. */
static __always_inline void is_running(const struct task_struct *task, struct slip_thread *thread, __u64 now)
{
	if (!(thread->flags & SLIP_THREAD_OFF)) {
		return;
	}
	/* Since it got the CPU, as far as the scheduler has counted it. */
	__u64 ran = task->se.sum_exec_runtime - task->se.prev_sum_exec_runtime;
	account(thread, ran < now - thread->since_ns ? now - ran : now);
	if (thread->part == SLIP_IDLE) {
		thread->pending_ns = thread->since_ns;
	}
	note_running(thread, thread->since_ns);
}

/* All up to now is accounted for, and from now on these flags hold in place of those. */
static __always_inline void change(const struct task_struct *task, struct slip_thread *thread, __u32 without, __u32 with)
{
	__u64 now = bpf_ktime_get_ns();

	is_running(task, thread, now);
	account(thread, now);
	thread->flags = (thread->flags & ~without) | with;
	thread->part = running_part(thread);
	thread->endpoint = thread->part == SLIP_PART_TRANSFER ? thread->last_endpoint : SLIP_ENDPOINT_NONE;
}

/* A page fault begins, of whose way into the kernel and back we see nothing: so long it has been one already. */
static __always_inline void begin_fault(const struct task_struct *task, struct slip_thread *thread, __u64 unseen_ns)
{
	__u64 now = bpf_ktime_get_ns();

	is_running(task, thread, now);
	account(thread, now - unseen_ns);
	thread->flags |= SLIP_THREAD_IN_FAULT;
	thread->part = running_part(thread);
	thread->endpoint = SLIP_ENDPOINT_NONE;
}

static __always_inline void move(__u64 *to, __u64 *from)
{
	for (__u32 part = 0; part < SLIP_PARTS; part++) {
		to[part] += from[part];
		from[part] = 0;
	}
}

struct search {
	const struct slip_thread *thread;
	__u64 socket;
	__u32 found;
};

static long find_one(const void *map, const __u32 *number, const void *value, void *context)
{
	struct search *search = context;
	__u32 at = *number;

	if (at < SLIP_OPEN && search->thread->open[at].socket == search->socket) {
		search->found = at;
		return 1;
	}
	return 0;
}

/* The request of this connection, or a free place for 0. */
static __always_inline struct slip_open *find_open(struct slip_thread *thread, __u64 socket)
{
	struct search search = {.thread = thread, .socket = socket, .found = SLIP_OPEN};

	/* Nearly always it is the only one. */
	if (thread->open[0].socket == socket) {
		return &thread->open[0];
	}
	if (!socket || thread->opened) {
		bpf_for_each_map_elem(&open_places, find_one, &search, 0);
	}
	return search.found < SLIP_OPEN ? &thread->open[search.found] : NULL;
}

/* A request begins, with what the thread has done since it was woken. */
static __always_inline void begin_request(struct slip_thread *thread, __u64 socket, __u64 queued, __u64 now)
{
	struct slip_open *open = find_open(thread, 0);
	__u64 begin = is_open(thread) ? now : thread->pending_ns;

	account(thread, now);
	if (!open) {
		thread->crowded++;
		return;
	}
	begin_change(thread);
	if (is_open(thread)) {
		thread->is_shared = 1;
		move(thread->current, thread->tail);
	}
	open->socket = socket;
	open->queued_ns = queued && queued < begin ? queued : begin;
	open->begin_ns = begin;
	open->response_ns = 0;
	thread->opened++;
	end_change(thread);
}

/* Part of the response has been sent. Whether more comes is not known: what came since the last one belongs before it. */
static __always_inline void note_response(struct slip_thread *thread, struct slip_open *open, __u64 now)
{
	account(thread, now);
	begin_change(thread);
	move(thread->current, thread->tail);
	if (!open->response_ns) {
		thread->responded++;
	}
	open->response_ns = now;
	end_change(thread);
}

/* Tells of a request that ends now; the time up to now is accounted for. */
static __always_inline void end_request(struct slip_thread *thread, struct slip_open *open, __u64 now)
{
	__u32 zero = 0;
	struct slip_served *event = bpf_map_lookup_elem(&served_scratch, &zero);

	if (!event) {
		return;
	}
	event->kind = SLIP_EVENT_SERVED;
	event->pid = thread->pid;
	event->tid = thread->tid;
	event->flags = (thread->is_shared ? SLIP_SERVED_SHARED : 0) | (thread->flags & SLIP_THREAD_STARTED ? SLIP_SERVED_STARTED : 0)
		| (thread->flags & SLIP_THREAD_RUNS ? SLIP_SERVED_RUN : 0);
	event->queued_ns = open->queued_ns;
	event->begin_ns = open->begin_ns;
	event->response_ns = open->response_ns ? open->response_ns : now;
	event->end_ns = now;
	for (__u32 part = 0; part < SLIP_PARTS; part++) {
		event->serving[part] = thread->is_shared ? 0 : thread->current[part];
		event->after[part] = thread->is_shared ? 0 : thread->tail[part];
	}
	begin_change(thread);
	if (open->response_ns) {
		thread->responded--;
	}
	open->socket = 0;
	thread->opened--;
	thread->ended++;
	if (!thread->opened) {
		move(thread->serving, thread->current);
		move(thread->after, thread->tail);
		thread->pending_ns = now;
		thread->is_shared = 0;
		thread->flags &= ~(SLIP_THREAD_STARTED | SLIP_THREAD_BOOTS | SLIP_THREAD_CONNECTING);
	}
	end_change(thread);
	if (bpf_ringbuf_output(&served, event, sizeof *event, BPF_RB_NO_WAKEUP)) {
		count_budget(SLIP_BUDGET_LOST);
	}
}

struct ending {
	struct slip_thread *thread;
	__u64 now;
	bool all;
};

static long end_one(const void *map, const __u32 *number, const void *value, void *context)
{
	struct ending *ending = context;
	__u32 at = *number;
	struct slip_thread *thread = ending->thread;

	if (at < SLIP_OPEN && thread->open[at].socket && (ending->all || thread->open[at].response_ns)) {
		end_request(thread, &thread->open[at], ending->now);
	}
	return thread->opened ? 0 : 1;
}

/* The thread goes to wait for its next request: those that have been answered have ended, or all. */
static __always_inline void end_requests(struct slip_thread *thread, __u64 now, bool all)
{
	struct ending ending = {.thread = thread, .now = now, .all = all};

	if (all ? thread->opened : thread->responded) {
		bpf_for_each_map_elem(&open_places, end_one, &ending, 0);
	}
}

#endif
