/* What is free goes back to the kernel while the program goes on, also if that needs little and if single blocks are left everywhere. */
#include "../src/decay.h"
#include "../src/heap.h"
#include "../src/options.h"
#include "check.h"

#define MIB ((size_t)1 << 20)

enum { BLOCKS = 1 << 16, BLOCK_BYTES = 1000, SERVED = 20, TURNS = 1000, LARGE_BLOCKS = 1024, LARGE_BYTES = 32768, IN_SUPERSLAB = 64 };

static void *blocks[BLOCKS];

static void serve(void)
{
	static const size_t sizes[] = {24, 100, 200, 500, 1000, 2000, 4000};
	void *served[SERVED];
	for (unsigned turn = 0; turn < TURNS; turn++) {
		size_t bytes = sizes[turn % (sizeof sizes / sizeof *sizes)];
		for (unsigned at = 0; at < SERVED; at++) {
			served[at] = slip_malloc(bytes);
			CHECK(served[at] != NULL);
		}
		for (unsigned at = 0; at < SERVED; at++) {
			slip_free(served[at]);
		}
	}
}

/* No exchange with a depot is needed for what is taken and given by turns then. */
static void shrink_and_serve(void)
{
	options.decay_ms = -1;
	for (unsigned at = 0; at < BLOCKS; at++) {
		blocks[at] = slip_malloc(BLOCK_BYTES);
		CHECK(blocks[at] != NULL);
	}
	for (unsigned at = 0; at < BLOCKS; at++) {
		slip_free(blocks[at]);
	}
	CHECK(heap_count().kept_bytes > 48 * MIB);
	/* Each look at the clock is a turn. */
	options.decay_ms = 0;
	serve();
	CHECK(heap_count().kept_bytes < 4 * MIB);
}

/* No superslab is free as a whole. */
static void leave_one_in_each(void)
{
	options.decay_ms = -1;
	for (unsigned at = 0; at < LARGE_BLOCKS; at++) {
		blocks[at] = slip_malloc(LARGE_BYTES);
		CHECK(blocks[at] != NULL);
	}
	for (unsigned at = 0; at < LARGE_BLOCKS; at++) {
		if (at % IN_SUPERSLAB != 0) {
			slip_free(blocks[at]);
		}
	}
	options.decay_ms = 0;
	/* Magazines, then what is free since, then what goes because of that. */
	for (unsigned turn = 0; turn < 4; turn++) {
		decay_turn();
	}
	CHECK(heap_count().kept_bytes < 4 * MIB);
	for (unsigned at = 0; at < LARGE_BLOCKS; at += IN_SUPERSLAB) {
		slip_free(blocks[at]);
	}
}

int main(void)
{
	shrink_and_serve();
	leave_one_in_each();
	return 0;
}
