/* Where the time of workers goes: in which request, and in which part of it each thread is at each moment. */

#include "account.h"
#include "exchange.h"
#include "file.h"
#include "memory.h"
#include "protocol.h"
#include "run.h"
#include "socket.h"

char LICENSE[] SEC("license") = "Dual MIT/GPL";

/* An arrival explains a wake-up of the same CPU that comes so soon after it: the one calls for the other. */
#define WOKEN_BY_ARRIVAL_NS 20000

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1024);
	__type(key, struct taker);
	__type(value, struct taken);
} takers SEC(".maps");

/* What a taker begins with: too large for the stack. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct taken);
} no_time SEC(".maps");

/* A program on a system call's tracepoint gets this (tracing/events/syscalls). */
struct call_entry {
	__u64 common;
	__s64 number;
	__u64 arguments[6];
};

struct call_exit {
	__u64 common;
	__s64 number;
	__s64 result;
};

/* Of nearly all tasks nothing is kept, which one load tells. */
static __always_inline struct slip_thread *thread_of(struct task_struct *task)
{
	if (options.does_nothing || !task->bpf_storage) {
		return NULL;
	}
	return bpf_task_storage_get(&threads, task, 0, 0);
}

static __always_inline struct slip_thread *own_thread(void)
{
	return thread_of(bpf_get_current_task_btf());
}

/* NULL if the task has no such socket. */
static __always_inline struct sock *socket_of_number(struct task_struct *task, __u32 number)
{
	const struct file *file = file_of_number(task, number);
	return type_of_file(file) == TYPE_SOCKET ? (struct sock *) socket_of_file(file) : NULL;
}

/* The one that the system call was about which the running thread is about to leave. */
static __always_inline struct sock *socket_of_own_call(void)
{
	struct task_struct *task = bpf_get_current_task_btf();
	const struct pt_regs *regs = (const struct pt_regs *) bpf_task_pt_regs(task);
	return regs ? socket_of_number(task, regs->rdi) : NULL;
}

/* What a thread waits for at this file. */
static __always_inline __u32 wait_at_file(struct slip_thread *thread, const struct file *file)
{
	if (thread->last_file && (__u64) file == thread->last_file) {
		thread->endpoint = thread->last_endpoint;
		return SLIP_PART_WAIT;
	}
	__u32 type = type_of_file(file);
	if (type != TYPE_SOCKET) {
		return type == TYPE_FIFO || type == TYPE_CHARACTER || !type ? SLIP_PART_OTHER : SLIP_PART_DISK;
	}
	const struct sock *socket = socket_of_file(file);
	if (!socket) {
		return SLIP_PART_OTHER;
	}
	if ((__u64) socket == thread->last_socket) {
		thread->last_file = (__u64) file;
		thread->endpoint = thread->last_endpoint;
		return SLIP_PART_WAIT;
	}
	if (BPF_CORE_READ(socket, __sk_common.skc_state) == TCP_LISTEN) {
		return SLIP_IDLE;
	}
	switch (role_of(socket)) {
		case ROLE_INBOUND:
			return SLIP_PART_CLIENT;
		case ROLE_OUTBOUND:
			thread->endpoint = endpoint_of(socket);
			return SLIP_PART_WAIT;
		default:
			return SLIP_PART_OTHER;
	}
}

/* What a thread is blocked by. What it polls is in its memory, which can be read only where it is the one that leaves the CPU. */
static __always_inline __u32 blocked_part(struct task_struct *task, struct slip_thread *thread, const struct pt_regs *regs, bool leaves)
{
	__s64 call = regs->orig_rax;
	__u32 number = regs->rdi;
	bool polls = call == 7 || call == 271; /* poll, ppoll */

	/* First what threads wait for most often: each question here takes its time. */
	if (polls && (regs->rsi != 1 || !leaves || bpf_probe_read_user(&number, sizeof number, (const void *) regs->rdi))) {
		return regs->rsi ? SLIP_SEVERAL : SLIP_PART_SLEEP;
	}
	if (polls || (call >= 0 && takes_file(call))) {
		return wait_at_file(thread, file_of_number(task, number));
	}
	__u32 other = BPF_CORE_READ_BITFIELD_PROBED(task, in_iowait) ? SLIP_PART_DISK : SLIP_PART_OTHER;
	if (call < 0) {
		/* No system call: a page. */
		return other == SLIP_PART_DISK ? SLIP_PART_DISK : SLIP_PART_MEMORY;
	}
	switch (call) {
		case 23: case 270: /* select, pselect6 */
			return regs->rdi ? SLIP_SEVERAL : SLIP_PART_SLEEP;
		case 232: case 281: case 441: /* epoll_wait, epoll_pwait, epoll_pwait2 */
			return SLIP_SEVERAL;
		case 35: case 230: /* nanosleep, clock_nanosleep */
			return SLIP_PART_SLEEP;
		case 72: case 73: case 65: case 220: /* fcntl, flock, semop, semtimedop */
			return SLIP_PART_LOCK;
		case 9: case 10: case 11: case 12: case 25: case 28: /* mmap, mprotect, munmap, brk, mremap, madvise */
			return other == SLIP_PART_DISK ? SLIP_PART_DISK : SLIP_PART_MEMORY;
		case 2: case 4: case 5: case 6: case 21: case 82: case 83: case 87: case 257: case 262: case 263: case 269: case 332:
			/* open, stat, fstat, lstat, access, rename, mkdir, unlink, openat, newfstatat, unlinkat, faccessat, statx */
			return SLIP_PART_DISK;
		case 202: { /* futex */
			const struct slip_budget_target *target = bpf_map_lookup_elem(&budget_targets, &thread->pid);
			return target && regs->rdi >= target->runtime_begin && regs->rdi < target->runtime_end ? SLIP_PART_GIL : SLIP_PART_LOCK;
		}
		default:
			return other;
	}
}

/* epoll_wait, epoll_pwait, epoll_pwait2 */
static __always_inline bool waits_for_events(__s64 call)
{
	return call == 232 || call == 281 || call == 441;
}

/* Whether a thread waits until more can be sent: on the one file that its system call is about. */
static __always_inline bool waits_to_send(const struct pt_regs *regs)
{
	struct {
		__u32 number;
		__u16 events, happened;
	} polled = {};

	switch (regs->orig_rax) {
		case 1: case 20: case 40: case 44: case 46: case 296: case 307: /* write, writev, sendfile, sendto, sendmsg, pwritev, sendmmsg */
			return true;
		case 7: case 271: /* poll, ppoll: without POLLIN */
			return bpf_probe_read_user(&polled, sizeof polled, (const void *) regs->rdi) == 0 && !(polled.events & 1);
		default:
			return false;
	}
}

/* Whether a thread that waits like that may be about to begin a request. */
static __always_inline bool may_be_idle(__u32 part, const struct pt_regs *regs)
{
	return part == SLIP_IDLE || part == SLIP_SEVERAL || part == SLIP_PART_LOCK || (part == SLIP_PART_CLIENT && !waits_to_send(regs));
}

/* From now on the thread's time is known: it is between two requests. */
static __always_inline void begin_watch(struct slip_thread *thread, __u64 now)
{
	begin_change(thread);
	thread->flags &= ~SLIP_THREAD_UNKNOWN;
	thread->first_ns = thread->since_ns = thread->pending_ns = now;
	thread->idle_ns = thread->shared_ns = thread->loop_blocked_ns = thread->connecting_ns = 0;
	for (__u32 part = 0; part < SLIP_PARTS; part++) {
		thread->between[part] = thread->current[part] = thread->tail[part] = 0;
	}
	__builtin_memset(thread->endpoints, 0, sizeof thread->endpoints);
	end_change(thread);
}

/* The thread is blocked from now on. */
static __always_inline void block(struct task_struct *task, struct slip_thread *thread, __u64 now, bool leaves)
{
	const struct pt_regs *regs = (const struct pt_regs *) bpf_task_pt_regs(task);

	thread->endpoint = SLIP_ENDPOINT_NONE;
	thread->ready_ns = 0;
	if (!regs) {
		thread->part = SLIP_PART_OTHER;
		return;
	}
	__u32 part = blocked_part(task, thread, regs, leaves);
	/* One that PHP has begun ends as PHP says. */
	if (thread->responded && !(thread->flags & SLIP_THREAD_STARTED) && may_be_idle(part, regs)) {
		end_requests(thread, now, false);
	}
	if (thread->flags & SLIP_THREAD_UNKNOWN && (part == SLIP_IDLE || part == SLIP_SEVERAL)) {
		begin_watch(thread, now);
	}
	if (waits_for_events(regs->orig_rax)) {
		thread->flags |= SLIP_THREAD_POLLS | (is_open(thread) ? SLIP_THREAD_LOOPS : 0);
	}
	if (!is_open(thread) && !(thread->flags & SLIP_THREAD_RUNS)) {
		begin_change(thread);
		move(thread->between, thread->current);
		end_change(thread);
		part = SLIP_IDLE;
	} else if (part == SLIP_IDLE) {
		part = SLIP_PART_OTHER;
	} else if (thread->flags & SLIP_THREAD_CONNECTING) {
		part = SLIP_PART_CONNECT;
	}
	thread->part = part;
}

static __always_inline void leave(struct task_struct *task, struct slip_thread *thread, bool preempted)
{
	__u64 now = bpf_ktime_get_ns();

	is_running(task, thread, now);
	account(thread, now);
	if (preempted) {
		thread->part = SLIP_PART_PREEMPTED;
		thread->ready_ns = now;
	} else {
		block(task, thread, now, true);
	}
	thread->flags |= SLIP_THREAD_OFF;
}

/* Who had the CPU that the thread was ready for. */
static __always_inline void note_taker(const struct taker *taker, __u64 ns)
{
	struct taken *sum = bpf_map_lookup_elem(&takers, taker);
	__u32 zero = 0;

	if (!sum) {
		const struct taken *none = bpf_map_lookup_elem(&no_time, &zero);
		if (none) {
			bpf_map_update_elem(&takers, taker, none, BPF_NOEXIST);
		}
		sum = bpf_map_lookup_elem(&takers, taker);
	}
	if (sum) {
		__sync_fetch_and_add(&sum->ns, ns);
		__sync_fetch_and_add(&sum->buckets[bucket_of(ns) & (SLIP_BUCKETS - 1)], 1);
	}
}

static __always_inline void arrive(struct task_struct *previous, const struct task_struct *task, struct slip_thread *thread)
{
	__u64 now = bpf_ktime_get_ns();
	struct taker taker = {};
	bool is_taken = thread->ready_ns && now > thread->ready_ns + TAKEN_NS;

	account(thread, now);
	if (is_taken && thread->part != SLIP_IDLE) {
		if (previous->pid) {
			__builtin_memcpy(taker.name, previous->comm, sizeof taker.name);
			taker.flags = (thread_of(previous) ? SLIP_TAKER_WORKER : 0) | (previous->prio < task->prio ? SLIP_TAKER_PREFERRED : 0);
		}
		note_taker(&taker, now - thread->ready_ns);
	} else {
		is_taken = false;
	}
	if (thread->part == SLIP_IDLE) {
		/* We were not told that it was woken. */
		thread->pending_ns = now;
	}
	/* It runs for the first time since an answer came. */
	struct exchange *exchange = exchange_at(thread->part == SLIP_PART_PREEMPTED ? thread->last_place : thread->woken_place);
	if (exchange && exchange->running_ns < exchange->arrived_ns) {
		exchange->running_ns = now;
		if (is_taken) {
			note_taker_of_call(exchange, &taker, now);
		}
	}
	thread->woken_place = SLIP_PLACE_NONE;
	thread->ready_ns = 0;
	note_running(thread, now);
}

/* Tells a thread's times for the last time. */
static __always_inline void tell_end(const struct slip_thread *thread)
{
	struct slip_thread_ended *event = bpf_ringbuf_reserve(&served, sizeof *event, 0);

	if (!event) {
		count_budget(SLIP_BUDGET_LOST);
		return;
	}
	event->kind = SLIP_EVENT_THREAD_ENDED;
	event->reserved = 0;
	event->listed.now_ns = thread->since_ns;
	bpf_probe_read_kernel(&event->listed.thread, sizeof event->listed.thread, thread);
	bpf_ringbuf_submit(event, BPF_RB_NO_WAKEUP);
}

/* A thread leaves its CPU for ever. Newer kernels, 6.18 among them, tell of its end before they take back its memory: what that took comes after
 * what was told, and all is told again. Who has asked meanwhile lacks that alone. */
static __always_inline void note_dead(struct slip_thread *thread)
{
	/* A run that was told. */
	if (!(thread->flags & SLIP_THREAD_RUNS) || !(thread->flags & SLIP_THREAD_UNKNOWN)) {
		return;
	}
	account(thread, bpf_ktime_get_ns());
	begin_change(thread);
	move(thread->after, thread->current);
	thread->flags &= ~SLIP_THREAD_UNKNOWN;
	end_change(thread);
	tell_end(thread);
	thread->flags |= SLIP_THREAD_UNKNOWN;
}

/* Arguments: whether it was preempted, the task that leaves, the one that comes. */
SEC("tp_btf/sched_switch")
int account_switch(__u64 *context)
{
	struct task_struct *previous = (struct task_struct *) context[1], *next = (struct task_struct *) context[2];
	/* Threads of the kernel, among them who runs when nobody does, have no memory of their own. */
	/* TASK_DEAD: it has ended, and has no memory any more. */
	bool is_dead = previous->__state & 0x80;
	struct slip_thread *thread = previous->mm || is_dead ? thread_of(previous) : NULL;

	if (thread && is_dead) {
		note_dead(thread);
	} else if (thread) {
		leave(previous, thread, context[0] || previous->__state == 0);
	}
	thread = next->mm ? thread_of(next) : NULL;
	if (thread) {
		arrive(previous, next, thread);
	}
	return 0;
}

/* Whoever wakes the thread runs this on its own CPU, before the thread may get one. */
SEC("tp_btf/sched_waking")
int account_waking(__u64 *context)
{
	struct slip_thread *thread = thread_of((struct task_struct *) context[0]);
	__u32 zero = 0;

	if (!thread || !(thread->flags & SLIP_THREAD_OFF) || thread->ready_ns) {
		return 0;
	}
	__u64 now = bpf_ktime_get_ns();
	const struct arrival *arrival = bpf_map_lookup_elem(&arrivals, &zero);
	bool by_arrival = arrival && now - arrival->time_ns < WOKEN_BY_ARRIVAL_NS;
	if (thread->part == SLIP_SEVERAL) {
		thread->part = SLIP_PART_SLEEP;
		if (by_arrival) {
			if (arrival->role == ROLE_OUTBOUND) {
				thread->part = SLIP_PART_WAIT;
				thread->endpoint = arrival->endpoint;
			} else {
				thread->part = arrival->role == ROLE_INBOUND ? SLIP_PART_CLIENT : SLIP_PART_OTHER;
			}
		}
	}
	if (by_arrival && thread->part == SLIP_PART_WAIT) {
		struct exchange *exchange = exchange_at(arrival->place);
		if (exchange && exchange->woken_ns < exchange->arrived_ns) {
			exchange->woken_ns = now;
			thread->woken_place = arrival->place;
		}
	}
	account(thread, now);
	if (thread->part == SLIP_IDLE) {
		thread->pending_ns = now;
	}
	if (thread->part != SLIP_PART_WAIT) {
		thread->endpoint = SLIP_ENDPOINT_NONE;
	}
	thread->part = SLIP_PART_WAKE;
	thread->ready_ns = now;
	return 0;
}

/* Data has come for a socket, in any process or none. */
static __always_inline int note_arrival(struct sock *socket)
{
	__u32 zero = 0;
	struct arrival *arrival = bpf_map_lookup_elem(&arrivals, &zero);

	if (options.does_nothing || !arrival) {
		return 0;
	}
	__u64 now = bpf_ktime_get_ns();
	struct exchange *exchange = exchange_of_client(socket);
	if (exchange) {
		/* Where nobody tells when the server begins to send, that it has is told only after this. */
		note_answered(exchange, now);
		note_answer(exchange, now);
		if (!exchange->unread_ns) {
			exchange->unread_ns = now;
		}
		arrival->time_ns = now;
		arrival->role = ROLE_OUTBOUND;
		arrival->endpoint = exchange->endpoint;
		arrival->place = place_of(socket);
		return 0;
	}
	exchange = exchange_of_server(socket);
	if (exchange) {
		note_delivered(exchange, now);
		if (now - exchange->foreign_ns < FOREIGN_NS) {
			arrival->time_ns = 0;
			return 0;
		}
	}
	struct connection *connection = kept_of(socket, false);
	if (!connection && is_for_target(socket)) {
		connection = connection_of(socket);
	}
	if (!connection) {
		/* Of no target, or of one that has never used it. */
		if (exchange) {
			exchange->foreign_ns = now;
		}
		arrival->time_ns = 0;
		return 0;
	}
	arrival->time_ns = now;
	arrival->role = connection->role;
	arrival->endpoint = connection->endpoint;
	arrival->place = SLIP_PLACE_NONE;
	if (!connection->arrived_ns) {
		connection->arrived_ns = now;
	}
	return 0;
}

/* From now on the thread's calls are on this connection. */
static __always_inline void note_last(struct slip_thread *thread, const struct connection *connection, const struct sock *socket)
{
	thread->last_socket = (__u64) socket;
	thread->last_file = 0;
	thread->last_endpoint = connection->endpoint;
	thread->last_place = place_of(socket);
}

/* A thread begins to send. */
static __always_inline int note_sending(struct sock *socket)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct slip_thread *thread = thread_of(task);

	if (!thread || (__u64) socket != thread->last_socket) {
		struct exchange *exchange = options.does_nothing ? NULL : exchange_of_server(socket);
		if (exchange) {
			note_answered(exchange, bpf_ktime_get_ns());
		}
	}
	if (!thread || thread->flags & SLIP_THREAD_TRANSFERS) {
		return 0;
	}
	if ((__u64) socket != thread->last_socket) {
		struct connection *connection = connection_of(socket);
		if (!connection || connection->role != ROLE_OUTBOUND) {
			return 0;
		}
		note_last(thread, connection, socket);
	}
	/* What was connecting is connected: it begins to be used. */
	change(task, thread, SLIP_THREAD_IN_FAULT | SLIP_THREAD_CONNECTING, SLIP_THREAD_TRANSFERS);
	struct exchange *exchange = exchange_of_client(socket);
	if (!exchange) {
		exchange = new_exchange(socket, thread->last_endpoint, thread->since_ns);
	}
	if (exchange && !exchange->handshake_ns && !is_asked(exchange)) {
		exchange->begin_ns = thread->since_ns;
	}
	return 0;
}

/* A thread has sent to a server for the first time on this connection. */
static __always_inline void note_first(struct task_struct *task, struct slip_thread *thread, struct connection *connection,
		struct exchange *exchange)
{
	__u32 endpoint = connection->endpoint, protocol = protocol_of_call(task, connection->spoken);
	struct slip_call_times *times = bpf_map_lookup_elem(&call_times, &endpoint);
	__u64 begin = exchange && exchange->begin_ns ? exchange->begin_ns : thread->since_ns;
	__u64 connecting = connection->connecting_ns ? connection->connecting_ns : thread->connect_begin_ns;
	__u64 connected = connection->connected_ns ? connection->connected_ns : thread->connected_ns;

	connection->sent = 1;
	note_protocol(endpoint, protocol);
	if (exchange) {
		exchange->protocol = protocol;
		if (protocol == SLIP_PROTOCOL_TLS) {
			/* No call yet. */
			exchange->handshake_ns = begin;
			exchange->ended_ns = begin;
		}
	}
	if (times && connecting && connecting <= connected && connected <= begin) {
		add_part(times, SLIP_CALL_CONNECT, connected - connecting, 1);
		add_part(times, SLIP_CALL_FIRST, begin - connected, 1);
	}
	thread->connect_begin_ns = thread->connected_ns = 0;
}

/* A thread has sent to a server. */
static __always_inline void note_sent(struct task_struct *task, struct slip_thread *thread, struct connection *connection,
		struct sock *socket, __u32 length)
{
	struct exchange *exchange = exchange_of_client(socket);
	/* Read once, for the verifier. */
	__u32 endpoint = connection->endpoint;

	change(task, thread, SLIP_THREAD_TRANSFERS | SLIP_THREAD_IN_FAULT | SLIP_THREAD_CONNECTING, 0);
	note_last(thread, connection, socket);
	if (!exchange) {
		exchange = new_exchange(socket, endpoint, thread->since_ns);
	}
	if (!connection->sent) {
		note_first(task, thread, connection, exchange);
	}
	if (exchange) {
		note_question(task, thread, exchange, length, thread->since_ns);
	} else {
		thread->asked = 1;
	}
	barrier_var(endpoint);
	if (endpoint < SLIP_ENDPOINTS && thread->connecting_ns) {
		begin_change(thread);
		thread->endpoints[endpoint].connects++;
		thread->endpoints[endpoint].connect_ns += thread->connecting_ns;
		thread->connecting_ns = 0;
		end_change(thread);
	}
}

/* A thread has sent, or could not: the result is negative then. What is sent on a UNIX socket has come to the other side by then, whose arrival was
 * noted as what it is, and when; nothing else of the thread changes there. */
static __always_inline int note_sent_by(struct sock *socket, int sent)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct slip_thread *thread = thread_of(task);
	__u32 stop = SLIP_THREAD_TRANSFERS | SLIP_THREAD_IN_FAULT;
	bool has_come = READ_SOCKET(socket, __sk_common.skc_family) == AF_UNIX;

	if (thread && (__u64) socket == thread->last_socket && sent > 0) {
		struct exchange *exchange = exchange_of_client(socket);
		if (exchange && exchange->sent_ns) {
			__u64 now = exchange->delivered_ns;
			if (!has_come || now <= thread->since_ns || thread->flags & (stop | SLIP_THREAD_OFF)) {
				change(task, thread, stop, 0);
				now = thread->since_ns;
			}
			note_question(task, thread, exchange, sent, now);
			return 0;
		}
	} else if (!options.does_nothing && !has_come) {
		struct exchange *exchange = exchange_of_server(socket);
		if (exchange && exchange->answered_ns < exchange->taken_ns) {
			note_answered(exchange, bpf_ktime_get_ns());
		}
	}
	if (!thread) {
		return 0;
	}
	struct connection *connection = connection_of(socket);
	if (!connection) {
		return 0;
	}
	if (connection->role == ROLE_OUTBOUND && sent > 0) {
		note_sent(task, thread, connection, socket, sent);
		return 0;
	}
	if (thread->flags & stop) {
		change(task, thread, stop, 0);
	}
	if (connection->role == ROLE_INBOUND && sent > 0) {
		struct slip_open *open = find_open(thread, (__u64) socket);
		if (open) {
			note_response(thread, open, bpf_ktime_get_ns());
		}
	}
	return 0;
}

/* A thread has read from a server. */
static __always_inline void note_read(struct slip_thread *thread, const struct sock *socket)
{
	struct exchange *exchange = exchange_of_client(socket);
	__u32 endpoint = exchange ? exchange->endpoint : thread->last_endpoint;

	if (exchange ? !is_asked(exchange) || exchange->handshake_ns : !thread->asked) {
		return;
	}
	thread->asked = 0;
	if (exchange) {
		end_call(thread, exchange, bpf_ktime_get_ns());
	}
	if (endpoint < SLIP_ENDPOINTS) {
		thread->endpoints[endpoint].calls++;
	}
}

/* An event loop has read from a connection, or accepted and read. */
static __always_inline void read_in_loop(struct task_struct *task, struct slip_thread *thread, struct sock *socket)
{
	struct exchange *exchange = exchange_of_client(socket);
	struct connection *connection = exchange ? NULL : kept_of(socket, false);
	__u64 arrived = 0;

	if (exchange) {
		arrived = exchange->unread_ns;
		exchange->unread_ns = 0;
	} else if (connection) {
		arrived = connection->arrived_ns;
		if (connection->role == ROLE_OUTBOUND) {
			connection->arrived_ns = 0;
		}
	}
	if (arrived) {
		__u64 now = bpf_ktime_get_ns();
		is_running(task, thread, now);
		note_waited(thread, arrived, now);
	}
}

/* A thread has read; nothing at the end of the stream. */
static __always_inline int note_received(struct sock *socket, int received)
{
	if (slow_call_ns != ~0ULL) {
		forget_slow();
	}
	if (received < 0) {
		return 0;
	}
	struct task_struct *task = bpf_get_current_task_btf();
	struct slip_thread *thread = thread_of(task);
	if (thread && thread->flags & SLIP_THREAD_LOOPS) {
		read_in_loop(task, thread, socket);
	}
	if (thread && (__u64) socket == thread->last_socket) {
		if (received) {
			note_read(thread, socket);
		}
		return 0;
	}
	struct exchange *exchange = options.does_nothing ? NULL : exchange_of_server(socket);
	if (exchange && exchange->taken_ns < exchange->delivered_ns) {
		note_taken(exchange, bpf_ktime_get_ns());
	}
	if (!thread) {
		return 0;
	}
	struct connection *connection = connection_of(socket);
	if (!connection) {
		return 0;
	}
	if (connection->role == ROLE_OUTBOUND) {
		connection->spoken = 1;
		if (received) {
			note_read(thread, socket);
		}
		return 0;
	}
	if (connection->role != ROLE_INBOUND) {
		return 0;
	}
	if (thread->flags & SLIP_THREAD_RUNS) {
		leave_run(thread);
	}
	__u64 now = bpf_ktime_get_ns(), arrived = connection->arrived_ns;
	struct slip_open *open = find_open(thread, (__u64) socket);
	connection->arrived_ns = 0;
	is_running(task, thread, now);
	account(thread, now);
	if (open && received && !call_may_begin_request(task)) {
		return 0;
	}
	if (open && (open->response_ns || !received)) {
		/* The last one on this connection has ended, unless PHP goes on with it. */
		if (thread->flags & SLIP_THREAD_STARTED) {
			return 0;
		}
		end_request(thread, open, now);
		open = NULL;
	}
	if (!open && received) {
		if (thread->flags & SLIP_THREAD_UNKNOWN) {
			begin_watch(thread, now);
		}
		begin_request(thread, (__u64) socket, arrived, now);
	}
	return 0;
}

/* The rung `tracepoints`: where sockets tell by themselves. */

SEC("tp_btf/sk_data_ready")
int account_arrival(__u64 *context)
{
	return note_arrival((struct sock *) context[0]);
}

SEC("tp_btf/tcp_sendmsg_locked")
int account_sending(__u64 *context)
{
	return note_sending((struct sock *) context[0]);
}

/* Arguments: the socket, the result. */
SEC("tp_btf/sock_send_length")
int account_sent(__u64 *context)
{
	return note_sent_by((struct sock *) context[0], context[1]);
}

/* The same. */
SEC("tp_btf/sock_recv_length")
int account_received(__u64 *context)
{
	return note_received((struct sock *) context[0], context[1]);
}

/* The rung `fentry`: the kernel's functions that do the same. They are called by pointers, or from another file: sock_sendmsg() and
 * sock_recvmsg() are not, and compilers put them into their callers, where nobody sees them. */

SEC("fentry/sock_def_readable")
int account_readable(__u64 *context)
{
	return note_arrival((struct sock *) context[0]);
}

SEC("fentry/tcp_sendmsg_locked")
int account_sendmsg(__u64 *context)
{
	return note_sending((struct sock *) context[0]);
}

/* Arguments: the socket, the message, its size, the result. */
SEC("fexit/tcp_sendmsg")
int account_tcp_sent(__u64 *context)
{
	return note_sent_by((struct sock *) context[0], context[3]);
}

SEC("fexit/unix_stream_sendmsg")
int account_unix_sent(__u64 *context)
{
	struct sock *socket = ((struct socket *) context[0])->sk;
	return socket ? note_sent_by(socket, context[3]) : 0;
}

/* Arguments: the socket, the message, its size, flags, the result. */
static __always_inline int note_received_from(__u64 *context)
{
	struct sock *socket = ((struct socket *) context[0])->sk;
	return socket ? note_received(socket, context[4]) : 0;
}

SEC("fexit/inet_recvmsg")
int account_inet_received(__u64 *context)
{
	return note_received_from(context);
}

SEC("fexit/inet6_recvmsg")
int account_inet6_received(__u64 *context)
{
	return note_received_from(context);
}

SEC("fexit/unix_stream_recvmsg")
int account_unix_received(__u64 *context)
{
	return note_received_from(context);
}

/* The rung `syscalls`: the system calls that send and receive, of all processes, as any may be the other side. */

/* Linux has looked at a packet of TCP, and is about to hand on what is in it. */
SEC("tp_btf/tcp_probe")
int account_packet(__u64 *context)
{
	const char *numbers = ((const struct sk_buff *) context[1])->cb;
	__u32 begin = *(const __u32 *) (numbers + bpf_core_field_offset(struct tcp_skb_cb, seq));
	__u32 end = *(const __u32 *) (numbers + bpf_core_field_offset(struct tcp_skb_cb, end_seq));

	/* Else it acknowledges, and no more. */
	return begin != end ? note_arrival(socket_argument(context)) : 0;
}

/* Nobody tells when the other side of a UNIX socket gets what is sent, so it has come as soon as somebody begins to send it. */
SEC("tracepoint")
int account_send_call(struct call_entry *context)
{
	struct sock *socket = socket_of_number(bpf_get_current_task_btf(), context->arguments[0]);

	if (!socket) {
		return 0;
	}
	note_sending(socket);
	if (family_of(socket) == AF_UNIX) {
		struct sock *peer = (struct sock *) unix_peer(socket);
		if (peer) {
			note_arrival(peer);
		}
	}
	return 0;
}

SEC("tracepoint")
int account_send_call_end(struct call_exit *context)
{
	struct sock *socket = socket_of_own_call();
	return socket ? note_sent_by(socket, context->result) : 0;
}

SEC("tracepoint")
int account_receive_call_end(struct call_exit *context)
{
	struct sock *socket = context->result < 0 ? NULL : socket_of_own_call();
	return socket ? note_received(socket, context->result) : 0;
}

/* Arguments: the address, the registers, the error's code. */
SEC("tp_btf/page_fault_user")
int account_fault(__u64 *context)
{
	struct slip_thread *thread = own_thread();

	if (thread) {
		begin_fault(bpf_get_current_task_btf(), thread, options.unseen_fault_ns);
		thread->faults += is_open(thread);
	}
	return 0;
}

/* The kernel counts a fault when it has been dealt with. */
SEC("perf_event")
int account_fault_end(struct bpf_perf_event_data *context)
{
	struct slip_thread *thread = own_thread();

	if (thread && thread->flags & SLIP_THREAD_IN_FAULT) {
		struct task_struct *task = bpf_get_current_task_btf();
		change(task, thread, SLIP_THREAD_IN_FAULT, 0);
		note_memory(task, thread, SLIP_MEMORY_FAULT);
	}
	return 0;
}

/* mmap, munmap, brk, madvise, mremap, mprotect. */
SEC("tracepoint")
int account_memory_call(struct call_entry *context)
{
	struct slip_thread *thread = own_thread();

	if (thread) {
		change(bpf_get_current_task_btf(), thread, SLIP_THREAD_IN_FAULT, SLIP_THREAD_IN_MEMORY_CALL);
		thread->memory_calls += is_open(thread);
	}
	return 0;
}

SEC("tracepoint")
int account_memory_call_end(struct call_exit *context)
{
	struct slip_thread *thread = own_thread();

	if (thread && thread->flags & SLIP_THREAD_IN_MEMORY_CALL) {
		struct task_struct *task = bpf_get_current_task_btf();
		change(task, thread, SLIP_THREAD_IN_MEMORY_CALL, 0);
		note_memory(task, thread, kind_of_call(context->number));
	}
	return 0;
}

SEC("tracepoint")
int account_connect(struct call_entry *context)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct slip_thread *thread = thread_of(task);

	if (!thread) {
		return 0;
	}
	const struct sock *socket = socket_of_number(task, context->arguments[0]);
	if (socket && options.by_address) {
		forget_address(socket);
	}
	if (socket && BPF_CORE_READ(socket, sk_type) == SOCK_STREAM) {
		change(task, thread, SLIP_THREAD_IN_FAULT, SLIP_THREAD_CONNECTING);
		thread->last_socket = thread->last_file = 0;
		thread->last_place = SLIP_PLACE_NONE;
		thread->connecting_file = context->arguments[0];
		thread->connecting_ns = thread->connected_ns = 0;
		thread->connect_begin_ns = thread->since_ns;
	}
	return 0;
}

SEC("tracepoint")
int account_connect_end(struct call_exit *context)
{
	struct slip_thread *thread = own_thread();

	/* EINPROGRESS: it goes on. */
	if (thread && thread->flags & SLIP_THREAD_CONNECTING && context->result != -115) {
		change(bpf_get_current_task_btf(), thread, context->result < 0 ? SLIP_THREAD_CONNECTING : SLIP_THREAD_IN_FAULT, 0);
		thread->connected_ns = thread->since_ns;
	}
	return 0;
}

/* A connection is another state. Arguments: the socket, the old state, the new one. */
SEC("tp_btf/inet_sock_set_state")
int account_state(__u64 *context)
{
	struct sock *socket = socket_argument(context);
	struct connection *connection;

	if (context[2] == TCP_SYN_SENT && own_thread()) {
		connection = kept_of(socket, true);
		if (connection) {
			connection->connecting_ns = bpf_ktime_get_ns();
		}
	} else if (context[1] == TCP_SYN_SENT && context[2] == TCP_ESTABLISHED) {
		connection = kept_of(socket, false);
		if (connection) {
			connection->connected_ns = bpf_ktime_get_ns();
			/* One that was closed may have been at this address, and from this port. */
			forget_exchange(socket);
		}
	} else if (options.by_address && context[2] == TCP_CLOSE) {
		forget_address(socket);
	}
	return 0;
}

/* A connection that is closed before anything was sent on it: to a server, or to a client that gets no response. */
SEC("tracepoint")
int account_close(struct call_entry *context)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct slip_thread *thread = thread_of(task);

	if (!thread) {
		return 0;
	}
	/* It may be of the file that is closed, and another one have its place. */
	thread->last_socket = thread->last_file = 0;
	thread->last_place = SLIP_PLACE_NONE;
	if (thread->flags & SLIP_THREAD_CONNECTING && context->arguments[0] == thread->connecting_file) {
		change(task, thread, SLIP_THREAD_CONNECTING, 0);
	}
	bool may_end = is_open(thread) && !(thread->flags & SLIP_THREAD_STARTED);
	const struct sock *socket = may_end || options.by_address ? socket_of_number(task, context->arguments[0]) : NULL;
	if (socket && options.by_address) {
		forget_address(socket);
	}
	if (may_end) {
		struct slip_open *open = socket ? find_open(thread, (__u64) socket) : NULL;
		if (open && !open->response_ns) {
			change(task, thread, 0, 0);
			end_request(thread, open, thread->since_ns);
		}
	}
	return 0;
}

/* listen: from now on a thread of a target waits for connections there. */
SEC("tracepoint")
int account_listen_end(struct call_exit *context)
{
	const struct sock *socket = own_thread() && context->result == 0 ? socket_of_own_call() : NULL;

	if (socket) {
		note_listening(socket);
	}
	return 0;
}

/* accept, accept4: who asks for the next connection has done with the last one, unless it serves several. */
SEC("tracepoint")
int account_accept(struct call_entry *context)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct slip_thread *thread = thread_of(task);

	if (!thread) {
		return 0;
	}
	change(task, thread, SLIP_THREAD_IN_FAULT, 0);
	__u64 now = thread->since_ns;
	if (thread->flags & SLIP_THREAD_RUNS) {
		leave_run(thread);
	}
	/* Who has listened may be no target, and have done so, or handed it on, after we asked where targets do. */
	const struct sock *socket = socket_of_number(task, context->arguments[0]);
	if (socket) {
		note_listening(socket);
	}
	end_requests(thread, now, thread->flags & SLIP_THREAD_STARTED);
	if (thread->flags & SLIP_THREAD_UNKNOWN) {
		begin_watch(thread, now);
	}
	return 0;
}

/* PHP begins a request. */
SEC("uprobe")
int account_php_startup(void *context)
{
	struct slip_thread *thread = own_thread();

	if (thread && is_open(thread) && !(thread->flags & SLIP_THREAD_RUNS)) {
		change(bpf_get_current_task_btf(), thread, SLIP_THREAD_IN_FAULT, SLIP_THREAD_STARTED | SLIP_THREAD_BOOTS);
	}
	return 0;
}

/* PHP runs the first line of the program. */
SEC("uprobe")
int account_php_script(void *context)
{
	struct slip_thread *thread = own_thread();

	if (thread && thread->flags & SLIP_THREAD_BOOTS) {
		change(bpf_get_current_task_btf(), thread, SLIP_THREAD_IN_FAULT | SLIP_THREAD_BOOTS, 0);
	}
	return 0;
}

/* PHP has done with a request. */
SEC("uretprobe")
int account_php_shutdown(void *context)
{
	struct slip_thread *thread = own_thread();

	if (thread && thread->flags & SLIP_THREAD_STARTED) {
		change(bpf_get_current_task_btf(), thread, SLIP_THREAD_IN_FAULT, 0);
		end_requests(thread, thread->since_ns, true);
	}
	return 0;
}

/* A process has become another program. Arguments: the task, its old number, the program. */
SEC("tp_btf/sched_process_exec")
int account_exec(__u64 *context)
{
	struct task_struct *task = (struct task_struct *) context[0];
	struct slip_thread *thread = thread_of(task);
	__u32 pid = thread ? thread->pid : 0;
	const struct slip_budget_target *target = thread ? bpf_map_lookup_elem(&budget_targets, &pid) : NULL;

	if (!target || target->run < SLIP_RUN_EXEC) {
		return 0;
	}
	/* The program that was asked for makes way for another one, of which nobody tells when it has started. */
	bool has_begun = thread->open[0].socket == SLIP_RUN_SOCKET;
	change(task, thread, ~(__u32) 0, 0);
	leave_run(thread);
	begin_watch(thread, thread->since_ns);
	begin_change(thread);
	for (__u32 part = 0; part < SLIP_PARTS; part++) {
		thread->serving[part] = thread->after[part] = 0;
	}
	thread->flags |= SLIP_THREAD_RUNS | SLIP_THREAD_STARTS;
	end_change(thread);
	if (has_begun || target->run == SLIP_RUN_EXEC) {
		begin_run(thread, thread->since_ns);
	}
	return 0;
}

/* The program that a process has become begins. */
SEC("uprobe")
int account_main(void *context)
{
	struct slip_thread *thread = own_thread();

	if (thread && thread->flags & SLIP_THREAD_STARTS) {
		change(bpf_get_current_task_btf(), thread, SLIP_THREAD_IN_FAULT, 0);
		begin_run(thread, thread->since_ns);
	}
	return 0;
}

/* An interpreter that starts has opened a file: the script, perhaps. */
SEC("tracepoint")
int account_opened(struct call_exit *context)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct slip_thread *thread = thread_of(task);

	if (!thread || !(thread->flags & SLIP_THREAD_STARTS) || context->result < 0) {
		return 0;
	}
	__u32 pid = thread->pid;
	const struct slip_budget_target *target = bpf_map_lookup_elem(&budget_targets, &pid);
	const struct file *file = file_of_number(task, context->result);
	if (target && target->script && file && BPF_CORE_READ(file, f_inode, i_ino) == target->script) {
		change(task, thread, SLIP_THREAD_IN_FAULT, 0);
		begin_run(thread, thread->since_ns);
	}
	return 0;
}

/* exit_group, for all threads. */
SEC("tracepoint")
int account_exit_group(struct call_entry *context)
{
	struct slip_thread *thread = own_thread();

	if (thread && thread->flags & SLIP_THREAD_RUNS) {
		/* Nothing of the program runs any more: the kernel takes back what it had, which is its memory nearly always. */
		change(bpf_get_current_task_btf(), thread, SLIP_THREAD_IN_FAULT, SLIP_THREAD_IN_MEMORY_CALL);
		end_run(thread, thread->since_ns);
	}
	return 0;
}

SEC("tp_btf/sched_process_exit")
int account_exit(__u64 *context)
{
	struct task_struct *task = (struct task_struct *) context[0];
	struct slip_thread *thread = thread_of(task);

	if (!thread) {
		return 0;
	}
	change(task, thread, 0, 0);
	end_requests(thread, thread->since_ns, true);
	begin_change(thread);
	move(thread->between, thread->current);
	thread->most_pages = BPF_CORE_READ(task, signal, maxrss);
	end_change(thread);
	tell_end(thread);
	/* It is listed as long as nobody has waited for it, and does nothing. */
	thread->flags |= SLIP_THREAD_UNKNOWN;
	return 0;
}

/* How many pid namespaces there are around the loader's, by whose numbers it knows processes. */
__u32 pid_level;

/* The number that the loader knows a task by. It asks for none that has no number in its namespace. */
static __always_inline __u32 number_of(const struct task_struct *task)
{
	__u32 number = 0;

	if (!pid_level) {
		return BPF_CORE_READ(task, pid);
	}
	const struct pid *pid = BPF_CORE_READ(task, thread_pid);
	if (pid_level <= BPF_CORE_READ(pid, level)) {
		const char *numbers = (const char *) pid + bpf_core_field_offset(struct pid, numbers);
		bpf_probe_read_kernel(&number, sizeof number, numbers + pid_level * bpf_core_type_size(struct upid));
	}
	return number;
}

static __always_inline struct slip_thread *add_thread(struct task_struct *task, __u64 now)
{
	struct slip_thread *thread = bpf_task_storage_get(&threads, task, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);

	if (!thread) {
		count_budget(SLIP_BUDGET_THREADS_LOST);
		return NULL;
	}
	if (!thread->tid) {
		thread->tid = number_of(task);
		thread->pid = number_of(task->group_leader);
		thread->first_ns = thread->since_ns = thread->pending_ns = now;
		thread->endpoint = thread->last_endpoint = SLIP_ENDPOINT_NONE;
		thread->last_place = thread->woken_place = SLIP_PLACE_NONE;
		thread->flags = SLIP_THREAD_UNKNOWN;
	}
	return thread;
}

/* A thread of a target begins another one. Arguments: the parent, the child. */
SEC("tp_btf/sched_process_fork")
int account_fork(__u64 *context)
{
	struct task_struct *parent = (struct task_struct *) context[0], *child = (struct task_struct *) context[1];

	const struct slip_thread *of_parent = parent->tgid == child->tgid ? thread_of(parent) : NULL;

	if (of_parent) {
		__u64 now = bpf_ktime_get_ns();
		struct slip_thread *thread = add_thread(child, now);
		if (thread) {
			thread->flags |= SLIP_THREAD_OFF;
			thread->part = SLIP_PART_WAKE;
			if (of_parent->flags & SLIP_THREAD_RUNS) {
				begin_run(thread, now);
			}
		}
	}
	return 0;
}

/* Begins with the threads of targets that are there already. What they do at first is known only of those that wait. */
SEC("iter/task")
int add_threads(struct bpf_iter__task *context)
{
	struct task_struct *task = context->task;

	if (!task) {
		return 0;
	}
	if (!context->meta->seq_num) {
		/* The loader reads this list. */
		const struct pid *own = BPF_CORE_READ(bpf_get_current_task_btf(), thread_pid);
		pid_level = BPF_CORE_READ(own, level);
	}
	__u32 pid = number_of(task->group_leader);
	const struct slip_budget_target *target = bpf_map_lookup_elem(&budget_targets, &pid);
	if (!target || thread_of(task)) {
		return 0;
	}
	__u64 now = bpf_ktime_get_ns();
	struct slip_thread *thread = add_thread(task, now);
	if (thread && target->run == SLIP_RUN_NOW) {
		begin_run(thread, now);
	}
	if (thread && !task->on_cpu) {
		thread->flags |= SLIP_THREAD_OFF;
		if (task->__state) {
			block(task, thread, now, false);
		} else {
			thread->part = SLIP_PART_PREEMPTED;
		}
	}
	return 0;
}

/* A thread that changes while it is copied is copied again, so often. Each change takes less time than a copy. */
#define COPIES 16

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct slip_listed);
} listing SEC(".maps");

/* Lists all threads as they are now. */
SEC("iter/task")
int list_threads(struct bpf_iter__task *context)
{
	/* Read once: what the verifier knows of it does not hold for another read. */
	struct task_struct *task = context->task;
	struct slip_thread *thread = task ? thread_of(task) : NULL;
	__u32 zero = 0;
	struct slip_listed *listed = bpf_map_lookup_elem(&listing, &zero);

	if (!thread || !listed) {
		return 0;
	}
	for (int i = 0; i < COPIES; i++) {
		__u64 before = *(volatile __u64 *) &thread->sequence;
		barrier();
		bpf_probe_read_kernel(&listed->thread, sizeof listed->thread, thread);
		listed->now_ns = bpf_ktime_get_ns();
		barrier();
		if (before % 2 == 0 && *(volatile __u64 *) &thread->sequence == before) {
			bpf_seq_write(context->meta->seq, listed, sizeof *listed);
			break;
		}
	}
	return 0;
}
