/* With little address space there is an end, and it is NULL and ENOMEM; what is freed can be taken again. */
#include <errno.h>
#include <stdbool.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

#define MIB ((size_t)1 << 20)

enum { MOST = 1 << 20 };

static void *blocks[MOST];

static size_t address_space(void)
{
	size_t pages;
	FILE *file = fopen("/proc/self/statm", "r");
	CHECK(file != NULL && fscanf(file, "%zu", &pages) == 1);
	fclose(file);
	return pages * 4096;
}

static void limit(size_t bytes)
{
	struct rlimit limit = {bytes, bytes};
	CHECK(setrlimit(RLIMIT_AS, &limit) == 0);
}

static size_t take_until_none(size_t bytes, size_t from)
{
	size_t count = from;
	errno = 0;
	while (count < MOST && (blocks[count] = slip_malloc(bytes)) != NULL) {
		memset(blocks[count], 1, bytes < 100 ? bytes : 100);
		count++;
	}
	CHECK(count < MOST && errno == ENOMEM);
	return count;
}

static void free_from(size_t count, size_t from)
{
	while (count > from) {
		slip_free(blocks[--count]);
	}
}

static void with_some(void)
{
	limit(512 * MIB);
	size_t all = take_until_none(MIB, 0);
	/* The heap is half of what is allowed. */
	CHECK(all >= 250);
	void *block = blocks[0];
	errno = 0;
	CHECK(slip_realloc(block, 100 * MIB) == NULL && errno == ENOMEM);
	errno = 0;
	CHECK(slip_calloc(MIB, 2) == NULL && errno == ENOMEM);
	/* Down always goes, also without room to move. */
	blocks[0] = slip_realloc(block, 40000);
	CHECK(blocks[0] != NULL);

	/* What one class had, another one can have, without a call of malloc_trim(). */
	size_t some = all - 20;
	free_from(all, some);
	size_t small = take_until_none(4900, some);
	CHECK(small - some >= 20 * MIB / 4992 * 9 / 10);
	free_from(small, some);
	small = take_until_none(300, some);
	CHECK(small - some >= 20 * MIB / 320 * 9 / 10);
	free_from(small, 0);
	/* Else slabs with blocks in the thread's cache may lie between. */
	CHECK(bytes_taken() == 0);
	CHECK(take_until_none(MIB, 0) == all);
}

static void with_nearly_none(void)
{
	limit(address_space() + 4 * MIB);
	errno = 0;
	CHECK(slip_malloc(10) == NULL && errno == ENOMEM);
	errno = 0;
	CHECK(slip_malloc(10 * MIB) == NULL && errno == ENOMEM);
	errno = 0;
	CHECK(slip_realloc(NULL, 100) == NULL && errno == ENOMEM);
	slip_free(NULL);
}

static void in_child(void (*check)(void))
{
	int status;
	pid_t child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		check();
		_exit(0);
	}
	CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

int main(void)
{
	in_child(with_some);
	in_child(with_nearly_none);
	return 0;
}
