//! A PHP-FPM of our own with one worker, like those of the pool.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use super::pool::PoolSettings;
use super::{Ini, TrialError};
use crate::ask::{Response, ResponseError, fastcgi, read_response};

/// It has so long to start, and the page to answer.
const PATIENCE: Duration = Duration::from_secs(20);

/// So often it is looked whether it has started.
const LOOK: Duration = Duration::from_millis(10);

/// What is kept of its log for a message.
const MAX_REASON: usize = 300;

/// Killed when dropped, with its worker.
#[derive(Debug)]
pub(super) struct Server {
    master: Child,
    socket: PathBuf,
    folder: TempDir,
}

impl Server {
    /// Starts it and waits until it listens. `ini` is where its settings are. `is_enabled`: with the extension, and else without what it does.
    ///
    /// # Errors
    ///
    /// [`TrialError::NotStarted`].
    pub(super) fn start(
        pool: &PoolSettings,
        ini: &Ini,
        extension: Option<&Path>,
        is_enabled: bool,
    ) -> Result<Self, TrialError> {
        let failed = |error: io::Error| TrialError::NotStarted { reason: error.to_string() };
        let folder = tempfile::Builder::new().prefix("slip-trial-").tempdir().map_err(failed)?;
        // The worker has another user, and nothing to do in here.
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o711)).map_err(failed)?;
        let at = |name: &str| folder.path().join(name);
        let (socket, config) = (at("socket"), at("fpm.conf"));
        let lines = pool.lines.join("\n");
        let text = format!(
            "[global]\nerror_log = {}\ndaemonize = no\n[{}]\n{lines}\nlisten = {}\npm = static\npm.max_children = 1\n",
            at("log").display(),
            pool.name,
            socket.display(),
        );
        fs::write(&config, text).map_err(failed)?;
        let mut command = Command::new(&pool.program);
        command.arg("-F").arg("-R").arg("-y").arg(&config);
        // A pool without any has its settings from its command line, which nobody knows.
        if let Some(file) = &ini.file {
            command.arg("-c").arg(file).env("PHP_INI_SCAN_DIR", ini.folders.join(":"));
        }
        if let Some(extension) = extension {
            command.arg("-d").arg(format!("extension={}", extension.display()));
        }
        command.arg("-d").arg(format!("slipstream.enable={}", u8::from(is_enabled)));
        // Until it has read where its log is.
        let output = File::create(at("output")).map_err(failed)?;
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(output);
        let end_with_us = || {
            // SAFETY: no memory is touched; the child has no other thread.
            unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGTERM) };
            Ok(())
        };
        // SAFETY: what runs in the child makes one system call: it neither allocates nor takes a lock.
        unsafe { command.pre_exec(end_with_us) };
        let master = command.spawn().map_err(failed)?;
        let mut server = Self { master, socket, folder };
        server.wait()?;
        Ok(server)
    }

    fn wait(&mut self) -> Result<(), TrialError> {
        let end = Instant::now() + PATIENCE;
        while UnixStream::connect(&self.socket).is_err() {
            let has_ended = !matches!(self.master.try_wait(), Ok(None));
            if has_ended || Instant::now() > end {
                return Err(TrialError::NotStarted { reason: self.reason() });
            }
            std::thread::sleep(LOOK);
        }
        Ok(())
    }

    /// The last line of its log.
    fn reason(&self) -> String {
        let text = |name: &str| fs::read_to_string(self.folder.path().join(name)).unwrap_or_default();
        let all = text("log") + &text("output");
        let line = all.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("it says nothing");
        line.chars().filter(|letter| !letter.is_control()).take(MAX_REASON).collect()
    }

    /// Its worker, if it has one.
    pub(super) fn worker(&self) -> Option<u32> {
        let master = self.master.id();
        let children = fs::read_to_string(format!("/proc/{master}/task/{master}/children")).ok()?;
        children.split_ascii_whitespace().next()?.parse().ok()
    }

    /// One request, and for how long it took.
    pub(super) fn ask(&self, parameters: &[(&str, &str)]) -> Result<(Response, Duration), ResponseError> {
        let begin = Instant::now();
        let mut connection = UnixStream::connect(&self.socket)?;
        connection.set_read_timeout(Some(PATIENCE))?;
        connection.set_write_timeout(Some(PATIENCE))?;
        connection.write_all(&fastcgi::request(parameters))?;
        let response = read_response(&mut connection)?;
        Ok((response, begin.elapsed()))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // The master ends its worker before it goes.
        let _ = i32::try_from(self.master.id()).map(|pid| {
            // SAFETY: a signal to our own child, which has not been waited for, so the number is still its.
            unsafe { libc::kill(pid, libc::SIGTERM) }
        });
        let end = Instant::now() + PATIENCE;
        while matches!(self.master.try_wait(), Ok(None)) && Instant::now() < end {
            std::thread::sleep(LOOK);
        }
        let _ = self.master.kill();
        let _ = self.master.wait();
    }
}
