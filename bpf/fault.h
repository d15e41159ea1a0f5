#ifndef SLIP_FAULT_H
#define SLIP_FAULT_H

#include <linux/types.h>

/* Of one thread. `crates/probe/src/budget/fault.rs` has the same. */
struct slip_faults_seen {
	/* How many, and for how long in all. */
	__u64 faults, ns;
	/* When the one that is being dealt with began; 0 for none. */
	__u64 begin_ns;
	/* The thread's `struct task_struct`; 0 before its first fault. */
	__u64 task;
};

#endif
