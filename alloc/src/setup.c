/* What happens when the library is loaded and when the program exits. Blocks may have been taken before. */
#include <stdlib.h>
#include <unistd.h>

#include "../include/slipmalloc.h"
#include "debug.h"
#include "fork.h"
#include "options.h"
#include "prewarm.h"
#include "published.h"

options_t options = {.decay_ms = 1000, .huge_pages = true, .quarantine_bytes = 64 << 20, .says_faults = true};

static int64_t number_of(const char *name, int64_t otherwise)
{
	const char *text = secure_getenv(name);
	char *end;
	if (text == NULL) {
		return otherwise;
	}
	long long number = strtoll(text, &end, 10);
	return end == text || *end != 0 ? otherwise : number;
}

__attribute__((constructor)) static void set_up(void)
{
	options.decay_ms = number_of("SLIP_MALLOC_DECAY_MS", options.decay_ms);
	options.huge_pages = number_of("SLIP_MALLOC_HUGE_PAGES", options.huge_pages) != 0;
	int64_t sample_bytes = number_of("SLIP_MALLOC_SAMPLE", 0);
	options.sample_bytes = sample_bytes > 0 ? (size_t)sample_bytes : 0;
	options.stats = number_of("SLIP_MALLOC_STATS", 0) != 0;
	int64_t quarantine_bytes = number_of("SLIP_MALLOC_QUARANTINE", (int64_t)options.quarantine_bytes);
	options.quarantine_bytes = quarantine_bytes < 0 ? SIZE_MAX : (size_t)quarantine_bytes;
	options.says_faults = number_of("SLIP_MALLOC_SIGSEGV", 1) != 0;
	published_show_options();
	debug_begin();
	fork_register();
	prewarm(secure_getenv("SLIP_MALLOC_PREWARM"));
}

__attribute__((destructor)) static void at_exit(void)
{
	if (options.stats) {
		slipmalloc_write_stats(STDERR_FILENO);
	}
}
