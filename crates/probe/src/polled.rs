//! Measures where the time of workers goes without the kernel's help: looks at `/proc`, some hundred times a second.
//!
//! The scheduler counts a thread's time on a CPU and without one by itself (`schedstat`), and that is exact. What it was blocked by is
//! taken from looks: its system call (`syscall`), the files that it waits for, and whose sockets these are.

mod account;
pub(crate) mod call;
pub(crate) mod socket;

use std::collections::{HashMap, HashSet};
use std::fs::{self, File};
use std::io::Read as _;
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use slip_model::{CpuTaker, Endpoint, Part};
use slip_remote::{
    LiveProcess, Memory as _, Range, RemoteAddr, SocketReader, are_getting_scarce, threads_of,
};

use self::account::{Account, Counted, Found, Look};
use self::call::{Awaits, Doing};
use self::socket::{Endpoints, Side, Sockets};
use crate::ProbeError;
use crate::budget::{BudgetEvent, BudgetTarget, ServedTimes, ThreadTimes};
use crate::rung::{BudgetSource, Rung};

/// Time between two looks. No round number, so that they do not keep in step with what a target does at each tick of a clock.
const LOOK_INTERVAL: Duration = Duration::from_micros(4_900);

/// Threads that come are looked for this often. Those that go tell it themselves.
const LIST_INTERVAL_NS: u64 = 100_000_000;

/// What is known of an epoll file with which a server waits holds for so long: its list may have a line for each connection.
const EPOLL_NS: u64 = 1_000_000_000;

/// Most files that are looked at of a thread that waits for several; of an epoll file more, as a server has its connections there.
const MAX_POLLED: u64 = 64;
const MAX_SELECTED: u64 = 1_024;
const MAX_REGISTERED: usize = 1_024;

/// Longest list of an epoll file that is read.
const MAX_FDINFO_BYTES: u64 = 128 << 10;

/// Three numbers of 20 digits, and blanks.
const SCHEDSTAT_BYTES: usize = 64;

/// The number of a system call, six arguments and two addresses.
const SYSCALL_BYTES: usize = 192;

/// Keeps books by looks, in a thread of its own.
#[derive(Debug)]
pub struct PolledBudget {
    books: Arc<Mutex<Books>>,
    stops: Arc<AtomicBool>,
    looks: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Books {
    processes: Vec<Process>,
    surroundings: Surroundings,
    events: Vec<BudgetEvent>,
    /// Threads for which there were no files left.
    lost: u64,
}

/// What is known of servers, for all processes.
#[derive(Debug, Default)]
struct Surroundings {
    /// By the link that names the network namespace.
    networks: HashMap<PathBuf, Sockets>,
    endpoints: Endpoints,
}

#[derive(Debug)]
struct Process {
    pid: u32,
    target: BudgetTarget,
    memory: Option<LiveProcess>,
    sockets: Option<SocketReader>,
    network: PathBuf,
    threads: Vec<Thread>,
    /// There were no files for them.
    unseen: HashSet<u32>,
    next_list_ns: u64,
    /// Epoll files with which it waits for requests, and until when that is believed.
    epolls: HashMap<u32, u64>,
}

#[derive(Debug)]
struct Thread {
    tid: u32,
    schedstat: File,
    syscall: File,
    account: Account,
    /// What was found at the last look, if it holds as long as the thread does not run.
    lasting: Option<(Counted, Found, u64)>,
}

impl PolledBudget {
    /// Begins to look, at no process yet.
    ///
    /// # Errors
    ///
    /// [`ProbeError::Other`] if this kernel does not show what has to be looked at.
    pub fn start() -> Result<Self, ProbeError> {
        for (file, what) in
            [("schedstat", "how long threads have a CPU"), ("syscall", "in which system call threads are")]
        {
            if fs::read(format!("/proc/thread-self/{file}")).is_ok_and(|bytes| !bytes.is_empty()) {
                continue;
            }
            return Err(ProbeError::Other(format!("this kernel does not tell {what} (/proc/PID/{file})")));
        }
        let (books, stops) = (Arc::new(Mutex::new(Books::default())), Arc::new(AtomicBool::new(false)));
        let (looked_at, is_over) = (Arc::clone(&books), Arc::clone(&stops));
        let looks = move || {
            while !is_over.load(Ordering::Relaxed) {
                lock(&looked_at).look();
                thread::sleep(LOOK_INTERVAL);
            }
        };
        let looks = thread::Builder::new().name("slip budget".to_owned()).spawn(looks);
        let looks = looks.map_err(|error| ProbeError::Other(error.to_string()))?;
        Ok(Self { books, stops, looks: Some(looks) })
    }
}

fn lock(books: &Mutex<Books>) -> MutexGuard<'_, Books> {
    // Sums that lack a look are as good as others.
    books.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Drop for PolledBudget {
    fn drop(&mut self) {
        self.stop();
    }
}

impl BudgetSource for PolledBudget {
    fn rung(&self) -> Rung {
        Rung::Proc
    }

    fn cannot_see(&self) -> Vec<String> {
        [
            "threads are looked at 200 times a second: what they were blocked by in between is taken from that; only \
             time on a CPU and time ready for one are exact",
            "requests are seen by these looks: of those shorter than 5 ms most are missed, begins and ends are some ms \
             off, and those of Python without a pause between them are one",
            "how long a request was queued, and what was done after its response",
            "what of a CPU's time went to memory, to the start of the interpreter or to sending: it counts as code",
            "how often servers were called and connected to, and what they speak",
            "who had the CPU when workers were ready",
            "an event loop that waits for servers as well as for clients counts as idle",
            "threads that others hand requests to, as with gunicorn's --threads, are left out",
        ]
        .map(str::to_owned)
        .into()
    }

    fn watch(&mut self, pid: u32, target: BudgetTarget) -> Result<(), ProbeError> {
        let process = Process::open(pid, target);
        let mut books = lock(&self.books);
        books.forget(pid);
        books.processes.push(process);
        Ok(())
    }

    fn forget(&mut self, pid: u32) {
        lock(&self.books).forget(pid);
    }

    fn take(&mut self) -> Result<Vec<BudgetEvent>, ProbeError> {
        Ok(std::mem::take(&mut lock(&self.books).events))
    }

    fn threads(&self) -> Result<Vec<ThreadTimes>, ProbeError> {
        let books = lock(&self.books);
        let threads = books.processes.iter().flat_map(|process| &process.threads);
        Ok(threads.map(|thread| thread.account.times()).collect())
    }

    fn endpoints(&self) -> Result<Vec<Endpoint>, ProbeError> {
        Ok(lock(&self.books).surroundings.endpoints.list())
    }

    fn takers(&self) -> Result<Vec<CpuTaker>, ProbeError> {
        Ok(Vec::new())
    }

    fn lost(&self) -> u64 {
        lock(&self.books).lost
    }

    fn stop(&mut self) {
        self.stops.store(true, Ordering::Relaxed);
        if let Some(looks) = self.looks.take() {
            // One that has panicked looks no more either.
            let _ = looks.join();
        }
    }
}

impl Books {
    /// Looks at all threads once.
    fn look(&mut self) {
        let Self { processes, surroundings, events, lost } = self;
        for process in processes {
            process.list(lost);
            process.look(surroundings, events);
        }
    }

    fn forget(&mut self, pid: u32) {
        for process in self.processes.extract_if(.., |process| process.pid == pid) {
            self.events.extend(process.threads.iter().map(Thread::ended));
        }
    }
}

impl Process {
    fn open(pid: u32, target: BudgetTarget) -> Self {
        Self {
            pid,
            target,
            memory: LiveProcess::open(pid).ok(),
            sockets: SocketReader::open(pid).ok(),
            network: fs::read_link(format!("/proc/{pid}/ns/net")).unwrap_or_default(),
            threads: Vec::new(),
            unseen: HashSet::new(),
            next_list_ns: 0,
            epolls: HashMap::new(),
        }
    }

    /// Looks for threads that have come.
    fn list(&mut self, lost: &mut u64) {
        let now_ns = monotonic_ns();
        if now_ns < self.next_list_ns {
            return;
        }
        self.next_list_ns = now_ns + LIST_INTERVAL_NS;
        for tid in threads_of(self.pid) {
            if self.threads.iter().any(|thread| thread.tid == tid) || self.unseen.contains(&tid) {
                continue;
            }
            // Of PHP it is known that its main thread does nothing but serve.
            let is_worker = self.target.in_request.is_some() && tid == self.pid;
            match Thread::open(self.pid, tid, is_worker) {
                Some(thread) => self.threads.push(thread),
                None => {
                    self.unseen.insert(tid);
                    *lost += 1;
                }
            }
        }
    }

    fn look(&mut self, surroundings: &mut Surroundings, events: &mut Vec<BudgetEvent>) {
        let mut threads = std::mem::take(&mut self.threads);
        threads.retain_mut(|thread| match thread.look(self, surroundings) {
            Some(served) => {
                events.extend(served.into_iter().map(|served| BudgetEvent::Served(Box::new(served))));
                true
            }
            None => {
                events.push(thread.ended());
                false
            }
        });
        self.threads = threads;
    }

    /// What a thread is found in, in which request, and whether that stays so as long as it does not run.
    fn find(&mut self, doing: Doing, now_ns: u64, surroundings: &mut Surroundings) -> (Found, u64, bool) {
        let says = self.says_of_request();
        let (found, lasts) = match says {
            Some((false, _)) if doing != Doing::Runs => (Found::Idle, true),
            _ => self.find_in(doing, now_ns, surroundings),
        };
        match says {
            // It may wait for connections of its own.
            Some((true, request)) => (if found == Found::Idle { OTHER } else { found }, request, lasts),
            Some((false, request)) => (found, request, lasts),
            None => (found, 0, lasts),
        }
    }

    fn find_in(&mut self, doing: Doing, now_ns: u64, surroundings: &mut Surroundings) -> (Found, bool) {
        let (number, arguments) = match doing {
            Doing::Runs => return (Found::Runs, false),
            // Other pages are there at once.
            Doing::Faults => return (Found::Blocked(Part::Disk, None), true),
            Doing::Calls(number, arguments) => (number, arguments),
        };
        let files = match call::awaits(number, arguments) {
            Awaits::Part(part) => return (Found::Blocked(part, None), true),
            Awaits::Connection => return (Found::Idle, true),
            Awaits::Futex(at) => {
                let is_gil = self.target.runtime.is_some_and(|(begin, end)| (begin..end).contains(&at));
                return (Found::Blocked(if is_gil { Part::Gil } else { Part::Lock }, None), true);
            }
            Awaits::Connected(file) => {
                let side = self.side(file, now_ns, surroundings);
                let (Side::Outbound(endpoint) | Side::Connects(endpoint)) = side.unwrap_or(Side::Unknown)
                else {
                    return (Found::Blocked(Part::Connect, None), side != Some(Side::Unknown));
                };
                return (Found::Blocked(Part::Connect, endpoint), true);
            }
            Awaits::File(file) => vec![file],
            Awaits::Poll(_, 0) => return (Found::Blocked(Part::Sleep, None), true),
            Awaits::Poll(at, count) => {
                let bytes = self.read_some(at, count.min(MAX_POLLED) * 8);
                call::polled(&bytes).collect()
            }
            Awaits::Select(0, _) => return (Found::Blocked(Part::Sleep, None), true),
            Awaits::Select(count, sets) => {
                let len = count.min(MAX_SELECTED).div_ceil(64) * 8;
                let sets = sets.map(|at| if at == 0 { Vec::new() } else { self.read_some(at, len) });
                sets.iter().flat_map(|bytes| call::selected(bytes)).collect()
            }
            Awaits::Epoll(file) => {
                if self.epolls.get(&file).is_some_and(|until_ns| now_ns < *until_ns) {
                    return (Found::Idle, true);
                }
                let (found, lasts) = self.find_at(&self.registered(file), now_ns, surroundings);
                if found == Found::Idle {
                    self.epolls.insert(file, now_ns + EPOLL_NS);
                }
                return (found, lasts);
            }
        };
        self.find_at(&files, now_ns, surroundings)
    }

    /// What a thread is found in that waits for something of these files.
    fn find_at(&self, files: &[u32], now_ns: u64, surroundings: &mut Surroundings) -> (Found, bool) {
        let mut sides = Vec::new();
        for file in files {
            match self.side(*file, now_ns, surroundings) {
                Some(Side::Listens) => return (Found::Idle, true),
                Some(side) => sides.push(side),
                None if files.len() == 1 => return (Found::Blocked(Part::Disk, None), true),
                None => {}
            }
        }
        let lasts = !sides.contains(&Side::Unknown);
        (of_sides(&sides), lasts)
    }

    /// What a file is that a thread waits for; `None` for one of a file system.
    fn side(&self, file: u32, now_ns: u64, surroundings: &mut Surroundings) -> Option<Side> {
        let link = fs::read_link(format!("/proc/{}/fd/{file}", self.pid)).unwrap_or_default();
        // Names that are no text are of file systems.
        let link = link.to_str().unwrap_or("/");
        let Some(inode) = link.strip_prefix("socket:[").and_then(|rest| rest.strip_suffix(']')?.parse().ok())
        else {
            // Terminals and the like.
            let is_device = link.starts_with("/dev/") && !link.starts_with("/dev/shm/");
            return (is_device || !link.starts_with('/')).then_some(Side::Neither);
        };
        let Surroundings { networks, endpoints } = surroundings;
        let sockets = networks.entry(self.network.clone()).or_insert_with(|| Sockets::of(self.pid, now_ns));
        Some(sockets.side((self.pid, self.sockets.as_ref()), (file, inode), now_ns, endpoints))
    }

    fn registered(&self, file: u32) -> Vec<u32> {
        let mut bytes = Vec::new();
        if let Ok(list) = File::open(format!("/proc/{}/fdinfo/{file}", self.pid)) {
            // As much of it as there is.
            let _ = list.take(MAX_FDINFO_BYTES).read_to_end(&mut bytes);
        }
        call::registered(&String::from_utf8_lossy(&bytes)).take(MAX_REGISTERED).collect()
    }

    /// What PHP says itself: whether it is in a request, and in which. `None` of another program.
    fn says_of_request(&self) -> Option<(bool, u64)> {
        let [byte, pointer, number] = self.target.in_request?.map(RemoteAddr);
        let ranges = [Range::new(byte, 1), Range::new(pointer, 8), Range::new(number, 8)];
        let mut bytes = [0; 17];
        let copied = self.memory.as_ref()?.read_ranges(&ranges, &mut bytes).ok()?;
        let (marks, number) = bytes.split_first_chunk::<9>()?;
        let is_in_request = *marks != [0; 9];
        (copied == ranges.len()).then_some((is_in_request, u64::from_le_bytes(*number.first_chunk()?)))
    }

    /// Nothing if it cannot be read.
    fn read_some(&self, at: u64, len: u64) -> Vec<u8> {
        let mut bytes = vec![0; usize::try_from(len).unwrap_or_default()];
        let read = self.memory.as_ref().map(|memory| memory.read(RemoteAddr(at), &mut bytes));
        if read.is_some_and(|read| read.is_ok()) { bytes } else { Vec::new() }
    }
}

const OTHER: Found = Found::Blocked(Part::Other, None);

/// What a thread is found in that waits for something of sockets and pipes, of which nobody listens.
fn of_sides(sides: &[Side]) -> Found {
    let has_client = sides.contains(&Side::Inbound);
    let server = sides.iter().find_map(|side| match side {
        Side::Outbound(endpoint) => Some(Found::Blocked(Part::Wait, *endpoint)),
        Side::Connects(endpoint) => Some(Found::Blocked(Part::Connect, *endpoint)),
        _ => None,
    });
    match (has_client, server) {
        // One at a time waits for its client; who has several waits for what they ask next.
        (true, None) if sides.len() == 1 => Found::Blocked(Part::Client, None),
        (true, _) => Found::Idle,
        (false, Some(found)) => found,
        (false, None) => OTHER,
    }
}

impl Thread {
    /// `None` if we have too many files open.
    fn open(pid: u32, tid: u32, is_worker: bool) -> Option<Self> {
        let open = |file: &str| File::open(format!("/proc/{pid}/task/{tid}/{file}")).ok();
        let (schedstat, syscall) = (open("schedstat")?, open("syscall")?);
        let account = Account::new(pid, tid, is_worker);
        (!are_getting_scarce(&syscall)).then_some(Self { tid, schedstat, syscall, account, lasting: None })
    }

    /// Looks at it once; requests that have ended meanwhile. `None` if the thread has ended.
    fn look(&mut self, process: &mut Process, surroundings: &mut Surroundings) -> Option<Vec<ServedTimes>> {
        let now_ns = monotonic_ns();
        let counted = self.counted()?;
        let (found, request) = match self.lasting {
            Some((before, found, request)) if before == counted => (found, request),
            _ => {
                let doing = self.doing().unwrap_or(Doing::Runs);
                let (found, request, lasts) = process.find(doing, now_ns, surroundings);
                // What was read belongs together if it has not run meanwhile.
                let is_whole = self.counted()? == counted;
                self.lasting = (is_whole && lasts).then_some((counted, found, request));
                (if is_whole { found } else { Found::Runs }, request)
            }
        };
        Some(self.account.see(Look { now_ns, counted, found, request }))
    }

    fn counted(&self) -> Option<Counted> {
        let mut bytes = [0; SCHEDSTAT_BYTES];
        let len = self.schedstat.read_at(&mut bytes, 0).ok()?;
        parse_schedstat(std::str::from_utf8(&bytes[..len]).ok()?)
    }

    fn doing(&self) -> Option<Doing> {
        let mut bytes = [0; SYSCALL_BYTES];
        let len = self.syscall.read_at(&mut bytes, 0).ok()?;
        call::parse(std::str::from_utf8(&bytes[..len]).ok()?)
    }

    fn ended(&self) -> BudgetEvent {
        BudgetEvent::ThreadEnded(Box::new(self.account.times()))
    }
}

/// On a CPU, ready for one, and how often it was given one.
fn parse_schedstat(text: &str) -> Option<Counted> {
    let mut numbers = text.split_ascii_whitespace().map(|word| word.parse().ok());
    Some(Counted { ran_ns: numbers.next()??, ready_ns: numbers.next()??, turns: numbers.next()?? })
}

/// The books of a thread after some looks: [`crate::foreign::books`].
pub(crate) fn books_of<'a>(
    is_worker: bool,
    looks: impl IntoIterator<Item = (u32, &'a str, u8, u64)>,
) -> ThreadTimes {
    let (mut account, mut now_ns) = (Account::new(1, 1, is_worker), 0);
    for (later_ns, schedstat, found, request) in looks {
        let Some(counted) = parse_schedstat(schedstat) else { continue };
        now_ns += u64::from(later_ns);
        let found = match found {
            0 => Found::Runs,
            1 => Found::Idle,
            endpoint => Found::Blocked(Part::Wait, Some(endpoint.into())),
        };
        account.see(Look { now_ns, counted, found, request });
    }
    account.times()
}

/// Nanoseconds of `CLOCK_MONOTONIC`.
fn monotonic_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` outlives the call, which writes it whole. This clock exists on every Linux.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    time.tv_sec.cast_unsigned() * 1_000_000_000 + time.tv_nsec.cast_unsigned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_scheduler_counts_is_understood() {
        let counted = Counted { ran_ns: 64_426, ready_ns: 5, turns: 1 };
        assert_eq!(parse_schedstat("64426 5 1\n"), Some(counted));
        for text in ["", "1 2", "1 2 x"] {
            assert_eq!(parse_schedstat(text), None, "{text}");
        }
    }

    #[test]
    fn who_waits_for_several_things_waits_for_requests_or_for_servers() {
        let (client, server) = (Side::Inbound, Side::Outbound(Some(3)));
        assert_eq!(of_sides(&[client]), Found::Blocked(Part::Client, None));
        assert_eq!(of_sides(&[client, Side::Neither]), Found::Idle);
        assert_eq!(of_sides(&[client, server]), Found::Idle);
        assert_eq!(of_sides(&[Side::Neither, server]), Found::Blocked(Part::Wait, Some(3)));
        assert_eq!(of_sides(&[Side::Connects(None)]), Found::Blocked(Part::Connect, None));
        assert_eq!([of_sides(&[Side::Unknown]), of_sides(&[])], [OTHER; 2]);
    }

    #[test]
    fn limits_fit_into_a_line() {
        let source = PolledBudget::start();
        let Ok(source) = source else { return };
        assert!(source.cannot_see().iter().all(|limit| limit.len() <= 200));
    }
}
