//! The sockets on which a process waits for connections.

use std::collections::HashSet;
use std::fs;

/// Of `net/tcp_states.h` in the kernel, as `/proc/PID/net/tcp` prints it.
const LISTEN: &str = "0A";

/// `__SO_ACCEPTCON`: that a UNIX socket does.
const ACCEPTS: u64 = 0x1_0000;

/// Where a process listens.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Listening {
    pub(crate) ports: HashSet<u16>,
    /// An abstract name begins with `@`. A path is any bytes.
    pub(crate) paths: HashSet<Vec<u8>>,
}

impl Listening {
    /// Of process `pid`; nothing if it has ended.
    pub(crate) fn of(pid: u32) -> Self {
        let table = |name: &str| fs::read(format!("/proc/{pid}/net/{name}")).unwrap_or_default();
        Self::parse(&[table("tcp"), table("tcp6")], &table("unix"), &sockets_of(pid))
    }

    /// Of the sockets with the inodes `own`, by the tables of TCP and of UNIX sockets. Other processes have their sockets there, too, and
    /// paths need not be text.
    pub(crate) fn parse(tcp: &[Vec<u8>], unix: &[u8], own: &HashSet<u64>) -> Self {
        let lines = |table| <[u8]>::split(table, |byte| *byte == b'\n');
        let mut found = Self::default();
        for table in tcp {
            let of_tcp = lines(table).filter_map(|line| parse_tcp(std::str::from_utf8(line).ok()?));
            found.ports.extend(of_tcp.filter(|(_, inode)| own.contains(inode)).map(|(port, _)| port));
        }
        let of_unix = lines(unix).filter_map(parse_unix);
        found.paths.extend(of_unix.filter(|(_, inode)| own.contains(inode)).map(|(path, _)| path.to_owned()));
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
fn parse_unix(line: &[u8]) -> Option<(&[u8], u64)> {
    let (_, rest) = next_word(line)?;
    let (_, rest) = next_word(rest)?;
    let (_, rest) = next_word(rest)?;
    let (flags, rest) = next_word(rest)?;
    let (_, rest) = next_word(rest)?;
    let (_, rest) = next_word(rest)?;
    let (inode, rest) = next_word(rest)?;
    // All behind one blank: a path may have spaces, and begin with one.
    let path = rest.strip_prefix(b" ").filter(|path| !path.is_empty())?;
    let is_listening = u64::from_str_radix(flags, 16).ok()? & ACCEPTS != 0;
    is_listening.then_some((path, inode.parse().ok()?))
}

/// The word that a line goes on with, behind blanks, and what comes after it.
fn next_word(line: &[u8]) -> Option<(&str, &[u8])> {
    let line = line.trim_ascii_start();
    let end = line.iter().position(u8::is_ascii_whitespace).unwrap_or(line.len());
    let (word, rest) = line.split_at(end);
    Some((std::str::from_utf8(word).ok().filter(|word| !word.is_empty())?, rest))
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
        assert_eq!(parse_unix(line.as_bytes()), Some((&b"/run/my pool.sock"[..], 815)));
        assert_eq!(parse_unix(line.replace("00010000", "00000000").as_bytes()), None);
        assert_eq!((parse_tcp("sl local"), parse_unix(b"Num RefCount")), (None, None));
    }

    #[test]
    fn a_path_may_be_like_what_stands_before_it() {
        for path in ["815", "ffff:", " two  blanks ", "1"] {
            let line = format!("ffff: 00000002 00000000 00010000 0001 01   815 {path}");
            assert_eq!(parse_unix(line.as_bytes()), Some((path.as_bytes(), 815)));
        }
    }

    #[test]
    fn a_path_of_somebody_else_that_is_no_text_hides_no_other() {
        let unix = b"ffff: 00000002 00000000 00010000 0001 01   7 /run/\xff.sock\n\
                     ffff: 00000002 00000000 00010000 0001 01 815 /run/pool.sock\n";
        let found = Listening::parse(&[], unix, &HashSet::from([815]));
        assert_eq!(found.paths, HashSet::from([b"/run/pool.sock".to_vec()]));
        let found = Listening::parse(&[], unix, &HashSet::from([7]));
        assert_eq!(found.paths, HashSet::from([b"/run/\xff.sock".to_vec()]));
    }
}
