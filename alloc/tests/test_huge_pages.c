/* A large block may have huge pages if the one before it was used, so what is taken and not touched costs no memory. */
#include <pthread.h>
#include <string.h>

#include "../src/heap.h"
#include "../src/options.h"
#include "../src/published.h"
#include "check.h"

#define MIB ((size_t)1 << 20)

static uint64_t asked_for(void)
{
	return published()->huge_bytes;
}

static char *take(size_t bytes)
{
	char *block = slip_malloc(bytes);
	CHECK(block != NULL);
	return block;
}

static void *begin_anew(void *argument)
{
	uint64_t before = asked_for();
	slip_free(take(100 * MIB));
	CHECK(asked_for() == before);
	return argument;
}

/* After blocks that were all used only one in eight is looked at, so this is found out after that many. */
static void *stop_using(void *argument)
{
	enum { BLOCKS = 24, USED = 7, FOUND_OUT = 16 };
	char *blocks[BLOCKS];
	uint64_t first = asked_for(), before = 0;
	for (size_t at = 0; at < BLOCKS; at++) {
		before = at == FOUND_OUT ? asked_for() : before;
		blocks[at] = take(8 * MIB);
		memset(blocks[at], 1, at < USED ? 8 * MIB : 0);
	}
	CHECK(before > first && asked_for() == before);
	for (size_t at = 0; at < BLOCKS; at++) {
		slip_free(blocks[at]);
	}
	return argument;
}

int main(void)
{
	pthread_t thread;
	options.decay_ms = -1;
	char *untouched = take(16 * MIB);
	char *as_stack = take(16 * MIB);
	memset(as_stack + 13 * MIB, 1, 3 * MIB);
	char *as_buffer = take(16 * MIB);
	memset(as_buffer, 1, 3 * MIB);
	char *used = take(16 * MIB);
	CHECK(asked_for() == 0);

	/* Only superslabs that belong to it as a whole, or by half. */
	memset(used, 1, 16 * MIB);
	char *next = take(8 * MIB + MIB / 2);
	CHECK(asked_for() == 8 * MIB);
	/* One after another is not seen through: this one was not touched yet. */
	char *third = take(16 * MIB);
	CHECK(asked_for() == 8 * MIB);
	memset(third, 1, 16 * MIB);

	/* Those of 1 MiB and of 3 MiB tell nothing, and get none. */
	char *small = take(MIB), *middle = take(3 * MIB);
	CHECK(asked_for() == 8 * MIB);
	/* What another thread took tells nothing of this one's. */
	CHECK(pthread_create(&thread, NULL, begin_anew, NULL) == 0 && pthread_join(thread, NULL) == 0);

	/* What has them already is not asked for again. */
	slip_free(next);
	char *again = take(8 * MIB + MIB / 2);
	CHECK(again == next && asked_for() == 8 * MIB);

	/* The last superslab has one too, if half of it belongs to the block and the one before was used to its end. */
	memset(again, 1, 8 * MIB);
	char *not_to_end = take(9 * MIB);
	CHECK(asked_for() == 16 * MIB);
	memset(not_to_end, 1, 9 * MIB);
	char *to_end = take(9 * MIB);
	CHECK(asked_for() == 26 * MIB);
	memset(to_end, 1, 9 * MIB);

	options.huge_pages = false;
	char *without = take(64 * MIB);
	CHECK(asked_for() == 26 * MIB);
	options.huge_pages = true;

	char *blocks[] = {untouched, as_stack, as_buffer, used, third, small, middle, again, not_to_end, to_end, without};
	for (size_t at = 0; at < sizeof blocks / sizeof *blocks; at++) {
		slip_free(blocks[at]);
	}
	/* What was given back is not there, whatever it was before. */
	CHECK(bytes_taken() == 0);
	slip_free(take(64 * MIB));
	CHECK(asked_for() == 26 * MIB);
	CHECK(pthread_create(&thread, NULL, stop_using, NULL) == 0 && pthread_join(thread, NULL) == 0);
	return 0;
}
