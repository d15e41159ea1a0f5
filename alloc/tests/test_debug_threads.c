/* The debug build: threads free each other's blocks. */
#include <pthread.h>
#include <stdatomic.h>

#include "check.h"

enum { THREADS = 4, SHARED = 64, EXCHANGES = 5000 };

static _Atomic(unsigned char *) shared[SHARED];

static void *exchange(void *argument)
{
	uint32_t state = 1 + (uint32_t)(uintptr_t)argument;
	for (int turn = 0; turn < EXCHANGES; turn++) {
		size_t bytes = 1 + next_random(&state) % 5000;
		unsigned char *block = slip_malloc(bytes);
		block[0] = block[bytes - 1] = 7;
		block = atomic_exchange(&shared[next_random(&state) % SHARED], block);
		CHECK(block == NULL || (block[0] == 7 && block[slip_malloc_usable_size(block) - 1] == 7));
		slip_free(block);
	}
	return NULL;
}

int main(void)
{
	pthread_t threads[THREADS];
	for (uintptr_t at = 0; at < THREADS; at++) {
		CHECK(pthread_create(&threads[at], NULL, exchange, (void *)at) == 0);
	}
	for (int at = 0; at < THREADS; at++) {
		CHECK(pthread_join(threads[at], NULL) == 0);
	}
	for (int at = 0; at < SHARED; at++) {
		slip_free(shared[at]);
	}
	CHECK(bytes_taken() == 0);
	return 0;
}
