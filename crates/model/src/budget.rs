//! Where the time of workers went: all of it, in requests and between them.
//!
//! A thread is always in exactly one [`Part`], so the times of a worker add up to the time for which it was watched. All times
//! are of one clock.

use serde::{Deserialize, Serialize};

/// What a moment of a thread was spent on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[repr(u8)]
pub enum Part {
    /// On a CPU, in the program, its interpreter, or the kernel where none of the others says what for.
    Code,
    /// On a CPU or not, the interpreter beginning a request: before the first line of the program runs.
    Boot,
    /// Getting, giving back and touching memory: `mmap`, `munmap`, `brk`, `madvise`, `mremap`, and page faults that read no file.
    Memory,
    /// From the begin of a connection to the first data that was sent on it.
    Connect,
    /// On a CPU, in the kernel, sending to a server or reading from it.
    Transfer,
    /// Blocked until a server answers, or takes what is sent to it.
    Wait,
    /// Blocked until the client of this request sends the rest of it, or takes the response.
    Client,
    /// Ready to run after something that was waited for had happened, and without a CPU.
    Wake,
    /// Ready to run, and without a CPU because another thread was given it.
    Preempted,
    /// Blocked by a lock of threads or processes.
    Lock,
    /// Blocked by the global interpreter lock.
    Gil,
    /// Blocked by a file system or block device, page faults that read a file among them.
    Disk,
    /// Blocked until some time had passed.
    Sleep,
    /// Blocked by something that none of the others names: pipes, children, terminals.
    Other,
}

impl Part {
    /// All, by number.
    pub const ALL: [Self; 14] = [
        Self::Code,
        Self::Boot,
        Self::Memory,
        Self::Connect,
        Self::Transfer,
        Self::Wait,
        Self::Client,
        Self::Wake,
        Self::Preempted,
        Self::Lock,
        Self::Gil,
        Self::Disk,
        Self::Sleep,
        Self::Other,
    ];
}

/// Nanoseconds by [`Part`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartTimes(pub [u64; Part::ALL.len()]);

impl PartTimes {
    /// Those of one part.
    pub fn of(&self, part: Part) -> u64 {
        self.0[part as usize]
    }

    /// All of them.
    pub fn total_ns(&self) -> u64 {
        self.0.iter().fold(0, |sum, ns| sum.saturating_add(*ns))
    }

    /// Adds those of another one.
    pub fn add(&mut self, other: &Self) {
        for (sum, ns) in self.0.iter_mut().zip(other.0) {
            *sum = sum.saturating_add(ns);
        }
    }
}

/// A server that workers called: where it listens.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Endpoint {
    /// `127.0.0.1:6379`, `[::1]:5432`, or the path of a UNIX socket.
    pub address: String,
    /// What is spoken there, as far as the first bytes tell: `redis`, `mysql`, `postgresql`, `memcached`, `http`; or nothing.
    pub protocol: String,
}

/// What a worker had to do with one endpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndpointTime {
    /// Index into [`Budget::endpoints`].
    pub endpoint: u32,
    /// Connections that it began.
    pub connects: u64,
    /// Calls: sent something and read an answer.
    pub calls: u64,
    /// What of [`Part::Connect`] was for this endpoint.
    pub connect_ns: u64,
    /// What of [`Part::Transfer`] was.
    pub transfer_ns: u64,
    /// What of [`Part::Wait`] was.
    pub wait_ns: u64,
    /// What of [`Part::Wake`] came after waiting for it.
    pub wake_ns: u64,
}

/// A thread that serves requests, and all of its time while it was watched.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Worker {
    /// Process id as this host numbers it.
    pub pid: u32,
    /// Kernel thread id as this host numbers it.
    pub tid: u32,
    /// What the process is called: an FPM pool's title, or program and script.
    pub title: String,
    /// For how long it was watched: all the times below together.
    pub watched_ns: u64,
    /// Waiting for the next request.
    pub idle_ns: u64,
    /// Doing something, in no request.
    pub between: PartTimes,
    /// In a request, until its response had been sent.
    pub serving: PartTimes,
    /// In a request whose response had been sent.
    pub after: PartTimes,
    /// Requests that were open at the same time while it had more than one, in nanoseconds: then no part belongs to one of them.
    pub shared_ns: u64,
    /// What it had to do with servers. In requests and between them.
    pub endpoints: Vec<EndpointTime>,
}

/// A request from its begin to its end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServedRequest {
    /// Index into [`Budget::workers`].
    pub worker: u32,
    /// When it could have been accepted, nanoseconds since the begin of the watch; that of `begin_ns` if nobody saw that.
    pub queued_ns: u64,
    /// When the worker began to work on it.
    pub begin_ns: u64,
    /// When the last of its response was sent; that of `end_ns` if none was.
    pub response_ns: u64,
    /// When the worker was free again.
    pub end_ns: u64,
    /// The worker's time until the response. Nothing if it had several requests open at the same time.
    pub serving: PartTimes,
    /// The worker's time after the response.
    pub after: PartTimes,
}

/// A program that had the CPU last before workers that were ready to run got it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CpuTaker {
    /// The kernel's name of the thread, at most 15 bytes; empty for nobody: the CPU was idle, and was being woken,
    /// or a quota held the worker back.
    pub name: String,
    /// It is a worker that is watched itself.
    pub is_worker: bool,
    /// For how long workers were ready then.
    pub ns: u64,
}

/// All that was measured of workers and their requests.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Budget {
    /// How it was measured, from the finest on: `tracepoints`, `fentry`, `syscalls`, `proc`.
    pub rung: String,
    /// What this one cannot see, one sentence each.
    pub cannot_see: Vec<String>,
    /// Length of the watch.
    pub window_ns: u64,
    /// The workers.
    pub workers: Vec<Worker>,
    /// Servers that they called.
    pub endpoints: Vec<Endpoint>,
    /// Requests that ended in the window, in the order of their end.
    pub requests: Vec<ServedRequest>,
    /// Requests that ended, but for which there was no room: they are in the workers' times and not above.
    pub lost_requests: u64,
    /// Who had the CPU while workers were ready to run, the longest first.
    pub takers: Vec<CpuTaker>,
    /// For how long the workers' control groups were held back by their quotas, as the kernel counts it.
    pub throttled_ns: u64,
    /// For how long the machine's host gave CPUs of this machine to others, all CPUs together.
    pub steal_ns: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_have_the_numbers_of_their_places() {
        for (number, part) in Part::ALL.iter().enumerate() {
            assert_eq!(*part as usize, number);
        }
    }

    #[test]
    fn times_add_up_and_never_overflow() {
        let mut times = PartTimes::default();
        times.0[Part::Wait as usize] = 3;
        let mut sum = times;
        sum.add(&times);
        sum.0[Part::Code as usize] = u64::MAX;
        assert_eq!((sum.of(Part::Wait), sum.total_ns()), (6, u64::MAX));
    }
}
