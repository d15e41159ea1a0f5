//! Columns of whole numbers, cut into planes of bytes.
//!
//! A column is stored as its smallest value and, for what each value has above it, one plane for all low bytes, one
//! for all second bytes and so on, as many as the largest value needs. Low bytes of times are noise and are kept as
//! they are; high bytes hardly change and shrink to almost nothing. Varints would mix the two, which costs a third
//! more after compression (measured on the synthetic hour of `bench/report`), and cannot be decoded without branches.

use zstd::bulk::{Compressor, Decompressor};

use super::block::BlockError;

/// How a plane is stored.
mod method {
    /// Every byte, as it is.
    pub(super) const RAW: u8 = 0;
    /// A length (`u32`) and one zstd frame of that length.
    pub(super) const ZSTD: u8 = 1;
    /// One byte that all of them equal.
    pub(super) const CONSTANT: u8 = 2;
}

/// Planes shorter than this are kept raw: a zstd frame has 13 bytes of its own, and a flush must cost next to no CPU.
const MIN_COMPRESSED_BYTES: usize = 2_048;

/// Writes columns to the end of a buffer.
pub(super) struct PlaneWriter<'a> {
    pub(super) out: &'a mut Vec<u8>,
    pub(super) compressor: Option<&'a mut Compressor<'static>>,
    pub(super) scratch: Vec<u8>,
}

impl PlaneWriter<'_> {
    /// Appends one column.
    pub(super) fn column(&mut self, values: &[u64]) {
        let base = values.iter().copied().min().unwrap_or(0);
        let top = values.iter().copied().max().unwrap_or(0) - base;
        let width = (8 - top.leading_zeros() / 8) as u8;
        self.out.push(width);
        self.out.extend_from_slice(&base.to_le_bytes());
        for plane in 0..u32::from(width) {
            self.scratch.clear();
            // The cast keeps the byte of this plane.
            self.scratch.extend(values.iter().map(|value| ((value - base) >> (8 * plane)) as u8));
            self.plane();
        }
    }

    fn plane(&mut self) {
        let bytes = &self.scratch;
        let first = bytes.first().copied().unwrap_or(0);
        if bytes.iter().all(|byte| *byte == first) {
            self.out.extend_from_slice(&[method::CONSTANT, first]);
            return;
        }
        if bytes.len() >= MIN_COMPRESSED_BYTES
            && let Some(compressor) = &mut self.compressor
            && let Ok(packed) = compressor.compress(bytes)
            && packed.len() + 4 < bytes.len()
            && let Ok(length) = u32::try_from(packed.len())
        {
            self.out.push(method::ZSTD);
            self.out.extend_from_slice(&length.to_le_bytes());
            self.out.extend_from_slice(&packed);
            return;
        }
        self.out.push(method::RAW);
        self.out.extend_from_slice(bytes);
    }
}

/// Reads columns from bytes that nobody vouches for.
pub(super) struct PlaneReader<'a> {
    pub(super) input: &'a [u8],
    pub(super) decompressor: Decompressor<'static>,
    pub(super) scratch: Vec<u8>,
}

impl<'a> PlaneReader<'a> {
    /// The next `count` bytes.
    pub(super) fn take(&mut self, count: usize) -> Result<&'a [u8], BlockError> {
        let (head, tail) = self.input.split_at_checked(count).ok_or(BlockError::Short)?;
        self.input = tail;
        Ok(head)
    }

    /// The next byte.
    pub(super) fn byte(&mut self) -> Result<u8, BlockError> {
        Ok(self.take(1)?[0])
    }

    /// The next 32-bit number.
    pub(super) fn u32(&mut self) -> Result<u32, BlockError> {
        let bytes = self.take(4)?.try_into().map_err(|_| BlockError::Short)?;
        Ok(u32::from_le_bytes(bytes))
    }

    /// The next 64-bit number.
    pub(super) fn u64(&mut self) -> Result<u64, BlockError> {
        let bytes = self.take(8)?.try_into().map_err(|_| BlockError::Short)?;
        Ok(u64::from_le_bytes(bytes))
    }

    /// The next column, which has `count` values. `values` is overwritten.
    ///
    /// The memory used is `9 * count` bytes whatever the input says; the caller bounds `count`.
    pub(super) fn column(&mut self, count: usize, values: &mut Vec<u64>) -> Result<(), BlockError> {
        let width = self.byte()?;
        if width > 8 {
            return Err(BlockError::Malformed);
        }
        let base = self.u64()?;
        values.clear();
        values.resize(count, base);
        for plane in 0..u32::from(width) {
            let shift = 8 * plane;
            match self.byte()? {
                method::RAW => add_plane(values, self.take(count)?, shift),
                method::CONSTANT => {
                    let part = u64::from(self.byte()?) << shift;
                    values.iter_mut().for_each(|value| *value = value.wrapping_add(part));
                }
                method::ZSTD => {
                    let length = self.u32()? as usize;
                    let packed = self.take(length)?;
                    // The buffer is the bound: a frame that unpacks to more is an error, whatever its header claims.
                    self.scratch.resize(count, 0);
                    let unpacked = self.decompressor.decompress_to_buffer(packed, &mut self.scratch[..]);
                    if !matches!(unpacked, Ok(length) if length == count) {
                        return Err(BlockError::Malformed);
                    }
                    add_plane(values, &self.scratch, shift);
                }
                _ => return Err(BlockError::Malformed),
            }
        }
        Ok(())
    }
}

fn add_plane(values: &mut [u64], bytes: &[u8], shift: u32) {
    for (value, byte) in values.iter_mut().zip(bytes) {
        *value = value.wrapping_add(u64::from(*byte) << shift);
    }
}

/// Small numbers of either sign as small numbers: 0, -1, 1, -2 become 0, 1, 2, 3.
pub(super) fn zigzag(difference: u64) -> u64 {
    (difference << 1) ^ (difference.cast_signed() >> 63).cast_unsigned()
}

/// The inverse of [`zigzag`].
pub(super) fn unzigzag(code: u64) -> u64 {
    (code >> 1) ^ (code & 1).wrapping_neg()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round_trip(values: &[u64], level: Option<i32>) -> Vec<u64> {
        let mut compressor = level.map(|level| Compressor::new(level).unwrap());
        let mut out = Vec::new();
        PlaneWriter { out: &mut out, compressor: compressor.as_mut(), scratch: Vec::new() }.column(values);
        let mut reader =
            PlaneReader { input: &out, decompressor: Decompressor::new().unwrap(), scratch: Vec::new() };
        let mut read = Vec::new();
        reader.column(values.len(), &mut read).unwrap();
        assert!(reader.input.is_empty());
        read
    }

    #[test]
    fn columns_come_back() {
        let ramp: Vec<u64> = (0..10_000).map(|at| at * at).collect();
        for values in [vec![], vec![7], vec![u64::MAX, 0, 1], vec![300; 50], ramp] {
            assert_eq!(round_trip(&values, None), values);
            assert_eq!(round_trip(&values, Some(3)), values);
        }
    }

    #[test]
    fn zigzag_has_an_inverse_everywhere() {
        for value in [0, 1, u64::MAX, u64::MAX - 1, 1 << 63, (1 << 63) - 1, 12_345] {
            assert_eq!(unzigzag(zigzag(value)), value);
        }
        assert_eq!([0_u64, u64::MAX, 1].map(zigzag), [0, 1, 2]);
    }
}
