//! Samples, stacks, threads and requests: the words that every other crate speaks.
//!
//! Owns the in-memory form of a recording and the interning of strings, frames and stacks.
//! Never does I/O, reads a clock or uses `unsafe`; time comes in as nanoseconds.
#![forbid(unsafe_code)]

/// A number that names something: a type of its own, so that a thread is not taken for a stack.
macro_rules! number {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(pub u32);

        impl $name {
            /// The number as an index.
            pub fn index(self) -> usize {
                self.0 as usize
            }
        }
    };
}

mod budget;
mod facts;
mod intern;
mod live;
mod memory_calls;
mod php;
mod reading;
mod recording;
mod trial;

pub use budget::{
    Budget, CallPart, CommandTime, CpuQuota, CpuTaker, Endpoint, EndpointCalls, EndpointTime, Lengths, Part,
    PartTimes, RunBegin, ServedRequest, Worker,
};
pub use facts::{
    Facts, HugePages, HugePagesWish, KeptConnections, MemoryGroup, MemoryKind, SharedKind, Sharing,
    WorkerMemory,
};
pub use intern::{Frame, FrameId, FrameKind, Interner, InternerDelta, StackId, StackNode, StringId};
pub use live::{LiveFunction, LivePlace, LiveRequest, LiveThread, ThreadState, Window};
pub use memory_calls::{MemoryCall, MemoryCalls, MemorySite, MemorySum, NativeFrame};
pub use php::{Jit, Manager, Opcache, PhpAnswer, Preload};
pub use reading::{Gil, Outcome, RequestFacts, StackReading, Step};
pub use recording::{
    Allocated, Batch, Language, Mode, Process, ProcessId, Recording, RecordingInfo, Request, RequestId,
    Sample, SampleBlock, State, Thread, ThreadId, Totals, Wait, WaitReason,
};
pub use trial::Trial;
