//! From a chain of frames to a stack.

use slip_model::{Frame, FrameId, FrameKind, Interner, StackId};
use slip_remote::{Chain, FrameLayout, Memory, ReadError, RemoteAddr};

use crate::bytes::addr_at;
use crate::code::{CodeCache, Place};
use crate::offsets::{FRAME_OWNED_BY_GENERATOR, FrameOffsets, Offsets, TAG_BITS};

/// What stands for a frame whose function could not be read.
const UNREADABLE: &str = "[unreadable]";

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
        instruction: pointer(offsets.instr_ptr),
    }
}

/// A frame that may be shown.
#[derive(Clone, Copy, Debug, Default)]
struct RawFrame {
    /// Null for one that stands for the interpreter itself.
    code: RemoteAddr,
    instr_ptr: RemoteAddr,
    /// Frames of generators are complete from the begin.
    may_be_incomplete: bool,
}

/// Interprets frames; keeps its buffers.
#[derive(Debug, Default)]
pub(crate) struct Resolver {
    raw: Vec<RawFrame>,
    /// What is shown of each, if anything.
    frames: Vec<Option<FrameId>>,
    outside: Vec<RemoteAddr>,
}

impl Resolver {
    /// The stack of `chain`; `None` if its frames turn out not to belong together.
    ///
    /// `known` has the stacks that end with callers which need not be interpreted, the outermost first. Those of the other
    /// frames are added.
    pub(crate) fn stack<M: Memory + ?Sized>(
        &mut self,
        memory: &M,
        offsets: &Offsets,
        codes: &mut CodeCache,
        interner: &mut Interner,
        chain: &Chain,
        known: &mut Vec<StackId>,
    ) -> Result<Option<StackId>, ReadError> {
        let frame = &offsets.frame;
        self.raw.clear();
        let all = chain.bytes.chunks_exact(frame.len.max(1));
        let new = all.len().saturating_sub(known.len());
        for bytes in all.take(new) {
            if !frame.may_be_frame(bytes) {
                return Ok(None);
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
                return Ok(None);
            }
            self.raw.push(RawFrame {
                code,
                instr_ptr: addr_at(bytes, frame.instr_ptr),
                may_be_incomplete: bytes.get(frame.owner) != Some(&FRAME_OWNED_BY_GENERATOR),
            });
        }
        self.prepare(memory, offsets, codes, interner)?;
        if self.resolve(offsets, codes, interner) {
            return Ok(Some(self.push(interner, known)));
        }
        // An entry may be confirmed and yet outdated, see `code.rs`. Read these code objects anew, once.
        for addr in self.outside.drain(..) {
            codes.note_replaced(addr);
            codes.forget(addr);
        }
        self.prepare(memory, offsets, codes, interner)?;
        Ok(self.resolve(offsets, codes, interner).then(|| self.push(interner, known)))
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

    /// Puts the frames above the callers whose stacks are `known`.
    fn push(&self, interner: &mut Interner, known: &mut Vec<StackId>) -> StackId {
        let mut stack = known.last().copied().unwrap_or_default();
        for frame in self.frames.iter().rev() {
            stack = frame.map_or(stack, |frame| interner.push(stack, frame));
            known.push(stack);
        }
        stack
    }

    /// False if an instruction is not one of its function.
    fn resolve(&mut self, offsets: &Offsets, codes: &mut CodeCache, interner: &mut Interner) -> bool {
        self.frames.clear();
        self.outside.clear();
        for raw in &self.raw {
            if raw.code.is_null() {
                self.frames.push(None);
                continue;
            }
            match codes.place(offsets, interner, raw.code, raw.instr_ptr, raw.may_be_incomplete) {
                Place::At(frame) => self.frames.push(Some(frame)),
                // None of these is code that the program would recognise.
                Place::Before | Place::NoCode => self.frames.push(None),
                Place::Unreadable => {
                    let name = interner.string(UNREADABLE);
                    self.frames.push(Some(interner.frame(Frame {
                        kind: FrameKind::Marker,
                        name,
                        ..Frame::default()
                    })));
                }
                Place::Outside => self.outside.push(raw.code),
            }
        }
        self.outside.is_empty()
    }
}
