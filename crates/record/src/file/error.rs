//! What can go wrong with a recording file, and what the user can do about it.

use std::io;
use std::path::{Path, PathBuf};

use rusqlite::ErrorCode;

/// Why a recording file could not be written or read. [`FileError::hint`] says what the user can do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FileError {
    /// There is a file of this name, and it was not asked to overwrite it.
    #[error("{} exists already", path.display())]
    Exists {
        /// The file.
        path: PathBuf,
    },
    /// There is no such file.
    #[error("{} does not exist", path.display())]
    NotFound {
        /// The file.
        path: PathBuf,
    },
    /// There is no such folder to create a file in.
    #[error("the folder {} does not exist", path.display())]
    NoFolder {
        /// The folder.
        path: PathBuf,
    },
    /// The file is something else. It has not been changed.
    #[error("{} is not a recording: {found}", path.display())]
    NotASlipFile {
        /// The file.
        path: PathBuf,
        /// What it is instead, as far as it can be told.
        found: &'static str,
    },
    /// A later version of this tool wrote the file in a form that this one does not know.
    #[error("{} has format version {version}; this slip reads up to {supported}", path.display())]
    Newer {
        /// The file.
        path: PathBuf,
        /// Its format version.
        version: u32,
        /// The newest format version that is understood.
        supported: u32,
    },
    /// The file is a recording, but nothing in it can be used. (What can be used is loaded, with a warning.)
    #[error("nothing in {} can be read: {what}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        what: String,
    },
    /// Permission is missing.
    #[error("no permission to {action} {}", path.display())]
    Denied {
        /// The file or folder.
        path: PathBuf,
        /// What was not permitted: `read`, `create`, `write to`.
        action: &'static str,
    },
    /// The disk, a quota or a limit of the file size is used up. Nothing of the batch has been stored, all before has;
    /// the same batch can be appended again.
    #[error("no space left for {}: the first {:.1} s ({saved_samples} samples) are saved", path.display(), *saved_ns as f64 / 1e9)]
    DiskFull {
        /// The file.
        path: PathBuf,
        /// Samples that are safe in the file.
        saved_samples: u64,
        /// Time that is safe in the file, nanoseconds since the begin of the recording.
        saved_ns: u64,
    },
    /// Another program keeps the file locked. Nothing of the batch has been stored; it can be appended again.
    #[error("{} is in use by another program", path.display())]
    Busy {
        /// The file.
        path: PathBuf,
    },
    /// The batch does not continue what was appended before: one in between has not been stored. Nothing of it has.
    #[error("a batch for {} is missing: {what}", path.display())]
    OutOfOrder {
        /// The file.
        path: PathBuf,
        /// Which numbers do not go on where they ended.
        what: String,
    },
    /// Anything else the system or SQLite reports.
    #[error("cannot {action} {}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What was tried: `create`, `write to`, `read`.
        action: &'static str,
        /// The cause.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

impl FileError {
    /// What the user can do about it, one sentence without a full stop; `None` if nothing comes to mind.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Exists { .. } => Some("choose another name with -o, or overwrite it with --force".into()),
            Self::NotFound { .. } => {
                Some("recordings are in the folder where `slip record` was started".into())
            }
            Self::NoFolder { .. } => Some("create the folder first, or choose another one with -o".into()),
            Self::NotASlipFile { .. } => Some("recordings are written by `slip record -o NAME.slip`".into()),
            Self::Newer { .. } => {
                Some("read it with the slip that wrote it, or with a later version than this one".into())
            }
            Self::Damaged { .. } => None,
            Self::Denied { path, action: "read" } => Some(format!(
                "recordings belong to the user who made them: use sudo, or `chown` {}",
                path.display()
            )),
            Self::Denied { .. } => Some("choose a folder that you may write to with -o".into()),
            Self::DiskFull { path, saved_samples: 0, .. } => {
                Some(format!("free some space, or choose another disk than that of {}", path.display()))
            }
            Self::DiskFull { path, .. } => {
                Some(format!("what is saved can be read: slip report {}", path.display()))
            }
            Self::Busy { .. } => Some(
                "try again in a moment; a program that reads the file must not be stopped in between".into(),
            ),
            Self::Io { action: "create", .. } => Some("choose another folder with -o".into()),
            Self::OutOfOrder { .. } | Self::Io { .. } => None,
        }
    }

    /// Sorts an error of the operating system.
    pub(super) fn from_io(path: &Path, action: &'static str, source: io::Error) -> Self {
        let path = path.to_owned();
        match source.kind() {
            io::ErrorKind::NotFound => Self::NotFound { path },
            io::ErrorKind::AlreadyExists => Self::Exists { path },
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
                Self::Denied { path, action }
            }
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge => {
                Self::DiskFull { path, saved_samples: 0, saved_ns: 0 }
            }
            io::ErrorKind::IsADirectory => Self::NotASlipFile { path, found: "it is a folder" },
            _ => Self::Io { path, action, source: source.into() },
        }
    }

    /// Sorts an error of SQLite. `errno` is the system error behind it, 0 if there is none.
    pub(super) fn from_sqlite(
        path: &Path,
        action: &'static str,
        source: rusqlite::Error,
        errno: i32,
    ) -> Self {
        let owned = path.to_owned();
        match source.sqlite_error_code() {
            Some(ErrorCode::DiskFull) => Self::DiskFull { path: owned, saved_samples: 0, saved_ns: 0 },
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => Self::Busy { path: owned },
            Some(ErrorCode::PermissionDenied | ErrorCode::ReadOnly) => Self::Denied { path: owned, action },
            Some(ErrorCode::NotADatabase) => {
                Self::NotASlipFile { path: owned, found: "it is not a SQLite file" }
            }
            Some(ErrorCode::DatabaseCorrupt) => Self::Damaged { path: owned, what: source.to_string() },
            // SQLite knows ENOSPC only; a quota and a limit of the file size are the same to the user.
            Some(ErrorCode::SystemIoFailure | ErrorCode::CannotOpen)
                if [libc::EDQUOT, libc::EFBIG, libc::EACCES, libc::EPERM, libc::EROFS].contains(&errno) =>
            {
                Self::from_io(path, action, io::Error::from_raw_os_error(errno))
            }
            _ => Self::Io { path: owned, action, source: source.into() },
        }
    }
}
