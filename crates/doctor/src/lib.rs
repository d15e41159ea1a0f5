//! What a recording says about the requests that were served: where all of the workers' time went, and what a request takes.
//!
//! Owns [`BudgetTable`], one budget line by line, and [`BudgetDiff`], two of them side by side. Never does I/O, reads a clock or
//! formats text: recordings in, tables out.
#![forbid(unsafe_code)]

mod boot;
mod calls;
mod diff;
mod line;
mod requests;
mod run;
mod servers;
mod shares;
mod table;
mod workers;

#[cfg(test)]
mod support;

pub use boot::BootSamples;
pub use calls::{CallPartTime, CallTimes, CommandCalls, call_part_meaning, call_part_name};
pub use diff::{BudgetDiff, DiffKey, DiffRow};
pub use line::Line;
pub use requests::{LineSpread, RequestTimes, Spread};
pub use run::RunTimes;
pub use servers::{ServerTime, ServerTimes};
pub use shares::{shares, tenths};
pub use table::{BudgetTable, EngineSamples};
pub use workers::{LineTime, WorkerTimes};
