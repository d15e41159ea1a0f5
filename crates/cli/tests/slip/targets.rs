//! All ways to name a target.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::harness::{
    BUSY, Target, WAITING, copy_program, frame_names, python, quality, quality_samples, root_or_skip, run,
    slip,
};

#[test]
fn a_busy_process_is_recorded_at_the_rate_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("a.slip");
    let target = Target::python(BUSY);
    let name = file.to_str().unwrap();
    let ran =
        run(&["record", "--pid", &target.pid(), "--rate", "199", "--duration", "1.5", "--output", name]);
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
            "--mode",
            mode,
            "--duration",
            "0.5",
            "--output",
            name,
            "--quiet",
        ]);
        assert_eq!(ran.code, 0, "{}", ran.stderr);
        let ran = run(&["report", name, "--format", "json"]);
        ran.json()["quality"]["samples"].as_u64().unwrap()
    };
    assert!(record("wall") > 40);
    for (mode, sentence) in [
        ("cpu", "No thread was on a CPU in any of "),
        ("gil", "No thread held the global interpreter lock in any "),
    ] {
        assert_eq!(record(mode), 0);
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
def child():
    while True:
        time.sleep(0.01)
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
    let recorder = Command::new(slip())
        .args(["record", "--pid", &target.pid(), "--children", "--duration", "2", "--quiet", "--output"])
        .arg(&file)
        .spawn()
        .unwrap();
    while !file.exists() {
        std::thread::yield_now();
    }
    target.go_on();
    assert!(recorder.wait_with_output().unwrap().status.success());
    let dump = run(&["dump", "--pid", &target.pid(), "--children", "--json"]).json();
    let names = frame_names(&dump);
    assert_eq!(names.iter().filter(|frames| frames[0] == "child").count(), 2, "{names:?}");
    assert_eq!(names.iter().filter(|frames| frames[0] == "parent").count(), 1, "{names:?}");
    let collapsed = run(&["report", file.to_str().unwrap(), "--format", "collapsed"]).stdout;
    assert!(collapsed.contains("child") && collapsed.contains("parent"), "{collapsed}");
    for process in dump["processes"].as_array().unwrap() {
        if process["pid"].as_u64() != Some(u64::from(target.0.id())) {
            let _ = Command::new("kill").arg(process["pid"].to_string()).status();
        }
    }
}

#[test]
fn a_container_s_pid_and_files_are_understood() {
    if !root_or_skip("a_container_s_pid_and_files_are_understood") {
        return;
    }
    // A pid namespace of its own: the target calls itself by a small number there.
    let mut command = Command::new("unshare");
    command.args(["--fork", "--pid", "--mount-proc", "--kill-child"]).arg(python()).args(["-c", WAITING]);
    let target = Target::start(&mut command);
    let children = fs::read_to_string(format!("/proc/{0}/task/{0}/children", target.0.id())).unwrap();
    let dump = run(&["dump", "--pid", children.trim(), "--json"]).json();
    assert_eq!(dump["processes"][0]["ns_pid"], 1);
    assert_eq!(frame_names(&dump)[0][0], "waiting");
    assert_eq!(dump["processes"][0]["threads"][0]["tid"].to_string(), children.trim());
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
    let recorder = Command::new(slip())
        .args(["record", "--pid", &target.pid(), "--rate", "499", "--duration", "1.5", "--quiet", "--output"])
        .arg(&file)
        .spawn()
        .unwrap();
    while quality_samples(&file) < 50 {
        std::thread::yield_now();
    }
    target.go_on();
    assert!(recorder.wait_with_output().unwrap().status.success());
    let collapsed = run(&["report", file.to_str().unwrap(), "--format", "collapsed"]).stdout;
    assert!(collapsed.contains("first") && collapsed.contains("second"), "{collapsed}");
}

#[test]
fn an_interrupted_recording_is_complete() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("a.slip");
    let target = Target::python(BUSY);
    let recorder = Command::new(slip())
        .args(["record", "--pid", &target.pid(), "--rate", "499", "--output"])
        .arg(&file)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    while quality_samples(&file) < 100 {
        std::thread::yield_now();
    }
    Command::new("kill").args(["-INT", &recorder.id().to_string()]).status().unwrap();
    let output = recorder.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130));
    assert!(String::from_utf8_lossy(&output.stdout).contains("inner"));
    assert_eq!(quality(&file)["complete"], true);
}

#[test]
fn a_killed_recorder_leaves_a_file_that_opens() {
    let folder = tempfile::tempdir().unwrap();
    let target = Target::python(BUSY);
    for round in 0..3 {
        let file = folder.path().join(format!("{round}.slip"));
        let mut recorder = Command::new(slip())
            .args(["record", "--pid", &target.pid(), "--rate", "997", "--output"])
            .arg(&file)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        while quality_samples(&file) < 300 {
            std::thread::yield_now();
        }
        recorder.kill().unwrap();
        recorder.wait().unwrap();
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
    let stat = fs::read_to_string(format!("/proc/{}/stat", target.pid())).unwrap();
    assert!(!stat.contains(") T "), "{stat}");
}
