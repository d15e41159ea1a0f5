//! What the first screen and the data have in common: what time is spent on, with a colour each.

use slip_doctor::Line;
use slip_model::WaitReason;

/// What time is spent on, as the page tells it apart. The key names its colour in `page.css`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A line of a budget.
    Line(Line),
    /// Seen on a CPU by samples, in code.
    OnCpu,
    /// Seen by samples in a request, but not in code.
    Engine,
    /// Waits of which is known what for.
    Waits(WaitReason),
    /// Seen waiting by samples, for whatever.
    OffCpu,
    /// Seen in code by samples, which could not tell whether it ran.
    NotTold,
    /// In the request by its begin and end, and in no sample or wait.
    NotSeen,
}

/// All, in the order in which bars have them.
pub(super) fn kinds() -> Vec<Kind> {
    let lines = Line::ALL.map(Kind::Line).into_iter();
    let waits = WaitReason::ALL.map(Kind::Waits).into_iter();
    lines
        .chain([Kind::OnCpu, Kind::Engine])
        .chain(waits)
        .chain([Kind::OffCpu, Kind::NotTold, Kind::NotSeen])
        .collect()
}

/// Its place in [`kinds`].
pub(super) fn number(kind: Kind) -> u32 {
    let lines = Line::ALL.len() as u32;
    let waits = WaitReason::ALL.len() as u32;
    match kind {
        Kind::Line(line) => line as u32,
        Kind::OnCpu => lines,
        Kind::Engine => lines + 1,
        Kind::Waits(reason) => lines + 2 + reason as u32,
        Kind::OffCpu => lines + waits + 2,
        Kind::NotTold => lines + waits + 3,
        Kind::NotSeen => lines + waits + 4,
    }
}

impl Kind {
    /// The key of its colour.
    pub(super) fn key(self) -> &'static str {
        match self {
            Self::Line(line) => match line {
                Line::Queue => "queue",
                Line::Boot => "boot",
                Line::Code => "code",
                Line::Memory => "memory",
                Line::Connect => "connect",
                Line::Wait => "wait",
                Line::Client => "client",
                Line::Wake => "wake",
                Line::Lock => "lock",
                Line::Gil => "gil",
                Line::Disk => "disk",
                Line::Sleep => "sleep",
                Line::Other => "other",
                Line::After => "after",
                Line::Idle => "idle",
                Line::Between => "between",
                Line::Unknown => "unknown",
            },
            Self::OnCpu => "code",
            Self::Engine => "boot",
            Self::Waits(reason) => match reason {
                WaitReason::Cpu => "wake",
                WaitReason::Socket | WaitReason::Poll => "wait",
                WaitReason::File => "disk",
                WaitReason::Lock => "lock",
                WaitReason::Sleep => "sleep",
                WaitReason::PageFault => "memory",
                WaitReason::Pipe | WaitReason::Child | WaitReason::Stopped | WaitReason::Other => "other",
            },
            Self::OffCpu => "wait",
            Self::NotTold | Self::NotSeen => "unknown",
        }
    }

    /// What it is called.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Line(line) => line.name(),
            Self::OnCpu => "on CPU",
            Self::Engine => "engine",
            Self::Waits(WaitReason::Cpu) => "ready",
            Self::Waits(reason) => match reason {
                WaitReason::Socket => "socket",
                WaitReason::Pipe => "pipe",
                WaitReason::File => "file",
                WaitReason::Lock => "lock",
                WaitReason::Sleep => "sleep",
                WaitReason::PageFault => "page fault",
                WaitReason::Poll => "poll",
                WaitReason::Child => "child",
                WaitReason::Stopped => "stopped",
                WaitReason::Cpu | WaitReason::Other => "other wait",
            },
            Self::OffCpu => "waiting",
            Self::NotTold => "not told",
            Self::NotSeen => "not seen",
        }
    }

    /// What it means, in a few words.
    pub(super) fn meaning(self) -> &'static str {
        match self {
            Self::Line(line) => line.meaning(),
            Self::OnCpu => "in code, running or ready to run, by samples",
            Self::Engine => "in a request, but not in code: start-up, compilation, shutdown",
            Self::Waits(WaitReason::Cpu) => "ready to run, while another thread had the CPU",
            Self::Waits(reason) => match reason {
                WaitReason::Socket => "waiting for a socket",
                WaitReason::Pipe => "waiting for a pipe",
                WaitReason::File => "waiting for a file",
                WaitReason::Lock => "waiting for a lock",
                WaitReason::Sleep => "waiting for time to pass",
                WaitReason::PageFault => "waiting for a page of its memory",
                WaitReason::Poll => "waiting for one of several things (poll)",
                WaitReason::Child => "waiting for a child",
                WaitReason::Stopped => "stopped, until the signal to go on",
                WaitReason::Cpu | WaitReason::Other => "waiting for something else",
            },
            Self::OffCpu => "in code, waiting; the sampler does not see what for",
            Self::NotTold => "in code; whether it ran could not be read",
            Self::NotSeen => "in no sample and no wait",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_have_the_numbers_of_their_places() {
        for (place, kind) in (0_u32..).zip(kinds()) {
            assert_eq!(number(kind), place, "{kind:?}");
        }
    }
}
