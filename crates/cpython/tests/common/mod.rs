//! What the tests of this crate share: the truth that a fixture program tells, and what was read, in the same form.

#![allow(
    dead_code,
    unreachable_pub,
    reason = "a module of several test binaries, each of which uses a part of it"
)]
#![allow(clippy::unwrap_used, reason = "what fails here fails the test")]

use serde::{Deserialize, Serialize};
use slip_model::{Interner, Outcome, StackReading};
use slip_remote::Image;
use slip_testkit::Interpreter;

/// A frame, by the program or by us.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Frame {
    pub name: String,
    pub file: String,
    pub line: u32,
    pub first_line: u32,
}

/// The stack of a thread, innermost frame first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Thread {
    pub name: String,
    pub tid: u64,
    #[serde(default)]
    pub interpreter: u64,
    pub frames: Vec<Frame>,
}

/// A thread that does not stand still.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Busy {
    pub name: String,
    pub tid: u64,
    /// Names of the functions that may be innermost.
    pub leaves: Vec<String>,
}

/// One line of what a fixture program prints.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Line {
    pid: u32,
    threads: Vec<Thread>,
    #[serde(default)]
    interpreter: u64,
    busy: Option<Busy>,
}

/// What a fixture program says about itself.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Truth {
    /// The process that the truth is about: not always the one that was started.
    pub pid: u32,
    pub threads: Vec<Thread>,
    pub busy: Option<Busy>,
}

impl Truth {
    pub fn parse(lines: &[String]) -> Self {
        let mut truth = Truth::default();
        for line in lines {
            let line: Line = serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
            truth.pid = line.pid;
            truth.busy = truth.busy.or(line.busy);
            truth.threads.extend(line.threads.into_iter().map(|mut thread| {
                thread.interpreter = line.interpreter;
                thread
            }));
        }
        truth.threads.sort_by_key(|thread| (thread.tid, thread.interpreter));
        truth
    }
}

/// A recorded image and what its program said of itself: a file of `fixtures/images`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Recorded {
    pub threads: Vec<Thread>,
    pub image: Image,
}

/// The recorded images of this crate, with their file names.
pub fn recorded() -> Vec<(String, Recorded)> {
    let folder = slip_testkit::fixtures().join("images");
    let mut files: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
        .into_iter()
        .filter_map(|path| {
            let name = path.file_name()?.to_str()?.to_owned();
            let wanted = name.starts_with("cpython-") && name.ends_with(".json");
            let text = wanted.then(|| std::fs::read_to_string(&path).unwrap())?;
            let recorded = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{name}: {error}"));
            Some((name, recorded))
        })
        .collect()
}

/// What was read, as the truth would say it; threads without a stack are left out.
pub fn as_truth(interner: &Interner, readings: &[StackReading]) -> Vec<Thread> {
    let mut threads: Vec<Thread> = readings
        .iter()
        .filter(|reading| reading.stack.0 != 0 || reading.outcome == Outcome::Torn)
        .map(|reading| {
            assert_ne!(reading.outcome, Outcome::Torn, "a thread that stands still");
            assert!(!reading.truncated);
            let frames = interner.frames_of(reading.stack).map(|id| {
                let frame = interner.frame_at(id);
                Frame {
                    name: interner.text(frame.name).to_owned(),
                    file: interner.text(frame.file).to_owned(),
                    line: frame.line,
                    first_line: frame.first_line,
                }
            });
            Thread {
                name: interner.text(reading.name).to_owned(),
                tid: reading.native_tid,
                interpreter: reading.interpreter,
                frames: frames.collect(),
            }
        })
        .collect();
    threads.sort_by_key(|thread| (thread.tid, thread.interpreter));
    threads
}

/// Fails with the first difference: whole stacks of a thousand frames tell nothing.
pub fn assert_same(read: &[Thread], truth: &[Thread], about: &str) {
    let heads = |threads: &[Thread]| -> Vec<String> {
        let head = |thread: &Thread| {
            format!(
                "tid {} interpreter {} {:?}: {} frames",
                thread.tid,
                thread.interpreter,
                thread.name,
                thread.frames.len()
            )
        };
        threads.iter().map(head).collect()
    };
    for (read, truth) in read.iter().zip(truth) {
        for (at, (read, truth)) in read.frames.iter().zip(&truth.frames).enumerate() {
            assert_eq!(read, truth, "{about}: frame {at} from the innermost (left: read, right: truth)");
        }
    }
    assert_eq!(heads(read), heads(truth), "{about} (left: read, right: truth)");
}

/// The interpreters that we can read.
pub fn supported_pythons() -> Vec<Interpreter> {
    slip_testkit::pythons().into_iter().filter(|python| python.version >= (3, 8)).collect()
}
