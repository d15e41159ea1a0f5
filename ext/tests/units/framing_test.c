/* Random commands, cut at each byte and given in random pieces: they are whole at the end of each command, and nowhere else. */
#include "../../src/framing.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SEQUENCES = 2000, MOST_COMMANDS = 6, MOST_BYTES = 4096 };

static char text[MOST_BYTES];
static size_t ends[MOST_COMMANDS + 1];

/* Strings hold what commands are made of, too. */
static size_t put_string(char *to)
{
	static const char bytes[] = "*$\r\n01abc ";
	size_t length = rand() % 20;
	for (size_t at = 0; at < length; at++) {
		to[at] = bytes[rand() % (sizeof bytes - 1)];
	}
	return length;
}

static size_t put_command(char *to)
{
	if (rand() % 4 == 0) {
		return sprintf(to, "%s\r\n", rand() % 2 ? "PING" : "SET key value");
	}
	if (rand() % 8 == 0) {
		return sprintf(to, "*3\r\n$6\r\nClient\r\n$8\r\n%s\r\n$2\r\nON\r\n", rand() % 2 ? "no-touch" : "tracking");
	}
	if (rand() % 8 == 0) {
		static const char *const words[] = {"MULTI", "exec", "Watch", "Hello", "reset"};
		const char *word = words[rand() % (sizeof words / sizeof *words)];
		return sprintf(to, "*1\r\n$%zu\r\n%s\r\n", strlen(word), word);
	}
	int strings = rand() % 4;
	size_t length = sprintf(to, "*%d\r\n", strings);
	while (strings--) {
		char string[20];
		size_t bytes = put_string(string);
		length += sprintf(to + length, "$%zu\r\n", bytes);
		memcpy(to + length, string, bytes);
		memcpy(to + length + bytes, "\r\n", 2);
		length += bytes + 2;
	}
	return length;
}

static bool is_whole_after(size_t length)
{
	slip_framing_t framing = {0};
	for (size_t at = 0; at < length;) {
		size_t piece = 1 + rand() % 30;
		piece = piece < length - at ? piece : length - at;
		slip_framing_read(&framing, text + at, piece);
		at += piece;
	}
	return slip_framing_is_whole(&framing);
}

/* Whole commands are passed without a look at each byte: to the same end. */
static bool is_read_alike(size_t length)
{
	slip_framing_t at_once = {0}, bytewise = {0};
	slip_framing_read(&at_once, text, length);
	for (size_t at = 0; at < length; at++) {
		slip_framing_read(&bytewise, text + at, 1);
	}
	return slip_framing_is_whole(&at_once) == slip_framing_is_whole(&bytewise) && at_once.stays == bytewise.stays && at_once.told == bytewise.told
		&& at_once.is_open == bytewise.is_open
		&& at_once.commands == bytewise.commands && at_once.has_others == bytewise.has_others;
}

static int check(const char *what, const char *commands, bool expected)
{
	slip_framing_t framing = {0};
	slip_framing_read(&framing, commands, strlen(commands));
	if (slip_framing_is_whole(&framing) == expected) {
		return 0;
	}
	printf("not ok %s\n", what);
	return 1;
}

static int check_stays(const char *commands, bool expected)
{
	slip_framing_t framing = {0};
	slip_framing_read(&framing, commands, strlen(commands));
	if (framing.stays == expected && slip_framing_is_whole(&framing)) {
		return 0;
	}
	printf("not ok %s stays\n", commands);
	return 1;
}

static int check_told(const char *commands, bool is_told, bool is_open)
{
	slip_framing_t framing = {0};
	slip_framing_read(&framing, commands, strlen(commands));
	if (framing.told == is_told && framing.is_open == is_open && slip_framing_is_whole(&framing)) {
		return 0;
	}
	printf("not ok %s is told or open\n", commands);
	return 1;
}

static int check_plain(const char *commands, uint64_t count, bool has_others)
{
	slip_framing_t framing = {0};
	slip_framing_read(&framing, commands, strlen(commands));
	if (framing.commands == count && framing.has_others == has_others && slip_framing_is_whole(&framing)) {
		return 0;
	}
	printf("not ok %s is plain\n", commands);
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
			if (!is_read_alike(cut)) {
				printf("not ok sequence %d: read at once it is another at %zu of %zu\n", sequence, cut, length);
				return 1;
			}
			end += is_end && end < commands;
		}
	}
	failed += check("an array without a number", "*\r\n$1\r\na\r\n", false);
	failed += check("a number that is none", "*x\r\n", false);
	failed += check("a negative number", "*-1\r\n", false);
	failed += check("more strings than the server takes", "*99999999999999999999\r\n", false);
	failed += check("a longer string than it takes", "*1\r\n$99999999999999999999\r\n", false);
	failed += check("what is no string in an array", "*1\r\n+PING\r\n", false);
	failed += check("a number and no end of the line", "*1\r*", false);
	failed += check("a string that is longer than what is there", "*1\r\n$5\r\nPING\r\n", false);
	failed += check("a string without its end", "*1\r\n$4\r\nPING\r", false);
	failed += check("two commands, the second half", "*1\r\n$4\r\nPING\r\n*2\r\n$3\r\nGET\r\n", false);
	failed += check("empty lines", "\r\n\r\n", true);
	failed += check_stays("*3\r\n$6\r\nCLIENT\r\n$8\r\nNO-EVICT\r\n$2\r\nON\r\n*1\r\n$4\r\nPING\r\n", true);
	failed += check_stays("  client  \"no-touch\" on\r\n", true);
	failed += check_stays("*1\r\n$5\r\nReset\r\n", true);
	failed += check_stays("reset\r\n", true);
	failed += check_stays("*2\r\n$3\r\nGET\r\n$5\r\nreset\r\n", false);
	failed += check_stays("*2\r\n$3\r\nGET\r\n$16\r\nclient no-evict \r\n", false);
	failed += check_stays("*3\r\n$6\r\nCLIENT\r\n$7\r\nSETNAME\r\n$1\r\na\r\n", false);
	failed += check_told("*2\r\n$4\r\nAUTH\r\n$6\r\nsecret\r\n", true, false);
	failed += check_told("*3\r\n$6\r\nclient\r\n$5\r\nreply\r\n$4\r\nskip\r\n", true, false);
	failed += check_told("  HELLO 3\r\nget a\r\n", true, false);
	failed += check_told("*2\r\n$3\r\nGET\r\n$5\r\nwatch\r\n", false, false);
	failed += check_told("*2\r\n$6\r\nSELECT\r\n$1\r\n3\r\n", false, false);
	failed += check_told("*1\r\n$5\r\nmulti\r\n*2\r\n$3\r\nGET\r\n$4\r\nexec\r\n", false, true);
	failed += check_told("*1\r\n$5\r\nMULTI\r\n*1\r\n$4\r\nEXEC\r\n", false, false);
	failed += check_told("multi\r\ndiscard\r\n", false, false);
	failed += check_plain("", 0, false);
	failed += check_plain("*0\r\n\r\n", 0, false);
	failed += check_plain("*2\r\n$3\r\nGeT\r\n$5\r\nwatch\r\n*1\r\n$4\r\nPING\r\n", 2, false);
	failed += check_plain("*2\r\n$6\r\nappend\r\n$1\r\na\r\n*2\r\n$6\r\nzscore\r\n$1\r\na\r\n", 2, false);
	failed += check_plain("*2\r\n$2\r\nge\r\n$1\r\na\r\n", 1, true);
	failed += check_plain("*2\r\n$4\r\ngets\r\n$1\r\na\r\n", 1, true);
	failed += check_plain("*1\r\n$0\r\n\r\n", 1, true);
	failed += check_plain("*2\r\n$6\r\nSELECT\r\n$1\r\n3\r\n", 1, true);
	failed += check_plain("*2\r\n$3\r\nGET\r\n$1\r\na\r\n*1\r\n$5\r\nMULTI\r\n*1\r\n$7\r\nDISCARD\r\n", 3, true);
	failed += check_plain("*4\r\n$4\r\nEVAL\r\n$1\r\na\r\n$1\r\n0\r\n$0\r\n\r\n", 1, true);
	/* Of a line the quotes are not looked at. */
	failed += check_plain("ping\r\n", 1, true);
	if (!failed) {
		printf("ok framing: %d sequences\n", SEQUENCES);
	}
	return failed != 0;
}
