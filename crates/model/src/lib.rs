//! Samples, stacks, threads and requests: the words that every other crate speaks.
//!
//! Owns the in-memory form of a recording and the interning of strings, frames and stacks.
//! Never does I/O, reads a clock or uses `unsafe`; time comes in as nanoseconds.
#![forbid(unsafe_code)]

mod intern;
mod reading;
mod recording;

pub use intern::{Frame, FrameId, FrameKind, Interner, InternerDelta, StackId, StackNode, StringId};
pub use reading::{Gil, Outcome, RequestFacts, StackReading};
pub use recording::{
    Batch, Language, Mode, Process, ProcessId, Recording, RecordingInfo, Request, RequestId, Sample,
    SampleBlock, State, Thread, ThreadId, Totals,
};
