#ifndef SLIP_SAMPLE_H
#define SLIP_SAMPLE_H

/* What the program in the kernel and the one that loads it tell each other. `crates/probe/src/wire.rs` has the same. */

#include <linux/types.h>

/* Deepest stack that is followed; deeper ones are cut at their outer end, and marked. */
#define SLIP_MAX_FRAMES 128

/* Room for one frame record: zend_execute_data has 80 bytes, _PyInterpreterFrame 88 before its locals, and of PyFrameObject of CPython
 * 3.8 and 3.9 the first 120 are read. */
#define SLIP_FRAME_STRIDE 120

/* What is copied beside the frames: the engine's globals, a thread state. */
#define SLIP_MAX_RANGES 6
#define SLIP_RANGE_BYTES 1024
#define SLIP_ANCHOR_BYTES 3072

/* An interpreter keeps the current thread's state where thread-local storage begins, in one of these. */
#define SLIP_MAX_SLOTS 2

/* Most of a thread state that is copied to find its frames. */
#define SLIP_STATE_BYTES 1024

/* Words of a frame record that tell stacks apart. */
#define SLIP_MAX_KEYS 2

/* Deepest stack of the kernel's own that is copied, its default for others too (`kernel.perf_event_max_stack`); what is deeper is cut
 * at its outer end. */
#define SLIP_MAX_KERNEL_FRAMES 127
#define SLIP_KERNEL_BYTES (8 * SLIP_MAX_KERNEL_FRAMES)

/* Most of a thread's stack of native code that is copied, from its innermost byte on. */
#define SLIP_NATIVE_BYTES 16384

/* A wait that was blocked for so long tells where in the kernel: the walk takes 1.9 us, and so at most 1.9 % of what is waited. */
#define SLIP_LONG_WAIT_NS 100000

/* A thread that lost its CPU so short a time ago and loses it again is taken to be where it was then, but for one time in
 * SLIP_LOOK_ONE_IN, by chance: one that wakes others loses it to them each time, for microseconds. So the stacks of one in
 * SLIP_LOOK_ONE_IN are right for all on average, and each wait is counted with its length. */
#define SLIP_STANDS_FOR_NS 1000000
#define SLIP_LOOK_ONE_IN 8

/* For so long a thread is taken to have the state that its local storage named, if that state still says that it is the thread's: the
 * storage lies in a page that nobody else needs, and costs 165 ns where switches between processes empty the TLB. What a thread has
 * given up has no frames. */
#define SLIP_STATE_NS 100000

/* Addresses that are named at once. */
#define SLIP_ADDRESSES 64

/* Part of the target's memory. */
struct slip_range {
	__u64 addr;
	__u32 bytes;
	/* From the thread state on, not from 0. */
	__u32 of_thread;
};

/* What has to be known of a process to walk the stacks of its threads. */
struct slip_target {
	struct slip_range ranges[SLIP_MAX_RANGES];
	/* Distance from the base of thread-local storage to where the thread state is kept; 0 for none. */
	__s64 slots[SLIP_MAX_SLOTS];
	/* Where the pointer to the innermost frame lies; with `has_threads`, from the thread state on. */
	__u64 current;
	/* A word that differs from one request of the process to the next; 0 for none. */
	__u64 request;
	/* Machine code that the engine has compiled: while it runs, no register holds an instruction. */
	__u64 compiled_begin, compiled_end;
	/* Below `current`, one more pointer to follow, and then this far: CPython 3.11 and 3.12. */
	__u32 indirect;
	__u32 is_indirect;
	__u32 has_threads;
	/* Where a thread state holds pthread_self(). */
	__u32 thread_id;
	__u32 range_count;
	/* 0 for a program without an interpreter. */
	__u32 frame_bytes;
	/* In a frame record: the pointer to the caller's. */
	__u32 previous;
	__u32 keys[SLIP_MAX_KEYS];
	/* The engine keeps the innermost frame in r14 and its instruction in r15. */
	__u32 in_registers;
	/* Given by the loader, in every event: a pid may be used again. */
	__u32 id;
	/* So much of a thread state has all of it that tells where its frames are. */
	__u32 state_bytes;
};

enum slip_event_kind { SLIP_EVENT_STACK = 1, SLIP_EVENT_SAMPLE = 2, SLIP_EVENT_WAIT = 3, SLIP_EVENT_KERNEL_STACK = 4,
	SLIP_EVENT_NATIVE = 5, SLIP_EVENT_ALLOCATED = 6, SLIP_EVENT_FREED = 7 };

/* The frame records of a stack, when it is seen for the first time, or again after a while. */
struct slip_stack {
	__u32 kind;
	__u32 id;
	__u64 key;
	__u32 depth;
	__u32 frame_bytes;
	/* Addresses of the records, then the records themselves, SLIP_FRAME_STRIDE apart. */
};

/* Where threads were blocked in the kernel, when it is seen for the first time. */
struct slip_kernel_stack {
	__u32 kind;
	__u32 bytes;
	__u64 key;
	/* Addresses, the innermost first. */
};

#define SLIP_SAMPLE_TRUNCATED 1
/* The target's memory could not be read: a part of it is not in memory. */
#define SLIP_SAMPLE_FAILED 2
/* The thread was in the kernel. */
#define SLIP_SAMPLE_IN_KERNEL 4
/* The thread has no state: it runs nothing of the interpreter's. */
#define SLIP_SAMPLE_NO_STATE 8
/* `instruction` is the innermost frame's; 0 if compiled code runs, which keeps none. */
#define SLIP_SAMPLE_HAS_INSTRUCTION 16

/* In the place of a system call: a page was missing; the thread was ready to go on and had to leave its CPU to another; or a signal or
 * a debugger has stopped it. */
#define SLIP_CALL_NONE -1
#define SLIP_CALL_PREEMPTED -2
#define SLIP_CALL_STOPPED -3

/* In the place of a file's type, as in `st_mode`: the call names no file, as `poll` to pass time. */
#define SLIP_FILE_NONE 1

/* In the place of the key of a stack, which is odd: it could not be read. */
#define SLIP_STACK_UNREADABLE 4

/* What the waits that are counted together have in common. */
struct slip_wait_key {
	/* Key of the stack; 0 if no frame runs. */
	__u64 stack;
	__u64 request;
	__u32 id;
	__u32 tid;
	__s32 call;
	/* Type of the file that the call is about, as in `st_mode`; 0 if not known. */
	__u32 file;
	/* Key of the kernel's own stack; 0 unless the wait was a long one. */
	__u64 kernel;
	/* The other side of the socket that the call is about: SLIP_PEER_* and where it is. */
	__u64 peer;
};

/* A port, as it is sent, above an IPv4 address, or the end of one of IPv6, each as it lies in memory. */
#define SLIP_PEER_PORT (1ull << 62)
/* What `hash_of_path()` makes of the name of a UNIX socket, the last 61 bits. */
#define SLIP_PEER_PATH (1ull << 61)

struct slip_wait {
	__u64 count;
	/* Until the thread was woken. */
	__u64 blocked_ns;
	/* From then on, until it had a CPU. */
	__u64 ready_ns;
};

/* A thread that is off its CPU now. */
struct slip_sleeper {
	struct slip_wait_key key;
	/* Of the thread's process. */
	__u32 pid;
	/* One more than the turn in whose map the key is known to be; 0 if it is not. */
	__u32 turn;
	/* CLOCK_MONOTONIC; 0 while it has a CPU. */
	__u64 begin_ns;
	/* 0 while it is not ready. */
	__u64 ready_ns;
};

/* What is kept of a thread. */
struct slip_thread {
	struct slip_sleeper sleeper;
	/* The last of the other kind: of waits for a CPU, when this is another one, or the reverse. */
	struct slip_wait_key other;
	__u32 other_turn;
	/* Of the targets, when `target` was copied. */
	__u32 generation;
	struct slip_target target;
	/* Address of the outermost frame. */
	__u64 outermost;
	/* The thread's state, and when its local storage said so. */
	__u64 state, state_ns;
	/* When its stack was last copied as it lost its CPU. */
	__u64 lost_cpu_ns;
};

/* One look at one thread: when the clock of its CPU goes off, or when it waits as it has not waited lately. */
struct slip_sample {
	__u32 kind;
	__u32 id;
	/* CLOCK_MONOTONIC. */
	__u64 time_ns;
	__u32 tid;
	__u32 flags;
	/* Key of the stack; 0 if no frame runs. */
	__u64 stack;
	__u64 thread_state;
	__u64 instruction;
	__u32 depth;
	__u32 anchor_bytes;
	__u64 request;
	/* Of a wait. */
	__s32 call;
	__u32 file;
	/* Length of the kernel's own stack. */
	__u32 kernel_bytes;
	__u32 reserved;
	/* Of a wait, as in `struct slip_wait_key`. */
	__u64 peer;
	/* The ranges, one after the other, and then the addresses of the kernel's stack, the innermost first. */
};

/* The registers of a thread, of those that tables of native code go by, and the inner end of its stack: what it runs outside of the
 * kernel. It comes before the sample that has the same thread and time. */
struct slip_native {
	__u32 kind;
	__u32 id;
	__u64 time_ns;
	__u32 tid;
	/* Of the stack. */
	__u32 length;
	__u64 ip, sp;
	/* In the order in which the kernel keeps them. */
	__u64 r15, r14, r13, r12, bp, bx;
	__u8 stack[SLIP_NATIVE_BYTES];
};

/* A block that libslipmalloc.so has given out, and that it tells of; or that it is about to take back. */
struct slip_allocation {
	__u32 kind;
	__u32 id;
	/* CLOCK_MONOTONIC. */
	__u64 time_ns;
	__u32 tid;
	/* A sample with the same thread and time comes next of this thread, and has the stack. */
	__u32 has_sample;
	__u64 block;
	/* Of the block, as they were asked for. */
	__u64 bytes;
	/* How many bytes of blocks it stands for, as one of those that are told. */
	__u64 stands_for;
};

/* What went wrong, for all CPUs. */
enum slip_counter {
	/* Timer events in a target. */
	SLIP_COUNT_EVENTS,
	/* Samples and stacks for which the ring had no room. */
	SLIP_COUNT_LOST,
	/* The map of known stacks was full. */
	SLIP_COUNT_FORGOTTEN,
	/* Waits for which there was no room. */
	SLIP_COUNT_WAITS_LOST,
	SLIP_COUNTERS
};

#endif
