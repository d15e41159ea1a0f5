//! Reads the stacks of a process so often in one way, for `bench/motion`: `motion PID READER SAMPLES HZ SECONDS`
//!
//! A reader is `kernel` or `outside` (our samplers), `paused` (the latter, with the target stopped for each sample), or `frames`: frame
//! by frame, each read by itself and nothing held against anything else, as simple profilers do. It ends after so many samples, or
//! seconds. One line of JSON says how many samples were asked for (by the clock; by the target's CPU time for `kernel`), tried,
//! failed and repaired, and how often each stack was seen: pairs of function and line, the outermost first.

#![allow(clippy::print_stdout, reason = "this is the output of the command")]

use std::collections::HashMap;
use std::error::Error;
use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use slip_model::{FrameKind, Interner, Mode, Outcome, StackId};
use slip_record::{KernelSampler, OutsideOptions, OutsideSampler, Sampler, Sink};
use slip_remote::{Copied, LiveProcess, Memory, Range, ReadError, RemoteAddr, StackPlan, read_u64};

/// What the kernel has told is read this often, as `slip record` does at 99 Hz.
const KERNEL_PERIOD: Duration = Duration::from_millis(10);

/// Most frames of a stack that are read frame by frame: a torn read can turn the chain into a loop.
const MAX_FRAMES: usize = 256;

type Failed = Box<dyn Error>;

/// A stack: function and line of each frame, the outermost first.
type Stack = Vec<Named>;
type Named = (String, u32);

#[derive(Default)]
struct Seen {
    asked: u64,
    tried: u64,
    failed: u64,
    repaired: u64,
    stacks: HashMap<Stack, u64>,
}

struct Options {
    pid: u32,
    samples: u64,
    interval: Duration,
    limit: Duration,
}

fn main() -> Result<(), Failed> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [pid, reader, samples, rate_hz, seconds] = &arguments[..] else {
        return Err("usage: motion PID READER SAMPLES HZ SECONDS".into());
    };
    let options = Options {
        pid: pid.parse()?,
        samples: samples.parse()?,
        interval: Duration::from_nanos(1_000_000_000 / rate_hz.parse::<u64>()?.max(1)),
        limit: Duration::from_secs_f64(seconds.parse()?),
    };
    // Timers are otherwise put off by up to 50 us.
    // SAFETY: the call takes a number and concerns only this thread.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1, 0, 0, 0) };
    let seen = match reader.as_str() {
        "kernel" => read_in_kernel(&options)?,
        "outside" => read_from_outside(&options, false)?,
        "paused" => read_from_outside(&options, true)?,
        "frames" => read_frame_by_frame(&options)?,
        _ => return Err(format!("there is no reader {reader}").into()),
    };
    let stacks: Vec<(&Stack, &u64)> = seen.stacks.iter().collect();
    let Seen { asked, tried, failed, repaired, .. } = seen;
    println!(
        "{}",
        serde_json::json!({"asked": asked, "tried": tried, "failed": failed, "repaired": repaired, "stacks": stacks})
    );
    Ok(())
}

fn read_in_kernel(options: &Options) -> Result<Seen, Failed> {
    let mode = OutsideOptions { mode: Mode::Cpu, ..OutsideOptions::default() };
    let mut sampler = KernelSampler::start(mode, options.interval.as_nanos() as u64)?;
    let mut sink = Sink::new();
    let cpu_before = cpu_time(options.pid)?;
    add(&mut sampler, options.pid, &mut sink)?;
    let begin = Instant::now();
    while tried(&sink) < options.samples && begin.elapsed() < options.limit {
        thread::sleep(KERNEL_PERIOD);
        sampler.sample(begin.elapsed().as_nanos() as u64, &mut sink);
    }
    sampler.finish(begin.elapsed().as_nanos() as u64, &mut sink);
    let cpu = cpu_time(options.pid)?.saturating_sub(cpu_before);
    let asked = cpu.as_nanos() / options.interval.as_nanos().max(1);
    Ok(Seen { asked: asked as u64, ..seen(&sink) })
}

fn read_from_outside(options: &Options, pause: bool) -> Result<Seen, Failed> {
    let mode = OutsideOptions { mode: Mode::Wall, pause, ..OutsideOptions::default() };
    let (mut sampler, mut sink) = (OutsideSampler::new(mode), Sink::new());
    add(&mut sampler, options.pid, &mut sink)?;
    let begin = Instant::now();
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let asked = at_each_tick(options, |_| {
        if pause {
            // The reference must not be in step with the target.
            thread::sleep(options.interval.mul_f64(random.next()));
        }
        sampler.sample(begin.elapsed().as_nanos() as u64, &mut sink);
        Ok(())
    })?;
    sampler.finish(begin.elapsed().as_nanos() as u64, &mut sink);
    Ok(Seen { asked, ..seen(&sink) })
}

fn add(sampler: &mut dyn Sampler, pid: u32, sink: &mut Sink) -> Result<(), Failed> {
    sampler.add(pid, 0, sink).map_err(|issue| format!("process {pid}: {issue:?}").into())
}

/// Numbers from 0 to 1 (xorshift64).
struct Random(u64);

impl Random {
    fn next(&mut self) -> f64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as f64 / (1_u64 << 53) as f64
    }
}

/// Calls `look` at each tick that is not over yet, and returns how many there were altogether.
fn at_each_tick(options: &Options, mut look: impl FnMut(u64) -> Result<(), Failed>) -> Result<u64, Failed> {
    let interval_ns = options.interval.as_nanos().max(1);
    let begin = Instant::now();
    let (mut looks, mut tick) = (0, 0_u64);
    while looks < options.samples && begin.elapsed() < options.limit {
        let due = options.interval * u32::try_from(tick + 1)?;
        thread::sleep(due.saturating_sub(begin.elapsed()));
        look(looks)?;
        looks += 1;
        tick = (tick + 1).max(u64::try_from(begin.elapsed().as_nanos() / interval_ns)?);
    }
    Ok(tick)
}

fn tried(sink: &Sink) -> u64 {
    sink.totals.samples + sink.totals.torn + sink.totals.failed
}

/// CPU time of the process.
fn cpu_time(pid: u32) -> Result<Duration, Failed> {
    let schedstat = fs::read_to_string(format!("/proc/{pid}/schedstat"))?;
    Ok(Duration::from_nanos(schedstat.split_whitespace().next().unwrap_or_default().parse()?))
}

fn seen(sink: &Sink) -> Seen {
    let mut counts: HashMap<u32, u64> = HashMap::new();
    for stack in &sink.samples().stack {
        *counts.entry(*stack).or_default() += 1;
    }
    let mut stacks = HashMap::new();
    for (stack, count) in counts {
        *stacks.entry(named(&sink.interner, StackId(stack))).or_default() += count;
    }
    let totals = &sink.totals;
    Seen {
        asked: 0,
        tried: tried(sink),
        failed: totals.torn + totals.failed,
        repaired: totals.repaired,
        stacks,
    }
}

fn named(interner: &Interner, stack: StackId) -> Stack {
    let mut frames: Stack = interner
        .frames_of(stack)
        .map(|id| interner.frame_at(id))
        // The rules are those of the interpreter's frames.
        .filter(|frame| frame.kind != FrameKind::Kernel)
        .map(|frame| (interner.text(frame.name).to_owned(), frame.line))
        .collect();
    frames.reverse();
    frames
}

/// Function and instruction of a frame, as its record has them.
type Place = (Vec<u8>, Vec<u8>);

/// What names one frame.
enum Namer {
    Python(Box<slip_cpython::Interpreter>),
    Php(Box<slip_zend::Engine>, Box<slip_zend::CodeCache>),
}

/// Reads stacks as simple profilers do.
struct FrameByFrame {
    process: LiveProcess,
    namer: Namer,
    plan: StackPlan,
    /// Where the main thread has its state; null if the process has one stack.
    thread_state: RemoteAddr,
    interner: Interner,
    /// `None` for what is no frame of the program's.
    known: HashMap<Place, Option<Named>>,
}

fn read_frame_by_frame(options: &Options) -> Result<Seen, Failed> {
    let mut reader = FrameByFrame::open(options.pid)?;
    let mut seen = Seen::default();
    seen.asked = at_each_tick(options, |_| {
        seen.tried += 1;
        match reader.read()? {
            Some(stack) => *seen.stacks.entry(stack).or_default() += 1,
            None => seen.failed += 1,
        }
        Ok(())
    })?;
    Ok(seen)
}

impl FrameByFrame {
    fn open(pid: u32) -> Result<Self, Failed> {
        let process = LiveProcess::open(pid)?;
        let mut interner = Interner::new();
        let (namer, plan, thread_state) = if slip_cpython::detect(&process)?.is_some() {
            let mut python = slip_cpython::Interpreter::attach(&process)?;
            let mut readings = Vec::new();
            python.sample(&process, &mut interner, &mut readings)?;
            let main = readings.last().ok_or("there is no thread")?.thread_key;
            let plan = python.plan(&process)?.ok_or("no thread state can be found")?;
            (Namer::Python(Box::new(python)), plan, RemoteAddr(main))
        } else {
            let mut code = slip_zend::CodeCache::default();
            let engine = slip_zend::Engine::attach(&process, &mut code)?;
            let plan = engine.plan();
            (Namer::Php(Box::new(engine), Box::new(code)), plan, RemoteAddr::NULL)
        };
        Ok(Self { process, namer, plan, thread_state, interner, known: HashMap::new() })
    }

    /// The stack; `None` if something could not be read or named.
    fn read(&mut self) -> Result<Option<Stack>, Failed> {
        match self.try_read() {
            Err(ReadError::Unmapped { .. }) => Ok(None),
            other => Ok(other?),
        }
    }

    fn try_read(&mut self) -> Result<Option<Stack>, ReadError> {
        let layout = self.plan.frame.clone();
        let mut frame = read_u64(&self.process, self.plan.current.offset(self.thread_state.0))?;
        if let Some(indirect) = self.plan.indirect {
            frame = read_u64(&self.process, RemoteAddr(frame).offset(indirect as u64))?;
        }
        let mut stack = Stack::new();
        let mut bytes = vec![0; layout.len];
        for _ in 0..MAX_FRAMES {
            if frame == 0 {
                stack.reverse();
                return Ok(Some(stack));
            }
            self.process.read(RemoteAddr(frame), &mut bytes)?;
            let identity: Vec<u8> =
                layout.identity.iter().flat_map(|part| &bytes[part.clone()]).copied().collect();
            let key = (identity, bytes[layout.instruction.clone()].to_vec());
            if !self.known.contains_key(&key) {
                let Some(named) = self.name(RemoteAddr(frame), &bytes)? else { return Ok(None) };
                self.known.insert(key.clone(), named);
            }
            stack.extend(self.known[&key].clone());
            let previous = bytes[layout.previous..].first_chunk().copied().unwrap_or_default();
            frame = u64::from_le_bytes(previous);
        }
        Ok(None)
    }

    /// Names one frame as if it were a stack; `None` if it is none.
    #[allow(clippy::option_option, reason = "no frame, and one that is not shown, are two things")]
    fn name(&mut self, addr: RemoteAddr, frame: &[u8]) -> Result<Option<Option<Named>>, ReadError> {
        let ranges: Vec<Range> = self
            .plan
            .ranges
            .iter()
            .map(|range| {
                let from = if range.of_thread { self.thread_state.0 } else { 0 };
                Range::new(range.addr.offset(from), range.len)
            })
            .collect();
        let mut anchor = vec![0; ranges.iter().map(|range| range.len).sum()];
        self.process.read_ranges(&ranges, &mut anchor)?;
        let copied = Copied {
            thread_state: self.thread_state,
            addrs: &[addr],
            frames: frame,
            // Its callers.
            truncated: true,
            instruction: None,
            anchor: &anchor,
        };
        let reading = match &mut self.namer {
            Namer::Python(python) => {
                python.begin_copied(&self.process)?;
                python.name_copied(&self.process, &mut self.interner, (&copied, Instant::now()))?
            }
            Namer::Php(engine, code) => {
                let mut reading = slip_zend::PhpReading::default();
                let (options, moment) = (slip_zend::SampleOptions::default(), (&copied, Instant::now()));
                engine.name_copied(
                    &self.process,
                    &mut self.interner,
                    code,
                    &options,
                    moment,
                    &mut reading,
                )?;
                Some(reading.stack)
            }
        };
        let reading = reading.filter(|reading| reading.outcome != Outcome::Torn);
        Ok(reading.map(|reading| named(&self.interner, reading.stack).pop()))
    }
}
