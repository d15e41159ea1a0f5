//! What tests of budgets share: each injects a drag, has the program itself measure how long that took, and looks whether it is in the
//! part that names it.
#![allow(dead_code, reason = "each test binary uses a part of it")]
#![allow(clippy::unwrap_used, reason = "what fails here fails the test")]

pub(crate) mod cpu;
pub(crate) mod keeper;
pub(crate) mod php;
pub(crate) mod python;
pub(crate) mod servers;
pub(crate) mod stolen;

use std::env;
use std::fs::File;
use std::ops::Range;
use std::os::fd::AsRawFd as _;
use std::time::{Duration, Instant};

use slip_model::{Budget, Part, ServedRequest, Worker};
use slip_probe::ProbeError;
use slip_record::{Books, Rung};
/// Programs in the kernel see all processes; one test after the other keeps the machine's CPUs free for the clock to be right.
pub(crate) use slip_testkit::alone;
use slip_testkit::skip;

use self::keeper::Kept;

/// What a drag takes, so that it stands out of all else.
pub(crate) const DRAG: Duration = Duration::from_millis(15);

/// Longest wait for a server, or for a request to end. The machine may be busy with other tests.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// Requests of each kind.
pub(crate) const REQUESTS: u64 = 8;

/// The share of a drag that has to be in its part.
pub(crate) const SHARE: f64 = 0.9;

/// Parts in which a worker is blocked, or begins a connection.
const BLOCKED: [Part; 8] =
    [Part::Connect, Part::Wait, Part::Client, Part::Lock, Part::Gil, Part::Disk, Part::Sleep, Part::Other];

/// Names the rung for all tests, in a machine that is emulated: `bpf/tests/kernels`.
const RUNG: &str = "SLIP_TEST_RUNG";

/// So long do drags take that are not a script's own. There all else takes longer, too, and they have to stand out of it.
const DRAG_MS: &str = "SLIP_TEST_DRAG_MS";

/// How budgets are measured here: the tests of `budget_of_syscalls.rs` are those of the others.
pub(crate) fn rung() -> Rung {
    match env::var(RUNG) {
        Ok(name) => Rung::ALL.into_iter().find(|rung| rung.name() == name).unwrap(),
        Err(_) if env!("CARGO_CRATE_NAME") == "budget_of_syscalls" => Rung::Syscalls,
        Err(_) => Rung::Tracepoints,
    }
}

pub(crate) fn is_emulated() -> bool {
    env::var_os(RUNG).is_some()
}

/// Has the page cache lose a file, all of which is on its disk.
pub(crate) fn lose_from_cache(file: &File) {
    // SAFETY: the file is open; the call touches no memory of ours.
    let failed = unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) };
    assert_eq!(failed, 0);
}

/// What a drag takes that the test makes, not its script.
pub(crate) fn drag() -> Duration {
    env::var(DRAG_MS).map_or(DRAG, |text| Duration::from_millis(text.parse().unwrap()))
}

/// None where the kernel keeps no books.
pub(crate) fn books() -> Option<Books> {
    unless_refused(Books::start_at(rung(), true))
}

/// The same for processes alone.
pub(crate) fn kept() -> Option<Kept> {
    unless_refused(Kept::start())
}

fn unless_refused<T>(started: Result<T, ProbeError>) -> Option<T> {
    match started {
        Ok(books) => Some(books),
        Err(error @ (ProbeError::Denied(_) | ProbeError::NoTypes | ProbeError::Namespace)) => {
            skip("budgets by the kernel", &error.to_string());
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// The books, once so many requests have ended; they add up.
pub(crate) fn take(books: &mut Kept, count: u64) -> (Budget, Vec<ServedRequest>) {
    let (end, mut requests) = (Instant::now() + PATIENCE, Vec::new());
    let budget = loop {
        let (budget, more) = books.take();
        requests.extend(more);
        if requests.len() as u64 >= count {
            break budget;
        }
        assert!(Instant::now() < end, "{} of {count} requests: {budget:?}", requests.len());
    };
    assert_eq!((&*budget.rung, budget.lost_requests), (rung().name(), 0));
    for worker in &budget.workers {
        assert_eq!(total_ns(worker), worker.watched_ns, "{worker:?}");
    }
    for request in &requests {
        let parts_ns = request.serving.total_ns() + request.after.total_ns();
        assert!(parts_ns == 0 || parts_ns == request.end_ns - request.begin_ns, "{request:?}");
    }
    (budget, requests)
}

fn total_ns(worker: &Worker) -> u64 {
    worker.idle_ns + worker.between.total_ns() + worker.serving.total_ns() + worker.after.total_ns()
}

pub(crate) fn serving_ns(budget: &Budget, part: Part) -> u64 {
    budget.workers.iter().map(|worker| worker.serving.of(part)).sum()
}

/// Ready to run and without a CPU.
pub(crate) fn ready_ns(budget: &Budget) -> u64 {
    serving_ns(budget, Part::Wake) + serving_ns(budget, Part::Preempted)
}

/// Most of the drag is in what was found, which has little else.
#[track_caller]
pub(crate) fn assert_most(found_ns: u64, drag_ns: u64, what: &str) {
    assert_share(found_ns, drag_ns, SHARE..1.5, what);
}

/// So much of the drag is in what was found.
#[allow(clippy::print_stdout, reason = "for who runs the tests with `--nocapture` to see")]
#[track_caller]
pub(crate) fn assert_share(found_ns: u64, drag_ns: u64, bounds: Range<f64>, what: &str) {
    let share = found_ns as f64 / drag_ns as f64;
    println!("{what}: {:.1} % of {:.1} ms", 100.0 * share, drag_ns as f64 / 1e6);
    assert!(bounds.contains(&share), "{what}: {found_ns} ns of {drag_ns}, {share:.3}");
}

/// The same of a part in which the worker is blocked. After it, it may have to wait for a CPU, which its clock does not tell apart; on a
/// machine that is busy that takes longer than the drag.
#[track_caller]
pub(crate) fn assert_most_blocked(budget: &Budget, part: Part, drag_ns: u64, what: &str) {
    let (found_ns, ready_ns) = (serving_ns(budget, part), ready_ns(budget));
    let what =
        format!("{what}: {part:?} {:.1} ms, ready {:.1} ms", found_ns as f64 / 1e6, ready_ns as f64 / 1e6);
    let share = (found_ns + ready_ns) as f64 / drag_ns as f64;
    assert!(share >= SHARE, "{what}: {share:.3} of {drag_ns} ns: {budget:?}");
    let others = BLOCKED.iter().filter(|other| **other != part);
    let wrong_ns: u64 = others.map(|other| serving_ns(budget, *other)).sum();
    assert!(
        10 * found_ns > drag_ns && 2 * found_ns < 3 * drag_ns && 10 * wrong_ns < drag_ns,
        "{what} of {drag_ns} ns: {budget:?}"
    );
}
