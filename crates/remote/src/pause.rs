//! Stopping a target, for `--pause` alone.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::LiveProcess;
use crate::procfs::{thread_stat, threads_of};

/// Longest wait for a target to stand. A thread that runs on another CPU stops when the signal reaches it, in some 10 us;
/// one that waits for a CPU, when it gets one.
const PATIENCE: Duration = Duration::from_secs(1);

/// Holds a process stopped until dropped.
#[derive(Debug)]
pub struct Pause {
    /// The process, also if its pid goes to another one. `None` if it had been stopped before: it stays so.
    pidfd: Option<OwnedFd>,
    /// Of the process.
    is_stopped: Arc<AtomicBool>,
}

impl Pause {
    /// Stops a process with `SIGSTOP`, waits until all of its threads stand, and continues it when the value is dropped.
    ///
    /// One that is stopped already is left alone. A thread that waits in the kernel and takes no signals there counts as
    /// standing: it stops before it runs on. After a second the wait ends, whatever the threads do.
    ///
    /// # Errors
    ///
    /// If the process has ended or the signal cannot be sent.
    pub fn stop(process: &LiveProcess) -> io::Result<Self> {
        let pid = process.pid();
        let pidfd = open(pid)?;
        // Only now is it certain that it is this process which was opened.
        if !process.is_running() {
            return Err(io::Error::from_raw_os_error(libc::ESRCH));
        }
        let mut moving = threads_of(pid);
        let is_stopped = Arc::clone(&process.is_stopped);
        if moving.iter().all(|tid| state(pid, *tid) == Some('T')) {
            // Who stopped it may continue it at any moment.
            return Ok(Self { pidfd: None, is_stopped });
        }
        signal(&pidfd, libc::SIGSTOP)?;
        let end = Instant::now() + PATIENCE;
        loop {
            moving.retain(|tid| !matches!(state(pid, *tid), None | Some('T' | 't' | 'D' | 'Z' | 'X')));
            if moving.is_empty() || Instant::now() >= end {
                is_stopped.store(moving.is_empty(), Ordering::Relaxed);
                return Ok(Self { pidfd: Some(pidfd), is_stopped });
            }
            thread::yield_now();
        }
    }
}

impl Drop for Pause {
    fn drop(&mut self) {
        self.is_stopped.store(false, Ordering::Relaxed);
        if let Some(pidfd) = &self.pidfd {
            // Nothing can be done if it fails: the process is gone.
            let _ = signal(pidfd, libc::SIGCONT);
        }
    }
}

fn state(pid: u32, tid: u32) -> Option<char> {
    thread_stat(pid, tid).map(|stat| stat.state)
}

fn open(pid: u32) -> io::Result<OwnedFd> {
    // SAFETY: the call takes two numbers and has no preconditions.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
    match libc::c_int::try_from(fd) {
        // SAFETY: the kernel has just made this descriptor, for nobody else.
        Ok(fd @ 0..) => Ok(unsafe { OwnedFd::from_raw_fd(fd) }),
        _ => Err(io::Error::last_os_error()),
    }
}

fn signal(pidfd: &OwnedFd, signal: libc::c_int) -> io::Result<()> {
    let none = ptr::null::<libc::siginfo_t>();
    // SAFETY: the descriptor is open as long as it is borrowed, and without a `siginfo_t` the kernel makes one.
    match unsafe { libc::syscall(libc::SYS_pidfd_send_signal, pidfd.as_raw_fd(), signal, none, 0) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead as _, BufReader};
    use std::process::{Child, Command, Stdio};

    use super::*;
    use crate::Memory;

    /// A program that is killed when it is dropped.
    struct Target(Child);

    impl Target {
        fn start(script: &str) -> (Self, LiveProcess) {
            let mut command = Command::new("sh");
            command.args(["-c", &format!("echo ready; {script}")]).stderr(Stdio::null());
            let mut target = Self(command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap());
            // Else it may wait for its own file to be read, which counts as standing.
            let mut line = String::new();
            BufReader::new(target.0.stdout.take().unwrap()).read_line(&mut line).unwrap();
            let process = LiveProcess::open(target.0.id()).unwrap();
            (target, process)
        }

        fn stands(&self) -> bool {
            state(self.0.id(), self.0.id()) == Some('T')
        }
    }

    impl Drop for Target {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    #[test]
    fn a_paused_process_stands_at_once() {
        let (target, process) = Target::start("while :; do :; done");
        for _ in 0..20 {
            let pause = Pause::stop(&process).unwrap();
            assert!(target.stands() && process.stands_still());
            drop(pause);
            assert!(!target.stands() && !process.stands_still());
        }
    }

    #[test]
    fn a_process_that_was_stopped_before_stays_so() {
        let (target, process) = Target::start("read line");
        let _stopped = Pause::stop(&process).unwrap();
        drop(Pause::stop(&process).unwrap());
        assert!(target.stands());
    }

    #[test]
    fn a_process_that_has_ended_is_not_paused() {
        let (target, process) = Target::start("read line");
        drop(target);
        assert!(Pause::stop(&process).is_err());
    }
}
