//! Measures what one sample costs, for each interpreter and some fixture programs that stand still.
//!
//! `cargo run --release -p slip-cpython --example python_cost`: microseconds per sample, the median of 200 groups of 20.

#![allow(clippy::print_stdout, reason = "prints a table")]

use std::error::Error;
use std::time::Instant;

use slip_cpython::Interpreter;
use slip_model::Interner;
use slip_remote::LiveProcess;
use slip_testkit::Launch;

fn main() -> Result<(), Box<dyn Error>> {
    println!(
        "{:28} {:16} {:>8} {:>8} {:>10} {:>10}",
        "interpreter", "program", "threads", "frames", "first us", "next us"
    );
    for python in slip_testkit::pythons().into_iter().filter(|python| python.version >= (3, 8)) {
        for program in ["zipped", "nested", "coroutines", "threads", "recursion"] {
            let mut child = Launch::script(&python, format!("python/{program}.py")).start()?;
            child.wait_ready()?;
            let process = LiveProcess::open(child.pid())?;
            let (mut interner, mut readings) = (Interner::new(), Vec::new());
            let mut reader = Interpreter::attach(&process)?;
            let begin = Instant::now();
            reader.sample(&process, &mut interner, &mut readings)?;
            let first = begin.elapsed();
            let mut groups = Vec::new();
            for _ in 0..200 {
                let begin = Instant::now();
                for _ in 0..20 {
                    reader.sample(&process, &mut interner, &mut readings)?;
                }
                groups.push(begin.elapsed() / 20);
            }
            groups.sort();
            let frames: usize =
                readings.iter().map(|reading| interner.frames_of(reading.stack).count()).sum();
            println!(
                "{:28} {program:16} {:8} {frames:8} {:10.1} {:10.2}",
                python.label,
                readings.len(),
                first.as_nanos() as f64 / 1_000.0,
                groups[groups.len() / 2].as_nanos() as f64 / 1_000.0
            );
        }
    }
    Ok(())
}
