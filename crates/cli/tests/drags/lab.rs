//! Labs that run: `labs/drags/drags`.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::{fs, thread};

use serde_json::Value;
use slip_testkit::skip;

use crate::manifest::Lab;

/// Seconds that each is watched.
const SECONDS: &str = "2";

/// Where the labs are.
pub(crate) fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../labs/drags")
}

/// Folders of labs of tests, before the number of the process: not below the folder of temporary files, which the accounts of the servers
/// may not be able to enter.
const STATE: &str = "/var/tmp/slipstream-drags-test-";

/// A folder of labs of our own. What runs in it is ended, and it is removed, when this is dropped.
pub(crate) struct Labs {
    state: PathBuf,
    /// What the labs may change of the machine, as it was.
    machine: [String; 2],
    /// Processes that were there before any lab.
    others: Vec<String>,
}

/// What is said of a lab.
pub(crate) struct Told {
    /// The sheet of `slip doctor`.
    pub(crate) sheet: Watched,
    /// The same by looks at `/proc`, as where the kernel takes no programs.
    pub(crate) coarse: Option<Watched>,
    /// What its load says, by its own clock.
    pub(crate) load: Value,
}

impl Told {
    /// What the drag takes of a request at least and at most, by the lab's own clock: of those that were watched for the sheet, or, where none
    /// was, or of the run of a program, of all.
    pub(crate) fn drag_ms(&self) -> RangeInclusive<f64> {
        let watched = &self.load["watched_drag_ms"][0];
        let drag = if watched[0].is_null() { &self.load["drag_ms"] } else { watched };
        let ms = |at: usize| drag.as_f64().or_else(|| drag[at].as_f64()).expect("the load has a clock");
        ms(0)..=ms(1)
    }
}

/// A sheet, and what the host did while it was made.
pub(crate) struct Watched {
    pub(crate) sheet: Value,
    /// The share of the machine's CPUs that the host gave to others meanwhile.
    pub(crate) steal: f64,
    /// Names of threads that are of no lab and had a CPU meanwhile, for [`BUSY_NS`] together.
    pub(crate) busy: Vec<String>,
}

/// Who has a CPU for so long may take it away from what is watched.
const BUSY_NS: u64 = 5_000_000;

impl Labs {
    /// None where they cannot run, or what they do cannot be watched.
    pub(crate) fn open() -> Option<Self> {
        let is_root = Command::new("id").arg("-u").output().unwrap().stdout == b"0\n";
        if !is_root {
            skip("labs", "needs root");
            return None;
        }
        end_interrupted();
        let own = std::process::id().to_string();
        let others = processes().into_iter().filter(|pid| *pid != own).collect();
        Some(Self { state: PathBuf::from(format!("{STATE}{own}")), machine: machine(), others })
    }

    /// Starts a lab with its load and has `slip doctor` watch it; why this machine cannot, where it cannot.
    pub(crate) fn tell(&self, lab: &Lab) -> Result<Told, String> {
        let up = self.drags(&["up", &lab.name]).output().unwrap();
        if !up.status.success() {
            let why = one_line(&up.stderr);
            // It is not this machine's fault that a lab does not start; that something is missing is said with its code, or so.
            let is_missing =
                [Some(4), Some(5)].contains(&up.status.code()) || why.contains("packages are missing");
            assert!(is_missing, "{} does not start: {why}", lab.name);
            skip(&lab.name, &why);
            return Err(why);
        }
        let target = self.target();
        let words: Vec<&str> = target.iter().map(String::as_str).collect();
        let operations = lab.operations.map(|operations| operations.to_string());
        let watch = match &operations {
            Some(operations) => ["--ops", operations],
            None => ["--duration", SECONDS],
        };
        let mut load = operations.is_none().then(|| Load::start(self, &lab.name));
        let ran = self.watched(&[&watch, &words[..]].concat());
        if let (Some(load), Ok(sheet)) = (&mut load, serde_json::from_slice::<Value>(&ran.0.stdout)) {
            load.note_watch(&sheet);
        }
        // Looks at /proc tell nothing of the run of a program.
        let coarse =
            load.is_some().then(|| self.watched(&[&watch, &["--rung", "proc"], &words[..]].concat()));
        let load = load.unwrap_or_else(|| Load::start(self, &lab.name)).finish();
        if [Some(4), Some(5)].contains(&ran.0.status.code()) {
            let why = one_line(&ran.0.stderr);
            skip(&lab.name, &why);
            return Err(why);
        }
        let sheet = |(ran, steal, busy): (Output, f64, Vec<String>)| Watched {
            sheet: serde_json::from_slice(&ran.stdout)
                .unwrap_or_else(|error| panic!("{}: {error}: {ran:?}", lab.name)),
            steal,
            busy,
        };
        let (sheet, coarse) = (sheet(ran), coarse.map(sheet));
        Ok(Told { sheet, coarse, load })
    }

    /// What `slip doctor` says, and of [`Watched`] what others did meanwhile.
    fn watched(&self, arguments: &[&str]) -> (Output, f64, Vec<String>) {
        let (ticks, used) = (cpu_ticks(), self.used_by_others());
        let ran = doctor(arguments);
        let (ticks_after, used_after) = (cpu_ticks(), self.used_by_others());
        let steal = (ticks_after.0 - ticks.0) / (ticks_after.1 - ticks.1).max(1.0);
        let is_busy = |(name, ns): &(&String, &u64)| {
            ns.saturating_sub(used.get(*name).copied().unwrap_or_default()) >= BUSY_NS
        };
        (ran, steal, used_after.iter().filter(is_busy).map(|(name, _)| name.clone()).collect())
    }

    /// For how long threads that are of no lab have had a CPU, by their names; nanoseconds.
    fn used_by_others(&self) -> BTreeMap<String, u64> {
        let mut used = BTreeMap::new();
        // The kernel makes workers as it needs them; no lab has any.
        let later = processes().into_iter().filter(|pid| !self.others.contains(pid) && is_of_kernel(pid));
        for pid in self.others.iter().cloned().chain(later) {
            // Those that have ended are not there.
            for task in fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten() {
                let read = |file| fs::read_to_string(task.path().join(file)).unwrap_or_default();
                let ns: u64 =
                    read("schedstat").split(' ').next().and_then(|ns| ns.parse().ok()).unwrap_or_default();
                *used.entry(kernels_name(read("comm").trim_end()).to_owned()).or_default() += ns;
            }
        }
        used
    }

    /// What `slip` is told to watch.
    fn target(&self) -> Vec<String> {
        let script = r#"env=$("$0" env) && eval "$env" && printf '%s\n' $DRAGS_TARGET"#;
        let mut command = Command::new("bash");
        command.args(["-c", script]).arg(folder().join("drags")).env("SLIP_DRAGS_DIR", &self.state);
        let output = command.output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect()
    }

    fn drags(&self, arguments: &[&str]) -> Command {
        drags(&self.state, arguments)
    }
}

impl Drop for Labs {
    fn drop(&mut self) {
        let down = self.drags(&["down", "--delete"]).output();
        if !thread::panicking() {
            let down = down.unwrap();
            assert!(down.status.success() && !fs::exists(&self.state).unwrap(), "{down:?}");
            assert_eq!(machine(), self.machine, "the machine is not as it was");
        }
    }
}

/// Labs in this folder.
fn drags(state: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(folder().join("drags"));
    command.args(arguments).env("SLIP_DRAGS_DIR", state).stdin(Stdio::null());
    command
}

/// Whether there are huge pages, and which swap space.
fn machine() -> [String; 2] {
    let read = |path| fs::read_to_string(path).unwrap_or_default();
    let swaps = read("/proc/swaps");
    // How much of it is in use stands behind its name.
    let names: Vec<&str> = swaps.lines().filter_map(|line| line.split_whitespace().next()).collect();
    [read("/sys/kernel/mm/transparent_hugepage/enabled"), names.join(" ")]
}

/// Ends what a test has left that was interrupted: servers, and what its labs have changed of the machine.
fn end_interrupted() {
    for state in fs::read_dir("/var/tmp").unwrap().map(|entry| entry.unwrap().path()) {
        let number = state.to_str().and_then(|state| state.strip_prefix(STATE)?.parse::<u32>().ok());
        if number.is_some_and(|number| !fs::exists(format!("/proc/{number}")).unwrap()) {
            let down = drags(&state, &["down", "--delete"]).output().unwrap();
            assert!(down.status.success(), "{down:?}");
        }
    }
}

fn one_line(said: &[u8]) -> String {
    String::from_utf8_lossy(said).trim().replace('\n', "; ")
}

/// Whether it is a child of `kthreadd`.
fn is_of_kernel(pid: &str) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // Its state and its parent stand behind its name, which may have a bracket in it.
    stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.split(' ').nth(1) == Some("2"))
}

/// What the kernel itself calls a thread that is called this in `/proc`, which shows all of a kernel thread's name, and behind a worker's
/// the queue that it works for: `kworker/0:0H` is `kworker/0:0H-kblockd` there.
fn kernels_name(comm: &str) -> &str {
    /// `TASK_COMM_LEN` without the zero at its end.
    const MOST: usize = 15;
    let is_worker = comm.strip_prefix("kworker/").is_some_and(|id| !id.starts_with("R-"));
    let name = comm.split(['-', '+']).next().filter(|_| is_worker).unwrap_or(comm);
    name.get(..MOST).unwrap_or(name)
}

#[test]
fn a_kernel_thread_is_called_as_the_kernel_calls_it() {
    let called = [
        ("php-fpm8.2", "php-fpm8.2"),
        ("kworker/0:0H-kblockd", "kworker/0:0H"),
        ("kworker/u8:3+events_unbound", "kworker/u8:3"),
        ("kworker/0:1H", "kworker/0:1H"),
        ("kworker/R-writeback", "kworker/R-write"),
    ];
    for (comm, name) in called {
        assert_eq!(kernels_name(comm), name);
    }
}

/// All that are there, by their numbers.
fn processes() -> Vec<String> {
    let names = fs::read_dir("/proc").unwrap().filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    names.filter(|name| name.bytes().all(|byte| byte.is_ascii_digit())).collect()
}

/// Of all CPUs since the machine was started: what the host gave to others, and all; ticks of `/proc/stat`.
fn cpu_ticks() -> (f64, f64) {
    let stat = fs::read_to_string("/proc/stat").unwrap();
    let ticks: Vec<f64> =
        stat.lines().next().unwrap().split_whitespace().skip(1).map(|word| word.parse().unwrap()).collect();
    // user, nice, system, idle, iowait, irq, softirq, steal; guests are in the first two.
    (ticks[7], ticks[..8].iter().sum())
}

/// Runs `slip doctor`, away from the CPU of what is watched if the machine has two: it is not to be what is found.
fn doctor(arguments: &[&str]) -> Output {
    let cpus = thread::available_parallelism().map_or(1, usize::from);
    let slip = env!("CARGO_BIN_EXE_slip");
    let mut command = if cpus > 1 {
        let mut command = Command::new("taskset");
        command.args(["-c", "1", slip]);
        command
    } else {
        Command::new(slip)
    };
    // A program that `slip` starts would be kept on its CPU as well.
    let mut arguments = arguments.to_vec();
    if let Some(start) = arguments.iter().position(|word| *word == "--").filter(|_| cpus > 1) {
        arguments.splice(start + 1..start + 1, ["taskset", "-c", "0"]);
    }
    command.args(["doctor", "--format", "json"]).args(arguments).stdin(Stdio::null()).output().unwrap()
}

/// Requests, until it is finished.
struct Load(Option<Child>);

impl Load {
    fn start(labs: &Labs, name: &str) -> Self {
        let mut command = labs.drags(&["load", name]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        Self(Some(command.spawn().unwrap()))
    }

    /// What was watched for this sheet are the requests of its time: those before and after are of other moments of the machine, in which
    /// `slip` is busy.
    fn note_watch(&mut self, sheet: &Value) {
        let [begin_ns, window_ns] = ["started_unix_ns", "window_ns"].map(|key| sheet[key].as_u64().unwrap());
        let mut input = self.0.as_ref().unwrap().stdin.as_ref().unwrap();
        writeln!(input, "{begin_ns} {}", begin_ns + window_ns).unwrap();
    }

    /// What it says in the end, for which the end of its standard input tells it.
    fn finish(mut self) -> Value {
        let output = self.0.take().unwrap().wait_with_output().unwrap();
        assert!(output.status.success(), "{output:?}");
        serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"))
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        if let Some(child) = &mut self.0 {
            // Its standard input is closed with it, so that it ends what it has started.
            drop(child.stdin.take());
            let _ = child.wait();
        }
    }
}
