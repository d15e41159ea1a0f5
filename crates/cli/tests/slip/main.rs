//! The `slip` command as a user meets it: real targets, messages, exit codes, files.

mod bad_input;
mod formats;
mod harness;
mod targets;
