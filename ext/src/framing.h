#ifndef SLIP_FRAMING_H
#define SLIP_FRAMING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SLIP_FRAMING_BEGIN 24

/* What a client has written to a server so far, as the server reads it (RESP: https://redis.io/docs/latest/develop/reference/protocol-spec):
 * what comes next is the begin of a command only if what came before are whole ones. A reset behind half a command would be its rest,
 * and could be stored as a value. */
typedef struct {
	enum {
		SLIP_AT_COMMAND,   /* all before are whole commands */
		SLIP_IN_LINE,      /* a command that is a line of words */
		SLIP_IN_COUNT,     /* of an array: `*3` */
		SLIP_AT_STRING,    /* before `$` */
		SLIP_IN_LENGTH,    /* of a string: `$5` */
		SLIP_IN_STRING,
		SLIP_NOT_UNDERSTOOD
	} place;
	/* The number that is being read; digits of it so far. */
	int64_t number;
	int digits;
	/* Strings of the command that have not come yet; bytes of the string and of the end of its line. */
	int64_t strings, bytes;
	/* How the command begins: its first words, with a blank behind each. */
	char begin[SLIP_FRAMING_BEGIN];
	size_t begun;
	/* A command has set what no reset undoes, or has an answer like that to the reset. */
	bool stays;
	/* A command has set what the server may not show if it is asked, or it may not be asked after it. */
	bool told;
	/* Commands are queued up, as far as it has not refused to. */
	bool is_open;
	/* Whole commands, and whether there were others than those that leave nothing on the connection and have one reply each. */
	uint64_t commands;
	bool has_others;
} slip_framing_t;

/* Reads on. */
void slip_framing_read(slip_framing_t *, const char *data, size_t length);

/* Whether nothing is half written. */
static inline bool slip_framing_is_whole(const slip_framing_t *framing)
{
	return framing->place == SLIP_AT_COMMAND;
}

#endif
