#ifndef SLIP_FILE_H
#define SLIP_FILE_H

/* The files of a task. */

#include "kernel.h"

/* As in `st_mode`. */
#define TYPE_OF_FILE 0170000
#define TYPE_SOCKET 0140000
#define TYPE_FIFO 0010000
#define TYPE_CHARACTER 0020000

/* NULL if there is none of this number. */
static __always_inline struct file *file_of_number(struct task_struct *task, __u32 number)
{
	const struct fdtable *table = task->files ? task->files->fdt : NULL;
	struct file *file = NULL;

	if (!table || number >= table->max_fds) {
		return NULL;
	}
	if (loads_as_told()) {
		return AS_TOLD(struct hlist_head, table->fd + number)->first;
	}
	return bpf_probe_read_kernel(&file, sizeof file, table->fd + number) ? NULL : file;
}

/* 0 if there is no such file. */
static __always_inline __u32 type_of_file(const struct file *file)
{
	if (!file) {
		return 0;
	}
	if (loads_as_told()) {
		return AS_TOLD(struct file, file)->f_inode->i_mode & TYPE_OF_FILE;
	}
	return BPF_CORE_READ(file, f_inode, i_mode) & TYPE_OF_FILE;
}

/* Whether the system call's first argument is a file. */
static __always_inline bool takes_file(__s32 call)
{
	switch (call) {
		case 0: case 1: /* read, write */
		case 3: /* close */
		case 16: /* ioctl */
		case 17: case 18: case 19: case 20: /* pread64, pwrite64, readv, writev */
		case 40: /* sendfile */
		case 42: case 43: case 44: case 45: case 46: case 47: /* connect, accept, sendto, recvfrom, sendmsg, recvmsg */
		case 74: case 75: case 77: /* fsync, fdatasync, ftruncate */
		case 217: /* getdents64 */
		case 275: case 277: case 285: /* splice, sync_file_range, fallocate */
		case 288: case 295: case 296: case 299: case 307: /* accept4, preadv, pwritev, recvmmsg, sendmmsg */
			return true;
		default:
			return false;
	}
}

#endif
