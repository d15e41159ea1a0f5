//! The reader on recorded memory of each version, which needs no interpreter.

#![allow(clippy::unwrap_used, reason = "what fails here fails the test")]

mod common;

use common::{Recorded, as_truth, assert_same, recorded};
use serde_json::Value;
use slip_cpython::{AttachError, Interpreter, Version, detect};
use slip_model::Interner;
use slip_remote::{Image, Memory, RemoteAddr, Symbols};

/// Longest chain that the reader of chains follows.
const MAX_FRAMES: usize = 16_384;

#[test]
fn recorded_stacks_are_read_as_their_programs_told_them() {
    let images = recorded();
    for minor in 8..=15 {
        let name = format!("cpython-3.{minor}-");
        assert!(images.iter().any(|(file, _)| file.starts_with(&name)), "no image {name}*.json");
    }
    for (name, Recorded { threads, image }) in images {
        let (mut interner, mut readings) = (Interner::new(), Vec::new());
        let mut python = Interpreter::attach(&image).unwrap_or_else(|error| panic!("{name}: {error}"));
        for _ in 0..3 {
            python.sample(&image, &mut interner, &mut readings).unwrap();
            assert_same(&as_truth(&interner, &readings), &threads, &name);
        }
        let version = python.version();
        assert!(
            name.starts_with(&format!("cpython-{}.{}-", version.major(), version.minor())),
            "{name}: {version}"
        );
    }
}

fn image_of(minor: u32, theme: &str) -> Image {
    let wanted = format!("cpython-3.{minor}-{theme}.json");
    recorded().into_iter().find(|(name, _)| *name == wanted).unwrap().1.image
}

#[test]
fn what_cannot_be_read_is_refused_with_a_reason() {
    assert!(matches!(detect(&Image::default()), Ok(None)));
    assert!(matches!(Interpreter::attach(&Image::default()), Err(AttachError::NotPython)));

    let image = image_of(13, "nested");
    let runtime = image.symbol("_PyRuntime").unwrap();
    let version = |hex: u32, free_threaded: u64| {
        let mut target = image.clone();
        target.insert(runtime.offset(8), &u64::from(hex).to_le_bytes());
        target.insert(runtime.offset(16), &free_threaded.to_le_bytes());
        detect(&target)
    };
    assert_eq!(version(0x030d_07f0, 0).unwrap(), Some(Version::from_hex(0x030d_07f0)));
    let message = |result: Result<_, AttachError>| result.unwrap_err().to_string();
    assert_eq!(message(version(0x0310_00f0, 0)), "CPython 3.16.0 is not supported, only 3.8 to 3.15 are");
    assert_eq!(message(version(0x030f_00a1, 0)), "CPython 3.15.0a1 is not supported, only 3.8 to 3.15 are");
    assert!(message(version(0x030d_00f0, 1)).contains("free-threaded"));

    let mut old = Image::default();
    old.insert_symbol("_PyRuntime", RemoteAddr(0x1000));
    old.insert(RemoteAddr(0x1000), &[0; 64]);
    assert_eq!(message(detect(&old)), "CPython 3.7 or older is not supported, only 3.8 to 3.15 are");

    // `code_object.co_code_adaptive` is the number 43 of the report of 3.13.
    let mut no_code = image.clone();
    no_code.insert(runtime.offset(43 * 8), &8_u64.to_le_bytes());
    let refused = Interpreter::attach(&no_code).unwrap_err();
    assert!(refused.to_string().contains("code object"), "{refused}");

    // `runtime_state.interpreters_head` is the number 5 of the report of 3.13.
    let mut number = [0; 8];
    image.read(runtime.offset(5 * 8), &mut number).unwrap();
    let mut early = image.clone();
    early.insert(runtime.offset(u64::from_le_bytes(number)), &[0; 8]);
    assert!(matches!(Interpreter::attach(&early), Err(AttachError::NotReady)));
}

#[test]
fn offsets_that_the_target_reports_are_not_trusted() {
    let image = image_of(15, "nested");
    let runtime = image.symbol("_PyRuntime").unwrap();
    for number in 3..111 {
        for value in [0, 1, 7, 1 << 12, 1 << 24, 1 << 63, u64::MAX - 7, u64::MAX] {
            let mut target = image.clone();
            target.insert(runtime.offset(number * 8), &value.to_le_bytes());
            sample_or_refuse(&target);
        }
    }
}

/// Must not panic, nor take long, whatever the target is.
fn sample_or_refuse(target: &Image) {
    let Ok(mut python) = Interpreter::attach(target) else { return };
    let (mut interner, mut readings) = (Interner::new(), Vec::new());
    for _ in 0..2 {
        if python.sample(target, &mut interner, &mut readings).is_err() {
            return;
        }
        assert!(readings.len() <= 64);
        for reading in &readings {
            assert!(interner.frames_of(reading.stack).count() <= MAX_FRAMES);
        }
    }
}

/// Where each piece of an image begins, and how long it is.
fn pieces(image: &Image) -> Vec<(u64, usize)> {
    let value = serde_json::to_value(image).unwrap();
    let Value::Object(pieces) = &value["pieces"] else { panic!("no pieces") };
    pieces.iter().map(|(at, hex)| (at.parse().unwrap(), hex.as_str().unwrap().len() / 2)).collect()
}

#[test]
fn no_word_of_a_target_is_trusted() {
    let mut random = 1_u64;
    let mut next = move |below: usize| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(random >> 33).unwrap() % below
    };
    for minor in [8, 9, 10, 11, 12, 13, 15] {
        let image = image_of(minor, "subinterpreters");
        let pieces = pieces(&image);
        let words: Vec<u64> =
            pieces.iter().flat_map(|(at, len)| (0..*len as u64 / 8).map(move |word| at + 8 * word)).collect();
        for _ in 0..1_500 {
            let mut target = image.clone();
            for _ in 0..=next(3) {
                let at = words[next(words.len())];
                let other = words[next(words.len())];
                // Loops come from pointers to elsewhere in the image, or to the place itself.
                let value = match next(7) {
                    0 => 0,
                    1 => u64::MAX,
                    2 => 1 << 63,
                    3 => at,
                    4 => other,
                    5 => 0x7f7f_7f7f_7f7f_7f7f,
                    _ => next(1 << 20) as u64,
                };
                target.insert(RemoteAddr(at), &value.to_le_bytes());
            }
            sample_or_refuse(&target);
        }
    }
}
