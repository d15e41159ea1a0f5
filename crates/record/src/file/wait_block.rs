//! One block of waits as bytes.
//!
//! ```text
//! block   = crc u32 | waits u32 | start_ns u64 | 5 + 3 columns | zero bytes
//! ```
//!
//! Numbers, columns and `crc` are as in a [block of samples](super::block), and the first five columns are those of its
//! samples: when, which thread, where, in which state and request. Behind them come
//!
//! 1. reason: its place in [`WaitReason::ALL`]
//! 2. count: the number of waits
//! 3. duration: nanoseconds of all of them

use slip_model::{Sample, SampleBlock, Wait, WaitReason};
use zstd::bulk::{Compressor, Decompressor};

use super::block::{BlockError, MAX_BLOCK_ENTRIES, checksum, code_samples, narrow, read_samples};
use super::planes::{PlaneReader, PlaneWriter};

/// Most waits per stored byte. Durations alone take two bytes and more; where all is alike the writer appends zero
/// bytes. So nobody can make a small file that fills the memory of its reader.
pub const MAX_WAITS_PER_BYTE: usize = 1;

/// Packs waits; `compressor` makes it smaller.
///
/// At most [`MAX_BLOCK_ENTRIES`]; the writer cuts larger batches.
pub fn encode(waits: &[Wait], compressor: Option<&mut Compressor<'static>>) -> Vec<u8> {
    let mut out = vec![0; 4];
    out.extend_from_slice(&u32::try_from(waits.len()).unwrap_or(u32::MAX).to_le_bytes());
    let start_ns = waits.first().map_or(0, |wait| wait.time_ns);
    out.extend_from_slice(&start_ns.to_le_bytes());
    let mut samples = SampleBlock::default();
    for wait in waits {
        let Wait { time_ns, thread, stack, state, request, .. } = *wait;
        samples.push(Sample { time_ns, thread, stack, state, request });
    }
    let mut writer = PlaneWriter { out: &mut out, compressor, scratch: Vec::new() };
    for column in code_samples(&samples, start_ns) {
        writer.column(&column);
    }
    let more: [fn(&Wait) -> u64; 3] =
        [|wait| wait.reason as u64, |wait| u64::from(wait.count), |wait| wait.total_ns];
    for value in more {
        writer.column(&waits.iter().map(value).collect::<Vec<u64>>());
    }
    out.resize(out.len().max(waits.len().div_ceil(MAX_WAITS_PER_BYTE)), 0);
    let crc = checksum(&out[4..]);
    out[..4].copy_from_slice(&crc.to_le_bytes());
    out
}

/// Unpacks a block.
///
/// Memory stays below 200 times the length of `bytes` whatever they hold. The numbers of threads, stacks and requests are
/// given back as they stand: whether they exist is for the caller to check. A reason that is not known, of a later
/// version, becomes [`WaitReason::Other`].
///
/// # Errors
///
/// [`BlockError`] if the bytes are not a block; nothing of it can be used then.
pub fn decode(bytes: &[u8]) -> Result<Vec<Wait>, BlockError> {
    let (crc, body) = bytes.split_first_chunk::<4>().ok_or(BlockError::Short)?;
    if u32::from_le_bytes(*crc) != checksum(body) {
        return Err(BlockError::Checksum);
    }
    decode_body(body)
}

/// [`decode`] without the checksum, for the fuzzer: it would never get past it.
///
/// # Errors
///
/// As [`decode`].
pub fn decode_body(body: &[u8]) -> Result<Vec<Wait>, BlockError> {
    let decompressor = Decompressor::new().map_err(|_| BlockError::Malformed)?;
    let mut reader = PlaneReader { input: body, decompressor, scratch: Vec::new() };
    let count = reader.u32()? as usize;
    if count > (body.len() + 4).saturating_mul(MAX_WAITS_PER_BYTE).min(MAX_BLOCK_ENTRIES) {
        return Err(BlockError::TooMany);
    }
    let start_ns = reader.u64()?;
    let samples = read_samples(&mut reader, count, start_ns)?;
    let [mut reasons, mut counts, mut durations] = [(); 3].map(|()| Vec::new());
    for column in [&mut reasons, &mut counts, &mut durations] {
        reader.column(count, column)?;
    }
    if reader.input.iter().any(|byte| *byte != 0) {
        return Err(BlockError::Malformed);
    }
    let mut waits = Vec::with_capacity(count);
    for (at, sample) in samples.iter().enumerate() {
        let Sample { time_ns, thread, stack, state, request } = sample;
        let reason = usize::try_from(reasons[at]).ok().and_then(|number| WaitReason::ALL.get(number));
        waits.push(Wait {
            time_ns,
            thread,
            stack,
            state,
            request,
            reason: reason.copied().unwrap_or_default(),
            count: narrow(counts[at])?,
            total_ns: durations[at],
        });
    }
    Ok(waits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_are_kept_and_unknown_ones_are_others() {
        let waits = WaitReason::ALL.map(|reason| Wait { reason, ..Wait::default() });
        assert_eq!(decode(&encode(&waits, None)).unwrap(), waits);
        // Only the plane of the reasons counts up.
        let mut bytes = encode(&waits, None);
        let at = bytes.windows(3).position(|three| three == [7, 8, 9]).unwrap();
        bytes[at + 2] = 99;
        let unknown = decode_body(&bytes[4..]).unwrap();
        assert_eq!((unknown[8].reason, unknown[9].reason), (WaitReason::Poll, WaitReason::Other));
    }

    #[test]
    fn many_waits_in_few_bytes_are_refused() {
        let waits = vec![Wait::default(); 10_000];
        let bytes = encode(&waits, None);
        assert_eq!((bytes.len(), decode(&bytes)), (10_000, Ok(waits)));
        assert_eq!(decode_body(&bytes[4..9_000]), Err(BlockError::TooMany));
        assert_eq!(decode(&bytes[..9_000]), Err(BlockError::Checksum));
        assert_eq!(decode(&bytes[..3]), Err(BlockError::Short));
    }
}
