//! A small recording that has everything that is hard to show.
#![allow(dead_code, reason = "each test binary uses a part of it")]

pub(crate) mod chrome;
pub(crate) mod firefox;
pub(crate) mod html;
pub(crate) mod schema;

use slip_model::{
    Frame, FrameId, FrameKind, Interner, Language, Mode, Process, ProcessId, Recording, RecordingInfo,
    Request, RequestId, Sample, SampleBlock, StackId, State, Thread, ThreadId, Totals, Wait, WaitReason,
};

/// 100 Hz, so that times are round.
pub(crate) const INTERVAL_NS: u64 = 10_000_000;

/// Builds recordings sample by sample.
pub(crate) struct Builder {
    pub(crate) recording: Recording,
    block: SampleBlock,
    now_ns: u64,
}

impl Builder {
    pub(crate) fn new(target: &str) -> Self {
        let info = RecordingInfo {
            tool: "slip 0.1.0".into(),
            started_unix_ns: 1_795_299_005_000_000_000,
            interval_ns: INTERVAL_NS,
            target: target.into(),
            sampler: "outside".into(),
            cannot_see: vec!["Native frames.".into(), "What the kernel does.".into()],
            host: "6.1.0 x86_64".into(),
            ..RecordingInfo::default()
        };
        Self {
            recording: Recording { info, ..Recording::default() },
            block: SampleBlock::default(),
            now_ns: 0,
        }
    }

    pub(crate) fn process(&mut self, language: Language, version: &str, pid: u32, title: &str) -> ProcessId {
        let id = ProcessId(self.recording.processes.len() as u32);
        let (version, title) = (version.into(), title.into());
        let process = Process { id, pid, ns_pid: pid % 100, language, version, title, ..Process::default() };
        self.recording.processes.push(process);
        id
    }

    pub(crate) fn thread(&mut self, process: ProcessId, tid: u32, interpreter: u64, name: &str) -> ThreadId {
        let id = ThreadId(self.recording.threads.len() as u32);
        let name = self.recording.interner.string(name);
        self.recording.threads.push(Thread { id, process, tid, interpreter, name });
        id
    }

    /// `name@file:first:line`, outermost first; without `@` a function of PHP itself.
    pub(crate) fn stack(&mut self, kind: FrameKind, frames: &[&str]) -> StackId {
        let interner = &mut self.recording.interner;
        frames.iter().fold(StackId(0), |parent, text| {
            let frame = frame(interner, kind, text);
            interner.push(parent, frame)
        })
    }

    pub(crate) fn samples(
        &mut self,
        count: u32,
        thread: ThreadId,
        stack: StackId,
        state: State,
        request: u32,
    ) {
        for _ in 0..count {
            self.sample_at(self.now_ns, thread, stack, state, request);
            self.now_ns += INTERVAL_NS / 4;
        }
    }

    pub(crate) fn sample_at(
        &mut self,
        time_ns: u64,
        thread: ThreadId,
        stack: StackId,
        state: State,
        request: u32,
    ) {
        self.block.push(Sample { time_ns, thread, stack, state, request: RequestId(request) });
    }

    /// `count` waits that took `total_ns` together.
    #[allow(clippy::too_many_arguments, reason = "one for each column of a wait")]
    pub(crate) fn wait(
        &mut self,
        thread: ThreadId,
        stack: StackId,
        state: State,
        request: u32,
        reason: WaitReason,
        count: u32,
        total_ns: u64,
    ) {
        let (time_ns, request) = (self.now_ns, RequestId(request));
        self.recording.waits.push(Wait { time_ns, thread, stack, state, request, reason, count, total_ns });
    }

    pub(crate) fn request(
        &mut self,
        id: u32,
        process: ProcessId,
        method: &str,
        uri: &str,
        intervals: u64,
        memory: u64,
    ) {
        let of_process = |thread: &u32| self.recording.threads[*thread as usize].process == process;
        let first_sample = self.block.thread.iter().position(of_process);
        // Not under way at the first sample of its process.
        let first_ns = first_sample.map_or(0, |at| self.block.time_ns[at]) + 1_000;
        let interner = &mut self.recording.interner;
        self.recording.requests.push(Request {
            id: RequestId(id),
            process,
            method: interner.string(method),
            uri: interner.string(uri),
            first_ns,
            last_ns: first_ns + intervals * INTERVAL_NS,
            samples: intervals as u32 + 1,
            peak_memory_bytes: memory,
            ..Request::default()
        });
    }

    pub(crate) fn finish(mut self) -> Recording {
        let samples = self.block.len() as u64;
        self.recording.blocks.push(self.block);
        self.recording.totals = Totals {
            duration_ns: 2_000_000_000,
            ticks_planned: 200,
            ticks_taken: 197,
            samples,
            repaired: 4,
            torn: 1,
            failed: 2,
            own_cpu_ns: 9_000_000,
            complete: true,
            ..Totals::default()
        };
        self.recording
    }
}

fn frame(interner: &mut Interner, kind: FrameKind, text: &str) -> FrameId {
    let Some((name, place)) = text.rsplit_once('@') else {
        let kind = if kind == FrameKind::Php { FrameKind::PhpInternal } else { FrameKind::Marker };
        let name = interner.string(text);
        return interner.frame(Frame { kind, name, ..Frame::default() });
    };
    let mut parts = place.rsplitn(3, ':');
    let mut number = || parts.next().and_then(|part| part.parse().ok()).unwrap_or(0);
    let (line, first_line) = (number(), number());
    let (name, file) = (interner.string(name), interner.string(parts.next().unwrap_or("")));
    interner.frame(Frame { kind, name, file, first_line, line })
}

/// Two languages, threads of subinterpreters, idle workers, cut stacks, recursion, unicode and hostile names.
pub(crate) fn both_languages() -> Recording {
    let mut b = Builder::new("--fpm www --pid 4711");
    let www = "php-fpm: pool www";
    let first = b.process(Language::Php, "8.4.14", 1_001, www);
    let second = b.process(Language::Php, "8.3.27", 1_002, www);
    let python = b.process(Language::Python, "3.13.1", 4_711, "gunicorn: worker [größe;\u{1b}[31m]");
    let php = [b.thread(first, 1_001, 0, ""), b.thread(second, 1_002, 0, "")];
    let main = b.thread(python, 4_711, 0, "MainThread");
    let worker = b.thread(python, 4_720, 0, "");
    let sub = b.thread(python, 4_721, 3, "sub");

    let index = "{main}@/srv/app/public/index.php:1:12";
    let query = b.stack(
        FrameKind::Php,
        &[index, "App\\Repo::find@/srv/app/src/Repo.php:20:31", "PDOStatement::execute"],
    );
    let tax = b.stack(FrameKind::Php, &[index, "App\\Price::tax@/srv/app/src/Price.php:8:14"]);
    let tax_deep = b.stack(
        FrameKind::Php,
        &[
            index,
            "App\\Price::tax@/srv/app/src/Price.php:8:11",
            "App\\Price::tax@/srv/app/src/Price.php:8:14",
        ],
    );
    let hostile = b.stack(
        FrameKind::Php,
        &[
            index,
            "{closure:/srv/a|b.php:3}@/srv/a|b.php:3:4",
            "evil;name`<b>\u{202e}\u{1b}]0;x\u{7}\nnext@/tmp/計算.php:1:1",
        ],
    );
    let go =
        b.stack(FrameKind::Python, &["<module>@/srv/py/app.py:1:40", "Handler.größe@/srv/py/app.py:12:19"]);
    let lost = b.stack(FrameKind::Python, &["[unreadable]"]);

    let (cpu, wait) = (State::ON_CPU, State::default());
    for (at, thread) in php.into_iter().enumerate() {
        let request = at as u32 + 1;
        b.samples(30, thread, StackId(0), State::IDLE, 0);
        b.samples(2, thread, StackId(0), State::ENGINE.with(cpu), request);
        b.samples(13, thread, query, wait, request);
        b.samples(1, thread, query, cpu, request);
        b.samples(4, thread, tax, cpu, request);
        b.samples(3, thread, tax_deep, cpu.with(State::REPAIRED), request);
        b.samples(1, thread, hostile, State::CPU_UNKNOWN, request);
    }
    b.samples(8, main, go, cpu.with(State::HAS_GIL), 0);
    b.samples(3, worker, go, wait.with(State::TRUNCATED), 0);
    b.samples(1, sub, lost, wait, 0);
    b.samples(2, sub, StackId(0), wait, 0);
    b.request(1, first, "GET", "/cart/<script>", 23, 4_194_304);
    b.request(2, second, "GET", "/cart/<script>", 24, 6_291_456);
    for process in [first, second] {
        b.recording.processes[process.0 as usize].ended_ns = 1_900_000_000;
    }
    b.finish()
}

/// What the kernel sees: samples of what runs, and waits for reasons.
pub(crate) fn samples_and_waits() -> Recording {
    let mut b = Builder::new("--fpm www --pid 4711");
    b.recording.info.sampler = "kernel".into();
    waits(&mut b, true);
    b.finish()
}

/// Only the waits of [`samples_and_waits`], as `--mode offcpu` has them.
pub(crate) fn only_waits() -> Recording {
    let mut b = Builder::new("--fpm www --pid 4711");
    b.recording.info.sampler = "kernel".into();
    b.recording.info.mode = Mode::Offcpu;
    waits(&mut b, false);
    let mut recording = b.finish();
    (recording.totals.ticks_planned, recording.totals.ticks_taken) = (0, 0);
    recording
}

/// What the kernel did for PHP and Python, on the CPU and in waits: of a request, of its start-up, of an idle worker, of a thread
/// without frames.
pub(crate) fn kernel_frames() -> Recording {
    let mut b = Builder::new("--fpm www --pid 4711");
    b.recording.info.sampler = "kernel".into();
    let www = b.process(Language::Php, "8.4.14", 1_001, "php-fpm: pool www");
    let python = b.process(Language::Python, "3.13.1", 4_711, "gunicorn: worker [shop]");
    let php = b.thread(www, 1_001, 0, "");
    let main = b.thread(python, 4_711, 0, "MainThread");
    let index = "{main}@/srv/app/public/index.php:1:12";
    let query = b.stack(FrameKind::Php, &[index, "mysqli_query"]);
    let read =
        b.stack(FrameKind::Python, &["<module>@/srv/py/app.py:1:40", "Handler.go@/srv/py/app.py:12:19"]);
    let call = ["entry_SYSCALL_64_after_hwframe", "do_syscall_64"];
    let send = ["__x64_sys_sendto", "tcp_sendmsg_locked"];
    let filter = ["__x64_sys_sendto", "nft_do_chain [nf_tables]"];
    let receive = ["__x64_sys_recvfrom", "tcp_recvmsg"];
    let fault = ["asm_exc_page_fault", "evil;name\u{1b}[31m"];
    let mut inside = |outer: StackId, frames: &[&str]| {
        let interner = &mut b.recording.interner;
        frames.iter().fold(outer, |parent, text| {
            let (name, module) = text.split_once(' ').unwrap_or((text, ""));
            let (name, file) = (interner.string(name), interner.string(module));
            let frame = interner.frame(Frame { kind: FrameKind::Kernel, name, file, ..Frame::default() });
            interner.push(parent, frame)
        })
    };
    let sending = inside(query, &[call, send].concat());
    let filtering = inside(query, &[call, filter].concat());
    let receiving = inside(query, &[call, receive].concat());
    let reading = inside(read, &[call, ["__x64_sys_read", "read_zero"]].concat());
    let starting = inside(StackId(0), &fault);
    let (cpu, none) = (State::ON_CPU, State::default());
    b.samples(4, php, query, cpu, 1);
    b.samples(5, php, sending, cpu, 1);
    b.samples(2, php, filtering, cpu, 1);
    b.samples(1, php, starting, cpu.with(State::ENGINE), 1);
    b.samples(1, php, StackId(0), State::IDLE, 0);
    b.samples(2, main, read, cpu.with(State::HAS_GIL), 0);
    b.samples(7, main, reading, cpu, 0);
    b.samples(1, main, starting, cpu, 0);
    b.samples(1, main, reading, cpu.with(State::TRUNCATED), 0);
    b.wait(php, query, none, 1, WaitReason::Socket, 900, 9_000_000);
    b.wait(php, receiving, none, 1, WaitReason::Socket, 50, 40_000_000);
    b.wait(php, query, none, 1, WaitReason::Cpu, 7, 3_000_000);
    b.request(1, www, "GET", "/cart", 23, 4_194_304);
    b.finish()
}

fn waits(b: &mut Builder, with_samples: bool) {
    let www = b.process(Language::Php, "8.4.14", 1_001, "php-fpm: pool www");
    let python = b.process(Language::Python, "3.13.1", 4_711, "gunicorn: worker [shop]");
    let php = b.thread(www, 1_001, 0, "");
    let main = b.thread(python, 4_711, 0, "MainThread");
    let index = "{main}@/srv/app/public/index.php:1:12";
    let find = "App\\Repo::find@/srv/app/src/Repo.php:20:31";
    let query = b.stack(FrameKind::Php, &[index, find, "mysqli_query"]);
    let other_query = b.stack(FrameKind::Php, &[index, "mysqli_query"]);
    let tax = b.stack(FrameKind::Php, &[index, "App\\Price::tax@/srv/app/src/Price.php:8:14"]);
    let go = b.stack(FrameKind::Python, &["<module>@/srv/py/app.py:1:40", "Handler.go@/srv/py/app.py:12:19"]);
    let none = State::default();
    if with_samples {
        b.samples(2, php, query, State::ON_CPU, 1);
        b.samples(9, php, tax, State::ON_CPU, 1);
        b.samples(4, main, go, State::ON_CPU.with(State::HAS_GIL), 0);
    }
    b.wait(php, StackId(0), State::IDLE, 0, WaitReason::Socket, 2, 700_000_000);
    b.wait(php, StackId(0), State::ENGINE, 1, WaitReason::File, 1, 2_000_000);
    b.wait(php, query, none, 1, WaitReason::Socket, 900, 130_000_000);
    b.wait(php, other_query, none, 1, WaitReason::Socket, 50, 20_000_000);
    b.wait(php, query, none, 1, WaitReason::Cpu, 7, 3_000_000);
    b.wait(php, tax, none, 1, WaitReason::PageFault, 12, 400_400);
    b.wait(php, StackId(0), none, 1, WaitReason::Other, 1, 1_000_000);
    b.wait(main, go, State::TRUNCATED, 0, WaitReason::Lock, 40, 24_000_000);
    b.wait(main, go, State::HAS_GIL, 0, WaitReason::Sleep, 1, 10_000_000);
    b.wait(main, go, none, 0, WaitReason::Poll, 1, 300);
    b.request(1, www, "GET", "/cart", 23, 4_194_304);
}
