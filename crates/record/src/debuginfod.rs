//! Debug files from servers (debuginfod), for those who ask for them: by `debuginfod-find`, the program that `gdb` users have for that.
//!
//! It speaks HTTPS, keeps what it has fetched, and knows what the user has set. A library for that would bring some fifty others with it.

use std::collections::HashSet;
use std::io::{self, Read as _};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

/// The program that fetches.
const PROGRAM: &str = "debuginfod-find";

/// Files that are asked for in one recording.
const MAX_FILES: usize = 1_024;

/// Longest that one file may take, and largest that it may be.
const MAX_SECONDS: &str = "60";
const MAX_BYTES: &str = "536870912";

/// Longest path that the program may say.
const MAX_PATH_BYTES: u64 = 4_096;

/// Asks servers for debug files, one after the other, while the recording goes on.
#[derive(Debug)]
pub struct Debuginfod {
    asks: SyncSender<String>,
    found: Receiver<(String, PathBuf)>,
    asked: HashSet<String>,
    /// What fetches now, or that nothing is to be fetched any more.
    running: Arc<Mutex<Running>>,
}

#[derive(Debug, Default)]
struct Running {
    child: Option<Child>,
    has_ended: bool,
}

impl Debuginfod {
    /// Asks these servers, which are separated by spaces.
    ///
    /// # Errors
    ///
    /// If the program that fetches cannot be started: it is not installed.
    pub fn start(servers: &str) -> io::Result<Self> {
        Self::start_with(servers, &[])
    }

    pub(crate) fn start_with(servers: &str, variables: &[(&str, PathBuf)]) -> io::Result<Self> {
        Command::new(PROGRAM).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status()?;
        let (asks, asked) = sync_channel::<String>(MAX_FILES);
        let (finds, found) = sync_channel(MAX_FILES);
        let running = Arc::new(Mutex::new(Running::default()));
        let shared = running.clone();
        let (servers, variables) = (
            servers.to_owned(),
            variables.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect::<Vec<_>>(),
        );
        thread::Builder::new().name("debuginfod".to_owned()).spawn(move || {
            for build_id in asked {
                let mut command = Command::new(PROGRAM);
                command.args(["debuginfo", &build_id]).env("DEBUGINFOD_URLS", &servers);
                // What is set by the user goes first.
                for (name, bound) in [("DEBUGINFOD_MAXTIME", MAX_SECONDS), ("DEBUGINFOD_MAXSIZE", MAX_BYTES)]
                {
                    if std::env::var_os(name).is_none() {
                        command.env(name, bound);
                    }
                }
                command.env_remove("DEBUGINFOD_PROGRESS").env_remove("DEBUGINFOD_VERBOSE");
                command.envs(variables.iter().map(|(name, value)| (name, value)));
                let Some(path) = run(command, &shared) else { continue };
                if finds.send((build_id, path)).is_err() {
                    break;
                }
            }
        })?;
        Ok(Self { asks, found, asked: HashSet::new(), running })
    }

    /// Asks for the debug file of a build, once; the number of the build in hexadecimal.
    pub(crate) fn ask(&mut self, build_id: &[u8]) -> String {
        let build_id: String = build_id.iter().map(|byte| format!("{byte:02x}")).collect();
        if self.asked.len() < MAX_FILES && self.asked.insert(build_id.clone()) {
            let _ = self.asks.try_send(build_id.clone());
        }
        build_id
    }

    /// A file that has come, by the number of its build in hexadecimal.
    pub(crate) fn take(&mut self) -> Option<(String, PathBuf)> {
        self.found.try_recv().ok()
    }
}

/// Where the program has put a file; `None` if it has none.
fn run(mut command: Command, running: &Mutex<Running>) -> Option<PathBuf> {
    let mut output = {
        let mut running = running.lock().unwrap_or_else(PoisonError::into_inner);
        if running.has_ended {
            return None;
        }
        let mut child =
            command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().ok()?;
        let output = child.stdout.take();
        running.child = Some(child);
        output?
    };
    let mut path = String::new();
    let is_read = (&mut output).take(MAX_PATH_BYTES).read_to_string(&mut path).is_ok();
    drop(output);
    let child = running.lock().unwrap_or_else(PoisonError::into_inner).child.take();
    let has_found = child.is_some_and(|mut child| child.wait().is_ok_and(|status| status.success()));
    (is_read && has_found).then(|| PathBuf::from(path.trim_end()))
}

impl Drop for Debuginfod {
    fn drop(&mut self) {
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        running.has_ended = true;
        if let Some(child) = &mut running.child {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
