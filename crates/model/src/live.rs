//! What is seen while it happens: of each thread the last look, and where the time of the last seconds went.

use std::sync::Arc;

use crate::{FrameKind, Language, WaitReason};

/// What a thread is doing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ThreadState {
    /// A worker between two requests.
    Idle,
    /// On a CPU.
    Running,
    /// It could run, and has mostly had no CPU since the window began.
    Ready,
    /// Blocked, and what for if that is known.
    Blocked(Option<WaitReason>),
    /// Not known.
    #[default]
    Unknown,
}

/// The request that a worker is in.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LiveRequest {
    /// HTTP method; empty on PHP's command line, as is the URI.
    pub method: Arc<str>,
    /// Path of the URI. Untrusted, as all names are.
    pub uri: Arc<str>,
    /// File of the script.
    pub script: Arc<str>,
    /// How long it has lasted.
    pub age_ns: u64,
}

/// The innermost function of a thread.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LivePlace {
    /// What kind of code it is.
    pub kind: FrameKind,
    /// Qualified name.
    pub name: Arc<str>,
    /// Path as the interpreter knows it; empty where there is none.
    pub file: Arc<str>,
    /// The line being executed; 0 if unknown.
    pub line: u32,
}

/// One thread.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LiveThread {
    /// Process id as this host numbers it.
    pub pid: u32,
    /// Kernel thread id as this host numbers it.
    pub tid: u32,
    /// Language of the process.
    pub language: Language,
    /// What the process is called.
    pub title: Arc<str>,
    /// What the thread is called.
    pub name: Arc<str>,
    /// What it did when it was last looked at.
    pub state: ThreadState,
    /// In a request, but not in code: start-up, compilation, shutdown of the request.
    pub is_engine: bool,
    /// How long it was on a CPU in the window, by the kernel's account; `None` if there is none.
    pub cpu_ns: Option<u64>,
    /// How long it could have run in the window and had no CPU.
    pub ready_ns: Option<u64>,
    /// The request that it is in.
    pub request: Option<LiveRequest>,
    /// Where it is; `None` if no code runs.
    pub place: Option<LivePlace>,
}

/// One function, at whatever line, within the last [`Window::span_ns`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LiveFunction {
    /// What kind of code it is.
    pub kind: FrameKind,
    /// Qualified name.
    pub name: Arc<str>,
    /// File; empty for functions of the engine.
    pub file: Arc<str>,
    /// First line; 0 if unknown.
    pub first_line: u32,
    /// Time in which it was the innermost function.
    pub own_ns: u64,
    /// The part of that on a CPU, or ready for one.
    pub own_cpu_ns: u64,
    /// Time in which it was anywhere in the stack.
    pub total_ns: u64,
}

/// What was seen until some moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Window {
    /// Time since the begin of the watch.
    pub end_ns: u64,
    /// How long the window is: what threads say of their CPU time is of it.
    pub length_ns: u64,
    /// Threads, by process and number.
    pub threads: Vec<LiveThread>,
    /// How far functions and counters reach back.
    pub span_ns: u64,
    /// Functions, that with the most time of its own first. Those with least time are left out if there are very many.
    pub functions: Vec<LiveFunction>,
    /// Time of all threads that was not idle: what functions have shares of.
    pub busy_ns: u64,
    /// Looks at threads.
    pub samples: u64,
    /// Looks that failed, or whose stack moved while it was read.
    pub torn: u64,
    /// Requests of PHP that have ended and were seen at all: one that begins and ends between two looks is not.
    pub requests: u64,
}
