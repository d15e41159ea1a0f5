//! A recording whose every sample is known from its number, so that any part of it can be checked.
#![allow(dead_code, reason = "each test binary uses a part of it")]
#![allow(clippy::unwrap_used, reason = "test code")]

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use slip_model::{
    Batch, Budget, CommandTime, CpuQuota, CpuTaker, Endpoint, EndpointCalls, EndpointTime, Facts, Frame,
    FrameKind, Interner, Lengths, MemoryCall, MemoryCalls, MemoryKind, MemorySite, MemorySum, NativeFrame,
    Opcache, PartTimes, PhpAnswer, Process, ProcessId, Recording, RecordingInfo, Request, RequestId,
    RunBegin, Sample, ServedRequest, SharedKind, Sharing, StackId, State, Thread, ThreadId, Totals, Wait,
    WaitReason, Worker, WorkerMemory,
};

/// Time between two samples of a thread.
pub(crate) const INTERVAL_NS: u64 = 10_101_010;
/// Threads that are sampled.
pub(crate) const THREADS: u32 = 8;
/// Samples of one flush: half a second of eight threads at 99 Hz.
pub(crate) const FLUSH_SAMPLES: u64 = 396;

/// What the made-up recording says about itself.
pub(crate) fn info() -> RecordingInfo {
    RecordingInfo {
        tool: "slip test".into(),
        started_unix_ns: 1_795_000_000_000_000_000,
        interval_ns: INTERVAL_NS,
        target: "--fpm www".into(),
        sampler: "outside".into(),
        cannot_see: vec!["native frames".into(), "what the kernel does".into()],
        host: "6.1 x86_64".into(),
        ..RecordingInfo::default()
    }
}

/// The sample of this number; stacks are numbered up to 500.
pub(crate) fn sample(number: u64) -> Sample {
    let noise = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
    let thread = number % u64::from(THREADS);
    let state = if number.is_multiple_of(5) { State::IDLE } else { State::ON_CPU };
    let idle = state.has(State::IDLE);
    Sample {
        time_ns: number / u64::from(THREADS) * INTERVAL_NS + thread * 10_000 + noise % 9_000,
        thread: ThreadId(thread as u32),
        stack: StackId(if idle { 0 } else { 1 + (noise % 500) as u32 }),
        state,
        request: RequestId(if idle { 0 } else { 1 + (number / 40) as u32 }),
    }
}

/// The wait of this number, which a recording may have beside its samples.
pub(crate) fn wait(number: u64) -> Wait {
    let Sample { time_ns, thread, stack, request, .. } = sample(number);
    let noise = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 33;
    Wait {
        time_ns,
        thread,
        stack,
        state: if stack.0 == 0 { State::IDLE } else { State::default() },
        request,
        reason: WaitReason::ALL[(noise % 10) as usize],
        count: 1 + (noise % 7) as u32,
        total_ns: noise,
    }
}

/// The budget that a recording may have, as it is after so many requests, without them.
pub(crate) fn budget(requests: u64) -> Budget {
    let times = |ns| PartTimes(std::array::from_fn(|part| ns * part as u64));
    let workers = (0..THREADS).map(|worker| Worker {
        pid: 100 + worker,
        tid: 100 + worker,
        title: "php-fpm: pool www".into(),
        watched_ns: u64::MAX - requests,
        idle_ns: requests * 9,
        between: times(1),
        serving: times(requests),
        after: times(2),
        shared_ns: requests / 2,
        loop_blocked_ns: requests / 3,
        faults: requests * 2,
        memory_calls: requests,
        most_bytes: requests << 12,
        endpoints: vec![EndpointTime { endpoint: 0, calls: requests, wait_ns: 7, ..EndpointTime::default() }],
        is_run: worker > 0,
    });
    Budget {
        rung: "tracepoints".into(),
        cannot_see: vec!["what \"quotes\" do".into()],
        window_ns: requests * INTERVAL_NS,
        workers: workers.collect(),
        endpoints: vec![Endpoint { address: "/run/größe\n.sock".into(), protocol: "mysql".into() }],
        calls: vec![EndpointCalls {
            endpoint: 0,
            calls: requests,
            parts: vec![Lengths { ns: requests, buckets: vec![0, requests] }],
        }],
        commands: vec![CommandTime {
            endpoint: 0,
            name: "SELECT".into(),
            calls: requests,
            ns: 5,
            longest_ns: 6,
        }],
        requests: Vec::new(),
        lost_requests: 1,
        takers: vec![CpuTaker { ns: requests, preferred_ns: requests / 2, ..CpuTaker::default() }],
        quota_periods: Some(6),
        quota: Some(CpuQuota { quota_ns: requests, period_ns: 7 }),
        throttled_periods: 5,
        throttled_ns: 3,
        steal_ns: 4,
        cpus_ns: 7,
        run_begin: Some(RunBegin::Script),
        memory: (requests > 0).then(|| MemoryCalls {
            sums: vec![MemorySum { call: MemoryCall::Munmap, calls: requests, ns: 8 }],
            sites: vec![MemorySite {
                call: MemoryCall::Munmap,
                frames: vec![NativeFrame { function: "größe<\n>".into(), module: "lib.so".into() }],
                is_cut: true,
                calls: requests,
                ns: 8,
            }],
            stacks: 2,
            lost: 1,
        }),
    }
}

/// What may be found beside times.
pub(crate) fn facts(number: u64) -> Facts {
    let kind = SharedKind { kind: MemoryKind::Heap, shared: number, copied: u64::MAX, own: 3 };
    let sharing = Some(Sharing { parent: 1, parent_bytes: number, kinds: vec![kind] });
    let opcache = Some(Opcache { enabled: true, hits: number, ..Opcache::default() });
    Facts {
        workers: vec![WorkerMemory { pid: 100, title: "größe".into(), sharing, ..WorkerMemory::default() }],
        php: Some(PhpAnswer { version: "8.4.1".into(), opcache, ..PhpAnswer::default() }),
        ..Facts::default()
    }
}

/// The request of this number of such a budget.
pub(crate) fn served(number: u64) -> ServedRequest {
    let noise = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
    let end_ns = (number + 1) * INTERVAL_NS;
    ServedRequest {
        worker: (number % u64::from(THREADS)) as u32,
        queued_ns: end_ns - 9_000_000,
        begin_ns: end_ns - 8_000_000,
        response_ns: end_ns - noise % 1_000_000,
        end_ns,
        serving: PartTimes(std::array::from_fn(|part| if part % 3 == 0 { noise } else { 0 })),
        after: PartTimes::default(),
    }
}

/// Hands out the batches of the recording one after the other.
#[derive(Default)]
pub(crate) struct Source {
    interner: Interner,
    pub(crate) samples: u64,
}

impl Source {
    /// The next `count` samples, and a request for each forty of them.
    pub(crate) fn batch(&mut self, count: u64) -> Batch {
        let mut batch = Batch::default();
        if self.samples == 0 {
            self.introduce(&mut batch);
        }
        for number in self.samples..self.samples + count {
            batch.samples.push(sample(number));
            if number % 40 == 39 {
                batch.requests.push(request(&mut self.interner, 1 + (number / 40) as u32));
            }
        }
        self.samples += count;
        batch.interned = self.interner.take_delta();
        batch.totals = self.totals();
        batch
    }

    /// The totals so far.
    pub(crate) fn totals(&self) -> Totals {
        let ticks = self.samples / u64::from(THREADS);
        Totals {
            duration_ns: ticks * INTERVAL_NS,
            ticks_planned: ticks,
            ticks_taken: ticks,
            samples: self.samples,
            ..Totals::default()
        }
    }

    fn introduce(&mut self, batch: &mut Batch) {
        let mut stack = StackId(0);
        for at in 0..500 {
            let name = self.interner.string(&format!("App\\Service{}::run{at}", at % 7));
            let file = self.interner.string(&format!("/srv/app/src/Service{}.php", at % 7));
            let frame =
                self.interner.frame(Frame { kind: FrameKind::Php, name, file, first_line: at, line: at + 3 });
            stack = self.interner.push(if at.is_multiple_of(20) { StackId(0) } else { stack }, frame);
            assert_eq!(stack, StackId(at + 1));
        }
        let name = self.interner.string("worker");
        for id in 0..THREADS {
            batch.processes.push(Process {
                id: ProcessId(id),
                pid: 100 + id,
                ns_pid: 10 + id,
                title: "php-fpm: pool www".into(),
                ..Process::default()
            });
            let thread =
                Thread { id: ThreadId(id), process: ProcessId(id), tid: 100 + id, interpreter: 0, name };
            batch.threads.push(thread);
        }
    }
}

fn request(interner: &mut Interner, id: u32) -> Request {
    let method = interner.string("GET");
    let uri = interner.string(&format!("/page/{}", id % 9));
    let script = interner.string("/srv/app/public/index.php");
    let first_ns = u64::from(id) * 5 * INTERVAL_NS;
    Request {
        id: RequestId(id),
        process: ProcessId(id % THREADS),
        method,
        uri,
        script,
        started_unix_ns: 1_795_000_000_000_000_000 + first_ns - 3_000_000,
        first_ns,
        last_ns: first_ns + 4 * INTERVAL_NS,
        samples: 32,
        peak_memory_bytes: 2_000_000 + u64::from(id) * 8,
    }
}

/// Asserts that the samples of `recording` are the first ones of the made-up recording, and returns how many.
pub(crate) fn check_samples(recording: &Recording) -> u64 {
    let mut count = 0;
    for found in recording.samples() {
        assert_eq!(found, sample(count), "sample {count}");
        count += 1;
    }
    count
}

/// This test program again, to run only the test `name` with `SLIP_FILE_CHILD` set to `path`. Such tests do nothing
/// without that variable.
pub(crate) fn child(name: &str, path: &Path) -> Command {
    child_of(&std::env::current_exe().unwrap(), name, path)
}

/// Like [`child`], with a copy of this test program.
pub(crate) fn child_of(program: &Path, name: &str, path: &Path) -> Command {
    let mut command = Command::new(program);
    command.args(["--exact", name, "--nocapture", "--test-threads=1"]);
    // Its own "test result" line would be counted with those of the run; why it failed goes to standard error.
    command.env("SLIP_FILE_CHILD", path).stdin(Stdio::null()).stdout(Stdio::null());
    command
}

/// What [`child`] was told.
pub(crate) fn child_path() -> Option<PathBuf> {
    std::env::var_os("SLIP_FILE_CHILD").map(PathBuf::from)
}
