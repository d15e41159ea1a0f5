//! What must not work, and what is then said.

use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};

use crate::harness::{BUSY, Target, WAITING, copy_program, python, root_or_skip, run, slip};

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
    fails(&["record", "--pid", "1", "--mode", "fast"], 2, "possible values: wall, cpu, gil");
    fails(&["record"], 2, "no target");
    fails(&["record", "--fpm", "www", "--children"], 2, "`--children` goes with");
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
}

#[test]
fn an_unsupported_version_names_those_that_are() {
    let old = format!("{}/.pyenv/versions/3.8.18/bin/python3.8", std::env::var("HOME").unwrap());
    if !std::path::Path::new(&old).exists() {
        slip_testkit::skip("an_unsupported_version_names_those_that_are", "no CPython 3.8 under pyenv");
        return;
    }
    let target = Target::start(Command::new(old).args(["-c", WAITING]));
    fails(&["dump", "--pid", &target.pid()], 4, "3.11");
}

#[test]
fn another_users_process_says_what_to_do() {
    if !root_or_skip("another_users_process_says_what_to_do") {
        return;
    }
    let target = Target::python(WAITING);
    // The build folder may not be open to others.
    let folder = tempfile::tempdir().unwrap();
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let copy = folder.path().join("slip");
    copy_program(&slip(), &copy);
    let output = Command::new("setpriv")
        .args(["--reuid=65534", "--regid=65534", "--clear-groups"])
        .arg(&copy)
        .args(["dump", "--pid", &target.pid()])
        .output()
        .unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(5), "{stderr}");
    assert!(stderr.contains("belongs to user 0") && stderr.contains("CAP_SYS_PTRACE"), "{stderr}");
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
    let nowhere = folder.path().join("no/such/folder/a.slip");
    let ran = run(&["record", "--pid", &pid, "--duration", "0.2", "--output", nowhere.to_str().unwrap()]);
    assert!(matches!(ran.code, 2 | 7), "{} {}", ran.code, ran.stderr);
    assert!(ran.stderr.starts_with("error: "), "{}", ran.stderr);
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

#[test]
fn a_target_that_ends_is_reported_and_its_samples_are_kept() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("a.slip");
    let mut target = Target::python(WAITING);
    let recorder = Command::new(slip())
        .args(["record", "--pid", &target.pid(), "--rate", "499", "--duration", "60", "--output"])
        .arg(&file)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // The file appears when the recording has begun.
    while !file.exists() {
        std::thread::yield_now();
    }
    target.go_on();
    target.0.wait().unwrap();
    let output = recorder.wait_with_output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(matches!(output.status.code(), Some(3 | 6)), "{stderr}");
    let report = run(&["report", file.to_str().unwrap()]);
    assert!(matches!(report.code, 0 | 6), "{}", report.stderr);
}

#[test]
fn a_reader_that_has_seen_enough_is_no_error() {
    let text = format!("{} dump --pid {} | head -n 0", slip().display(), Target::python(WAITING).pid());
    let output = Command::new("bash").args(["-c", &text]).output().unwrap();
    assert!(!String::from_utf8_lossy(&output.stderr).contains("panic"));
    let version = Command::new(python()).arg("--version").output().unwrap();
    assert!(version.status.success(), "this machine's Python is needed by all these tests");
}
