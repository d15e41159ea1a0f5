//! Starting a command that is to be sampled.

use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command};

/// A command that we started. It is not killed when we end: it belongs to the user.
#[derive(Debug)]
pub struct Launched {
    child: Child,
}

/// Starts `command`, whose first element is the program; it inherits our terminal.
///
/// # Errors
///
/// If it cannot be started.
pub fn launch(command: &[String]) -> io::Result<Launched> {
    let (program, arguments) =
        command.split_first().ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "no command"))?;
    Ok(Launched { child: Command::new(program).args(arguments).spawn()? })
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
