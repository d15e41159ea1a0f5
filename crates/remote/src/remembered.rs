//! What a look at many small objects read, read in one call with the next look.
//!
//! Objects that refer to each other are found one after the other, a system call each. But from one look to the next most of them
//! stay where they are: so all pieces that the last look read are copied at once, and what it reads again comes out of that copy.

use std::cell::RefCell;
use std::collections::HashMap;

use crate::memory::read_and_split;
use crate::{Memory, Range, ReadError, RemoteAddr};

/// Pages are pinned one by one: pieces of the same page cost what one of them does.
const PAGE_BYTES: u64 = 4_096;

/// Most pages that are remembered; what is beyond is read each time.
const MAX_PAGES: usize = 4 * 1_024;

/// What was read, and where; one for each kind of look at each process.
#[derive(Debug, Default)]
pub struct Pieces {
    /// At most one piece of a page, in ascending order.
    ranges: Vec<Range>,
    bytes: Vec<u8>,
    /// What was fetched the time before, and whether nothing else was read then.
    last: Vec<u8>,
    was_enough: bool,
    /// Where each piece begins in the bytes, by page.
    starts: HashMap<u64, (usize, Range)>,
    /// First and last plus one byte that this look has read, by page.
    used: HashMap<u64, (u64, u64)>,
}

/// Memory that is read by way of [`Pieces`]. Lives as long as one look.
///
/// The pieces are copied with what is read first; what [`Memory::read_ranges`] is asked for is always copied anew, for those who compare
/// copies.
#[derive(Debug)]
pub struct Remembered<'a, M: ?Sized> {
    memory: &'a M,
    state: RefCell<State<'a>>,
}

#[derive(Debug)]
struct State<'a> {
    pieces: &'a mut Pieces,
    is_fetched: bool,
    /// All pieces could be read, and nothing else has been.
    is_enough: bool,
}

impl<'a, M: Memory + ?Sized> Remembered<'a, M> {
    /// Reads what it is asked for from `pieces`, or else from `memory`.
    pub fn new(memory: &'a M, pieces: &'a mut Pieces) -> Self {
        pieces.starts.clear();
        pieces.used.clear();
        Self { memory, state: RefCell::new(State { pieces, is_fetched: false, is_enough: true }) }
    }

    /// Whether all that the last look has read holds the same still, so that another one would find the same. Fetches it.
    ///
    /// # Errors
    ///
    /// As for [`Memory::read_ranges`].
    pub fn is_unchanged(&self) -> Result<bool, ReadError> {
        let state = &mut *self.state.borrow_mut();
        state.fetch(self.memory)?;
        let pieces = &state.pieces;
        let is_unchanged = pieces.was_enough && state.is_enough && pieces.last == pieces.bytes;
        if is_unchanged {
            // The next look begins with the same.
            state.pieces.keep_all();
        }
        Ok(is_unchanged)
    }

    /// Ends the look: the next one begins with what this one has read.
    pub fn finish(self) {
        let State { pieces, is_fetched, is_enough } = self.state.into_inner();
        if !is_fetched {
            return;
        }
        let before = pieces.ranges.len();
        pieces.was_enough = is_enough && before == pieces.used.len();
        std::mem::swap(&mut pieces.last, &mut pieces.bytes);
        pieces.ranges.clear();
        let range = |(page, (from, to)): (&u64, &(u64, u64))| {
            Range::new(RemoteAddr(page * PAGE_BYTES + from), usize::try_from(to - from).unwrap_or(0))
        };
        pieces.ranges.extend(pieces.used.iter().map(range));
        pieces.ranges.sort_unstable_by_key(|range| range.addr);
        pieces.ranges.truncate(MAX_PAGES);
    }
}

impl State<'_> {
    fn fetch<M: Memory + ?Sized>(&mut self, memory: &M) -> Result<(), ReadError> {
        if !std::mem::replace(&mut self.is_fetched, true) {
            self.is_enough = self.pieces.fetch(memory)?;
        }
        Ok(())
    }
}

impl Pieces {
    /// Takes all pieces for used.
    fn keep_all(&mut self) {
        let part = |range: &Range| {
            let from = range.addr.0 % PAGE_BYTES;
            (range.addr.0 / PAGE_BYTES, (from, from + range.len as u64))
        };
        self.used.extend(self.ranges.iter().map(part));
    }

    /// Copies all pieces; false if some cannot be read.
    fn fetch<M: Memory + ?Sized>(&mut self, memory: &M) -> Result<bool, ReadError> {
        let mut is_whole = true;
        self.bytes.resize(self.ranges.iter().map(|range| range.len).sum(), 0);
        let (mut done, mut at) = (0, 0);
        while done < self.ranges.len() {
            let rest: usize = self.ranges[done..].iter().map(|range| range.len).sum();
            let read = memory.read_ranges(&self.ranges[done..], &mut self.bytes[at..at + rest])?;
            for range in &self.ranges[done..done + read] {
                self.starts.insert(range.addr.0 / PAGE_BYTES, (at, *range));
                at += range.len;
            }
            // One that is no longer mapped is left out.
            done += read;
            if let Some(gone) = self.ranges.get(done) {
                at += gone.len;
                done += 1;
                is_whole = false;
            }
        }
        Ok(is_whole)
    }

    /// Copies `ranges` into `buf`, and all pieces behind them; how many of both were copied. The pieces are fetched if that is all.
    fn fetch_behind<M: Memory + ?Sized>(
        &mut self,
        memory: &M,
        ranges: &[Range],
        buf: &mut [u8],
    ) -> Result<usize, ReadError> {
        let all = [ranges, &self.ranges].concat();
        self.bytes.resize(self.ranges.iter().map(|range| range.len).sum(), 0);
        let done = memory.read_ranges_into_two(&all, buf, &mut self.bytes)?;
        if done == all.len() {
            let mut at = 0;
            for range in &self.ranges {
                self.starts.insert(range.addr.0 / PAGE_BYTES, (at, *range));
                at += range.len;
            }
        }
        Ok(done)
    }

    /// The part of a page, if it was fetched.
    fn find(&self, addr: u64, len: usize) -> Option<&[u8]> {
        let (start, range) = self.starts.get(&(addr / PAGE_BYTES))?;
        let at = start + range.find(RemoteAddr(addr), len)?;
        self.bytes.get(at..at + len)
    }

    fn note(&mut self, addr: u64, len: usize) {
        let (page, from) = (addr / PAGE_BYTES, addr % PAGE_BYTES);
        let to = from + len as u64;
        let used = self.used.entry(page).or_insert((from, to));
        *used = (used.0.min(from), used.1.max(to));
    }
}

/// The parts of `len` bytes from `addr` on that lie in one page each.
fn parts(addr: RemoteAddr, len: usize) -> impl Iterator<Item = (u64, std::ops::Range<usize>)> {
    let mut done = 0;
    std::iter::from_fn(move || {
        let at = addr.0.wrapping_add(done as u64);
        let in_page = usize::try_from(PAGE_BYTES - at % PAGE_BYTES).unwrap_or(1);
        let step = in_page.min(len - done);
        let part = (at, done..done + step);
        done += step;
        (step > 0).then_some(part)
    })
}

impl<M: Memory + ?Sized> Memory for Remembered<'_, M> {
    fn read(&self, addr: RemoteAddr, buf: &mut [u8]) -> Result<(), ReadError> {
        let state = &mut *self.state.borrow_mut();
        state.fetch(self.memory)?;
        let pieces = &mut *state.pieces;
        let mut is_known = true;
        for (at, part) in parts(addr, buf.len()) {
            match pieces.find(at, part.len()) {
                Some(bytes) => buf[part].copy_from_slice(bytes),
                None => {
                    is_known = false;
                    break;
                }
            }
        }
        if !is_known {
            state.is_enough = false;
            self.memory.read(addr, buf)?;
        }
        parts(addr, buf.len()).for_each(|(at, part)| pieces.note(at, part.len()));
        Ok(())
    }

    fn stands_still(&self) -> bool {
        self.memory.stands_still()
    }

    fn read_ranges(&self, ranges: &[Range], buf: &mut [u8]) -> Result<usize, ReadError> {
        let state = &mut *self.state.borrow_mut();
        if state.is_fetched {
            return self.memory.read_ranges(ranges, buf);
        }
        // What is asked for first comes in the same call.
        let done = state.pieces.fetch_behind(self.memory, ranges, buf)?;
        if done >= ranges.len() + state.pieces.ranges.len() {
            (state.is_fetched, state.is_enough) = (true, true);
        }
        Ok(done.min(ranges.len()))
    }

    fn read_ranges_into_two(
        &self,
        ranges: &[Range],
        first: &mut [u8],
        rest: &mut [u8],
    ) -> Result<usize, ReadError> {
        read_and_split(self, ranges, first, rest)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    /// Each byte is its address divided by 3; the page from 0x5000 on can be taken away.
    #[derive(Default)]
    struct Counting {
        calls: Cell<usize>,
        is_gone: Cell<bool>,
        /// How much all bytes are more.
        shift: Cell<u8>,
    }

    fn byte_at(addr: u64) -> u8 {
        (addr / 3 % 251) as u8
    }

    impl Memory for Counting {
        fn read(&self, addr: RemoteAddr, buf: &mut [u8]) -> Result<(), ReadError> {
            match self.read_ranges(&[Range::new(addr, buf.len())], buf)? {
                1 => Ok(()),
                _ => Err(ReadError::Unmapped { addr, len: buf.len() }),
            }
        }

        fn read_ranges(&self, ranges: &[Range], buf: &mut [u8]) -> Result<usize, ReadError> {
            self.calls.set(self.calls.get() + 1);
            let mut rest = buf;
            for (done, range) in ranges.iter().enumerate() {
                if self.is_gone.get() && range.addr.0 < 0x6000 && range.end() > 0x5000 {
                    return Ok(done);
                }
                let (bytes, tail) = rest.split_at_mut(range.len);
                for (at, byte) in (range.addr.0..).zip(bytes) {
                    *byte = byte_at(at).wrapping_add(self.shift.get());
                }
                rest = tail;
            }
            Ok(ranges.len())
        }
    }

    /// One look at these pieces: how many calls it took, and which could be read.
    fn look(target: &Counting, pieces: &mut Pieces, at: &[(u64, usize)]) -> (usize, Vec<bool>) {
        let before = target.calls.get();
        let memory = Remembered::new(target, pieces);
        let read = at.iter().map(|(addr, len)| {
            let mut buf = vec![0; *len];
            let is_read = memory.read(RemoteAddr(*addr), &mut buf).is_ok();
            let shift = target.shift.get();
            let expected: Vec<u8> = (*addr..).take(*len).map(|at| byte_at(at).wrapping_add(shift)).collect();
            assert!(!is_read || buf == expected, "{addr:#x}");
            is_read
        });
        let read = read.collect();
        memory.finish();
        (target.calls.get() - before, read)
    }

    #[test]
    fn the_second_look_takes_one_call() {
        let (target, mut pieces) = (Counting::default(), Pieces::default());
        let at = [(0x1010, 8), (0x1ff0, 100), (0x5008, 16), (0x9000, 4_096 * 2), (0x1018, 8)];
        assert_eq!(look(&target, &mut pieces, &at), (5, vec![true; 5]));
        assert_eq!(look(&target, &mut pieces, &at), (1, vec![true; 5]));
        // One more, and some that are not read any more.
        assert_eq!(look(&target, &mut pieces, &[(0x1010, 8), (0x7000, 8)]), (2, vec![true; 2]));
        assert_eq!(look(&target, &mut pieces, &[(0x1010, 8), (0x7000, 8)]), (1, vec![true; 2]));
        assert_eq!(pieces.ranges.len(), 2);
    }

    #[test]
    fn a_look_that_would_find_the_same_is_told() {
        let (target, mut pieces) = (Counting::default(), Pieces::default());
        let is_unchanged = |pieces: &mut Pieces| {
            let memory = Remembered::new(&target, pieces);
            let is_unchanged = memory.is_unchanged().unwrap();
            memory.finish();
            is_unchanged
        };
        let at = [(0x1010, 8), (0x5008, 16)];
        look(&target, &mut pieces, &at);
        assert!(!is_unchanged(&mut pieces), "the first look fetched nothing");
        look(&target, &mut pieces, &at);
        look(&target, &mut pieces, &at);
        assert!(is_unchanged(&mut pieces) && is_unchanged(&mut pieces));
        target.shift.set(1);
        assert!(!is_unchanged(&mut pieces));
        look(&target, &mut pieces, &[(0x1010, 8)]);
        look(&target, &mut pieces, &[(0x1010, 8)]);
        assert!(is_unchanged(&mut pieces));
        look(&target, &mut pieces, &at);
        assert!(!is_unchanged(&mut pieces), "it read more than was fetched");
        look(&target, &mut pieces, &at);
        look(&target, &mut pieces, &at);
        target.is_gone.set(true);
        assert!(!is_unchanged(&mut pieces));
    }

    #[test]
    fn a_page_that_has_gone_is_left_out() {
        let (target, mut pieces) = (Counting::default(), Pieces::default());
        let at = [(0x1010, 8), (0x5008, 16), (0x9000, 8)];
        look(&target, &mut pieces, &at);
        target.is_gone.set(true);
        // The copy up to it, the one behind it, and the question itself.
        assert_eq!(look(&target, &mut pieces, &at), (3, vec![true, false, true]));
        assert_eq!(look(&target, &mut pieces, &at), (2, vec![true, false, true]));
    }

    proptest::proptest! {
        #[test]
        fn what_is_read_is_what_is_there(
            looks in proptest::collection::vec(
                proptest::collection::vec((0_u64..0x1_0000, 0_usize..9_000), 0..20), 1..6
            ),
        ) {
            let (target, mut pieces) = (Counting::default(), Pieces::default());
            for at in looks {
                let (_, read) = look(&target, &mut pieces, &at);
                proptest::prop_assert!(read.iter().all(|is_read| *is_read));
            }
        }
    }
}
