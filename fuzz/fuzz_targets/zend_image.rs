//! The PHP reader on hostile memory: a recorded process in which some bytes are others and every address is readable.
//! No panic, no endless walk, no stack deeper than its bounds.
#![no_main]

use std::sync::OnceLock;

use libfuzzer_sys::fuzz_target;
use slip_model::Interner;
use slip_remote::{Image, Memory, Range, ReadError, RemoteAddr, Symbols};
use slip_zend::{CodeCache, Engine, PhpReading, SampleOptions};

const IMAGES: [&str; 6] = [
    include_str!("../../fixtures/images/zend-8.2-callbacks.json"),
    include_str!("../../fixtures/images/zend-8.2-fibers_and_generators.json"),
    include_str!("../../fixtures/images/zend-8.2-includes.json"),
    include_str!("../../fixtures/images/zend-8.4-exceptions.json"),
    include_str!("../../fixtures/images/zend-8.4-yield_from.json"),
    include_str!("../../fixtures/images/zend-8.4-closures.json"),
];

/// Bytes of one change: which reading of the target it hits, where in it, and the new value.
const CHANGE_BYTES: usize = 4;

struct Hostile<'a> {
    image: &'a Image,
    changes: &'a [u8],
    /// What lies where the image has nothing; empty if nothing does.
    elsewhere: &'a [u8],
}

impl Memory for Hostile<'_> {
    fn read(&self, addr: RemoteAddr, buf: &mut [u8]) -> Result<(), ReadError> {
        if let Err(error) = self.image.read(addr, buf) {
            if self.elsewhere.is_empty() {
                return Err(error);
            }
            for (at, byte) in buf.iter_mut().enumerate() {
                let at = addr.0.wrapping_add(at as u64) % self.elsewhere.len() as u64;
                *byte = self.elsewhere[at as usize];
            }
        }
        for change in self.changes.chunks_exact(CHANGE_BYTES) {
            // The same address is always changed in the same way.
            let (page, at) = (u64::from(change[0]), u64::from(u16::from_le_bytes([change[1], change[2]])));
            let target = (addr.0 & !0xf_ffff) | (page & 0xf) << 16 | at;
            if let Some(byte) =
                target.checked_sub(addr.0).and_then(|at| buf.get_mut(usize::try_from(at).ok()?))
            {
                *byte = change[3];
            }
        }
        Ok(())
    }
}

impl Symbols for Hostile<'_> {
    fn symbol(&self, name: &str) -> Option<RemoteAddr> {
        self.image.symbol(name).or_else(|| self.image.symbol("executor_globals"))
    }

    fn section(&self, name: &str) -> Option<Range> {
        self.image.section(name)
    }
}

fuzz_target!(|bytes: &[u8]| {
    static PARSED: OnceLock<Vec<Image>> = OnceLock::new();
    let images = PARSED.get_or_init(|| {
        IMAGES.iter().map(|text| serde_json::from_str(text).expect("recorded images are whole")).collect()
    });
    let [which, split, rest @ ..] = bytes else { return };
    let image = &images[usize::from(*which) % images.len()];
    let (changes, elsewhere) = rest.split_at((usize::from(*split) * CHANGE_BYTES).min(rest.len()));
    let hostile = Hostile { image, changes, elsewhere };
    // Changes that keep us from attaching at all teach little.
    let mut code = CodeCache::default();
    let engine = Engine::attach(&hostile, &mut code).or_else(|_| Engine::attach(image, &mut code));
    let Ok(mut engine) = engine else { return };
    let mut interner = Interner::new();
    let mut reading = PhpReading::default();
    for keep_query in [false, true, false] {
        let options = SampleOptions { keep_query };
        if engine.sample(&hostile, &mut interner, &mut code, &options, &mut reading).is_ok() {
            assert!(interner.frames_of(reading.stack.stack).count() <= 70_000);
        }
    }
});
