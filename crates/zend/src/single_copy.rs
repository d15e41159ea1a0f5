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

use slip_remote::{Anchor, Chain, FrameLayout, Memory, Range, ReadError, RemoteAddr};

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
    pieces: Vec<Range>,
    pub(crate) buffers: Box<Buffers>,
    /// Which of `ranges` are the pieces, and where they begin in `bytes`.
    pieces_from: usize,
    pieces_at: usize,
    /// How far the piece of the innermost frame has reached lately.
    reached: u64,
    /// The innermost frame before the copy and after it.
    innermost: [RemoteAddr; 2],
    /// As in [`slip_remote::Head`], at the last copy.
    limit: RemoteAddr,
}

/// What a copy is made with. Nothing in here lasts from one sample to the next.
#[derive(Debug, Default)]
pub(crate) struct Buffers {
    ranges: Vec<Range>,
    bytes: Vec<u8>,
    /// The anchor's ranges, all but the first of which are copied after the pieces.
    anchors: Vec<Range>,
    anchor: Vec<u8>,
    /// Addresses of frames in ascending order.
    sorted: Vec<RemoteAddr>,
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

impl SingleCopy {
    /// Expects the frames of the next copy where these are. `limit` is as in [`slip_remote::Head`].
    pub(crate) fn predict(&mut self, chain: &Chain, layout: &FrameLayout, limit: RemoteAddr) {
        self.pieces.clear();
        let Some(innermost) = chain.addrs.first().filter(|_| chain.addrs.len() <= MAX_FRAMES) else { return };
        let sorted = &mut self.buffers.sorted;
        sorted.clone_from(&chain.addrs);
        sorted.sort_unstable();
        for addr in sorted.iter().copied() {
            let mut end = addr.0.saturating_add(layout.len as u64);
            if addr == *innermost && limit.0 > end {
                end = limit.0.min(end.saturating_add(SLACK_BYTES));
            }
            match self.pieces.last_mut() {
                Some(last) if addr.0 <= last.end().saturating_add(MAX_GAP_BYTES) => {
                    last.len = usize::try_from(end.max(last.end()) - last.addr.0).unwrap_or(last.len);
                }
                _ => self.pieces.push(Range::new(addr, usize::try_from(end - addr.0).unwrap_or(layout.len))),
            }
        }
        if self.pieces.len() > MAX_PIECES {
            self.pieces.clear();
        }
        // A stack that was deeper a moment ago will be so again.
        if let Some(piece) = self.pieces.iter_mut().find(|piece| piece.find(*innermost, layout.len).is_some())
        {
            let end = piece.end();
            let deepest = limit.0.min(self.reached).min(end.saturating_add(MAX_REACH_BYTES)).max(end);
            self.reached = deepest - (deepest - end) / 16;
            piece.len = usize::try_from(self.reached - piece.addr.0).unwrap_or(piece.len);
        }
    }

    /// Copies the frames and the anchor, its first range before them and the others after, in one system call; `current`
    /// is where the address of the innermost frame lies.
    ///
    /// False if nothing is expected, or it is not mapped any more.
    pub(crate) fn take<M: Memory + ?Sized>(
        &mut self,
        memory: &M,
        anchor: &mut dyn Anchor,
        current: RemoteAddr,
    ) -> Result<bool, ReadError> {
        if self.pieces.is_empty() {
            return Ok(false);
        }
        // Nothing may stand between the frames and the two ranges that say which of them is innermost: a range more
        // is 0.2 us more in which that can change.
        self.buffers.anchors.clear();
        anchor.ranges(&mut self.buffers.anchors);
        let Some((first, rest)) = self.buffers.anchors.split_first() else { return Ok(false) };
        let before = [*first, Range::new(current, POINTER_BYTES)];
        self.buffers.ranges.clear();
        push_joined(&mut self.buffers.ranges, &before);
        self.pieces_from = self.buffers.ranges.len();
        self.buffers.ranges.extend_from_slice(&self.pieces);
        let rest_from = self.buffers.ranges.len();
        push_joined(&mut self.buffers.ranges, rest);
        let len = self.buffers.ranges.iter().map(|range| range.len).sum();
        // It never becomes shorter, so that nothing is filled with zeros time and again.
        if self.buffers.bytes.len() < len {
            self.buffers.bytes.resize(len, 0);
        }
        let bytes = &mut self.buffers.bytes[..len];
        if memory.read_ranges(&self.buffers.ranges, bytes)? < self.buffers.ranges.len() {
            self.pieces.clear();
            return Ok(false);
        }
        self.pieces_at = self.buffers.ranges[..self.pieces_from].iter().map(|range| range.len).sum();
        let find = |from: usize, range: &Range| {
            let mut start: usize = self.buffers.ranges[..from].iter().map(|range| range.len).sum();
            for copied in &self.buffers.ranges[from..] {
                if let Some(at) = copied.find(range.addr, range.len) {
                    return self.buffers.bytes.get(start + at..start + at + range.len);
                }
                start += copied.len;
            }
            None
        };
        self.buffers.anchor.clear();
        self.buffers.anchor.extend_from_slice(find(0, first).unwrap_or_default());
        for range in rest {
            self.buffers.anchor.extend_from_slice(find(rest_from, range).unwrap_or_default());
        }
        let innermost = find(0, &before[1]).map_or(RemoteAddr::NULL, |bytes| addr_at(bytes, 0));
        let Some(head) = anchor.decode(&self.buffers.anchor) else { return Ok(false) };
        self.innermost = [innermost, head.current];
        self.limit = head.limit;
        Ok(true)
    }

    /// Expects a frame that the last copy lacked, and all between it and the others. False if it is too far from them.
    pub(crate) fn reach(&mut self, frame: RemoteAddr, layout: &FrameLayout) -> bool {
        let below = self.pieces.iter_mut().filter(|piece| piece.addr <= frame).max_by_key(|piece| piece.addr);
        let Some(piece) = below.filter(|piece| frame.0 - piece.end().min(frame.0) <= MAX_REACH_BYTES) else {
            return false;
        };
        let mut end = frame.0.saturating_add(layout.len as u64);
        if self.limit.0 > end {
            end = self.limit.0.min(end.saturating_add(SLACK_BYTES));
        }
        piece.len = usize::try_from(end.max(piece.end()) - piece.addr.0).unwrap_or(piece.len);
        true
    }

    /// Follows the chain of the copy from the frame that was innermost before it, or after it.
    ///
    /// A frame that came up only afterwards may lie where the copy shows what was there earlier. Its caller tells; so
    /// without a caller there is no such chain.
    pub(crate) fn follow(&self, after: bool, layout: &FrameLayout, chain: &mut Chain) -> Found {
        chain.anchor.clear();
        chain.anchor.extend_from_slice(&self.buffers.anchor);
        chain.addrs.clear();
        chain.bytes.clear();
        chain.truncated = false;
        let mut at = self.innermost[usize::from(after)];
        while !at.is_null() {
            let frame = self.find(at, layout.len).filter(|_| chain.addrs.len() < MAX_FRAMES);
            let Some(frame) = frame else { return Found::Elsewhere(at) };
            chain.addrs.push(at);
            chain.bytes.extend_from_slice(frame);
            at = addr_at(frame, layout.previous);
        }
        let is_new = after && self.has_changed();
        if is_new && chain.addrs.len() == 1 { Found::Unproven } else { Found::Chain }
    }

    /// Whether the innermost frame changed while the copy was made.
    pub(crate) fn has_changed(&self) -> bool {
        self.innermost[0] != self.innermost[1]
    }

    fn find(&self, addr: RemoteAddr, len: usize) -> Option<&[u8]> {
        let mut start = self.pieces_at;
        for piece in &self.buffers.ranges[self.pieces_from..self.pieces_from + self.pieces.len()] {
            if let Some(at) = piece.find(addr, len) {
                return self.buffers.bytes.get(start + at..start + at + len);
            }
            start += piece.len;
        }
        None
    }
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
mod tests {
    use super::*;

    #[test]
    fn ranges_close_together_become_one() {
        let range = |addr, len| Range::new(RemoteAddr(addr), len);
        let mut out = vec![range(0, 8)];
        push_joined(&mut out, &[range(0x3000, 16), range(0x2f00, 8), range(0x9000, 8), range(0x9004, 64)]);
        assert_eq!(out, [range(0, 8), range(0x2f00, 0x110), range(0x9000, 68)]);
    }
}
