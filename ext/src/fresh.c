#include "fresh.h"

#include <poll.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

/* Since Redis 6.2, as RESET. */
static const char question[] = "*2\r\n$6\r\nCLIENT\r\n$4\r\nINFO\r\n";

/* A line of some thirty words. */
#define MAX_ANSWER 4096

/* Places in the list below. */
enum {DATABASE, USER};

/* What a new connection has (https://redis.io/docs/latest/commands/client-list); what else there is differs from one to the next, or
 * by the time, or changes nothing. Some came with a later version. */
static const struct {
	const char *name, *value, *or_value;
	bool is_always_there;
} expected[] = {
	[DATABASE] = {"db", "0", NULL, true},
	[USER] = {"user", "default", NULL, true},
	{"name", "", NULL, true},
	{"sub", "0", NULL, true},
	{"psub", "0", NULL, true},
	{"ssub", "0", NULL, false},
	{"multi", "-1", NULL, true},
	{"watch", "0", NULL, false},
	/* Nothing; or that it came over a path. */
	{"flags", "N", "U", true},
	{"redir", "-1", NULL, true},
	{"resp", "2", NULL, false},
	{"capa", "", NULL, false},
};
#define EXPECTED (sizeof expected / sizeof *expected)

static int64_t now_ms(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return (int64_t) now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* How long the answer is that begins so, 0 if that cannot be told yet, or less if it is none that was expected. */
static ssize_t length_of(const char *answer, size_t there)
{
	const char *end = memchr(answer, '\n', there);

	if (!end) {
		return 0;
	}
	size_t line = end - answer + 1;
	if (*answer == '-') {
		return line;
	}
	char *behind;
	long bytes = *answer == '$' ? strtol(answer + 1, &behind, 10) : -1;
	return bytes >= 0 && bytes < MAX_ANSWER && *behind == '\r' ? (ssize_t) (line + bytes + 2) : -1;
}

/* The whole answer, in `answer`. */
static bool receive(int fd, char *answer, int patience_ms)
{
	int64_t until_ms = now_ms() + patience_ms, left_ms = patience_ms;
	size_t there = 0;

	for (;;) {
		struct pollfd polled = {fd, POLLIN, 0};
		if (left_ms < 0 || poll(&polled, 1, (int) left_ms) <= 0) {
			return false;
		}
		ssize_t more = recv(fd, answer + there, MAX_ANSWER - 1 - there, MSG_DONTWAIT);
		if (more <= 0) {
			return false;
		}
		there += more;
		answer[there] = '\0';
		ssize_t length = length_of(answer, there);
		if (length < 0 || (length && (size_t) length < there) || there == MAX_ANSWER - 1) {
			return false;
		}
		if (length && (size_t) length == there) {
			return true;
		}
		left_ms = until_ms - now_ms();
	}
}

static bool is(const char *value, size_t length, const char *wanted)
{
	return wanted && strlen(wanted) == length && memcmp(value, wanted, length) == 0;
}

/* The words of the line, each `name=value`. */
static bool is_fresh(const char *line, const char *user, const char *database)
{
	bool found[EXPECTED] = {false};

	for (const char *word = line; *word && *word != '\r' && *word != '\n';) {
		size_t length = strcspn(word, " \r\n"), name = strcspn(word, "= \r\n");
		for (size_t at = 0; at < EXPECTED; at++) {
			if (!is(word, name, expected[at].name)) {
				continue;
			}
			const char *value = word + name + 1, *wanted = at == USER && user ? user : at == DATABASE && database ? database : expected[at].value;
			if (length <= name || (!is(value, length - name - 1, wanted) && !is(value, length - name - 1, expected[at].or_value))) {
				return false;
			}
			found[at] = true;
		}
		word += length + (word[length] == ' ');
	}
	for (size_t at = 0; at < EXPECTED; at++) {
		if (expected[at].is_always_there && !found[at]) {
			return false;
		}
	}
	return true;
}

enum slip_fresh slip_fresh_ask(int fd, int patience_ms, const char *user, const char *database)
{
	char answer[MAX_ANSWER];

	if (send(fd, question, strlen(question), MSG_DONTWAIT | MSG_NOSIGNAL) != (ssize_t) strlen(question) || !receive(fd, answer, patience_ms)) {
		return SLIP_FRESH_BROKEN;
	}
	return *answer == '$' && is_fresh(strchr(answer, '\n') + 1, user, database) ? SLIP_FRESH : SLIP_NOT_FRESH;
}
