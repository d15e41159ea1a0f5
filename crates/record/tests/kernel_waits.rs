//! Waits that the kernel sees begin and end: how long, in which function, and what for.

#![allow(clippy::unwrap_used, reason = "what fails here fails the test")]

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::time::{Duration, Instant};

use slip_model::{Mode, WaitReason};
use slip_probe::ProbeError;
use slip_record::{KernelSampler, OutsideOptions, Sampler, Sink};
use slip_testkit::{Child, Launch, pythons, skip};

/// Waits of each kind, and how long each is at least.
const TIMES: u64 = 10;
const WAIT_NS: u64 = 20_000_000;

/// Longest wait for a target. The machine may be busy with other tests.
const PATIENCE: Duration = Duration::from_secs(60);

/// Time between two looks at what the kernel has told.
const PERIOD: Duration = Duration::from_millis(10);

fn start(mode: Mode) -> Option<KernelSampler> {
    match KernelSampler::start(OutsideOptions { mode, ..OutsideOptions::default() }, 10_000_000) {
        Ok(sampler) => Some(sampler),
        Err(error @ (ProbeError::Denied(_) | ProbeError::NoTypes)) => {
            skip("waits seen by the kernel", &error.to_string());
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// Samples until the target says a line, which is returned.
fn sample_until_line(
    sampler: &mut KernelSampler,
    child: &mut Child,
    begin: Instant,
    sink: &mut Sink,
) -> String {
    let end = Instant::now() + PATIENCE;
    loop {
        sampler.sample(begin.elapsed().as_nanos() as u64, sink);
        match child.read_line(PERIOD) {
            Ok(line) => return line,
            Err(error) => assert!(error.kind() == ErrorKind::TimedOut && Instant::now() < end, "{error}"),
        }
    }
}

/// Time by function of the innermost frame, and there by reason.
fn by_function(sink: &Sink) -> BTreeMap<String, BTreeMap<WaitReason, u64>> {
    let mut times: BTreeMap<String, BTreeMap<WaitReason, u64>> = BTreeMap::new();
    for wait in sink.waits() {
        let leaf = sink.interner.frames_of(wait.stack).next().map(|id| sink.interner.frame_at(id).name);
        let name = leaf.map_or_else(String::new, |name| sink.interner.text(name).to_owned());
        *times.entry(name).or_default().entry(wait.reason).or_default() += wait.total_ns;
    }
    times
}

#[test]
fn python_waits_are_as_long_as_they_were_and_for_what_they_were() {
    let expected = [
        ("sleeps", WaitReason::Sleep),
        ("waits_for_socket", WaitReason::Socket),
        ("waits_for_pipe", WaitReason::Pipe),
        ("waits_for_lock", WaitReason::Lock),
        ("waits_for_page", WaitReason::PageFault),
        ("waits_for_several", WaitReason::Poll),
        ("waits_for_child", WaitReason::Child),
    ];
    for python in pythons().into_iter().filter(|python| python.version >= (3, 11)) {
        let Some(mut sampler) = start(Mode::Offcpu) else { return };
        let mut child = Launch::script(&python, "python/waits.py").arg(TIMES.to_string()).start().unwrap();
        child.wait_ready().unwrap();
        let (mut sink, begin) = (Sink::new(), Instant::now());
        sampler.add(child.pid(), 0, &mut sink).unwrap();
        child.send("go").unwrap();
        let line = sample_until_line(&mut sampler, &mut child, begin, &mut sink);
        sampler.finish(begin.elapsed().as_nanos() as u64, &mut sink);
        let truth: BTreeMap<String, u64> = serde_json::from_str(&line).unwrap();
        let times = by_function(&sink);
        let about = format!("{}: {times:#?}, truth {truth:#?}", python.label);
        assert_eq!((sink.totals.failed, sink.totals.torn), (0, 0), "{about}");
        for (function, reason) in expected {
            let by_reason = &times[function];
            let is_blocked = |(reason, _): &(&WaitReason, &u64)| **reason != WaitReason::Cpu;
            let blocked: u64 = by_reason.iter().filter(is_blocked).map(|(_, ns)| *ns).sum();
            // The truth has the time in which it was ready and another program had the CPU.
            let (least, most) = (WAIT_NS * TIMES / 50 * 49, truth[function] / 50 * 51);
            assert!((least..=most).contains(&blocked), "{function}: {blocked}; {about}");
            let right = by_reason.get(&reason).copied().unwrap_or(0);
            assert!(right * 50 > blocked * 49, "{function}: {right} of {blocked}; {about}");
        }
    }
}
