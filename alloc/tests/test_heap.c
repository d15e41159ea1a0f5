/* Random takes and gives of slabs and superslabs against a map of who has what: nothing is given out twice, what is said to read as
 * zero does, and all of it becomes one row again. */
#include <stdbool.h>

#include "../src/heap.h"
#include "../src/options.h"
#include "check.h"

enum { STEPS = 30000, PIECES = 120, MOST_SUPERSLABS = 4096, LONGEST_ROW = 12, LONGEST_RUN = 31 };

typedef struct {
	size_t first;
	/* In slabs or superslabs. 0: this piece is free. */
	unsigned count;
	bool is_row;
} piece_t;

static piece_t pieces[PIECES];
static bool taken[MOST_SUPERSLABS * SLABS_IN_SUPERSLAB];
static uint32_t state = 3;

/* The first and the last word of each slab stand for all of it. */
static uint64_t *word(size_t slab, bool is_last)
{
	return (uint64_t *)(region_address(slab) + (is_last ? SLAB_BYTES - 8 : 0));
}

static void mark(size_t first, size_t slabs, bool as_taken, bool are_zero)
{
	CHECK(first + slabs <= sizeof taken);
	for (size_t slab = first; slab < first + slabs; slab++) {
		CHECK(taken[slab] != as_taken);
		taken[slab] = as_taken;
		if (as_taken) {
			CHECK(!are_zero || (*word(slab, false) == 0 && *word(slab, true) == 0));
			*word(slab, false) = *word(slab, true) = slab + 1;
		} else {
			CHECK(*word(slab, false) == slab + 1 && *word(slab, true) == slab + 1);
		}
	}
}

static size_t slabs_in(const piece_t *piece, unsigned count)
{
	return piece->is_row ? (size_t)count * SLABS_IN_SUPERSLAB : count;
}

static size_t slab_of(const piece_t *piece, unsigned at)
{
	return (piece->is_row ? piece->first * SLABS_IN_SUPERSLAB : piece->first) + slabs_in(piece, at);
}

static void take(piece_t *piece)
{
	bool are_zero = false;
	piece->is_row = next_random(&state) % 4 == 0;
	piece->count = 1 + next_random(&state) % (piece->is_row ? LONGEST_ROW : LONGEST_RUN);
	piece->first = piece->is_row ? heap_take_superslabs(piece->count, next_random(&state) % 2, &are_zero) : heap_take_slabs(piece->count, &are_zero);
	CHECK(piece->first != HEAP_NONE);
	mark(slab_of(piece, 0), slabs_in(piece, piece->count), true, are_zero);
}

/* All from the unit `from` on. */
static void give(piece_t *piece, unsigned from)
{
	unsigned count = piece->count - from;
	mark(slab_of(piece, from), slabs_in(piece, count), false, false);
	if (piece->is_row) {
		heap_give_superslabs(piece->first + from, count);
	} else {
		heap_give_slabs(piece->first + from, count);
	}
	piece->count = from;
}

static void extend(piece_t *piece)
{
	unsigned wanted = piece->count + 1 + next_random(&state) % 4;
	bool fits;
	if (piece->is_row) {
		fits = heap_extend_superslabs(piece->first, piece->count, wanted);
	} else {
		fits = wanted <= LONGEST_RUN && heap_extend_slabs(piece->first, piece->count, wanted);
	}
	if (fits) {
		mark(slab_of(piece, piece->count), slabs_in(piece, wanted - piece->count), true, false);
		piece->count = wanted;
	}
}

static void step(piece_t *piece)
{
	if (piece->count == 0) {
		take(piece);
		return;
	}
	switch (next_random(&state) % 4) {
	case 0:
		give(piece, next_random(&state) % piece->count);
		break;
	case 1:
		extend(piece);
		break;
	default:
		give(piece, 0);
	}
}

int main(void)
{
	/* Two words of each slab are touched, which is no reason to have all of it resident. */
	options.huge_pages = false;
	CHECK(region_is_ready());
	for (int number = 0; number < STEPS; number++) {
		step(&pieces[next_random(&state) % PIECES]);
		if (number % 500 == 0) {
			heap_decay();
		}
		if (number % 7000 == 0) {
			heap_trim();
		}
	}
	size_t slabs = 0;
	for (int piece = 0; piece < PIECES; piece++) {
		slabs += slabs_in(&pieces[piece], pieces[piece].count);
	}
	CHECK(heap_count().taken_bytes == slabs * SLAB_BYTES);
	for (int piece = 0; piece < PIECES; piece++) {
		if (pieces[piece].count > 0) {
			give(&pieces[piece], 0);
		}
	}
	heap_counts_t counts = heap_count();
	CHECK(counts.taken_bytes == 0);
	/* The lowest place is taken always, so little more is in use than was taken at once. */
	CHECK(counts.usable_bytes <= (size_t)PIECES * LONGEST_ROW * SUPERSLAB_BYTES);
	bool are_zero;
	heap_trim();
	CHECK(heap_count().kept_bytes == 0);
	CHECK(heap_take_superslabs(counts.usable_bytes / SUPERSLAB_BYTES, false, &are_zero) == 0 && are_zero);
	return 0;
}
