//! Budgets of Python services, behind servers that others wrote: what a request spends its time on, against what it measures itself.

#![allow(clippy::unwrap_used, reason = "what fails here fails the test")]

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use slip_model::{Budget, Language, Part, ServedRequest};
use slip_probe::ProbeError;
use slip_record::Books;
use slip_remote::descendants;
use slip_testkit::{fixtures, skip};

/// Longest wait for a server. The machine may be busy with other tests.
const PATIENCE: Duration = Duration::from_secs(60);

/// Requests of each kind.
const REQUESTS: u64 = 8;

/// The share of a drag that has to be in its part.
const SHARE: f64 = 0.9;

/// One test after the other keeps the machine's CPUs free for the clock to be right.
static ALONE: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A server of Python.
struct Server {
    process: Child,
    port: u16,
}

impl Server {
    /// None if it is not installed. `arguments` follow the address, which has the option `bind` of its own.
    fn start(program: &str, bind: &[&str], arguments: &[&str]) -> Option<Self> {
        let path = Path::new("/usr/bin").join(program);
        if !path.exists() {
            skip(program, "it is not installed");
            return None;
        }
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let bind: Vec<String> = bind.iter().map(|word| word.replace("PORT", &port.to_string())).collect();
        let folder = fixtures().join("programs/python");
        let process = Command::new(path)
            .args(bind)
            .args(arguments)
            .current_dir(folder)
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let server = Self { process, port };
        let end = Instant::now() + PATIENCE;
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(Instant::now() < end, "{program} does not listen");
            thread::sleep(Duration::from_millis(10));
        }
        server.fetch("/");
        Some(server)
    }

    fn pids(&self) -> Vec<u32> {
        let first = self.process.id();
        [vec![first], descendants(&[first])].concat()
    }

    fn fetch(&self, path: &str) -> u64 {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        write!(stream, "GET {path} HTTP/1.0\r\nHost: x\r\n\r\n").unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        text.rsplit("\r\n\r\n").next().unwrap().trim().parse().unwrap()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let pids = self.pids();
        let _ = Command::new("kill")
            .arg("-KILL")
            .args(pids.iter().map(u32::to_string))
            .stderr(Stdio::null())
            .status();
        let _ = self.process.wait();
    }
}

fn gunicorn(more: &[&str]) -> Option<Server> {
    let arguments = [&["--workers", "1"], more, &["served:app"]].concat();
    Server::start("gunicorn", &["--bind", "127.0.0.1:PORT"], &arguments)
}

fn uwsgi() -> Option<Server> {
    let arguments =
        ["--plugins", "python3", "--master", "--processes", "1", "--module", "served:app", "--need-app"];
    Server::start("uwsgi", &["--http-socket", "127.0.0.1:PORT"], &arguments)
}

fn uvicorn() -> Option<Server> {
    Server::start(
        "uvicorn",
        &["--host", "127.0.0.1", "--port", "PORT"],
        &["--loop", "asyncio", "served:asgi"],
    )
}

/// The books, once so many requests have ended.
fn take(books: &mut Books, count: u64) -> (Budget, Vec<ServedRequest>) {
    let (end, mut requests) = (Instant::now() + PATIENCE, Vec::new());
    loop {
        let (budget, more) = books.take(0, 0).unwrap();
        requests.extend(more);
        if requests.len() as u64 >= count {
            return (budget, requests);
        }
        assert!(Instant::now() < end, "{} of {count} requests: {budget:?}", requests.len());
    }
}

/// What the books say of some requests for `path`, and the time that these say they took.
fn budget_of(server: &Server, path: &str, times: u64) -> Option<(Budget, Vec<ServedRequest>, u64)> {
    let mut books = match Books::start(true) {
        Ok(books) => books,
        Err(error @ (ProbeError::Denied(_) | ProbeError::NoTypes | ProbeError::Namespace)) => {
            skip("budgets by the kernel", &error.to_string());
            return None;
        }
        Err(error) => panic!("{error}"),
    };
    for pid in server.pids() {
        books.add(pid, Language::Python, "service").unwrap();
    }
    let drag_ns = (0..times).map(|_| server.fetch(path)).sum();
    let (budget, requests) = take(&mut books, times);
    assert_eq!(budget.lost_requests, 0);
    for worker in &budget.workers {
        let ns =
            worker.idle_ns + worker.between.total_ns() + worker.serving.total_ns() + worker.after.total_ns();
        assert_eq!(ns, worker.watched_ns, "{worker:?}");
    }
    Some((budget, requests, drag_ns))
}

/// Requests are counted exactly, and most of the drag is in `part`.
#[track_caller]
fn assert_drag(server: &Server, path: &str, part: Part) {
    let Some((budget, requests, drag_ns)) = budget_of(server, path, REQUESTS) else { return };
    assert_eq!(requests.len() as u64, REQUESTS, "{budget:#?}");
    let in_part = |part| -> u64 { budget.workers.iter().map(|worker| worker.serving.of(part)).sum() };
    // Who was blocked may have to wait for a CPU then, which his clock does not tell apart.
    let is_blocked = matches!(part, Part::Sleep | Part::Gil);
    let ready_ns = if is_blocked { in_part(Part::Wake) + in_part(Part::Preempted) } else { 0 };
    let found_ns = in_part(part);
    let share = (found_ns + ready_ns) as f64 / drag_ns as f64;
    assert!(
        (SHARE..1.5).contains(&share) && 2 * found_ns > drag_ns,
        "{path}: {found_ns} + {ready_ns} ns of {drag_ns}, {share:.3}: {budget:#?}"
    );
}

#[track_caller]
fn assert_drags(server: Option<Server>) {
    let _alone = alone();
    let Some(server) = server else { return };
    for (path, part) in
        [("/sleep", Part::Sleep), ("/code", Part::Code), ("/memory", Part::Memory), ("/gil", Part::Gil)]
    {
        assert_drag(&server, path, part);
    }
}

#[test]
fn gunicorn_with_one_request_at_a_time() {
    assert_drags(gunicorn(&[]));
}

#[test]
fn gunicorn_with_threads() {
    assert_drags(gunicorn(&["--threads", "3"]));
}

#[test]
fn uwsgi_with_one_request_at_a_time() {
    let _alone = alone();
    let Some(server) = uwsgi() else { return };
    // Without threads of Python nobody takes its lock away.
    for (path, part) in [("/sleep", Part::Sleep), ("/code", Part::Code), ("/memory", Part::Memory)] {
        assert_drag(&server, path, part);
    }
}

#[test]
fn uvicorn_with_asyncio() {
    assert_drags(uvicorn());
}

#[test]
fn an_event_loop_that_is_blocked_makes_others_wait() {
    let _alone = alone();
    let Some(server) = uvicorn() else { return };
    let Ok(mut books) = Books::start(true) else { return };
    for pid in server.pids() {
        books.add(pid, Language::Python, "service").unwrap();
    }
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| server.fetch("/sleep"));
        }
    });
    let (budget, requests) = take(&mut books, 4);
    // They come at once, and are handled one after the other.
    let mut took: Vec<u64> = requests.iter().map(|request| request.response_ns - request.queued_ns).collect();
    took.sort_unstable();
    assert_eq!(took.len(), 4);
    assert!(took[3] > 3 * 15_000_000 && took[0] < 30_000_000, "{took:?}");
    let shared_ns: u64 = budget.workers.iter().map(|worker| worker.shared_ns).sum();
    assert!(shared_ns > 25_000_000, "{shared_ns}");
    let alone = requests.iter().filter(|request| request.serving.total_ns() > 0).count();
    assert!(alone <= 1, "{requests:?}");
}
