#include "os.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

uint64_t os_now_ms(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
	return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

void os_wait(atomic_int *word, int expected)
{
	syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, expected, NULL, NULL, 0);
}

void os_wake_one(atomic_int *word)
{
	syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

void os_write(int fd, const char *text, size_t bytes)
{
	while (bytes > 0) {
		ssize_t written = write(fd, text, bytes);
		if (written <= 0) {
			return;
		}
		text += written;
		bytes -= (size_t)written;
	}
}
