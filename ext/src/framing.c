#include "framing.h"

#include <string.h>
#include <strings.h>

/* The server's own limits: of strings in a command, and of the bytes in one. */
#define MAX_STRINGS (1024 * 1024)
#define MAX_BYTES (512ll * 1024 * 1024)

/* Commands that leave something on the connection, by how they begin. */
static const struct {
	const char *begin;
	enum {STAYS, TOLD, OPENS, ENDS} leaves;
} commands[] = {
	/* RESET leaves these on (Redis 7.0). */
	{"client no-", STAYS},
	/* A client's own: if it does not read the answer, nothing tells that from the answer to ours. */
	{"reset", STAYS},
	/* What a server does not show that asks for a password of the first user alone; before Redis 7.0; at all. */
	{"auth", TOLD},
	{"hello", TOLD},
	{"watch", TOLD},
	/* It is about the next command, or there is no answer, or not only one. */
	{"asking", TOLD},
	{"client caching", TOLD},
	{"client reply", TOLD},
	{"monitor", TOLD},
	{"psubscribe", TOLD},
	{"psync", TOLD},
	{"ssubscribe", TOLD},
	{"subscribe", TOLD},
	{"sync", TOLD},
	{"multi", OPENS},
	{"exec", ENDS},
	{"discard", ENDS},
};

/* Those that most of what is said consists of, and of which nothing is left on the connection: they read and write values, and have one
 * reply each (https://redis.io/docs/latest/commands). In alphabetical order. */
static const char *const plain[] = {
	"append", "bitcount", "dbsize", "decr", "decrby", "del", "echo", "exists", "expire", "expireat", "get", "getbit", "getdel", "getex", "getrange",
	"getset", "hdel", "hexists", "hget", "hgetall", "hincrby", "hincrbyfloat", "hkeys", "hlen", "hmget", "hmset", "hscan", "hset", "hsetnx",
	"hstrlen", "hvals", "incr", "incrby", "incrbyfloat", "lindex", "linsert", "llen", "lpop", "lpush", "lpushx", "lrange", "lrem", "lset",
	"ltrim", "mget", "mset", "msetnx", "persist", "pexpire", "pexpireat", "pfadd", "pfcount", "ping", "psetex", "pttl", "publish", "rpop",
	"rpush", "rpushx", "sadd", "scan", "scard", "sdiff", "set", "setbit", "setex", "setnx", "setrange", "sinter", "sismember", "smembers",
	"smismember", "smove", "spop", "srandmember", "srem", "sscan", "strlen", "sunion", "time", "touch", "ttl", "type", "unlink", "zadd",
	"zcard", "zcount", "zincrby", "zrange", "zrangebyscore", "zrank", "zrem", "zremrangebyrank", "zremrangebyscore", "zrevrange",
	"zrevrangebyscore", "zrevrank", "zscan", "zscore",
};

static bool is_plain(const slip_framing_t *framing)
{
	const char *blank = memchr(framing->begin, ' ', framing->begun);
	size_t length = blank ? (size_t) (blank - framing->begin) : framing->begun, low = 0, high = sizeof plain / sizeof *plain;

	while (low < high) {
		size_t middle = (low + high) / 2;
		int order = strncasecmp(framing->begin, plain[middle], length);
		if (order == 0 && !plain[middle][length]) {
			return true;
		}
		/* One that is longer comes behind. */
		if (order <= 0) {
			high = middle;
		} else {
			low = middle + 1;
		}
	}
	return false;
}

static void note_begin(slip_framing_t *framing, char byte)
{
	/* A client may write several blanks, or quotes, between the words of a line. */
	bool is_blank = byte == ' ' || byte == '\t' || byte == '"' || byte == '\'';
	if (framing->begun < SLIP_FRAMING_BEGIN && !(is_blank && (!framing->begun || framing->begin[framing->begun - 1] == ' '))) {
		framing->begin[framing->begun++] = is_blank ? ' ' : byte;
	}
}

static bool does_begin(const char *at, int64_t length, const char *word)
{
	return length >= (int64_t) strlen(word) && strncasecmp(at, word, strlen(word)) == 0;
}

/* What a whole command leaves, of which the begin is noted. */
static void note_command(slip_framing_t *framing)
{
	for (size_t at = 0; at < sizeof commands / sizeof *commands; at++) {
		/* Most are told by their first letter. */
		if ((*framing->begin | ' ') != *commands[at].begin || !does_begin(framing->begin, framing->begun, commands[at].begin)) {
			continue;
		}
		framing->stays |= commands[at].leaves == STAYS;
		framing->told |= commands[at].leaves == TOLD;
		if (commands[at].leaves == OPENS || commands[at].leaves == ENDS) {
			framing->is_open = commands[at].leaves == OPENS;
		}
	}
	framing->commands++;
	framing->has_others |= !is_plain(framing);
	framing->begun = 0;
}

static void end_command(slip_framing_t *framing)
{
	note_command(framing);
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

/* A number and the end of its line; what is behind it, or NULL if not all of it is there, or anything is odd. */
static const char *pass_number(const char *at, const char *end, int64_t *number)
{
	const char *begin = at;

	for (*number = 0; at < end && *at >= '0' && *at <= '9' && at - begin < 10; at++) {
		*number = *number * 10 + (*at - '0');
	}
	return at > begin && end - at >= 2 && at[0] == '\r' && at[1] == '\n' ? at + 2 : NULL;
}

/* One command that is an array and all there, as clients write it: without a look at each of its bytes. What is behind it, or NULL
 * if it has to be read bytewise. */
static const char *pass_array(slip_framing_t *framing, const char *at, const char *end)
{
	int64_t strings, length;
	bool is_client = false;

	at = pass_number(at + 1, end, &strings);
	if (!at || !strings || strings > MAX_STRINGS) {
		return NULL;
	}
	for (int64_t number = 0; number < strings; number++) {
		at = at < end && *at == '$' ? pass_number(at + 1, end, &length) : NULL;
		if (!at || length > MAX_BYTES || end - at < length + 2) {
			framing->begun = 0;
			return NULL;
		}
		if (number == 0 || (number == 1 && is_client)) {
			for (int64_t byte = 0; byte < length && framing->begun < SLIP_FRAMING_BEGIN; byte++) {
				note_begin(framing, at[byte]);
			}
			note_begin(framing, ' ');
			is_client = length == 6 && does_begin(at, length, "client");
		}
		at += length + 2;
	}
	note_command(framing);
	return at;
}

void slip_framing_read(slip_framing_t *framing, const char *data, size_t length)
{
	const char *end = data + length, *behind;

	while (data < end) {
		switch (framing->place) {
			case SLIP_AT_COMMAND:
				if (*data == '*' && (behind = pass_array(framing, data, end))) {
					data = behind;
				} else if (*data == '*') {
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
					/* What it has in quotes is not looked at. */
					framing->has_others = true;
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
