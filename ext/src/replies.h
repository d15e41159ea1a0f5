#ifndef SLIP_REPLIES_H
#define SLIP_REPLIES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What a client has read from a server so far (RESP 2: https://redis.io/docs/latest/develop/reference/protocol-spec): how many whole
 * replies. Those of RESP 3 are not understood, nor is anything else. */
typedef struct {
	enum {
		SLIP_AT_REPLY,    /* all before are whole replies */
		SLIP_AT_ELEMENT,  /* before the next one of an array */
		SLIP_IN_TEXT,     /* `+OK`, `-ERR ...`, `:1` */
		SLIP_IN_BYTES,    /* the number of `$5` */
		SLIP_IN_ELEMENTS, /* the number of `*3` */
		SLIP_IN_BULK,
		SLIP_REPLY_NOT_UNDERSTOOD
	} place;
	/* The number that is being read, digits of it so far, and whether it is less than 0. */
	int64_t number;
	int digits;
	bool is_negative, is_line_end;
	/* Elements of arrays that have not come yet, bytes of the bulk and of the end of its line. */
	int64_t elements, bytes;
	uint64_t whole;
} slip_replies_t;

/* Reads on. */
void slip_replies_read(slip_replies_t *, const char *data, size_t length);

#endif
