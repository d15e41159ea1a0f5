//! Recorded memory of PHP processes, read without PHP. `examples/php_image.rs` records them.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod common;

use std::path::PathBuf;
use std::time::Duration;

use common::{Seen, Watch, assert_same};
use slip_model::Outcome;
use slip_remote::{Image, Memory, Range, ReadError, RemoteAddr, Symbols};
use slip_zend::{CodeCache, Engine, Phase};

/// No image may be larger: they are in the repository.
const MAX_BYTES: u64 = 200_000;

/// Name, image and frames of each recording.
fn images() -> Vec<(String, Image, Vec<Seen>)> {
    let folder = slip_testkit::fixtures().join("images");
    let mut files: Vec<PathBuf> = std::fs::read_dir(&folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| {
            let name = path.file_name().unwrap().to_string_lossy();
            name.starts_with("zend-") && !name.ends_with(".frames.json")
        })
        .collect();
    files.sort();
    files
        .into_iter()
        .map(|path| {
            assert!(path.metadata().unwrap().len() < MAX_BYTES, "{} is too large", path.display());
            let image = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
            let frames = std::fs::read_to_string(path.with_extension("frames.json")).unwrap();
            let name = path.file_stem().unwrap().to_string_lossy().into_owned();
            (name, image, serde_json::from_str(&frames).unwrap())
        })
        .collect()
}

/// An image, of which it is known that it does not change: it does not matter how long it takes to read.
struct Still<'a>(&'a Image);

impl Memory for Still<'_> {
    fn read(&self, addr: RemoteAddr, buf: &mut [u8]) -> Result<(), ReadError> {
        std::thread::sleep(Duration::from_micros(100));
        self.0.read(addr, buf)
    }

    fn stands_still(&self) -> bool {
        true
    }
}

#[test]
fn recorded_stacks_are_read_as_they_were() {
    let images = images();
    assert!(images.len() >= 9);
    for (name, image, expected) in &images {
        let mut code = CodeCache::default();
        let mut watch = Watch::of(Engine::attach(image, &mut code).unwrap(), code);
        for _ in 0..2 {
            watch.sample(&Still(image));
            assert_same(name, &watch.frames(), expected);
            assert_eq!(watch.reading.phase, Phase::Code, "{name}");
            assert_eq!(watch.reading.stack.outcome, Outcome::Clean, "{name}");
        }
        let version = watch.engine.version();
        assert!(name.starts_with(&format!("zend-{}.{}-", version.major, version.minor)), "{name}: {version}");
        let facts = watch.reading.request.unwrap();
        assert!(watch.interner.text(facts.script).ends_with(".php"), "{name}");
        assert!(facts.memory_bytes > 100_000, "{name}");
    }
}

/// An image with some bytes changed.
struct Damaged<'a> {
    image: &'a Image,
    seed: u64,
    /// One byte in so many is another one.
    one_in: u64,
}

impl Memory for Damaged<'_> {
    fn read(&self, addr: RemoteAddr, buf: &mut [u8]) -> Result<(), ReadError> {
        self.image.read(addr, buf)?;
        for (at, byte) in (addr.0..).zip(buf) {
            // The same address is damaged in the same way each time.
            let mut hash = (at ^ self.seed).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            hash ^= hash >> 29;
            hash = hash.wrapping_mul(0xbf58_476d_1ce4_e5b9);
            hash ^= hash >> 32;
            if hash.is_multiple_of(self.one_in) {
                *byte = (hash >> 8).to_le_bytes()[0];
            }
        }
        Ok(())
    }
}

impl Symbols for Damaged<'_> {
    fn symbol(&self, name: &str) -> Option<RemoteAddr> {
        self.image.symbol(name)
    }

    fn section(&self, name: &str) -> Option<Range> {
        self.image.section(name)
    }
}

#[test]
fn damaged_memory_is_no_reason_to_panic() {
    for (_, image, _) in images() {
        for seed in 0..300 {
            let damaged = Damaged { image: &image, seed, one_in: [20, 200, 2_000][seed as usize % 3] };
            // Attaching would often fail, so half of the targets are damaged only afterwards.
            let mut code = CodeCache::default();
            let engine = if seed % 2 == 0 {
                Engine::attach(&image, &mut code)
            } else {
                Engine::attach(&damaged, &mut code)
            };
            let Ok(engine) = engine else { continue };
            let mut watch = Watch::of(engine, code);
            for _ in 0..3 {
                let options = watch.options;
                let Watch { engine, code, interner, reading, .. } = &mut watch;
                let _ = engine.sample(&damaged, interner, code, &options, reading);
                let depth = watch.interner.frames_of(watch.reading.stack.stack).count();
                assert!(depth <= 40_000);
            }
        }
    }
}
