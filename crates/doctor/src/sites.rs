//! Which functions of the program did something, by samples and waits.

use std::cmp::Reverse;
use std::collections::HashMap;

use slip_model::{FrameId, FrameKind, Interner, Recording, Sample, StackId, State, ThreadId, WaitReason};

use crate::{Statement, Value, tenths};

/// Deepest stack that is followed.
const MAX_DEPTH: usize = 1_024;

/// Fewer samples name no function.
pub(crate) const MIN_SAMPLES: u64 = 10;

/// Functions that are named, at most.
const MAX_SITES: usize = 3;

/// A function, and how much of something was its.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Site {
    pub(crate) frame: FrameId,
    /// Time of samples and waits.
    pub(crate) ns: u64,
}

/// What samples and waits say of where time goes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sites {
    /// Those with most time first.
    pub(crate) sites: Vec<Site>,
    /// Of all together, also without a function.
    pub(crate) ns: u64,
    /// Samples, and waits, that this is of.
    pub(crate) count: u64,
    /// Whose they are, and for how long: those with most time first.
    pub(crate) threads: Vec<(ThreadId, u64)>,
}

/// A sample, or waits that were stored together.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Look {
    pub(crate) sample: Sample,
    /// What for, if it is waits.
    pub(crate) reason: Option<WaitReason>,
    count: u64,
    ns: u64,
}

impl Look {
    /// Whether the thread ran.
    pub(crate) fn is_on_cpu(&self) -> bool {
        self.reason.is_none()
            && self.sample.state.has(State::ON_CPU)
            && !self.sample.state.has(State::CPU_UNKNOWN)
    }
}

impl Sites {
    /// Adds up what `is_meant`, by the innermost function of the program.
    pub(crate) fn of(recording: &Recording, is_meant: impl Fn(&Look) -> bool) -> Self {
        let interval_ns = recording.info.interval_ns.max(1);
        let samples =
            recording.samples().map(|sample| Look { sample, reason: None, count: 1, ns: interval_ns });
        let waits = recording.waits.iter().map(|wait| {
            let sample = Sample {
                time_ns: wait.time_ns,
                thread: wait.thread,
                stack: wait.stack,
                state: wait.state,
                request: wait.request,
            };
            Look { sample, reason: Some(wait.reason), count: wait.count.into(), ns: wait.total_ns }
        });
        let mut found = Self::default();
        let mut by_frame: HashMap<FrameId, u64> = HashMap::new();
        let mut by_thread: HashMap<ThreadId, u64> = HashMap::new();
        for look in samples.chain(waits).filter(|look| !look.sample.state.has(State::IDLE) && is_meant(look))
        {
            found.ns = found.ns.saturating_add(look.ns);
            found.count = found.count.saturating_add(look.count);
            let ns = by_thread.entry(look.sample.thread).or_default();
            *ns = ns.saturating_add(look.ns);
            if let Some(frame) = function(&recording.interner, look.sample.stack) {
                let ns = by_frame.entry(frame).or_default();
                *ns = ns.saturating_add(look.ns);
            }
        }
        // One function at several lines is one.
        let mut merged: HashMap<_, Site> = HashMap::new();
        for (id, ns) in by_frame {
            let frame = recording.interner.frame_at(id);
            let site = merged
                .entry((frame.kind, frame.name, frame.file, frame.first_line))
                .or_insert(Site { frame: id, ns: 0 });
            site.frame = site.frame.min(id);
            site.ns = site.ns.saturating_add(ns);
        }
        found.sites = merged.into_values().collect();
        found.sites.sort_by_key(|site| (Reverse(site.ns), site.frame));
        found.threads = by_thread.into_iter().collect();
        found.threads.sort_by_key(|(thread, ns)| (Reverse(*ns), *thread));
        found
    }

    /// The first of them as sentences; `text` has places for `function`, `share`, and `samples`, of which all is.
    pub(crate) fn statements(&self, recording: &Recording, text: &'static str) -> Vec<Statement> {
        let sites = self.sites.iter().take(MAX_SITES).map(|site| {
            Statement::new(text)
                .by("samples")
                .with("function", Value::Name(named(&recording.interner, site.frame)))
                .with("share", Value::Tenths(tenths(site.ns.into(), self.ns.into())))
                .with("samples", Value::Count(self.count))
        });
        sites.collect()
    }

    /// The threads with most of it as sentences; `text` has places for `thread`, with its number in the kernel, and `share`.
    pub(crate) fn of_threads(&self, recording: &Recording, text: &'static str) -> Vec<Statement> {
        let threads = self.threads.iter().take(MAX_SITES).filter_map(|(id, ns)| {
            let thread = recording.threads.iter().find(|thread| thread.id == *id)?;
            let name = format!("{} ({})", recording.interner.text(thread.name), thread.tid);
            Some(
                Statement::new(text)
                    .by("samples")
                    .with("thread", Value::Name(name))
                    .with("share", Value::Tenths(tenths((*ns).into(), self.ns.into()))),
            )
        });
        threads.collect()
    }
}

/// The innermost function of the program: behind the kernel's.
fn function(interner: &Interner, stack: StackId) -> Option<FrameId> {
    let frames = interner.frames_of(stack).take(MAX_DEPTH);
    let is_function = |kind: FrameKind| {
        !kind.is_beyond_program() && !matches!(kind, FrameKind::Instruction | FrameKind::Marker)
    };
    frames.into_iter().find(|id| is_function(interner.frame_at(*id).kind))
}

/// Whether one of the kernel's functions of this stack is called so, or begins so if the name ends with `*`.
pub(crate) fn is_in_kernel(interner: &Interner, stack: StackId, names: &[&str]) -> bool {
    let frames = interner.frames_of(stack).take(MAX_DEPTH).map(|id| interner.frame_at(id));
    let mut kernel =
        frames.take_while(|frame| matches!(frame.kind, FrameKind::Kernel | FrameKind::Instruction));
    kernel.any(|frame| {
        let name = interner.text(frame.name);
        names.iter().any(|wanted| match wanted.strip_suffix('*') {
            Some(begin) => name.starts_with(begin),
            None => name == *wanted,
        })
    })
}

/// `App\Price::tax (/srv/app/src/Price.php:8)`.
fn named(interner: &Interner, frame: FrameId) -> String {
    let frame = interner.frame_at(frame);
    let (name, file) = (interner.text(frame.name), interner.text(frame.file));
    match (file, frame.line) {
        ("", _) => name.to_owned(),
        (file, 0) => format!("{name} ({file})"),
        (file, line) => format!("{name} ({file}:{line})"),
    }
}
