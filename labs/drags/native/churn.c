/* Rotates pictures: `churn churn|malloc|keep OPERATIONS FILE`. Each operation needs a buffer of 256 KiB. `churn` asks the kernel for one each
 * time and gives it back; `malloc` asks the allocator, which may do the same; `keep` has one for all, and computes for as long as `churn`.
 *
 * Writes to FILE, as JSON, how many operations there were, and how much CPU time one took, start-up and exit apart: all of it, and without the
 * program's own work, which is what memory takes. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

enum { BUFFER_BYTES = 256 << 10, PAGE_BYTES = 4096, WORK_BYTES = 16 << 10 };

static uint64_t cpu_ns(void)
{
	struct timespec now;
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static void *map_buffer(void)
{
	void *buffer = mmap(NULL, BUFFER_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (buffer == MAP_FAILED) {
		perror("mmap");
		exit(1);
	}
	return buffer;
}

static void unmap_buffer(void *buffer) { munmap(buffer, BUFFER_BYTES); }

static uint64_t work_ns;

/* What is the program's own work, after the first touch of each page. */
__attribute__((noinline)) static uint64_t rotate_picture(unsigned char *buffer, unsigned rounds)
{
	uint64_t sum = 0, begin;
	for (size_t at = 0; at < BUFFER_BYTES; at += PAGE_BYTES)
		buffer[at] = (unsigned char)at;
	begin = cpu_ns();
	for (unsigned round = 0; round < rounds; round++)
		for (size_t at = 0; at < WORK_BYTES; at++) {
			sum = (sum << 1 | sum >> 63) + buffer[at] + at;
			buffer[at] = (unsigned char)sum;
		}
	work_ns += cpu_ns() - begin;
	return sum;
}

__attribute__((noinline)) static uint64_t with_new_buffer(void)
{
	unsigned char *buffer = map_buffer();
	uint64_t sum = rotate_picture(buffer, 1);
	unmap_buffer(buffer);
	return sum;
}

__attribute__((noinline)) static uint64_t with_allocated_buffer(void)
{
	unsigned char *buffer = malloc(BUFFER_BYTES);
	uint64_t sum;
	if (!buffer) {
		perror("malloc");
		exit(1);
	}
	sum = rotate_picture(buffer, 1);
	free(buffer);
	return sum;
}

__attribute__((noinline)) static uint64_t with_same_buffer(void)
{
	static unsigned char *buffer;
	if (!buffer)
		buffer = map_buffer();
	return rotate_picture(buffer, 8);
}

int main(int argc, char **argv)
{
	uint64_t sum = 0, begin, took;
	unsigned long operations = argc == 4 ? strtoul(argv[2], NULL, 10) : 0;
	uint64_t (*operation)(void) = NULL;
	FILE *file;

	if (operations && strcmp(argv[1], "churn") == 0)
		operation = with_new_buffer;
	else if (operations && strcmp(argv[1], "malloc") == 0)
		operation = with_allocated_buffer;
	else if (operations && strcmp(argv[1], "keep") == 0)
		operation = with_same_buffer;
	if (!operation) {
		fprintf(stderr, "usage: %s churn|malloc|keep OPERATIONS FILE\n", argv[0]);
		return 2;
	}
	begin = cpu_ns();
	for (unsigned long number = 0; number < operations; number++)
		sum += operation();
	took = cpu_ns() - begin;
	file = fopen(argv[3], "w");
	if (!file) {
		perror(argv[3]);
		return 1;
	}
	fprintf(file, "{\"requests\": %lu, \"errors\": 0, \"drag_ms\": %.6f, \"operation_ms\": %.6f, \"sum\": %llu}\n", operations,
		(double)(took - work_ns) / 1e6 / (double)operations, (double)took / 1e6 / (double)operations, (unsigned long long)sum);
	return fclose(file) != 0;
}
