//! Two reads in one system call: each costs more than all that it copies.

use std::cell::RefCell;

use slip_remote::{Memory, Range, ReadError, RemoteAddr};

/// Memory whose first copy of several ranges ends with some others.
///
/// They come last because the target waits where it writes what was just copied: of a target that sorts, what was copied after the
/// interpreter's state, where new objects are counted for the collector, showed the function that makes objects three times as often
/// as it ran.
pub(crate) struct Trailing<'a, M: ?Sized> {
    memory: &'a M,
    ranges: Vec<Range>,
    copied: RefCell<Copied>,
}

/// What the first copy gave.
#[derive(Debug)]
struct Copied {
    /// All ranges that trail have been copied.
    is_done: bool,
    /// Those that were asked for, and behind them those that trail.
    ranges: Vec<Range>,
    bytes: Vec<u8>,
}

impl<'a, M: Memory + ?Sized> Trailing<'a, M> {
    /// Copies `ranges` with the first others that are asked for, and of which all can be read, by way of `buffer`.
    pub(crate) fn new(memory: &'a M, ranges: Vec<Range>, buffer: Vec<u8>) -> Self {
        Self {
            memory,
            ranges,
            copied: RefCell::new(Copied { is_done: false, ranges: Vec::new(), bytes: buffer }),
        }
    }

    /// The ranges, and what they held; nothing if they could not be read, or nobody asked.
    pub(crate) fn into_parts(self) -> (Vec<Range>, Option<Vec<u8>>) {
        let Copied { is_done, bytes, .. } = self.copied.into_inner();
        (self.ranges, is_done.then_some(bytes))
    }
}

impl<M: Memory + ?Sized> Memory for Trailing<'_, M> {
    fn read(&self, addr: RemoteAddr, buf: &mut [u8]) -> Result<(), ReadError> {
        self.memory.read(addr, buf)
    }

    fn stands_still(&self) -> bool {
        self.memory.stands_still()
    }

    fn read_ranges(&self, ranges: &[Range], buf: &mut [u8]) -> Result<usize, ReadError> {
        let copied = &mut *self.copied.borrow_mut();
        if copied.is_done {
            return self.memory.read_ranges(ranges, buf);
        }
        copied.bytes.resize(self.ranges.iter().map(|range| range.len).sum(), 0);
        copied.ranges.clear();
        copied.ranges.extend_from_slice(ranges);
        copied.ranges.extend_from_slice(&self.ranges);
        let done = self.memory.read_ranges_into_two(&copied.ranges, buf, &mut copied.bytes)?;
        copied.is_done = done == copied.ranges.len();
        Ok(done.min(ranges.len()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each byte is its own address; nothing is mapped from 200 on. Notes what is copied together.
    #[derive(Default)]
    struct Noting(RefCell<Vec<Vec<Range>>>);

    impl Memory for Noting {
        fn read(&self, addr: RemoteAddr, buf: &mut [u8]) -> Result<(), ReadError> {
            for (at, byte) in (addr.0..).zip(buf.iter_mut()) {
                *byte = u8::try_from(at).unwrap();
            }
            if addr.0 < 200 { Ok(()) } else { Err(ReadError::Unmapped { addr, len: buf.len() }) }
        }

        fn read_ranges(&self, ranges: &[Range], buf: &mut [u8]) -> Result<usize, ReadError> {
            self.0.borrow_mut().push(ranges.to_vec());
            let mut rest = buf;
            for (done, range) in ranges.iter().enumerate() {
                let (head, tail) = rest.split_at_mut(range.len);
                if self.read(range.addr, head).is_err() {
                    return Ok(done);
                }
                rest = tail;
            }
            Ok(ranges.len())
        }
    }

    fn range(addr: u64) -> Range {
        Range::new(RemoteAddr(addr), 2)
    }

    #[test]
    fn what_trails_comes_with_the_first_copy_alone() {
        let memory = Noting::default();
        let both = vec![range(10), range(20)];
        let trailing = Trailing::new(&memory, both.clone(), vec![7; 100]);
        let mut buf = [0; 2];
        assert_eq!(trailing.read_ranges(&[range(30)], &mut buf), Ok(1));
        assert_eq!(buf, [30, 31]);
        assert_eq!(trailing.read_ranges(&[range(40)], &mut buf), Ok(1));
        assert_eq!(buf, [40, 41]);
        assert_eq!(
            memory.0.take(),
            [vec![range(30), range(10), range(20)], vec![range(40)]],
            "the target waits for what is copied"
        );
        assert_eq!(trailing.into_parts(), (both, Some(vec![10, 11, 20, 21])));
    }

    #[test]
    fn ranges_that_cannot_be_read_are_told_apart() {
        let memory = Noting::default();
        let trailing = Trailing::new(&memory, vec![range(10)], Vec::new());
        assert_eq!(trailing.read_ranges(&[range(30), range(200)], &mut [0; 4]), Ok(1));
        assert_eq!(trailing.read_ranges(&[range(30)], &mut [0; 2]), Ok(1));
        assert_eq!(trailing.into_parts().1, Some(vec![10, 11]), "they come with the next copy");
        let trailing = Trailing::new(&memory, vec![range(10), range(200)], Vec::new());
        assert_eq!(trailing.read_ranges(&[range(30)], &mut [0; 2]), Ok(1));
        assert_eq!(trailing.into_parts().1, None);
    }
}
