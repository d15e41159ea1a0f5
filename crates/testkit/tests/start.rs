//! Interpreters are found, started, waited for and ended.

use std::time::Duration;

use slip_testkit::{Launch, Runtime, phps, pythons};

const PYTHON: &str = "
import sys
print('[1, 2]')
print('ready', flush=True)
print('got ' + sys.stdin.readline().strip(), flush=True)
sys.stdin.read()
";

const PHP: &str = "<?php
echo \"[1, 2]\\nready\\n\";
echo 'got ', trim(fgets(STDIN)), \"\\n\";
fread(STDIN, 1);
";

#[test]
fn every_interpreter_runs_a_program_until_its_input_is_closed() {
    for interpreter in pythons().into_iter().chain(phps()) {
        let text = if interpreter.runtime == Runtime::Python { PYTHON } else { PHP };
        let mut child = Launch::text(&interpreter, "hello", text).start().unwrap();
        assert_eq!(child.wait_ready().unwrap(), ["[1, 2]"], "{}", interpreter.label);
        let program = std::fs::read_link(format!("/proc/{}/exe", child.pid())).unwrap();
        let name = program.file_name().unwrap().to_string_lossy().into_owned();
        assert!(name.starts_with("python") || name.starts_with("php"), "{name}");
        child.send("this").unwrap();
        assert_eq!(child.read_line(Duration::from_secs(10)).unwrap(), "got this");
        let folder = child.folder_outside().to_owned();
        assert!(folder.join("hello").exists());
        child.close_stdin();
        assert!(child.wait_exit(Duration::from_secs(10)).unwrap().success(), "{}", interpreter.label);
        drop(child);
        assert!(!folder.exists());
    }
}

#[test]
fn a_program_that_fails_is_quoted() {
    let Some(python) = pythons().into_iter().next() else { return };
    let mut child = Launch::text(&python, "bad.py", "raise SystemExit('no luck')").start().unwrap();
    let error = child.wait_ready().unwrap_err().to_string();
    assert!(error.contains("no luck"), "{error}");
}
