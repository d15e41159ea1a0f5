//! What another process's sockets are.

use std::io;
use std::mem;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd, RawFd};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr as UnixAddr, UnixStream};

/// Of `net/tcp_states.h` in the kernel: the begin of `struct tcp_info`.
const SYN_SENT: u8 = 2;

/// What a socket is, and who is at its two ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SocketFacts {
    /// It listens for connections.
    pub listens: bool,
    /// It is about to be connected.
    pub connects: bool,
    /// Its own name.
    pub local: SocketName,
    /// That of the other end.
    pub remote: SocketName,
}

/// Where a socket is to be found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SocketName {
    /// Nowhere.
    None,
    /// At an address and a port.
    Internet(SocketAddr),
    /// At a path; an abstract name begins with `@`.
    Path(String),
}

/// Asks for the names of sockets of one process.
#[derive(Debug)]
pub struct SocketReader(OwnedFd);

impl SocketReader {
    /// Of process `pid`.
    ///
    /// # Errors
    ///
    /// If there is no such process, or the kernel is older than Linux 5.3.
    pub fn open(pid: u32) -> io::Result<Self> {
        // SAFETY: takes numbers and touches no memory of ours.
        let file = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
        own(file).map(Self)
    }

    /// What the socket with the number `file` is. The kernel tells that only of sockets of our own, so we have a copy of it meanwhile,
    /// for some microseconds. Should the process close it just then, that comes to be with ours. So it should be asked once.
    ///
    /// # Errors
    ///
    /// If it is no socket, or the kernel refuses: it takes the same permission as reading memory, and Linux 5.6.
    pub fn read(&self, file: u32) -> io::Result<SocketFacts> {
        // SAFETY: takes numbers and touches no memory of ours.
        let copy = own(unsafe { libc::syscall(libc::SYS_pidfd_getfd, self.0.as_raw_fd(), file, 0) })?;
        let ask = |level, option| number_of(copy.as_raw_fd(), level, option);
        let listens = ask(libc::SOL_SOCKET, libc::SO_ACCEPTCONN)? != 0;
        match ask(libc::SOL_SOCKET, libc::SO_DOMAIN)? {
            libc::AF_UNIX => {
                let socket = UnixStream::from(copy);
                let local = path_of(socket.local_addr());
                Ok(SocketFacts { listens, connects: false, local, remote: path_of(socket.peer_addr()) })
            }
            libc::AF_INET | libc::AF_INET6 => {
                // The first byte says it; other protocols than TCP have none.
                let state = ask(libc::IPPROTO_TCP, libc::TCP_INFO).map_or(0, |info| info.to_ne_bytes()[0]);
                let socket = TcpStream::from(copy);
                let name = |address: io::Result<SocketAddr>| {
                    address
                        .ok()
                        .filter(|address| address.port() != 0)
                        .map_or(SocketName::None, SocketName::Internet)
                };
                let (local, remote) = (name(socket.local_addr()), name(socket.peer_addr()));
                Ok(SocketFacts { listens, connects: state == SYN_SENT, local, remote })
            }
            _ => Ok(SocketFacts {
                listens,
                connects: false,
                local: SocketName::None,
                remote: SocketName::None,
            }),
        }
    }
}

fn own(file: libc::c_long) -> io::Result<OwnedFd> {
    let file = RawFd::try_from(file).ok().filter(|file| *file >= 0).ok_or_else(io::Error::last_os_error)?;
    // SAFETY: the kernel has just given us this file, and nobody else knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(file) })
}

fn number_of(socket: RawFd, level: libc::c_int, option: libc::c_int) -> io::Result<libc::c_int> {
    let mut value: libc::c_int = 0;
    let mut len = mem::size_of_val(&value) as libc::socklen_t;
    // SAFETY: `value` and `len` outlive the call, which writes no more than `len` bytes there.
    let result = unsafe { libc::getsockopt(socket, level, option, (&raw mut value).cast(), &raw mut len) };
    if result == 0 { Ok(value) } else { Err(io::Error::last_os_error()) }
}

fn path_of(address: io::Result<UnixAddr>) -> SocketName {
    let Ok(address) = address else { return SocketName::None };
    if let Some(path) = address.as_pathname() {
        return SocketName::Path(path.to_string_lossy().into_owned());
    }
    let name = address.as_abstract_name().map(String::from_utf8_lossy);
    name.map_or(SocketName::None, |name| SocketName::Path(format!("@{name}")))
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::net::TcpListener;
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn both_ends_of_connections_are_told() {
        let Ok(reader) = SocketReader::open(std::process::id()) else {
            return slip_testkit::skip("sockets of processes", "this kernel has no files for processes");
        };
        let file = |file: &dyn std::os::fd::AsFd| u32::try_from(file.as_fd().as_raw_fd()).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let facts = match reader.read(file(&listener)) {
            Err(error) => return slip_testkit::skip("sockets of processes", &error.to_string()),
            Ok(facts) => facts,
        };
        let address = listener.local_addr().unwrap();
        let local = SocketName::Internet(address);
        assert_eq!(
            facts,
            SocketFacts { listens: true, connects: false, local: local.clone(), remote: SocketName::None }
        );
        let client = TcpStream::connect(address).unwrap();
        let server = listener.accept().unwrap().0;
        assert_eq!(reader.read(file(&server)).unwrap().local, local);
        let facts = reader.read(file(&client)).unwrap();
        assert_eq!((facts.listens, facts.connects, facts.remote), (false, false, local));

        let path = std::env::temp_dir().join(format!("slip-sockets-{}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        let listener = UnixListener::bind(&path).unwrap();
        let client = UnixStream::connect(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        let name = SocketName::Path(path.display().to_string());
        let listens = reader.read(file(&listener)).unwrap();
        assert_eq!((listens.listens, &listens.local), (true, &name));
        let facts = reader.read(file(&client)).unwrap();
        assert_eq!((facts.local, facts.remote), (SocketName::None, name));
        assert!(reader.read(file(&File::open("/dev/null").unwrap())).is_err());
        assert!(reader.read(u32::MAX).is_err());
    }
}
