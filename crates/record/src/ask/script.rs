//! The question as a file that a worker can read, as long as it is needed.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Write as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _, chown};

use slip_remote::status_value;
use tempfile::TempDir;

/// What PHP is asked.
pub(super) const QUESTION: &str = include_str!("question.php");

const NAME: &str = "question.php";

/// A folder of our own in the worker's `/tmp`, with nothing but the question. It is gone when this is dropped.
#[derive(Debug)]
pub(crate) struct Script {
    folder: TempDir,
    /// The worker's `/tmp`, which is there by this file also when the worker has ended.
    _tmp: File,
}

impl Script {
    /// Writes `text` for worker `pid`. Its group may read it, and nobody else; where that cannot be had, everybody.
    ///
    /// # Errors
    ///
    /// If the worker has no `/tmp`, or we may not write there.
    pub(crate) fn write(pid: u32, text: &str) -> io::Result<Self> {
        // In a container, or below another root, that is not ours. What the last part of the path leads to elsewhere is not followed.
        let flags = libc::O_DIRECTORY | libc::O_NOFOLLOW;
        let tmp = OpenOptions::new().read(true).custom_flags(flags).open(format!("/proc/{pid}/root/tmp"))?;
        let within = format!("/proc/self/fd/{}", tmp.as_raw_fd());
        let folder = tempfile::Builder::new().prefix("slip-").rand_bytes(16).tempdir_in(within)?;
        let path = folder.path().join(NAME);
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)?;
        file.write_all(text.as_bytes())?;
        let group =
            status_value(pid, "Gid").and_then(|ids| ids.split_whitespace().nth(1)?.parse::<u32>().ok());
        let is_given = group.is_some_and(|group| {
            chown(folder.path(), None, Some(group)).and_then(|()| chown(&path, None, Some(group))).is_ok()
        });
        let (of_folder, of_file) = if is_given { (0o710, 0o640) } else { (0o711, 0o644) };
        fs::set_permissions(folder.path(), Permissions::from_mode(of_folder))?;
        file.set_permissions(Permissions::from_mode(of_file))?;
        Ok(Self { folder, _tmp: tmp })
    }

    /// Its path as the worker has it.
    pub(crate) fn path(&self) -> String {
        let name = self.folder.path().file_name().unwrap_or_default();
        format!("/tmp/{}/{NAME}", name.to_string_lossy())
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn it_is_readable_while_it_is_needed_and_gone_then() {
        let script = Script::write(std::process::id(), QUESTION).unwrap();
        let path = script.path();
        let mode = fs::metadata(&path).unwrap().permissions().mode() & 0o777;
        assert_eq!((fs::read_to_string(&path).unwrap(), mode & 0o022), (QUESTION.to_owned(), 0));
        let folder = Path::new(&path).parent().unwrap().to_owned();
        drop(script);
        assert!(!folder.exists());
    }

    #[test]
    fn a_process_that_is_not_there_has_no_place_for_it() {
        assert!(Script::write(u32::MAX, QUESTION).is_err());
    }
}
