//! Time in the kernel, of the functions that called it.

use std::cmp::Reverse;
use std::collections::HashMap;

use slip_model::{Frame, FrameKind, Interner, StackId};

use crate::fold::MAX_DEPTH;
use crate::piece::Piece;

/// Where in the kernel time was spent in code, as far as that is known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KernelSummary {
    /// By the stack that called the kernel, and then by time, most first.
    times: Vec<KernelTime>,
}

/// Time in one place of the kernel, called from one stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KernelTime {
    /// The stack that called the kernel.
    pub caller: StackId,
    /// The same with the kernel's frames.
    pub stack: StackId,
    /// Samples there.
    pub samples: u64,
    /// Time there, samples and waits.
    pub ns: u64,
    /// The part of that on a CPU.
    pub on_cpu_ns: u64,
}

impl KernelSummary {
    /// The places to which this stack led, that with the most time first.
    pub fn of_stack(&self, caller: StackId) -> &[KernelTime] {
        let from = self.times.partition_point(|time| time.caller < caller);
        let length = self.times[from..].partition_point(|time| time.caller == caller);
        &self.times[from..from + length]
    }
}

/// Begins of names of functions through which every system call enters the kernel.
const ENTRY: [&str; 3] = ["entry_", "do_syscall_", "x64_sys_call"];

impl KernelTime {
    /// The kernel's frames, the innermost first.
    pub fn frames<'a>(&self, interner: &'a Interner) -> impl Iterator<Item = Frame> + use<'a> {
        let frames = interner.frames_of(self.stack).map(|id| interner.frame_at(id));
        frames.take_while(|frame| frame.kind == FrameKind::Kernel)
    }

    /// What the kernel was asked for, which is the outermost function that not all calls have: `__x64_sys_read`.
    pub fn asked_for(&self, interner: &Interner) -> Option<Frame> {
        let is_entry = |frame: &Frame| ENTRY.iter().any(|begin| interner.text(frame.name).starts_with(begin));
        self.frames(interner).take(MAX_DEPTH).filter(|frame| !is_entry(frame)).last()
    }
}

#[derive(Debug)]
pub(super) struct Scan {
    /// By stack: the one that called the kernel; itself if it has no frame of the kernel.
    callers: Vec<u32>,
    times: HashMap<u32, KernelTime>,
}

impl Scan {
    pub(super) fn new(interner: &Interner) -> Self {
        let mut callers: Vec<u32> = Vec::with_capacity(interner.sizes().2);
        callers.push(0);
        for id in 1..interner.sizes().2 as u32 {
            let node = interner.node(StackId(id));
            let caller = node
                .filter(|node| interner.frame_at(node.frame).kind == FrameKind::Kernel)
                // A parent is older than its child, or the recording is damaged.
                .map(|node| callers.get(node.parent.index()).copied().unwrap_or(0));
            callers.push(caller.unwrap_or(id));
        }
        Self { callers, times: HashMap::new() }
    }

    /// The stack that called the kernel, of one that is known.
    pub(super) fn caller(&self, stack: usize) -> usize {
        self.callers.get(stack).map_or(0, |caller| *caller as usize)
    }

    pub(super) fn take(&mut self, piece: &Piece, stack: usize) {
        let caller = self.caller(stack);
        if caller == stack {
            return;
        }
        let time = self.times.entry(stack as u32).or_insert(KernelTime {
            caller: StackId(caller as u32),
            stack: StackId(stack as u32),
            samples: 0,
            ns: 0,
            on_cpu_ns: 0,
        });
        time.samples += u64::from(piece.reason.is_none());
        time.ns = time.ns.saturating_add(piece.ns);
        time.on_cpu_ns = time.on_cpu_ns.saturating_add(piece.on_cpu_ns());
    }

    pub(super) fn finish(self) -> KernelSummary {
        let mut times: Vec<KernelTime> = self.times.into_values().collect();
        times.sort_unstable_by_key(|time| (time.caller, Reverse(time.ns), time.stack));
        KernelSummary { times }
    }
}
