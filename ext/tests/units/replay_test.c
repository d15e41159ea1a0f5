/* What is heard is said again as it was, and nothing is that was not taken, or is not whole and alone. */
#include "../../src/replay.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define RESET "*1\r\n$5\r\nRESET\r\n"
#define AUTH "*2\r\n$4\r\nAUTH\r\n$6\r\nsecret\r\n"
#define AUTH_AS "*3\r\n$4\r\nauth\r\n$5\r\nother\r\n$6\r\nse\r\ncr\r\n"
#define SELECT_3 "*2\r\n$6\r\nSELECT\r\n$1\r\n3\r\n"
#define SELECT_12 "*2\r\n$6\r\nSelect\r\n$2\r\n12\r\n"

static int failed;

static void check(const char *what, bool holds)
{
	if (!holds) {
		fprintf(stderr, "%s\n", what);
		failed = 1;
	}
}

static bool hear(slip_replay_t **said, const char *command)
{
	/* Exactly as long as it is, so that a read behind it is found. */
	size_t length = strlen(command);
	char *copy = malloc(length ? length : 1);
	memcpy(copy, command, length);
	bool heard = slip_replay_hear(said, copy, length);
	free(copy);
	return heard;
}

static void answer(slip_replay_t *said, const char *text, size_t piece)
{
	for (size_t at = 0; at < strlen(text); at += piece) {
		size_t left = strlen(text) - at;
		slip_replay_hear_answer(said, text + at, left < piece ? left : piece);
	}
}

/* What is known after these commands, each of which was taken. */
static slip_replay_t *after(const char *const *commands)
{
	slip_replay_t *said = NULL;
	for (; *commands; commands++) {
		check(*commands, hear(&said, *commands));
		check("not before its answer", !slip_replay_is_known(said));
		answer(said, "+OK\r\n", 1 + rand() % 5);
	}
	return said;
}

static void check_after(const char *const *commands, const char *packet, const char *user, const char *database, const char *expected)
{
	slip_replay_t *said = after(commands);
	char text[SLIP_REPLAY_ANSWER];
	check("is known", slip_replay_is_known(said));
	check(packet, said->length == strlen(packet) && memcmp(said->packet, packet, said->length) == 0);
	check(user, strcmp(said->user, user) == 0 && strcmp(said->database, database) == 0);
	check(expected, slip_replay_answer(said, text) == strlen(expected) && strcmp(text, expected) == 0);
	slip_replay_free(said);
}

static void check_said(const char *come, bool expected)
{
	slip_replay_t *said = after((const char *const[]) {AUTH, SELECT_3, NULL});
	int ends[2];
	char got[256];
	if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0 || write(ends[1], come, strlen(come)) != (ssize_t) strlen(come)) {
		exit(2);
	}
	check(come, slip_replay_say(said, ends[0], 5) == expected);
	ssize_t length = read(ends[1], got, sizeof got);
	check("is said without a reset", length == (ssize_t) strlen(AUTH SELECT_3) && memcmp(got, AUTH SELECT_3, length) == 0);
	close(ends[0]);
	close(ends[1]);
	slip_replay_free(said);
}

int main(void)
{
	check_after((const char *const[]) {AUTH, NULL}, RESET AUTH, "default", "0", "+RESET\r\n+OK\r\n");
	check_after((const char *const[]) {AUTH_AS, SELECT_3, NULL}, RESET AUTH_AS SELECT_3, "other", "3", "+RESET\r\n+OK\r\n+OK\r\n");
	check_after((const char *const[]) {SELECT_3, SELECT_12, NULL}, RESET SELECT_12, "default", "12", "+RESET\r\n+OK\r\n");
	/* In their order: whoever selects may have to be somebody. */
	check_after((const char *const[]) {SELECT_3, AUTH_AS, AUTH, NULL}, RESET SELECT_3 AUTH, "default", "3", "+RESET\r\n+OK\r\n+OK\r\n");

	static const char *const others[] = {
		"", "*", "*2\r\n", "PING\r\n", "AUTH secret\r\n", "*1\r\n$4\r\nAUTH\r\n", "*2\r\n$4\r\nAUTH\r\n$6\r\nsecre", "*2\r\n$4\r\nAUTH\r\n$6\r\nsecret\r",
		"*2\r\n$4\r\nAUTH\r\n$6\r\nsecret\rx", AUTH AUTH, "*4\r\n$4\r\nAUTH\r\n$1\r\na\r\n$1\r\nb\r\n$1\r\nc\r\n", "*3\r\n$6\r\nSELECT\r\n$1\r\n3\r\n$1\r\n3\r\n",
		"*2\r\n$5\r\nHELLO\r\n$1\r\n3\r\n", "*2\r\n$00004\r\nAUTH\r\n$6\r\nsecret\r\n", "*2\r\n$-1\r\n$6\r\nsecret\r\n", "*2\r\n$3\r\nGET\r\n$3\r\nkey\r\n",
	};
	for (size_t at = 0; at < sizeof others / sizeof *others; at++) {
		slip_replay_t *said = NULL;
		check(others[at], !hear(&said, others[at]) && !said);
	}

	static const char *const refusals[] = {"-ERR\r\n", "-WRONGPASS no\r\n", "+OK\r\n+OK\r\n", "+QUEUED\r\n", "+OK\rx", ":1\r\n"};
	for (size_t at = 0; at < sizeof refusals / sizeof *refusals; at++) {
		slip_replay_t *said = NULL;
		hear(&said, AUTH);
		slip_replay_hear_answer(said, refusals[at], strlen(refusals[at]));
		check(refusals[at], !slip_replay_is_known(said));
		slip_replay_free(said);
	}

	slip_replay_t *said = after((const char *const[]) {AUTH_AS, SELECT_12, NULL});
	check("a word is found", slip_replay_has(said, "other", 5) && slip_replay_has(said, "se\r\ncr", 6) && slip_replay_has(said, "12", 2));
	check("what is none is not", !slip_replay_has(said, "SELECT", 6) && !slip_replay_has(said, "RESET", 5) && !slip_replay_has(said, "r\r\n$6", 5));
	/* As many as there is room for. */
	check("is heard", hear(&said, AUTH) && hear(&said, SELECT_3));
	answer(said, "+OK\r\n", 5);
	check("all are known", slip_replay_is_known(said));
	check("is heard, too", hear(&said, AUTH));
	answer(said, "+OK\r\n", 5);
	check("one too many is not", !slip_replay_is_known(said));
	slip_replay_free(said);

	/* One that is too long. */
	char longest[2 * SLIP_REPLAY_BYTES] = "*2\r\n$4\r\nAUTH\r\n$1100\r\n";
	size_t begin = strlen(longest);
	memset(longest + begin, 'x', 1100);
	strcpy(longest + begin + 1100, "\r\n");
	said = NULL;
	check("is heard, but", hear(&said, longest));
	answer(said, "+OK\r\n", 5);
	check("it is not known", !slip_replay_is_known(said));
	slip_replay_free(said);
	slip_replay_free(NULL);

	check_said("+OK\r\n+OK\r\n", true);
	check_said("+OK\r\n", false);
	check_said("+OK\r\n+OK\r\n+OK\r\n", false);
	check_said("-WRONGPASS\r\n+OK\r\n", false);
	check_said("+OK\r\n-ERR\r\n", false);
	check_said("", false);
	if (!failed) {
		puts("ok replay");
	}
	return failed;
}
