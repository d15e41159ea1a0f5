//! The `slip` command: arguments, messages, exit codes. What it does is done by the other crates.
#![forbid(unsafe_code)]

#[cfg(not(all(target_os = "linux", target_arch = "x86_64")))]
compile_error!("Slipstream reads processes of x86-64 Linux; it does not build for other systems");

mod args;
mod budget;
mod check;
mod connections;
mod doctor;
mod dump;
mod failure;
mod limit;
mod malloc;
mod record;
mod report;
mod run;
mod sampler;
mod tasks;
mod top;
mod trace;
mod view;

use std::io::{self, Write};
use std::process::ExitCode;

use clap::{CommandFactory, Parser};

use crate::args::{Args, Command, MallocCommand};
use crate::failure::Failure;

fn main() -> ExitCode {
    let args = Args::parse();
    let result = match args.command {
        Command::Record(options) => record::run(&options),
        Command::Top(options) => top::run(&options),
        Command::Trace(options) => trace::run(&options),
        Command::Dump(options) => dump::run(&options),
        Command::Report(options) => report::run(&options),
        Command::View(options) => view::run(&options),
        Command::Budget(options) => budget::run(&options),
        Command::Diff(options) => budget::diff(&options),
        Command::Doctor(options) => doctor::run(&options),
        Command::Explain { rule } => doctor::explain(rule.as_deref()),
        Command::Connections(options) => connections::run(&options),
        Command::Malloc(MallocCommand::Stats(options)) => malloc::stats(&options),
        Command::Malloc(MallocCommand::Check(options)) => malloc::check(&options),
        Command::Run(options) => run::run(&options),
        Command::Check(options) => check::run(&options),
        Command::Completions { shell } => {
            let mut text = Vec::new();
            clap_complete::generate(shell, &mut Args::command(), "slip", &mut text);
            print(&text)
        }
        Command::Man { folder } => clap_mangen::generate_to(Args::command(), &folder).map_err(|error| {
            Failure::io(format!("cannot write man pages to `{}`", folder.display()), &error)
        }),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            failure.say();
            ExitCode::from(failure.code)
        }
    }
}

/// Writes data to standard output. A reader that has seen enough (`| head`) is not an error.
fn print(data: &[u8]) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    match out.write_all(data).and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(Failure::io("cannot write to standard output".to_owned(), &error))
        }
        _ => Ok(()),
    }
}
