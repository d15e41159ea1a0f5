#ifndef SLIP_MEMCACHED_H
#define SLIP_MEMCACHED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Of a line that has come in pieces so far. Longer ones are only those of `get` with many keys. */
#define SLIP_MEMCACHED_LINE 1024

/* What a client has written to memcached so far, as the server reads it (https://github.com/memcached/memcached/blob/master/doc/protocol.txt):
 * lines, and behind those that store something a block of so many bytes. The binary protocol is not understood. */
typedef struct {
	enum {
		SLIP_MEMCACHED_AT_LINE, /* all before are whole commands */
		SLIP_MEMCACHED_IN_LINE,
		SLIP_MEMCACHED_IN_LONG, /* a line that is longer than its place here, and stores nothing */
		SLIP_MEMCACHED_IN_BLOCK,
		SLIP_MEMCACHED_NOT_UNDERSTOOD
	} place;
	/* Bytes of the block and of the end of its line that have not come yet, and of the block itself that have. */
	int64_t left, come;
	/* The block may be a name and a password: a server with a file of those takes a `set` for them. */
	bool may_authenticate;
	/* The server has answered to the reset on this connection before, so it is not one of these. */
	bool is_proven;
	/* A command has set what no reset undoes, or has an answer like that to the reset. */
	bool stays;
	size_t length;
	char line[SLIP_MEMCACHED_LINE];
} slip_memcached_t;

void slip_memcached_begin(slip_memcached_t *, bool is_proven);

/* Reads on. */
void slip_memcached_read(slip_memcached_t *, const char *data, size_t length);

/* Whether nothing is half written. */
static inline bool slip_memcached_is_whole(const slip_memcached_t *written)
{
	return written->place == SLIP_MEMCACHED_AT_LINE;
}

#endif
