#ifndef SLIP_SOCKET_H
#define SLIP_SOCKET_H

/* Sockets: which side of a connection a thread has, and whose the other one is. */

#include "kernel.h"
#include "budget.h"

/* Of `include/linux/net.h` and `net/tcp_states.h` in the kernel. */
#define SOCK_STREAM 1
#define TCP_ESTABLISHED 1
#define TCP_SYN_SENT 2
#define TCP_CLOSE 7
#define TCP_LISTEN 10

const volatile struct slip_budget_options options = {};

#define READ_SOCKET(socket, field) (options.by_address ? BPF_CORE_READ(socket, field) : (socket)->field)

/* Ports on which targets listen. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 65536);
	__type(key, __u32);
	__type(value, __u8);
} listening_ports SEC(".maps");

/* Paths of UNIX sockets on which they do. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 256);
	__type(key, struct slip_endpoint_key);
	__type(value, __u8);
} listening_paths SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1024);
	__type(key, struct slip_endpoint_key);
	__type(value, __u32);
} endpoints SEC(".maps");

/* How many have a number. */
__u32 endpoint_count;

enum role { ROLE_UNKNOWN, ROLE_NONE, ROLE_INBOUND, ROLE_OUTBOUND };

/* What is kept of a socket of a target. */
struct connection {
	/* The first data that has come and was not read yet: since when. */
	__u64 arrived_ns;
	/* When a thread of a target began to connect, and when the other side had agreed: of TCP. */
	__u64 connecting_ns, connected_ns;
	__u8 role;
	__u8 endpoint;
	/* Something was sent. */
	__u8 sent;
	/* Something was read. */
	__u8 spoken;
	__u8 reserved[4];
};

struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct connection);
} connections SEC(".maps");

/* The same by the socket's address, where that is all that is known of it. Who is done with one does not always tell. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 16384);
	__type(key, __u64);
	__type(value, struct connection);
} connections_by_address SEC(".maps");

/* The last socket of which this CPU said that data has come: it is what wakes a thread right after that. */
struct arrival {
	__u64 time_ns;
	__u8 role, endpoint;
	/* Of its exchange; SLIP_PLACE_NONE if it has none. */
	__u32 place;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct arrival);
} arrivals SEC(".maps");

static __always_inline __u16 family_of(const struct sock *socket)
{
	return BPF_CORE_READ(socket, __sk_common.skc_family);
}

static __always_inline bool is_inet(__u16 family)
{
	return family == AF_INET || family == AF_INET6;
}

/* The path or abstract name of a UNIX socket; false if it has none. */
static __always_inline bool read_path(struct slip_endpoint_key *key, const struct unix_address *address)
{
	if (!address) {
		return false;
	}
	/* With the family before it. */
	__u32 bytes = BPF_CORE_READ(address, len) - 2;
	if (bytes > SLIP_PATH_BYTES) {
		return false;
	}
	const void *name = (const char *) address + bpf_core_field_offset(struct unix_address, name) + 2;
	return bpf_probe_read_kernel(key->address, bytes, name) == 0;
}

/* Whether a target listens on the port that this socket has here. */
static __always_inline bool has_listening_port(const struct sock *socket)
{
	__u32 port = BPF_CORE_READ(socket, __sk_common.skc_num);
	const __u8 *listens = bpf_map_lookup_elem(&listening_ports, &port);
	return listens && *listens;
}

/* Connections that come to where this socket listens are a target's. */
static __always_inline void note_listening(const struct sock *socket)
{
	__u16 family = family_of(socket);
	__u8 yes = 1;

	if (is_inet(family)) {
		__u32 port = BPF_CORE_READ(socket, __sk_common.skc_num);
		__u8 *listens = bpf_map_lookup_elem(&listening_ports, &port);
		if (listens && port && !*listens) {
			*listens = 1;
		}
		return;
	}
	struct slip_endpoint_key key = {.family = AF_UNIX};
	if (family == AF_UNIX && read_path(&key, BPF_CORE_READ((const struct unix_sock *) socket, addr))
			&& !bpf_map_lookup_elem(&listening_paths, &key)) {
		bpf_map_update_elem(&listening_paths, &key, &yes, BPF_ANY);
	}
}

/* Where the other side of a connection listens; false if that cannot be told. */
static __always_inline bool read_peer(struct slip_endpoint_key *key, const struct sock *socket)
{
	key->family = family_of(socket);
	if (key->family == AF_UNIX) {
		const struct sock *peer = BPF_CORE_READ((const struct unix_sock *) socket, peer);
		return peer && read_path(key, BPF_CORE_READ((const struct unix_sock *) peer, addr));
	}
	if (!is_inet(key->family)) {
		return false;
	}
	key->port = BPF_CORE_READ(socket, __sk_common.skc_dport);
	if (key->family == AF_INET) {
		__u32 address = BPF_CORE_READ(socket, __sk_common.skc_daddr);
		__builtin_memcpy(key->address, &address, sizeof address);
	} else {
		bpf_probe_read_kernel(key->address, sizeof(struct in6_addr), &socket->__sk_common.skc_v6_daddr);
	}
	return key->port != 0;
}

/* The number of the server at the other side; SLIP_ENDPOINT_NONE if there is none. */
static __noinline __u32 endpoint_of(const struct sock *socket)
{
	struct slip_endpoint_key key = {};

	if (!read_peer(&key, socket)) {
		return SLIP_ENDPOINT_NONE;
	}
	const __u32 *known = bpf_map_lookup_elem(&endpoints, &key);
	if (known) {
		return *known;
	}
	__u32 number = __sync_fetch_and_add(&endpoint_count, 1);
	if (number > SLIP_ENDPOINT_OTHERS) {
		number = SLIP_ENDPOINT_OTHERS;
	}
	if (bpf_map_update_elem(&endpoints, &key, &number, BPF_NOEXIST)) {
		/* Another CPU was faster, or there is no room. */
		known = bpf_map_lookup_elem(&endpoints, &key);
		return known ? *known : SLIP_ENDPOINT_OTHERS;
	}
	return number;
}

/* Which side of the connection a target has that uses this socket. */
static __noinline enum role role_of(const struct sock *socket)
{
	__u16 family = family_of(socket);

	if (family == AF_UNIX) {
		/* Who connects has no name of his own. */
		const struct unix_sock *unix_socket = (const struct unix_sock *) socket;
		if (BPF_CORE_READ(unix_socket, addr)) {
			return ROLE_INBOUND;
		}
		const struct sock *peer = BPF_CORE_READ(unix_socket, peer);
		return peer && BPF_CORE_READ((const struct unix_sock *) peer, addr) ? ROLE_OUTBOUND : ROLE_NONE;
	}
	if (!is_inet(family)) {
		return ROLE_NONE;
	}
	if (has_listening_port(socket)) {
		return ROLE_INBOUND;
	}
	return BPF_CORE_READ(socket, __sk_common.skc_dport) ? ROLE_OUTBOUND : ROLE_NONE;
}

/* Whether a target will have accepted this socket, or has: asked of each that data comes for, so its fields are read as they are. */
static __always_inline bool is_for_target(const struct sock *socket)
{
	__u16 family = READ_SOCKET(socket, __sk_common.skc_family);

	if (is_inet(family)) {
		__u32 port = READ_SOCKET(socket, __sk_common.skc_num);
		const __u8 *listens = bpf_map_lookup_elem(&listening_ports, &port);
		return listens && *listens;
	}
	if (family != AF_UNIX || READ_SOCKET(socket, sk_type) != SOCK_STREAM) {
		return false;
	}
	struct slip_endpoint_key key = {.family = AF_UNIX};
	return read_path(&key, BPF_CORE_READ((const struct unix_sock *) socket, addr)) && bpf_map_lookup_elem(&listening_paths, &key);
}

/* The first argument of a tracepoint. With an address that it knows to be one the verifier allows no arithmetic, but copied it is any number. */
static __always_inline struct sock *socket_argument(const __u64 *context)
{
	__u64 address = 0;

	if (!options.by_address) {
		return (struct sock *) context[0];
	}
	bpf_probe_read_kernel(&address, sizeof address, context);
	return (struct sock *) address;
}

/* What is kept of a socket; NULL if nothing is, or can be. */
static __always_inline struct connection *kept_of(struct sock *socket, bool make)
{
	if (options.by_address) {
		__u64 address = (__u64) socket;
		struct connection *connection = bpf_map_lookup_elem(&connections_by_address, &address);
		if (!connection && make) {
			struct connection empty = {};
			bpf_map_update_elem(&connections_by_address, &address, &empty, BPF_NOEXIST);
			connection = bpf_map_lookup_elem(&connections_by_address, &address);
		}
		return connection;
	}
	if (!make && !socket->sk_bpf_storage) {
		return NULL;
	}
	return bpf_sk_storage_get(&connections, socket, NULL, make ? BPF_SK_STORAGE_GET_F_CREATE : 0);
}

/* What is kept of a socket that the running thread of a target uses. */
static __always_inline struct connection *connection_of(struct sock *socket)
{
	struct connection *connection = kept_of(socket, true);

	if (connection && !connection->role) {
		connection->role = role_of(socket);
		connection->endpoint = connection->role == ROLE_OUTBOUND ? endpoint_of(socket) : SLIP_ENDPOINT_NONE;
	}
	return connection;
}

/* The socket of a file of the task; NULL if it is none. */
static __always_inline const struct sock *socket_of_file(const struct file *file)
{
	const struct socket *socket = BPF_CORE_READ(file, private_data);
	return socket ? BPF_CORE_READ(socket, sk) : NULL;
}

#endif
