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

/// Frames with at most this much memory between them are copied as one piece.
const MAX_GAP_BYTES: u64 = 512;

/// Room for calls deeper than last time.
const SLACK_BYTES: u64 = 2_048;

/// Deepest stack that is read in this way: a larger copy takes longer, and one moment becomes many.
const MAX_FRAMES: usize = 512;

/// Length of an address.
const POINTER_BYTES: usize = 8;

/// Most pieces.
const MAX_PIECES: usize = 16;

/// One copy, and where the next one is expected to find the frames.
#[derive(Debug, Default)]
pub(crate) struct SingleCopy {
    pieces: Vec<Range>,
    ranges: Vec<Range>,
    bytes: Vec<u8>,
    /// The anchor's ranges, all but the first of which are copied after the pieces.
    anchors: Vec<Range>,
    anchor: Vec<u8>,
    /// Where the pieces begin in `bytes`.
    pieces_at: usize,
    /// The innermost frame before the copy and after it.
    innermost: [RemoteAddr; 2],
}

/// How a copy turned out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// A chain of frames, or none because no code runs.
    Chain,
    /// The chain leads out of the copy.
    Elsewhere,
}

impl SingleCopy {
    /// Expects the frames of the next copy where these are. `limit` is as in [`slip_remote::Head`].
    pub(crate) fn predict(&mut self, chain: &Chain, layout: &FrameLayout, limit: RemoteAddr) {
        self.pieces.clear();
        let Some(innermost) = chain.addrs.first().filter(|_| chain.addrs.len() <= MAX_FRAMES) else { return };
        let mut sorted = chain.addrs.clone();
        sorted.sort_unstable();
        for addr in sorted {
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
    }

    /// Copies the frames and the anchor, its first range before them and the others after, in one system call; `current` is where the address of the innermost frame lies.
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
        self.anchors.clear();
        anchor.ranges(&mut self.anchors);
        let Some((first, rest)) = self.anchors.split_first() else { return Ok(false) };
        self.ranges.clear();
        self.ranges.push(Range::new(current, POINTER_BYTES));
        self.ranges.extend_from_slice(&self.pieces);
        let rest_at: usize = first.len + self.ranges.iter().map(|range| range.len).sum::<usize>();
        self.ranges.insert(0, *first);
        self.ranges.extend_from_slice(rest);
        self.bytes.resize(self.ranges.iter().map(|range| range.len).sum(), 0);
        if memory.read_ranges(&self.ranges, &mut self.bytes)? < self.ranges.len() {
            self.pieces.clear();
            return Ok(false);
        }
        self.pieces_at = first.len + POINTER_BYTES;
        self.anchor.clear();
        self.anchor.extend_from_slice(&self.bytes[..first.len]);
        self.anchor.extend_from_slice(&self.bytes[rest_at..]);
        let Some(head) = anchor.decode(&self.anchor) else { return Ok(false) };
        self.innermost = [addr_at(&self.bytes, first.len), head.current];
        Ok(true)
    }

    /// Follows the chain of the copy from the frame that was innermost before it, or after it.
    ///
    /// A frame that came up only afterwards may lie where the copy shows what was there earlier. Its caller tells; so
    /// without a caller there is no such chain.
    pub(crate) fn follow(&self, after: bool, layout: &FrameLayout, chain: &mut Chain) -> Found {
        chain.anchor.clear();
        chain.anchor.extend_from_slice(&self.anchor);
        chain.addrs.clear();
        chain.bytes.clear();
        chain.truncated = false;
        let mut at = self.innermost[usize::from(after)];
        while !at.is_null() {
            let frame = self.find(at, layout.len).filter(|_| chain.addrs.len() < MAX_FRAMES);
            let Some(frame) = frame else { return Found::Elsewhere };
            chain.addrs.push(at);
            chain.bytes.extend_from_slice(frame);
            at = addr_at(frame, layout.previous);
        }
        let is_new = after && self.has_changed();
        if is_new && chain.addrs.len() == 1 { Found::Elsewhere } else { Found::Chain }
    }

    /// Whether the innermost frame changed while the copy was made.
    pub(crate) fn has_changed(&self) -> bool {
        self.innermost[0] != self.innermost[1]
    }

    fn find(&self, addr: RemoteAddr, len: usize) -> Option<&[u8]> {
        let mut start = self.pieces_at;
        for piece in &self.pieces {
            if let Some(at) = piece.find(addr, len) {
                return self.bytes.get(start + at..start + at + len);
            }
            start += piece.len;
        }
        None
    }
}
