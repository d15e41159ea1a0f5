#ifndef SLIP_STATUS_H
#define SLIP_STATUS_H

#include "image.h"

/* Reasons that are counted, each by its name. A name lives as long as the process. */
#define SLIP_MAX_REASONS 32

typedef struct {
	struct {
		const char *reason;
		zend_long count;
	} entries[SLIP_MAX_REASONS];
	int used;
} slip_reasons_t;

#define SLIP_HISTOGRAM 16

/* What this worker has done since it started. */
typedef struct {
	const char *disabled;        /* why the extension does nothing, or NULL */
	const char *mechanism_reason;/* why not a better mechanism, or NULL */
	zend_long snapshots, restores;
	bool restored;               /* this request */
	slip_reasons_t fallbacks, refusals;
	char last_refusal[512];
	uint64_t last_restore_ns;
	zend_long histogram[SLIP_HISTOGRAM];
} slip_status_t;

extern slip_status_t slip_status;

/* Counts it; how often it was, then. */
zend_long slip_status_count(slip_reasons_t *, const char *reason);
void slip_status_time(uint64_t ns);
void slip_status_fill(zval *array, const slip_image_t *image);
void slip_status_info(const slip_image_t *image);

#endif
