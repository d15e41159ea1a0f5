//! The threads of an interpreter, and where each of them stands.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};

use slip_model::{Outcome, StackId};
use slip_remote::{Anchor, Calling, Chain, ChainReader, Head, Memory, Range, ReadError, RemoteAddr};

use crate::bytes::{addr_at, u32_at};
use crate::frames::{self, Shown};
use crate::look::Point;
use crate::names::ThreadName;
use crate::native;
use crate::nested::{Depths, Nested};
use crate::offsets::{CurrentFrame, FrameOffsets, NativeId, Offsets, ThreadOffsets};

/// Most threads of an interpreter. Longer lists are loops that a torn read has made, or hostile.
const MAX_THREADS: usize = 16_384;

/// How many `_PyCFrame` of a thread are read with each sample of 3.11 and 3.12: a call from C has its own, and a program
/// that sorts with a key function goes to and fro between two. Those that were seen last are kept.
const MAX_CFRAMES: usize = 4;

/// A thread of the target.
#[derive(Debug)]
pub(crate) struct Thread {
    pub(crate) addr: RemoteAddr,
    pub(crate) links: Links,
    pub(crate) name: ThreadName,
    /// Number of the sample it was read in last.
    pub(crate) sampled: u64,
    anchor: ThreadAnchor,
    reader: ChainReader,
    depths: Depths,
    pub(crate) last: LastStack<StackId>,
    /// The same for those who look at single frames.
    pub(crate) last_seen: LastStack<Shown<Point>>,
}

/// Frames as they were read last, and what they turned out to be: threads stand still most of the time.
#[derive(Debug)]
pub(crate) struct LastStack<T> {
    pub(crate) bytes: Vec<u8>,
    /// What the code objects had been confirmed under; 0 if the stack must be interpreted anew.
    pub(crate) epoch: u64,
    /// What each frame was, the outermost first: the stack that ends with it, for one.
    pub(crate) frames: Vec<T>,
}

impl<T> Default for LastStack<T> {
    fn default() -> Self {
        Self { bytes: Vec::new(), epoch: 0, frames: Vec::new() }
    }
}

impl<T> LastStack<T> {
    /// Keeps what is known of the callers that are the same in `bytes`, `len` each; nothing if the frames were interpreted
    /// under another epoch. Callers wait: from one sample to the next few of them change.
    pub(crate) fn keep_callers(&mut self, epoch: u64, bytes: &[u8], len: usize) {
        let same = if self.epoch == epoch {
            let pairs = self.bytes.rchunks_exact(len).zip(bytes.rchunks_exact(len));
            pairs.take_while(|(then, now)| then == now).count()
        } else {
            0
        };
        self.frames.truncate(same);
    }
}

/// What a thread state says about its place in the list, and who the thread is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Links {
    pub(crate) next: RemoteAddr,
    pub(crate) interp: RemoteAddr,
    /// `pthread_t`; 0 as long as the state belongs to no thread.
    pub(crate) thread_id: u64,
    pub(crate) native_thread_id: u64,
    /// Which of all states that there were it is, where the state does not have the kernel's number; else 0.
    pub(crate) serial: u64,
}

impl Links {
    fn parse(offsets: &ThreadOffsets, state: &[u8]) -> Self {
        let (mut thread_id, mut native_thread_id, mut serial) = (addr_at(state, offsets.thread_id).0, 0, 0);
        match offsets.native_thread_id {
            NativeId::Field(at) => native_thread_id = addr_at(state, at).0,
            NativeId::Library { serial: at, counter, .. } => {
                serial = addr_at(state, at).0;
                let CurrentFrame::Direct(current) = offsets.current else { return Self::default() };
                if u32_at(state, counter) == 0 && addr_at(state, current).is_null() {
                    thread_id = 0;
                }
            }
        }
        let (next, interp) = (addr_at(state, offsets.next), addr_at(state, offsets.interp));
        Self { next, interp, thread_id, native_thread_id, serial }
    }

    fn who(&self) -> (u64, u64) {
        (self.thread_id, if self.serial == 0 { self.native_thread_id } else { self.serial })
    }
}

impl Thread {
    fn new(offsets: &Offsets, addr: RemoteAddr, links: Links) -> Self {
        Self {
            addr,
            links,
            name: ThreadName::default(),
            sampled: 0,
            anchor: ThreadAnchor::new(offsets, addr),
            reader: ChainReader::new(frames::layout(&offsets.frame)),
            depths: Depths::default(),
            last: LastStack::default(),
            last_seen: LastStack::default(),
        }
    }

    /// Expects the frame of the coroutine that runs at `addr`, and those of no other generators.
    pub(crate) fn expect(&mut self, addr: RemoteAddr) {
        self.reader.expect_instead(addr);
    }

    /// Reads the chain of frames, and the links with it. `briefly`: only where it is expected, and torn if it is elsewhere.
    ///
    /// # Errors
    ///
    /// [`ReadError::Unmapped`] if the thread state is no longer there.
    pub(crate) fn read<M: Memory + ?Sized>(
        &mut self,
        memory: &M,
        offsets: &Offsets,
        chain: &mut Chain,
        now_ns: u64,
        briefly: bool,
    ) -> Result<Outcome, ReadError> {
        chain.anchor.clear();
        self.anchor.instructions.get_mut().begin(now_ns);
        let outcome = if offsets.thread.datastack.is_none() {
            let nested = Nested { memory, anchor: self.anchor.state, depths: &self.depths };
            let outcome = self.reader.read(&nested, &mut self.anchor, chain)?;
            self.depths.note(&chain.addrs);
            outcome
        } else if briefly {
            self.reader.read_briefly(memory, &mut self.anchor, chain)?
        } else {
            self.reader.read(memory, &mut self.anchor, chain)?
        };
        self.note_links(offsets, &chain.anchor);
        self.find_native_id(memory, offsets)?;
        Ok(outcome)
    }

    /// Plans a copy that is judged later, at the end of `ranges`; false if the thread is to be read at once, as things are.
    pub(crate) fn plan_copy(&mut self, offsets: &Offsets, ranges: &mut Vec<Range>) -> bool {
        let has_own_number = matches!(offsets.thread.native_thread_id, NativeId::Field(_));
        has_own_number && self.links.native_thread_id != 0 && self.reader.plan_copy(&self.anchor, ranges)
    }

    /// Whether a planned copy, of which this is the thread's state, is of the same thread, and has its innermost frame.
    pub(crate) fn is_as_planned(&self, offsets: &Offsets, state: &[u8]) -> bool {
        let CurrentFrame::Direct(current) = offsets.thread.current else { return false };
        let current = addr_at(state, current);
        let chunk =
            offsets.thread.datastack.map(|(chunk, limit)| (addr_at(state, chunk), addr_at(state, limit)));
        Links::parse(&offsets.thread, state) == self.links
            && chunk == Some(self.anchor.chunk)
            && self.reader.has_planned(current)
    }

    /// Reads the chain, and the links with it, from what was copied as planned. Torn if that does not suffice.
    ///
    /// # Errors
    ///
    /// As for [`Thread::read`].
    pub(crate) fn read_copied<M: Memory + ?Sized>(
        &mut self,
        memory: &M,
        offsets: &Offsets,
        (chain, now_ns): (&mut Chain, u64),
        copied: &mut Vec<u8>,
    ) -> Result<Outcome, ReadError> {
        chain.anchor.clear();
        self.anchor.instructions.get_mut().begin_late(now_ns);
        let outcome = self.reader.read_copied(memory, &mut self.anchor, chain, copied)?;
        self.note_links(offsets, &chain.anchor);
        Ok(outcome)
    }

    /// Asks for the kernel's number where the thread state does not have it.
    pub(crate) fn find_native_id<M: Memory + ?Sized>(
        &mut self,
        memory: &M,
        offsets: &Offsets,
    ) -> Result<(), ReadError> {
        if self.links.native_thread_id == 0 && self.links.serial != 0 {
            self.links.native_thread_id =
                native::read(memory, &offsets.thread.native_thread_id, &self.links)?;
        }
        Ok(())
    }

    /// Takes the links from what was copied of the thread state.
    pub(crate) fn note_links(&mut self, offsets: &Offsets, anchor: &[u8]) {
        if anchor.len() >= offsets.thread.len() {
            let mut links = Links::parse(&offsets.thread, anchor);
            if links.serial != 0 && links.who() == self.links.who() {
                links.native_thread_id = self.links.native_thread_id;
            }
            // Another thread has taken the place of the one that was here. Its `pthread_t` is often the same.
            if links.who() != self.links.who() {
                self.name = ThreadName::default();
            }
            self.links = links;
        }
    }
}

/// Follows the list of threads from `head`, keeping what is known of those in `old`.
///
/// Ends early where a state cannot be read or belongs to another interpreter: the list has changed meanwhile, and the
/// next sample will see that.
pub(crate) fn walk<M: Memory + ?Sized>(
    memory: &M,
    offsets: &Offsets,
    interp: RemoteAddr,
    head: RemoteAddr,
    mut old: Vec<Thread>,
) -> Result<Vec<Thread>, ReadError> {
    let mut threads = Vec::new();
    let mut seen = HashSet::new();
    let mut state = vec![0; offsets.thread.links_len()];
    let mut at = head;
    while !at.is_null() && threads.len() < MAX_THREADS && seen.insert(at) {
        match memory.read(at, &mut state) {
            Ok(()) => {}
            Err(ReadError::Unmapped { .. }) => break,
            Err(error) => return Err(error),
        }
        let mut links = Links::parse(&offsets.thread, &state);
        if links.interp != interp {
            break;
        }
        if links.serial != 0 {
            links.native_thread_id = native::read(memory, &offsets.thread.native_thread_id, &links)?;
        }
        // The memory of a thread that has ended may belong to another one now. A thread that is just starting gets its
        // ids while we watch; it is not another one.
        let same = |thread: &Thread| {
            let (then, now) = (thread.links.native_thread_id, links.native_thread_id);
            thread.addr == at && thread.links.serial == links.serial && (then == now || then == 0)
        };
        threads.push(match old.iter().position(same) {
            Some(known) => Thread { links, ..old.swap_remove(known) },
            None => Thread::new(offsets, at, links),
        });
        at = links.next;
    }
    Ok(threads)
}

/// For so long an instruction is taken to be the same: it is specialised a few times in its life, and reading one takes a system
/// call. Looks that lie further apart read it each time.
const INSTRUCTIONS_NS: u64 = 1_000_000;

/// Most instructions that are remembered beyond that.
const MAX_INSTRUCTIONS: usize = 4_096;

/// Bytes of instructions that were read lately.
#[derive(Debug, Default)]
struct Instructions {
    /// With the number of the turn in which each was read.
    bytes: HashMap<RemoteAddr, (u8, u32)>,
    turn: u32,
    until_ns: u64,
    /// What was copied before is judged now: where an instruction cannot be read any more, as of a process that has ended since, it is
    /// what it was before. No code object has died from then to the copy, so it is the same instruction.
    is_late: bool,
}

impl Instructions {
    /// Begins a look: what was read too long ago is forgotten.
    fn begin(&mut self, now_ns: u64) {
        self.is_late = false;
        if self.is_over(now_ns) {
            self.bytes.clear();
        }
    }

    /// Begins to judge a copy that was made before: what was read too long ago counts only where it cannot be read again.
    fn begin_late(&mut self, now_ns: u64) {
        self.is_late = true;
        if self.is_over(now_ns) && self.bytes.len() > MAX_INSTRUCTIONS {
            self.bytes.clear();
        }
    }

    fn is_over(&mut self, now_ns: u64) -> bool {
        let is_over = now_ns >= self.until_ns;
        if is_over {
            self.turn = self.turn.wrapping_add(1);
            self.until_ns = now_ns.saturating_add(INSTRUCTIONS_NS);
        }
        is_over
    }

    /// As `read`, but from memory of ours where that holds.
    fn read(
        &mut self,
        addr: RemoteAddr,
        buf: &mut [u8],
        read: &dyn Fn(RemoteAddr, &mut [u8]) -> bool,
    ) -> bool {
        let [byte] = buf else { return read(addr, buf) };
        let known = self.bytes.get(&addr).copied();
        if let Some((known, turn)) = known
            && turn == self.turn
        {
            *byte = known;
            return true;
        }
        let is_read = read(addr, std::slice::from_mut(byte));
        if is_read {
            self.bytes.insert(addr, (*byte, self.turn));
        } else if let Some((known, _)) = known.filter(|_| self.is_late) {
            *byte = known;
            return true;
        }
        is_read
    }
}

/// Finds the innermost frame of a thread.
#[derive(Debug)]
struct ThreadAnchor {
    offsets: ThreadOffsets,
    frame: FrameOffsets,
    state: Range,
    /// Where the outermost frame is, as the thread state says, and what was copied of one.
    base_addr: Option<RemoteAddr>,
    base_frame: Option<(RemoteAddr, Vec<u8>)>,
    /// The chunk of the data stack in use.
    chunk: (RemoteAddr, RemoteAddr),
    /// What instructions were read lately.
    instructions: RefCell<Instructions>,
    /// Addresses of `_PyCFrame` seen lately, latest first, and those that the last request asked for.
    cframes: RefCell<(Vec<RemoteAddr>, Vec<RemoteAddr>)>,
}

impl ThreadAnchor {
    fn new(offsets: &Offsets, addr: RemoteAddr) -> Self {
        let state = Range::new(addr, offsets.thread.len());
        Self {
            offsets: offsets.thread,
            frame: offsets.frame,
            state,
            base_addr: None,
            base_frame: None,
            chunk: (RemoteAddr::NULL, RemoteAddr::NULL),
            instructions: RefCell::default(),
            cframes: RefCell::default(),
        }
    }
}

impl Anchor for ThreadAnchor {
    fn ranges(&self, out: &mut Vec<Range>) {
        out.push(self.state);
        if let CurrentFrame::CFrame { current_frame, .. } = self.offsets.current {
            let (known, asked) = &mut *self.cframes.borrow_mut();
            asked.clone_from(known);
            out.extend(asked.iter().map(|cframe| Range::new(cframe.offset(current_frame as u64), 8)));
        }
    }

    fn forget(&mut self) -> bool {
        let (known, _) = self.cframes.get_mut();
        let any = !known.is_empty();
        known.clear();
        any
    }

    fn names_innermost(&self) -> bool {
        // The other one is named some instructions before it is filled in.
        matches!(self.offsets.current, CurrentFrame::Direct(_))
    }

    fn standing_frame(&self) -> Option<(RemoteAddr, &[u8])> {
        let (addr, bytes) = self.base_frame.as_ref()?;
        (Some(*addr) == self.base_addr).then_some((*addr, bytes))
    }

    fn note_outermost(&mut self, addr: RemoteAddr, frame: &[u8]) {
        let is_known = self.base_frame.as_ref().is_some_and(|(known, _)| *known == addr);
        if !is_known && self.base_addr == Some(addr) && self.frame.is_shim(frame) {
            self.base_frame = Some((addr, frame.to_vec()));
        }
    }

    fn decode(&mut self, bytes: &[u8]) -> Option<Head> {
        let current = match self.offsets.current {
            CurrentFrame::Direct(at) => {
                self.base_addr = self.offsets.base_frame.map(|at| addr_at(bytes, at));
                addr_at(bytes, at)
            }
            CurrentFrame::CFrame { cframe, .. } => {
                let now = addr_at(bytes, cframe);
                let (known, asked) = self.cframes.get_mut();
                if known.first() != Some(&now) {
                    known.retain(|cframe| *cframe != now);
                    known.truncate(MAX_CFRAMES - 1);
                    known.insert(0, now);
                }
                let at = asked.iter().position(|cframe| *cframe == now)?;
                let current = addr_at(bytes, self.state.len + 8 * at);
                // Only the one in the thread state, which lies below all calls, has no frame. Another one that shows none
                // has been left since.
                if current.is_null() && self.state.find(now, 8).is_none() {
                    return None;
                }
                current
            }
        };
        let Some((chunk, limit)) = self.offsets.datastack else {
            return Some(Head { current, limit: RemoteAddr::NULL });
        };
        let (chunk, limit) = (addr_at(bytes, chunk), addr_at(bytes, limit));
        self.chunk = (chunk, limit);
        // The frame of a generator lies in the generator: what comes after it may be anything, or nothing.
        let limit = if (chunk..limit).contains(&current) { limit } else { RemoteAddr::NULL };
        Some(Head { current, limit })
    }

    fn chunk(&self) -> Option<(RemoteAddr, RemoteAddr)> {
        // Before 3.11 frames lie anywhere, so that none can be told to belong to another by one copy.
        self.offsets.datastack.map(|_| self.chunk)
    }

    fn may_be_frame(&self, frame: &[u8]) -> bool {
        self.frame.may_be_frame(frame)
    }

    fn is_over(&self, frame: &[u8]) -> Option<bool> {
        self.frame.is_over(frame)
    }

    fn is_called(&self, frame: &[u8]) -> bool {
        self.frame.is_called(frame)
    }

    fn runs(&self, frame: &[u8]) -> Option<bool> {
        self.frame.runs(frame)
    }

    fn is_outermost(
        &self,
        read: &dyn Fn(RemoteAddr, &mut [u8]) -> bool,
        head: Head,
        addr: RemoteAddr,
        frame: (&[u8], &[u8]),
    ) -> bool {
        // Without such a frame what stands for the interpreter begins a stack, but is none by itself.
        let may_begin = match self.base_addr {
            Some(base) => base == addr,
            None => addr != head.current || !self.frame.is_shim(frame.1),
        };
        may_begin && self.frame.is_outermost(read, head, addr, frame)
    }

    fn is_shim(&self, frame: &[u8]) -> bool {
        self.frame.is_shim(frame)
    }

    fn calling(&self, read: &dyn Fn(RemoteAddr, &mut [u8]) -> bool, caller: &[u8], callee: &[u8]) -> Calling {
        let read = |addr: RemoteAddr, buf: &mut [u8]| self.instructions.borrow_mut().read(addr, buf, read);
        self.frame.calling(&read, caller, callee)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The thread state of a version that says where its outermost frame is, `at` bytes from its begin.
    fn anchor_of(at: u64) -> (ThreadAnchor, Vec<u8>, RemoteAddr) {
        let mut offsets = crate::offsets::tests::OFFSETS;
        offsets.thread.current = CurrentFrame::Direct(56);
        offsets.thread.base_frame = Some(64);
        let state = RemoteAddr(0x7000);
        let mut bytes = vec![0; offsets.thread.len()];
        bytes[64..72].copy_from_slice(&state.offset(at).0.to_le_bytes());
        (ThreadAnchor::new(&offsets, state), bytes, state.offset(at))
    }

    #[test]
    fn the_outermost_frame_is_copied_once() {
        let (mut anchor, bytes, addr) = anchor_of(888);
        let mut frame = vec![0; anchor.frame.len];
        frame[anchor.frame.owner] = anchor.frame.first_shim_owner;
        anchor.note_outermost(addr, &frame);
        assert_eq!(anchor.standing_frame(), None, "the state has not been read");
        anchor.decode(&bytes).unwrap();
        anchor.note_outermost(addr.offset(8), &frame);
        assert_eq!(anchor.standing_frame(), None, "another frame");
        anchor.note_outermost(addr, &frame);
        assert_eq!(anchor.standing_frame(), Some((addr, &frame[..])));
        // Another thread state has come into this place.
        let (_, bytes, _) = anchor_of(1_000);
        anchor.decode(&bytes).unwrap();
        assert_eq!(anchor.standing_frame(), None);
    }

    #[test]
    fn a_frame_of_a_function_is_never_taken_to_stand() {
        let (mut anchor, bytes, addr) = anchor_of(888);
        anchor.decode(&bytes).unwrap();
        anchor.note_outermost(addr, &vec![0; anchor.frame.len]);
        assert_eq!(anchor.standing_frame(), None);
    }

    #[test]
    fn callers_are_kept_from_the_outermost_to_the_first_that_differs() {
        let last = |stacks: &[u32]| LastStack {
            bytes: b"aabbcc".to_vec(),
            epoch: 7,
            frames: stacks.iter().copied().map(StackId).collect(),
        };
        let kept = |epoch, bytes: &[u8]| {
            let mut last = last(&[1, 2, 3]);
            last.keep_callers(epoch, bytes, 2);
            last.frames.len()
        };
        assert_eq!(kept(7, b"aabbcc"), 3);
        assert_eq!(kept(7, b"axbbcc"), 2, "the innermost frame has moved on");
        assert_eq!(kept(7, b"xxaabbcc"), 3, "it has called another one");
        assert_eq!(kept(7, b"bbcc"), 2, "it has returned");
        assert_eq!(kept(7, b"aabxcc"), 1, "what is above a frame that differs is another stack");
        assert_eq!(kept(7, b"aabbcx"), 0);
        assert_eq!(kept(8, b"aabbcc"), 0, "code objects may be others now");
        assert_eq!(kept(7, b""), 0);
    }
}
