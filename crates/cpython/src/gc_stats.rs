//! What CPython notes of its garbage collections, from 3.15 on.
//!
//! Each interpreter keeps its last collections of each generation, the oldest of which the next one replaces.

use slip_remote::{Memory, ReadError, RemoteAddr};
use thiserror::Error;

use crate::bytes::u64_at;
use crate::dicts::read_addr;
use crate::process::Interpreter;

/// `struct gc_stats` of `Include/internal/pycore_interp_structs.h`: for each generation so many `struct gc_generation_stats`, and
/// behind them the number of the newest.
const ENTRIES: [usize; 3] = [11, 3, 3];
const ENTRY_BYTES: usize = 64;
const NEWEST_BYTES: usize = 8;
const READ_BYTES: usize = (ENTRIES[0] + ENTRIES[1] + ENTRIES[2]) * ENTRY_BYTES + 3 * NEWEST_BYTES;

/// What the target says that it has; the rest is not ours to know.
const STATS_BYTES: usize = 1_120;

/// What one collection has left; the counts are of all collections of the generation up to it.
///
/// The numbers are as the target has them, all 0 as long as there was no such collection.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct GcStats {
    /// 0 for the young one, to 2.
    pub generation: u8,
    /// Number of the interpreter.
    pub interpreter: u64,
    /// When it began and ended, by the target's monotonic clock.
    pub started_ns: i64,
    /// See `started_ns`.
    pub ended_ns: i64,
    /// How many collections.
    pub collections: i64,
    /// Objects that were freed.
    pub collected: i64,
    /// Garbage that could not be freed.
    pub uncollectable: i64,
    /// Objects that were looked at.
    pub candidates: i64,
    /// Objects that lived then.
    pub heap_size: i64,
    /// How long all of them took.
    pub duration_s: f64,
}

/// Why they could not be read.
#[derive(Debug, Error)]
pub enum GcStatsError {
    /// It does not keep them.
    #[error(
        "CPython before 3.15 keeps no statistics of its garbage collections that can be read from outside"
    )]
    TooOld,
    /// They have another size than in the versions that we know.
    #[error("the statistics of garbage collections have {0} bytes, not {known}", known = STATS_BYTES)]
    Layout(usize),
    /// The list of interpreters or the statistics changed while they were read, and again when they were read once more.
    #[error("{0} while it was read")]
    Torn(&'static str),
    /// The memory could not be read.
    #[error(transparent)]
    Read(#[from] ReadError),
}

impl Interpreter {
    /// Statistics of the collections of the main interpreter, or of all, the one that was made last first. Of each they come by
    /// generation, and in each generation in the order in which the interpreter has them, which is a ring.
    ///
    /// # Errors
    ///
    /// [`GcStatsError::TooOld`] and [`GcStatsError::Layout`]: there is nothing that we can read. [`GcStatsError::Torn`]: the
    /// next try may do. [`GcStatsError::Read`] if the process is gone.
    pub fn gc_stats<M: Memory + ?Sized>(
        &mut self,
        memory: &M,
        of_all: bool,
    ) -> Result<Vec<GcStats>, GcStatsError> {
        let place = self.offsets.interpreter.gc_stats.ok_or(GcStatsError::TooOld)?;
        if place.len != STATS_BYTES {
            return Err(GcStatsError::Layout(place.len));
        }
        self.refresh(memory)?;
        let known = self.numbers();
        let mut found = Vec::new();
        for (addr, number) in known.iter().filter(|(_, number)| of_all || *number == 0) {
            let at = read_addr(memory, addr.offset(place.pointer as u64))?;
            if at.is_null() {
                return Err(GcStatsError::Torn("an interpreter was being made"));
            }
            found.extend(parse(&read_still(memory, at)?, *number));
        }
        // What has ended meanwhile had memory that may be another's.
        self.refresh(memory)?;
        if self.numbers() != known {
            return Err(GcStatsError::Torn("the list of interpreters changed"));
        }
        Ok(found)
    }

    fn numbers(&self) -> Vec<(RemoteAddr, u64)> {
        self.states.iter().map(|state| (state.addr, state.fields.id)).collect()
    }
}

/// Two copies that are the same: nothing was written meanwhile, because each collection has its own time. A collection may end while
/// they are copied, but hardly two, so that a third copy is as good a try as any.
fn read_still<M: Memory + ?Sized>(memory: &M, at: RemoteAddr) -> Result<[u8; READ_BYTES], GcStatsError> {
    let copy = || {
        let mut bytes = [0; READ_BYTES];
        memory.read(at, &mut bytes).map(|()| bytes)
    };
    let mut before = copy()?;
    for _ in 0..2 {
        let after = copy()?;
        if after == before {
            return Ok(after);
        }
        before = after;
    }
    Err(GcStatsError::Torn("statistics of garbage collections changed"))
}

fn parse(bytes: &[u8; READ_BYTES], interpreter: u64) -> Vec<GcStats> {
    let mut found = Vec::with_capacity(ENTRIES.iter().sum());
    let mut at = 0;
    for (generation, entries) in (0..).zip(ENTRIES) {
        for _ in 0..entries {
            let number = |field: usize| u64_at(bytes, at + field * 8).cast_signed();
            found.push(GcStats {
                generation,
                interpreter,
                started_ns: number(0),
                ended_ns: number(1),
                collections: number(2),
                collected: number(3),
                uncollectable: number(4),
                candidates: number(5),
                duration_s: f64::from_bits(u64_at(bytes, at + 6 * 8)),
                heap_size: number(7),
            });
            at += ENTRY_BYTES;
        }
        at += NEWEST_BYTES;
    }
    found
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    /// Each read gives the next of these.
    struct Changing(Vec<u8>, Cell<usize>);

    impl Memory for Changing {
        fn read(&self, _: RemoteAddr, buf: &mut [u8]) -> Result<(), ReadError> {
            buf.fill(self.0[self.1.get()]);
            self.1.set(self.1.get() + 1);
            Ok(())
        }
    }

    #[test]
    fn generations_come_one_after_the_other() {
        let mut bytes = [0; READ_BYTES];
        let mut put = |at: usize, value: u64| bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
        put(0, 11);
        put(11 * 64, 99); // the newest of the young ones
        put(11 * 64 + 8, 22);
        put(11 * 64 + 8 + 48, 0.5_f64.to_bits());
        put(READ_BYTES - 8 - 8, 33);
        let stats = parse(&bytes, 7);
        let generations: Vec<u8> = stats.iter().map(|entry| entry.generation).collect();
        assert_eq!(generations, [[0; 11].as_slice(), &[1; 3], &[2; 3]].concat());
        assert_eq!((stats[0].started_ns, stats[11].started_ns, stats[16].heap_size), (11, 22, 33));
        assert_eq!((stats[11].duration_s, stats[11].interpreter), (0.5, 7));
    }

    #[test]
    fn what_keeps_changing_is_not_told() {
        let read = |values: &[u8]| read_still(&Changing(values.to_vec(), Cell::new(0)), RemoteAddr(8));
        assert_eq!(read(&[1, 1]).unwrap()[0], 1);
        assert_eq!(read(&[1, 2, 2]).unwrap()[0], 2);
        assert!(matches!(read(&[1, 2, 3]), Err(GcStatsError::Torn(_))));
    }
}
