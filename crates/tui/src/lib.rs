//! What `slip top` shows: workers and functions on a terminal, or as plain text once.
//!
//! Owns what the user has chosen to see ([`View`]), the layout for any size of terminal, and what is written to it: only what has changed,
//! in one piece. Never reads a target or a clock, and never does I/O besides that of the terminal it is handed. Names that come from a
//! target are untrusted, and shown as `slip_report::clean` has them.
#![forbid(unsafe_code)]

mod app;
mod draw;
mod help;
mod plain;
mod rows;
mod screen;
mod terminal;
mod text;
mod view;

#[cfg(test)]
mod support;

pub use app::{About, App};
pub use plain::plain;
pub use rows::{FunctionColumn, WorkerColumn, state_word};
pub use screen::Screen;
pub use terminal::{Guard, Input, size, wait_for_input};
pub use view::{Action, INTERVALS_NS, View};
