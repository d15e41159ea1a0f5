//! Budgets of servers that listen at places of which nobody could know when the recording began.

#![allow(clippy::unwrap_used, reason = "what fails here fails the test")]

mod budget_support;

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use slip_model::{Language, ServedRequest};
use slip_testkit::{Child, Launch, pythons, skip};

use self::budget_support::keeper::Kept;
use self::budget_support::python::Server;
use self::budget_support::{PATIENCE, SHARE, alone, assert_share, drag, kept, take};

/// What is both read and written.
trait Stream: Read + Write {}
impl<T: Read + Write> Stream for T {}

/// Sends a request to a place, a port or a path, which takes so long. Its answer is to be awaited.
fn ask(place: &str, takes: Duration) -> BufReader<Box<dyn Stream>> {
    let mut stream: Box<dyn Stream> = match place.parse::<u16>() {
        Ok(port) => Box::new(TcpStream::connect(("127.0.0.1", port)).unwrap()),
        Err(_) => Box::new(UnixStream::connect(place).unwrap()),
    };
    writeln!(stream, "{}", takes.as_secs_f64()).unwrap();
    BufReader::new(stream)
}

fn finish(mut asked: BufReader<Box<dyn Stream>>) {
    let mut line = String::new();
    asked.read_line(&mut line).unwrap();
    assert_eq!(line, "served\n");
}

/// `fixtures/programs/python/listens.py`; none without Python.
fn program() -> Option<Child> {
    let Some(python) = pythons().into_iter().next() else {
        skip("a server in Python", "no Python is installed");
        return None;
    };
    let mut program = Launch::script(&python, "python/listens.py").start().unwrap();
    program.wait_ready().unwrap();
    Some(program)
}

fn told(program: &mut Child) -> String {
    program.read_line(PATIENCE).unwrap()
}

/// The longest time of a request in the queue: while the other one took its time, and no longer than it `waited` by the client's clock.
fn assert_queued(served: &[ServedRequest], waited: Duration, what: &str) {
    assert_eq!(served.len(), 2, "{served:?}");
    let longest = served.iter().map(|request| request.begin_ns - request.queued_ns).max().unwrap();
    assert_share(longest, drag().as_nanos() as u64, SHARE..waited.div_duration_f64(drag()), what);
}

/// Has the worker serve a request at each place at once: who comes second waits in the queue for as long as the first takes. Both are
/// in the books, with the time in the queue.
fn assert_queue(books: &mut Kept, first: &str, second: &str) {
    let asked = ask(first, drag());
    let begin = Instant::now();
    let waits = ask(second, Duration::ZERO);
    finish(asked);
    finish(waits);
    let waited = begin.elapsed();
    assert_queued(&take(books, 2).1, waited, &format!("queue at {second}"));
}

#[test]
fn places_where_a_worker_begins_to_listen_later_are_its_own() {
    let _alone = alone();
    let Some(mut program) = program() else { return };
    program.send("listen 0").unwrap();
    let first = told(&mut program);
    let Some(mut books) = kept() else { return };
    books.add(program.pid(), Language::Python, "service");
    finish(ask(&first, Duration::ZERO));
    take(&mut books, 1);
    let path = program.folder_outside().join("socket");
    for place in ["0", path.to_str().unwrap()] {
        program.send(&format!("listen {place}")).unwrap();
        let second = told(&mut program);
        assert_queue(&mut books, &first, &second);
    }
}

#[test]
fn a_place_where_somebody_else_listens_for_a_worker_is_its_own() {
    let _alone = alone();
    for is_path in [false, true] {
        let Some(mut program) = program() else { return };
        let path = program.folder_outside().join("socket");
        program.send(&format!("lend {}", if is_path { path.to_str().unwrap() } else { "0" })).unwrap();
        let worker = told(&mut program).parse().unwrap();
        let Some(mut books) = kept() else { return };
        books.add(worker, Language::Python, "service");
        // Now it listens, and the worker asks for the first connection.
        program.send("go").unwrap();
        let place = told(&mut program);
        finish(ask(&place, Duration::ZERO));
        take(&mut books, 1);
        assert_queue(&mut books, &place, &place);
    }
}

#[test]
fn a_server_that_is_told_to_listen_elsewhere_is_followed() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let configuration = folder.path().join("gunicorn.conf.py");
    let bind = |port: u16| fs::write(&configuration, format!("bind = '127.0.0.1:{port}'\n")).unwrap();
    let free = || TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let (first, second) = (free(), free());
    bind(first);
    let arguments = ["--workers", "1", "served:app"];
    let Some(mut server) =
        Server::start_at("gunicorn", first, &["-c", configuration.to_str().unwrap()], &arguments)
    else {
        return;
    };
    let before = server.pids();
    let Some(mut books) = server.books() else { return };
    server.fetch("/");
    assert_eq!(take(&mut books, 1).1.len(), 1);
    bind(second);
    Command::new("kill").args(["-HUP", &before[0].to_string()]).status().unwrap();
    let end = Instant::now() + PATIENCE;
    let workers = loop {
        let pids = server.pids();
        // The old worker has gone, and the new one is there.
        if pids.len() == 2 && pids[1] != before[1] && TcpStream::connect(("127.0.0.1", second)).is_ok() {
            break pids;
        }
        assert!(Instant::now() < end, "gunicorn does not listen on the other port");
        thread::sleep(Duration::from_millis(10));
    };
    server.moved_to(second);
    books.add(workers[1], Language::Python, "service");
    server.fetch("/");
    take(&mut books, 1);
    let sleep = || {
        let begin = Instant::now();
        server.fetch("/sleep");
        begin.elapsed()
    };
    let slowest = thread::scope(|scope| {
        let both = [scope.spawn(sleep), scope.spawn(sleep)];
        both.map(|client| client.join().unwrap()).into_iter().max().unwrap()
    });
    // It sleeps itself then.
    assert_queued(&take(&mut books, 2).1, slowest.saturating_sub(drag()), "queue of the new worker");
}
