//! In which order frames are copied that lie apart, up to CPython 3.10.
//!
//! Each of them takes 0.2 us to copy, and the whole chain has to be found the same before and after the anchor. Callers change less often
//! than what they call, so they are copied first and last, and the innermost ones right before and after the anchor: each frame has to
//! stand still only while those inside it are copied.

use std::collections::HashMap;

use slip_remote::{Memory, Range, ReadError, RemoteAddr};

/// Most frames whose place is remembered; beyond, all are forgotten. Deep stacks are read again and again by the same places.
const MAX_DEPTHS: usize = 64 * 1_024;

/// A piece that is shorter holds one frame.
const FRAME_OBJECT_BYTES: usize = 360;

/// How many callers each frame had when it was seen last.
#[derive(Debug, Default)]
pub(crate) struct Depths {
    of: HashMap<RemoteAddr, usize>,
    last: Vec<RemoteAddr>,
}

impl Depths {
    /// Notes a chain, the innermost frame first.
    pub(crate) fn note(&mut self, addrs: &[RemoteAddr]) {
        if self.last == addrs {
            return;
        }
        self.last.clear();
        self.last.extend_from_slice(addrs);
        if self.of.len() > MAX_DEPTHS {
            self.of.clear();
        }
        self.of.extend(addrs.iter().rev().enumerate().map(|(depth, addr)| (*addr, depth)));
    }

    /// That of the outermost frame in a piece; unknown ones are the innermost.
    fn of_piece(&self, piece: &Range) -> usize {
        // Most pieces are one frame: two of them are some 360 bytes apart at least (`sizeof(PyFrameObject)`).
        if piece.len < FRAME_OBJECT_BYTES
            && let Some(depth) = self.of.get(&piece.addr)
        {
            return *depth;
        }
        let inside = self.last.iter().filter(|addr| piece.find(**addr, 1).is_some());
        let depths = inside.chain([&piece.addr]).filter_map(|addr| self.of.get(addr));
        depths.min().copied().unwrap_or(usize::MAX)
    }
}

/// Memory that copies what lies around `anchor` in this order, and gives it in the order that was asked for.
pub(crate) struct Nested<'a, M: ?Sized> {
    pub(crate) memory: &'a M,
    pub(crate) anchor: Range,
    pub(crate) depths: &'a Depths,
}

impl<M: Memory + ?Sized> Nested<'_, M> {
    /// Which of the ranges comes first, second and so on.
    fn order(&self, ranges: &[Range]) -> Option<Vec<usize>> {
        let anchor = ranges.iter().position(|range| *range == self.anchor)?;
        let mut before: Vec<usize> = (0..anchor).collect();
        before.sort_by_cached_key(|at| self.depths.of_piece(&ranges[*at]));
        let mut after: Vec<usize> = (anchor + 1..ranges.len()).collect();
        after.sort_by_cached_key(|at| std::cmp::Reverse(self.depths.of_piece(&ranges[*at])));
        before.push(anchor);
        before.append(&mut after);
        Some(before)
    }
}

impl<M: Memory + ?Sized> Memory for Nested<'_, M> {
    fn read(&self, addr: RemoteAddr, buf: &mut [u8]) -> Result<(), ReadError> {
        self.memory.read(addr, buf)
    }

    fn stands_still(&self) -> bool {
        self.memory.stands_still()
    }

    fn read_ranges(&self, ranges: &[Range], buf: &mut [u8]) -> Result<usize, ReadError> {
        let Some(order) = self.order(ranges) else { return self.memory.read_ranges(ranges, buf) };
        let sorted: Vec<Range> = order.iter().map(|at| ranges[*at]).collect();
        let mut bytes = vec![0; buf.len()];
        if self.memory.read_ranges(&sorted, &mut bytes)? < ranges.len() {
            // Which of them it was does not matter to who asks.
            return Ok(0);
        }
        let mut starts = Vec::with_capacity(ranges.len());
        let mut end = 0;
        for range in ranges {
            starts.push(end);
            end += range.len;
        }
        let mut rest = &bytes[..];
        for at in order {
            let (range, piece) = rest.split_at(ranges[at].len);
            buf[starts[at]..starts[at] + range.len()].copy_from_slice(range);
            rest = piece;
        }
        Ok(ranges.len())
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    /// Each byte is its own address; notes what was copied; nothing is mapped from 200 on.
    #[derive(Default)]
    struct Noting(RefCell<Vec<u64>>);

    impl Memory for Noting {
        fn read(&self, addr: RemoteAddr, buf: &mut [u8]) -> Result<(), ReadError> {
            if addr.0 >= 200 {
                return Err(ReadError::Unmapped { addr, len: buf.len() });
            }
            self.0.borrow_mut().push(addr.0);
            for (at, byte) in (addr.0..).zip(buf.iter_mut()) {
                *byte = at as u8;
            }
            Ok(())
        }
    }

    fn range(addr: u64) -> Range {
        Range::new(RemoteAddr(addr), 2)
    }

    #[test]
    fn callers_are_copied_around_what_they_call() {
        let memory = Noting::default();
        let mut depths = Depths::default();
        depths.note(&[40, 10, 30].map(RemoteAddr));
        depths.note(&[50, 10, 30].map(RemoteAddr));
        let anchor = range(100);
        let nested = Nested { memory: &memory, anchor, depths: &depths };
        let mut buf = [0; 22];
        let pieces = [10, 30, 40, 50, 60].map(range);
        let asked: Vec<Range> = pieces.iter().chain([&anchor]).chain(&pieces).copied().collect();
        assert_eq!(nested.read_ranges(&asked, &mut buf), Ok(11));
        let expected: Vec<u8> =
            asked.iter().flat_map(|range| [range.addr.0 as u8, range.addr.0 as u8 + 1]).collect();
        assert_eq!(&buf[..], expected);
        assert_eq!(*memory.0.borrow(), [30, 10, 40, 50, 60, 100, 60, 40, 50, 10, 30]);
    }

    #[test]
    fn what_cannot_be_read_is_told() {
        let (memory, depths) = (Noting::default(), Depths::default());
        let nested = Nested { memory: &memory, anchor: range(100), depths: &depths };
        assert_eq!(nested.read_ranges(&[range(10), range(100), range(200)], &mut [0; 6]), Ok(0));
        // Without the anchor it is something else that is read.
        assert_eq!(nested.read_ranges(&[range(10), range(200)], &mut [0; 4]), Ok(1));
    }
}
