/* A program that grows and shrinks, for minutes of a server's day in seconds. usage: churn
 *
 * Eight phases; after each the program serves for some seconds: a few hundred blocks are taken and given again every 10 ms, so that an
 * allocator which gives memory back when it is called is called. Prints a line every 50 ms: milliseconds, phase (0 while it grows or shrinks),
 * kB that live, resident kB without the table of blocks. All of each block is written. */
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "random.h"

enum { MOST_BLOCKS = 1 << 21, SERVED_BLOCKS = 300, TURN_MS = 10, LOOK_MS = 50, SERVE_MS = 4000, STEP = 4096 };

#define MIB ((size_t)1 << 20)

typedef struct {
	unsigned char *block;
	uint32_t bytes;
} entry_t;

static entry_t *table;
static size_t count, live_bytes;
static uint32_t state = 42;
static int statm;
static uint64_t begun_ms, looked_ms;

static uint64_t now_ms(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

/* By read(): nothing here allocates but what is measured. */
static long resident_kb(void)
{
	char text[128];
	long pages = 0;
	ssize_t length = pread(statm, text, sizeof text - 1, 0);
	if (length > 0) {
		text[length] = 0;
		sscanf(text, "%*d %ld", &pages);
	}
	return pages * 4 - (long)(MOST_BLOCKS * sizeof *table / 1024);
}

static void look(int phase)
{
	uint64_t now = now_ms();
	if (now - looked_ms >= LOOK_MS) {
		looked_ms = now;
		printf("%lu %d %zu %ld\n", (unsigned long)(now - begun_ms), phase, live_bytes / 1024, resident_kb());
	}
}

/* As many of each doubling. */
static uint32_t some_bytes(unsigned least_bit, unsigned most_bit)
{
	uint32_t least = 1u << (least_bit + next(&state) % (most_bit - least_bit));
	return least + next(&state) % least;
}

static unsigned char *take(uint32_t bytes)
{
	unsigned char *block = malloc(bytes);
	if (block == NULL) {
		fprintf(stderr, "error: no memory\n");
		exit(1);
	}
	memset(block, 1, bytes);
	return block;
}

static void grow(size_t to_bytes, unsigned least_bit, unsigned most_bit)
{
	while (live_bytes < to_bytes && count < MOST_BLOCKS) {
		uint32_t bytes = some_bytes(least_bit, most_bit);
		table[count++] = (entry_t){take(bytes), bytes};
		live_bytes += bytes;
		if (count % STEP == 0) {
			look(0);
		}
	}
}

/* Blocks whose number leaves less than `kept` of 16, at random, or all but the share that was taken first or last. */
typedef enum { SCATTERED, FIRST, LAST } survivors_t;

static void shrink(survivors_t survivors, unsigned kept)
{
	size_t left = 0, from = survivors == LAST ? count - count * kept / 16 : 0, to = survivors == FIRST ? count * kept / 16 : count;
	for (size_t at = 0; at < count; at++) {
		int stays = survivors == SCATTERED ? next(&state) % 16 < kept : at >= from && at < to;
		if (stays) {
			table[left++] = table[at];
		} else {
			live_bytes -= table[at].bytes;
			free(table[at].block);
		}
		if (at % STEP == 0) {
			look(0);
		}
	}
	count = left;
}

static void serve(int phase, unsigned least_bit, unsigned most_bit)
{
	static unsigned char *served[SERVED_BLOCKS];
	const struct timespec turn = {.tv_nsec = TURN_MS * 1000000};
	for (uint64_t end = now_ms() + SERVE_MS; now_ms() < end;) {
		for (unsigned at = 0; at < SERVED_BLOCKS; at++) {
			served[at] = take(some_bytes(least_bit, most_bit));
		}
		for (unsigned at = 0; at < SERVED_BLOCKS; at++) {
			free(served[at]);
		}
		look(phase);
		nanosleep(&turn, NULL);
	}
	looked_ms = 0;
	look(phase);
	fflush(stdout);
}

int main(void)
{
	/* A buffer of its own would be a block. */
	static char buffer[1 << 16];
	setvbuf(stdout, buffer, _IOFBF, sizeof buffer);
	table = mmap(NULL, MOST_BLOCKS * sizeof *table, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	statm = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
	if (table == MAP_FAILED || statm < 0) {
		return 1;
	}
	begun_ms = now_ms();
	grow(192 * MIB, 5, 12);
	serve(1, 5, 12);
	shrink(LAST, 2);
	serve(2, 5, 12);
	shrink(FIRST, 0);
	grow(64 * MIB, 4, 9);
	serve(3, 4, 9);
	shrink(SCATTERED, 4);
	serve(4, 4, 9);
	grow(64 * MIB, 6, 13);
	serve(5, 6, 13);
	shrink(FIRST, 8);
	serve(6, 6, 13);
	grow(192 * MIB, 5, 12);
	serve(7, 5, 12);
	shrink(LAST, 2);
	serve(8, 5, 12);
	return 0;
}
