#ifndef SLIP_PEER_H
#define SLIP_PEER_H

/* Who is at the other side of a connection: where that is, so that all connections to one server have the same. Its name the loader finds. */

#include "kernel.h"
#include "sample.h"
#include "walk.h"

/* Longest path of a UNIX socket (`sun_path`), and in words. */
#define SLIP_SUN_PATH_BYTES 108
#define PATH_WORDS 14

/* Of the path or the abstract name of a UNIX socket; 0 if it has none. The loader does the same with what it knows of. */
static __always_inline __u64 hash_of_path(const struct unix_address *address)
{
	__u64 words[PATH_WORDS] = {}, hash = 0;

	if (!address) {
		return 0;
	}
	/* With the family before it. */
	__u64 bytes = (__u32) LOAD(struct unix_address, address, len) - 2ull;
	const void *name = (const char *) address + bpf_core_field_offset(struct unix_address, name) + 2;
	/* Copied as it was compared, for the verifier. */
	barrier_var(bytes);
	if (bytes > SLIP_SUN_PATH_BYTES || bpf_probe_read_kernel(words, bytes, name)) {
		return 0;
	}
	for (__u32 i = 0; i < PATH_WORDS; i++) {
		hash = mix(hash, words[i]);
	}
	return hash;
}

/* SLIP_PEER_* and its address; 0 if there is none, or its side is the one that was connected to and has no name. */
static __always_inline __u64 peer_of(const struct file *file)
{
	const struct socket *socket = LOAD(struct file, file, private_data);
	const struct sock *sock = socket ? LOAD(struct socket, socket, sk) : NULL;

	if (!sock) {
		return 0;
	}
	__u16 family = LOAD(struct sock, sock, __sk_common.skc_family);
	if (family == AF_UNIX) {
		/* Who connects has no name of his own. */
		const struct sock *peer = LOAD(struct unix_sock, sock, addr) ? NULL : LOAD(struct unix_sock, sock, peer);
		__u64 hash = peer ? hash_of_path(LOAD(struct unix_sock, peer, addr)) : 0;
		return hash ? SLIP_PEER_PATH | hash % SLIP_PEER_PATH : 0;
	}
	if (family != AF_INET && family != AF_INET6) {
		return 0;
	}
	__u64 port = LOAD(struct sock, sock, __sk_common.skc_dport);
	__u32 address = family == AF_INET ? LOAD(struct sock, sock, __sk_common.skc_daddr)
			: LOAD(struct sock, sock, __sk_common.skc_v6_daddr.in6_u.u6_addr32[3]);
	return port ? SLIP_PEER_PORT | port << 32 | address : 0;
}

#endif
