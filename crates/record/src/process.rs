//! One process that is sampled: its reader, its threads and its request, whoever copies its stacks.

mod bunch;
mod points;
mod tasks;

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use slip_cpython::Interpreter;
use slip_model::{
    Frame, FrameKind, Gil, Interner, Language, Outcome, Process, ProcessId, Request, RequestFacts, RequestId,
    Sample, StackId, StackReading, State, Step, Thread, ThreadId,
};
use slip_remote::{
    Activity, ActivityReader, Copied, LiveProcess, OpenError, Pause, ReadError, StackPlan, WaitPlace,
    command_line, prefetch, process_stat, status_value, threads_of,
};
use slip_zend::{CodeCache, Engine, Phase, PhpReading};

use crate::bare::MAX_THREADS;
use crate::outside::Options;
use crate::tasks::TaskReader;
use crate::title;
use crate::{Sink, TargetIssue, UNREADABLE};

/// After so many failed reads in a row the process is looked at anew: it may have become another program by `exec`.
const REOPEN_AFTER_FAILURES: u32 = 10;

/// So often a process is asked whether it still runs the same program: a system call that most samples need not pay.
pub(crate) const SAME_PROGRAM_INTERVAL_NS: u64 = 250_000_000;

/// Most looks at threads that wait already when a process is added.
const MAX_LOOKS: u32 = 8;

/// What is left of a process after a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sampled {
    /// It can be sampled again.
    Alive,
    /// It has ended, or runs no interpreter any more.
    Gone,
}

/// A process, its interpreter's reader, and what was seen of its threads and requests.
#[derive(Debug)]
pub(crate) struct WatchedProcess {
    id: ProcessId,
    memory: LiveProcess,
    /// Its pid differs in its own namespace, so thread ids do as well.
    in_namespace: bool,
    reader: Reader,
    /// In the order of the last sample.
    threads: Vec<WatchedThread>,
    /// Threads that have run nothing of the interpreter's so far, by the host's numbers.
    foreign: HashMap<u32, ThreadId>,
    request: Option<Request>,
    request_key: u64,
    failures: u32,
    /// It runs another program, whose interpreter has not started yet.
    is_replaced: bool,
    /// When to ask again which program it runs.
    next_question_ns: u64,
    readings: Vec<StackReading>,
    /// The last look at a PHP process; its stack is in `readings`.
    php: PhpReading,
    /// The last sample of all threads succeeded, so that it can be repeated while they rest.
    repeatable: bool,
    /// No thread has run since.
    is_resting: bool,
    /// Where a PHP worker waits for its next request.
    idle_at: Option<WaitPlace>,
    /// Whether threads run is asked of the kernel, each by itself; else somebody else knows.
    asks_activity: bool,
    /// What the threads did before the process was stopped; empty if it is not.
    before_pause: Vec<(u32, Activity)>,
    /// Reads frame by frame, if that is asked for.
    points: Option<Box<points::PointReader>>,
    /// Reads the tasks of asyncio, if these are sampled.
    tasks: Option<Box<TaskReader>>,
    seen_tasks: tasks::SeenTasks,
    bunch: bunch::Bunch,
}

#[derive(Debug)]
enum Reader {
    Python(Box<Interpreter>),
    Php(Box<Engine>),
}

#[derive(Debug)]
struct WatchedThread {
    /// The place that the interpreter has for it; another thread may come to have it.
    key: u64,
    known: Thread,
    /// As the target numbers it.
    native_tid: u64,
    activity: Option<ActivityReader>,
}

impl WatchedProcess {
    /// Opens the process and finds its interpreter.
    pub(crate) fn attach(
        pid: u32,
        now_ns: u64,
        options: Options,
        sink: &mut Sink,
        code: &mut CodeCache,
    ) -> Result<Self, TargetIssue> {
        let memory = LiveProcess::open(pid).map_err(issue_of)?;
        let (mut reader, language, version) = find_reader(&memory, options, code)?;
        let tasks = options.tasks.map(|_| find_tasks(&mut reader, &memory)).transpose()?;
        let ns_pid = innermost(pid).unwrap_or(pid);
        let id = sink.add_process(Process {
            pid,
            ns_pid,
            language,
            version,
            title: title(pid, language),
            first_ns: now_ns,
            ..Process::default()
        });
        Ok(Self {
            id,
            memory,
            in_namespace: ns_pid != pid,
            reader,
            threads: Vec::new(),
            foreign: HashMap::new(),
            request: None,
            request_key: 0,
            failures: 0,
            is_replaced: false,
            next_question_ns: now_ns.saturating_add(SAME_PROGRAM_INTERVAL_NS),
            readings: Vec::new(),
            php: PhpReading::default(),
            repeatable: false,
            is_resting: false,
            idle_at: None,
            asks_activity: true,
            before_pause: Vec::new(),
            points: points::PointReader::of(options).map(Box::new),
            tasks,
            seen_tasks: tasks::SeenTasks::default(),
            bunch: bunch::Bunch::default(),
        })
    }

    /// From now on threads are not watched for whether they run: what the kernel copies says so, and a watch costs the target
    /// something at each switch.
    pub(crate) fn leave_activity(&mut self) {
        self.asks_activity = false;
    }

    pub(crate) fn id(&self) -> ProcessId {
        self.id
    }

    pub(crate) fn pid(&self) -> u32 {
        self.memory.pid()
    }

    /// The request that it is in, as far as it has been seen.
    pub(crate) fn open_request(&self) -> Option<Request> {
        self.request
    }

    /// Closes what is open.
    pub(crate) fn finish(&mut self, options: Options, sink: &mut Sink, code: &mut CodeCache) {
        self.settle(options, sink);
        self.close_request(sink);
        if let Reader::Php(engine) = &self.reader {
            engine.detach(code);
        }
    }

    /// Has the CPU fetch what says whether the process rests.
    pub(crate) fn prefetch(&self) {
        prefetch(self.threads.as_slice());
    }

    /// Has the CPU fetch what the threads point to.
    pub(crate) fn prefetch_threads(&self) {
        for activity in self.threads.iter().filter_map(|thread| thread.activity.as_ref()) {
            activity.prefetch();
        }
    }

    /// Finds out whether any thread has run since the last look, `since` ago. If so, has the CPU fetch the reader.
    pub(crate) fn ask(&mut self, since: Duration) {
        self.is_resting = self.asked_rests().unwrap_or_else(|| self.rests(since));
        if !self.is_resting {
            match &self.reader {
                Reader::Python(interpreter) => prefetch(&**interpreter),
                Reader::Php(engine) => prefetch(&**engine),
            }
        }
    }

    /// Has the CPU fetch what the reader points to, if it is going to be used.
    pub(crate) fn prefetch_reading(&self) {
        if !self.is_resting {
            prefetch(self.readings.as_slice());
            if let Reader::Php(engine) = &self.reader {
                engine.prefetch();
            }
        }
    }

    /// Takes one sample of every thread.
    pub(crate) fn sample(
        &mut self,
        now_ns: u64,
        options: Options,
        sink: &mut Sink,
        code: &mut CodeCache,
    ) -> Sampled {
        if now_ns >= self.next_question_ns {
            self.next_question_ns = now_ns.saturating_add(SAME_PROGRAM_INTERVAL_NS);
            // Reading another program need not fail: one that is not position independent has its structures where
            // the last one had them.
            if !self.memory.runs_same_program() {
                self.is_replaced = true;
                return self.reopen(now_ns, options, sink, code);
            }
        }
        if self.is_replaced {
            sink.totals.failed += 1;
            return Sampled::Alive;
        }
        let rests = self.is_resting;
        self.before_pause = if options.pause { activities(self.pid()) } else { Vec::new() };
        let paused = if options.pause { Pause::stop(&self.memory).ok() } else { None };
        let result = match (&mut self.reader, options.tasks) {
            (Reader::Python(_), Some(choice)) => self.sample_tasks((now_ns, rests), options, choice, sink),
            (Reader::Python(_), None) => self.sample_python((now_ns, rests), options, sink),
            (Reader::Php(_), _) => self.sample_php((now_ns, rests), options, sink, code),
        };
        drop(paused);
        match result {
            Ok(true) => {
                self.failures = 0;
                Sampled::Alive
            }
            Err(ReadError::Gone { .. }) => Sampled::Gone,
            Ok(false) | Err(_) => {
                sink.totals.failed += 1;
                self.failures += 1;
                if self.failures.is_multiple_of(REOPEN_AFTER_FAILURES) {
                    self.reopen(now_ns, options, sink, code)
                } else {
                    Sampled::Alive
                }
            }
        }
    }

    /// After `exec` everything lies elsewhere, and it may be another interpreter or none.
    fn reopen(&mut self, now_ns: u64, options: Options, sink: &mut Sink, code: &mut CodeCache) -> Sampled {
        if !self.memory.is_running() {
            return Sampled::Gone;
        }
        match Self::attach(self.pid(), now_ns, options, sink, code) {
            Ok(anew) => {
                self.finish(options, sink, code);
                sink.end_process(self.id, now_ns);
                *self = anew;
                Sampled::Alive
            }
            Err(TargetIssue::NotReady | TargetIssue::NoAsyncio) => Sampled::Alive,
            Err(_) => Sampled::Gone,
        }
    }

    /// How the kernel copies its stacks; `None` if it cannot.
    pub(crate) fn plan(&mut self) -> Option<StackPlan> {
        match &mut self.reader {
            Reader::Python(interpreter) => interpreter.plan(&self.memory).ok().flatten(),
            Reader::Php(engine) => Some(engine.plan()),
        }
    }

    /// The plan, if it may be another one than it was.
    pub(crate) fn plan_anew(&mut self) -> Option<StackPlan> {
        match &self.reader {
            Reader::Python(_) => None,
            Reader::Php(engine) => Some(engine.plan()),
        }
    }

    /// Whether the process still runs the same program, as far as it has been asked lately.
    pub(crate) fn is_there(&mut self, now_ns: u64) -> bool {
        if now_ns < self.next_question_ns {
            return true;
        }
        self.next_question_ns = now_ns.saturating_add(SAME_PROGRAM_INTERVAL_NS);
        self.memory.runs_same_program()
    }

    /// Whether what stacks are named with may be gone soon after they were copied.
    pub(crate) fn is_hasty(&self) -> bool {
        match &self.reader {
            Reader::Python(interpreter) => interpreter.replaces_code(),
            Reader::Php(_) => true,
        }
    }

    /// Begins to store stacks that the kernel has copied.
    pub(crate) fn begin_copied(&mut self) -> Sampled {
        match &mut self.reader {
            Reader::Python(interpreter) => match interpreter.begin_copied(&self.memory) {
                Err(ReadError::Gone { .. }) => Sampled::Gone,
                _ => Sampled::Alive,
            },
            Reader::Php(_) => Sampled::Alive,
        }
    }

    /// What a stack that the kernel has copied says of its thread, at `time_ns` since the begin of the recording. `None` if it
    /// says nothing certain, which is counted.
    pub(crate) fn see_copied(
        &mut self,
        (copied, time_ns, at): (&Copied<'_>, u64, Instant),
        activity: Activity,
        options: Options,
        sink: &mut Sink,
        code: &mut CodeCache,
    ) -> Option<Sample> {
        let reading = match &mut self.reader {
            Reader::Python(interpreter) => {
                let named = interpreter.name_copied(&self.memory, &mut sink.interner, (copied, at));
                named.map(|reading| {
                    reading.map(|stack| PhpReading { stack, phase: Phase::Code, request: None })
                })
            }
            Reader::Php(engine) => {
                let php_options = slip_zend::SampleOptions { keep_query: options.keep_query };
                let mut reading = PhpReading::default();
                let moment = (copied, at);
                engine
                    .name_copied(&self.memory, &mut sink.interner, code, &php_options, moment, &mut reading)
                    .map(|()| Some(reading))
            }
        };
        let Ok(Some(reading)) = reading else {
            sink.totals.failed += 1;
            return None;
        };
        let (thread, _) = self.thread(usize::MAX, &reading.stack, false, sink);
        let sample = self.sample_of(time_ns, sink, &reading, (thread, activity));
        if reading.stack.outcome == Outcome::Torn {
            sink.totals.torn += 1;
            return None;
        }
        Some(sample)
    }

    /// From now on [`WatchedProcess::steps`] knows what stacks are made of.
    pub(crate) fn list_steps(&mut self) {
        if let Reader::Php(engine) = &mut self.reader {
            engine.list_steps();
        }
    }

    /// What the stack that was seen last is made of, the outermost first.
    pub(crate) fn steps(&mut self, sink: &mut Sink) -> Vec<Step> {
        match &mut self.reader {
            Reader::Python(interpreter) => {
                interpreter.steps_copied(&self.memory, &mut sink.interner).unwrap_or_default()
            }
            Reader::Php(engine) => engine.steps().to_vec(),
        }
    }

    /// What is known of thread `tid` of which no stack could be had: that it waits. `None` if it was never seen.
    pub(crate) fn unreadable(&self, tid: u32, time_ns: u64, sink: &mut Sink) -> Option<Sample> {
        let thread = self.thread_named(tid)?;
        let stack = unreadable_stack(sink);
        Some(Sample { time_ns, thread, stack, state: State::default(), request: RequestId(0) })
    }

    /// The thread that the host numbers so; `None` if it was never seen.
    pub(crate) fn thread_named(&self, tid: u32) -> Option<ThreadId> {
        self.threads.iter().find(|thread| thread.known.tid == tid).map(|thread| thread.known.id)
    }

    /// The same of one that may have nothing to do with the interpreter; it becomes known.
    pub(crate) fn any_thread(&mut self, tid: u32, sink: &mut Sink) -> ThreadId {
        if let Some(known) = self.thread_named(tid) {
            return known;
        }
        let (process, pid) = (self.id, self.pid());
        // A program may start new ones all the time.
        if self.foreign.len() >= MAX_THREADS {
            self.foreign.clear();
        }
        *self.foreign.entry(tid).or_insert_with(|| {
            let name = comm(pid, tid, &mut sink.interner);
            sink.add_thread(Thread { process, tid, name, ..Thread::default() })
        })
    }

    /// Threads that wait now, by the number that the host has for them, read from outside. Those that cannot be read now are
    /// left out.
    pub(crate) fn waiting(
        &mut self,
        now_ns: u64,
        options: Options,
        sink: &mut Sink,
        code: &mut CodeCache,
    ) -> Vec<(u32, Sample)> {
        let mut readings = Vec::new();
        for _ in 0..MAX_LOOKS {
            readings = self.read_all(options, sink, code);
            // Some names are believed only when they are read again.
            if readings.iter().all(|reading| reading.stack.outcome != Outcome::Torn) {
                break;
            }
        }
        let blocked: Vec<u32> = activities(self.pid())
            .into_iter()
            .filter_map(|(tid, activity)| (activity == Activity::Blocked).then_some(tid))
            .collect();
        let mut waiting = Vec::new();
        for (at, reading) in readings.iter().enumerate() {
            let (thread, _) = self.thread(at, &reading.stack, false, sink);
            let Some(tid) = sink.threads().get(thread.0 as usize).map(|known| known.tid) else { continue };
            if blocked.contains(&tid) && reading.stack.outcome != Outcome::Torn {
                waiting.push((tid, self.sample_of(now_ns, sink, reading, (thread, Activity::Blocked))));
            }
        }
        waiting
    }

    /// Reads all threads from outside; none if they cannot be read.
    fn read_all(&mut self, options: Options, sink: &mut Sink, code: &mut CodeCache) -> Vec<PhpReading> {
        match &mut self.reader {
            Reader::Python(interpreter) => {
                let mut stacks = Vec::new();
                let read = interpreter.sample(&self.memory, &mut sink.interner, &mut stacks);
                let plain = |stack| PhpReading { stack, phase: Phase::Code, request: None };
                if read.is_ok() { stacks.into_iter().map(plain).collect() } else { Vec::new() }
            }
            Reader::Php(engine) => {
                let php_options = slip_zend::SampleOptions { keep_query: options.keep_query };
                let mut reading = PhpReading::default();
                let read = engine.sample(&self.memory, &mut sink.interner, code, &php_options, &mut reading);
                if read.is_ok() { vec![reading] } else { Vec::new() }
            }
        }
    }

    /// Whether no thread has run since the last sample: then nothing needs to be read, as nothing has changed.
    ///
    /// Every thread is asked, even after one has answered no, so that each knows when it was asked last.
    fn rests(&mut self, since: Duration) -> bool {
        let mut all = self.repeatable && self.threads.len() == self.readings.len();
        for thread in &mut self.threads {
            all &= thread.activity.as_mut().is_some_and(|activity| activity.is_resting(since));
        }
        all
    }

    /// False if there is no thread at all, as after `exec` into a program whose memory lies at the same addresses.
    fn sample_python(
        &mut self,
        (now_ns, rests): (u64, bool),
        options: Options,
        sink: &mut Sink,
    ) -> Result<bool, ReadError> {
        let Reader::Python(interpreter) = &mut self.reader else { return Ok(false) };
        let mut readings = std::mem::take(&mut self.readings);
        self.repeatable = false;
        if !rests {
            readings.clear();
            match &mut self.points {
                None => interpreter.sample(&self.memory, &mut sink.interner, &mut readings)?,
                Some(points) => {
                    points.read(interpreter, &self.memory, &mut sink.interner, &mut readings)?;
                }
            }
        }
        for (at, reading) in readings.iter().enumerate() {
            let (thread, activity) = self.thread(at, reading, !rests, sink);
            let mut state = state_of(reading, activity);
            if self.points.as_ref().is_some_and(|points| points.has_exception.get(at) == Some(&true)) {
                state = state.with(State::HAS_EXCEPTION);
            }
            self.store(now_ns, options, sink, reading, thread, state, RequestId(0));
        }
        readings.iter_mut().for_each(was_stored);
        self.forget_ended(&readings);
        let any = !readings.is_empty();
        self.repeatable = any && readings.iter().all(|reading| reading.outcome != Outcome::Torn);
        self.readings = readings;
        Ok(any)
    }

    /// Forgets threads that have ended.
    fn forget_ended(&mut self, readings: &[StackReading]) {
        if readings.len() < self.threads.len() {
            let alive: HashSet<u64> = readings.iter().map(|reading| reading.thread_key).collect();
            self.threads.retain(|thread| alive.contains(&thread.key));
        }
    }

    fn sample_php(
        &mut self,
        (now_ns, rests): (u64, bool),
        options: Options,
        sink: &mut Sink,
        code: &mut CodeCache,
    ) -> Result<bool, ReadError> {
        let Reader::Php(engine) = &mut self.reader else { return Ok(false) };
        let activity = self.threads.first_mut().and_then(|thread| thread.activity.as_mut());
        let mut activity = activity.filter(|_| !rests && !options.pause);
        if !rests {
            self.repeatable = false;
            let place = activity.as_mut().and_then(|activity| activity.read_place());
            if place.is_some() && place == self.idle_at {
                engine.idle(&mut self.php);
            } else {
                let php_options = slip_zend::SampleOptions { keep_query: options.keep_query };
                engine.sample(&self.memory, &mut sink.interner, code, &php_options, &mut self.php)?;
                // A worker that accepts a connection there before and after it is seen idle is idle whenever it does.
                let accepts = place.filter(|place| self.php.phase == Phase::Idle && place.is_accept());
                if let (Some(place), Some(activity)) = (accepts, &mut activity)
                    && activity.read_place() == Some(place)
                {
                    self.idle_at = Some(place);
                }
            }
            self.readings.clear();
            self.readings.push(self.php.stack);
            self.repeatable = self.php.stack.outcome != Outcome::Torn;
        }
        let asked = activity.is_some();
        let reading = self.php;
        let (thread, activity) = self.thread(0, &reading.stack, !rests && !asked, sink);
        self.store_php(now_ns, options, sink, &reading, (thread, activity));
        was_stored(&mut self.php.stack);
        Ok(true)
    }

    /// Stores a sample of a worker, and follows its request.
    fn store_php(
        &mut self,
        time_ns: u64,
        options: Options,
        sink: &mut Sink,
        reading: &PhpReading,
        seen: (ThreadId, Activity),
    ) {
        let sample = self.sample_of(time_ns, sink, reading, seen);
        let Sample { thread, state, request, .. } = sample;
        self.store(time_ns, options, sink, &reading.stack, thread, state, request);
    }

    /// What a thread does, and in which request of its process.
    fn sample_of(
        &mut self,
        time_ns: u64,
        sink: &mut Sink,
        reading: &PhpReading,
        (thread, activity): (ThreadId, Activity),
    ) -> Sample {
        let mut state = state_of(&reading.stack, activity);
        match reading.phase {
            Phase::Idle => state = state.with(State::IDLE),
            Phase::Engine => state = state.with(State::ENGINE),
            Phase::Code => {}
        }
        let request = match (reading.stack.outcome, reading.request) {
            // A torn sample says nothing certain about the request either.
            (Outcome::Torn, _) => RequestId(0),
            (_, Some(facts)) => self.follow_request(facts, time_ns, sink),
            (_, None) => {
                // Which one it is may be uncertain while it goes on.
                if reading.phase == Phase::Idle {
                    self.close_request(sink);
                }
                RequestId(0)
            }
        };
        Sample { time_ns, thread, stack: reading.stack.stack, state, request }
    }

    /// Stores one sample, or counts why it is left out.
    #[allow(clippy::too_many_arguments, reason = "the columns of one sample")]
    fn store(
        &mut self,
        now_ns: u64,
        options: Options,
        sink: &mut Sink,
        reading: &StackReading,
        thread: ThreadId,
        state: State,
        request: RequestId,
    ) {
        if reading.outcome == Outcome::Torn {
            sink.totals.torn += 1;
            return;
        }
        if !options.mode.counts(state) {
            sink.totals.filtered += 1;
            return;
        }
        if reading.outcome == Outcome::Repaired {
            sink.totals.repaired += 1;
        }
        sink.push(Sample { time_ns: now_ns, thread, stack: reading.stack, state, request });
    }

    /// The number of the thread that was read as number `at`, and whether it runs. If it is not to `ask` it does what it
    /// did when it was asked last.
    fn thread(
        &mut self,
        at: usize,
        reading: &StackReading,
        ask: bool,
        sink: &mut Sink,
    ) -> (ThreadId, Activity) {
        let pid = self.pid();
        let native = reading.native_tid;
        let is_it = |thread: &WatchedThread| thread.key == reading.thread_key;
        let mut place = self.threads.get(at).is_some_and(is_it).then_some(at);
        if place.is_none() {
            place = self.threads.iter().position(is_it);
            // It will be looked for there next time.
            if let Some(found) = &mut place
                && at < self.threads.len()
            {
                self.threads.swap(at, *found);
                *found = at;
            }
        }
        let known = place.map(|at| (self.threads[at].native_tid, self.threads[at].known.tid));
        // A child of `fork` gets its own number some time after it has begun; it is not another thread then.
        let same = known.is_some_and(|(then, tid)| then == native || tid == self.host_tid(native));
        if same && let Some(thread) = place.and_then(|at| self.threads.get_mut(at)) {
            thread.native_tid = native;
            if thread.known.name != reading.name && reading.name.0 != 0 {
                thread.known.name = reading.name;
                sink.update_thread(thread.known);
            }
            let before = self.before_pause.iter().find(|(tid, _)| *tid == thread.known.tid);
            let activity = match (before, &mut thread.activity) {
                (Some((_, before)), _) => *before,
                (None, Some(reader)) if ask => reader.read(),
                (None, Some(reader)) => reader.last(),
                (None, None) => Activity::Unknown,
            };
            return (thread.known.id, activity);
        }
        let tid = self.host_tid(native);
        let name = if reading.name.0 == 0 { comm(pid, tid, &mut sink.interner) } else { reading.name };
        let mut known =
            Thread { process: self.id, tid, interpreter: reading.interpreter, name, ..Thread::default() };
        known.id = match self.foreign.remove(&tid) {
            Some(id) => {
                known.id = id;
                sink.update_thread(known);
                id
            }
            None => sink.add_thread(known),
        };
        let mut activity = self.asks_activity.then(|| ActivityReader::open(pid, tid).ok()).flatten();
        if let Some(activity) = &mut activity {
            activity.watch(tid);
        }
        let now = match self.before_pause.iter().find(|(before, _)| *before == tid) {
            Some((_, before)) => *before,
            None => activity.as_mut().map_or(Activity::Unknown, ActivityReader::read),
        };
        let thread = WatchedThread { key: reading.thread_key, known, native_tid: native, activity };
        match place {
            Some(at) => self.threads[at] = thread,
            None => self.threads.push(thread),
        }
        (known.id, now)
    }

    /// The host's number of a thread that the target numbers `native_tid`.
    fn host_tid(&self, native_tid: u64) -> u32 {
        let pid = self.pid();
        let native = u32::try_from(native_tid).unwrap_or(0);
        let tids = threads_of(pid);
        if !self.in_namespace {
            // A child of `fork` may still carry its parent's number; with one thread there is no doubt.
            return if native == 0 || tids == [pid] { pid } else { native };
        }
        tids.into_iter().find(|tid| innermost(*tid) == Some(native)).unwrap_or(pid)
    }

    fn follow_request(&mut self, facts: RequestFacts, now_ns: u64, sink: &mut Sink) -> RequestId {
        if self.request.is_some() && self.request_key != facts.key {
            self.close_request(sink);
        }
        self.request_key = facts.key;
        let id = self.id;
        let request = self.request.get_or_insert_with(|| Request {
            id: sink.next_request(),
            process: id,
            first_ns: now_ns,
            ..Request::default()
        });
        // The engine fills these in one after the other while the request starts.
        for (known, seen) in [
            (&mut request.method, facts.method),
            (&mut request.uri, facts.uri),
            (&mut request.script, facts.script),
        ] {
            if seen.0 != 0 {
                *known = seen;
            }
        }
        request.started_unix_ns = request.started_unix_ns.max(facts.started_unix_ns);
        request.last_ns = now_ns;
        request.samples += 1;
        request.peak_memory_bytes = request.peak_memory_bytes.max(facts.memory_bytes);
        request.id
    }

    fn close_request(&mut self, sink: &mut Sink) {
        if let Some(request) = self.request.take() {
            sink.push_request(request);
        }
    }
}

/// Finds the tasks of a process.
fn find_tasks(reader: &mut Reader, memory: &LiveProcess) -> Result<Box<TaskReader>, TargetIssue> {
    match reader {
        Reader::Python(python) => Ok(Box::new(TaskReader::find(python, memory)?)),
        Reader::Php(_) => Err(TargetIssue::Unsupported { reason: "PHP has no tasks of asyncio".to_owned() }),
    }
}

/// Finds the interpreter of a process.
fn find_reader(
    memory: &LiveProcess,
    options: Options,
    code: &mut CodeCache,
) -> Result<(Reader, Language, String), TargetIssue> {
    match slip_cpython::detect(memory) {
        Ok(Some(version)) => {
            let mut interpreter = Interpreter::attach(memory).map_err(python_issue)?;
            interpreter.show_gc(!options.without_gc);
            return Ok((Reader::Python(Box::new(interpreter)), Language::Python, version.to_string()));
        }
        Ok(None) => {}
        Err(error) => return Err(python_issue(error)),
    }
    match slip_zend::detect(memory) {
        Ok(Some(version)) => {
            let engine = Engine::attach(memory, code).map_err(php_issue)?;
            Ok((Reader::Php(Box::new(engine)), Language::Php, version.text))
        }
        Ok(None) => {
            Err(TargetIssue::NotAnInterpreter { program: memory.program().to_string_lossy().into_owned() })
        }
        Err(error) => Err(php_issue(error)),
    }
}

fn python_issue(error: slip_cpython::AttachError) -> TargetIssue {
    match error {
        slip_cpython::AttachError::NotReady => TargetIssue::NotReady,
        slip_cpython::AttachError::Read(ReadError::Gone { .. }) => TargetIssue::NotFound,
        other => TargetIssue::Unsupported { reason: other.to_string() },
    }
}

fn php_issue(error: slip_zend::AttachError) -> TargetIssue {
    match error {
        slip_zend::AttachError::NotReady => TargetIssue::NotReady,
        slip_zend::AttachError::Read(ReadError::Gone { .. }) => TargetIssue::NotFound,
        other => TargetIssue::Unsupported { reason: other.to_string() },
    }
}

pub(crate) fn issue_of(error: OpenError) -> TargetIssue {
    match error {
        OpenError::Denied { reason, hint, .. } => TargetIssue::Denied { reason, hint },
        OpenError::NoMemory { comm, .. } => TargetIssue::NotAnInterpreter { program: comm },
        _ => TargetIssue::NotFound,
    }
}

/// What is stored again while the thread rests was not read again, so it was not repaired again either.
fn was_stored(reading: &mut StackReading) {
    if reading.outcome == Outcome::Repaired {
        reading.outcome = Outcome::Clean;
    }
}

fn state_of(reading: &StackReading, activity: Activity) -> State {
    let mut state = match activity {
        Activity::Running => State::ON_CPU,
        Activity::Blocked => State::default(),
        Activity::Unknown => State::CPU_UNKNOWN,
    };
    if reading.gil == Gil::Holds {
        state = state.with(State::HAS_GIL);
    }
    if reading.truncated {
        state = state.with(State::TRUNCATED);
    }
    if reading.outcome == Outcome::Repaired {
        state = state.with(State::REPAIRED);
    }
    state
}

/// In the place of a stack that could not be had.
pub(crate) fn unreadable_stack(sink: &mut Sink) -> StackId {
    let name = sink.interner.string(UNREADABLE);
    let frame = sink.interner.frame(Frame { kind: FrameKind::Marker, name, ..Frame::default() });
    sink.interner.stack(&[frame])
}

/// What all threads of a process do.
fn activities(pid: u32) -> Vec<(u32, Activity)> {
    let ask =
        |tid: &u32| ActivityReader::open(pid, *tid).map_or(Activity::Unknown, |mut reader| reader.read());
    let tids = threads_of(pid);
    tids.iter().map(ask).zip(&tids).map(|(activity, tid)| (*tid, activity)).collect()
}

/// The number of a process or thread in its own pid namespace.
pub(crate) fn innermost(id: u32) -> Option<u32> {
    status_value(id, "NSpid")?.split_whitespace().last()?.parse().ok()
}

/// Whether an interpreter is found in a process, be it one that cannot be read or not yet.
pub(crate) fn has_interpreter(pid: u32, options: Options, code: &mut CodeCache) -> bool {
    // Anew: what was opened before knows where its code was then.
    let found = LiveProcess::open(pid).map(|memory| find_reader(&memory, options, code));
    found.is_ok_and(|found| !matches!(found, Err(TargetIssue::NotAnInterpreter { .. })))
}

pub(crate) fn comm(pid: u32, tid: u32, interner: &mut Interner) -> slip_model::StringId {
    // The kernel cuts names after 15 bytes, also within a character.
    let name = std::fs::read(format!("/proc/{pid}/task/{tid}/comm")).unwrap_or_default();
    interner.string(String::from_utf8_lossy(&name).trim_end())
}

/// What to call a process.
pub(crate) fn title(pid: u32, language: Language) -> String {
    let title = title::title(&command_line(pid), language);
    if title.is_empty() { process_stat(pid).map_or_else(String::new, |stat| stat.comm) } else { title }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "test code")]
mod tests {
    use std::time::Duration;

    use slip_testkit::{Launch, pythons};

    use super::*;

    /// Longest wait for a program. The machine may be busy with other tests.
    const PATIENCE: Duration = Duration::from_secs(30);

    fn sample(
        process: &mut WatchedProcess,
        now_ns: u64,
        options: Options,
        sink: &mut Sink,
        code: &mut CodeCache,
    ) {
        process.ask(Duration::ZERO);
        process.sample(now_ns, options, sink, code);
    }

    /// A program that waits for a line; none without CPython from 3.11 on.
    fn waiting(what: &str) -> Option<slip_testkit::Child> {
        let Some(python) = pythons().into_iter().find(|python| python.version >= (3, 11)) else {
            slip_testkit::skip(what, "no CPython from 3.11 on");
            return None;
        };
        let text = "import sys\nprint('ready', flush=True)\nsys.stdin.readline()\n";
        let mut target = Launch::text(&python, "waits.py", text).start().unwrap();
        target.wait_ready().unwrap();
        Some(target)
    }

    #[test]
    fn a_repaired_stack_is_counted_once_while_its_thread_rests() {
        let Some(target) = waiting("a_repaired_stack_is_counted_once") else { return };
        let (mut sink, mut code) = (Sink::new(), CodeCache::default());
        let mut process =
            WatchedProcess::attach(target.pid(), 0, Options::default(), &mut sink, &mut code).unwrap();
        let options = Options::default();
        // It runs for a moment still after it has said that it is ready.
        let rests = (0..1_000_000).any(|_| {
            sample(&mut process, 0, options, &mut sink, &mut code);
            process.rests(Duration::ZERO)
        });
        assert!(rests, "it waits for a line");
        process.readings[0].outcome = Outcome::Repaired;
        let before = sink.samples().len();
        for now_ns in 1..=3 {
            sample(&mut process, now_ns, options, &mut sink, &mut code);
        }
        let repaired: Vec<bool> =
            sink.samples().iter().skip(before).map(|sample| sample.state.has(State::REPAIRED)).collect();
        assert_eq!(repaired, [true, false, false]);
        assert_eq!(sink.totals.repaired, 1);
    }

    /// A program that computes in functions that call each other; none without a CPython that counts dead code objects.
    fn busy(what: &str) -> Option<slip_testkit::Child> {
        let Some(python) = pythons().into_iter().find(|python| python.version >= (3, 14)) else {
            slip_testkit::skip(what, "no CPython from 3.14 on");
            return None;
        };
        let text = "
def outer():
    return inner() + 1

def inner():
    return sum(n * n for n in range(20))

print('ready', flush=True)
while True:
    outer()
";
        let mut target = Launch::text(&python, "busy.py", text).start().unwrap();
        target.wait_ready().unwrap();
        Some(target)
    }

    #[test]
    fn looks_that_are_judged_together_are_stored_one_by_one_in_their_order() {
        let what = "looks that are judged together";
        let Some(target) = busy(what) else { return };
        if !slip_remote::notes_switches() {
            slip_testkit::skip(what, "the kernel does not permit perf_event_open");
            return;
        }
        let mut sink = Sink::new();
        let mut sampler = crate::OutsideSampler::new(Options::default());
        crate::Sampler::add(&mut sampler, target.pid(), 0, &mut sink).unwrap();
        let dropped = |sink: &Sink| sink.totals.torn + sink.totals.failed;
        let (begin, mut looks, mut waited, mut now_ns, mut was_near) = (Instant::now(), 0, 0, 0, false);
        while waited < 100 {
            looks += 1;
            crate::Sampler::sample(&mut sampler, now_ns, &mut sink);
            let judged = sink.samples().len() as u64 + dropped(&sink);
            assert!(looks - judged < 16, "{judged} of {looks}");
            waited += u64::from(judged < looks);
            assert!(begin.elapsed() < Duration::from_secs(60), "{waited} of {looks} looks have waited");
            // After looks that were torn all are judged at once for up to 16 s, and so is one that comes after a long time.
            was_near = judged < looks || !was_near;
            now_ns += if was_near { 1_000_000 } else { 16_000_000_000 };
            // Who looks without a pause has the target's CPU, where others have the rest, and never sees it run.
            std::thread::sleep(Duration::from_millis(1));
        }
        crate::Sampler::before_flush(&mut sampler, now_ns, &mut sink);
        assert_eq!(sink.samples().len() as u64 + dropped(&sink), looks);
        let times = &sink.samples().time_ns;
        assert!(times.is_sorted_by(|before, after| before < after));
        for sample in sink.samples().iter() {
            let names: Vec<&str> = sink
                .interner
                .frames_of(sample.stack)
                .map(|frame| sink.interner.text(sink.interner.frame_at(frame).name))
                .collect();
            let all = ["inner.<locals>.<genexpr>", "inner", "outer", "<module>"];
            assert!(!names.is_empty() && all.ends_with(&names), "{names:?}");
        }
    }

    #[test]
    fn a_wait_whose_stack_cannot_be_had_is_one_of_its_thread() {
        let Some(target) = waiting("a_wait_whose_stack_cannot_be_had") else { return };
        let (mut sink, mut code) = (Sink::new(), CodeCache::default());
        let options = Options::default();
        let mut process = WatchedProcess::attach(target.pid(), 0, options, &mut sink, &mut code).unwrap();
        assert_eq!(process.unreadable(target.pid(), 5, &mut sink), None, "it has not been seen");
        sample(&mut process, 1, options, &mut sink, &mut code);
        let found = process.unreadable(target.pid(), 5, &mut sink).unwrap();
        assert_eq!((found.time_ns, sink.threads()[found.thread.0 as usize].tid), (5, target.pid()));
        let frames: Vec<_> = sink.interner.frames_of(found.stack).collect();
        let frame = sink.interner.frame_at(frames[0]);
        assert_eq!(
            (frames.len(), frame.kind, sink.interner.text(frame.name)),
            (1, FrameKind::Marker, UNREADABLE)
        );
    }

    #[test]
    fn a_moment_whose_request_is_uncertain_does_not_make_two_of_one() {
        let Some(target) = waiting("a_moment_whose_request_is_uncertain") else { return };
        let (mut sink, mut code) = (Sink::new(), CodeCache::default());
        let mut process =
            WatchedProcess::attach(target.pid(), 0, Options::default(), &mut sink, &mut code).unwrap();
        let mut request_of = |phase, key: Option<u64>| {
            let request = key.map(|key| RequestFacts { key, ..RequestFacts::default() });
            let reading = PhpReading { phase, request, ..PhpReading::default() };
            let at = (ThreadId(0), Activity::Running);
            let sample = process.sample_of(0, &mut sink, &reading, at);
            (sample.request, sink.take_batch().requests.len())
        };
        assert_eq!(request_of(Phase::Code, Some(1)), (RequestId(1), 0));
        assert_eq!(request_of(Phase::Engine, None), (RequestId(0), 0));
        assert_eq!(request_of(Phase::Engine, Some(1)), (RequestId(1), 0));
        assert_eq!(request_of(Phase::Idle, None), (RequestId(0), 1));
        assert_eq!(request_of(Phase::Code, Some(2)), (RequestId(2), 0));
    }

    #[test]
    fn a_thread_that_runs_is_not_said_to_wait_because_it_is_paused() {
        let text = "
import os, threading
threading.Thread(target=os.read, args=(os.pipe()[0], 1), daemon=True).start()
print('ready', flush=True)
while True:
    pass
";
        let Some(python) = pythons().into_iter().find(|python| python.version >= (3, 11)) else {
            slip_testkit::skip("threads before a pause", "no CPython from 3.11 on");
            return;
        };
        let mut target = Launch::text(&python, "runs.py", text).start().unwrap();
        target.wait_ready().unwrap();
        // Until the other thread is in `read`, which is system call 0, the two wait for each other's GIL.
        let pid = target.pid();
        let call = |tid: u32| std::fs::read_to_string(format!("/proc/{pid}/task/{tid}/syscall"));
        if call(pid).is_err() {
            slip_testkit::skip("threads before a pause", "this kernel does not show system calls");
            return;
        }
        let wait_until = |holds: &dyn Fn() -> bool| {
            let end = std::time::Instant::now() + PATIENCE;
            while !holds() {
                assert!(std::time::Instant::now() < end, "waited in vain");
                std::thread::yield_now();
            }
        };
        wait_until(&|| {
            threads_of(pid).into_iter().any(|tid| call(tid).is_ok_and(|call| call.starts_with("0 ")))
        });
        let (mut sink, mut code) = (Sink::new(), CodeCache::default());
        let mut process =
            WatchedProcess::attach(target.pid(), 0, Options::default(), &mut sink, &mut code).unwrap();
        let options = Options { pause: true, ..Options::default() };
        for now_ns in 0..3 {
            // A thread that was continued is not one that can run before its CPU has woken up.
            wait_until(&|| call(pid).is_ok_and(|call| call.starts_with("running")));
            sample(&mut process, now_ns, options, &mut sink, &mut code);
        }
        let runs = |sample: &Sample| {
            let thread = &sink.threads()[sample.thread.0 as usize];
            (thread.tid == target.pid(), sample.state.has(State::ON_CPU))
        };
        let seen: Vec<(bool, bool)> = sink.samples().iter().map(|sample| runs(&sample)).collect();
        assert!(seen.contains(&(true, true)) && !seen.contains(&(true, false)), "{seen:?}");
    }

    #[test]
    fn a_thread_in_the_place_of_an_ended_one_is_another_thread() {
        let text = "
import sys, threading
print('ready', flush=True)
while True:
    end = threading.Event()
    thread = threading.Thread(target=end.wait)
    thread.start()
    print(thread.native_id, flush=True)
    sys.stdin.readline()
    end.set()
    thread.join()
";
        let Some(python) = pythons().into_iter().find(|python| python.version >= (3, 11)) else {
            slip_testkit::skip("threads in the place of ended ones", "no CPython from 3.11 on");
            return;
        };
        let mut target = Launch::text(&python, "threads.py", text).start().unwrap();
        target.wait_ready().unwrap();
        let (mut sink, mut code) = (Sink::new(), CodeCache::default());
        let mut process =
            WatchedProcess::attach(target.pid(), 0, Options::default(), &mut sink, &mut code).unwrap();
        for _ in 0..200 {
            let tid: u32 = target.read_line(PATIENCE).unwrap().parse().unwrap();
            sample(&mut process, 0, Options::default(), &mut sink, &mut code);
            assert!(sink.threads().iter().any(|thread| thread.tid == tid), "{:?}", sink.threads());
            target.send("").unwrap();
        }
    }

    #[test]
    fn another_program_in_the_same_process_is_another_process() {
        let text = "
import os, sys
print('ready', flush=True)
sys.stdin.readline()
os.execv(sys.executable, ['python', '-c', 'print(\"again\", flush=True); input()'])
";
        for python in pythons().into_iter().filter(|python| python.version >= (3, 11)) {
            let mut target = Launch::text(&python, "again.py", text).start().unwrap();
            target.wait_ready().unwrap();
            let (mut sink, mut code) = (Sink::new(), CodeCache::default());
            let mut process =
                WatchedProcess::attach(target.pid(), 0, Options::default(), &mut sink, &mut code).unwrap();
            sample(&mut process, 0, Options::default(), &mut sink, &mut code);
            target.send("").unwrap();
            assert_eq!(target.read_line(PATIENCE).unwrap(), "again");
            sample(&mut process, SAME_PROGRAM_INTERVAL_NS, Options::default(), &mut sink, &mut code);
            assert_eq!(sink.processes().len(), 2, "{}", python.label);
        }
    }
}
