/* Wakes up so many times a second as a sampler does, and does nothing: what that costs on this machine, and how often it comes too late.
 * Told to end it prints how often it woke up in time, and for how many seconds it ran. */

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
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
	long long interval = 1000000000ll / (count > 1 ? atoi(words[1]) : 1000), begin = now_ns(), next = begin + interval, taken = 0;

	signal(SIGINT, end);
	prctl(PR_SET_TIMERSLACK, 1);
	while (!ended) {
		struct timespec until = {next / 1000000000, next % 1000000000};
		if (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL) == 0) {
			/* What has been missed is left out. */
			next += ((now_ns() - next) / interval + 1) * interval;
			taken++;
		}
	}
	printf("%lld in %.6f\n", taken, (now_ns() - begin) / 1e9);
	return 0;
}
