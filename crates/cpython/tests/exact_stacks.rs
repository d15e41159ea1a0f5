//! Every fixture program on every interpreter: what we read is what the program says of itself.

#![allow(clippy::unwrap_used, reason = "what fails here fails the test")]

mod common;

use common::{Truth, as_truth, assert_same, supported_pythons};
use slip_cpython::Interpreter;
use slip_model::{Interner, Outcome};
use slip_remote::LiveProcess;
use slip_testkit::Launch;

fn check(launch: impl Fn(&slip_testkit::Interpreter) -> Launch) {
    for python in supported_pythons() {
        let mut child = launch(&python).start().unwrap();
        let truth = Truth::parse(&child.wait_ready().unwrap());
        let process = LiveProcess::open(truth.pid).unwrap();
        let mut reader =
            Interpreter::attach(&process).unwrap_or_else(|error| panic!("{}: {error}", python.label));
        let mut interner = Interner::new();
        let mut readings = Vec::new();
        // The first sample learns where everything is, the second predicts.
        for round in ["first", "second"] {
            reader.sample(&process, &mut interner, &mut readings).unwrap();
            let about = format!("{}, {round} sample", python.label);
            if let Some(busy) = &truth.busy {
                let at = readings.iter().position(|reading| reading.native_tid == busy.tid);
                let reading = readings.remove(at.unwrap_or_else(|| panic!("{about}: no busy thread")));
                if reading.outcome != Outcome::Torn {
                    let leaf = interner.frames_of(reading.stack).next().unwrap();
                    let leaf = interner.text(interner.frame_at(leaf).name);
                    assert!(busy.leaves.iter().any(|name| name == leaf), "{about}: {leaf}");
                }
                assert_eq!(interner.text(reading.name), busy.name, "{about}");
            }
            assert_same(&as_truth(&interner, &readings), &truth.threads, &about);
        }
    }
}

macro_rules! scripts {
    ($($name:ident)*) => {
        $(
            #[test]
            fn $name() {
                check(|python| Launch::script(python, concat!("python/", stringify!($name), ".py")));
            }
        )*
    };
}

scripts! {
    nested
    recursion
    through_c
    generators
    coroutines
    threads
    subinterpreters
    lines
    dynamic
    zipped
    forked
}

#[test]
fn package() {
    check(|python| Launch::module(python, "python", "pkg"));
}

#[test]
fn versions_that_are_too_old_are_named() {
    for python in slip_testkit::pythons().into_iter().filter(|python| python.version < (3, 8)) {
        let text = "import sys\nprint('ready', flush=True)\nsys.stdin.read()\n";
        let mut child = Launch::text(&python, "old.py", text).start().unwrap();
        child.wait_ready().unwrap();
        let process = LiveProcess::open(child.pid()).unwrap();
        let error = Interpreter::attach(&process).unwrap_err().to_string();
        assert_eq!(error, "CPython 3.7 or older is not supported, only 3.8 to 3.15 are", "{}", python.label);
    }
}
