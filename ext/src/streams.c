#include "streams.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "asleep.h"
#include "keep.h"
#include "link.h"
#include "settings.h"

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
static HashTable links;
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

slip_link_t *slip_link_of(const php_stream *stream)
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

void slip_link_forget(const php_stream *stream)
{
	slip_link_t *link = slip_link_of(stream);

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
	slip_replay_free(link->said);
	if (link->image_fd >= 0) {
		close(link->image_fd);
	}
	pefree(link, 1);
}

slip_transport_t *slip_link_transport(const php_stream *stream)
{
	for (size_t at = 0; at < TRANSPORTS; at++) {
		if (stream->ops == &transports[at].ours || stream->ops == &transports[at].holding || stream->ops == &transports[at].asleep) {
			return &transports[at];
		}
	}
	return transports;
}

void slip_link_note_unfit(slip_link_t *link, enum slip_kept_reason reason)
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

int slip_link_delegate(php_stream *stream, int option, int value, void *parameters)
{
	slip_transport_t *transport = slip_link_transport(stream);
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

/* More was written to Redis. */
static void follow(slip_link_t *link, const char *data, size_t length)
{
	slip_framing_t *written = &link->written.redis;
	const bool is_alone = slip_framing_is_whole(written) && link->read.place == SLIP_AT_REPLY && link->read.whole == written->commands;
	const bool told = written->told;
	const uint64_t commands = written->commands;

	slip_framing_read(written, data, length);
	if (slip_keep_replays() && is_alone && link->image_fd < 0 && !link->server->kind->is_tls && written->commands == commands + 1
			&& slip_framing_is_whole(written) && slip_replay_hear(&link->said, data, length)) {
		/* It can be said again. */
		written->told = told;
	}
}

static ssize_t on_write(php_stream *stream, const char *data, size_t length)
{
	slip_link_t *link = slip_link_of(stream);

	if (UNEXPECTED(!link)) {
		return slip_link_transport(stream)->theirs->write(stream, data, length);
	}
	/* A fatal error does not come back. */
	link->is_writing = true;
	ssize_t written = link->transport->theirs->write(stream, data, length);
	link->is_writing = false;
	if (written > 0 && link->server->kind->is_memcached) {
		slip_memcached_read(&link->written.memcached, data, written);
	} else if (written > 0) {
		follow(link, data, written);
	}
	link->awaits_reply |= written > 0;
	if (link->server->kind->is_tls && !link->tls.handle) {
		/* What was said before the encryption is part of the connection. */
		slip_link_note_unfit(link, SLIP_KEPT_ENCRYPTED);
	} else if (link->tls.handle && written != (ssize_t) length) {
		/* The library may hold the rest of a message, and write that instead of what comes next. */
		slip_link_note_unfit(link, SLIP_KEPT_HALF);
	}
	return written;
}

static ssize_t on_read(php_stream *stream, char *data, size_t length)
{
	slip_link_t *link = slip_link_of(stream);

	if (UNEXPECTED(!link)) {
		return slip_link_transport(stream)->theirs->read(stream, data, length);
	}
	ssize_t come = link->transport->theirs->read(stream, data, length);
	if (come > 0) {
		link->awaits_reply = false;
		if (!link->server->kind->is_memcached) {
			slip_replies_read(&link->read, data, come);
		}
		if (link->said) {
			slip_replay_hear_answer(link->said, data, come);
		}
	}
	return come;
}

static int on_cast(php_stream *stream, int how, void **result)
{
	/* Whoever gets the socket itself may do anything with it, later as well. */
	if (how != PHP_STREAM_AS_FD_FOR_SELECT) {
		slip_link_note_unfit(slip_link_of(stream), SLIP_KEPT_EXPORTED);
	}
	return slip_link_transport(stream)->theirs->cast(stream, how, result);
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
	if (!slip_parked_take(link->server, link->options, link->replay, &parked, slip_keep_seconds())) {
		return false;
	}
	set_no_delay(stream, link, parked.fd);
	if (is_late(link)) {
		link->held = parked;
		stream->ops = &link->transport->holding;
	} else if (parked.tls.handle && !slip_tls_put_in(stream, &parked.tls)) {
		slip_tls_free(&parked.tls, false);
		close(parked.fd);
		slip_link_note_unfit(link, SLIP_KEPT_ENCRYPTED);
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
		slip_link_note_unfit(link, is_usable ? SLIP_KEPT_OPTIONS : SLIP_KEPT_ENCRYPTED);
	}
}

/* After a handshake that has succeeded. */
static void note_encrypted(php_stream *stream, slip_link_t *link)
{
	if (link->options && slip_tls_finish(&link->begin, stream, &link->tls, link->options)) {
		link->options = NULL;
	} else {
		slip_link_note_unfit(link, SLIP_KEPT_ENCRYPTED);
	}
}

int slip_link_connect(php_stream *stream, slip_link_t *link, int value, php_stream_xport_param *parameters)
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
		slip_link_note_unfit(link, SLIP_KEPT_ENCRYPTED);
	}
	int result = slip_link_delegate(stream, PHP_STREAM_OPTION_XPORT_API, value, parameters);
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
		slip_link_note_unfit(link, SLIP_KEPT_ENCRYPTED);
	} else if (is_setup) {
		note_options(stream, link, parameters->inputs.method);
		if (link->options && !slip_tls_begin(&link->begin, stream)) {
			slip_link_note_unfit(link, SLIP_KEPT_ENCRYPTED);
		}
	}
	int result = slip_link_delegate(stream, PHP_STREAM_OPTION_CRYPTO_API, value, parameters);
	/* With a socket that does not block it may take several calls. */
	if (does_begin && parameters->outputs.returncode != 1) {
		slip_link_note_unfit(link, SLIP_KEPT_ENCRYPTED);
	} else if (does_begin && link->unfit < 0) {
		note_encrypted(stream, link);
	}
	return result;
}

static int on_set_option(php_stream *stream, int option, int value, void *parameters)
{
	slip_link_t *link = slip_link_of(stream);

	if (link && option == PHP_STREAM_OPTION_CRYPTO_API) {
		return encrypt(stream, link, value, parameters);
	}
	if (link && option == PHP_STREAM_OPTION_XPORT_API) {
		switch (((php_stream_xport_param *) parameters)->op) {
			case STREAM_XPORT_OP_CONNECT:
			case STREAM_XPORT_OP_CONNECT_ASYNC:
				return slip_link_connect(stream, link, value, parameters);
			case STREAM_XPORT_OP_SEND:
				slip_link_note_unfit(link, SLIP_KEPT_EXPORTED);
				break;
			case STREAM_XPORT_OP_SHUTDOWN:
				slip_link_note_unfit(link, SLIP_KEPT_CLOSED);
				break;
			default:
				break;
		}
	}
	return slip_link_delegate(stream, option, value, parameters);
}

/* ---- closing ---- */

int slip_link_why_not(const php_stream *stream, const slip_link_t *link, int close_handle)
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

	/* Whose password is not that of the boot any more finds out at the end of each request. */
	if (link->server->kind->is_memcached || link->server->kind->is_tls || link->replay || !link->is_proven || written->has_others) {
		return false;
	}
	return link->read.place == SLIP_AT_REPLY && link->read.whole == written->commands;
}

void slip_link_park(php_stream *stream, slip_link_t *link, int close_handle)
{
	int reason = slip_link_why_not(stream, link, close_handle);

	if (reason >= 0) {
		link->server->counts->refused[reason]++;
	} else {
		slip_parked_put(link->server, stream, &link->tls, is_late(link), is_clean(link), link->replay, slip_keep_connections(),
			slip_keep_seconds());
	}
}

void slip_link_end_replay(const slip_replay_t *replay)
{
	slip_link_t *link;

	ZEND_HASH_FOREACH_PTR(&links, link) {
		if (link->replay == replay) {
			link->replay = NULL;
		}
	} ZEND_HASH_FOREACH_END();
	slip_keep_end_replay(replay);
}

static int on_close(php_stream *stream, int close_handle)
{
	slip_transport_t *transport = slip_link_transport(stream);
	slip_link_t *link = slip_link_of(stream);
	php_netstream_data_t *data = stream->abstract;

	if (link && data && data->socket != -1) {
		slip_link_park(stream, link, close_handle);
	}
	slip_link_forget(stream);
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
	slip_link_delegate(stream, PHP_STREAM_OPTION_XPORT_API, 0, &parameters);
	if (parameters.outputs.returncode != 0 || data->socket == -1) {
		return false;
	}
	link->server->counts->connected++;
	link->server->counts->connected_ns += now_ns() - start_ns;
	return true;
}

static ssize_t on_held_write(php_stream *stream, const char *data, size_t length)
{
	slip_link_t *link = slip_link_of(stream);
	return link && exchange_held(stream, link) ? on_write(stream, data, length) : -1;
}

static ssize_t on_held_read(php_stream *stream, char *data, size_t length)
{
	slip_link_t *link = slip_link_of(stream);
	return link && exchange_held(stream, link) ? on_read(stream, data, length) : -1;
}

static int on_held_cast(php_stream *stream, int how, void **result)
{
	slip_link_t *link = slip_link_of(stream);
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
		if (!slip_parked_take(link->server, link->options, NULL, &link->held, slip_keep_seconds())) {
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

static int on_held_set_option(php_stream *stream, int option, int value, void *parameters)
{
	slip_link_t *link = slip_link_of(stream);
	php_stream_xport_crypto_param *crypto = parameters;

	if (!link || slip_link_is_of_stream(option)) {
		return slip_link_delegate(stream, option, value, parameters);
	}
	if (option == PHP_STREAM_OPTION_CRYPTO_API && use_held(stream, link, crypto)) {
		crypto->outputs.returncode = SUCCESS;
		return PHP_STREAM_OPTION_RETURN_OK;
	}
	return exchange_held(stream, link) ? on_set_option(stream, option, value, parameters) : PHP_STREAM_OPTION_RETURN_ERR;
}

static int on_held_close(php_stream *stream, int close_handle)
{
	slip_link_t *link = slip_link_of(stream);

	if (link) {
		give_back(stream, link);
	}
	return on_close(stream, close_handle);
}

/* ---- making streams ---- */

bool slip_streams_is_ours(const php_stream *stream)
{
	return is_started && (stream->ops == &slip_link_transport(stream)->ours || stream->ops == &slip_link_transport(stream)->holding) && slip_link_of(stream);
}

slip_link_t *slip_link_add(php_stream *stream, slip_transport_t *transport, slip_server_t *server)
{
	slip_link_t *link = pecalloc(1, sizeof *link, 1);

	*link = (slip_link_t) {.server = server, .transport = transport, .pid = getpid(), .unfit = -1, .image_fd = -1};
	begin_writing(link, false);
	last_stream = NULL;
	zend_hash_index_update_ptr(&links, (zend_ulong) (uintptr_t) stream, link);
	stream->ops = &transport->ours;
	return link;
}

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
	slip_asleep_take_functions(&transport->asleep);
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
		slip_link_add(stream, transport, server);
	}
	return stream;
}

void slip_streams_startup(void)
{
	zend_hash_init(&links, 8, NULL, free_link, 1);
	slip_asleep_startup();
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
	slip_asleep_shutdown();
}

void slip_streams_forget(void)
{
	if (is_started) {
		last_stream = NULL;
		zend_hash_clean(&links);
		slip_asleep_begin();
	}
}
