//! Tests: targets that lie about their structures.

use std::path::Path;
use std::time::{Duration, Instant};

use slip_model::{Interner, Outcome, StackReading};
use slip_remote::{Copied, Image, Memory, RemoteAddr, Symbols, read_u64};

use crate::Interpreter;
use crate::code::CONFIRMED_NS;
use crate::detect::find;
use crate::offsets::{CurrentFrame, FRAME_OWNED_BY_GENERATOR, Offsets, dict_keys};

/// A recorded target and where its structures lie.
pub(crate) struct Target {
    pub(crate) image: Image,
    pub(crate) offsets: Offsets,
    interpreter: RemoteAddr,
    thread: RemoteAddr,
    frame: RemoteAddr,
    code: RemoteAddr,
}

impl Target {
    /// A recording of 3.13, whose innermost frame is that of a function.
    pub(crate) fn new() -> Self {
        Self::of("3.13")
    }

    fn of(version: &str) -> Self {
        let name = format!("../../fixtures/images/cpython-{version}-nested.json");
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(name);
        let text = std::fs::read_to_string(path).unwrap();
        let recorded: serde_json::Value = serde_json::from_str(&text).unwrap();
        let image: Image = serde_json::from_value(recorded["image"].clone()).unwrap();
        let (version, runtime) = find(&image).unwrap().unwrap();
        let offsets = Offsets::of(&image, version, runtime).unwrap();
        let at =
            |addr: RemoteAddr, field: usize| RemoteAddr(read_u64(&image, addr.offset(field as u64)).unwrap());
        let interpreter = at(runtime, offsets.interpreters_head);
        let thread = at(interpreter, offsets.interpreter.threads_head);
        let frame = match offsets.thread.current {
            CurrentFrame::Direct(current) => at(thread, current),
            CurrentFrame::CFrame { cframe, current_frame, .. } => at(at(thread, cframe), current_frame),
        };
        let code = at(frame, offsets.frame.executable);
        Self { interpreter, thread, frame, code, offsets, image }
    }

    fn set(&mut self, addr: RemoteAddr, field: usize, value: u64) {
        self.image.insert(addr.offset(field as u64), &value.to_le_bytes());
    }

    fn at(&self, addr: RemoteAddr, field: usize) -> RemoteAddr {
        RemoteAddr(read_u64(&self.image, addr.offset(field as u64)).unwrap())
    }

    fn sample(&self) -> (Interner, Vec<StackReading>) {
        let (mut interner, mut readings) = (Interner::new(), Vec::new());
        let mut python = Interpreter::attach(&self.image).unwrap();
        for _ in 0..2 {
            python.sample(&self.image, &mut interner, &mut readings).unwrap();
        }
        (interner, readings)
    }

    /// Name and line of the innermost frame.
    fn leaf(&self) -> (String, u32) {
        let (interner, readings) = self.sample();
        let leaf = interner.frames_of(readings[0].stack).next().unwrap();
        let frame = interner.frame_at(leaf);
        (interner.text(frame.name).to_owned(), frame.line)
    }
}

#[test]
fn the_recording_is_as_the_tests_expect() {
    let target = Target::new();
    assert_eq!(target.leaf().0, "hold");
    assert!(target.image.symbol("_PyRuntime").is_some());
}

#[test]
fn an_interpreter_that_is_made_later_is_found() {
    let mut target = Target::new();
    let (mut interner, mut readings) = (Interner::new(), Vec::new());
    let mut python = Interpreter::attach(&target.image).unwrap();
    python.sample(&target.image, &mut interner, &mut readings).unwrap();
    python.sample(&target.image, &mut interner, &mut readings).unwrap();
    let made = RemoteAddr(0x1_0000);
    let fields = target.offsets.interpreter;
    target.image.insert(made, &vec![0; fields.window().1]);
    target.set(made, fields.id, 1);
    target.set(made, fields.next, target.interpreter.0);
    let (runtime, head) = (find(&target.image).unwrap().unwrap().1, target.offsets.interpreters_head);
    target.set(runtime, head, made.0);
    python.alone_until_ns = u64::MAX;
    python.sample(&target.image, &mut interner, &mut readings).unwrap();
    assert_eq!((python.states.len(), readings.len()), (1, 1), "the list is not looked at yet");
    python.alone_until_ns = 0;
    for _ in 0..2 {
        python.sample(&target.image, &mut interner, &mut readings).unwrap();
        assert_eq!((python.states.len(), readings.len()), (2, 1));
        assert_eq!(python.states[0].addr, made);
        // Where there are several the list is always looked at.
        python.alone_until_ns = u64::MAX;
    }
    target.set(runtime, head, target.interpreter.0);
    python.sample(&target.image, &mut interner, &mut readings).unwrap();
    assert_eq!((python.states.len(), readings.len()), (1, 1));
}

/// A recording of 3.15 at which two looks have been left.
fn with_looks() -> (Target, Interpreter, Interner) {
    let target = Target::of("3.15");
    let (mut interner, mut readings) = (Interner::new(), Vec::new());
    let mut python = Interpreter::attach(&target.image).unwrap();
    for _ in 0..3 {
        python.sample(&target.image, &mut interner, &mut readings).unwrap();
    }
    for now_ns in [0, 1] {
        assert_eq!(python.glance(&target.image, now_ns), Ok(true));
    }
    (target, python, interner)
}

fn settle(target: &Target, python: &mut Interpreter, interner: &mut Interner) -> Vec<StackReading> {
    let mut readings = Vec::new();
    python.settle(&target.image, interner, &mut readings).unwrap();
    readings
}

#[test]
fn looks_that_have_waited_say_what_a_sample_says() {
    let (target, mut python, mut interner) = with_looks();
    let mut at_once = Vec::new();
    let waited = settle(&target, &mut python, &mut interner);
    python.sample(&target.image, &mut interner, &mut at_once).unwrap();
    assert_eq!(waited, [at_once[0], at_once[0]]);
    assert_eq!(waited[0].outcome, Outcome::Clean);
    assert!(settle(&target, &mut python, &mut interner).is_empty(), "each is judged once");
}

#[test]
fn looks_that_a_sample_came_after_are_lost() {
    let (target, mut python, mut interner) = with_looks();
    python.sample(&target.image, &mut interner, &mut Vec::new()).unwrap();
    assert!(settle(&target, &mut python, &mut interner).is_empty());
}

#[test]
fn a_code_object_is_named_late_only_if_none_has_died_since() {
    let count = |target: &Target| target.offsets.interpreter.code_object_generation.unwrap();
    // What is known already is known under the count of the copy.
    let (mut target, mut python, mut interner) = with_looks();
    target.set(target.interpreter, count(&target), u64::MAX / 2);
    assert_eq!(python.glance(&target.image, 2), Ok(false), "a code object has died");
    let readings = settle(&target, &mut python, &mut interner);
    assert_eq!(readings.iter().map(|reading| reading.outcome).collect::<Vec<_>>(), [Outcome::Clean; 2]);
    // What has to be read may be another one.
    for has_died in [false, true] {
        let (mut target, mut python, mut interner) = with_looks();
        python.codes.forget_all();
        python.states[0].threads[0].last = Default::default();
        if has_died {
            target.set(target.interpreter, count(&target), u64::MAX / 2);
        }
        let readings = settle(&target, &mut python, &mut interner);
        let outcome = if has_died { Outcome::Torn } else { Outcome::Clean };
        assert_eq!(readings.iter().map(|reading| reading.outcome).collect::<Vec<_>>(), [outcome; 2]);
    }
}

#[test]
fn what_is_not_as_it_was_ends_a_bunch() {
    let changes: [fn(&mut Target); 4] = [
        |target| target.set(target.interpreter, target.offsets.interpreter.gc_frame.unwrap(), 8),
        |target| target.set(target.interpreter, target.offsets.interpreter.threads_head, 8),
        |target| target.set(target.interpreter, target.offsets.interpreter.next, 8),
        |target| {
            let CurrentFrame::Direct(current) = target.offsets.thread.current else { return };
            target.set(target.thread, current, 0x1_0000);
        },
    ];
    for change in changes {
        let (mut target, mut python, mut interner) = with_looks();
        change(&mut target);
        assert_eq!(python.glance(&target.image, 2), Ok(false));
        assert_eq!(settle(&target, &mut python, &mut interner).len(), 2, "it is not one of them");
    }
}

#[test]
fn chains_that_loop_end() {
    let previous = Target::new().offsets.frame.previous;
    let mut own = Target::new();
    own.set(own.frame, previous, own.frame.0);
    let mut other = Target::new();
    let caller = other.at(other.frame, previous);
    other.set(caller, previous, other.frame.0);
    for target in [own, other] {
        let (interner, readings) = target.sample();
        assert_eq!(readings.len(), 1);
        assert!(interner.frames_of(readings[0].stack).count() <= 16_384);
    }
}

#[test]
fn lists_that_loop_end() {
    let mut threads = Target::new();
    threads.set(threads.thread, threads.offsets.thread.next, threads.thread.0);
    assert_eq!(threads.sample().1.len(), 1);

    let mut interpreters = Target::new();
    interpreters.set(
        interpreters.interpreter,
        interpreters.offsets.interpreter.next,
        interpreters.interpreter.0,
    );
    assert_eq!(interpreters.sample().1.len(), 1);
}

#[test]
fn lengths_without_bound_are_bounded() {
    for length in [1 << 63, u64::MAX, u64::MAX / 2, 1 << 40] {
        let mut name = Target::new();
        let text = name.at(name.code, name.offsets.code.qualname);
        name.set(text, name.offsets.object.str_length, length);
        // The characters end where the recording ends: there is no such name.
        assert_eq!(name.leaf().0, "[unreadable]");

        let mut table = Target::new();
        let lines = table.at(table.code, table.offsets.code.linetable);
        table.set(lines, table.offsets.object.ob_size, length);
        assert_eq!(table.leaf(), ("hold".to_owned(), 0));

        let mut modules = Target::new();
        let dict = modules.at(modules.interpreter, modules.offsets.interpreter.modules);
        let keys = modules.at(dict, modules.offsets.object.dict_keys);
        modules.set(keys, dict_keys::NENTRIES, length);
        assert_eq!(modules.leaf().0, "hold");
    }
}

/// Lets time pass until what was confirmed of code objects is to be confirmed again.
fn outlast_confirmation() {
    let end = Instant::now() + 2 * Duration::from_nanos(CONFIRMED_NS);
    while Instant::now() < end {
        std::hint::spin_loop();
    }
}

/// A stack that was copied before its innermost code object was replaced may be of the one that was there before.
#[test]
fn what_was_copied_before_a_code_object_was_replaced_is_torn() {
    let mut target = Target::new();
    let (mut interner, mut readings) = (Interner::new(), Vec::new());
    let mut python = Interpreter::attach(&target.image).unwrap();
    python.sample(&target.image, &mut interner, &mut readings).unwrap();
    let (mut addrs, mut frames, mut frame) = (Vec::new(), Vec::new(), target.frame);
    while !frame.is_null() {
        let mut bytes = vec![0; target.offsets.frame.len];
        target.image.read(frame, &mut bytes).unwrap();
        addrs.push(frame);
        frames.extend(bytes);
        frame = target.at(frame, target.offsets.frame.previous);
    }
    let mut anchor = vec![0; target.offsets.thread.len()];
    target.image.read(target.thread, &mut anchor).unwrap();
    let copied = Copied {
        thread_state: target.thread,
        addrs: &addrs,
        frames: &frames,
        truncated: false,
        instruction: None,
        anchor: &anchor,
    };
    let before = Instant::now();
    // Another function of the same length, with a version number of its own.
    target.set(target.code, target.offsets.code.firstlineno, 77 | 5 << 32);
    outlast_confirmation();
    python.begin_copied(&target.image).unwrap();
    let mut name = |at: Instant| {
        let named = python.name_copied(&target.image, &mut interner, (&copied, at)).unwrap();
        named.map(|reading| (reading.outcome, interner.frames_of(reading.stack).count()))
    };
    assert_eq!(name(before), Some((Outcome::Torn, 0)));
    assert_eq!(name(before), Some((Outcome::Torn, 0)));
    assert!(name(Instant::now()).is_some_and(|(outcome, depth)| outcome == Outcome::Clean && depth > 2));
}

#[test]
fn functions_that_are_made_of_a_code_object_do_not_replace_it() {
    let mut target = Target::of("3.11");
    let (mut interner, mut readings) = (Interner::new(), Vec::new());
    let mut python = Interpreter::attach(&target.image).unwrap();
    python.sample(&target.image, &mut interner, &mut readings).unwrap();
    // One more refers to its name.
    let name = target.at(target.code, target.offsets.code.qualname);
    let references = target.at(name, 0).0;
    target.set(name, 0, references + 1);
    outlast_confirmation();
    python.sample(&target.image, &mut interner, &mut readings).unwrap();
    assert!(!python.replaces_code());
    let length = target.at(name, target.offsets.object.str_length).0;
    target.set(name, target.offsets.object.str_length, length - 1);
    outlast_confirmation();
    python.sample(&target.image, &mut interner, &mut readings).unwrap();
    assert!(python.replaces_code());
}

#[test]
fn garbage_in_the_line_table_gives_some_line() {
    let mut target = Target::new();
    let table = target.at(target.code, target.offsets.code.linetable);
    let len = target.at(table, target.offsets.object.ob_size).0 as usize;
    for byte in [0, 0x7f, 0x80, 0xff, 0xf0] {
        target.image.insert(table.offset(target.offsets.object.bytes_data as u64), &vec![byte; len]);
        assert_eq!(target.leaf().0, "hold");
    }
}

#[test]
fn names_that_are_no_text_are_replaced() {
    let mut target = Target::new();
    let text = target.at(target.code, target.offsets.code.qualname);
    target.image.insert(text.offset(target.offsets.object.str_ascii as u64), &[0xff, 0xfe, 0x80, 0]);
    assert_eq!(target.leaf().0, "\u{ff}\u{fe}\u{80}\0");
}

#[test]
fn a_function_whose_name_is_no_string_is_shown_as_unreadable() {
    let mut target = Target::new();
    // An object of another kind: the state of a string does not fit any.
    let text = target.at(target.code, target.offsets.code.qualname);
    target.image.insert(text.offset(target.offsets.object.str_state as u64), &[0xff; 4]);
    assert_eq!(target.leaf().0, "[unreadable]");
}

#[test]
fn what_is_no_code_object_is_no_frame() {
    let mut target = Target::new();
    let ob_type = target.at(target.code, target.offsets.object.ob_type);
    let own_type = target.offsets.object.tp_name as u64;
    let mut name = [0; 8];
    target.image.read(ob_type.offset(own_type), &mut name).unwrap();
    target.image.insert(RemoteAddr(u64::from_le_bytes(name)), b"odd\0\0\0\0\0");
    let (_, readings) = target.sample();
    assert_eq!(readings[0].stack, slip_model::StackId(0));
}

#[test]
fn what_is_left_of_a_call_that_is_over_is_torn() {
    // `PyStackRef_NULL`, with and without its tag.
    for no_code in [0, 1] {
        let mut target = Target::new();
        target.set(target.frame, target.offsets.frame.executable, no_code);
        let (_, readings) = target.sample();
        assert_eq!(readings[0].outcome, Outcome::Torn);
    }
}

#[test]
fn a_generator_at_the_end_of_its_memory_is_read() {
    let mut target = Target::new();
    let CurrentFrame::Direct(current) = target.offsets.thread.current else { panic!("not 3.13") };
    let mut frame = vec![0; target.offsets.frame.len];
    target.image.read(target.frame, &mut frame).unwrap();
    frame[target.offsets.frame.owner] = FRAME_OWNED_BY_GENERATOR;
    // Its memory ends with it, while the stack's memory goes on.
    let generator = RemoteAddr(0x10_0000);
    target.image.insert(generator, &frame);
    target.set(target.thread, current, generator.0);
    let (_, readings) = target.sample();
    assert_eq!(readings[0].outcome, Outcome::Clean);
    assert_eq!(target.leaf().0, "hold");
}
