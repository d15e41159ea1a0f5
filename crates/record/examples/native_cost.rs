//! The sampler in the kernel, started and stopped as it is told, for `bench/native`: `native_cost HZ PID...`
//!
//! Lines of its input say what is to be from then on: `none`, `plain` or `native` for the sampler without and with native stacks, as `slip record`
//! runs it, or `cpu` and `native-cpu` for the same without waits, as with `--mode cpu`. Each is answered, when it is so, with a line of JSON: our own CPU time so far, samples, and what was lost.

#![allow(clippy::print_stdout, reason = "this is the output of the command")]

use std::error::Error;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use slip_model::Mode;
use slip_record::{KernelSampler, OutsideOptions, Sampler, Sink, monotonic_ns, own_cpu_ns};

type Failed = Box<dyn Error>;

fn main() -> Result<(), Failed> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [hz, pids @ ..] = &arguments[..] else { return Err("usage: native_cost HZ PID...".into()) };
    let interval_ns = 1_000_000_000 / hz.parse::<u64>()?;
    let pids = pids.iter().map(|pid| pid.parse()).collect::<Result<Vec<u32>, _>>()?;
    let (sender, lines) = mpsc::channel();
    thread::spawn(move || {
        std::io::stdin().lines().map_while(Result::ok).try_for_each(|line| sender.send(line))
    });
    let (mut running, mut samples, mut lost) = (None, 0, 0);
    loop {
        let line = match &mut running {
            None => lines.recv().map_err(|_| RecvTimeoutError::Disconnected),
            Some((sampler, sink, start_ns)) => {
                rest(sampler, sink, *start_ns);
                lines.recv_timeout(Duration::ZERO)
            }
        };
        let wanted = match line {
            Ok(wanted) => wanted,
            Err(RecvTimeoutError::Timeout) => continue,
            Err(RecvTimeoutError::Disconnected) => return Ok(()),
        };
        if let Some((mut sampler, mut sink, start_ns)) = running.take() {
            sampler.finish(monotonic_ns() - start_ns, &mut sink);
            samples += sink.totals.samples;
            lost += sink.totals.failed;
        }
        if wanted != "none" {
            let mode = if wanted.ends_with("cpu") { Mode::Cpu } else { Mode::Wall };
            let options =
                OutsideOptions { mode, native: wanted.starts_with("native"), ..OutsideOptions::default() };
            let (mut sampler, mut sink) = (KernelSampler::start(options, interval_ns)?, Sink::forgetful());
            for pid in &pids {
                sampler.add(*pid, 0, &mut sink).map_err(|issue| format!("process {pid}: {issue:?}"))?;
            }
            running = Some((sampler, sink, monotonic_ns()));
        }
        println!("{{\"own_cpu_ns\": {}, \"samples\": {samples}, \"lost\": {lost}}}", own_cpu_ns());
    }
}

/// As `slip record` does it.
fn rest(sampler: &mut KernelSampler, sink: &mut Sink, start_ns: u64) {
    let now_ns = monotonic_ns();
    let interval_ns = sampler.fetch_interval_ns().unwrap_or_default();
    sampler.rest(now_ns + interval_ns, start_ns, sink);
    sampler.sample(monotonic_ns() - start_ns, sink);
    sink.take_batch();
}
