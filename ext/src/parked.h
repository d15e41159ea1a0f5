#ifndef SLIP_PARKED_H
#define SLIP_PARKED_H

#include <sys/types.h>
#include <time.h>

#include "php.h"
#include "php_streams.h"

#include "kept_page.h"
#include "replay.h"
#include "tls.h"

/* Connections of this worker that no request has at the moment, by the server that they lead to.
 *
 * A connection is parked by telling the server to forget whatever was said on it, and taken again only if exactly the server's
 * answer to that is there to be read, and nothing else: no reply that nobody has read, nothing of a subscription, no end of the
 * connection. So no round trip is added, and the server itself says that the connection is as good as new.
 *
 * It need not be asked again as long as nothing but values was read and written since, and each reply was read: there is nothing to
 * forget then. */

/* Most that can be parked for one server. */
#define SLIP_MOST_PARKED 16

typedef struct {
	int fd;
	pid_t pid;        /* of the process that has parked it: a child's copy is not its own */
	time_t since;     /* by CLOCK_MONOTONIC, seconds */
	slip_tls_t tls;
	/* It was encrypted after it was connected, on the application's wish. */
	bool is_late;
	/* There was nothing to forget, and the server was not told to: nothing may come on it. */
	bool is_clean;
	/* Or what was said behind the reset, of one that a stream of an image has left; only that stream gets it. */
	const slip_replay_t *replay;
} slip_parked_t;

/* What a server speaks. */
typedef struct {
	const char *scheme, *default_port;
	bool is_tls, is_memcached;
	const char *reset, *was_reset;
	/* How an answer begins by which the server says that it does not know that, or does not let us. */
	const char *is_unknown;
} slip_kind_t;

/* A server that is named in slipstream.keep. */
typedef struct {
	const slip_kind_t *kind;
	char *name;       /* as it was named: redis://127.0.0.1:6379 */
	const char *resource; /* a part of that, as clients name it: 127.0.0.1:6379, or a path */
	bool is_unix;
	slip_parked_t parked[SLIP_MOST_PARKED];
	int count;
	/* It does not know the reset: nothing is parked for as long as something else would be. */
	bool gave_up;
	time_t gave_up_since;
	/* So many answers in a row said that it does not know the reset. */
	int unknown;
	struct slip_kept_counts *counts;
} slip_server_t;

/* Reads the setting; the servers that it names, SLIP_KEPT_SERVERS at most and without counts, or NULL with an error in it. */
slip_server_t *slip_parked_read(const char *setting, int *count, const char **error);
/* Closes what is parked, too. At the process's end some libraries are gone already. */
void slip_parked_free(slip_server_t *, int count, bool is_end);

/* Takes a connection that is as good as new, or as that one on which this was said; false if there is none. With TLS it is one with
 * exactly these options, or, without options, one that was encrypted late. */
bool slip_parked_take(slip_server_t *, const zend_string *options, const slip_replay_t *, slip_parked_t *, zend_long most_seconds);

/* Takes the connection out of the stream and parks it, if nothing of it is unread. What has to be closed stays in the stream. One that
 * is clean has nothing to forget. What there is to be replayed is said behind the reset. */
void slip_parked_put(slip_server_t *, php_stream *, slip_tls_t *, bool is_late, bool is_clean, const slip_replay_t *, zend_long most,
	zend_long most_seconds);

/* Closes those on which this was said. */
void slip_parked_end_replay(slip_server_t *, const slip_replay_t *);

/* Parks one again that was taken with TLS and has not been used. */
void slip_parked_put_back(slip_server_t *, slip_parked_t *, zend_long most);

#endif
