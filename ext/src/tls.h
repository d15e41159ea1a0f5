#ifndef SLIP_TLS_H
#define SLIP_TLS_H

#include "php.h"
#include "php_network.h"
#include "php_streams.h"

/* The encryption of a stream by ext/openssl, taken out of one stream and put into another.
 *
 * What ext/openssl keeps of a stream is private. It is known here from its source, and believed only if a handshake changes in it
 * exactly what that source changes, and the library says of it what it must. */

typedef struct {
	void *handle;   /* SSL *, or NULL: not encrypted */
	void *context;  /* SSL_CTX * */
	/* Of the library's places for what others keep, that in which ext/openssl has the stream. */
	int stream_index;
	/* Everything that the handshake depended on, in malloc's memory. Only a stream with exactly the same gets it. */
	zend_string *options;
} slip_tls_t;

/* A stream on which a handshake is about to be, as it was before. */
typedef struct {
	unsigned char *before;
	size_t bytes;
} slip_tls_begin_t;

/* Whether the library is here, once. */
bool slip_tls_is_usable(void);

/* What a handshake on this stream depends on, by a transport of that name or on the application's wish; NULL if something of it is
 * not known here. */
zend_string *slip_tls_options(php_stream *, const char *protocol, int method);

/* False if this stream is not as it should be: it has to be left alone. */
bool slip_tls_begin(slip_tls_begin_t *, const php_stream *);
/* After the handshake; false if something else has changed, too. The options become the connection's. */
bool slip_tls_finish(slip_tls_begin_t *, php_stream *, slip_tls_t *, zend_string *options);
void slip_tls_forget(slip_tls_begin_t *);

/* Takes it out of the stream, whose socket does not block then; false if a reply is unread or a message is half written. */
bool slip_tls_take_out(php_stream *, slip_tls_t *);
/* Puts it into a stream that has none. */
bool slip_tls_put_in(php_stream *, slip_tls_t *);

/* As send() and recv() without waiting: 0 at the end, -1 if there is nothing (EAGAIN in errno) or it is broken. */
ssize_t slip_tls_write(slip_tls_t *, const char *data, size_t length);
ssize_t slip_tls_read(slip_tls_t *, char *data, size_t length);
/* Whether something has come that nobody has read. */
bool slip_tls_has_unread(slip_tls_t *);

/* Without a word to the server: it may be another process's. At the process's end the library is gone already. */
void slip_tls_free(slip_tls_t *, bool is_end);

#endif
