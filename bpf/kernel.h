#ifndef SLIP_KERNEL_H
#define SLIP_KERNEL_H

/* The kernel's own structures, only the fields that we read. Where these lie is found out when the object is loaded: the
 * kernel describes itself in /sys/kernel/btf/vmlinux (CO-RE). */

#include <stdbool.h>

#include <linux/bpf.h>
#include <linux/bpf_perf_event.h>

#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>

#define RELOCATED __attribute__((preserve_access_index))

struct thread_struct {
	/* Base of thread-local storage, which is also what pthread_self() returns. */
	unsigned long fsbase;
} RELOCATED;

struct task_struct {
	struct thread_struct thread;
} RELOCATED;

#endif
