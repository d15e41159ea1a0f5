//! Threads with numbers of their own, and what has a begin and an end: requests and waits.

use std::collections::{HashMap, HashSet};

use slip_model::{Part, Process, Recording, Request, ServedRequest, State, StringId, Wait, Worker};

use crate::fold::{self, Key};
use crate::piece::{self, Piece};
use crate::text::clean;

/// From here on Linux numbers no process and no thread (its largest `kernel.pid_max`).
const FIRST_FREE_ID: u32 = 1 << 22;

/// A thread of the recording, or a worker of its budget that no sample saw.
#[derive(Debug)]
pub(crate) struct Track {
    /// Index into [`Recording::threads`].
    pub(crate) thread: Option<usize>,
    /// What the process is called.
    pub(crate) process: String,
    /// What the thread is called.
    pub(crate) name: String,
    /// Number of the process, if no other process of the recording had it; else one that Linux does not give.
    pub(crate) pid: u32,
    /// The same of the thread.
    pub(crate) tid: u32,
    /// First of its process.
    pub(crate) is_first: bool,
    /// The main thread of its process, or the first one if that is not there.
    pub(crate) is_main: bool,
    /// First sight of the process, nanoseconds since the begin of the recording.
    pub(crate) first_ns: u64,
    /// End of the process, if it was seen.
    pub(crate) ended_ns: Option<u64>,
}

/// Something of a thread that has a begin and an end, nanoseconds since the begin of the recording.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Span<'a> {
    /// Index of the track.
    pub(crate) track: usize,
    pub(crate) start_ns: u64,
    /// Not before `start_ns`.
    pub(crate) end_ns: u64,
    pub(crate) what: What<'a>,
}

/// What a span is.
#[derive(Clone, Copy, Debug)]
pub(crate) enum What<'a> {
    /// A request whose time was measured.
    Served(&'a ServedRequest),
    /// A request that samples saw.
    Seen(&'a Request),
    /// Waits that were stored together: as long as they took, up to when they were added up.
    Waits(&'a Wait, Key),
}

/// The names of [`Part::ALL`] as keys.
pub(crate) const PARTS: [&str; Part::ALL.len()] = [
    "code",
    "boot",
    "memory",
    "connect",
    "transfer",
    "wait",
    "client",
    "wake",
    "preempted",
    "lock",
    "gil",
    "disk",
    "sleep",
    "other",
];

/// All threads, then the workers that are none of them; processes in the order of their first thread.
pub(crate) fn tracks(recording: &Recording) -> Vec<Track> {
    let alone = fold::alone(recording);
    let mut numbers = [Numbers::new(), Numbers::new()];
    let mut pids: HashMap<Group, u32> = HashMap::new();
    let mut tracks: Vec<Track> = Vec::new();
    let mut add = |group: Group, process: Option<&Process>, pid, tid, title: String, name, thread| {
        let [of_processes, of_threads] = &mut numbers;
        let is_first = !pids.contains_key(&group);
        let pid = *pids.entry(group).or_insert_with(|| of_processes.number(pid));
        tracks.push(Track {
            thread,
            process: clean(&title).into_owned(),
            name,
            pid,
            tid: of_threads.number(tid),
            is_first,
            is_main: false,
            first_ns: process.map_or(0, |process| process.first_ns),
            ended_ns: process.map(|process| process.ended_ns).filter(|ns| *ns != 0),
        });
    };
    for (number, (thread, alone)) in recording.threads.iter().zip(alone).enumerate() {
        let process = recording.processes.get(thread.process.0 as usize);
        let title = fold::process_label(recording, thread);
        let name = fold::thread_label(recording, thread, alone);
        let name = clean(name.as_deref().unwrap_or(&title)).into_owned();
        let pid = process.map_or(0, |process| process.pid);
        add(Group::Process(thread.process.0), process, pid, thread.tid, title, name, Some(number));
    }
    for worker in unseen_workers(recording) {
        let process = (0_u32..).zip(&recording.processes).find(|(_, process)| process.pid == worker.pid);
        let group = process.map_or(Group::Worker(worker.pid), |(number, _)| Group::Process(number));
        let title = if worker.title.is_empty() { "[unnamed]".to_owned() } else { worker.title.clone() };
        let is_main = worker.tid == worker.pid;
        let name = if is_main { clean(&title).into_owned() } else { format!("thread {}", worker.tid) };
        add(group, process.map(|(_, process)| process), worker.pid, worker.tid, title, name, None);
    }
    let mut main_of: HashMap<u32, usize> = HashMap::new();
    for (number, track) in tracks.iter().enumerate() {
        if track.is_first || track.tid == track.pid {
            main_of.insert(track.pid, number);
        }
    }
    for number in main_of.into_values() {
        tracks[number].is_main = true;
    }
    tracks
}

/// Whose process it is.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Group {
    /// Index into [`Recording::processes`].
    Process(u32),
    /// Number of a process that is not there.
    Worker(u32),
}

/// Numbers of processes and threads that come twice: those that came back, and threads of several interpreters.
struct Numbers {
    taken: HashSet<u32>,
    next: u32,
}

impl Numbers {
    fn new() -> Self {
        Self { taken: HashSet::new(), next: FIRST_FREE_ID }
    }

    /// `wish`, if it is free.
    fn number(&mut self, wish: u32) -> u32 {
        let mut number = wish;
        while !self.taken.insert(number) {
            number = self.next;
            self.next = self.next.wrapping_add(1);
        }
        number
    }
}

/// Of workers with requests those that are no thread of the recording, each once.
fn unseen_workers(recording: &Recording) -> Vec<&Worker> {
    let Some(budget) = &recording.budget else { return Vec::new() };
    let mut known: HashSet<(u32, u32)> = ids_of_threads(recording).collect();
    let serves: HashSet<u32> = budget.requests.iter().map(|request| request.worker).collect();
    let workers = (0_u32..).zip(&budget.workers).filter(|(number, _)| serves.contains(number));
    workers.map(|(_, worker)| worker).filter(|worker| known.insert((worker.pid, worker.tid))).collect()
}

/// Numbers of process and thread.
fn ids_of_threads(recording: &Recording) -> impl Iterator<Item = (u32, u32)> + '_ {
    recording.threads.iter().map(|thread| {
        let pid = recording.processes.get(thread.process.0 as usize).map_or(0, |process| process.pid);
        (pid, thread.tid)
    })
}

/// All requests and waits, by track, then by begin. Requests are those of the budget if there is one. `tracks` is of [`tracks`].
pub(crate) fn spans<'a>(recording: &'a Recording, tracks: &[Track], include_idle: bool) -> Vec<Span<'a>> {
    let mut spans = Vec::new();
    let mut add = |track: usize, start_ns: u64, end_ns: u64, what| {
        spans.push(Span { track, start_ns, end_ns: end_ns.max(start_ns), what });
    };
    if let Some(budget) = &recording.budget {
        let mut track_of: HashMap<(u32, u32), usize> = HashMap::new();
        let of_workers = unseen_workers(recording).into_iter().map(|worker| (worker.pid, worker.tid));
        for (track, ids) in ids_of_threads(recording).chain(of_workers).enumerate() {
            track_of.entry(ids).or_insert(track);
        }
        for request in &budget.requests {
            let worker = budget.workers.get(request.worker as usize);
            let track = worker.and_then(|worker| track_of.get(&(worker.pid, worker.tid)));
            if let Some(track) = track {
                add(*track, request.begin_ns, request.end_ns, What::Served(request));
            }
        }
    } else {
        let mut track_of: HashMap<u32, usize> = HashMap::new();
        for (track, thread) in recording.threads.iter().enumerate() {
            if tracks[track].is_main {
                track_of.insert(thread.process.0, track);
            }
        }
        for request in &recording.requests {
            if let Some(track) = track_of.get(&request.process.0) {
                // As durations of requests elsewhere: an interval more than between the first and the last sample.
                let end_ns = request.last_ns.saturating_add(recording.info.interval_ns);
                add(*track, request.first_ns, end_ns, What::Seen(request));
            }
        }
    }
    for wait in &recording.waits {
        let track = wait.thread.0 as usize;
        if track < recording.threads.len()
            && let Some(key) = Key::of(&Piece::of_waits(wait), include_idle)
        {
            add(track, wait.time_ns.saturating_sub(wait.total_ns), wait.time_ns, What::Waits(wait, key));
        }
    }
    debug_assert!(spans.iter().all(|span| span.track < tracks.len()));
    spans.sort_by_key(|span| (span.track, span.start_ns, span.end_ns));
    spans
}

/// Method and path of a request, or its script; with harmless characters alone.
pub(crate) fn request_text(recording: &Recording, request: &Request) -> String {
    let path = if request.uri == StringId::default() { request.script } else { request.uri };
    let text = format!("{} {}", recording.interner.text(request.method), recording.interner.text(path));
    match text.trim() {
        "" => "[unnamed]".into(),
        text => clean(text).into_owned(),
    }
}

/// What waits are called.
pub(crate) fn wait_name(wait: &Wait) -> &'static str {
    if wait.state.has(State::IDLE) { "[idle]" } else { piece::marker(wait.reason) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::support::{Builder, both_languages, samples_and_waits};
    use slip_model::{Budget, Language};

    #[test]
    fn numbers_that_come_twice_are_told_apart() {
        let mut b = Builder::new("");
        let first = b.process(Language::Python, "3.13", 7, "a");
        let second = b.process(Language::Python, "3.13", 7, "b");
        for (process, tid, interpreter) in [(first, 7, 0), (first, 7, 1), (second, 7, 0)] {
            b.thread(process, tid, interpreter, "");
        }
        let tracks = tracks(&b.finish());
        let ids: Vec<_> = tracks.iter().map(|track| (track.pid, track.tid, track.is_first)).collect();
        let free = FIRST_FREE_ID;
        assert_eq!(ids, [(7, 7, true), (7, free, false), (free, free + 1, true)]);
    }

    #[test]
    fn the_main_thread_is_the_one_with_the_number_of_its_process() {
        let mut b = Builder::new("");
        let (first, second) = ((7, [8, 7]), (9, [10, 11]));
        for (pid, tids) in [first, second] {
            let process = b.process(Language::Python, "3.13", pid, "");
            for tid in tids {
                b.thread(process, tid, 0, "");
            }
        }
        let tracks = tracks(&b.finish());
        assert_eq!(tracks.iter().map(|track| track.is_first).collect::<Vec<_>>(), [true, false, true, false]);
        assert_eq!(tracks.iter().map(|track| track.is_main).collect::<Vec<_>>(), [false, true, true, false]);
    }

    #[test]
    fn requests_of_a_budget_are_of_the_thread_of_their_worker_or_of_a_track_of_its_own() {
        let mut recording = both_languages();
        let worker = |pid, title: &str| Worker { pid, tid: pid, title: title.into(), ..Worker::default() };
        let request = |worker, begin_ns| ServedRequest {
            worker,
            begin_ns,
            end_ns: begin_ns + 5,
            ..ServedRequest::default()
        };
        recording.budget = Some(Budget {
            workers: vec![worker(1_002, "known"), worker(9, "un\x1bseen"), worker(10, "without requests")],
            requests: vec![request(0, 40), request(1, 30), request(0, 20), request(99, 10)],
            ..Budget::default()
        });
        let tracks = tracks(&recording);
        assert_eq!(tracks.len(), 5 + 1);
        assert_eq!((tracks[5].pid, tracks[5].process.as_str()), (9, "un\\x1bseen"));
        let spans = spans(&recording, &tracks, false);
        let found: Vec<_> = spans.iter().map(|span| (span.track, span.start_ns, span.end_ns)).collect();
        assert_eq!(found, [(1, 20, 25), (1, 40, 45), (5, 30, 35)]);
    }

    #[test]
    fn waits_are_as_long_as_they_took() {
        let recording = samples_and_waits();
        let tracks = tracks(&recording);
        let total = |include_idle| {
            let spans = spans(&recording, &tracks, include_idle);
            let waits = spans.iter().filter_map(|span| match span.what {
                What::Waits(wait, _) => Some(wait.total_ns),
                _ => None,
            });
            waits.sum::<u64>()
        };
        assert!(total(false) < total(true));
        assert_eq!(total(true), recording.waits.iter().map(|wait| wait.total_ns).sum::<u64>());
    }
}
