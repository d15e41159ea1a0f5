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

/// Opens the files that may be the one which the file at `path` says by its `name` that it has what was stripped from it, as process `pid` has
/// them: beside it, in a folder `.debug` there, and under `/usr/lib/debug`. Which of them it is, if any, is for the caller to tell.
pub fn open_linked_files(pid: u32, path: &str, name: &str) -> impl Iterator<Item = File> {
    let is_name = !matches!(name, "" | "." | "..") && !name.contains('/');
    let folder = path.rsplit_once('/').map(|(folder, _)| folder).filter(|_| is_name && path.starts_with('/'));
    let places = folder.map(|folder| {
        ["", "/.debug"]
            .map(|within| format!("{folder}{within}/{name}"))
            .into_iter()
            .chain([format!("/usr/lib/debug{folder}/{name}")])
    });
    let files = places.into_iter().flatten().filter_map(move |place| {
        let root = PathBuf::from(format!("/proc/{pid}/root{place}"));
        // For a target that has ended.
        [root, PathBuf::from(place)].iter().find_map(|path| open(path, 0))
    });
    files.map(|(file, _)| file)
}

/// Opens the files that may be the one which a debug file names by `path`, with what it has in common with others, as [`open_linked_files`]. Only
/// where distributions install debug files.
pub fn open_common_files(pid: u32, path: &str, build_id: &[u8]) -> impl Iterator<Item = File> {
    let is_there = path.starts_with("/usr/lib/debug/") && !path.split('/').any(|part| part == "..");
    let named = is_there.then(|| [PathBuf::from(format!("/proc/{pid}/root{path}")), PathBuf::from(path)]);
    let named = named.into_iter().flatten().filter_map(|path| open(&path, 0)).map(|(file, _)| file);
    named.chain(open_debug_file(pid, build_id))
}

/// Opens the file in which process `pid`, which it knows itself by `own_pid`, tells `perf` what it has compiled, with its length; `None` if there is
/// none, or it is not of the process's user or of root.
pub fn open_perf_map(pid: u32, own_pid: u32) -> Option<(File, u64)> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let users = status.lines().find_map(|line| line.strip_prefix("Uid:"))?;
    let user: u32 = users.split_whitespace().nth(1)?.parse().ok()?;
    // Anybody may write into the folder, also a link.
    let file = File::options()
        .read(true)
        .custom_flags(libc::O_NONBLOCK | libc::O_NOFOLLOW)
        .open(format!("/proc/{pid}/root/tmp/perf-{own_pid}.map"))
        .ok()?;
    let found = file.metadata().ok()?;
    (found.is_file() && [user, 0].contains(&found.uid())).then(|| (file, found.size()))
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

    #[test]
    fn a_perf_map_is_the_file_of_its_process() {
        // A number that no process has: the file is ours, and so is the process that is asked.
        let (own, other) = (std::process::id(), 4_194_305 + std::process::id());
        let path = format!("/tmp/perf-{other}.map");
        std::fs::write(&path, "1000 10 a\n").unwrap();
        let found = open_perf_map(own, other).map(|(_, bytes)| bytes);
        std::fs::rename(&path, format!("{path}.moved")).unwrap();
        std::os::unix::fs::symlink(format!("{path}.moved"), &path).unwrap();
        let by_link = open_perf_map(own, other).is_some();
        std::fs::remove_file(format!("{path}.moved")).unwrap();
        std::fs::remove_file(&path).unwrap();
        assert_eq!((found, by_link, open_perf_map(own, other).is_some()), (Some(10), false, false));
    }

    #[test]
    fn a_debug_file_is_looked_for_in_three_places_and_nowhere_else() {
        let (own, folder) = (std::process::id(), tempfile::tempdir().unwrap());
        std::fs::create_dir(folder.path().join(".debug")).unwrap();
        for (place, text) in [("a.debug", "beside"), (".debug/a.debug", "in a folder")] {
            std::fs::write(folder.path().join(place), text).unwrap();
        }
        let found = |path: &str, name: &str| -> Vec<String> {
            let files = open_linked_files(own, path, name);
            files.map(|file| std::io::read_to_string(file).unwrap()).collect()
        };
        let program = folder.path().join("program");
        assert_eq!(found(program.to_str().unwrap(), "a.debug"), ["beside", "in a folder"]);
        let inner = folder.path().join(".debug/program");
        for (path, name) in [(inner.to_str().unwrap(), "../a.debug"), ("program", "a.debug")] {
            assert!(found(path, name).is_empty());
        }
    }
}
