//! Slices of a target's time with and without the sampler in the kernel, in turns, for `bench/kernel`:
//! `kernel_slices PID[,PID...] ROUNDS SLICE_MS VARIANT...`
//!
//! A variant is `none`, `event:HZ` (the clocks alone), `empty:HZ` (a program that does nothing), `cpu:HZ`, `wall:HZ` or `offcpu:HZ`
//! (the sampler in that mode). For each slice a line of JSON: round, variant, and what the slice took: `wall_ns`, the target's
//! `cpu_ns`, its `switches` that were its own will, `own_cpu_ns` of this process, and `work`, what the target has counted in the
//! eight bytes at the begin of the file `WORK_FILE`, if that is set. A last line has what was lost.

#![allow(clippy::print_stdout, reason = "this is the output of the command")]

use std::error::Error;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::thread;
use std::time::{Duration, Instant};

use slip_model::Mode;
use slip_probe::Probe;
use slip_record::{KernelSampler, OutsideOptions, Sampler, Sink, monotonic_ns, own_cpu_ns};
use slip_remote::{PerfEvent, PerfScope, open_perf_event};

/// `PERF_COUNT_SW_CPU_CLOCK` of `enum perf_sw_ids` (`include/uapi/linux/perf_event.h`).
const CPU_CLOCK: u64 = 0;

type Failed = Box<dyn Error>;

/// What runs during a slice.
#[allow(clippy::large_enum_variant, reason = "there is one at a time")]
enum Running {
    Nothing,
    Events(#[allow(dead_code, reason = "they tick while they are open")] Vec<std::os::fd::OwnedFd>),
    Empty(#[allow(dead_code, reason = "it ticks while it is there")] Probe),
    Sampler(KernelSampler, Sink),
}

fn main() -> Result<(), Failed> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [pids, rounds, slice_ms, variants @ ..] = &arguments[..] else {
        return Err("usage: kernel_slices PID[,PID...] ROUNDS SLICE_MS VARIANT...".into());
    };
    let pids = pids.split(',').map(str::parse).collect::<Result<Vec<u32>, _>>()?;
    let (rounds, slice): (usize, _) = (rounds.parse()?, Duration::from_millis(slice_ms.parse()?));
    let work = std::env::var_os("WORK_FILE").map(File::open).transpose()?;
    let mut lost = 0;
    for round in 0..rounds {
        for at in 0..variants.len() {
            // Another order in each round: what comes first has no advantage.
            let order = if round % 2 == 0 { at } else { variants.len() - 1 - at };
            let variant = &variants[(order + round / 2) % variants.len()];
            let mut running = start(variant, &pids)?;
            let (begin_ns, before) = (monotonic_ns(), (Instant::now(), read(&pids, work.as_ref())?));
            while before.0.elapsed() < slice {
                // As `slip record` does it.
                let left = slice.saturating_sub(before.0.elapsed());
                if let Running::Sampler(sampler, sink) = &mut running {
                    let rest =
                        sampler.fetch_interval_ns().map_or(left, |rest| left.min(Duration::from_nanos(rest)));
                    sampler.rest(monotonic_ns() + rest.as_nanos() as u64, begin_ns, sink);
                } else {
                    thread::sleep(left);
                }
                if let Running::Sampler(sampler, sink) = &mut running {
                    sampler.sample(before.0.elapsed().as_nanos() as u64, sink);
                    sink.take_batch();
                }
            }
            let (wall_ns, after) = (before.0.elapsed().as_nanos(), read(&pids, work.as_ref())?);
            let [cpu_ns, switches, own_cpu_ns, work] = std::array::from_fn(|at| after[at] - before.1[at]);
            println!(
                "{{\"round\": {round}, \"variant\": \"{variant}\", \"wall_ns\": {wall_ns}, \"cpu_ns\": {cpu_ns}, \
                 \"switches\": {switches}, \"own_cpu_ns\": {own_cpu_ns}, \"work\": {work}}}"
            );
            if let Running::Sampler(sampler, sink) = &mut running {
                sampler.finish(wall_ns as u64, sink);
                lost += sink.totals.failed + sink.totals.torn;
            }
        }
    }
    println!("{{\"lost\": {lost}}}");
    Ok(())
}

fn start(variant: &str, pids: &[u32]) -> Result<Running, Failed> {
    let (name, hz) = variant.split_once(':').unwrap_or((variant, "99"));
    let interval_ns = 1_000_000_000 / hz.parse::<u64>()?;
    let mode = match name {
        "none" => return Ok(Running::Nothing),
        "event" => {
            let cpus = u32::try_from(thread::available_parallelism()?.get())?;
            let open =
                |cpu| open_perf_event(PerfEvent::Software(CPU_CLOCK), interval_ns, 0, PerfScope::Cpu(cpu));
            return Ok(Running::Events((0..cpus).map(open).collect::<Result<_, _>>()?));
        }
        "empty" => return Ok(Running::Empty(Probe::start_empty(interval_ns)?)),
        "cpu" => Mode::Cpu,
        "wall" => Mode::Wall,
        "offcpu" => Mode::Offcpu,
        _ => return Err(format!("there is no variant {name}").into()),
    };
    let options = OutsideOptions { mode, ..OutsideOptions::default() };
    let (mut sampler, mut sink) = (KernelSampler::start(options, interval_ns)?, Sink::forgetful());
    for pid in pids {
        sampler.add(*pid, 0, &mut sink).map_err(|issue| format!("process {pid}: {issue:?}"))?;
    }
    Ok(Running::Sampler(sampler, sink))
}

/// CPU time of the targets, their own switches, our CPU time, the target's work.
fn read(pids: &[u32], work: Option<&File>) -> Result<[u64; 4], Failed> {
    let (mut cpu_ns, mut switches) = (0, 0);
    for pid in pids {
        let schedstat = fs::read_to_string(format!("/proc/{pid}/schedstat"))?;
        cpu_ns += schedstat.split_whitespace().next().unwrap_or_default().parse::<u64>()?;
        let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
        let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
        switches += line.unwrap_or_default().trim().parse::<u64>()?;
    }
    let mut counted = [0; 8];
    if let Some(file) = work {
        file.read_exact_at(&mut counted, 0)?;
    }
    Ok([cpu_ns, switches, own_cpu_ns(), u64::from_le_bytes(counted)])
}
