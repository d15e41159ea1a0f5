/* In a control group with little memory: who frees what was taken before stays below the limit, whatever size came before, also
 * without decay; who takes more is ended by the kernel, and nobody else notices. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysinfo.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../src/options.h"
#include "check.h"

#define MIB ((size_t)1 << 20)

enum {
	/* Six sizes of so much, one after the other; by turns of large and small a part of what is kept does not fit. */
	LIMIT_MIB = 96,
	LIVE_MIB = 40,
	ROUNDS = 3,
	SECONDS_FOR_A_CHILD = 60,
	/* What the test run takes for "cannot run here"; the reason is the last line. */
	SKIPPED = 77,
};

static char group[512];

static bool write_file(const char *name, const char *text)
{
	char path[600];
	snprintf(path, sizeof path, "%s/%s", group, name);
	int file = open(path, O_WRONLY);
	bool done = file >= 0 && write(file, text, strlen(text)) == (ssize_t)strlen(text);
	if (file >= 0) {
		close(file);
	}
	return done;
}

/* The path of this process's group in the hierarchy of the memory controller: "4:memory:/path", or "0::/path". */
static bool own_group(const char *controller, char *path, size_t bytes)
{
	char line[400];
	bool found = false;
	FILE *file = fopen("/proc/self/cgroup", "r");
	while (file != NULL && !found && fgets(line, sizeof line, file) != NULL) {
		char *names = strchr(line, ':'), *rest = names == NULL ? NULL : strchr(names + 1, ':');
		if (rest == NULL) {
			continue;
		}
		*rest++ = 0;
		rest[strcspn(rest, "\n")] = 0;
		found = strcmp(names + 1, controller) == 0;
		snprintf(path, bytes, "%s", strcmp(rest, "/") == 0 ? "" : rest);
	}
	if (file != NULL) {
		fclose(file);
	}
	return found;
}

static bool make_group(const char *root, const char *controller, const char *limit_file, const char *limit)
{
	char path[400];
	if (!own_group(controller, path, sizeof path)) {
		return false;
	}
	snprintf(group, sizeof group, "%s%s/slipmalloc-test-%d", root, path, (int)getpid());
	if (mkdir(group, 0755) != 0) {
		return false;
	}
	if (write_file(limit_file, limit)) {
		return true;
	}
	rmdir(group);
	return false;
}

static void take_and_free(size_t bytes)
{
	static void *blocks[LIVE_MIB * 1024 * 1024 / 100];
	size_t count = LIVE_MIB * MIB / bytes;
	for (size_t at = 0; at < count; at++) {
		CHECK((blocks[at] = slip_malloc(bytes)) != NULL);
		memset(blocks[at], 1, bytes);
	}
	for (size_t at = 0; at < count; at++) {
		slip_free(blocks[at]);
	}
}

static void stay_below(void)
{
	for (int round = 0; round < ROUNDS; round++) {
		static const size_t sizes[] = {1000, 20000, 300000, 3000000, 256, 8000};
		for (size_t at = 0; at < sizeof sizes / sizeof *sizes; at++) {
			take_and_free(sizes[at]);
		}
	}
}

static void take_more(void)
{
	for (size_t taken = 0; taken < 4 * LIMIT_MIB * MIB; taken += MIB) {
		void *block = slip_malloc(MIB);
		CHECK(block != NULL);
		memset(block, 1, MIB);
	}
}

/* How it ended. */
static int in_group(void (*work)(void))
{
	int status;
	pid_t child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		alarm(SECONDS_FOR_A_CHILD);
		CHECK(write_file("cgroup.procs", "0"));
		work();
		_exit(0);
	}
	CHECK(waitpid(child, &status, 0) == child);
	return status;
}

int main(void)
{
	struct sysinfo machine;
	char limit[32];
	snprintf(limit, sizeof limit, "%zu", LIMIT_MIB * MIB);
	if (!make_group("/sys/fs/cgroup", "", "memory.max", limit) &&
	    !make_group("/sys/fs/cgroup/memory", "memory", "memory.limit_in_bytes", limit)) {
		printf("no control group with a limit of memory can be made\n");
		return SKIPPED;
	}
	bool no_swap = write_file("memory.swap.max", "0") || write_file("memory.memsw.limit_in_bytes", limit) ||
		       (sysinfo(&machine) == 0 && machine.totalswap == 0);
	int below = -1, above = -1;
	options.decay_ms = -1;
	if (no_swap) {
		below = in_group(stay_below);
		above = in_group(take_more);
	}
	CHECK(rmdir(group) == 0);
	if (!no_swap) {
		printf("swap cannot be switched off for a control group\n");
		return SKIPPED;
	}
	CHECK(WIFEXITED(below) && WEXITSTATUS(below) == 0);
	CHECK(WIFSIGNALED(above) && WTERMSIG(above) == SIGKILL);
	slip_free(slip_malloc(10 * MIB));
	CHECK(bytes_taken() == 0);
	return 0;
}
