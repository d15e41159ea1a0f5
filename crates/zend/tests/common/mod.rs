//! What the tests of this crate share.
#![allow(dead_code, reason = "each test uses a part")]

pub(crate) mod fpm;

use std::time::{Duration, Instant};

use slip_model::{FrameKind, Interner, StackId};
use slip_remote::{LiveProcess, Memory, Range, ReadError, RemoteAddr, Symbols};
use slip_testkit::{Child, Interpreter, Launch};
use slip_zend::{Engine, PhpReading, SampleOptions};

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

/// A live process. Knows the symbols that `LiveProcess` leaves out, by `nm`.
pub(crate) struct Target {
    pub(crate) process: LiveProcess,
    symbols: Vec<(String, u64)>,
}

impl Target {
    pub(crate) fn open(pid: u32) -> Self {
        let process = LiveProcess::open(pid).unwrap();
        let exe = format!("/proc/{pid}/exe");
        let output = std::process::Command::new("nm").args(["-D", &exe]).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let mut symbols: Vec<(String, u64)> = text
            .lines()
            .filter_map(|line| {
                let (addr, rest) = line.split_once(' ')?;
                Some((rest.get(2..)?.to_owned(), u64::from_str_radix(addr, 16).ok()?))
            })
            .collect();
        let known = process.symbol("executor_globals").unwrap().0;
        let here = symbols.iter().find(|(name, _)| name == "executor_globals").unwrap().1;
        for symbol in &mut symbols {
            symbol.1 = symbol.1.wrapping_add(known.wrapping_sub(here));
        }
        Self { process, symbols }
    }
}

impl Memory for Target {
    fn read(&self, addr: RemoteAddr, buf: &mut [u8]) -> Result<(), ReadError> {
        self.process.read(addr, buf)
    }

    fn read_ranges(&self, ranges: &[Range], buf: &mut [u8]) -> Result<usize, ReadError> {
        self.process.read_ranges(ranges, buf)
    }
}

impl Symbols for Target {
    fn symbol(&self, name: &str) -> Option<RemoteAddr> {
        self.process.symbol(name).or_else(|| {
            self.symbols.iter().find(|(known, _)| known == name).map(|(_, addr)| RemoteAddr(*addr))
        })
    }

    fn section(&self, name: &str) -> Option<Range> {
        self.process.section(name)
    }
}

/// An engine, and what belongs to it.
pub(crate) struct Watch {
    pub(crate) engine: Engine,
    pub(crate) interner: Interner,
    pub(crate) reading: PhpReading,
    pub(crate) options: SampleOptions,
    started: Instant,
}

impl Watch {
    pub(crate) fn attach(process: &Target) -> Self {
        let end = Instant::now() + PATIENCE;
        let engine = loop {
            match Engine::attach(process) {
                Ok(engine) => break engine,
                Err(error) => assert!(Instant::now() < end, "{error}"),
            }
        };
        Self::of(engine)
    }

    pub(crate) fn of(engine: Engine) -> Self {
        Self {
            engine,
            interner: Interner::new(),
            reading: PhpReading::default(),
            options: SampleOptions::default(),
            started: Instant::now(),
        }
    }

    pub(crate) fn sample<M: Memory>(&mut self, memory: &M) -> &PhpReading {
        self.options.now_ns = u64::try_from(self.started.elapsed().as_nanos()).unwrap();
        self.engine.sample(memory, &mut self.interner, &self.options, &mut self.reading).unwrap();
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
