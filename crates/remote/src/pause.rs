//! Stopping a target, for `--pause` alone.

use std::io;

/// Holds a process stopped until dropped.
#[derive(Debug)]
pub struct Pause {
    pid: u32,
}

impl Pause {
    /// Stops process `pid` with `SIGSTOP` and continues it when the value is dropped.
    ///
    /// The stop is not immediate: a thread in the kernel stops when it returns to user space. Its frames do not move
    /// before that.
    ///
    /// # Errors
    ///
    /// If the signal cannot be sent.
    pub fn stop(pid: u32) -> io::Result<Self> {
        signal(pid, libc::SIGSTOP)?;
        Ok(Self { pid })
    }
}

impl Drop for Pause {
    fn drop(&mut self) {
        // Nothing can be done if it fails: the process is gone.
        let _ = signal(self.pid, libc::SIGCONT);
    }
}

fn signal(pid: u32, signal: libc::c_int) -> io::Result<()> {
    // SAFETY: `kill` takes two numbers and has no preconditions.
    match unsafe { libc::kill(pid.cast_signed(), signal) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
