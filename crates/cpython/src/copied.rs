//! Stacks that were copied in the thread's own context, where it stands still: how to copy them, and what they are.

use std::collections::HashMap;
use std::time::Instant;

use slip_model::{Interner, Outcome, StackId, StackReading, Step};
use slip_remote::{Copied, Memory, PlanRange, ReadError, RemoteAddr, StackPlan, ThreadPlan};

use crate::bytes::addr_at;
use crate::code::CodeCache;
use crate::frames::{self, RawFrame, Shown};
use crate::labels::{UNREADABLE, marker};
use crate::offsets::CurrentFrame;
use crate::process::Interpreter;
use crate::threads;

/// How far below and above the base of a thread's local storage its state is looked for. Static variables of the program
/// lie below; above begins `struct pthread` of glibc, 2,304 bytes, which has the values of `pthread_setspecific()`.
const BELOW_BYTES: u64 = 1_024;
const ABOVE_BYTES: u64 = 2_304;

/// Most places that are kept: of the current state, which is null without the interpreter's lock from 3.12 on, and of the
/// one that `PyGILState_Ensure()` finds.
const MAX_SLOTS: usize = 2;

impl Interpreter {
    /// How the stacks of the running threads are copied; `None` if no thread's local storage leads to its state.
    ///
    /// # Errors
    ///
    /// [`ReadError::Gone`] and [`ReadError::Denied`].
    pub fn plan<M: Memory + ?Sized>(&mut self, memory: &M) -> Result<Option<StackPlan>, ReadError> {
        let slots = self.find_slots(memory)?;
        if slots.is_empty() {
            return Ok(None);
        }
        let thread = &self.offsets.thread;
        let (current, indirect) = match thread.current {
            CurrentFrame::Direct(at) => (at, None),
            CurrentFrame::CFrame { cframe, current_frame, .. } => (cframe, Some(current_frame)),
        };
        let mut ranges = vec![PlanRange { addr: RemoteAddr::NULL, len: thread.len(), of_thread: true }];
        if let Some((addr, len)) = self.shared_gil() {
            ranges.push(PlanRange { addr, len, of_thread: false });
        }
        Ok(Some(StackPlan {
            ranges,
            threads: Some(ThreadPlan { slots, thread_id: thread.thread_id, len: thread.way_len() }),
            current: RemoteAddr(current as u64),
            indirect,
            request: None,
            frame: frames::layout(&self.offsets.frame),
            compiled: None,
            in_registers: false,
        }))
    }

    /// The state of the lock, if all interpreters share one: whose each of several was cannot be told from a copy of one.
    fn shared_gil(&self) -> Option<(RemoteAddr, usize)> {
        let gil = self.states.first()?.gil;
        let is_shared = !gil.is_null() && self.states.iter().all(|state| state.gil == gil);
        let (from, len) = self.offsets.gil.window();
        is_shared.then(|| (gil.offset(from as u64), len))
    }

    /// Who held the lock when this was copied.
    fn holder_at(&self, anchor: &[u8]) -> Option<RemoteAddr> {
        let bytes = anchor.get(self.offsets.thread.len()..)?;
        (bytes.len() == self.offsets.gil.window().1).then(|| self.offsets.gil.holder(bytes))
    }

    /// Where threads keep the address of their state: the places where most of them do.
    fn find_slots<M: Memory + ?Sized>(&mut self, memory: &M) -> Result<Vec<i64>, ReadError> {
        self.refresh(memory)?;
        let mut found: HashMap<i64, usize> = HashMap::new();
        let mut bytes = vec![0; usize::try_from(BELOW_BYTES + ABOVE_BYTES).unwrap_or(0)];
        for state in &self.states {
            let (head, offsets) = (state.fields.threads_head, &self.offsets);
            for thread in threads::walk(memory, offsets, state.addr, head, Vec::new())? {
                let base = thread.links.thread_id;
                if base < BELOW_BYTES {
                    continue;
                }
                match memory.read(RemoteAddr(base - BELOW_BYTES), &mut bytes) {
                    Ok(()) => {}
                    Err(ReadError::Unmapped { .. }) => continue,
                    Err(error) => return Err(error),
                }
                for (at, word) in bytes.chunks_exact(8).enumerate() {
                    if addr_at(word, 0) == thread.addr {
                        *found.entry(8 * at as i64 - BELOW_BYTES.cast_signed()).or_default() += 1;
                    }
                }
            }
        }
        let mut slots: Vec<(i64, usize)> = found.into_iter().collect();
        // Among equals variables of the program itself, and of these the ones that lie next to the base.
        slots.sort_by_key(|(slot, threads)| (usize::MAX - threads, *slot > 0, slot.unsigned_abs()));
        slots.truncate(MAX_SLOTS);
        Ok(slots.into_iter().map(|(slot, _)| slot).collect())
    }

    /// Whether code objects were lately found in the place of others.
    pub fn replaces_code(&self) -> bool {
        self.codes.is_volatile(self.now_ns)
    }

    /// Begins to name stacks that have been copied since the last call.
    ///
    /// # Errors
    ///
    /// As for [`Interpreter::sample`].
    pub fn begin_copied<M: Memory + ?Sized>(&mut self, memory: &M) -> Result<(), ReadError> {
        self.begin(memory).map(|_| ())
    }

    /// Names one of them, copied `at` that moment.
    ///
    /// It is [`Outcome::Torn`] if a code object on it has been replaced since. `None` if the thread state is none of this
    /// interpreter's any more.
    ///
    /// # Errors
    ///
    /// As for [`Interpreter::sample`].
    pub fn name_copied<M: Memory + ?Sized>(
        &mut self,
        memory: &M,
        interner: &mut Interner,
        (copied, at): (&Copied<'_>, Instant),
    ) -> Result<Option<StackReading>, ReadError> {
        let Some((state, thread)) = self.find_thread(memory, copied.thread_state)? else { return Ok(None) };
        self.chain.addrs.clear();
        self.chain.addrs.extend_from_slice(copied.addrs);
        self.chain.bytes.clear();
        self.chain.bytes.extend_from_slice(copied.frames);
        self.chain.truncated = copied.truncated;
        let mut states = std::mem::take(&mut self.states);
        states[state].threads[thread].note_links(&self.offsets, copied.anchor);
        states[state].threads[thread].find_native_id(memory, &self.offsets)?;
        states[state].holder = self.holder_at(copied.anchor);
        let mut out = Vec::new();
        let mut round = self.round(memory, interner, &mut out);
        let result = self.emit(&mut round, &mut states[state], thread, Outcome::Clean);
        self.states = states;
        result?;
        let frames = copied.frames.chunks_exact(self.offsets.frame.len.max(1));
        let is_uncertain = frames
            .map(|frame| frames::code_of(&self.offsets.frame, frame))
            .any(|code| self.codes.was_replaced_since(code, at));
        if let Some(reading) = out.last_mut().filter(|_| is_uncertain) {
            *reading =
                StackReading { outcome: Outcome::Torn, stack: StackId(0), truncated: false, ..*reading };
        }
        Ok(out.pop())
    }

    /// What the stack that was named last is made of, the outermost first; nothing if that cannot be told.
    ///
    /// # Errors
    ///
    /// As for [`Interpreter::sample`].
    pub fn steps_copied<M: Memory + ?Sized>(
        &mut self,
        memory: &M,
        interner: &mut Interner,
    ) -> Result<Vec<Step>, ReadError> {
        let offsets = &self.offsets;
        let place = |codes: &mut CodeCache, interner: &mut Interner, raw: &RawFrame| {
            codes.frame(offsets, interner, raw.code, raw.instr_ptr, raw.may_be_incomplete)
        };
        let chain = (&self.chain, 0);
        if !self.resolver.resolve(memory, offsets, &mut self.codes, interner, chain, place)? {
            return Ok(Vec::new());
        }
        let mut steps = Vec::new();
        let frames = self.chain.bytes.chunks_exact(offsets.frame.len.max(1));
        for (at, (bytes, shown)) in frames.zip(&self.resolver.shown).enumerate().rev() {
            // What is outermost from 3.15 on is not entered by anybody.
            let is_base = offsets.thread.base_frame.is_some() && at + 1 == self.resolver.shown.len();
            if offsets.frame.is_entry(bytes) && !is_base {
                steps.push(Step::Entry);
            }
            match shown {
                Shown::Here(frame) => steps.push(Step::Frame(*frame)),
                Shown::Unreadable => steps.push(Step::Frame(marker(interner, UNREADABLE))),
                Shown::Shim | Shown::Hidden => {}
            }
        }
        Ok(steps)
    }

    fn find_thread<M: Memory + ?Sized>(
        &mut self,
        memory: &M,
        addr: RemoteAddr,
    ) -> Result<Option<(usize, usize)>, ReadError> {
        let find = |python: &Self| {
            python.states.iter().enumerate().find_map(|(at, state)| {
                Some((at, state.threads.iter().position(|thread| thread.addr == addr)?))
            })
        };
        if let Some(found) = find(self) {
            return Ok(Some(found));
        }
        let mut states = std::mem::take(&mut self.states);
        let result = states.iter_mut().try_for_each(|state| {
            let head = state.fields.threads_head;
            self.walk_threads(memory, state, head)
        });
        self.states = states;
        result?;
        Ok(find(self))
    }
}
