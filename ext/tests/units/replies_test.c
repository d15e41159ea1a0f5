/* Random replies, cut at each byte and given in random pieces: as many are whole as have come to their end. */
#include "../../src/replies.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SEQUENCES = 2000, MOST_REPLIES = 6, MOST_BYTES = 1 << 16, DEEPEST = 3 };

static char text[MOST_BYTES];
static size_t ends[MOST_REPLIES + 1];

static size_t put_bulk(char *to)
{
	/* What replies are made of, too. */
	static const char bytes[] = "*$\r\n01+-:a";
	size_t length = rand() % 20, at = sprintf(to, "$%zu\r\n", length);
	while (length--) {
		to[at++] = bytes[rand() % (sizeof bytes - 1)];
	}
	memcpy(to + at, "\r\n", 2);
	return at + 2;
}

static size_t put_reply(char *to, int depth)
{
	static const char *const short_ones[] = {"+OK\r\n", "-ERR no\r\n", ":-12\r\n", "$-1\r\n", "*-1\r\n", "*0\r\n", "$0\r\n\r\n"};
	if (rand() % 3 == 0) {
		return sprintf(to, "%s", short_ones[rand() % (sizeof short_ones / sizeof *short_ones)]);
	}
	if (depth == DEEPEST || rand() % 2) {
		return put_bulk(to);
	}
	int elements = rand() % 4;
	size_t length = sprintf(to, "*%d\r\n", elements);
	while (elements--) {
		length += put_reply(to + length, depth + 1);
	}
	return length;
}

static slip_replies_t read_in_pieces(const char *replies, size_t length, size_t most)
{
	slip_replies_t read = {0};
	for (size_t at = 0; at < length;) {
		size_t piece = 1 + rand() % most;
		piece = piece < length - at ? piece : length - at;
		slip_replies_read(&read, replies + at, piece);
		at += piece;
	}
	return read;
}

static int check(const char *replies, uint64_t whole, int place)
{
	slip_replies_t read = {0};
	slip_replies_read(&read, replies, strlen(replies));
	if (read.whole == whole && (int) read.place == place) {
		return 0;
	}
	printf("not ok %s: %d whole, place %d\n", replies, (int) read.whole, (int) read.place);
	return 1;
}

int main(void)
{
	int failed = 0;

	srand(1);
	for (int sequence = 0; sequence < SEQUENCES; sequence++) {
		size_t length = 0, replies = rand() % MOST_REPLIES, end = 0;
		for (size_t number = 1; number <= replies; number++) {
			length += put_reply(text + length, 0);
			ends[number] = length;
		}
		for (size_t cut = 0; cut <= length; cut++) {
			end += end < replies && ends[end + 1] == cut;
			for (int way = 0; way < 3; way++) {
				slip_replies_t read = read_in_pieces(text, cut, way == 0 ? 1 : way == 1 ? 30 : MOST_BYTES);
				if (read.whole != end || (read.place == SLIP_AT_REPLY) != (cut == ends[end])) {
					printf("not ok sequence %d: cut at %zu of %zu\n", sequence, cut, length);
					return 1;
				}
			}
		}
	}
	failed += check("+OK\r\n$", 1, SLIP_IN_BYTES);
	/* RESP 3, and what is none. */
	failed += check("%1\r\n", 0, SLIP_REPLY_NOT_UNDERSTOOD);
	failed += check(">2\r\n", 0, SLIP_REPLY_NOT_UNDERSTOOD);
	failed += check("_\r\n", 0, SLIP_REPLY_NOT_UNDERSTOOD);
	failed += check("$?\r\n", 0, SLIP_REPLY_NOT_UNDERSTOOD);
	failed += check("$-2\r\n", 0, SLIP_REPLY_NOT_UNDERSTOOD);
	failed += check("$--1\r\n", 0, SLIP_REPLY_NOT_UNDERSTOOD);
	failed += check("$-\r\n", 0, SLIP_REPLY_NOT_UNDERSTOOD);
	failed += check("$\r\n", 0, SLIP_REPLY_NOT_UNDERSTOOD);
	failed += check("$5\n", 0, SLIP_REPLY_NOT_UNDERSTOOD);
	failed += check("$5\r5", 0, SLIP_REPLY_NOT_UNDERSTOOD);
	failed += check("$536870913\r\n", 0, SLIP_REPLY_NOT_UNDERSTOOD);
	failed += check("*99999999999999999999\r\n", 0, SLIP_REPLY_NOT_UNDERSTOOD);
	failed += check("HTTP/1.1 400 Bad Request\r\n", 0, SLIP_REPLY_NOT_UNDERSTOOD);
	if (!failed) {
		printf("ok replies: %d sequences\n", SEQUENCES);
	}
	return failed != 0;
}
