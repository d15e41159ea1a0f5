//! What every sampler offers: the one that reads from outside, and one that is called by the kernel.

use slip_model::Request;
use slip_probe::RunStart;

use crate::Sink;
use crate::malloc::{NoMalloc, OwnMemory};
use crate::schedule::sleep_until;

/// Why a process cannot be sampled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TargetIssue {
    /// There is no such process.
    NotFound,
    /// The kernel refuses; reason and remedy.
    Denied {
        /// What stands in the way, one sentence.
        reason: String,
        /// What the user can do.
        hint: String,
    },
    /// It runs no interpreter that we know.
    NotAnInterpreter {
        /// Its program.
        program: String,
    },
    /// Its interpreter is one that we cannot read, with the reason and the versions that we can.
    Unsupported {
        /// One sentence.
        reason: String,
    },
    /// This sampler cannot, but the one that reads from outside may.
    NeedsOutside {
        /// One sentence.
        reason: String,
    },
    /// It has not imported asyncio, whose tasks are asked for; it may do so yet.
    NoAsyncio,
    /// Its interpreter has not started yet.
    NotReady,
    /// It does not use `libslipmalloc.so`, which tells of allocations.
    NoMalloc(NoMalloc),
}

/// Takes samples of processes and puts them into a [`Sink`].
pub trait Sampler {
    /// Short name, written into every recording.
    fn name(&self) -> &'static str;

    /// What this sampler cannot see, one sentence each.
    fn cannot_see(&self) -> Vec<String>;

    /// Begins to sample process `pid`, as this host numbers it.
    ///
    /// # Errors
    ///
    /// The reason why it cannot be sampled (now); the process is then not among those sampled.
    fn add(&mut self, pid: u32, now_ns: u64, sink: &mut Sink) -> Result<(), TargetIssue>;

    /// Notes that process `pid` was named: if a budget is kept, and it turns out to serve no requests, its whole run is what is measured.
    /// If another `start` is given, it is about to become that program.
    ///
    /// # Errors
    ///
    /// [`TargetIssue::Unsupported`] if its run cannot be measured; it may be sampled nevertheless.
    fn may_run(&mut self, pid: u32, start: RunStart, title: &str) -> Result<(), TargetIssue> {
        let _ = (pid, start, title);
        Ok(())
    }

    /// Allocators of their own that interpreters among the targets have, if allocations are what is looked at: what they give out is not seen.
    fn own_memory(&self) -> Vec<OwnMemory> {
        Vec::new()
    }

    /// Looks at what programs without an interpreter do, if a budget is kept: they are no processes that are sampled.
    fn look_at_natives(&mut self) {}

    /// Ends the sampling of process `pid`, which has ended; nothing if it is not sampled.
    fn remove(&mut self, pid: u32, now_ns: u64, sink: &mut Sink);

    /// Processes that are sampled.
    fn pids(&self) -> Vec<u32>;

    /// Whether no process is sampled.
    fn is_empty(&self) -> bool {
        self.pids().is_empty()
    }

    /// Requests that are under way, as far as they have been seen.
    fn open_requests(&self) -> Vec<Request> {
        Vec::new()
    }

    /// How often [`Sampler::sample`] is to be called if it does not take the samples itself, but fetches those that somebody
    /// else took. It changes with the targets, and with what they do.
    fn fetch_interval_ns(&self) -> Option<u64> {
        None
    }

    /// Takes one sample of everything, at `now_ns` since the begin of the recording.
    ///
    /// Returns the processes that turn out to be gone: they are no longer sampled.
    fn sample(&mut self, now_ns: u64, sink: &mut Sink) -> Vec<u32>;

    /// Rests until `until_ns` by `CLOCK_MONOTONIC`, in a recording that began at `start_ns`. False if a signal came first.
    fn rest(&mut self, until_ns: u64, start_ns: u64, sink: &mut Sink) -> bool {
        let _ = (start_ns, sink);
        sleep_until(until_ns)
    }

    /// What has come is about to be written to the file, at `now_ns` since the begin of the recording: what is under way is
    /// stored as far as it has got.
    fn before_flush(&mut self, now_ns: u64, sink: &mut Sink) {
        let _ = (now_ns, sink);
    }

    /// The recording ends, at `now_ns` since its begin: requests and waits that are still under way are closed.
    fn finish(&mut self, now_ns: u64, sink: &mut Sink);
}
