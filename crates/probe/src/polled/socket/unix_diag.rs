//! Asks the kernel who is at the other side of a UNIX socket (`sock_diag(7)`): `/proc` does not tell.

use std::io;
use std::mem;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};

/// Of `linux/sock_diag.h`, `linux/netlink.h` and `linux/unix_diag.h`.
const SOCK_DIAG_BY_FAMILY: u16 = 20;
const NLM_F_REQUEST: u16 = 1;
const NLMSG_ERROR: u16 = 2;
const SHOW_NAME: u32 = 1;
const SHOW_PEER: u32 = 4;
const NAME: u16 = 0;
const PEER: u16 = 2;

/// `struct nlmsghdr` and `struct unix_diag_msg`.
const HEAD_BYTES: usize = 16;
const MESSAGE_BYTES: usize = 16;

/// The longest answer: a name of 108 bytes, and numbers.
const ANSWER_BYTES: usize = 1_024;

/// What is known of a socket.
#[derive(Debug, Default, PartialEq, Eq)]
struct Described {
    /// An abstract name begins with a zero byte.
    name: Vec<u8>,
    peer: Option<u32>,
}

/// A connection to the kernel's part that knows UNIX sockets, of our own network namespace.
#[derive(Debug)]
pub(super) struct UnixDiag(OwnedFd);

impl UnixDiag {
    /// `None` if the kernel has no such part.
    pub(super) fn open() -> Option<Self> {
        // SAFETY: takes numbers and touches no memory of ours.
        let file = unsafe {
            libc::socket(libc::AF_NETLINK, libc::SOCK_RAW | libc::SOCK_CLOEXEC, libc::NETLINK_SOCK_DIAG)
        };
        // SAFETY: the kernel has just given us this file, and nobody else knows it.
        (file >= 0).then(|| Self(unsafe { OwnedFd::from_raw_fd(file) }))
    }

    /// The path at which the other side of the socket `inode` listens, with `@` before an abstract name; `None` if it has no name.
    ///
    /// # Errors
    ///
    /// If the kernel does not tell.
    pub(super) fn server_of(&self, inode: u64) -> io::Result<Option<String>> {
        let Some(peer) = self.ask(u32::try_from(inode).map_err(io::Error::other)?, SHOW_PEER)?.peer else {
            return Ok(None);
        };
        let name = self.ask(peer, SHOW_NAME)?.name;
        let (sign, name) = name.strip_prefix(&[0]).map_or(("", &name[..]), |name| ("@", name));
        let end = name.iter().position(|byte| *byte == 0).unwrap_or(name.len());
        let name = format!("{sign}{}", String::from_utf8_lossy(&name[..end]));
        Ok((!name.is_empty()).then_some(name))
    }

    fn ask(&self, inode: u32, show: u32) -> io::Result<Described> {
        let request = request(inode, show);
        let file = self.0.as_raw_fd();
        // SAFETY: `request` is ours and outlives the call, which reads it.
        let sent = unsafe { libc::send(file, request.as_ptr().cast(), request.len(), 0) };
        if sent < 0 {
            return Err(io::Error::last_os_error());
        }
        let mut answer = [0_u8; ANSWER_BYTES];
        // The kernel has answered before it lets us go on; nobody waits for what does not come.
        let flags = libc::MSG_DONTWAIT;
        // SAFETY: `answer` is ours and outlives the call, which writes no more than its length.
        let len = unsafe { libc::recv(file, answer.as_mut_ptr().cast(), answer.len(), flags) };
        let len = usize::try_from(len).map_err(|_| io::Error::last_os_error())?;
        parse(&answer[..len.min(ANSWER_BYTES)]).ok_or_else(|| io::ErrorKind::InvalidData.into())
    }
}

/// `struct nlmsghdr` and `struct unix_diag_req`.
fn request(inode: u32, show: u32) -> Vec<u8> {
    let family = libc::AF_UNIX as u8;
    let any_state = u32::MAX;
    // The kernel need not check that it is the socket that we mean: an inode is not used twice in any time that matters.
    let no_cookie = [u8::MAX; 8];
    let body = [
        &[family, 0, 0, 0][..],
        &any_state.to_ne_bytes(),
        &inode.to_ne_bytes(),
        &show.to_ne_bytes(),
        &no_cookie,
    ]
    .concat();
    let len = (HEAD_BYTES + body.len()) as u32;
    [
        &len.to_ne_bytes()[..],
        &SOCK_DIAG_BY_FAMILY.to_ne_bytes(),
        &NLM_F_REQUEST.to_ne_bytes(),
        &[0; 8], // sequence, and who asks
        &body,
    ]
    .concat()
}

/// What an answer says; `None` for an error.
fn parse(answer: &[u8]) -> Option<Described> {
    let kind = u16::from_ne_bytes(*answer.get(4..)?.first_chunk()?);
    if kind == NLMSG_ERROR || kind != SOCK_DIAG_BY_FAMILY {
        return None;
    }
    let mut rest = answer.get(HEAD_BYTES + MESSAGE_BYTES..)?;
    let mut found = Described::default();
    // Attributes: length with these four bytes, kind, and bytes up to a multiple of four.
    while let Some((head, after)) = rest.split_first_chunk::<4>() {
        let len = usize::from(u16::from_ne_bytes([head[0], head[1]])).checked_sub(mem::size_of_val(head))?;
        let value = after.get(..len)?;
        match u16::from_ne_bytes([head[2], head[3]]) {
            NAME => found.name = value.to_vec(),
            PEER => found.peer = Some(u32::from_ne_bytes(*value.first_chunk()?)),
            _ => {}
        }
        rest = after.get(len.next_multiple_of(4)..).unwrap_or_default();
    }
    Some(found)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn an_answer_is_taken_apart() {
        let attribute = |kind: u16, value: &[u8]| {
            let mut bytes = [(value.len() as u16 + 4).to_ne_bytes(), kind.to_ne_bytes()].concat();
            bytes.extend(value);
            bytes.resize(bytes.len().next_multiple_of(4), 0);
            bytes
        };
        let mut answer = [request(0, 0)[..HEAD_BYTES].to_vec(), vec![0; MESSAGE_BYTES]].concat();
        answer.extend(attribute(NAME, b"/run/mysql.sock"));
        answer.extend(attribute(PEER, &7_u32.to_ne_bytes()));
        let found = Described { name: b"/run/mysql.sock".to_vec(), peer: Some(7) };
        assert_eq!(parse(&answer), Some(found));
        answer[4..6].copy_from_slice(&NLMSG_ERROR.to_ne_bytes());
        assert_eq!(parse(&answer), None);
    }

    proptest! {
        #[test]
        fn any_answer_is_taken_apart_or_refused(mut bytes in prop::collection::vec(any::<u8>(), 0..200), is_answer in any::<bool>()) {
            if is_answer && bytes.len() >= 6 {
                bytes[4..6].copy_from_slice(&SOCK_DIAG_BY_FAMILY.to_ne_bytes());
            }
            let _ = parse(&bytes);
        }
    }
}
