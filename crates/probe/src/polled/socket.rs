//! Sockets: which side of a connection a process has, and where the other one listens.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::Read as _;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Instant;

use slip_model::Endpoint;
use slip_remote::{SocketFacts, SocketName, SocketReader};

use crate::budget::ENDPOINTS;

/// What is read of one table of the kernel at most. A machine may have a million connections that nobody closes.
const MAX_TABLE_BYTES: u64 = 8 << 20;

/// After the tables were read they are left alone for so many times as long as that took: nobody should pay more than 2 % of a CPU for
/// the names of connections. `tcp` and `tcp6` took 4 ms each with hardly a line in them.
pub(crate) const REST: u64 = 50;

/// Most sockets that are remembered.
const MAX_KNOWN: usize = 4_096;

/// Of `net/tcp_states.h` in the kernel.
const SYN_SENT: u8 = 2;
pub(crate) const LISTEN: u8 = 10;

/// Of `linux/net.h`: that a UNIX socket is connected; and of its flags, that it listens.
const CONNECTED: u8 = 3;
const ACCEPTS: u64 = 0x1_0000;

/// Which side of a connection a socket is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Listens,
    /// It was accepted.
    Inbound,
    /// It has connected to a server: of this number, if its name is known.
    Outbound(Option<u32>),
    /// It is about to.
    Connects(Option<u32>),
    Neither,
    /// That could not be found out now.
    Unknown,
}

/// The sockets of a network namespace.
#[derive(Debug, Default)]
pub(crate) struct Sockets {
    /// By inode. None of them becomes another one.
    known: HashMap<u64, Side>,
    /// What was in the tables when they were read last.
    rows: HashMap<u64, Row>,
    /// Ports on which somebody listens.
    ports: HashSet<u16>,
    /// The tables are left alone until then.
    rests_until_ns: u64,
}

/// A socket as the tables have it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Row {
    Internet { state: u8, port: u16, remote: SocketAddr },
    Unix { listens: bool, is_connected: bool, has_name: bool },
}

/// Servers that were called, by the number under which they are told of.
#[derive(Debug, Default)]
pub(crate) struct Endpoints(Vec<String>);

impl Endpoints {
    /// The number of the server at this address. The last one stands for all for which there is none.
    fn number(&mut self, address: String) -> u32 {
        let others = ENDPOINTS - 1;
        let known = self.0.iter().position(|known| *known == address);
        let number = known.unwrap_or_else(|| {
            if self.0.len() < others {
                self.0.push(address);
                self.0.len() - 1
            } else {
                if self.0.len() == others {
                    self.0.push("others".to_owned());
                }
                others
            }
        });
        u32::try_from(number).unwrap_or_default()
    }

    /// All.
    pub(crate) fn list(&self) -> Vec<Endpoint> {
        let named = |address: &String| Endpoint { address: address.clone(), protocol: String::new() };
        self.0.iter().map(named).collect()
    }
}

impl Sockets {
    /// Of the network namespace of process `pid`, at `now_ns`.
    pub(crate) fn of(pid: u32, now_ns: u64) -> Self {
        let mut sockets = Self::default();
        // On which ports somebody listens.
        sockets.read(pid, now_ns);
        sockets
    }

    /// As these tables have them, which are not read again.
    pub(crate) fn of_tables(internet: &[String], unix: &str) -> Self {
        let mut sockets = Self { rests_until_ns: u64::MAX, ..Self::default() };
        sockets.replace_rows(internet, unix);
        sockets
    }

    /// Which side a socket is, at `now_ns`: `inode`, which process `pid` has as `file`.
    pub(crate) fn side(
        &mut self,
        (pid, reader): (u32, Option<&SocketReader>),
        (file, inode): (u32, u64),
        now_ns: u64,
        endpoints: &mut Endpoints,
    ) -> Side {
        if let Some(side) = self.known.get(&inode) {
            return *side;
        }
        let side = match reader.map(|reader| reader.read(file)) {
            Some(Ok(facts)) => self.side_of(&facts, endpoints),
            _ => self.side_in_tables(pid, inode, now_ns, endpoints),
        };
        if !matches!(side, Side::Connects(_) | Side::Unknown) {
            if self.known.len() >= MAX_KNOWN {
                self.known.clear();
            }
            self.known.insert(inode, side);
        }
        side
    }

    fn side_of(&mut self, facts: &SocketFacts, endpoints: &mut Endpoints) -> Side {
        match (&facts.local, &facts.remote) {
            (local, _) if facts.listens => {
                if let SocketName::Internet(address) = local {
                    self.ports.insert(address.port());
                }
                Side::Listens
            }
            _ if facts.connects => Side::Connects(None),
            (SocketName::Internet(local), _) if self.ports.contains(&local.port()) => Side::Inbound,
            // Who connects has no path of his own.
            (SocketName::Path(_), _) => Side::Inbound,
            (_, SocketName::Internet(remote)) => Side::Outbound(Some(endpoints.number(written(*remote)))),
            (_, SocketName::Path(path)) => Side::Outbound(Some(endpoints.number(path.clone()))),
            _ => Side::Neither,
        }
    }

    /// The same where the kernel does not let us ask.
    fn side_in_tables(&mut self, pid: u32, inode: u64, now_ns: u64, endpoints: &mut Endpoints) -> Side {
        let is_old = |row: Option<&Row>| matches!(row, None | Some(Row::Internet { state: SYN_SENT, .. }));
        if is_old(self.rows.get(&inode)) {
            if now_ns < self.rests_until_ns {
                return Side::Unknown;
            }
            self.read(pid, now_ns);
        }
        match self.rows.get(&inode) {
            Some(Row::Internet { state: LISTEN, .. } | Row::Unix { listens: true, .. }) => Side::Listens,
            Some(Row::Internet { state: SYN_SENT, remote, .. }) => {
                Side::Connects(Some(endpoints.number(written(*remote))))
            }
            Some(Row::Internet { port, .. }) if self.ports.contains(port) => Side::Inbound,
            Some(Row::Internet { remote, .. }) if remote.port() != 0 => {
                Side::Outbound(Some(endpoints.number(written(*remote))))
            }
            Some(Row::Unix { is_connected: true, has_name: true, .. }) => Side::Inbound,
            // Where, the tables do not tell.
            Some(Row::Unix { is_connected: true, .. }) => Side::Outbound(None),
            _ => Side::Neither,
        }
    }

    fn read(&mut self, pid: u32, now_ns: u64) {
        let begin = Instant::now();
        let internet = ["tcp", "tcp6", "udp", "udp6"].map(|table| read_table(pid, table));
        self.replace_rows(&internet, &read_table(pid, "unix"));
        let took_ns = u64::try_from(begin.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.rests_until_ns = now_ns.saturating_add(took_ns.saturating_mul(REST));
    }

    /// From now on these tables hold.
    fn replace_rows(&mut self, internet: &[String], unix: &str) {
        self.rows.clear();
        for (inode, row) in internet.iter().flat_map(|table| table.lines()).filter_map(parse_internet) {
            if let Row::Internet { state: LISTEN, port, .. } = row {
                self.ports.insert(port);
            }
            self.rows.insert(inode, row);
        }
        self.rows.extend(unix.lines().filter_map(parse_unix));
    }
}

pub(crate) fn read_table(pid: u32, table: &str) -> String {
    let mut bytes = Vec::new();
    if let Ok(file) = File::open(format!("/proc/{pid}/net/{table}")) {
        // What was read until something fails is as good as what is read at all.
        let _ = file.take(MAX_TABLE_BYTES).read_to_end(&mut bytes);
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// As people write it; IPv4 is that to everybody, whatever the socket.
pub(crate) fn written(address: SocketAddr) -> String {
    SocketAddr::new(address.ip().to_canonical(), address.port()).to_string()
}

/// Inode and row of a line of `tcp`, `tcp6`, `udp` or `udp6`.
fn parse_internet(line: &str) -> Option<(u64, Row)> {
    let mut words = line.split_ascii_whitespace();
    let local = parse_address(words.nth(1)?)?;
    let remote = parse_address(words.next()?)?;
    let state = u8::from_str_radix(words.next()?, 16).ok()?;
    let inode = words.nth(5)?.parse().ok()?;
    Some((inode, Row::Internet { state, port: local.port(), remote }))
}

/// `0100007F:18EB`: words of 32 bits as the machine has them, and a port.
pub(crate) fn parse_address(text: &str) -> Option<SocketAddr> {
    let (address, port) = text.split_once(':')?;
    let port = u16::from_str_radix(port, 16).ok()?;
    let word = |at: usize| u32::from_str_radix(address.get(at..at + 8)?, 16).ok().map(u32::to_ne_bytes);
    let ip = match address.len() {
        8 => IpAddr::from(Ipv4Addr::from(word(0)?)),
        32 => {
            let words = [word(0)?, word(8)?, word(16)?, word(24)?];
            IpAddr::from(Ipv6Addr::from(<[u8; 16]>::try_from(words.concat()).ok()?))
        }
        _ => return None,
    };
    Some(SocketAddr::new(ip, port))
}

/// Inode and row of a line of `unix`.
fn parse_unix(line: &str) -> Option<(u64, Row)> {
    let mut words = line.split_ascii_whitespace();
    let flags = u64::from_str_radix(words.nth(3)?, 16).ok()?;
    let state = u8::from_str_radix(words.nth(1)?, 16).ok()?;
    let inode = words.next()?.parse().ok()?;
    let has_name = words.next().is_some();
    Some((inode, Row::Unix { listens: flags & ACCEPTS != 0, is_connected: state == CONNECTED, has_name }))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::{AsFd, AsRawFd as _};
    use std::os::unix::net::{UnixListener, UnixStream};

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn lines_of_the_tables_are_understood() {
        let line = "   0: 0100007F:18EB 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 4711 1 x";
        let unspecified = SocketAddr::from(([0, 0, 0, 0], 0));
        let row = Row::Internet { state: LISTEN, port: 6379, remote: unspecified };
        assert_eq!(parse_internet(line), Some((4711, row)));
        let line = "   3: 00000000000000000000000001000000:D430 0000000000000000FFFF00000100007F:18EB 02 0:0 00:0 0 0 0 815 1 x";
        let Some((815, Row::Internet { state: SYN_SENT, remote, .. })) = parse_internet(line) else {
            panic!()
        };
        assert_eq!(written(remote), "127.0.0.1:6379");
        let line = "ffff: 00000002 00000000 00010000 0001 01 815 /run/my pool.sock";
        let row = Row::Unix { listens: true, is_connected: false, has_name: true };
        assert_eq!(parse_unix(line), Some((815, row)));
        let row = Row::Unix { listens: false, is_connected: true, has_name: false };
        assert_eq!(parse_unix("ffff: 00000003 00000000 00000000 0001 03  1142"), Some((1142, row)));
        assert_eq!(
            (parse_internet("  sl  local_address rem_address"), parse_unix("Num RefCount")),
            (None, None)
        );
    }

    #[test]
    fn servers_beyond_the_last_number_are_others() {
        let mut endpoints = Endpoints::default();
        let numbers: Vec<_> = (0..20).map(|port| endpoints.number(format!("[::1]:{port}"))).collect();
        assert_eq!((numbers[3], numbers[14], numbers[15], numbers[19]), (3, 14, 15, 15));
        let list = endpoints.list();
        assert_eq!((list.len(), &*list[14].address, &*list[15].address), (16, "[::1]:14", "others"));
    }

    fn inode(file: &dyn AsFd) -> (u32, u64) {
        let number = u32::try_from(file.as_fd().as_raw_fd()).unwrap();
        let link = fs::read_link(format!("/proc/self/fd/{number}")).unwrap();
        let inode = link.to_str().unwrap().strip_prefix("socket:[").unwrap().strip_suffix(']').unwrap();
        (number, inode.parse().unwrap())
    }

    #[test]
    fn sides_of_real_connections_are_told_apart() {
        let path = std::env::temp_dir().join(format!("slip-sides-{}", std::process::id()));
        let _ = fs::remove_file(&path);
        let (tcp, unix) = (TcpListener::bind("127.0.0.1:0").unwrap(), UnixListener::bind(&path).unwrap());
        let address = tcp.local_addr().unwrap();
        let (to_tcp, to_unix) = (TcpStream::connect(address).unwrap(), UnixStream::connect(&path).unwrap());
        fs::remove_file(&path).unwrap();
        let (of_tcp, of_unix) = (tcp.accept().unwrap().0, unix.accept().unwrap().0);
        let (pair, pid) = (UnixStream::pair().unwrap(), std::process::id());
        // By asking, and by the tables.
        for reader in [SocketReader::open(pid).ok(), None] {
            let (mut sockets, mut endpoints) = (Sockets::of(pid, 0), Endpoints::default());
            sockets.rests_until_ns = 0;
            let mut side =
                |file: &dyn AsFd| sockets.side((pid, reader.as_ref()), inode(file), 1, &mut endpoints);
            assert_eq!([side(&tcp), side(&unix)], [Side::Listens; 2]);
            assert_eq!([side(&of_tcp), side(&of_unix)], [Side::Inbound; 2]);
            assert_eq!(side(&to_tcp), Side::Outbound(Some(0)));
            if reader.as_ref().is_some_and(|reader| reader.read(inode(&tcp).0).is_ok()) {
                assert_eq!([side(&to_unix), side(&pair.0)], [Side::Outbound(Some(1)), Side::Neither]);
                assert_eq!(endpoints.list()[1].address, path.display().to_string());
            } else {
                assert_eq!([side(&to_unix), side(&pair.0)], [Side::Outbound(None); 2]);
            }
            assert_eq!(endpoints.list()[0].address, address.to_string());
        }
    }

    #[test]
    fn tables_are_left_alone_for_a_while() {
        let (mut sockets, mut endpoints, pid) =
            (Sockets::default(), Endpoints::default(), std::process::id());
        let mut side = |inode| sockets.side((pid, None), (0, inode), 1, &mut endpoints);
        assert_eq!(
            [side(u64::MAX), side(u64::MAX), side(u64::MAX - 1)],
            [Side::Neither, Side::Neither, Side::Unknown]
        );
    }

    proptest! {
        #[test]
        fn any_line_is_parsed_or_refused(line in any::<String>(), words in prop::collection::vec("[0-9A-F:]{0,40}", 0..14)) {
            for line in [&line, &words.join(" ")] {
                let _ = (parse_internet(line), parse_unix(line));
            }
        }
    }
}
