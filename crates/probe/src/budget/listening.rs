//! The sockets on which a process waits for connections.

use std::collections::HashSet;
use std::fs;

/// Of `net/tcp_states.h` in the kernel, as `/proc/PID/net/tcp` prints it.
const LISTEN: &str = "0A";

/// `__SO_ACCEPTCON`: that a UNIX socket does.
const ACCEPTS: u64 = 0x1_0000;

/// Where a process listens.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Listening {
    pub(super) ports: HashSet<u16>,
    /// An abstract name begins with `@`.
    pub(super) paths: HashSet<String>,
}

impl Listening {
    /// Of process `pid`; nothing if it has ended.
    pub(super) fn of(pid: u32) -> Self {
        let own = sockets_of(pid);
        let mut found = Self::default();
        for table in ["tcp", "tcp6"] {
            let text = fs::read_to_string(format!("/proc/{pid}/net/{table}")).unwrap_or_default();
            let lines = text.lines().filter_map(parse_tcp);
            found.ports.extend(lines.filter(|(_, inode)| own.contains(inode)).map(|(port, _)| port));
        }
        let text = fs::read_to_string(format!("/proc/{pid}/net/unix")).unwrap_or_default();
        let lines = text.lines().filter_map(parse_unix);
        found.paths.extend(lines.filter(|(_, inode)| own.contains(inode)).map(|(path, _)| path.to_owned()));
        found
    }
}

/// Whether process `pid` listens for connections.
pub fn listens(pid: u32) -> bool {
    let found = Listening::of(pid);
    !found.ports.is_empty() || !found.paths.is_empty()
}

/// Inodes of the sockets that a process has open.
fn sockets_of(pid: u32) -> HashSet<u64> {
    let entries = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    let links = entries.filter_map(|entry| fs::read_link(entry.path()).ok());
    links
        .filter_map(|link| link.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok())
        .collect()
}

/// Port and inode, if the line is of a socket that listens.
fn parse_tcp(line: &str) -> Option<(u16, u64)> {
    let mut words = line.split_ascii_whitespace();
    let (_, port) = words.nth(1)?.rsplit_once(':')?;
    (words.nth(1)? == LISTEN).then_some(())?;
    Some((u16::from_str_radix(port, 16).ok()?, words.nth(5)?.parse().ok()?))
}

/// Path and inode, likewise.
fn parse_unix(line: &str) -> Option<(&str, u64)> {
    let mut words = line.split_ascii_whitespace();
    let flags = u64::from_str_radix(words.nth(3)?, 16).ok()?;
    let inode = words.nth(2)?.parse().ok()?;
    let path = words.next()?;
    // A path may have spaces, and stands at the end.
    let path = &line[line.find(path)?..];
    (flags & ACCEPTS != 0).then_some((path, inode))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sockets_that_listen_are_found_in_the_tables() {
        let line = "   0: 0100007F:18EB 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 4711 1 x";
        assert_eq!(parse_tcp(line), Some((6379, 4711)));
        assert_eq!(parse_tcp(&line.replace(" 0A ", " 01 ")), None);
        let line = "ffff: 00000002 00000000 00010000 0001 01 815 /run/my pool.sock";
        assert_eq!(parse_unix(line), Some(("/run/my pool.sock", 815)));
        assert_eq!(parse_unix(&line.replace("00010000", "00000000")), None);
        assert_eq!((parse_tcp("sl local"), parse_unix("Num RefCount")), (None, None));
    }
}
