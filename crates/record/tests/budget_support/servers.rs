//! Servers that workers call.

use std::io::{BufRead as _, BufReader, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use slip_record::monotonic_ns;
use slip_testkit::skip;

use super::PATIENCE;

/// Answers each `PING` after a time, with the moment of the answer; its port.
pub(crate) fn serve_slowly(delay: Duration) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            thread::spawn(move || answer_slowly(stream, delay));
        }
    });
    port
}

/// The same on a UNIX socket.
pub(crate) fn serve_slowly_at(path: &Path, delay: Duration) {
    let listener = UnixListener::bind(path).unwrap();
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            thread::spawn(move || answer_slowly(stream, delay));
        }
    });
}

fn answer_slowly(mut stream: impl Read + Write, delay: Duration) {
    let (mut bytes, mut asked) = ([0; 64], Vec::new());
    while let Ok(len @ 1..) = stream.read(&mut bytes) {
        asked.extend_from_slice(&bytes[..len]);
        if asked.ends_with(b"PING\r\n") {
            asked.clear();
            thread::sleep(delay);
            // At once: in pieces it would wait for an acknowledgement.
            if stream.write_all(format!(":{}\r\n", monotonic_ns()).as_bytes()).is_err() {
                return;
            }
        }
    }
}

/// A Redis that keeps nothing. Killed when dropped.
pub(crate) struct Redis {
    process: Child,
    pub(crate) port: u16,
}

impl Redis {
    /// None if it is not installed.
    pub(crate) fn start() -> Option<Self> {
        let path = Path::new("/usr/bin/redis-server");
        if !path.exists() {
            skip("redis-server", "it is not installed");
            return None;
        }
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let process = Command::new(path)
            .args(["--bind", "127.0.0.1", "--port", &port.to_string()])
            .args(["--save", "", "--enable-debug-command", "local"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let redis = Self { process, port };
        let end = Instant::now() + PATIENCE;
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(Instant::now() < end, "redis-server does not listen");
            thread::sleep(Duration::from_millis(10));
        }
        Some(redis)
    }

    /// Nobody else is answered for as long as `delay` each time, until `work` is done.
    pub(crate) fn while_blocked<T>(&self, delay: Duration, work: impl FnOnce() -> T) -> T {
        let stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        let (mut lines, mut asks) =
            (BufReader::new(stream.try_clone().unwrap()), stream.try_clone().unwrap());
        let blocks = thread::spawn(move || {
            // Until it is shut down.
            let call = format!("DEBUG SLEEP {}\r\n", delay.as_secs_f64());
            while asks.write_all(call.as_bytes()).is_ok() {
                let mut line = String::new();
                match lines.read_line(&mut line) {
                    Ok(0) | Err(_) => return,
                    Ok(_) => assert_eq!(line, "+OK\r\n"),
                }
            }
        });
        let done = work();
        stream.shutdown(Shutdown::Both).unwrap();
        blocks.join().unwrap();
        done
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
