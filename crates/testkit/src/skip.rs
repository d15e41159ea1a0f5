//! Says loudly that something was not tested.

use std::fs::OpenOptions;
use std::io::Write;

/// Reports that the current test leaves `what` out because of `reason`.
///
/// The line `SKIP <test>: <what>: <reason>` goes to standard error, past the capturing of the test harness, and to the
/// file that the environment variable `SLIP_SKIPS` names, so that a run can count them.
pub fn skip(what: &str, reason: &str) {
    // The test harness names the thread of a test after the test.
    let thread = std::thread::current();
    let line = format!("SKIP {}: {what}: {reason}\n", thread.name().unwrap_or("unnamed"));
    // A test run must not fail because nobody reads its standard error.
    let _ = std::io::stderr().write_all(line.as_bytes());
    if let Some(path) = std::env::var_os("SLIP_SKIPS") {
        let file = OpenOptions::new().create(true).append(true).open(&path);
        if let Err(error) = file.and_then(|mut file| file.write_all(line.as_bytes())) {
            let _ = writeln!(std::io::stderr(), "SKIP file {}: {error}", path.display());
        }
    }
}
