#include "framing.h"

#include <string.h>
#include <strings.h>

/* The server's own limits: of strings in a command, and of the bytes in one. */
#define MAX_STRINGS (1024 * 1024)
#define MAX_BYTES (512ll * 1024 * 1024)

/* RESET leaves these on (Redis 7.0): CLIENT NO-EVICT, CLIENT NO-TOUCH. */
static const char stays[] = "client no-";

static void note_begin(slip_framing_t *framing, char byte)
{
	/* A client may write several blanks, or quotes, between the words of a line. */
	bool is_blank = byte == ' ' || byte == '\t' || byte == '"' || byte == '\'';
	if (framing->begun < SLIP_FRAMING_BEGIN && !(is_blank && (!framing->begun || framing->begin[framing->begun - 1] == ' '))) {
		framing->begin[framing->begun++] = is_blank ? ' ' : byte;
	}
}

static void end_command(slip_framing_t *framing)
{
	const size_t length = sizeof stays - 1;
	framing->stays |= framing->begun >= length && strncasecmp(framing->begin, stays, length) == 0;
	framing->begun = 0;
	framing->place = SLIP_AT_COMMAND;
}

static void begin_number(slip_framing_t *framing, int place)
{
	framing->place = place;
	framing->number = 0;
	framing->digits = 0;
}

/* One byte of a number and of the end of its line. True once that has come. */
static bool read_number(slip_framing_t *framing, char byte, int64_t most)
{
	if (byte >= '0' && byte <= '9' && framing->digits >= 0) {
		framing->number = framing->number * 10 + (byte - '0');
		framing->digits++;
		if (framing->number > most) {
			framing->place = SLIP_NOT_UNDERSTOOD;
		}
	} else if (byte == '\r' && framing->digits > 0) {
		framing->digits = -1;
	} else if (byte == '\n' && framing->digits < 0) {
		return true;
	} else {
		framing->place = SLIP_NOT_UNDERSTOOD;
	}
	return false;
}

static void end_string(slip_framing_t *framing)
{
	framing->strings--;
	if (framing->strings > 0) {
		note_begin(framing, ' ');
		framing->place = SLIP_AT_STRING;
	} else {
		end_command(framing);
	}
}

void slip_framing_read(slip_framing_t *framing, const char *data, size_t length)
{
	const char *end = data + length;

	while (data < end) {
		switch (framing->place) {
			case SLIP_AT_COMMAND:
				if (*data == '*') {
					begin_number(framing, SLIP_IN_COUNT);
					data++;
				} else if (*data == '\r' || *data == '\n') {
					data++;
				} else {
					framing->place = SLIP_IN_LINE;
				}
				break;
			case SLIP_IN_LINE:
				if (*data == '\n') {
					end_command(framing);
				} else {
					note_begin(framing, *data);
				}
				data++;
				break;
			case SLIP_IN_COUNT:
				if (read_number(framing, *data++, MAX_STRINGS)) {
					framing->strings = framing->number;
					framing->place = framing->strings ? SLIP_AT_STRING : SLIP_AT_COMMAND;
				}
				break;
			case SLIP_AT_STRING:
				if (*data++ == '$') {
					begin_number(framing, SLIP_IN_LENGTH);
				} else {
					framing->place = SLIP_NOT_UNDERSTOOD;
				}
				break;
			case SLIP_IN_LENGTH:
				if (read_number(framing, *data++, MAX_BYTES)) {
					framing->bytes = framing->number + 2;
					framing->place = SLIP_IN_STRING;
				}
				break;
			case SLIP_IN_STRING: {
				int64_t here = end - data < framing->bytes ? end - data : framing->bytes;
				/* The last two are the end of its line. */
				for (int64_t at = 0; at < here && framing->begun < SLIP_FRAMING_BEGIN && framing->bytes - at > 2; at++) {
					note_begin(framing, data[at]);
				}
				data += here;
				framing->bytes -= here;
				if (!framing->bytes) {
					end_string(framing);
				}
				break;
			}
			case SLIP_NOT_UNDERSTOOD:
				return;
		}
	}
}
