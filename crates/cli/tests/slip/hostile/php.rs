//! PHP whose structures were changed from within, by its extension `ffi`.

use slip_remote::process_stat;
use slip_testkit::{Child, Interpreter, Launch, phps, skip};

use super::{broken_frame, dumped, recorded};
use crate::harness::wait_for;

/// The function that waits, and those that called the broken one.
const OTHERS: [&str; 3] = ["fgets", "outer", "{main}"];

/// Longest name or path that is kept, in bytes.
const MOST_BYTES: usize = 4_096;

fn with_ffi() -> impl Iterator<Item = Interpreter> {
    phps().into_iter().filter(|php| {
        let code = "echo extension_loaded('ffi') ? 'yes' : 'no';";
        let output = php.command().args(["-r", code]).output();
        let loaded = output.is_ok_and(|output| output.stdout == b"yes");
        if !loaded {
            skip(&php.label, "no extension `ffi`");
        }
        loaded
    })
}

fn start(php: &Interpreter, case: &str) -> Child {
    let launch = Launch::text(php, "hostile.php", include_str!("program.php")).option("-dffi.enable=1");
    let mut child = launch.arg(case).start().unwrap();
    child.wait_ready().unwrap();
    // It is the next function that is to be seen: the one that waits for input.
    wait_for("the program waits", || process_stat(child.pid()).filter(|stat| stat.state == 'S'));
    child
}

#[test]
fn chains_of_frames_that_do_not_end_well() {
    let cases = [
        "frame is its own caller",
        "frames in a circle",
        "caller=8",
        "caller=-140737488355328",
        "caller=-8",
        "caller between two words",
    ];
    for php in with_ffi() {
        for case in cases {
            let what = format!("{}, {case}", php.label);
            assert_eq!(dumped(start(&php, case).pid(), &what), None, "{what}");
        }
    }
}

#[test]
fn functions_and_names_that_are_not_there() {
    for php in with_ffi() {
        for case in ["function=4702111234474983745", "name=8"] {
            let what = format!("{}, {case}", php.label);
            let name = broken_frame(&start(&php, case), &what, 1, &OTHERS);
            assert_eq!(name, "[unreadable]", "{what}");
        }
    }
}

#[test]
fn texts_of_false_lengths() {
    for php in with_ffi() {
        for text in ["name", "path"] {
            for length in ["9223372036854775807", "-9223372036854775808"] {
                let case = format!("{text} of length={length}");
                let what = format!("{}, {case}", php.label);
                let name = broken_frame(&start(&php, &case), &what, 1, &OTHERS);
                assert!(name.len() <= MOST_BYTES, "{what}: {name}");
            }
        }
    }
}

#[test]
fn names_that_would_command_a_terminal() {
    for php in with_ffi() {
        let cases = [
            ("name with escapes", "\x1b[31m\n"),
            ("name that is not text", "\u{fffd}\u{fffd}\u{fffd}\u{fffd}im"),
        ];
        for (case, expected) in cases {
            let what = format!("{}, {case}", php.label);
            let name = broken_frame(&start(&php, case), &what, 1, &OTHERS);
            assert_eq!(name, expected, "{what}");
        }
    }
}

#[test]
fn recordings_and_reports_of_them() {
    for php in with_ffi() {
        let cases =
            [("frames in a circle", 6), ("path of length=-9223372036854775808", 0), ("name with escapes", 0)];
        for (case, code) in cases {
            let what = format!("{}, {case}", php.label);
            assert_eq!(recorded(start(&php, case).pid(), &what), code, "{what}");
        }
    }
}
