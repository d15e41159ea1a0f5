//! Budgets of programs that serve no requests: what their whole run is spent on, against what they measure themselves.

#![allow(clippy::unwrap_used, reason = "what fails here fails the test")]

mod budget_support;

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use slip_model::{Budget, Part, RunBegin, ServedRequest};
use slip_record::{OutsideOptions, OutsideSampler, RunStart, Sampler as _, Sink, hold, start_of};
use slip_testkit::{fixtures, skip};

use self::budget_support::servers::serve_slowly;
use self::budget_support::stolen::Stolen;
use self::budget_support::{
    PATIENCE, REQUESTS, alone, assert_most, assert_most_blocked, assert_share, books, serving_ns,
};

/// Where a program may write: not where files are memory.
fn folder() -> tempfile::TempDir {
    tempfile::Builder::new().prefix("slip-run.").tempdir_in("/var/tmp").unwrap()
}

/// `fixtures/programs/c/run.c`, compiled; none if it cannot be. Without symbols if it is to be `stripped`.
fn program(folder: &Path, stripped: bool) -> Option<PathBuf> {
    let path = folder.join("run");
    let mut command = Command::new("gcc");
    command.args(["-O1", "-pthread", "-o"]).arg(&path).arg(fixtures().join("programs/c/run.c"));
    if stripped {
        command.arg("-s");
    }
    match command.status() {
        Ok(status) if status.success() => Some(path),
        other => {
            skip("programs of our own", &format!("gcc: {other:?}"));
            None
        }
    }
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

/// What the books say of a command, from its first moment to its end; `meanwhile` it runs. None where the kernel keeps none.
fn run(command: &[String], meanwhile: impl FnOnce()) -> Option<(Budget, Vec<ServedRequest>)> {
    let mut books = books()?;
    // The first event of any thread makes the kernel wait, and programs measure by one of their own.
    let _has_events = Stolen::start(&[std::process::id()]);
    let held = hold(command).unwrap();
    books.may_run(held.pid(), start_of(command), "program").unwrap();
    let mut launched = held.release().unwrap();
    meanwhile();
    let end = Instant::now() + PATIENCE;
    while launched.ended().is_none() {
        assert!(Instant::now() < end, "{command:?} does not end");
        thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(launched.ended(), Some(0));
    let (budget, requests) = books.take(0, 0).unwrap();
    for worker in &budget.workers {
        let parts_ns = worker.between.total_ns() + worker.serving.total_ns() + worker.after.total_ns();
        assert_eq!(parts_ns + worker.idle_ns, worker.watched_ns, "{worker:?}");
    }
    Some((budget, requests))
}

/// Nearly all of the drag is in `part` of the run of a program, which is as long as it says itself.
fn assert_drag(program: &Path, by: &str, port: u16, part: Part) {
    let out = program.with_extension("out");
    let command = words(&[program.to_str().unwrap(), by, out.to_str().unwrap(), &port.to_string()]);
    let Some((budget, requests)) = run(&command, || ()) else { return };
    let said = fs::read_to_string(out).unwrap();
    let (drag, whole) = said.trim().split_once(' ').unwrap();
    let (drag_ns, whole_ns): (u64, u64) = (drag.parse().unwrap(), whole.parse().unwrap());
    assert_eq!((requests.len(), budget.run_begin), (0, Some(RunBegin::Program)));
    let main = budget.workers.iter().find(|thread| thread.pid == thread.tid).unwrap();
    assert!(budget.workers.iter().all(|thread| thread.is_run), "{budget:?}");
    assert!(main.between.total_ns() > 0 && main.after.total_ns() > 0, "start-up and exit: {main:?}");
    assert_share(main.serving.total_ns(), whole_ns, 0.97..1.2, &format!("{by}: the run"));
    if part == Part::Memory {
        assert!(
            main.memory_calls >= 200 && main.most_bytes > 8 << 20,
            "100 times 8 MiB, and no more: {main:?}"
        );
        assert!(main.most_bytes < 100 << 20, "{main:?}");
    }
    match part {
        Part::Code | Part::Memory => assert_most(serving_ns(&budget, part), drag_ns, by),
        // The thread that holds the lock sleeps meanwhile.
        Part::Lock => assert_most(main.serving.of(part), drag_ns, by),
        _ => assert_most_blocked(&budget, part, drag_ns, by),
    }
}

#[test]
fn what_a_program_does_is_in_its_line() {
    let _alone = alone();
    let folder = folder();
    let Some(program) = program(folder.path(), false) else { return };
    let drags = [
        ("sleep", Part::Sleep),
        ("fsync", Part::Disk),
        ("code", Part::Code),
        ("memory", Part::Memory),
        ("lock", Part::Lock),
    ];
    for (by, part) in drags {
        assert_drag(&program, by, 0, part);
    }
    assert_drag(&program, "wait", serve_slowly(Duration::from_millis(2)), Part::Wait);
}

#[test]
fn a_program_without_symbols_begins_at_its_first_instruction() {
    let _alone = alone();
    let folder = folder();
    let Some(program) = program(folder.path(), true) else { return };
    assert_drag(&program, "sleep", 0, Part::Sleep);
}

#[test]
fn what_a_script_does_is_in_its_line() {
    let _alone = alone();
    let folder = folder();
    let (script, out) = (fixtures().join("programs/python/run.py"), folder.path().join("out"));
    for (by, part) in [("sleep", Part::Sleep), ("fsync", Part::Disk)] {
        let command = words(&["/usr/bin/python3", script.to_str().unwrap(), by, out.to_str().unwrap()]);
        let Some((budget, requests)) = run(&command, || ()) else { return };
        let drag_ns: u64 = fs::read_to_string(&out).unwrap().parse().unwrap();
        assert_eq!((requests.len(), budget.run_begin), (0, Some(RunBegin::Script)));
        let [main] = &budget.workers[..] else { panic!("{budget:?}") };
        assert!(main.is_run && main.between.of(Part::Code) > 0, "{main:?}");
        assert_most_blocked(&budget, part, drag_ns, by);
    }
}

#[test]
fn a_program_that_makes_way_for_another_one_is_that_one_from_its_first_moment_on() {
    let _alone = alone();
    let folder = folder();
    let (script, out) = (fixtures().join("programs/python/run.py"), folder.path().join("out"));
    let python = ["/usr/bin/env", "/usr/bin/python3", script.to_str().unwrap(), "sleep"];
    let command = words(&[&python[..], &[out.to_str().unwrap()]].concat());
    let Some((budget, _)) = run(&command, || ()) else { return };
    let drag_ns: u64 = fs::read_to_string(&out).unwrap().parse().unwrap();
    assert_most_blocked(&budget, Part::Sleep, drag_ns, "env");
}

#[test]
fn a_program_that_asks_for_connections_serves_requests() {
    let _alone = alone();
    let folder = folder();
    let (script, out) = (fixtures().join("programs/python/run.py"), folder.path().join("port"));
    let command = words(&["/usr/bin/python3", script.to_str().unwrap(), "serve", out.to_str().unwrap()]);
    let ask_all = || {
        let end = Instant::now() + PATIENCE;
        let port: u16 = loop {
            assert!(Instant::now() < end, "it does not listen");
            if let Ok(text) = fs::read_to_string(&out) {
                break text.parse().unwrap();
            }
            thread::sleep(Duration::from_millis(1));
        };
        for _ in 0..REQUESTS {
            let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
            stream.write_all(b"GET / HTTP/1.0\r\n\r\n").unwrap();
            let mut answer = String::new();
            stream.read_to_string(&mut answer).unwrap();
            assert_eq!(answer, "done\n");
        }
    };
    let Some((budget, requests)) = run(&command, ask_all) else { return };
    assert_eq!(requests.len() as u64, REQUESTS, "{budget:?}");
    let [worker] = &budget.workers[..] else { panic!("{budget:?}") };
    assert!(!worker.is_run, "{worker:?}");
    assert_most_blocked(&budget, Part::Sleep, 5_000_000 * REQUESTS, "serve");
}

#[test]
fn a_program_that_runs_already_has_its_run_from_then_on() {
    let _alone = alone();
    let Some(mut books) = books() else { return };
    let mut child = Command::new("sleep").arg("600").spawn().unwrap();
    let pid = child.id();
    books.may_run(pid, RunStart::Now, "").unwrap();
    let mut sink = Sink::new();
    let mut sampler = OutsideSampler::new(OutsideOptions::default()).with_books(books);
    sampler.add(pid, 0, &mut sink).unwrap();
    assert_eq!(sampler.pids(), [pid]);
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(sampler.sample(1, &mut sink), [pid]);
    sampler.finish(2, &mut sink);
    let budget = sink.take_batch().budget.unwrap();
    let [worker] = &budget.workers[..] else { panic!("{budget:?}") };
    assert_eq!((budget.run_begin, worker.between.total_ns()), (Some(RunBegin::Watch), 0));
    assert!(worker.serving.of(Part::Sleep) > 0, "{worker:?}");
}
