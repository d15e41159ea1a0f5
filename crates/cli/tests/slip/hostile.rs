//! Targets that lie about their structures. They are told from honest ones or shown as far as they can be read; never do
//! they hold the command up, fill its memory or reach the terminal.

mod fakes;
mod php;
mod python;

use std::process::Command;

use slip_testkit::Child;

use crate::harness::{Ran, frame_names, slip};

/// Memory that the command may have for its data, ten times what it needs: a length from the target must not decide.
const MOST_DATA_BYTES: u64 = 256 << 20;

/// Runs `slip` with an end to its time and memory.
fn bounded(arguments: &[&str]) -> Ran {
    let mut command = Command::new("timeout");
    command.args(["--signal=KILL", "60", "prlimit", &format!("--data={MOST_DATA_BYTES}")]);
    Ran::from(command.arg(slip()).args(arguments).output().unwrap())
}

/// Nothing that a terminal obeys but line ends and tabulators.
#[track_caller]
fn is_harmless(what: &str, text: &str) {
    let harmful =
        |c: char| c.is_control() && c != '\n' && c != '\t' || ('\u{202a}'..='\u{202e}').contains(&c);
    assert!(!text.contains(harmful), "{what}: {text:?}");
}

/// What `slip dump` shows of a target with one thread: its functions, innermost first. `None` if it says that nothing
/// could be read.
#[track_caller]
fn dumped(pid: u32, what: &str) -> Option<Vec<String>> {
    let pid = pid.to_string();
    let json = bounded(&["dump", "--pid", &pid, "--json"]);
    let plain = bounded(&["dump", "--pid", &pid]);
    assert_eq!(json.code, plain.code, "{what}: {} {}", json.stderr, plain.stderr);
    for text in [&json.stdout, &json.stderr, &plain.stdout, &plain.stderr] {
        is_harmless(what, text);
    }
    let processes = plain.stdout.lines().filter(|line| line.starts_with("process "));
    assert_eq!(processes.count(), 1, "{what}: {}", plain.stdout);
    match json.code {
        0 => frame_names(&json.json()).pop(),
        6 => {
            assert!(plain.stderr.contains("error: no stack could be read\n"), "{what}: {}", plain.stderr);
            None
        }
        code => panic!("{what}: exit code {code}: {}", json.stderr),
    }
}

/// Records a target and makes every report of it, if a stack could be read. The exit code of the recording.
#[track_caller]
fn recorded(pid: u32, what: &str) -> i32 {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("a.slip");
    let name = file.to_str().unwrap();
    let arguments = ["--rate", "997", "--duration", "0.5", "--output", name];
    let ran = bounded(&[&["record", "--pid", &pid.to_string()], &arguments[..]].concat());
    is_harmless(what, &ran.stdout);
    is_harmless(what, &ran.stderr);
    if ran.code == 6 {
        assert!(!file.exists(), "{what}: there is nothing to report");
        return ran.code;
    }
    assert!(std::fs::metadata(&file).unwrap().len() < 1 << 20, "{what}: the file is large");
    for format in ["md", "html", "json", "collapsed", "speedscope", "firefox", "chrome"] {
        let report = bounded(&["report", name, "--format", format]);
        assert_eq!(report.code, ran.code, "{what}, {format}: {}", report.stderr);
        is_harmless(what, &report.stdout);
    }
    let pprof = folder.path().join("a.pb.gz");
    let report = bounded(&["report", name, "--format", "pprof", "--output", pprof.to_str().unwrap()]);
    assert_eq!(report.code, ran.code, "{what}, pprof: {}", report.stderr);
    ran.code
}

/// The name of the one frame, at `at`, that is not as it should be; checks that the others are.
#[track_caller]
fn broken_frame(child: &Child, what: &str, at: usize, others: &[&str]) -> String {
    let mut names = dumped(child.pid(), what).unwrap_or_else(|| panic!("{what}: nothing could be read"));
    assert_eq!(names.len(), others.len() + 1, "{what}: {names:?}");
    let name = names.remove(at);
    assert_eq!(names, others, "{what}");
    name
}
