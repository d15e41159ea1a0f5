/* Starts a program on a kernel that seems to lack some things: refuse WHAT[,WHAT...] PROGRAM [ARGUMENT...]
 *
 * The filter is installed before the program starts and holds for all its children, as one of a container does. Each WHAT
 * is answered like the systems do that it stands for. */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

/* _IOWR('f', 16, struct pm_scan_arg) and _IOWR(0xAA, 0x3F, struct uffdio_api): not in Debian 12's headers, or under names
 * that hide the number. */
#define PAGEMAP_SCAN_REQUEST 0xC0606610u
#define UFFDIO_API_REQUEST 0xC018AA3Fu

#define ANY 0u

static const struct rule {
	const char *what;
	uint32_t call, request; /* number of the system call; second argument, or ANY */
	uint32_t error;
} rules[] = {
	{"userfaultfd", SYS_userfaultfd, ANY, EPERM},         /* Docker's default profile */
	{"async", SYS_ioctl, UFFDIO_API_REQUEST, EINVAL},     /* Linux before 6.7: no such feature */
	{"pagemap-scan", SYS_ioctl, PAGEMAP_SCAN_REQUEST, ENOTTY}, /* Linux before 6.7 */
	{"memfd", SYS_memfd_create, ANY, EPERM},
};
#define RULES (sizeof rules / sizeof *rules)
#define MAX_CODE (4 + RULES * 5)

static int fail(const char *what)
{
	fprintf(stderr, "error: refuse: %s: %s\n", what, strerror(errno));
	return 126;
}

/* A folder without files in the place of /proc, as where PHP-FPM runs its pool by chroot. */
static int hide_proc(void)
{
	return unshare(CLONE_NEWNS) != 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0
		|| mount("none", "/proc", "tmpfs", 0, NULL) != 0;
}

int main(int count, char **arguments)
{
	struct sock_filter code[MAX_CODE];
	size_t length = 0;

	if (count < 3) {
		fprintf(stderr, "usage: refuse WHAT[,WHAT...] PROGRAM [ARGUMENT...]\n");
		return 2;
	}
	code[length++] = (struct sock_filter) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, arch));
	code[length++] = (struct sock_filter) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, AUDIT_ARCH_X86_64, 1, 0);
	code[length++] = (struct sock_filter) BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS);
	for (char *what = strtok(arguments[1], ","); what; what = strtok(NULL, ",")) {
		if (strcmp(what, "proc") == 0) {
			if (hide_proc()) {
				return fail("/proc cannot be hidden");
			}
			continue;
		}
		size_t i = 0;
		while (i < RULES && strcmp(rules[i].what, what) != 0) {
			i++;
		}
		if (i == RULES || length + 6 > MAX_CODE) {
			fprintf(stderr, "error: refuse: %s is unknown or given twice\n", what);
			return 2;
		}
		uint8_t skip = rules[i].request == ANY ? 1 : 3;
		code[length++] = (struct sock_filter) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
		code[length++] = (struct sock_filter) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, rules[i].call, 0, skip);
		if (rules[i].request != ANY) {
			/* The low half: x86-64 is little-endian. */
			code[length++] = (struct sock_filter) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[1]));
			code[length++] = (struct sock_filter) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, rules[i].request, 0, 1);
		}
		code[length++] = (struct sock_filter) BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | rules[i].error);
	}
	code[length++] = (struct sock_filter) BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);

	struct sock_fprog filter = {(unsigned short) length, code};
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) != 0) {
		return fail("no filter");
	}
	execv(arguments[2], arguments + 2);
	return fail(arguments[2]);
}
