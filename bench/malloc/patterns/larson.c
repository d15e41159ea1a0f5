/* A server: threads hold blocks of random sizes and replace them at random. After a while each hands its blocks over to a new thread and
 * ends, so most blocks are given by a thread that did not take them. */
#include "pattern.h"

#include <semaphore.h>

enum { SLOTS = 5000, LIFE = 10 * SLOTS, LEAST_BYTES = 8, SPREAD_BYTES = 993 };

/* What passes from thread to thread. */
typedef struct {
	long left;
	uint32_t random;
	block_t *slots[SLOTS];
} lane_t;

static sem_t ended;

static uint32_t some_bytes(uint32_t *random)
{
	return LEAST_BYTES + next(random) % SPREAD_BYTES;
}

static void *serve(void *argument)
{
	lane_t *lane = argument;
	for (long turn = 0; turn < LIFE && lane->left > 0; turn++, lane->left--) {
		block_t **slot = &lane->slots[next(&lane->random) % SLOTS];
		give(*slot);
		*slot = take(some_bytes(&lane->random));
	}
	if (lane->left > 0) {
		pthread_detach(start_thread(serve, lane));
	} else {
		sem_post(&ended);
	}
	return NULL;
}

int main(int count, char **values)
{
	arguments_t arguments = parse(count, values);
	lane_t *lanes = map(arguments.threads * sizeof *lanes);
	long each = arguments.operations / arguments.threads + 1;
	sem_init(&ended, 0, 0);
	for (unsigned number = 0; number < arguments.threads; number++) {
		lanes[number].left = each;
		lanes[number].random = seed_of(number);
		for (unsigned at = 0; at < SLOTS; at++) {
			lanes[number].slots[at] = take(some_bytes(&lanes[number].random));
		}
	}
	for (unsigned number = 0; number < arguments.threads; number++) {
		pthread_detach(start_thread(serve, &lanes[number]));
	}
	for (unsigned number = 0; number < arguments.threads; number++) {
		sem_wait(&ended);
	}
	for (unsigned number = 0; number < arguments.threads; number++) {
		for (unsigned at = 0; at < SLOTS; at++) {
			give(lanes[number].slots[at]);
		}
	}
	return report((each + SLOTS) * arguments.threads);
}
