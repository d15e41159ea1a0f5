/* A thread gets back what was given on its CPU, others leave that there but for what is beyond two magazines, and nothing stays behind. Threads on two CPUs
 * that come by turns get large magazines, and one that takes what another gave makes room for more. */
#include <pthread.h>

#include "../src/depot.h"
#include "../src/published.h"
#include "check.h"

enum { BYTES = 48, BLOCKS = 8, MANY = 5000 };

static int cpu;
/* The other of two CPUs at each look. */
static int takes_turns;
/* The kernel gives no more for slabs. */
static int refuses;

int __wrap_sched_getcpu(void);

int __wrap_sched_getcpu(void)
{
	cpu ^= takes_turns;
	return cpu;
}

bool __wrap_os_commit(void *start, size_t bytes);
bool __real_os_commit(void *start, size_t bytes);

bool __wrap_os_commit(void *start, size_t bytes)
{
	return !refuses && __real_os_commit(start, bytes);
}

/* Blocks that are each other's by mistake would not keep their number. */
static void take_and_give_many(void)
{
	static unsigned *blocks[MANY];
	for (unsigned at = 0; at < MANY; at++) {
		blocks[at] = slip_malloc(BYTES);
		*blocks[at] = at;
	}
	for (unsigned at = 0; at < MANY; at++) {
		CHECK(*blocks[at] == at);
		slip_free(blocks[at]);
	}
}

static void check_large(unsigned class)
{
	CHECK(!depot_is_shared(class));
	takes_turns = 1;
	for (unsigned move = 0; move < DEPOT_MOVES_IF_SHARED; move++) {
		magazine_destroy(depot_take_empty(class, NULL, BLOCKS));
	}
	CHECK(depot_is_shared(class));
	magazine_t *large = depot_take_empty(class, NULL, 500);
	CHECK(magazine_is_large(large) && magazine_most(large) >= 500);
	magazine_reset(large, 500);
	CHECK(magazine_blocks(large) == 0 && depot_take_full(class, large, 500) == large && magazine_blocks(large) == 500);
	depot_give_back(class, large);
	/* Not one that is too small. */
	magazine_t *small = depot_take_empty(class, NULL, BLOCKS);
	CHECK(!magazine_is_large(small));
	depot_flush(class);
	magazine_t *other = depot_take_full(class, small, 500);
	CHECK(magazine_is_large(other) && magazine_blocks(other) == 500);
	depot_give_back(class, other);

	for (int round = 0; round < 5; round++) {
		take_and_give_many();
	}
	CHECK(published_class(class)->magazine_blocks > 125ull * published_class(class)->full_magazines);
	/* What nobody shared for a turn is as any other again; the large ones that are there stay usable. */
	takes_turns = 0;
	depot_decay(class);
	CHECK(depot_is_shared(class));
	depot_decay(class);
	CHECK(!depot_is_shared(class));
	take_and_give_many();
	slip_malloc_trim(0);
	CHECK(depot_count(class).slabs == 0 && depot_count(class).free_blocks == 0);
}

/* There are no more slabs, and the magazine in use is too small to be filled. */
static void check_refusal(unsigned class)
{
	static void **last;
	size_t count = 0;
	refuses = 1;
	for (void **block; (block = slip_malloc(BYTES)) != NULL; count++) {
		*block = last;
		last = block;
	}
	CHECK(count > MANY && !depot_is_shared(class));
	/* The thread has a magazine again, which is empty. */
	void *some[BLOCKS];
	for (int at = 0; at < BLOCKS; at++) {
		some[at] = last;
		last = *last;
		slip_free(some[at]);
	}
	for (int at = 0; at < BLOCKS; at++) {
		void **block = slip_malloc(BYTES);
		CHECK(block != NULL);
		*block = last;
		last = block;
	}
	takes_turns = 1;
	for (unsigned move = 0; move < DEPOT_MOVES_IF_SHARED; move++) {
		magazine_destroy(depot_take_empty(class, NULL, BLOCKS));
	}
	CHECK(depot_is_shared(class));
	CHECK(slip_malloc(BYTES) == NULL);
	takes_turns = refuses = 0;
	for (; last != NULL; count--) {
		void **block = last;
		last = *block;
		slip_free(block);
	}
	CHECK(count == 0);
	take_and_give_many();
	slip_malloc_trim(0);
	CHECK(depot_count(class).slabs == 0);
}

static magazine_t *take(unsigned class, int on)
{
	cpu = on;
	magazine_t *magazine = depot_take_full(class, NULL, BLOCKS);
	CHECK(magazine != NULL && magazine_blocks(magazine) == BLOCKS);
	return magazine;
}

/* The empty magazine that is given for it. */
static magazine_t *give(unsigned class, int on, magazine_t *full)
{
	cpu = on;
	magazine_t *empty = depot_take_empty(class, full, BLOCKS);
	CHECK(empty != NULL && empty != full);
	return empty;
}

enum { ROUND = 3 * DEPOT_LEAST_ROOM };

static void *take_round(void *magazines)
{
	for (int at = 0; at < ROUND; at++) {
		((magazine_t **)magazines)[at] = take(class_of(BYTES), 0);
	}
	return NULL;
}

/* How many are kept. */
static unsigned give_round(unsigned class, magazine_t **magazines)
{
	for (int at = 0; at < ROUND; at++) {
		magazine_destroy(depot_take_empty(class, magazines[at], BLOCKS));
	}
	return (unsigned)published_class(class)->full_magazines;
}

static void check_room(unsigned class)
{
	magazine_t *magazines[ROUND];
	for (int round = 0; round < 3; round++) {
		take_round(magazines);
		CHECK(give_round(class, magazines) == DEPOT_LEAST_ROOM);
	}
	pthread_t other;
	CHECK(pthread_create(&other, NULL, take_round, magazines) == 0 && pthread_join(other, NULL) == 0);
	CHECK(give_round(class, magazines) == 2 * DEPOT_LEAST_ROOM);
	slip_malloc_trim(0);
	CHECK(depot_count(class).slabs == 0);
}

int main(void)
{
	slip_free(slip_malloc(BYTES));
	unsigned class = class_of(BYTES);
	magazine_t *full[4], *empty[4];
	for (int at = 0; at < 4; at++) {
		full[at] = take(class, 0);
	}
	for (int at = 0; at < 4; at++) {
		empty[at] = give(class, 0, full[at]);
	}
	/* The last one first, until two are left. */
	CHECK(take(class, 1) == full[3]);
	CHECK(take(class, 2) == full[2]);
	magazine_t *other = take(class, 1);
	CHECK(other != full[0] && other != full[1]);
	/* The kernel may not tell. */
	magazine_t *third = take(class, -1);
	CHECK(third != full[0] && third != full[1]);
	/* Who shares the list has it as its own. */
	CHECK(take(class, DEPOT_LISTS) == full[1]);
	CHECK(take(class, 0) == full[0]);

	/* An empty one is taken on the CPU on which it was left, or anywhere if there is no other. */
	give(class, 3, full[3]);
	give(class, 4, full[2]);
	cpu = 3;
	CHECK(depot_take_full(class, empty[3], BLOCKS) == full[3]);
	cpu = 4;
	CHECK(depot_take_full(class, empty[2], BLOCKS) == full[2]);
	CHECK(give(class, 4, full[0]) == empty[2]);
	CHECK(give(class, 4, full[1]) == empty[3]);

	/* All lists are emptied, whoever asks. */
	give(class, 5, full[2]);
	give(class, 6, full[3]);
	/* For these there is no room. */
	depot_give_back(class, other);
	depot_give_back(class, third);
	cpu = 2;
	slip_malloc_trim(0);
	CHECK(depot_count(class).slabs == 0);
	check_room(class);
	check_large(class);
	check_refusal(class);
	return 0;
}
