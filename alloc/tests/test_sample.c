/* What is told of samples: in sum they stand for what was taken, by size too, each is told again when it is freed, wherever that is done,
 * and nothing is told where nobody listens. */
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "../include/slipmalloc.h"
#include "../src/class.h"
#include "../src/options.h"
#include "check.h"

#define MIB ((size_t)1 << 20)

enum { SMALL = 48, MIDDLE = 1000, BIG = 30000, ROUNDS = 24, THREADS = 3, MOST = 1 << 16, MEAN = 64 << 10 };

extern volatile uint16_t slipmalloc_sampling;

static _Atomic size_t told, freed;
/* Of blocks of so many bytes, in units of the classes. */
static _Atomic size_t stood_small, stood_middle, stood_big, stood_large;

void slipmalloc_sampled(const void *block, size_t bytes, size_t stands_for)
{
	CHECK(block != NULL && slip_malloc_usable_size((void *)block) >= bytes);
	atomic_fetch_add(&told, 1);
	atomic_fetch_add(bytes == SMALL ? &stood_small : bytes == MIDDLE ? &stood_middle : bytes == BIG ? &stood_big : &stood_large, stands_for);
}

void slipmalloc_sample_freed(const void *block)
{
	CHECK(block != NULL);
	atomic_fetch_add(&freed, 1);
}

/* Whether the samples stand for so many bytes. Each stands for MEAN at least, and chance is off by five times its deviation once in a
 * million runs. `most` is what one of them may stand for. */
static int stands_for(size_t stood, size_t bytes, size_t most)
{
	double off = (double)stood - (double)bytes;
	return off * off <= 25.0 * (double)bytes * (double)most;
}

/* Takes blocks of all sizes by turns and frees all, over and over; what another thread took is freed, too. */
static void *work(void *shared)
{
	_Atomic(void *) *left = shared;
	static _Thread_local void *blocks[MOST];
	for (unsigned round = 0; round < ROUNDS; round++) {
		unsigned count = 0;
		while (count < 20000) {
			unsigned which = count % 40;
			size_t bytes = which == 0 ? BIG : which % 4 == 0 ? MIDDLE : SMALL;
			void *block = slip_malloc(bytes);
			CHECK(block != NULL);
			memset(block, 1, 16);
			blocks[count++] = atomic_exchange(left, block);
		}
		while (count > 0) {
			slip_free(blocks[--count]);
		}
	}
	return NULL;
}

static void take_many(void)
{
	pthread_t threads[THREADS];
	_Atomic(void *) left = NULL;
	for (unsigned at = 0; at < THREADS; at++) {
		CHECK(pthread_create(&threads[at], NULL, work, &left) == 0);
	}
	for (unsigned at = 0; at < THREADS; at++) {
		CHECK(pthread_join(threads[at], NULL) == 0);
	}
	slip_free(left);
}

static void forget(void)
{
	told = freed = stood_small = stood_middle = stood_big = stood_large = 0;
}

int main(void)
{
	slip_free(slip_malloc(1));
	take_many();
	slip_free(slip_malloc(100 * MIB));
	CHECK(told == 0 && freed == 0);

	/* A uprobe of the kernel does the same. */
	slipmalloc_sampling = 1;
	options.sample_bytes = MEAN;
	take_many();
	CHECK(told > 0 && told == freed);
	/* Blocks of a round stay until it ends, so each of them came out of a magazine that was filled for it, but for those that were left in
	 * one by the round before: at most two of MAGAZINE_MOST_BLOCKS blocks. */
	size_t rounds = (size_t)THREADS * ROUNDS, most_left = 2 * 62;
	size_t small = 15000, middle = 4500, big = 500;
	CHECK(stood_small <= rounds * small * SMALL + 5 * 250 * MEAN);
	CHECK(stands_for(stood_small, rounds * (small - most_left) * SMALL, 2 * MEAN));
	CHECK(stands_for(stood_middle, rounds * (middle - most_left) * class_bytes[class_of(MIDDLE)], 2 * MEAN));
	CHECK(stood_big > 0 && stood_big <= rounds * big * class_bytes[class_of(BIG)] + 5 * 600 * MEAN);

	forget();
	size_t bytes = 0;
	for (unsigned round = 0; round < 4000; round++) {
		size_t one = 40000 + round % 16 * 10000;
		char *block = slip_malloc(one);
		CHECK(block != NULL);
		slip_free(block);
		bytes += one;
	}
	CHECK(stands_for(stood_large, bytes, 4 * MEAN) && told == freed);

	/* A block that grows where it is and one that moves: the last size of each is what is live. */
	forget();
	char *grown = slip_malloc(8 * MIB);
	CHECK(told == 1 && stood_large == 8 * MIB);
	grown = slip_realloc(grown, 9 * MIB);
	CHECK(grown != NULL && told == 2 && freed == 1 && stood_large == 17 * MIB);
	grown = slip_realloc(grown, 64 * MIB);
	CHECK(grown != NULL && told == 3 && freed == 2);
	slip_free(grown);
	CHECK(freed == 3);

	/* Nobody listens any more: what was told is still told when it is freed, and no more. */
	char *told_before = slip_malloc(8 * MIB);
	CHECK(told == 4);
	slipmalloc_sampling = 0;
	options.sample_bytes = 0;
	char *not_told = slip_malloc(8 * MIB);
	CHECK(told == 4);
	slip_free(not_told);
	CHECK(freed == 3);
	slip_free(told_before);
	CHECK(freed == 4);
	forget();
	take_many();
	CHECK(told <= (size_t)4 * CLASSES && freed == told);
	return 0;
}
