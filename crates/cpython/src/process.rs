//! The interpreters of a process: attach, and take samples.

use std::collections::HashSet;
use std::time::Instant;

use slip_model::{FrameId, Gil, Interner, Outcome, StackId, StackReading};
use slip_remote::{Chain, Memory, Range, ReadError, RemoteAddr, Symbols};

use crate::bunch::Bunch;
use crate::bytes::{addr_at, u64_at};
use crate::code::{CONFIRMED_NS, CodeCache};
use crate::detect::find;
use crate::dicts::read_addr;
use crate::frames::Resolver;
use crate::look::Point;
use crate::names::{NameBook, Place};
use crate::native;
use crate::offsets::{GilPlace, Offsets};
use crate::tasks::Types;
use crate::threads::{self, LastStack, Thread};
use crate::trailing::Trailing;
use crate::{AttachError, Version};

/// Most interpreters of a process.
const MAX_INTERPRETERS: usize = 1_024;

/// A process with one interpreter is taken to have no other for so long: only one look in so many reads whether the list has grown,
/// which costs a range of its own. Making an interpreter takes longer, most of it after it has been put into the list, so none
/// runs code before it is seen. The main interpreter lives as long as the others.
pub(crate) const ALONE_NS: u64 = 4_000_000;

/// The CPython of a process: its interpreters, threads and what is known about its code.
///
/// Belongs to one process image: after an `exec`, or for a forked child, attach again.
#[derive(Debug)]
pub struct Interpreter {
    version: Version,
    pub(crate) offsets: Offsets,
    /// `_PyRuntime`
    pub(crate) runtime: RemoteAddr,
    pub(crate) states: Vec<State>,
    pub(crate) codes: CodeCache,
    pub(crate) types: Types,
    /// The thread that ran a task of asyncio in the last look at those.
    pub(crate) ran_task: Option<RemoteAddr>,
    pub(crate) resolver: Resolver<FrameId>,
    /// The same for those who look at single frames.
    pub(crate) points: Resolver<Point>,
    /// `_Py_NoneStruct`; null if it is not found.
    pub(crate) none: RemoteAddr,
    pub(crate) chain: Chain,
    shows_gc: bool,
    started: Instant,
    pub(crate) samples: u64,
    /// When the sample began, and what code objects must have been confirmed under to hold in it.
    pub(crate) now_ns: u64,
    epoch_now: u64,
    /// Until when the main interpreter is taken for the only one.
    pub(crate) alone_until_ns: u64,
    pub(crate) ranges: Vec<Range>,
    pub(crate) bytes: Vec<u8>,
    pub(crate) bunch: Bunch,
}

/// A `PyInterpreterState`.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) addr: RemoteAddr,
    pub(crate) fields: Fields,
    /// `struct _gil_runtime_state`; null as long as it has none.
    pub(crate) gil: RemoteAddr,
    /// The thread that holds the lock; null if none does, `None` if that could not be read.
    pub(crate) holder: Option<RemoteAddr>,
    pub(crate) threads: Vec<Thread>,
    names: NameBook,
}

/// Takes the chain that was just read for a thread, of which it is told the number, and how reading went.
pub(crate) type Emit<'a> =
    dyn FnMut(&mut Interpreter, &mut State, usize, Outcome) -> Result<(), ReadError> + 'a;

/// What belongs to one sample.
pub(crate) struct Round<'a, M: ?Sized> {
    memory: &'a M,
    interner: &'a mut Interner,
    out: &'a mut Vec<StackReading>,
    /// What code objects must have been confirmed under to hold.
    epoch: u64,
}

/// What is read of a `PyInterpreterState` with each sample.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Fields {
    pub(crate) id: u64,
    pub(crate) next: RemoteAddr,
    pub(crate) threads_head: RemoteAddr,
    /// Null where the interpreter does not say.
    pub(crate) threads_main: RemoteAddr,
    /// The frame whose code collects garbage right now, if any.
    pub(crate) gc_frame: RemoteAddr,
    pub(crate) code_object_generation: u64,
}

impl Fields {
    /// Interprets the window of an interpreter state.
    pub(crate) fn parse(offsets: &Offsets, window: &[u8]) -> Self {
        let interpreter = &offsets.interpreter;
        let (from, _) = interpreter.window();
        let at = |field: usize| u64_at(window, field - from);
        Self {
            id: at(interpreter.id),
            next: RemoteAddr(at(interpreter.next)),
            threads_head: RemoteAddr(at(interpreter.threads_head)),
            threads_main: RemoteAddr(interpreter.threads_main.map_or(0, at)),
            gc_frame: RemoteAddr(interpreter.gc_frame.map_or(0, at)),
            code_object_generation: interpreter.code_object_generation.map_or(0, at),
        }
    }
}

impl Interpreter {
    /// Finds the CPython of `target` and checks that it is as we expect it.
    ///
    /// # Errors
    ///
    /// [`AttachError::NotPython`], [`AttachError::Unsupported`] and [`AttachError::FreeThreaded`]: there is nothing that
    /// we can read. [`AttachError::NotReady`]: try again in some milliseconds. [`AttachError::Layout`]: the structures
    /// are not where they are in this version. [`AttachError::Read`]: the memory cannot be read.
    pub fn attach<T: Memory + Symbols + ?Sized>(target: &T) -> Result<Self, AttachError> {
        let (version, runtime) = find(target)?.ok_or(AttachError::NotPython)?;
        let offsets = Offsets::of(target, version, runtime)?;
        let mut python = Self {
            version,
            offsets,
            runtime,
            states: Vec::new(),
            codes: CodeCache::default(),
            types: Types::default(),
            ran_task: None,
            resolver: Resolver::default(),
            points: Resolver::default(),
            none: target.symbol("_Py_NoneStruct").unwrap_or_default(),
            chain: Chain::default(),
            shows_gc: false,
            started: Instant::now(),
            samples: 0,
            now_ns: 0,
            epoch_now: 0,
            alone_until_ns: 0,
            ranges: Vec::new(),
            bytes: Vec::new(),
            bunch: Bunch::default(),
        };
        let threads = python.check(target)?;
        native::find(target, &mut python.offsets.thread, &threads)?;
        Ok(python)
    }

    /// The version of the target.
    pub fn version(&self) -> Version {
        self.version
    }

    /// Reads the stacks of all threads of all interpreters into `out`, whose former content is lost.
    ///
    /// `interner` must be the same with each call: numbers that it gave are kept. The name of a thread is empty if the
    /// program does not use the module `threading`; the caller may then take the kernel's. A thread that has gone from
    /// one interpreter into another has a reading for each, with the same `native_tid`.
    ///
    /// # Errors
    ///
    /// [`ReadError::Gone`] and [`ReadError::Denied`]; [`ReadError::Unmapped`] if the process no longer has this
    /// interpreter (an `exec`). `out` is unspecified then.
    ///
    /// # Cost
    ///
    /// One system call for each thread, of which the first is also for the interpreters, while nothing new turns up and nothing
    /// moves.
    pub fn sample<M: Memory + ?Sized>(
        &mut self,
        memory: &M,
        interner: &mut Interner,
        out: &mut Vec<StackReading>,
    ) -> Result<(), ReadError> {
        out.clear();
        self.count_sample();
        let mut first = self.read_with_thread(memory, 0, false);
        if first.is_none() {
            self.refresh(memory)?;
        }
        self.begin_epoch();
        let mut round = self.round(memory, interner, out);
        let mut emit = |python: &mut Self, state: &mut State, at: usize, outcome: Outcome| {
            python.emit(&mut round, state, at, outcome)
        };
        let mut states = std::mem::take(&mut self.states);
        let result =
            states.iter_mut().try_for_each(|state| self.sample_state(memory, state, first.take(), &mut emit));
        self.states = states;
        result
    }

    /// Begins a sample.
    pub(crate) fn begin<M: Memory + ?Sized>(&mut self, memory: &M) -> Result<(), ReadError> {
        self.count_sample();
        self.refresh(memory)?;
        self.begin_epoch();
        Ok(())
    }

    /// Looks that have not been settled by now are lost: what is planned for them may not hold any more.
    pub(crate) fn count_sample(&mut self) {
        self.bunch.forget();
        self.samples += 1;
        self.now_ns = u64::try_from(self.started.elapsed().as_nanos()).unwrap_or(u64::MAX);
    }

    /// Says what holds of code objects, after the interpreters have been read.
    pub(crate) fn begin_epoch(&mut self) {
        self.epoch_now = self.epoch(self.now_ns);
        self.codes.begin(self.epoch_now, self.now_ns);
    }

    pub(crate) fn round<'a, M: Memory + ?Sized>(
        &self,
        memory: &'a M,
        interner: &'a mut Interner,
        out: &'a mut Vec<StackReading>,
    ) -> Round<'a, M> {
        Round { memory, interner, out, epoch: self.epoch_now }
    }

    /// Holds what the target has against what this version has: a build with other options has other structures.
    ///
    /// The threads of the main interpreter, as they were just now.
    fn check<M: Memory + ?Sized>(&mut self, memory: &M) -> Result<Vec<Thread>, AttachError> {
        let layout = |what| AttachError::Layout { version: self.version, what };
        let head = read_addr(memory, self.runtime.offset(self.offsets.interpreters_head as u64))?;
        if head.is_null() {
            return Err(AttachError::NotReady);
        }
        let states = self.walk(memory, head).map_err(|error| match error {
            ReadError::Unmapped { .. } => layout("interpreter state"),
            error => error.into(),
        })?;
        // The list is newest first; the main interpreter, which has the number 0, ends it.
        let main =
            states.last().filter(|state| state.fields.id == 0).ok_or_else(|| layout("interpreter state"))?;
        if main.fields.threads_head.is_null() {
            return Err(AttachError::NotReady);
        }
        let threads = threads::walk(memory, &self.offsets, main.addr, main.fields.threads_head, Vec::new())?;
        if threads.is_empty() {
            return Err(layout("thread state"));
        }
        Ok(threads)
    }

    /// Brings the list of interpreters, and what is read of each, up to date.
    pub(crate) fn refresh<M: Memory + ?Sized>(&mut self, memory: &M) -> Result<(), ReadError> {
        if self.read_states(memory)? {
            return Ok(());
        }
        let head = read_addr(memory, self.runtime.offset(self.offsets.interpreters_head as u64))?;
        let mut old = std::mem::take(&mut self.states);
        self.states = self.walk(memory, head)?;
        for state in &mut self.states {
            let same = |known: &State| known.addr == state.addr && known.fields.id == state.fields.id;
            if let Some(at) = old.iter().position(same) {
                *state = State { fields: state.fields, ..old.swap_remove(at) };
            }
        }
        // If the list has changed again, this sample takes it as it was just now.
        self.read_states(memory).map(|_| ())
    }

    /// Reads the known interpreters in one system call; false if the list is not the known one.
    fn read_states<M: Memory + ?Sized>(&mut self, memory: &M) -> Result<bool, ReadError> {
        let with_head = self.now_ns >= self.alone_until_ns || !self.is_main_alone();
        self.list_ranges(memory, with_head);
        self.bytes.resize(self.ranges.iter().map(|range| range.len).sum(), 0);
        let done = memory.read_ranges(&self.ranges, &mut self.bytes)?;
        if done == 0 {
            let range = self.ranges[0];
            return Err(ReadError::Unmapped { addr: range.addr, len: range.len });
        }
        Ok(done == self.ranges.len() && self.note_states(with_head))
    }

    /// Reads the chain of thread number `at` of the first interpreter and the known interpreters in one system call, in this order: what
    /// was confirmed under the count of dead code objects that it finds was alive when the chain was copied. `None` if the list is not
    /// the known one, there is no such thread, or garbage is collected.
    pub(crate) fn read_with_thread<M: Memory + ?Sized>(
        &mut self,
        memory: &M,
        at: usize,
        briefly: bool,
    ) -> Option<Result<Outcome, ReadError>> {
        self.states.first()?.threads.get(at)?;
        let with_head = self.now_ns >= self.alone_until_ns || !self.is_main_alone();
        self.list_ranges(memory, with_head);
        let ranges = std::mem::take(&mut self.ranges);
        let trailing = Trailing::new(memory, ranges, std::mem::take(&mut self.bytes));
        let thread = self.states.first_mut()?.threads.get_mut(at)?;
        let outcome = thread.read(&trailing, &self.offsets, &mut self.chain, self.now_ns, briefly);
        let (ranges, bytes) = trailing.into_parts();
        self.ranges = ranges;
        self.bytes = bytes?;
        let is_known = self.note_states(with_head);
        // Of that the interpreter has to tell before the chain is copied, and again after it.
        let collects = self.states.first().is_some_and(|state| !state.fields.gc_frame.is_null());
        (is_known && !collects).then_some(outcome)
    }

    pub(crate) fn is_main_alone(&self) -> bool {
        self.states.len() == 1 && self.states[0].fields.id == 0
    }

    /// Lists what is read of the known interpreters, `with_head` also where their list begins.
    pub(crate) fn list_ranges<M: Memory + ?Sized>(&mut self, memory: &M, with_head: bool) {
        let offsets = &self.offsets;
        let (from, to) = offsets.interpreter.window();
        let gil = &offsets.gil;
        let (gil_from, gil_len) = gil.window();
        self.ranges.clear();
        if with_head {
            self.ranges.push(Range::new(self.runtime.offset(offsets.interpreters_head as u64), 8));
        }
        for state in &mut self.states {
            if state.gil.is_null() {
                state.gil = match gil.place {
                    GilPlace::Runtime(at) => self.runtime.offset(at as u64),
                    // Null while the interpreter is being made.
                    GilPlace::InterpreterPointer(at) => {
                        read_addr(memory, state.addr.offset(at as u64)).unwrap_or_default()
                    }
                };
            }
            let window = Range::new(state.addr.offset(from as u64), to - from);
            self.ranges.push(window);
            let lock = state.gil.offset(gil_from as u64);
            // An interpreter's own lock lies within it, where it is copied with it: each range costs 0.2 us and more.
            if !state.gil.is_null() && window.find(lock, gil_len).is_none() {
                self.ranges.push(Range::new(lock, gil_len));
            }
        }
    }

    /// Takes what was read of the known interpreters; false if the list is not the known one.
    pub(crate) fn note_states(&mut self, with_head: bool) -> bool {
        let offsets = &self.offsets;
        let (from, to) = offsets.interpreter.window();
        let gil = &offsets.gil;
        let (gil_from, gil_len) = gil.window();
        let (mut expected, mut at) = match self.states.first() {
            Some(known) if !with_head => (known.addr, 0),
            _ => (addr_at(&self.bytes, 0), 8),
        };
        for state in &mut self.states {
            if state.addr != expected {
                return false;
            }
            let window = &self.bytes[at..at + to - from];
            state.fields = Fields::parse(offsets, window);
            at += to - from;
            state.holder = None;
            if !state.gil.is_null() {
                let range = Range::new(state.addr.offset(from as u64), to - from);
                state.holder = Some(match range.find(state.gil.offset(gil_from as u64), gil_len) {
                    Some(lock) => gil.holder(&window[lock..lock + gil_len]),
                    None => {
                        at += gil_len;
                        gil.holder(&self.bytes[at - gil_len..at])
                    }
                });
            }
            expected = state.fields.next;
        }
        let is_known = expected.is_null() && !self.states.is_empty();
        if with_head && is_known {
            self.alone_until_ns = self.now_ns.saturating_add(ALONE_NS);
        }
        is_known
    }

    /// Follows the list of interpreters from `head`.
    fn walk<M: Memory + ?Sized>(&self, memory: &M, head: RemoteAddr) -> Result<Vec<State>, ReadError> {
        let (from, to) = self.offsets.interpreter.window();
        let mut window = vec![0; to - from];
        let mut states = Vec::new();
        let mut seen = HashSet::new();
        let mut at = head;
        while !at.is_null() && states.len() < MAX_INTERPRETERS && seen.insert(at) {
            memory.read(at.offset(from as u64), &mut window)?;
            let fields = Fields::parse(&self.offsets, &window);
            states.push(State {
                addr: at,
                fields,
                gil: RemoteAddr::NULL,
                holder: None,
                threads: Vec::new(),
                names: NameBook::default(),
            });
            at = fields.next;
        }
        Ok(states)
    }

    /// What code objects must have been confirmed under to hold, see `code.rs`.
    pub(crate) fn epoch(&self, now_ns: u64) -> u64 {
        match self.offsets.interpreter.code_object_generation {
            // Interpreters may free each other's memory: the count of all counts. An interpreter that ends or begins
            // changes the sum in practice always.
            Some(_) => self.states.iter().fold(1, |sum: u64, state| {
                sum.wrapping_mul(31)
                    .wrapping_add(state.addr.0)
                    .wrapping_add(state.fields.code_object_generation)
            }),
            // In such a process each sample has an epoch of its own: no other number of this kind is as large.
            None if self.codes.is_volatile(now_ns) => (1 << 63) | self.samples,
            None => now_ns / CONFIRMED_NS + 1,
        }
    }

    /// Reads all threads of an interpreter, and passes the number of each to `emit` as soon as its chain has been read.
    ///
    /// `first` is how reading the chain of its first thread went, if that was done already.
    pub(crate) fn sample_state<M: Memory + ?Sized>(
        &mut self,
        memory: &M,
        state: &mut State,
        mut first: Option<Result<Outcome, ReadError>>,
        emit: &mut Emit<'_>,
    ) -> Result<(), ReadError> {
        // The list is taken for the known one as long as it begins with the same thread and each thread names the same
        // successor as before. Where it does not, it is followed anew, once per sample.
        let head = state.fields.threads_head;
        let mut walked = state.threads.first().map_or(RemoteAddr::NULL, |thread| thread.addr) != head;
        if walked {
            // That thread is not the first any more.
            first = None;
            self.walk_threads(memory, state, head)?;
        }
        let mut at = 0;
        while at < state.threads.len() {
            let successor = state.threads.get(at + 1).map_or(RemoteAddr::NULL, |thread| thread.addr);
            let thread = &mut state.threads[at];
            at += 1;
            if thread.sampled == self.samples {
                continue;
            }
            let outcome = first
                .take()
                .unwrap_or_else(|| thread.read(memory, &self.offsets, &mut self.chain, self.now_ns, false));
            let outcome = match outcome {
                Ok(outcome) => Some(outcome),
                Err(ReadError::Unmapped { .. }) => None,
                Err(error) => return Err(error),
            };
            let belongs = outcome.is_some() && thread.links.interp == state.addr;
            let as_known = belongs && thread.links.next == successor;
            if !as_known && !walked {
                walked = true;
                let head = state.addr.offset(self.offsets.interpreter.threads_head as u64);
                let head = read_addr(memory, head).unwrap_or_default();
                self.walk_threads(memory, state, head)?;
                at = 0;
                continue;
            }
            if let Some(outcome) = outcome.filter(|_| belongs) {
                thread.sampled = self.samples;
                emit(self, state, at - 1, outcome)?;
            }
        }
        Ok(())
    }

    pub(crate) fn walk_threads<M: Memory + ?Sized>(
        &self,
        memory: &M,
        state: &mut State,
        head: RemoteAddr,
    ) -> Result<(), ReadError> {
        let known = std::mem::take(&mut state.threads);
        state.threads = threads::walk(memory, &self.offsets, state.addr, head, known)?;
        Ok(())
    }

    /// Interprets the chain that was just read for thread number `at`.
    pub(crate) fn emit<M: Memory + ?Sized>(
        &mut self,
        round: &mut Round<'_, M>,
        state: &mut State,
        at: usize,
        mut outcome: Outcome,
    ) -> Result<(), ReadError> {
        let mut stack = StackId(0);
        let (collects, is_certain) = match outcome {
            Outcome::Torn => (None, true),
            _ => self.collecting(round.memory, state.addr, state.fields.gc_frame, self.shows_gc)?,
        };
        let thread = &mut state.threads[at];
        if outcome != Outcome::Torn {
            match self.stack(round, collects, &mut thread.last)?.filter(|_| is_certain) {
                Some(found) => stack = found,
                None => outcome = Outcome::Torn,
            }
        }
        let links = thread.links;
        if links.native_thread_id == 0 && stack == StackId(0) {
            // A thread that is about to start: there is no such thread yet.
            return Ok(());
        }
        self.renew_name(round.memory, round.interner, state, at)?;
        let thread = &state.threads[at];
        round.out.push(StackReading {
            native_tid: links.native_thread_id,
            thread_key: thread.addr.0,
            interpreter: state.fields.id,
            name: thread.name.text,
            gil: match state.holder {
                None => Gil::Unknown,
                Some(holder) if holder == thread.addr => Gil::Holds,
                Some(_) => Gil::Free,
            },
            outcome,
            truncated: outcome != Outcome::Torn && self.chain.truncated,
            stack,
        });
        Ok(())
    }

    /// Looks the name of thread number `at` up if it is time to.
    pub(crate) fn renew_name<M: Memory + ?Sized>(
        &self,
        memory: &M,
        interner: &mut Interner,
        state: &mut State,
        at: usize,
    ) -> Result<(), ReadError> {
        let modules = state.addr.offset(self.offsets.interpreter.modules as u64);
        let book = Place { offsets: &self.offsets.object, modules, now_ns: self.now_ns };
        let thread = &mut state.threads[at];
        state.names.renew(memory, &book, interner, thread.links.thread_id, &mut thread.name)
    }

    /// Which frame of the chain that was just read collects garbage, if that is of interest, and whether this is certain: what the
    /// interpreter says of it was read before the chain, and part of that perhaps twice.
    pub(crate) fn collecting<M: Memory + ?Sized>(
        &self,
        memory: &M,
        state: RemoteAddr,
        gc_frame: RemoteAddr,
        is_shown: bool,
    ) -> Result<(Option<usize>, bool), ReadError> {
        let (Some(at), true) = (self.offsets.interpreter.gc_frame, is_shown && !gc_frame.is_null()) else {
            return Ok((None, true));
        };
        let collects = self.chain.addrs.iter().position(|addr| *addr == gc_frame);
        let is_certain = collects.is_none() || read_addr(memory, state.offset(at as u64))? == gc_frame;
        Ok((collects, is_certain))
    }

    /// Shows, in the stacks of [`Interpreter::sample`], that a function collects garbage: a marker behind it. From CPython 3.15 on.
    pub fn show_gc(&mut self, shows: bool) {
        self.shows_gc = shows;
    }

    /// The stack of the chain that was just read; `None` if it is torn after all.
    fn stack<M: Memory + ?Sized>(
        &mut self,
        round: &mut Round<'_, M>,
        collects: Option<usize>,
        last: &mut LastStack<StackId>,
    ) -> Result<Option<StackId>, ReadError> {
        let (codes, chain) = (&mut self.codes, &self.chain);
        let len = self.offsets.frame.len.max(1);
        last.keep_callers(round.epoch, &chain.bytes, len);
        if collects.is_some() {
            // Stacks that are known lack the marker.
            last.frames.clear();
        }
        // Until the frames have been interpreted there is nothing to compare the next ones with.
        last.epoch = 0;
        let known = &mut last.frames;
        let found = self.resolver.stack(
            round.memory,
            &self.offsets,
            codes,
            round.interner,
            (chain, collects),
            known,
        )?;
        if found.is_some() && collects.is_none() {
            last.bytes.clone_from(&chain.bytes);
            // What was only partly read is to be read again.
            last.epoch = if codes.has_gaps() { 0 } else { round.epoch };
        }
        Ok(found)
    }
}
