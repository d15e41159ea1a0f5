#include "asleep.h"

#include <errno.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "fresh.h"
#include "keep.h"
#include "link.h"

/* A stream of an image, and how it was connected. */
typedef struct {
	slip_transport_t *transport;
	char *resource;
	struct timeval timeout;
	bool has_timeout;
	int no_delay, keep_alive;
	/* What the boot has said on its connection, which is said on each other one; or NULL. */
	slip_replay_t *replay;
	/* This request could not have a connection for it. */
	bool is_lost;
} slip_sleeper_t;

/* By the address of the stream, as the links. */
static HashTable sleepers;
static bool is_started;

static void free_sleeper(zval *entry)
{
	slip_sleeper_t *sleeper = Z_PTR_P(entry);

	slip_replay_free(sleeper->replay);
	pefree(sleeper->resource, 1);
	pefree(sleeper, 1);
}

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
	const slip_replay_t *said = link->said;
	if (written->told || (said && !slip_replay_is_known(said))) {
		return "its connection is not like a new one: a password, a version of the protocol or another state was given on it";
	}
	switch (slip_fresh_ask(data->socket, patience_ms(data), said ? said->user : NULL, said ? said->database : NULL)) {
		case SLIP_FRESH:
			return NULL;
		case SLIP_NOT_FRESH:
			return "its connection is not like a new one: a database, a name, a user or another state was given on it";
		default:
			/* The answer may come yet. It must not be taken for that to the client's next command. */
			shutdown(data->socket, SHUT_RDWR);
			slip_link_note_unfit(link, SLIP_KEPT_LATE);
			return restless[SLIP_KEPT_LATE];
	}
}

const char *slip_asleep_may(php_stream *stream)
{
	slip_link_t *link = slip_link_of(stream);
	const php_netstream_data_t *data = stream->abstract;
	char unread;

	if (link->server->kind->is_tls) {
		return restless[SLIP_KEPT_ENCRYPTED];
	}
	if (data->socket == -1) {
		return restless[SLIP_KEPT_CLOSED];
	}
	int reason = slip_link_why_not(stream, link, 1);
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

void slip_asleep_put(const php_stream *stream, php_stream *saved, php_netstream_data_t *saved_data)
{
	slip_link_t *link = slip_link_of(stream);
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
	if (link->said) {
		sleeper->replay = pemalloc(sizeof *sleeper->replay, 1);
		*sleeper->replay = *link->said;
		link->replay = sleeper->replay;
	}
	zend_hash_index_update_ptr(&sleepers, (zend_ulong) (uintptr_t) stream, sleeper);
	saved->ops = &link->transport->asleep;
	saved_data->socket = -1;
}

static slip_sleeper_t *sleeper_of(const php_stream *stream)
{
	return zend_hash_index_find_ptr(&sleepers, (zend_ulong) (uintptr_t) stream);
}

void slip_asleep_rest(php_stream *stream)
{
	slip_link_t *link = slip_link_of(stream);
	slip_sleeper_t *sleeper = sleeper_of(stream);
	php_netstream_data_t *data = stream->abstract;

	if (link && data->socket != -1) {
		slip_link_park(stream, link, 1);
	}
	if (data->socket != -1) {
		close(data->socket);
		data->socket = -1;
	}
	slip_link_forget(stream);
	/* A destructor, or what ends the session, may need it again. */
	stream->ops = &sleeper->transport->asleep;
}

void slip_asleep_drop(const php_stream *stream)
{
	const slip_sleeper_t *sleeper = is_started ? sleeper_of(stream) : NULL;

	if (sleeper) {
		if (sleeper->replay) {
			slip_link_end_replay(sleeper->replay);
		}
		zend_hash_index_del(&sleepers, (zend_ulong) (uintptr_t) stream);
	}
}

/* What the boot has said on its connection. One that was parked knows it already. */
static bool is_told(slip_link_t *link, php_netstream_data_t *data)
{
	if (!link->replay) {
		return true;
	}
	if (!link->is_proven && !slip_replay_say(link->replay, data->socket, patience_ms(data))) {
		link->server->counts->refused[SLIP_KEPT_REPLAY]++;
		close(data->socket);
		data->socket = -1;
		return false;
	}
	link->server->counts->replayed++;
	return true;
}

/* A connection for it, as if it had been made now. False if there is none: for this request it is a connection that was lost. */
static bool wake(php_stream *stream)
{
	slip_sleeper_t *sleeper = sleeper_of(stream);
	php_netstream_data_t *data = stream->abstract;
	slip_transport_t *transport = slip_link_transport(stream);
	slip_server_t *server = sleeper && !sleeper->is_lost ? slip_keep_find(transport->is_unix, false, sleeper->resource, strlen(sleeper->resource)) : NULL;

	if (server && !server->kind->is_tls) {
		php_stream_xport_param parameters = {.op = STREAM_XPORT_OP_CONNECT, .want_errortext = true};
		slip_link_t *link = slip_link_add(stream, transport, server);
		link->replay = sleeper->replay;
		parameters.inputs.name = sleeper->resource;
		parameters.inputs.namelen = strlen(sleeper->resource);
		parameters.inputs.timeout = sleeper->has_timeout ? &sleeper->timeout : NULL;
		slip_link_connect(stream, link, 0, &parameters);
		if (parameters.outputs.error_text) {
			zend_string_release(parameters.outputs.error_text);
		}
		if (parameters.outputs.returncode == 0 && data->socket != -1 && is_told(link, data)) {
			link->image_fd = data->socket;
			if (!transport->is_unix) {
				setsockopt(data->socket, IPPROTO_TCP, TCP_NODELAY, &sleeper->no_delay, sizeof(int));
				setsockopt(data->socket, SOL_SOCKET, SO_KEEPALIVE, &sleeper->keep_alive, sizeof(int));
			}
			return true;
		}
		slip_link_forget(stream);
		stream->ops = &transport->asleep;
	}
	if (sleeper) {
		sleeper->is_lost = true;
	}
	stream->eof = 1;
	return false;
}

bool slip_asleep_says(const char *bytes, size_t length)
{
	const slip_sleeper_t *sleeper;

	if (!is_started) {
		return false;
	}
	ZEND_HASH_FOREACH_PTR(&sleepers, sleeper) {
		if (sleeper->replay && slip_replay_has(sleeper->replay, bytes, length)) {
			return true;
		}
	} ZEND_HASH_FOREACH_END();
	return false;
}

static ssize_t on_asleep_write(php_stream *stream, const char *data, size_t length)
{
	return wake(stream) ? stream->ops->write(stream, data, length) : -1;
}

static ssize_t on_asleep_read(php_stream *stream, char *data, size_t length)
{
	return wake(stream) ? stream->ops->read(stream, data, length) : -1;
}

static int on_asleep_cast(php_stream *stream, int how, void **result)
{
	return wake(stream) ? stream->ops->cast(stream, how, result) : FAILURE;
}

static int on_asleep_set_option(php_stream *stream, int option, int value, void *parameters)
{
	if (slip_link_is_of_stream(option)) {
		return slip_link_delegate(stream, option, value, parameters);
	}
	return wake(stream) ? stream->ops->set_option(stream, option, value, parameters) : PHP_STREAM_OPTION_RETURN_ERR;
}

static int on_asleep_close(php_stream *stream, int close_handle)
{
	stream->ops = slip_link_transport(stream)->theirs;
	return stream->ops->close(stream, close_handle);
}

void slip_asleep_take_functions(php_stream_ops *functions)
{
	functions->write = on_asleep_write;
	functions->read = on_asleep_read;
	functions->cast = on_asleep_cast;
	functions->close = on_asleep_close;
	functions->set_option = on_asleep_set_option;
}

void slip_asleep_startup(void)
{
	zend_hash_init(&sleepers, 8, NULL, free_sleeper, 1);
	is_started = true;
}

void slip_asleep_shutdown(void)
{
	is_started = false;
	zend_hash_destroy(&sleepers);
}

void slip_asleep_begin(void)
{
	slip_sleeper_t *sleeper;

	ZEND_HASH_FOREACH_PTR(&sleepers, sleeper) {
		sleeper->is_lost = false;
	} ZEND_HASH_FOREACH_END();
}
