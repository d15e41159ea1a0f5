/* The system calls of the recorder and nothing else: what no sampler that copies stacks from outside can go below.
 *
 *   floor RATE SECONDS PID:ADDR+LEN,... PID:ADDR+LEN,...
 *
 * At each tick it asks for each process whether it has run since the last one (schedstat); of those that have, it copies
 * the ranges in one process_vm_readv and asks what they do (syscall). Nothing is looked at. Prints looks, copies and its
 * own CPU time in nanoseconds. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum { MAX_PROCESSES = 64, MAX_RANGES = 16, MAX_BYTES = 65536 };

struct process {
	pid_t pid;
	int schedstat, syscall;
	char stamp[128];
	struct iovec ranges[MAX_RANGES];
	unsigned long count;
};

static struct process processes[MAX_PROCESSES];
static char bytes[MAX_BYTES];

static int open_of(pid_t pid, const char *name)
{
	char path[64];
	snprintf(path, sizeof(path), "/proc/%d/task/%d/%s", pid, pid, name);
	return open(path, O_RDONLY);
}

static void parse(char *text, struct process *process)
{
	process->pid = (pid_t)strtol(text, &text, 10);
	while (*text && process->count < MAX_RANGES) {
		void *addr = (void *)strtoul(text + 1, &text, 0);
		size_t len = strtoul(text + 1, &text, 0);
		process->ranges[process->count++] = (struct iovec){addr, len};
	}
	process->schedstat = open_of(process->pid, "schedstat");
	process->syscall = open_of(process->pid, "syscall");
}

int main(int argc, char **argv)
{
	if (argc < 4 || argc - 3 > MAX_PROCESSES) {
		fprintf(stderr, "usage: floor RATE SECONDS PID:ADDR+LEN,... ...\n");
		return 2;
	}
	long interval_ns = 1000000000L / atol(argv[1]), ticks = atol(argv[2]) * atol(argv[1]);
	int count = argc - 3;
	for (int i = 0; i < count; i++)
		parse(argv[i + 3], &processes[i]);
	struct timespec next, cpu;
	unsigned long looks = 0, copies = 0, failed = 0;
	clock_gettime(CLOCK_MONOTONIC, &next);
	while (ticks-- > 0) {
		next.tv_nsec += interval_ns;
		if (next.tv_nsec >= 1000000000L) {
			next.tv_nsec -= 1000000000L;
			next.tv_sec++;
		}
		clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &next, NULL);
		for (struct process *process = processes; process < processes + count; process++) {
			char stamp[128] = {0};
			looks++;
			if (pread(process->schedstat, stamp, sizeof(stamp), 0) > 0 && !memcmp(stamp, process->stamp, sizeof(stamp)))
				continue;
			memcpy(process->stamp, stamp, sizeof(stamp));
			struct iovec local = {bytes, sizeof(bytes)};
			failed += process_vm_readv(process->pid, &local, 1, process->ranges, process->count, 0) < 0;
			failed += pread(process->syscall, stamp, sizeof(stamp), 0) < 0;
			copies++;
		}
	}
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &cpu);
	printf("%lu %lu %lu %ld\n", looks, copies, failed, cpu.tv_sec * 1000000000L + cpu.tv_nsec);
	return 0;
}
