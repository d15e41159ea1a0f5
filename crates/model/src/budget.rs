//! Where the time of workers went: all of it, in requests and between them.
//!
//! A thread is always in exactly one [`Part`], so the times of a worker add up to the time for which it was watched. All times
//! are of one clock.

use serde::{Deserialize, Serialize};

use crate::MemoryCalls;

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

/// Where a call to a server is, from the first byte of a question to the first of its answer that is read; and what comes before the
/// first call on a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[repr(u8)]
pub enum CallPart {
    /// Until the other side has agreed to the connection. Of no call.
    Connect,
    /// From then until something is sent. Of no call.
    First,
    /// From the first byte of a TLS handshake to the first that is sent behind it. Of no call.
    Tls,
    /// The worker writes: until all has been sent, or the server has it if that is earlier.
    Write,
    /// On its way to a server on this host, and the answer on its way back.
    Flight,
    /// Come to a server on this host, which has not read it yet.
    Queue,
    /// From there until that server sends.
    Work,
    /// On its way and at a server that is not on this host, or whose steps were not seen.
    Remote,
    /// The answer has come, and the worker is not woken yet.
    Woken,
    /// Ready to run, and without a CPU.
    Running,
    /// From there until it reads the answer.
    Read,
}

impl CallPart {
    /// All, by number.
    pub const ALL: [Self; 11] = [
        Self::Connect,
        Self::First,
        Self::Tls,
        Self::Write,
        Self::Flight,
        Self::Queue,
        Self::Work,
        Self::Remote,
        Self::Woken,
        Self::Running,
        Self::Read,
    ];

    /// Whether calls have it; the others come once for a connection.
    pub fn is_of_calls(self) -> bool {
        self >= Self::Write
    }
}

/// How long something took, many times: counts by length, the sum exact. Bucket `n` is of 2^(8 + n/2) ns and more, with the half
/// octaves at 1.5 times a power of two; the first has all that is shorter, the last all that is longer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lengths {
    /// All together, nanoseconds.
    pub ns: u64,
    /// Those of length 0 are in none.
    pub buckets: Vec<u64>,
}

impl Lengths {
    /// How many are in buckets.
    pub fn count(&self) -> u64 {
        self.buckets.iter().fold(0, |sum, count| sum.saturating_add(*count))
    }

    /// The length that a share of `of` are no longer than: within its bucket as if those there were spread evenly, so to within half an
    /// octave. 0 for those in no bucket.
    pub fn quantile_ns(&self, share: f64, of: u64) -> u64 {
        let rank = (share.clamp(0.0, 1.0) * of as f64).ceil() as u64;
        let mut below = of.saturating_sub(self.count());
        if rank <= below {
            return 0;
        }
        for (bucket, count) in self.buckets.iter().enumerate() {
            if rank <= below.saturating_add(*count) {
                // The middle of what it has of the bucket.
                let (least_ns, end_ns) = (Self::least_ns(bucket), Self::least_ns(bucket + 1));
                let place = ((rank - below) as f64 - 0.5) / *count as f64;
                return least_ns + (end_ns.saturating_sub(least_ns) as f64 * place) as u64;
            }
            below = below.saturating_add(*count);
        }
        0
    }

    fn middle_ns(bucket: usize) -> u64 {
        let octave = 1_u64 << (8 + bucket / 2).min(62);
        if bucket.is_multiple_of(2) { octave + octave / 4 } else { octave + octave / 4 * 3 }
    }

    /// Those in buckets that begin at `ns` or later: to within half an octave, those that are as long. Together they have what they would have of
    /// all together if each had the middle of its bucket, which is not exact, and the less wrong the more of all they have.
    #[must_use]
    pub fn at_least(&self, ns: u64) -> Self {
        let mut longer = Self::default();
        let (mut longer_ns, mut all_ns) = (0.0, 0.0);
        for (bucket, count) in self.buckets.iter().enumerate() {
            let bucket_ns = *count as f64 * Self::middle_ns(bucket) as f64;
            let is_longer = Self::least_ns(bucket) >= ns;
            longer.buckets.push(if is_longer { *count } else { 0 });
            longer_ns += if is_longer { bucket_ns } else { 0.0 };
            all_ns += bucket_ns;
        }
        if longer_ns > 0.0 {
            longer.ns = (self.ns as f64 * (longer_ns / all_ns)) as u64;
        }
        longer
    }

    /// What all those in buckets have together at least.
    pub fn least_total_ns(&self) -> u64 {
        let buckets = self.buckets.iter().enumerate();
        // The first has what is shorter, too.
        buckets
            .skip(1)
            .fold(0, |sum, (bucket, count)| sum.saturating_add(count.saturating_mul(Self::least_ns(bucket))))
    }

    /// Where a bucket begins.
    fn least_ns(bucket: usize) -> u64 {
        let octave = 1_u64 << (8 + bucket / 2).min(62);
        if bucket.is_multiple_of(2) { octave } else { octave + octave / 2 }
    }

    /// Adds those of another one.
    pub fn add(&mut self, other: &Self) {
        self.ns = self.ns.saturating_add(other.ns);
        if self.buckets.len() < other.buckets.len() {
            self.buckets.resize(other.buckets.len(), 0);
        }
        for (sum, count) in self.buckets.iter_mut().zip(&other.buckets) {
            *sum = sum.saturating_add(*count);
        }
    }
}

/// What calls to an endpoint were spent on. Where they come fast some stand for all, chosen by chance, and each that took long for
/// itself: sums are right on average. [`EndpointTime::calls`] counts all.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndpointCalls {
    /// Index into [`Budget::endpoints`].
    pub endpoint: u32,
    /// For how many calls the ones that were looked at stand.
    pub calls: u64,
    /// By number of the [`CallPart`].
    pub parts: Vec<Lengths>,
}

/// What calls with the same command were. Where they come fast one in eight stands for all, also of those that took long.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommandTime {
    /// Index into [`Budget::endpoints`].
    pub endpoint: u32,
    /// In capitals, as `GET` or `SELECT`; empty if it is not known.
    pub name: String,
    /// How many, as for [`EndpointCalls::calls`].
    pub calls: u64,
    /// All of them together.
    pub ns: u64,
    /// The longest one of those that were looked at.
    pub longest_ns: u64,
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
    /// For how long data had come and waited to be read while the worker, an event loop, was busy with something else.
    #[serde(default)]
    pub loop_blocked_ns: u64,
    /// Page faults in requests.
    #[serde(default)]
    pub faults: u64,
    /// Calls in requests that map memory, or give it back.
    #[serde(default)]
    pub memory_calls: u64,
    /// The most memory that its process ever had at a time, in bytes, once it has ended; 0 if that is not known.
    #[serde(default)]
    pub most_bytes: u64,
    /// What it had to do with servers. In requests and between them.
    pub endpoints: Vec<EndpointTime>,
    /// It serves no requests: `serving` is its whole run, `between` the start-up before and `after` the exit.
    #[serde(default)]
    pub is_run: bool,
}

/// Where the runs of programs that serve no requests begin; what comes before is their start-up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunBegin {
    /// Where the watch does: they had been running for some time.
    Watch,
    /// Where they became the program.
    Exec,
    /// Where the interpreter opened the script.
    Script,
    /// Where the program was loaded: `main` was called, or if it has no symbols, the first instruction ran.
    Program,
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
    /// How often for how long, if that is known.
    #[serde(default)]
    pub lengths: Lengths,
    /// For how long of that its priority was higher than theirs.
    #[serde(default)]
    pub preferred_ns: u64,
}

/// So much CPU time may a control group use in each period.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CpuQuota {
    /// All CPUs together, nanoseconds.
    pub quota_ns: u64,
    /// How long a period is, nanoseconds.
    pub period_ns: u64,
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
    /// What the calls to each of them were spent on, if that was seen.
    #[serde(default)]
    pub calls: Vec<EndpointCalls>,
    /// The commands of these calls.
    #[serde(default)]
    pub commands: Vec<CommandTime>,
    /// Requests that ended in the window, in the order of their end.
    pub requests: Vec<ServedRequest>,
    /// Requests that ended, but for which there was no room: they are in the workers' times and not above.
    pub lost_requests: u64,
    /// Who had the CPU while workers were ready to run, the longest first.
    pub takers: Vec<CpuTaker>,
    /// Periods of the CPU quotas of the workers' control groups, as the kernel counts them: 0 if no quota was in force, `None` if it
    /// does not tell.
    #[serde(default)]
    pub quota_periods: Option<u64>,
    /// Those among them in which a group was held back.
    #[serde(default)]
    pub throttled_periods: u64,
    /// For how long the workers' control groups were held back by their quotas, as the kernel counts it.
    pub throttled_ns: u64,
    /// The quota of the group that was held back longest.
    #[serde(default)]
    pub quota: Option<CpuQuota>,
    /// Time of all CPUs of the machine together; 0 if it is not known.
    #[serde(default)]
    pub cpus_ns: u64,
    /// For how long the machine's host gave CPUs of this machine to others, all CPUs together.
    pub steal_ns: u64,
    /// Of workers that serve no requests.
    #[serde(default)]
    pub run_begin: Option<RunBegin>,
    /// Who asked the kernel for memory, of programs without an interpreter; `None` where that was not seen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<MemoryCalls>,
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
    fn parts_of_calls_have_the_numbers_of_their_places() {
        for (number, part) in CallPart::ALL.iter().enumerate() {
            assert_eq!(*part as usize, number);
        }
        assert!(CallPart::Write.is_of_calls() && !CallPart::Tls.is_of_calls());
    }

    #[test]
    fn quantiles_are_spread_over_their_buckets_and_0_where_there_is_none() {
        let lengths = Lengths { ns: 9_000, buckets: vec![0, 2, 0, 0, 0, 1] };
        let quantiles = [0.2, 0.5, 0.75, 0.99].map(|share| lengths.quantile_ns(share, 4));
        assert_eq!(quantiles, [0, 416, 480, 1_792]);
        // Beyond the longest that a file may claim.
        let longest = Lengths { ns: 1, buckets: [vec![0; 199], vec![u64::MAX]].concat() };
        assert!(longest.quantile_ns(1.0, u64::MAX) >= 1 << 62);
        assert_eq!(Lengths::default().quantile_ns(0.5, 0), 0);
        // Two thirds of them by the middles of their buckets, 448 and 1,792.
        assert_eq!([0, 385, 2_000].map(|least_ns| lengths.at_least(least_ns).ns), [9_000, 6_000, 0]);
        assert_eq!(longest.at_least(0).ns, 1);
        // From 256, 384, 512 ... on.
        assert_eq!([0, 384, 385, 1_536, 1_537].map(|ns| lengths.at_least(ns).count()), [3, 3, 1, 1, 0]);
        assert_eq!(lengths.least_total_ns(), 2 * 384 + 1_536);
        let mut sum = Lengths::default();
        sum.add(&lengths);
        sum.add(&Lengths { ns: u64::MAX, buckets: vec![u64::MAX, 1] });
        assert_eq!((sum.ns, sum.buckets), (u64::MAX, vec![u64::MAX, 3, 0, 0, 0, 1]));
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
