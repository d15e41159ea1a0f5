#include "parked.h"

#include <ctype.h>
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "php_network.h"

/* Since Redis 6.2: whatever was subscribed, selected, authenticated, queued or watched is gone. */
static const char reset[] = "*1\r\n$5\r\nRESET\r\n";
static const char was_reset[] = "+RESET\r\n";
static const char is_unknown[] = "-ERR unknown command";

/* So long may the answer take that a client waits for it which connects again at once. */
#define PATIENCE_MS 5

#define SCHEME "redis://"
#define DEFAULT_PORT ":6379"

const char *const slip_kept_reason_names[SLIP_KEPT_REASONS] = {
	"closed", "unread", "half", "stays", "late", "timeout", "old", "full", "unknown", "encrypted", "exported", "forked",
};

static time_t now_s(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec;
}

/* One word of the setting; NULL, or what is wrong with it. */
static const char *read_server(slip_server_t *server, const char *word, size_t length)
{
	const size_t scheme = strlen(SCHEME);

	if (length <= scheme || strncasecmp(word, SCHEME, scheme) != 0) {
		return "it does not begin with redis://";
	}
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
	server->name = malloc(length + sizeof DEFAULT_PORT);
	if (!server->name) {
		return "there is no memory";
	}
	memcpy(server->name, word, length);
	strcpy(server->name + length, has_port ? "" : DEFAULT_PORT);
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
			slip_parked_free(servers, *count);
			return NULL;
		}
		if (length && (*error = read_server(&servers[*count], at, length))) {
			slip_parked_free(servers, *count);
			*count = 0;
			return NULL;
		}
		*count += length > 0;
		at += length + (at[length] != '\0');
	}
	return servers;
}

void slip_parked_free(slip_server_t *servers, int count)
{
	for (int i = 0; servers && i < count; i++) {
		while (servers[i].count) {
			close(servers[i].parked[--servers[i].count].fd);
		}
		free(servers[i].name);
	}
	free(servers);
}

/* -1 if the server says that the connection is as good as new, or why it is not used. */
static int check(slip_server_t *server, const slip_parked_t *parked, zend_long most_seconds)
{
	char answer[64];

	if (parked->pid != getpid()) {
		return SLIP_KEPT_FORKED;
	}
	if (now_s() - parked->since > most_seconds) {
		return SLIP_KEPT_OLD;
	}
	struct pollfd polled = {parked->fd, POLLIN | POLLRDHUP, 0};
	if (poll(&polled, 1, PATIENCE_MS) <= 0) {
		return SLIP_KEPT_LATE;
	}
	/* The answer may have come before the end. */
	if (polled.revents & (POLLRDHUP | POLLHUP | POLLERR)) {
		return SLIP_KEPT_CLOSED;
	}
	ssize_t length = recv(parked->fd, answer, sizeof answer, MSG_DONTWAIT);
	if (length == strlen(was_reset) && memcmp(answer, was_reset, length) == 0) {
		return -1;
	}
	if (length <= 0) {
		return SLIP_KEPT_CLOSED;
	}
	if ((size_t) length >= strlen(is_unknown) && strncasecmp(answer, is_unknown, strlen(is_unknown)) == 0) {
		server->gave_up = true;
		return SLIP_KEPT_UNKNOWN;
	}
	return SLIP_KEPT_UNREAD;
}

int slip_parked_take(slip_server_t *server, zend_long most_seconds)
{
	while (server->count) {
		const slip_parked_t parked = server->parked[--server->count];
		server->counts->parked = server->count;
		int reason = check(server, &parked, most_seconds);
		if (reason < 0) {
			return parked.fd;
		}
		close(parked.fd);
		server->counts->refused[reason]++;
	}
	return -1;
}

bool slip_parked_put(slip_server_t *server, int fd, zend_long most)
{
	char unread;
	int reason = -1;

	if (server->gave_up) {
		reason = SLIP_KEPT_UNKNOWN;
	} else if (server->count >= MIN(most, SLIP_MOST_PARKED)) {
		reason = SLIP_KEPT_FULL;
	} else if (recv(fd, &unread, 1, MSG_PEEK | MSG_DONTWAIT) >= 0) {
		/* Or the end of the connection. */
		reason = SLIP_KEPT_UNREAD;
	} else if (php_set_sock_blocking(fd, true) != SUCCESS
			|| send(fd, reset, strlen(reset), MSG_DONTWAIT | MSG_NOSIGNAL) != (ssize_t) strlen(reset)) {
		reason = SLIP_KEPT_CLOSED;
	}
	if (reason >= 0) {
		server->counts->refused[reason]++;
		return false;
	}
	server->parked[server->count++] = (slip_parked_t) {fd, getpid(), now_s()};
	server->counts->parked = server->count;
	return true;
}
