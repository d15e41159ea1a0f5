//! What `xz` has packed, with a bound for what comes out.
//!
//! `lzma-rust2` unpacks; its reader of the container is not used, as that brings a library of hashes with it for sums which nobody needs here: a
//! name that is wrong is shown, and that is all.

use std::io::Read as _;

use lzma_rust2::Lzma2Reader;

const MAGIC: [u8; 6] = [0xfd, b'7', b'z', b'X', b'Z', 0];
const STREAM_HEAD_BYTES: usize = 12;

/// The filter that `xz` has for data that nothing is known of; only that.
const LZMA2: u8 = 0x21;

/// Longest number in the head of a block, of 7 bits each.
const MAX_NUMBER_BYTES: usize = 9;

/// Bytes of the sum behind a block, by its kind.
const SUM_BYTES: [usize; 16] = [0, 4, 4, 4, 8, 8, 8, 16, 16, 16, 32, 32, 32, 64, 64, 64];

/// Unpacks a file of `xz`; `None` if it is damaged, or has more than `limit` bytes.
pub(crate) fn unpack(bytes: &[u8], limit: u32) -> Option<Vec<u8>> {
    let (head, mut rest) = bytes.split_first_chunk::<STREAM_HEAD_BYTES>()?;
    let sum_bytes = SUM_BYTES[usize::from(head[7] & 15)];
    if !head.starts_with(&MAGIC) {
        return None;
    }
    let mut unpacked = Vec::new();
    // The index begins with 0, and no block does.
    while *rest.first()? != 0 {
        let (head, packed) = rest.split_at_checked((usize::from(rest[0]) + 1) * 4)?;
        // Who does not use all of it has room for what comes out.
        let dictionary_bytes = dictionary_bytes(head)?.min(limit);
        let mut packed_rest = packed;
        let room = u64::from(limit) - unpacked.len() as u64;
        let mut reader = Lzma2Reader::new(&mut packed_rest, dictionary_bytes, None).take(room + 1);
        reader.read_to_end(&mut unpacked).ok()?;
        if unpacked.len() > limit as usize {
            return None;
        }
        let used = packed.len() - packed_rest.len();
        rest = packed.get(used.next_multiple_of(4).checked_add(sum_bytes)?..)?;
    }
    Some(unpacked)
}

/// How far back what is in a block refers to what was before, by the block's head.
fn dictionary_bytes(head: &[u8]) -> Option<u32> {
    let flags = *head.get(1)?;
    let mut rest = head.get(2..)?;
    // How long it is packed and unpacked, if that is told. Two bits say how many filters there are but for the first one.
    for _ in 0..u8::from(flags & 0x40 != 0) + u8::from(flags & 0x80 != 0) {
        let last = rest.iter().take(MAX_NUMBER_BYTES).position(|byte| byte & 0x80 == 0)?;
        rest = rest.get(last + 1..)?;
    }
    let size = match rest {
        [LZMA2, 1, size, ..] if flags & 3 == 0 => u32::from(*size),
        _ => return None,
    };
    match size {
        40 => Some(u32::MAX),
        0..40 => Some((2 | (size & 1)) << (size / 2 + 11)),
        _ => None,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "test code")]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// `printf 'slipstream%.0s' $(seq 50) | xz`
    const PACKED: [u8; 84] = [
        253, 55, 122, 88, 90, 0, 0, 4, 230, 214, 180, 70, 2, 0, 33, 1, 22, 0, 0, 0, 116, 47, 229, 163, 224,
        1, 243, 0, 18, 93, 0, 57, 155, 9, 97, 243, 196, 61, 191, 66, 11, 240, 91, 172, 199, 208, 211, 144, 0,
        0, 0, 0, 148, 199, 40, 173, 167, 14, 74, 9, 0, 1, 46, 244, 3, 0, 0, 0, 232, 233, 242, 81, 177, 196,
        103, 251, 2, 0, 0, 0, 0, 4, 89, 90,
    ];

    #[test]
    fn what_xz_has_packed_is_unpacked_up_to_a_bound() {
        let expected = "slipstream".repeat(50);
        assert_eq!(unpack(&PACKED, 500).unwrap(), expected.as_bytes());
        assert_eq!(unpack(&PACKED, 499), None);
        assert_eq!(unpack(&PACKED[..40], 500), None);
        assert_eq!(unpack(b"", 500), None);
    }

    proptest! {
        #[test]
        fn what_is_damaged_is_unpacked_or_refused(changes in prop::collection::vec((12..PACKED.len(), any::<u8>()), 1..8)) {
            let mut bytes = PACKED;
            for (at, byte) in changes {
                bytes[at] = byte;
            }
            prop_assert!(unpack(&bytes, 1_000).is_none_or(|unpacked| unpacked.len() <= 1_000));
        }
    }
}
