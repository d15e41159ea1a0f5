//! The sampling loop and the recording file.
//!
//! Owns targets that come and go, the schedule, the samplers, and the `.slip` file. Never knows
//! an output format and never prints.

mod allocations;
mod ask;
mod bare;
mod books;
mod copied_stacks;
mod debuginfod;
mod facts;
pub mod file;
mod heap;
mod kept;
mod kernel;
mod kernel_stacks;
mod launch;
mod left_out;
mod live;
mod malloc;
mod malloc_page;
mod native_code;
mod native_sites;
mod native_stacks;
mod outside;
mod process;
mod program;
mod sampler;
mod schedule;
mod session;
mod sink;
mod target;
mod tasks;
mod title;
mod trace;
mod trial;

pub use ask::{ASK_TIMEOUT, AskError, Response, ResponseError, ask, parse_answer, read_response};
pub use books::Books;
pub use debuginfod::Debuginfod;
pub use heap::use_huge_pages;
pub use kept::{KEPT_REASONS, KeptServer, kept_connections, parse_kept};
pub use kernel::KernelSampler;
pub use launch::{Held, Launched, hold, launch};
pub use malloc::{MallocUse, NoMalloc, NotPreloadable, OwnMemory, malloc_use, preload_obstacle};
pub use malloc_page::{MallocClass, MallocPage, MallocPageError, parse_malloc_page};
pub use outside::{Options as OutsideOptions, OutsideSampler};
pub use program::start_of;
pub use sampler::{Sampler, TargetIssue};
pub use schedule::{monotonic_ns, own_cpu_ns, unix_ns};
pub use session::{Ending, Progress, Session, SessionError, SessionOptions};
pub use sink::Sink;
pub use slip_cpython::TaskError;
pub use slip_probe::{ProbeError, RunStart, Rung};
pub use target::{Target, TargetError, TargetSet};
pub use tasks::{SeenTask, TaskChoice, TaskLook, TaskState, TaskThread};
pub use trace::{CANNOT_SEE as TRACE_CANNOT_SEE, NoStack, OnCall, TracedCall};
pub use trial::{TrialError, TrialPage, try_restoring};

/// Stands for a name, a frame, a stack or a process that could not be read.
const UNREADABLE: &str = "[unreadable]";

/// The interpreters that can be read, for people.
pub fn supported() -> String {
    format!("CPython {}; {}", slip_cpython::SUPPORTED, slip_zend::supported_versions())
}
