//! Whether a process, or a program that is about to start, has its blocks from `libslipmalloc.so`, and if not, why.

use std::ffi::CString;
use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use slip_model::Language;
use slip_probe::AllocationHooks;
use slip_remote::{
    LiveProcess, Mapping, ProgramKind, ReadError, environment_value, has_secure_execution, open_mapped,
    parse_maps, program_kind, symbol_offsets,
};

use crate::TargetIssue;
use crate::malloc_page::{MallocPage, MallocPageError, find_page, parse_malloc_page};
use crate::process::issue_of;

/// How the files of the library begin.
const LIBRARY: &str = "libslipmalloc";

/// Other libraries that give out memory.
const OTHERS: [&str; 8] = [
    "libjemalloc",
    "libtcmalloc",
    "libmimalloc",
    "libsnmalloc",
    "librpmalloc",
    "libhoard",
    "libscudo",
    "libasan",
];

/// Scripts may be run by scripts; the kernel follows as many.
const MAX_SCRIPTS: usize = 5;

/// Whether a process uses the library.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MallocUse {
    /// It does.
    InEffect(Box<MallocPage>),
    /// It does, but a version of it that counts in another way.
    OtherVersion(u32),
    /// It does not.
    Not(NoMalloc),
}

/// Why a process does not use the library.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoMalloc {
    /// It is mapped, but nobody has asked it for a block: the program has a `malloc()` of its own, or one of these comes first.
    OtherMalloc {
        /// Libraries that give out memory, too.
        others: Vec<String>,
    },
    /// It could not have been preloaded.
    NotPreloadable(NotPreloadable),
    /// `LD_PRELOAD` named it, and the process sees no such file.
    NoFile {
        /// As `LD_PRELOAD` has it.
        path: String,
    },
    /// `LD_PRELOAD` named it, and the loader did not take it.
    NotLoaded {
        /// As `LD_PRELOAD` has it.
        path: String,
    },
    /// Nobody asked for it.
    NotAsked,
}

/// Why no library can be preloaded into a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotPreloadable {
    /// It is statically linked: no loader runs.
    Static,
    /// It is for another machine, or for 32 bits.
    Foreign,
    /// It runs with another C library than the one that ours is linked with.
    OtherLibrary {
        /// Path of its loader.
        loader: String,
    },
    /// It gets rights that who starts it has not: the loader then takes nothing from the environment.
    MoreRights,
}

/// Whether process `pid` uses the library.
///
/// # Errors
///
/// If its memory cannot be read.
pub fn malloc_use(pid: u32) -> Result<MallocUse, TargetIssue> {
    let process = LiveProcess::open(pid).map_err(issue_of)?;
    let maps = fs::read(format!("/proc/{pid}/maps")).unwrap_or_default();
    // A target may map files whose names are no text.
    let mappings = parse_maps(&String::from_utf8_lossy(&maps));
    let page = find_page(&process, &mappings).map_err(|error| match error {
        ReadError::Gone { .. } => TargetIssue::NotFound,
        other => TargetIssue::Denied { reason: other.to_string(), hint: "run as root".to_owned() },
    })?;
    match page.map(|page| parse_malloc_page(&page)) {
        Some(Ok(page)) => return Ok(MallocUse::InEffect(Box::new(page))),
        Some(Err(MallocPageError::OtherVersion(version))) => return Ok(MallocUse::OtherVersion(version)),
        Some(Err(MallocPageError::NotAPage)) | None => {}
    }
    let reason = why_not(pid, &mappings);
    // What was asked above of a process that has ended meanwhile is no reason.
    if process.is_running() { Ok(MallocUse::Not(reason)) } else { Err(TargetIssue::NotFound) }
}

/// What tells of the blocks of process `pid`: the file of its library, where that has what, and the sizes that blocks have.
pub(crate) fn allocation_hooks(pid: u32) -> Result<(File, AllocationHooks, Vec<u32>), TargetIssue> {
    let unsupported = |reason: &str| TargetIssue::Unsupported { reason: reason.to_owned() };
    let page = match malloc_use(pid)? {
        MallocUse::InEffect(page) => page,
        MallocUse::OtherVersion(_) => {
            return Err(unsupported("its libslipmalloc.so is of another version than this slip"));
        }
        MallocUse::Not(reason) => return Err(TargetIssue::NoMalloc(reason)),
    };
    let maps = fs::read(format!("/proc/{pid}/maps")).unwrap_or_default();
    let mappings = parse_maps(&String::from_utf8_lossy(&maps));
    let is_library = |mapping: &&Mapping| mapping.executable && file_name(&mapping.path).starts_with(LIBRARY);
    let file = mappings.iter().find(is_library).and_then(|mapping| open_mapped(pid, mapping));
    let Some((file, _)) = file else {
        return Err(unsupported("the file of its libslipmalloc.so is not to be had"));
    };
    let names = ["slipmalloc_sampled", "slipmalloc_sample_freed", "slipmalloc_sampling"];
    let Some([sampled, freed, listeners]) = symbol_offsets(&file, names) else {
        return Err(unsupported("its libslipmalloc.so is one that tells nobody of allocations"));
    };
    let sizes = page.classes.iter().map(|class| class.block_bytes).collect();
    Ok((file, AllocationHooks { sampled, freed, listeners }, sizes))
}

/// An allocator of an interpreter's own, which asks for memory by the megabyte and says nothing of the blocks that it cuts it into.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum OwnMemory {
    /// CPython's, for blocks of up to 512 bytes.
    Pymalloc,
    /// The one of the Zend engine, for all that belongs to a request.
    ZendManager,
}

/// The allocator that the interpreter of process `pid` has beside `malloc()`, unless it was told by its environment to have none.
pub(crate) fn own_memory(pid: u32, language: Language) -> Option<OwnMemory> {
    match language {
        Language::Python => {
            let told = environment_value(pid, "PYTHONMALLOC").unwrap_or_default();
            (!matches!(&*told, "malloc" | "malloc_debug")).then_some(OwnMemory::Pymalloc)
        }
        Language::Php => {
            // As `atoi()` reads it.
            let told = environment_value(pid, "USE_ZEND_ALLOC");
            let is_off = told.is_some_and(|told| {
                let digits = told.trim_start().trim_start_matches(['+', '-']);
                !digits.starts_with(|first: char| ('1'..='9').contains(&first))
            });
            (!is_off).then_some(OwnMemory::ZendManager)
        }
        Language::Native => None,
    }
}

fn why_not(pid: u32, mappings: &[Mapping]) -> NoMalloc {
    if library_names(mappings).any(|name| name.starts_with(LIBRARY)) {
        let is_other = |name: &&str| OTHERS.iter().any(|other| name.starts_with(other));
        let mut others: Vec<String> = library_names(mappings).filter(is_other).map(str::to_owned).collect();
        others.sort_unstable();
        others.dedup();
        return NoMalloc::OtherMalloc { others };
    }
    let kind = program_kind(Path::new(&format!("/proc/{pid}/exe")));
    if let Some(obstacle) = kind.as_ref().and_then(obstacle_of) {
        return NoMalloc::NotPreloadable(obstacle);
    }
    if has_secure_execution(pid) == Some(true) {
        return NoMalloc::NotPreloadable(NotPreloadable::MoreRights);
    }
    let preload = environment_value(pid, "LD_PRELOAD").unwrap_or_default();
    // The loader takes blanks, too.
    let Some(path) = preload.split([':', ' ']).find(|path| file_name(path).starts_with(LIBRARY)) else {
        return NoMalloc::NotAsked;
    };
    let path = path.to_owned();
    if path.starts_with('/') && fs::metadata(format!("/proc/{pid}/root{path}")).is_err() {
        return NoMalloc::NoFile { path };
    }
    NoMalloc::NotLoaded { path }
}

fn library_names(mappings: &[Mapping]) -> impl Iterator<Item = &str> {
    mappings.iter().filter(|mapping| mapping.executable).map(|mapping| file_name(&mapping.path))
}

fn file_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or("")
}

fn obstacle_of(kind: &ProgramKind) -> Option<NotPreloadable> {
    match kind {
        ProgramKind::Static => Some(NotPreloadable::Static),
        ProgramKind::Foreign => Some(NotPreloadable::Foreign),
        ProgramKind::Dynamic { loader } if !file_name(loader).starts_with("ld-linux") => {
            Some(NotPreloadable::OtherLibrary { loader: loader.clone() })
        }
        _ => None,
    }
}

/// The file that `program` names, as the system looks for it, and why nothing can be preloaded into it, if so.
///
/// # Errors
///
/// `NotFound` if there is no such program, `PermissionDenied` if it may not be executed.
pub fn preload_obstacle(program: &str) -> io::Result<Option<NotPreloadable>> {
    let mut path =
        crate::program::find(program, &std::env::var("PATH").unwrap_or_default()).ok_or_else(|| {
            let is_there = program.contains('/') && Path::new(program).exists();
            io::Error::from(if is_there { io::ErrorKind::PermissionDenied } else { io::ErrorKind::NotFound })
        })?;
    for _ in 0..MAX_SCRIPTS {
        // What may be executed, and not be read, is left to the loader.
        match program_kind(&path) {
            Some(ProgramKind::Script { interpreter }) => path = PathBuf::from(interpreter),
            Some(kind) if obstacle_of(&kind).is_some() => return Ok(obstacle_of(&kind)),
            _ => break,
        }
    }
    Ok(gives_rights(&path).then_some(NotPreloadable::MoreRights))
}

/// Whether who executes the file becomes somebody else by it, or gets capabilities. Of scripts that does not hold.
fn gives_rights(path: &Path) -> bool {
    let Ok(file) = fs::metadata(path) else { return false };
    // SAFETY: this takes nothing and cannot fail.
    let uid = unsafe { libc::geteuid() };
    // SAFETY: as above.
    let gid = unsafe { libc::getegid() };
    let sets_user = file.mode() & libc::S_ISUID != 0 && file.uid() != uid;
    let sets_group =
        file.mode() & libc::S_ISGID != 0 && file.mode() & libc::S_IXGRP != 0 && file.gid() != gid;
    sets_user || sets_group || (uid != 0 && has_capabilities(path))
}

fn has_capabilities(path: &Path) -> bool {
    let Ok(path) = CString::new(path.as_os_str().as_bytes()) else { return false };
    // SAFETY: both are C strings, and nothing is written with a size of 0.
    unsafe { libc::getxattr(path.as_ptr(), c"security.capability".as_ptr(), std::ptr::null_mut(), 0) > 0 }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "test code")]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn what_stands_in_the_way_of_a_program() {
        assert_eq!(preload_obstacle("sh").unwrap(), None);
        assert_eq!(preload_obstacle("no such program").unwrap_err().kind(), io::ErrorKind::NotFound);
        assert_eq!(preload_obstacle("/etc/passwd").unwrap_err().kind(), io::ErrorKind::PermissionDenied);

        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, bytes: &[u8], mode: u32| {
            let path = folder.path().join(name);
            fs::write(&path, bytes).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            path.to_str().unwrap().to_owned()
        };
        let mut head = vec![0; 64];
        head[..6].copy_from_slice(b"\x7fELF\x02\x01");
        (head[18], head[54]) = (62, 56);
        let program = write("static", &head, 0o755);
        assert_eq!(preload_obstacle(&program).unwrap(), Some(NotPreloadable::Static));
        let script = write("script", format!("#!{program}\n").as_bytes(), 0o755);
        assert_eq!(preload_obstacle(&script).unwrap(), Some(NotPreloadable::Static));
        let program = write("foreign", &[&head[..4], &[1], &head[5..]].concat(), 0o755);
        assert_eq!(preload_obstacle(&program).unwrap(), Some(NotPreloadable::Foreign));
        // A script that names itself.
        let path = folder.path().join("loop");
        let program = write("loop", format!("#!{}\n", path.display()).as_bytes(), 0o755);
        assert_eq!(preload_obstacle(&program).unwrap(), None);

        let other = ProgramKind::Dynamic { loader: "/lib/ld-musl-x86_64.so.1".to_owned() };
        assert!(matches!(obstacle_of(&other), Some(NotPreloadable::OtherLibrary { .. })));
    }

    #[test]
    fn who_gets_rights() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("program");
        fs::copy("/bin/true", &path).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o4755)).unwrap();
        // It is ours: nobody becomes another one.
        assert!(!gives_rights(&path));
        // SAFETY: this takes nothing and cannot fail.
        if unsafe { libc::geteuid() } != 0 {
            return;
        }
        std::os::unix::fs::chown(&path, Some(65_534), None).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o4755)).unwrap();
        assert!(gives_rights(&path));
    }
}
