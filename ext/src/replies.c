#include "replies.h"

#include <string.h>

/* The server's own limit of the bytes in a string, and more elements than any array has that fits into memory. */
#define MAX_BYTES (512ll * 1024 * 1024)
#define MAX_ELEMENTS (1ll << 40)

static void refuse(slip_replies_t *replies)
{
	replies->place = SLIP_REPLY_NOT_UNDERSTOOD;
}

/* One reply, or one element of an array, is there. */
static void end_one(slip_replies_t *replies)
{
	if (replies->elements > 0) {
		replies->elements--;
	}
	replies->place = replies->elements ? SLIP_AT_ELEMENT : SLIP_AT_REPLY;
	replies->whole += !replies->elements;
}

static void begin_one(slip_replies_t *replies, char type)
{
	replies->number = 0;
	replies->digits = 0;
	replies->is_negative = replies->is_line_end = false;
	switch (type) {
		case '+':
		case '-':
		case ':':
			replies->place = SLIP_IN_TEXT;
			break;
		case '$':
			replies->place = SLIP_IN_BYTES;
			break;
		case '*':
			replies->place = SLIP_IN_ELEMENTS;
			break;
		default:
			refuse(replies);
	}
}

/* One byte of a number and of the end of its line. True once that has come; -1 is the only one below 0. */
static bool read_number(slip_replies_t *replies, char byte)
{
	if (byte >= '0' && byte <= '9' && !replies->is_line_end) {
		replies->number = replies->number * 10 + (byte - '0');
		replies->digits++;
		if (replies->number > MAX_BYTES || (replies->is_negative && replies->number > 1)) {
			refuse(replies);
		}
	} else if (byte == '-' && !replies->digits && !replies->is_negative && !replies->is_line_end) {
		replies->is_negative = true;
	} else if (byte == '\r' && replies->digits && !replies->is_line_end) {
		replies->is_line_end = true;
	} else if (byte == '\n' && replies->is_line_end) {
		return true;
	} else {
		refuse(replies);
	}
	return false;
}

static void end_number(slip_replies_t *replies)
{
	bool is_nothing = replies->is_negative && replies->number == 1;

	if (replies->is_negative && !is_nothing) {
		refuse(replies);
	} else if (replies->place == SLIP_IN_BYTES && !is_nothing) {
		replies->bytes = replies->number + 2;
		replies->place = SLIP_IN_BULK;
	} else if (replies->place == SLIP_IN_ELEMENTS && !is_nothing && replies->number) {
		/* Those of an array within an array are in its place. */
		replies->elements += replies->number - (replies->elements > 0);
		replies->place = SLIP_AT_ELEMENT;
		if (replies->elements > MAX_ELEMENTS) {
			refuse(replies);
		}
	} else {
		end_one(replies);
	}
}

void slip_replies_read(slip_replies_t *replies, const char *data, size_t length)
{
	const char *end = data + length;

	while (data < end) {
		switch (replies->place) {
			case SLIP_AT_REPLY:
			case SLIP_AT_ELEMENT:
				begin_one(replies, *data++);
				break;
			case SLIP_IN_TEXT: {
				const char *line_end = memchr(data, '\n', end - data);
				data = line_end ? line_end + 1 : end;
				if (line_end) {
					end_one(replies);
				}
				break;
			}
			case SLIP_IN_BYTES:
			case SLIP_IN_ELEMENTS:
				if (read_number(replies, *data++)) {
					end_number(replies);
				}
				break;
			case SLIP_IN_BULK: {
				int64_t here = end - data < replies->bytes ? end - data : replies->bytes;
				data += here;
				replies->bytes -= here;
				if (!replies->bytes) {
					end_one(replies);
				}
				break;
			}
			case SLIP_REPLY_NOT_UNDERSTOOD:
				return;
		}
	}
}
