/* Blocks come in waves. Of each wave a third is given in the order it was taken, a third the other way round, and a third later and at random.
 *
 *   sh6   by the thread that took it
 *   sh8   what is given later, by any thread */
#include "pattern.h"

#include <stdatomic.h>

enum { WAVE_BLOCKS = 3 * 1000, LATER_BLOCKS = 16 * 1000, LEAST_BYTES = 8 };

static _Atomic(block_t *) *later;
static uint32_t later_count;
static int is_shared;
static long waves_each;

/* Half of all have up to 64 bytes, a quarter 256, the others 1000. */
static uint32_t some_bytes(uint32_t *random)
{
	uint32_t chance = next(random) % 4, most = chance < 2 ? 64 : chance == 2 ? 256 : 1000;
	return LEAST_BYTES + next(random) % (most - LEAST_BYTES + 1);
}

static void *work(void *number)
{
	uint32_t random = seed_of((unsigned)(uintptr_t)number);
	uint32_t own = is_shared ? 0 : (uint32_t)(uintptr_t)number * LATER_BLOCKS, span = is_shared ? later_count : LATER_BLOCKS;
	block_t **wave = map(WAVE_BLOCKS * sizeof *wave);
	for (long done = 0; done < waves_each; done++) {
		for (unsigned at = 0; at < WAVE_BLOCKS; at++) {
			wave[at] = take(some_bytes(&random));
		}
		for (unsigned at = 0; at < WAVE_BLOCKS; at += 3) {
			give(wave[at]);
		}
		for (unsigned at = WAVE_BLOCKS; at > 0; at -= 3) {
			give(wave[at - 2]);
		}
		for (unsigned at = 2; at < WAVE_BLOCKS; at += 3) {
			give(atomic_exchange(&later[own + next(&random) % span], wave[at]));
		}
	}
	return NULL;
}

int main(int count, char **values)
{
	arguments_t arguments = parse(count, values);
	is_shared = strcmp(arguments.mode, "sh8") == 0;
	later_count = arguments.threads * LATER_BLOCKS;
	later = map(later_count * sizeof *later);
	waves_each = arguments.operations / WAVE_BLOCKS / arguments.threads + 1;
	work_with(arguments.threads, work);
	for (uint32_t at = 0; at < later_count; at++) {
		give(later[at]);
	}
	return report(waves_each * arguments.threads * WAVE_BLOCKS);
}
