//! Reads the threads and frames of a CPython process.
//!
//! Owns everything that is specific to CPython 3.8 to 3.15: how to tell that a process is one, where its structures
//! keep what we read, and what a frame means. Never makes a system call, never writes into a target, and never trusts
//! what a target says: each offset is checked once at attach, each walk has a bound.
//!
//! ```no_run
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let process = slip_remote::LiveProcess::open(1234)?;
//! let mut interner = slip_model::Interner::new();
//! let mut python = slip_cpython::Interpreter::attach(&process)?;
//! let mut readings = Vec::new();
//! python.sample(&process, &mut interner, &mut readings)?;
//! for reading in &readings {
//!     println!("{} {:?}", interner.text(reading.name), reading.outcome);
//! }
//! # Ok(())
//! # }
//! ```
#![forbid(unsafe_code)]

mod bunch;
mod bytes;
mod code;
mod copied;
mod detect;
mod dicts;
mod frames;
mod gc_stats;
#[cfg(test)]
mod hostile;
mod labels;
mod lines;
mod look;
mod names;
mod native;
mod nested;
mod offsets;
mod opcodes;
mod process;
mod strings;
mod tasks;
mod threads;
mod trailing;
mod version;

pub use code::{CodeId, CodeText};
pub use detect::{AttachError, detect};
pub use gc_stats::{GcStats, GcStatsError};
pub use labels::{Labels, marker};
pub use lines::{LineFormat, LineSpan, Location, line_spans, location_at};
pub use look::{InterpreterLook, Keep, Look, LookRequest, Point, ThreadLook, Which};
pub use opcodes::opcode_name;
pub use process::Interpreter;
pub use tasks::{AllTasks, AsyncioOffsets, Task, TaskError, TaskList};
pub use version::{SUPPORTED, Version};
