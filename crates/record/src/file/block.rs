//! One block of samples and ended requests as bytes.
//!
//! ```text
//! block   = crc u32 | samples u32 | requests u32 | start_ns u64 | clock_ns u64 | 15 columns | zero bytes
//! column  = width u8 | base u64 | width planes, low bytes first       value = base + sum(plane[k] << 8k)
//! plane   = 0 and one byte per value | 1, length u32, a zstd frame | 2 and the byte that all of them equal
//! ```
//!
//! All numbers are little-endian; `crc` is the CRC-32 (IEEE) of everything behind it. What the columns hold is said at
//! `code_samples` and `code_requests`: differences to a guess that the decoder can make too, so that whatever goes
//! as expected is a zero. A guess looks back inside its own block only; each block can be read without the others.

use flate2::Crc;
use slip_model::{ProcessId, Request, RequestId, SampleBlock, StringId};
use zstd::bulk::{Compressor, Decompressor};

use super::planes::{PlaneReader, PlaneWriter, unzigzag, zigzag};

/// Most samples, and most requests, in one block.
pub const MAX_BLOCK_ENTRIES: usize = 1 << 20;

/// Most samples per stored byte; requests get one byte each at least. Samples of real threads take two bytes and more,
/// as no clock ticks evenly; where they take less the writer appends zero bytes. So nobody can make a small file that
/// fills the memory of its reader.
pub const MAX_SAMPLES_PER_BYTE: usize = 8;

/// Slots for what a thread did last. A power of two. Threads that share one are coded a little longer.
const CONTEXTS: usize = 4_096;

/// Why bytes are not a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BlockError {
    /// They end too early.
    #[error("the block ends too early")]
    Short,
    /// They are not the bytes that were written.
    #[error("the checksum of the block is wrong")]
    Checksum,
    /// They claim more entries than a block may have.
    #[error("the block claims more entries than its size allows")]
    TooMany,
    /// They contradict themselves.
    #[error("the block contradicts itself")]
    Malformed,
}

/// Packs samples and requests; `compressor` makes it smaller and costs some 30 ns a sample.
///
/// At most [`MAX_BLOCK_ENTRIES`] of each; the writer cuts larger batches.
pub fn encode(
    samples: &SampleBlock,
    requests: &[Request],
    compressor: Option<&mut Compressor<'static>>,
) -> Vec<u8> {
    let mut out = vec![0; 4];
    let count = |length: usize| u32::try_from(length).unwrap_or(u32::MAX).to_le_bytes();
    out.extend_from_slice(&count(samples.len()));
    out.extend_from_slice(&count(requests.len()));
    let start_ns = samples.time_ns.first().copied().unwrap_or(0);
    out.extend_from_slice(&start_ns.to_le_bytes());
    let clock_ns = requests
        .iter()
        .find(|request| request.started_unix_ns != 0)
        .map_or(0, |request| request.started_unix_ns.wrapping_sub(request.first_ns));
    out.extend_from_slice(&clock_ns.to_le_bytes());

    let mut writer = PlaneWriter { out: &mut out, compressor, scratch: Vec::new() };
    for column in code_samples(samples, start_ns) {
        writer.column(&column);
    }
    for column in code_requests(samples, requests, clock_ns) {
        writer.column(&column);
    }
    let least = samples.len().div_ceil(MAX_SAMPLES_PER_BYTE).max(requests.len());
    out.resize(out.len().max(least), 0);
    let crc = checksum(&out[4..]);
    out[..4].copy_from_slice(&crc.to_le_bytes());
    out
}

/// Unpacks a block.
///
/// Memory stays below 400 times the length of `bytes` whatever they hold. The numbers of threads, stacks, requests and
/// strings are given back as they stand: whether they exist is for the caller to check.
///
/// # Errors
///
/// [`BlockError`] if the bytes are not a block; nothing of it can be used then.
pub fn decode(bytes: &[u8]) -> Result<(SampleBlock, Vec<Request>), BlockError> {
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
pub fn decode_body(body: &[u8]) -> Result<(SampleBlock, Vec<Request>), BlockError> {
    let decompressor = Decompressor::new().map_err(|_| BlockError::Malformed)?;
    let mut reader = PlaneReader { input: body, decompressor, scratch: Vec::new() };
    let samples = reader.u32()? as usize;
    let requests = reader.u32()? as usize;
    let length = body.len() + 4;
    if samples > length.saturating_mul(MAX_SAMPLES_PER_BYTE).min(MAX_BLOCK_ENTRIES)
        || requests > length.min(MAX_BLOCK_ENTRIES)
    {
        return Err(BlockError::TooMany);
    }
    let start_ns = reader.u64()?;
    let clock_ns = reader.u64()?;
    let samples = read_samples(&mut reader, samples, start_ns)?;
    let requests = read_requests(&mut reader, requests, clock_ns, &samples)?;
    if reader.input.iter().any(|byte| *byte != 0) {
        return Err(BlockError::Malformed);
    }
    Ok((samples, requests))
}

pub(super) fn checksum(bytes: &[u8]) -> u32 {
    let mut crc = Crc::new();
    crc.update(bytes);
    crc.sum()
}

/// What each thread did last.
struct Contexts {
    stack: Vec<u32>,
    request: Vec<u32>,
    newest_request: u32,
}

impl Contexts {
    fn new() -> Self {
        Self { stack: vec![0; CONTEXTS], request: vec![0; CONTEXTS], newest_request: 0 }
    }
}

/// The sample columns:
///
/// 1. time: difference to the sample before; `start_ns` for the first
/// 2. thread: its number
/// 3. stack: 0 if that of the thread's sample before, else its number + 1
/// 4. state: its flags
/// 5. request: 0 if that of the thread's sample before, 1 if none, else 2 + the difference to the newest request + 1
///
/// Differences are zigzag coded. "The thread's sample before" is kept per `thread % 4096`, at first 0.
pub(super) fn code_samples(samples: &SampleBlock, start_ns: u64) -> [Vec<u64>; 5] {
    let mut contexts = Contexts::new();
    let mut columns = [(); 5].map(|()| Vec::with_capacity(samples.len()));
    let [times, threads, stacks, states, requests] = &mut columns;
    let mut before_ns = start_ns;
    for sample in samples.iter() {
        times.push(zigzag(sample.time_ns.wrapping_sub(before_ns)));
        before_ns = sample.time_ns;
        threads.push(u64::from(sample.thread.0));
        states.push(u64::from(sample.state.0));

        let slot = sample.thread.0 as usize % CONTEXTS;
        let (stack, request) = (sample.stack.0, sample.request.0);
        stacks.push(if contexts.stack[slot] == stack { 0 } else { u64::from(stack) + 1 });
        contexts.stack[slot] = stack;
        requests.push(if contexts.request[slot] == request {
            0
        } else if request == 0 {
            1
        } else {
            2 + zigzag(u64::from(request).wrapping_sub(u64::from(contexts.newest_request) + 1))
        });
        contexts.request[slot] = request;
        contexts.newest_request = contexts.newest_request.max(request);
    }
    columns
}

pub(super) fn read_samples(
    reader: &mut PlaneReader<'_>,
    count: usize,
    start_ns: u64,
) -> Result<SampleBlock, BlockError> {
    let mut contexts = Contexts::new();
    let mut samples = SampleBlock::default();
    let mut codes = Vec::new();
    reader.column(count, &mut codes)?;
    let mut time_ns = start_ns;
    samples.time_ns.extend(codes.iter().map(|code| {
        time_ns = time_ns.wrapping_add(unzigzag(*code));
        time_ns
    }));
    reader.column(count, &mut codes)?;
    narrow_into(&codes, &mut samples.thread)?;
    reader.column(count, &mut codes)?;
    samples.stack.reserve_exact(count);
    for (code, thread) in codes.iter().zip(&samples.thread) {
        let last = &mut contexts.stack[*thread as usize % CONTEXTS];
        if *code != 0 {
            *last = narrow(code - 1)?;
        }
        samples.stack.push(*last);
    }
    reader.column(count, &mut codes)?;
    narrow_into(&codes, &mut samples.state)?;
    reader.column(count, &mut codes)?;
    samples.request.reserve_exact(count);
    for (code, thread) in codes.iter().zip(&samples.thread) {
        let last = &mut contexts.request[*thread as usize % CONTEXTS];
        match code {
            0 => {}
            1 => *last = 0,
            code => {
                let next = u64::from(contexts.newest_request) + 1;
                *last = narrow(next.wrapping_add(unzigzag(code - 2)))?;
                contexts.newest_request = contexts.newest_request.max(*last);
            }
        }
        samples.request.push(*last);
    }
    Ok(samples)
}

/// The request columns:
///
/// 1. id: difference to the id after that of the request before
/// 2. to 5. process, method, uri, script: their numbers
/// 6. first: difference to the first sample with this request in the block; if there is none, to `last_ns` of the
///    request before
/// 7. last: difference to the last such sample; if there is none, to `first_ns`
/// 8. samples: difference to the number of such samples
/// 9. started: 0 if unknown, else 1 + the difference between `started_unix_ns - first_ns` and `clock_ns`
/// 10. memory: bytes
///
/// Differences are zigzag coded.
fn code_requests(samples: &SampleBlock, requests: &[Request], clock_ns: u64) -> [Vec<u64>; 10] {
    let seen = if requests.is_empty() { Sightings::default() } else { Sightings::of(samples) };
    let mut columns = [(); 10].map(|()| Vec::with_capacity(requests.len()));
    let mut before = Request::default();
    for request in requests {
        let guess = seen.guess(request.id.0, &before);
        let last_guess_ns = if guess.samples == 0 { request.first_ns } else { guess.last_ns };
        let offset_ns = request.started_unix_ns.wrapping_sub(request.first_ns).wrapping_sub(clock_ns);
        let codes = [
            zigzag(u64::from(request.id.0).wrapping_sub(u64::from(before.id.0) + 1)),
            u64::from(request.process.0),
            u64::from(request.method.0),
            u64::from(request.uri.0),
            u64::from(request.script.0),
            zigzag(request.first_ns.wrapping_sub(guess.first_ns)),
            zigzag(request.last_ns.wrapping_sub(last_guess_ns)),
            zigzag(u64::from(request.samples).wrapping_sub(u64::from(guess.samples))),
            // The one offset whose code would not fit is further than 292 years away: it is kept as "unknown".
            if request.started_unix_ns == 0 { 0 } else { zigzag(offset_ns).checked_add(1).unwrap_or(0) },
            request.peak_memory_bytes,
        ];
        for (column, code) in columns.iter_mut().zip(codes) {
            column.push(code);
        }
        before = *request;
    }
    columns
}

fn read_requests(
    reader: &mut PlaneReader<'_>,
    count: usize,
    clock_ns: u64,
    samples: &SampleBlock,
) -> Result<Vec<Request>, BlockError> {
    let mut columns = [(); 10].map(|()| Vec::new());
    for column in &mut columns {
        reader.column(count, column)?;
    }
    let [ids, processes, methods, uris, scripts, firsts, lasts, sample_counts, starts, memory] = columns;
    let seen = if count == 0 { Sightings::default() } else { Sightings::of(samples) };
    let mut requests = Vec::with_capacity(count);
    let mut before = Request::default();
    for at in 0..count {
        let id = narrow((u64::from(before.id.0) + 1).wrapping_add(unzigzag(ids[at])))?;
        let guess = seen.guess(id, &before);
        let first_ns = guess.first_ns.wrapping_add(unzigzag(firsts[at]));
        let last_guess_ns = if guess.samples == 0 { first_ns } else { guess.last_ns };
        let started_unix_ns = match starts[at] {
            0 => 0,
            code => unzigzag(code - 1).wrapping_add(clock_ns).wrapping_add(first_ns),
        };
        let request = Request {
            id: RequestId(id),
            process: ProcessId(narrow(processes[at])?),
            method: StringId(narrow(methods[at])?),
            uri: StringId(narrow(uris[at])?),
            script: StringId(narrow(scripts[at])?),
            started_unix_ns,
            first_ns,
            last_ns: last_guess_ns.wrapping_add(unzigzag(lasts[at])),
            samples: narrow(u64::from(guess.samples).wrapping_add(unzigzag(sample_counts[at])))?,
            peak_memory_bytes: memory[at],
        };
        requests.push(request);
        before = request;
    }
    Ok(requests)
}

pub(super) fn narrow<T: TryFrom<u64>>(value: u64) -> Result<T, BlockError> {
    T::try_from(value).map_err(|_| BlockError::Malformed)
}

fn narrow_into<T: TryFrom<u64>>(values: &[u64], out: &mut Vec<T>) -> Result<(), BlockError> {
    out.reserve_exact(values.len());
    for value in values {
        out.push(narrow(*value)?);
    }
    Ok(())
}

/// What the samples of a block tell about one request.
#[derive(Clone, Copy, Default)]
struct Sighting {
    first_ns: u64,
    last_ns: u64,
    samples: u32,
}

/// What the samples of a block tell about its requests, by number from the smallest.
#[derive(Default)]
struct Sightings {
    smallest: u32,
    by_number: Vec<Sighting>,
}

impl Sightings {
    /// Goes once through the samples. If their request numbers lie too far apart for a table, none is known.
    fn of(samples: &SampleBlock) -> Self {
        let numbers = || samples.request.iter().copied().filter(|number| *number != 0);
        let (Some(smallest), Some(largest)) = (numbers().min(), numbers().max()) else {
            return Self::default();
        };
        let span = (largest - smallest) as usize + 1;
        if span > samples.len() {
            return Self::default();
        }
        let mut by_number = vec![Sighting::default(); span];
        for (number, time_ns) in samples.request.iter().zip(&samples.time_ns) {
            if *number == 0 {
                continue;
            }
            let seen = &mut by_number[(number - smallest) as usize];
            if seen.samples == 0 {
                seen.first_ns = *time_ns;
            }
            seen.last_ns = *time_ns;
            seen.samples += 1;
        }
        Self { smallest, by_number }
    }

    fn guess(&self, number: u32, before: &Request) -> Sighting {
        let seen = number.checked_sub(self.smallest).and_then(|at| self.by_number.get(at as usize));
        match seen {
            Some(seen) if seen.samples > 0 => *seen,
            _ => Sighting { first_ns: before.last_ns, ..Sighting::default() },
        }
    }
}
