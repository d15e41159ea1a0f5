//! Does the reader invent stacks, and is it biased? Samples a program that changes its stack every 50 ns between two call
//! paths and knows how much time it spent in each.
//!
//! `cargo run --release -p slip-zend --example php_flutter [SECONDS [RATE_HZ...]]` runs it on every PHP of this machine, with
//! innermost calls of growing length (`round us` is the time of one pass through both paths). `truth` is what the
//! program itself measured; a share that differs by much more than `error` (two standard deviations) is a bias.
//! `impossible` counts stacks whose frames cannot have called each other, or not at that line; they are printed to
//! standard error.
#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "a measurement for people")]

use std::collections::HashMap;
use std::time::{Duration, Instant};

use slip_model::{FrameKind, Interner, Outcome, StackId};
use slip_remote::LiveProcess;
use slip_testkit::{Interpreter, Launch, phps};
use slip_zend::{CodeCache, Engine, Phase, PhpReading, SampleOptions};

#[derive(Clone, Copy, Debug, PartialEq)]
enum Class {
    A,
    B,
    /// In the loop that calls both, or in `hrtime`.
    Loop,
    Impossible,
}

/// Who calls whom, by a text that is on the line of the call.
const CALLS: [(&str, &str, &str); 10] = [
    ("a1", "run", "        a1();"),
    ("a2", "a1", "return a2()"),
    ("a3", "a2", "return a3()"),
    ("leaf", "a3", "leaf(20 "),
    ("b1", "run", "b1($object);"),
    ("b2", "b1", "return b2($b)"),
    ("B::b3", "b2", "$b->b3()"),
    ("B::b4", "B::b3", "self::b4($n)"),
    ("leaf", "B::b4", "leaf($n "),
    ("run", "{main}", "run(hrtime(true)"),
];

fn main() {
    let mut args = std::env::args().skip(1);
    let seconds: f64 = args.next().map_or(5.0, |text| text.parse().unwrap());
    let mut rates: Vec<f64> = args.map(|text| text.parse().unwrap()).collect();
    if rates.is_empty() {
        rates = vec![1_000.0, 2_000.0];
    }
    println!(
        "{:24} {:>5} {:>7} {:>9} {:>6} {:>10} {:>8} {:>6} {:>7} {:>7} {:>8} {:>8}",
        "target",
        "Hz",
        "samples",
        "repaired",
        "torn",
        "impossible",
        "path a",
        "error",
        "truth",
        "us",
        "us p99",
        "round us"
    );
    for php in phps() {
        for scale in [1, 3, 10, 100] {
            for rate in &rates {
                measure(&php, seconds, *rate, scale);
            }
        }
    }
}

fn measure(php: &Interpreter, seconds: f64, rate: f64, scale: u32) {
    let source =
        std::fs::read_to_string(slip_testkit::fixtures().join("programs/php/bench_flutter.php")).unwrap();
    let line_of = |text: &str| {
        let at = source.lines().position(|line| line.contains(text)).unwrap();
        u32::try_from(at).unwrap() + 1
    };
    let lines: HashMap<(&str, &str), u32> =
        CALLS.iter().map(|(callee, caller, text)| ((*callee, *caller), line_of(text))).collect();

    let mut child = Launch::script(php, "php/bench_flutter.php")
        .option("-dopcache.file_update_protection=0")
        .arg((seconds + 0.5).to_string())
        .arg(scale.to_string())
        .start()
        .unwrap();
    child.wait_ready().unwrap();
    let process = LiveProcess::open(child.pid()).unwrap();
    let mut code = CodeCache::default();
    let mut engine = Engine::attach(&process, &mut code).unwrap();
    let mut interner = Interner::new();
    let mut reading = PhpReading::default();
    // On the same CPU the target stands still while it is read, and every reader is perfect.
    pin(child.pid(), 0);
    pin(std::process::id(), 1);
    child.send("go").unwrap();
    std::thread::sleep(Duration::from_millis(100));

    let mut classes: HashMap<StackId, Class> = HashMap::new();
    let (mut samples, mut repaired, mut torn, mut impossible, mut a, mut b) =
        (0_u32, 0_u32, 0_u32, 0_u32, 0_u32, 0_u32);
    let mut costs = Vec::new();
    let begin = Instant::now();
    let period = Duration::from_secs_f64(1.0 / rate);
    let mut next = begin;
    while begin.elapsed().as_secs_f64() < seconds {
        next += period;
        std::thread::sleep(next.saturating_duration_since(Instant::now()));
        let options = SampleOptions::default();
        let before = Instant::now();
        engine.sample(&process, &mut interner, &mut code, &options, &mut reading).unwrap();
        costs.push(before.elapsed().as_secs_f64() * 1e6);
        samples += 1;
        match reading.stack.outcome {
            Outcome::Clean => {}
            Outcome::Repaired => repaired += 1,
            Outcome::Torn => {
                torn += 1;
                continue;
            }
        }
        assert_eq!(reading.phase, Phase::Code);
        let stack = reading.stack.stack;
        let class = *classes.entry(stack).or_insert_with(|| classify(&interner, stack, &lines));
        match class {
            Class::A => a += 1,
            Class::B => b += 1,
            Class::Impossible => impossible += 1,
            Class::Loop => {}
        }
    }
    let truth = child.read_line(Duration::from_secs(20)).unwrap();
    let truth: HashMap<String, f64> = serde_json::from_str(&truth).unwrap();
    // A slice of each path's time is spent in the loop: taken off by counting those samples to neither.
    let share = f64::from(a) / f64::from(a + b);
    let error = 2.0 * (share * (1.0 - share) / f64::from(a + b)).sqrt();
    let percent = |count: u32| 100.0 * f64::from(count) / f64::from(samples);
    costs.sort_by(f64::total_cmp);
    println!(
        "{:24} {rate:5} {samples:7} {:8.2}% {:5.2}% {:9.3}% {:7.2}% {:5.2}% {:6.2}% {:7.1} {:8.1} {:8.3}",
        php.label,
        percent(repaired),
        percent(torn),
        percent(impossible),
        100.0 * share,
        100.0 * error,
        100.0 * truth["a"] / (truth["a"] + truth["b"]),
        costs[costs.len() / 2],
        costs[costs.len() * 99 / 100],
        (seconds + 0.5) * 1e6 / truth["rounds"],
    );
}

fn pin(pid: u32, cpu: u32) {
    let args = ["-p", "-c", &cpu.to_string(), &pid.to_string()];
    let pinned = std::process::Command::new("taskset").args(args).output();
    assert!(pinned.is_ok_and(|output| output.status.success()), "taskset cannot pin {pid} to CPU {cpu}");
}

fn classify(interner: &Interner, stack: StackId, lines: &HashMap<(&str, &str), u32>) -> Class {
    let mut frames: Vec<_> = interner.frames_of(stack).map(|id| interner.frame_at(id)).collect();
    if frames.first().is_some_and(|frame| frame.kind == FrameKind::PhpInternal) {
        frames.remove(0);
    }
    let names: Vec<&str> = frames.iter().map(|frame| interner.text(frame.name)).collect();
    for (pair, frames) in names.windows(2).zip(frames.windows(2)) {
        if lines.get(&(pair[0], pair[1])) != Some(&frames[1].line) {
            eprintln!(
                "impossible: {names:?} {:?}",
                frames.iter().map(|frame| frame.line).collect::<Vec<_>>()
            );
            return Class::Impossible;
        }
    }
    match names.iter().rev().nth(2) {
        _ if names.last() != Some(&"{main}") => Class::Impossible,
        Some(&"a1") => Class::A,
        Some(&"b1") => Class::B,
        _ => Class::Loop,
    }
}
