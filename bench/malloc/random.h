/* Marsaglia's xorshift32: https://doi.org/10.18637/jss.v008.i14. Never 0 unless it begins with that. */
#ifndef MALLOC_RANDOM_H
#define MALLOC_RANDOM_H

#include <stdint.h>

static inline uint32_t next(uint32_t *state)
{
	uint32_t x = *state;
	x ^= x << 13;
	x ^= x >> 17;
	x ^= x << 5;
	return *state = x;
}

#endif
