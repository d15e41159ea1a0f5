//! Starting a command that is to be sampled.

use std::ffi::OsString;
use std::io::{self, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::{Child, Command};
use std::thread::JoinHandle;

/// A command that we started. It is not killed when we end: it belongs to the user.
#[derive(Debug)]
pub struct Launched {
    child: Child,
}

/// Starts `command`, whose first element is the program; it inherits our terminal, and our environment but for these variables.
///
/// # Errors
///
/// If it cannot be started.
pub fn launch(command: &[String], environment: &[(&str, OsString)]) -> io::Result<Launched> {
    let mut command = prepare(command)?;
    command.envs(environment.iter().map(|(name, value)| (name, value)));
    Ok(Launched { child: command.spawn()? })
}

/// A process that waits to become the command: it can be watched from the first moment of that on.
#[derive(Debug)]
pub struct Held {
    pid: u32,
    gate: UnixStream,
    started: JoinHandle<io::Result<Child>>,
}

/// Makes a process for `command`. It ends if we do before [`Held::release`].
///
/// # Errors
///
/// If there can be no process.
pub fn hold(command: &[String]) -> io::Result<Held> {
    let mut command = prepare(command)?;
    let (mut gate, mut inside) = UnixStream::pair()?;
    let wait = move || {
        // SAFETY: no memory is touched; the child has no other thread.
        unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
        inside.write_all(&std::process::id().to_ne_bytes())?;
        inside.read_exact(&mut [0])?;
        // SAFETY: as above.
        unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, 0) };
        Ok(())
    };
    // SAFETY: what runs in the child makes system calls alone: it neither allocates nor takes a lock.
    unsafe { command.pre_exec(wait) };
    // It comes back when the child has become the program.
    let started = std::thread::spawn(move || command.spawn());
    let mut pid = [0; 4];
    match gate.read_exact(&mut pid) {
        Ok(()) => Ok(Held { pid: u32::from_ne_bytes(pid), gate, started }),
        // There is no child.
        Err(error) => Err(join(started).err().unwrap_or(error)),
    }
}

impl Held {
    /// Its process id, which it keeps.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Lets it become the command.
    ///
    /// # Errors
    ///
    /// If it cannot be started.
    pub fn release(mut self) -> io::Result<Launched> {
        self.gate.write_all(&[1])?;
        Ok(Launched { child: join(self.started)? })
    }
}

fn join(started: JoinHandle<io::Result<Child>>) -> io::Result<Child> {
    started.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

fn prepare(command: &[String]) -> io::Result<Command> {
    let (program, arguments) =
        command.split_first().ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "no command"))?;
    let mut command = Command::new(program);
    command.args(arguments);
    Ok(command)
}

impl Launched {
    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Its exit status if it has ended; 128 + signal if a signal ended it.
    pub fn ended(&mut self) -> Option<i32> {
        let status = self.child.try_wait().ok().flatten()?;
        Some(status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0)))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "test code")]
mod tests {
    use super::*;

    fn words(words: &[&str]) -> Vec<String> {
        words.iter().map(|word| (*word).to_owned()).collect()
    }

    #[test]
    fn a_command_that_is_held_has_its_pid_and_is_another_program_after_that() {
        let held = hold(&words(&["sh", "-c", "exit 3"])).unwrap();
        let pid = held.pid();
        let own = std::fs::read_link("/proc/self/exe").unwrap();
        assert_eq!(std::fs::read_link(format!("/proc/{pid}/exe")).unwrap(), own);
        let mut launched = held.release().unwrap();
        assert_eq!(launched.pid(), pid);
        let status = launched.child.wait().unwrap();
        assert_eq!(status.code(), Some(3));
    }

    #[test]
    fn a_command_that_is_not_there_cannot_be_released() {
        let held = hold(&words(&["/does/not/exist"])).unwrap();
        assert_eq!(held.release().unwrap_err().kind(), io::ErrorKind::NotFound);
        assert_eq!(hold(&[]).unwrap_err().kind(), io::ErrorKind::InvalidInput);
    }
}
