//! How to walk the stacks of a process, for a walker that does not know its interpreter.

use crate::{FrameLayout, Range, RemoteAddr};

/// A part of memory that is copied with each stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlanRange {
    /// Where it begins: an address, or with `of_thread` the distance from the thread state.
    pub addr: RemoteAddr,
    /// Its length in bytes.
    pub len: usize,
    /// Whether each thread has one of its own, in its thread state.
    pub of_thread: bool,
}

/// How a thread finds its state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ThreadPlan {
    /// Where, from the base of thread-local storage on, the address of the thread state may be: the first that holds one
    /// counts.
    pub slots: Vec<i64>,
    /// Where the thread state holds `pthread_self()`, which is that base.
    pub thread_id: usize,
    /// How many bytes from the begin of the state hold this and [`StackPlan::current`], and the outermost structure that
    /// [`StackPlan::indirect`] leads through, if that is in the state.
    pub len: usize,
}

/// What has to be known of a process to copy the stack of the thread that runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StackPlan {
    /// What is copied beside the frames, in the order of the anchor's bytes.
    pub ranges: Vec<PlanRange>,
    /// `None` if the process has one stack for all its threads.
    pub threads: Option<ThreadPlan>,
    /// Where the pointer to the innermost frame lies: an address, or the distance from the thread state.
    pub current: RemoteAddr,
    /// The pointer leads to a structure that has the pointer to the frame here.
    pub indirect: Option<usize>,
    /// A word that differs from one request of the process to the next, if there is one.
    pub request: Option<RemoteAddr>,
    /// The records.
    pub frame: FrameLayout,
    /// Machine code that the interpreter has compiled.
    pub compiled: Option<Range>,
    /// The innermost frame is in `r14` and its instruction in `r15` while the interpreter's loop runs.
    pub in_registers: bool,
}

/// A stack that was copied by such a plan, at one moment.
#[derive(Clone, Copy, Debug)]
pub struct Copied<'a> {
    /// The state of the thread; null if the process has one stack for all its threads.
    pub thread_state: RemoteAddr,
    /// Where the records lay, the innermost first.
    pub addrs: &'a [RemoteAddr],
    /// The records, [`FrameLayout::len`] bytes each.
    pub frames: &'a [u8],
    /// There were more.
    pub truncated: bool,
    /// The innermost frame's instruction, if it was in a register; null if compiled code ran, which keeps none.
    pub instruction: Option<RemoteAddr>,
    /// What the ranges held.
    pub anchor: &'a [u8],
}
