//! The `slip` command as a user meets it: real targets, messages, exit codes, files.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod allocations;
mod asking;
mod bad_input;
mod budgets;
mod damaged_files;
mod doctors;
mod formats;
mod harness;
mod hostile;
mod mallocs;
mod moments;
mod outputs;
mod permissions;
mod pools;
mod targets;
mod tasks;
mod tops;
mod traces;
mod views;
