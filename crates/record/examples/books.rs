//! Keeps books of processes, or not, as told line by line, for `bench/budget`: `books PID...`
//!
//! `on` begins to, `empty` has programs that do nothing in their place, `off` ends either, `take` prints the books as JSON, with the
//! requests since the last time. Each is answered with a line. Between two lines the requests are fetched each second, as in a
//! recording: the kernel keeps only so many.

#![allow(clippy::print_stdout, reason = "this is the output of the command")]

use std::error::Error;
use std::io::{BufRead as _, Write as _, stdin, stdout};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use slip_model::Language;
use slip_probe::BudgetProbe;
use slip_record::{Books, monotonic_ns};
use slip_remote::command_line;

fn main() -> Result<(), Box<dyn Error>> {
    let pids = std::env::args().skip(1).map(|pid| pid.parse()).collect::<Result<Vec<u32>, _>>()?;
    let mut books: Option<Books> = None;
    let mut empty: Option<BudgetProbe> = None;
    let mut start_ns = 0;
    let mut requests = Vec::new();
    let (sender, lines) = channel();
    thread::spawn(move || stdin().lock().lines().try_for_each(|line| sender.send(line)));
    loop {
        let line = match lines.recv_timeout(Duration::from_secs(1)) {
            Ok(line) => line?,
            Err(RecvTimeoutError::Timeout) => {
                if let Some(books) = &mut books {
                    requests.extend(books.take(monotonic_ns() - start_ns, start_ns)?.1);
                }
                continue;
            }
            Err(RecvTimeoutError::Disconnected) => return Ok(()),
        };
        let answer = match line.as_str() {
            "on" => {
                let mut begun = Books::start(true)?;
                for pid in &pids {
                    let is_php = command_line(*pid).first().is_some_and(|name| name.contains("php"));
                    begun.add(*pid, if is_php { Language::Php } else { Language::Python }, "")?;
                }
                start_ns = monotonic_ns();
                requests.clear();
                books = Some(begun);
                "on".to_owned()
            }
            "empty" => {
                empty = Some(BudgetProbe::start_empty()?);
                "empty".to_owned()
            }
            "off" => {
                books = None;
                if let Some(mut probe) = empty.take() {
                    probe.stop();
                }
                "off".to_owned()
            }
            "take" => match &mut books {
                Some(books) => {
                    let (mut budget, last) = books.take(monotonic_ns() - start_ns, start_ns)?;
                    requests.extend(last);
                    budget.requests = std::mem::take(&mut requests);
                    serde_json::to_string(&budget)?
                }
                None => "{}".to_owned(),
            },
            other => return Err(format!("what is `{other}`?").into()),
        };
        println!("{answer}");
        stdout().flush()?;
    }
}
