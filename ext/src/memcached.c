#include "memcached.h"

#include <string.h>

/* The server's own limits: of a key; of flags, of a time and of a block, which are whole numbers of 32 bits. */
#define MAX_KEY 250
#define MAX_FLAGS 4294967295ll
#define MAX_TIME 2147483647ll
#define MAX_BYTES (MAX_TIME - 2)

/* A name and its password, of which the server's file has at most so many in one line. */
#define MAX_CREDENTIALS 256

/* Words that are looked at: the command, its key and four numbers, `noreply`. */
#define MAX_WORDS 8

typedef struct {
	const char *at;
	size_t length;
} word_t;

static bool is_word(const word_t *word, const char *text)
{
	return word->length == strlen(text) && memcmp(word->at, text, word->length) == 0;
}

/* Of digits alone. */
static bool read_number(const word_t *word, int64_t most, int64_t *number)
{
	int64_t value = 0;

	for (size_t at = 0; at < word->length; at++) {
		if (word->at[at] < '0' || word->at[at] > '9' || (value = value * 10 + (word->at[at] - '0')) > most) {
			return false;
		}
	}
	*number = value;
	return word->length > 0;
}

/* The first words of the line; 0 if they are not divided by one blank each, as every client does. */
static int read_words(const char *line, size_t length, word_t *words)
{
	const char *end = line + length;
	int count = 0;

	while (count < MAX_WORDS) {
		const char *blank = memchr(line, ' ', end - line);
		words[count] = (word_t) {line, (blank ? blank : end) - line};
		if (!words[count++].length) {
			return 0;
		}
		if (!blank) {
			return count;
		}
		line = blank + 1;
	}
	return count;
}

/* `set key flags time bytes [noreply]`, `cas` with a number more. */
static bool read_store(const word_t *words, int count, bool is_cas, int64_t *bytes)
{
	const int needed = is_cas ? 6 : 5;
	word_t time = words[3];
	int64_t number, unused;

	if (count < needed || count > needed + 1 || (count == needed + 1 && !is_word(&words[needed], "noreply"))) {
		return false;
	}
	if (time.length > 1 && *time.at == '-') {
		time.at++;
		time.length--;
	}
	return words[1].length <= MAX_KEY && read_number(&words[2], MAX_FLAGS, &number) && read_number(&time, MAX_TIME, &number)
		&& read_number(&words[4], MAX_BYTES, bytes) && (!is_cas || read_number(&words[5], INT64_MAX / 16, &unused));
}

/* Whether the line is a command that stores something, as far as its name says. */
static bool does_store(const word_t *name)
{
	static const char *const names[] = {"set", "add", "replace", "append", "prepend", "cas", "ms"};

	for (size_t at = 0; at < sizeof names / sizeof *names; at++) {
		if (is_word(name, names[at])) {
			return true;
		}
	}
	return false;
}

static bool has_control(const char *line, size_t length)
{
	for (size_t at = 0; at < length; at++) {
		if ((unsigned char) line[at] < ' ') {
			return true;
		}
	}
	return false;
}

/* A line without its end. */
static void read_line(slip_memcached_t *written, const char *line, size_t length)
{
	word_t words[MAX_WORDS];
	int64_t bytes;

	written->place = SLIP_MEMCACHED_AT_LINE;
	length -= length && line[length - 1] == '\r';
	if (!length) {
		return;
	}
	/* The server skips blanks before a word, and takes a zero for the end of the line. */
	if (*line == ' ' || has_control(line, length)) {
		written->place = SLIP_MEMCACHED_NOT_UNDERSTOOD;
		return;
	}
	const char *blank = memchr(line, ' ', length);
	const word_t name = {line, blank ? (size_t) (blank - line) : length};
	/* The second is the reset itself: if a client does not read its answer, nothing tells that from the answer to ours. */
	if (is_word(&name, "watch") || is_word(&name, "mn")) {
		written->stays = true;
	}
	if (!does_store(&name)) {
		return;
	}
	int count = read_words(line, length, words);
	bool is_meta = is_word(&name, "ms");
	if (is_meta ? count < 3 || words[1].length > MAX_KEY || !read_number(&words[2], MAX_BYTES, &bytes)
			: !read_store(words, count, is_word(&name, "cas"), &bytes)) {
		written->place = SLIP_MEMCACHED_NOT_UNDERSTOOD;
		return;
	}
	written->place = SLIP_MEMCACHED_IN_BLOCK;
	written->left = bytes + 2;
	written->come = 0;
	written->may_authenticate = !written->is_proven && is_word(&name, "set");
}

/* So much of a block and of its end as is there. */
static size_t read_block(slip_memcached_t *written, const char *data, size_t length)
{
	size_t here = (int64_t) length < written->left ? length : (size_t) written->left;

	if (written->may_authenticate && written->come <= MAX_CREDENTIALS) {
		int64_t looked_at = MAX_CREDENTIALS + 1 - written->come;
		looked_at = looked_at < (int64_t) here ? looked_at : (int64_t) here;
		written->stays |= memchr(data, ' ', looked_at) != NULL;
	}
	written->come += here;
	/* The last two bytes are the end of the line; a server that does not find it there says so, and where it goes on is its own. */
	for (int64_t at = written->left > 2 ? written->left - 2 : 0; at < (int64_t) here; at++) {
		if (data[at] != (written->left - at == 2 ? '\r' : '\n')) {
			written->place = SLIP_MEMCACHED_NOT_UNDERSTOOD;
			return here;
		}
	}
	written->left -= here;
	if (!written->left) {
		written->place = SLIP_MEMCACHED_AT_LINE;
	}
	return here;
}

/* More of a line whose end has not come. */
static void add_to_line(slip_memcached_t *written, const char *data, size_t length)
{
	if (written->length + length <= sizeof written->line) {
		memcpy(written->line + written->length, data, length);
		written->length += length;
		return;
	}
	/* Such a line is only one of many keys, and nothing is done with it. */
	size_t more = sizeof written->line - written->length;
	memcpy(written->line + written->length, data, more);
	const char *blank = memchr(written->line, ' ', sizeof written->line);
	const word_t name = {written->line, blank ? (size_t) (blank - written->line) : sizeof written->line};
	written->place = *written->line == ' ' || does_store(&name) ? SLIP_MEMCACHED_NOT_UNDERSTOOD : SLIP_MEMCACHED_IN_LONG;
}

void slip_memcached_begin(slip_memcached_t *written, bool is_proven)
{
	written->place = SLIP_MEMCACHED_AT_LINE;
	written->is_proven = is_proven;
	written->stays = false;
	written->length = 0;
}

void slip_memcached_read(slip_memcached_t *written, const char *data, size_t length)
{
	const char *end = data + length;

	while (data < end && written->place != SLIP_MEMCACHED_NOT_UNDERSTOOD) {
		if (written->place == SLIP_MEMCACHED_IN_BLOCK) {
			data += read_block(written, data, end - data);
			continue;
		}
		if (written->place == SLIP_MEMCACHED_AT_LINE) {
			/* A packet of the binary protocol begins like that, and no command of the other one. */
			if ((unsigned char) *data >= 0x80) {
				written->place = SLIP_MEMCACHED_NOT_UNDERSTOOD;
				return;
			}
			written->place = SLIP_MEMCACHED_IN_LINE;
			written->length = 0;
		}
		const char *line_end = memchr(data, '\n', end - data);
		size_t here = (line_end ? line_end : end) - data;
		if (written->place == SLIP_MEMCACHED_IN_LONG) {
			written->place = line_end ? SLIP_MEMCACHED_AT_LINE : SLIP_MEMCACHED_IN_LONG;
		} else if (line_end && !written->length) {
			read_line(written, data, here);
		} else {
			add_to_line(written, data, here);
			if (line_end && written->place == SLIP_MEMCACHED_IN_LINE) {
				read_line(written, written->line, written->length);
			} else if (line_end && written->place == SLIP_MEMCACHED_IN_LONG) {
				written->place = SLIP_MEMCACHED_AT_LINE;
			}
		}
		data += here + (line_end != NULL);
	}
}
