//! What the tests of this crate share.
#![allow(dead_code, reason = "each test uses a part")]

use std::time::{Duration, Instant};

use slip_model::{FrameKind, Interner, StackId};
use slip_remote::{LiveProcess, Memory};
use slip_testkit::{Child, Interpreter, Launch};
use slip_zend::{CodeCache, Engine, PhpReading, SampleOptions};

/// Longest wait for a target to get somewhere. The machine may be busy with other tests.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// A frame as people see it.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) struct Seen {
    pub(crate) name: String,
    pub(crate) file: String,
    pub(crate) line: u32,
}

/// The frames of a stack, innermost first. Checks that what has no file is what cannot have one.
pub(crate) fn frames(interner: &Interner, stack: StackId) -> Vec<Seen> {
    interner
        .frames_of(stack)
        .map(|id| {
            let frame = interner.frame_at(id);
            let file = interner.text(frame.file).to_owned();
            assert_eq!(file.is_empty(), frame.kind != FrameKind::Php, "{frame:?}");
            Seen { name: interner.text(frame.name).to_owned(), file, line: frame.line }
        })
        .collect()
}

/// What a fixture program says its stack is.
pub(crate) fn truth(lines: &[String]) -> Vec<Seen> {
    #[derive(serde::Deserialize)]
    struct Truth {
        frames: Vec<Seen>,
    }
    let line = lines.last().expect("the program printed its stack");
    serde_json::from_str::<Truth>(line).expect("the truth is JSON").frames
}

/// Starts a fixture program, and returns it with the stack that it is known to have.
pub(crate) fn start(php: &Interpreter, theme: &str) -> (Child, Vec<Seen>) {
    let mut child = Launch::script(php, format!("php/{theme}.php"))
        // Otherwise opcache leaves out files that are younger than two seconds.
        .option("-dopcache.file_update_protection=0")
        .start()
        .expect("the program starts");
    let lines = child.wait_ready().unwrap_or_else(|error| panic!("{theme}, {}: {error}", php.label));
    (child, truth(&lines))
}

/// An engine, and what belongs to it.
pub(crate) struct Watch {
    pub(crate) engine: Engine,
    pub(crate) code: CodeCache,
    pub(crate) interner: Interner,
    pub(crate) reading: PhpReading,
    pub(crate) options: SampleOptions,
}

impl Watch {
    pub(crate) fn attach(process: &LiveProcess) -> Self {
        let end = Instant::now() + PATIENCE;
        let mut code = CodeCache::default();
        let engine = loop {
            match Engine::attach(process, &mut code) {
                Ok(engine) => break engine,
                Err(error) => assert!(Instant::now() < end, "{error}"),
            }
        };
        Self::of(engine, code)
    }

    pub(crate) fn of(engine: Engine, code: CodeCache) -> Self {
        Self {
            engine,
            code,
            interner: Interner::new(),
            reading: PhpReading::default(),
            options: SampleOptions::default(),
        }
    }

    pub(crate) fn sample<M: Memory>(&mut self, memory: &M) -> &PhpReading {
        let Self { engine, interner, code, options, .. } = self;
        engine.sample(memory, interner, code, options, &mut self.reading).unwrap();
        &self.reading
    }

    pub(crate) fn frames(&self) -> Vec<Seen> {
        frames(&self.interner, self.reading.stack.stack)
    }

    /// Samples until the innermost frame is `name`: the line `ready` comes a moment earlier.
    pub(crate) fn sample_until<M: Memory>(&mut self, memory: &M, name: &str) -> Vec<Seen> {
        let end = Instant::now() + PATIENCE;
        loop {
            self.sample(memory);
            let frames = self.frames();
            if frames.first().is_some_and(|frame| frame.name == name) {
                return frames;
            }
            assert!(Instant::now() < end, "{name} never came up: {:?} {frames:?}", self.reading);
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// Compares stacks so that a difference can be read.
#[track_caller]
pub(crate) fn assert_same(what: &str, found: &[Seen], expected: &[Seen]) {
    if found == expected {
        return;
    }
    let line = |frame: &Seen| format!("{} {}:{}", frame.name, frame.file, frame.line);
    let mut text = String::new();
    for at in 0..found.len().max(expected.len()) {
        let (found, expected) = (found.get(at).map(line), expected.get(at).map(line));
        if found != expected {
            text += &format!("  #{at}: found {found:?}\n      expected {expected:?}\n");
            if text.len() > 4_000 {
                break;
            }
        }
    }
    panic!("{what}: {} frames, expected {}\n{text}", found.len(), expected.len());
}
