//! What a caller sees who wants each frame by itself: where in which code object it stands, and what its thread is doing.
//!
//! Nothing is named: a [`Point`] says which code object and which instruction, and the caller looks up what that is once, in the
//! [`CodeText`]s that come with the look in which a code object is met first.

use std::ops::Range;

use slip_model::{Interner, Outcome, StringId};
use slip_remote::{Memory, ReadError, RemoteAddr};

use crate::bytes::{addr_at, u32_at};
use crate::code::{CodeCache, CodeId, CodeText, Place};
use crate::frames::{RawFrame, Shown, code_of};
use crate::process::{Emit, Interpreter, State};
use crate::threads::LastStack;

/// Most exceptions that are being handled inside each other which are looked at.
const MAX_EXC_ITEMS: usize = 1_024;

/// A frame, or what stands for something in its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Point {
    /// A function of Python.
    Code {
        /// Its code object.
        code: CodeId,
        /// How many bytes into its instructions the current one is.
        offset: u32,
        /// The first byte of that instruction; 0 if it was not asked for, or could not be read.
        opcode: u8,
    },
    /// Code that is not Python's called what stands before this.
    Native,
    /// The frame after this collects garbage.
    Gc,
    /// A frame whose function could not be read.
    Unreadable,
}

/// Which threads are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which {
    /// All of all interpreters.
    All,
    /// The main thread of the interpreter that was made last.
    Main,
    /// Those that hold the lock of their interpreter.
    Holders,
}

/// Which of these threads are seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keep {
    /// All.
    All,
    /// Those that hold the interpreter's lock.
    Holders,
    /// Those that raise an exception or handle one.
    WithException,
}

/// What is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LookRequest {
    /// Which threads are read.
    pub which: Which,
    /// Which of these are seen.
    pub keep: Keep,
    /// Show [`Point::Native`].
    pub native: bool,
    /// Show [`Point::Gc`], from CPython 3.15 on.
    pub gc: bool,
    /// Read the opcodes.
    pub opcodes: bool,
    /// Find the names that the program gives its threads.
    pub names: bool,
}

/// What was seen. Reused from one look to the next.
#[derive(Debug, Default)]
pub struct Look {
    /// The interpreters, the one that was made last first.
    pub interpreters: Vec<InterpreterLook>,
    /// Their threads; of an interpreter, the one that was made last first.
    pub threads: Vec<ThreadLook>,
    /// Their frames, the innermost first.
    pub points: Vec<Point>,
    /// Code objects that were met first, also by looks that failed. Whoever looks takes them out: they are said once.
    pub texts: Vec<CodeText>,
}

/// What was seen of an interpreter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InterpreterLook {
    /// `PyInterpreterState.id`
    pub id: u64,
    /// Which of the threads are its.
    pub threads: Range<usize>,
}

/// What was seen of a thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ThreadLook {
    /// Address of its `PyThreadState`.
    pub key: RemoteAddr,
    /// The kernel's number of it, in the target's own PID namespace.
    pub native_tid: u64,
    /// The name that the program gave it, if that was asked for; empty if it has none.
    pub name: StringId,
    /// It is the interpreter's main thread.
    pub is_main: bool,
    /// It holds the interpreter's lock.
    pub holds_gil: bool,
    /// It waits for that, and has asked for it; known from CPython 3.15 on.
    pub requests_gil: bool,
    /// It raises an exception or handles one.
    pub has_exception: bool,
    /// How reading its frames went; there are none if they were torn.
    pub outcome: Outcome,
    /// The stack was longer than the limit, and its outermost frames are missing.
    pub truncated: bool,
    /// Which of the points are its.
    pub points: Range<usize>,
}

impl Look {
    fn clear(&mut self) {
        self.interpreters.clear();
        self.threads.clear();
        self.points.clear();
    }
}

impl Interpreter {
    /// Looks at the threads that were asked for.
    ///
    /// `interner` must be the same with each call, and `out` has the same lifetime as it: a code object is described once. What
    /// was in `out` is lost, but for the texts.
    ///
    /// # Errors
    ///
    /// As for [`Interpreter::sample`].
    ///
    /// # Cost
    ///
    /// One system call for each thread, of which the first is also for the interpreters.
    pub fn look<M: Memory + ?Sized>(
        &mut self,
        memory: &M,
        interner: &mut Interner,
        request: &LookRequest,
        out: &mut Look,
    ) -> Result<(), ReadError> {
        out.clear();
        out.texts.append(&mut self.codes.take_texts());
        if !std::mem::replace(&mut self.offsets.thread.status.is_read, true) {
            // More is copied of each thread's state from now on.
            self.states.iter_mut().for_each(|state| state.threads.clear());
        }
        self.count_sample();
        let predicted = self.predicted_thread(request.which);
        let mut first = predicted.and_then(|at| self.read_with_thread(memory, at, false));
        if first.is_none() {
            self.refresh(memory)?;
        }
        self.begin_epoch();
        let mut states = std::mem::take(&mut self.states);
        let mut result = Ok(());
        for (number, state) in states.iter_mut().enumerate() {
            // What was read is the chain of that thread, if anything.
            let first = first.take().filter(|_| number == 0);
            if number > 0 && request.which == Which::Main {
                break;
            }
            let from = out.threads.len();
            let is_seen = request.which != Which::Holders || !state.holder.unwrap_or_default().is_null();
            let mut emit = |python: &mut Self, state: &mut State, at: usize, outcome: Outcome| {
                python.emit_points(memory, interner, request, out, state, (at, outcome))
            };
            result = match request.which {
                Which::All => self.sample_state(memory, state, first, &mut emit),
                Which::Main => {
                    let addr = self.main_thread(memory, state);
                    addr.and_then(|addr| {
                        self.sample_one(memory, state, addr, predicted.zip(first), &mut emit)
                    })
                }
                Which::Holders => match state.holder {
                    Some(addr) if is_seen => {
                        self.sample_one(memory, state, addr, predicted.zip(first), &mut emit)
                    }
                    _ => Ok(()),
                },
            };
            if result.is_err() {
                break;
            }
            if is_seen {
                let threads = from..out.threads.len();
                out.interpreters.push(InterpreterLook { id: state.fields.id, threads });
            }
        }
        self.states = states;
        out.texts.append(&mut self.codes.take_texts());
        result
    }

    /// Has each code object described again when it is met the next time.
    pub fn forget_codes(&mut self) {
        self.codes.forget_all();
        for thread in self.states.iter_mut().flat_map(|state| &mut state.threads) {
            thread.last_seen = LastStack::default();
        }
    }

    /// The thread of the first interpreter that is likely to be asked for.
    fn predicted_thread(&self, which: Which) -> Option<usize> {
        let state = self.states.first()?;
        let addr = match which {
            Which::All => return Some(0),
            Which::Main if state.fields.threads_main.is_null() => return state.threads.len().checked_sub(1),
            Which::Main => state.fields.threads_main,
            Which::Holders => state.holder.filter(|holder| !holder.is_null())?,
        };
        state.threads.iter().position(|thread| thread.addr == addr)
    }

    /// The main thread of an interpreter: the one it names, or the first that it ever had.
    fn main_thread<M: Memory + ?Sized>(
        &self,
        memory: &M,
        state: &mut State,
    ) -> Result<RemoteAddr, ReadError> {
        if !state.fields.threads_main.is_null() {
            return Ok(state.fields.threads_main);
        }
        if state.threads.first().map(|thread| thread.addr) != Some(state.fields.threads_head) {
            self.walk_threads(memory, state, state.fields.threads_head)?;
        }
        Ok(state.threads.last().map_or(RemoteAddr::NULL, |thread| thread.addr))
    }

    /// Reads the thread at `addr` alone. `first` has the number of the thread whose chain was read already, and how that went.
    fn sample_one<M: Memory + ?Sized>(
        &mut self,
        memory: &M,
        state: &mut State,
        addr: RemoteAddr,
        first: Option<(usize, Result<Outcome, ReadError>)>,
        emit: &mut Emit<'_>,
    ) -> Result<(), ReadError> {
        let find = |state: &State| state.threads.iter().position(|thread| thread.addr == addr);
        let mut at = find(state);
        if at.is_none() {
            self.walk_threads(memory, state, state.fields.threads_head)?;
            at = find(state);
        }
        // It has ended since, or has only just begun.
        let Some(at) = at else { return Ok(()) };
        let outcome = match first.filter(|(read, _)| *read == at) {
            Some((_, outcome)) => outcome,
            None => state.threads[at].read(memory, &self.offsets, &mut self.chain, self.now_ns, false),
        };
        match outcome {
            Ok(outcome) if state.threads[at].links.interp == state.addr => emit(self, state, at, outcome),
            // Something else is in its place now.
            Ok(_) | Err(ReadError::Unmapped { .. }) => {
                state.threads.remove(at);
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    /// Notes the chain that was just read for thread number `at`.
    fn emit_points<M: Memory + ?Sized>(
        &mut self,
        memory: &M,
        interner: &mut Interner,
        request: &LookRequest,
        out: &mut Look,
        state: &mut State,
        (at, mut outcome): (usize, Outcome),
    ) -> Result<(), ReadError> {
        let is_last = at + 1 == state.threads.len();
        let thread = &mut state.threads[at];
        let links = thread.links;
        if links.native_thread_id == 0 && self.chain.addrs.is_empty() {
            // A thread that is about to start: there is no such thread yet.
            return Ok(());
        }
        let from = out.points.len();
        let mut seen = ThreadLook {
            key: thread.addr,
            native_tid: links.native_thread_id,
            name: StringId(0),
            is_main: match state.fields.threads_main {
                RemoteAddr::NULL => is_last,
                main => main == thread.addr,
            },
            holds_gil: state.holder == Some(thread.addr),
            requests_gil: false,
            has_exception: false,
            outcome,
            truncated: outcome != Outcome::Torn && self.chain.truncated,
            points: from..from,
        };
        let anchor = &self.chain.anchor;
        // Shorter where nobody asked when the thread was met.
        if anchor.len() >= self.offsets.thread.len() {
            if let Some((holds, requests)) = self.offsets.thread.status.gil {
                seen.holds_gil = u32_at(anchor, holds) != 0;
                seen.requests_gil = !seen.holds_gil && u32_at(anchor, requests) != 0;
            }
            seen.has_exception = self.has_exception(memory, thread.addr)?;
        }
        let is_kept = match request.keep {
            Keep::All => true,
            Keep::Holders => seen.holds_gil,
            Keep::WithException => seen.has_exception,
        };
        if !is_kept {
            return Ok(());
        }
        if request.names {
            self.renew_name(memory, interner, state, at)?;
            seen.name = state.threads[at].name.text;
        }
        let thread = &mut state.threads[at];
        if outcome != Outcome::Torn {
            let is_whole = self.resolve_points(memory, interner, &mut thread.last_seen)?;
            if is_whole {
                let frames = &thread.last_seen.frames;
                let (collects, is_certain) =
                    self.collecting(memory, state.addr, state.fields.gc_frame, request.gc)?;
                if is_certain {
                    Self::collect_points(request, collects, frames, &mut out.points);
                } else {
                    outcome = Outcome::Torn;
                }
                if request.opcodes && is_certain {
                    self.read_opcodes(memory, frames, &mut out.points[from..])?;
                }
            } else {
                outcome = Outcome::Torn;
            }
        }
        out.threads.push(ThreadLook { outcome, points: from..out.points.len(), ..seen });
        Ok(())
    }

    /// Interprets the chain that was just read; false if it is torn after all.
    fn resolve_points<M: Memory + ?Sized>(
        &mut self,
        memory: &M,
        interner: &mut Interner,
        last: &mut LastStack<Shown<Point>>,
    ) -> Result<bool, ReadError> {
        let (offsets, codes, chain) = (&self.offsets, &mut self.codes, &self.chain);
        let epoch = codes.epoch();
        last.keep_callers(epoch, &chain.bytes, offsets.frame.len.max(1));
        last.epoch = 0;
        let place = |codes: &mut CodeCache, _: &mut Interner, raw: &RawFrame| {
            codes
                .point(offsets, raw.code, raw.instr_ptr, raw.may_be_incomplete)
                .and_then(|(code, offset)| Place::At(Point::Code { code, offset, opcode: 0 }))
        };
        let known = last.frames.len();
        if !self.points.resolve(memory, offsets, codes, interner, (chain, known), place)? {
            return Ok(false);
        }
        last.frames.extend(self.points.shown.iter().rev());
        last.bytes.clone_from(&chain.bytes);
        // What was only partly read is to be read again.
        last.epoch = if codes.has_gaps() { 0 } else { epoch };
        Ok(true)
    }

    /// Lists what is seen of `frames`, of which the outermost comes first.
    fn collect_points(
        request: &LookRequest,
        collects: Option<usize>,
        frames: &[Shown<Point>],
        out: &mut Vec<Point>,
    ) {
        let from = out.len();
        for (nth, shown) in frames.iter().rev().enumerate() {
            let collects = |nth: usize| collects == Some(nth);
            if collects(nth) {
                out.push(Point::Gc);
            }
            match shown {
                Shown::Here(point) => out.push(*point),
                Shown::Unreadable => out.push(Point::Unreadable),
                // One at either end leads from no function of Python to another.
                Shown::Shim if request.native => {
                    if out.len() > from && nth + 1 < frames.len() && !collects(nth) && !collects(nth + 1) {
                        out.push(Point::Native);
                    }
                }
                Shown::Shim | Shown::Hidden => {}
            }
        }
    }

    /// Whether the thread whose state was copied last, from `addr`, raises an exception or handles one.
    fn has_exception<M: Memory + ?Sized>(&self, memory: &M, addr: RemoteAddr) -> Result<bool, ReadError> {
        let status = &self.offsets.thread.status;
        let anchor = &self.chain.anchor;
        if !addr_at(anchor, status.current_exception).is_null() {
            return Ok(true);
        }
        let own = addr.offset(status.exc_state as u64);
        let mut at = addr_at(anchor, status.exc_info);
        let mut item = vec![0; status.exc_previous + 8];
        for _ in 0..MAX_EXC_ITEMS {
            if at.is_null() {
                break;
            }
            if at == own {
                item.copy_from_slice(&anchor[status.exc_state..][..status.exc_previous + 8]);
            } else {
                match memory.read(at, &mut item) {
                    Ok(()) => {}
                    // It belongs to a generator that has gone since.
                    Err(ReadError::Unmapped { .. }) => break,
                    Err(error) => return Err(error),
                }
            }
            let value = addr_at(&item, 0);
            if !value.is_null() && value != self.none {
                return Ok(true);
            }
            at = addr_at(&item, status.exc_previous);
        }
        Ok(false)
    }

    /// Fills in the opcodes of the points of the chain that was just read.
    fn read_opcodes<M: Memory + ?Sized>(
        &self,
        memory: &M,
        frames: &[Shown<Point>],
        points: &mut [Point],
    ) -> Result<(), ReadError> {
        let (offsets, codes) = (&self.offsets, &self.codes);
        let bytes = self.chain.bytes.chunks_exact(offsets.frame.len.max(1));
        let here = bytes.zip(frames.iter().rev()).filter(|(_, shown)| matches!(shown, Shown::Here(_)));
        let ranges: Vec<slip_remote::Range> = here
            .map(|(bytes, _)| {
                let code = code_of(&offsets.frame, bytes);
                let at = codes.address_of(offsets, code, offsets.instruction_of(code, bytes));
                slip_remote::Range::new(at, 1)
            })
            .collect();
        let mut read = vec![0; ranges.len()];
        let done = memory.read_ranges(&ranges, &mut read)?;
        let opcodes = points.iter_mut().filter_map(|point| match point {
            Point::Code { opcode, .. } => Some(opcode),
            _ => None,
        });
        for (opcode, byte) in opcodes.zip(&read[..done]) {
            *opcode = *byte;
        }
        Ok(())
    }
}
