#include "streams.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "php_network.h"

#include "framing.h"
#include "fresh.h"
#include "keep.h"
#include "memcached.h"
#include "replies.h"
#include "settings.h"

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
	/* -1, or the socket of a stream of an image, which nobody closes at the end of a request but us. */
	int image_fd;
} slip_link_t;

/* A stream of an image, and how it was connected. */
typedef struct {
	slip_transport_t *transport;
	char *resource;
	struct timeval timeout;
	bool has_timeout;
	int no_delay, keep_alive;
	/* This request could not have a connection for it. */
	bool is_lost;
} slip_sleeper_t;

static slip_transport_t transports[] = {
	{.name = "tcp"},
	{.name = "unix", .is_unix = true},
	{.name = "ssl", .is_tls = true},
	{.name = "tls", .is_tls = true},
	{.name = "tlsv1.0", .is_tls = true},
	{.name = "tlsv1.1", .is_tls = true},
	{.name = "tlsv1.2", .is_tls = true},
	{.name = "tlsv1.3", .is_tls = true},
};
#define TRANSPORTS (sizeof transports / sizeof *transports)

/* By the address of the stream. Not in the request's memory, which a snapshot may put back. */
static HashTable links, sleepers;
/* The one that was looked up last: most often it is asked for again. */
static const php_stream *last_stream;
static slip_link_t *last_link;
static bool is_started;

static uint64_t now_ns(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t) now.tv_sec * 1000000000u + now.tv_nsec;
}

static slip_link_t *link_of(const php_stream *stream)
{
	if (EXPECTED(stream == last_stream)) {
		return last_link;
	}
	slip_link_t *link = zend_hash_index_find_ptr(&links, (zend_ulong) (uintptr_t) stream);
	if (link) {
		last_stream = stream;
		last_link = link;
	}
	return link;
}

static void forget_link(const php_stream *stream)
{
	slip_link_t *link = link_of(stream);

	if (link) {
		link->image_fd = -1;
	}
	last_stream = NULL;
	zend_hash_index_del(&links, (zend_ulong) (uintptr_t) stream);
}

static void free_link(zval *entry)
{
	slip_link_t *link = Z_PTR_P(entry);

	if (link->options) {
		zend_string_release(link->options);
	}
	slip_tls_forget(&link->begin);
	/* The encryption itself is the stream's. */
	if (link->tls.options) {
		zend_string_release(link->tls.options);
	}
	/* And so is the socket of one that was held. */
	slip_tls_free(&link->held.tls, false);
	if (link->image_fd >= 0) {
		close(link->image_fd);
	}
	pefree(link, 1);
}

static void free_sleeper(zval *entry)
{
	slip_sleeper_t *sleeper = Z_PTR_P(entry);

	pefree(sleeper->resource, 1);
	pefree(sleeper, 1);
}

static slip_transport_t *transport_of(const php_stream *stream)
{
	for (size_t at = 0; at < TRANSPORTS; at++) {
		if (stream->ops == &transports[at].ours || stream->ops == &transports[at].holding || stream->ops == &transports[at].asleep) {
			return &transports[at];
		}
	}
	return transports;
}

static void note_unfit(slip_link_t *link, enum slip_kept_reason reason)
{
	if (link && link->unfit < 0) {
		link->unfit = reason;
	}
}

static zval *socket_option(php_stream *stream, const char *name)
{
	php_stream_context *context = PHP_STREAM_CONTEXT(stream);
	return context ? php_stream_context_get_option(context, "socket", name) : NULL;
}

static void set_no_delay(php_stream *stream, const slip_link_t *link, int fd)
{
	zval *no_delay = socket_option(stream, "tcp_nodelay");
	int on = no_delay && zend_is_true(no_delay);

	if (!link->server->is_unix) {
		setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
	}
}

/* Whether the encryption is asked for on a connection that is there already. */
static bool is_late(const slip_link_t *link)
{
	return link->server->kind->is_tls && !link->transport->is_tls;
}

/* As it would be without us: what they do may look at whose functions the stream has, and replace them. */
static int delegate(php_stream *stream, int option, int value, void *parameters)
{
	slip_transport_t *transport = transport_of(stream);
	const php_stream_ops *ours = stream->ops;

	stream->ops = transport->theirs;
	int result = transport->theirs->set_option(stream, option, value, parameters);
	if (stream->ops == transport->theirs) {
		stream->ops = ours;
	}
	return result;
}

/* ---- what is written ---- */

static void begin_writing(slip_link_t *link, bool is_proven)
{
	if (link->server->kind->is_memcached) {
		slip_memcached_begin(&link->written.memcached, is_proven);
	} else {
		link->written.redis = (slip_framing_t) {0};
		link->read = (slip_replies_t) {0};
	}
	link->is_proven = is_proven;
}

static ssize_t on_write(php_stream *stream, const char *data, size_t length)
{
	slip_link_t *link = link_of(stream);

	if (UNEXPECTED(!link)) {
		return transport_of(stream)->theirs->write(stream, data, length);
	}
	/* A fatal error does not come back. */
	link->is_writing = true;
	ssize_t written = link->transport->theirs->write(stream, data, length);
	link->is_writing = false;
	if (written > 0 && link->server->kind->is_memcached) {
		slip_memcached_read(&link->written.memcached, data, written);
	} else if (written > 0) {
		slip_framing_read(&link->written.redis, data, written);
	}
	link->awaits_reply |= written > 0;
	if (link->server->kind->is_tls && !link->tls.handle) {
		/* What was said before the encryption is part of the connection. */
		note_unfit(link, SLIP_KEPT_ENCRYPTED);
	} else if (link->tls.handle && written != (ssize_t) length) {
		/* The library may hold the rest of a message, and write that instead of what comes next. */
		note_unfit(link, SLIP_KEPT_HALF);
	}
	return written;
}

static ssize_t on_read(php_stream *stream, char *data, size_t length)
{
	slip_link_t *link = link_of(stream);

	if (UNEXPECTED(!link)) {
		return transport_of(stream)->theirs->read(stream, data, length);
	}
	ssize_t come = link->transport->theirs->read(stream, data, length);
	if (come > 0) {
		link->awaits_reply = false;
		if (!link->server->kind->is_memcached) {
			slip_replies_read(&link->read, data, come);
		}
	}
	return come;
}

static int on_cast(php_stream *stream, int how, void **result)
{
	/* Whoever gets the socket itself may do anything with it, later as well. */
	if (how != PHP_STREAM_AS_FD_FOR_SELECT) {
		note_unfit(link_of(stream), SLIP_KEPT_EXPORTED);
	}
	return transport_of(stream)->theirs->cast(stream, how, result);
}

/* ---- connecting ---- */

/* A parked connection in the place of a new one. False if there is none. */
static bool reconnect(php_stream *stream, slip_link_t *link, php_stream_xport_param *parameters)
{
	php_netstream_data_t *data = stream->abstract;
	slip_parked_t parked;

	/* From where it was connected cannot be changed any more. */
	if (!data || data->socket != -1 || socket_option(stream, "bindto")) {
		return false;
	}
	if ((link->transport->is_tls && !link->options) || (is_late(link) && parameters->op != STREAM_XPORT_OP_CONNECT)) {
		return false;
	}
	if (!slip_parked_take(link->server, link->options, &parked, slip_keep_seconds())) {
		return false;
	}
	set_no_delay(stream, link, parked.fd);
	if (is_late(link)) {
		link->held = parked;
		stream->ops = &link->transport->holding;
	} else if (parked.tls.handle && !slip_tls_put_in(stream, &parked.tls)) {
		slip_tls_free(&parked.tls, false);
		close(parked.fd);
		note_unfit(link, SLIP_KEPT_ENCRYPTED);
		return false;
	} else {
		link->tls = parked.tls;
	}
	data->socket = parked.fd;
	begin_writing(link, true);
	parameters->outputs.returncode = 0;
	parameters->outputs.error_code = 0;
	return true;
}

/* The options of a stream that is encrypted, or is about to be: all that a handshake depends on. */
static void note_options(php_stream *stream, slip_link_t *link, int method)
{
	if (link->options) {
		zend_string_release(link->options);
	}
	bool is_usable = slip_tls_is_usable();
	link->options = is_usable ? slip_tls_options(stream, link->transport->name, method) : NULL;
	if (!link->options) {
		note_unfit(link, is_usable ? SLIP_KEPT_OPTIONS : SLIP_KEPT_ENCRYPTED);
	}
}

/* After a handshake that has succeeded. */
static void note_encrypted(php_stream *stream, slip_link_t *link)
{
	if (link->options && slip_tls_finish(&link->begin, stream, &link->tls, link->options)) {
		link->options = NULL;
	} else {
		note_unfit(link, SLIP_KEPT_ENCRYPTED);
	}
}

static int connect_stream(php_stream *stream, slip_link_t *link, int value, php_stream_xport_param *parameters)
{
	uint64_t start_ns = now_ns();
	struct slip_kept_counts *counts = link->server->counts;

	counts->asked++;
	link->has_timeout = parameters->inputs.timeout != NULL;
	link->timeout = link->has_timeout ? *parameters->inputs.timeout : (struct timeval) {0};
	if (link->transport->is_tls) {
		note_options(stream, link, 0);
	}
	if (reconnect(stream, link, parameters)) {
		/* One that is held is not used yet. */
		counts->reused += !is_late(link);
		counts->reused_ns += now_ns() - start_ns;
		return PHP_STREAM_OPTION_RETURN_OK;
	}
	if (link->transport->is_tls && link->options && !slip_tls_begin(&link->begin, stream)) {
		note_unfit(link, SLIP_KEPT_ENCRYPTED);
	}
	int result = delegate(stream, PHP_STREAM_OPTION_XPORT_API, value, parameters);
	/* When one is there that is being made meanwhile is not known. */
	bool is_connected = parameters->op == STREAM_XPORT_OP_CONNECT && parameters->outputs.returncode == 0;
	if (is_connected) {
		counts->connected++;
		counts->connected_ns += now_ns() - start_ns;
	}
	if (link->transport->is_tls && is_connected) {
		note_encrypted(stream, link);
	}
	return result;
}

/* A handshake on a connection that is there already. */
static int encrypt(php_stream *stream, slip_link_t *link, int value, php_stream_xport_crypto_param *parameters)
{
	bool is_setup = parameters->op == STREAM_XPORT_CRYPTO_OP_SETUP, does_begin = !is_setup && parameters->inputs.activate;

	if (link->image_fd >= 0) {
		/* What the library has of it would be lost with the request's memory. Its server is one without TLS. */
		parameters->outputs.returncode = -1;
		return PHP_STREAM_OPTION_RETURN_OK;
	}
	if (does_begin && link->awaits_begin) {
		link->awaits_begin = false;
		parameters->outputs.returncode = 1;
		return PHP_STREAM_OPTION_RETURN_OK;
	}
	if (!is_late(link) || link->tls.handle || (is_setup ? parameters->inputs.session != NULL : !does_begin)) {
		note_unfit(link, SLIP_KEPT_ENCRYPTED);
	} else if (is_setup) {
		note_options(stream, link, parameters->inputs.method);
		if (link->options && !slip_tls_begin(&link->begin, stream)) {
			note_unfit(link, SLIP_KEPT_ENCRYPTED);
		}
	}
	int result = delegate(stream, PHP_STREAM_OPTION_CRYPTO_API, value, parameters);
	/* With a socket that does not block it may take several calls. */
	if (does_begin && parameters->outputs.returncode != 1) {
		note_unfit(link, SLIP_KEPT_ENCRYPTED);
	} else if (does_begin && link->unfit < 0) {
		note_encrypted(stream, link);
	}
	return result;
}

static int on_set_option(php_stream *stream, int option, int value, void *parameters)
{
	slip_link_t *link = link_of(stream);

	if (link && option == PHP_STREAM_OPTION_CRYPTO_API) {
		return encrypt(stream, link, value, parameters);
	}
	if (link && option == PHP_STREAM_OPTION_XPORT_API) {
		switch (((php_stream_xport_param *) parameters)->op) {
			case STREAM_XPORT_OP_CONNECT:
			case STREAM_XPORT_OP_CONNECT_ASYNC:
				return connect_stream(stream, link, value, parameters);
			case STREAM_XPORT_OP_SEND:
				note_unfit(link, SLIP_KEPT_EXPORTED);
				break;
			case STREAM_XPORT_OP_SHUTDOWN:
				note_unfit(link, SLIP_KEPT_CLOSED);
				break;
			default:
				break;
		}
	}
	return delegate(stream, option, value, parameters);
}

/* ---- closing ---- */

/* -1, or why what this stream is connected to cannot be kept. */
static int unfit(const php_stream *stream, const slip_link_t *link, int close_handle)
{
	const php_netstream_data_t *data = stream->abstract;
	bool is_memcached = link->server->kind->is_memcached;

	if (link->unfit >= 0) {
		return link->unfit;
	}
	if (!close_handle || link->pid != getpid()) {
		return SLIP_KEPT_FORKED;
	}
	if (link->server->kind->is_tls && !link->tls.handle) {
		return SLIP_KEPT_ENCRYPTED;
	}
	if (data->timeout_event) {
		return SLIP_KEPT_TIMEOUT;
	}
	if (stream->eof) {
		return SLIP_KEPT_CLOSED;
	}
	if (stream->writepos != stream->readpos) {
		return SLIP_KEPT_UNREAD;
	}
	if (is_memcached ? link->written.memcached.stays : link->written.redis.stays) {
		return SLIP_KEPT_STAYS;
	}
	if (link->is_writing) {
		return SLIP_KEPT_HALF;
	}
	bool is_whole = is_memcached ? slip_memcached_is_whole(&link->written.memcached) : slip_framing_is_whole(&link->written.redis);
	return is_whole ? -1 : SLIP_KEPT_HALF;
}

/* Whether nothing is left of what was said: a new connection, or one that was reset, on which values were read and written, and each
 * reply was read. With TLS the library may have read more than it gave. */
static bool is_clean(const slip_link_t *link)
{
	const slip_framing_t *written = &link->written.redis;

	if (link->server->kind->is_memcached || link->server->kind->is_tls || !link->is_proven || written->has_others) {
		return false;
	}
	return link->read.place == SLIP_AT_REPLY && link->read.whole == written->commands;
}

/* What has to be closed stays in the stream. */
static void park(php_stream *stream, slip_link_t *link, int close_handle)
{
	int reason = unfit(stream, link, close_handle);

	if (reason >= 0) {
		link->server->counts->refused[reason]++;
	} else {
		slip_parked_put(link->server, stream, &link->tls, is_late(link), is_clean(link), slip_keep_connections(), slip_keep_seconds());
	}
}

static int on_close(php_stream *stream, int close_handle)
{
	slip_transport_t *transport = transport_of(stream);
	slip_link_t *link = link_of(stream);
	php_netstream_data_t *data = stream->abstract;

	if (link && data && data->socket != -1) {
		park(stream, link, close_handle);
	}
	forget_link(stream);
	stream->ops = transport->theirs;
	return transport->theirs->close(stream, close_handle);
}

/* ---- a connection whose encryption is not asked for yet ---- */

static void give_back(php_stream *stream, slip_link_t *link)
{
	if (link->held.tls.handle && link->pid == getpid()) {
		slip_parked_put_back(link->server, &link->held, slip_keep_connections());
	}
	((php_netstream_data_t *) stream->abstract)->socket = -1;
}

/* Another connection for what was held: something else was asked for. False if it cannot be had. */
static bool exchange_held(php_stream *stream, slip_link_t *link)
{
	php_netstream_data_t *data = stream->abstract;
	uint64_t start_ns = now_ns();
	php_stream_xport_param parameters = {.op = STREAM_XPORT_OP_CONNECT};

	stream->ops = &link->transport->ours;
	give_back(stream, link);
	parameters.inputs.name = (char *) link->server->resource;
	parameters.inputs.namelen = strlen(link->server->resource);
	parameters.inputs.timeout = link->has_timeout ? &link->timeout : NULL;
	begin_writing(link, false);
	delegate(stream, PHP_STREAM_OPTION_XPORT_API, 0, &parameters);
	if (parameters.outputs.returncode != 0 || data->socket == -1) {
		return false;
	}
	link->server->counts->connected++;
	link->server->counts->connected_ns += now_ns() - start_ns;
	return true;
}

static ssize_t on_held_write(php_stream *stream, const char *data, size_t length)
{
	slip_link_t *link = link_of(stream);
	return link && exchange_held(stream, link) ? on_write(stream, data, length) : -1;
}

static ssize_t on_held_read(php_stream *stream, char *data, size_t length)
{
	slip_link_t *link = link_of(stream);
	return link && exchange_held(stream, link) ? on_read(stream, data, length) : -1;
}

static int on_held_cast(php_stream *stream, int how, void **result)
{
	slip_link_t *link = link_of(stream);
	return link && exchange_held(stream, link) ? on_cast(stream, how, result) : FAILURE;
}

/* The encryption is asked for: that of the connection which is held, or of another one that is parked. */
static bool use_held(php_stream *stream, slip_link_t *link, const php_stream_xport_crypto_param *parameters)
{
	php_netstream_data_t *data = stream->abstract;

	if (parameters->op != STREAM_XPORT_CRYPTO_OP_SETUP || parameters->inputs.session) {
		return false;
	}
	note_options(stream, link, parameters->inputs.method);
	if (!link->options) {
		return false;
	}
	if (!zend_string_equals(link->options, link->held.tls.options)) {
		give_back(stream, link);
		if (!slip_parked_take(link->server, link->options, &link->held, slip_keep_seconds())) {
			return false;
		}
		data->socket = link->held.fd;
		set_no_delay(stream, link, link->held.fd);
	}
	if (!slip_tls_put_in(stream, &link->held.tls)) {
		return false;
	}
	link->awaits_begin = true;
	link->tls = link->held.tls;
	link->held.tls = (slip_tls_t) {0};
	link->server->counts->reused++;
	stream->ops = &link->transport->ours;
	return true;
}

/* What is asked of the stream alone, and not of its connection. */
static bool is_of_stream(int option)
{
	return option == PHP_STREAM_OPTION_READ_TIMEOUT || option == PHP_STREAM_OPTION_META_DATA_API || option == PHP_STREAM_OPTION_READ_BUFFER
		|| option == PHP_STREAM_OPTION_WRITE_BUFFER;
}

static int on_held_set_option(php_stream *stream, int option, int value, void *parameters)
{
	slip_link_t *link = link_of(stream);
	php_stream_xport_crypto_param *crypto = parameters;

	if (!link || is_of_stream(option)) {
		return delegate(stream, option, value, parameters);
	}
	if (option == PHP_STREAM_OPTION_CRYPTO_API && use_held(stream, link, crypto)) {
		crypto->outputs.returncode = SUCCESS;
		return PHP_STREAM_OPTION_RETURN_OK;
	}
	return exchange_held(stream, link) ? on_set_option(stream, option, value, parameters) : PHP_STREAM_OPTION_RETURN_ERR;
}

static int on_held_close(php_stream *stream, int close_handle)
{
	slip_link_t *link = link_of(stream);

	if (link) {
		give_back(stream, link);
	}
	return on_close(stream, close_handle);
}

/* ---- streams of an image ---- */

/* Longest that a server is waited for which is asked what it knows of a connection, milliseconds. */
#define MOST_PATIENCE_MS 60000

/* Why a stream cannot be part of an image; others than these do not come up. */
static const char *const restless[SLIP_KEPT_REASONS] = {
	[SLIP_KEPT_CLOSED] = "its connection was closed",
	[SLIP_KEPT_UNREAD] = "a reply on its connection is not read",
	[SLIP_KEPT_HALF] = "half a command was written to its connection",
	[SLIP_KEPT_STAYS] = "a command has set on its connection what no reset undoes",
	[SLIP_KEPT_LATE] = "the server has not said what it knows of its connection",
	[SLIP_KEPT_TIMEOUT] = "a read from its connection has timed out",
	[SLIP_KEPT_ENCRYPTED] = "its connection is encrypted",
	[SLIP_KEPT_EXPORTED] = "the socket of its connection was given away",
	[SLIP_KEPT_FORKED] = "its connection is another process's",
	[SLIP_KEPT_OPTIONS] = "its connection is encrypted",
};

bool slip_streams_is_ours(const php_stream *stream)
{
	return is_started && (stream->ops == &transport_of(stream)->ours || stream->ops == &transport_of(stream)->holding) && link_of(stream);
}

/* As long as the stream itself would wait for a reply. */
static int patience_ms(const php_netstream_data_t *data)
{
	bool is_patient = data->timeout.tv_sec < 0 || data->timeout.tv_sec >= MOST_PATIENCE_MS / 1000;
	return is_patient ? MOST_PATIENCE_MS : (int) (data->timeout.tv_sec * 1000 + data->timeout.tv_usec / 1000);
}

/* What a client has said of itself would be gone with the connection, and it would not know. */
static const char *check_fresh(slip_link_t *link, const php_netstream_data_t *data)
{
	const slip_framing_t *written = &link->written.redis;

	if (written->is_open) {
		return "a transaction is open on its connection";
	}
	if (written->told) {
		return "its connection is not like a new one: a password, a version of the protocol or another state was given on it";
	}
	switch (slip_fresh_ask(data->socket, patience_ms(data))) {
		case SLIP_FRESH:
			return NULL;
		case SLIP_NOT_FRESH:
			return "its connection is not like a new one: a database, a name, a user or another state was given on it";
		default:
			/* The answer may come yet. It must not be taken for that to the client's next command. */
			shutdown(data->socket, SHUT_RDWR);
			note_unfit(link, SLIP_KEPT_LATE);
			return restless[SLIP_KEPT_LATE];
	}
}

const char *slip_streams_may_sleep(php_stream *stream)
{
	slip_link_t *link = link_of(stream);
	const php_netstream_data_t *data = stream->abstract;
	char unread;

	if (link->server->kind->is_tls) {
		return restless[SLIP_KEPT_ENCRYPTED];
	}
	if (data->socket == -1) {
		return restless[SLIP_KEPT_CLOSED];
	}
	int reason = unfit(stream, link, 1);
	if (reason >= 0) {
		return restless[reason];
	}
	if (!data->is_blocked) {
		return "its connection does not block";
	}
	ssize_t length = recv(data->socket, &unread, 1, MSG_PEEK | MSG_DONTWAIT);
	if (length >= 0 || (errno != EAGAIN && errno != EWOULDBLOCK)) {
		return restless[length > 0 ? SLIP_KEPT_UNREAD : SLIP_KEPT_CLOSED];
	}
	if (link->awaits_reply) {
		/* It is still to come, or never will: the stream would have to know which. */
		return restless[SLIP_KEPT_UNREAD];
	}
	/* memcached knows nothing of a connection but what makes it unfit. */
	return link->server->kind->is_memcached ? NULL : check_fresh(link, data);
}

void slip_streams_put_to_sleep(const php_stream *stream, php_stream *saved, php_netstream_data_t *saved_data)
{
	const slip_link_t *link = link_of(stream);
	slip_sleeper_t *sleeper = pecalloc(1, sizeof *sleeper, 1);
	socklen_t length = sizeof(int);

	sleeper->transport = link->transport;
	sleeper->resource = pestrdup(link->server->resource, 1);
	sleeper->timeout = link->timeout;
	sleeper->has_timeout = link->has_timeout;
	if (!link->server->is_unix) {
		/* phpredis sets them on the socket itself. */
		getsockopt(saved_data->socket, IPPROTO_TCP, TCP_NODELAY, &sleeper->no_delay, &length);
		length = sizeof(int);
		getsockopt(saved_data->socket, SOL_SOCKET, SO_KEEPALIVE, &sleeper->keep_alive, &length);
	}
	zend_hash_index_update_ptr(&sleepers, (zend_ulong) (uintptr_t) stream, sleeper);
	saved->ops = &link->transport->asleep;
	saved_data->socket = -1;
}

static slip_sleeper_t *sleeper_of(const php_stream *stream)
{
	return zend_hash_index_find_ptr(&sleepers, (zend_ulong) (uintptr_t) stream);
}

void slip_streams_rest(php_stream *stream)
{
	slip_link_t *link = link_of(stream);
	slip_sleeper_t *sleeper = sleeper_of(stream);
	php_netstream_data_t *data = stream->abstract;

	if (link && data->socket != -1) {
		park(stream, link, 1);
	}
	if (data->socket != -1) {
		close(data->socket);
		data->socket = -1;
	}
	forget_link(stream);
	/* A destructor, or what ends the session, may need it again. */
	stream->ops = &sleeper->transport->asleep;
}

void slip_streams_drop(const php_stream *stream)
{
	if (is_started) {
		zend_hash_index_del(&sleepers, (zend_ulong) (uintptr_t) stream);
	}
}

static slip_link_t *add_link(php_stream *stream, slip_transport_t *transport, slip_server_t *server)
{
	slip_link_t *link = pecalloc(1, sizeof *link, 1);

	*link = (slip_link_t) {.server = server, .transport = transport, .pid = getpid(), .unfit = -1, .image_fd = -1};
	begin_writing(link, false);
	last_stream = NULL;
	zend_hash_index_update_ptr(&links, (zend_ulong) (uintptr_t) stream, link);
	stream->ops = &transport->ours;
	return link;
}

/* A connection for it, as if it had been made now. False if there is none: for this request it is a connection that was lost. */
static bool wake(php_stream *stream)
{
	slip_sleeper_t *sleeper = sleeper_of(stream);
	const php_netstream_data_t *data = stream->abstract;
	slip_transport_t *transport = transport_of(stream);
	slip_server_t *server = sleeper && !sleeper->is_lost ? slip_keep_find(transport->is_unix, false, sleeper->resource, strlen(sleeper->resource)) : NULL;

	if (server && !server->kind->is_tls) {
		php_stream_xport_param parameters = {.op = STREAM_XPORT_OP_CONNECT, .want_errortext = true};
		slip_link_t *link = add_link(stream, transport, server);
		parameters.inputs.name = sleeper->resource;
		parameters.inputs.namelen = strlen(sleeper->resource);
		parameters.inputs.timeout = sleeper->has_timeout ? &sleeper->timeout : NULL;
		connect_stream(stream, link, 0, &parameters);
		if (parameters.outputs.error_text) {
			zend_string_release(parameters.outputs.error_text);
		}
		if (parameters.outputs.returncode == 0 && data->socket != -1) {
			link->image_fd = data->socket;
			if (!transport->is_unix) {
				setsockopt(data->socket, IPPROTO_TCP, TCP_NODELAY, &sleeper->no_delay, sizeof(int));
				setsockopt(data->socket, SOL_SOCKET, SO_KEEPALIVE, &sleeper->keep_alive, sizeof(int));
			}
			return true;
		}
		forget_link(stream);
		stream->ops = &transport->asleep;
	}
	if (sleeper) {
		sleeper->is_lost = true;
	}
	stream->eof = 1;
	return false;
}

static ssize_t on_asleep_write(php_stream *stream, const char *data, size_t length)
{
	return wake(stream) ? on_write(stream, data, length) : -1;
}

static ssize_t on_asleep_read(php_stream *stream, char *data, size_t length)
{
	return wake(stream) ? on_read(stream, data, length) : -1;
}

static int on_asleep_cast(php_stream *stream, int how, void **result)
{
	return wake(stream) ? on_cast(stream, how, result) : FAILURE;
}

static int on_asleep_set_option(php_stream *stream, int option, int value, void *parameters)
{
	if (is_of_stream(option)) {
		return delegate(stream, option, value, parameters);
	}
	return wake(stream) ? on_set_option(stream, option, value, parameters) : PHP_STREAM_OPTION_RETURN_ERR;
}

static int on_asleep_close(php_stream *stream, int close_handle)
{
	stream->ops = transport_of(stream)->theirs;
	return stream->ops->close(stream, close_handle);
}

/* ---- making streams ---- */

static slip_transport_t *transport_named(const char *protocol, size_t length)
{
	for (size_t at = 0; at < TRANSPORTS; at++) {
		if (strlen(transports[at].name) == length && strncasecmp(transports[at].name, protocol, length) == 0) {
			return &transports[at];
		}
	}
	return transports;
}

static void take_functions(slip_transport_t *transport, const php_stream_ops *theirs)
{
	transport->theirs = theirs;
	transport->ours = transport->holding = transport->asleep = *theirs;
	transport->ours.write = on_write;
	transport->ours.read = on_read;
	transport->ours.cast = on_cast;
	transport->ours.close = on_close;
	transport->ours.set_option = on_set_option;
	transport->holding.write = on_held_write;
	transport->holding.read = on_held_read;
	transport->holding.cast = on_held_cast;
	transport->holding.close = on_held_close;
	transport->holding.set_option = on_held_set_option;
	transport->asleep.write = on_asleep_write;
	transport->asleep.read = on_asleep_read;
	transport->asleep.cast = on_asleep_cast;
	transport->asleep.close = on_asleep_close;
	transport->asleep.set_option = on_asleep_set_option;
}

static php_stream *make(const char *protocol, size_t protocol_length, const char *resource, size_t length, const char *persistent_id,
	int options, int flags, struct timeval *timeout, php_stream_context *context STREAMS_DC)
{
	slip_transport_t *transport = transport_named(protocol, protocol_length);
	php_stream *stream = transport->factory(protocol, protocol_length, resource, length, persistent_id, options, flags, timeout, context
		STREAMS_REL_CC);
	slip_server_t *server = slip_keep_find(transport->is_unix, transport->is_tls, resource, length);

	/* A persistent one is kept by PHP, as it is. */
	if (!stream || !server || persistent_id || (flags & STREAM_XPORT_SERVER)) {
		return stream;
	}
	if (!transport->theirs) {
		take_functions(transport, stream->ops);
	}
	if (stream->ops == transport->theirs) {
		add_link(stream, transport, server);
	}
	return stream;
}

void slip_streams_startup(void)
{
	zend_hash_init(&links, 8, NULL, free_link, 1);
	zend_hash_init(&sleepers, 8, NULL, free_sleeper, 1);
	is_started = true;
	for (size_t at = 0; at < TRANSPORTS; at++) {
		slip_transport_t *transport = &transports[at];
		transport->factory = zend_hash_str_find_ptr(php_stream_xport_get_hash(), transport->name, strlen(transport->name));
		if (transport->factory) {
			php_stream_xport_register(transport->name, make);
		}
	}
}

void slip_streams_shutdown(void)
{
	if (!is_started) {
		return;
	}
	is_started = false;
	for (size_t at = 0; at < TRANSPORTS; at++) {
		if (transports[at].factory) {
			php_stream_xport_register(transports[at].name, transports[at].factory);
		}
	}
	last_stream = NULL;
	zend_hash_destroy(&links);
	zend_hash_destroy(&sleepers);
}

void slip_streams_forget(void)
{
	slip_sleeper_t *sleeper;

	if (is_started) {
		last_stream = NULL;
		zend_hash_clean(&links);
		ZEND_HASH_FOREACH_PTR(&sleepers, sleeper) {
			sleeper->is_lost = false;
		} ZEND_HASH_FOREACH_END();
	}
}
