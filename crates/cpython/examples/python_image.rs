//! Records memory images of fixture programs, for tests that run without an interpreter.
//!
//! `cargo run -p slip-cpython --example python_image` writes `fixtures/images/cpython-VERSION-THEME.json` for each
//! interpreter found; see `fixtures/images/README.md`.

#![allow(clippy::print_stdout, reason = "says what it has written")]

#[path = "../tests/common/mod.rs"]
mod common;

use std::collections::HashSet;
use std::error::Error;

use common::{Recorded, Truth, as_truth, assert_same, supported_pythons};
use slip_cpython::Interpreter;
use slip_model::Interner;
use slip_remote::{ImageRecorder, LiveProcess};
use slip_testkit::{Launch, fixtures};

/// Programs whose images are small, and which stand still.
const THEMES: [&str; 4] = ["nested", "generators", "subinterpreters", "dynamic"];

fn main() -> Result<(), Box<dyn Error>> {
    let folder = fixtures().join("images");
    std::fs::create_dir_all(&folder)?;
    let mut done = HashSet::new();
    for python in supported_pythons() {
        // One image per version: the first interpreter found.
        if !done.insert(python.version) {
            continue;
        }
        for theme in THEMES {
            let mut child = Launch::script(&python, format!("python/{theme}.py")).start()?;
            let truth = Truth::parse(&child.wait_ready()?);
            let process = LiveProcess::open(truth.pid)?;
            let recorder = ImageRecorder::new(&process, "");
            let mut reader = Interpreter::attach(&recorder)?;
            let (mut interner, mut readings) = (Interner::new(), Vec::new());
            for _ in 0..2 {
                reader.sample(&recorder, &mut interner, &mut readings)?;
                assert_same(&as_truth(&interner, &readings), &truth.threads, &python.label);
            }
            let mut image = recorder.into_image();
            image.about = format!("CPython {}, {theme}.py, by python_image", reader.version());
            let recorded = Recorded { threads: truth.threads, image };
            let text = serde_json::to_string_pretty(&recorded)? + "\n";
            let (major, minor) = python.version;
            let path = folder.join(format!("cpython-{major}.{minor}-{theme}.json"));
            std::fs::write(&path, &text)?;
            println!("{}: {} KiB", path.display(), text.len() / 1_024);
        }
    }
    Ok(())
}
