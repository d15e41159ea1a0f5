//! Keeps books of processes, or not, as told line by line, for `bench/budget`: `books PID...`
//!
//! `on` begins to, `empty` has programs that do nothing in their place, `off` ends either, `take` prints the books as JSON.
//! Each is answered with a line.

#![allow(clippy::print_stdout, reason = "this is the output of the command")]

use std::error::Error;
use std::io::{BufRead as _, Write as _, stdin, stdout};

use slip_model::Language;
use slip_probe::BudgetProbe;
use slip_record::{Books, monotonic_ns};
use slip_remote::command_line;

fn main() -> Result<(), Box<dyn Error>> {
    let pids = std::env::args().skip(1).map(|pid| pid.parse()).collect::<Result<Vec<u32>, _>>()?;
    let mut books = None;
    let mut empty: Option<BudgetProbe> = None;
    let mut start_ns = 0;
    for line in stdin().lock().lines() {
        let answer = match line?.as_str() {
            "on" => {
                let mut begun = Books::start(true)?;
                for pid in &pids {
                    let is_php = command_line(*pid).first().is_some_and(|name| name.contains("php"));
                    begun.add(*pid, if is_php { Language::Php } else { Language::Python }, "")?;
                }
                start_ns = monotonic_ns();
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
                    let (mut budget, requests) = books.take(monotonic_ns() - start_ns, start_ns)?;
                    budget.requests = requests;
                    serde_json::to_string(&budget)?
                }
                None => "{}".to_owned(),
            },
            other => return Err(format!("what is `{other}`?").into()),
        };
        println!("{answer}");
        stdout().flush()?;
    }
    Ok(())
}
