/* Large blocks of 5 to 25 MiB, replaced at random. A word of each page is written. */
#include "pattern.h"

enum { SLOTS = 20, LEAST_BYTES = 5 << 20, SPREAD_BYTES = 20 << 20 };

static uint32_t slots_each;
static long blocks_each;

static void *work(void *number)
{
	uint32_t random = seed_of((unsigned)(uintptr_t)number);
	block_t *slots[SLOTS] = {0};
	for (long taken = 0; taken < blocks_each; taken++) {
		block_t **slot = &slots[next(&random) % slots_each];
		give(*slot);
		*slot = take(LEAST_BYTES + next(&random) % SPREAD_BYTES);
	}
	for (uint32_t at = 0; at < slots_each; at++) {
		give(slots[at]);
	}
	return NULL;
}

int main(int count, char **values)
{
	arguments_t arguments = parse(count, values);
	slots_each = (SLOTS + arguments.threads - 1) / arguments.threads;
	blocks_each = arguments.operations / arguments.threads + 1;
	work_with(arguments.threads, work);
	return report(blocks_each * arguments.threads);
}
