//! The stacks of a program at each call of a function, for `bench/native`: `native_truth FILE OFFSET COMMAND...`
//!
//! The function is at this offset of the file. The program says `ready` and reads a line before it begins, and says `done` and reads another one
//! when it has ended. For each call a line of JSON: the names on the stack, the outermost first, native ones without a name by what they are of
//! and where there they begin.

#![allow(clippy::print_stdout, reason = "this is the output of the command")]

use std::error::Error;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use slip_record::{KernelSampler, Sampler, Sink, monotonic_ns};

type Failed = Box<dyn Error>;

/// How long the program may take.
const PATIENCE: Duration = Duration::from_secs(120);

/// The program, killed at the end.
struct Program {
    child: Child,
    input: ChildStdin,
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn main() -> Result<(), Failed> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [file, offset, command @ ..] = &arguments[..] else {
        return Err("usage: native_truth FILE OFFSET COMMAND...".into());
    };
    let (name, rest) = command.split_first().ok_or("no command")?;
    let mut child = Command::new(name).args(rest).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    let output = BufReader::new(child.stdout.take().ok_or("no output")?);
    let input = child.stdin.take().ok_or("no input")?;
    let mut program = Program { child, input };
    let (sender, lines) = std::sync::mpsc::channel();
    thread::spawn(move || output.lines().map_while(Result::ok).try_for_each(|line| sender.send(line)));
    let wait_for = |wanted: &str| -> Result<(), Failed> {
        let line = lines.recv_timeout(PATIENCE)?;
        if line == wanted { Ok(()) } else { Err(format!("it says {line}").into()) }
    };
    wait_for("ready")?;
    let (mut sink, start_ns) = (Sink::new(), monotonic_ns());
    let mut sampler = KernelSampler::start_at_function(Path::new(file), offset.parse()?)?;
    let added = sampler.add(program.child.id(), 0, &mut sink);
    added.map_err(|issue| format!("{issue:?}"))?;
    writeln!(program.input, "go")?;
    let begin = Instant::now();
    let mut is_over = false;
    while !is_over && begin.elapsed() < PATIENCE {
        is_over = lines.try_recv().is_ok();
        sampler.rest(monotonic_ns() + 1_000_000, start_ns, &mut sink);
        sampler.sample(monotonic_ns() - start_ns, &mut sink);
    }
    sampler.finish(monotonic_ns() - start_ns, &mut sink);
    for sample in sink.samples().iter() {
        let names = sink.interner.frames_of(sample.stack).map(|frame| {
            let name = sink.interner.text(sink.interner.frame_at(frame).name);
            format!("\"{}\"", name.replace('\\', "\\\\").replace('"', "\\\""))
        });
        let mut names: Vec<String> = names.collect();
        names.reverse();
        println!("[{}]", names.join(", "));
    }
    let totals = sink.totals;
    eprintln!("failed {}, torn {}", totals.failed, totals.torn);
    Ok(())
}
