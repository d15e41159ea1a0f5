#ifndef SLIP_PROTOCOL_H
#define SLIP_PROTOCOL_H

/* What is spoken on a connection, by the first bytes that are sent on it. No more of them is looked at than tells that. */

#include "kernel.h"
#include "budget.h"

#define FIRST_BYTES 12

/* The name of a command is within so many. */
#define NAMED_BYTES 32

/* What is looked at of what a thread has sent. */
struct sent {
	union {
		__u8 bytes[NAMED_BYTES];
		__u64 words[NAMED_BYTES / 8];
	};
	/* How far `read_command()` has got. Here, because to the verifier what it reads here may be anything: it follows one turn
	 * of a loop, and not a turn for each way that leads there. */
	volatile __u32 at_in, digits, number, length, end;
};

struct command_name {
	char bytes[SLIP_COMMAND_BYTES];
};

/* A record of TLS that is no part of the handshake. */
#define TLS_DATA 0x17

/* By number of the endpoint, SLIP_PROTOCOL_*. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, SLIP_ENDPOINTS);
	__type(key, __u32);
	__type(value, __u32);
} protocols SEC(".maps");

static __always_inline bool begins(const __u8 *bytes, const char *text, __u32 length)
{
	for (__u32 at = 0; at < length; at++) {
		if (bytes[at] != (__u8) text[at]) {
			return false;
		}
	}
	return true;
}

static __always_inline bool is_http(const __u8 *bytes)
{
	return begins(bytes, "GET /", 5) || begins(bytes, "POST /", 6) || begins(bytes, "PUT /", 5) || begins(bytes, "HEAD /", 6)
			|| begins(bytes, "DELETE /", 8) || begins(bytes, "PATCH /", 7);
}

/* `spoken`: the server has sent something first. */
static __always_inline enum slip_protocol protocol_of(const __u8 *bytes, bool spoken)
{
	if (bytes[0] == 0x16 && bytes[1] == 3) {
		return SLIP_PROTOCOL_TLS;
	}
	if (spoken) {
		/* A packet's length and, behind the server's greeting, its number. */
		return bytes[3] == 1 ? SLIP_PROTOCOL_MYSQL : SLIP_PROTOCOL_UNKNOWN;
	}
	if (bytes[0] == '*' && bytes[1] >= '1' && bytes[1] <= '9') {
		return SLIP_PROTOCOL_REDIS;
	}
	/* A length, and the version 3.0 or the number that asks for TLS. */
	if (!bytes[0] && !bytes[1] && (begins(bytes + 4, "\0\3\0\0", 4) || begins(bytes + 4, "\4\xd2\x16\x2f", 4))) {
		return SLIP_PROTOCOL_POSTGRESQL;
	}
	if (begins(bytes, "get ", 4) || begins(bytes, "gets ", 5) || begins(bytes, "set ", 4) || begins(bytes, "version\r", 8)
			|| bytes[0] == 0x80) {
		return SLIP_PROTOCOL_MEMCACHED;
	}
	return is_http(bytes) || begins(bytes, "PRI * HTTP/2", 12) ? SLIP_PROTOCOL_HTTP : SLIP_PROTOCOL_UNKNOWN;
}

/* The same by the first bytes of a call, of which `length` were sent at once, on a connection that is older than our watch or on which the
 * server spoke first: only what can hardly be anything else. Of Redis more has to fit, as `read_command()` sees. */
static __always_inline enum slip_protocol protocol_of_question(const __u8 *bytes, __u32 length)
{
	__u32 low_first = bytes[0] | bytes[1] << 8 | bytes[2] << 16;
	__u32 high_first = (__u32) bytes[1] << 24 | bytes[2] << 16 | bytes[3] << 8 | bytes[4];

	if (bytes[0] == '*') {
		return SLIP_PROTOCOL_REDIS;
	}
	/* A packet that is all that was sent, the first of a command, which is to run, prepare or execute a statement. */
	if (low_first + 4 == length && !bytes[3] && (bytes[4] == 3 || bytes[4] == 0x16 || bytes[4] == 0x17)) {
		return SLIP_PROTOCOL_MYSQL;
	}
	/* A message that is all that was sent: a simple query. */
	if (bytes[0] == 'Q' && high_first + 1 == length) {
		return SLIP_PROTOCOL_POSTGRESQL;
	}
	return is_http(bytes) ? SLIP_PROTOCOL_HTTP : SLIP_PROTOCOL_UNKNOWN;
}

/* The first bytes of what the running thread sends or has read by the system call that it is in, at most `length`, and how many that are: behind
 * what it has handed over is whatever was there before. */
static __always_inline __u32 read_first(struct task_struct *task, __u8 *bytes, __u32 length)
{
	const struct pt_regs *regs = (const struct pt_regs *) bpf_task_pt_regs(task);
	struct {
		__u64 base, bytes;
	} vector;

	if (!regs) {
		return 0;
	}
	__s64 call = regs->orig_rax;
	__u64 from = regs->rsi, size = regs->rdx;
	/* Read here, or the compiler reads one of two things at one place, which the verifier does not like. */
	barrier_var(from);
	barrier_var(size);
	bool is_message = call == 46 || call == 47, is_vector = call == 20 || call == 19; /* sendmsg, recvmsg, writev, readv */
	if (is_message && bpf_probe_read_user(&from, sizeof from, (const void *) (from + 16))) { /* `msg_iov` */
		return 0;
	}
	if (is_message || is_vector) {
		if (bpf_probe_read_user(&vector, sizeof vector, (const void *) from)) {
			return 0;
		}
		from = vector.base;
		size = vector.bytes;
	} else if (call != 0 && call != 1 && call != 44 && call != 45) { /* read, write, sendto, recvfrom */
		return 0;
	}
	if (size > length) {
		size = length;
	}
	return bpf_probe_read_user(bytes, size, (const void *) from) ? 0 : size;
}

static __always_inline enum slip_protocol protocol_of_call(struct task_struct *task, bool spoken)
{
	__u8 bytes[FIRST_BYTES] = {};

	return read_first(task, bytes, FIRST_BYTES) ? protocol_of(bytes, spoken) : SLIP_PROTOCOL_UNKNOWN;
}

/* Whether what a worker has read from its client can be the begin of a request. Of FastCGI, whose workers read what is left of the last
 * one before they close its connection, the first bytes tell: version 1, and the kind of record, 1 for a begin. */
static __always_inline bool may_begin_request(const __u8 *bytes)
{
	return bytes[0] != 1 || bytes[1] == 0 || bytes[1] > 11 || bytes[1] == 1;
}

static __always_inline bool call_may_begin_request(struct task_struct *task)
{
	__u8 bytes[FIRST_BYTES] = {};

	return !read_first(task, bytes, FIRST_BYTES) || may_begin_request(bytes);
}

static __always_inline bool is_in_name(__u8 byte)
{
	__u8 letter = byte | 0x20;
	return (letter >= 'a' && letter <= 'z') || (byte >= '0' && byte <= '9') || byte == '_';
}

static __always_inline __u8 in_capitals(__u8 byte)
{
	return byte >= 'a' ? byte & ~0x20 : byte;
}

/* Where the reading of what a client of Redis sends has got to. */
enum resp { RESP_WORDS, RESP_WORDS_END, RESP_WORD, RESP_LENGTH, RESP_LENGTH_END, RESP_NAME, RESP_WHOLE, RESP_NONE };

/* As many digits: a length of more is none of the name of a command. */
#define RESP_DIGITS 7

/* How many words come, the length of the first, and that word: `*2`, `$3`, `GET`, each with the end of a line. Only what has all of this form
 * begins with a command; the rest may be part of a value. Writes the first bytes of the name; `length` is how many there are, 0 for none, and
 * `end` where it ends. */
static __always_inline void read_resp(struct sent *sent, char *name)
{
	sent->at_in = sent->bytes[0] == '*' ? RESP_WORDS : RESP_NONE;
	sent->digits = sent->number = 0;
	for (__u32 at = 1; at < NAMED_BYTES; at++) {
		__u8 byte = sent->bytes[at], letter = byte | 0x20;
		__u32 at_in = sent->at_in, digits = sent->digits, number = sent->number, length = sent->length;
		switch (at_in) {
			case RESP_WORDS: case RESP_LENGTH:
				if (byte >= '0' + !digits && byte <= '9' && digits < RESP_DIGITS) {
					number = number * 10 + byte - '0';
					digits++;
				} else {
					at_in = byte == '\r' && digits ? at_in + 1 : RESP_NONE;
				}
				break;
			case RESP_WORDS_END: case RESP_LENGTH_END:
				at_in = byte == '\n' ? at_in + 1 : RESP_NONE;
				break;
			case RESP_WORD:
				at_in = byte == '$' ? RESP_LENGTH : RESP_NONE;
				digits = number = 0;
				break;
			case RESP_NAME:
				if (length == number) {
					at_in = byte == '\r' ? RESP_WHOLE : RESP_NONE;
					sent->end = at;
				} else if ((letter >= 'a' && letter <= 'z') || (length && (byte == '.' || byte == '_'))) {
					if (length < SLIP_COMMAND_BYTES) {
						name[length & (SLIP_COMMAND_BYTES - 1)] = in_capitals(byte);
					}
					length++;
				} else {
					at_in = RESP_NONE;
				}
				break;
			default:
				break;
		}
		sent->at_in = at_in;
		sent->digits = digits;
		sent->number = number;
		sent->length = length;
	}
	if (sent->at_in != RESP_WHOLE) {
		sent->length = 0;
	}
}

/* The name of the command that a client sends, in capitals, zeros behind it; nothing of what it is about. How many of the first
 * SLIP_FIRST_BYTES tell that; 0 if they do not. What is not sent is 0. Not static: then the verifier looks at it once, and not in each program
 * that sees what is sent. */
__noinline int read_command(__u32 protocol, struct sent *sent, struct command_name *command)
{
	__u32 from = 0;

	/* They never are, but for the verifier. */
	if (!sent || !command) {
		return false;
	}
	const __u8 *bytes = sent->bytes;
	char *name = command->bytes;
	sent->length = 0;
	sent->end = NAMED_BYTES;

	switch (protocol) {
		case SLIP_PROTOCOL_MYSQL:
			/* Behind the packet's head and the kind of command, of which two have SQL. */
			from = bytes[3] == 0 && (bytes[4] == 3 || bytes[4] == 0x16) ? 5 : NAMED_BYTES;
			break;
		case SLIP_PROTOCOL_POSTGRESQL:
			/* Behind the kind of message and its length; to prepare, behind a name that mostly is empty. */
			from = bytes[0] == 'Q' ? 5 : bytes[0] == 'P' && !bytes[5] ? 6 : NAMED_BYTES;
			break;
		case SLIP_PROTOCOL_MEMCACHED:
			from = bytes[0] == 0x80 ? NAMED_BYTES : 0;
			break;
		case SLIP_PROTOCOL_HTTP:
			break;
		default:
			from = NAMED_BYTES;
	}
	if (protocol == SLIP_PROTOCOL_REDIS) {
		read_resp(sent, name);
	}
	for (__u32 at = 0; at < NAMED_BYTES; at++) {
		__u8 byte = bytes[at];
		__u32 length = sent->length;
		if (at < from || sent->end < NAMED_BYTES) {
			continue;
		}
		if (is_in_name(byte) && length < SLIP_COMMAND_BYTES) {
			name[length & (SLIP_COMMAND_BYTES - 1)] = in_capitals(byte);
			sent->length = length + 1;
		} else {
			sent->end = at;
		}
	}
	for (__u32 at = 0; at < SLIP_COMMAND_BYTES; at++) {
		if (at >= sent->length) {
			name[at] = 0;
		}
	}
	return sent->end < SLIP_FIRST_BYTES ? sent->end + 1 : 0;
}

static __always_inline void note_protocol(__u32 endpoint, enum slip_protocol protocol)
{
	__u32 value = protocol;

	if (protocol && endpoint < SLIP_ENDPOINT_OTHERS) {
		bpf_map_update_elem(&protocols, &endpoint, &value, BPF_ANY);
	}
}

#endif
