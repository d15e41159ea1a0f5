//! The ways in which budgets are measured, from the finest on, and what each of them offers.

use slip_model::{CommandTime, CpuTaker, Endpoint, EndpointCalls, RunBegin};

use crate::budget::{
    BudgetEvent, BudgetProbe, BudgetTarget, MemoryCounts, MemoryStack, RunStart, ThreadTimes,
};
use crate::{PolledBudget, ProbeError};

/// A way to measure budgets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rung {
    /// Programs in the kernel, at what it traces by itself.
    Tracepoints,
    /// Programs in the kernel, of which those that see sockets are at its functions.
    Fentry,
    /// Programs in the kernel, of which those that see sockets are at system calls.
    Syscalls,
    /// Looks at `/proc`, some hundred times a second.
    Proc,
}

impl Rung {
    /// All, from the finest on.
    pub const ALL: [Self; 4] = [Self::Tracepoints, Self::Fentry, Self::Syscalls, Self::Proc];

    /// What it is called in options and recordings.
    pub fn name(self) -> &'static str {
        match self {
            Self::Tracepoints => "tracepoints",
            Self::Fentry => "fentry",
            Self::Syscalls => "syscalls",
            Self::Proc => "proc",
        }
    }

    /// What it is, in a few words.
    pub fn meaning(self) -> &'static str {
        match self {
            Self::Tracepoints => "programs in the kernel see each event: root, Linux 6.3",
            Self::Fentry => {
                "the same at functions of the kernel: root, Linux 5.15, not where it is locked down"
            }
            Self::Syscalls => "the same at system calls: root, Linux 5.15",
            Self::Proc => "/proc is looked at 200 times a second: needs nothing of the kernel, and is coarse",
        }
    }

    /// Begins to measure in this way, no process yet. Only with `uses_uprobes` anything is put into targets.
    ///
    /// # Errors
    ///
    /// The reason why it cannot be had here; a coarser one may.
    pub fn start(self, uses_uprobes: bool) -> Result<Box<dyn BudgetSource>, ProbeError> {
        Ok(match self {
            Self::Proc => Box::new(PolledBudget::start()?),
            in_kernel => Box::new(BudgetProbe::start(in_kernel, uses_uprobes)?),
        })
    }
}

/// Measures where the time of threads goes.
pub trait BudgetSource: std::fmt::Debug {
    /// In which way.
    fn rung(&self) -> Rung;

    /// What this way cannot see, one sentence each.
    fn cannot_see(&self) -> Vec<String>;

    /// Whether breakpoints are set for the one process alone that is watched, and not for all that run its file.
    fn breaks_processes(&self) -> bool {
        true
    }

    /// Keeps the books of process `pid` from now on.
    ///
    /// # Errors
    ///
    /// [`ProbeError::Other`] if the kernel refuses.
    fn watch(&mut self, pid: u32, target: BudgetTarget) -> Result<(), ProbeError>;

    /// Keeps the books of process `pid`, which serves no requests, from now on: its whole run is one. Says where that begins.
    ///
    /// # Errors
    ///
    /// [`ProbeError::Other`] if the kernel refuses, or this way cannot.
    fn watch_run(&mut self, pid: u32, start: RunStart) -> Result<RunBegin, ProbeError> {
        let _ = (pid, start);
        Err(ProbeError::Other("looks at /proc tell requests alone, and not the run of a program".to_owned()))
    }

    /// Ends that. What its threads have done so far stays in the books.
    fn forget(&mut self, pid: u32);

    /// Takes what has ended, in the order of its end.
    ///
    /// # Errors
    ///
    /// [`ProbeError::Other`] if it cannot be had now.
    fn take(&mut self) -> Result<Vec<BudgetEvent>, ProbeError>;

    /// All threads of the targets as they are now, but for those that have ended.
    ///
    /// # Errors
    ///
    /// [`ProbeError::Other`] if it cannot be had now.
    fn threads(&self) -> Result<Vec<ThreadTimes>, ProbeError>;

    /// Servers that were called, each with the number that [`ThreadTimes::endpoints`] have it by. The last number is that of
    /// all for which there was none.
    ///
    /// # Errors
    ///
    /// [`ProbeError::Other`] if it cannot be had now.
    fn endpoints(&self) -> Result<Vec<Endpoint>, ProbeError>;

    /// What the calls to each server were spent on; nothing where that is not seen.
    ///
    /// # Errors
    ///
    /// [`ProbeError::Other`] if it cannot be had now.
    fn calls(&self) -> Result<Vec<EndpointCalls>, ProbeError> {
        Ok(Vec::new())
    }

    /// The commands of these calls, those of which there are most first. `endpoints` are as [`BudgetSource::endpoints`] has them.
    ///
    /// # Errors
    ///
    /// [`ProbeError::Other`] if it cannot be had now.
    fn commands(&self, endpoints: &[Endpoint]) -> Result<Vec<CommandTime>, ProbeError> {
        let _ = endpoints;
        Ok(Vec::new())
    }

    /// Who had a CPU while threads of targets were ready to run there, the longest first.
    ///
    /// # Errors
    ///
    /// [`ProbeError::Other`] if it cannot be had now.
    fn takers(&self) -> Result<Vec<CpuTaker>, ProbeError>;

    /// Takes stacks of native programs that called for memory; nothing where they are not seen.
    ///
    /// # Errors
    ///
    /// [`ProbeError::Other`] if they cannot be had now.
    fn take_memory(&mut self) -> Result<Vec<MemoryStack>, ProbeError> {
        Ok(Vec::new())
    }

    /// How often and for how long native programs have called for memory, by place; `None` where that is not seen, or none is watched.
    ///
    /// # Errors
    ///
    /// [`ProbeError::Other`] if it cannot be had now.
    fn memory_counts(&self) -> Result<Option<MemoryCounts>, ProbeError> {
        Ok(None)
    }

    /// Requests and threads that could not be told of, or not be remembered.
    fn lost(&self) -> u64;

    /// Keeps no books any more; what is there can still be listed.
    fn stop(&mut self);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rungs_have_names_of_their_own() {
        let names: std::collections::HashSet<_> = Rung::ALL.into_iter().map(Rung::name).collect();
        assert_eq!(names.len(), Rung::ALL.len());
    }
}
