#ifndef SLIP_BUDGET_H
#define SLIP_BUDGET_H

/* What budget.bpf.c and its loader tell each other. `crates/probe/src/budget/wire.rs` has the same. */

#include <linux/types.h>

/* What a moment of a thread is spent on, as `model::Part`, which says what each means. */
enum slip_part {
	SLIP_PART_CODE,
	SLIP_PART_BOOT,
	SLIP_PART_MEMORY,
	SLIP_PART_CONNECT,
	SLIP_PART_TRANSFER,
	SLIP_PART_WAIT,
	SLIP_PART_CLIENT,
	SLIP_PART_WAKE,
	SLIP_PART_PREEMPTED,
	SLIP_PART_LOCK,
	SLIP_PART_GIL,
	SLIP_PART_DISK,
	SLIP_PART_SLEEP,
	SLIP_PART_OTHER,
	SLIP_PARTS,
	/* Waiting for a request: no part of one. */
	SLIP_IDLE = SLIP_PARTS,
	/* Not known before what wakes the thread: it waits for several things. */
	SLIP_SEVERAL,
};

/* Servers that are told apart. The last one stands for all others. */
#define SLIP_ENDPOINTS 16
#define SLIP_ENDPOINT_OTHERS (SLIP_ENDPOINTS - 1)
#define SLIP_ENDPOINT_NONE 255

#define SLIP_PLACE_NONE 0xffffffff

/* Requests that a thread may have open at once. Further ones are counted, and their time is that of the thread alone. */
#define SLIP_OPEN 32

/* Longest path of a UNIX socket (`sun_path`). */
#define SLIP_PATH_BYTES 108

struct slip_endpoint_key {
	__u16 family;
	/* As in `struct sockaddr_in`: the first byte is the higher one. */
	__u16 port;
	/* IPv4 in the first four bytes, IPv6, or the path of a UNIX socket, in which an abstract name begins with a zero byte. */
	__u8 address[SLIP_PATH_BYTES];
};

/* What was spoken first on a connection to an endpoint. */
enum slip_protocol {
	SLIP_PROTOCOL_UNKNOWN,
	SLIP_PROTOCOL_REDIS,
	SLIP_PROTOCOL_MYSQL,
	SLIP_PROTOCOL_POSTGRESQL,
	SLIP_PROTOCOL_MEMCACHED,
	SLIP_PROTOCOL_HTTP,
	SLIP_PROTOCOL_TLS,
};

struct slip_endpoint_time {
	__u64 connects, calls, connect_ns, transfer_ns, wait_ns, wake_ns;
};

/* Where a call to a server is, as `model::CallPart`, which says what each means. */
enum slip_call_part {
	SLIP_CALL_CONNECT,
	SLIP_CALL_FIRST,
	SLIP_CALL_TLS,
	SLIP_CALL_WRITE,
	SLIP_CALL_FLIGHT,
	SLIP_CALL_QUEUE,
	SLIP_CALL_WORK,
	SLIP_CALL_REMOTE,
	SLIP_CALL_WOKEN,
	SLIP_CALL_RUNNING,
	SLIP_CALL_READ,
	SLIP_CALL_PARTS,
};

/* A power of two. */
#define SLIP_BUCKETS 64

/* So much is looked at of what a call sends, and so long may the name of a command be. */
#define SLIP_FIRST_BYTES 16
#define SLIP_COMMAND_BYTES 16

/* The kernel's name of a thread (TASK_COMM_LEN). */
#define SLIP_TASK_NAME_BYTES 16

struct slip_call_times {
	/* Calls that ended. */
	__u64 calls;
	struct {
		__u64 ns;
		__u32 buckets[SLIP_BUCKETS];
	} parts[SLIP_CALL_PARTS];
};

struct slip_command_key {
	__u32 endpoint;
	char name[SLIP_COMMAND_BYTES];
};

struct slip_command_times {
	__u64 calls, ns, longest_ns;
};

/* A request that a thread works on. */
struct slip_open {
	/* Its connection's `struct sock`; 0 for a free place. */
	__u64 socket;
	__u64 queued_ns, begin_ns, response_ns;
};

/* A thread of a target, and all of its time since it was first seen. What each event needs comes first, so that it is in as few lines of
 * the cache as may be: after a switch they have to be fetched. */
struct slip_thread {
	/* Odd while it is being changed. */
	__u64 sequence;
	/* Up to here all time is accounted for; what came since is `part`'s. */
	__u64 since_ns;
	__u32 part;
	/* SLIP_THREAD_*. */
	__u32 flags;
	/* When the thread became ready to run; 0 if it is not. */
	__u64 ready_ns;
	/* Whose WAIT or WAKE it is; SLIP_ENDPOINT_NONE for nobody's. */
	__u32 endpoint;
	__u32 opened, responded;
	/* The connected socket that it sent on last, and the `struct file` that it has waited for it by; 0 as soon as either may be
	 * another one. So calls one after the other on one connection ask nothing of its socket. */
	__u32 last_endpoint;
	__u64 last_socket, last_file;
	/* Where the exchanges are that it asked on last, and that it was woken for; SLIP_PLACE_NONE for none. */
	__u32 last_place, woken_place;
	/* Of the connection that is being made, whose endpoint is not known yet: how much of its time it has taken so far, when it began
	 * and when it was there. */
	__u64 connecting_ns, connect_begin_ns, connected_ns;
	/* The number of its file. */
	__u32 connecting_file;
	/* Something was sent on a connection without an exchange, and no answer read yet. */
	__u32 asked;
	/* When a call of it was chosen to be looked at last, and what decides on the next. */
	__u64 chosen_ns, random;
	/* Of what is open, up to the last response, and since. */
	__u64 current[SLIP_PARTS], tail[SLIP_PARTS];
	struct slip_endpoint_time endpoints[SLIP_ENDPOINTS];
	__u32 pid, tid;
	__u64 first_ns;
	/* The time since the last request ended, or since the thread was woken, whichever is later: a request begins with it. */
	__u64 pending_ns;
	__u64 idle_ns, shared_ns;
	/* Data had come that the thread read later: it was busy, and not waiting for events. */
	__u64 loop_blocked_ns;
	__u64 between[SLIP_PARTS], serving[SLIP_PARTS], after[SLIP_PARTS];
	/* Requests that ended; those that began while others were open, and had no place among them. */
	__u64 ended, crowded;
	/* In requests: page faults, and calls that map memory or give it back. */
	__u64 faults, memory_calls;
	/* The most memory that the process ever had at a time, in pages, once its last thread has ended. */
	__u64 most_pages;
	/* When it came back from waiting for events; up to when `loop_blocked_ns` is counted. */
	__u64 looped_ns, loop_blocked_until_ns;
	struct slip_open open[SLIP_OPEN];
	/* Since none was open, more than one has been. */
	__u32 is_shared;
	__u32 reserved;
	/* Of SLIP_PART_MEMORY, as far as it has been told who called. */
	__u64 memory_told_ns;
};

/* Off its CPU, as far as we were told. */
#define SLIP_THREAD_OFF 1
#define SLIP_THREAD_IN_FAULT 2
#define SLIP_THREAD_IN_MEMORY_CALL 4
#define SLIP_THREAD_CONNECTING 8
#define SLIP_THREAD_TRANSFERS 16
#define SLIP_THREAD_BOOTS 32
/* PHP has begun the request itself: not one that FPM answers alone, as its status page. */
#define SLIP_THREAD_STARTED 64
/* Since we have seen it, it has not been between two requests yet: what it does is not known, and not counted. */
#define SLIP_THREAD_UNKNOWN 128
/* Blocked in epoll_wait. */
#define SLIP_THREAD_POLLS 256
/* It has waited by epoll_wait with a request open: an event loop. */
#define SLIP_THREAD_LOOPS 512

/* It serves no request: from its begin to its end, all that it does is one. */
#define SLIP_THREAD_RUNS 1024
/* Such a run has not begun yet: the program is being loaded, or its interpreter. */
#define SLIP_THREAD_STARTS 2048

/* Constants, set before the programs are loaded. */
struct slip_budget_options {
	/* What a page fault takes beyond what programs see of it, its begin and its end. */
	__u64 unseen_fault_ns;
	/* For measurements: no thread is found, and the kernel drops the code that would have done something with one. */
	__u8 does_nothing;
	/* Programs come to sockets by the files of system calls. The kernel's helpers do not take such a socket, and its fields can only be
	 * copied; what is kept of it is found by its address. */
	__u8 by_address;
};

/* What is watched. */
struct slip_budget_target {
	/* Where the runtime of CPython lies, whose lock is the global one; 0 for none. */
	__u64 runtime_begin, runtime_end;
	/* The inode of the script with whose opening its run begins; 0 for none. */
	__u64 script;
	/* SLIP_RUN_*. */
	__u32 run;
	/* SLIP_TARGET_*. */
	__u32 flags;
};

/* It runs no interpreter: who calls for memory is told by its stack. */
#define SLIP_TARGET_SITES 1

enum slip_run {
	/* It serves requests. */
	SLIP_RUN_NONE,
	/* Its run begins now. */
	SLIP_RUN_NOW,
	/* Its run begins when it has become another program. */
	SLIP_RUN_EXEC,
	/* Its run begins after that, as soon as that program is told to have started. */
	SLIP_RUN_STARTED,
};

enum slip_budget_event_kind { SLIP_EVENT_SERVED = 1, SLIP_EVENT_THREAD_ENDED = 2, SLIP_EVENT_CALL = 3 };

/* A request that has ended. */
struct slip_served {
	__u32 kind;
	__u32 pid, tid;
	/* SLIP_SERVED_*. */
	__u32 flags;
	__u64 queued_ns, begin_ns, response_ns, end_ns;
	/* Zero if the thread had others open meanwhile. */
	__u64 serving[SLIP_PARTS], after[SLIP_PARTS];
};

#define SLIP_SERVED_SHARED 1
#define SLIP_SERVED_STARTED 2
/* No request: the whole run of a thread. */
#define SLIP_SERVED_RUN 4

/* A call that was slow. */
struct slip_call {
	__u32 kind;
	__u32 pid, tid;
	__u32 endpoint;
	__u64 end_ns;
	__u64 parts[SLIP_CALL_PARTS];
	char command[SLIP_COMMAND_BYTES];
	/* Who had the CPU last that the thread was ready for, in SLIP_CALL_RUNNING, if SLIP_CALL_TAKEN; no name for nobody. */
	char taker[SLIP_TASK_NAME_BYTES];
	/* SLIP_CALL_*. */
	__u32 flags;
	__u32 reserved;
};

#define SLIP_CALL_TAKEN 1
/* By a thread of a target. */
#define SLIP_CALL_TAKEN_BY_WORKER 2

/* A thread as it was at some moment. */
struct slip_listed {
	__u64 now_ns;
	struct slip_thread thread;
};

struct slip_thread_ended {
	__u32 kind;
	__u32 reserved;
	struct slip_listed listed;
};

enum slip_budget_counter {
	/* Requests, or threads that ended, for which the ring had no room. */
	SLIP_BUDGET_LOST,
	/* Threads that could not be remembered. */
	SLIP_BUDGET_THREADS_LOST,
	/* Stacks of who calls for memory, for which the ring had no room. */
	SLIP_BUDGET_STACKS_LOST,
	SLIP_BUDGET_COUNTERS,
};

/* What is asked of the kernel's memory management, as `model::MemoryCall`. */
enum slip_memory_kind {
	SLIP_MEMORY_MMAP,
	SLIP_MEMORY_MUNMAP,
	SLIP_MEMORY_BRK,
	SLIP_MEMORY_MADVISE,
	SLIP_MEMORY_MREMAP,
	SLIP_MEMORY_MPROTECT,
	/* No call: a page is touched. */
	SLIP_MEMORY_FAULT,
	SLIP_MEMORY_KINDS,
};

/* Where it is asked: one depth of one thread's stack. */
struct slip_memory_place {
	__u32 pid, kind;
	__u64 ip, sp;
	/* In the code of the program itself; 0 if that is not known. */
	__u64 caller;
};

struct slip_memory_time {
	__u64 calls, ns;
	/* Stacks that were copied, and when the last one was: of `ns`. */
	__u64 stacks, stacks_ns;
};

struct slip_memory_count {
	__u64 calls, ns;
};

/* Of the stack so many pages are copied: the first to its end. */
#define SLIP_STACK_PAGE 4096
#define SLIP_STACK_PAGES 4

struct slip_memory_stack {
	struct slip_memory_place place;
	__u32 tid;
	/* Of the stack; the rest is not sent. */
	__u32 length;
	/* What the place has taken since its last stack. */
	__u64 ns;
	/* What a function keeps of its caller's registers. */
	__u64 bx, bp, r12, r13, r14, r15;
	/* One page more than is copied, so that a copy is within it by the verifier's reckoning. */
	__u8 stack[(SLIP_STACK_PAGES + 1) * SLIP_STACK_PAGE] __attribute__((aligned(8)));
};

#endif
