//! Where a pool takes requests, and a connection to it.

use std::fs;
use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use slip_remote::{SocketName, SocketReader};

/// Most files of a worker that are looked at.
const MAX_FILES: usize = 256;

/// Where a pool takes requests, as it is reached from here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Door {
    Tcp(SocketAddr),
    /// As the worker names it, and where that is from here.
    Unix(String, PathBuf),
    /// A TCP port in a network of its own.
    Elsewhere(SocketAddr),
}

impl Door {
    /// The socket on which worker `pid` waits for requests; `None` if it has none, or that may not be known.
    pub(super) fn of(pid: u32) -> Option<Self> {
        let reader = SocketReader::open(pid).ok()?;
        // FastCGI's is the standard input; a manager of processes may have put it elsewhere.
        let files = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
        let files = files.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
        let mut files: Vec<u32> = files.take(MAX_FILES).collect();
        files.sort_unstable();
        let names = files.into_iter().filter_map(|file| reader.read(file).ok());
        names.filter(|facts| facts.listens).find_map(|facts| Self::at(pid, facts.local))
    }

    fn at(pid: u32, name: SocketName) -> Option<Self> {
        match name {
            SocketName::Internet(address) => {
                let address = reachable(address);
                Some(if shares_network(pid) { Self::Tcp(address) } else { Self::Elsewhere(address) })
            }
            // An abstract one is no file.
            SocketName::Path(path) if !path.starts_with('@') => {
                let outside = PathBuf::from(format!("/proc/{pid}/root/{}", path.trim_start_matches('/')));
                Some(Self::Unix(path, outside))
            }
            _ => None,
        }
    }

    /// For messages.
    pub(super) fn name(&self) -> String {
        match self {
            Self::Tcp(address) | Self::Elsewhere(address) => address.to_string(),
            Self::Unix(path, _) => path.clone(),
        }
    }

    /// Connects, until `end`.
    ///
    /// # Errors
    ///
    /// What the kernel says; [`io::ErrorKind::TimedOut`] if the pool's queue stays full.
    pub(super) fn connect(&self, end: Instant) -> io::Result<Connection> {
        let left = left_until(end)?;
        match self {
            Self::Tcp(address) | Self::Elsewhere(address) => {
                Ok(Connection { stream: Stream::Tcp(TcpStream::connect_timeout(address, left)?), end })
            }
            Self::Unix(_, path) => {
                // There is no other way to stop waiting: its thread does so until the pool takes or refuses the connection.
                let (tell, told) = mpsc::channel();
                let path = path.clone();
                thread::Builder::new()
                    .name("ask".into())
                    .spawn(move || tell.send(UnixStream::connect(path)))?;
                let stream = told.recv_timeout(left).map_err(|_| io::ErrorKind::TimedOut)??;
                Ok(Connection { stream: Stream::Unix(stream), end })
            }
        }
    }
}

/// Who listens at all addresses is at that of this machine.
fn reachable(address: SocketAddr) -> SocketAddr {
    let ip = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(ip) if ip.is_unspecified() => IpAddr::V6(Ipv6Addr::LOCALHOST),
        ip => ip,
    };
    SocketAddr::new(ip, address.port())
}

fn shares_network(pid: u32) -> bool {
    let network = |process: &str| fs::read_link(format!("/proc/{process}/ns/net")).ok();
    network("self") == network(&pid.to_string())
}

fn left_until(end: Instant) -> io::Result<Duration> {
    let left = end.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(left) }
}

/// A connection on which nothing takes longer than until its end.
#[derive(Debug)]
pub(super) struct Connection {
    stream: Stream,
    end: Instant,
}

#[derive(Debug)]
enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Read for Connection {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let left = Some(left_until(self.end)?);
        let read = match &mut self.stream {
            Stream::Tcp(stream) => stream.set_read_timeout(left).and_then(|()| stream.read(buf)),
            Stream::Unix(stream) => stream.set_read_timeout(left).and_then(|()| stream.read(buf)),
        };
        read.map_err(named)
    }
}

impl Write for Connection {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        let left = Some(left_until(self.end)?);
        let written = match &mut self.stream {
            Stream::Tcp(stream) => stream.set_write_timeout(left).and_then(|()| stream.write(buf)),
            Stream::Unix(stream) => stream.set_write_timeout(left).and_then(|()| stream.write(buf)),
        };
        written.map_err(named)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The kernel says of a time that has passed that there is nothing yet.
fn named(error: io::Error) -> io::Error {
    if error.kind() == io::ErrorKind::WouldBlock { io::ErrorKind::TimedOut.into() } else { error }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn all_addresses_are_reached_at_this_machine() {
        let reached = |text: &str| reachable(text.parse().unwrap()).to_string();
        assert_eq!(
            ["0.0.0.0:9", "[::]:9", "10.0.0.1:9"].map(reached),
            ["127.0.0.1:9", "[::1]:9", "10.0.0.1:9"]
        );
    }

    #[test]
    fn nobody_is_waited_for_longer_than_allowed() {
        let silent = TcpListener::bind("127.0.0.1:0").unwrap();
        let door = Door::Tcp(silent.local_addr().unwrap());
        let mut connection = door.connect(Instant::now() + Duration::from_millis(200)).unwrap();
        connection.write_all(b"anybody?").unwrap();
        assert_eq!(connection.read(&mut [0]).unwrap_err().kind(), io::ErrorKind::TimedOut);
        assert_eq!(door.connect(Instant::now()).unwrap_err().kind(), io::ErrorKind::TimedOut);
    }
}
