/* A usual program's mix: a random slot is emptied if it is taken, and filled otherwise; blocks twice as large are half as many. */
#include "pattern.h"

enum { SLOTS = 1 << 17, LEAST_BYTES = 8, MOST_DOUBLINGS = 10 };

static uint32_t slots_each;
static long blocks_each;

/* 8 to 16383 bytes. */
static uint32_t some_bytes(uint32_t *random)
{
	uint32_t doublings = (uint32_t)__builtin_ctz(next(random) | 1u << MOST_DOUBLINGS), least = (uint32_t)LEAST_BYTES << doublings;
	return least + (next(random) & (least - 1));
}

static void *work(void *number)
{
	uint32_t random = seed_of((unsigned)(uintptr_t)number);
	block_t **slots = map(slots_each * sizeof *slots);
	for (long taken = 0; taken < blocks_each;) {
		block_t **slot = &slots[next(&random) % slots_each];
		if (*slot != NULL) {
			give(*slot);
			*slot = NULL;
		} else {
			*slot = take(some_bytes(&random));
			taken++;
		}
	}
	for (uint32_t at = 0; at < slots_each; at++) {
		give(slots[at]);
	}
	return NULL;
}

int main(int count, char **values)
{
	arguments_t arguments = parse(count, values);
	slots_each = SLOTS / arguments.threads;
	blocks_each = arguments.operations / arguments.threads + 1;
	work_with(arguments.threads, work);
	return report(blocks_each * arguments.threads);
}
