//! Tells whether a process runs CPython, and which.

use slip_remote::{Memory, ReadError, RemoteAddr, Symbols};
use thiserror::Error;

use crate::Version;
use crate::bytes::{u32_at, u64_at};
use crate::dicts::{find_text, read_addr};
use crate::offsets::Offsets;
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
        (unnamed_version(target, runtime)?, false)
    };
    if version.major() != 3 || !SUPPORTED_MINORS.contains(&version.minor()) || version.is_unfinished() {
        return Err(AttachError::unsupported(version));
    }
    if free_threaded {
        return Err(AttachError::FreeThreaded { version });
    }
    Ok(Some((version, runtime)))
}

/// The version of an interpreter before 3.11, none of whose structures says it: `sys.hexversion` does, where one of the tables leads to
/// it and it is the version of this table.
fn unnamed_version<T: Memory + Symbols + ?Sized>(
    target: &T,
    runtime: RemoteAddr,
) -> Result<Version, AttachError> {
    // New in 3.8.
    if target.symbol("PyCode_NewWithPosOnlyArgs").is_none() {
        return Err(AttachError::Unsupported { found: "3.7 or older".into() });
    }
    for (minor, offsets, sysdict) in Offsets::unnamed() {
        let found = hex_version(target, offsets, runtime, sysdict);
        match found {
            Ok(Some(version)) if version.major() == 3 && version.minor() == minor => return Ok(version),
            // What was followed is something else.
            Ok(_) | Err(ReadError::Unmapped { .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
    // It is not there yet, or not any more.
    Err(AttachError::NotReady)
}

/// `sys.hexversion`, if these offsets lead to it.
fn hex_version<M: Memory + ?Sized>(
    memory: &M,
    offsets: &Offsets,
    runtime: RemoteAddr,
    sysdict: usize,
) -> Result<Option<Version>, ReadError> {
    /// `PyLongObject.ob_digit`, 30 bits each: one is enough for all versions of Python 3.
    const OB_DIGIT: u64 = 24;
    let interpreter = read_addr(memory, runtime.offset(offsets.interpreters_head as u64))?;
    let dict = read_addr(memory, interpreter.offset(sysdict as u64))?;
    if interpreter.is_null() || dict.is_null() {
        return Ok(None);
    }
    let Some(number) = find_text(memory, &offsets.object, dict, "hexversion")? else { return Ok(None) };
    let digits = read_addr(memory, number.offset(offsets.object.ob_size as u64))?.0;
    let mut digit = [0; 4];
    memory.read(number.offset(OB_DIGIT), &mut digit)?;
    Ok((digits == 1).then(|| Version::from_hex(u32::from_le_bytes(digit))))
}
