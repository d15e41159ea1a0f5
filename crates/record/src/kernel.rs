//! The sampler that the kernel calls: stacks of threads that run or go to wait, copied while they stand still.

use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::time::{Duration, Instant};

use slip_model::{
    Endpoint, Frame, FrameId, FrameKind, Mode, Request, RequestId, Sample, StackId, State, Wait, WaitReason,
};
use slip_probe::{
    Allocation, BudgetProbe, CopiedStack, Event, Look, NativeCopy, Peers, Probe, ProbeError, ProbeOptions,
    RunStart, SlowCall, WaitKey, Waited,
};
use slip_remote::{Activity, Copied, StackPlan};
use slip_zend::CodeCache;

use crate::allocations::Allocations;
use crate::bare::BareProcess;
use crate::books::Books;
use crate::copied_stacks::CopiedStacks;
use crate::debuginfod::Debuginfod;
use crate::kernel_stacks::KernelStacks;
use crate::malloc::{OwnMemory, allocation_hooks, own_memory};
use crate::native_code::Files;
use crate::native_stacks::{NativeStacks, NativeWalk, splice};
use crate::outside::Options;
use crate::process::{Sampled, WatchedProcess, has_interpreter, unreadable_stack};
use crate::schedule::{monotonic_ns, sleep_until};
use crate::trace::{NoStack, OnCall, Trace};
use crate::{Sampler, Sink, TargetIssue};

/// Most stacks that are kept of one process; then its are forgotten, and told again as they are seen.
const MAX_STACKS: usize = 32_768;

/// Waits that have ended, and events that were lost, are taken from the kernel this often: it takes a system call for each
/// counter.
const TAKE_INTERVAL_NS: u64 = 250_000_000;

/// Where a thread waits is forgotten after so many turns in which nothing was told of it: waits that are under way are listed at
/// each flush, four turns apart, so the thread has ended, or waits elsewhere. A program may start threads all the time.
const PLACE_TURNS: u64 = 20;

/// Samples are fetched this often. New stacks come at once, and the rest can wait until much of the ring is in use: a fetch costs
/// some 150 us, of which most is waking up. But what is known of a PHP request only from its memory is gone when it ends, and
/// where code objects of Python take each other's place nobody knows later which of them ran.
const FETCH_INTERVAL_NS: u64 = 125_000_000;
const HASTY_FETCH_INTERVAL_NS: u64 = 10_000_000;

/// Between two looks at what is to be named at once there is at least so much time: a program may have new stacks all the time.
const LEAST_REST_NS: u64 = 1_000_000;

/// Copies of native stacks that wait for their looks, which come next, but for what other CPUs tell meanwhile. One has up to 16 KB.
const MAX_NATIVES: usize = 1_024;

/// Samples threads that run by a clock of each CPU, and counts the waits of those that do not, as the mode asks.
#[derive(Debug)]
pub struct KernelSampler {
    options: Options,
    probe: Probe,
    processes: Vec<Target>,
    /// Programs of native code.
    bare: Vec<BareProcess>,
    last_id: u32,
    code: CodeCache,
    /// Events that had no room in the ring, as far as they have been counted.
    lost: u64,
    next_take_ns: u64,
    kernel_stacks: KernelStacks,
    /// Native code, and what was copied of it for looks that are yet to come, by thread.
    files: Files,
    natives: HashMap<u32, NativeCopy>,
    /// What is known of waits that may still end, wherever in the kernel.
    waits: HashMap<WaitKey, Place>,
    peers: Peers,
    /// Processes that have ended, of which some waits may not have been taken yet, with the turn.
    gone: Vec<(u32, u64)>,
    /// How often waits were taken.
    turn: u64,
    /// Begin of the recording, by `CLOCK_MONOTONIC`; 0 before.
    start_ns: u64,
    /// Waits that were under way before the begin, and since when they are noted, by the same clock.
    early: Vec<(WaitKey, u64)>,
    /// The budget of the workers' time, if it is wanted.
    books: Option<Books>,
    /// Slow calls, if these are what is looked at.
    trace: Option<Trace>,
    /// What targets allocate, if that is what is looked at.
    allocations: Option<Allocations>,
}

/// Where a thread waits.
#[derive(Clone, Debug)]
struct Place {
    /// Without the kernel's stack.
    sample: Sample,
    /// When it was last seen to wait here.
    turn: u64,
    /// By [`WaitKey::kernel`], what has been stored of a wait that was under way then, and comes again when it is told that it has
    /// ended. A wait is told of with the same kernel stack each time: it rests there.
    ahead: Vec<(u64, Waited)>,
    /// There is one wait, which began before the kernel was asked to look, and so its number stands for all.
    is_early: bool,
}

impl Place {
    fn new(sample: Sample, turn: u64) -> Self {
        Self { sample, turn, ahead: Vec::new(), is_early: false }
    }

    /// A wait that began so long before the recording, which does not belong to it.
    fn begin_early(&mut self, blocked_ns: u64) {
        self.is_early = true;
        self.ahead = vec![(0, Waited { blocked_ns, ..Waited::default() })];
    }

    fn ahead_in(&mut self, kernel: u64) -> &mut Waited {
        let kernel = if self.is_early { 0 } else { kernel };
        let at = self.ahead.iter().position(|(of, _)| *of == kernel).unwrap_or_else(|| {
            self.ahead.push((kernel, Waited::default()));
            self.ahead.len() - 1
        });
        &mut self.ahead[at].1
    }

    /// Whether waits that began here may still be told of, in this turn, when the thread has been active in the last one or not.
    fn is_awaited(&self, turn: u64, is_active: bool) -> bool {
        self.turn + if is_active { 2 } else { PLACE_TURNS } >= turn
    }

    /// What is to be stored of waits that have ended.
    fn ended(&mut self, kernel: u64, waited: Waited) -> Waited {
        let ahead = self.ahead_in(kernel);
        let (count, blocked_ns) = (ahead.count.min(waited.count), ahead.blocked_ns.min(waited.blocked_ns));
        ahead.count -= count;
        ahead.blocked_ns -= blocked_ns;
        self.ahead.retain(|(_, ahead)| *ahead != Waited::default());
        Waited { count: waited.count - count, blocked_ns: waited.blocked_ns - blocked_ns, ..waited }
    }

    /// What is to be stored of a wait that has lasted `blocked_ns` and is under way. If the end of the one before has not
    /// been told yet, less than that: the rest comes then.
    fn under_way(&mut self, kernel: u64, blocked_ns: u64) -> Waited {
        let ahead = self.ahead_in(kernel);
        let known = *ahead;
        ahead.count = 1;
        ahead.blocked_ns = known.blocked_ns.max(blocked_ns);
        Waited { count: 1 - known.count.min(1), blocked_ns: ahead.blocked_ns - known.blocked_ns, ready_ns: 0 }
    }
}

#[derive(Debug)]
struct Target {
    /// What the kernel calls it: a pid may be used again.
    id: u32,
    process: WatchedProcess,
    plan: StackPlan,
    stacks: CopiedStacks,
    natives: NativeStacks,
    is_gone: bool,
    /// Stacks that were taken now have been named already.
    has_begun: bool,
}

impl KernelSampler {
    /// A sampler without targets. In [`Mode::Cpu`] clocks go off each `interval_ns`, in [`Mode::Offcpu`] waits are seen, in
    /// [`Mode::Wall`] both.
    ///
    /// # Errors
    ///
    /// As for [`Probe::start`].
    pub fn start(options: Options, interval_ns: u64) -> Result<Self, ProbeError> {
        let probe = Probe::start(ProbeOptions {
            interval_ns: (options.mode != Mode::Offcpu).then_some(interval_ns),
            waits: matches!(options.mode, Mode::Wall | Mode::Offcpu),
            kernel_stacks: !options.without_kernel_stacks,
            native_stacks: options.native,
            allocations: false,
        })?;
        Ok(Self::of(probe, options))
    }

    /// A sampler that looks at threads where they allocate memory, one in so many bytes by chance, and at no other time; in
    /// [`Mode::Alloc`].
    ///
    /// # Errors
    ///
    /// As for [`Probe::start`].
    pub fn start_allocations(options: Options) -> Result<Self, ProbeError> {
        let probe = Probe::start(ProbeOptions {
            interval_ns: None,
            waits: false,
            kernel_stacks: false,
            native_stacks: false,
            allocations: true,
        })?;
        let options = Options { mode: Mode::Alloc, without_kernel_stacks: true, ..options };
        Ok(Self { allocations: Some(Allocations::default()), ..Self::of(probe, options) })
    }

    /// A sampler that looks at threads where a call to a server ends that took `slow_ns` or more, and tells these calls. The budget is
    /// kept as well, but for where PHP's own requests begin: nothing is put into targets.
    ///
    /// # Errors
    ///
    /// As for [`BudgetProbe::start`].
    pub fn start_trace(slow_ns: u64, on_call: OnCall) -> Result<Self, ProbeError> {
        let budget = BudgetProbe::start_with_slow_calls(false, slow_ns)?;
        let probe = Probe::start_at_slow_calls(&budget)?;
        let options = Options { mode: Mode::Cpu, without_kernel_stacks: true, ..Options::default() };
        let sampler = Self::of(probe, options).with_books(Books::of(Box::new(budget), false));
        Ok(Self { trace: Some(Trace::new(on_call)), ..sampler })
    }

    /// A sampler that looks at threads where they call the function at `offset` of a file, and at no other time: for comparisons with what a
    /// debugger sees.
    ///
    /// # Errors
    ///
    /// As for [`Probe::start`].
    pub fn start_at_function(file: &Path, offset: usize) -> Result<Self, ProbeError> {
        let options =
            Options { mode: Mode::Cpu, native: true, without_kernel_stacks: true, ..Options::default() };
        Ok(Self::of(Probe::start_at_function(file, offset)?, options))
    }

    fn of(probe: Probe, options: Options) -> Self {
        // What collects garbage is not copied with a stack.
        let options = Options { without_gc: true, ..options };
        Self {
            options,
            probe,
            processes: Vec::new(),
            bare: Vec::new(),
            last_id: 0,
            code: CodeCache::default(),
            lost: 0,
            next_take_ns: 0,
            kernel_stacks: KernelStacks::default(),
            files: Files::default(),
            natives: HashMap::new(),
            waits: HashMap::new(),
            peers: Peers::default(),
            gone: Vec::new(),
            turn: 0,
            start_ns: 0,
            early: Vec::new(),
            books: None,
            trace: None,
            allocations: None,
        }
    }

    /// Asks servers for the debug files of native code that are not here.
    #[must_use]
    pub fn with_debuginfod(self, servers: Debuginfod) -> Self {
        self.files.ask(servers);
        self
    }

    /// Keeps the budget of the workers' time as well.
    #[must_use]
    pub fn with_books(self, books: Books) -> Self {
        Self { books: Some(books), ..self }
    }

    fn count_lost(&mut self, sink: &mut Sink) {
        let counters = self.probe.counters();
        let crowded = self.allocations.as_ref().map_or(0, |allocations| allocations.crowded);
        let lost = counters.lost + counters.waits_lost + crowded;
        sink.totals.failed += lost - self.lost;
        self.lost = lost;
    }

    /// The recording begins at this time of `CLOCK_MONOTONIC`, unless it has begun.
    fn begin_at(&mut self, start_ns: u64) {
        if self.start_ns != 0 {
            return;
        }
        self.start_ns = start_ns;
        for (key, since_ns) in std::mem::take(&mut self.early) {
            if let Some(place) = self.waits.get_mut(&key) {
                place.begin_early(start_ns.saturating_sub(since_ns));
            }
        }
    }

    /// Asks whether the targets are still there, and reads what the kernel has told of them.
    fn begin_look(&mut self, now_ns: u64, sink: &mut Sink) {
        self.begin_at(monotonic_ns().saturating_sub(now_ns));
        for target in &mut self.processes {
            target.has_begun = false;
            target.is_gone |= !target.process.is_there(now_ns);
        }
        for process in &mut self.bare {
            process.look(now_ns, self.options, &mut self.code);
        }
        // The calls first: their stacks have been told then, but for some that come with the next look.
        let slow = self.take_slow();
        self.take_events(now_ns, sink);
        self.tell_slow(slow, false, sink);
    }

    /// Slow calls that have ended, and the servers.
    fn take_slow(&mut self) -> (Vec<SlowCall>, Vec<Endpoint>) {
        match (&self.trace, &mut self.books) {
            (Some(_), Some(books)) => books.take_slow(),
            _ => Default::default(),
        }
    }

    /// Tells slow calls whose stacks have come.
    fn tell_slow(&mut self, (calls, endpoints): (Vec<SlowCall>, Vec<Endpoint>), is_last: bool, sink: &Sink) {
        if let Some(trace) = &mut self.trace {
            trace.tell(calls, &endpoints, self.start_ns, is_last, &sink.interner);
        }
    }

    /// Reads what the kernel has told, `now_ns` after the begin of the recording.
    fn take_events(&mut self, now_ns: u64, sink: &mut Sink) {
        // The kernel's time is that of the same clock as ours.
        let (now, monotonic_ns) = (Instant::now(), monotonic_ns());
        let start_ns = if self.start_ns == 0 { monotonic_ns.saturating_sub(now_ns) } else { self.start_ns };
        self.files.take_debug_files();
        let events = self.probe.take().unwrap_or_default();
        self.kernel_stacks.name(&events, self.probe.symbols(), &mut sink.interner);
        for event in events {
            match event {
                Event::KernelStack(stack) => {
                    let forgotten = self.kernel_stacks.insert(&stack, &mut sink.interner);
                    self.probe.forget_stacks(forgotten.into_iter());
                }
                Event::Native(copy) => {
                    // Those whose looks were lost have nobody to take them.
                    if self.natives.len() >= MAX_NATIVES {
                        self.natives.clear();
                    }
                    self.natives.insert(copy.tid, copy);
                }
                Event::Allocated(allocation) => {
                    let lost = match &mut self.allocations {
                        Some(allocations) if allocation.has_look => allocations.await_look(allocation),
                        _ => Some(allocation),
                    };
                    if let Some(allocation) = lost {
                        let time_ns = allocation.time_ns.saturating_sub(start_ns);
                        sink.totals.torn += 1;
                        self.store_without_stack(&allocation, time_ns, true, sink);
                    }
                }
                Event::Freed(allocation) => {
                    if let Some(allocations) = &mut self.allocations {
                        allocations.freed(allocation.id, allocation.block);
                    }
                }
                Event::Look(look) => {
                    self.store(&look, (now, monotonic_ns), start_ns, sink);
                }
                Event::Stack(stack) => {
                    if let Some(target) = self.processes.iter_mut().find(|target| target.id == stack.id) {
                        if target.stacks.len() >= MAX_STACKS {
                            self.probe.forget_stacks(target.stacks.clear().into_iter());
                        }
                        target.stacks.insert(stack);
                    }
                }
            }
        }
    }

    /// Stores waits that have ended, and forgets where threads waited that have gone on to wait elsewhere.
    ///
    /// What is taken ended before the last turn; since then, threads may have begun to wait anew. A thread that has not been
    /// active since waits where it did.
    /// The frame for the server that a wait is for, if it is for one that is known.
    fn server(&mut self, key: &WaitKey, now_ns: u64, sink: &mut Sink) -> Option<FrameId> {
        let peer = key.peer?;
        let pid = self.pid_of(key.id)?;
        let name = self.peers.name(pid, peer, now_ns)?;
        let name = sink.interner.string(&name);
        Some(sink.interner.frame(Frame { kind: FrameKind::Server, name, ..Frame::default() }))
    }

    /// Of a target that has not gone.
    fn pid_of(&self, id: u32) -> Option<u32> {
        let target = self.processes.iter().find(|target| target.id == id).map(|target| target.process.pid());
        target.or_else(|| self.bare.iter().find(|process| process.id == id).map(BareProcess::pid))
    }

    fn store_waits(&mut self, taken: &[(WaitKey, Waited)], now_ns: u64, sink: &mut Sink) {
        self.turn += 1;
        let mut active = HashSet::new();
        for (key, waited) in taken {
            active.insert((key.id, key.tid));
            let server = self.server(key, now_ns, sink);
            // Where there is none, its event was lost or said nothing certain; that has been counted.
            if let Some(place) = self.waits.get_mut(&key.anywhere()) {
                place.turn = self.turn;
                let waited = place.ended(key.kernel, *waited);
                push_waits(sink, &self.kernel_stacks, (place.sample, server), key, waited, now_ns);
            }
        }
        let turn = self.turn;
        for (id, _) in self.gone.extract_if(.., |(_, since)| *since + 2 < turn) {
            self.waits.retain(|key, _| key.id != id);
        }
        self.waits.retain(|key, place| place.is_awaited(turn, active.contains(&(key.id, key.tid))));
    }

    /// Stores the time of waits that are under way, as far as it has not been stored.
    fn store_under_way(&mut self, now_ns: u64, sink: &mut Sink) {
        let monotonic_ns = monotonic_ns();
        let sleepers = self.probe.sleepers().unwrap_or_default();
        // To list them has told where in the kernel they are.
        self.processes.iter_mut().for_each(|target| target.has_begun = false);
        self.take_events(now_ns, sink);
        for sleeper in sleepers {
            let server = self.server(&sleeper.key, now_ns, sink);
            if let Some(place) = self.waits.get_mut(&sleeper.key.anywhere()) {
                place.turn = self.turn;
                let until_ns = if sleeper.ready_ns == 0 { monotonic_ns } else { sleeper.ready_ns };
                let blocked_ns = until_ns.saturating_sub(sleeper.begin_ns);
                let waited = place.under_way(sleeper.key.kernel, blocked_ns);
                push_waits(sink, &self.kernel_stacks, (place.sample, server), &sleeper.key, waited, now_ns);
            }
        }
    }

    /// What allocations are not seen.
    fn unheard(&self) -> Vec<String> {
        let others = self.probe.disturbs_others().then_some(
            "before Linux 6.6 each process with the same libslipmalloc.so is interrupted where it tells of a block, recorded or not",
        );
        let always = [
            "blocks are told by chance, one in 512 KiB unless SLIP_MALLOC_SAMPLE says otherwise: a place with n blocks told is right \
             to some 2 / sqrt(n)",
            "blocks that a thread frees and takes again before its magazine is empty are not seen, nor what was taken before the \
             recording began",
            "what an interpreter cuts out of memory of its own (pymalloc, the Zend memory manager) is not seen, nor is memory from \
             mmap",
            "stacks of more than 128 frames lack their outer end, and say so",
            "C functions below Python or PHP code are not shown",
            "without opcache, PHP functions whose request ends before their names are read, some milliseconds later, are shown as \
             [unreadable]; so are threads of Python that have ended before they were looked at, some 10 ms after their first block",
        ];
        others.into_iter().chain(always).map(str::to_owned).collect()
    }

    /// Has waits counted that are under way already, as if they began now.
    fn note_waiting(&mut self, pid: u32, now_ns: u64, sink: &mut Sink) {
        let Some(target) = self.processes.iter_mut().find(|target| target.process.pid() == pid) else {
            return;
        };
        let since_ns = monotonic_ns();
        for (tid, sample) in target.process.waiting(now_ns, self.options, sink, &mut self.code) {
            if let Some(key) = WaitKey::of_waiting(pid, tid, target.id)
                && self.probe.note_sleeper(key, pid, since_ns)
            {
                self.waits.insert(key, Place::new(sample, self.turn));
                if self.start_ns == 0 {
                    self.early.push((key, since_ns));
                }
            }
        }
    }

    /// A look that belongs to the end of a slow call, if calls are traced.
    fn see_slow(&mut self, look: &Look, stack: Result<StackId, NoStack>) {
        if let Some(trace) = &mut self.trace {
            trace.see(look.tid, look.time_ns, stack);
        }
    }

    /// Stores a block whose stack could not be had, or whose thread runs nothing of the interpreter's.
    fn store_without_stack(
        &mut self,
        allocation: &Allocation,
        time_ns: u64,
        is_unreadable: bool,
        sink: &mut Sink,
    ) {
        let (Some(allocations), Some(target)) =
            (&mut self.allocations, self.processes.iter_mut().find(|target| target.id == allocation.id))
        else {
            return;
        };
        let thread = target.process.any_thread(allocation.tid, sink);
        let stack = if is_unreadable { unreadable_stack(sink) } else { StackId(0) };
        allocations.taken(allocation, &Sample { time_ns, thread, stack, ..Sample::default() });
        sink.totals.allocations = allocations.told;
    }

    /// Stores a block whose look has come.
    fn store_allocation(
        &mut self,
        look: &Look,
        (now, now_ns): (Instant, u64),
        start_ns: u64,
        sink: &mut Sink,
    ) {
        let Some(allocations) = &mut self.allocations else { return };
        let Some(allocation) = allocations.of_look(look.id, look.tid, look.time_ns) else { return };
        let Some(target) = self.processes.iter_mut().find(|target| target.id == look.id) else { return };
        let time_ns = look.time_ns.saturating_sub(start_ns);
        if look.is_foreign {
            self.store_without_stack(&allocation, time_ns, false, sink);
            return;
        }
        if !std::mem::replace(&mut target.has_begun, true) {
            target.is_gone |= target.process.begin_copied() == Sampled::Gone;
        }
        let stack = target.stacks.find(look.key);
        if look.key != 0 && stack.is_none() {
            sink.totals.torn += 1;
            self.store_without_stack(&allocation, time_ns, true, sink);
            return;
        }
        let copied = copied_of(look, stack);
        let age = Duration::from_nanos(now_ns.saturating_sub(look.time_ns));
        let moment = (&copied, time_ns, now.checked_sub(age).unwrap_or(now));
        let failed = sink.totals.failed;
        match target.process.see_copied(moment, Activity::Running, self.options, sink, &mut self.code) {
            Some(sample) => {
                allocations.taken(&allocation, &sample);
                sink.totals.allocations = allocations.told;
            }
            None => {
                // Its bytes are known: it is not lost.
                sink.totals.torn += sink.totals.failed - failed;
                sink.totals.failed = failed;
                self.store_without_stack(&allocation, time_ns, true, sink);
            }
        }
    }

    fn store(&mut self, look: &Look, (now, now_ns): (Instant, u64), start_ns: u64, sink: &mut Sink) {
        if self.allocations.is_some() {
            self.store_allocation(look, (now, now_ns), start_ns, sink);
            return;
        }
        // Each look has its own, or none.
        let native = self.natives.remove(&look.tid);
        let native = native.filter(|copy| copy.id == look.id && copy.time_ns == look.time_ns);
        // Targets are seen as soon as they are added: what ran before the recording began is not of its time.
        if look.wait.is_none() && self.trace.is_none() && look.time_ns < start_ns {
            return;
        }
        if let Some(process) = self.bare.iter_mut().find(|process| process.id == look.id) {
            let times = (look.time_ns.saturating_sub(start_ns), now_ns);
            let mut sample = process.see(look, native.as_ref(), times, &self.files, sink);
            match look.wait {
                Some(key) => self.note_place(key, sample),
                None => {
                    sample.stack = self.kernel_stacks.push(sample.stack, &look.kernel, &mut sink.interner);
                    sink.push(sample);
                }
            }
            return;
        }
        let Some(target) = self.processes.iter_mut().find(|target| target.id == look.id) else {
            self.see_slow(look, Err(NoStack::Unreadable));
            return;
        };
        if look.is_foreign || target.is_gone {
            // A thread that has nothing to do with the interpreter has native frames alone.
            if look.is_foreign
                && let Some(copy) = native
            {
                let thread = target.process.any_thread(look.tid, sink);
                let pid = target.process.pid();
                let stack = target.natives.stack(pid, now_ns, &copy, &self.files, &mut sink.interner);
                let stack = self.kernel_stacks.push(stack, &look.kernel, &mut sink.interner);
                let time_ns = look.time_ns.saturating_sub(start_ns);
                sink.push(Sample { time_ns, thread, stack, state: State::ON_CPU, ..Sample::default() });
                return;
            }
            let reason = if look.is_foreign { NoStack::NoCode } else { NoStack::Unreadable };
            self.see_slow(look, Err(reason));
            return;
        }
        if !std::mem::replace(&mut target.has_begun, true) {
            target.is_gone = target.process.begin_copied() == Sampled::Gone;
        }
        let stack = target.stacks.find(look.key);
        let time_ns = look.time_ns.saturating_sub(start_ns);
        if look.failed || (look.key != 0 && stack.is_none()) {
            let place =
                look.wait.and_then(|key| Some((key, target.process.unreadable(look.tid, time_ns, sink)?)));
            // Of a wait the time is known.
            sink.totals.torn += u64::from(place.is_some());
            sink.totals.failed += u64::from(place.is_none());
            match place {
                Some((key, sample)) => self.note_place(key, sample),
                None => self.see_slow(look, Err(NoStack::Unreadable)),
            }
            return;
        }
        let copied = copied_of(look, stack);
        let age = Duration::from_nanos(now_ns.saturating_sub(look.time_ns));
        let at = now.checked_sub(age).unwrap_or(now);
        let activity = if look.wait.is_some() { Activity::Blocked } else { Activity::Running };
        let moment = (&copied, time_ns, at);
        let seen = target.process.see_copied(moment, activity, self.options, sink, &mut self.code);
        match (seen, look.wait) {
            (Some(mut sample), Some(key)) => {
                if key.request == 0 {
                    // Waits of the next request may be added to these.
                    sample.request = RequestId(0);
                }
                self.note_place(key, sample);
            }
            (Some(sample), None) if self.trace.is_some() => {
                let stack = if sample.stack.0 == 0 { Err(NoStack::NoCode) } else { Ok(sample.stack) };
                self.see_slow(look, stack);
            }
            (Some(mut sample), None) => {
                if !sample.state.has(State::IDLE) {
                    if self.options.native {
                        let steps = if sample.stack.0 == 0 { Vec::new() } else { target.process.steps(sink) };
                        let pid = target.process.pid();
                        // One for which the ring had no room is missing.
                        let walk = native.map_or_else(NativeWalk::default, |copy| {
                            target.natives.walk(pid, now_ns, &copy, &self.files, &mut sink.interner)
                        });
                        let frames = splice(&steps, &walk, &mut sink.interner);
                        let push = |stack, frame| sink.interner.push(stack, frame);
                        sample.stack = frames.into_iter().fold(StackId(0), push);
                    }
                    sample.stack = self.kernel_stacks.push(sample.stack, &look.kernel, &mut sink.interner);
                }
                sink.push(sample);
            }
            (None, Some(key)) => {
                if let Some(sample) = target.process.unreadable(look.tid, time_ns, sink) {
                    self.note_place(key, sample);
                }
            }
            (None, None) => self.see_slow(look, Err(NoStack::Unreadable)),
        }
    }

    /// Has what is known of allocations stored with the next batch.
    fn store_places(&mut self, sink: &mut Sink) {
        if let Some(allocations) = &mut self.allocations {
            sink.set_allocations(allocations.take_changed());
        }
    }

    /// Notes where a thread waits, of which the kernel tells for the first time in this turn.
    fn note_place(&mut self, key: WaitKey, sample: Sample) {
        // What the kernel tells anew, it has not counted yet: the place that was known may be ahead.
        let ahead = self.waits.remove(&key).map_or(Vec::new(), |known| known.ahead);
        self.waits.insert(key, Place { ahead, ..Place::new(sample, self.turn) });
    }
}

/// What a look says, and the stack that it names.
fn copied_of<'a>(look: &'a Look, stack: Option<&'a CopiedStack>) -> Copied<'a> {
    Copied {
        thread_state: look.thread_state,
        addrs: stack.map_or(&[], |stack| &stack.addrs),
        frames: stack.map_or(&[], |stack| &stack.frames),
        truncated: look.truncated,
        instruction: look.instruction,
        anchor: &look.anchor,
    }
}

/// Stores waits of one kind: for what they were for, somewhere in the kernel, and then for a CPU.
fn push_waits(
    sink: &mut Sink,
    known: &KernelStacks,
    (at, server): (Sample, Option<FrameId>),
    key: &WaitKey,
    waited: Waited,
    now_ns: u64,
) {
    let count = u32::try_from(waited.count).unwrap_or(u32::MAX);
    let reason = key.reason();
    let mut push = |reason: WaitReason, total_ns: u64, is_any: bool| {
        if is_any || total_ns > 0 {
            let Sample { thread, mut stack, state, request, .. } = at;
            // Who waits for a CPU is where it was blocked before, which has nothing to do with it.
            if reason != WaitReason::Cpu && !state.has(State::IDLE) {
                stack = server.map_or(stack, |server| sink.interner.push(stack, server));
                stack = known.push_key(stack, key.kernel, &mut sink.interner);
            }
            let state = if reason == WaitReason::Cpu { state.with(State::ON_CPU) } else { state };
            sink.push_wait(Wait { time_ns: now_ns, thread, stack, state, request, reason, count, total_ns });
        }
    };
    // All of its time may have been stored while it was under way.
    push(reason, waited.blocked_ns, count > 0 && reason != WaitReason::Cpu);
    push(WaitReason::Cpu, waited.ready_ns, false);
}

impl Sampler for KernelSampler {
    fn name(&self) -> &'static str {
        "kernel"
    }

    fn cannot_see(&self) -> Vec<String> {
        if self.options.mode == Mode::Alloc {
            return self.unheard();
        }
        let mode = match self.options.mode {
            Mode::Cpu => Some("threads that wait are not seen"),
            Mode::Offcpu => Some("threads that run are not seen"),
            _ => None,
        };
        // All but the first of a process: the kernel has no name for them.
        let early = (self.options.mode != Mode::Cpu && !slip_probe::names_threads())
            .then_some("a wait that was under way when the recording began is not seen, before Linux 6.9");
        let always = [
            "without opcache, PHP functions whose request ends before their names are read, some milliseconds later, are \
             dropped and counted as torn",
            "stacks of more than 128 frames lack their outer end, and say so",
            "the line of the innermost PHP function is not known while code runs that opcache's JIT has compiled",
            "that a function of Python collects garbage is not shown",
        ];
        let natives = if self.options.native {
            &[
                "native functions are not shown of waits, nor of code between functions that has no tables for exceptions and no frame \
                 pointers, nor further out than 16 KB of a stack; where that, or a loop that was just entered, leaves open which of \
                 them have called which of the interpreter's, `[not spliced]` stands between them",
            ][..]
        } else {
            &[
                "C functions below Python code, native frames, and threads that run nothing of the interpreter's are not shown",
            ]
        };
        let always = always.into_iter().chain(natives.iter().copied());
        let is_without = self.options.without_kernel_stacks.then_some("what runs in the kernel is not shown");
        if self.options.mode == Mode::Cpu {
            return mode.into_iter().chain(always).chain(is_without).map(str::to_owned).collect();
        }
        let kernel =
            is_without.unwrap_or("where in the kernel a thread waited is shown of waits of 0.1 ms and more");
        let preempted = "a thread that loses its CPU to others more than 1,000 times a second is taken to be where it was up to 1 ms \
                         before, seven times of eight";
        mode.into_iter().chain(early).chain(always).chain([kernel, preempted]).map(str::to_owned).collect()
    }

    fn add(&mut self, pid: u32, now_ns: u64, sink: &mut Sink) -> Result<(), TargetIssue> {
        let hooks = self.allocations.as_ref().map(|_| allocation_hooks(pid));
        // Of what is no interpreter that counts more.
        if let Some(Err(issue)) = &hooks
            && has_interpreter(pid, self.options, &mut self.code)
        {
            return Err(issue.clone());
        }
        let mut process = match WatchedProcess::attach(pid, now_ns, self.options, sink, &mut self.code) {
            Err(issue @ TargetIssue::NotAnInterpreter { .. }) if self.options.native => {
                self.last_id += 1;
                let process = BareProcess::open(pid, self.last_id, now_ns, issue.clone(), sink)?;
                if self.probe.watch_bare(pid, self.last_id).is_err() {
                    return Err(issue);
                }
                self.bare.push(process);
                return Ok(());
            }
            Err(issue @ TargetIssue::NotAnInterpreter { .. }) => {
                return Books::add_native(self.books.as_mut(), pid, issue);
            }
            other => other?,
        };
        process.leave_activity();
        if self.options.native {
            process.list_steps();
        }
        let reason = "its threads do not say where their state is".to_owned();
        let plan = process.plan().ok_or(TargetIssue::NeedsOutside { reason })?;
        self.last_id += 1;
        let refuses = |error: ProbeError| TargetIssue::NeedsOutside { reason: error.to_string() };
        self.probe.watch(pid, self.last_id, &plan).map_err(refuses)?;
        if let (Some(allocations), Some(hooks)) = (&mut self.allocations, hooks) {
            let heard = hooks.and_then(|(file, hooks, sizes)| {
                let refused = |error: ProbeError| TargetIssue::Unsupported {
                    reason: format!("the kernel sets no breakpoints in its libslipmalloc.so: {error}"),
                };
                self.probe.hear_allocations(pid, &file, hooks).map_err(refused)?;
                Ok(sizes)
            });
            match heard {
                Ok(sizes) => {
                    let known = sink.processes().get(process.id().index());
                    let own = known.and_then(|known| own_memory(pid, known.language));
                    allocations.begin(self.last_id, sizes, own);
                }
                Err(issue) => {
                    self.probe.forget(pid);
                    sink.end_process(process.id(), now_ns);
                    return Err(issue);
                }
            }
        }
        if let Some(books) = &mut self.books {
            let known = sink.processes().get(process.id().index());
            let (language, title) = known.map(|known| (known.language, &*known.title)).unwrap_or_default();
            books.add(pid, language, title).map_err(refuses)?;
        }
        if let Some(trace) = &mut self.trace {
            trace.begin(pid, monotonic_ns());
        }
        self.processes.push(Target {
            id: self.last_id,
            process,
            plan,
            stacks: CopiedStacks::default(),
            natives: NativeStacks::default(),
            is_gone: false,
            has_begun: false,
        });
        if matches!(self.options.mode, Mode::Wall | Mode::Offcpu) {
            self.note_waiting(pid, now_ns, sink);
        }
        Ok(())
    }

    fn own_memory(&self) -> Vec<OwnMemory> {
        self.allocations.iter().flat_map(|allocations| &allocations.own_memory).copied().collect()
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
        if self.allocations.is_some() {
            // What it has freed at its end was told before that.
            self.take_events(now_ns, sink);
        }
        if let Some(books) = &mut self.books {
            books.remove(pid);
        }
        if let Some(trace) = &mut self.trace {
            trace.end(pid);
        }
        self.peers.forget(pid);
        let Self { processes, bare, code, probe, gone, turn, allocations, .. } = self;
        for process in bare.extract_if(.., |process| process.pid() == pid) {
            probe.forget(pid);
            gone.push((process.id, *turn));
            process.finish(now_ns, sink);
        }
        for mut target in processes.extract_if(.., |target| target.process.pid() == pid) {
            probe.forget(pid);
            gone.push((target.id, *turn));
            if let Some(allocations) = allocations {
                allocations.end(target.id);
            }
            target.process.finish(self.options, sink, code);
            sink.end_process(target.process.id(), now_ns);
        }
    }

    fn pids(&self) -> Vec<u32> {
        let natives = self.books.iter().flat_map(|books| books.natives());
        let bare = self.bare.iter().map(BareProcess::pid);
        self.processes.iter().map(|target| target.process.pid()).chain(natives.copied()).chain(bare).collect()
    }

    fn open_requests(&self) -> Vec<Request> {
        self.processes.iter().filter_map(|target| target.process.open_request()).collect()
    }

    fn fetch_interval_ns(&self) -> Option<u64> {
        // The stacks of a thread of Python cannot be named any more when it has ended.
        let can_wait = self.allocations.is_none()
            && !self.processes.is_empty()
            && self.processes.iter().all(|target| !target.process.is_hasty());
        Some(if can_wait { FETCH_INTERVAL_NS } else { HASTY_FETCH_INTERVAL_NS })
    }

    fn sample(&mut self, now_ns: u64, sink: &mut Sink) -> Vec<u32> {
        self.begin_look(now_ns, sink);
        self.look_at_natives();
        if now_ns >= self.next_take_ns {
            self.next_take_ns = now_ns.saturating_add(TAKE_INTERVAL_NS);
            self.count_lost(sink);
            let taken = self.probe.take_waits().unwrap_or_default();
            self.store_waits(&taken, now_ns, sink);
            for target in &mut self.processes {
                let given_up = target.stacks.turn();
                for key in self.probe.forget_stacks(given_up.into_iter()) {
                    target.stacks.keep(key);
                }
            }
        }
        for target in self.processes.iter_mut().filter(|target| !target.is_gone) {
            if let Some(plan) = target.process.plan_anew().filter(|plan| *plan != target.plan)
                && self.probe.watch(target.process.pid(), target.id, &plan).is_ok()
            {
                target.plan = plan;
            }
        }
        let natives = self.books.as_mut().map(Books::take_ended_natives);
        let gone: Vec<u32> = self
            .processes
            .iter()
            .filter(|target| target.is_gone)
            .map(|target| target.process.pid())
            .chain(self.bare.iter().filter(|process| process.is_gone).map(BareProcess::pid))
            .chain(natives.into_iter().flatten())
            .collect();
        for pid in &gone {
            self.remove(*pid, now_ns, sink);
        }
        gone
    }

    fn rest(&mut self, until_ns: u64, start_ns: u64, sink: &mut Sink) -> bool {
        self.begin_at(start_ns);
        loop {
            let now_ns = monotonic_ns();
            let Some(left_ns) = until_ns.checked_sub(now_ns).filter(|left| *left > 0) else { return true };
            match self.probe.wait(Duration::from_nanos(left_ns)) {
                // Functions, and requests that nothing tells from the next one, may be gone in a moment.
                Ok(true) => {
                    self.begin_look(monotonic_ns().saturating_sub(start_ns), sink);
                    if !sleep_until((now_ns + LEAST_REST_NS).min(until_ns)) {
                        return false;
                    }
                }
                Ok(false) => {}
                Err(_) => return false,
            }
        }
    }

    fn before_flush(&mut self, now_ns: u64, sink: &mut Sink) {
        self.store_under_way(now_ns, sink);
        self.store_places(sink);
        if let Some(books) = &mut self.books {
            books.store(now_ns, self.start_ns, sink);
        }
    }

    fn finish(&mut self, now_ns: u64, sink: &mut Sink) {
        if let Some(books) = &mut self.books {
            books.store(now_ns, self.start_ns, sink);
        }
        let taken = self.probe.stop().unwrap_or_default();
        let monotonic_ns = monotonic_ns();
        let slow = self.take_slow();
        self.take_events(now_ns, sink);
        self.store_places(sink);
        self.tell_slow(slow, true, sink);
        self.store_waits(&taken, now_ns, sink);
        // Waits that are under way count as far as they have got.
        let sleepers = self.probe.sleepers().unwrap_or_default();
        self.take_events(now_ns, sink);
        for sleeper in sleepers {
            let server = self.server(&sleeper.key, now_ns, sink);
            if let Some(place) = self.waits.get_mut(&sleeper.key.anywhere()) {
                let ready_ns = if sleeper.ready_ns == 0 { monotonic_ns } else { sleeper.ready_ns };
                let blocked_ns = ready_ns.saturating_sub(sleeper.begin_ns);
                let waited = Waited {
                    ready_ns: monotonic_ns.saturating_sub(ready_ns),
                    ..place.under_way(sleeper.key.kernel, blocked_ns)
                };
                push_waits(sink, &self.kernel_stacks, (place.sample, server), &sleeper.key, waited, now_ns);
            }
        }
        self.count_lost(sink);
        for target in &mut self.processes {
            target.process.finish(self.options, sink, &mut self.code);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waited(count: u64, blocked_ns: u64) -> Waited {
        Waited { count, blocked_ns, ready_ns: 0 }
    }

    #[test]
    fn a_wait_that_was_stored_while_it_was_under_way_is_not_stored_again() {
        let mut place = Place::new(Sample::default(), 0);
        assert_eq!(place.under_way(8, 30), waited(1, 30));
        assert_eq!(place.under_way(8, 50), waited(0, 20));
        // Others that are like it, but for where in the kernel.
        assert_eq!(place.ended(0, waited(7, 4)), waited(7, 4));
        assert_eq!(place.ended(8, waited(1, 70)), waited(0, 20));
        assert_eq!(place.ended(8, waited(2, 10)), waited(2, 10));
        assert!(place.ahead.is_empty());
    }

    #[test]
    fn what_was_before_the_recording_is_not_stored_wherever_it_was_in_the_kernel() {
        let mut place = Place::new(Sample::default(), 0);
        place.begin_early(100);
        assert_eq!(place.under_way(8, 130), waited(1, 30));
        assert_eq!(place.ended(8, waited(1, 150)), waited(0, 20));
    }

    #[test]
    fn waits_whose_end_is_told_late_are_stored_once() {
        let mut place = Place::new(Sample::default(), 0);
        // One of 30, and then, before its end is told, one of 5 and one of 40.
        let seen = [
            place.under_way(0, 30),
            place.under_way(0, 5),
            place.ended(0, waited(2, 35)),
            place.under_way(0, 10),
            place.ended(0, waited(1, 40)),
        ];
        let sum = seen.iter().fold((0, 0), |sum, waited| (sum.0 + waited.count, sum.1 + waited.blocked_ns));
        assert_eq!(sum, (3, 75));
    }

    #[test]
    fn places_of_threads_that_have_ended_are_forgotten() {
        let place = Place::new(Sample::default(), 7);
        assert!(place.is_awaited(9, true));
        assert!(!place.is_awaited(10, true), "it has gone on to wait elsewhere");
        assert!(place.is_awaited(10, false));
        assert!(!place.is_awaited(8 + PLACE_TURNS, false));
    }
}
