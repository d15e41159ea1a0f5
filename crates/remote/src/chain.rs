//! Reads a chain of frames out of a running process so that what comes out existed.
//!
//! A stack changes while it is copied: the copy takes about a microsecond, a call a few nanoseconds. Following the
//! chain frame by frame shows callers and callees that never met (45 % of the samples of a busy PHP target); trying
//! again until nothing moves shows only what stands still. So a sample is this:
//!
//! 1. One system call copies, in this order: all pieces of memory in which the frames lay last time, the anchor (which
//!    says where the innermost frame is), and the same pieces again. Pieces are copied whole, with some room for deeper
//!    calls. Where frames say of themselves whether they are on the chain, the first copy alone counts, see [`climb`]; nothing is
//!    copied again then but what frames that lie elsewhere need. Otherwise the moment of the sample is that of the anchor:
//! 2. The chain is followed from the anchor. It is *clean* if each frame on it is the same before and after the anchor,
//!    for then it was so at that moment. Whether calls and returns happened in between does not matter: a frame that
//!    was called or left and holds the same function still, by the same caller, is the same frame to us. A generator is on
//!    the chain only while it runs: if one of the copies shows it without a caller, its turn has begun or ended in between,
//!    and who stands in its caller's place in both copies may be another one, who had that place before or after.
//!    Where frames say whether they wait ([`Calling`]) without another read, they have to.
//! 3. Otherwise the second copy alone has to do, where the frames themselves say whether they wait for a callee
//!    ([`Calling`]): one piece is copied within some 20 ns, so a caller that waits and the callee above it belong
//!    together, and what stands above a caller that does not wait is left over from an earlier call. The result is
//!    *repaired*.
//! 4. Where they do not say it, the innermost frames up to the last that differs are read once more, they alone, and
//!    judged in the same way: *repaired*, or else *torn*, which is counted and dropped. There is no third try: that
//!    would prefer quiet moments.
//!
//! What the latter cannot see: a frame that is replaced just before the anchor and put back just after it.
//!
//! Agreement alone (without 3) is not enough: on targets that change paths every 100 ns it drops most samples, and keeps
//! those of the path that lasts longer.

use std::ops;

use slip_model::Outcome;

use crate::{Memory, Range, ReadError, RemoteAddr};

mod climb;

use climb::{Climb, Climbed, Known};

/// Deepest chain we follow. Deeper ones are cut and marked: a torn read can turn the chain into a loop.
const MAX_FRAMES: usize = 16_384;

/// Frames with at most this much memory between them are copied as one piece: a piece costs 0.2 us, a KiB far less.
const MAX_GAP_BYTES: u64 = 512;

/// Room for calls deeper than last time, in bytes after the innermost frame.
const SLACK_BYTES: u64 = 1_024;

/// Most room that is kept for a stack that was deeper before.
const MAX_SLACK_BYTES: u64 = 32 * 1_024;

/// Small pieces in which frames lay lately are copied for so many samples more. A generator goes on and off the chain
/// faster than a copy is made: if its frame were expected only after samples that saw it, those that do not would win.
const MAX_AGE: u32 = 64;

/// Most such pieces, and the largest: generators and frames on the C stack lie alone.
const MAX_LATELY: usize = 6;
const MAX_LATELY_BYTES: usize = 1_024;

/// Most frames that are copied once.
const MAX_SHIMS: usize = 16;

/// Callers of the torn part that are read again with it: a return during the repair lands there.
const REPAIR_MARGIN: usize = 2;

/// Page size; a page is mapped whole or not at all.
const PAGE_BYTES: u64 = 4_096;

/// How an interpreter lays out the frames that it links into a chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FrameLayout {
    /// Bytes of a frame that are copied; locals beyond them are not.
    pub len: usize,
    /// Where the address of the caller's frame stands; null ends the chain.
    pub previous: usize,
    /// Bytes that stay the same while the frame lives and differ between functions: the code object, say. The caller's
    /// frame is compared anyway.
    pub identity: Vec<ops::Range<usize>>,
    /// The instruction pointer. It stays the same while the frame waits for a frame that it called.
    pub instruction: ops::Range<usize>,
}

impl FrameLayout {
    fn previous(&self, frame: &[u8]) -> RemoteAddr {
        let bytes = frame.get(self.previous..self.previous + 8).and_then(|bytes| bytes.try_into().ok());
        RemoteAddr(bytes.map_or(0, u64::from_le_bytes))
    }

    /// Whether a generator was resumed or suspended between the copies: it is linked to its caller only while it runs.
    fn is_linked_once(&self, frame: (&[u8], &[u8])) -> bool {
        self.previous(frame.0).is_null() != self.previous(frame.1).is_null()
    }

    fn same(&self, frame: (&[u8], &[u8]), innermost: bool) -> bool {
        let instruction = self.instruction.clone();
        self.is_of_one_function(frame)
            && (innermost || frame.0[instruction.clone()] == frame.1[instruction])
            && self.previous(frame.0) == self.previous(frame.1)
    }

    fn is_of_one_function(&self, frame: (&[u8], &[u8])) -> bool {
        self.identity.iter().all(|part| frame.0[part.clone()] == frame.1[part.clone()])
    }
}

/// What the anchor says about a thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Head {
    /// Innermost frame; null if no code runs.
    pub current: RemoteAddr,
    /// First address after the stack chunk that holds the innermost frame; nothing is read beyond it in advance.
    /// Null if the innermost frame lies elsewhere.
    pub limit: RemoteAddr,
}

/// What a frame says about the frame above it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Calling {
    /// It waits for a callee, and the one above it is its last.
    Yes,
    /// The same, but both are not copied at once: if the caller has stood still meanwhile.
    Apart,
    /// It runs: what stands above it is left over.
    No,
    /// It does not say. Then only agreement of both copies counts: a caller that stands at the same instruction may have
    /// been replaced by its twin, and of fast targets one stack in forty was invented when that was let through.
    Unknown,
}

/// Finds the innermost frame of a thread.
pub trait Anchor {
    /// Appends the ranges that must be read to find the innermost frame. They are read before and after the frames.
    fn ranges(&self, out: &mut Vec<Range>);

    /// Forgets the ranges that were predicted from an older state, because one of the ranges cannot be read; false if none
    /// was.
    fn forget(&mut self) -> bool {
        false
    }

    /// A frame that is the same as long as the thread is there, and what was copied of it once: it is not copied again. By the
    /// bytes that were interpreted last.
    fn standing_frame(&self) -> Option<(RemoteAddr, &[u8])> {
        None
    }

    /// Tells what was copied of the outermost frame, which may be such a one.
    fn note_outermost(&mut self, addr: RemoteAddr, frame: &[u8]) {
        let _ = (addr, frame);
    }

    /// Interprets the bytes of these ranges.
    ///
    /// `None` if the ranges were predicted from an older state and did not fit: the anchor then has to have corrected
    /// itself from `bytes`, and is asked once more.
    fn decode(&mut self, bytes: &[u8]) -> Option<Head>;

    /// Whether a frame without a caller, of which both copies are given, is the outermost one of the thread. False for what
    /// is taken off the chain while it waits, such as a generator. `read` is as in [`Anchor::calling`], and shows the
    /// present moment.
    fn is_outermost(
        &self,
        read: &dyn Fn(RemoteAddr, &mut [u8]) -> bool,
        head: Head,
        addr: RemoteAddr,
        frame: (&[u8], &[u8]),
    ) -> bool {
        let _ = (read, head, addr, frame);
        true
    }

    /// Whether it always tells the frame that the interpreter itself takes for the innermost one, also while a call begins or ends.
    fn names_innermost(&self) -> bool {
        false
    }

    /// Whether a frame stands for the interpreter itself, as one between C and a generator may. It has no function.
    fn is_shim(&self, frame: &[u8]) -> bool {
        let _ = frame;
        false
    }

    /// The chunk of memory in which frames of functions lie: where it begins, and the first address after it. By the bytes that
    /// were interpreted last. `None` if frames do not say of themselves whether they are on the chain: then only agreement of two
    /// copies counts.
    fn chunk(&self) -> Option<(RemoteAddr, RemoteAddr)> {
        None
    }

    /// Whether what was copied may be a frame at all.
    fn may_be_frame(&self, frame: &[u8]) -> bool {
        let _ = frame;
        true
    }

    /// Whether the function of a frame has returned; `None` if frames do not say that.
    fn is_over(&self, frame: &[u8]) -> Option<bool> {
        let _ = frame;
        None
    }

    /// Whether what was copied can hardly be anything but the frame of a function that has been called and has not returned. False if
    /// that cannot be told.
    fn is_called(&self, frame: &[u8]) -> bool {
        let _ = frame;
        false
    }

    /// Whether the code of a frame is being run, or has called C; `None` if frames do not say that. The innermost one of a chain that has
    /// not ended runs.
    fn runs(&self, frame: &[u8]) -> Option<bool> {
        let _ = frame;
        None
    }

    /// Whether `caller` waits for `callee`, by what stands in the frames. Without a callee: whether it waits for one in any case.
    /// Asked where frames have moved, and of those of a first copy that were not so the last time; `read` is for memory that does not
    /// change, such as instructions, and false if it fails.
    fn calling(&self, read: &dyn Fn(RemoteAddr, &mut [u8]) -> bool, caller: &[u8], callee: &[u8]) -> Calling {
        let _ = (read, caller, callee);
        Calling::Unknown
    }
}

/// Frames of one thread, innermost first.
#[derive(Clone, Debug, Default)]
pub struct Chain {
    /// Address of each frame.
    pub addrs: Vec<RemoteAddr>,
    /// Bytes of all frames, [`FrameLayout::len`] each.
    pub bytes: Vec<u8>,
    /// The bytes of the anchor, as read last.
    pub anchor: Vec<u8>,
    /// The chain was longer than the limit and has been cut at its outer end.
    pub truncated: bool,
}

/// What is copied a second time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Copies {
    /// Nothing: each frame that calls another one lies in the same piece.
    Once,
    /// What has frames of functions, as soon as those of generators have been copied, which lie elsewhere.
    Chunk,
    /// All but the frames that stand for the interpreter, see [`ChainReader::shims`], after the anchor.
    #[default]
    All,
}

/// When a piece is copied, in this order; the anchor comes last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Turn {
    /// First, and again after those [`Turn::Within`].
    Around,
    /// First, and again after the anchor.
    Twice,
    /// First, and not again.
    First,
    /// Right after those.
    Within,
    /// After all of these, as what stands for the interpreter leads only from one of them to another.
    Once,
}

/// Two copies of the same pieces of memory, before and after the anchor.
#[derive(Debug, Default)]
struct Look {
    /// In ascending order, not touching.
    pieces: Vec<Range>,
    copies: Copies,
    /// When each of them is copied.
    turns: Vec<Turn>,
    /// Where the first copy of each piece begins, and the second one: the same if it is copied once.
    starts: Vec<(usize, usize)>,
    bytes: Vec<u8>,
    /// Which of them are the anchor's.
    anchor: ops::Range<usize>,
    /// The frame that is not copied, and what it is known to hold.
    standing: Option<RemoteAddr>,
    standing_bytes: Vec<u8>,
    head: Option<Head>,
}

impl Look {
    /// Where the `len` bytes at `addr` lie within both copies of the pieces.
    fn find(&self, addr: RemoteAddr, len: usize) -> Option<(usize, usize)> {
        let at = self.piece(addr)?;
        let within = self.pieces[at].find(addr, len)?;
        let (first, second) = self.starts[at];
        Some((first + within, second + within))
    }

    /// The number of the piece that begins last before `addr`.
    fn piece(&self, addr: RemoteAddr) -> Option<usize> {
        self.pieces.partition_point(|piece| piece.addr <= addr).checked_sub(1)
    }

    /// The frame at `addr`, before and after the anchor.
    fn frame(&self, addr: RemoteAddr, len: usize) -> Option<(&[u8], &[u8])> {
        if self.standing == Some(addr) {
            let frame = self.standing_bytes.get(..len)?;
            return Some((frame, frame));
        }
        let (first, second) = self.find(addr, len)?;
        Some((&self.bytes[first..first + len], &self.bytes[second..second + len]))
    }

    fn anchor(&self) -> &[u8] {
        &self.bytes[self.anchor.clone()]
    }

    /// Has the anchor say what was copied of it.
    fn interpret(&mut self, anchor: &mut dyn Anchor) {
        self.head = anchor.decode(&self.bytes[self.anchor.clone()]);
        let standing = anchor.standing_frame();
        if self.standing != standing.map(|(addr, _)| addr) {
            self.standing = standing.map(|(addr, _)| addr);
            self.standing_bytes.clear();
            self.standing_bytes.extend_from_slice(standing.map_or(&[], |(_, bytes)| bytes));
        }
    }
}

/// How a walk along the chain ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// At the outermost frame.
    Whole,
    /// At the limit.
    Truncated,
    /// At a frame that was not copied.
    Missing,
    /// At a frame that is not on the chain any more, or not yet.
    Unlinked,
    /// In a loop: the copy is torn, or the target is hostile.
    Loop,
}

/// Reads a thread's chain of frames; keeps where they lay, which predicts where they will lie.
#[derive(Debug)]
pub struct ChainReader {
    layout: FrameLayout,
    /// Where the frames of the last whole chain lay, and where others lay lately, in ascending order.
    predicted: Vec<Range>,
    /// The former alone.
    last: Vec<Range>,
    /// Small pieces in which frames lay lately, and how many samples ago.
    lately: Vec<(Range, u32)>,
    /// Room kept after the innermost frame.
    slack: u64,
    /// The frame that is known, and so is not expected anywhere.
    standing: Option<RemoteAddr>,
    /// Frames that stand for the interpreter and lie alone, as on the C stack. They are copied once, before the anchor: they have
    /// no function that could be mistaken for another. Where one of them is something else now, all is copied twice again.
    shims: Vec<RemoteAddr>,
    /// For so many looks more the chunk is copied twice, if frames say of themselves whether they are on the chain.
    twice: u32,
    /// What is not found where it is expected is not searched for.
    is_brief: bool,
    known: Known,
    /// What was predicted from last, if the next prediction from the same would be the same.
    steady: Option<Head>,
    steady_addrs: Vec<RemoteAddr>,
    ranges: Vec<Range>,
    look: Look,
    repair: Look,
    addrs: Vec<RemoteAddr>,
}

impl ChainReader {
    /// A reader that predicts nothing yet. One reader belongs to one thread of the target.
    pub fn new(layout: FrameLayout) -> Self {
        Self {
            layout,
            predicted: Vec::new(),
            last: Vec::new(),
            lately: Vec::new(),
            slack: SLACK_BYTES,
            standing: None,
            shims: Vec::new(),
            twice: 0,
            is_brief: false,
            known: Known::default(),
            steady: None,
            steady_addrs: Vec::new(),
            ranges: Vec::new(),
            look: Look::default(),
            repair: Look::default(),
            addrs: Vec::new(),
        }
    }

    /// Reads the chain as of one moment into `chain`, whose former content is lost.
    ///
    /// With [`Outcome::Torn`] the chain is empty.
    ///
    /// # Errors
    ///
    /// As [`Memory::read`] if not even the anchor can be read.
    ///
    /// # Cost
    ///
    /// One `process_vm_readv` if the frames lie where they lay last time: 0.4 us, and 0.2 us for each piece and page.
    pub fn read<M: Memory + ?Sized>(
        &mut self,
        memory: &M,
        anchor: &mut dyn Anchor,
        chain: &mut Chain,
    ) -> Result<Outcome, ReadError> {
        let outcome = self.try_read(memory, anchor, chain, false)?;
        Ok(emptied_if_torn(outcome, chain))
    }

    /// As [`ChainReader::read`], with one look at where the frames are expected: torn if they lie elsewhere.
    ///
    /// # Errors
    ///
    /// As for [`ChainReader::read`].
    pub fn read_briefly<M: Memory + ?Sized>(
        &mut self,
        memory: &M,
        anchor: &mut dyn Anchor,
        chain: &mut Chain,
    ) -> Result<Outcome, ReadError> {
        self.is_brief = true;
        let outcome = self.read(memory, anchor, chain);
        self.is_brief = false;
        outcome
    }

    /// Puts what a look would copy at the end of `ranges`, for who copies it now and has it judged later, by
    /// [`ChainReader::read_copied`]. The anchor comes last. False if a single copy would not do, as things are.
    ///
    /// The plan holds until the next one, or until another look is made.
    pub fn plan_copy(&mut self, anchor: &dyn Anchor, ranges: &mut Vec<Range>) -> bool {
        // The next look makes it one less.
        if anchor.chunk().is_none() || self.twice > 1 {
            return false;
        }
        self.lay_out(anchor, Copies::Once);
        ranges.extend_from_slice(&self.ranges);
        true
    }

    /// Whether the frame at `addr` is in what was planned last.
    pub fn has_planned(&self, addr: RemoteAddr) -> bool {
        self.look.standing == Some(addr) || self.look.find(addr, self.layout.len).is_some()
    }

    /// As [`ChainReader::read_briefly`], from what was copied as it was planned last, by the same rules as if it was copied now: torn if
    /// the copy alone does not tell the chain. `copied` may have more at its end. `memory` is asked for what does not change, such as
    /// instructions, and for nothing that was copied.
    ///
    /// # Errors
    ///
    /// As for [`ChainReader::read`].
    pub fn read_copied<M: Memory + ?Sized>(
        &mut self,
        memory: &M,
        anchor: &mut dyn Anchor,
        chain: &mut Chain,
        copied: &mut Vec<u8>,
    ) -> Result<Outcome, ReadError> {
        if copied.len() < self.look.anchor.end || self.look.copies != Copies::Once {
            return Ok(emptied_if_torn(Outcome::Torn, chain));
        }
        std::mem::swap(&mut self.look.bytes, copied);
        self.is_brief = true;
        let outcome = self.try_read(memory, anchor, chain, true);
        self.is_brief = false;
        std::mem::swap(&mut self.look.bytes, copied);
        Ok(emptied_if_torn(outcome?, chain))
    }

    /// `is_copied`: what was planned is in the look already. Then it has to be brief.
    fn try_read<M: Memory + ?Sized>(
        &mut self,
        memory: &M,
        anchor: &mut dyn Anchor,
        chain: &mut Chain,
        is_copied: bool,
    ) -> Result<Outcome, ReadError> {
        self.twice = self.twice.saturating_sub(1);
        // Where frames do not say that their function has returned, all that lies apart must stand still.
        let twice = if anchor.is_over(&[]).is_some() { Copies::Chunk } else { Copies::All };
        let is_told = memory.stands_still() && anchor.names_innermost();
        let mut copies = match anchor.chunk() {
            None => Copies::All,
            _ if is_told => Copies::All,
            Some(_) if self.twice == 0 => Copies::Once,
            Some(_) => twice,
        };
        let mut is_again = false;
        let (walked, head) = loop {
            let head = if is_copied {
                self.look.interpret(anchor);
                self.look.head
            } else {
                self.copy(memory, anchor, copies)?
            };
            let climbed = head.filter(|_| !is_told).map(|head| self.climb(memory, anchor, head, chain));
            match climbed {
                Some(Climbed::Whole) => return Ok(Outcome::Clean),
                Some(Climbed::Moved) if copies == Copies::Chunk => return Ok(Outcome::Torn),
                _ => {}
            }
            if self.is_brief {
                return Ok(Outcome::Torn);
            }
            let walked = head.map(|head| (self.walk(memory, anchor, head), head));
            let is_elsewhere = walked.is_none_or(|(walked, _)| walked.end == End::Missing);
            match walked {
                Some(walked) if is_again || !is_elsewhere && copies == Copies::All => break walked,
                None if is_again => return Ok(Outcome::Torn),
                _ => {}
            }
            // The frames lie elsewhere than last time. Find out where, then look properly.
            if is_elsewhere && !self.learn(memory, anchor)? {
                return Ok(Outcome::Torn);
            }
            if climbed == Some(Climbed::Moved) || !is_elsewhere {
                self.twice = MAX_AGE;
            }
            copies = if climbed == Some(Climbed::Moved) { twice } else { Copies::All };
            is_again = true;
        };
        chain.anchor.clear();
        chain.anchor.extend_from_slice(self.look.anchor());
        let walked = match walked.end {
            End::Missing => return Ok(Outcome::Torn),
            End::Loop => Walked { torn: self.addrs.len(), ..walked },
            // Frames of a call that begins or ends may seem not to wait for each other.
            End::Whole | End::Truncated if is_told => Walked { torn: 0, ..walked },
            End::Whole | End::Truncated | End::Unlinked => walked,
        };
        let outcome = if walked.torn == 0 {
            Outcome::Clean
        } else {
            match settle(&self.layout, &[&self.look], memory, anchor, head, &mut self.addrs) {
                Settled::Whole => Outcome::Repaired,
                Settled::Unclear => return self.read_torn_part(memory, anchor, walked, chain),
                // It goes on in the same way, so that the repair would be taken in by the same picture.
                Settled::LeftOver => return Ok(Outcome::Torn),
            }
        };
        let (len, look) = (self.layout.len, &self.look);
        collect(&self.layout, anchor, &self.addrs, |addr| look.frame(addr, len), &mut chain.bytes);
        chain.addrs.clone_from(&self.addrs);
        chain.truncated = walked.end == End::Truncated;
        if anchor.chunk().is_some() {
            self.known.note(anchor, len, &chain.addrs, &chain.bytes);
        }
        self.note_shims(anchor, chain);
        self.predict(anchor, head);
        Ok(outcome)
    }

    /// Notes which frames of the chain need not be copied twice.
    fn note_shims(&mut self, anchor: &mut dyn Anchor, chain: &Chain) {
        let frames = || chain.addrs.iter().zip(chain.bytes.chunks_exact(self.layout.len.max(1)));
        if let Some((addr, frame)) = frames().next_back().filter(|_| !chain.truncated) {
            anchor.note_outermost(*addr, frame);
        }
        if self.shims.is_empty() || self.steady_addrs != chain.addrs {
            let shims = frames().filter(|(_, frame)| anchor.is_shim(frame)).map(|(addr, _)| *addr);
            self.shims.clear();
            self.shims.extend(shims.take(MAX_SHIMS));
        }
    }

    /// Copies the predicted pieces and the anchor.
    ///
    /// `None` if a predicted piece is no longer mapped or the anchor did not fit.
    fn copy<M: Memory + ?Sized>(
        &mut self,
        memory: &M,
        anchor: &mut dyn Anchor,
        copies: Copies,
    ) -> Result<Option<Head>, ReadError> {
        self.lay_out(anchor, copies);
        if !fetch(&mut self.look, &self.ranges, memory, anchor)? {
            self.last.clear();
            self.lately.clear();
            self.steady = None;
            return Ok(None);
        }
        Ok(self.look.head)
    }

    /// Says what is copied, and in which order.
    fn lay_out(&mut self, anchor: &dyn Anchor, copies: Copies) {
        self.look.pieces.clone_from(&self.predicted);
        self.look.copies = copies;
        let (from, limit) = anchor.chunk().unwrap_or_default();
        let (len, shims) = (self.layout.len, &self.shims);
        let turn = |piece: &Range| {
            let is_shim = shims.iter().any(|shim| piece.find(*shim, len).is_some());
            match (copies, (from..limit).contains(&piece.addr)) {
                (Copies::Chunk, true) => Turn::Around,
                (Copies::Once, true) => Turn::First,
                (Copies::Chunk | Copies::Once, false) if is_shim => Turn::Once,
                (Copies::Chunk | Copies::Once, false) => Turn::Within,
                (Copies::All, _) if is_shim && piece.len == len => Turn::Once,
                (Copies::All, _) => Turn::Twice,
            }
        };
        self.look.turns.clear();
        self.look.turns.extend(self.predicted.iter().map(turn));
        lay_out(&mut self.look, &mut self.ranges, anchor);
    }

    /// Reads the chain from the first copy, by what its frames say of themselves.
    fn climb<M: Memory + ?Sized>(
        &mut self,
        memory: &M,
        anchor: &mut dyn Anchor,
        head: Head,
        chain: &mut Chain,
    ) -> Climbed {
        if anchor.chunk().is_none() {
            return Climbed::Unclear;
        }
        let (layout, look) = (&self.layout, &self.look);
        let climb = Climb::new(layout, look, memory, anchor, head, &self.known);
        let climbed = climb.climb(&mut self.addrs);
        if climbed != Climbed::Whole {
            return climbed;
        }
        // `addrs` begins with the innermost.
        self.addrs.reverse();
        let missing = climb.missing_caller(&self.addrs);
        self.addrs.reverse();
        chain.bytes.clear();
        for frame in self.addrs.iter().filter_map(|addr| climb.first(*addr)) {
            chain.bytes.extend_from_slice(frame);
        }
        chain.addrs.clone_from(&self.addrs);
        chain.anchor.clear();
        chain.anchor.extend_from_slice(look.anchor());
        chain.truncated = false;
        self.known.note(anchor, self.layout.len, &chain.addrs, &chain.bytes);
        self.note_shims(anchor, chain);
        if let Some(caller) = missing {
            self.steady = None;
            note(&mut self.lately, std::iter::once(Range::new(caller, self.layout.len)));
        }
        self.predict(anchor, head);
        climbed
    }

    /// The walk along the chain that was copied.
    fn walk<M: Memory + ?Sized>(&mut self, memory: &M, anchor: &dyn Anchor, head: Head) -> Walked {
        let (layout, look, shims) = (&self.layout, &self.look, &self.shims);
        let walked = walk(layout, anchor, &reads(memory), head, &mut self.addrs, |addr| {
            let frame = look.frame(addr, layout.len)?;
            (!shims.contains(&addr) || anchor.is_shim(frame.0)).then_some(frame)
        });
        if walked.end == End::Missing {
            self.shims.clear();
        }
        walked
    }

    /// Follows the chain frame by frame, only to learn where the frames lie. False if that fails.
    fn learn<M: Memory + ?Sized>(&mut self, memory: &M, anchor: &mut dyn Anchor) -> Result<bool, ReadError> {
        let mut head = None;
        // Once to forget what cannot be read any more, once to correct what did not fit, once to read.
        for _ in 0..3 {
            self.ranges.clear();
            anchor.ranges(&mut self.ranges);
            let mut bytes = vec![0; total_len(&self.ranges)];
            if memory.read_ranges(&self.ranges, &mut bytes)? < self.ranges.len() {
                if anchor.forget() {
                    continue;
                }
                let range = self.ranges.first().copied().unwrap_or_default();
                return Err(ReadError::Unmapped { addr: range.addr, len: range.len });
            }
            head = anchor.decode(&bytes);
            if head.is_some() {
                break;
            }
        }
        let Some(head) = head else { return Ok(false) };
        let len = self.layout.len;
        let mut page: (Range, Vec<u8>) = (Range::default(), Vec::new());
        let mut failed = false;
        let layout = &self.layout;
        let mut fetch = |addr: RemoteAddr| -> Option<RemoteAddr> {
            if page.0.find(addr, len).is_none() {
                // Callers lie at lower addresses of the same page.
                let start = RemoteAddr(addr.0 & !(PAGE_BYTES - 1));
                let range = Range::new(start, usize::try_from(addr.0 - start.0).ok()?.checked_add(len)?);
                page.1.resize(range.len, 0);
                page.0 = range;
                if memory.read(range.addr, &mut page.1).is_err() {
                    page.0 = Range::default();
                    failed = true;
                    return None;
                }
            }
            let at = page.0.find(addr, len)?;
            Some(layout.previous(&page.1[at..at + len]))
        };
        self.addrs.clear();
        let mut at = head.current;
        while !at.is_null() && self.addrs.len() < MAX_FRAMES {
            let Some(previous) = fetch(at) else { break };
            self.addrs.push(at);
            at = previous;
        }
        if failed {
            return Ok(false);
        }
        let outermost = self.addrs.last().copied().and_then(|addr| {
            let at = page.0.find(addr, len)?;
            Some((addr, &page.1[at..at + len]))
        });
        let is_whole = !at.is_null()
            || outermost
                .is_none_or(|(addr, frame)| anchor.is_outermost(&reads(memory), head, addr, (frame, frame)));
        self.expect(anchor, head, is_whole);
        Ok(true)
    }

    /// Reads the torn innermost frames of a walk again, once.
    fn read_torn_part<M: Memory + ?Sized>(
        &mut self,
        memory: &M,
        anchor: &mut dyn Anchor,
        Walked { end, torn }: Walked,
        chain: &mut Chain,
    ) -> Result<Outcome, ReadError> {
        let again = torn.saturating_add(REPAIR_MARGIN).min(self.addrs.len());
        let head = self.look.head.unwrap_or_default();
        pieces_of(&self.addrs[..again], self.layout.len, head, SLACK_BYTES, &mut self.repair.pieces);
        self.repair.copies = Copies::All;
        self.repair.turns.clear();
        self.repair.turns.resize(self.repair.pieces.len(), Turn::Twice);
        if !take(&mut self.repair, &mut self.ranges, memory, anchor)? {
            return Ok(Outcome::Torn);
        }
        let Some(head) = self.repair.head else { return Ok(Outcome::Torn) };
        let (layout, look, repair) = (&self.layout, &self.look, &self.repair);
        let frame =
            |addr: RemoteAddr| repair.frame(addr, layout.len).or_else(|| look.frame(addr, layout.len));
        let mut addrs = Vec::new();
        let walked = walk(layout, anchor, &reads(memory), head, &mut addrs, frame);
        // What is not read again must be among the callers that agreed before.
        let standing = &self.addrs[torn.min(self.addrs.len())..];
        let known =
            addrs.iter().all(|addr| repair.frame(*addr, layout.len).is_some() || standing.contains(addr));
        let whole = matches!(walked.end, End::Whole | End::Truncated);
        if !known
            || !((whole && walked.torn == 0)
                || settle(layout, &[repair, look], memory, anchor, head, &mut addrs) == Settled::Whole)
        {
            self.expect(anchor, head, end != End::Unlinked);
            return Ok(Outcome::Torn);
        }
        collect(layout, anchor, &addrs, frame, &mut chain.bytes);
        chain.anchor.clear();
        chain.anchor.extend_from_slice(repair.anchor());
        chain.truncated = walked.end == End::Truncated;
        chain.addrs.clone_from(&addrs);
        self.addrs = addrs;
        self.predict(anchor, head);
        Ok(Outcome::Repaired)
    }

    /// Expects the frames where they are now, and room for as deep a stack as there was lately.
    fn predict(&mut self, anchor: &dyn Anchor, head: Head) {
        let standing = anchor.standing_frame().map(|(addr, _)| addr);
        if self.standing != standing {
            self.standing = standing;
            self.steady = None;
            let len = self.layout.len;
            self.lately.retain(|(piece, _)| standing.is_none_or(|addr| piece.find(addr, len).is_none()));
        }
        if self.steady == Some(head) && self.steady_addrs == self.addrs {
            return;
        }
        // What the anchor saw may have been left since: the next call goes there again, behind the innermost one in that chunk.
        let (from, limit) =
            anchor.chunk().unwrap_or((self.addrs.first().copied().unwrap_or(head.current), head.limit));
        let innermost = self.addrs.iter().find(|addr| (from..limit).contains(*addr));
        let head = innermost.map_or(head, |current| Head { current: *current, limit });
        let slack = self.slack;
        let top = |pieces: &[Range]| {
            let at = pieces.partition_point(|piece| piece.addr <= head.current).checked_sub(1)?;
            (pieces[at].end() >= head.current.0).then(|| pieces[at].end())
        };
        // A stack that was deeper is likely to be so again; the room for it shrinks by an eighth with each sample.
        let unused = top(&self.last).map_or(0, |end| end.saturating_sub(head.current.0));
        self.slack = (unused - unused / 8).clamp(SLACK_BYTES, MAX_SLACK_BYTES);
        // The outermost is the only one that may be known.
        let alone = self.addrs.last().is_some_and(|addr| Some(*addr) == standing);
        let apart = &self.addrs[..self.addrs.len() - usize::from(alone)];
        pieces_of(apart, self.layout.len, head, self.slack, &mut self.last);
        let small = |piece: &&Range| piece.len <= MAX_LATELY_BYTES;
        note(&mut self.lately, self.last.iter().filter(small).copied());
        self.expect_what_was_lately();
        // Nothing that was seen earlier fades any more, neither room for a deeper stack nor pieces.
        let is_steady = self.slack == slack
            && self.slack == SLACK_BYTES
            && self.predicted == self.last
            && self.lately.len() == self.last.iter().filter(small).count();
        self.steady = is_steady.then_some(head);
        self.steady_addrs.clone_from(&self.addrs);
    }

    /// Expects a frame that lies alone at `addr`, in the place of others that were lately seen to do so.
    pub fn expect_instead(&mut self, addr: RemoteAddr) {
        let (len, shims) = (self.layout.len, &self.shims);
        let is_kept = |piece: &Range| {
            piece.find(addr, len).is_some()
                || piece.len > MAX_LATELY_BYTES
                || shims.iter().any(|shim| piece.find(*shim, len).is_some())
        };
        if self.predicted.iter().any(|piece| piece.find(addr, len).is_some())
            && self.predicted.iter().all(is_kept)
        {
            return;
        }
        self.steady = None;
        self.last.retain(is_kept);
        self.lately.retain(|(piece, _)| is_kept(piece));
        if !self.last.iter().any(|piece| piece.find(addr, len).is_some()) {
            note(&mut self.lately, std::iter::once(Range::new(addr, len)));
        }
        self.expect_what_was_lately();
    }

    /// Expects the frames where they are now, or, if they are only a part of the chain, there too.
    fn expect(&mut self, anchor: &dyn Anchor, head: Head, is_whole: bool) {
        if is_whole {
            return self.predict(anchor, head);
        }
        self.steady = None;
        let len = self.layout.len;
        let is_new = |addr: &&RemoteAddr| !self.last.iter().any(|piece| piece.find(**addr, len).is_some());
        let innermost = self.addrs.iter().filter(is_new).take(MAX_LATELY);
        note(&mut self.lately, innermost.map(|addr| Range::new(*addr, len)));
        self.expect_what_was_lately();
    }

    fn expect_what_was_lately(&mut self) {
        self.lately.retain_mut(|(_, age)| {
            *age += 1;
            *age <= MAX_AGE
        });
        self.predicted.clone_from(&self.last);
        self.predicted.extend(self.lately.iter().map(|(piece, _)| *piece));
        self.predicted.sort_unstable_by_key(|piece| piece.addr);
        self.predicted.dedup_by(|piece, before| overlap(piece, before) && join(before, piece));
    }
}

/// Puts pieces at the begin of those in which frames lay lately.
fn note(lately: &mut Vec<(Range, u32)>, pieces: impl Iterator<Item = Range>) {
    for mut piece in pieces {
        // Calls from C leave their frames where others leave theirs, a little beside.
        lately.retain(|(known, _)| !(overlap(known, &piece) && join(&mut piece, known)));
        lately.insert(0, (piece, 0));
    }
    lately.truncate(MAX_LATELY);
}

/// Makes a piece hold another one as well; always true.
fn join(piece: &mut Range, other: &Range) -> bool {
    let (from, end) = (piece.addr.min(other.addr), piece.end().max(other.end()));
    *piece = Range::new(from, usize::try_from(end - from.0).unwrap_or(piece.len));
    true
}

fn overlap(a: &Range, b: &Range) -> bool {
    a.addr.0 < b.end() && b.addr.0 < a.end()
}

/// Copies pieces, anchor, pieces. False if a piece is not mapped.
fn take<M: Memory + ?Sized>(
    look: &mut Look,
    ranges: &mut Vec<Range>,
    memory: &M,
    anchor: &mut dyn Anchor,
) -> Result<bool, ReadError> {
    lay_out(look, ranges, anchor);
    fetch(look, ranges, memory, anchor)
}

/// Says in which order pieces and anchor are copied, and where each goes.
fn lay_out(look: &mut Look, ranges: &mut Vec<Range>, anchor: &dyn Anchor) {
    ranges.clear();
    let mut bytes = 0;
    let mut put = |ranges: &mut Vec<Range>, piece: &Range| {
        ranges.push(*piece);
        bytes += piece.len;
        bytes - piece.len
    };
    look.starts.clear();
    look.starts.resize(look.pieces.len(), (0, 0));
    let of = |wanted: Turn| {
        look.turns.iter().enumerate().filter(move |(_, turn)| **turn == wanted).map(|(nth, _)| nth)
    };
    let pieces = &look.pieces;
    for nth in [Turn::Around, Turn::Twice, Turn::First, Turn::Within].into_iter().flat_map(of) {
        let start = put(ranges, &pieces[nth]);
        look.starts[nth] = (start, start);
    }
    for nth in of(Turn::Around) {
        look.starts[nth].1 = put(ranges, &pieces[nth]);
    }
    for nth in of(Turn::Once) {
        let start = put(ranges, &pieces[nth]);
        look.starts[nth] = (start, start);
    }
    let before = ranges.len();
    anchor.ranges(ranges);
    look.anchor = total_len(&ranges[..before])..total_len(ranges);
    let mut bytes = look.anchor.end;
    for nth in of(Turn::Twice) {
        ranges.push(pieces[nth]);
        look.starts[nth].1 = bytes;
        bytes += pieces[nth].len;
    }
    look.bytes.resize(bytes, 0);
}

/// Copies what was laid out. False if a piece is not mapped.
fn fetch<M: Memory + ?Sized>(
    look: &mut Look,
    ranges: &[Range],
    memory: &M,
    anchor: &mut dyn Anchor,
) -> Result<bool, ReadError> {
    look.head = None;
    if memory.read_ranges(ranges, &mut look.bytes)? < ranges.len() {
        return Ok(false);
    }
    look.interpret(anchor);
    Ok(true)
}

fn emptied_if_torn(outcome: Outcome, chain: &mut Chain) -> Outcome {
    if outcome == Outcome::Torn {
        chain.addrs.clear();
        chain.bytes.clear();
        chain.truncated = false;
    }
    outcome
}

/// A walk along the chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Walked {
    end: End,
    /// How many of the innermost frames do not belong together: up to the outermost that differs between the copies.
    torn: usize,
}

/// Follows the chain from its head and collects the addresses; `frame` gives both copies of a frame.
fn walk<'a>(
    layout: &FrameLayout,
    anchor: &dyn Anchor,
    read: &dyn Fn(RemoteAddr, &mut [u8]) -> bool,
    head: Head,
    addrs: &mut Vec<RemoteAddr>,
    frame: impl Fn(RemoteAddr) -> Option<(&'a [u8], &'a [u8])>,
) -> Walked {
    addrs.clear();
    let (mut at, mut torn) = (head.current, 0);
    let mut callee = None;
    // Brent's way to find a loop: a mark that moves ahead at growing distances meets itself.
    let (mut mark, mut steps, mut power) = (RemoteAddr::NULL, 0, 1);
    while !at.is_null() {
        if addrs.len() == MAX_FRAMES {
            return Walked { end: End::Truncated, torn };
        }
        let addr = at;
        let Some(copies) = frame(addr) else { return Walked { end: End::Missing, torn } };
        addrs.push(addr);
        let innermost = addrs.len() == 1;
        let shim = shim_of(layout, anchor, copies);
        at = layout.previous(shim.unwrap_or(copies.1));
        let has_moved = shim.is_none() && !layout.same(copies, innermost);
        if has_moved || callee.is_some_and(|callee| runs_instead(anchor, copies, callee)) {
            torn = addrs.len();
        }
        callee = Some(copies);
        if at.is_null() {
            let frame = shim.map_or(copies, |shim| (shim, shim));
            if !anchor.is_outermost(read, head, addr, frame) {
                return Walked { end: End::Unlinked, torn: addrs.len() };
            }
        }
        if at == mark && !at.is_null() {
            return Walked { end: End::Loop, torn };
        }
        steps += 1;
        if steps == power {
            (mark, steps, power) = (at, 0, power * 2);
        }
    }
    Walked { end: End::Whole, torn }
}

/// For questions of an [`Anchor`].
fn reads<M: Memory + ?Sized>(memory: &M) -> impl Fn(RemoteAddr, &mut [u8]) -> bool {
    |addr, buf| memory.read(addr, buf).is_ok()
}

/// What a frame is taken from that stands for the interpreter: a copy that still shows it. `None` for any other frame, and if the
/// copies contradict each other.
fn shim_of<'a>(layout: &FrameLayout, anchor: &dyn Anchor, copies: (&'a [u8], &'a [u8])) -> Option<&'a [u8]> {
    match (anchor.is_shim(copies.0), anchor.is_shim(copies.1)) {
        (true, true) if layout.previous(copies.0) != layout.previous(copies.1) => None,
        (_, true) => Some(copies.1),
        (true, false) => Some(copies.0),
        (false, false) => None,
    }
}

/// Whether both copies of a caller say that it runs itself: then `callee` was left over from an earlier call each time, and what the
/// anchor saw lies between two calls that look the same. Nothing more is read for it, so not all say.
fn runs_instead(anchor: &dyn Anchor, caller: (&[u8], &[u8]), callee: (&[u8], &[u8])) -> bool {
    let runs = |caller, callee| anchor.calling(&|_, _| false, caller, callee) == Calling::No;
    runs(caller.0, callee.0) && runs(caller.1, callee.1)
}

/// Collects the bytes of a chain that [`walk`] has found whole.
fn collect<'a>(
    layout: &FrameLayout,
    anchor: &dyn Anchor,
    addrs: &[RemoteAddr],
    frame: impl Fn(RemoteAddr) -> Option<(&'a [u8], &'a [u8])>,
    out: &mut Vec<u8>,
) {
    out.clear();
    for copies in addrs.iter().filter_map(|addr| frame(*addr)) {
        out.extend_from_slice(shim_of(layout, anchor, copies).unwrap_or(copies.1));
    }
}

/// What the frames of one copy say of themselves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Settled {
    /// They belong together.
    Whole,
    /// They do not, or do not say.
    Unclear,
    /// They seem to, but what is above a caller may be left over from another one that was in its place.
    LeftOver,
}

/// Follows the chain through the second copy alone, and lets the frames say which of them belong together.
///
/// `looks` are searched in this order. `addrs` is only a chain that was if they say [`Settled::Whole`].
fn settle<M: Memory + ?Sized>(
    layout: &FrameLayout,
    looks: &[&Look],
    memory: &M,
    anchor: &dyn Anchor,
    head: Head,
    addrs: &mut Vec<RemoteAddr>,
) -> Settled {
    let find = |addr: RemoteAddr| {
        looks.iter().enumerate().find_map(|(nth, look)| {
            let frame = look.frame(addr, layout.len)?;
            // What is copied with the anchor is in no piece.
            let piece = look.find(addr, layout.len).and_then(|_| look.piece(addr));
            Some(((nth, piece), frame))
        })
    };
    let after = |addr: RemoteAddr| find(addr).map(|(_, (_, frame))| (frame, frame));
    if !matches!(walk(layout, anchor, &reads(memory), head, addrs, after).end, End::Whole | End::Truncated) {
        return Settled::Unclear;
    }
    let stands =
        |addr: RemoteAddr, innermost| find(addr).is_some_and(|(_, frame)| layout.same(frame, innermost));
    let is_left_over = |at: usize| {
        let (callee, caller) = (find(addrs[at]), addrs.get(at + 1).and_then(|addr| find(*addr)));
        callee.zip(caller).is_some_and(|((_, callee), (_, caller))| runs_instead(anchor, caller, callee))
    };
    let moved = (0..addrs.len()).rev().find(|at| !stands(addrs[*at], *at == 0) || is_left_over(*at));
    let Some(moved) = moved else {
        return Settled::Whole;
    };
    if moved + 1 >= addrs.len() {
        // The outermost frame never changes: this is not the stack but something that was left over or is being built.
        return Settled::Unclear;
    }
    for at in (0..=moved).rev() {
        let (Some((piece, called)), Some((caller_piece, calling))) = (find(addrs[at]), find(addrs[at + 1]))
        else {
            return Settled::Unclear;
        };
        // Another function has taken the caller's place, and what stands above it is as before: it may be left over from
        // the one that was there, while the new one waits for a callee that has no frame.
        if layout.is_of_one_function(called) && !layout.is_of_one_function(calling) {
            return Settled::LeftOver;
        }
        // Its caller may be another one since.
        if layout.is_linked_once(called) {
            return Settled::Unclear;
        }
        let ((_, callee), (_, caller)) = (called, calling);
        match anchor.calling(&reads(memory), caller, callee) {
            Calling::Yes if piece == caller_piece => {}
            // Pieces are copied one after the other: a caller elsewhere must have stood still all the while.
            Calling::Yes | Calling::Apart if stands(addrs[at + 1], false) => {}
            Calling::No => {
                addrs.drain(..=at);
                return Settled::Whole;
            }
            Calling::Yes | Calling::Apart | Calling::Unknown => return Settled::Unclear,
        }
    }
    Settled::Whole
}

/// The pieces of memory that hold the frames, with `slack` bytes after the innermost one as far as `limit` allows.
fn pieces_of(addrs: &[RemoteAddr], len: usize, head: Head, slack: u64, pieces: &mut Vec<Range>) {
    let mut sorted: Vec<RemoteAddr> = addrs.to_vec();
    sorted.sort_unstable();
    pieces.clear();
    for addr in sorted {
        let mut end = addr.0.saturating_add(len as u64);
        if addr == head.current && head.limit.0 > end {
            end = head.limit.0.min(end.saturating_add(slack));
        }
        match pieces.last_mut() {
            Some(last) if addr.0 <= last.end().saturating_add(MAX_GAP_BYTES) => {
                let end = end.max(last.end());
                last.len = usize::try_from(end - last.addr.0).unwrap_or(last.len);
            }
            _ => pieces.push(Range::new(addr, usize::try_from(end - addr.0).unwrap_or(len))),
        }
    }
}

fn total_len(ranges: &[Range]) -> usize {
    ranges.iter().map(|range| range.len).sum()
}

#[cfg(test)]
mod tests;
