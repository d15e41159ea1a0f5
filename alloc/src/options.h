/* What SLIP_MALLOC_* in the environment asks for. */
#ifndef SLIPMALLOC_OPTIONS_H
#define SLIPMALLOC_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct {
	/* SLIP_MALLOC_DECAY_MS: how long free memory is kept at least; negative for ever. */
	int64_t decay_ms;
	/* SLIP_MALLOC_HUGE_PAGES=0 does without. */
	bool huge_pages;
	/* SLIP_MALLOC_SAMPLE: from one sample to the next, on average; 0 if none was asked for. */
	size_t sample_bytes;
	/* SLIP_MALLOC_STATS=1: at exit. */
	bool stats;
	/* Of the debug build. SLIP_MALLOC_QUARANTINE: bytes of freed blocks that are given out again last. */
	size_t quarantine_bytes;
	/* SLIP_MALLOC_SIGSEGV=0 installs no handler of that signal. */
	bool says_faults;
} options_t;

extern options_t options;

#endif
