//! Numbers out of copied memory, many small reads at once, and tables by address.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hasher, RandomState};

use slip_remote::{Memory, Range, ReadError, RemoteAddr, prefetch};

/// Most unreadable ranges that one batch skips. Each costs a system call; a healthy target has next to none.
const MAX_HOLES: usize = 64;

/// Most bytes that one batch copies. Ordinary batches have a few KiB.
const MAX_BATCH_BYTES: usize = 16 << 20;

/// The number of 8 bytes at `at`; 0 beyond the end, which only a damaged copy can ask for.
pub(crate) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    array_at(bytes, at).map_or(0, u64::from_le_bytes)
}

/// The number of 4 bytes at `at`; 0 beyond the end.
pub(crate) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    array_at(bytes, at).map_or(0, u32::from_le_bytes)
}

/// The byte at `at`; 0 beyond the end.
pub(crate) fn u8_at(bytes: &[u8], at: usize) -> u8 {
    bytes.get(at).copied().unwrap_or(0)
}

/// The address at `at`; null beyond the end.
pub(crate) fn addr_at(bytes: &[u8], at: usize) -> RemoteAddr {
    RemoteAddr(u64_at(bytes, at))
}

fn array_at<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at.checked_add(N)?)?.try_into().ok()
}

/// Ranges that are read together; each is readable or not on its own.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    /// Which range each part is; `None` for what cannot be read anyway.
    parts: Vec<Option<usize>>,
    ranges: Vec<Range>,
    starts: Vec<usize>,
    readable: Vec<bool>,
    bytes: Vec<u8>,
    len: usize,
}

impl Batch {
    /// Has the CPU fetch what an ordinary batch fills.
    pub(crate) fn prefetch(&self) {
        prefetch(self.parts.as_slice());
        prefetch(self.ranges.as_slice());
        prefetch(self.starts.as_slice());
        prefetch(self.readable.as_slice());
    }

    /// Forgets all parts; keeps the memory.
    pub(crate) fn clear(&mut self) {
        self.parts.clear();
        self.ranges.clear();
        self.starts.clear();
        self.readable.clear();
        self.len = 0;
    }

    /// Adds `len` bytes at `addr`; the answer is asked for by the number that this returns.
    ///
    /// Nothing at null, what wraps around and what would make the batch too large are as good as unreadable.
    pub(crate) fn push(&mut self, addr: RemoteAddr, len: usize) -> usize {
        let fits =
            self.len.saturating_add(len) <= MAX_BATCH_BYTES && addr.0.checked_add(len as u64).is_some();
        if fits && len > 0 && !addr.is_null() {
            self.parts.push(Some(self.ranges.len()));
            self.ranges.push(Range::new(addr, len));
            self.starts.push(self.len);
            self.len += len;
        } else {
            self.parts.push(None);
        }
        self.parts.len() - 1
    }

    /// Reads all parts, in one system call unless some are unreadable.
    pub(crate) fn read<M: Memory + ?Sized>(&mut self, memory: &M) -> Result<(), ReadError> {
        // It never becomes shorter, so that nothing is filled with zeros time and again.
        if self.bytes.len() < self.len {
            self.bytes.resize(self.len, 0);
        }
        let bytes = &mut self.bytes[..self.len];
        self.readable.clear();
        self.readable.resize(self.ranges.len(), false);
        let (mut next, mut holes) = (0, 0);
        while next < self.ranges.len() && holes < MAX_HOLES {
            let done = memory.read_ranges(&self.ranges[next..], &mut bytes[self.starts[next]..])?;
            let end = next.saturating_add(done).min(self.ranges.len());
            self.readable[next..end].fill(true);
            next = end + 1;
            holes += 1;
        }
        Ok(())
    }

    /// What part `number` holds; `None` if it could not be read.
    pub(crate) fn get(&self, number: usize) -> Option<&[u8]> {
        let at = (*self.parts.get(number)?)?;
        let start = *self.starts.get(at)?;
        if !*self.readable.get(at)? {
            return None;
        }
        self.bytes.get(start..start + self.ranges.get(at)?.len)
    }
}

/// A table by address.
pub(crate) type ByAddr<V> = HashMap<RemoteAddr, V, AddrHash>;

/// Hashes addresses. Each frame of each sample is looked up several times; the standard hash makes up most of a sample's
/// cost then. The key is drawn anew for each table, so that a target cannot choose addresses that collide.
#[derive(Clone, Debug)]
pub(crate) struct AddrHash(u64);

impl Default for AddrHash {
    fn default() -> Self {
        Self(RandomState::new().hash_one(0) | 1)
    }
}

impl BuildHasher for AddrHash {
    type Hasher = AddrHasher;

    fn build_hasher(&self) -> AddrHasher {
        AddrHasher { key: self.0, hash: 0 }
    }
}

/// See [`AddrHash`].
#[derive(Debug)]
pub(crate) struct AddrHasher {
    key: u64,
    hash: u64,
}

impl Hasher for AddrHasher {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    fn write_u8(&mut self, number: u8) {
        self.write_u64(u64::from(number));
    }

    fn write_u32(&mut self, number: u32) {
        self.write_u64(u64::from(number));
    }

    fn write_usize(&mut self, number: usize) {
        self.write_u64(number as u64);
    }

    fn write_u64(&mut self, number: u64) {
        let product = u128::from(number ^ self.hash ^ self.key) * u128::from(self.key);
        // Both halves: the low one alone would leave the low bits of aligned addresses as they are.
        self.hash = (product as u64) ^ ((product >> 64) as u64);
    }

    fn finish(&self) -> u64 {
        self.hash
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use slip_remote::Image;

    #[test]
    fn numbers_beyond_the_end_are_zero() {
        assert_eq!(u64_at(&[1; 8], 0), 0x0101_0101_0101_0101);
        assert_eq!(u64_at(&[1; 8], 1), 0);
        assert_eq!(u32_at(&[1; 8], usize::MAX), 0);
        assert_eq!(u8_at(&[], 0), 0);
    }

    #[test]
    fn a_hole_does_not_hide_what_follows() {
        let mut image = Image::default();
        image.insert(RemoteAddr(0x1000), &[1, 2, 3, 4]);
        let mut batch = Batch::default();
        let first = batch.push(RemoteAddr(0x1000), 2);
        let hole = batch.push(RemoteAddr(0x9000), 8);
        let null = batch.push(RemoteAddr::NULL, 8);
        let huge = batch.push(RemoteAddr(0x1000), usize::MAX);
        let last = batch.push(RemoteAddr(0x1002), 2);
        batch.read(&image).unwrap();
        assert_eq!(batch.get(first), Some(&[1, 2][..]));
        assert_eq!((batch.get(hole), batch.get(null), batch.get(huge)), (None, None, None));
        assert_eq!(batch.get(last), Some(&[3, 4][..]));
    }
}
