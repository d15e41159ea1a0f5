//! Python services behind servers that others wrote.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use slip_model::{Budget, Language, Part, ServedRequest};
use slip_remote::descendants;
use slip_testkit::{fixtures, skip};

use super::keeper::Kept;
use super::{PATIENCE, REQUESTS, assert_most, assert_most_blocked, kept, serving_ns, take};

/// A server of Python.
pub(crate) struct Server {
    process: Child,
    port: u16,
}

impl Server {
    /// None if it is not installed. `arguments` follow the address, which has the option `bind` of its own.
    fn start(program: &str, bind: &[&str], arguments: &[&str]) -> Option<Self> {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        Self::start_at(program, port, bind, arguments)
    }

    /// The same at a port that is free.
    pub(crate) fn start_at(program: &str, port: u16, bind: &[&str], arguments: &[&str]) -> Option<Self> {
        let path = Path::new("/usr/bin").join(program);
        if !path.exists() {
            skip(program, "it is not installed");
            return None;
        }
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

    /// It listens there now.
    pub(crate) fn moved_to(&mut self, port: u16) {
        self.port = port;
    }

    pub(crate) fn pids(&self) -> Vec<u32> {
        let first = self.process.id();
        [vec![first], descendants(&[first])].concat()
    }

    /// Books of all its processes; none where the kernel keeps none.
    pub(crate) fn books(&self) -> Option<Kept> {
        let mut books = kept()?;
        for pid in self.pids() {
            books.add(pid, Language::Python, "service");
        }
        Some(books)
    }

    /// A connection on which a request can be sent.
    pub(crate) fn connect(&self) -> Connection {
        let stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Connection(BufReader::new(stream))
    }

    /// Waits until one of its processes waits to send (`sendto`, as `/proc` tells it).
    pub(crate) fn wait_until_it_sends(&self) {
        const SENDTO: &str = "44 ";
        let end = Instant::now() + PATIENCE;
        let waits = |pid: &u32| {
            fs::read_to_string(format!("/proc/{pid}/syscall")).is_ok_and(|call| call.starts_with(SENDTO))
        };
        while !self.pids().iter().any(waits) {
            assert!(Instant::now() < end, "nobody waits to send");
            thread::sleep(Duration::from_millis(1));
        }
    }

    /// What a request says in the last line of its response: nanoseconds that its drag took.
    pub(crate) fn fetch(&self, path: &str) -> u64 {
        let mut connection = self.connect();
        connection.send(path);
        connection.finish()
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

/// A connection for one request.
pub(crate) struct Connection(BufReader<TcpStream>);

impl Connection {
    pub(crate) fn send(&mut self, path: &str) {
        let request = format!("GET {path} HTTP/1.0\r\nHost: x\r\n\r\n");
        self.0.get_mut().write_all(request.as_bytes()).unwrap();
    }

    /// Waits for the first line of the response.
    pub(crate) fn begin(&mut self) {
        self.0.read_line(&mut String::new()).unwrap();
    }

    /// Waits for the rest of the response; the number in its last line.
    pub(crate) fn finish(mut self) -> u64 {
        let mut text = String::new();
        self.0.read_to_string(&mut text).unwrap();
        text.trim().rsplit('\n').next().unwrap().parse().unwrap_or_else(|_| panic!("{text}"))
    }
}

pub(crate) fn gunicorn(more: &[&str]) -> Option<Server> {
    let arguments = [&["--workers", "1"], more, &["served:app"]].concat();
    Server::start("gunicorn", &["--bind", "127.0.0.1:PORT"], &arguments)
}

pub(crate) fn uwsgi() -> Option<Server> {
    let arguments =
        ["--plugins", "python3", "--master", "--processes", "1", "--module", "served:app", "--need-app"];
    Server::start("uwsgi", &["--http-socket", "127.0.0.1:PORT"], &arguments)
}

pub(crate) fn uvicorn() -> Option<Server> {
    Server::start(
        "uvicorn",
        &["--host", "127.0.0.1", "--port", "PORT"],
        &["--loop", "asyncio", "served:asgi"],
    )
}

/// What the books say of some requests for `path`, and the time that these say their drag took.
pub(crate) fn budget_of(server: &Server, path: &str) -> Option<(Budget, Vec<ServedRequest>, u64)> {
    let mut books = server.books()?;
    let drag_ns = (0..REQUESTS).map(|_| server.fetch(path)).sum();
    let (budget, requests) = take(&mut books, REQUESTS);
    Some((budget, requests, drag_ns))
}

/// Requests are counted exactly, and most of the drag is in `part`.
#[track_caller]
pub(crate) fn assert_drag(server: &Server, path: &str, part: Part) {
    let Some((budget, requests, drag_ns)) = budget_of(server, path) else { return };
    assert_eq!(requests.len() as u64, REQUESTS, "{budget:#?}");
    match part {
        // Measured by the CPU's time.
        Part::Code | Part::Memory => {
            assert_most(serving_ns(&budget, part), drag_ns, &format!("{path}: {part:?}"));
        }
        _ => assert_most_blocked(&budget, part, drag_ns, path),
    }
}
