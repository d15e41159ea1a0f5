//! Stacks of native code, with the frames of interpreters where their loops run.

use std::collections::HashMap;
use std::sync::Arc;

use slip_model::{Frame, FrameId, FrameKind, Interner, StackId, Step, StringId};
use slip_native::{End, Registers, SourceFrame};
use slip_probe::NativeCopy;

use crate::native_code::{Files, NativeProcess};
use crate::process::innermost;

/// The functions that run what is interpreted, as their interpreters call them.
const LOOPS: [&str; 2] = ["execute_ex", "_PyEval_EvalFrameDefault"];

/// So often it is asked whether a process has loaded other code.
const LOOK_INTERVAL_NS: u64 = 1_000_000_000;

/// And so long after the last time, if there is code that is not known; then twice as long each time, as long as there is nothing new.
const FIRST_PAUSE_NS: u64 = 10_000_000;

/// What a process has compiled is read again no sooner than this.
const COMPILED_INTERVAL_NS: u64 = 100_000_000;

/// The place of functions that a process has compiled while it ran.
const COMPILED: &str = "[JIT]";

/// Addresses whose frames are kept of a process.
const MAX_ADDRS: usize = 1 << 16;

/// What stands between the frames of an interpreter and native ones if it is not known which of them have called each other.
const NOT_SPLICED: &str = "[not spliced]";

/// The native code of one process.
#[derive(Debug, Default)]
pub(crate) struct NativeStacks {
    process: NativeProcess,
    /// By address, a function and those that were inlined there into it and into each other.
    frames: HashMap<u64, Arc<[NativeStep]>>,
    /// Whether what is called there is a loop.
    loop_calls: HashMap<u64, bool>,
    looked_ns: u64,
    pause_ns: u64,
    compiled_ns: u64,
    /// It has other code than when this was asked last.
    has_changed: bool,
}

/// A native function on a stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct NativeStep {
    frame: FrameId,
    /// It runs frames of the interpreter.
    is_loop: bool,
    /// It is a part of a function without a name: its caller says which one was called.
    is_part: bool,
    /// It was inlined into the one before.
    is_inlined: bool,
}

/// A stack of native code.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct NativeWalk {
    /// The outermost first.
    steps: Vec<NativeStep>,
    /// It begins where the thread began.
    is_whole: bool,
}

impl NativeStacks {
    /// Unwinds a stack that was copied from process `pid`; `now_ns` only grows.
    pub(crate) fn walk(
        &mut self,
        pid: u32,
        now_ns: u64,
        copy: &NativeCopy,
        files: &Files,
        interner: &mut Interner,
    ) -> NativeWalk {
        let is_due = |looked_ns: u64, pause_ns: u64| now_ns.saturating_sub(looked_ns) >= pause_ns;
        if self.looked_ns == 0 || is_due(self.looked_ns, LOOK_INTERVAL_NS) {
            self.look(pid, now_ns);
            if self.process.look_at_compiled(pid, innermost(pid).unwrap_or(pid)) {
                self.frames.clear();
            }
        }
        if self.process.forget_names(files) {
            self.frames.clear();
            self.loop_calls.clear();
        }
        let [bx, bp, r12_to_15 @ ..] = copy.registers;
        let registers = Registers { ip: copy.ip, sp: copy.sp, bx, bp, r12_to_15 };
        let mut walk = self.process.walk(pid, &registers, &copy.stack, files);
        if walk.end == End::Lost && is_due(self.looked_ns, self.pause_ns) && self.look(pid, now_ns) {
            walk = self.process.walk(pid, &registers, &copy.stack, files);
        }
        let mut steps: Vec<NativeStep> = Vec::new();
        let mut caller = None;
        for addr in walk.addrs.iter().rev() {
            let at = steps.len();
            steps.extend_from_slice(&self.steps(pid, *addr, now_ns, files, interner));
            if let Some(caller) = caller.replace(*addr)
                && steps[at].is_part
            {
                steps[at].is_loop |= self.calls_loop(pid, caller, files);
            }
        }
        NativeWalk { steps, is_whole: walk.end == End::Outermost }
    }

    /// The whole of one on which no interpreter has frames.
    pub(crate) fn stack(
        &mut self,
        pid: u32,
        now_ns: u64,
        copy: &NativeCopy,
        files: &Files,
        interner: &mut Interner,
    ) -> StackId {
        let walk = self.walk(pid, now_ns, copy, files, interner);
        walk.steps.iter().fold(StackId(0), |stack, step| interner.push(stack, step.frame))
    }

    /// Whether the call at an address is that of a function which runs what is interpreted.
    fn calls_loop(&mut self, pid: u32, addr: u64, files: &Files) -> bool {
        if let Some(known) = self.loop_calls.get(&addr) {
            return *known;
        }
        let called = self.process.called_at(pid, addr, files);
        let calls_loop =
            called.is_some_and(|called| LOOPS.contains(&&*self.process.name(pid, called, files).function));
        if self.loop_calls.len() >= MAX_ADDRS {
            self.loop_calls.clear();
        }
        self.loop_calls.insert(addr, calls_loop);
        calls_loop
    }

    /// Whether the process has been seen to have other code since this was asked last.
    pub(crate) fn take_change(&mut self) -> bool {
        std::mem::take(&mut self.has_changed)
    }

    /// Looks where the code of the process is; whether it has other code than before.
    fn look(&mut self, pid: u32, now_ns: u64) -> bool {
        self.looked_ns = now_ns;
        let is_other = self.process.read_modules(pid);
        if is_other {
            self.frames.clear();
            self.loop_calls.clear();
            self.has_changed = true;
            self.pause_ns = FIRST_PAUSE_NS;
        } else {
            self.pause_ns = self.pause_ns.saturating_mul(2).clamp(FIRST_PAUSE_NS, LOOK_INTERVAL_NS);
        }
        is_other
    }

    /// The functions at an address, the outermost first; at least one.
    fn steps(
        &mut self,
        pid: u32,
        addr: u64,
        now_ns: u64,
        files: &Files,
        interner: &mut Interner,
    ) -> Arc<[NativeStep]> {
        if let Some(steps) = self.frames.get(&addr) {
            return steps.clone();
        }
        if self.process.is_compiled(pid, addr, files) {
            return self.compiled(pid, addr, now_ns, interner);
        }
        let named = self.process.name(pid, addr, files);
        let source = self.process.source(pid, addr, files);
        let mut source = source.into_iter();
        let outermost = source.next().unwrap_or_default();
        let function = if named.function.is_empty() { &outermost.function } else { &named.function };
        let is_loop = LOOPS.contains(&&**function);
        let is_part = function.is_empty() && self.process.is_part(pid, addr, files);
        let name = match self.process.begin_of(pid, addr, files).filter(|_| function.is_empty()) {
            // Functions that are not told by name are told apart.
            Some(begin) => interner.string(&format!("{}+{begin:#x}", named.module)),
            None if function.is_empty() => interner.string("[unknown]"),
            None => interner.string(function),
        };
        let mut frame = |kind, name, at: &SourceFrame| {
            let file = match &*named.module {
                _ if !at.file.is_empty() => interner.string(&at.file),
                // The kernel's own, and memory that has a name, have brackets.
                module if module.is_empty() || module.starts_with('[') => interner.string(module),
                module => interner.string(&format!("[{module}]")),
            };
            let name = match name {
                Some(name) => name,
                None if at.function.is_empty() => interner.string("[unknown]"),
                None => interner.string(&at.function),
            };
            // A line without its file says nothing.
            let [first_line, line] =
                [at.first_line, at.line].map(|line| if at.file.is_empty() { 0 } else { line });
            interner.frame(Frame { kind, name, file, first_line, line })
        };
        let own = frame(FrameKind::Native, Some(name), &outermost);
        let mut steps = vec![NativeStep { frame: own, is_loop, is_part, is_inlined: false }];
        for inlined in source {
            let frame = frame(FrameKind::Inlined, None, &inlined);
            steps.push(NativeStep { frame, is_loop: false, is_part: false, is_inlined: true });
        }
        self.keep(addr, steps)
    }

    /// A function that the process has compiled while it ran.
    fn compiled(&mut self, pid: u32, addr: u64, now_ns: u64, interner: &mut Interner) -> Arc<[NativeStep]> {
        let own_pid = innermost(pid).unwrap_or(pid);
        let mut known = self.process.compiled_name(pid, own_pid, addr);
        if known.is_none() && now_ns.saturating_sub(self.compiled_ns) >= COMPILED_INTERVAL_NS {
            self.compiled_ns = now_ns;
            if self.process.look_at_compiled(pid, own_pid) {
                // Other code may be where that was.
                self.frames.clear();
                known = self.process.compiled_name(pid, own_pid, addr);
            }
        }
        let name = interner.string(known.as_deref().unwrap_or("[unknown]"));
        let file = if known.is_some() { interner.string(COMPILED) } else { StringId::default() };
        let frame = interner.frame(Frame { kind: FrameKind::Native, name, file, ..Frame::default() });
        let steps = vec![NativeStep { frame, is_loop: false, is_part: false, is_inlined: false }];
        // It may be told yet what this is.
        if known.is_some() { self.keep(addr, steps) } else { steps.into() }
    }

    fn keep(&mut self, addr: u64, steps: Vec<NativeStep>) -> Arc<[NativeStep]> {
        if self.frames.len() >= MAX_ADDRS {
            self.frames.clear();
        }
        let steps: Arc<[NativeStep]> = steps.into();
        self.frames.insert(addr, steps.clone());
        steps
    }
}

/// The frames of both, the outermost first: those of the interpreter where its loop runs.
///
/// Where it is not certain which of them have called each other, the frames of the interpreter come first, and then the native ones that the
/// last loop has called.
pub(crate) fn splice(steps: &[Step], walk: &NativeWalk, interner: &mut Interner) -> Vec<FrameId> {
    let entries = steps.iter().filter(|step| **step == Step::Entry).count();
    let loops = walk.steps.iter().filter(|step| step.is_loop).count();
    // What was inlined into a loop is a part of it.
    let is_in_loop = walk.steps.iter().rev().find(|step| !step.is_inlined).is_some_and(|step| step.is_loop);
    let natives = walk.steps.iter().map(|step| step.frame);
    if steps.is_empty() {
        return natives.collect();
    }
    // What is innermost may have been entered and have no frame yet, or none any more. Of a stack that was cut it is not known whether loops are
    // missing, unless that is not so.
    // What is put apart may be of a loop.
    let is_certain = !walk.steps.iter().any(|step| step.is_part && !step.is_loop);
    let is_entering = walk.is_whole && is_in_loop && loops == entries + 1;
    let fits = loops == entries && (walk.is_whole || !is_in_loop);
    let mut frames = Vec::new();
    if is_certain && (fits || is_entering) && steps.first() == Some(&Step::Entry) {
        let mut runs = steps.split(|step| *step == Step::Entry).skip(1);
        for native in &walk.steps {
            match native.is_loop.then(|| runs.next()).flatten() {
                Some(run) => frames.extend(run.iter().filter_map(frame_of)),
                None => frames.push(native.frame),
            }
        }
        return frames;
    }
    frames.extend(steps.iter().filter_map(frame_of));
    let name = interner.string(NOT_SPLICED);
    frames.push(interner.frame(Frame { kind: FrameKind::Marker, name, ..Frame::default() }));
    match walk.steps.iter().rposition(|step| step.is_loop) {
        Some(innermost) => frames.extend(natives.skip(innermost + 1)),
        // The loop is further out than the stack was copied or could be followed.
        None if !walk.is_whole => frames.extend(natives),
        None => {}
    }
    frames
}

fn frame_of(step: &Step) -> Option<FrameId> {
    match step {
        Step::Entry => None,
        Step::Frame(frame) => Some(*frame),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOOP: u32 = 1_000;

    /// Numbers are frames, and `LOOP` is one that runs others.
    fn walk(frames: &[u32], is_whole: bool) -> NativeWalk {
        let step = |frame: &u32| NativeStep {
            frame: FrameId(*frame),
            is_loop: *frame == LOOP,
            is_part: false,
            is_inlined: false,
        };
        NativeWalk { steps: frames.iter().map(step).collect(), is_whole }
    }

    /// 0 is an entry.
    fn steps(frames: &[u32]) -> Vec<Step> {
        frames
            .iter()
            .map(|frame| if *frame == 0 { Step::Entry } else { Step::Frame(FrameId(*frame)) })
            .collect()
    }

    fn spliced(own: &[u32], native: &[u32], is_whole: bool) -> Vec<u32> {
        let mut interner = Interner::new();
        // The first frame that is interned has this number.
        let marker = |frame: FrameId| if frame == FrameId(0) { 0 } else { frame.0 };
        let frames = splice(&steps(own), &walk(native, is_whole), &mut interner);
        frames.into_iter().map(marker).collect()
    }

    #[test]
    fn frames_are_where_the_loop_runs_them() {
        let native = [101, 102, LOOP, 103, 104, LOOP, 105];
        assert_eq!(spliced(&[0, 1, 2, 0, 3], &native, true), [101, 102, 1, 2, 103, 104, 3, 105]);
        // What is entered may show nothing.
        assert_eq!(spliced(&[0, 1, 2, 0], &native, true), [101, 102, 1, 2, 103, 104, 105]);
    }

    #[test]
    fn a_loop_that_has_just_been_entered_is_native() {
        assert_eq!(spliced(&[0, 1], &[101, LOOP, 102, LOOP], true), [101, 1, 102, LOOP]);
    }

    #[test]
    fn what_was_inlined_into_a_loop_is_within_it() {
        let mut native = walk(&[101, LOOP, 102, LOOP, 103], true);
        native.steps[2].is_inlined = true;
        native.steps[4].is_inlined = true;
        let spliced =
            |own: &[u32]| splice(&steps(own), &native, &mut Interner::new()).into_iter().map(|frame| frame.0);
        assert!(spliced(&[0, 1, 0, 2]).eq([101, 1, 102, 2, 103]));
        // The second one has just been entered.
        assert!(spliced(&[0, 1]).eq([101, 1, 102, LOOP, 103]));
    }

    #[test]
    fn a_stack_that_was_cut_outside_of_all_loops_is_whole_enough() {
        assert_eq!(spliced(&[0, 1, 0, 2], &[102, LOOP, 103, LOOP, 104], false), [102, 1, 103, 2, 104]);
    }

    #[test]
    fn without_an_interpreter_s_frame_all_is_native() {
        assert_eq!(spliced(&[], &[101, LOOP, 102], true), [101, LOOP, 102]);
        assert_eq!(spliced(&[], &[101], false), [101]);
    }

    #[test]
    fn what_is_not_certain_is_not_spliced() {
        // A loop that has no frame has called something.
        assert_eq!(spliced(&[0, 1], &[101, LOOP, 102, LOOP, 103], true), [1, 0, 103]);
        // The copy ended too early, within or inside of the outermost loop, or perhaps outside of one that has no frame yet.
        assert_eq!(spliced(&[0, 1, 0, 2], &[102, LOOP, 103], false), [1, 2, 0, 103]);
        assert_eq!(spliced(&[0, 1], &[101, LOOP], false), [1, 0]);
        assert_eq!(spliced(&[0, 1], &[102, 103], false), [1, 0, 102, 103]);
        assert_eq!(spliced(&[0, 1], &[102, 103], true), [1, 0]);
        let mut apart = walk(&[101, LOOP, 102, LOOP], true);
        apart.steps[2].is_part = true;
        let frames = splice(&steps(&[0, 1, 0, 2]), &apart, &mut Interner::new());
        assert_eq!(frames, [1, 2, 0].map(FrameId), "this may be a loop, and the last one have no frame yet");
        // Nothing was copied.
        assert_eq!(spliced(&[0, 1, 0, 2], &[], false), [1, 2, 0]);
        // Outer frames are missing.
        assert_eq!(spliced(&[2, 0, 3], &[101, LOOP, 102], true), [2, 3, 0, 102]);
    }
}
