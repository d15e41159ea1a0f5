//! Time in the kernel and in instructions, of the functions that called it and whose they are.

use std::cmp::Reverse;
use std::collections::HashMap;

use slip_model::{Frame, FrameKind, Interner, StackId};

use crate::fold::MAX_DEPTH;
use crate::piece::Piece;

/// Where in the kernel, and in which instructions, time was spent in code, as far as that is known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KernelSummary {
    /// By the stack that called the kernel, and then by time, most first.
    times: Vec<KernelTime>,
    /// The same of instructions, by the stack of their functions.
    instructions: Vec<KernelTime>,
}

/// Time in one place of the kernel, called from one stack; or in one instruction of it.
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
        of_caller(&self.times, caller)
    }

    /// The instructions that the innermost function of this stack executed, that with the most time first: their frames are the
    /// innermost ones of [`KernelTime::stack`].
    pub fn instructions(&self, caller: StackId) -> &[KernelTime] {
        of_caller(&self.instructions, caller)
    }
}

fn of_caller(times: &[KernelTime], caller: StackId) -> &[KernelTime] {
    let from = times.partition_point(|time| time.caller < caller);
    let length = times[from..].partition_point(|time| time.caller == caller);
    &times[from..from + length]
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
    /// By stack: the one that called the kernel, or whose instruction it is; itself if its innermost frame is a function.
    callers: Vec<u32>,
    times: HashMap<u32, KernelTime>,
    instructions: HashMap<u32, KernelTime>,
}

impl Scan {
    pub(super) fn new(interner: &Interner) -> Self {
        let mut callers: Vec<u32> = Vec::with_capacity(interner.sizes().2);
        callers.push(0);
        for id in 1..interner.sizes().2 as u32 {
            let node = interner.node(StackId(id));
            let caller = node
                .filter(|node| is_inner(interner.frame_at(node.frame).kind))
                // A parent is older than its child, or the recording is damaged.
                .map(|node| callers.get(node.parent.index()).copied().unwrap_or(0));
            callers.push(caller.unwrap_or(id));
        }
        Self { callers, times: HashMap::new(), instructions: HashMap::new() }
    }

    /// The stack that called the kernel, of one that is known.
    pub(super) fn caller(&self, stack: usize) -> usize {
        self.callers.get(stack).map_or(0, |caller| *caller as usize)
    }

    pub(super) fn take(&mut self, interner: &Interner, piece: &Piece, stack: usize) {
        let caller = self.caller(stack);
        if caller == stack {
            return;
        }
        let innermost = interner.node(StackId(stack as u32)).map(|node| interner.frame_at(node.frame).kind);
        if innermost == Some(FrameKind::Server) {
            // Where in the kernel is not known.
            return;
        }
        let times =
            if innermost == Some(FrameKind::Kernel) { &mut self.times } else { &mut self.instructions };
        let time = times.entry(stack as u32).or_insert(KernelTime {
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
        KernelSummary { times: sorted(self.times), instructions: sorted(self.instructions) }
    }
}

/// Whether such frames are no functions of the program, but what its innermost function does.
fn is_inner(kind: FrameKind) -> bool {
    kind.is_beyond_program() || kind == FrameKind::Instruction
}

fn sorted(times: HashMap<u32, KernelTime>) -> Vec<KernelTime> {
    let mut times: Vec<KernelTime> = times.into_values().collect();
    times.sort_unstable_by_key(|time| (time.caller, Reverse(time.ns), time.stack));
    times
}

#[cfg(test)]
mod tests {
    use slip_model::State;

    use crate::support::{Builder, INTERVAL_NS};
    use crate::{Format, Options, Summary, render};

    #[test]
    fn an_instruction_is_time_of_its_function() {
        let mut b = Builder::new("app.py");
        let process = b.process(slip_model::Language::Python, "3.15.0", 7, "app.py");
        let thread = b.thread(process, 7, 0, "");
        let stack = b.stack(slip_model::FrameKind::Python, &["main@/app.py:1:2", "f@/app.py:5:6"]);
        let interner = &mut b.recording.interner;
        let name = interner.string("[FOR_ITER]");
        let frame =
            slip_model::Frame { kind: slip_model::FrameKind::Instruction, name, ..Default::default() };
        let frame = interner.frame(frame);
        let inner = interner.push(stack, frame);
        b.samples(3, thread, inner, State::ON_CPU, 0);
        b.samples(1, thread, stack, State::ON_CPU, 0);
        let recording = b.finish();
        let summary = Summary::of(&recording);
        assert_eq!(summary.functions.len(), 2);
        assert_eq!(summary.functions[0].own_ns, 4 * INTERVAL_NS);
        assert_eq!(summary.stacks.len(), 1);
        assert_eq!(summary.kernel.instructions(stack).iter().map(|time| time.samples).sum::<u64>(), 3);
        assert!(summary.kernel.of_stack(stack).is_empty());
        let text = render(&recording, Format::Collapsed, &Options::default()).unwrap();
        assert_eq!(
            String::from_utf8(text).unwrap(),
            "app.py;main (/app.py:1);f (/app.py:5) 1\napp.py;main (/app.py:1);f (/app.py:5);[FOR_ITER] 3\n"
        );
    }
}
