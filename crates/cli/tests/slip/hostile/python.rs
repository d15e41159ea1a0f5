//! CPython whose structures were changed from within.

use slip_testkit::{Child, Interpreter, Launch, pythons};

use super::{broken_frame, dumped, recorded};

const CALLERS: [&str; 3] = ["outer", "main", "<module>"];

/// More characters of a name are not kept, and one says so.
const MOST_CHARS: usize = 1_025;

fn supported() -> impl Iterator<Item = Interpreter> {
    pythons().into_iter().filter(|python| python.version >= (3, 8))
}

/// What the function is called whose structures are broken.
fn victim(python: &Interpreter) -> &'static str {
    if python.version < (3, 11) { "victim" } else { "Victim.victim" }
}

fn start(python: &Interpreter, case: &str) -> Child {
    let mut child = Launch::text(python, "hostile.py", include_str!("program.py")).arg(case).start().unwrap();
    child.wait_ready().unwrap();
    child
}

#[test]
fn chains_of_frames_that_do_not_end_well() {
    let cases = [
        "frame is its own caller",
        "frames in a circle",
        "caller=8",
        "caller=0xffff800000000000",
        "caller=0xfffffffffffffff8",
        "caller between two words",
    ];
    for python in supported() {
        for case in cases {
            let what = format!("{}, {case}", python.label);
            assert_eq!(dumped(start(&python, case).pid(), &what), None, "{what}");
        }
    }
}

#[test]
fn code_that_is_not_there() {
    for python in supported() {
        for case in ["code=0x4141414141414140", "code=0xfffffffffffffff0"] {
            let what = format!("{}, {case}", python.label);
            let name = broken_frame(&start(&python, case), &what, 0, &CALLERS);
            assert_eq!(name, "[unreadable]", "{what}");
        }
    }
}

#[test]
fn texts_and_tables_of_false_lengths() {
    for python in supported() {
        for text in ["name", "path", "lines"] {
            for length in ["0x7fffffffffffffff", "0x8000000000000000"] {
                let case = format!("{text} of length={length}");
                let what = format!("{}, {case}", python.label);
                let name = broken_frame(&start(&python, &case), &what, 0, &CALLERS);
                assert!(name.chars().count() <= MOST_CHARS, "{what}: {name}");
            }
        }
    }
}

#[test]
fn names_that_would_command_a_terminal() {
    for python in supported() {
        let cases = [
            ("name with escapes", "\x1b]0;title\x07\x1b[31mred\nprocess 1: forged\r\u{9b}31m\u{202e}\x7f"),
            ("path with escapes", victim(&python)),
            ("name of lone surrogates", "\u{fffd}\u{fffd} alone"),
        ];
        for (case, expected) in cases {
            let what = format!("{}, {case}", python.label);
            let name = broken_frame(&start(&python, case), &what, 0, &CALLERS);
            assert_eq!(name, expected, "{what}");
        }
        let what = format!("{}, a long name", python.label);
        let name = broken_frame(&start(&python, "name of 16 MiB"), &what, 0, &CALLERS);
        assert_eq!(name.chars().count(), MOST_CHARS, "{what}");
    }
}

#[test]
fn other_lists_and_tables() {
    let cases = ["lines of noise", "lines of another type", "thread is its own successor", "next thread=16"];
    for python in supported() {
        for case in cases {
            let what = format!("{}, {case}", python.label);
            let name = broken_frame(&start(&python, case), &what, 0, &CALLERS);
            assert_eq!(name, victim(&python), "{what}");
        }
    }
}

#[test]
fn recordings_and_reports_of_them() {
    for python in supported() {
        let cases =
            [("frames in a circle", 6), ("name of length=0x8000000000000000", 0), ("name with escapes", 0)];
        for (case, code) in cases {
            let what = format!("{}, {case}", python.label);
            assert_eq!(recorded(start(&python, case).pid(), &what), code, "{what}");
        }
    }
}
