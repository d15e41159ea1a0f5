#ifndef SLIP_PROTOCOL_H
#define SLIP_PROTOCOL_H

/* What is spoken on a connection, by the first bytes that are sent on it. No more of them is looked at than tells that. */

#include "kernel.h"
#include "budget.h"

#define FIRST_BYTES 12

/* The name of a command is within so many. */
#define NAMED_BYTES 32

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
	if (begins(bytes, "GET /", 5) || begins(bytes, "POST /", 6) || begins(bytes, "PUT /", 5) || begins(bytes, "HEAD /", 6)
			|| begins(bytes, "DELETE /", 8) || begins(bytes, "PATCH /", 7) || begins(bytes, "PRI * HTTP/2", 12)) {
		return SLIP_PROTOCOL_HTTP;
	}
	return SLIP_PROTOCOL_UNKNOWN;
}

/* The first bytes of what the running thread sends or has read by the system call that it is in. */
static __always_inline bool read_first(struct task_struct *task, __u8 *bytes, __u32 length)
{
	const struct pt_regs *regs = (const struct pt_regs *) bpf_task_pt_regs(task);

	if (!regs) {
		return false;
	}
	__s64 call = regs->orig_rax;
	__u64 from = regs->rsi;
	/* Read here, or the compiler reads one of two things at one place, which the verifier does not like. */
	barrier_var(from);
	bool is_message = call == 46 || call == 47, is_vector = call == 20 || call == 19; /* sendmsg, recvmsg, writev, readv */
	if (is_message && bpf_probe_read_user(&from, sizeof from, (const void *) (from + 16))) { /* `msg_iov` */
		return false;
	}
	if ((is_message || is_vector) && bpf_probe_read_user(&from, sizeof from, (const void *) from)) {
		return false;
	}
	if (!is_message && !is_vector && call != 0 && call != 1 && call != 44 && call != 45) { /* read, write, sendto, recvfrom */
		return false;
	}
	return bpf_probe_read_user(bytes, length, (const void *) from) == 0;
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

/* The name of the command that a client sends, in capitals, zeros behind it; nothing of what it is about. Whether the name ends within
 * the first SLIP_FIRST_BYTES. */
static __always_inline bool read_command(enum slip_protocol protocol, const __u8 *bytes, char *name)
{
	__u32 from = 0, lines = 0, length = 0, end = NAMED_BYTES;

	switch (protocol) {
		case SLIP_PROTOCOL_REDIS:
			/* The number of words, and the length of the first. */
			lines = 2;
			from = bytes[0] == '*' ? 0 : NAMED_BYTES;
			break;
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
	for (__u32 at = 0; at < NAMED_BYTES; at++) {
		__u8 byte = bytes[at];
		if (at < from || end < NAMED_BYTES) {
			continue;
		}
		if (lines) {
			lines -= byte == '\n';
		} else if (is_in_name(byte) && length < SLIP_COMMAND_BYTES) {
			name[length & (SLIP_COMMAND_BYTES - 1)] = byte >= 'a' ? byte & ~0x20 : byte;
			length++;
		} else {
			end = at;
		}
	}
	for (__u32 at = 0; at < SLIP_COMMAND_BYTES; at++) {
		if (at >= length) {
			name[at] = 0;
		}
	}
	return end < SLIP_FIRST_BYTES;
}

static __always_inline void note_protocol(__u32 endpoint, enum slip_protocol protocol)
{
	__u32 value = protocol;

	if (protocol && endpoint < SLIP_ENDPOINT_OTHERS) {
		bpf_map_update_elem(&protocols, &endpoint, &value, BPF_ANY);
	}
}

#endif
