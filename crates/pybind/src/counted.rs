//! Memory of which the reads are counted.

use std::cell::Cell;

use slip_remote::{Memory, Range, ReadError, RemoteAddr};

/// How much was read.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Reads {
    pub(crate) calls: u64,
    pub(crate) ranges: u64,
    pub(crate) ranges_done: u64,
    pub(crate) bytes: u64,
}

/// The memory of `memory`.
pub(crate) struct Counted<'a, M> {
    memory: &'a M,
    reads: Cell<Reads>,
}

impl<'a, M: Memory> Counted<'a, M> {
    pub(crate) fn new(memory: &'a M, reads: Reads) -> Self {
        Self { memory, reads: Cell::new(reads) }
    }

    pub(crate) fn reads(&self) -> Reads {
        self.reads.get()
    }

    fn count(&self, ranges: usize, done: usize, bytes: usize) {
        let mut reads = self.reads.get();
        reads.calls += 1;
        reads.ranges += ranges as u64;
        reads.ranges_done += done as u64;
        reads.bytes += bytes as u64;
        self.reads.set(reads);
    }
}

impl<M: Memory> Memory for Counted<'_, M> {
    fn read(&self, addr: RemoteAddr, buf: &mut [u8]) -> Result<(), ReadError> {
        let result = self.memory.read(addr, buf);
        self.count(1, usize::from(result.is_ok()), buf.len());
        result
    }

    fn stands_still(&self) -> bool {
        self.memory.stands_still()
    }

    fn read_ranges(&self, ranges: &[Range], buf: &mut [u8]) -> Result<usize, ReadError> {
        let done = self.memory.read_ranges(ranges, buf)?;
        self.count(ranges.len(), done, buf.len());
        Ok(done)
    }

    fn read_ranges_into_two(
        &self,
        ranges: &[Range],
        first: &mut [u8],
        rest: &mut [u8],
    ) -> Result<usize, ReadError> {
        let done = self.memory.read_ranges_into_two(ranges, first, rest)?;
        self.count(ranges.len(), done, first.len() + rest.len());
        Ok(done)
    }
}
