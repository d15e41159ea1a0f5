//! Puts rows together to a recording, fills the holes of damaged files visibly, and says how much is missing.

use std::path::Path;
use std::sync::Arc;

use rustc_hash::FxHashMap;
use slip_model::{
    Frame, FrameId, FrameKind, Interner, InternerDelta, Process, ProcessId, Recording, SampleBlock,
    ServedRequest, StackId, StackNode, StringId, Thread, ThreadId, Totals, Wait,
};

use super::error::FileError;
use super::fetch::{BlockBytes, Fetched};
use super::{block, schema, served_block, wait_block};
use crate::UNREADABLE;

/// Most samples of one recording: 2.8 GB in memory, 47 hours of eight workers at 99 Hz.
const MAX_SAMPLES: usize = 1 << 27;

/// Most waits of one recording: 2.7 GB in memory.
const MAX_WAITS: usize = 1 << 26;

/// Most requests of a budget: 2.2 GB in memory.
const MAX_SERVED: usize = 1 << 23;

/// Most processes and most threads of one recording.
const MAX_WORKERS: usize = 1 << 18;

/// What is known about the file besides its rows.
pub(super) struct Circumstances {
    /// Its length.
    pub(super) length: u64,
    /// The length that its header claims; it is shorter if it was cut, or longer between two writes.
    pub(super) full_length: u64,
}

/// Builds the recording, and sentences on what is wrong with it.
pub(super) fn recording(
    path: &Path,
    fetched: Fetched,
    circumstances: &Circumstances,
) -> Result<(Recording, Vec<String>), FileError> {
    let damaged = |what: String| FileError::Damaged { path: path.to_owned(), what };
    let mut warnings = Vec::new();
    let cut_short = circumstances.length < circumstances.full_length;
    if cut_short {
        warnings.push(format!(
            "the file is cut short: {} of {} bytes are there",
            circumstances.length, circumstances.full_length
        ));
    }
    let has_info = fetched.info.is_some();
    // An id can be no larger than the rows that a file of this size can have, or had before it was cut.
    let most = usize::try_from(circumstances.length).unwrap_or(usize::MAX).saturating_add(1 << 20);
    let (mut names, lost_names) = interner(&fetched, most);
    let (processes, mut threads) = workers(fetched.processes, fetched.threads);
    let process_count = processes.len();
    for thread in &mut threads {
        thread.name = names.string(thread.name);
        // Of the last process, "unreadable", that `workers` appends if it is needed.
        thread.process.0 = thread.process.0.min(count(process_count.saturating_sub(1)));
    }

    let mut recording =
        Recording { info: fetched.info.unwrap_or_default(), processes, threads, ..Recording::default() };
    let mut lost = Lost::default();
    for row in &fetched.blocks {
        let Ok((mut samples, mut requests)) = block::decode(&row.data) else {
            lost.blocks += 1;
            lost.entries = lost.entries.saturating_add(row.entries);
            continue;
        };
        if lost.beyond > 0 || lost.loaded + samples.len() > MAX_SAMPLES {
            lost.beyond += samples.len() as u64;
            continue;
        }
        lost.nameless += drop_nameless(&mut samples, recording.threads.len());
        names.mend_stacks(&mut samples);
        lost.loaded += samples.len();
        requests.retain(|request| (request.process.0 as usize) < process_count);
        for request in &mut requests {
            for name in [&mut request.method, &mut request.uri, &mut request.script] {
                *name = names.string(*name);
            }
        }
        recording.requests.append(&mut requests);
        if !samples.is_empty() {
            recording.blocks.push(samples);
        }
    }
    let mut lost_waits = Lost::default();
    recording.waits = waits(&fetched.waits, recording.threads.len(), &mut names, &mut lost_waits);
    let places = fetched.allocations.len();
    recording.allocations = fetched.allocations;
    recording.allocations.retain(|allocated| allocated.thread.index() < recording.threads.len());
    let nameless_places = places - recording.allocations.len();
    for allocated in &mut recording.allocations {
        allocated.stack = names.stack(allocated.stack);
    }
    recording.interner = names.interner;
    let mut lost_served = Lost::default();
    recording.budget = fetched.budget;
    if let Some(budget) = &mut recording.budget {
        budget.requests = served(&fetched.served, budget.workers.len(), &mut lost_served);
    }

    recording.facts = fetched.facts;

    let loaded = lost.loaded as u64;
    let last_ns = recording.blocks.last().and_then(|block| block.time_ns.last().copied()).unwrap_or(0);
    let last_ns = last_ns.max(recording.waits.last().map_or(0, |wait| wait.time_ns));
    let expected = fetched.totals.map_or(loaded, |totals| totals.samples);
    recording.totals =
        fetched.totals.unwrap_or(Totals { duration_ns: last_ns, samples: loaded, ..Totals::default() });
    recording.totals.waits = recording.waits.len() as u64;
    let told = recording.allocations.iter().map(|allocated| allocated.samples);
    recording.totals.allocations = told.fold(0, u64::saturating_add);
    let lacks = |table| fetched.damaged.contains(&table);
    let has_lost_waits = lacks(schema::WAITS) || lost_waits.blocks > 0;
    let has_lost_budget = recording.budget.is_none() && (lacks(schema::BUDGET) || !fetched.served.is_empty());
    if loaded == 0
        && recording.waits.is_empty()
        && recording.budget.is_none()
        && recording.allocations.is_empty()
        && (!has_info || expected > 0 || lacks("blocks") || has_lost_waits || has_lost_budget)
    {
        return Err(damaged(match expected {
            0 if has_lost_waits => "its waits are lost".into(),
            0 if has_lost_budget => "its budget is lost".into(),
            0 => "its samples are lost".into(),
            samples => format!("all of its {samples} samples are lost"),
        }));
    }
    if loaded < expected {
        let share = loaded as f64 / expected as f64 * 100.0;
        warnings.push(format!("{loaded} of {expected} samples ({share:.1} %) could be read"));
    }
    lost.describe("samples", "threads", MAX_SAMPLES, &mut warnings);
    lost_waits.describe("waits", "threads", MAX_WAITS, &mut warnings);
    lost_served.describe("requests of the budget", "workers", MAX_SERVED, &mut warnings);
    if nameless_places > 0 {
        warnings.push(format!("{nameless_places} places of allocations of unknown threads are left out"));
    }
    if has_lost_budget {
        warnings.push("the budget of the workers' time is lost".into());
    }
    if lost_names > 0 {
        warnings.push(format!("{lost_names} names or stacks are lost and shown as {UNREADABLE}"));
    }
    if !has_info {
        warnings.push("what was recorded, when and how often is lost".into());
    }
    if warnings.is_empty() && !fetched.damaged.is_empty() {
        warnings.push(format!("the file is damaged in: {}", fetched.damaged.join(", ")));
    }
    Ok((recording, warnings))
}

/// The waits of these blocks that belong to one of so many threads.
fn waits(blocks: &[BlockBytes], threads: usize, names: &mut Names, lost: &mut Lost) -> Vec<Wait> {
    let mut waits: Vec<Wait> = Vec::new();
    for row in blocks {
        let Ok(mut of_block) = wait_block::decode(&row.data) else {
            lost.blocks += 1;
            lost.entries = lost.entries.saturating_add(row.entries);
            continue;
        };
        if lost.beyond > 0 || waits.len() + of_block.len() > MAX_WAITS {
            lost.beyond += of_block.len() as u64;
            continue;
        }
        let decoded = of_block.len();
        of_block.retain(|wait| (wait.thread.0 as usize) < threads);
        lost.nameless += (decoded - of_block.len()) as u64;
        for wait in &mut of_block {
            wait.stack = names.stack(wait.stack);
        }
        waits.append(&mut of_block);
    }
    waits
}

/// The requests of these blocks that one of so many workers served.
fn served(blocks: &[BlockBytes], workers: usize, lost: &mut Lost) -> Vec<ServedRequest> {
    let mut served: Vec<ServedRequest> = Vec::new();
    for row in blocks {
        let Ok(mut of_block) = served_block::decode(&row.data) else {
            lost.blocks += 1;
            lost.entries = lost.entries.saturating_add(row.entries);
            continue;
        };
        if lost.beyond > 0 || served.len() + of_block.len() > MAX_SERVED {
            lost.beyond += of_block.len() as u64;
            continue;
        }
        let decoded = of_block.len();
        of_block.retain(|request| (request.worker as usize) < workers);
        lost.nameless += (decoded - of_block.len()) as u64;
        served.append(&mut of_block);
    }
    served
}

/// What did not make it, of samples, of waits or of requests.
#[derive(Default)]
struct Lost {
    loaded: usize,
    blocks: u64,
    entries: u64,
    beyond: u64,
    nameless: u64,
}

impl Lost {
    fn describe(&self, what: &str, whose: &str, most: usize, warnings: &mut Vec<String>) {
        let Self { blocks, entries, beyond, nameless, .. } = self;
        if *blocks > 0 {
            warnings.push(format!("{blocks} blocks with {entries} {what} are damaged and left out"));
        }
        if *nameless > 0 {
            warnings.push(format!("{nameless} {what} of unknown {whose} are left out"));
        }
        if *beyond > 0 {
            warnings.push(format!("{beyond} {what} beyond the first {most} do not fit and are left out"));
        }
    }
}

/// An interner that has an answer for every number.
struct Names {
    interner: Interner,
    /// By the number of a stack in the file, the first one that is the same: a recorder forgets stacks ([`Interner::forgetful`]).
    stacks: Vec<u32>,
}

impl Names {
    fn string(&mut self, id: StringId) -> StringId {
        if id.index() < self.interner.sizes().0 { id } else { self.interner.string(UNREADABLE) }
    }

    /// The stack of this number, or one that says that it could not be read.
    fn stack(&mut self, id: StackId) -> StackId {
        match self.stacks.get(id.index()) {
            Some(first) => StackId(*first),
            None => self.unreadable_stack(),
        }
    }

    fn unreadable_stack(&mut self) -> StackId {
        let name = self.interner.string(UNREADABLE);
        let frame = self.interner.frame(Frame { name, ..unreadable_frame() });
        self.interner.push(StackId(0), frame)
    }

    fn mend_stacks(&mut self, samples: &mut SampleBlock) {
        for stack in &mut samples.stack {
            *stack = self.stack(StackId(*stack)).0;
        }
    }
}

/// A frame whose name is still to be given.
fn unreadable_frame() -> Frame {
    Frame { kind: FrameKind::Marker, name: StringId(u32::MAX), ..Frame::default() }
}

/// Builds the interner and counts what had to be made up.
fn interner(fetched: &Fetched, most: usize) -> (Names, usize) {
    let mut lost = 0;
    let strings = dense(&fetched.strings, 1, most, || Arc::from(UNREADABLE), &mut lost);
    let frames = dense(&fetched.frames, 0, most, unreadable_frame, &mut lost);
    let hole = StackNode { parent: StackId(0), frame: FrameId(u32::MAX) };
    let stacks = dense(&fetched.stacks, 1, most, || hole, &mut lost);
    let mut delta =
        InternerDelta { first_string: 1, strings, first_frame: 0, frames, first_stack: 1, stacks };
    let stacks = merge(&mut delta.stacks);
    let mut interner = Interner::new();
    if !interner.apply(&delta) {
        mend(&mut delta);
        let mended = interner.apply(&delta);
        debug_assert!(mended, "everything has been made to point to something");
    }
    (Names { interner, stacks }, lost)
}

/// Gives stacks that are the same one parent, the first of those that are the same, and says which that is for each number. A
/// parent that is none becomes the empty stack.
fn merge(nodes: &mut [StackNode]) -> Vec<u32> {
    let mut firsts = vec![0];
    let mut known = FxHashMap::default();
    for (number, node) in (1..).zip(nodes) {
        node.parent = StackId(firsts.get(node.parent.index()).copied().unwrap_or_default());
        firsts.push(*known.entry(*node).or_insert(number));
    }
    firsts
}

/// Lets what points nowhere point to entries at the end that say so.
fn mend(delta: &mut InternerDelta) {
    delta.strings.push(Arc::from(UNREADABLE));
    let name = StringId(count(delta.strings.len()));
    for frame in &mut delta.frames {
        for string in [&mut frame.name, &mut frame.file] {
            if *string > name {
                *string = name;
            }
        }
    }
    let unreadable = FrameId(count(delta.frames.len()));
    delta.frames.push(Frame { name, ..unreadable_frame() });
    for node in &mut delta.stacks {
        node.frame = node.frame.min(unreadable);
    }
}

/// Rows by number, from `first` on without a gap.
fn dense<T: Clone>(
    rows: &[(u32, T)],
    first: u32,
    most: usize,
    hole: impl Fn() -> T,
    lost: &mut usize,
) -> Vec<T> {
    let mut dense = Vec::with_capacity(rows.len() + 1);
    for (id, value) in rows {
        let Some(at) = id.checked_sub(first).map(|at| at as usize) else { continue };
        if at >= most {
            *lost += 1;
            continue;
        }
        while dense.len() < at {
            dense.push(hole());
            *lost += 1;
        }
        dense.push(value.clone());
    }
    dense
}

/// Processes and threads by number. A process that threads point to but that cannot be read is appended.
fn workers(processes: Vec<Process>, threads: Vec<Thread>) -> (Vec<Process>, Vec<Thread>) {
    let mut dense_processes: Vec<Process> = Vec::with_capacity(processes.len());
    let hole =
        |at: usize| Process { id: ProcessId(count(at)), title: UNREADABLE.into(), ..Process::default() };
    for process in processes {
        let at = process.id.0 as usize;
        if at < MAX_WORKERS {
            while dense_processes.len() < at {
                dense_processes.push(hole(dense_processes.len()));
            }
            dense_processes.push(process);
        }
    }
    let mut dense_threads: Vec<Thread> = Vec::with_capacity(threads.len());
    let mut orphans = dense_processes.is_empty() && !threads.is_empty();
    for thread in threads {
        let at = thread.id.0 as usize;
        if at < MAX_WORKERS {
            while dense_threads.len() < at {
                orphans = true;
                let id = ThreadId(count(dense_threads.len()));
                dense_threads.push(Thread { id, process: ProcessId(u32::MAX), ..Thread::default() });
            }
            orphans |= thread.process.0 as usize >= dense_processes.len();
            dense_threads.push(thread);
        }
    }
    if orphans {
        dense_processes.push(hole(dense_processes.len()));
    }
    (dense_processes, dense_threads)
}

/// Removes the samples of threads that are not known, and counts them.
fn drop_nameless(samples: &mut SampleBlock, threads: usize) -> u64 {
    if samples.thread.iter().all(|thread| (*thread as usize) < threads) {
        return 0;
    }
    let mut kept = SampleBlock::default();
    samples.iter().filter(|sample| (sample.thread.0 as usize) < threads).for_each(|sample| kept.push(sample));
    let dropped = samples.len() - kept.len();
    *samples = kept;
    dropped as u64
}

fn count(length: usize) -> u32 {
    u32::try_from(length).unwrap_or(u32::MAX)
}
