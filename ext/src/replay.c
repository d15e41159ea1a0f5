#ifndef _GNU_SOURCE
# define _GNU_SOURCE
#endif
#include "replay.h"

#include <poll.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <time.h>

#define RESET "*1\r\n$5\r\nRESET\r\n"
#define RESET_BYTES (sizeof RESET - 1)
#define WAS_RESET "+RESET\r\n"
#define WAS_TAKEN "+OK\r\n"
#define TAKEN_BYTES (sizeof WAS_TAKEN - 1)

/* The command, a name and a password. */
#define MAX_WORDS 3

typedef struct {
	const char *at;
	size_t length;
} word_t;

static int64_t now_ms(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return (int64_t) now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* A number of up to four digits behind its sign, and the end of its line; what is behind it, or NULL. */
static const char *pass_number(const char *at, const char *end, char sign, size_t *number)
{
	if (at == end || *at++ != sign) {
		return NULL;
	}
	const char *begin = at;
	for (*number = 0; at < end && *at >= '0' && *at <= '9' && at - begin < 4; at++) {
		*number = *number * 10 + (*at - '0');
	}
	return at > begin && end - at >= 2 && at[0] == '\r' && at[1] == '\n' ? at + 2 : NULL;
}

/* How many words the command at the begin has, as clients write it, and where the next one begins; 0 if it is none of so few words. */
static int read_words(const char **command, const char *end, word_t *words)
{
	size_t count;
	const char *at = pass_number(*command, end, '*', &count);

	if (!at || !count || count > MAX_WORDS) {
		return 0;
	}
	for (size_t number = 0; number < count; number++) {
		at = pass_number(at, end, '$', &words[number].length);
		if (!at || (size_t) (end - at) < words[number].length + 2) {
			return 0;
		}
		words[number].at = at;
		at += words[number].length;
		if (at[0] != '\r' || at[1] != '\n') {
			return 0;
		}
		at += 2;
	}
	*command = at;
	return (int) count;
}

static bool is(const word_t *word, const char *name)
{
	return word->length == strlen(name) && strncasecmp(word->at, name, word->length) == 0;
}

/* As the server shows it. False if it is longer than names are, or cannot be one. */
static bool keep_name(char *name, const word_t *word)
{
	if (!word->length || word->length >= SLIP_REPLAY_NAME || memchr(word->at, '\0', word->length)) {
		return false;
	}
	memcpy(name, word->at, word->length);
	name[word->length] = '\0';
	return true;
}

static slip_replay_t *make(void)
{
	slip_replay_t *said = calloc(1, sizeof *said);

	if (said) {
		memcpy(said->packet, RESET, RESET_BYTES);
		said->length = RESET_BYTES;
		strcpy(said->user, "default");
		strcpy(said->database, "0");
	}
	return said;
}

/* In the place of the last one if that is of the same kind. */
static bool add(slip_replay_t *said, const char *command, size_t length, bool is_auth)
{
	if (said->count && said->commands[said->count - 1].is_auth == is_auth) {
		size_t at = said->commands[--said->count].at;
		explicit_bzero(said->packet + at, said->length - at);
		said->length = at;
	}
	if (said->count == SLIP_REPLAY_COMMANDS || length > sizeof said->packet - said->length) {
		return false;
	}
	said->commands[said->count].at = said->length;
	said->commands[said->count++].is_auth = is_auth;
	memcpy(said->packet + said->length, command, length);
	said->length += length;
	return true;
}

bool slip_replay_hear(slip_replay_t **said, const char *data, size_t length)
{
	word_t words[MAX_WORDS];
	const char *behind = data;
	int count = read_words(&behind, data + length, words);
	bool is_auth = count > 1 && is(&words[0], "auth"), is_select = count == 2 && is(&words[0], "select");

	if ((!is_auth && !is_select) || behind != data + length) {
		return false;
	}
	if (!*said && !(*said = make())) {
		return false;
	}
	static const word_t first_user = {"default", 7};
	const word_t *name = is_select || count == 3 ? &words[1] : &first_user;
	if (!keep_name(is_auth ? (*said)->user : (*said)->database, name) || !add(*said, data, length, is_auth)) {
		(*said)->is_spoiled = true;
	}
	(*said)->is_awaiting = true;
	(*said)->come = 0;
	return true;
}

void slip_replay_hear_answer(slip_replay_t *said, const char *data, size_t length)
{
	if (!said->is_awaiting || !length) {
		return;
	}
	if (length > TAKEN_BYTES - said->come || memcmp(WAS_TAKEN + said->come, data, length) != 0) {
		said->is_spoiled = true;
		said->is_awaiting = false;
		return;
	}
	said->come += length;
	said->is_awaiting = said->come < TAKEN_BYTES;
}

bool slip_replay_is_known(const slip_replay_t *said)
{
	return said->count && !said->is_awaiting && !said->is_spoiled;
}

void slip_replay_free(slip_replay_t *replay)
{
	if (replay) {
		explicit_bzero(replay, sizeof *replay);
		free(replay);
	}
}

bool slip_replay_has(const slip_replay_t *replay, const char *bytes, size_t length)
{
	const char *command = replay->packet + RESET_BYTES, *end = replay->packet + replay->length;
	word_t words[MAX_WORDS];
	int count;

	while (command < end && (count = read_words(&command, end, words))) {
		for (int number = 1; number < count; number++) {
			if (memmem(words[number].at, words[number].length, bytes, length)) {
				return true;
			}
		}
	}
	return false;
}

size_t slip_replay_answer(const slip_replay_t *replay, char answer[SLIP_REPLAY_ANSWER])
{
	strcpy(answer, WAS_RESET);
	for (int number = 0; number < replay->count; number++) {
		strcat(answer, WAS_TAKEN);
	}
	return strlen(answer);
}

bool slip_replay_say(const slip_replay_t *replay, int fd, int patience_ms)
{
	const size_t length = replay->length - RESET_BYTES, wanted = replay->count * TAKEN_BYTES;
	int64_t until_ms = now_ms() + patience_ms, left_ms = patience_ms;
	char answer[SLIP_REPLAY_ANSWER];
	size_t there = 0;

	if (send(fd, replay->packet + RESET_BYTES, length, MSG_DONTWAIT | MSG_NOSIGNAL) != (ssize_t) length) {
		return false;
	}
	while (there < wanted) {
		struct pollfd polled = {fd, POLLIN, 0};
		if (left_ms < 0 || poll(&polled, 1, (int) left_ms) <= 0) {
			return false;
		}
		/* More than the answers would be somebody else's. */
		ssize_t more = recv(fd, answer + there, sizeof answer - there, MSG_DONTWAIT);
		if (more <= 0) {
			return false;
		}
		there += more;
		left_ms = until_ms - now_ms();
	}
	for (int number = 0; number < replay->count; number++) {
		if (there != wanted || memcmp(answer + number * TAKEN_BYTES, WAS_TAKEN, TAKEN_BYTES) != 0) {
			return false;
		}
	}
	return true;
}
