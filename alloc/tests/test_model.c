/* Random calls against a simple model: each block holds what was written to it until it is freed, whatever else happens. */
#include <stdbool.h>
#include <string.h>

#include "../src/options.h"
#include "check.h"

enum { SLOTS = 600, USUAL_STEPS = 120000 };

typedef struct {
	unsigned char *block;
	size_t bytes;
	unsigned char seed;
} slot_t;

static slot_t slots[SLOTS];
static uint32_t state = 42;

/* The first and last bytes, and some between: large blocks would take the test's time otherwise. */
static size_t stride(size_t at, size_t bytes)
{
	return at < 256 || bytes - at <= 256 ? 1 : 97;
}

static unsigned char value(const slot_t *slot, size_t at)
{
	return (unsigned char)(slot->seed + at * 13 + at / 256);
}

static void fill(slot_t *slot)
{
	slot->seed = (unsigned char)next_random(&state);
	for (size_t at = 0; at < slot->bytes; at += stride(at, slot->bytes)) {
		slot->block[at] = value(slot, at);
	}
}

static void verify(const slot_t *slot)
{
	for (size_t at = 0; at < slot->bytes; at += stride(at, slot->bytes)) {
		CHECK(slot->block[at] == value(slot, at));
	}
}

static size_t random_bytes(void)
{
	switch (next_random(&state) % 64) {
	case 0:
		return next_random(&state) % (6u << 20);
	case 1:
	case 2:
		return next_random(&state) % (300u << 10);
	case 3:
	case 4:
	case 5:
	case 6:
	case 7:
		return next_random(&state) % (40u << 10);
	default:
		return next_random(&state) % 1100;
	}
}

static void take(slot_t *slot)
{
	slot->bytes = random_bytes();
	switch (next_random(&state) % 8) {
	case 0:
		slot->block = slip_calloc(1, slot->bytes);
		for (size_t at = 0; at < slot->bytes; at += stride(at, slot->bytes)) {
			CHECK(slot->block[at] == 0);
		}
		break;
	case 1: {
		size_t alignment = (size_t)1 << next_random(&state) % 18;
		slot->block = slip_memalign(alignment, slot->bytes);
		CHECK((uintptr_t)slot->block % alignment == 0);
		break;
	}
	default:
		slot->block = slip_malloc(slot->bytes);
	}
	CHECK(slot->block != NULL && (uintptr_t)slot->block % 16 == 0);
	CHECK(slip_malloc_usable_size(slot->block) >= slot->bytes);
	fill(slot);
}

/* What is kept of a block must be right before it is written anew. */
static void resize(slot_t *slot)
{
	size_t bytes = 1 + random_bytes();
	slot_t kept = *slot;
	slot->block = slip_realloc(slot->block, bytes);
	CHECK(slot->block != NULL);
	size_t common = kept.bytes < bytes ? kept.bytes : bytes;
	for (size_t at = 0; at < common; at += stride(at, kept.bytes)) {
		CHECK(slot->block[at] == value(&kept, at));
	}
	slot->bytes = bytes;
	fill(slot);
}

int main(int count, char **arguments)
{
	int steps = count > 1 ? atoi(arguments[1]) : USUAL_STEPS;
	for (int step = 0; step < steps; step++) {
		slot_t *slot = &slots[next_random(&state) % SLOTS];
		if (slot->block == NULL) {
			take(slot);
			continue;
		}
		verify(slot);
		if (next_random(&state) % 4 == 0) {
			resize(slot);
		} else {
			slip_free(slot->block);
			slot->block = NULL;
		}
		if (step % 30000 == 0) {
			slip_malloc_trim(0);
		}
		/* Some blocks are samples, by turns. */
		options.sample_bytes = step / 10000 % 2 == 0 ? 0 : 64 << 10;
	}
	for (int slot = 0; slot < SLOTS; slot++) {
		if (slots[slot].block != NULL) {
			verify(&slots[slot]);
			slip_free(slots[slot].block);
		}
	}
	CHECK(bytes_taken() == 0);
	return 0;
}
