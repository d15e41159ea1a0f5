//! Samples that hit a thread in the kernel: its own functions, and since when they count. Alone in their file: their targets leave no CPU to
//! others.

#![allow(clippy::unwrap_used, reason = "what fails here fails the test")]

use std::time::{Duration, Instant};

use slip_model::{FrameKind, Interner, Mode, StackId};
use slip_probe::ProbeError;
use slip_record::{KernelSampler, OutsideOptions, Sampler, Sink, monotonic_ns};
use slip_testkit::{Launch, skip, wait_cpu_time};

/// Time between two looks at a CPU.
const INTERVAL_NS: u64 = 200_000;

/// Samples of a target, and longest wait for them. The machine may be busy with other tests.
const LOOKS: usize = 200;
const PATIENCE: Duration = Duration::from_secs(60);

/// Time between two looks at what the kernel has told.
const PERIOD_NS: u64 = 10_000_000;

/// Names, innermost first.
fn names(interner: &Interner, stack: StackId) -> Vec<&str> {
    interner.frames_of(stack).map(|id| interner.text(interner.frame_at(id).name)).collect()
}

fn start(options: OutsideOptions) -> Option<KernelSampler> {
    match KernelSampler::start(options, INTERVAL_NS) {
        Ok(sampler) => Some(sampler),
        Err(error @ (ProbeError::Denied(_) | ProbeError::NoTypes)) => {
            skip("samples by the kernel", &error.to_string());
            None
        }
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn what_runs_in_the_kernel_is_inside_of_the_function_that_called_it() {
    let options = OutsideOptions { mode: Mode::Cpu, ..OutsideOptions::default() };
    for python in slip_testkit::pythons().into_iter().filter(|python| python.version >= (3, 8)) {
        for without_kernel_stacks in [false, true] {
            let options = OutsideOptions { without_kernel_stacks, ..options };
            let Some(mut sampler) = start(options) else { return };
            let mut child = Launch::script(&python, "python/reads_zero.py").start().unwrap();
            child.wait_ready().unwrap();
            let (mut sink, begin, begin_ns) = (Sink::new(), Instant::now(), monotonic_ns());
            let elapsed_ns = || monotonic_ns() - begin_ns;
            sampler.add(child.pid(), 0, &mut sink).unwrap();
            let mut stacks: Vec<StackId> = Vec::new();
            while stacks.len() < LOOKS {
                assert!(begin.elapsed() < PATIENCE, "{} samples", stacks.len());
                assert!(sampler.rest(monotonic_ns() + PERIOD_NS, begin_ns, &mut sink));
                sampler.sample(elapsed_ns(), &mut sink);
                stacks.extend(sink.take_batch().samples.iter().map(|sample| sample.stack));
            }
            let about = |stack| format!("{}: {:?}", python.label, names(&sink.interner, stack));
            let (mut in_kernel, mut in_read) = (0, 0);
            for stack in &stacks {
                let all: Vec<_> =
                    sink.interner.frames_of(*stack).map(|id| sink.interner.frame_at(id)).collect();
                let inner = all.iter().take_while(|frame| frame.kind == FrameKind::Kernel).count();
                let name = |frame: &slip_model::Frame| sink.interner.text(frame.name).to_owned();
                assert!(
                    all[inner..].iter().all(|frame| frame.kind == FrameKind::Python),
                    "{}",
                    about(*stack)
                );
                assert!(["reads", "<module>"].contains(&&*name(&all[inner])), "{}", about(*stack));
                assert!(all[..inner].iter().all(|frame| frame.line == 0 && name(frame) != "[unknown]"));
                in_kernel += usize::from(inner > 0);
                in_read += usize::from(all[..inner].iter().any(|frame| name(frame).contains("read")));
            }
            let (least, most) = if without_kernel_stacks { (0, 0) } else { (stacks.len() / 2, stacks.len()) };
            assert!((least..=most).contains(&in_kernel), "{in_kernel} of {} in the kernel", stacks.len());
            // An interrupt may have come in between, or the call have only begun.
            assert!(in_read * 10 >= in_kernel * 9, "{in_read} of {in_kernel} in a read");
        }
    }
}

#[test]
fn what_ran_before_the_recording_began_is_not_in_it() {
    let options = OutsideOptions { mode: Mode::Cpu, ..OutsideOptions::default() };
    let Some(python) = slip_testkit::pythons().into_iter().find(|python| python.version >= (3, 8)) else {
        return skip("samples by the kernel", "no CPython");
    };
    let Some(mut sampler) = start(options) else { return };
    let mut child = Launch::script(&python, "python/reads_zero.py").start().unwrap();
    child.wait_ready().unwrap();
    let mut sink = Sink::new();
    sampler.add(child.pid(), 0, &mut sink).unwrap();
    // It is seen from here on, some 500 times before the recording begins.
    wait_cpu_time(child.pid(), 100_000_000);
    let (begin, begin_ns) = (Instant::now(), monotonic_ns());
    let mut times = Vec::new();
    while times.len() < LOOKS {
        assert!(begin.elapsed() < PATIENCE, "{} samples", times.len());
        assert!(sampler.rest(monotonic_ns() + PERIOD_NS, begin_ns, &mut sink));
        sampler.sample(monotonic_ns() - begin_ns, &mut sink);
        times.extend(sink.take_batch().samples.iter().map(|sample| sample.time_ns));
    }
    let early = times.iter().filter(|time_ns| **time_ns == 0).count();
    assert_eq!(early, 0, "of {} samples", times.len());
}
