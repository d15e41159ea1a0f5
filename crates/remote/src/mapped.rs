//! The files that a target has mapped.

use std::fs::File;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use crate::Mapping;

/// Tells files apart: the same file as long as all of it stays the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FileId {
    device: u64,
    inode: u64,
    changed: (i64, i64),
    bytes: u64,
}

/// Opens the file that process `pid` has mapped there; `None` if it is not to be had.
///
/// One that was removed or replaced since needs `CAP_CHECKPOINT_RESTORE`. An overlay file system may show another inode in `maps` than
/// `stat` gives: then the path's word is taken, unless the kernel says that the file is no longer there.
pub fn open_mapped(pid: u32, mapping: &Mapping) -> Option<(File, FileId)> {
    if mapping.inode == 0 || !mapping.path.starts_with('/') {
        return None;
    }
    let root = PathBuf::from(format!("/proc/{pid}/root{}", mapping.path));
    let kernels = PathBuf::from(format!("/proc/{pid}/map_files/{:x}-{:x}", mapping.start, mapping.end));
    // For a target in a `chroot`, or one that has ended.
    let ours = PathBuf::from(&mapping.path);
    [&root, &kernels, &ours]
        .into_iter()
        .find_map(|path| open(path, mapping.inode))
        .or_else(|| if mapping.deleted { None } else { open(&root, 0) })
}

/// Opens the file with what was stripped from the one with this build number, as distributions install it, as process `pid` has it or as we
/// have it; `None` if there is none.
pub fn open_debug_file(pid: u32, build_id: &[u8]) -> Option<File> {
    let (first, rest) = build_id.split_first()?;
    let rest: String = rest.iter().map(|byte| format!("{byte:02x}")).collect();
    let path = format!("/usr/lib/debug/.build-id/{first:02x}/{rest}.debug");
    let paths = [PathBuf::from(format!("/proc/{pid}/root{path}")), PathBuf::from(path)];
    paths.iter().find_map(|path| open(path, 0)).map(|(file, _)| file)
}

fn open(path: &Path, inode: u64) -> Option<(File, FileId)> {
    // A target may put a pipe in the place of its file: opening that would wait for ever.
    let file = File::options().read(true).custom_flags(libc::O_NONBLOCK).open(path).ok()?;
    let found =
        file.metadata().ok().filter(|found| found.is_file() && (inode == 0 || found.ino() == inode))?;
    let id = FileId {
        device: found.dev(),
        inode: found.ino(),
        changed: (found.mtime(), found.mtime_nsec()),
        bytes: found.size(),
    };
    Some((file, id))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "test code")]
mod tests {
    use super::*;
    use crate::parse_maps;

    #[test]
    fn our_own_program_is_opened_and_what_is_no_file_is_not() {
        let own = std::process::id();
        let maps = parse_maps(&std::fs::read_to_string("/proc/self/maps").unwrap());
        let program = std::fs::read_link("/proc/self/exe").unwrap();
        let mapping = maps.iter().find(|mapping| program.to_str() == Some(&*mapping.path)).unwrap();
        let (file, id) = open_mapped(own, mapping).unwrap();
        assert_eq!(id.bytes, file.metadata().unwrap().size());
        let stack = maps.iter().find(|mapping| mapping.path == "[stack]").unwrap();
        assert!(open_mapped(own, stack).is_none());
        let other = Mapping { inode: mapping.inode + 1, deleted: true, start: 1, end: 2, ..mapping.clone() };
        assert!(open_mapped(own, &other).is_none(), "another file has its name");
    }
}
