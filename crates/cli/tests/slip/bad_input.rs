//! What must not work, and what is then said.

use std::path::Path;
use std::process::Command;

use serde_json::Value;
use slip_testkit::{Launch, pythons, skip};

use crate::harness::{BUSY, Ran, Recorder, Target, WAITING, quality_samples, run, slip, wait_for};

#[track_caller]
fn fails(arguments: &[&str], code: i32, message: &str) {
    let ran = run(arguments);
    assert_eq!(ran.code, code, "{arguments:?}: {}", ran.stderr);
    assert!(ran.stderr.contains(message), "{arguments:?}: {}", ran.stderr);
    assert!(ran.stderr.starts_with("error: "), "{arguments:?}: {}", ran.stderr);
    assert_eq!(ran.stdout, "", "{arguments:?}");
}

#[test]
fn wrong_use() {
    fails(&["record", "--pid", "1", "--rate", "0"], 2, "0 is not in 1..=20000");
    fails(&["record", "--pid", "1", "--rate", "20001"], 2, "20001 is not in 1..=20000");
    fails(&["record", "--pid", "1", "--duration", "-3"], 2, "");
    fails(&["record", "--pid", "1", "--duration", "0"], 2, "more than 0");
    fails(&["record", "--pid", "1", "--mode", "fast"], 2, "possible values: wall, cpu, gil, offcpu");
    fails(&["record"], 2, "no target");
    fails(
        &["record", "--pid", "1", "--sampler", "kernel", "--mode", "gil"],
        2,
        "go with `--sampler outside`",
    );
    let paused = ["record", "--pid", "1", "--sampler", "kernel", "--mode", "cpu", "--pause"];
    fails(&paused, 2, "go with `--sampler outside`");
    fails(&["record", "--fpm", "www", "--children"], 2, "`--children` goes with");
    fails(&["record", "--pid", "1", "--debuginfod=http://127.0.0.1:9"], 2, "--native");
    fails(&["record", "--pid", "1", "--native", "--debuginfod="], 2, "no server is named");
    fails(&["frobnicate"], 2, "frobnicate");
}

#[test]
fn no_such_target() {
    fails(&["record", "--pid", "4000000"], 3, "no process 4000000");
    fails(&["dump", "--pid", "4000000"], 3, "no process 4000000");
    fails(&["record", "--fpm", "no-such-pool"], 3, "");
    fails(&["record", "--", "/no/such/program"], 2, "cannot start");
}

#[test]
fn not_an_interpreter() {
    let mut sleep = Command::new("sleep").arg("100").spawn().unwrap();
    fails(&["record", "--pid", &sleep.id().to_string()], 4, "runs neither CPython nor PHP");
    fails(&["dump", "--pid", &sleep.id().to_string()], 4, "runs neither CPython nor PHP");
    sleep.kill().unwrap();
    sleep.wait().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("x.slip");
    fails(
        &["record", "--output", file.to_str().unwrap(), "--", "sleep", "0.2"],
        4,
        "runs neither CPython nor PHP",
    );
    assert!(!file.exists(), "no recording without a sample is left behind");
}

#[test]
fn a_recording_without_a_sample_says_how_it_ended_and_leaves_no_file() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("a.slip");
    let target = Target::python(WAITING);
    let pid = target.pid();
    let arguments = ["record", "--output", file.to_str().unwrap(), "--pid", &pid, "--sampler", "outside"];
    let ran = run(&[&arguments[..], &["--rate", "1", "--duration", "0.01"]].concat());
    assert_eq!(ran.code, 6, "{}", ran.stderr);
    assert_eq!(
        ran.stderr,
        "error: no sample was taken in 0.0 s\nhint: record for longer, or at a higher rate: `--rate 997`\n"
    );
    assert!(!file.exists());

    // An interpreter that never comes. The command must not hold our pipes, as it outlives the recording.
    let script = "exec >/dev/null 2>&1; exec sleep 100";
    let recorder = Recorder::start(&file, &["--", "sh", "-c", script]);
    let command = wait_for("the command", || {
        let pid = recorder.id();
        let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).ok()?;
        let child = children.split_whitespace().next()?.to_owned();
        let name = std::fs::read_to_string(format!("/proc/{child}/comm")).ok()?;
        (name == "sleep\n").then_some(child)
    });
    recorder.interrupt();
    let ran = recorder.ends();
    assert!(Command::new("kill").arg(command).status().unwrap().success(), "it is the user's and goes on");
    assert_eq!(ran.code, 130, "{}", ran.stderr);
    assert_eq!(ran.stderr, "note: interrupted before the first sample, nothing is saved\n");
    assert!(!file.exists());
}

#[test]
fn an_unsupported_version_names_those_that_are() {
    let old: Vec<_> = pythons().into_iter().filter(|python| python.version < (3, 8)).collect();
    if old.is_empty() {
        skip("CPython before 3.8", "none under pyenv");
    }
    for python in old {
        let mut target = Launch::text(&python, "waiting.py", WAITING).start().unwrap();
        target.wait_ready().unwrap();
        let pid = target.pid().to_string();
        let message =
            format!("error: process {pid}: CPython 3.7 or older is not supported, only 3.8 to 3.15 are\n");
        for verb in ["dump", "record"] {
            let ran = run(&[verb, "--pid", &pid]);
            assert_eq!((ran.code, ran.stderr.as_str()), (4, message.as_str()), "{}, {verb}", python.label);
        }
    }
}

#[test]
fn a_child_of_an_unsupported_version_does_not_vanish_without_a_word() {
    let Some(old) = pythons().into_iter().find(|python| python.version < (3, 8)) else {
        skip("a child of CPython before 3.8", "none under pyenv");
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("a.slip");
    let text = format!(
        "
import subprocess
child = subprocess.Popen([{:?}, '-c', 'import sys; print(flush=True); sys.stdin.readline()'],
                         stdin=subprocess.PIPE, stdout=subprocess.PIPE)
child.stdout.readline()
print('ready', flush=True)
child.wait()
",
        old.program
    );
    let target = Target::python(&text);
    let children = std::fs::read_to_string(format!("/proc/{0}/task/{0}/children", target.pid())).unwrap();
    let recorder = Recorder::start(&file, &["--pid", &target.pid(), "--children", "--duration", "0.2"]);
    let ran = recorder.ends();
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    let warning = format!(
        "warning: process {}: CPython 3.7 or older is not supported, only 3.8 to 3.15 are; it is not in the recording\n",
        children.trim()
    );
    assert!(ran.stderr.starts_with(&warning), "{}", ran.stderr);
}

#[test]
fn the_output_is_protected() {
    let folder = tempfile::tempdir().unwrap();
    let target = Target::python(BUSY);
    let file = folder.path().join("a.slip");
    std::fs::write(&file, "mine").unwrap();
    let (name, pid) = (file.to_str().unwrap(), target.pid());
    fails(&["record", "--pid", &pid, "--duration", "0.2", "--output", name], 2, "a.slip");
    assert_eq!(std::fs::read(&file).unwrap(), b"mine");
}

#[test]
fn a_command_is_not_started_if_the_file_cannot_be_created() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("a.slip");
    let arguments = ["record", "--output", file.to_str().unwrap(), "--", "/no/such/program"];
    std::fs::write(&file, "mine").unwrap();
    // Who tries to start it first says that it cannot be started.
    fails(&arguments, 2, "exists already");
    std::fs::remove_file(&file).unwrap();
    fails(&arguments, 2, "cannot start");
    assert!(!file.exists(), "no empty recording is left behind");
}

#[test]
fn a_file_that_is_no_recording() {
    let folder = tempfile::tempdir().unwrap();
    let text = folder.path().join("notes.slip");
    std::fs::write(
        &text,
        "not a recording at all, just some words that are long enough to be read as a header",
    )
    .unwrap();
    fails(&["report", text.to_str().unwrap()], 2, "notes.slip");
    fails(&["report", folder.path().join("none.slip").to_str().unwrap()], 2, "none.slip");
}

/// Records processes; once there are samples `kill` ends them all, and with them the recording.
fn recorded_until(targets: &[&Target], options: &[&str], kill: impl FnOnce(&Path)) -> (Ran, Value) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("a.slip");
    let pids: Vec<String> = targets.iter().map(|target| format!("--pid={}", target.pid())).collect();
    let arguments: Vec<&str> = pids.iter().map(String::as_str).chain(options.iter().copied()).collect();
    let recorder = Recorder::start(&file, &[&arguments[..], &["--rate", "199"]].concat());
    wait_for("samples", || (quality_samples(&file) > 0).then_some(()));
    kill(&file);
    let mut ran = recorder.ends();
    ran.stderr = ran.stderr.replace(file.to_str().unwrap(), "FILE");
    let report = run(&["report", file.to_str().unwrap(), "--format", "json"]);
    assert_eq!(report.code, 0, "{}", report.stderr);
    (ran, report.json())
}

/// When a target was seen to have ended, by a report.
fn ended_ns(report: &Value, target: &Target) -> Option<u64> {
    let processes = report["processes"].as_array()?;
    processes.iter().find(|process| process["pid"] == target.0.id())?["ended_ns"].as_u64()
}

#[test]
fn a_target_that_is_killed_is_reported_and_its_samples_are_kept() {
    let target = Target::python(BUSY);
    let (ran, report) = recorded_until(&[&target], &["--duration", "600"], |_| kill(&target));
    assert_eq!(ran.code, 3, "{}", ran.stderr);
    let (begin, end) = (
        "saved: FILE\nerror: the target ended after ",
        " s\nhint: what was recorded until then is in `FILE`\n",
    );
    assert!(ran.stderr.starts_with(begin) && ran.stderr.ends_with(end), "{}", ran.stderr);
    assert_eq!(report["quality"]["complete"], true);
    assert!(ended_ns(&report, &target).is_some(), "{}", report["processes"]);
}

#[test]
fn the_end_of_the_target_is_the_end_of_a_recording_without_duration() {
    let target = Target::python(BUSY);
    let (ran, report) = recorded_until(&[&target], &[], |_| kill(&target));
    assert_eq!((ran.code, ran.stderr.as_str()), (0, "saved: FILE\n"));
    assert_eq!(report["quality"]["complete"], true);
}

#[test]
fn the_end_of_one_of_two_targets_is_not_the_end() {
    let (first, second) = (Target::python(BUSY), Target::python(BUSY));
    let (ran, report) = recorded_until(&[&first, &second], &[], |file| {
        kill(&first);
        let json = || run(&["report", file.to_str().unwrap(), "--format", "json"]).stdout;
        wait_for("the end of the first", || ended_ns(&serde_json::from_str(&json()).ok()?, &first));
        kill(&second);
    });
    assert_eq!((ran.code, ran.stderr.as_str()), (0, "saved: FILE\n"));
    let (first, second) = (ended_ns(&report, &first).unwrap(), ended_ns(&report, &second).unwrap());
    assert!(first < second, "{}", report["processes"]);
}

/// Nobody waits for it until it is dropped: it stays as a zombie.
fn kill(target: &Target) {
    assert!(Command::new("kill").args(["-s", "KILL", &target.pid()]).status().unwrap().success());
}

#[test]
fn a_reader_that_has_seen_enough_is_no_error() {
    let target = Target::python(WAITING);
    let text = format!("set -o pipefail; {} dump --pid {} | head -n 0", slip().display(), target.pid());
    let output = Command::new("bash").args(["-c", &text]).output().unwrap();
    assert!(output.status.success(), "{:?}", output.status);
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
}
