//! Records the memory images that `tests/images.rs` replays.
//!
//! `cargo run -p slip-zend --example php_image` starts the fixture programs below on the PHPs of this machine, reads
//! each once and writes what was touched to `fixtures/images/zend-<version>-<theme>.json`, and the frames that the
//! program itself says it has to `zend-<version>-<theme>.frames.json`. Images of versions that are not here stay as they
//! are. Record again when the reader needs bytes that an image lacks; a version's images need not be recorded again
//! for a new patch level.
#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "a tool for developers")]

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use slip_model::Interner;
use slip_remote::{ImageRecorder, LiveProcess};
use slip_zend::{CodeCache, Engine, PhpReading, SampleOptions};

const THEMES: [&str; 10] = [
    "functions",
    "methods",
    "closures",
    "includes",
    "callbacks",
    "exceptions",
    "generators",
    "yield_from",
    "fibers_and_generators",
    "frameless",
];

/// Where the programs run, so that the paths in the images do not depend on the machine.
const FOLDER: &str = "slip-zend-image";

fn main() {
    let images = slip_testkit::fixtures().join("images");
    for php in slip_testkit::phps() {
        if php.label.contains("opcache") {
            continue;
        }
        let outside = match &php.root {
            Some(root) => root.join("tmp").join(FOLDER),
            None => Path::new("/tmp").join(FOLDER),
        };
        copy(&slip_testkit::fixtures().join("programs/php"), &outside);
        let (major, minor) = php.version;
        for theme in THEMES {
            let mut command = php.command();
            command.arg("-n").arg(format!("/tmp/{FOLDER}/{theme}.php"));
            let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
            let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
            let truth: serde_json::Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
            assert_eq!(lines.next().unwrap().unwrap(), "ready");

            let process = LiveProcess::open(child.id()).unwrap();
            wait_until_blocked(&process);
            let about = format!("PHP {major}.{minor}, cli, fixtures/programs/php/{theme}.php");
            let recorder = ImageRecorder::new(&process, &about);
            let mut code = CodeCache::default();
            let mut engine = Engine::attach(&recorder, &mut code).unwrap();
            let (mut interner, mut reading) = (Interner::new(), PhpReading::default());
            // Twice: the second sample reads by prediction.
            for _ in 0..2 {
                engine
                    .sample(&recorder, &mut interner, &mut code, &SampleOptions::default(), &mut reading)
                    .unwrap();
            }
            let image = recorder.into_image();
            let name = format!("zend-{major}.{minor}-{theme}");
            let text = serde_json::to_string(&image).unwrap();
            println!("{name}: {} bytes of memory, {} of text", image.len_bytes(), text.len());
            std::fs::write(images.join(format!("{name}.json")), text + "\n").unwrap();
            let frames = serde_json::to_string_pretty(&truth["frames"]).unwrap();
            std::fs::write(images.join(format!("{name}.frames.json")), frames + "\n").unwrap();
            child.kill().unwrap();
            child.wait().unwrap();
        }
        std::fs::remove_dir_all(outside).unwrap();
    }
}

/// Waits until `fgets` is innermost: the line `ready` comes a moment earlier.
fn wait_until_blocked(process: &LiveProcess) {
    let end = Instant::now() + Duration::from_secs(10);
    let mut code = CodeCache::default();
    let mut engine = Engine::attach(process, &mut code).unwrap();
    let (mut interner, mut reading) = (Interner::new(), PhpReading::default());
    loop {
        engine.sample(process, &mut interner, &mut code, &SampleOptions::default(), &mut reading).unwrap();
        let innermost = interner.frames_of(reading.stack.stack).next().map(|id| interner.frame_at(id).name);
        if innermost.is_some_and(|name| interner.text(name) == "fgets") {
            return;
        }
        assert!(Instant::now() < end, "the program does not block");
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), target).unwrap();
        }
    }
}
