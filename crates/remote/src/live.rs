//! A running process as [`Memory`] and [`Symbols`].

use std::fs;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use thiserror::Error;

use crate::elf::{ElfFacts, read_facts};
use crate::memory::read_and_split;
use crate::procfs::{io_calls_in, process_stat, status_value, threads_of};
use crate::{Mapping, Memory, Range, ReadError, RemoteAddr, SharedObject, SharedRange, Symbols, parse_maps};

/// The most pieces that the kernel takes in one `process_vm_readv` (`UIO_MAXIOV`).
const MAX_PIECES: usize = 1_024;

/// As many pieces need no memory of their own: nearly every sample has fewer.
const FEW_PIECES: usize = 16;

/// Why a process cannot be looked into.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum OpenError {
    /// No such process.
    #[error("no process {pid}")]
    NotFound {
        /// The process asked for.
        pid: u32,
    },
    /// A kernel thread or a zombie: there is no memory to read.
    #[error("process {pid} ({comm}) has no memory of its own")]
    NoMemory {
        /// The process asked for.
        pid: u32,
        /// Its name.
        comm: String,
    },
    /// The kernel refuses.
    #[error("not permitted to read process {pid} ({comm}): {reason}")]
    Denied {
        /// The process asked for.
        pid: u32,
        /// Its name.
        comm: String,
        /// What stands in the way.
        reason: String,
        /// What the user can do about it.
        hint: String,
    },
}

/// A running process that we may read.
#[derive(Debug)]
pub struct LiveProcess {
    pid: u32,
    start_ticks: u64,
    /// `/proc/PID/mem`: stays that of the program which ran when it was opened.
    memory: Option<fs::File>,
    /// `/proc/PID/io`, once it was asked for.
    io: OnceLock<Option<fs::File>>,
    /// Where that program had something.
    first: RemoteAddr,
    shared: Vec<SharedRange>,
    /// Interpreter candidates: the program first, then its libraries, each with what must be added to an address.
    modules: Vec<(Arc<ElfFacts>, u64)>,
    program: PathBuf,
    /// Whether we hold all of its threads stopped.
    pub(crate) is_stopped: Arc<AtomicBool>,
}

impl LiveProcess {
    /// Opens process `pid` (as this host numbers it) and finds its interpreter's files.
    ///
    /// # Errors
    ///
    /// See [`OpenError`].
    pub fn open(pid: u32) -> Result<Self, OpenError> {
        let stat = process_stat(pid).ok_or(OpenError::NotFound { pid })?;
        let maps = match fs::read(format!("/proc/{pid}/maps")) {
            Ok(bytes) => bytes,
            Err(_) if process_stat(pid).is_none() => return Err(OpenError::NotFound { pid }),
            Err(_) => return Err(denied(pid, stat.comm)),
        };
        // A target may map files whose names are no text.
        let mappings = parse_maps(&String::from_utf8_lossy(&maps));
        let Some(first) = mappings.first() else {
            return Err(OpenError::NoMemory { pid, comm: stat.comm });
        };
        let mut process = Self {
            pid,
            start_ticks: stat.start_ticks,
            memory: fs::File::open(format!("/proc/{pid}/mem")).ok(),
            io: OnceLock::new(),
            first: RemoteAddr(first.start),
            modules: Vec::new(),
            program: fs::read_link(format!("/proc/{pid}/exe")).unwrap_or_default(),
            shared: mappings.iter().filter_map(shared_range).collect(),
            is_stopped: Arc::default(),
        };
        // `maps` only needs permission to look; reading memory asks for more. Find out now, where it can be explained.
        match process.read(process.first, &mut [0]) {
            Err(ReadError::Denied { .. }) => return Err(denied(pid, stat.comm)),
            Err(ReadError::Gone { .. }) => return Err(OpenError::NotFound { pid }),
            _ => {}
        }
        process.modules = find_modules(pid, &process.program, &mappings);
        Ok(process)
    }

    /// Looks for libraries that the process has loaded since.
    pub fn find_new_modules(&mut self) {
        let maps = fs::read(format!("/proc/{}/maps", self.pid)).unwrap_or_default();
        let mappings = parse_maps(&String::from_utf8_lossy(&maps));
        self.modules = find_modules(self.pid, &self.program, &mappings);
    }

    /// The process id as this host numbers it.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Path of the program, as the target sees it; ` (deleted)` at its end if it was removed.
    pub fn program(&self) -> &Path {
        &self.program
    }

    /// Whether the process still runs the program that it ran when it was opened: false after `exec`, and if it has ended.
    ///
    /// Another program may have everything at the same addresses, so that reading it does not fail. One system call.
    pub fn runs_same_program(&self) -> bool {
        // The kernel gives nothing of memory that nobody has any more, and an error for a place that was unmapped since.
        let gone = |memory: &fs::File| memory.read_at(&mut [0], self.first.0).is_ok_and(|len| len == 0);
        !self.memory.as_ref().is_some_and(gone)
    }

    /// Whether the process still runs; false also if its pid has gone to another process.
    pub fn is_running(&self) -> bool {
        process_stat(self.pid)
            .is_some_and(|stat| stat.start_ticks == self.start_ticks && !matches!(stat.state, 'Z' | 'X'))
    }
}

impl Memory for LiveProcess {
    fn read(&self, addr: RemoteAddr, buf: &mut [u8]) -> Result<(), ReadError> {
        let len = buf.len();
        match self.read_ranges(&[Range::new(addr, len)], buf)? {
            1 => Ok(()),
            _ => Err(ReadError::Unmapped { addr, len }),
        }
    }

    fn stands_still(&self) -> bool {
        self.is_stopped.load(Ordering::Relaxed)
    }

    /// The sum of `syscr` and `syscw` in `/proc/PID/io`, which counts a call when it is over.
    fn io_calls(&self) -> Option<u64> {
        let io = self.io.get_or_init(|| fs::File::open(format!("/proc/{}/io", self.pid)).ok());
        let mut bytes = [0; 512];
        let len = io.as_ref()?.read_at(&mut bytes, 0).ok()?;
        io_calls_in(std::str::from_utf8(&bytes[..len]).ok()?)
    }

    fn read_ranges(&self, ranges: &[Range], buf: &mut [u8]) -> Result<usize, ReadError> {
        debug_assert_eq!(ranges.iter().map(|range| range.len).sum::<usize>(), buf.len());
        let mut done = 0;
        let mut rest = buf;
        for group in ranges.chunks(MAX_PIECES) {
            let len: usize = group.iter().map(|range| range.len).sum();
            let (head, tail) = rest.split_at_mut(len);
            rest = tail;
            let copied = self.copy(group, head, &mut [])?;
            done += copied;
            if copied < group.len() {
                break;
            }
        }
        Ok(done)
    }

    fn read_ranges_into_two(
        &self,
        ranges: &[Range],
        first: &mut [u8],
        rest: &mut [u8],
    ) -> Result<usize, ReadError> {
        debug_assert_eq!(ranges.iter().map(|range| range.len).sum::<usize>(), first.len() + rest.len());
        if ranges.len() <= MAX_PIECES {
            return self.copy(ranges, first, rest);
        }
        read_and_split(self, ranges, first, rest)
    }
}

impl LiveProcess {
    /// Copies at most [`MAX_PIECES`] ranges into `first` and from there on into `rest`; how many were copied whole.
    fn copy(&self, ranges: &[Range], first: &mut [u8], rest: &mut [u8]) -> Result<usize, ReadError> {
        let piece =
            |range: &Range| libc::iovec { iov_base: range.addr.0 as *mut libc::c_void, iov_len: range.len };
        let mut few = [libc::iovec { iov_base: ptr::null_mut(), iov_len: 0 }; FEW_PIECES];
        let many: Vec<libc::iovec>;
        let pieces = if let Some(few) = few.get_mut(..ranges.len()) {
            for (slot, range) in few.iter_mut().zip(ranges) {
                *slot = piece(range);
            }
            &*few
        } else {
            many = ranges.iter().map(piece).collect();
            &many[..]
        };
        let ours = |buf: &mut [u8]| libc::iovec { iov_base: buf.as_mut_ptr().cast(), iov_len: buf.len() };
        let local = [ours(first), ours(rest)];
        let locals = if rest.is_empty() { 1 } else { 2 };
        // SAFETY: `local` describes `first` and `rest`, which are borrowed mutably for the whole call; the kernel checks the
        // addresses of the other process itself and never writes there.
        let copied = unsafe {
            libc::process_vm_readv(
                self.pid.cast_signed(),
                local.as_ptr(),
                locals,
                pieces.as_ptr(),
                ranges.len() as libc::c_ulong,
                0,
            )
        };
        let Ok(mut copied) = usize::try_from(copied) else {
            return match io::Error::last_os_error().raw_os_error() {
                Some(libc::ESRCH) => Err(ReadError::Gone { pid: self.pid }),
                Some(libc::EPERM) => Err(ReadError::Denied { pid: self.pid }),
                // Not even the first byte is mapped.
                _ => Ok(0),
            };
        };
        // The kernel stops at the first byte that it cannot read.
        for (done, range) in ranges.iter().enumerate() {
            if copied < range.len {
                return Ok(done);
            }
            copied -= range.len;
        }
        Ok(ranges.len())
    }
}

impl Symbols for LiveProcess {
    fn symbol(&self, name: &str) -> Option<RemoteAddr> {
        self.modules
            .iter()
            .find_map(|(facts, bias)| facts.symbol(name).map(|vaddr| RemoteAddr(vaddr.wrapping_add(*bias))))
    }

    fn section(&self, name: &str) -> Option<Range> {
        self.modules.iter().find_map(|(facts, bias)| {
            let (vaddr, len) = facts.section(name)?;
            (vaddr != 0)
                .then(|| Range::new(RemoteAddr(vaddr.wrapping_add(*bias)), usize::try_from(len).unwrap_or(0)))
        })
    }

    fn thread_ids(&self) -> Vec<u32> {
        // The last of the numbers that it has in namespaces inside each other.
        let innermost = |tid| status_value(tid, "NSpid")?.split_whitespace().last()?.parse().ok();
        threads_of(self.pid).into_iter().filter_map(innermost).collect()
    }

    fn shared_memory(&self) -> Vec<SharedRange> {
        self.shared.clone()
    }
}

/// What a mapping shares with other processes; `None` if nothing, or the kernel does not say of what it is.
fn shared_range(mapping: &Mapping) -> Option<SharedRange> {
    if !mapping.shared || !mapping.readable || mapping.inode == 0 {
        return None;
    }
    let (major, minor) = mapping.device.split_once(':')?;
    let number = |text| u32::from_str_radix(text, 16).ok();
    let object = SharedObject {
        device: (number(major)?, number(minor)?),
        inode: mapping.inode,
        base: mapping.start.wrapping_sub(mapping.file_offset),
    };
    let len = usize::try_from(mapping.end.checked_sub(mapping.start)?).ok()?;
    let range = Range::new(RemoteAddr(mapping.start), len);
    Some(SharedRange { range, executable: mapping.executable, object })
}

/// The program and the libraries whose name says that they hold an interpreter.
fn find_modules(pid: u32, program: &Path, mappings: &[Mapping]) -> Vec<(std::sync::Arc<ElfFacts>, u64)> {
    let program = program.to_string_lossy();
    let program = program.strip_suffix(" (deleted)").unwrap_or(&program);
    let mut candidates: Vec<(bool, &Mapping)> = Vec::new();
    for mapping in mappings {
        let name = mapping.path.rsplit('/').next().unwrap_or("");
        let is_program = mapping.path == program;
        let holds_interpreter = name.starts_with("libpython") || name.starts_with("libphp");
        // Where it is not part of the interpreter, `asyncio` keeps its tasks in a library of its own.
        let holds_interpreter = holds_interpreter || name.starts_with("_asyncio.");
        if !is_program && !holds_interpreter {
            continue;
        }
        // One mapping of each file tells the load address. That is the first with code: the target may have mapped the
        // file again, to read symbols in it. PHP may have moved all of its code to huge pages: then the first of all.
        let same = |seen: &&Mapping| seen.inode == mapping.inode && seen.device == mapping.device;
        match candidates.iter_mut().find(|(_, seen)| same(seen)) {
            Some((_, seen)) if mapping.executable && !seen.executable => *seen = mapping,
            Some(_) => {}
            None => candidates.push((is_program, mapping)),
        }
    }
    candidates.sort_by_key(|(is_program, _)| !is_program);
    candidates
        .into_iter()
        .filter_map(|(is_program, mapping)| {
            let mut paths = vec![PathBuf::from(format!("/proc/{pid}/root{}", mapping.path))];
            if is_program {
                paths.push(PathBuf::from(format!("/proc/{pid}/exe")));
            }
            // For files that were removed or replaced while mapped. Needs CAP_CHECKPOINT_RESTORE.
            paths.push(PathBuf::from(format!("/proc/{pid}/map_files/{:x}-{:x}", mapping.start, mapping.end)));
            // For a target in a `chroot`. Last, because for one in a container it is another file, if there is one.
            let ours = [PathBuf::from(&mapping.path)];
            // An overlay file system may show another inode in `maps` than `stat` gives: then take the path's word,
            // unless the kernel says that the file is no longer there.
            let facts = read_facts(&paths, mapping.inode)
                .or_else(|| if mapping.inode == 0 { None } else { read_facts(&ours, mapping.inode) })
                .or_else(|| if mapping.deleted { None } else { read_facts(&paths, 0) })?;
            let bias = facts.bias(mapping);
            (!facts.is_empty()).then_some((facts, bias))
        })
        .collect()
}

/// Finds out why the kernel refuses, so that the user need not guess.
fn denied(pid: u32, comm: String) -> OpenError {
    let uids = status_value(pid, "Uid").unwrap_or_default();
    let target_uid = uids.split_whitespace().next().and_then(|uid| uid.parse::<u32>().ok());
    // SAFETY: `geteuid` has no preconditions and cannot fail.
    let own_uid = unsafe { libc::geteuid() };
    let scope = fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope").unwrap_or_default();
    let (reason, hint) = if own_uid != 0 && target_uid.is_some_and(|uid| uid != own_uid) {
        (
            format!("it belongs to user {}, we run as user {own_uid}", target_uid.unwrap_or_default()),
            "run as root, or give the program CAP_SYS_PTRACE: `sudo setcap cap_sys_ptrace+ep $(command -v slip)`"
                .to_owned(),
        )
    } else if matches!(scope.trim(), "1" | "2" | "3") && own_uid != 0 {
        (
            format!("`kernel.yama.ptrace_scope` is {}", scope.trim()),
            "run as root, or allow it: `sudo sysctl kernel.yama.ptrace_scope=0`".to_owned(),
        )
    } else if own_uid == 0 {
        (
            "the kernel refuses although we are root: CAP_SYS_PTRACE is missing".to_owned(),
            "in a container add the capability: `docker run --cap-add SYS_PTRACE …`".to_owned(),
        )
    } else {
        (
            "it belongs to the same user but is not dumpable".to_owned(),
            "run as root, or for PHP-FPM set `process.dumpable = yes` in the pool and reload it".to_owned(),
        )
    };
    OpenError::Denied { pid, comm, reason, hint }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;
    use std::os::unix::ffi::OsStringExt;

    use super::*;

    #[test]
    fn our_own_memory_reads_back() {
        let process = LiveProcess::open(std::process::id()).unwrap();
        let secret: Vec<u8> = (0..10_000u32).map(|n| n.to_le_bytes()[0]).collect();
        let addr = RemoteAddr(secret.as_ptr() as u64);
        let mut buf = vec![0; 10_000];
        process.read(addr, &mut buf).unwrap();
        assert_eq!(buf, secret);
        assert!(process.is_running());
    }

    #[test]
    fn a_read_stops_at_the_first_hole() {
        let process = LiveProcess::open(std::process::id()).unwrap();
        let here = [7_u8; 16];
        let ranges = [
            Range::new(RemoteAddr(here.as_ptr() as u64), 16),
            Range::new(RemoteAddr(8), 8),
            Range::new(RemoteAddr(0), 8),
        ];
        let mut buf = [0; 32];
        assert_eq!(process.read_ranges(&ranges, &mut buf), Ok(1));
        assert_eq!(buf[..16], here);
        assert_eq!(
            process.read(RemoteAddr(u64::MAX - 4), &mut [0; 8]),
            Err(ReadError::Unmapped { addr: RemoteAddr(u64::MAX - 4), len: 8 })
        );
    }

    #[test]
    fn two_buffers_are_filled_one_after_the_other() {
        let process = LiveProcess::open(std::process::id()).unwrap();
        let here: Vec<u8> = (0..3_000u32).map(|n| n.to_le_bytes()[0]).collect();
        for pieces in [3, 3_000] {
            let len = 3_000 / pieces;
            let ranges: Vec<Range> = (0..pieces)
                .map(|at| Range::new(RemoteAddr(here.as_ptr() as u64 + (at * len) as u64), len))
                .collect();
            let (mut first, mut rest) = ([0; 1_234], [0; 1_766]);
            assert_eq!(process.read_ranges_into_two(&ranges, &mut first, &mut rest), Ok(pieces));
            assert_eq!([&first[..], &rest[..]].concat(), here);
        }
        let ranges = [Range::new(RemoteAddr(here.as_ptr() as u64), 8), Range::new(RemoteAddr(8), 8)];
        let (mut first, mut rest) = ([0; 8], [0; 8]);
        assert_eq!(process.read_ranges_into_two(&ranges, &mut first, &mut rest), Ok(1));
        assert_eq!(first, here[..8]);
    }

    #[test]
    fn more_pieces_than_the_kernel_takes_at_once() {
        let process = LiveProcess::open(std::process::id()).unwrap();
        let here: Vec<u8> = (0..3_000u32).map(|n| n.to_le_bytes()[0]).collect();
        let ranges: Vec<Range> =
            (0..3_000).map(|at| Range::new(RemoteAddr(here.as_ptr() as u64 + at), 1)).collect();
        let mut buf = vec![0; 3_000];
        assert_eq!(process.read_ranges(&ranges, &mut buf), Ok(3_000));
        assert_eq!(buf, here);
    }

    #[test]
    fn a_mapped_file_may_have_a_name_that_is_no_text() {
        let name = std::ffi::OsString::from_vec(b"slip-remote-\xff.".to_vec());
        let path = std::env::temp_dir().join(name).with_extension(std::process::id().to_string());
        fs::write(&path, [7; 16]).unwrap();
        let file = fs::File::open(&path).unwrap();
        // SAFETY: the kernel chooses the place; nothing of ours lies there.
        let at = unsafe {
            libc::mmap(ptr::null_mut(), 16, libc::PROT_READ, libc::MAP_PRIVATE, file.as_raw_fd(), 0)
        };
        fs::remove_file(&path).unwrap();
        assert_ne!(at, libc::MAP_FAILED);
        let opened = LiveProcess::open(std::process::id());
        // SAFETY: this is the mapping made above, and nothing refers to it.
        unsafe { libc::munmap(at, 16) };
        opened.unwrap();
    }

    /// A name that interpreters are found by, in this program.
    #[used]
    #[unsafe(no_mangle)]
    #[allow(non_upper_case_globals, reason = "as CPython has it")]
    static Py_Version: u32 = 7;

    #[test]
    fn a_program_that_reads_its_own_file_through_a_mapping_is_found_where_it_runs() {
        let file = fs::File::open("/proc/self/exe").unwrap();
        // Below the place that the kernel loads programs to.
        let low = ptr::without_provenance_mut(0x2000_0000);
        let flags = libc::MAP_PRIVATE | libc::MAP_FIXED_NOREPLACE;
        let len = 4_096;
        // SAFETY: nothing is replaced, and nothing refers to what is mapped.
        let at = unsafe { libc::mmap(low, len, libc::PROT_READ, flags, file.as_raw_fd(), 0) };
        assert_eq!(at, low);
        let found = LiveProcess::open(std::process::id()).unwrap().symbol("Py_Version");
        // SAFETY: this is the mapping made above.
        unsafe { libc::munmap(at, len) };
        assert_eq!(found, Some(RemoteAddr(&raw const Py_Version as u64)));
    }

    #[test]
    fn another_program_in_the_same_process_is_noticed() {
        let mut child = std::process::Command::new("sh")
            .args(["-c", "read line; exec cat"])
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let process = LiveProcess::open(child.id()).unwrap();
        assert!(process.runs_same_program());
        let mut input = child.stdin.take().unwrap();
        // The shell reads the first line, and its successor gives the second back.
        io::Write::write_all(&mut input, b"first\nsecond\n").unwrap();
        let mut line = String::new();
        io::BufRead::read_line(&mut io::BufReader::new(child.stdout.take().unwrap()), &mut line).unwrap();
        assert_eq!(line, "second\n");
        assert!(!process.runs_same_program());
        assert!(process.is_running());
        drop(input);
        child.wait().unwrap();
    }

    #[test]
    fn there_is_no_such_process() {
        assert_eq!(LiveProcess::open(u32::MAX).unwrap_err(), OpenError::NotFound { pid: u32::MAX });
    }
}
