//! What a recording says about the requests that were served: where all of the workers' time went, and what a request takes.
//!
//! Owns [`BudgetTable`], one budget line by line, [`BudgetDiff`], two of them side by side, and [`Sheet`], what is wrong by which
//! [`Rule`]. Never does I/O, reads a clock or formats text: recordings in, tables and findings out.
#![forbid(unsafe_code)]

mod boot;
mod calls;
mod case;
mod config_rules;
mod diff;
mod finding;
mod limit;
mod line;
mod requests;
mod rule;
mod rules;
mod run;
mod servers;
mod shares;
mod sheet;
mod sites;
mod statement;
mod table;
mod workers;

#[cfg(test)]
mod support;

pub use boot::BootSamples;
pub use calls::{CallPartTime, CallTimes, CommandCalls, call_part_meaning, call_part_name};
pub use config_rules::{CFG011, CFG012, CFG013, CFG014, CFG015, CFG016, CFG017, CFG018, CFG019};
pub use diff::{BudgetDiff, DiffKey, DiffRow};
pub use finding::{Confidence, Cost, Finding, Gain, Verdict};
pub use limit::{Amount, Limit, Of, Quantile};
pub use line::Line;
pub use requests::{LineSpread, RequestTimes, Spread};
pub use rule::{
    BOOT001, CONN002, COW006, GIL005, LOOP007, MEM004, NAGLE009, NPLUS008, QUEUE010, Rule, WAKE003,
};
pub use run::RunTimes;
pub use servers::{ServerTime, ServerTimes};
pub use shares::{shares, tenths};
pub use sheet::{LEAST_REQUESTS, LEAST_RUN_NS, LineCost, MIN_REQUESTS, OwnCost, Sheet, Unit, Watched};
pub use statement::{Piece, Statement, Value};
pub use table::{BudgetTable, EngineSamples};
pub use workers::{LineTime, WorkerTimes};
