#ifndef SLIP_KEPT_PAGE_H
#define SLIP_KEPT_PAGE_H

#include <stdint.h>

/* What this worker has kept and not kept, in memory that `slip connections` finds by its name and reads from outside:
 * crates/record/src/kept.rs. */

#define SLIP_KEPT_NAME "slipstream-connections"
#define SLIP_KEPT_MAGIC 0x6b706c73u /* "slpk" */
#define SLIP_KEPT_VERSION 3
#define SLIP_KEPT_SERVERS 16
#define SLIP_KEPT_NAME_BYTES 128

/* Why a connection was not kept, or not used again. */
enum slip_kept_reason {
	SLIP_KEPT_CLOSED,    /* by the server */
	SLIP_KEPT_UNREAD,    /* a reply, or a message, that nobody has read */
	SLIP_KEPT_HALF,      /* half a command was written */
	SLIP_KEPT_STAYS,     /* a command has set what no reset undoes, or was a reset */
	SLIP_KEPT_LATE,      /* the server has not answered yet */
	SLIP_KEPT_TIMEOUT,   /* a read has timed out */
	SLIP_KEPT_OLD,       /* longer than slipstream.keep_seconds */
	SLIP_KEPT_FULL,      /* as many as slipstream.keep_connections */
	SLIP_KEPT_UNKNOWN,   /* the server does not know the reset */
	SLIP_KEPT_ENCRYPTED, /* TLS was begun on it, or is not there, or is not as it is known */
	SLIP_KEPT_EXPORTED,  /* its socket was given away, or sent on past the stream */
	SLIP_KEPT_FORKED,    /* it is another process's */
	SLIP_KEPT_OPTIONS,   /* its options of TLS are others than those of the stream, or not all of them are known */
	SLIP_KEPT_REPLAY,    /* the server does not take the boot's password or database again */
	SLIP_KEPT_REASONS
};

extern const char *const slip_kept_reason_names[SLIP_KEPT_REASONS];

struct slip_kept_counts {
	/* As in slipstream.keep, cut off if it is longer. */
	char name[SLIP_KEPT_NAME_BYTES];
	/* How often one was asked for, taken from those that are parked, and made anew. */
	uint64_t asked, reused, connected;
	/* What the last two took, nanoseconds. */
	uint64_t reused_ns, connected_ns;
	/* Now. */
	uint64_t parked;
	/* Connections on which the password or the database of a boot was said again. */
	uint64_t replayed;
	uint64_t refused[SLIP_KEPT_REASONS];
};

struct slip_kept_page {
	uint32_t magic, version;
	/* Of servers. */
	uint32_t count, reserved;
	struct slip_kept_counts servers[SLIP_KEPT_SERVERS];
};

#endif
