//! From a chain of frames to a stack.

use slip_model::{FrameId, Interner, StackId};
use slip_remote::{Chain, FrameLayout, Memory, ReadError, RemoteAddr};

use crate::bytes::addr_at;
use crate::code::{CodeCache, Place};
use crate::labels::{GC, UNREADABLE, marker};
use crate::offsets::{FrameOffsets, Offsets, TAG_BITS};

/// The code object that a frame runs.
pub(crate) fn code_of(offsets: &FrameOffsets, frame: &[u8]) -> RemoteAddr {
    RemoteAddr(addr_at(frame, offsets.executable).0 & !TAG_BITS)
}

/// What the reader of chains has to know about frames.
pub(crate) fn layout(offsets: &FrameOffsets) -> FrameLayout {
    let pointer = |at: usize| at..at + 8;
    FrameLayout {
        len: offsets.len,
        previous: offsets.previous,
        identity: Vec::from([pointer(offsets.executable)]),
        instruction: offsets.instruction(),
    }
}

/// A frame that may be shown.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RawFrame {
    /// Null for one that stands for the interpreter itself.
    pub(crate) code: RemoteAddr,
    pub(crate) instr_ptr: RemoteAddr,
    /// Frames of generators are complete from the begin.
    pub(crate) may_be_incomplete: bool,
}

/// What is shown of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shown<T> {
    /// This.
    Here(T),
    /// Nothing: it stands for a call from C into the interpreter.
    Shim,
    /// Nothing that the program would recognise.
    Hidden,
    /// That it could not be read.
    Unreadable,
}

/// Interprets frames; keeps its buffers. `T` is what is shown of a frame.
#[derive(Debug)]
pub(crate) struct Resolver<T> {
    raw: Vec<RawFrame>,
    /// What is shown of each, the innermost first.
    pub(crate) shown: Vec<Shown<T>>,
    outside: Vec<RemoteAddr>,
}

impl<T> Default for Resolver<T> {
    fn default() -> Self {
        Self { raw: Vec::new(), shown: Vec::new(), outside: Vec::new() }
    }
}

impl<T> Resolver<T> {
    /// Interprets all frames of `chain` but the `known` outermost; false if they turn out not to belong together.
    ///
    /// `place` says what is shown of a frame whose code object has been prepared.
    pub(crate) fn resolve<M: Memory + ?Sized>(
        &mut self,
        memory: &M,
        offsets: &Offsets,
        codes: &mut CodeCache,
        interner: &mut Interner,
        (chain, known): (&Chain, usize),
        mut place: impl FnMut(&mut CodeCache, &mut Interner, &RawFrame) -> Place<T>,
    ) -> Result<bool, ReadError> {
        let frame = &offsets.frame;
        self.raw.clear();
        let all = chain.bytes.chunks_exact(frame.len.max(1));
        let new = all.len().saturating_sub(known);
        for bytes in all.take(new) {
            if !frame.may_be_frame(bytes) {
                return Ok(false);
            }
            // Such a frame stands for a call from C into the interpreter: it runs no code of the program.
            if frame.is_shim(bytes) {
                self.raw.push(RawFrame::default());
                continue;
            }
            let code = code_of(frame, bytes);
            // From 3.14 on a function that returns takes its code out of the frame: what was copied is what is left of
            // a call that is over, and the next one has been put in its place since.
            if code.is_null() {
                return Ok(false);
            }
            self.raw.push(RawFrame {
                code,
                instr_ptr: offsets.instruction_of(code, bytes),
                may_be_incomplete: frame.may_be_incomplete(bytes),
            });
        }
        self.prepare(memory, offsets, codes, interner)?;
        if self.place_all(codes, interner, &mut place) {
            return Ok(true);
        }
        // An entry may be confirmed and yet outdated, see `code.rs`. Read these code objects anew, once.
        for addr in self.outside.drain(..) {
            codes.note_replaced(addr);
            codes.forget(addr);
        }
        self.prepare(memory, offsets, codes, interner)?;
        Ok(self.place_all(codes, interner, &mut place))
    }

    fn prepare<M: Memory + ?Sized>(
        &self,
        memory: &M,
        offsets: &Offsets,
        codes: &mut CodeCache,
        interner: &mut Interner,
    ) -> Result<(), ReadError> {
        let shown = self.raw.iter().filter(|raw| !raw.code.is_null());
        codes.prepare(memory, offsets, interner, shown.map(|raw| raw.code))
    }

    /// False if an instruction is not one of its function.
    fn place_all(
        &mut self,
        codes: &mut CodeCache,
        interner: &mut Interner,
        place: &mut impl FnMut(&mut CodeCache, &mut Interner, &RawFrame) -> Place<T>,
    ) -> bool {
        self.shown.clear();
        self.outside.clear();
        for raw in &self.raw {
            if raw.code.is_null() {
                self.shown.push(Shown::Shim);
                continue;
            }
            match place(codes, interner, raw) {
                Place::At(found) => self.shown.push(Shown::Here(found)),
                // None of these is code that the program would recognise.
                Place::Before | Place::NoCode => self.shown.push(Shown::Hidden),
                Place::Unreadable => self.shown.push(Shown::Unreadable),
                Place::Outside => self.outside.push(raw.code),
            }
        }
        self.outside.is_empty()
    }
}

impl Resolver<FrameId> {
    /// The stack of `chain`; `None` if its frames turn out not to belong together.
    ///
    /// `known` has the stacks that end with callers which need not be interpreted, the outermost first. Those of the other
    /// frames are added. Frame number `collects` of the chain, if any, collects garbage; then nothing may be known.
    pub(crate) fn stack<M: Memory + ?Sized>(
        &mut self,
        memory: &M,
        offsets: &Offsets,
        codes: &mut CodeCache,
        interner: &mut Interner,
        (chain, collects): (&Chain, Option<usize>),
        known: &mut Vec<StackId>,
    ) -> Result<Option<StackId>, ReadError> {
        let place = |codes: &mut CodeCache, interner: &mut Interner, raw: &RawFrame| {
            codes.frame(offsets, interner, raw.code, raw.instr_ptr, raw.may_be_incomplete)
        };
        if !self.resolve(memory, offsets, codes, interner, (chain, known.len()), place)? {
            return Ok(None);
        }
        let mut stack = known.last().copied().unwrap_or_default();
        for (nth, shown) in self.shown.iter().enumerate().rev() {
            stack = match shown {
                Shown::Here(frame) => interner.push(stack, *frame),
                Shown::Shim | Shown::Hidden => stack,
                Shown::Unreadable => {
                    let frame = marker(interner, UNREADABLE);
                    interner.push(stack, frame)
                }
            };
            if collects == Some(nth) {
                let frame = marker(interner, GC);
                stack = interner.push(stack, frame);
            }
            known.push(stack);
        }
        Ok(Some(stack))
    }
}
