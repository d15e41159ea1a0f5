#include "parked.h"

#include <ctype.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "php_network.h"

/* By these whatever was selected, authenticated, queued, watched or subscribed is gone (Redis, since 6.2); there is nothing of that,
 * and the answer says that it is the next one (memcached, since 1.5.19). */
#define REDIS .reset = "*1\r\n$5\r\nRESET\r\n", .was_reset = "+RESET\r\n", .is_unknown = "-ERR unknown command"
#define MEMCACHED .is_memcached = true, .reset = "mn\r\n", .was_reset = "MN\r\n"

static const slip_kind_t kinds[] = {
	{"redis://", ":6379", REDIS},
	{"rediss://", ":6379", .is_tls = true, REDIS},
	{"memcached://", ":11211", MEMCACHED, .is_unknown = "ERROR"},
};

/* So long may the answer take that a client waits for it which connects again at once. */
#define PATIENCE_MS 5

/* So many answers in a row say that the server does not know the reset. */
#define UNKNOWN 2

const char *const slip_kept_reason_names[SLIP_KEPT_REASONS] = {
	"closed", "unread", "half", "stays", "late", "timeout", "old", "full", "unknown", "encrypted", "exported", "forked", "options", "replay",
};

static time_t now_s(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec;
}

static int64_t now_ms(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return (int64_t) now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static const slip_kind_t *kind_of(const char *word, size_t length)
{
	for (size_t at = 0; at < sizeof kinds / sizeof *kinds; at++) {
		const size_t scheme = strlen(kinds[at].scheme);
		if (length > scheme && strncasecmp(word, kinds[at].scheme, scheme) == 0) {
			return &kinds[at];
		}
	}
	return NULL;
}

/* One word of the setting; NULL, or what is wrong with it. */
static const char *read_server(slip_server_t *server, const char *word, size_t length)
{
	const slip_kind_t *kind = kind_of(word, length);

	if (!kind) {
		return "it does not begin with redis://, rediss:// or memcached://";
	}
	const size_t scheme = strlen(kind->scheme);
	const char *address = word + scheme;
	size_t left = length - scheme;
	bool is_unix = *address == '/';
	/* IPv6 addresses have colons in brackets. */
	const char *host_end = *address == '[' ? memchr(address, ']', left) : address;
	if (!host_end) {
		return "a bracket is not closed";
	}
	bool has_port = is_unix || memchr(host_end, ':', address + left - host_end);
	if (!is_unix && (memchr(address, '/', left) || memchr(address, '@', left))) {
		return "it has more than a host and a port";
	}
	if (is_unix && kind->is_tls) {
		return "there is no TLS on a path";
	}
	server->kind = kind;
	server->name = malloc(length + strlen(kind->default_port) + 1);
	if (!server->name) {
		return "there is no memory";
	}
	memcpy(server->name, word, length);
	strcpy(server->name + length, has_port ? "" : kind->default_port);
	server->resource = server->name + scheme;
	server->is_unix = is_unix;
	return NULL;
}

slip_server_t *slip_parked_read(const char *setting, int *count, const char **error)
{
	int most = 1;

	*error = NULL;
	*count = 0;
	for (const char *at = setting; *at; at++) {
		most += *at == ',' || isspace((unsigned char) *at);
	}
	slip_server_t *servers = calloc(most, sizeof *servers);
	if (!servers) {
		*error = "there is no memory";
		return NULL;
	}
	for (const char *at = setting; *at;) {
		size_t length = strcspn(at, ", \t\r\n");
		if (length && *count == SLIP_KEPT_SERVERS) {
			*error = "it has more than 16 servers";
			slip_parked_free(servers, *count, false);
			return NULL;
		}
		if (length && (*error = read_server(&servers[*count], at, length))) {
			slip_parked_free(servers, *count, false);
			*count = 0;
			return NULL;
		}
		*count += length > 0;
		at += length + (at[length] != '\0');
	}
	return servers;
}

static void discard(slip_parked_t *parked, bool is_end)
{
	slip_tls_free(&parked->tls, is_end);
	close(parked->fd);
}

void slip_parked_free(slip_server_t *servers, int count, bool is_end)
{
	for (int i = 0; servers && i < count; i++) {
		while (servers[i].count) {
			discard(&servers[i].parked[--servers[i].count], is_end);
		}
		free(servers[i].name);
	}
	free(servers);
}

/* Takes one out of those that are parked. */
static slip_parked_t take_out(slip_server_t *server, int at)
{
	slip_parked_t parked = server->parked[at];

	server->count--;
	memmove(&server->parked[at], &server->parked[at + 1], (server->count - at) * sizeof *server->parked);
	server->counts->parked = server->count;
	return parked;
}

static void add(slip_server_t *server, slip_parked_t parked)
{
	server->parked[server->count++] = parked;
	server->counts->parked = server->count;
}

/* What there is of an answer of so many bytes, 0 at the end of the connection, or less if it is late. */
static ssize_t receive(slip_parked_t *parked, char *answer, size_t size, size_t wanted)
{
	int64_t until_ms = parked->tls.handle || parked->replay ? now_ms() + PATIENCE_MS : 0;
	int left_ms = PATIENCE_MS;
	size_t there = 0;

	for (;;) {
		struct pollfd polled = {parked->fd, POLLIN | POLLRDHUP, 0};
		if (poll(&polled, 1, left_ms) <= 0) {
			return -1;
		}
		/* The answer may have come before the end. */
		if (polled.revents & (POLLRDHUP | POLLHUP | POLLERR)) {
			return 0;
		}
		ssize_t length;
		if (!parked->tls.handle) {
			length = recv(parked->fd, answer + there, size - there, MSG_DONTWAIT);
			there += MAX(length, 0);
			/* Of several answers some may come later. */
			if (length <= 0 || there >= wanted || !parked->replay) {
				return length > 0 ? (ssize_t) there : 0;
			}
		} else if ((length = slip_tls_read(&parked->tls, answer, size)) >= 0 || errno != EAGAIN) {
			/* Not a ticket, or a part of a record. */
			return MAX(length, 0);
		}
		if ((left_ms = (int) (until_ms - now_ms())) <= 0) {
			return -1;
		}
	}
}

/* -1 if nothing has come on a connection on which nothing may, or why it is not used. */
static int check_silent(const slip_parked_t *parked)
{
	struct pollfd polled = {parked->fd, POLLIN | POLLRDHUP, 0};

	if (poll(&polled, 1, 0) == 0) {
		return -1;
	}
	return polled.revents & (POLLRDHUP | POLLHUP | POLLERR) ? SLIP_KEPT_CLOSED : SLIP_KEPT_UNREAD;
}

/* -1 if the server says that the connection is as good as new, or why it is not used. */
static int check(slip_server_t *server, slip_parked_t *parked, zend_long most_seconds)
{
	const char *was_reset = server->kind->was_reset, *is_unknown = server->kind->is_unknown;
	char answer[SLIP_REPLAY_ANSWER + 1], wanted[SLIP_REPLAY_ANSWER];

	if (parked->pid != getpid()) {
		return SLIP_KEPT_FORKED;
	}
	if (now_s() - parked->since > most_seconds) {
		return SLIP_KEPT_OLD;
	}
	if (parked->is_clean) {
		return check_silent(parked);
	}
	size_t wanted_length = parked->replay ? slip_replay_answer(parked->replay, wanted) : strlen(strcpy(wanted, was_reset));
	ssize_t length = receive(parked, answer, sizeof answer, wanted_length);
	if (length <= 0) {
		return length < 0 ? SLIP_KEPT_LATE : SLIP_KEPT_CLOSED;
	}
	if (length == wanted_length && memcmp(answer, wanted, length) == 0) {
		server->unknown = 0;
		return parked->tls.handle && slip_tls_has_unread(&parked->tls) ? SLIP_KEPT_UNREAD : -1;
	}
	if ((size_t) length >= strlen(is_unknown) && strncasecmp(answer, is_unknown, strlen(is_unknown)) == 0) {
		/* One alone may be the answer to what the client wrote last, and did not read. */
		if (++server->unknown >= UNKNOWN) {
			server->gave_up = true;
			server->gave_up_since = now_s();
		}
		return SLIP_KEPT_UNKNOWN;
	}
	/* The password may be another one by now. */
	bool is_reset = (size_t) length > strlen(was_reset) && memcmp(answer, was_reset, strlen(was_reset)) == 0;
	return parked->replay && is_reset ? SLIP_KEPT_REPLAY : SLIP_KEPT_UNREAD;
}

bool slip_parked_take(slip_server_t *server, const zend_string *options, const slip_replay_t *replay, slip_parked_t *found,
	zend_long most_seconds)
{
	bool are_others = false;

	for (int at = server->count - 1; at >= 0; at--) {
		const slip_parked_t *parked = &server->parked[at];
		if (parked->replay != replay) {
			continue;
		}
		if (server->kind->is_tls && (options ? !zend_string_equals(parked->tls.options, options) : !parked->is_late)) {
			are_others = true;
			continue;
		}
		*found = take_out(server, at);
		int reason = check(server, found, most_seconds);
		if (reason < 0) {
			return true;
		}
		discard(found, false);
		server->counts->refused[reason]++;
	}
	server->counts->refused[SLIP_KEPT_OPTIONS] += are_others;
	return false;
}

/* Those that nobody has asked for, so that they do not take the place of others. */
static void discard_old(slip_server_t *server, zend_long most_seconds)
{
	time_t now = now_s();

	for (int at = server->count - 1; at >= 0; at--) {
		if (now - server->parked[at].since > most_seconds) {
			slip_parked_t old = take_out(server, at);
			discard(&old, false);
			server->counts->refused[SLIP_KEPT_OLD]++;
		}
	}
}

void slip_parked_end_replay(slip_server_t *server, const slip_replay_t *replay)
{
	for (int at = server->count - 1; at >= 0; at--) {
		if (server->parked[at].replay == replay) {
			slip_parked_t parked = take_out(server, at);
			discard(&parked, false);
		}
	}
}

/* Says the reset, if there is something to forget, from which on the connection is not the stream's any more. Less than 0, or why it is
 * not kept. */
static int take_from(slip_server_t *server, php_stream *stream, slip_tls_t *tls, bool is_clean, const slip_replay_t *replay)
{
	php_netstream_data_t *data = stream->abstract;
	const char *reset = replay ? replay->packet : server->kind->reset;
	const ssize_t length = replay ? replay->length : strlen(reset);
	char unread;

	if (is_clean) {
		return data->is_blocked || php_set_sock_blocking(data->socket, true) == SUCCESS ? -1 : SLIP_KEPT_CLOSED;
	}
	/* Or the end of the connection. */
	if (!tls->handle && recv(data->socket, &unread, 1, MSG_PEEK | MSG_DONTWAIT) >= 0) {
		return SLIP_KEPT_UNREAD;
	}
	if (!tls->handle) {
		/* Behind a `set` without an answer it would wait until the server acknowledges that, for 40 ms. */
		int on = server->kind->is_memcached;
		if (on && !server->is_unix) {
			setsockopt(data->socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
		}
		bool is_sent = php_set_sock_blocking(data->socket, true) == SUCCESS
			&& send(data->socket, reset, length, MSG_DONTWAIT | MSG_NOSIGNAL) == length;
		return is_sent ? -1 : SLIP_KEPT_CLOSED;
	}
	if (!slip_tls_take_out(stream, tls)) {
		return SLIP_KEPT_UNREAD;
	}
	if (slip_tls_write(tls, reset, length) != length) {
		/* The stream closes the socket, and knows nothing of its encryption any more. */
		slip_tls_free(tls, false);
		return SLIP_KEPT_CLOSED;
	}
	return -1;
}

void slip_parked_put(slip_server_t *server, php_stream *stream, slip_tls_t *tls, bool is_late, bool is_clean, const slip_replay_t *replay,
	zend_long most, zend_long most_seconds)
{
	php_netstream_data_t *data = stream->abstract;
	int reason = -1;

	most = MIN(most, SLIP_MOST_PARKED);
	if (server->count >= most) {
		discard_old(server, most_seconds);
	}
	/* It may be another server by now. */
	if (server->gave_up && now_s() - server->gave_up_since > most_seconds) {
		server->gave_up = false;
	}
	if (server->gave_up) {
		reason = SLIP_KEPT_UNKNOWN;
	} else if (server->count >= most) {
		reason = SLIP_KEPT_FULL;
	} else {
		reason = take_from(server, stream, tls, is_clean, replay);
	}
	if (reason >= 0) {
		server->counts->refused[reason]++;
		return;
	}
	add(server, (slip_parked_t) {data->socket, getpid(), now_s(), *tls, is_late, is_clean, replay});
	*tls = (slip_tls_t) {0};
	data->socket = -1;
}

void slip_parked_put_back(slip_server_t *server, slip_parked_t *parked, zend_long most)
{
	const char *reset = server->kind->reset;
	const ssize_t length = strlen(reset);

	if (server->count >= MIN(most, SLIP_MOST_PARKED) || slip_tls_write(&parked->tls, reset, length) != length) {
		discard(parked, false);
	} else {
		parked->since = now_s();
		add(server, *parked);
	}
	*parked = (slip_parked_t) {.fd = -1};
}
