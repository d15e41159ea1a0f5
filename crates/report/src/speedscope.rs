//! The file format of <https://www.speedscope.app>: one `sampled` profile for all workers and one per worker thread.

use std::collections::HashMap;

use serde::Serialize;
use serde::ser::{SerializeSeq as _, Serializer};
use slip_model::{FrameKind, Recording, Thread, WaitReason};

use crate::allocations;
use crate::fold::{self, Element, FunctionTree, KERNEL, Key, TRUNCATED};
use crate::piece::{self, pieces};
use crate::text::clean;
use crate::{Options, ReportError};

/// Most changes of stack, over all threads, for which profiles keep the order of time. With more, the file would be
/// hundreds of megabytes (an hour of eight workers has two million), and each stack of a thread is written once.
const MAX_RUNS: usize = 100_000;

#[derive(Serialize)]
struct File<'a> {
    #[serde(rename = "$schema")]
    schema: &'static str,
    name: String,
    exporter: String,
    #[serde(rename = "activeProfileIndex")]
    active_profile_index: u32,
    shared: Shared<'a>,
    profiles: Vec<Profile<'a>>,
}

#[derive(Serialize)]
struct Shared<'a> {
    frames: &'a [Frame],
}

#[derive(Serialize)]
struct Frame {
    name: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    file: String,
    #[serde(skip_serializing_if = "is_zero")]
    line: u32,
}

#[derive(Serialize)]
struct Profile<'a> {
    r#type: &'static str,
    name: String,
    unit: &'static str,
    #[serde(rename = "startValue")]
    start_value: u64,
    #[serde(rename = "endValue")]
    end_value: u64,
    samples: Samples<'a>,
    weights: Vec<u64>,
}

/// Stacks that are made only when they are written: together they would take a gigabyte.
struct Samples<'a> {
    tree: &'a FunctionTree,
    /// Numbers of the frames that are not functions.
    markers: &'a HashMap<&'static str, u32>,
    /// Keys and the time of each.
    runs: Vec<(Key, u64)>,
}

impl Serialize for Samples<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut samples = serializer.serialize_seq(Some(self.runs.len()))?;
        for (key, _) in &self.runs {
            let number = |element| match element {
                Element::Frame(function) => Some(function),
                Element::Marker(marker) => self.markers.get(marker).copied(),
            };
            let stack: Vec<u32> = key.elements(self.tree.path(key.stack)).filter_map(number).collect();
            samples.serialize_element(&stack)?;
        }
        samples.end()
    }
}

fn is_zero(line: &u32) -> bool {
    *line == 0
}

pub(crate) fn render(recording: &Recording, options: &Options) -> Result<Vec<u8>, ReportError> {
    let interner = &recording.interner;
    let tree = FunctionTree::new(interner);
    let mut frames = frames(recording, &tree);
    let reasons = if recording.waits.is_empty() { &[][..] } else { &WaitReason::ALL };
    let markers = markers(&mut frames, reasons);
    let profile = |name: String, runs: Vec<(Key, u64)>| {
        let weights: Vec<u64> = runs.iter().map(|(_, ns)| *ns).collect();
        Profile {
            r#type: "sampled",
            name,
            unit: "nanoseconds",
            start_value: 0,
            end_value: weights.iter().fold(0, |sum, weight| sum.saturating_add(*weight)),
            samples: Samples { tree: &tree, markers: &markers, runs },
            weights,
        }
    };

    let ranks = tree.ranks(interner);
    let by_stack = |all_threads: bool| {
        let counts = fold::fold(recording, options.include_idle, |_, mut key| {
            key.stack = tree.node(key.stack);
            key.root = if all_threads { 0 } else { key.root };
            key
        });
        let mut runs: Vec<(Key, u64)> = counts.into_iter().map(|(key, count)| (key, count.ns)).collect();
        runs.sort_unstable_by_key(|(key, _)| {
            (key.root, key.truncated, ranks[key.stack as usize], key.place, key.reason)
        });
        runs
    };
    let mut profiles = vec![profile("all workers".into(), by_stack(true))];
    let in_order = runs(recording, options, &tree);
    let kept_order = in_order.is_some();
    let of_threads = in_order.unwrap_or_else(|| {
        let mut of_threads = vec![Vec::new(); recording.threads.len()];
        for run in by_stack(false) {
            of_threads[run.0.root as usize].push(run);
        }
        of_threads
    });
    let alone = fold::alone(recording);
    for ((thread, alone), runs) in recording.threads.iter().zip(alone).zip(of_threads) {
        if !runs.is_empty() {
            profiles.push(profile(thread_name(recording, thread, alone, kept_order), runs));
        }
    }

    write(recording, &frames, profiles)
}

/// Of a recording of allocations: bytes that were allocated, and bytes that are kept.
pub(crate) fn render_allocations(recording: &Recording) -> Result<Vec<u8>, ReportError> {
    let tree = FunctionTree::new(&recording.interner);
    let mut frames = frames(recording, &tree);
    let markers = markers(&mut frames, &[]);
    let ranks = tree.ranks(&recording.interner);
    let sums = allocations::fold(recording, |key| Key { root: 0, stack: tree.node(key.stack), ..key });
    let mut sums: Vec<(Key, allocations::Sums)> = sums.into_iter().collect();
    sums.sort_unstable_by_key(|(key, _)| (key.truncated, ranks[key.stack as usize], key.place));
    let profile = |name: &str, of: fn(&allocations::Sums) -> u64| {
        let runs: Vec<(Key, u64)> =
            sums.iter().map(|(key, sums)| (*key, of(sums))).filter(|(_, bytes)| *bytes > 0).collect();
        let weights: Vec<u64> = runs.iter().map(|(_, bytes)| *bytes).collect();
        Profile {
            r#type: "sampled",
            name: name.to_owned(),
            unit: "bytes",
            start_value: 0,
            end_value: weights.iter().fold(0, |sum, weight| sum.saturating_add(*weight)),
            samples: Samples { tree: &tree, markers: &markers, runs },
            weights,
        }
    };
    let profiles = vec![profile("allocated", |sums| sums.bytes), profile("kept", |sums| sums.kept_bytes)];
    write(recording, &frames, profiles)
}

fn write(
    recording: &Recording,
    frames: &[Frame],
    profiles: Vec<Profile<'_>>,
) -> Result<Vec<u8>, ReportError> {
    let file = File {
        schema: "https://www.speedscope.app/file-format-schema.json",
        name: clean(&recording.info.target).into_owned(),
        exporter: clean(&recording.info.tool).into_owned(),
        active_profile_index: 0,
        shared: Shared { frames },
        profiles,
    };
    Ok(serde_json::to_vec(&file)?)
}

/// The functions, by their numbers.
fn frames(recording: &Recording, tree: &FunctionTree) -> Vec<Frame> {
    let interner = &recording.interner;
    tree.functions
        .iter()
        .map(|function| {
            let name = clean(interner.text(function.name));
            let file = match (function.kind, interner.text(function.file)) {
                (FrameKind::Kernel, "") => KERNEL,
                (_, file) => file,
            };
            Frame {
                name: if name.is_empty() { "[unnamed]".into() } else { name.into_owned() },
                file: clean(file).into_owned(),
                line: function.first_line,
            }
        })
        .collect()
}

/// Appends frames that are no functions, and says which numbers they have.
fn markers(frames: &mut Vec<Frame>, reasons: &[WaitReason]) -> HashMap<&'static str, u32> {
    let mut markers = HashMap::new();
    let places = [TRUNCATED, "[idle]", "[engine]", "[no frame]"];
    for name in places.into_iter().chain(reasons.iter().copied().map(piece::marker)) {
        markers.insert(name, frames.len() as u32);
        frames.push(Frame { name: name.into(), file: String::new(), line: 0 });
    }
    markers
}

/// The stacks of each thread in the order of time, equal neighbours together; `None` if they are too many, or if there are
/// waits: several that are stored together have no one place in that order.
fn runs(recording: &Recording, options: &Options, tree: &FunctionTree) -> Option<Vec<Vec<(Key, u64)>>> {
    if !recording.waits.is_empty() {
        return None;
    }
    let mut of_threads: Vec<Vec<(Key, u64)>> = vec![Vec::new(); recording.threads.len()];
    let mut count = 0;
    for piece in pieces(recording) {
        let Some(runs) = of_threads.get_mut(piece.sample.thread.0 as usize) else { continue };
        let Some(mut key) = Key::of(&piece, options.include_idle) else { continue };
        key.stack = tree.node(key.stack);
        match runs.last_mut() {
            Some((last, ns)) if *last == key => *ns = ns.saturating_add(piece.ns),
            _ => {
                runs.push((key, piece.ns));
                count += 1;
                if count > MAX_RUNS {
                    return None;
                }
            }
        }
    }
    Some(of_threads)
}

fn thread_name(recording: &Recording, thread: &Thread, alone: bool, kept_order: bool) -> String {
    let title = fold::process_label(recording, thread);
    let pid = recording.processes.get(thread.process.0 as usize).map_or(0, |process| process.pid);
    let label = fold::thread_label(recording, thread, alone);
    let label = label.map(|label| format!(", {label}")).unwrap_or_default();
    let order = if kept_order { "" } else { " (by stack, not in the order of time)" };
    clean(&format!("{title}, pid {pid}{label}{order}")).into_owned()
}
