#ifndef SLIP_EXCHANGE_H
#define SLIP_EXCHANGE_H

/* Calls to servers: from the first byte of a question to the first of its answer that is read, and where it was meanwhile. What both
 * sides do is noted at one place that each finds by what it knows of the connection, without a helper. */

#include "kernel.h"
#include "account.h"
#include "budget.h"
#include "protocol.h"
#include "slow.h"
#include "socket.h"

/* A power of two. Of two connections that fall on the same place, the calls of one are counted but not split. */
#define EXCHANGES 8192

/* Where calls come faster than one in so long, one of 2^CHOSEN_BITS is looked at for all of them, chosen by chance, and each that takes
 * long for itself. So sums and quantiles are right on average, and the fastest clients pay least. Whether a call takes long is known too late to read
 * its command: of these, too, one stands for all. */
#define UNHURRIED_NS 10000000
#define CHOSEN_BITS 3
#define LONG_NS 200000

/* One that was not used for so long leaves its place to another. */
#define UNUSED_NS 1000000000

/* Whether the server is a target is asked once in so long. */
#define FOREIGN_NS 100000000

/* Who had a CPU is told only of a thread that was ready for so long. */
#define TAKEN_NS 20000

/* A program that had a CPU for which a worker was ready. */
struct taker {
	char name[SLIP_TASK_NAME_BYTES];
	/* SLIP_TAKER_*. */
	__u32 flags;
};

/* For how long workers were ready then: all together, and how often for how long. */
struct taken {
	__u64 ns;
	__u32 buckets[SLIP_BUCKETS];
};

#define SLIP_TAKER_WORKER 1
/* Its priority is higher than that of the worker. */
#define SLIP_TAKER_PREFERRED 2

/* A connection that a thread of a target has to a server, and the moments of its last call. Who sends and who brings data look at it on one
 * CPU after the other: what tells the connection, which stays as it is, is in a line of the cache of its own, and what both note in the next. */
struct exchange {
	/* The client's socket. Of a UNIX socket also its cookie, as it has no ports. */
	__u64 socket, cookie;
	/* The client's port above, the server's below; of the server's address the last 32 bits. */
	__u32 ports, server;
	__u32 endpoint;
	/* SLIP_PROTOCOL_*. */
	__u32 protocol;
	/* Since when TLS is being agreed on; 0 if it is not. */
	__u64 handshake_ns;
	/* The first data that has come and was not read yet by an event loop: since when. */
	__u64 unread_ns;
	/* When its server was found to be no target. */
	__u64 foreign_ns;
	__u64 reserved;

	/* By the client: a call is open from its begin until an answer ends it. */
	__u64 begin_ns, sent_ns, ended_ns;
	/* By the server, if it is on this host. */
	__u64 delivered_ns, taken_ns, answered_ns;
	/* By whoever brings the answer, and wakes the client. */
	__u64 arrived_ns, woken_ns;

	/* By the client. */
	__u64 running_ns;
	/* What was sent first, and the command's name, which so many bytes of that tell; 0 if it needs more. */
	__u32 telling;
	/* For how many calls the present one stands; 0 if it was not chosen. */
	__u32 weight;
	__u64 first[SLIP_FIRST_BYTES / 8];
	struct command_name command;
	/* Who had the CPU before the client, which was ready for it, and since when the client has it; only where slow calls are told. */
	__u64 taken_cpu_ns;
	struct taker taker;
} __attribute__((aligned(64)));

/* Can be mapped, so that it begins with a page, and each exchange with a line of the cache. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, EXCHANGES);
	__type(key, __u32);
	__type(value, struct exchange);
} exchanges SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, SLIP_ENDPOINTS);
	__type(key, __u32);
	__type(value, struct slip_call_times);
} call_times SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1024);
	__type(key, struct slip_command_key);
	__type(value, struct slip_command_times);
} commands SEC(".maps");

/* A call that takes longer is told of. Set by the loader. */
volatile __u64 slow_call_ns = ~0ULL;

static __always_inline __u64 earlier(__u64 one, __u64 other)
{
	return one < other ? one : other;
}

static __always_inline __u64 later(__u64 one, __u64 other)
{
	return one > other ? one : other;
}

static __always_inline struct exchange *exchange_at(__u32 place)
{
	__u32 at = place & (EXCHANGES - 1);
	return place == SLIP_PLACE_NONE ? NULL : bpf_map_lookup_elem(&exchanges, &at);
}

static __always_inline __u16 swap16(__u16 value)
{
	return (__u16) (value << 8 | value >> 8);
}

/* Such sockets lie at multiples of so many bits. */
#define ADDRESS_BITS 6

/* Tells a UNIX socket from all others: its address does so until it is closed. */
static __always_inline __u64 cookie_of(const struct sock *socket)
{
	return options.by_address ? (__u64) socket >> ADDRESS_BITS : socket->__sk_common.skc_cookie.counter;
}

static __always_inline __u32 place_of(const struct sock *socket)
{
	return READ_SOCKET(socket, __sk_common.skc_family) == AF_UNIX ? (__u32) cookie_of(socket) & (EXCHANGES - 1)
			: READ_SOCKET(socket, __sk_common.skc_num);
}

static __always_inline const struct sock *unix_peer(const struct sock *socket)
{
	if (!options.by_address && loads_as_told()) {
		return AS_TOLD(struct unix_sock, socket)->peer;
	}
	return BPF_CORE_READ((const struct unix_sock *) socket, peer);
}

/* What `cookie_of()` tells of the other side of a UNIX socket; 0 if there is none. */
static __always_inline __u64 cookie_of_peer(const struct sock *socket)
{
	const struct sock *peer = unix_peer(socket);

	if (options.by_address) {
		return (__u64) peer >> ADDRESS_BITS;
	}
	if (!peer) {
		return 0;
	}
	return loads_as_told() ? AS_TOLD(struct sock, peer)->__sk_common.skc_cookie.counter
			: BPF_CORE_READ(peer, __sk_common.skc_cookie.counter);
}

/* The client's port above, the server's below. */
static __always_inline __u32 ports_of(__u16 client, __u16 server)
{
	return (__u32) client << 16 | server;
}

/* Whether this is the client's side of an exchange. */
static __always_inline struct exchange *exchange_of_client(const struct sock *socket)
{
	struct exchange *exchange = exchange_at(place_of(socket));

	if (!exchange || exchange->socket != (__u64) socket) {
		return NULL;
	}
	if (READ_SOCKET(socket, __sk_common.skc_family) == AF_UNIX) {
		return exchange->cookie == cookie_of(socket) ? exchange : NULL;
	}
	__u16 client = READ_SOCKET(socket, __sk_common.skc_num), server = swap16(READ_SOCKET(socket, __sk_common.skc_dport));
	return exchange->ports == ports_of(client, server) ? exchange : NULL;
}

/* Whether this is the server's side of one. */
static __always_inline struct exchange *exchange_of_server(const struct sock *socket)
{
	__u16 family = READ_SOCKET(socket, __sk_common.skc_family);

	if (family == AF_UNIX) {
		__u64 cookie = cookie_of_peer(socket);
		struct exchange *exchange = cookie ? exchange_at(cookie & (EXCHANGES - 1)) : NULL;
		return exchange && exchange->cookie == cookie ? exchange : NULL;
	}
	if (!is_inet(family)) {
		return NULL;
	}
	__u16 client = swap16(READ_SOCKET(socket, __sk_common.skc_dport)), server = READ_SOCKET(socket, __sk_common.skc_num);
	struct exchange *exchange = exchange_at(client);
	if (!exchange || exchange->ports != ports_of(client, server) || exchange->socket == (__u64) socket) {
		return NULL;
	}
	/* A server of IPv6 takes clients of IPv4, too: then the address is in both places. */
	return exchange->server == READ_SOCKET(socket, __sk_common.skc_rcv_saddr)
			|| exchange->server == READ_SOCKET(socket, __sk_common.skc_v6_rcv_saddr.in6_u.u6_addr32[3]) ? exchange : NULL;
}

/* The data of a call has come to the server: the last of it, before it is taken. */
static __always_inline void note_delivered(struct exchange *exchange, __u64 now)
{
	if (exchange->taken_ns >= exchange->delivered_ns) {
		exchange->delivered_ns = now;
	}
}

/* The server has read. */
static __always_inline void note_taken(struct exchange *exchange, __u64 now)
{
	if (exchange->taken_ns < exchange->delivered_ns) {
		exchange->taken_ns = now;
	}
}

/* The server begins to answer, or has, where nobody tells when it begins. */
static __always_inline void note_answered(struct exchange *exchange, __u64 now)
{
	if (exchange->answered_ns < exchange->taken_ns) {
		exchange->answered_ns = now;
	}
}

/* A target's thread uses this connection for the first time, or after its place was lost. NULL if there is none. */
static __always_inline struct exchange *new_exchange(struct sock *socket, __u32 endpoint, __u64 now)
{
	__u16 family = READ_SOCKET(socket, __sk_common.skc_family), client = READ_SOCKET(socket, __sk_common.skc_num);
	__u64 cookie = 0;

	if (family == AF_UNIX) {
		cookie = options.by_address ? cookie_of(socket) : bpf_get_socket_cookie(socket);
	}
	struct exchange *exchange = exchange_at(cookie ? cookie & (EXCHANGES - 1) : client);
	if (!exchange) {
		return NULL;
	}
	if (exchange->socket && exchange->socket != (__u64) socket && later(exchange->begin_ns, exchange->ended_ns) + UNUSED_NS > now) {
		return NULL;
	}
	__builtin_memset(exchange, 0, sizeof *exchange);
	exchange->cookie = cookie;
	if (!cookie) {
		exchange->ports = ports_of(client, swap16(READ_SOCKET(socket, __sk_common.skc_dport)));
		exchange->server = family == AF_INET ? READ_SOCKET(socket, __sk_common.skc_daddr)
				: READ_SOCKET(socket, __sk_common.skc_v6_daddr.in6_u.u6_addr32[3]);
	}
	exchange->endpoint = endpoint;
	exchange->socket = (__u64) socket;
	return exchange;
}

/* What this socket is the client's side of from now on is another exchange. */
static __always_inline void forget_exchange(const struct sock *socket)
{
	struct exchange *exchange = exchange_of_client(socket);

	if (exchange) {
		exchange->socket = exchange->cookie = 0;
	}
}

/* The socket at this address is another one from now on. */
static __always_inline void forget_address(const struct sock *socket)
{
	__u64 address = (__u64) socket;

	forget_exchange(socket);
	bpf_map_delete_elem(&connections_by_address, &address);
}

static __always_inline bool is_asked(const struct exchange *exchange)
{
	return exchange->begin_ns > exchange->ended_ns;
}

/* The answer begins to come: of what was asked last, not more of what was asked before. */
static __always_inline void note_answer(struct exchange *exchange, __u64 now)
{
	if (exchange->arrived_ns < exchange->begin_ns || exchange->arrived_ns < exchange->delivered_ns) {
		exchange->arrived_ns = now;
	}
}

/* Half an octave wide each, from 256 ns on. Not static: then the verifier looks at it once, and not for each part again. */
__noinline __u32 bucket_of(__u64 ns)
{
	__u32 bits = 0;
	__u64 rest = ns;

	for (__u32 shift = 32; shift; shift >>= 1) {
		if (rest >> shift) {
			rest >>= shift;
			bits += shift;
		}
	}
	if (bits < 8) {
		return 0;
	}
	__u32 bucket = 2 * (bits - 8) + (ns >> (bits - 1) & 1);
	return bucket < SLIP_BUCKETS ? bucket : SLIP_BUCKETS - 1;
}

/* Of so many calls, or beside calls. */
static __always_inline void add_part(struct slip_call_times *times, enum slip_call_part part, __u64 ns, __u32 weight)
{
	if (ns) {
		times->parts[part].ns += ns * weight;
		times->parts[part].buckets[bucket_of(ns) & (SLIP_BUCKETS - 1)] += weight;
	}
}

/* Cuts the call that ends `now` into parts, which add up to it. */
static __always_inline void split(const struct exchange *exchange, __u64 now, __u64 *parts)
{
	__u64 begin = exchange->begin_ns, sent = later(exchange->sent_ns, begin), arrived = exchange->arrived_ns;
	__u64 delivered = exchange->delivered_ns, taken = exchange->taken_ns, answered = exchange->answered_ns;

	/* Its last answer was read in pieces, or one before it came late. */
	if (arrived < begin || arrived > now) {
		arrived = now;
	}
	/* It may come, from another CPU, before we were told that all had been sent. */
	sent = earlier(sent, arrived);
	if (delivered >= begin && taken >= delivered && answered >= taken && arrived >= answered) {
		sent = earlier(sent, delivered);
		parts[SLIP_CALL_FLIGHT] = delivered - sent + (arrived - answered);
		parts[SLIP_CALL_QUEUE] = taken - delivered;
		parts[SLIP_CALL_WORK] = answered - taken;
	} else {
		parts[SLIP_CALL_REMOTE] = arrived - sent;
	}
	parts[SLIP_CALL_WRITE] = sent - begin;
	/* One that was not waiting for it, or did not sleep, is late by itself. */
	__u64 woken = exchange->woken_ns >= arrived ? earlier(exchange->woken_ns, now) : arrived;
	__u64 running = exchange->running_ns >= woken ? earlier(exchange->running_ns, now) : woken;
	parts[SLIP_CALL_WOKEN] = woken - arrived;
	parts[SLIP_CALL_RUNNING] = running - woken;
	parts[SLIP_CALL_READ] = now - running;
}

/* Whether the call that begins is looked at, and for how many others as well. */
static __always_inline __u32 choose(struct slip_thread *thread, __u64 now)
{
	/* Who wants to know of slow calls wants the command of each, which is known at its end alone. */
	if (now - thread->chosen_ns < UNHURRIED_NS && slow_call_ns == ~0ULL) {
		/* A linear congruential generator, whose higher bits are the better ones (Knuth, MMIX). */
		thread->random = thread->random * 6364136223846793005ULL + 1442695040888963407ULL;
		return thread->random >> (64 - CHOSEN_BITS) ? 0 : 1 << CHOSEN_BITS;
	}
	thread->chosen_ns = now;
	return 1;
}

/* The thread has got a CPU, which this one had. */
static __always_inline void note_taker_of_call(struct exchange *exchange, const struct taker *taker, __u64 now)
{
	if (slow_call_ns != ~0ULL) {
		exchange->taker = *taker;
		exchange->taken_cpu_ns = now;
	}
}

/* What the running thread has sent, so much at once, is the begin of a call, or more of it. */
static __always_inline void note_question(struct task_struct *task, struct slip_thread *thread, struct exchange *exchange, __u32 length,
		__u64 now)
{
	/* What is not sent is 0. Such a connection has TLS to its end. */
	struct sent sent = {};

	if (exchange->handshake_ns) {
		if (!read_first(task, sent.bytes, FIRST_BYTES) || sent.bytes[0] != TLS_DATA) {
			return;
		}
		__u32 endpoint = exchange->endpoint;
		struct slip_call_times *times = bpf_map_lookup_elem(&call_times, &endpoint);
		if (times) {
			add_part(times, SLIP_CALL_TLS, now - exchange->handshake_ns, 1);
		}
		exchange->handshake_ns = 0;
	}
	bool is_more = exchange->sent_ns > exchange->ended_ns;
	if (!is_asked(exchange)) {
		/* Nobody told that it begins. */
		exchange->begin_ns = exchange->delivered_ns > exchange->ended_ns ? exchange->delivered_ns : now;
	}
	exchange->sent_ns = now;
	if (is_more) {
		return;
	}
	exchange->weight = choose(thread, now);
	if (!exchange->weight || exchange->protocol == SLIP_PROTOCOL_TLS) {
		return;
	}
	__u32 handed = read_first(task, sent.bytes, NAMED_BYTES);
	/* Of what lies in several places the first may be short. */
	if (exchange->telling && handed >= exchange->telling && sent.words[0] == exchange->first[0] && sent.words[1] == exchange->first[1]) {
		return;
	}
	/* Nobody saw the connection begin, or its first bytes did not tell. */
	__u32 protocol = exchange->protocol ? exchange->protocol : protocol_of_question(sent.bytes, length);
	exchange->telling = read_command(protocol, &sent, &exchange->command);
	/* What comes next may go on where this one ends. */
	if (exchange->telling > handed) {
		exchange->telling = 0;
	}
	if (!exchange->protocol && (protocol != SLIP_PROTOCOL_REDIS || exchange->command.bytes[0])) {
		exchange->protocol = protocol;
		note_protocol(exchange->endpoint, protocol);
	}
	exchange->first[0] = sent.words[0];
	exchange->first[1] = sent.words[1];
}

static __always_inline void note_command(const struct exchange *exchange, __u64 ns)
{
	struct slip_command_key key = {.endpoint = exchange->endpoint};
	__u32 weight = exchange->weight;

	if (!weight) {
		return;
	}
	__builtin_memcpy(key.name, exchange->command.bytes, sizeof key.name);
	struct slip_command_times *times = bpf_map_lookup_elem(&commands, &key);
	if (times) {
		__sync_fetch_and_add(&times->calls, weight);
		__sync_fetch_and_add(&times->ns, ns * weight);
		if (ns > times->longest_ns) {
			times->longest_ns = ns;
		}
		return;
	}
	struct slip_command_times first = {.calls = weight, .ns = ns * weight, .longest_ns = ns};
	bpf_map_update_elem(&commands, &key, &first, BPF_NOEXIST);
}

/* The call ends, as its answer is read. */
static __always_inline void end_call(const struct slip_thread *thread, struct exchange *exchange, __u64 now)
{
	struct slip_call call = {.kind = SLIP_EVENT_CALL, .pid = thread->pid, .tid = thread->tid, .endpoint = exchange->endpoint, .end_ns = now};
	struct slip_call_times *times = bpf_map_lookup_elem(&call_times, &call.endpoint);
	__u64 ns = now - exchange->begin_ns;
	__u32 weight = ns < LONG_NS ? exchange->weight : 1;

	exchange->ended_ns = now;
	if (!weight || !times) {
		return;
	}
	split(exchange, now, call.parts);
	times->calls += weight;
	for (__u32 part = SLIP_CALL_WRITE; part < SLIP_CALL_PARTS; part++) {
		add_part(times, part, call.parts[part], weight);
	}
	note_command(exchange, ns);
	if (ns >= slow_call_ns) {
		if (exchange->weight) {
			__builtin_memcpy(call.command, exchange->command.bytes, sizeof call.command);
		}
		if (call.parts[SLIP_CALL_RUNNING] > TAKEN_NS && exchange->taken_cpu_ns == exchange->running_ns) {
			__builtin_memcpy(call.taker, exchange->taker.name, sizeof call.taker);
			call.flags = SLIP_CALL_TAKEN | (exchange->taker.flags & SLIP_TAKER_WORKER ? SLIP_CALL_TAKEN_BY_WORKER : 0);
		}
		/* Nobody waits for it: who traces asks by itself. To wake them would interrupt this CPU before the stack is walked. */
		if (bpf_ringbuf_output(&served, &call, sizeof call, BPF_RB_NO_WAKEUP)) {
			count_budget(SLIP_BUDGET_LOST);
		} else {
			note_slow(exchange->socket, now);
		}
	}
}

#endif
