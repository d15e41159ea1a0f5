#ifndef SLIP_LINK_H
#define SLIP_LINK_H

#include "php_network.h"

#include "framing.h"
#include "memcached.h"
#include "parked.h"
#include "replay.h"
#include "replies.h"
#include "tls.h"

/* What streams.c knows of a stream to a server whose connections are kept, for the files that do one more thing with it. */

/* A transport in whose place we are: what makes its streams, and the functions of those, as they were and as ours. */
typedef struct {
	const char *name;
	bool is_unix, is_tls;
	php_stream_transport_factory factory;
	const php_stream_ops *theirs;
	php_stream_ops ours;
	/* As long as a stream has a connection whose encryption may turn out to be another one; as long as it has none. */
	php_stream_ops holding, asleep;
} slip_transport_t;

/* A stream that leads to one of the servers. */
typedef struct {
	slip_server_t *server;
	slip_transport_t *transport;
	pid_t pid;
	/* -1, or why it cannot be kept. */
	int unfit;
	bool is_writing;
	union {
		slip_framing_t redis;
		slip_memcached_t memcached;
	} written;
	/* Of Redis. */
	slip_replies_t read;
	/* The server has answered to a reset on this connection before. */
	bool is_proven;
	/* What its handshake depends on; what there was before it; what there is after it. */
	zend_string *options;
	slip_tls_begin_t begin;
	slip_tls_t tls;
	/* A connection that was encrypted late, of one that will be: it is this one's if it asks for the same. */
	slip_parked_t held;
	/* It was that one's, but it has not been said yet that it begins. */
	bool awaits_begin;
	struct timeval timeout;
	bool has_timeout;
	/* Something was written, and nothing read since. */
	bool awaits_reply;
	/* Who it is and which database it means, as far as it was said on this connection; or NULL. */
	slip_replay_t *said;
	/* -1, or the socket of a stream of an image, which nobody closes at the end of a request but us. */
	int image_fd;
	/* Of such a stream: what its image has for the connections that it has in its place; or NULL. */
	const slip_replay_t *replay;
} slip_link_t;

/* NULL if it is none of ours. */
slip_link_t *slip_link_of(const php_stream *);
slip_link_t *slip_link_add(php_stream *, slip_transport_t *, slip_server_t *);
/* Without its socket, which stays open. */
void slip_link_forget(const php_stream *);

/* By the functions that the stream has. */
slip_transport_t *slip_link_transport(const php_stream *);

/* Connects, by a connection that is parked or anew. */
int slip_link_connect(php_stream *, slip_link_t *, int value, php_stream_xport_param *);

/* As it would be without us: what they do may look at whose functions the stream has, and replace them. */
int slip_link_delegate(php_stream *, int option, int value, void *parameters);

/* The first reason stays. */
void slip_link_note_unfit(slip_link_t *, enum slip_kept_reason);
/* -1, or why what this stream is connected to cannot be kept. */
int slip_link_why_not(const php_stream *, const slip_link_t *, int close_handle);
/* What has to be closed stays in the stream. */
void slip_link_park(php_stream *, slip_link_t *, int close_handle);
/* The image is gone that this is of: nothing is said any more. */
void slip_link_end_replay(const slip_replay_t *);

/* What is asked of the stream alone, and not of its connection. */
static inline bool slip_link_is_of_stream(int option)
{
	return option == PHP_STREAM_OPTION_READ_TIMEOUT || option == PHP_STREAM_OPTION_META_DATA_API || option == PHP_STREAM_OPTION_READ_BUFFER
		|| option == PHP_STREAM_OPTION_WRITE_BUFFER;
}

#endif
