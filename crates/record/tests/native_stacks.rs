//! Native functions, with those of interpreters where their loops run. Alone in its file: its targets leave no CPU to others.

#![allow(clippy::unwrap_used, reason = "what fails here fails the test")]

use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use slip_model::{FrameKind, Mode};
use slip_probe::ProbeError;
use slip_record::{KernelSampler, OutsideOptions, Sampler, Sink, monotonic_ns};
use slip_testkit::{phps, pythons, skip, wait_cpu_time};

/// Time between two looks at a CPU.
const INTERVAL_NS: u64 = 1_000_000;

/// Samples of a target, and longest wait for them. The machine may be busy with other tests.
const LOOKS: usize = 300;
const PATIENCE: Duration = Duration::from_secs(60);

/// Time between two looks at what the kernel has told.
const PERIOD_NS: u64 = 10_000_000;

/// Two functions that C calls, one inside the other.
const PYTHON: &str = "
import functools, sys
def inner(a, b):
    return (a > b) - (a < b)
def outer(value):
    sorted([3, 1, 2] * 30, key=functools.cmp_to_key(inner))
    return value
def main():
    print('ready', flush=True)
    while True:
        list(map(outer, range(30)))
main()
";

/// Its stack is longer than what is copied of it.
const DEEP: &str = "
def dive(depth):
    return list(map(dive, [depth - 1])) if depth else sum(range(20000))
print('ready', flush=True)
while True:
    dive(90)
";

const PHP: &str = r#"
function inner($a, $b) { return $a <=> $b; }
function outer($value) { $list = array_fill(0, 60, 5); usort($list, 'inner'); return $value; }
function main() { echo "ready\n"; while (true) { array_map('outer', range(1, 30)); } }
main();
"#;

const C: &str = r#"
#include <stdio.h>
#include <stdlib.h>
static int inner(const void *a, const void *b) { return *(const int *) a - *(const int *) b; }
__attribute__((noinline)) void outer(int *list) { for (int i = 0; i < 900; i++) list[i] = i * 7919 % 1009; qsort(list, 900, sizeof *list, inner); *(volatile int *) list = 1; }
int main(void) { static int list[900]; puts("ready"); fflush(stdout); for (;;) outer(list); }
"#;

const LIBRARY: &str = r#"
#include <pthread.h>
__attribute__((noinline)) void turn(volatile unsigned *value) { for (int i = 0; i < 1000; i++) *value = *value * 1664525u + 1013904223u; }
static void *spin(void *none) { static volatile unsigned value; for (;;) turn(&value); return none; }
int start(void) { pthread_t thread; return pthread_create(&thread, 0, spin, 0); }
"#;

const CPP: &str = r#"
#include <cstdio>
#include <cstdlib>
static inline __attribute__((always_inline)) unsigned mix(unsigned value)
{
	for (int turn = 0; turn < 50; turn++)
		value = value * 1664525u + 1013904223u;
	return value;
}
static inline __attribute__((always_inline)) unsigned step(unsigned value) { return mix(value) ^ 3; }
static __attribute__((noinline)) unsigned work(unsigned value) { return step(value) + 1; }
int main() { volatile unsigned value = 1; puts("ready"); fflush(stdout); for (;;) value = work(value); }
"#;

const JAVASCRIPT: &str = "
function inner(value) { let sum = 0; for (let at = 0; at < 2000; at++) sum += Math.sqrt(value + at) % 7; return sum; }
function outer(value) { return inner(value) + inner(value + 1); }
console.log('ready');
for (let turn = 0; ; turn++) outer(turn);
";

/// A program, killed at the end.
struct Busy(std::process::Child);

impl Drop for Busy {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
        // What a compiler tells `perf` is left behind.
        let _ = std::fs::remove_file(format!("/tmp/perf-{}.map", self.0.id()));
    }
}

/// Kinds and names on a stack, the outermost first.
type Names = Vec<(FrameKind, String)>;

/// The stacks of samples of a program; `None` if they cannot be had here.
fn stacks_of(command: &mut Command) -> Option<Vec<Names>> {
    stacks_after(command, |_| ())
}

/// The same, when nobody takes what the kernel tells before `wait` has returned.
fn stacks_after(command: &mut Command, wait: impl FnOnce(u32)) -> Option<Vec<Names>> {
    let options = OutsideOptions { mode: Mode::Cpu, native: true, ..OutsideOptions::default() };
    let mut sampler = match KernelSampler::start(options, INTERVAL_NS) {
        Ok(sampler) => sampler,
        Err(error @ (ProbeError::Denied(_) | ProbeError::NoTypes)) => {
            skip("stacks of native code", &error.to_string());
            return None;
        }
        Err(error) => panic!("{error}"),
    };
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
    let mut child = Busy(child);
    // Else it may have no interpreter yet.
    let mut line = String::new();
    BufReader::new(child.0.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let (mut sink, begin, begin_ns) = (Sink::new(), Instant::now(), monotonic_ns());
    sampler.add(child.0.id(), 0, &mut sink).unwrap();
    wait(child.0.id());
    let mut stacks = Vec::new();
    while stacks.len() < LOOKS {
        assert!(begin.elapsed() < PATIENCE, "{} samples", stacks.len());
        assert!(sampler.rest(monotonic_ns() + PERIOD_NS, begin_ns, &mut sink));
        sampler.sample(monotonic_ns() - begin_ns, &mut sink);
        stacks.extend(sink.take_batch().samples.iter().map(|sample| sample.stack));
    }
    let names = |stack| {
        let frames = sink.interner.frames_of(stack).map(|id| sink.interner.frame_at(id));
        let name = |frame: slip_model::Frame| (frame.kind, sink.interner.text(frame.name).to_owned());
        let mut names: Names = frames.map(name).collect();
        names.reverse();
        names
    };
    Some(stacks.into_iter().map(names).collect())
}

/// How many of these stacks have frames like these in this order, whatever is between them.
fn count(stacks: &[Names], wanted: &[(FrameKind, &str)]) -> usize {
    let has = |stack: &&Names| {
        let mut names = stack.iter();
        wanted.iter().all(|(kind, name)| names.any(|(own, text)| own == kind && text == name))
    };
    stacks.iter().filter(has).count()
}

fn check(label: &str, stacks: &[Names], wanted: &[(FrameKind, &str)]) {
    let (found, left) = (count(stacks, wanted), count(stacks, &[(FrameKind::Marker, "[not spliced]")]));
    let example = stacks.iter().max_by_key(|stack| stack.len());
    assert!(found * 4 > stacks.len(), "{label}: {found} of {}: {example:?}", stacks.len());
    // Just entered, or left.
    assert!(left * 5 < stacks.len(), "{label}: {left} of {} are not spliced: {example:?}", stacks.len());
}

#[test]
fn functions_of_interpreters_are_where_their_loops_run_them() {
    use FrameKind::{Native, Php, PhpInternal, Python};
    for python in pythons().into_iter().filter(|python| ((3, 8)..=(3, 13)).contains(&python.version)) {
        let Some(stacks) = stacks_of(python.command().args(["-c", PYTHON])) else { return };
        let is_spliced = |stack: &&Names| stack.iter().all(|(_, name)| name != "[not spliced]");
        let spliced: Vec<Names> = stacks.iter().filter(is_spliced).cloned().collect();
        // Compilers may put what is hot into a part of the loop that nothing names.
        if !python.label.contains("root") {
            check(&python.label, &stacks, &[(Native, "_start"), (Python, "main"), (Python, "outer")]);
            assert!(count(&spliced, &[(Python, "outer"), (Python, "inner")]) > 0, "{}", python.label);
        }
        // C is between what C has called and what called it.
        for stack in &spliced {
            let at = |name: &str| stack.iter().position(|(kind, own)| *kind == Python && own == name);
            for (from, to) in [("main", "outer"), ("outer", "inner")] {
                if let (Some(from), Some(to)) = (at(from), at(to)) {
                    assert!(
                        stack[from..to].iter().any(|frame| frame.0 == Native),
                        "{}: {stack:?}",
                        python.label
                    );
                }
            }
        }
    }
    for php in phps() {
        let Some(stacks) = stacks_of(php.command().args(["-r", PHP])) else { return };
        let wanted = [
            (Native, "zend_execute"),
            (Php, "main"),
            (PhpInternal, "array_map"),
            (Native, "zend_call_function"),
            (Php, "outer"),
            (PhpInternal, "usort"),
        ];
        check(&php.label, &stacks, &wanted);
    }
}

#[test]
fn a_stack_whose_native_part_had_no_room_says_so() {
    // At 1 kHz, 16 KB each.
    let fill = |pid| wait_cpu_time(pid, 2_000_000_000);
    let Some(stacks) = stacks_after(Command::new("/usr/bin/python3").args(["-c", DEEP]), fill) else {
        return;
    };
    let is_native = |stack: &&Names| stack.iter().any(|(kind, _)| *kind == FrameKind::Native);
    let without: Vec<&Names> = stacks.iter().filter(|stack| !is_native(stack)).collect();
    assert!(!without.is_empty(), "each of {} had room", stacks.len());
    for stack in without {
        // The kernel's part is copied by itself.
        let innermost = stack.iter().rfind(|(kind, _)| *kind != FrameKind::Kernel);
        assert_eq!(innermost, Some(&(FrameKind::Marker, "[not spliced]".to_owned())), "{stack:?}");
    }
}

#[test]
fn a_program_without_an_interpreter_is_its_native_functions() {
    let folder = tempfile::tempdir().unwrap();
    let (source, program) = (folder.path().join("sorts.c"), folder.path().join("sorts"));
    std::fs::write(&source, C).unwrap();
    if !Command::new("gcc")
        .args(["-O2", "-o"])
        .args([&program, &source])
        .status()
        .is_ok_and(|ran| ran.success())
    {
        return skip("a program of our own", "gcc does not compile it");
    }
    let Some(stacks) = stacks_of(&mut Command::new(&program)) else { return };
    use FrameKind::Native;
    let wanted = [(Native, "_start"), (Native, "main"), (Native, "outer"), (Native, "inner")];
    assert!(count(&stacks, &wanted[..3]) * 10 > stacks.len() * 8, "{:?}", stacks.last());
    assert!(count(&stacks, &wanted) > 0, "{:?}", stacks.iter().max_by_key(|stack| stack.len()));
    assert_eq!(count(&stacks, &[(FrameKind::Marker, "[not spliced]")]), 0);
}

#[test]
fn a_thread_that_runs_nothing_of_the_interpreter_s_is_its_native_functions() {
    let folder = tempfile::tempdir().unwrap();
    let (source, library) = (folder.path().join("spins.c"), folder.path().join("spins.so"));
    std::fs::write(&source, LIBRARY).unwrap();
    if !Command::new("gcc")
        .args(["-O2", "-shared", "-fPIC", "-pthread", "-o"])
        .args([&library, &source])
        .status()
        .is_ok_and(|ran| ran.success())
    {
        return skip("a library of our own", "gcc does not compile it");
    }
    let script = format!(
        "import ctypes, time; ctypes.CDLL('{}').start(); print('ready', flush=True); time.sleep(1000)",
        library.display()
    );
    let Some(stacks) = stacks_of(Command::new("/usr/bin/python3").args(["-c", &script])) else { return };
    use FrameKind::{Native, Python};
    let spins = count(&stacks, &[(Native, "spin"), (Native, "turn")]);
    assert!(spins * 10 > stacks.len() * 8, "{spins} of {}: {:?}", stacks.len(), stacks.last());
    let is_mixed = |stack: &&Names| {
        stack.iter().any(|(_, name)| name == "turn") && stack.iter().any(|(kind, _)| *kind == Python)
    };
    assert_eq!(stacks.iter().filter(is_mixed).count(), 0);
}

#[test]
fn functions_that_were_inlined_are_frames_with_the_lines_of_their_source() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("mixes.cpp"), CPP).unwrap();
    // What distributions ship: the program is stripped, and what was is beside it.
    let script = "g++ -g -O2 -o whole mixes.cpp && objcopy --only-keep-debug whole the.debug && \
        objcopy --strip-all --add-gnu-debuglink=the.debug whole mixes";
    let ran = Command::new("sh").args(["-c", script]).current_dir(folder.path()).status();
    if !ran.is_ok_and(|ran| ran.success()) {
        return skip("a program of our own", "g++ does not compile it");
    }
    let Some(stacks) = stacks_of(&mut Command::new(folder.path().join("mixes"))) else { return };
    use FrameKind::{Inlined, Native};
    let wanted = [(Native, "main"), (Native, "work"), (Inlined, "step"), (Inlined, "mix")];
    assert!(count(&stacks, &wanted) * 10 > stacks.len() * 8, "{:?}", stacks.last());
}

#[test]
fn functions_that_a_program_has_compiled_have_the_names_that_it_tells() {
    let node = Command::new("node").arg("--version").output();
    if !node.is_ok_and(|ran| ran.status.success()) {
        return skip("a program that compiles while it runs", "there is no node");
    }
    let mut command = Command::new("node");
    command.args(["--perf-basic-prof", "--no-turbo-inlining", "-e", JAVASCRIPT]).current_dir("/tmp");
    let Some(stacks) = stacks_of(&mut command) else { return };
    let has = |stack: &&Names, name: &str| stack.iter().any(|(_, own)| own.contains(name));
    let named = stacks.iter().filter(|stack| has(stack, "inner") && has(stack, "outer")).count();
    assert!(named * 10 > stacks.len() * 7, "{named} of {}: {:?}", stacks.len(), stacks.last());
}
