//! A running fixture program.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{self, ChildStdin, ExitStatus};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use crate::launch::Home;

/// Longest wait for a program to say that it is ready. The machine may be busy with other tests.
const READY_LIMIT: Duration = Duration::from_secs(30);

/// Longest wait for what a program that has closed its standard output writes to its standard error.
const LAST_WORDS_LIMIT: Duration = Duration::from_secs(1);

/// Most bytes of a program's standard error that are kept for messages.
const ERRORS_LIMIT: usize = 16 * 1024;

/// A running program. It, and what it started, is killed when this is dropped.
#[derive(Debug)]
pub struct Child {
    process: process::Child,
    stdin: Option<ChildStdin>,
    lines: Receiver<String>,
    errors: Arc<Mutex<Vec<u8>>>,
    /// Closed when all of the standard error has been read.
    errors_end: Receiver<()>,
    home: Home,
    label: String,
    ended: bool,
}

impl Child {
    pub(crate) fn new(mut process: process::Child, home: Home, label: String) -> io::Result<Self> {
        let (sender, lines) = mpsc::channel();
        let errors = Arc::new(Mutex::new(Vec::new()));
        let (reading, errors_end) = mpsc::channel();
        let stdin = process.stdin.take();
        if let Some(stdout) = process.stdout.take() {
            thread::Builder::new().name("testkit stdout".into()).spawn(move || {
                for line in BufReader::new(stdout).split(b'\n').map_while(Result::ok) {
                    if sender.send(String::from_utf8_lossy(&line).into_owned()).is_err() {
                        break;
                    }
                }
            })?;
        }
        if let Some(mut stderr) = process.stderr.take() {
            let errors = errors.clone();
            thread::Builder::new().name("testkit stderr".into()).spawn(move || {
                let _reading = reading;
                let mut piece = [0; 1024];
                while let Ok(len @ 1..) = stderr.read(&mut piece) {
                    let Ok(mut all) = errors.lock() else { break };
                    let room = ERRORS_LIMIT.saturating_sub(all.len());
                    all.extend_from_slice(&piece[..len.min(room)]);
                }
            })?;
        }
        Ok(Self { process, stdin, lines, errors, errors_end, home, label, ended: false })
    }

    /// Process id of the interpreter.
    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    /// The folder of the program as the program sees it.
    pub fn folder(&self) -> &Path {
        &self.home.inside
    }

    /// The folder of the program as seen from here.
    pub fn folder_outside(&self) -> &Path {
        &self.home.outside
    }

    /// Waits, 30 s at most, for the line `ready`; the lines before it are returned.
    ///
    /// # Errors
    ///
    /// If the program ends first or takes too long; the message holds what it wrote to its standard error.
    pub fn wait_ready(&mut self) -> io::Result<Vec<String>> {
        let end = Instant::now() + READY_LIMIT;
        let mut before = Vec::new();
        loop {
            let line = self.read_line(end.saturating_duration_since(Instant::now()))?;
            if line == "ready" {
                return Ok(before);
            }
            before.push(line);
        }
    }

    /// The next line of the program's standard output, without its end.
    ///
    /// # Errors
    ///
    /// If there is none within `limit`, or the program has closed its standard output.
    pub fn read_line(&mut self, limit: Duration) -> io::Result<String> {
        self.lines.recv_timeout(limit).map_err(|error| match error {
            RecvTimeoutError::Timeout => self.failure(io::ErrorKind::TimedOut, "said nothing in time"),
            RecvTimeoutError::Disconnected => {
                // What it wrote last is still on its way through the other pipe, which ends with it.
                if self.wait_exit(LAST_WORDS_LIMIT).is_ok() {
                    let _ = self.errors_end.recv_timeout(LAST_WORDS_LIMIT);
                }
                self.failure(io::ErrorKind::UnexpectedEof, "has closed its standard output")
            }
        })
    }

    /// Writes `line` and a line end to the program's standard input.
    ///
    /// # Errors
    ///
    /// If the program no longer reads.
    pub fn send(&mut self, line: &str) -> io::Result<()> {
        match &mut self.stdin {
            Some(stdin) => {
                stdin.write_all(format!("{line}\n").as_bytes())?;
                stdin.flush()
            }
            None => Err(io::ErrorKind::BrokenPipe.into()),
        }
    }

    /// Closes the program's standard input, which tells it to end.
    pub fn close_stdin(&mut self) {
        self.stdin = None;
    }

    /// Waits until the program has ended; what it started is killed then.
    ///
    /// # Errors
    ///
    /// If it still runs after `limit`.
    pub fn wait_exit(&mut self, limit: Duration) -> io::Result<ExitStatus> {
        let end = Instant::now() + limit;
        loop {
            if self.ended || self.is_zombie()? {
                self.kill_group();
                return self.process.wait();
            }
            if Instant::now() >= end {
                return Err(self.failure(io::ErrorKind::TimedOut, "has not ended in time"));
            }
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// What the program wrote to its standard error so far.
    pub fn errors(&self) -> String {
        self.errors.lock().map(|all| String::from_utf8_lossy(&all).into_owned()).unwrap_or_default()
    }

    /// Whether the program has ended and nobody has waited for it yet.
    fn is_zombie(&self) -> io::Result<bool> {
        // SAFETY: a structure of plain numbers, for which all zeroes is a value.
        let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
        let flags = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
        // SAFETY: `info` is ours and lives through the call.
        let failed = unsafe { libc::waitid(libc::P_PID, self.process.id(), &raw mut info, flags) } != 0;
        if failed {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: waitid has filled `info` in; where no child has ended it left it zeroed.
        Ok(unsafe { info.si_pid() } != 0)
    }

    /// Kills the program and what it started. Must come before the program is waited for: until then its id, and with
    /// it the id of the group, cannot belong to anybody else.
    fn kill_group(&mut self) {
        if std::mem::replace(&mut self.ended, true) {
            return;
        }
        if let Ok(group) = libc::pid_t::try_from(self.process.id()) {
            // SAFETY: kill touches no memory of ours.
            unsafe { libc::kill(-group, libc::SIGKILL) };
        }
    }

    fn failure(&self, kind: io::ErrorKind, what: &str) -> io::Error {
        io::Error::new(kind, format!("{} {what}; its standard error:\n{}", self.label, self.errors()))
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        self.kill_group();
        let _ = self.process.wait();
    }
}
