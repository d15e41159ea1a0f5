//! A made-up hour of a PHP-FPM pool that looks to the recorder like a real one.
//!
//! What makes a recording large is made as random as in real life: the clock jitters by tens of microseconds, the reads
//! of a tick take 4 to 15 us each, stacks follow Zipf's law, requests begin whenever they like and use odd amounts of
//! memory. Nothing is more regular than a real target would be.

use slip_model::{
    Batch, Frame, FrameKind, Interner, Language, Process, ProcessId, RecordingInfo, Request, RequestId,
    Sample, StackId, State, StringId, Thread, ThreadId, Totals,
};

/// Time between two samples of a worker: 99 Hz.
pub const INTERVAL_NS: u64 = 1_000_000_000 / 99;
/// Time between two flushes.
const FLUSH_NS: u64 = 800_000_000;
const STARTED_UNIX_NS: u64 = 1_795_000_000_000_000_000;
const FUNCTIONS: usize = 300;
const STACKS: usize = 20_000;
const ROUTES: usize = 40;
/// 20 requests a second and worker.
const REQUEST_EVERY_NS: u64 = 50_000_000;

/// A generator of numbers that are random enough (splitmix64) and the same in every run.
pub struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Exponentially distributed with this mean.
    fn around(&mut self, mean: f64) -> f64 {
        -mean * (1.0 - self.unit()).ln()
    }
}

/// Draws from 0.. with probabilities as 1, 1/2, 1/3, ...
struct Zipf {
    sums: Vec<f64>,
}

impl Zipf {
    fn new(count: usize) -> Self {
        let mut sum = 0.0;
        Self {
            sums: (1..=count)
                .map(|rank| {
                    sum += 1.0 / rank as f64;
                    sum
                })
                .collect(),
        }
    }

    fn draw(&self, random: &mut Random) -> usize {
        let at = random.unit() * self.sums[self.sums.len() - 1];
        self.sums.partition_point(|sum| *sum < at).min(self.sums.len() - 1)
    }
}

struct Worker {
    request: u32,
    route: usize,
    busy_from_ns: u64,
    busy_until_ns: u64,
    open: Option<Request>,
}

/// Hands out batches, one for each flush.
pub struct Hour {
    random: Random,
    interner: Interner,
    stacks: Vec<(StackId, bool)>,
    routes: Vec<(StringId, StringId, StringId)>,
    popular_stack: Zipf,
    popular_route: Zipf,
    workers: Vec<Worker>,
    next_request: u32,
    tick: u64,
    end_ns: u64,
    started: bool,
    totals: Totals,
}

impl Hour {
    pub fn new(workers: usize, seconds: u64) -> Self {
        let mut random = Random(42);
        let mut interner = Interner::new();
        let stacks = stacks(&mut interner, &mut random);
        let script = interner.string("/var/www/app/public/index.php");
        let routes = (0..ROUTES)
            .map(|at| {
                let method = interner.string(if at % 5 == 4 { "POST" } else { "GET" });
                (method, interner.string(&format!("/api/v1/resource{at}/list")), script)
            })
            .collect();
        let worker = || Worker { request: 0, route: 0, busy_from_ns: 0, busy_until_ns: 0, open: None };
        Self {
            random,
            interner,
            stacks,
            routes,
            popular_stack: Zipf::new(STACKS),
            popular_route: Zipf::new(ROUTES),
            workers: (0..workers).map(|_| worker()).collect(),
            next_request: 1,
            tick: 0,
            end_ns: seconds * 1_000_000_000,
            started: false,
            totals: Totals::default(),
        }
    }

    pub fn info() -> RecordingInfo {
        RecordingInfo {
            tool: "slip bench".into(),
            started_unix_ns: STARTED_UNIX_NS,
            interval_ns: INTERVAL_NS,
            target: "--fpm www".into(),
            sampler: "outside".into(),
            host: "made up".into(),
            ..RecordingInfo::default()
        }
    }

    pub fn totals(&self) -> Totals {
        self.totals
    }

    /// What comes with the next flush; `None` at the end.
    pub fn next_batch(&mut self) -> Option<Batch> {
        let flush_ns = ((self.tick * INTERVAL_NS) / FLUSH_NS + 1) * FLUSH_NS;
        if self.tick * INTERVAL_NS >= self.end_ns {
            return None;
        }
        let mut batch = Batch::default();
        if !self.started {
            self.started = true;
            self.introduce(&mut batch);
        }
        while self.tick * INTERVAL_NS < flush_ns {
            self.take(&mut batch);
        }
        self.totals.duration_ns = flush_ns;
        self.totals.own_cpu_ns = flush_ns / 150;
        batch.interned = self.interner.take_delta();
        batch.totals = self.totals;
        Some(batch)
    }

    fn introduce(&mut self, batch: &mut Batch) {
        for at in 0..self.workers.len() as u32 {
            batch.processes.push(Process {
                id: ProcessId(at),
                pid: 1_000 + at,
                ns_pid: 1_000 + at,
                language: Language::Php,
                version: "8.4.14".into(),
                title: "php-fpm: pool www".into(),
                ..Process::default()
            });
            let thread =
                Thread { id: ThreadId(at), process: ProcessId(at), tid: 1_000 + at, ..Thread::default() };
            batch.threads.push(thread);
        }
    }

    /// One tick: a sample of every worker.
    fn take(&mut self, batch: &mut Batch) {
        let mut now_ns = self.tick * INTERVAL_NS + 20_000 + self.random.around(60_000.0) as u64;
        self.tick += 1;
        self.totals.ticks_planned += 1;
        if self.random.below(500) == 0 {
            return;
        }
        self.totals.ticks_taken += 1;
        for at in 0..self.workers.len() {
            now_ns += 4_000 + self.random.around(3_000.0) as u64;
            self.step(at, now_ns, batch);
            let worker = &mut self.workers[at];
            let busy = worker.busy_from_ns <= now_ns && now_ns < worker.busy_until_ns;
            let mut sample = Sample { time_ns: now_ns, thread: ThreadId(at as u32), ..Sample::default() };
            if busy {
                let choice = self.popular_stack.draw(&mut self.random);
                // What a request runs depends on its route.
                let (stack, waits) = self.stacks[(choice + worker.route * 37) % STACKS];
                sample.request = RequestId(worker.request);
                if self.random.below(40) == 0 {
                    sample.state = State::ENGINE.with(State::ON_CPU);
                } else {
                    sample.stack = stack;
                    let on_cpu = self.random.below(20) != 0;
                    sample.state = if waits != on_cpu { State::ON_CPU } else { State::default() };
                }
                let (method, uri, script) = self.routes[worker.route];
                let request = worker.open.get_or_insert(Request {
                    id: RequestId(worker.request),
                    process: ProcessId(at as u32),
                    method,
                    uri,
                    script,
                    // PHP keeps this time as a double: steps of 238 ns.
                    started_unix_ns: (STARTED_UNIX_NS + worker.busy_from_ns) / 238 * 238,
                    first_ns: now_ns,
                    ..Request::default()
                });
                request.last_ns = now_ns;
                request.samples += 1;
                request.peak_memory_bytes = request
                    .peak_memory_bytes
                    .max(1_000_000 + worker.route as u64 * 50_000 + self.random.below(60_000) * 8);
            } else {
                sample.state = State::IDLE;
            }
            batch.samples.push(sample);
            self.totals.samples += 1;
        }
    }

    /// Moves a worker on to its next request when the one before is over.
    fn step(&mut self, at: usize, now_ns: u64, batch: &mut Batch) {
        let mean_ns = REQUEST_EVERY_NS as f64;
        while self.workers[at].busy_until_ns <= now_ns {
            let worker = &mut self.workers[at];
            if let Some(ended) = worker.open.take() {
                batch.requests.push(ended);
            }
            worker.request = self.next_request;
            self.next_request += 1;
            worker.route = self.popular_route.draw(&mut self.random);
            worker.busy_from_ns = worker.busy_until_ns + self.random.around(mean_ns * 0.4) as u64;
            let share = 0.4 + 0.4 * worker.route as f64 / ROUTES as f64;
            worker.busy_until_ns =
                worker.busy_from_ns + 2_000_000 + self.random.around(mean_ns * share) as u64;
        }
    }
}

/// Makes `STACKS` stacks of `FUNCTIONS` functions, 6 to 36 deep, and says which of them end in a wait.
fn stacks(interner: &mut Interner, random: &mut Random) -> Vec<(StackId, bool)> {
    let functions: Vec<Frame> = (0..FUNCTIONS)
        .map(|at| {
            let internal = at % 6 == 5;
            Frame {
                kind: if internal { FrameKind::PhpInternal } else { FrameKind::Php },
                name: interner.string(&if internal {
                    format!("builtin_{at}")
                } else {
                    format!("App\\Module{}\\Service{}::handle{at}", at % 12, at % 40)
                }),
                file: if internal {
                    StringId(0)
                } else {
                    interner.string(&format!("/var/www/app/src/Module{}/Service{}.php", at % 12, at % 40))
                },
                first_line: if internal { 0 } else { 10 + (at as u32 * 7) % 400 },
                line: 0,
            }
        })
        .collect();
    let mut stacks: Vec<(StackId, bool)> = Vec::new();
    let mut known = std::collections::HashSet::new();
    while stacks.len() < STACKS {
        // Most stacks share the outer part of one that is there already.
        let mut stack = match stacks.len() {
            0 => StackId(0),
            count => {
                let other = stacks[random.below(count as u64) as usize].0;
                let outer: Vec<_> = interner.frames_of(other).collect();
                let keep = random.below(outer.len() as u64 + 1) as usize;
                let frames = &outer[outer.len() - keep.min(34)..];
                interner.stack(frames)
            }
        };
        let mut last = 0;
        for _ in 0..1 + random.below(6) {
            last = random.below(FUNCTIONS as u64) as usize;
            let mut frame = functions[last];
            if frame.first_line > 0 {
                frame.line = frame.first_line + random.below(12) as u32;
            }
            let frame = interner.frame(frame);
            stack = interner.push(stack, frame);
        }
        if known.insert(stack) {
            stacks.push((stack, last % 6 == 5));
        }
    }
    stacks
}
