//! Opens a recording file, whatever state it is in, and copies its rows.

use std::fs::{self, File, TryLockError};
use std::io::{self, Read as _};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::limits::Limit;
use rusqlite::{Connection, ErrorCode, OpenFlags};
use slip_model::Recording;

use super::assemble::{self, Circumstances};
use super::error::FileError;
use super::fetch::{self, Fetched};
use super::schema::{self, APPLICATION_ID, FORMAT_VERSION};

/// How long to wait for a writer. A flush takes less than a millisecond.
const BUSY_TIMEOUT: Duration = Duration::from_secs(2);

/// A recording that was read, and what to tell about it.
#[derive(Debug)]
pub struct Loaded {
    /// What could be read. `totals.complete` is false if the writer has not closed the file.
    pub recording: Recording,
    /// Whether another process is still writing it.
    pub being_written: bool,
    /// What the user should know before trusting it, one sentence each: it is still being written, its writer died, or
    /// parts of it are damaged and how much that is.
    pub warnings: Vec<String>,
}

/// Reads the recording `path` as it is now.
///
/// Works while it is being written, after its writer was killed, in read-only folders, and on files that are cut short
/// or damaged as far as anything in them can be read. Memory is bounded by a multiple of the size of the file, whoever
/// made it. If the writer died within a transaction, the file is put back to the state before (as any SQLite client
/// would); where that is not permitted, a temporary copy is.
///
/// # Errors
///
/// [`FileError::NotFound`], [`FileError::Denied`]; [`FileError::NotASlipFile`] if it is something else;
/// [`FileError::Newer`] if a later version of the format is needed; [`FileError::Damaged`] if nothing can be read;
/// [`FileError::Busy`] if a program holds it locked for more than two seconds; [`FileError::Io`].
pub fn load(path: &Path) -> Result<Loaded, FileError> {
    let path = &std::path::absolute(path).map_err(|source| FileError::from_io(path, "read", source))?;
    let look = look_at(path)?;
    let (fetched, size) = fetch_rows(path, &look)?;
    let (recording, mut warnings) = assemble::recording(path, fetched, &size)?;
    if !recording.totals.complete {
        let seconds = recording.totals.duration_ns as f64 / 1e9;
        let state = if look.being_written {
            format!("the recording is still running; this is what it had after {seconds:.1} s")
        } else if warnings.is_empty() {
            format!("the recorder ended without closing the file; all it saved, {seconds:.1} s, is here")
        } else {
            format!("the recorder ended without closing the file, {seconds:.1} s after its begin")
        };
        warnings.insert(0, state);
    }
    Ok(Loaded { recording, being_written: look.being_written, warnings })
}

/// The journal that SQLite keeps beside a file during a transaction.
pub(super) fn journal_of(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push("-journal");
    PathBuf::from(name)
}

/// What the first bytes of a SQLite file say.
#[derive(Clone, Copy, Debug)]
pub(super) struct Header {
    pub(super) page_size: u32,
    pub(super) pages: u32,
    pub(super) version: u32,
}

impl Header {
    /// Bytes that it takes.
    pub(super) const LENGTH: usize = 100;

    /// Reads it, if `head` begins a recording of any version.
    pub(super) fn parse(path: &Path, head: &[u8]) -> Result<Self, FileError> {
        let foreign = |found| Err(FileError::NotASlipFile { path: path.to_owned(), found });
        let u32_at = |at: usize| head.get(at..at + 4)?.try_into().ok().map(u32::from_be_bytes);
        if !head.starts_with(b"SQLite format 3\0") {
            return foreign(match head {
                [] => "it is empty",
                [0x1f, 0x8b, ..] => "it is a gzip file, perhaps a pprof profile",
                [b'{', ..] => "it looks like JSON",
                [0x7f, b'E', b'L', b'F', ..] => "it is a program",
                _ => "it is of another format",
            });
        }
        if let (Some(pages), Some(version), Some(application)) = (u32_at(28), u32_at(60), u32_at(68)) {
            if application != APPLICATION_ID {
                return foreign("it is the SQLite file of another program");
            }
            let page_size = u32::from(u16::from_be_bytes([head[16], head[17]]));
            // The size 65536 does not fit and is written as 1.
            let page_size = if page_size == 1 { 65_536 } else { page_size };
            return Ok(Self { page_size, pages, version });
        }
        Err(FileError::Damaged { path: path.to_owned(), what: "not even its header is whole".into() })
    }
}

struct Look {
    /// Stays open while SQLite reads: closing any descriptor of the file drops the locks of all.
    file: File,
    header: Header,
    being_written: bool,
}

impl Look {
    /// The size now. Its writer may have made it longer since it was looked at, unless it is locked.
    fn size(&self) -> io::Result<Circumstances> {
        let mut head = [0; Header::LENGTH];
        let header = match self.file.read_exact_at(&mut head, 0) {
            Ok(()) => Header::parse(Path::new(""), &head).unwrap_or(self.header),
            Err(_) => self.header,
        };
        let full_length = u64::from(header.pages) * u64::from(header.page_size);
        Ok(Circumstances { length: self.file.metadata()?.len(), full_length })
    }
}

/// Looks at the file without SQLite, which does not tell these cases apart.
fn look_at(path: &Path) -> Result<Look, FileError> {
    let error = |source| FileError::from_io(path, "read", source);
    // Opening a FIFO would wait for ever.
    let kind = fs::metadata(path).map_err(error)?;
    if !kind.is_file() {
        let found = if kind.is_dir() { "it is a folder" } else { "it is not a regular file" };
        return Err(FileError::NotASlipFile { path: path.to_owned(), found });
    }
    let mut file = File::open(path).map_err(error)?;
    let mut head = Vec::new();
    (&mut file).take(Header::LENGTH as u64).read_to_end(&mut head).map_err(error)?;
    let being_written = matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock));
    if head.is_empty() && being_written {
        return Err(FileError::Busy { path: path.to_owned() });
    }
    let header = Header::parse(path, &head)?;
    if header.version > FORMAT_VERSION {
        return Err(FileError::Newer {
            path: path.to_owned(),
            version: header.version,
            supported: FORMAT_VERSION,
        });
    }
    Ok(Look { file, header, being_written })
}

/// Copies all rows; if the file needs a rollback first, in place or else in a copy.
fn fetch_rows(path: &Path, look: &Look) -> Result<(Fetched, Circumstances), FileError> {
    let error = |source| FileError::from_sqlite(path, "read", source, 0);
    let result = fetch_as(path, OpenFlags::SQLITE_OPEN_READ_ONLY, look);
    let needs_rollback = |result: &rusqlite::Result<_>| {
        result.as_ref().err().and_then(rusqlite::Error::sqlite_error_code).is_some_and(|code| {
            matches!(
                code,
                ErrorCode::ReadOnly
                    | ErrorCode::CannotOpen
                    | ErrorCode::SystemIoFailure
                    | ErrorCode::PermissionDenied
            )
        })
    };
    let journal = journal_of(path);
    if !(needs_rollback(&result) && journal.exists()) {
        return result.map_err(error);
    }
    let result = fetch_as(path, OpenFlags::SQLITE_OPEN_READ_WRITE, look);
    if !needs_rollback(&result) {
        return result.map_err(error);
    }
    let folder = tempfile::tempdir().map_err(|source| FileError::from_io(path, "copy", source))?;
    let copy = folder.path().join("copy.slip");
    copy_contents(path, &copy)
        .and_then(|()| copy_contents(&journal, &journal_of(&copy)))
        .map_err(|source| FileError::from_io(path, "copy", source))?;
    fetch_as(&copy, OpenFlags::SQLITE_OPEN_READ_WRITE, look).map_err(error)
}

/// Copies a file, but not its mode, which may forbid to write.
fn copy_contents(from: &Path, to: &Path) -> io::Result<()> {
    io::copy(&mut File::open(from)?, &mut File::create(to)?)?;
    Ok(())
}

fn fetch_as(path: &Path, access: OpenFlags, look: &Look) -> rusqlite::Result<(Fetched, Circumstances)> {
    let size = || look.size().map_err(|source| rusqlite::Error::ToSqlConversionFailure(source.into()));
    let connection = Connection::open_with_flags(path, access | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
    connection.busy_timeout(BUSY_TIMEOUT)?;
    // Without it SQLite refuses a file that is shorter than its header says. Nothing is written: `query_only`.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_WRITABLE_SCHEMA, true)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA, false)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_VIEW, false)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_TRIGGER, false)?;
    bound_work(&connection, size()?.length)?;
    // One transaction: the rows fit together, and the writer has to wait only until they are copied.
    connection.execute_batch("PRAGMA query_only = ON; PRAGMA cell_size_check = ON; BEGIN")?;
    let usable = schema::usable(&connection)?;
    // From the first read on, nobody writes.
    let size = size()?;
    bound_work(&connection, size.length)?;
    let fetched = fetch::rows(&connection, &usable, size.length);
    Ok((fetched, size))
}

/// Ends what would never end, and keeps small what could be huge, by the length of the file.
fn bound_work(connection: &Connection, length: u64) -> rusqlite::Result<()> {
    let longest = i32::try_from(length).unwrap_or(i32::MAX).clamp(1 << 20, 1 << 30);
    connection.set_limit(Limit::SQLITE_LIMIT_LENGTH, longest)?;
    // A row takes some twenty steps, and four bytes in the file at least.
    let mut steps_left = (1 << 24) + length.saturating_mul(8);
    const STEPS: u16 = 4_096;
    connection.progress_handler(
        i32::from(STEPS),
        Some(move || {
            steps_left = steps_left.saturating_sub(u64::from(STEPS));
            steps_left == 0
        }),
    );
    Ok(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "test code")]
mod tests {
    use slip_model::{Batch, Interner, RecordingInfo};

    use super::*;
    use crate::file::Writer;

    #[test]
    fn what_was_written_since_the_file_was_looked_at_is_read_whole() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.slip");
        let mut writer = Writer::create(&path, &RecordingInfo::default(), false).unwrap();
        let look = look_at(&path).unwrap();
        let mut interner = Interner::new();
        for number in 0..50_000 {
            interner.string(&format!("a name of which a short file has no {number}"));
        }
        writer.append(&Batch { interned: interner.take_delta(), ..Batch::default() }).unwrap();
        let (fetched, size) = fetch_rows(&path, &look).unwrap();
        assert_eq!((fetched.strings.len(), fetched.damaged), (50_000, vec![]));
        assert_eq!(size.length, size.full_length);
    }
}
