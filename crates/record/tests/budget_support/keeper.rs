//! Books of one test's processes.

use std::sync::mpsc;
use std::thread;

use slip_model::{Budget, CommandTime, CpuTaker, EndpointCalls, Language, Lengths, ServedRequest, Worker};
use slip_probe::ProbeError;
use slip_record::Books;
use slip_testkit::shared;

use super::{is_emulated, rung};

/// Of the servers that one set of programs tells apart, so many may have been asked by other tests.
const SERVERS_BEFORE: usize = 8;

type Work = Box<dyn FnOnce(&mut Option<Books>) + Send>;

/// Books of processes of one test. An emulated machine takes seconds to load the programs that keep them. So there they go on from one test
/// to the next, and what they knew before is taken off.
pub(crate) struct Kept {
    pids: Vec<u32>,
    before: Budget,
}

impl Kept {
    /// Begins with no process.
    pub(crate) fn start() -> Result<Self, ProbeError> {
        let before = with(|books| {
            let mut before = Budget::default();
            if let Some(books) = books {
                before = books.take(0, 0)?.0;
            }
            if books.is_none() || servers(&before) > SERVERS_BEFORE {
                // One set at a time, so that none is measured by two.
                *books = None;
                *books = Some(Books::start_at(rung(), true)?);
                before = Budget::default();
            }
            Ok(before)
        })?;
        Ok(Self { pids: Vec::new(), before })
    }

    pub(crate) fn add(&mut self, pid: u32, language: Language, title: &'static str) {
        self.pids.push(pid);
        with(move |books| books.as_mut().unwrap().add(pid, language, title)).unwrap();
    }

    /// What is known by now, and the requests that have ended since the last call.
    pub(crate) fn take(&mut self) -> (Budget, Vec<ServedRequest>) {
        let (mut budget, mut requests) = with(|books| books.as_mut().unwrap().take(0, 0)).unwrap();
        requests.retain(|request| self.pids.contains(&budget.workers[request.worker as usize].pid));
        budget.workers.retain(|worker| self.pids.contains(&worker.pid));
        take_off(&mut budget, &self.before);
        (budget, requests)
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        let pids = std::mem::take(&mut self.pids);
        with(move |books| {
            if !is_emulated() {
                *books = None;
            }
            if let Some(books) = books {
                pids.into_iter().for_each(|pid| books.remove(pid));
            }
        });
    }
}

/// Has it done by the thread that has the books, which stay where they were made.
fn with<T: Send + 'static>(work: impl FnOnce(&mut Option<Books>) -> T + Send + 'static) -> T {
    let keeper = shared(|| {
        let (sender, receiver) = mpsc::channel::<Work>();
        thread::spawn(move || {
            let mut books = None;
            for work in receiver {
                work(&mut books);
            }
        });
        sender
    });
    let (sender, receiver) = mpsc::channel();
    keeper.send(Box::new(move |books| sender.send(work(books)).unwrap())).unwrap();
    receiver.recv().unwrap()
}

fn servers(budget: &Budget) -> usize {
    budget.endpoints.iter().filter(|endpoint| !endpoint.address.is_empty()).count()
}

/// What was known before.
fn take_off(budget: &mut Budget, before: &Budget) {
    for worker in &mut budget.workers {
        let is_same = |earlier: &&Worker| (earlier.pid, earlier.tid) == (worker.pid, worker.tid);
        if let Some(earlier) = before.workers.iter().find(is_same) {
            take_off_worker(worker, earlier);
        }
    }
    budget.workers.retain(|worker| worker.watched_ns > 0);
    for calls in &mut budget.calls {
        if let Some(earlier) = before.calls.iter().find(|earlier| earlier.endpoint == calls.endpoint) {
            calls.calls -= earlier.calls;
            for (part, earlier) in calls.parts.iter_mut().zip(&earlier.parts) {
                take_off_lengths(part, earlier);
            }
        }
    }
    let has_calls = |calls: &EndpointCalls| calls.calls > 0 || calls.parts.iter().any(|part| part.ns > 0);
    budget.calls.retain(has_calls);
    for command in &mut budget.commands {
        let is_same =
            |earlier: &&CommandTime| (earlier.endpoint, &earlier.name) == (command.endpoint, &command.name);
        if let Some(earlier) = before.commands.iter().find(is_same) {
            command.calls -= earlier.calls;
            command.ns -= earlier.ns;
        }
    }
    budget.commands.retain(|command| command.calls > 0);
    for taker in &mut budget.takers {
        let is_same =
            |earlier: &&CpuTaker| (&earlier.name, earlier.is_worker) == (&taker.name, taker.is_worker);
        if let Some(earlier) = before.takers.iter().find(is_same) {
            taker.ns -= earlier.ns;
            take_off_lengths(&mut taker.lengths, &earlier.lengths);
            taker.preferred_ns -= earlier.preferred_ns;
        }
    }
    budget.takers.retain(|taker| taker.ns > 0);
    budget.takers.sort_by_key(|taker| std::cmp::Reverse(taker.ns));
    if let Some(periods) = &mut budget.quota_periods {
        *periods -= before.quota_periods.unwrap_or_default();
    }
    budget.throttled_periods -= before.throttled_periods;
    budget.throttled_ns -= before.throttled_ns;
    budget.cpus_ns -= before.cpus_ns;
    budget.steal_ns -= before.steal_ns;
}

fn take_off_lengths(lengths: &mut Lengths, before: &Lengths) {
    lengths.ns -= before.ns;
    lengths.buckets.iter_mut().zip(&before.buckets).for_each(|(count, before)| *count -= before);
}

fn take_off_worker(worker: &mut Worker, before: &Worker) {
    worker.watched_ns -= before.watched_ns;
    worker.idle_ns -= before.idle_ns;
    worker.shared_ns -= before.shared_ns;
    worker.loop_blocked_ns -= before.loop_blocked_ns;
    worker.faults -= before.faults;
    worker.memory_calls -= before.memory_calls;
    let parts = [
        (&mut worker.between, &before.between),
        (&mut worker.serving, &before.serving),
        (&mut worker.after, &before.after),
    ];
    for (parts, before) in parts {
        parts.0.iter_mut().zip(before.0).for_each(|(ns, before)| *ns -= before);
    }
    for time in &mut worker.endpoints {
        if let Some(earlier) = before.endpoints.iter().find(|earlier| earlier.endpoint == time.endpoint) {
            time.connects -= earlier.connects;
            time.calls -= earlier.calls;
            time.connect_ns -= earlier.connect_ns;
            time.transfer_ns -= earlier.transfer_ns;
            time.wait_ns -= earlier.wait_ns;
            time.wake_ns -= earlier.wake_ns;
        }
    }
    worker.endpoints.retain(|time| time.calls + time.connects + time.wait_ns > 0);
}
