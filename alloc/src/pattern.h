/* Bytes that nobody may write: what the debug build fills the room beside blocks and freed blocks with. */
#ifndef SLIPMALLOC_PATTERN_H
#define SLIPMALLOC_PATTERN_H

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

/* No digit, letter, zero or minus one, which are written most. */
enum { PATTERN = 0xb5 };

#define PATTERN_BROKEN_BEFORE "was written before its start"
#define PATTERN_BROKEN_BEHIND "was written beyond its end"

static inline void pattern_fill(char *from, const char *to)
{
	memset(from, PATTERN, (size_t)(to - from));
}

static inline bool pattern_is_whole(const char *from, const char *to)
{
	while (from < to && *(const unsigned char *)from == PATTERN) {
		from++;
	}
	return from == to;
}

#endif
