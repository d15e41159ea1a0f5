/* A kernel that reserves little and charges what is made usable, as with overcommit 2: less is reserved, the end is NULL and ENOMEM
 * where the charge ends, and what is freed can be taken again. No setting of the machine is changed for it: the calls of the allocator
 * are refused here, in place of the kernel. */
#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <string.h>

#include "../src/heap.h"
#include "../src/published.h"
#include "check.h"

#define MIB ((size_t)1 << 20)

enum { MOST = 1 << 16, BLOCK_BYTES = 4900 };

static const size_t RESERVABLE = 3000 * MIB;

static size_t chargeable = 100 * MIB;
static size_t charged;
static unsigned reserve_calls;
static void *blocks[MOST];

void *__real_os_reserve(size_t bytes);
bool __real_os_commit(void *start, size_t bytes);
void *__wrap_os_reserve(size_t bytes);
bool __wrap_os_commit(void *start, size_t bytes);

void *__wrap_os_reserve(size_t bytes)
{
	reserve_calls++;
	return bytes > RESERVABLE ? NULL : __real_os_reserve(bytes);
}

bool __wrap_os_commit(void *start, size_t bytes)
{
	/* Descriptions are made usable again where the blocks were refused; the kernel charges them once. */
	size_t charge = bytes >= SUPERSLAB_BYTES ? bytes : 0;
	if (charged + charge > chargeable || !__real_os_commit(start, bytes)) {
		return false;
	}
	charged += charge;
	return true;
}

static size_t take_until_none(void)
{
	size_t count = 0;
	errno = 0;
	while (count < MOST && (blocks[count] = slip_malloc(BLOCK_BYTES)) != NULL) {
		memset(blocks[count], 1, BLOCK_BYTES);
		count++;
	}
	CHECK(count < MOST && errno == ENOMEM);
	return count;
}

static void free_all(size_t count)
{
	while (count > 0) {
		slip_free(blocks[--count]);
	}
}

/* Its magazine would grow with the second refill, for which there is no memory: then it has what it had, which is nothing. */
static void *take_from_one_slab(void *argument)
{
	pthread_barrier_t *turn = argument;
	void *own[16];
	for (unsigned at = 0; at < 16; at++) {
		own[at] = slip_malloc(2048);
		CHECK(own[at] != NULL);
	}
	/* The main thread takes what is left of the slab, and all memory. */
	pthread_barrier_wait(turn);
	pthread_barrier_wait(turn);
	CHECK(slip_malloc(2048) == NULL);
	CHECK(slip_malloc(2048) == NULL);
	for (unsigned at = 0; at < 16; at++) {
		slip_free(own[at]);
	}
	return NULL;
}

static void refuse_while_magazines_grow(void)
{
	pthread_t thread;
	pthread_barrier_t turn;
	void *rest[16];
	CHECK(pthread_barrier_init(&turn, NULL, 2) == 0 && pthread_create(&thread, NULL, take_from_one_slab, &turn) == 0);
	pthread_barrier_wait(&turn);
	for (unsigned at = 0; at < 16; at++) {
		rest[at] = slip_malloc(2048);
		CHECK(rest[at] != NULL);
	}
	size_t count = take_until_none();
	pthread_barrier_wait(&turn);
	CHECK(pthread_join(thread, NULL) == 0);
	for (unsigned at = 0; at < 16; at++) {
		slip_free(rest[at]);
	}
	free_all(count);
	CHECK(bytes_taken() == 0);
}

int main(void)
{
	slip_free(slip_malloc(1));
	const published_t *page = published();
	CHECK(reserve_calls > 1 && page->region_bytes == 2048 * MIB && page->region_bytes < page->wanted_bytes);

	size_t count = take_until_none();
	/* All that may be charged is used but for a superslab, though more is asked for ahead of need. */
	CHECK(charged + SUPERSLAB_BYTES > chargeable);
	/* Thirteen blocks fit into a slab. */
	CHECK(count * BLOCK_BYTES >= (charged - SUPERSLAB_BYTES) * 9 / 10);
	CHECK(atomic_load(&page->failures) == 1 && atomic_load(&page->second_tries) >= 1);
	errno = 0;
	CHECK(slip_malloc(20 * MIB) == NULL && errno == ENOMEM);
	void *block = blocks[0];
	errno = 0;
	CHECK(slip_realloc(block, 20 * MIB) == NULL && errno == ENOMEM);

	free_all(count);
	CHECK(bytes_taken() == 0);
	CHECK(take_until_none() == count);
	free_all(count);
	block = slip_malloc(80 * MIB);
	CHECK(block != NULL);
	slip_free(block);

	/* Others have given some up. */
	chargeable += 50 * MIB;
	size_t more = take_until_none();
	CHECK(more * BLOCK_BYTES >= count * BLOCK_BYTES + 45 * MIB);
	free_all(more);
	CHECK(bytes_taken() == 0);
	refuse_while_magazines_grow();
	return 0;
}
