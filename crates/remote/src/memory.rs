//! The one trait through which interpreters are read: a live process, a recorded image and fuzzed bytes look the same.

use std::fmt;

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// An address in the target. Never a pointer of ours.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct RemoteAddr(pub u64);

impl RemoteAddr {
    /// The null pointer of the target.
    pub const NULL: RemoteAddr = RemoteAddr(0);

    /// Whether it is the null pointer.
    pub fn is_null(self) -> bool {
        self.0 == 0
    }

    /// The address `bytes` further on. Wraps, because what a target says is no reason to panic: the read fails.
    #[must_use]
    pub fn offset(self, bytes: u64) -> RemoteAddr {
        RemoteAddr(self.0.wrapping_add(bytes))
    }
}

impl fmt::Display for RemoteAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

/// A piece of the target's memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Range {
    /// First byte.
    pub addr: RemoteAddr,
    /// Length in bytes.
    pub len: usize,
}

impl Range {
    /// The `len` bytes from `addr` on.
    pub fn new(addr: RemoteAddr, len: usize) -> Self {
        Self { addr, len }
    }

    /// First byte after the piece.
    pub fn end(self) -> u64 {
        self.addr.0.saturating_add(self.len as u64)
    }

    /// Where `[addr, addr + len)` begins in this piece, if it lies inside.
    pub fn find(self, addr: RemoteAddr, len: usize) -> Option<usize> {
        let end = addr.0.checked_add(len as u64)?;
        if addr.0 >= self.addr.0 && end <= self.end() {
            usize::try_from(addr.0 - self.addr.0).ok()
        } else {
            None
        }
    }
}

/// Why memory could not be read.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReadError {
    /// The process has exited.
    #[error("process {pid} is gone")]
    Gone {
        /// The process.
        pid: u32,
    },
    /// The kernel refuses: not the same user, no `CAP_SYS_PTRACE`, or the process is not dumpable.
    #[error("not permitted to read the memory of process {pid}")]
    Denied {
        /// The process.
        pid: u32,
    },
    /// Some byte of the range is not mapped.
    #[error("{len} bytes at {addr} are not readable")]
    Unmapped {
        /// First byte asked for.
        addr: RemoteAddr,
        /// Bytes asked for.
        len: usize,
    },
}

/// Something whose memory can be read.
pub trait Memory {
    /// Copies `buf.len()` bytes from `addr` into `buf`.
    ///
    /// # Errors
    ///
    /// [`ReadError::Gone`] if the process has exited; [`ReadError::Denied`] without ptrace permission;
    /// [`ReadError::Unmapped`] if any byte of the range is not readable. `buf` is unspecified then.
    fn read(&self, addr: RemoteAddr, buf: &mut [u8]) -> Result<(), ReadError>;

    /// Whether nothing of it changes between one read and the next, as of a process that is stopped.
    fn stands_still(&self) -> bool {
        false
    }

    /// How often the process has called `read`, `write` and the like so far, in vain as well; `None` if that is not known.
    fn io_calls(&self) -> Option<u64> {
        None
    }

    /// Copies `ranges`, in this order, one after the other into `buf`, in one system call where possible.
    ///
    /// `buf` must be as long as all ranges together. Returns how many ranges, from the first, were copied whole: fewer
    /// than asked means that the next one is not readable.
    ///
    /// # Errors
    ///
    /// [`ReadError::Gone`] and [`ReadError::Denied`] as for [`Memory::read`].
    fn read_ranges(&self, ranges: &[Range], buf: &mut [u8]) -> Result<usize, ReadError> {
        let mut rest = buf;
        for (done, range) in ranges.iter().enumerate() {
            let (head, tail) = rest.split_at_mut(range.len);
            match self.read(range.addr, head) {
                Ok(()) => rest = tail,
                Err(ReadError::Unmapped { .. }) => return Ok(done),
                Err(error) => return Err(error),
            }
        }
        Ok(ranges.len())
    }

    /// The same, but the bytes go into `first` until it is full, and from there on into `rest`.
    ///
    /// # Errors
    ///
    /// As for [`Memory::read_ranges`].
    fn read_ranges_into_two(
        &self,
        ranges: &[Range],
        first: &mut [u8],
        rest: &mut [u8],
    ) -> Result<usize, ReadError> {
        read_and_split(self, ranges, first, rest)
    }
}

/// [`Memory::read_ranges_into_two`] by way of one buffer.
pub(crate) fn read_and_split<M: Memory + ?Sized>(
    memory: &M,
    ranges: &[Range],
    first: &mut [u8],
    rest: &mut [u8],
) -> Result<usize, ReadError> {
    let mut bytes = vec![0; first.len() + rest.len()];
    let done = memory.read_ranges(ranges, &mut bytes)?;
    let (head, tail) = bytes.split_at(first.len());
    first.copy_from_slice(head);
    rest.copy_from_slice(tail);
    Ok(done)
}

/// Where the target's programs and libraries keep things.
pub trait Symbols {
    /// Address of an exported variable or function in the program or in the interpreter's library.
    fn symbol(&self, name: &str) -> Option<RemoteAddr>;

    /// Address and length of a section of the program or of the interpreter's library, if it is mapped.
    fn section(&self, name: &str) -> Option<Range>;

    /// The kernel's numbers of the threads, as the target's own PID namespace has them; empty if they are not known.
    fn thread_ids(&self) -> Vec<u32> {
        Vec::new()
    }

    /// Memory that other processes share: at the same address of the same object, all of them see the same bytes.
    fn shared_memory(&self) -> Vec<SharedRange> {
        Vec::new()
    }
}

/// A range of memory that processes share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SharedRange {
    /// Where it is mapped.
    pub range: Range,
    /// It holds machine code.
    pub executable: bool,
    /// Which object it is a part of: the file's device and inode, and how far its first byte is from `range.addr`.
    pub object: SharedObject,
}

/// Something mapped that processes share. Two processes see the same bytes at an address if these are equal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SharedObject {
    /// Device of the file; anonymous shared memory has one as well.
    pub device: (u32, u32),
    /// Inode of the file.
    pub inode: u64,
    /// Address that the object's first byte has, or would have.
    pub base: u64,
}

/// Reads a little-endian number of 8 bytes.
///
/// # Errors
///
/// As [`Memory::read`].
pub fn read_u64<M: Memory + ?Sized>(memory: &M, addr: RemoteAddr) -> Result<u64, ReadError> {
    let mut buf = [0; 8];
    memory.read(addr, &mut buf)?;
    Ok(u64::from_le_bytes(buf))
}

/// Reads a C string of at most `max_len` bytes, without its terminator. A longer one is cut.
///
/// # Errors
///
/// As [`Memory::read`], if not even the first byte can be read.
pub fn read_c_string<M: Memory + ?Sized>(
    memory: &M,
    addr: RemoteAddr,
    max_len: usize,
) -> Result<Vec<u8>, ReadError> {
    /// Strings are short, and a read must not cross into a page that may not exist.
    const STEP: u64 = 64;
    let mut text = Vec::new();
    let mut at = addr;
    while text.len() < max_len {
        let mut step = [0; STEP as usize];
        let to_boundary = STEP - at.0 % STEP;
        let len = usize::try_from(to_boundary).unwrap_or(1).min(max_len - text.len());
        match memory.read(at, &mut step[..len]) {
            Ok(()) => {}
            Err(ReadError::Unmapped { .. }) if !text.is_empty() => break,
            Err(error) => return Err(error),
        }
        match step[..len].iter().position(|byte| *byte == 0) {
            Some(end) => {
                text.extend_from_slice(&step[..end]);
                break;
            }
            None => text.extend_from_slice(&step[..len]),
        }
        at = at.offset(to_boundary);
    }
    Ok(text)
}
