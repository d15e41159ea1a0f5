//! Runs `slip`, and targets for it.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;
use slip_testkit::Interpreter;

/// Longest wait for something that must happen. The machine may be busy with other tests.
const PATIENCE: Duration = Duration::from_secs(60);

/// What `slip` printed and how it ended.
pub(crate) struct Ran {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// The command under test.
pub(crate) fn slip() -> PathBuf {
    PathBuf::from(env!("CARGO_BIN_EXE_slip"))
}

/// Runs `slip` with `arguments`.
pub(crate) fn run(arguments: &[&str]) -> Ran {
    Command::new(slip()).args(arguments).stdin(Stdio::null()).output().unwrap().into()
}

/// Whether the kernel lets nobody sample in it, as in most containers; says so.
pub(crate) fn kernel_refuses(ran: &Ran) -> bool {
    let refuses = [4, 5].contains(&ran.code) && ran.stderr.contains("`--sampler outside`");
    if refuses {
        slip_testkit::skip("the kernel's sampler", ran.stderr.trim());
    }
    refuses
}

/// Waits until `found` has something.
#[track_caller]
pub(crate) fn wait_for<T>(what: &str, mut found: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = found() {
            return found;
        }
        assert!(Instant::now() < end, "waited in vain: {what}");
        thread::sleep(Duration::from_millis(5));
    }
}

/// A `slip record` that runs beside the test. Killed when dropped.
pub(crate) struct Recorder(Option<Child>);

impl Recorder {
    /// Records into `file`, without the summary.
    pub(crate) fn start(file: &Path, arguments: &[&str]) -> Self {
        Self::start_with_summary(file, &[&["--quiet"], arguments].concat())
    }

    /// Records into `file` and prints the summary.
    pub(crate) fn start_with_summary(file: &Path, arguments: &[&str]) -> Self {
        let mut command = Command::new(slip());
        command.args(["record", "--output"]).arg(file).args(arguments).stdin(Stdio::null());
        Self(Some(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()))
    }

    pub(crate) fn id(&self) -> u32 {
        self.0.as_ref().unwrap().id()
    }

    /// Ctrl-C.
    pub(crate) fn interrupt(&self) {
        let pid = self.id().to_string();
        assert!(Command::new("kill").args(["-s", "INT", &pid]).status().unwrap().success());
    }

    /// Whether it has ended.
    pub(crate) fn has_ended(&mut self) -> bool {
        self.0.as_mut().is_none_or(|child| child.try_wait().unwrap().is_some())
    }

    /// Waits until it ends by itself.
    pub(crate) fn ends(mut self) -> Ran {
        wait_for("the end of the recording", || self.0.as_mut()?.try_wait().unwrap());
        self.0.take().unwrap().wait_with_output().unwrap().into()
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        if let Some(child) = &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl From<Output> for Ran {
    fn from(output: Output) -> Self {
        Self {
            code: output.status.code().unwrap_or(-1),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }
}

impl Ran {
    /// The printed JSON.
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.stdout)
            .unwrap_or_else(|error| panic!("{error}: {}\n{}", self.stdout, self.stderr))
    }
}

/// A target that is killed when dropped.
pub(crate) struct Target(pub(crate) Child);

impl Target {
    /// Starts a command and waits for the line `ready` on its standard output.
    pub(crate) fn start(command: &mut Command) -> Self {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        assert_eq!(lines.next().unwrap().unwrap(), "ready");
        // What the program prints later is thrown away, but it must not fail.
        std::thread::spawn(move || lines.for_each(drop));
        Self(child)
    }

    /// A Python program that does this after its line `ready`.
    pub(crate) fn python(text: &str) -> Self {
        Self::start(Command::new(python()).args(["-c", text]))
    }

    pub(crate) fn pid(&self) -> String {
        self.0.id().to_string()
    }

    /// Waits until the program waits: it runs for a moment still after its line `ready`.
    pub(crate) fn wait_until_it_waits(&self) {
        let stat = format!("/proc/{}/stat", self.pid());
        wait_for("the program waits", || {
            let text = std::fs::read_to_string(&stat).unwrap();
            text.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('S')).then_some(())
        });
    }

    /// Lets a program go on that waits for a line.
    pub(crate) fn go_on(&mut self) {
        self.0.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A supported Python of this machine: Debian's.
pub(crate) fn python() -> PathBuf {
    PathBuf::from("/usr/bin/python3.11")
}

/// A program that spins in `inner`, called by `outer`.
pub(crate) const BUSY: &str = "
def inner():
    return sum(i * i for i in range(200))
def outer():
    while True:
        inner()
print('ready', flush=True)
outer()
";

/// A program that waits for a line in `waiting`.
pub(crate) const WAITING: &str = "
import sys
def waiting():
    print('ready', flush=True); sys.stdin.readline()

waiting()
";

/// All frame names of a `slip dump --json`, thread by thread.
pub(crate) fn frame_names(dump: &Value) -> Vec<Vec<String>> {
    let threads = dump["processes"].as_array().unwrap().iter().flat_map(|p| p["threads"].as_array().unwrap());
    threads
        .map(|thread| {
            let frames = thread["frames"].as_array().unwrap();
            frames.iter().map(|frame| frame["name"].as_str().unwrap().to_owned()).collect()
        })
        .collect()
}

/// Whether this test may do what needs root; says so if not.
pub(crate) fn root_or_skip(test: &str) -> bool {
    let root = Command::new("id").arg("-u").output().unwrap().stdout == b"0\n";
    if !root {
        slip_testkit::skip(test, "needs root");
    }
    root
}

/// Samples in a recording, and how long it lasted, by its JSON report.
pub(crate) fn quality(file: &Path) -> Value {
    let ran = run(&["report", file.to_str().unwrap(), "--format", "json"]);
    assert!(ran.code == 0, "{}", ran.stderr);
    ran.json()["quality"].clone()
}

/// Collapsed stacks of a recording that may still be written; nothing if there is none yet.
pub(crate) fn collapsed(file: &Path) -> String {
    run(&["report", file.to_str().unwrap(), "--format", "collapsed"]).stdout
}

/// Collapsed stacks without the process, without files and lines, and without functions of asyncio.
pub(crate) fn folded(text: &str) -> BTreeMap<String, u64> {
    let mut stacks = BTreeMap::new();
    for line in text.lines() {
        let (stack, count) = line.rsplit_once(' ').unwrap();
        let names = stack.split(';').skip(1).filter(|frame| !frame.contains("asyncio/"));
        let names: Vec<&str> = names.map(|frame| frame.split(" (").next().unwrap()).collect();
        *stacks.entry(names.join(";")).or_default() += count.parse::<u64>().unwrap();
    }
    stacks
}

/// A program that an interpreter runs, which prints the line `ready`.
pub(crate) fn start(interpreter: &Interpreter, text: &str) -> Target {
    Target::start(interpreter.command().args(["-c", text]))
}

/// Samples in a recording that may still be written; 0 if there is none yet.
pub(crate) fn quality_samples(file: &Path) -> u64 {
    let ran = run(&["report", file.to_str().unwrap(), "--format", "json"]);
    serde_json::from_str::<Value>(&ran.stdout)
        .ok()
        .and_then(|report| Some(report["quality"]["samples"].as_u64()? + report["waits"]["count"].as_u64()?))
        .unwrap_or(0)
}

/// Copies a program in a process of its own: one that we wrote ourselves would be busy (`ETXTBSY`) while any other test
/// is just starting a child, which inherits the open file for a moment.
pub(crate) fn copy_program(from: &Path, to: &Path) {
    assert!(Command::new("cp").arg(from).arg(to).status().unwrap().success());
}
