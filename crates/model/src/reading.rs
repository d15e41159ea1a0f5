//! What one look at one thread of an interpreter gives.

use crate::{FrameId, StackId, StringId};

/// How far a stack that was read from a running target can be trusted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Outcome {
    /// The target did not change what was read while it was read.
    #[default]
    Clean,
    /// Part of it changed; that part was read again, once, and was then at rest.
    Repaired,
    /// It changed again during the repair. There is no stack: the sample is counted and dropped.
    Torn,
}

/// What the thread has to do with the global interpreter lock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Gil {
    /// The interpreter has no such lock, or its state could not be read.
    #[default]
    Unknown,
    /// The thread holds it.
    Holds,
    /// Another thread holds it, or none does.
    Free,
}

/// The stack of one thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StackReading {
    /// Kernel thread id as the target's own pid namespace numbers it; 0 if the interpreter does not keep it.
    pub native_tid: u64,
    /// Address of the interpreter's thread state: tells threads apart where the thread id is missing.
    pub thread_key: u64,
    /// Number of the (sub)interpreter the thread runs in; 0 is the main one.
    pub interpreter: u64,
    /// The name the program gave the thread; empty if it has none.
    pub name: StringId,
    /// Relation to the global interpreter lock.
    pub gil: Gil,
    /// How far the stack can be trusted.
    pub outcome: Outcome,
    /// The stack was deeper than the limit and has been cut at its outer end.
    pub truncated: bool,
    /// The stack, `StackId(0)` if no code runs.
    pub stack: StackId,
}

/// What a PHP worker is working on.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct RequestFacts {
    /// Differs between two requests of the same worker, as far as the engine lets us tell them apart.
    pub key: u64,
    /// HTTP method.
    pub method: StringId,
    /// Path of the URI, without its query string unless asked for.
    pub uri: StringId,
    /// File of the script.
    pub script: StringId,
    /// Begin of the request, nanoseconds since 1970; 0 if the engine has not noted it (yet).
    pub started_unix_ns: u64,
    /// Bytes of request memory in use now; 0 if unknown.
    pub memory_bytes: u64,
}

/// A part of a stack, from its outer end on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Native code has entered the interpreter's loop, which runs the frames that follow, up to the next one of these.
    Entry,
    /// A frame.
    Frame(FrameId),
}
