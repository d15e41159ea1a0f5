//! Samples and waits alike: what a recording says of some time of one thread.

use slip_model::{Recording, Sample, State, Wait, WaitReason};

/// A sample, or waits that were stored together.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Piece {
    /// Where and in which state. A wait that was ready to run counts as on the CPU, as such a sample does.
    pub(crate) sample: Sample,
    /// What for, if it is waits.
    pub(crate) reason: Option<WaitReason>,
    /// Samples, or waits.
    pub(crate) count: u64,
    /// Time that it stands for: an interval for a sample; for waits, what they took.
    pub(crate) ns: u64,
}

/// All samples, then all waits.
pub(crate) fn pieces(recording: &Recording) -> impl Iterator<Item = Piece> + '_ {
    let ns = recording.info.interval_ns.max(1);
    let samples = recording.samples().map(move |sample| Piece { sample, reason: None, count: 1, ns });
    samples.chain(recording.waits.iter().map(Piece::of_waits))
}

impl Piece {
    pub(crate) fn of_waits(wait: &Wait) -> Self {
        let Wait { time_ns, thread, stack, state, request, reason, count, total_ns } = *wait;
        // Whether it ran is known by the reason, whatever the flags say.
        let cpu = State::ON_CPU.with(State::CPU_UNKNOWN).0;
        let state = State(state.0 & !cpu);
        let state = if reason == WaitReason::Cpu { state.with(State::ON_CPU) } else { state };
        let sample = Sample { time_ns, thread, stack, state, request };
        Self { sample, reason: Some(reason), count: count.into(), ns: total_ns }
    }

    /// The time of it that the thread was running or ready to run.
    pub(crate) fn on_cpu_ns(&self) -> u64 {
        let state = self.sample.state;
        if state.has(State::ON_CPU) && !state.has(State::CPU_UNKNOWN) { self.ns } else { 0 }
    }
}

/// The marker of a reason, for flame graphs.
pub(crate) fn marker(reason: WaitReason) -> &'static str {
    match reason {
        WaitReason::Other => "[waits]",
        WaitReason::Cpu => "[ready]",
        WaitReason::Socket => "[waits: socket]",
        WaitReason::Pipe => "[waits: pipe]",
        WaitReason::File => "[waits: file]",
        WaitReason::Lock => "[waits: lock]",
        WaitReason::Sleep => "[waits: sleep]",
        WaitReason::PageFault => "[waits: page fault]",
        WaitReason::Poll => "[waits: poll]",
        WaitReason::Child => "[waits: child]",
        WaitReason::Stopped => "[stopped]",
    }
}

/// What was waited for, in words.
pub(crate) fn in_words(reason: WaitReason) -> &'static str {
    match reason {
        WaitReason::Other => "something else",
        WaitReason::Cpu => "a CPU, ready to run",
        WaitReason::Socket => "a socket",
        WaitReason::Pipe => "a pipe",
        WaitReason::File => "a file",
        WaitReason::Lock => "a lock",
        WaitReason::Sleep => "time to pass",
        WaitReason::PageFault => "a page of its memory",
        WaitReason::Poll => "one of several things (poll)",
        WaitReason::Child => "a child",
        WaitReason::Stopped => "the signal to go on",
    }
}
