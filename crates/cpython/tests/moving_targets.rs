//! Targets that change while they are read: code, threads, stacks.

#![allow(clippy::unwrap_used, reason = "what fails here fails the test")]

mod common;

use std::collections::{HashMap, HashSet};
use std::thread::sleep;
use std::time::{Duration, Instant};

use common::supported_pythons;
use slip_cpython::Interpreter;
use slip_model::{Interner, Outcome, StackId, StackReading};
use slip_remote::{LiveProcess, Symbols};
use slip_testkit::{Child, Launch};

/// Longest time until a test has seen enough. The machine may be busy with other tests.
const PATIENCE: Duration = Duration::from_secs(60);

/// Samples a fixture program and gives each sample to `look`, with what `before` said before it, until `look` says that
/// it has seen enough.
fn watch<B>(
    child: &Child,
    interval: Duration,
    before: impl Fn() -> B,
    mut look: impl FnMut(B, &Interner, &[StackReading]) -> bool,
) {
    let process = LiveProcess::open(child.pid()).unwrap();
    let mut python = Interpreter::attach(&process).unwrap();
    let mut interner = Interner::new();
    let mut readings = Vec::new();
    let begin = Instant::now();
    loop {
        let start = before();
        python.sample(&process, &mut interner, &mut readings).unwrap();
        if look(start, &interner, &readings) {
            return;
        }
        assert!(begin.elapsed() < PATIENCE, "what is waited for does not happen");
        sleep(interval);
    }
}

/// Names and lines of a stack, innermost first.
fn frames(interner: &Interner, stack: StackId) -> Vec<(&str, &str, u32, u32)> {
    interner
        .frames_of(stack)
        .map(|id| interner.frame_at(id))
        .map(|frame| (interner.text(frame.name), interner.text(frame.file), frame.first_line, frame.line))
        .collect()
}

#[test]
fn code_at_a_used_address_is_told_from_what_was_there() {
    for python in supported_pythons() {
        let mut child = Launch::script(&python, "python/reused_code.py").start().unwrap();
        child.wait_ready().unwrap();
        let (mut seen, mut outdated) = (0, 0);
        let path = child.folder_outside().join("number");
        let number_now = || u64::from_le_bytes(std::fs::read(&path).unwrap().try_into().unwrap());
        watch(&child, Duration::from_millis(1), number_now, |earliest, interner, readings| {
            let latest = number_now();
            for reading in readings {
                for (name, file, first_line, line) in frames(interner, reading.stack) {
                    let Some(number) = name.strip_prefix("generated_") else { continue };
                    let about =
                        format!("{}: {name} in {file}, first line {first_line}, line {line}", python.label);
                    let number: u32 = number.parse().unwrap();
                    let running = (earliest..=latest).contains(&number.into());
                    assert_eq!(file, format!("<number {number:06}>"), "{about}");
                    assert_eq!(first_line, number % 97 + 1, "{about}");
                    assert!((first_line..first_line + 3).contains(&line), "{about}");
                    seen += 1;
                    outdated += u32::from(!running);
                }
            }
            seen > 1_000
        });
        // The very first reuse of an address may go unnoticed for some milliseconds.
        assert!(outdated <= 6, "{}: {outdated} of {seen} were no longer there", python.label);
    }
}

#[test]
fn threads_that_begin_and_end_are_followed() {
    for python in supported_pythons() {
        let mut child = Launch::script(&python, "python/changing_threads.py").start().unwrap();
        child.wait_ready().unwrap();
        let mut workers: HashMap<String, HashSet<u64>> = HashMap::new();
        let (mut samples, mut stays, mut unnamed, mut threads) = (0, 0, 0, 0);
        watch(
            &child,
            Duration::from_micros(700),
            || (),
            |(), interner, readings| {
                samples += 1;
                for reading in readings {
                    threads += 1;
                    assert_ne!(reading.native_tid, 0);
                    let name = interner.text(reading.name);
                    stays += u32::from(name == "stays");
                    unnamed += u32::from(name.is_empty());
                    let stack = frames(interner, reading.stack);
                    if name.starts_with("worker") {
                        workers.entry(name.to_owned()).or_default().insert(reading.native_tid);
                        let at_work = stack.first().is_some_and(|frame| frame.0 == "work");
                        assert!(
                            !at_work || ["Thread.run", "run"].contains(&stack[1].0),
                            "{}: {stack:?}",
                            python.label
                        );
                    }
                    // The memory of a thread that has ended may belong to another one within the same sample.
                    let keys: HashSet<(u64, u64)> =
                        readings.iter().map(|reading| (reading.thread_key, reading.native_tid)).collect();
                    assert_eq!(keys.len(), readings.len(), "{}: a thread was read twice", python.label);
                }
                samples > 1_000 && workers.len() > 300
            },
        );
        // The thread that never ends is never lost while others come and go.
        assert!(stays * 100 >= samples * 99, "{}: {stays} of {samples}", python.label);
        // A thread may end between the copy of its stack and the look at its name: another one may have both by then.
        let shared = workers.values().filter(|tids| tids.len() > 1).count();
        let known = workers.len();
        assert!(shared * 50 <= known, "{}: {shared} of {known} names were of several threads", python.label);
        // A thread has no name yet while it begins and none any more while it ends.
        assert!(unnamed * 5 <= threads, "{}: {unnamed} of {threads} have no name", python.label);
    }
}

#[test]
fn paths_that_alternate_are_not_mixed() {
    for python in supported_pythons() {
        let mut child = Launch::script(&python, "python/flutter.py").arg("plain").start().unwrap();
        child.wait_ready().unwrap();
        let (mut stacks, mut wrong, mut in_a, mut in_b) = (0_u32, 0_u32, 0_u32, 0_u32);
        watch(
            &child,
            Duration::from_micros(450),
            || (),
            |(), interner, readings| {
                for reading in readings.iter().filter(|reading| reading.outcome != Outcome::Torn) {
                    let stack = frames(interner, reading.stack);
                    let has = |end: &str| stack.iter().any(|frame| frame.0.ends_with(end));
                    stacks += 1;
                    wrong += u32::from(has("_a") && has("_b"));
                    in_a += u32::from(has("_a"));
                    in_b += u32::from(has("_b"));
                }
                stacks > 3_000
            },
        );
        let about = format!("{}: {wrong} of {stacks} are mixed, {in_a} in a, {in_b} in b", python.label);
        // `examples/python_flutter.rs` measures this exactly: less than 0.1 % on an idle machine.
        assert!(wrong * 100 <= stacks, "{about}");
        assert!(in_a > stacks / 50 && in_b > stacks / 50, "{about}");
    }
}

/// A generator is linked to its caller only while it runs, which is for 50 ns at a time here.
#[test]
fn generators_are_not_shown_without_their_callers() {
    for (python, path) in supported_pythons()
        .into_iter()
        .flat_map(|python| ["sum", "generator"].map(|path| (python.clone(), path)))
    {
        let mut child = Launch::script(&python, "python/flutter.py").arg(path).start().unwrap();
        child.wait_ready().unwrap();
        let (mut samples, mut stacks, mut rootless, mut in_generators) = (0_u32, 0_u32, 0_u32, 0_u32);
        watch(
            &child,
            Duration::from_micros(450),
            || (),
            |(), interner, readings| {
                samples += 1;
                for reading in readings.iter().filter(|reading| reading.outcome != Outcome::Torn) {
                    let stack = frames(interner, reading.stack);
                    stacks += 1;
                    rootless += u32::from(stack.last().is_none_or(|frame| frame.0 != "<module>"));
                    in_generators += u32::from(stack.iter().any(|frame| frame.0.ends_with("<genexpr>")));
                }
                samples > 2_000
            },
        );
        let about = format!("{} {path}: {rootless} of {stacks} lack their begin", python.label);
        assert!(rootless * 100 <= stacks, "{about}");
        assert!(path != "sum" || in_generators > 0, "{about}, {in_generators} in generators");
    }
}

#[test]
fn a_generator_that_no_python_code_has_resumed_is_outermost() {
    let text = "
import _thread, sys, time
def wait():
    time.sleep(1_000)
def waits():
    yield time.sleep(1_000)
def calls():
    yield wait()
def runs():
    while True:
        pass
    yield
for generator in waits(), calls(), runs():
    _thread.start_new_thread(next, (generator,))
print('ready', flush=True)
sys.stdin.readline()
";
    for python in supported_pythons() {
        let mut child = Launch::text(&python, "outermost.py", text).start().unwrap();
        child.wait_ready().unwrap();
        let expected = [&["waits"][..], &["wait", "calls"], &["runs"]];
        let mut seen = HashSet::new();
        watch(
            &child,
            Duration::from_micros(450),
            || (),
            |(), interner, readings| {
                for reading in readings.iter().filter(|reading| reading.outcome != Outcome::Torn) {
                    let stack = frames(interner, reading.stack);
                    let names: Vec<&str> = stack.iter().map(|frame| frame.0).collect();
                    seen.extend(expected.iter().position(|stack| names == *stack));
                }
                seen.len() == expected.len()
            },
        );
    }
}

#[test]
fn a_program_in_the_place_of_another_is_read_though_its_stack_is_elsewhere() {
    let text = "
import os, sys
def first():
    sys.stdin.readline()
    os.execv(sys.executable, ['python', '-c', 'def second(): print(\"again\", flush=True); input()\\nsecond()'])
print('ready', flush=True)
first()
";
    for python in supported_pythons() {
        let mut child = Launch::text(&python, "again.py", text).start().unwrap();
        child.wait_ready().unwrap();
        let process = LiveProcess::open(child.pid()).unwrap();
        let mut reader = Interpreter::attach(&process).unwrap();
        let (mut interner, mut readings) = (Interner::new(), Vec::new());
        reader.sample(&process, &mut interner, &mut readings).unwrap();
        child.send("").unwrap();
        assert_eq!(child.read_line(PATIENCE).unwrap(), "again");
        let anew = LiveProcess::open(child.pid()).unwrap();
        if anew.symbol("_PyRuntime") != process.symbol("_PyRuntime") {
            // Position independent: nothing is where it was.
            continue;
        }
        // Once for what has changed, once to read.
        for _ in 0..2 {
            reader.sample(&process, &mut interner, &mut readings).unwrap();
        }
        let stack = readings.first().map(|reading| frames(&interner, reading.stack)).unwrap_or_default();
        assert!(stack.iter().any(|frame| frame.0 == "second"), "{}: {readings:?}", python.label);
    }
}
