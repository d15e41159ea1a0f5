#ifndef SLIP_PARKED_H
#define SLIP_PARKED_H

#include <sys/types.h>
#include <time.h>

#include "php.h"

#include "kept_page.h"

/* Connections of this worker that no request has at the moment, by the server that they lead to.
 *
 * A connection is parked by telling the server to forget whatever was said on it, and taken again only if exactly the server's
 * answer to that is there to be read, and nothing else: no reply that nobody has read, nothing of a subscription, no end of the
 * connection. So no round trip is added, and the server itself says that the connection is as good as new. */

/* Most that can be parked for one server. */
#define SLIP_MOST_PARKED 16

typedef struct {
	int fd;
	pid_t pid;        /* of the process that has parked it: a child's copy is not its own */
	time_t since;     /* by CLOCK_MONOTONIC, seconds */
} slip_parked_t;

/* A server that is named in slipstream.keep. */
typedef struct {
	char *name;       /* as it was named: redis://127.0.0.1:6379 */
	const char *resource; /* a part of that, as clients name it: 127.0.0.1:6379, or a path */
	bool is_unix;
	slip_parked_t parked[SLIP_MOST_PARKED];
	int count;
	/* It does not know the reset: nothing is parked any more. */
	bool gave_up;
	struct slip_kept_counts *counts;
} slip_server_t;

/* Reads the setting; the servers that it names, SLIP_KEPT_SERVERS at most and without counts, or NULL with an error in it. */
slip_server_t *slip_parked_read(const char *setting, int *count, const char **error);
/* Closes what is parked, too. */
void slip_parked_free(slip_server_t *, int count);

/* A connection that is as good as new, or -1. */
int slip_parked_take(slip_server_t *, zend_long most_seconds);

/* Parks it, with nothing of it unread or half written; false if it has to be closed. */
bool slip_parked_put(slip_server_t *, int fd, zend_long most);

#endif
