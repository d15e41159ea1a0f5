/* Wakes up so many times a second as a sampler does, and does nothing: what that costs on this machine, and how often it comes too late.
 * Given a process and an address it also reads eight bytes there each time: no sampler from outside can do less.
 * Told to end it prints how often it woke up in time, and for how many seconds it ran. */

#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/uio.h>
#include <time.h>

static volatile sig_atomic_t ended;

static void end(int signal)
{
	ended = signal;
}

static long long now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000000000ll + now.tv_nsec;
}

int main(int count, char **words)
{
	long pid = count > 3 ? atol(words[2]) : 0;
	char bytes[8];
	struct iovec here = {bytes, sizeof(bytes)}, there = {count > 3 ? (void *)strtoul(words[3], NULL, 16) : NULL, sizeof(bytes)};
	long long interval = 1000000000ll / (count > 1 ? atoi(words[1]) : 1000), begin = now_ns(), next = begin + interval, taken = 0;

	signal(SIGINT, end);
	prctl(PR_SET_TIMERSLACK, 1);
	while (!ended) {
		struct timespec until = {next / 1000000000, next % 1000000000};
		if (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL) == 0) {
			/* What has been missed is left out. */
			next += ((now_ns() - next) / interval + 1) * interval;
			taken++;
			if (pid && process_vm_readv(pid, &here, 1, &there, 1, 0) < 0) {
				perror("process_vm_readv");
				return 1;
			}
		}
	}
	printf("%lld in %.6f\n", taken, (now_ns() - begin) / 1e9);
	return 0;
}
