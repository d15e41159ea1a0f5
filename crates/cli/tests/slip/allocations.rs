//! `slip record --alloc`: who allocates and what is kept, in real programs that allocate what is known.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;
use slip_testkit::{Interpreter, Runtime, phps, pythons, skip};

use crate::harness::{Ran, Recorder, Target, WAITING, folded, python, root_or_skip, run, slip, wait_for};
use crate::mallocs::{library, run_with_malloc};

/// Blocks that `keeper` keeps, that `waster` frees, and that each of three threads keeps; and what the library has for one of 3,000 bytes and
/// what an interpreter needs beside them.
const KEPT: u64 = 20_000;
const ROUNDS: u64 = 3;
const WASTED: u64 = 10_000;
const OF_THREAD: u64 = 4_000;
const BLOCK: u64 = 3_264;

/// The least distance, for the most samples; and most that one sample of such a block stands for.
const DISTANCE: &str = "65536";
const STANDS_FOR: f64 = 65_536.0 * 1.03;

/// Blocks of a thread that were in its magazines before anybody listened, or that were freed and taken again: each time all are freed,
/// two magazines of 62 stay.
const UNSEEN: u64 = 124;

/// Takes and frees blocks as above after a line, and writes the file `done` then.
const PYTHON: &str = "
import sys, threading
kept = [None] * 20000
def keeper(n):
    for i in range(n):
        kept[i] = bytearray(3000)
def waster(n):
    for round in range(3):
        held = [None] * n
        for i in range(n):
            held[i] = bytearray(3000)
full, gate = threading.Semaphore(0), threading.Event()
def of_thread(held):
    for i in range(len(held)):
        held[i] = bytearray(3000)
    full.release()
    gate.wait()
def large():
    return bytearray(8 << 20)
print('ready', flush=True)
sys.stdin.readline()
keeper(20000)
waster(10000)
lists = [[None] * 4000 for number in range(3)]
threads = [threading.Thread(target=of_thread, args=(held,)) for held in lists]
[thread.start() for thread in threads]
[full.acquire() for thread in threads]
block = large()
del kept[:10000]
open(DONE, 'w').close()
sys.stdin.readline()
gate.set()
";

const PHP: &str = r#"
function keeper($n) { $kept = []; for ($i = 0; $i < $n; $i++) { $kept[] = str_repeat("x", 3000); } return $kept; }
function waster($n) {
    for ($round = 0; $round < 3; $round++) {
        $held = [];
        for ($i = 0; $i < $n; $i++) { $held[] = str_repeat("x", 3000); }
        unset($held);
    }
}
function large() { return str_repeat("x", 8 << 20); }
echo "ready\n";
fgets(STDIN);
$kept = keeper(20000);
waster(10000);
$block = large();
array_splice($kept, 0, 10000);
touch(DONE);
fgets(STDIN);
"#;

/// What the interpreter runs; its blocks are the library's.
fn allocating(interpreter: &Interpreter, done: &Path) -> Target {
    let done = format!("{:?}", done.to_str().unwrap());
    let mut command = interpreter.command();
    let text = match interpreter.runtime {
        Runtime::Python => PYTHON.replace("DONE", &done),
        Runtime::Php => PHP.replace("DONE", &done),
    };
    let option = if interpreter.runtime == Runtime::Python { "-c" } else { "-r" };
    command.arg(option).arg(text).env("LD_PRELOAD", library()).env("SLIP_MALLOC_SAMPLE", DISTANCE);
    Target::start(command.env("PYTHONMALLOC", "malloc").env("USE_ZEND_ALLOC", "0"))
}

/// How many listen in process `pid`: what the kernel has counted at the library's semaphore.
fn listeners(pid: &str) -> u16 {
    let symbols = Ran::from(Command::new("nm").arg("-D").arg(library()).output().unwrap()).stdout;
    let line = symbols.lines().find(|line| line.ends_with(" slipmalloc_sampling")).unwrap();
    let offset = u64::from_str_radix(line.split(' ').next().unwrap(), 16).unwrap();
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap();
    let begins = maps.lines().filter(|line| line.contains("libslipmalloc"));
    let base =
        begins.map(|line| u64::from_str_radix(line.split('-').next().unwrap(), 16).unwrap()).min().unwrap();
    let mut bytes = [0; 2];
    File::open(format!("/proc/{pid}/mem")).unwrap().read_exact_at(&mut bytes, base + offset).unwrap();
    u16::from_ne_bytes(bytes)
}

fn is_heard(target: &Target) -> Option<()> {
    (listeners(&target.pid()) > 0).then_some(())
}

/// Records what a target allocates between two lines that it waits for.
fn record(target: &mut Target, done: &Path, file: &Path) -> Ran {
    let recorder = Recorder::start(file, &["--alloc", "--pid", &target.pid()]);
    wait_for("the recorder listens", || is_heard(target));
    target.go_on();
    wait_for("all is allocated", || done.exists().then_some(()));
    recorder.interrupt();
    recorder.ends()
}

fn stacks(file: &Path, options: &[&str]) -> BTreeMap<String, u64> {
    let ran = run(&[&["report", file.to_str().unwrap(), "--format", "collapsed"], options].concat());
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    folded(&ran.stdout)
}

/// Bytes of all stacks that have this function.
fn bytes_of(stacks: &BTreeMap<String, u64>, function: &str) -> u64 {
    stacks
        .iter()
        .filter(|(stack, _)| stack.split(';').any(|name| name == function))
        .map(|(_, bytes)| bytes)
        .sum()
}

/// Whether that is `blocks` blocks within four standard deviations of chance: each block is told by itself, and so the variance is at most what
/// one sample stands for times the sum. `unseen` may be missing, and `beside` is what lists and objects of the interpreter take.
#[track_caller]
fn is_right(what: &str, bytes: u64, blocks: u64, unseen: u64, beside: u64) {
    let least = ((blocks - unseen) * BLOCK) as f64;
    let most = (blocks * BLOCK + beside) as f64;
    let bound = |sum: f64| 4.0 * (sum * STANDS_FOR).sqrt();
    assert!(bytes as f64 >= least - bound(least), "{what}: {bytes} of {least}");
    assert!(bytes as f64 <= most + bound(most), "{what}: {bytes} of {most}");
}

/// An object of 64 bytes for each block in Python; in PHP the table grows by doubling, and so does its copy.
fn beside(blocks: u64) -> u64 {
    64 * blocks + (2 << 20)
}

fn shares_are_right(interpreter: &Interpreter) {
    let folder = tempfile::tempdir().unwrap();
    let (done, file) = (folder.path().join("done"), folder.path().join("a.slip"));
    let mut target = allocating(interpreter, &done);
    let ran = record(&mut target, &done, &file);
    assert_eq!(ran.code, 130, "{}: {}", interpreter.label, ran.stderr);
    assert_eq!(listeners(&target.pid()), 0, "{}", interpreter.label);
    let (all, kept) = (stacks(&file, &[]), stacks(&file, &["--kept"]));
    let label = &interpreter.label;
    let check = |what: &str, bytes, blocks, unseen| {
        is_right(&format!("{label}: {what}"), bytes, blocks, unseen, beside(blocks));
    };
    check("keeper", bytes_of(&all, "keeper"), KEPT, UNSEEN);
    check("waster", bytes_of(&all, "waster"), ROUNDS * WASTED, (ROUNDS + 1) * UNSEEN);
    // 128 times the distance: nothing is left to chance.
    assert!((8 << 20..9 << 20).contains(&bytes_of(&all, "large")), "{label}: {all:?}");
    check("keeper, kept", bytes_of(&kept, "keeper"), KEPT / 2, UNSEEN);
    assert_eq!(bytes_of(&kept, "waster"), 0, "{label}: {kept:?}");
    assert_eq!(bytes_of(&kept, "large"), bytes_of(&all, "large"), "{label}");
    if interpreter.runtime == Runtime::Python {
        for stacks in [&all, &kept] {
            check("of_thread", bytes_of(stacks, "of_thread"), 3 * OF_THREAD, 3 * UNSEEN);
        }
    }
    let sum: u64 = all.values().sum();
    let unreadable = bytes_of(&all, "[unreadable]");
    assert!(unreadable <= sum / 50, "{label}: {unreadable} of {sum} are unreadable");
}

#[test]
fn shares_of_python_s_functions_are_right_within_chance() {
    if !root_or_skip("allocations of Python") {
        return;
    }
    // The library of this machine may not fit a root folder's.
    for interpreter in pythons().iter().filter(|python| python.root.is_none() && python.version >= (3, 8)) {
        shares_are_right(interpreter);
    }
}

#[test]
fn shares_of_php_s_functions_are_right_within_chance() {
    if !root_or_skip("allocations of PHP") {
        return;
    }
    phps().iter().filter(|php| php.root.is_none()).for_each(shares_are_right);
}

#[test]
fn nobody_listens_any_more_when_the_recorder_is_killed() {
    if !root_or_skip("the recorder is killed") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("a.slip");
    let target = Target::start(run_with_malloc().arg(python()).args(["-c", WAITING]));
    assert_eq!(listeners(&target.pid()), 0);
    let recorder = Recorder::start(&file, &["--alloc", "--pid", &target.pid()]);
    wait_for("the recorder listens", || is_heard(&target));
    // The kernel counts breakpoints, and two listen at the same ones.
    let another = folder.path().join("b.slip");
    let other = Recorder::start(&another, &["--alloc", "--pid", &target.pid()]);
    wait_for("another one listens", || another.exists().then_some(()));
    other.interrupt();
    assert_eq!(other.ends().code, 130);
    assert!(listeners(&target.pid()) > 0, "the first one still does");
    // SIGKILL.
    drop(recorder);
    wait_for("the kernel has taken it off", || (listeners(&target.pid()) == 0).then_some(()));
}

#[test]
fn what_a_command_had_when_it_ended_is_kept() {
    if !root_or_skip("a command that ends") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("a.slip");
    // It waits until somebody listens, which the library's own count says.
    let text = "
import ctypes, os, time
listeners = ctypes.c_ushort.in_dll(ctypes.CDLL(None), 'slipmalloc_sampling')
def keeper():
    global kept
    kept = [None] * 20000
    for i in range(20000):
        kept[i] = bytearray(3000)
while not listeners.value:
    time.sleep(0.001)
keeper()
os._exit(3)";
    for (own, expected) in [("malloc", false), ("pymalloc", true)] {
        let mut command = Command::new(slip());
        command.args(["record", "--alloc", "--quiet", "--force", "-o"]).arg(&file).arg("--");
        command.arg(python()).args(["-c", text]).env("SLIP_MALLOC_LIB", library());
        command.env("SLIP_MALLOC_SAMPLE", DISTANCE);
        let ran = Ran::from(command.env("PYTHONMALLOC", own).stdin(Stdio::null()).output().unwrap());
        assert_eq!(ran.code, 0, "{}", ran.stderr);
        assert!(ran.stderr.contains("note: the command ended with status 3"), "{}", ran.stderr);
        assert_eq!(
            ran.stderr.contains("(pymalloc): they are not in the recording\nhint: "),
            expected,
            "{}",
            ran.stderr
        );
        let (all, kept) = (stacks(&file, &[]), stacks(&file, &["--kept"]));
        is_right(own, bytes_of(&kept, "keeper"), KEPT, UNSEEN, beside(KEPT));
        assert_eq!(bytes_of(&kept, "keeper"), bytes_of(&all, "keeper"), "{all:?}");
    }
}

#[test]
fn without_the_library_it_says_how_to_have_it() {
    if !root_or_skip("a target without the library") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("a.slip");
    let target = Target::python(WAITING);
    let ran = Recorder::start(&file, &["--alloc", "--pid", &target.pid()]).ends();
    assert_eq!(ran.code, 4, "{}", ran.stderr);
    let expected = format!(
        "error: process {} does not use libslipmalloc.so, which tells of allocations: it was not preloaded\n\
         hint: start it with `slip run --malloc -- COMMAND`",
        target.pid()
    );
    assert!(ran.stderr.starts_with(&expected), "{}", ran.stderr);
    assert!(!file.exists());
    for conflict in
        [&["--mode", "cpu"][..], &["--native"], &["--budget"], &["--sampler", "outside"], &["--rate", "9"]]
    {
        let ran = run(&[&["record", "--alloc", "--pid", "1"], conflict].concat());
        assert_eq!(ran.code, 2, "{conflict:?}: {}", ran.stderr);
    }
}

#[test]
fn other_tools_have_bytes_and_blocks() {
    if !root_or_skip("formats of allocations") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (done, file) = (folder.path().join("done"), folder.path().join("a.slip"));
    let found = pythons();
    let interpreter = found.iter().find(|python| python.root.is_none() && python.version >= (3, 8)).unwrap();
    record(&mut allocating(interpreter, &done), &done, &file);
    let name = file.to_str().unwrap();
    let (all, kept) = (stacks(&file, &[]), stacks(&file, &["--kept"]));
    let sums: Vec<u64> = [&all, &kept].map(|stacks| stacks.values().sum()).to_vec();

    let speedscope = run(&["report", name, "--format", "speedscope"]).json();
    let profiles = speedscope["profiles"].as_array().unwrap();
    assert_eq!(profiles.len(), 2);
    for ((profile, sum), name) in profiles.iter().zip(&sums).zip(["allocated", "kept"]) {
        let weights = profile["weights"].as_array().unwrap().iter().map(|weight| weight.as_u64().unwrap());
        assert_eq!((&profile["unit"], &profile["name"]), (&Value::from("bytes"), &Value::from(name)));
        assert_eq!((weights.sum::<u64>(), &profile["endValue"]), (*sum, &Value::from(*sum)));
    }

    let table = run(&["report", name]);
    assert!(table.code == 0 && table.stdout.contains("## Who allocates (100 % = "), "{}", table.stdout);
    assert!(table.stdout.contains("| `keeper`"), "{}", table.stdout);
    for format in ["html", "json", "firefox", "chrome"] {
        let ran = run(&["report", name, "--format", format]);
        assert_eq!((ran.code, &*ran.stdout), (2, ""), "{format}");
        assert!(ran.stderr.starts_with("error: a recording of allocations has no times"), "{}", ran.stderr);
    }
    assert_eq!(run(&["view", name]).code, 2);
    assert_eq!(run(&["report", name, "--kept"]).code, 2);

    let pprof: PathBuf = folder.path().join("a.pb.gz");
    assert_eq!(run(&["report", name, "--format", "pprof", "-o", pprof.to_str().unwrap()]).code, 0);
    let go = Command::new("go").args(["tool", "pprof", "-raw"]).arg(&pprof).output();
    let Ok(raw) = go else {
        return skip("go tool pprof", "there is no go");
    };
    let raw = Ran::from(raw);
    assert_eq!(raw.code, 0, "{}", raw.stderr);
    let types = "alloc_objects/count alloc_space/bytes[dflt] inuse_objects/count inuse_space/bytes";
    assert!(raw.stdout.contains(types), "{}", raw.stdout);
}
