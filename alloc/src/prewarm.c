#include "prewarm.h"

#include <stdlib.h>

#include "depot.h"
#include "large.h"
#include "os/os.h"

/* All blocks at once, so that they don't share memory; their first words hold them together meanwhile. */
static void prewarm_large(size_t bytes, size_t count)
{
	void *last = NULL;
	bool is_zero = false;
	for (; count > 0; count--) {
		void *block = large_take(bytes, CLASS_GRANULE, &is_zero);
		if (block == NULL) {
			break;
		}
		os_populate(block, large_bytes("prewarm", block));
		*(void **)block = last;
		last = block;
	}
	while (last != NULL) {
		void *block = last;
		last = *(void **)block;
		large_give("prewarm", block);
	}
}

void prewarm(const char *list)
{
	while (list != NULL && *list != 0) {
		char *end;
		size_t bytes = strtoul(list, &end, 10), count = 0;
		if (end != list && *end == ':') {
			list = end + 1;
			count = strtoul(list, &end, 10);
		}
		if (count > 0 && region_is_ready()) {
			if (bytes <= CLASS_MOST_BYTES) {
				depot_prewarm(class_of(bytes), count);
			} else {
				prewarm_large(bytes, count);
			}
		}
		if (*end != ',') {
			return;
		}
		list = end + 1;
	}
}
