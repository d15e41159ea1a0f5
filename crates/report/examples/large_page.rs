//! Writes the page of a made-up recording to standard output: 100,000 stacks of eight workers of PHP-FPM, with 10,000 requests. What
//! `bench/page/run` measures in a browser.

use std::io::{self, Write as _};

use slip_model::{
    Budget, Endpoint, EndpointTime, Frame, FrameId, FrameKind, Language, Part, PartTimes, Process, ProcessId,
    Recording, RecordingInfo, Request, RequestId, Sample, SampleBlock, ServedRequest, StackId, State, Thread,
    ThreadId, Totals, Wait, WaitReason, Worker,
};
use slip_report::{Format, Options, render};

const STACKS: u32 = 100_000;
const FUNCTIONS: u32 = 6_000;
const REQUESTS: u32 = 10_000;
const WORKERS: u32 = 8;
const INTERVAL_NS: u64 = 1_000_000_000 / 99;
const MS: u64 = 1_000_000;

/// Numbers that are random enough (splitmix64), and the same in every run.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % limit
    }

    /// Small ones are more likely.
    fn low(&mut self, limit: u64) -> u64 {
        let one = self.below(limit);
        one * self.below(limit) / limit
    }
}

fn main() -> io::Result<()> {
    let page = render(&recording(), Format::Html, &Options::default()).map_err(io::Error::other)?;
    io::stdout().lock().write_all(&page)
}

fn recording() -> Recording {
    let mut random = Random(42);
    let info = RecordingInfo {
        tool: "slip bench".into(),
        started_unix_ns: 1_795_000_000_000_000_000,
        interval_ns: INTERVAL_NS,
        target: "--fpm www".into(),
        sampler: "kernel".into(),
        host: "made up".into(),
        ..RecordingInfo::default()
    };
    let mut recording = Recording { info, ..Recording::default() };
    let leaves = stacks(&mut recording, &mut random);
    for id in 0..WORKERS {
        let title = "php-fpm: pool www".to_owned();
        let (pid, version) = (1_000 + id, "8.2.30".into());
        recording.processes.push(Process {
            id: ProcessId(id),
            pid,
            ns_pid: pid,
            language: Language::Php,
            version,
            title,
            ..Process::default()
        });
        recording.threads.push(Thread {
            id: ThreadId(id),
            process: ProcessId(id),
            tid: pid,
            ..Thread::default()
        });
    }
    requests(&mut recording, &mut random, &leaves);
    recording
}

/// A tree with this number of stacks: those that no other one goes on from.
fn stacks(recording: &mut Recording, random: &mut Random) -> Vec<StackId> {
    let interner = &mut recording.interner;
    let frames: Vec<FrameId> = (0..FUNCTIONS)
        .map(|number| {
            let (name, file) = match number % 5 {
                4 => (format!("internal_{number}"), String::new()),
                _ => (
                    format!("App\\Module{}\\Service{number}::handle", number % 90),
                    format!("/srv/app/src/Module{}/Service{number}.php", number % 90),
                ),
            };
            let (name, file) = (interner.string(&name), interner.string(&file));
            let kind = if number % 5 == 4 { FrameKind::PhpInternal } else { FrameKind::Php };
            interner.frame(Frame { kind, name, file, first_line: 1 + number % 300, line: 3 + number % 300 })
        })
        .collect();
    let mut depth_of = vec![0_u32];
    let mut is_leaf = vec![false];
    let mut at = StackId(0);
    while depth_of.len() as u32 <= STACKS {
        if depth_of[at.index()] > 45 || random.below(9) < 3 {
            at = StackId(random.below(depth_of.len() as u64) as u32);
            continue;
        }
        let frame = frames[random.low(u64::from(FUNCTIONS)) as usize];
        let next = interner.push(at, frame);
        if next.index() == depth_of.len() {
            depth_of.push(depth_of[at.index()] + 1);
            is_leaf.push(true);
            is_leaf[at.index()] = false;
        }
        at = next;
    }
    (1..is_leaf.len() as u32).filter(|id| is_leaf[*id as usize]).map(StackId).collect()
}

fn requests(recording: &mut Recording, random: &mut Random, leaves: &[StackId]) {
    let method = recording.interner.string("GET");
    let uris: Vec<_> =
        (0..40).map(|number| recording.interner.string(&format!("/shop/category-{number}/items"))).collect();
    let mut workers: Vec<Worker> = (0..WORKERS)
        .map(|id| Worker {
            pid: 1_000 + id,
            tid: 1_000 + id,
            title: "php-fpm: pool www".into(),
            ..Worker::default()
        })
        .collect();
    let mut free_ns = vec![0_u64; WORKERS as usize];
    let mut block = SampleBlock::default();
    let mut served = Vec::new();
    let mut next_leaf = leaves.iter().cycle();
    for number in 0..REQUESTS {
        let worker = number % WORKERS;
        let begin_ns = free_ns[worker as usize] + random.below(20 * MS);
        let mut serving = PartTimes::default();
        for (part, most_ns) in [
            (Part::Code, 60 * MS),
            (Part::Boot, MS),
            (Part::Memory, 4 * MS),
            (Part::Connect, MS),
            (Part::Wait, 30 * MS),
            (Part::Wake, 12 * MS),
            (Part::Disk, 2 * MS),
        ] {
            serving.0[part as usize] = 1 + random.low(most_ns);
        }
        let response_ns = begin_ns + serving.total_ns();
        let mut after = PartTimes::default();
        after.0[Part::Code as usize] = 1 + random.below(MS);
        let end_ns = response_ns + after.total_ns();
        let of = &mut workers[worker as usize];
        of.idle_ns += begin_ns - free_ns[worker as usize];
        of.serving.add(&serving);
        of.after.add(&after);
        free_ns[worker as usize] = end_ns;
        let queued_ns = begin_ns.saturating_sub(random.below(MS));
        served.push(ServedRequest { worker, queued_ns, begin_ns, response_ns, end_ns, serving, after });
        let id = RequestId(number + 1);
        let thread = ThreadId(worker);
        let mut stack = || next_leaf.next().copied().unwrap_or_default();
        // More than 99 Hz would have, so that each stack is seen.
        for at in 0..1 + leaves.len() as u64 / u64::from(REQUESTS) {
            let time_ns = begin_ns + at * MS;
            block.push(Sample { time_ns, thread, stack: stack(), state: State::ON_CPU, request: id });
        }
        for reason in [WaitReason::Socket, WaitReason::Cpu] {
            let total_ns = serving.of(if reason == WaitReason::Cpu { Part::Wake } else { Part::Wait });
            let (time_ns, count) = (end_ns, 1 + random.below(20) as u32);
            recording.waits.push(Wait {
                time_ns,
                thread,
                stack: stack(),
                request: id,
                reason,
                count,
                total_ns,
                ..Wait::default()
            });
        }
        let uri = uris[random.low(40) as usize];
        let (first_ns, last_ns) = (begin_ns, response_ns);
        recording.requests.push(Request {
            id,
            process: ProcessId(worker),
            method,
            uri,
            first_ns,
            last_ns,
            samples: 5,
            ..Request::default()
        });
    }
    let duration_ns = free_ns.iter().copied().max().unwrap_or_default();
    for worker in &mut workers {
        worker.watched_ns = worker.idle_ns + worker.serving.total_ns() + worker.after.total_ns();
        worker.endpoints = vec![EndpointTime {
            endpoint: 0,
            calls: 20_000,
            connects: 1,
            wait_ns: MS,
            ..EndpointTime::default()
        }];
    }
    recording.totals =
        Totals { duration_ns, samples: block.len() as u64, complete: true, ..Totals::default() };
    recording.blocks.push(block);
    recording.budget = Some(Budget {
        rung: "tracepoints".into(),
        window_ns: duration_ns,
        workers,
        endpoints: vec![Endpoint { address: "127.0.0.1:6379".into(), protocol: "redis".into() }],
        requests: served,
        ..Budget::default()
    });
}
