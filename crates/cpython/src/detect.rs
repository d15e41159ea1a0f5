//! Tells whether a process runs CPython, and which.

use slip_remote::{Memory, ReadError, RemoteAddr, Symbols};
use thiserror::Error;

use crate::Version;
use crate::bytes::{u32_at, u64_at};
use crate::version::{SUPPORTED, SUPPORTED_MINORS};

/// What the offsets that 3.13 and later report about themselves begin with.
const COOKIE: &[u8; 8] = b"xdebugpy";

/// Why the interpreter of a process cannot be read.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum AttachError {
    /// There is no CPython in the process.
    #[error("the process does not run CPython")]
    NotPython,
    /// A version that we do not know.
    #[error("CPython {found} is not supported, only {SUPPORTED} are")]
    Unsupported {
        /// Which it is.
        found: String,
    },
    /// A build without the global interpreter lock, whose structures are different.
    #[error("this CPython {version} is a free-threaded build, which is not supported")]
    FreeThreaded {
        /// Its version.
        version: Version,
    },
    /// The interpreter is still starting, or has ended. Try again later.
    #[error("the interpreter is not initialized (yet)")]
    NotReady,
    /// What the target says about its structures cannot be true.
    #[error("the {what} of this CPython {version} is not where it should be (a build with other options?)")]
    Layout {
        /// Its version.
        version: Version,
        /// The structure.
        what: &'static str,
    },
    /// The memory could not be read.
    #[error(transparent)]
    Read(#[from] ReadError),
}

impl AttachError {
    pub(crate) fn unsupported(version: Version) -> Self {
        Self::Unsupported { found: version.to_string() }
    }
}

/// The version of the CPython that runs in `target`; `None` if there is none.
///
/// # Errors
///
/// [`AttachError::Unsupported`] and [`AttachError::FreeThreaded`] if there is one that we cannot read, and
/// [`AttachError::Read`] if the memory of the target cannot be read.
pub fn detect<T: Memory + Symbols + ?Sized>(target: &T) -> Result<Option<Version>, AttachError> {
    Ok(find(target)?.map(|(version, _)| version))
}

/// The version and the address of `_PyRuntime`.
pub(crate) fn find<T: Memory + Symbols + ?Sized>(
    target: &T,
) -> Result<Option<(Version, RemoteAddr)>, AttachError> {
    let section = || target.section(".PyRuntime").map(|range| range.addr);
    let Some(runtime) = target.symbol("_PyRuntime").or_else(section) else { return Ok(None) };
    let mut head = [0; 24];
    target.read(runtime, &mut head)?;
    let (version, free_threaded) = if head.starts_with(COOKIE) {
        // The compiler put these numbers there: they are right from the first instruction on.
        (Version::from_hex(u32_at(&head, 8)), u64_at(&head, 16) != 0)
    } else if let Some(addr) = target.symbol("Py_Version") {
        let mut hex = [0; 4];
        target.read(addr, &mut hex)?;
        (Version::from_hex(u32::from_le_bytes(hex)), false)
    } else {
        return Err(AttachError::Unsupported { found: "3.10 or older".into() });
    };
    if version.major() != 3 || !SUPPORTED_MINORS.contains(&version.minor()) || version.is_unfinished() {
        return Err(AttachError::unsupported(version));
    }
    if free_threaded {
        return Err(AttachError::FreeThreaded { version });
    }
    Ok(Some((version, runtime)))
}
