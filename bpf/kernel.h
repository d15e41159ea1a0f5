#ifndef SLIP_KERNEL_H
#define SLIP_KERNEL_H

/* The kernel's own structures, only the fields that we read. Where these lie is found out when the object is loaded: the
 * kernel describes itself in /sys/kernel/btf/vmlinux (CO-RE). */

#include <stdbool.h>

#include <linux/bpf.h>
#include <linux/bpf_perf_event.h>

#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>

/* Of `include/linux/socket.h` in the kernel. */
#define AF_UNIX 1
#define AF_INET 2
#define AF_INET6 10

#define RELOCATED __attribute__((preserve_access_index))

struct thread_struct {
	/* Base of thread-local storage, which is also what pthread_self() returns. */
	unsigned long fsbase;
} RELOCATED;

/* What programs keep of a task or a socket; NULL for nothing. */
struct bpf_local_storage;

struct inode {
	unsigned short i_mode;
	unsigned long i_ino;
} RELOCATED;

struct file {
	struct inode *f_inode;
	/* Of a socket: `struct socket`. */
	void *private_data;
} RELOCATED;

struct in6_addr {
	union {
		__u32 u6_addr32[4];
	} in6_u;
} RELOCATED;

typedef struct {
	__s64 counter;
} atomic64_t;

struct sock_common {
	__u32 skc_daddr;
	__u16 skc_dport;
	/* The own port, in the host's order. */
	__u16 skc_num;
	unsigned short skc_family;
	volatile unsigned char skc_state;
	struct in6_addr skc_v6_daddr;
	__u32 skc_rcv_saddr;
	struct in6_addr skc_v6_rcv_saddr;
	/* A number that no other socket ever has; 0 until somebody has asked for it. */
	atomic64_t skc_cookie;
} RELOCATED;

struct sock {
	struct sock_common __sk_common;
	__u16 sk_type;
	struct bpf_local_storage *sk_bpf_storage;
} RELOCATED;

struct socket {
	struct sock *sk;
} RELOCATED;

struct sk_buff {
	/* Of TCP: `struct tcp_skb_cb`. */
	char cb[48];
} RELOCATED;

struct tcp_skb_cb {
	/* Of the first byte, and of the one behind the last. */
	__u32 seq;
	__u32 end_seq;
} RELOCATED;

struct sockaddr_un {
	unsigned short sun_family;
	char sun_path[108];
};

struct unix_address {
	int len;
	struct sockaddr_un name[];
} RELOCATED;

struct unix_sock {
	/* Its own, which those that it has accepted have as well. */
	struct unix_address *addr;
	struct sock *peer;
} RELOCATED;

struct fdtable {
	unsigned int max_fds;
	struct file **fd;
} RELOCATED;

/* Nothing but a pointer. */
struct hlist_head {
	void *first;
} RELOCATED;

struct files_struct {
	struct fdtable *fdt;
} RELOCATED;

/* The memory of a process: where the code of its program lies, and where its first thread's stack began. */
struct mm_struct {
	unsigned long start_code, end_code, start_stack;
} RELOCATED;

/* What the threads of a process have in common. */
struct signal_struct {
	/* The most memory that it had at a time, in pages; the kernel notes it when it ends. */
	unsigned long maxrss;
} RELOCATED;

struct sched_entity {
	/* Nanoseconds on a CPU: in all, and until it got the one that it has or had last. */
	__u64 sum_exec_runtime;
	__u64 prev_sum_exec_runtime;
} RELOCATED;

/* A number, in one of the pid namespaces inside each other in which a task has one. */
struct upid {
	int nr;
	void *ns;
} RELOCATED;

struct pid {
	/* How many are around the innermost one. */
	unsigned int level;
	struct upid numbers[];
} RELOCATED;

struct task_struct {
	struct thread_struct thread;
	struct sched_entity se;
	/* What the task is about to do when it leaves its CPU: 0 for going on. */
	unsigned int __state;
	/* Whether it runs. */
	int on_cpu;
	struct mm_struct *mm;
	struct files_struct *files;
	struct signal_struct *signal;
	struct bpf_local_storage *bpf_storage;
	/* In the initial namespaces. */
	int pid;
	int tgid;
	/* The first thread of the process. */
	struct task_struct *group_leader;
	/* Its numbers in all namespaces. */
	struct pid *thread_pid;
	/* The lower, the sooner it runs: 120 and the nice value, or below 100 if it runs before all of those. */
	int prio;
	unsigned in_iowait : 1;
	char comm[16];
} RELOCATED;

struct seq_file;

struct bpf_iter_meta {
	struct seq_file *seq;
	/* How many came before. */
	__u64 seq_num;
} RELOCATED;

struct bpf_iter__task {
	struct bpf_iter_meta *meta;
	struct task_struct *task;
} RELOCATED;

/* Since Linux 6.2 the verifier takes our word for what is at an address: the fields are then loaded where they are, for about a
 * nanosecond; asking a helper takes 22. What is not there reads as 0, as from the helper. */
extern void *bpf_rdonly_cast(const void *pointer, __u32 type) __ksym __weak;

#define loads_as_told() bpf_ksym_exists(bpf_rdonly_cast)
#define AS_TOLD(type, pointer) ((const type *) bpf_rdonly_cast(pointer, bpf_core_type_id_kernel(type)))
/* Either way. */
#define LOAD(type, pointer, field) (loads_as_told() ? AS_TOLD(type, pointer)->field : BPF_CORE_READ((const type *) (pointer), field))

#endif
