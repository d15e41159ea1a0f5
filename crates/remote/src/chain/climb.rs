//! The chain as it was when its frames were copied for the first time, by what they say of themselves.
//!
//! Whoever reads memory that another CPU writes slows the writer down: after a copy the target waits some 100 ns for each cache line
//! that it writes next, and those are the lines that calls and returns write. So a second copy shows calls that begin or end far
//! more often than they do: of a target that spends 22 % of its time in a function of 0.5 us it saw 3 %. The first copy is of what
//! nobody has disturbed, as long as nothing is copied before it that the target writes, and nothing that is read later may decide whether
//! it counts. The anchor comes after it and is only a hint where the chain may be; the frames have to say whether they are on it
//! ([`Calling`]):
//!
//! 1. The chain is followed outwards from where the anchor saw the innermost frame, or else from where it was the last time.
//! 2. From the outermost frame inwards, each has to wait for the next one. The first that does not is the innermost.
//! 3. If all of them wait, frames are searched for that have the last one for their caller: they have returned before the anchor was read.
//!    A frame whose caller was not copied tells where to look for that from then on: the anchor may never be there when it is.
//!
//! Frames in one piece belong together: it is copied within some 100 ns. Generators lie elsewhere and are copied right after the chunk. Where
//! frames say that their function has returned, one that has not is taken to be called by what is in its caller's place; only a caller that
//! hardly calls anything there has to be of the same function in a second copy of the chunk. Where they do not say so, both have to be
//! the same after the anchor, too.

use std::cell::Cell;

use super::{Anchor, Calling, Copies, FrameLayout, Head, Look, MAX_FRAMES, reads};
use crate::{Memory, RemoteAddr};

/// So many frames are tried for one from which the chain can be followed outwards.
const MAX_STARTS: usize = 16;

/// A callee is searched for in so many bytes behind the frame before it: locals and values of that lie between.
const MAX_SEARCH_BYTES: u64 = 1_024;

/// C that is called by a function uses at most so much of its stack until it calls another one: all that a thread has as a rule.
const MAX_C_STACK_BYTES: u64 = 8 * 1_024 * 1_024;

/// So often C may be between two frames that returned before the anchor was read.
const MAX_BY_C: usize = 4;

/// So many frames are tried for one that C has called: a hostile target has as many as it likes, in each other.
const MAX_TRIES: u32 = 64;

/// What came of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Climbed {
    /// The chain is known.
    Whole,
    /// Frames that lie apart cannot be told to belong together.
    Moved,
    /// The frames do not say, contradict each other, or there may be others that were not copied.
    Unclear,
}

/// Most frames that stand for the interpreter and are remembered.
const MAX_SHIMS: usize = 16;

/// What is known from earlier looks.
#[derive(Debug, Default)]
pub(super) struct Known {
    /// The chain that was found last, innermost first.
    addrs: Vec<RemoteAddr>,
    bytes: Vec<u8>,
    /// Frames that stand for the interpreter, the latest first. They lie on the C stack, where they are soon overwritten after a call
    /// from C has ended, while what they called is found in the copy of the chunk, which is earlier.
    shims: Vec<(RemoteAddr, Vec<u8>)>,
}

impl Known {
    /// Notes a chain, innermost first.
    pub(super) fn note(&mut self, anchor: &dyn Anchor, len: usize, addrs: &[RemoteAddr], bytes: &[u8]) {
        if self.addrs != addrs {
            for (addr, frame) in addrs.iter().zip(bytes.chunks_exact(len.max(1))).take(MAX_STARTS) {
                if anchor.is_shim(frame) {
                    self.shims.retain(|(known, _)| known != addr);
                    self.shims.insert(0, (*addr, frame.to_vec()));
                    self.shims.truncate(MAX_SHIMS);
                }
            }
        }
        self.addrs.clear();
        self.addrs.extend_from_slice(addrs);
        self.bytes.clear();
        self.bytes.extend_from_slice(bytes);
    }
}

/// One look at a chain, of which the first copy counts.
pub(super) struct Climb<'a, M: ?Sized> {
    layout: &'a FrameLayout,
    look: &'a Look,
    memory: &'a M,
    anchor: &'a dyn Anchor,
    head: Head,
    known: &'a Known,
    /// How many more frames may be tried for one that C has called.
    tries: Cell<u32>,
}

/// Where a frame's callers lead to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Followed {
    /// To the outermost frame.
    Whole,
    /// To what seems to be another outermost frame than the last time: a single copy does not suffice for that.
    Other,
    /// To one that was not copied, and the frame is on the chain.
    Missing,
    /// To nothing: the frame is on no chain any more, or not yet.
    Nowhere,
}

/// Frames that have a certain caller.
#[derive(Default)]
struct Callees {
    /// It waits for this one.
    called: Option<RemoteAddr>,
    /// C may have called these, if they are not over.
    by_c: Vec<RemoteAddr>,
    /// These stand for the interpreter, which may have called others.
    shims: Vec<RemoteAddr>,
    /// It cannot be told, or several are called.
    is_unclear: bool,
}

impl<'a, M: Memory + ?Sized> Climb<'a, M> {
    pub(super) fn new(
        layout: &'a FrameLayout,
        look: &'a Look,
        memory: &'a M,
        anchor: &'a dyn Anchor,
        head: Head,
        known: &'a Known,
    ) -> Self {
        Self { layout, look, memory, anchor, head, known, tries: Cell::new(MAX_TRIES) }
    }

    /// Puts the chain into `addrs`, innermost first.
    pub(super) fn climb(&self, addrs: &mut Vec<RemoteAddr>) -> Climbed {
        // No code runs, or another thread has got the memory of one that has ended.
        if self.head.current.is_null() {
            return Climbed::Unclear;
        }
        let starts = std::iter::once(&self.head.current).chain(&self.known.addrs).take(MAX_STARTS);
        let found = starts.map(|start| self.follow(*start, addrs)).find(|found| *found != Followed::Nowhere);
        if found != Some(Followed::Whole) {
            return Climbed::Unclear;
        }
        addrs.reverse();
        // Those of which both frames are as they were wait as they did.
        let mut waiting = self.links_kept(addrs);
        while let Some(link) = addrs.get(waiting..waiting + 2) {
            match self.calling(link[0], link[1]) {
                Calling::Yes => waiting += 1,
                Calling::Unknown if waiting == 0 || self.may_lead(link[0], link[1]) => waiting += 1,
                Calling::No if self.has_moved(link[0], link[1]) => return Climbed::Moved,
                Calling::No => addrs.truncate(waiting + 1),
                Calling::Apart | Calling::Unknown => return Climbed::Unclear,
            }
        }
        self.drop_shims(addrs);
        // Where nothing was copied there may be a callee.
        let is_told = self.add_callees(addrs, MAX_BY_C).is_some() && self.cut_what_is_over(addrs);
        let is_begun = self.look.standing.is_some() || !addrs.iter().all(|addr| self.is_shim(*addr));
        if !is_told || !is_begun || self.first(self.head.current).is_none() {
            return Climbed::Unclear;
        }
        if !self.belong_together(addrs) {
            return Climbed::Moved;
        }
        addrs.reverse();
        Climbed::Whole
    }

    /// The frame at `addr` as it was copied first, or remembered where it has been overwritten since it called.
    pub(super) fn first(&self, addr: RemoteAddr) -> Option<&[u8]> {
        let copied = self.copied(addr);
        if copied.is_some_and(|frame| self.anchor.is_shim(frame)) {
            return copied;
        }
        self.remembered().find(|(shim, _)| *shim == addr).map(|(_, frame)| frame).or(copied)
    }

    /// Frames that stand for the interpreter and have callers.
    fn remembered(&self) -> impl Iterator<Item = (RemoteAddr, &[u8])> {
        let shims = self.known.shims.iter().map(|(shim, frame)| (*shim, &frame[..]));
        shims.filter(|(_, frame)| !self.layout.previous(frame).is_null())
    }

    fn copied(&self, addr: RemoteAddr) -> Option<&[u8]> {
        self.look.frame(addr, self.layout.len).map(|(first, _)| first)
    }

    fn is_shim(&self, addr: RemoteAddr) -> bool {
        self.first(addr).is_some_and(|frame| self.anchor.is_shim(frame))
    }

    /// Follows the callers of a frame.
    fn follow(&self, start: RemoteAddr, addrs: &mut Vec<RemoteAddr>) -> Followed {
        addrs.clear();
        // What is only remembered leads from frames that were copied, and is no begin by itself.
        if self.first(start) != self.copied(start) {
            return Followed::Nowhere;
        }
        let mut at = start;
        while addrs.len() < MAX_FRAMES {
            let Some(frame) = self.first(at) else { return self.missing_from(start) };
            if !self.anchor.may_be_frame(frame) {
                return Followed::Nowhere;
            }
            addrs.push(at);
            let previous = self.layout.previous(frame);
            if previous.is_null() {
                let Some(copies) = self.look.frame(at, self.layout.len) else { return Followed::Nowhere };
                if !self.anchor.is_outermost(&reads(self.memory), self.head, at, copies) {
                    return Followed::Nowhere;
                }
                // A generator may seem to be one while it is resumed.
                let (from, limit) = self.anchor.chunk().unwrap_or_default();
                let stays = (from..limit).contains(&at) || self.anchor.is_shim(frame);
                let is_known = self.known.addrs.last() == Some(&at);
                let is_whole = is_known && (stays || self.look.copies == Copies::All);
                return if is_whole { Followed::Whole } else { Followed::Other };
            }
            at = previous;
        }
        Followed::Nowhere
    }

    /// What it means that a caller of a frame was not copied. Where the chain was the last time another one may lie by now, so that what
    /// is taken for a frame there begins in the middle of that.
    fn missing_from(&self, start: RemoteAddr) -> Followed {
        let is_on_chain = self.first(start).is_some_and(|frame| self.anchor.is_called(frame));
        if is_on_chain { Followed::Missing } else { Followed::Nowhere }
    }

    /// How many of the outermost links need not be asked for: both of their frames are as they were. `addrs` begins with the
    /// outermost.
    fn links_kept(&self, addrs: &[RemoteAddr]) -> usize {
        let known = self.known;
        let then = known.addrs.iter().zip(known.bytes.chunks_exact(self.layout.len.max(1))).rev();
        let same = addrs
            .iter()
            .zip(then)
            .take_while(|(addr, (known, bytes))| *addr == *known && self.first(**addr) == Some(*bytes));
        same.count().saturating_sub(1)
    }

    /// Whether a frame waits for the one that has it for its caller.
    fn calling(&self, caller: RemoteAddr, callee: RemoteAddr) -> Calling {
        let (Some(calling), Some(called)) = (self.first(caller), self.first(callee)) else {
            return Calling::Unknown;
        };
        // What stands for the interpreter is written once and not cleared: only what it called may tell whether it is on the chain.
        let says_over = self.anchor.is_over(called).is_some();
        if !says_over && (self.is_shim(caller) || self.is_shim(callee)) {
            return Calling::Unknown;
        }
        self.anchor.calling(&reads(self.memory), calling, called)
    }

    /// Whether a frame was called by C, of which its caller does not know: then it counts if the innermost one after it lives. Not if it
    /// lies elsewhere and its caller says nothing: generators come and go.
    fn may_lead(&self, caller: RemoteAddr, callee: RemoteAddr) -> bool {
        let is_near = || self.look.piece(caller) == self.look.piece(callee);
        self.is_shim(callee) || self.runs(callee).is_some() && (self.is_shim(caller) || is_near())
    }

    fn runs(&self, addr: RemoteAddr) -> Option<bool> {
        self.first(addr).and_then(|frame| self.anchor.runs(frame))
    }

    /// Takes off a frame that was called by C and is over, or about to be: it waits, and for none. False if it cannot be told what is: the
    /// innermost of several may just return to the others.
    fn cut_what_is_over(&self, addrs: &mut Vec<RemoteAddr>) -> bool {
        while addrs.last().is_some_and(|addr| self.runs(*addr) == Some(false)) {
            let by_c = |at: &usize| self.calling(addrs[*at - 1], addrs[*at]) == Calling::Unknown;
            // The first one is what the thread itself has called.
            let Some(called) = (2..addrs.len()).rev().find(by_c) else { return false };
            if addrs[called..].iter().filter(|addr| !self.is_shim(**addr)).count() > 1 {
                return false;
            }
            addrs.truncate(called);
            self.drop_shims(addrs);
        }
        true
    }

    /// What stands for the interpreter without a callee may be left over beside one that has.
    fn drop_shims(&self, addrs: &mut Vec<RemoteAddr>) {
        while addrs.len() > 1 && addrs.last().is_some_and(|addr| self.is_shim(*addr)) {
            addrs.pop();
        }
    }

    /// Adds the frames that were called by the last one, one by the other. `depth` bounds how often C is between two of them.
    fn add_callees(&self, addrs: &mut Vec<RemoteAddr>, depth: usize) -> Option<()> {
        while addrs.len() < MAX_FRAMES {
            let caller = *addrs.last()?;
            let callees = self.callees(caller, addrs);
            if callees.is_unclear {
                return None;
            }
            if let Some(called) = callees.called {
                addrs.push(called);
                continue;
            }
            let by_c = callees.by_c.iter().map(|called| vec![*called]);
            let through = callees.shims.iter().flat_map(|shim| {
                let callees = self.callees(*shim, addrs);
                let called = callees.called.filter(|_| !callees.is_unclear).into_iter().chain(callees.by_c);
                called.map(|called| vec![*shim, called])
            });
            let longer = by_c.chain(through).find_map(|more| self.with_callees(addrs, &more, depth));
            match longer {
                Some(longer) => *addrs = longer,
                None => return Some(()),
            }
        }
        None
    }

    /// The chain with frames that C may have called, and those that these have called; `None` if they are over.
    fn with_callees(
        &self,
        addrs: &[RemoteAddr],
        more: &[RemoteAddr],
        depth: usize,
    ) -> Option<Vec<RemoteAddr>> {
        let depth = depth.checked_sub(1)?;
        self.tries.set(self.tries.get().checked_sub(1)?);
        let mut longer = [addrs, more].concat();
        self.add_callees(&mut longer, depth)?;
        longer.last().is_some_and(|addr| self.runs(*addr) != Some(false)).then_some(longer)
    }

    /// Searches for frames that have `caller` for their caller, behind those of the chain, which begins with the outermost.
    fn callees(&self, caller: RemoteAddr, addrs: &[RemoteAddr]) -> Callees {
        let mut found = Callees::default();
        let shims = self.remembered().map(|(shim, _)| shim).filter(|shim| {
            self.first(*shim).is_some_and(|frame| self.layout.previous(frame) == caller)
                && self.calling(caller, *shim) != Calling::No
        });
        found.shims.extend(shims);
        for (addr, frame) in self.behind(addrs, |previous| previous == caller) {
            if !self.anchor.may_be_frame(frame) {
                continue;
            }
            match self.calling(caller, addr) {
                Calling::No => {}
                _ if self.anchor.is_shim(frame) => {
                    if !found.shims.contains(&addr) {
                        found.shims.push(addr);
                    }
                }
                Calling::Unknown if self.may_lead(caller, addr) => found.by_c.push(addr),
                Calling::Apart | Calling::Unknown => found.is_unclear = true,
                Calling::Yes => found.is_unclear |= found.called.replace(addr).is_some(),
            }
        }
        found
    }

    /// What may be a frame behind those of the chain, in each piece, and has a caller for which `wanted` holds. Most of what is looked at is
    /// no frame: so that word is looked at first.
    fn behind<'b>(
        &'b self,
        addrs: &'b [RemoteAddr],
        wanted: impl Fn(RemoteAddr) -> bool + Copy + 'b,
    ) -> impl Iterator<Item = (RemoteAddr, &'b [u8])> {
        let (len, previous) = (self.layout.len, self.layout.previous);
        self.look.pieces.iter().zip(&self.look.starts).flat_map(move |(piece, (start, _))| {
            let last = addrs.iter().rev().find(|addr| piece.find(**addr, len).is_some());
            let from = last.map_or(piece.addr.0, |addr| addr.0 + len as u64);
            let to = piece.end().min(from.saturating_add(MAX_SEARCH_BYTES));
            let (from, to) = ((from - piece.addr.0) as usize, (to - piece.addr.0) as usize);
            let bytes = self.look.bytes.get(start + from..start + to).unwrap_or_default();
            let places = if bytes.len() < len { 0 } else { (bytes.len() - len) / 8 + 1 };
            let words = bytes.get(previous..).unwrap_or_default().as_chunks::<8>().0.iter().take(places);
            let wanted = move |word: &[u8; 8]| wanted(RemoteAddr(u64::from_le_bytes(*word)));
            let found = words.enumerate().filter(move |(_, word)| wanted(word));
            found.filter_map(move |(nth, _)| {
                Some((piece.addr.offset((from + 8 * nth) as u64), bytes.get(8 * nth..8 * nth + len)?))
            })
        })
    }

    /// The caller of a frame that has been called and is not on the chain, `addrs`, if that caller was not copied: what stands for the
    /// interpreter between C and a function is at another place for each way through C, and until it is known nothing leads to the
    /// frame. C goes on below the last place that is known.
    pub(super) fn missing_caller(&self, addrs: &[RemoteAddr]) -> Option<RemoteAddr> {
        let shim = addrs.iter().rev().find(|addr| self.is_shim(**addr))?;
        let below = &(shim.0.saturating_sub(MAX_C_STACK_BYTES)..shim.0);
        let mut behind = self.behind(addrs, |caller| below.contains(&caller.0));
        behind.find_map(|(_, frame)| {
            let caller = self.layout.previous(frame);
            (self.copied(caller).is_none() && self.anchor.is_called(frame)).then_some(caller)
        })
    }

    /// Whether the frames in different pieces, which were not copied at the same moment, belong together all the same. What stands for the
    /// interpreter does not count: the frames that it leads from and to do.
    fn belong_together(&self, addrs: &[RemoteAddr]) -> bool {
        let mut caller = None;
        for (nth, addr) in addrs.iter().enumerate() {
            if self.is_shim(*addr) {
                continue;
            }
            let is_doubtful = || {
                nth > 1
                    && self.is_shim(addrs[nth - 1])
                    && self.calling(addrs[nth - 2], addrs[nth - 1]) == Calling::Unknown
            };
            if caller.replace(*addr).is_some_and(|caller| !self.goes_on(caller, *addr, is_doubtful)) {
                return false;
            }
        }
        true
    }

    /// Whether a frame says that its function has not returned.
    fn lives(&self, addr: RemoteAddr) -> bool {
        self.first(addr).and_then(|frame| self.anchor.is_over(frame)) == Some(false)
    }

    /// Whether `callee`, which lives, was called by what was in the place of `caller` before that was copied.
    fn has_moved(&self, caller: RemoteAddr, callee: RemoteAddr) -> bool {
        self.lives(callee) && !self.is_shim(callee) && self.look.piece(caller) != self.look.piece(callee)
    }

    /// Whether a frame has waited for another one from the one copy to the other, if that has to be asked: they are in different pieces.
    fn goes_on(&self, caller: RemoteAddr, callee: RemoteAddr, is_doubtful: impl Fn() -> bool) -> bool {
        if self.look.piece(caller) == self.look.piece(callee) {
            return true;
        }
        let copies = |addr: RemoteAddr| self.look.frame(addr, self.layout.len);
        let (Some(caller), Some(callee)) = (copies(caller), copies(callee)) else { return false };
        match (self.look.copies, self.anchor.is_over(callee.0)) {
            (_, Some(_)) if !is_doubtful() => true,
            (Copies::Once, _) | (Copies::Chunk, None) => false,
            (_, Some(_)) => self.layout.is_of_one_function(caller),
            (Copies::All, None) => self.layout.same(caller, false) && self.layout.same(callee, true),
        }
    }
}
