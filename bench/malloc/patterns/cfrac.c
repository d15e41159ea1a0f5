/* A computation with tiny objects: the continued fraction of a square root, as for factoring a number. Each intermediate number is a block
 * of its own, as long as it needs, that lives until the next step or two; every few steps one is kept in a list. */
#include "pattern.h"

enum { KEPT = 4096, KEEP_EVERY = 8, CHECK_EVERY = 4001, DIGIT_BITS = 16 };

typedef unsigned __int128 value_t;

typedef struct {
	uint32_t holders;
	uint32_t digits;
	uint16_t digit[];
} number_t;

/* What is kept: a list, the newest first. */
typedef struct relation relation_t;
struct relation {
	relation_t *next;
	number_t *numerator, *remainder;
};

/* Of a thread. A step takes some blocks: `taken` counts them. */
typedef struct {
	number_t *modulus, *root;
	number_t *p, *q, *q_before, *a, *a_before;
	relation_t *kept;
	long taken;
} state_t;

static long blocks_each;

static void *take_bytes(state_t *state, size_t bytes)
{
	void *block = malloc(bytes);
	if (block == NULL) {
		fail("no memory");
	}
	state->taken++;
	return block;
}

static number_t *number(state_t *state, value_t value)
{
	uint32_t digits = 1;
	for (value_t rest = value >> DIGIT_BITS; rest != 0; rest >>= DIGIT_BITS) {
		digits++;
	}
	number_t *made = take_bytes(state, sizeof *made + digits * sizeof made->digit[0]);
	made->holders = 1;
	made->digits = digits;
	for (uint32_t at = 0; at < digits; at++, value >>= DIGIT_BITS) {
		made->digit[at] = (uint16_t)value;
	}
	return made;
}

static value_t value_of(const number_t *number)
{
	value_t value = 0;
	for (uint32_t at = number->digits; at-- > 0;) {
		value = value << DIGIT_BITS | number->digit[at];
	}
	return value;
}

static number_t *hold(number_t *number)
{
	number->holders++;
	return number;
}

static void drop(number_t *number)
{
	if (--number->holders == 0) {
		free(number);
	}
}

static number_t *add(state_t *state, const number_t *left, const number_t *right)
{
	return number(state, value_of(left) + value_of(right));
}

static number_t *subtract(state_t *state, const number_t *left, const number_t *right)
{
	return number(state, value_of(left) - value_of(right));
}

static number_t *multiply(state_t *state, const number_t *left, const number_t *right)
{
	return number(state, value_of(left) * value_of(right));
}

/* All that is divided but what modulo() has is short. */
static number_t *divide(state_t *state, const number_t *left, const number_t *right)
{
	return number(state, (uint64_t)value_of(left) / (uint64_t)value_of(right));
}

static number_t *modulo(state_t *state, const number_t *left, const number_t *right)
{
	return number(state, value_of(left) % value_of(right));
}

static value_t square_modulo(value_t base, value_t modulus)
{
	value_t sum = 0, doubled = base;
	for (value_t bits = base; bits != 0; bits >>= 1) {
		sum = bits & 1 ? (sum + doubled) % modulus : sum;
		doubled = doubled * 2 % modulus;
	}
	return sum;
}

/* The square of each numerator is what remains, up to its sign, for which the number of the step stands. */
static void check(const state_t *state, long step)
{
	value_t modulus = value_of(state->modulus), square = square_modulo(value_of(state->a), modulus), q = value_of(state->q);
	if (square != (step % 2 == 0 ? q % modulus : modulus - q % modulus)) {
		fail("a number has changed");
	}
}

static void keep(state_t *state)
{
	relation_t *relation = take_bytes(state, sizeof *relation);
	*relation = (relation_t){state->kept, hold(state->a), hold(state->q)};
	state->kept = relation;
}

static void drop_kept(state_t *state)
{
	while (state->kept != NULL) {
		relation_t *relation = state->kept;
		state->kept = relation->next;
		drop(relation->numerator);
		drop(relation->remainder);
		free(relation);
	}
}

/* Puts a number in the place of one that is dropped. */
static void replace(number_t **place, number_t *number)
{
	drop(*place);
	*place = number;
}

/* The next partial quotient b = (root + p) / q, then p' = b q - p, q' = q_before + b (p - p'), a' = b a + a_before. What is negative on the
 * way wraps, and the sum after it wraps back. */
static void step(state_t *state)
{
	number_t *sum = add(state, state->root, state->p);
	number_t *b = divide(state, sum, state->q);
	number_t *product = multiply(state, b, state->q);
	number_t *p = subtract(state, product, state->p);
	number_t *change = subtract(state, state->p, p);
	number_t *times = multiply(state, b, change);
	number_t *q = add(state, state->q_before, times);
	number_t *grown = multiply(state, b, state->a);
	number_t *more = add(state, grown, state->a_before);
	number_t *a = modulo(state, more, state->modulus);
	number_t *ends[] = {sum, b, product, change, times, grown, more};
	for (size_t at = 0; at < sizeof ends / sizeof *ends; at++) {
		drop(ends[at]);
	}
	replace(&state->p, p);
	replace(&state->q_before, state->q);
	state->q = q;
	replace(&state->a_before, state->a);
	state->a = a;
}

static uint64_t root_of(value_t value)
{
	uint64_t root = 0;
	for (uint64_t bit = 1ull << 40; bit != 0; bit >>= 1) {
		root += (value_t)(root + bit) * (root + bit) <= value ? bit : 0;
	}
	return root;
}

static void *work(void *argument)
{
	uint32_t random = seed_of((unsigned)(uintptr_t)argument);
	/* 76 bits: no product that is not reduced has more than 117. */
	value_t modulus = (value_t)(next(&random) | 1u << 31) << 44 | (value_t)next(&random) << 12 | 7;
	uint64_t root = root_of(modulus);
	state_t state = {0};
	state.modulus = number(&state, modulus);
	state.root = number(&state, root);
	state.p = number(&state, root);
	state.q = number(&state, modulus - (value_t)root * root);
	state.q_before = number(&state, 1);
	state.a = number(&state, root);
	state.a_before = number(&state, 1);
	for (long at = 1; state.taken < blocks_each; at++) {
		if (at % KEEP_EVERY == 0) {
			keep(&state);
		}
		if (at % CHECK_EVERY == 0) {
			check(&state, at);
		}
		if (at % (KEEP_EVERY * KEPT) == 0) {
			drop_kept(&state);
		}
		step(&state);
	}
	drop_kept(&state);
	number_t *ends[] = {state.modulus, state.root, state.p, state.q, state.q_before, state.a, state.a_before};
	for (size_t at = 0; at < sizeof ends / sizeof *ends; at++) {
		drop(ends[at]);
	}
	return NULL;
}

int main(int count, char **values)
{
	arguments_t arguments = parse(count, values);
	blocks_each = arguments.operations / arguments.threads + 1;
	work_with(arguments.threads, work);
	return report(blocks_each * arguments.threads);
}
