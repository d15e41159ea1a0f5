//! The sampler that reads from outside: no privilege in the kernel, nothing written, nothing stopped.

use std::time::{Duration, Instant};

use slip_cpython::TaskError;
use slip_model::{Mode, ProcessId, Request};
use slip_probe::{ProbeError, RunStart};
use slip_remote::prefetch;
use slip_zend::CodeCache;

use crate::books::Books;
use crate::process::{Sampled, WatchedProcess};
use crate::schedule::monotonic_ns;
use crate::tasks::{TaskChoice, TaskLook};
use crate::{Sampler, Sink, TargetIssue};

/// How the outside sampler looks.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// Which moments count.
    pub mode: Mode,
    /// Keep the query string of request URIs: it may hold secrets.
    pub keep_query: bool,
    /// Stop each process while it is read. The user has to ask for it by name.
    pub pause: bool,
    /// The kernel's own stacks are not wanted. Nobody reads them from outside.
    pub without_kernel_stacks: bool,
    /// Mark where C code called a function of Python.
    pub native: bool,
    /// Show which instruction the innermost function of Python executes.
    pub opcodes: bool,
    /// Do not mark functions of Python that collect garbage.
    pub without_gc: bool,
    /// Sample tasks of asyncio in the place of threads.
    pub tasks: Option<TaskChoice>,
}

impl Options {
    /// Whether the stacks of threads are all that is read, of processes that go on meanwhile.
    pub(crate) fn sees_threads_alone(&self) -> bool {
        !self.pause && !self.native && !self.opcodes && self.tasks.is_none() && self.mode != Mode::Exception
    }
}

/// Reads the memory of interpreters with `process_vm_readv`.
#[derive(Debug)]
pub struct OutsideSampler {
    options: Options,
    processes: Vec<WatchedProcess>,
    /// When the last look ended.
    looked: Option<Instant>,
    /// What is known of PHP code, which the workers of a pool share.
    code: CodeCache,
    /// Begin of the recording, by `CLOCK_MONOTONIC`; 0 before.
    start_ns: u64,
    /// The budget of the workers' time, if it is wanted.
    books: Option<Books>,
}

impl OutsideSampler {
    /// A sampler without targets.
    pub fn new(options: Options) -> Self {
        Self {
            options,
            processes: Vec::new(),
            looked: None,
            code: CodeCache::default(),
            start_ns: 0,
            books: None,
        }
    }

    /// Keeps the budget of the workers' time as well.
    #[must_use]
    pub fn with_books(self, books: Books) -> Self {
        Self { books: Some(books), ..self }
    }

    /// Looks at the tasks of each process now. They must be what is sampled.
    ///
    /// # Errors
    ///
    /// For a process, [`TaskError::Torn`] if its tasks changed while they were read, and [`TaskError::Read`].
    pub fn tasks(&mut self, sink: &mut Sink) -> Vec<(ProcessId, Result<TaskLook, TaskError>)> {
        let Self { options, processes, .. } = self;
        processes.iter_mut().map(|process| (process.id(), process.look_at_tasks(*options, sink))).collect()
    }
}

impl Sampler for OutsideSampler {
    fn name(&self) -> &'static str {
        "outside"
    }

    fn cannot_see(&self) -> Vec<String> {
        let of_tasks = match self.options.tasks {
            None => vec![],
            Some(TaskChoice::Running) => vec![
                "moments in which a thread runs no task are left out",
                "tasks that run for some microseconds at a time are mostly dropped and counted as torn",
            ],
            Some(TaskChoice::All) => vec![
                "each task counts by itself, so there is more time than the threads have",
                "tasks are read one after the other: what they wait for may be of moments some 0.5 ms apart",
            ],
        };
        let mut limits: Vec<String> = of_tasks.into_iter().map(str::to_owned).collect();
        limits.extend([
            "the line of the innermost PHP function may be that of its last call: the engine keeps the live one in a \
             register"
                .to_owned(),
            "C functions below Python code, and native and kernel frames, are not shown".to_owned(),
            "why a thread waits is not known, only that it does".to_owned(),
        ]);
        if !self.options.pause {
            limits.push(
                "stacks that move while they are read twice are dropped and counted as torn".to_owned(),
            );
            limits.push(
                "on CPython 3.15 the line of a caller may be that of an earlier call if the stack moves while it is read"
                    .to_owned(),
            );
        }
        limits
    }

    fn add(&mut self, pid: u32, now_ns: u64, sink: &mut Sink) -> Result<(), TargetIssue> {
        let process = match WatchedProcess::attach(pid, now_ns, self.options, sink, &mut self.code) {
            Err(issue @ TargetIssue::NotAnInterpreter { .. }) => {
                return Books::add_native(self.books.as_mut(), pid, issue);
            }
            other => other?,
        };
        if let Some(books) = &mut self.books {
            let known = sink.processes().get(process.id().index());
            let (language, title) = known.map(|known| (known.language, &*known.title)).unwrap_or_default();
            let refuses = |error: ProbeError| TargetIssue::Unsupported { reason: error.to_string() };
            books.add(pid, language, title).map_err(refuses)?;
        }
        self.processes.push(process);
        Ok(())
    }

    fn may_run(&mut self, pid: u32, start: RunStart, title: &str) -> Result<(), TargetIssue> {
        let Some(books) = &mut self.books else { return Ok(()) };
        books
            .may_run(pid, start, title)
            .map_err(|error| TargetIssue::Unsupported { reason: error.to_string() })
    }

    fn look_at_natives(&mut self) {
        if let Some(books) = &mut self.books {
            books.look_at_sites();
        }
    }

    fn remove(&mut self, pid: u32, now_ns: u64, sink: &mut Sink) {
        if let Some(books) = &mut self.books {
            books.remove(pid);
        }
        let Self { options, processes, code, .. } = self;
        for mut process in processes.extract_if(.., |process| process.pid() == pid) {
            process.finish(*options, sink, code);
            sink.end_process(process.id(), now_ns);
        }
    }

    fn pids(&self) -> Vec<u32> {
        let natives = self.books.iter().flat_map(|books| books.natives());
        self.processes.iter().map(WatchedProcess::pid).chain(natives.copied()).collect()
    }

    fn open_requests(&self) -> Vec<Request> {
        self.processes.iter().filter_map(WatchedProcess::open_request).collect()
    }

    fn is_empty(&self) -> bool {
        self.processes.is_empty() && self.books.as_ref().is_none_or(|books| books.natives().is_empty())
    }

    fn sample(&mut self, now_ns: u64, sink: &mut Sink) -> Vec<u32> {
        if self.start_ns == 0 {
            self.start_ns = monotonic_ns().saturating_sub(now_ns);
        }
        let mut gone = Vec::new();
        let Self { options, processes, code, looked, books, .. } = self;
        // Samples are stored in the order of their times: with several processes looks would have to wait for each other.
        match &mut processes[..] {
            [process] if books.is_none() => {
                if process.glance(now_ns, *options, sink) {
                    // Shorter than it was, for who looks next.
                    *looked = None;
                    return gone;
                }
            }
            processes => processes.iter_mut().for_each(|process| process.settle(*options, sink)),
        }
        let since = looked.map_or(Duration::ZERO, |looked| looked.elapsed());
        // One step after the other: where to look next is in what the step before has fetched.
        prefetch(processes.as_slice());
        processes.iter().for_each(WatchedProcess::prefetch);
        processes.iter().for_each(WatchedProcess::prefetch_threads);
        processes.iter_mut().for_each(|process| process.ask(since));
        code.prefetch();
        sink.prefetch();
        processes.iter().for_each(WatchedProcess::prefetch_reading);
        processes.retain_mut(|process| match process.sample(now_ns, *options, sink, code) {
            Sampled::Alive => true,
            Sampled::Gone => {
                process.finish(*options, sink, code);
                sink.end_process(process.id(), now_ns);
                gone.push(process.pid());
                false
            }
        });
        *looked = Some(Instant::now());
        if let Some(books) = books {
            books.look_at_sites();
            gone.extend(books.take_ended_natives());
            gone.iter().for_each(|pid| books.remove(*pid));
        }
        gone
    }

    fn before_flush(&mut self, now_ns: u64, sink: &mut Sink) {
        self.processes.iter_mut().for_each(|process| process.settle(self.options, sink));
        if let Some(books) = &mut self.books {
            books.store(now_ns, self.start_ns, sink);
        }
    }

    fn finish(&mut self, now_ns: u64, sink: &mut Sink) {
        if let Some(books) = &mut self.books {
            books.store(now_ns, self.start_ns, sink);
        }
        for process in &mut self.processes {
            process.finish(self.options, sink, &mut self.code);
        }
    }
}
