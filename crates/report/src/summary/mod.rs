//! What a recording says in numbers: counted once, shown by several formats.

mod functions;
mod requests;

pub(crate) use functions::FunctionTable;
pub(crate) use requests::RouteTable;
use requests::Watch;

use std::collections::HashMap;

use slip_model::{
    FrameId, FrameKind, Language, ProcessId, Recording, Sample, StackId, State, StringId, Totals,
};

/// Most stacks that are kept, those with the most samples.
const MAX_HOT_STACKS: usize = 1_000;

/// What a recording says in numbers.
///
/// All counts are of samples; one sample stands for [`Summary::interval_ns`] of one thread. "Busy" is all that is not
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
    /// Every function that was seen, that with the most samples of its own first.
    pub functions: Vec<Function>,
    /// Code samples without a frame.
    pub frameless: u64,
    /// Lines that were being executed by an innermost frame, that with the most samples first.
    pub lines: Vec<Line>,
    /// The 1,000 stacks with the most samples, that with most first.
    pub stacks: Vec<HotStack>,
    /// Requests, if the target has any.
    pub requests: RequestSummary,
    /// How far all this can be trusted.
    pub quality: Quality,
}

/// Where the time of threads went, in samples. Each sample counts in one field.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TimeSplit {
    /// Between two requests.
    pub idle: u64,
    /// In code, running or ready to run.
    pub on_cpu: u64,
    /// In code, waiting.
    pub waiting: u64,
    /// In code; whether it ran could not be read.
    pub unknown: u64,
    /// In a request, but not in code: start-up, compilation, shutdown of the request.
    pub engine: u64,
}

impl TimeSplit {
    /// All samples.
    pub fn total(&self) -> u64 {
        self.idle + self.busy()
    }

    /// All but idle ones.
    pub fn busy(&self) -> u64 {
        self.on_cpu + self.waiting + self.unknown + self.engine
    }

    fn count(&mut self, state: State) {
        let field = if state.has(State::IDLE) {
            &mut self.idle
        } else if state.has(State::ENGINE) {
            &mut self.engine
        } else if state.has(State::CPU_UNKNOWN) {
            &mut self.unknown
        } else if state.has(State::ON_CPU) {
            &mut self.on_cpu
        } else {
            &mut self.waiting
        };
        *field += 1;
    }

    /// Adds the time of other threads.
    pub fn add(&mut self, other: &Self) {
        self.idle += other.idle;
        self.on_cpu += other.on_cpu;
        self.waiting += other.waiting;
        self.unknown += other.unknown;
        self.engine += other.engine;
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
    /// Where their time went.
    pub time: TimeSplit,
    /// Busy samples that held the global interpreter lock.
    pub gil_held: u64,
}

/// One process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProcessSummary {
    /// Which.
    pub process: ProcessId,
    /// Threads that were sampled.
    pub threads: u64,
    /// Where their time went.
    pub time: TimeSplit,
}

/// One function, at whatever line.
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
    /// Samples in which it was the innermost frame.
    pub own: u64,
    /// Those of them on a CPU.
    pub own_on_cpu: u64,
    /// Samples in which it was anywhere in the stack, counted once however often it was.
    pub total: u64,
}

/// One line of one function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Line {
    /// The function and the line.
    pub frame: FrameId,
    /// Samples in which an innermost frame was executing it.
    pub own: u64,
    /// Those of them on a CPU.
    pub own_on_cpu: u64,
}

/// One stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HotStack {
    /// Which.
    pub stack: StackId,
    /// Samples with exactly this stack.
    pub samples: u64,
    /// Those of them on a CPU.
    pub on_cpu: u64,
}

/// All requests.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestSummary {
    /// Requests that a sample saw, also those under way at the begin or the end. Those that began and ended between two
    /// samples are not known.
    pub count: u64,
    /// Busy samples of the processes that serve requests: what the routes are a share of.
    pub busy: u64,
    /// Method and path, that with the most samples first.
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
    /// Busy samples in them.
    pub samples: u64,
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
    /// Stacks that were cut at their outer end.
    pub truncated: u64,
}

impl Summary {
    /// Counts a recording. Goes once over the samples; the rest is done by distinct stack.
    pub fn of(recording: &Recording) -> Self {
        let mut scan = Scan::new(recording);
        for sample in recording.samples() {
            scan.take(sample);
        }
        scan.finish()
    }

    /// The functions again, that with the most samples anywhere in the stack first.
    pub fn by_total(&self) -> Vec<&Function> {
        let mut functions: Vec<&Function> = self.functions.iter().collect();
        // Stable: the order by own time, and by name, decides among equals.
        functions.sort_by_key(|function| std::cmp::Reverse(function.total));
        functions
    }

    /// Samples as time.
    pub fn as_ns(&self, samples: u64) -> u64 {
        samples.saturating_mul(self.interval_ns)
    }
}

/// What one thread did.
#[derive(Clone, Copy, Default)]
struct ThreadCount {
    time: TimeSplit,
    /// Of its first and last sample.
    first_ns: u64,
    last_ns: u64,
    gil_held: u64,
    serves_requests: bool,
}

/// Code samples with one stack.
#[derive(Clone, Copy, Default)]
struct StackCount {
    samples: u64,
    on_cpu: u64,
}

struct Scan<'a> {
    recording: &'a Recording,
    threads: Vec<ThreadCount>,
    stacks: Vec<StackCount>,
    requests: requests::Scan<'a>,
    samples: u64,
    truncated: u64,
}

impl<'a> Scan<'a> {
    fn new(recording: &'a Recording) -> Self {
        Self {
            recording,
            threads: vec![ThreadCount::default(); recording.threads.len()],
            stacks: vec![StackCount::default(); recording.interner.sizes().2],
            requests: requests::Scan::new(recording),
            samples: 0,
            truncated: 0,
        }
    }

    fn take(&mut self, sample: Sample) {
        // A thread that is not described belongs to no group; the loader lets none through.
        let Some(thread) = self.threads.get_mut(sample.thread.0 as usize) else { return };
        self.samples += 1;
        let state = sample.state;
        let is_first = thread.time.total() == 0;
        thread.first_ns = if is_first { sample.time_ns } else { sample.time_ns.min(thread.first_ns) };
        thread.last_ns = sample.time_ns.max(thread.last_ns);
        thread.time.count(state);
        if state.has(State::IDLE) {
            return;
        }
        thread.gil_held += u64::from(state.has(State::HAS_GIL));
        if sample.request.0 != 0 {
            thread.serves_requests = true;
            self.requests.take(sample.request);
        }
        if state.has(State::ENGINE) {
            return;
        }
        self.truncated += u64::from(state.has(State::TRUNCATED));
        let at = sample.stack.index();
        let stack = &mut self.stacks[if at < self.recording.interner.sizes().2 { at } else { 0 }];
        stack.samples += 1;
        stack.on_cpu += u64::from(state.has(State::ON_CPU) && !state.has(State::CPU_UNKNOWN));
    }

    fn finish(self) -> Summary {
        let recording = self.recording;
        let (processes, groups, serving_busy) = workers(recording, &self.threads);
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
            frameless: self.stacks.first().map_or(0, |stack| stack.samples),
            lines: functions::lines(&recording.interner, &self.stacks),
            stacks: hot_stacks(&self.stacks),
            requests: self.requests.finish(serving_busy, &watches(recording, &self.threads)),
            quality: Quality {
                totals,
                missed_ticks: totals.ticks_planned.saturating_sub(totals.ticks_taken),
                samples: self.samples,
                truncated: self.truncated,
            },
        }
    }
}

/// Adds threads up to processes and those to groups. The last number is the busy samples of processes with requests.
fn workers(recording: &Recording, threads: &[ThreadCount]) -> (Vec<ProcessSummary>, Vec<Group>, u64) {
    let mut by_process = vec![(ProcessSummary::default(), 0, false); recording.processes.len()];
    for (thread, counted) in recording.threads.iter().zip(threads) {
        let Some((process, gil_held, serves)) = by_process.get_mut(thread.process.0 as usize) else {
            continue;
        };
        if counted.time.total() > 0 {
            process.threads += 1;
            process.time.add(&counted.time);
            *gil_held += counted.gil_held;
            *serves |= counted.serves_requests;
        }
    }
    let mut groups: Vec<Group> = Vec::new();
    let mut group_of = HashMap::new();
    let mut serving_busy = 0;
    let mut processes = Vec::new();
    for ((mut process, gil_held, serves), described) in by_process.into_iter().zip(&recording.processes) {
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
        group.time.add(&process.time);
        group.gil_held += gil_held;
        if serves {
            serving_busy += process.time.busy();
        }
        processes.push(process);
    }
    groups.sort_by(|a, b| {
        (b.time.busy(), b.time.total(), &a.title).cmp(&(a.time.busy(), a.time.total(), &b.title))
    });
    (processes, groups, serving_busy)
}

/// When each process was watched.
fn watches(recording: &Recording, threads: &[ThreadCount]) -> Vec<Watch> {
    let mut times = vec![(u64::MAX, 0); recording.processes.len()];
    for (thread, counted) in recording.threads.iter().zip(threads) {
        if let Some((first_ns, last_ns)) = times.get_mut(thread.process.0 as usize)
            && counted.time.total() > 0
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
        .filter(|(id, stack)| *id != 0 && stack.samples > 0)
        .map(|(id, stack)| HotStack { stack: StackId(id), samples: stack.samples, on_cpu: stack.on_cpu })
        .collect();
    hot.sort_by_key(|stack| (std::cmp::Reverse(stack.samples), stack.stack));
    hot.truncate(MAX_HOT_STACKS);
    hot
}
