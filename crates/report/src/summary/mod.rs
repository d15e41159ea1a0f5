//! What a recording says in numbers: counted once, shown by several formats.

mod functions;
mod kernel;
mod requests;
mod waits;

pub(crate) use functions::FunctionTable;
pub use kernel::{KernelSummary, KernelTime};
pub(crate) use requests::RouteTable;
use requests::Watch;
pub use waits::{ReasonSummary, StackWaits, WaitSummary};

use std::collections::HashMap;

use slip_model::{
    Frame, FrameId, FrameKind, Language, ProcessId, Recording, StackId, State, StringId, Totals,
};

use crate::piece::{Piece, pieces};

/// Most stacks that are kept, those with the most time.
const MAX_HOT_STACKS: usize = 1_000;

/// What a recording says in numbers.
///
/// A sample stands for [`Summary::interval_ns`] of one thread, waits for as long as they took. "Busy" is all that is not
/// idle. Names are interned in the recording.
#[derive(Clone, Debug, Default)]
pub struct Summary {
    /// Time watched.
    pub wall_ns: u64,
    /// Time that one sample stands for.
    pub interval_ns: u64,
    /// All threads together.
    pub time: TimeSplit,
    /// Workers of the same kind (an FPM pool, a program), the busiest first.
    pub groups: Vec<Group>,
    /// Each process that was sampled, by number.
    pub processes: Vec<ProcessSummary>,
    /// Every function that was seen, that with the most time of its own first.
    pub functions: Vec<Function>,
    /// Time in code without a frame.
    pub frameless_ns: u64,
    /// Lines that were being executed by an innermost frame, that with the most time first.
    pub lines: Vec<Line>,
    /// The 1,000 stacks with the most time, that with most first. What was in the kernel counts for the stack that called it.
    pub stacks: Vec<HotStack>,
    /// Where in the kernel that was, as far as it is known.
    pub kernel: KernelSummary,
    /// What threads waited for, if the sampler saw that.
    pub waits: WaitSummary,
    /// Requests, if the target has any.
    pub requests: RequestSummary,
    /// How far all this can be trusted.
    pub quality: Quality,
}

/// Where the time of threads went, in nanoseconds. Each sample and each wait counts in one field.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TimeSplit {
    /// Between two requests.
    pub idle_ns: u64,
    /// In code, running or ready to run.
    pub on_cpu_ns: u64,
    /// In code, waiting.
    pub waiting_ns: u64,
    /// In code; whether it ran could not be read.
    pub unknown_ns: u64,
    /// In a request, but not in code: start-up, compilation, shutdown of the request.
    pub engine_ns: u64,
}

impl TimeSplit {
    /// All time.
    pub fn total_ns(&self) -> u64 {
        self.idle_ns.saturating_add(self.busy_ns())
    }

    /// All but idle time.
    pub fn busy_ns(&self) -> u64 {
        let code_ns = self.on_cpu_ns.saturating_add(self.waiting_ns).saturating_add(self.unknown_ns);
        code_ns.saturating_add(self.engine_ns)
    }

    fn count(&mut self, state: State, ns: u64) {
        let field = if state.has(State::IDLE) {
            &mut self.idle_ns
        } else if state.has(State::ENGINE) {
            &mut self.engine_ns
        } else if state.has(State::CPU_UNKNOWN) {
            &mut self.unknown_ns
        } else if state.has(State::ON_CPU) {
            &mut self.on_cpu_ns
        } else {
            &mut self.waiting_ns
        };
        *field = field.saturating_add(ns);
    }

    /// Adds the time of other threads.
    pub fn add(&mut self, other: &Self) {
        for (field, more) in [
            (&mut self.idle_ns, other.idle_ns),
            (&mut self.on_cpu_ns, other.on_cpu_ns),
            (&mut self.waiting_ns, other.waiting_ns),
            (&mut self.unknown_ns, other.unknown_ns),
            (&mut self.engine_ns, other.engine_ns),
        ] {
            *field = field.saturating_add(more);
        }
    }
}

/// Workers of the same kind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Group {
    /// What they are called: an FPM pool's title, or program and script. Untrusted.
    pub title: String,
    /// Their language.
    pub language: Language,
    /// Versions of their interpreters, sorted.
    pub versions: Vec<String>,
    /// Processes that were sampled.
    pub workers: u64,
    /// Threads that were sampled.
    pub threads: u64,
    /// Samples of them, idle ones too.
    pub samples: u64,
    /// Where their time went.
    pub time: TimeSplit,
    /// Busy time with the global interpreter lock.
    pub gil_held_ns: u64,
}

/// One process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProcessSummary {
    /// Which.
    pub process: ProcessId,
    /// Threads that were sampled.
    pub threads: u64,
    /// Samples of them, idle ones too.
    pub samples: u64,
    /// Where their time went.
    pub time: TimeSplit,
}

/// One function, at whatever line. What the kernel does for it is its own time: the kernel's functions are none of these.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Function {
    /// What kind of code it is.
    pub kind: FrameKind,
    /// Qualified name.
    pub name: StringId,
    /// File; empty for functions of the engine.
    pub file: StringId,
    /// First line; 0 if unknown.
    pub first_line: u32,
    /// Time in which it was the innermost frame.
    pub own_ns: u64,
    /// The part of that on a CPU.
    pub own_on_cpu_ns: u64,
    /// Time in which it was anywhere in the stack, counted once however often it was.
    pub total_ns: u64,
}

impl Function {
    /// The function of a frame, without any time.
    pub(crate) fn of(frame: &Frame) -> Self {
        let Frame { kind, name, file, first_line, .. } = *frame;
        Self { kind, name, file, first_line, ..Self::default() }
    }
}

/// One line of one function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Line {
    /// The function and the line.
    pub frame: FrameId,
    /// Time in which an innermost frame was executing it.
    pub own_ns: u64,
    /// The part of that on a CPU.
    pub own_on_cpu_ns: u64,
}

/// One stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HotStack {
    /// Which.
    pub stack: StackId,
    /// Samples with exactly this stack.
    pub samples: u64,
    /// Time with exactly this stack, samples and waits.
    pub ns: u64,
    /// The part of that on a CPU.
    pub on_cpu_ns: u64,
}

/// All requests.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestSummary {
    /// Requests that a sample saw, also those under way at the begin or the end. Those that began and ended between two
    /// samples are not known.
    pub count: u64,
    /// Busy time of the processes that serve requests: what the routes are a share of.
    pub serving_ns: u64,
    /// Method and path, that with the most busy time first.
    pub routes: Vec<Route>,
}

/// The requests to one path by one method.
///
/// Durations are as seen by samples: from the first to the last sample that saw the request, plus one interval. So one
/// duration is good to an interval, while a mean of many is better than that. Requests that were under way when their
/// process was first or last looked at are left out of the durations, as only a part of each was seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Route {
    /// HTTP method.
    pub method: StringId,
    /// Path of the URI; file of the script where there is no URI, as on PHP's command line.
    pub uri: StringId,
    /// Number of requests.
    pub count: u64,
    /// Busy time in them.
    pub busy_ns: u64,
    /// Requests that were seen whole: what the durations are of. 0 leaves them unknown.
    pub whole: u64,
    /// Mean duration.
    pub mean_ns: u64,
    /// Median duration.
    pub p50_ns: u64,
    /// Nineteen of twenty are shorter.
    pub p95_ns: u64,
    /// Most request memory that was seen.
    pub peak_memory_bytes: u64,
}

/// How well the recording went.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Quality {
    /// The counters of the recorder.
    pub totals: Totals,
    /// Moments at which a sample was due and none was taken.
    pub missed_ticks: u64,
    /// Samples in the recording. Fewer than `totals.samples` if the file is damaged.
    pub samples: u64,
    /// Waits in the recording.
    pub waits: u64,
    /// Stacks that were cut at their outer end.
    pub truncated: u64,
}

impl Summary {
    /// Counts a recording. Goes once over the samples and waits; the rest is done by distinct stack.
    pub fn of(recording: &Recording) -> Self {
        let mut scan = Scan::new(recording);
        pieces(recording).for_each(|piece| scan.take(&piece));
        scan.finish()
    }

    /// The functions again, that with the most time anywhere in the stack first.
    pub fn by_total(&self) -> Vec<&Function> {
        let mut functions: Vec<&Function> = self.functions.iter().collect();
        // Stable: the order by own time, and by name, decides among equals.
        functions.sort_by_key(|function| std::cmp::Reverse(function.total_ns));
        functions
    }
}

/// What one thread did.
#[derive(Clone, Copy, Default)]
struct ThreadCount {
    /// There was a sample or a wait.
    seen: bool,
    samples: u64,
    time: TimeSplit,
    /// Of its first and last sample.
    first_ns: u64,
    last_ns: u64,
    gil_held_ns: u64,
    serves_requests: bool,
}

/// Time in code with one stack.
#[derive(Clone, Copy, Default)]
struct StackCount {
    samples: u64,
    ns: u64,
    on_cpu_ns: u64,
}

struct Scan<'a> {
    recording: &'a Recording,
    threads: Vec<ThreadCount>,
    stacks: Vec<StackCount>,
    kernel: kernel::Scan,
    requests: requests::Scan<'a>,
    waits: waits::Scan,
    samples: u64,
    wait_count: u64,
    truncated: u64,
}

impl<'a> Scan<'a> {
    fn new(recording: &'a Recording) -> Self {
        Self {
            recording,
            threads: vec![ThreadCount::default(); recording.threads.len()],
            stacks: vec![StackCount::default(); recording.interner.sizes().2],
            kernel: kernel::Scan::new(&recording.interner),
            requests: requests::Scan::new(recording),
            waits: waits::Scan::default(),
            samples: 0,
            wait_count: 0,
            truncated: 0,
        }
    }

    fn take(&mut self, piece: &Piece) {
        let Piece { sample, ns, count, .. } = *piece;
        // A thread that is not described belongs to no group; the loader lets none through.
        let Some(thread) = self.threads.get_mut(sample.thread.0 as usize) else { return };
        let state = sample.state;
        thread.first_ns = if thread.seen { sample.time_ns.min(thread.first_ns) } else { sample.time_ns };
        thread.last_ns = sample.time_ns.max(thread.last_ns);
        thread.seen = true;
        thread.time.count(state, ns);
        let at = sample.stack.index();
        let with_kernel = if at < self.stacks.len() { at } else { 0 };
        let at = self.kernel.caller(with_kernel);
        let is_sample = u64::from(piece.reason.is_none());
        if piece.reason.is_some() {
            self.wait_count = self.wait_count.saturating_add(count);
            self.waits.take(piece, StackId(at as u32));
        }
        self.samples += is_sample;
        thread.samples += is_sample;
        if state.has(State::IDLE) {
            return;
        }
        if state.has(State::HAS_GIL) {
            thread.gil_held_ns = thread.gil_held_ns.saturating_add(ns);
        }
        if sample.request.0 != 0 {
            thread.serves_requests = true;
            self.requests.take(sample.request, ns);
        }
        if state.has(State::ENGINE) {
            return;
        }
        if state.has(State::TRUNCATED) {
            self.truncated = self.truncated.saturating_add(count);
        }
        self.kernel.take(&self.recording.interner, piece, with_kernel);
        let stack = &mut self.stacks[at];
        stack.samples += is_sample;
        stack.ns = stack.ns.saturating_add(ns);
        stack.on_cpu_ns = stack.on_cpu_ns.saturating_add(piece.on_cpu_ns());
    }

    fn finish(self) -> Summary {
        let recording = self.recording;
        let (processes, groups, serving_ns) = workers(recording, &self.threads);
        let mut time = TimeSplit::default();
        for group in &groups {
            time.add(&group.time);
        }
        let functions = functions::functions(&recording.interner, &self.stacks);
        let totals = recording.totals;
        Summary {
            wall_ns: totals.duration_ns,
            interval_ns: recording.info.interval_ns.max(1),
            time,
            groups,
            processes,
            functions,
            frameless_ns: self.stacks.first().map_or(0, |stack| stack.ns),
            lines: functions::lines(&recording.interner, &self.stacks),
            stacks: hot_stacks(&self.stacks),
            kernel: self.kernel.finish(),
            waits: self.waits.finish(&recording.interner),
            requests: self.requests.finish(serving_ns, &watches(recording, &self.threads)),
            quality: Quality {
                totals,
                missed_ticks: totals.ticks_planned.saturating_sub(totals.ticks_taken),
                samples: self.samples,
                waits: self.wait_count,
                truncated: self.truncated,
            },
        }
    }
}

/// Adds threads up to processes and those to groups. The last number is the busy time of processes with requests.
fn workers(recording: &Recording, threads: &[ThreadCount]) -> (Vec<ProcessSummary>, Vec<Group>, u64) {
    let mut by_process = vec![(ProcessSummary::default(), 0_u64, false); recording.processes.len()];
    for (thread, counted) in recording.threads.iter().zip(threads) {
        let Some((process, gil_held_ns, serves)) = by_process.get_mut(thread.process.0 as usize) else {
            continue;
        };
        if counted.seen {
            process.threads += 1;
            process.samples += counted.samples;
            process.time.add(&counted.time);
            *gil_held_ns = gil_held_ns.saturating_add(counted.gil_held_ns);
            *serves |= counted.serves_requests;
        }
    }
    let mut groups: Vec<Group> = Vec::new();
    let mut group_of = HashMap::new();
    let mut serving_ns: u64 = 0;
    let mut processes = Vec::new();
    for ((mut process, gil_held_ns, serves), described) in by_process.into_iter().zip(&recording.processes) {
        if process.threads == 0 {
            continue;
        }
        process.process = described.id;
        let at = *group_of.entry((described.title.as_str(), described.language as u8)).or_insert_with(|| {
            groups.push(Group {
                title: described.title.clone(),
                language: described.language,
                ..Group::default()
            });
            groups.len() - 1
        });
        let group = &mut groups[at];
        if let Err(place) = group.versions.binary_search(&described.version) {
            group.versions.insert(place, described.version.clone());
        }
        group.workers += 1;
        group.threads += process.threads;
        group.samples += process.samples;
        group.time.add(&process.time);
        group.gil_held_ns = group.gil_held_ns.saturating_add(gil_held_ns);
        if serves {
            serving_ns = serving_ns.saturating_add(process.time.busy_ns());
        }
        processes.push(process);
    }
    groups.sort_by(|a, b| {
        (b.time.busy_ns(), b.time.total_ns(), &a.title).cmp(&(a.time.busy_ns(), a.time.total_ns(), &b.title))
    });
    (processes, groups, serving_ns)
}

/// When each process was watched.
fn watches(recording: &Recording, threads: &[ThreadCount]) -> Vec<Watch> {
    let mut times = vec![(u64::MAX, 0); recording.processes.len()];
    for (thread, counted) in recording.threads.iter().zip(threads) {
        if let Some((first_ns, last_ns)) = times.get_mut(thread.process.0 as usize)
            && counted.seen
        {
            *first_ns = counted.first_ns.min(*first_ns);
            *last_ns = counted.last_ns.max(*last_ns);
        }
    }
    let watch = |(process, (first_ns, last_ns))| Watch::new(recording, process, first_ns, last_ns);
    recording.processes.iter().zip(times).map(watch).collect()
}

fn hot_stacks(stacks: &[StackCount]) -> Vec<HotStack> {
    let mut hot: Vec<HotStack> = (0_u32..)
        .zip(stacks)
        .filter(|(id, stack)| *id != 0 && stack.ns > 0)
        .map(|(id, stack)| HotStack {
            stack: StackId(id),
            samples: stack.samples,
            ns: stack.ns,
            on_cpu_ns: stack.on_cpu_ns,
        })
        .collect();
    hot.sort_by_key(|stack| (std::cmp::Reverse(stack.ns), stack.stack));
    hot.truncate(MAX_HOT_STACKS);
    hot
}
