/* Random commands of memcached, cut at each byte and given in random pieces: they are whole at the end of each, and nowhere else. */
#include "../../src/memcached.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SEQUENCES = 500, MOST_COMMANDS = 6, MOST_BYTES = 32768 };

static char text[MOST_BYTES];
static size_t ends[MOST_COMMANDS + 1];

/* Blocks hold what commands are made of, too. */
static size_t put_block(char *to, size_t length)
{
	static const char bytes[] = "\r\n set0 mn";
	for (size_t at = 0; at < length; at++) {
		to[at] = bytes[rand() % (sizeof bytes - 1)];
	}
	memcpy(to + length, "\r\n", 2);
	return length + 2;
}

static size_t put_command(char *to)
{
	size_t length = 0, bytes = rand() % 20;
	switch (rand() % 6) {
		case 0:
			return sprintf(to, "get key other\r\n");
		case 1:
			length = sprintf(to, "gets");
			for (int keys = rand() % 50 ? rand() % 5 : 200; keys--;) {
				length += sprintf(to + length, " key%d", keys);
			}
			return length + sprintf(to + length, "\n");
		case 2:
			length = sprintf(to, "ms key %zu T30 q\r\n", bytes);
			break;
		case 3:
			length = sprintf(to, "cas key 1 -1 %zu 7\r\n", bytes);
			break;
		default:
			length = sprintf(to, "set key 0 60 %zu%s\r\n", bytes, rand() % 2 ? " noreply" : "");
	}
	return length + put_block(to + length, bytes);
}

static bool is_whole_after(size_t length)
{
	slip_memcached_t written;
	slip_memcached_begin(&written, false);
	for (size_t at = 0; at < length;) {
		size_t piece = 1 + rand() % 30;
		piece = piece < length - at ? piece : length - at;
		slip_memcached_read(&written, text + at, piece);
		at += piece;
	}
	slip_memcached_t at_once;
	slip_memcached_begin(&at_once, false);
	slip_memcached_read(&at_once, text, length);
	if (slip_memcached_is_whole(&at_once) != slip_memcached_is_whole(&written) || at_once.stays != written.stays) {
		printf("not ok read at once it is another at %zu\n", length);
		exit(1);
	}
	return slip_memcached_is_whole(&written);
}

static int check(const char *what, const char *commands, bool expected)
{
	slip_memcached_t written;
	slip_memcached_begin(&written, false);
	slip_memcached_read(&written, commands, strlen(commands));
	if (slip_memcached_is_whole(&written) == expected) {
		return 0;
	}
	printf("not ok %s\n", what);
	return 1;
}

static int check_stays(const char *commands, bool is_proven, bool expected)
{
	slip_memcached_t written;
	slip_memcached_begin(&written, is_proven);
	slip_memcached_read(&written, commands, strlen(commands));
	if (written.stays == expected && slip_memcached_is_whole(&written)) {
		return 0;
	}
	printf("not ok %s stays\n", commands);
	return 1;
}

int main(void)
{
	int failed = 0;

	srand(1);
	for (int sequence = 0; sequence < SEQUENCES; sequence++) {
		size_t length = 0, commands = rand() % MOST_COMMANDS, end = 0;
		ends[0] = 0;
		for (size_t number = 1; number <= commands; number++) {
			length += put_command(text + length);
			ends[number] = length;
		}
		for (size_t cut = 0; cut <= length; cut++) {
			bool is_end = cut == ends[end];
			if (is_whole_after(cut) != is_end) {
				printf("not ok sequence %d: cut at %zu of %zu\n", sequence, cut, length);
				return 1;
			}
			end += is_end && end < commands;
		}
	}
	failed += check("a block", "set a 0 0 2\r\nab\r\n", true);
	failed += check("half a block", "set a 0 0 4\r\nab\r\n", false);
	failed += check("a block that is longer than said", "set a 0 0 1\r\nab\r\n", false);
	failed += check("a block without its end", "set a 0 0 2\r\nab\n", false);
	failed += check("a number that is none", "set a 0 0 x\r\n", false);
	failed += check("a negative number of bytes", "set a 0 0 -1\r\n", false);
	failed += check("a number without an end", "set a 0 0 99999999999999999999\r\n", false);
	failed += check("too few words", "set a 0 0\r\n", false);
	failed += check("too many words", "set a 0 0 1 noreply b\r\na\r\n", false);
	failed += check("a word that is not known", "set a 0 0 1 reply\r\na\r\n", false);
	failed += check("two blanks", "set a  0 0 1\r\na\r\n", false);
	failed += check("a blank before", " set a 0 0 1\r\na\r\n", false);
	failed += check("the old way of ms", "ms a S2\r\nab\r\n", false);
	failed += check("ms without a number", "ms a\r\n", false);
	failed += check("the binary protocol", "\x80\x01", false);
	failed += check("a byte that is no letter", "set a\x01b 0 0 1\r\na\r\n", false);
	failed += check("another case, which is no command", "SET a 0 0 1\r\n", true);
	failed += check("mn", "mn\r\n", true);
	failed += check("empty lines", "\r\n\n", true);
	failed += check_stays("mn\r\n", false, true);
	failed += check_stays("watch fetchers\r\n", false, true);
	failed += check_stays("set auth 0 0 13\r\nsomebody pass\r\n", false, true);
	failed += check_stays("set auth 0 0 13\r\nsomebody_pass\r\n", false, false);
	failed += check_stays("add auth 0 0 13\r\nsomebody pass\r\n", false, false);
	/* The server has answered to the reset without. */
	failed += check_stays("set auth 0 0 13\r\nsomebody pass\r\n", true, false);
	if (!failed) {
		printf("ok memcached: %d sequences\n", SEQUENCES);
	}
	return failed != 0;
}
