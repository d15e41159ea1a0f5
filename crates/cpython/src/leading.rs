//! Two reads in one system call: each costs more than all that it copies.

use std::cell::RefCell;

use slip_remote::{Memory, Range, ReadError, RemoteAddr};

/// Memory whose first copy of several ranges begins with some others.
pub(crate) struct Leading<'a, M: ?Sized> {
    memory: &'a M,
    /// How many ranges lead, and how long they are together.
    count: usize,
    len: usize,
    copied: RefCell<Copied>,
}

/// What the first copy gave.
#[derive(Debug)]
struct Copied {
    is_done: bool,
    /// All ranges that lead were readable.
    is_whole: bool,
    /// These, and behind them those that were asked for.
    ranges: Vec<Range>,
    bytes: Vec<u8>,
}

impl<'a, M: Memory + ?Sized> Leading<'a, M> {
    /// Copies `ranges` with the first others that are asked for, by way of `buffer`.
    pub(crate) fn new(memory: &'a M, ranges: Vec<Range>, buffer: Vec<u8>) -> Self {
        let (count, len) = (ranges.len(), ranges.iter().map(|range| range.len).sum());
        let copied = Copied { is_done: false, is_whole: false, ranges, bytes: buffer };
        Self { memory, count, len, copied: RefCell::new(copied) }
    }

    /// The ranges, and what they held; nothing if they could not be read, or nobody asked.
    pub(crate) fn into_parts(self) -> (Vec<Range>, Option<Vec<u8>>) {
        let Copied { is_whole, mut ranges, bytes, .. } = self.copied.into_inner();
        ranges.truncate(self.count);
        (ranges, is_whole.then_some(bytes))
    }
}

impl<M: Memory + ?Sized> Memory for Leading<'_, M> {
    fn read(&self, addr: RemoteAddr, buf: &mut [u8]) -> Result<(), ReadError> {
        self.memory.read(addr, buf)
    }

    fn read_ranges(&self, ranges: &[Range], buf: &mut [u8]) -> Result<usize, ReadError> {
        let copied = &mut *self.copied.borrow_mut();
        if std::mem::replace(&mut copied.is_done, true) {
            return self.memory.read_ranges(ranges, buf);
        }
        copied.bytes.resize(self.len, 0);
        // Behind the others, so that no memory is needed: there is room from the sample before.
        copied.ranges.extend_from_slice(ranges);
        let done = self.memory.read_ranges_into_two(&copied.ranges, &mut copied.bytes, buf)?;
        copied.is_whole = done >= self.count;
        Ok(done.saturating_sub(self.count))
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    /// Each byte is its own address; nothing is mapped from 200 on.
    #[derive(Default)]
    struct Counting(Cell<usize>);

    impl Memory for Counting {
        fn read(&self, addr: RemoteAddr, buf: &mut [u8]) -> Result<(), ReadError> {
            for (at, byte) in (addr.0..).zip(buf.iter_mut()) {
                *byte = u8::try_from(at).unwrap();
            }
            if addr.0 < 200 { Ok(()) } else { Err(ReadError::Unmapped { addr, len: buf.len() }) }
        }

        fn read_ranges(&self, ranges: &[Range], buf: &mut [u8]) -> Result<usize, ReadError> {
            self.0.set(self.0.get() + 1);
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
    fn what_leads_comes_with_the_first_copy_alone() {
        let memory = Counting::default();
        let both = vec![range(10), range(20)];
        let leading = Leading::new(&memory, both.clone(), vec![7; 100]);
        let mut buf = [0; 2];
        assert_eq!(leading.read_ranges(&[range(30)], &mut buf), Ok(1));
        assert_eq!(buf, [30, 31]);
        assert_eq!(leading.read_ranges(&[range(40)], &mut buf), Ok(1));
        assert_eq!(buf, [40, 41]);
        assert_eq!(memory.0.get(), 2);
        assert_eq!(leading.into_parts(), (both, Some(vec![10, 11, 20, 21])));
    }

    #[test]
    fn ranges_that_cannot_be_read_are_told_apart() {
        let memory = Counting::default();
        let leading = Leading::new(&memory, vec![range(10)], Vec::new());
        assert_eq!(leading.read_ranges(&[range(30), range(200)], &mut [0; 4]), Ok(1));
        assert_eq!(leading.into_parts().1, Some(vec![10, 11]));
        let leading = Leading::new(&memory, vec![range(10), range(200)], Vec::new());
        assert_eq!(leading.read_ranges(&[range(30)], &mut [0; 2]), Ok(0));
        assert_eq!(leading.into_parts().1, None);
    }
}
