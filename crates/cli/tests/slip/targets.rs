//! All ways to name a target.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use crate::harness::{
    BUSY, Ran, Recorder, Target, WAITING, collapsed, copy_program, frame_names, kernel_refuses, python,
    quality, quality_samples, root_or_skip, run, slip, wait_for,
};

#[test]
fn a_busy_process_is_recorded_at_the_rate_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("a.slip");
    let target = Target::python(BUSY);
    let name = file.to_str().unwrap();
    let pid = target.pid();
    let asked = ["record", "--pid", &pid, "--sampler", "outside", "--rate", "199"];
    let ran = run(&[&asked[..], &["--duration", "1.5", "--output", name]].concat());
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert!(ran.stdout.contains("inner") && ran.stdout.contains("outer"), "{}", ran.stdout);
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    let quality = quality(&file);
    let number = |key: &str| quality[key].as_u64().unwrap_or_else(|| panic!("{key} in {quality}"));
    assert_eq!(number("ticks_planned"), number("ticks_taken") + number("ticks_missed"));
    assert_eq!(number("ticks_planned"), 298, "199 Hz for 1.5 s: {quality}");
    assert_eq!(
        number("samples") + number("samples_torn") + number("samples_failed"),
        number("ticks_taken"),
        "{quality}"
    );
}

#[test]
fn the_kernel_samples_what_runs() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("a.slip");
    let target = Target::python(BUSY);
    let name = file.to_str().unwrap();
    let pid = target.pid();
    let asked = ["record", "--pid", &pid, "--sampler", "kernel", "--mode", "cpu", "--rate", "499"];
    let ran = run(&[&asked[..], &["--duration", "1.5", "--output", name]].concat());
    if kernel_refuses(&ran) {
        return;
    }
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    for text in ["inner", "outer", "Sampler `kernel`", "threads that wait are not seen"] {
        assert!(ran.stdout.contains(text), "{text}: {}", ran.stdout);
    }
    let quality = quality(&file);
    let number = |key: &str| quality[key].as_u64().unwrap_or_else(|| panic!("{key} in {quality}"));
    assert_eq!((number("samples_torn"), number("samples_failed")), (0, 0), "{quality}");
    // As many if it has a CPU to itself, for as long as it was watched.
    let watched_ns = run(&["report", name, "--format", "json"]).json()["wall_ns"].as_u64().unwrap();
    assert!(
        (1..=watched_ns * 499 / 1_000_000_000 + 2).contains(&number("samples")),
        "{watched_ns}: {quality}"
    );
}

#[test]
fn the_kernel_sees_waits_that_last_longer_than_the_recording() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("a.slip");
    let target = Target::python(WAITING);
    let name = file.to_str().unwrap();
    let pid = target.pid();
    let asked = ["record", "--pid", &pid, "--sampler", "kernel", "--mode", "offcpu"];
    let ran = run(&[&asked[..], &["--duration", "1", "--output", name]].concat());
    if kernel_refuses(&ran) {
        return;
    }
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    let report = run(&["report", name, "--format", "json"]).json();
    let number = |value: &serde_json::Value| value.as_u64().unwrap_or_else(|| panic!("{report}"));
    assert_eq!(number(&report["quality"]["samples"]), 0, "{report}");
    // It waited before the recording and waits after it, and is not said to have waited for longer than was watched.
    let (waited_ns, wall_ns) = (number(&report["time"]["total_ns"]), number(&report["wall_ns"]));
    assert!(waited_ns * 2 > wall_ns && waited_ns <= wall_ns, "{report}");
}

/// Only memory that the heap has at that moment can be asked for, and an optimiser may leave out what makes it grow.
#[test]
fn the_heap_of_a_recorder_may_have_huge_pages() {
    if !Path::new("/sys/kernel/mm/transparent_hugepage").exists() {
        slip_testkit::skip("huge pages", "this kernel has none");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let target = Target::python(WAITING);
    let recorder = Recorder::start(&folder.path().join("a.slip"), &["--pid", &target.pid()]);
    // KiB of the parts of the heap with this advice; `VmFlags` is the last line of a part.
    let advised = |smaps: &str| -> u64 {
        let parts = smaps.split_inclusive("VmFlags:").zip(smaps.split("VmFlags:").skip(1));
        let advised = parts.filter(|(part, flags)| {
            part.contains("[heap]") && flags.lines().next().is_some_and(|flags| flags.contains(" hg"))
        });
        let size = |part: &str| part.split("\nSize:").nth(1)?.split_whitespace().next()?.parse::<u64>().ok();
        advised.filter_map(|(part, _)| size(part)).sum()
    };
    wait_for("a large heap that may have huge pages", || {
        let smaps = fs::read_to_string(format!("/proc/{}/smaps", recorder.id())).ok()?;
        (advised(&smaps) > 32 << 10).then_some(())
    });
}

#[test]
fn more_threads_than_there_are_descriptors_for() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("a.slip");
    let target = Target::python(
        "
import threading
threading.stack_size(65_536)
for _ in range(150):
    threading.Thread(target=threading.Event().wait, daemon=True).start()
print('ready', flush=True)
input()
",
    );
    let mut command = Command::new("prlimit");
    command.arg("--nofile=200").arg(slip()).args(["record", "--pid", &target.pid(), "--duration", "1.5"]);
    let ran =
        Ran::from(command.args(["--sampler", "outside", "--quiet", "--output"]).arg(&file).output().unwrap());
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    let quality = quality(&file);
    let number = |key: &str| quality[key].as_u64().unwrap_or_else(|| panic!("{key} in {quality}"));
    assert!(number("samples") > 150 * number("ticks_taken") / 2, "{quality}");
}

#[test]
fn a_waiting_process_counts_in_wall_mode_and_not_in_cpu_mode() {
    let folder = tempfile::tempdir().unwrap();
    let target = Target::python(WAITING);
    let record = |mode: &str| {
        let file = folder.path().join(mode);
        let name = file.to_str().unwrap();
        let ran = run(&[
            "record",
            "--pid",
            &target.pid(),
            "--sampler",
            "outside",
            "--mode",
            mode,
            "--duration",
            "0.5",
            "--output",
            name,
            "--quiet",
        ]);
        assert_eq!(ran.code, 0, "{}", ran.stderr);
        quality(&file)
    };
    let wall = record("wall");
    assert!(wall["samples"].as_u64().unwrap() > 0 && wall["samples"] == wall["ticks_taken"], "{wall}");
    for (mode, sentence) in [
        ("cpu", "No thread was on a CPU in any of "),
        ("gil", "No thread held the global interpreter lock in any "),
    ] {
        assert_eq!(record(mode)["samples"], 0);
        let ran = run(&["report", folder.path().join(mode).to_str().unwrap()]);
        assert_eq!((ran.code, ran.stderr.as_str()), (0, ""), "{mode}: it is what was to be found out");
        assert!(ran.stdout.starts_with(sentence), "{}", ran.stdout);
    }
}

#[test]
fn a_command_is_recorded_from_its_begin_to_its_end() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("a.slip");
    let text = "
def begin():
    return sum(i * i for i in range(3_000_000))
def end():
    return sum(i + i for i in range(3_000_000))
begin()
end()
";
    let ran = run(&[
        "record",
        "--rate",
        "997",
        "--output",
        file.to_str().unwrap(),
        "--",
        python().to_str().unwrap(),
        "-c",
        text,
    ]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    let collapsed = run(&["report", file.to_str().unwrap(), "--format", "collapsed"]);
    assert!(collapsed.stdout.contains("begin") && collapsed.stdout.contains("end"), "{}", collapsed.stdout);
}

#[test]
fn an_interpreter_behind_a_shell_is_found_with_children() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("a.slip");
    let script = format!(
        "{} -c 'def behind_the_shell():\n    return sum(range(30_000_000))\nbehind_the_shell()'; true",
        python().display()
    );
    let ran = run(&[
        "record",
        "--children",
        "--rate",
        "499",
        "--output",
        file.to_str().unwrap(),
        "--",
        "sh",
        "-c",
        &script,
    ]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert!(ran.stdout.contains("behind_the_shell"), "{}", ran.stdout);
}

#[test]
fn children_are_followed_as_they_come() {
    let text = "
import os, sys, time
PARENT = os.getpid()
def child():
    while os.getppid() == PARENT:
        time.sleep(0.01)
    os._exit(0)
print('ready', flush=True)
sys.stdin.readline()
for _ in range(2):
    if os.fork() == 0:
        child()
def parent():
    time.sleep(100)
parent()
";
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("a.slip");
    let mut target = Target::python(text);
    let recorder = Recorder::start(&file, &["--pid", &target.pid(), "--children"]);
    wait_for("samples", || (quality_samples(&file) > 0).then_some(()));
    target.go_on();
    wait_for("both children in the recording", || {
        let ran = run(&["report", file.to_str().unwrap(), "--format", "json"]);
        (ran.json()["processes"].as_array()?.len() == 3).then_some(())
    });
    wait_for("what all three do", || {
        let stacks = collapsed(&file);
        (stacks.contains("child") && stacks.contains("parent")).then_some(())
    });
    let dump = run(&["dump", "--pid", &target.pid(), "--children", "--json"]).json();
    let names = frame_names(&dump);
    assert_eq!(names.iter().filter(|frames| frames[0] == "child").count(), 2, "{names:?}");
    assert_eq!(names.iter().filter(|frames| frames[0] == "parent").count(), 1, "{names:?}");
    // The children end with their parent, and the recording with the last of them.
    drop(target);
    let ran = recorder.ends();
    assert_eq!(ran.code, 0, "{}", ran.stderr);
}

/// A program in a pid namespace of its own, in which it calls itself by a small number, and its number here.
fn contained(text: &str) -> (Target, String) {
    let mut command = Command::new("unshare");
    command.args(["--fork", "--pid", "--mount-proc", "--kill-child"]).arg(python()).args(["-c", text]);
    let target = Target::start(&mut command);
    let children = fs::read_to_string(format!("/proc/{0}/task/{0}/children", target.0.id())).unwrap();
    (target, children.trim().to_owned())
}

#[test]
fn a_container_s_pid_and_files_are_understood() {
    if !root_or_skip("a_container_s_pid_and_files_are_understood") {
        return;
    }
    let (_target, pid) = contained(WAITING);
    let dump = run(&["dump", "--pid", &pid, "--json"]).json();
    assert_eq!(dump["processes"][0]["ns_pid"], 1);
    assert_eq!(frame_names(&dump)[0][0], "waiting");
    assert_eq!(dump["processes"][0]["threads"][0]["tid"].to_string(), pid);
}

#[test]
fn a_container_s_process_is_recorded() {
    if !root_or_skip("a_container_s_process_is_recorded") {
        return;
    }
    let (_target, pid) = contained(BUSY);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("a.slip");
    let name = file.to_str().unwrap();
    for sampler in ["auto", "outside"] {
        let asked = ["record", "--pid", &pid, "--sampler", sampler, "--force", "--duration", "1"];
        let ran = run(&[&asked[..], &["--quiet", "--output", name]].concat());
        assert_eq!(ran.code, 0, "{sampler}: {}", ran.stderr);
        assert!(quality(&file)["samples"].as_u64().unwrap() > 0, "{sampler}");
        assert!(collapsed(&file).contains("inner"), "{sampler}");
    }
}

#[test]
fn a_program_that_was_removed_can_still_be_read() {
    let folder = tempfile::tempdir().unwrap();
    let copy = folder.path().join("python3.11");
    copy_program(&python(), &copy);
    let target = Target::start(Command::new(&copy).env("PYTHONHOME", "/usr").args(["-c", WAITING]));
    fs::remove_file(&copy).unwrap();
    let names = frame_names(&run(&["dump", "--pid", &target.pid(), "--json"]).json());
    assert_eq!(names[0][0], "waiting");
    // Another file has taken its place, as after an upgrade.
    copy_program(Path::new("/bin/true"), &copy);
    let names = frame_names(&run(&["dump", "--pid", &target.pid(), "--json"]).json());
    assert_eq!(names[0][0], "waiting");
}

#[test]
fn a_stack_without_its_outer_end_says_so() {
    let target = Target::python(
        "
import sys
sys.setrecursionlimit(30_000)
def down(depth):
    if depth:
        return down(depth - 1)
    print('ready', flush=True)
    sys.stdin.readline()
down(17_000)
",
    );
    let text = run(&["dump", "--pid", &target.pid()]).stdout;
    assert_eq!(text.lines().last(), Some("    [truncated]"));
    assert_eq!(text.lines().filter(|line| line.contains("down (")).count(), 16_384);
}

#[test]
fn exec_into_another_program_is_noticed() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("a.slip");
    let text = format!(
        "
import os, sys
def first():
    sys.stdin.readline()
print('ready', flush=True)
first()
os.execv({:?}, ['python3', '-c', 'import time\\ndef second():\\n    time.sleep(100)\\nsecond()'])
",
        python()
    );
    let mut target = Target::python(&text);
    let recorder = Recorder::start(&file, &["--pid", &target.pid(), "--rate", "499"]);
    wait_for("the first program", || collapsed(&file).contains("first").then_some(()));
    target.go_on();
    wait_for("the second program", || collapsed(&file).contains("second").then_some(()));
    drop(target);
    let ran = recorder.ends();
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert!(collapsed(&file).contains("first"), "what was recorded before stays");
    // Debian's interpreter is not position independent: the second has everything where the first had it.
    let report = run(&["report", file.to_str().unwrap(), "--format", "json"]).json();
    assert_eq!(report["processes"].as_array().unwrap().len(), 2, "{report}");
}

#[test]
fn an_interrupted_recording_is_complete() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("a.slip");
    let target = Target::python(BUSY);
    let recorder = Recorder::start_with_summary(&file, &["--pid", &target.pid(), "--rate", "499"]);
    wait_for("samples", || (quality_samples(&file) >= 100).then_some(()));
    recorder.interrupt();
    let ran = recorder.ends();
    assert_eq!(ran.code, 130, "{}", ran.stderr);
    assert!(ran.stdout.contains("inner"), "{}", ran.stdout);
    assert_eq!(quality(&file)["complete"], true);
}

#[test]
fn a_killed_recorder_leaves_a_file_that_opens() {
    let folder = tempfile::tempdir().unwrap();
    let target = Target::python(BUSY);
    for round in 0..3 {
        let file = folder.path().join(format!("{round}.slip"));
        let recorder = Recorder::start(&file, &["--pid", &target.pid(), "--rate", "997"]);
        wait_for("samples", || (quality_samples(&file) >= 300).then_some(()));
        drop(recorder);
        assert!(quality_samples(&file) >= 300);
        assert_eq!(quality(&file)["complete"], false);
    }
}

#[test]
fn pausing_is_exact_and_lets_the_target_go_on() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("a.slip");
    let target = Target::python(BUSY);
    let name = file.to_str().unwrap();
    let ran = run(&[
        "record",
        "--pause",
        "--pid",
        &target.pid(),
        "--rate",
        "199",
        "--duration",
        "1",
        "--output",
        name,
    ]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    let quality = quality(&file);
    // Repaired may be one that stands in the middle of a return, of CPython 3.11 some in 100,000: the thread state still names the callee,
    // while the caller says already that it runs.
    for key in ["samples_torn", "samples_failed"] {
        assert_eq!(quality[key], 0, "nothing moves while it is read: {quality}");
    }
    let stat = fs::read_to_string(format!("/proc/{}/stat", target.pid())).unwrap();
    assert!(!stat.contains(") T "), "{stat}");
}
