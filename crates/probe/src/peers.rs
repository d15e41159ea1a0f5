//! Servers that threads wait for, by their names.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use crate::polled::socket::{LISTEN, REST, parse_address, read_table, written};

/// `SLIP_PEER_PORT` and `SLIP_PEER_PATH` of `bpf/sample.h`.
const PORT: u64 = 1 << 62;
const PATH: u64 = 1 << 61;

/// Most names that are kept of one network namespace, and most namespaces and processes; then they are asked for again.
const MAX_KNOWN: usize = 4_096;

/// Longest that the name of a UNIX socket may be (`sun_path`), in words, and most of them that are kept.
const PATH_WORDS: usize = 14;
const MAX_PATHS: usize = 4_096;

/// Where the other side of a connection is, without its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Peer {
    /// A port, and an IPv4 address or the end of one of IPv6.
    Port(u16, Ipv4Addr),
    /// A hash of the name of a UNIX socket.
    Path(u64),
}

impl Peer {
    pub(crate) fn parse(number: u64) -> Option<Self> {
        let [a, b, c, d, low, high, ..] = number.to_ne_bytes();
        match number {
            _ if number & PORT != 0 => Some(Self::Port(u16::from_be_bytes([low, high]), [a, b, c, d].into())),
            _ if number & PATH != 0 => Some(Self::Path(number % PATH)),
            _ => None,
        }
    }

    pub(crate) fn number(self) -> u64 {
        match self {
            Self::Port(port, address) => {
                let ([a, b, c, d], [low, high]) = (address.octets(), port.to_be_bytes());
                PORT | u64::from_ne_bytes([a, b, c, d, low, high, 0, 0])
            }
            Self::Path(hash) => PATH | (hash % PATH),
        }
    }
}

/// What the tables of network namespaces say of servers.
#[derive(Debug, Default)]
pub struct Peers {
    /// The link that names the namespace of a process.
    processes: HashMap<u32, PathBuf>,
    networks: HashMap<PathBuf, Network>,
}

#[derive(Debug, Default)]
struct Network {
    /// `None` for who is no server: a client that has connected.
    known: HashMap<Peer, Option<Arc<str>>>,
    /// As they were read last, and are left alone until then.
    tables: Tables,
    rests_until_ns: u64,
}

/// The tables as they were read.
#[derive(Debug, Default)]
struct Tables {
    /// Ports on which somebody listens.
    ports: HashSet<u16>,
    /// Own port and other side of connections.
    connections: Vec<(u16, SocketAddr)>,
    /// Names of UNIX sockets, by their hashes.
    paths: HashMap<u64, String>,
}

impl Peers {
    /// The name of the server that process `pid` waits for, as people write it; `None` if that is none, or not known at `now_ns`.
    pub fn name(&mut self, pid: u32, peer: Peer, now_ns: u64) -> Option<Arc<str>> {
        if self.processes.len() >= MAX_KNOWN {
            *self = Self::default();
        }
        let link = self.processes.entry(pid).or_insert_with(|| {
            // Who has ended meanwhile has none, as have all who may not be asked.
            fs::read_link(format!("/proc/{pid}/ns/net")).unwrap_or_default()
        });
        let network = self.networks.entry(link.clone()).or_default();
        if let Some(name) = network.known.get(&peer) {
            return name.clone();
        }
        let mut found = network.tables.name(peer);
        if found.is_none() && now_ns >= network.rests_until_ns {
            let begin = Instant::now();
            network.tables = Tables::read(pid);
            found = network.tables.name(peer);
            let took_ns = u64::try_from(begin.elapsed().as_nanos()).unwrap_or(u64::MAX);
            network.rests_until_ns = now_ns.saturating_add(took_ns.saturating_mul(REST));
        }
        if network.known.len() >= MAX_KNOWN {
            network.known.clear();
        }
        // What the tables do not have any more they may have the next time.
        let name = found?.map(Arc::from);
        network.known.insert(peer, name.clone());
        name
    }

    /// Forgets a process that has ended: its number may become another one's.
    pub fn forget(&mut self, pid: u32) {
        self.processes.remove(&pid);
    }
}

impl Tables {
    fn read(pid: u32) -> Self {
        let mut tables = Self::default();
        for table in ["tcp", "tcp6", "udp", "udp6"] {
            tables.add_internet(&read_table(pid, table));
        }
        tables.add_unix(&read_table(pid, "unix"));
        tables
    }

    fn add_internet(&mut self, table: &str) {
        for line in table.lines() {
            let mut words = line.split_ascii_whitespace().skip(1);
            let (local, remote) =
                (words.next().and_then(parse_address), words.next().and_then(parse_address));
            let state = words.next().and_then(|state| u8::from_str_radix(state, 16).ok());
            match (local, remote, state) {
                (Some(local), _, Some(LISTEN)) => {
                    self.ports.insert(local.port());
                }
                (Some(local), Some(remote), _) if remote.port() != 0 => {
                    self.connections.push((local.port(), remote));
                }
                _ => {}
            }
        }
    }

    fn add_unix(&mut self, table: &str) {
        for line in table.lines().skip(1) {
            // The seven columns before it have no such character, and it may have spaces.
            let Some(name) = line.find(['/', '@']).and_then(|at| line.get(at..)) else { continue };
            if self.paths.len() < MAX_PATHS
                && let Some(hash) = hash_of_path(name)
            {
                self.paths.entry(hash).or_insert_with(|| name.to_owned());
            }
        }
    }

    /// `None` if nothing is known of it; `Some(None)` if it is a client.
    fn name(&self, peer: Peer) -> Option<Option<String>> {
        match peer {
            Peer::Path(hash) => Some(Some(self.paths.get(&hash)?.clone())),
            Peer::Port(port, address) => {
                let is_it = |remote: SocketAddr| remote.port() == port && end_of(remote.ip()) == address;
                let mut sides = self.connections.iter().filter(|(_, remote)| is_it(*remote));
                let outbound = sides.clone().find(|(local, _)| !self.ports.contains(local));
                match outbound {
                    Some((_, remote)) => Some(Some(written(*remote))),
                    None if sides.next().is_some() => Some(None),
                    // All connections to it are gone. Who listens is no client.
                    None if address.is_loopback() && self.ports.contains(&port) => {
                        Some(Some(written((address, port).into())))
                    }
                    None => None,
                }
            }
        }
    }
}

/// Of an IPv6 address, the last four bytes: as the kernel's side of [`Peer`] has them.
fn end_of(address: IpAddr) -> Ipv4Addr {
    match address {
        IpAddr::V4(address) => address,
        IpAddr::V6(address) => {
            let [.., a, b, c, d] = address.octets();
            [a, b, c, d].into()
        }
    }
}

/// What `hash_of_path()` of `bpf/peer.h` says of the name of a UNIX socket. The kernel writes an abstract one, which begins with a zero byte, with
/// `@` in its place. `None` if it is too long for one.
fn hash_of_path(name: &str) -> Option<u64> {
    let mut bytes = [0; 8 * PATH_WORDS];
    bytes.get_mut(..name.len())?.copy_from_slice(name.as_bytes());
    if bytes[0] == b'@' {
        bytes[0] = 0;
    }
    let words = bytes.chunks_exact(8).map(|word| u64::from_ne_bytes(word.try_into().unwrap_or_default()));
    Some(words.fold(0, mix) % PATH)
}

/// `mix()` of `bpf/walk.h`.
fn mix(hash: u64, word: u64) -> u64 {
    let hash = (hash ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    hash ^ hash >> 29
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};
    use std::os::unix::net::UnixListener;

    use proptest::prelude::*;

    use super::*;

    fn at(address: SocketAddr) -> Peer {
        Peer::Port(address.port(), end_of(address.ip()))
    }

    #[test]
    fn servers_have_names_and_clients_have_none() {
        let path = std::env::temp_dir().join(format!("slip peers {}", std::process::id()));
        let _ = fs::remove_file(&path);
        let (tcp, _unix) = (TcpListener::bind("127.0.0.1:0").unwrap(), UnixListener::bind(&path).unwrap());
        let by_path = Peer::Path(hash_of_path(path.to_str().unwrap()).unwrap());
        let server = tcp.local_addr().unwrap();
        let client = TcpStream::connect(server).unwrap();
        let (pid, mut peers) = (std::process::id(), Peers::default());
        let named = |text: &str| Some(Arc::from(text));
        assert_eq!(peers.name(pid, at(server), 1), named(&server.to_string()));
        assert_eq!(peers.name(pid, by_path, 1), named(&path.display().to_string()));
        assert_eq!(peers.name(pid, at(client.local_addr().unwrap()), 1), None);
        assert!(peers.networks.values().next().unwrap().known[&at(client.local_addr().unwrap())].is_none());
        // For a while the tables are left alone.
        let later = TcpListener::bind("127.0.0.1:0").unwrap();
        let server_of_later = later.local_addr().unwrap();
        assert_eq!(peers.name(pid, at(server_of_later), 1), None);
        assert_eq!(peers.name(pid, at(server_of_later), u64::MAX - 1), named(&server_of_later.to_string()));
        drop(client);
        // It listens, though nobody is connected.
        assert_eq!(Tables::read(pid).name(at(server)), Some(Some(server.to_string())));
        fs::remove_file(&path).unwrap();
    }

    #[test]
    fn an_address_of_ipv6_is_told_by_its_end() {
        let mut tables = Tables::default();
        tables.add_internet(
            "   3: 00000000000000000000000001000000:D430 B80D01200000000000000000010000AA:18EB 01 0:0 00:0 0 0 0 815 1 x",
        );
        let remote = tables.connections[0].1;
        assert_eq!(tables.name(at(remote)), Some(Some("[2001:db8::aa00:1]:6379".to_owned())));
    }

    proptest! {
        #[test]
        fn numbers_are_those_of_the_peer(port in any::<u16>(), address in any::<[u8; 4]>(), hash in 0..PATH) {
            for peer in [Peer::Port(port, address.into()), Peer::Path(hash)] {
                prop_assert_eq!(Peer::parse(peer.number()), Some(peer));
            }
        }

        #[test]
        fn any_table_is_read(text in any::<String>(), words in prop::collection::vec("[0-9A-F:/ ]{0,40}", 0..14)) {
            for text in [&text, &words.join(" ")] {
                let mut tables = Tables::default();
                tables.add_internet(text);
                tables.add_unix(text);
            }
        }
    }
}
