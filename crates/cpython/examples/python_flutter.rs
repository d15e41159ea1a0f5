//! Measures whether what is read of a target that never stands still is true.
//!
//! `cargo run --release -p slip-cpython --example python_flutter -- [--rate HZ] [--seconds S] [--version 3.13] [--path plain]`
//!
//! `fixtures/programs/python/flutter.py` goes to and fro between two paths and measures how long it is in each. For
//! each interpreter and kind of path, one line is printed with the target running and one with the target stopped for
//! each sample, which is the reference for how often each stack is there. Columns:
//!
//! - repaired, torn: share of the samples (see `slip_remote::ChainReader`);
//! - wrong pair: stacks with a caller that never calls the callee, or without the outermost one, of those not torn;
//! - wrong line: stacks with a caller at a line that does not call the callee, of those not torn;
//! - A: share of the stacks in path A, of those in A or B, as sampled and as the target measured itself;
//! - TVD: half the sum of the differences between the shares of all stacks (functions, not lines), against stopped.

#![allow(clippy::print_stdout, reason = "prints a table")]

use std::collections::{BTreeMap, HashMap};
use std::error::Error;
use std::process::Command;
use std::time::{Duration, Instant};

use slip_cpython::Interpreter;
use slip_model::{Interner, Outcome, StackId};
use slip_remote::{LiveProcess, Pause};
use slip_testkit::{Child, Launch, fixtures};

const PROGRAM: &str = "python/flutter.py";
const PATHS: [&str; 5] = ["plain", "c", "generator", "sum", "deep"];

struct Options {
    rate_hz: u64,
    seconds: u64,
    version: Option<String>,
    path: Option<String>,
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut options = Options { rate_hz: 2_000, seconds: 3, version: None, path: None };
    let mut args = std::env::args().skip(1);
    while let (Some(name), Some(value)) = (args.next(), args.next()) {
        match name.as_str() {
            "--rate" => options.rate_hz = value.parse()?,
            "--seconds" => options.seconds = value.parse()?,
            "--version" => options.version = Some(value),
            "--path" => options.path = Some(value),
            _ => return Err(format!("unknown option {name}").into()),
        }
    }
    let calls = calls(&std::fs::read_to_string(fixtures().join("programs").join(PROGRAM))?);
    println!(
        "{:26} {:9} {:8} {:>8} {:>9} {:>8} {:>11} {:>11} {:>7} {:>7} {:>7} {:>6}",
        "interpreter",
        "path",
        "target",
        "samples",
        "repaired",
        "torn",
        "wrong pair",
        "wrong line",
        "A",
        "A real",
        "TVD",
        "us"
    );
    for python in slip_testkit::pythons().into_iter().filter(|python| python.version >= (3, 8)) {
        if options.version.as_ref().is_some_and(|version| !python.label.contains(version.as_str())) {
            continue;
        }
        for path in
            PATHS.into_iter().filter(|path| options.path.as_deref().is_none_or(|wanted| wanted == *path))
        {
            let mut child = Launch::script(&python, PROGRAM).arg(path).start()?;
            child.wait_ready()?;
            // On one core the target would stand still while it is read.
            pin(child.pid(), "0")?;
            pin(std::process::id(), "1")?;
            std::thread::sleep(Duration::from_millis(300));
            let stopped = measure(&mut child, &options, &calls, true)?;
            let running = measure(&mut child, &options, &calls, false)?;
            let tvd = distance(&running.stacks, &stopped.stacks);
            for (name, run, tvd) in [("stopped", &stopped, None), ("running", &running, Some(tvd))] {
                println!("{:26} {path:9} {name:8} {}", python.label, run.row(tvd));
            }
            if options.path.is_some() {
                for (stack, count) in &running.stacks {
                    let share = |count: u64, run: &Run| 100.0 * count as f64 / run.valid().max(1) as f64;
                    let reference = stopped.stacks.get(stack).copied().unwrap_or(0);
                    println!(
                        "    {:6.2} % ({:6.2} % stopped)  {stack}",
                        share(*count, &running),
                        share(reference, &stopped)
                    );
                }
            }
        }
    }
    Ok(())
}

/// What was seen in one run.
#[derive(Default)]
struct Run {
    samples: u64,
    repaired: u64,
    torn: u64,
    wrong_pair: u64,
    wrong_line: u64,
    stacks: BTreeMap<String, u64>,
    in_a: u64,
    in_b: u64,
    /// Share of path A as the target measured it.
    real_a: f64,
    read_ns: u64,
}

impl Run {
    fn valid(&self) -> u64 {
        self.samples - self.torn
    }

    fn row(&self, tvd: Option<f64>) -> String {
        let percent = |part: u64, whole: u64| 100.0 * part as f64 / whole.max(1) as f64;
        format!(
            "{:8} {:8.2}% {:7.2}% {:10.3}% {:10.3}% {:6.1}% {:6.1}% {:>7} {:6.2}",
            self.samples,
            percent(self.repaired, self.samples),
            percent(self.torn, self.samples),
            percent(self.wrong_pair, self.valid()),
            percent(self.wrong_line, self.valid()),
            percent(self.in_a, self.in_a + self.in_b),
            100.0 * self.real_a,
            tvd.map_or(String::new(), |tvd| format!("{:.2}%", 100.0 * tvd)),
            self.read_ns as f64 / 1_000.0 / self.samples.max(1) as f64,
        )
    }
}

/// The functions that each line calls.
fn calls(source: &str) -> HashMap<u32, Vec<String>> {
    (1..)
        .zip(source.lines())
        .filter_map(|(number, line)| {
            let names = line.split_once("# calls ")?.1;
            Some((number, names.split(' ').map(str::to_owned).collect()))
        })
        .collect()
}

fn measure(
    child: &mut Child,
    options: &Options,
    calls: &HashMap<u32, Vec<String>>,
    stopped: bool,
) -> Result<Run, Box<dyn Error>> {
    let process = LiveProcess::open(child.pid())?;
    let mut python = Interpreter::attach(&process)?;
    let mut interner = Interner::new();
    let mut readings = Vec::new();
    let mut counts: HashMap<StackId, u64> = HashMap::new();
    let mut run = Run::default();
    let interval = Duration::from_nanos(1_000_000_000 / options.rate_hz.max(1));
    python.sample(&process, &mut interner, &mut readings)?;
    spent(child)?;
    let begin = Instant::now();
    let mut next = begin;
    while begin.elapsed() < Duration::from_secs(options.seconds) {
        next += interval;
        std::thread::sleep(next.saturating_duration_since(Instant::now()));
        let pause = if stopped { Some(Pause::stop(&process)?) } else { None };
        let start = Instant::now();
        python.sample(&process, &mut interner, &mut readings)?;
        run.read_ns += u64::try_from(start.elapsed().as_nanos())?;
        drop(pause);
        for reading in &readings {
            run.samples += 1;
            run.repaired += u64::from(reading.outcome == Outcome::Repaired);
            run.torn += u64::from(reading.outcome == Outcome::Torn);
            if reading.outcome != Outcome::Torn {
                *counts.entry(reading.stack).or_default() += 1;
            }
        }
    }
    let spent = spent(child)?;
    run.real_a = spent["a"] / (spent["a"] + spent["b"]);
    for (stack, count) in counts {
        let frames: Vec<(&str, u32)> = interner
            .frames_of(stack)
            .map(|id| interner.frame_at(id))
            .map(|frame| (interner.text(frame.name), frame.line))
            .collect();
        let at_line = |pair: &[(&str, u32)]| {
            // Before 3.11 only the last part of a qualified name is known.
            let is_it = |name: &String| name == pair[0].0 || name.rsplit('.').next() == Some(pair[0].0);
            calls.get(&pair[1].1).is_some_and(|names| names.iter().any(is_it))
        };
        // In which function the lines that call a function are is told by the run that was stopped; here it is enough
        // that the name of the caller and that of the callee belong to the same path.
        let path = |name: &str| {
            let function = name.split('.').next().unwrap_or(name);
            function.ends_with("_a").then_some('a').or(function.ends_with("_b").then_some('b'))
        };
        let crossed = frames.windows(2).any(|pair| match (path(pair[0].0), path(pair[1].0)) {
            (Some(callee), Some(caller)) => callee != caller,
            _ => false,
        });
        let has_begin = frames.last().is_some_and(|frame| frame.0 == "<module>");
        let signal = frames.iter().any(|frame| frame.0 == "report");
        run.wrong_pair += if crossed || !has_begin { count } else { 0 };
        run.wrong_line += if !signal && !frames.windows(2).all(at_line) { count } else { 0 };
        let is_in = |wanted: char| frames.iter().any(|frame| path(frame.0) == Some(wanted));
        run.in_a += if is_in('a') { count } else { 0 };
        run.in_b += if is_in('b') { count } else { 0 };
        let names: Vec<&str> = frames.iter().map(|frame| frame.0).collect();
        *run.stacks.entry(names.join(" < ")).or_default() += count;
    }
    Ok(run)
}

/// Keeps a process on one core.
fn pin(pid: u32, core: &str) -> Result<(), Box<dyn Error>> {
    let output = Command::new("taskset").args(["-p", "-c", core]).arg(pid.to_string()).output()?;
    if output.status.success() { Ok(()) } else { Err("taskset failed".into()) }
}

/// Nanoseconds that the target spent in each path since it was asked last.
fn spent(child: &mut Child) -> Result<HashMap<String, f64>, Box<dyn Error>> {
    Command::new("kill").arg("-USR1").arg(child.pid().to_string()).status()?;
    Ok(serde_json::from_str(&child.read_line(Duration::from_secs(5))?)?)
}

/// Total variation distance of two distributions.
fn distance(one: &BTreeMap<String, u64>, other: &BTreeMap<String, u64>) -> f64 {
    let total = |counts: &BTreeMap<String, u64>| counts.values().sum::<u64>().max(1) as f64;
    let share = |counts: &BTreeMap<String, u64>, key: &str| {
        counts.get(key).copied().unwrap_or(0) as f64 / total(counts)
    };
    let keys: std::collections::BTreeSet<&String> = one.keys().chain(other.keys()).collect();
    keys.into_iter().map(|key| (share(one, key) - share(other, key)).abs()).sum::<f64>() / 2.0
}
