//! Budgets: a worker of ours answers requests, for each of which it asks a server of ours that takes its time.

use std::env;
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use slip_model::CallPart;
use slip_probe::{BudgetEvent, BudgetProbe, BudgetTarget, Rung};

use crate::{PATIENCE, PERIOD};

/// What we are called with as the worker, before the server's port.
pub(super) const WORKER: &str = "worker";
const REQUESTS: usize = 3;
/// What the server takes for each answer, which the client must have waited for half of at least.
const DELAY: Duration = Duration::from_millis(20);
const QUESTION: &[u8] = b"*1\r\n$4\r\nPING\r\n";

/// Those that a kernel of this version has, if it is not locked down.
pub(super) fn rungs(version: (u32, u32)) -> &'static [Rung] {
    let all = &[Rung::Tracepoints, Rung::Fentry, Rung::Syscalls];
    if version >= (6, 3) { all } else { &all[1..] }
}

/// Answers requests until its standard input is closed.
pub(super) fn work(server: &str) -> io::Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    println!("{}", listener.local_addr()?.port());
    thread::spawn(|| {
        let _ = io::stdin().read(&mut [0]);
        std::process::exit(0);
    });
    loop {
        let (mut client, _) = listener.accept()?;
        client.read_exact(&mut [0])?;
        let mut connection = TcpStream::connect(server)?;
        connection.write_all(QUESTION)?;
        connection.read_exact(&mut [0])?;
        client.write_all(&[0])?;
    }
}

/// Whether this rung loads, and tells of the requests and calls.
pub(super) fn check(rung: Rung) -> Result<String, String> {
    let failed = |error: &dyn std::fmt::Display| format!("{}: {error}", rung.name());
    let listener = TcpListener::bind("127.0.0.1:0").map_err(|error| failed(&error))?;
    let server = listener.local_addr().map_err(|error| failed(&error))?.to_string();
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let mut question = [0; QUESTION.len()];
            if stream.read_exact(&mut question).is_ok() {
                thread::sleep(DELAY);
                // The worker misses it if it cannot be sent.
                let _ = stream.write_all(&[0]);
            }
        }
    });
    let (mut worker, port) = start_worker(&server).map_err(|error| failed(&error))?;
    let result = ask(rung, worker.id(), port, &server).map_err(|error| failed(&error));
    let _ = worker.kill();
    let _ = worker.wait();
    result
}

fn start_worker(server: &str) -> io::Result<(Child, u16)> {
    let mut worker = Command::new(env::current_exe()?)
        .args([WORKER, server])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut line = String::new();
    if let Some(output) = worker.stdout.take() {
        BufReader::new(output).read_line(&mut line)?;
    }
    Ok((worker, line.trim().parse().map_err(io::Error::other)?))
}

fn ask(rung: Rung, pid: u32, port: u16, server: &str) -> Result<String, Box<dyn std::error::Error>> {
    let mut probe = BudgetProbe::start(rung, false)?;
    // It has asked for the next request before, or the first one is none.
    request(port)?;
    probe.watch(pid, BudgetTarget::default())?;
    let (mut requests, begin) = (0, Instant::now());
    // The first may begin before the worker waits.
    while requests < REQUESTS {
        if begin.elapsed() > PATIENCE {
            return Err(format!("{requests} requests in {PATIENCE:?}: {:?}", probe.threads()?).into());
        }
        request(port)?;
        thread::sleep(PERIOD);
        requests += probe.take()?.iter().filter(|event| matches!(event, BudgetEvent::Served(_))).count();
    }
    let endpoints = probe.endpoints()?;
    let number =
        endpoints.iter().position(|endpoint| endpoint.address == server && endpoint.protocol == "redis");
    let number = number.ok_or_else(|| format!("no {server} among {endpoints:?}"))?;
    let calls = probe.calls()?;
    let calls = calls.iter().find(|calls| calls.endpoint as usize == number).ok_or("no call")?;
    // Of the first call on a connection the server is not seen where nobody tells when it begins.
    let (part, seen) =
        if probe.sees_sending() { (CallPart::Work, "seen to work") } else { (CallPart::Remote, "remote") };
    let work_ns = calls.parts[part as usize].ns;
    if work_ns < DELAY.as_nanos() as u64 / 2 * REQUESTS as u64 {
        return Err(format!("the server worked for {work_ns} ns: {calls:?}").into());
    }
    Ok(format!("{}: {requests} requests, {} calls of a server that is {seen}", rung.name(), calls.calls))
}

fn request(port: u16) -> io::Result<()> {
    let mut client = TcpStream::connect(("127.0.0.1", port))?;
    client.write_all(&[0])?;
    client.read_exact(&mut [0])
}
