#ifndef SLIP_KEY_H
#define SLIP_KEY_H

#include "php.h"

/* What a request must have in common with the one that was saved. */
typedef struct {
	char *script, *host;
	uint64_t ini;         /* settings that came with the request: PHP_VALUE, .user.ini */
	uint64_t environment; /* what the server sets, without what differs from request to request */
} slip_key_t;

/* Once a process. */
void slip_key_startup(void);

/* At request start, before the script can change settings. */
void slip_key_begin(void);

/* The key of the running request. Strings are the caller's to free by slip_key_free(); NULL if there is no memory for
 * them. */
void slip_key_take(slip_key_t *);
void slip_key_free(slip_key_t *);

/* NULL, or in what this request differs: "script", "host", "ini", "environment". */
const char *slip_key_differs(const slip_key_t *);

#endif
