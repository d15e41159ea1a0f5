//! Programs that are not what they call themselves.

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use super::{bounded, dumped, is_harmless, recorded};
use crate::harness::{Target, WAITING, python};

/// Builds a program with the symbols of an interpreter; false if there is no compiler.
fn build(program: &Path, kind: &str) -> bool {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/slip/hostile/fake.c");
    let mut command = Command::new("gcc");
    command.args(["-rdynamic", kind, "-o"]).arg(program).arg(source);
    match command.status() {
        Ok(status) => {
            assert!(status.success(), "{kind}");
            true
        }
        Err(error) => {
            slip_testkit::skip("programs with the symbols of an interpreter", &format!("gcc: {error}"));
            false
        }
    }
}

#[test]
fn the_symbols_of_an_interpreter_without_one() {
    let folder = tempfile::tempdir().unwrap();
    let output = folder.path().join("never.slip");
    let kinds =
        ["-DPHP", "-DPYTHON=0x030b02f0", "-DPYTHON=0x030c01f0", "-DPYTHON=0x030d00f0", "-DPYTHON=0x030e00f0"];
    for kind in kinds {
        let program = folder.path().join("fake");
        if !build(&program, kind) {
            return;
        }
        for with in ["0", "8", "0x8000000000000000", "0xffffffffffffffff", "self"] {
            let target = Target::start(Command::new(&program).arg(with));
            let pid = target.pid();
            for arguments in [
                &["dump", "--pid", &pid][..],
                &["record", "--pid", &pid, "--output", output.to_str().unwrap()],
            ] {
                let ran = bounded(arguments);
                assert_eq!(ran.code, 4, "{kind} {with}: {}", ran.stderr);
                assert!(ran.stderr.starts_with("error: ") && ran.stderr.contains(&pid), "{}", ran.stderr);
                assert_eq!(ran.stdout, "", "{kind} {with}");
            }
            assert!(!output.exists(), "{kind} {with}");
            assert_eq!(bounded(&["check", "--pid", &pid]).code, 4, "{kind} {with}");
        }
    }
}

#[test]
fn names_of_processes_and_threads_that_would_command_a_terminal() {
    // PR_SET_NAME is 15.
    let text = format!(
        "import ctypes\nctypes.CDLL(None).prctl(15, b'\\x1b[31m\\n\\xc2\\x9b\\xff\\xe2\\x80\\xae', 0, 0, 0)\n{WAITING}"
    );
    for title in
        ["python\x1b]0;title\x07 : one\nprocess 1: forged (PHP 8.2)", "python\u{202e}\u{9b}31m\x1b[2J"]
    {
        let target = Target::start(Command::new(python()).arg0(title).args(["-c", &text]));
        let pid = target.0.id();
        assert_eq!(dumped(pid, title).unwrap(), ["waiting", "<module>"]);
        assert_eq!(recorded(pid, title), 0);
        let check = bounded(&["check", "--pid", &target.pid()]);
        assert_eq!(check.code, 0, "{}", check.stderr);
        is_harmless(title, &check.stdout);
        assert!(!check.stdout.contains("\nprocess 1"), "{}", check.stdout);
    }
}

#[test]
fn the_name_of_what_is_no_interpreter_is_harmless_in_the_message() {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("\x1b[31m\nhint: rm \u{202e}");
    crate::harness::copy_program(Path::new("/bin/cat"), &program);
    let target = Target(
        Command::new(&program)
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap(),
    );
    for verb in ["dump", "record", "check"] {
        let ran = bounded(&[verb, "--pid", &target.pid()]);
        assert_eq!(ran.code, 4, "{verb}: {}", ran.stderr);
        is_harmless(verb, &ran.stderr);
        is_harmless(verb, &ran.stdout);
        assert_eq!(ran.stderr.matches("\nhint: ").count(), 1, "{verb}: {}", ran.stderr);
    }
}
