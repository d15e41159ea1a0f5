//! One block of requests of a budget as bytes.
//!
//! ```text
//! block   = crc u32 | requests u32 | start_ns u64 | 5 + 14 + 14 columns | zero bytes
//! ```
//!
//! Numbers, columns and `crc` are as in a [block of samples](super::block). The columns are
//!
//! 1. worker: its place in the budget
//! 2. end: difference to the end of the request before; `start_ns` for the first
//! 3. response: difference from `response_ns` to `end_ns`
//! 4. begin: difference from `begin_ns` to `response_ns`
//! 5. queued: difference from `queued_ns` to `begin_ns`
//!
//! and then, for each of [`Part::ALL`], the nanoseconds until the response, and the same for those after it. Differences are
//! zigzag coded: a request in which nothing is out of order has small ones.

use slip_model::{Part, ServedRequest};
use zstd::bulk::{Compressor, Decompressor};

use super::block::{BlockError, MAX_BLOCK_ENTRIES, checksum, narrow};
use super::planes::{PlaneReader, PlaneWriter, unzigzag, zigzag};

/// Most requests per stored byte. Their times alone take more bytes than that; where all are alike the writer appends zero bytes.
/// So nobody can make a small file that fills the memory of its reader.
pub const MAX_SERVED_PER_BYTE: usize = 1;

/// Packs requests; `compressor` makes it smaller.
///
/// At most [`MAX_BLOCK_ENTRIES`]; the writer cuts larger batches.
pub fn encode(requests: &[ServedRequest], compressor: Option<&mut Compressor<'static>>) -> Vec<u8> {
    let mut out = vec![0; 4];
    out.extend_from_slice(&u32::try_from(requests.len()).unwrap_or(u32::MAX).to_le_bytes());
    let start_ns = requests.first().map_or(0, |request| request.end_ns);
    out.extend_from_slice(&start_ns.to_le_bytes());
    let mut writer = PlaneWriter { out: &mut out, compressor, scratch: Vec::new() };
    let mut before_ns = start_ns;
    write(&mut writer, requests, |request| u64::from(request.worker));
    write(&mut writer, requests, |request| {
        zigzag(request.end_ns.wrapping_sub(std::mem::replace(&mut before_ns, request.end_ns)))
    });
    write(&mut writer, requests, |request| zigzag(request.end_ns.wrapping_sub(request.response_ns)));
    write(&mut writer, requests, |request| zigzag(request.response_ns.wrapping_sub(request.begin_ns)));
    write(&mut writer, requests, |request| zigzag(request.begin_ns.wrapping_sub(request.queued_ns)));
    for part in Part::ALL {
        write(&mut writer, requests, |request| request.serving.of(part));
    }
    for part in Part::ALL {
        write(&mut writer, requests, |request| request.after.of(part));
    }
    out.resize(out.len().max(requests.len().div_ceil(MAX_SERVED_PER_BYTE)), 0);
    let crc = checksum(&out[4..]);
    out[..4].copy_from_slice(&crc.to_le_bytes());
    out
}

/// Unpacks a block.
///
/// Memory stays below 300 times the length of `bytes` whatever they hold. The numbers of workers are given back as they stand:
/// whether they exist is for the caller to check.
///
/// # Errors
///
/// [`BlockError`] if the bytes are not a block; nothing of it can be used then.
pub fn decode(bytes: &[u8]) -> Result<Vec<ServedRequest>, BlockError> {
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
pub fn decode_body(body: &[u8]) -> Result<Vec<ServedRequest>, BlockError> {
    let decompressor = Decompressor::new().map_err(|_| BlockError::Malformed)?;
    let mut reader = PlaneReader { input: body, decompressor, scratch: Vec::new() };
    let count = reader.u32()? as usize;
    if count > (body.len() + 4).saturating_mul(MAX_SERVED_PER_BYTE).min(MAX_BLOCK_ENTRIES) {
        return Err(BlockError::TooMany);
    }
    let mut end_ns = reader.u64()?;
    let mut requests = vec![ServedRequest::default(); count];
    // One column after the other, so that no more than one of them is in memory beside the requests.
    let mut codes = Vec::new();
    reader.column(count, &mut codes)?;
    for (request, code) in requests.iter_mut().zip(&codes) {
        request.worker = narrow(*code)?;
    }
    let mut read = |requests: &mut [ServedRequest], put: &mut dyn FnMut(&mut ServedRequest, u64)| {
        reader.column(count, &mut codes).map(|()| {
            requests.iter_mut().zip(&codes).for_each(|(request, code)| put(request, *code));
        })
    };
    read(&mut requests, &mut |request, code| {
        end_ns = end_ns.wrapping_add(unzigzag(code));
        request.end_ns = end_ns;
    })?;
    read(&mut requests, &mut |request, code| {
        request.response_ns = request.end_ns.wrapping_sub(unzigzag(code));
    })?;
    read(&mut requests, &mut |request, code| {
        request.begin_ns = request.response_ns.wrapping_sub(unzigzag(code));
    })?;
    read(&mut requests, &mut |request, code| {
        request.queued_ns = request.begin_ns.wrapping_sub(unzigzag(code));
    })?;
    for part in 0..Part::ALL.len() {
        read(&mut requests, &mut |request, code| request.serving.0[part] = code)?;
    }
    for part in 0..Part::ALL.len() {
        read(&mut requests, &mut |request, code| request.after.0[part] = code)?;
    }
    if reader.input.iter().any(|byte| *byte != 0) {
        return Err(BlockError::Malformed);
    }
    Ok(requests)
}

/// Appends the column that has this of each request.
fn write(writer: &mut PlaneWriter<'_>, requests: &[ServedRequest], value: impl FnMut(&ServedRequest) -> u64) {
    writer.column(&requests.iter().map(value).collect::<Vec<u64>>());
}

#[cfg(test)]
mod tests {
    use slip_model::PartTimes;

    use super::*;

    #[test]
    fn requests_come_back_also_those_that_contradict_themselves() {
        let usual = ServedRequest {
            worker: 3,
            queued_ns: 90,
            begin_ns: 100,
            response_ns: 700,
            end_ns: 800,
            serving: PartTimes([50; 14]),
            after: PartTimes([7; 14]),
        };
        let backwards =
            ServedRequest { queued_ns: u64::MAX, begin_ns: 0, response_ns: u64::MAX, end_ns: 1, ..usual };
        for requests in [vec![], vec![usual], vec![usual, backwards, usual]] {
            assert_eq!(decode(&encode(&requests, None)), Ok(requests));
        }
    }

    #[test]
    fn many_requests_in_few_bytes_are_refused() {
        let requests = vec![ServedRequest::default(); 10_000];
        let bytes = encode(&requests, None);
        assert_eq!((bytes.len(), decode(&bytes)), (10_000, Ok(requests)));
        assert_eq!(decode_body(&bytes[4..9_000]), Err(BlockError::TooMany));
        assert_eq!(decode(&bytes[..9_000]), Err(BlockError::Checksum));
        assert_eq!(decode(&bytes[..3]), Err(BlockError::Short));
    }

    #[test]
    fn bytes_behind_the_last_column_are_an_error() {
        let bytes = [&encode(&[], None)[4..], &[1]].concat();
        assert_eq!(decode_body(&bytes), Err(BlockError::Malformed));
    }
}
