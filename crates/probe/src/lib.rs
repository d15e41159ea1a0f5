//! Loads the programs of `bpf/` into the kernel and turns their events into ours.
//!
//! Owns everything that has to do with eBPF; the only user of libbpf. Never writes into a target, and never knows an
//! interpreter: [`slip_remote::StackPlan`] says how its stacks are walked.

mod clock;
mod wire;

pub use clock::{Clock, Counters, ProbeError};
pub use wire::{CopiedStack, Event, Look};
