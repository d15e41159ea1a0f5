//! Windows of time while they pass: what each thread does, and where the time of the last seconds went.
//!
//! Keeps no more than the last seconds, whatever the watch takes: functions that were not seen in them are forgotten, and so are stacks that
//! were not seen for long when there are many.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::fs;
use std::sync::Arc;

use rustc_hash::FxHashMap;
use slip_model::{
    Batch, Frame, FrameId, FrameKind, Interner, Language, LiveFunction, LivePlace, LiveRequest, LiveThread,
    ProcessId, Request, StackId, State, StringId, Thread, ThreadState, WaitReason, Window,
};
use slip_probe::WaitKey;
use slip_remote::thread_state;

use crate::schedule::unix_ns;

/// Most stacks that are kept while they are not seen: 8 MB or so.
const MAX_STACKS: usize = 262_144;

/// So many windows a stack is kept at least after it was seen, though there are more than [`MAX_STACKS`].
const KEPT_TURNS: u32 = 16;

/// Most functions that are told, those with the most time.
const MAX_FUNCTIONS: usize = 4_096;

/// Deepest stack that is followed. Samplers cut at 1,024.
const MAX_DEPTH: usize = 2_048;

/// A stack as a tree node.
#[derive(Clone, Copy, Debug)]
struct Node {
    parent: u32,
    frame: FrameId,
    /// The window in which it was seen last.
    turn: u32,
}

/// What makes two frames be of one function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct FunctionKey {
    kind: FrameKind,
    name: StringId,
    file: StringId,
    first_line: u32,
}

impl FunctionKey {
    fn of(frame: &Frame) -> Self {
        let Frame { kind, name, file, first_line, .. } = *frame;
        Self { kind, name, file, first_line }
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Times {
    own_ns: u64,
    own_cpu_ns: u64,
    total_ns: u64,
    /// The last stack that has been added to `total_ns`: a function may be in one several times.
    stack: u32,
}

/// The time of a window that was spent in one stack.
#[derive(Clone, Copy, Debug, Default)]
struct Spent {
    ns: u64,
    cpu_ns: u64,
}

/// One window that functions are still told of.
#[derive(Debug, Default)]
struct Past {
    length_ns: u64,
    functions: FxHashMap<FunctionKey, Times>,
    busy_ns: u64,
    samples: u64,
    torn: u64,
    requests: u64,
}

/// A look at a thread, or a wait of it.
#[derive(Clone, Copy, Debug, Default)]
struct Look {
    time_ns: u64,
    stack: StackId,
    state: State,
    reason: Option<WaitReason>,
}

#[derive(Debug)]
struct Seen {
    thread: Thread,
    /// The last look of the last window that had one.
    last: Look,
    /// Time on a CPU and time without one, since it began, when the last window ended.
    account: Option<(u64, u64)>,
}

#[derive(Debug)]
struct Owner {
    pid: u32,
    language: Language,
    title: Arc<str>,
}

/// Makes windows of what a sampler tells.
#[derive(Debug)]
pub(crate) struct LiveFold {
    interval_ns: u64,
    span_ns: u64,
    end_ns: u64,
    turn: u32,
    nodes: FxHashMap<u32, Node>,
    owners: HashMap<ProcessId, Owner>,
    threads: BTreeMap<u32, Seen>,
    past: VecDeque<Past>,
    /// Of all windows in `past`.
    sums: FxHashMap<FunctionKey, Times>,
    torn: u64,
}

impl LiveFold {
    /// A sample stands for `interval_ns`; functions reach back `span_ns`.
    pub(crate) fn new(interval_ns: u64, span_ns: u64) -> Self {
        Self {
            interval_ns,
            span_ns,
            end_ns: 0,
            turn: 0,
            nodes: FxHashMap::default(),
            owners: HashMap::new(),
            threads: BTreeMap::new(),
            past: VecDeque::new(),
            sums: FxHashMap::default(),
            torn: 0,
        }
    }

    /// The window that ends at `now_ns`, of all that has come since the last one. `open` are the requests that are under way.
    pub(crate) fn window(
        &mut self,
        now_ns: u64,
        batch: &Batch,
        open: Vec<Request>,
        interner: &Interner,
    ) -> Window {
        let length_ns = now_ns.saturating_sub(self.end_ns);
        self.end_ns = now_ns;
        self.turn += 1;
        self.learn(batch);
        self.add(length_ns, batch, interner);
        let mut waits: FxHashMap<u32, Look> = FxHashMap::default();
        let mut looks: FxHashMap<u32, Look> = FxHashMap::default();
        for sample in batch.samples.iter() {
            let look = looks.entry(sample.thread.0).or_default();
            if sample.time_ns >= look.time_ns {
                let (time_ns, stack, state) = (sample.time_ns, sample.stack, sample.state);
                *look = Look { time_ns, stack, state, reason: None };
            }
        }
        for wait in &batch.waits {
            // Those that are under way come last.
            let reason = Some(wait.reason);
            let look = Look { time_ns: wait.time_ns, stack: wait.stack, state: wait.state, reason };
            waits.insert(wait.thread.0, look);
        }
        let threads = self.threads(length_ns, &looks, &waits, &open, interner);
        let (functions, span_ns) =
            (self.functions(interner), self.past.iter().map(|past| past.length_ns).sum());
        self.forget_stacks();
        let sum = |field: fn(&Past) -> u64| self.past.iter().map(field).sum();
        Window {
            end_ns: now_ns,
            length_ns,
            threads,
            span_ns,
            functions,
            busy_ns: sum(|past| past.busy_ns),
            samples: sum(|past| past.samples),
            torn: sum(|past| past.torn),
            requests: sum(|past| past.requests),
        }
    }

    /// Notes new stacks, threads and processes, and forgets processes that have ended.
    fn learn(&mut self, batch: &Batch) {
        for (id, node) in (batch.interned.first_stack..).zip(&batch.interned.stacks) {
            self.nodes.insert(id, Node { parent: node.parent.0, frame: node.frame, turn: self.turn });
        }
        for process in &batch.processes {
            if process.ended_ns > 0 {
                self.owners.remove(&process.id);
            } else {
                let (pid, language, title) = (process.pid, process.language, Arc::from(&*process.title));
                self.owners.insert(process.id, Owner { pid, language, title });
            }
        }
        for thread in &batch.threads {
            let last = Look { state: State::CPU_UNKNOWN, ..Look::default() };
            let seen = self.threads.entry(thread.id.0);
            seen.or_insert(Seen { thread: *thread, last, account: None }).thread = *thread;
        }
        let owners = &self.owners;
        self.threads.retain(|_, seen| owners.contains_key(&seen.thread.process));
    }

    /// Adds the time of a window to functions, and takes off that of windows that are too long ago.
    fn add(&mut self, length_ns: u64, batch: &Batch, interner: &Interner) {
        let mut past = Past {
            length_ns,
            samples: batch.samples.len() as u64,
            requests: batch.requests.len() as u64,
            ..Past::default()
        };
        let torn = batch.totals.torn + batch.totals.failed;
        past.torn = torn.saturating_sub(self.torn);
        self.torn = torn;
        let mut stacks: FxHashMap<u32, Spent> = FxHashMap::default();
        let mut spend = |stack: StackId, state: State, on_cpu: bool, ns: u64| {
            if state.has(State::IDLE) {
                return;
            }
            past.busy_ns += ns;
            let spent = stacks.entry(stack.0).or_default();
            spent.ns += ns;
            spent.cpu_ns += if on_cpu { ns } else { 0 };
        };
        for sample in batch.samples.iter() {
            let on_cpu = sample.state.has(State::ON_CPU) && !sample.state.has(State::CPU_UNKNOWN);
            spend(sample.stack, sample.state, on_cpu, self.interval_ns);
        }
        for wait in &batch.waits {
            spend(wait.stack, wait.state, wait.reason == WaitReason::Cpu, wait.total_ns);
        }
        for (number, (stack, spent)) in (1..).zip(stacks) {
            self.add_stack(&mut past.functions, number, stack, spent, interner);
        }
        for (key, times) in &past.functions {
            let sum = self.sums.entry(*key).or_default();
            sum.own_ns += times.own_ns;
            sum.own_cpu_ns += times.own_cpu_ns;
            sum.total_ns += times.total_ns;
        }
        self.past.push_back(past);
        let mut span_ns: u64 = self.past.iter().map(|past| past.length_ns).sum();
        while self.past.len() > 1 && span_ns > self.span_ns {
            let Some(old) = self.past.pop_front() else { break };
            span_ns -= old.length_ns;
            for (key, times) in old.functions {
                let Some(sum) = self.sums.get_mut(&key) else { continue };
                sum.own_ns -= times.own_ns;
                sum.own_cpu_ns -= times.own_cpu_ns;
                sum.total_ns -= times.total_ns;
                if sum.total_ns == 0 {
                    self.sums.remove(&key);
                }
            }
        }
    }

    /// Adds the time of one stack, the `number`th of its window. What the kernel does is the time of who called it.
    fn add_stack(
        &mut self,
        functions: &mut FxHashMap<FunctionKey, Times>,
        number: u32,
        stack: u32,
        spent: Spent,
        interner: &Interner,
    ) {
        let mut is_innermost = true;
        let mut at = stack;
        for _ in 0..MAX_DEPTH {
            let Some(node) = self.nodes.get_mut(&at).filter(|_| at != 0) else { return };
            node.turn = self.turn;
            let frame = interner.frame_at(node.frame);
            // A parent is older than its child, or what the sampler says is damaged.
            at = if node.parent < at { node.parent } else { 0 };
            if !is_function(frame.kind) {
                continue;
            }
            let times = functions.entry(FunctionKey::of(&frame)).or_default();
            if std::mem::take(&mut is_innermost) {
                times.own_ns += spent.ns;
                times.own_cpu_ns += spent.cpu_ns;
            }
            if times.stack != number {
                times.stack = number;
                times.total_ns += spent.ns;
            }
        }
    }

    /// What each thread does; those that have ended are forgotten.
    fn threads(
        &mut self,
        length_ns: u64,
        looks: &FxHashMap<u32, Look>,
        waits: &FxHashMap<u32, Look>,
        open: &[Request],
        interner: &Interner,
    ) -> Vec<LiveThread> {
        let now_unix_ns = unix_ns();
        let Self { threads, owners, nodes, end_ns, .. } = self;
        let mut live = Vec::with_capacity(threads.len());
        threads.retain(|id, seen| {
            let Some(owner) = owners.get(&seen.thread.process) else { return false };
            let (pid, tid) = (owner.pid, seen.thread.tid);
            let Some(letter) = thread_state(pid, tid).filter(|letter| !matches!(letter, 'Z' | 'X')) else {
                return false;
            };
            let (look, wait) = (looks.get(id), waits.get(id));
            // Who runs now was last seen to run, if anything was.
            let last = if letter == 'R' { look.or(wait) } else { wait.or(look) };
            seen.last = last.copied().unwrap_or(seen.last);
            let account = account_of(pid, tid);
            let since = |now: u64, then: u64| now.saturating_sub(then).min(length_ns);
            let spent =
                seen.account.zip(account).map(|(then, now)| (since(now.0, then.0), since(now.1, then.1)));
            seen.account = account;
            let (cpu_ns, ready_ns) = spent.unzip();
            let lacks_cpu = spent.is_some_and(|(cpu_ns, ready_ns)| ready_ns > cpu_ns);
            let state = match state_of(&seen.last, letter, lacks_cpu) {
                ThreadState::Blocked(None) => {
                    ThreadState::Blocked(WaitKey::of_waiting(pid, tid, 0).map(|key| key.reason()))
                }
                known => known,
            };
            let is_idle = state == ThreadState::Idle;
            let request = open.iter().find(|request| request.process == seen.thread.process && !is_idle);
            live.push(LiveThread {
                pid,
                tid,
                language: owner.language,
                title: owner.title.clone(),
                name: interner.shared_text(seen.thread.name),
                state,
                is_engine: seen.last.state.has(State::ENGINE),
                cpu_ns,
                ready_ns,
                request: request.map(|request| LiveRequest {
                    method: interner.shared_text(request.method),
                    uri: interner.shared_text(request.uri),
                    script: interner.shared_text(request.script),
                    age_ns: age_of(request, *end_ns, now_unix_ns),
                }),
                place: if is_idle { None } else { place_of(nodes, seen.last.stack.0, interner) },
            });
            true
        });
        live.sort_by_key(|thread| (thread.pid, thread.tid));
        live
    }

    fn functions(&self, interner: &Interner) -> Vec<LiveFunction> {
        let mut all: Vec<(&FunctionKey, &Times)> = self.sums.iter().collect();
        let by_own = |(key, times): &(&FunctionKey, &Times)| {
            let least = (u64::MAX - times.own_ns, u64::MAX - times.total_ns);
            (least, key.name, key.file, key.first_line)
        };
        if all.len() > MAX_FUNCTIONS {
            all.sort_unstable_by_key(|(_, times)| std::cmp::Reverse(times.total_ns));
            all.truncate(MAX_FUNCTIONS);
        }
        all.sort_unstable_by_key(by_own);
        all.into_iter()
            .map(|(key, times)| LiveFunction {
                kind: key.kind,
                name: interner.shared_text(key.name),
                file: interner.shared_text(key.file),
                first_line: key.first_line,
                own_ns: times.own_ns,
                own_cpu_ns: times.own_cpu_ns,
                total_ns: times.total_ns,
            })
            .collect()
    }

    fn forget_stacks(&mut self) {
        if self.nodes.len() > MAX_STACKS {
            let turn = self.turn;
            self.nodes.retain(|_, node| node.turn + KEPT_TURNS >= turn);
        }
    }
}

/// Whether a frame is a function of the program: neither the kernel's nor a server or an instruction.
fn is_function(kind: FrameKind) -> bool {
    !kind.is_beyond_program() && kind != FrameKind::Instruction
}

/// What a thread does by the last look at it, if `/proc` has this letter for it now.
fn state_of(last: &Look, letter: char, lacks_cpu: bool) -> ThreadState {
    let is_running = if last.state.has(State::CPU_UNKNOWN) && last.reason.is_none() {
        letter == 'R'
    } else {
        last.state.has(State::ON_CPU)
    };
    match last.reason {
        _ if last.state.has(State::IDLE) => ThreadState::Idle,
        _ if matches!(letter, 'T' | 't') => ThreadState::Blocked(Some(WaitReason::Stopped)),
        Some(WaitReason::Cpu) => ThreadState::Ready,
        None if is_running && lacks_cpu => ThreadState::Ready,
        None if is_running => ThreadState::Running,
        reason => ThreadState::Blocked(reason),
    }
}

/// The innermost function of a stack.
fn place_of(nodes: &FxHashMap<u32, Node>, stack: u32, interner: &Interner) -> Option<LivePlace> {
    let mut at = stack;
    for _ in 0..MAX_DEPTH {
        let node = nodes.get(&at).filter(|_| at != 0)?;
        let frame = interner.frame_at(node.frame);
        if is_function(frame.kind) {
            let (name, file) = (interner.shared_text(frame.name), interner.shared_text(frame.file));
            return Some(LivePlace { kind: frame.kind, name, file, line: frame.line });
        }
        at = if node.parent < at { node.parent } else { 0 };
    }
    None
}

/// How long a request has lasted: since it was seen first at least.
fn age_of(request: &Request, now_ns: u64, now_unix_ns: u64) -> u64 {
    let seen_ns = now_ns.saturating_sub(request.first_ns);
    match request.started_unix_ns {
        0 => seen_ns,
        started => now_unix_ns.saturating_sub(started).max(seen_ns),
    }
}

/// For how long a thread has been on a CPU since it began, and ready without one, by the kernel's account.
fn account_of(pid: u32, tid: u32) -> Option<(u64, u64)> {
    let text = fs::read_to_string(format!("/proc/{pid}/task/{tid}/schedstat")).ok()?;
    let mut words = text.split_ascii_whitespace().map(str::parse);
    Some((words.next()?.ok()?, words.next()?.ok()?))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "test code")]
mod tests {
    use slip_model::{Process, RequestId, Sample, ThreadId, Wait};

    use super::*;
    use crate::Sink;

    const MS: u64 = 1_000_000;

    /// A sink with this process and its main thread.
    fn sink() -> (Sink, ThreadId) {
        let mut sink = Sink::forgetful();
        let pid = std::process::id();
        let process = sink.add_process(Process { pid, title: "me".to_owned(), ..Process::default() });
        let thread = sink.add_thread(Thread { process, tid: pid, ..Thread::default() });
        (sink, thread)
    }

    fn stack(sink: &mut Sink, names: &[&str]) -> StackId {
        let frames: Vec<FrameId> = names
            .iter()
            .map(|name| {
                let kind = if name.starts_with("sys_") { FrameKind::Kernel } else { FrameKind::Python };
                let name = sink.interner.string(name);
                sink.interner.frame(Frame { kind, name, line: 7, ..Frame::default() })
            })
            .collect();
        sink.interner.stack(&frames)
    }

    fn window(fold: &mut LiveFold, now_ns: u64, sink: &mut Sink) -> Window {
        let batch = sink.take_batch();
        fold.window(now_ns, &batch, Vec::new(), &sink.interner)
    }

    fn told(window: &Window) -> Vec<(String, u64, u64, u64)> {
        let row = |f: &LiveFunction| (f.name.to_string(), f.own_ns / MS, f.own_cpu_ns / MS, f.total_ns / MS);
        window.functions.iter().map(row).collect()
    }

    fn sample(time_ns: u64, thread: ThreadId, stack: StackId, state: State) -> Sample {
        Sample { time_ns, thread, stack, state, request: RequestId(0) }
    }

    #[test]
    fn time_is_of_the_innermost_function_and_once_of_each_that_called_it() {
        let (mut sink, thread) = sink();
        let mut fold = LiveFold::new(10 * MS, 10_000 * MS);
        let recursive = stack(&mut sink, &["sys_read", "inner", "outer", "inner", "outer"]);
        let other = stack(&mut sink, &["outer"]);
        sink.push(sample(1, thread, recursive, State::ON_CPU));
        sink.push(sample(2, thread, recursive, State::default()));
        sink.push(sample(3, thread, other, State::ON_CPU));
        sink.push(sample(4, thread, other, State::IDLE));
        sink.push_wait(Wait {
            thread,
            stack: other,
            reason: WaitReason::Socket,
            total_ns: 5 * MS,
            ..Wait::default()
        });
        let window = window(&mut fold, 1_000 * MS, &mut sink);
        assert_eq!(told(&window), [("inner".to_owned(), 20, 10, 20), ("outer".to_owned(), 15, 10, 35)]);
        assert_eq!((window.busy_ns / MS, window.samples), (35, 4));
    }

    #[test]
    fn functions_that_are_not_seen_any_more_are_forgotten() {
        let (mut sink, thread) = sink();
        let mut fold = LiveFold::new(10 * MS, 3_000 * MS);
        for (turn, name) in ["first", "second", "second", "second"].into_iter().enumerate() {
            let stack = stack(&mut sink, &[name]);
            sink.push(sample(turn as u64, thread, stack, State::ON_CPU));
            window(&mut fold, (turn as u64 + 1) * 1_000 * MS, &mut sink);
        }
        let window = window(&mut fold, 4_500 * MS, &mut sink);
        assert_eq!(told(&window), [("second".to_owned(), 20, 20, 20)]);
        assert_eq!((window.span_ns, window.length_ns), (2_500 * MS, 500 * MS));
        assert_eq!(fold.sums.len(), 1);
    }

    #[test]
    fn a_stack_that_was_told_long_ago_is_known_by_its_number() {
        let (mut sink, thread) = sink();
        let mut fold = LiveFold::new(10 * MS, 1_000 * MS);
        let stack = stack(&mut sink, &["f"]);
        for turn in 1..5 {
            sink.push(sample(turn, thread, stack, State::ON_CPU));
            let window = window(&mut fold, turn * 1_000 * MS, &mut sink);
            assert_eq!(told(&window), [("f".to_owned(), 10, 10, 10)]);
            let place = window.threads[0].place.as_ref().unwrap();
            assert_eq!((&*place.name, place.line), ("f", 7));
        }
    }

    #[test]
    fn the_last_look_says_what_a_thread_does() {
        let look = |state, reason| Look { state, reason, ..Look::default() };
        let blocked = ThreadState::Blocked;
        for (last, letter, lacks_cpu, state) in [
            (look(State::IDLE, None), 'S', false, ThreadState::Idle),
            (look(State::IDLE, Some(WaitReason::Socket)), 'S', false, ThreadState::Idle),
            (look(State::ON_CPU, None), 'S', false, ThreadState::Running),
            (look(State::ON_CPU, None), 'R', true, ThreadState::Ready),
            (look(State::ON_CPU, Some(WaitReason::Cpu)), 'R', false, ThreadState::Ready),
            (look(State::CPU_UNKNOWN, None), 'R', false, ThreadState::Running),
            (look(State::CPU_UNKNOWN, None), 'D', false, blocked(None)),
            (look(State::default(), Some(WaitReason::Lock)), 'S', true, blocked(Some(WaitReason::Lock))),
            (look(State::ON_CPU, None), 'T', false, blocked(Some(WaitReason::Stopped))),
        ] {
            assert_eq!(state_of(&last, letter, lacks_cpu), state, "{last:?} {letter}");
        }
    }

    #[test]
    fn a_request_is_as_old_as_the_engine_says_and_as_it_was_seen() {
        let request = |first_ns, started_unix_ns| Request { first_ns, started_unix_ns, ..Request::default() };
        assert_eq!(age_of(&request(30, 0), 100, 5_000), 70);
        assert_eq!(age_of(&request(30, 4_000), 100, 5_000), 1_000);
        // The clock has been set.
        assert_eq!(age_of(&request(30, 6_000), 100, 5_000), 70);
    }

    #[test]
    fn a_process_that_has_ended_is_dropped() {
        let (mut sink, thread) = sink();
        let mut fold = LiveFold::new(10 * MS, 1_000 * MS);
        let stack = stack(&mut sink, &["f"]);
        sink.push(sample(1, thread, stack, State::ON_CPU));
        assert_eq!(window(&mut fold, 1_000 * MS, &mut sink).threads.len(), 1);
        sink.end_process(ProcessId(0), 1_500 * MS);
        assert_eq!(window(&mut fold, 2_000 * MS, &mut sink).threads, []);
        assert!(fold.threads.is_empty());
    }
}
