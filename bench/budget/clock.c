/* A clock inside of workers that call accept() for one connection after the other, for `sums.py`; to be preloaded.
 *
 * Writes a line into $SLIP_CLOCK for each connection: nanoseconds from asking for it to asking for the next one, less those for which
 * accept() was blocked. These are what is left of the time that it took when the thread's CPU time in it is taken off, and the time
 * for which it was ready and had no CPU, as the scheduler counts it. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

static int64_t clock_ns(clockid_t clock)
{
	struct timespec now;

	clock_gettime(clock, &now);
	return now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}

/* The second number of schedstat. The file is opened by each worker, and not before it was forked. */
static int64_t ready_ns(void)
{
	static int file = -1, owner;
	char text[96];
	long long ran = 0, ready = 0;

	if (owner != getpid()) {
		owner = getpid();
		file = open("/proc/self/schedstat", O_RDONLY | O_CLOEXEC);
	}
	ssize_t length = pread(file, text, sizeof text - 1, 0);
	text[length > 0 ? length : 0] = 0;
	sscanf(text, "%lld %lld", &ran, &ready);
	return ready;
}

static void note(int64_t ns)
{
	static int file = -1;
	char text[32];

	if (file < 0) {
		file = open(getenv("SLIP_CLOCK"), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
	}
	if (write(file, text, snprintf(text, sizeof text, "%lld\n", (long long) ns)) < 0) {
		abort();
	}
}

int accept(int socket, struct sockaddr *address, socklen_t *length)
{
	static int (*next)(int, struct sockaddr *, socklen_t *);
	static int64_t asked, blocked;
	int64_t now = clock_ns(CLOCK_MONOTONIC);

	if (!next) {
		next = (int (*)(int, struct sockaddr *, socklen_t *)) dlsym(RTLD_NEXT, "accept");
	}
	if (asked) {
		note(now - asked - blocked);
	}
	asked = now;
	int64_t ready = ready_ns(), used = clock_ns(CLOCK_THREAD_CPUTIME_ID), began = clock_ns(CLOCK_MONOTONIC);
	int accepted = next(socket, address, length);
	int error = errno;
	blocked = clock_ns(CLOCK_MONOTONIC) - began - (clock_ns(CLOCK_THREAD_CPUTIME_ID) - used);
	blocked -= ready_ns() - ready;
	if (blocked < 0) {
		blocked = 0;
	}
	if (accepted < 0) {
		asked = 0;
	}
	errno = error;
	return accepted;
}
