//! Small files of `/proc` about a process and its threads.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::OnceLock;
use std::time::Duration;

use crate::descriptors::are_scarce;
use crate::ring::Place;
use crate::switches::Switches;

/// What `/proc/PID/stat` says about a process or thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessStat {
    /// Name of the main thread.
    pub comm: String,
    /// State letter: `R`, `S`, `D`, `Z` and so on.
    pub state: char,
    /// Parent process.
    pub parent: u32,
    /// Start time in clock ticks since boot: with the pid it names a process for good.
    pub start_ticks: u64,
    /// It runs what its parent ran when it was forked: it has not become another program since.
    pub is_fork: bool,
    /// Page faults so far for which something had to be read.
    pub major_faults: u64,
}

/// `PF_FORKNOEXEC` of `linux/sched.h`.
const FORKED_WITHOUT_EXEC: u64 = 0x40;

/// Reads `/proc/PID/stat`; `None` if there is no such process.
pub fn process_stat(pid: u32) -> Option<ProcessStat> {
    parse_stat(&String::from_utf8_lossy(&fs::read(format!("/proc/{pid}/stat")).ok()?))
}

/// Reads `/proc/PID/task/TID/stat`; `None` if there is no such thread.
pub(crate) fn thread_stat(pid: u32, tid: u32) -> Option<ProcessStat> {
    parse_stat(&String::from_utf8_lossy(&fs::read(format!("/proc/{pid}/task/{tid}/stat")).ok()?))
}

/// The state letter of a thread, as in `/proc/PID/task/TID/stat`; `None` if there is no such thread.
pub fn thread_state(pid: u32, tid: u32) -> Option<char> {
    thread_stat(pid, tid).map(|stat| stat.state)
}

/// Parses the text of `/proc/PID/stat`; `None` if it does not fit the format.
pub fn parse_stat(text: &str) -> Option<ProcessStat> {
    // The name may itself hold spaces and parentheses; the last one closes it.
    let (head, tail) = text.rsplit_once(") ")?;
    let comm = head.split_once(" (")?.1.to_owned();
    let fields: Vec<&str> = tail.split(' ').collect();
    Some(ProcessStat {
        comm,
        state: fields.first()?.chars().next()?,
        parent: fields.get(1)?.parse().ok()?,
        start_ticks: fields.get(19)?.parse().ok()?,
        is_fork: fields.get(6)?.parse::<u64>().ok()? & FORKED_WITHOUT_EXEC != 0,
        major_faults: fields.get(9)?.parse().ok()?,
    })
}

/// The arguments of a process; empty for a zombie or a kernel thread.
pub fn command_line(pid: u32) -> Vec<String> {
    let Ok(bytes) = fs::read(format!("/proc/{pid}/cmdline")) else { return Vec::new() };
    let mut arguments: Vec<String> =
        bytes.split(|byte| *byte == 0).map(|part| String::from_utf8_lossy(part).into_owned()).collect();
    // A title set by the program is padded with zeros; a plain command line ends with one.
    while arguments.last().is_some_and(String::is_empty) {
        arguments.pop();
    }
    arguments
}

/// A line of `/proc/PID/status`, such as `Uid` or `NSpid`.
pub fn status_value(pid: u32, key: &str) -> Option<String> {
    // The name of the process stands there too, and need not be text.
    let bytes = fs::read(format!("/proc/{pid}/status")).ok()?;
    String::from_utf8_lossy(&bytes)
        .lines()
        .find_map(|line| line.strip_prefix(key)?.strip_prefix(':').map(|value| value.trim().to_owned()))
}

/// How many calls of `read` and `write` and their like `/proc/PID/io` tells of.
pub(crate) fn io_calls_in(text: &str) -> Option<u64> {
    let count = |key| text.lines().find_map(|line| line.strip_prefix(key))?.parse::<u64>().ok();
    count("syscr: ")?.checked_add(count("syscw: ")?)
}

/// What a variable of the environment was when the process became its program; `None` if there was none, or the process has written over
/// it, as those do that give themselves a title. Nothing else of the environment is kept: it has secrets.
pub fn environment_value(pid: u32, name: &str) -> Option<String> {
    let bytes = fs::read(format!("/proc/{pid}/environ")).ok()?;
    let value = bytes
        .split(|byte| *byte == 0)
        .find_map(|part| part.strip_prefix(name.as_bytes())?.strip_prefix(b"="))?;
    Some(String::from_utf8_lossy(value).into_owned())
}

/// Whether the kernel told the loader not to trust who started the program, as it does for set-user-ID programs (`AT_SECURE`); `None` if that
/// cannot be read.
pub fn has_secure_execution(pid: u32) -> Option<bool> {
    /// `AT_SECURE`
    const SECURE: u64 = 23;
    let bytes = fs::read(format!("/proc/{pid}/auxv")).ok()?;
    let (pairs, _) = bytes.as_chunks::<16>();
    let number = |bytes: &[u8]| bytes.first_chunk().map(|bytes| u64::from_ne_bytes(*bytes));
    let found = pairs.iter().find(|pair| number(&pair[..8]) == Some(SECURE))?;
    Some(number(&found[8..]) != Some(0))
}

/// Thread ids of a process, in ascending order.
pub fn threads_of(pid: u32) -> Vec<u32> {
    let mut tids = numbers_in(&format!("/proc/{pid}/task"));
    tids.sort_unstable();
    tids
}

/// Direct children of a process, all its threads taken together.
pub fn children_of(pid: u32) -> Vec<u32> {
    let mut children: Vec<u32> = Vec::new();
    if kernel_lists_children() {
        for tid in numbers_in(&format!("/proc/{pid}/task")) {
            let text = fs::read_to_string(format!("/proc/{pid}/task/{tid}/children")).unwrap_or_default();
            children.extend(text.split_whitespace().filter_map(|child| child.parse::<u32>().ok()));
        }
    } else {
        let is_child = |other: &u32| process_stat(*other).is_some_and(|stat| stat.parent == pid);
        children.extend(all_pids().into_iter().filter(is_child));
    }
    children.sort_unstable();
    children.dedup();
    children
}

/// The children of a process that has one thread, asked for again and again through a file that is kept open.
#[derive(Debug)]
pub struct ChildrenReader {
    pid: u32,
    file: Option<File>,
}

impl ChildrenReader {
    /// Opens the file of process `pid`; without it, as in a kernel that has none, [`children_of`] is asked.
    pub fn open(pid: u32) -> Self {
        Self { pid, file: File::open(format!("/proc/{pid}/task/{pid}/children")).ok() }
    }

    /// The children now, in ascending order; none of a process that has ended.
    pub fn read(&self) -> Vec<u32> {
        let Some(file) = &self.file else { return children_of(self.pid) };
        let (mut text, mut part) = (Vec::new(), [0; 1_024]);
        // The kernel gives at most a page at once.
        while let Ok(len @ 1..) = file.read_at(&mut part, text.len() as u64) {
            text.extend_from_slice(&part[..len]);
        }
        let text = String::from_utf8_lossy(&text);
        let mut children: Vec<u32> = text.split_whitespace().filter_map(|pid| pid.parse().ok()).collect();
        children.sort_unstable();
        children
    }
}

/// False for a kernel without `CONFIG_PROC_CHILDREN`. Asked of ourselves: a process that has ended lists none either.
fn kernel_lists_children() -> bool {
    static LISTS: OnceLock<bool> = OnceLock::new();
    *LISTS.get_or_init(|| Path::new("/proc/thread-self/children").exists())
}

/// Every process that `/proc` shows.
pub(crate) fn all_pids() -> Vec<u32> {
    numbers_in("/proc")
}

fn numbers_in(folder: &str) -> Vec<u32> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

/// Whether a thread is running.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activity {
    /// Running or ready to run.
    Running,
    /// Blocked in the kernel.
    Blocked,
    /// Not to be found out.
    Unknown,
}

/// Asks again and again whether one thread is running, through files that are kept open.
#[derive(Debug)]
pub struct ActivityReader {
    file: File,
    kind: ActivityFile,
    /// `schedstat`: time run, time waited for a CPU, and number of times run. Missing in kernels built without it.
    schedstat: Option<File>,
    /// What stood there last.
    stamp: [u8; STAMP_BYTES],
    stamp_len: usize,
    /// What it did when it was asked last.
    last: Activity,
    /// Says the same without a system call; `None` where that is not permitted, or would cost the thread too much.
    switches: Option<Switches>,
    /// It was blocked at the last look, and `switches` had noted nothing yet.
    was_blocked: bool,
}

/// Three numbers of 20 digits, and blanks.
const STAMP_BYTES: usize = 64;

/// The number of a system call, six arguments and two addresses.
const PLACE_BYTES: usize = 192;

/// `accept` and `accept4` as `/proc/PID/syscall` shows them.
const ACCEPT_CALLS: [&[u8]; 2] = [b"43 ", b"288 "];

/// Where a thread is blocked: the system call with its arguments, the stack pointer and the program counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaitPlace {
    text: [u8; PLACE_BYTES],
    len: usize,
}

impl WaitPlace {
    /// Whether it waits for a connection.
    pub fn is_accept(&self) -> bool {
        ACCEPT_CALLS.iter().any(|call| self.text[..self.len].starts_with(call))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ActivityFile {
    Syscall,
    Stat,
}

impl ActivityReader {
    /// Opens the files of thread `tid` of process `pid`.
    ///
    /// `/proc/PID/task/TID/syscall` answers in 0.3 us for a running thread and 0.6 us for a blocked one; `stat` takes
    /// 1 us (measured on 6.18) and is the fallback for kernels that are built without the former.
    ///
    /// # Errors
    ///
    /// If neither file can be opened: the thread is gone, or we have too many files open (`EMFILE`).
    pub fn open(pid: u32, tid: u32) -> io::Result<Self> {
        let schedstat = File::open(format!("/proc/{pid}/task/{tid}/schedstat")).ok();
        if schedstat.as_ref().is_some_and(are_scarce) {
            return Err(io::Error::from_raw_os_error(libc::EMFILE));
        }
        let reader = |file, kind| Self {
            file,
            kind,
            schedstat,
            stamp: [0; STAMP_BYTES],
            stamp_len: 0,
            last: Activity::Unknown,
            switches: None,
            was_blocked: false,
        };
        let mut buf = [0; 32];
        if let Ok(file) = File::open(format!("/proc/{pid}/task/{tid}/syscall"))
            && file.read_at(&mut buf, 0).is_ok()
        {
            return Ok(reader(file, ActivityFile::Syscall));
        }
        Ok(reader(File::open(format!("/proc/{pid}/task/{tid}/stat"))?, ActivityFile::Stat))
    }

    /// Has the kernel note when the thread is switched in and out, where that is permitted: for a thread that is asked
    /// again and again.
    pub fn watch(&mut self, tid: u32) {
        self.switches = Switches::watch(tid).ok();
        // What it did before may be over.
        (self.last, self.was_blocked) = (Activity::Unknown, false);
    }

    /// Whether the kernel notes them.
    pub fn notes_switches(&self) -> bool {
        self.switches.is_some()
    }

    /// Has the CPU fetch what [`ActivityReader::is_resting`] looks at.
    pub fn prefetch(&self) {
        if let Some(switches) = &self.switches {
            switches.prefetch();
        }
    }

    /// Whether the thread has not run since the last call, which was at least `since` ago: nothing that it alone changes,
    /// such as its stack, can have changed since then. The first answer is always no.
    ///
    /// The notes of its switches tell at once. If there are none yet, one that was found blocked since they are taken has
    /// not run either, and one that was found running may do so still. Without them:
    ///
    /// What it has run is added to its `schedstat` when it is switched out, and at every tick of the CPU that it runs on.
    /// So one that was blocked at the last call has not run if nothing was added; one that was running or ready has not
    /// if nothing was added for two ticks: it waits for a CPU.
    pub fn is_resting(&mut self, since: Duration) -> bool {
        if let Some(switches) = &mut self.switches {
            if !switches.have_begun() {
                // `syscall` says so only of a thread that is off the CPU, `stat` also of one that is on its way.
                let is_blocked = self.last == Activity::Blocked && self.kind == ActivityFile::Syscall;
                let was_blocked = std::mem::replace(&mut self.was_blocked, is_blocked);
                if is_blocked || self.last == Activity::Running {
                    return was_blocked && is_blocked;
                }
            } else if !switches.are_too_many(since) {
                return switches.is_resting();
            } else {
                self.switches = None;
                self.stamp_len = 0;
            }
        }
        let mut stamp = [0; STAMP_BYTES];
        let len = self.schedstat.as_ref().and_then(|file| file.read_at(&mut stamp, 0).ok()).unwrap_or(0);
        let same = len > 0 && stamp[..len] == self.stamp[..self.stamp_len];
        (self.stamp, self.stamp_len) = (stamp, len);
        same && match self.last {
            Activity::Blocked => true,
            Activity::Running => tick().is_some_and(|tick| since >= 2 * tick),
            Activity::Unknown => false,
        }
    }

    /// What the thread did when it was asked last.
    pub fn last(&self) -> Activity {
        self.last
    }

    /// What the thread does now.
    pub fn read(&mut self) -> Activity {
        self.last = if self.is_switched_in() { Activity::Running } else { self.ask() };
        self.last
    }

    /// Whether it certainly runs or could: one that has waited may by now, and has to be asked. One that has done so since its
    /// switches are noted, and has none, does so still.
    fn is_switched_in(&self) -> bool {
        self.switches.as_ref().is_some_and(|switches| match switches.place() {
            Place::In | Place::Preempted => true,
            Place::Out => false,
            Place::Unknown => !switches.have_begun() && self.last == Activity::Running,
        })
    }

    /// What the thread does now, and where it is blocked if it is; `None` also if the kernel does not say where.
    pub fn read_place(&mut self) -> Option<WaitPlace> {
        if self.is_switched_in() {
            self.last = Activity::Running;
            return None;
        }
        let mut place = WaitPlace { text: [0; PLACE_BYTES], len: 0 };
        if self.kind != ActivityFile::Syscall {
            self.read();
            return None;
        }
        place.len = self.file.read_at(&mut place.text, 0).unwrap_or(0);
        self.last = activity(&place.text[..place.len]);
        // A longer text is not what we take it for.
        (self.last == Activity::Blocked && place.len < PLACE_BYTES).then_some(place)
    }

    fn ask(&self) -> Activity {
        let mut buf = [0; 256];
        // The first word of this file says it.
        let wanted = if self.kind == ActivityFile::Syscall { 8 } else { buf.len() };
        let Ok(len) = self.file.read_at(&mut buf[..wanted], 0) else { return Activity::Unknown };
        let text = &buf[..len];
        match self.kind {
            ActivityFile::Syscall => activity(text),
            ActivityFile::Stat => match parse_stat(&String::from_utf8_lossy(text)).map(|stat| stat.state) {
                Some('R') => Activity::Running,
                Some(_) => Activity::Blocked,
                // 256 bytes cut `stat` before its end, which `parse_stat` wants; the letter stands at its begin.
                None => match text.rsplit(|byte| *byte == b')').next().and_then(|rest| rest.get(1)) {
                    Some(b'R') => Activity::Running,
                    Some(_) => Activity::Blocked,
                    None => Activity::Unknown,
                },
            },
        }
    }
}

/// What a thread does, by the begin of its `syscall` file.
fn activity(text: &[u8]) -> Activity {
    match text {
        [] => Activity::Unknown,
        _ if text.starts_with(b"running") => Activity::Running,
        _ => Activity::Blocked,
    }
}

/// How often a busy CPU accounts for what it runs; `None` where it may do so more rarely.
fn tick() -> Option<Duration> {
    static TICK: OnceLock<Option<Duration>> = OnceLock::new();
    *TICK.get_or_init(|| {
        // CPUs without a tick while they run one thread (`nohz_full=`).
        let tickless = fs::read_to_string("/sys/devices/system/cpu/nohz_full").unwrap_or_default();
        if !matches!(tickless.trim(), "" | "(null)") {
            return None;
        }
        let mut tick = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: `tick` outlives the call, which writes it whole. This clock moves at each tick.
        let result = unsafe { libc::clock_getres(libc::CLOCK_MONOTONIC_COARSE, &raw mut tick) };
        let ns = tick.tv_sec.cast_unsigned() * 1_000_000_000 + tick.tv_nsec.cast_unsigned();
        (result == 0).then(|| Duration::from_nanos(ns))
    })
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
    use std::time::Instant;

    use super::*;

    fn own_tid() -> u32 {
        // `PID/task/TID`
        let link = fs::read_link("/proc/thread-self").unwrap();
        link.file_name().unwrap().to_str().unwrap().parse().unwrap()
    }

    #[test]
    fn a_name_may_look_like_the_rest_of_the_line() {
        let text = "12 (a) S (b) R 7 12 12 0 -1 4194368 0 0 3 0 0 0 0 0 20 0 1 0 4711 0 0";
        let stat = parse_stat(text).unwrap();
        assert_eq!((stat.is_fork, stat.major_faults), (true, 3));
        assert_eq!(
            (stat.comm.as_str(), stat.state, stat.parent, stat.start_ticks),
            ("a) S (b", 'R', 7, 4711)
        );
        assert_eq!(parse_stat("12 (a"), None);
    }

    #[test]
    fn calls_that_read_and_write_are_counted_together() {
        let text = "rchar: 9\nwchar: 8\nsyscr: 5\nsyscw: 2\nread_bytes: 0\nwrite_bytes: 0\ncancelled_write_bytes: 0\n";
        assert_eq!(io_calls_in(text), Some(7));
        assert_eq!(io_calls_in("rchar: 9\nsyscr: 5\n"), None);
    }

    #[test]
    fn the_name_of_a_process_need_not_be_text() {
        // The kernel cuts names after 15 bytes, also in the middle of a character.
        let name = format!("{:015}é", std::process::id());
        let link = std::env::temp_dir().join(&name[1..]);
        std::os::unix::fs::symlink("/bin/cat", &link).unwrap();
        let mut child = Command::new(&link).stdin(Stdio::piped()).spawn().unwrap();
        let inner = status_value(child.id(), "NSpid");
        drop(child.stdin.take());
        child.wait().unwrap();
        fs::remove_file(&link).unwrap();
        assert_eq!(inner, Some(child.id().to_string()));
    }

    #[test]
    fn a_blocked_thread_rests_until_it_runs() {
        let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        let pid = child.id();
        let mut reader = ActivityReader::open(pid, pid).unwrap();
        if reader.schedstat.is_none() {
            slip_testkit::skip("resting threads", "this kernel has no schedstat");
            drop(child.stdin.take());
            child.wait().unwrap();
            return;
        }
        // It rests at last, when it waits for input.
        while !reader.is_resting(Duration::ZERO) {
            reader.read();
            std::thread::yield_now();
        }
        let mut stdin = child.stdin.take().unwrap();
        io::Write::write_all(&mut stdin, b"\n").unwrap();
        while reader.is_resting(Duration::ZERO) {
            std::thread::yield_now();
        }
        drop(stdin);
        child.wait().unwrap();
    }

    #[test]
    fn a_thread_that_has_waited_since_before_it_was_watched_rests_without_a_question() {
        let mut child = Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        let pid = child.id();
        let mut reader = ActivityReader::open(pid, pid).unwrap();
        // `read` of its input; it may be blocked elsewhere while it is started.
        let waits = |reader: &mut ActivityReader| {
            reader.read_place().is_some_and(|place| place.text.starts_with(b"0 0x0 "))
        };
        while reader.kind == ActivityFile::Syscall && !waits(&mut reader) {
            std::thread::yield_now();
        }
        reader.schedstat = None;
        reader.watch(pid);
        let mut stdin = child.stdin.take().unwrap();
        if reader.switches.is_none() || reader.kind != ActivityFile::Syscall {
            slip_testkit::skip(
                "threads that have never run",
                "this kernel notes no switches or shows no system calls",
            );
        } else {
            assert!(!reader.is_resting(Duration::ZERO), "it may have run before it was watched");
            assert!(waits(&mut reader));
            assert_eq!([(); 3].map(|()| reader.is_resting(Duration::ZERO)), [false, true, true]);
            io::Write::write_all(&mut stdin, b"\n").unwrap();
            while reader.is_resting(Duration::ZERO) {
                std::thread::yield_now();
            }
        }
        drop(stdin);
        child.wait().unwrap();
    }

    #[test]
    fn a_thread_that_waits_in_another_place_is_known_by_it() {
        let mut child = Command::new("python3");
        let text = "import socket, sys\ns = socket.create_server(('127.0.0.1', 0))\n\
                    sys.stdin.readline()\nprint(s.getsockname()[1], flush=True)\ns.accept()\nsys.stdin.readline()\n";
        let mut child =
            child.args(["-c", text]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (mut input, output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let mut reader = ActivityReader::open(child.id(), child.id()).unwrap();
        if reader.kind != ActivityFile::Syscall {
            slip_testkit::skip("places where threads wait", "this kernel does not show system calls");
        } else {
            let mut wait = |wanted: bool| loop {
                if let Some(place) = reader.read_place().filter(|place| place.is_accept() == wanted)
                    && reader.read_place() == Some(place)
                {
                    return place;
                }
                std::thread::yield_now();
            };
            let reads = wait(false);
            io::Write::write_all(&mut input, b"\n").unwrap();
            let mut port = String::new();
            io::BufRead::read_line(&mut io::BufReader::new(output), &mut port).unwrap();
            let accepts = wait(true);
            assert_ne!(reads, accepts);
            drop(std::net::TcpStream::connect(("127.0.0.1", port.trim().parse().unwrap())).unwrap());
            wait(false);
            assert_eq!(reader.last(), Activity::Blocked);
        }
        drop(input);
        child.wait().unwrap();
    }

    #[test]
    fn a_thread_that_is_said_to_rest_has_not_run() {
        let (count, stop) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
        let (tell, told) = std::sync::mpsc::channel();
        let (counts, stops) = (Arc::clone(&count), Arc::clone(&stop));
        let thread = std::thread::spawn(move || {
            tell.send(own_tid()).unwrap();
            while !stops.load(Ordering::Relaxed) {
                counts.fetch_add(1, Ordering::Relaxed);
            }
        });
        let mut reader = ActivityReader::open(std::process::id(), told.recv().unwrap()).unwrap();
        for _ in 0..30 {
            assert_eq!(reader.read(), Activity::Running);
            reader.is_resting(Duration::ZERO);
            let asked = Instant::now();
            let before = count.load(Ordering::Relaxed);
            // The interval that is asked about.
            std::thread::sleep(3 * tick().unwrap_or(Duration::from_millis(4)));
            let after = count.load(Ordering::Relaxed);
            // On a busy machine it may have waited for a CPU all the while.
            assert!(
                !reader.is_resting(asked.elapsed()) || before == after,
                "it ran from {before} to {after}"
            );
        }
        stop.store(true, Ordering::Relaxed);
        thread.join().unwrap();
    }

    #[test]
    fn children_are_those_of_the_process() {
        // More than fit into one read; they end with their input.
        let parent = "exec 3<&0; for n in $(seq 300); do cat <&3 >/dev/null & done; echo; wait";
        let mut parent = Command::new("sh")
            .args(["-c", parent])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = [0];
        io::Read::read_exact(parent.stdout.as_mut().unwrap(), &mut line).unwrap();
        let reader = ChildrenReader::open(parent.id());
        assert_eq!(reader.read().len(), 300);
        assert_eq!(reader.read(), children_of(parent.id()));
        drop(parent.stdin.take());
        parent.wait().unwrap();
        assert!(reader.read().is_empty());
    }

    #[test]
    fn this_process_is_described() {
        let pid = std::process::id();
        assert!(threads_of(pid).contains(&own_tid()));
        assert!(process_stat(pid).unwrap().start_ticks > 0);
        assert!(!command_line(pid).is_empty());
        assert_eq!(process_stat(u32::MAX), None);
    }
}
