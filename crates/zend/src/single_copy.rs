//! Reads a stack from one copy of it.
//!
//! [`ChainReader`](slip_remote::ChainReader) believes what stands still during two copies, about a microsecond. Of code
//! that calls short functions all the time this leaves little, and what it leaves is biased towards longer functions: with
//! paths of 0.3 us half of the samples were torn and the shorter of two paths had a tenth of its share. PHP's frames
//! allow more, because each can be checked against its caller: which variable of the caller gets the result, and which
//! function the caller's instruction names (`Frames::links_hold`). So one copy will do, if every frame in it fits its
//! caller. The innermost frame is looked up just before and just after the copy; often only one of the two fits.
//!
//! What this cannot see: a callback that the engine made for another caller of the same place in memory, for such calls
//! name nobody; the two callers would have to change places while a few cache lines are copied.
//!
//! Nor can it see that where the innermost frame was, another call of the same caller has begun until the frames are copied: a
//! call that waits is then shown as if it ran itself. All these stacks are possible, but where calls take 0.1 us those of such
//! callers are shown several times too often (`run > b1` of `bench_flutter.php`: 9 to 16 % where 1.4 to 1.9 are true). To ask first
//! for the frame that was innermost after the copy made it worse: 38 and 43 % off the reference (PHP 8.2 without and with opcache),
//! 50 and 55 (8.4), where it is 38, 36, 41 and 39.

use slip_remote::{FrameLayout, Head, Memory, Range, ReadError, RemoteAddr, prefetch};

use crate::bytes::addr_at;

/// What has at most this much memory between is copied as one piece: a piece more takes longer than its bytes. Less than
/// a page, so that no page lies between that may not be mapped.
const MAX_GAP_BYTES: u64 = 2_048;

/// Room for calls deeper than last time.
const SLACK_BYTES: u64 = 2_048;

/// Deepest stack that is read in this way: a larger copy takes longer, and one moment becomes many.
const MAX_FRAMES: usize = 512;

/// How far behind the frames of the last copy those of a stack that has grown are looked for.
const MAX_REACH_BYTES: u64 = 32_768;

/// Length of an address.
const POINTER_BYTES: usize = 8;

/// Most pieces.
const MAX_PIECES: usize = 16;

/// One copy, and where the next one is expected to find the frames.
#[derive(Debug, Default)]
pub(crate) struct SingleCopy {
    /// What is copied: what tells which frame is innermost, the pieces of the stack, and what tells it once more.
    ranges: Vec<Range>,
    /// How many ranges come before the pieces, and behind them, and their bytes.
    before: (usize, usize),
    behind: (usize, usize),
    /// Bytes of the pieces.
    pieces_len: usize,
    /// Where the innermost frame is told, and then each range of the anchor: in the bytes before the pieces or behind.
    current: usize,
    parts: Vec<Part>,
    pub(crate) buffers: Box<Buffers>,
    /// How far the piece of the innermost frame has reached lately.
    reached: u64,
    /// The innermost frame before the copy and after it.
    innermost: [RemoteAddr; 2],
    /// As in [`slip_remote::Head`], at the last copy.
    limit: RemoteAddr,
}

/// Where a range of the anchor lies.
#[derive(Clone, Copy, Debug)]
struct Part {
    behind: bool,
    start: usize,
    len: usize,
}

/// What a copy is made with. Nothing in here lasts from one sample to the next.
#[derive(Debug, Default)]
pub(crate) struct Buffers {
    bytes: Vec<u8>,
    /// Addresses of frames in ascending order, and the pieces that hold them.
    sorted: Vec<RemoteAddr>,
    pieces: Vec<Range>,
}

/// How a copy turned out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// A chain of frames, or none because no code runs.
    Chain,
    /// A frame without a caller that came up after it would have been copied.
    Unproven,
    /// The chain leads out of the copy, to this frame.
    Elsewhere(RemoteAddr),
}

/// The frames of a copy, from the innermost one outwards, with their bytes.
#[derive(Debug)]
pub(crate) struct Walk<'a> {
    copy: &'a SingleCopy,
    layout: &'a FrameLayout,
    next: RemoteAddr,
    frames: usize,
    /// It came up while the copy was made.
    is_new: bool,
    elsewhere: bool,
}

impl SingleCopy {
    /// Copies with the frames, from now on, the ranges of an anchor: the first one before them and the others after;
    /// `current` is where the address of the innermost frame lies.
    pub(crate) fn expect_anchor(&mut self, anchor: &[Range], current: RemoteAddr) {
        self.ranges.clear();
        self.parts.clear();
        (self.before, self.behind, self.pieces_len) = ((0, 0), (0, 0), 0);
        let Some((first, rest)) = anchor.split_first() else { return };
        // Nothing may stand between the frames and the two ranges that say which of them is innermost: a range more
        // is 0.2 us more in which that can change.
        let before = [*first, Range::new(current, POINTER_BYTES)];
        push_joined(&mut self.ranges, &before);
        self.before = (self.ranges.len(), sum(&self.ranges));
        push_joined(&mut self.ranges, rest);
        let (ahead, behind) = self.ranges.split_at(self.before.0);
        self.behind = (behind.len(), sum(behind));
        let find = |ranges: &[Range], range: &Range| {
            let mut start = 0;
            for copied in ranges {
                if let Some(at) = copied.find(range.addr, range.len) {
                    return start + at;
                }
                start += copied.len;
            }
            start
        };
        self.current = find(ahead, &before[1]);
        self.parts.push(Part { behind: false, start: find(ahead, first), len: first.len });
        let rest = rest.iter().map(|range| Part { behind: true, start: find(behind, range), len: range.len });
        self.parts.extend(rest);
    }

    /// Has the CPU fetch what a copy is made by.
    pub(crate) fn prefetch(&self) {
        prefetch(self.ranges.as_slice());
        prefetch(self.parts.as_slice());
    }

    /// Expects the frames of the next copy where these are, which begin with the innermost one. `limit` is as in
    /// [`slip_remote::Head`].
    pub(crate) fn predict(&mut self, frames: &[RemoteAddr], layout: &FrameLayout, limit: RemoteAddr) {
        let (Some(innermost), Some(outermost)) = (frames.first(), frames.last()) else {
            return self.set_pieces(&[]);
        };
        if frames.len() > MAX_FRAMES {
            return self.set_pieces(&[]);
        }
        // Nearly always all lie in one piece, the outermost one where it was.
        let is_one = self.pieces_len > 0 && self.ranges.len() == self.before.0 + 1 + self.behind.0;
        let one = self.ranges.get(self.before.0).filter(|one| is_one && one.addr == *outermost);
        if let Some(one) = one
            && frames.iter().all(|addr| one.find(*addr, layout.len).is_some())
        {
            let top = frames.iter().max().unwrap_or(innermost);
            let end = self.end_of(*top, *top == *innermost, layout, limit);
            let end = self.reach_of(end, limit);
            self.ranges[self.before.0].len = usize::try_from(end - outermost.0).unwrap_or(layout.len);
            self.pieces_len = self.ranges[self.before.0].len;
            return;
        }
        let (mut sorted, mut pieces) =
            (std::mem::take(&mut self.buffers.sorted), std::mem::take(&mut self.buffers.pieces));
        sorted.clear();
        sorted.extend_from_slice(frames);
        sorted.sort_unstable();
        pieces.clear();
        for addr in sorted.iter().copied() {
            let end = self.end_of(addr, addr == *innermost, layout, limit);
            match pieces.last_mut() {
                Some(last) if addr.0 <= Range::end(*last).saturating_add(MAX_GAP_BYTES) => {
                    last.len = usize::try_from(end.max(last.end()) - last.addr.0).unwrap_or(last.len);
                }
                _ => pieces.push(Range::new(addr, usize::try_from(end - addr.0).unwrap_or(layout.len))),
            }
        }
        if pieces.len() > MAX_PIECES {
            pieces.clear();
        }
        if let Some(piece) = pieces.iter_mut().find(|piece| piece.find(*innermost, layout.len).is_some()) {
            let end = self.reach_of(piece.end(), limit);
            piece.len = usize::try_from(end - piece.addr.0).unwrap_or(piece.len);
        }
        self.set_pieces(&pieces);
        (self.buffers.sorted, self.buffers.pieces) = (sorted, pieces);
    }

    /// Where the copy of a frame is to end.
    fn end_of(&self, addr: RemoteAddr, innermost: bool, layout: &FrameLayout, limit: RemoteAddr) -> u64 {
        let end = addr.0.saturating_add(layout.len as u64);
        if innermost && limit.0 > end { limit.0.min(end.saturating_add(SLACK_BYTES)) } else { end }
    }

    /// Where the innermost piece is to end if it has to reach `end`: a stack that was deeper a moment ago will be so again.
    fn reach_of(&mut self, end: u64, limit: RemoteAddr) -> u64 {
        let deepest = limit.0.min(self.reached).min(end.saturating_add(MAX_REACH_BYTES)).max(end);
        self.reached = deepest - (deepest - end) / 16;
        self.reached
    }

    fn pieces(&self) -> &[Range] {
        &self.ranges[self.before.0..self.ranges.len() - self.behind.0]
    }

    fn set_pieces(&mut self, pieces: &[Range]) {
        let end = self.ranges.len() - self.behind.0;
        self.ranges.splice(self.before.0..end, pieces.iter().copied());
        self.pieces_len = sum(pieces);
    }

    /// Copies the frames and the anchor in one system call.
    ///
    /// False if nothing is expected, or it is not mapped any more.
    pub(crate) fn take<M: Memory + ?Sized>(&mut self, memory: &M) -> Result<bool, ReadError> {
        if self.pieces_len == 0 {
            return Ok(false);
        }
        let len = self.before.1 + self.pieces_len + self.behind.1;
        // It never becomes shorter, so that nothing is filled with zeros time and again.
        if self.buffers.bytes.len() < len {
            self.buffers.bytes.resize(len, 0);
        }
        if memory.read_ranges(&self.ranges, &mut self.buffers.bytes[..len])? < self.ranges.len() {
            self.set_pieces(&[]);
            return Ok(false);
        }
        Ok(true)
    }

    /// The bytes of range `number` of the anchor, as copied last.
    pub(crate) fn part(&self, number: usize) -> &[u8] {
        let Some(part) = self.parts.get(number) else { return &[] };
        let start = part.start + if part.behind { self.before.1 + self.pieces_len } else { 0 };
        self.buffers.bytes.get(start..start + part.len).unwrap_or_default()
    }

    /// Notes what the anchor says of the last copy.
    pub(crate) fn note_head(&mut self, head: Head) {
        self.innermost = [addr_at(&self.buffers.bytes, self.current), head.current];
        self.limit = head.limit;
    }

    /// Expects a frame that the last copy lacked, and all between it and the others. False if it is too far from them.
    pub(crate) fn reach(&mut self, frame: RemoteAddr, layout: &FrameLayout) -> bool {
        let from = self.before.0;
        let below = self.pieces().iter().enumerate().filter(|(_, piece)| piece.addr <= frame);
        let Some((at, piece)) = below.max_by_key(|(_, piece)| piece.addr) else { return false };
        if frame.0 - piece.end().min(frame.0) > MAX_REACH_BYTES {
            return false;
        }
        let end = self.end_of(frame, true, layout, self.limit).max(piece.end());
        let grown = usize::try_from(end - piece.addr.0).unwrap_or(piece.len);
        self.pieces_len += grown - piece.len;
        self.ranges[from + at].len = grown;
        true
    }

    /// The chain of the copy from the frame that was innermost before it, or after it.
    pub(crate) fn frames<'a>(&'a self, after: bool, layout: &'a FrameLayout) -> Walk<'a> {
        let next = self.innermost[usize::from(after)];
        let is_new = after && self.has_changed();
        Walk { copy: self, layout, next, frames: 0, is_new, elsewhere: false }
    }

    /// Whether the innermost frame changed while the copy was made.
    pub(crate) fn has_changed(&self) -> bool {
        self.innermost[0] != self.innermost[1]
    }

    /// Whether a frame was innermost before the last copy or after it.
    pub(crate) fn is_innermost(&self, frame: RemoteAddr) -> bool {
        self.innermost.contains(&frame)
    }

    fn find(&self, addr: RemoteAddr, len: usize) -> Option<&[u8]> {
        let mut start = self.before.1;
        for piece in self.pieces() {
            if let Some(at) = piece.find(addr, len) {
                return self.buffers.bytes.get(start + at..start + at + len);
            }
            start += piece.len;
        }
        None
    }
}

impl Walk<'_> {
    /// What the walk has found, at its end.
    ///
    /// A frame that came up only after the copy may lie where the copy shows what was there earlier. Its caller tells; so
    /// without a caller there is no such chain.
    pub(crate) fn found(&self) -> Found {
        match self.next {
            next if self.elsewhere => Found::Elsewhere(next),
            _ if self.is_new && self.frames == 1 => Found::Unproven,
            _ => Found::Chain,
        }
    }
}

impl<'a> Iterator for Walk<'a> {
    type Item = (RemoteAddr, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        if self.next.is_null() {
            return None;
        }
        let addr = self.next;
        let frame = self.copy.find(addr, self.layout.len).filter(|_| self.frames < MAX_FRAMES);
        let Some(frame) = frame else {
            self.elsewhere = true;
            return None;
        };
        self.frames += 1;
        self.next = addr_at(frame, self.layout.previous);
        Some((addr, frame))
    }
}

fn sum(ranges: &[Range]) -> usize {
    ranges.iter().map(|range| range.len).sum()
}

/// Appends ranges; neighbours among them that lie close together become one.
fn push_joined(out: &mut Vec<Range>, ranges: &[Range]) {
    let from = out.len();
    for range in ranges {
        let last = out.get_mut(from..).and_then(<[Range]>::last_mut);
        match last {
            Some(last) if gap(*last, *range) <= MAX_GAP_BYTES => {
                let start = last.addr.min(range.addr);
                let end = last.end().max(range.end());
                *last = Range::new(start, usize::try_from(end - start.0).unwrap_or(last.len));
            }
            _ => out.push(*range),
        }
    }
}

/// How much lies between two ranges; 0 if they overlap.
fn gap(a: Range, b: Range) -> u64 {
    let (low, high) = if a.addr <= b.addr { (a, b) } else { (b, a) };
    high.addr.0.saturating_sub(low.end())
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "test code")]
mod tests {
    use slip_remote::Image;

    use super::*;

    static LAYOUT: FrameLayout =
        FrameLayout { len: 16, previous: 8, identity: Vec::new(), instruction: 0..8 };

    /// Globals whose first word is a proof and whose second is the innermost frame, a word far away, and frames.
    fn image(innermost: u64, frames: &[u64]) -> Image {
        let mut image = Image::default();
        let word =
            |image: &mut Image, at: u64, value: u64| image.insert(RemoteAddr(at), &value.to_le_bytes());
        for at in (0x5000..0xa000).step_by(8) {
            word(&mut image, at, 0);
        }
        for (at, value) in [(0x1000, 7), (0x1008, innermost), (0x1010, 8), (0x3000, 9)] {
            word(&mut image, at, value);
        }
        for (at, frame) in frames.iter().enumerate() {
            word(&mut image, *frame, *frame);
            word(&mut image, frame + 8, frames.get(at + 1).copied().unwrap_or(0));
        }
        image
    }

    fn copy() -> SingleCopy {
        let range = |addr, len| Range::new(RemoteAddr(addr), len);
        let mut copy = SingleCopy::default();
        copy.expect_anchor(&[range(0x1000, 8), range(0x1008, 16), range(0x3000, 8)], RemoteAddr(0x1008));
        copy
    }

    /// Takes a copy and follows it: the frames, how it turned out, and the three ranges of the anchor.
    fn take(copy: &mut SingleCopy, image: &Image) -> (Vec<u64>, Found, [u64; 3]) {
        assert!(copy.take(image).unwrap());
        let parts = [0, 1, 2].map(|part| addr_at(copy.part(part), 0).0);
        copy.note_head(Head { current: RemoteAddr(parts[1]), limit: RemoteAddr(0xa000) });
        let mut walk = copy.frames(false, &LAYOUT);
        let frames = walk.by_ref().map(|(addr, bytes)| {
            assert_eq!(addr_at(bytes, 0), addr);
            addr.0
        });
        (frames.collect(), walk.found(), parts)
    }

    #[test]
    fn a_stack_that_has_grown_is_found_by_the_copy_after_the_one_that_lacks_it() {
        let mut copy = copy();
        assert!(!copy.take(&image(0x5000, &[0x5000])).unwrap());
        for frames in [&[0x5100_u64, 0x5000][..], &[0x9f00, 0x9000, 0x5000]] {
            let addrs: Vec<RemoteAddr> = frames.iter().copied().map(RemoteAddr).collect();
            copy.predict(&addrs, &LAYOUT, RemoteAddr(0xa000));
            let expected = (frames.to_vec(), Found::Chain, [7, frames[0], 9]);
            assert_eq!(take(&mut copy, &image(frames[0], frames)), expected);
        }
        copy.predict(&[RemoteAddr(0x5100), RemoteAddr(0x5000)], &LAYOUT, RemoteAddr(0x5110));
        let grown = [0x8000, 0x5100, 0x5000];
        let image = image(0x8000, &grown);
        let lacking = (vec![], Found::Elsewhere(RemoteAddr(0x8000)), [7, 0x8000, 9]);
        assert_eq!(take(&mut copy, &image), lacking);
        assert!(copy.reach(RemoteAddr(0x8000), &LAYOUT));
        assert_eq!(take(&mut copy, &image), (grown.to_vec(), Found::Chain, [7, 0x8000, 9]));
        // The copy after that expects the same, in one piece.
        copy.predict(&grown.map(RemoteAddr), &LAYOUT, RemoteAddr(0xa000));
        assert_eq!(copy.pieces().len(), 1);
        assert_eq!(take(&mut copy, &image), (grown.to_vec(), Found::Chain, [7, 0x8000, 9]));
    }

    #[test]
    fn what_is_not_mapped_any_more_is_not_expected_again() {
        let mut copy = copy();
        copy.predict(&[RemoteAddr(0xf000)], &LAYOUT, RemoteAddr::NULL);
        assert!(!copy.take(&image(0xf000, &[])).unwrap());
        assert!(copy.pieces().is_empty());
    }

    #[test]
    fn ranges_close_together_become_one() {
        let range = |addr, len| Range::new(RemoteAddr(addr), len);
        let mut out = vec![range(0, 8)];
        push_joined(&mut out, &[range(0x3000, 16), range(0x2f00, 8), range(0x9000, 8), range(0x9004, 64)]);
        assert_eq!(out, [range(0, 8), range(0x2f00, 0x110), range(0x9000, 68)]);
    }
}
