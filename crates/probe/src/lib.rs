//! Loads the programs of `bpf/` into the kernel and turns their events into ours; where the kernel takes none, looks at `/proc` in
//! their place.
//!
//! Owns everything that has to do with eBPF; the only user of libbpf. Never writes into a target, and never knows an
//! interpreter: [`slip_remote::StackPlan`] says how its stacks are walked.

mod allocations;
mod breakpoint;
mod budget;
mod clock;
mod cpu_counters;
#[doc(hidden)]
pub mod foreign;
mod memory_groups;
mod peers;
mod polled;
mod probe;
mod rung;
mod symbols;
mod wait;
mod wire;

pub use allocations::AllocationHooks;
pub use budget::{
    BudgetEvent, BudgetProbe, BudgetTarget, MemoryCounts, MemoryPlace, MemoryStack, RunStart, ServedTimes,
    SlowCall, ThreadTimes, listens,
};
pub use cpu_counters::{CpuTime, Quotas, Throttled};
pub use memory_groups::MemoryGroups;
pub use peers::{Peer, Peers};
pub use polled::PolledBudget;
pub use probe::{Counters, Probe, ProbeError, ProbeOptions, names_threads};
pub use rung::{BudgetSource, Rung};
pub use symbols::{KernelSymbol, KernelSymbols};
pub use wait::{Sleeper, WaitKey, Waited};
pub use wire::{Allocation, CopiedStack, Event, KernelAddr, KernelStack, Look, NativeCopy};
