//! The CPython reader on hostile memory: a recorded process in which some words are others and, if the input has bytes
//! left for it, every address is readable. No panic, no endless walk, no stack deeper than its bounds.
#![no_main]

use std::sync::OnceLock;

use libfuzzer_sys::fuzz_target;
use slip_cpython::Interpreter;
use slip_model::Interner;
use slip_remote::{Image, Memory, Range, ReadError, RemoteAddr, Symbols};

const IMAGES: [&str; 9] = [
    include_str!("../../fixtures/images/cpython-3.8-subinterpreters.json"),
    include_str!("../../fixtures/images/cpython-3.9-generators.json"),
    include_str!("../../fixtures/images/cpython-3.10-dynamic.json"),
    include_str!("../../fixtures/images/cpython-3.11-subinterpreters.json"),
    include_str!("../../fixtures/images/cpython-3.11-generators.json"),
    include_str!("../../fixtures/images/cpython-3.12-subinterpreters.json"),
    include_str!("../../fixtures/images/cpython-3.13-generators.json"),
    include_str!("../../fixtures/images/cpython-3.14-dynamic.json"),
    include_str!("../../fixtures/images/cpython-3.15-subinterpreters.json"),
];

/// Bytes of one change: number of the word (2), kind, argument (2).
const CHANGE_BYTES: usize = 5;

struct Recorded {
    image: Image,
    /// Addresses of all words that were recorded.
    words: Vec<u64>,
}

impl Recorded {
    fn parse(text: &str) -> Self {
        let file: serde_json::Value = serde_json::from_str(text).expect("recorded images are whole");
        let pieces = file["image"]["pieces"].as_object().expect("an image has pieces");
        let words = pieces.iter().flat_map(|(at, hex)| {
            let at: u64 = at.parse().expect("pieces are named by their address");
            (0..hex.as_str().map_or(0, str::len) as u64 / 16).map(move |word| at + 8 * word)
        });
        let words = words.collect();
        Self { image: serde_json::from_value(file["image"].clone()).expect("an image"), words }
    }

    fn word(&self, number: [u8; 2]) -> u64 {
        self.words[usize::from(u16::from_le_bytes(number)) % self.words.len()]
    }
}

struct Hostile<'a> {
    image: Image,
    /// What lies where the image has nothing; empty if nothing does.
    elsewhere: &'a [u8],
}

impl Memory for Hostile<'_> {
    fn read(&self, addr: RemoteAddr, buf: &mut [u8]) -> Result<(), ReadError> {
        let Err(error) = self.image.read(addr, buf) else { return Ok(()) };
        if self.elsewhere.is_empty() {
            return Err(error);
        }
        for (at, byte) in buf.iter_mut().enumerate() {
            let at = addr.0.wrapping_add(at as u64) % self.elsewhere.len() as u64;
            *byte = self.elsewhere[at as usize];
        }
        Ok(())
    }
}

impl Symbols for Hostile<'_> {
    fn symbol(&self, name: &str) -> Option<RemoteAddr> {
        self.image.symbol(name)
    }

    fn section(&self, name: &str) -> Option<Range> {
        self.image.section(name)
    }

    fn thread_ids(&self) -> Vec<u32> {
        self.image.thread_ids()
    }
}

fuzz_target!(|bytes: &[u8]| {
    static PARSED: OnceLock<Vec<Recorded>> = OnceLock::new();
    let recorded = PARSED.get_or_init(|| IMAGES.iter().map(|text| Recorded::parse(text)).collect());
    let [which, split, rest @ ..] = bytes else { return };
    let recorded = &recorded[usize::from(*which) % recorded.len()];
    let (changes, elsewhere) = rest.split_at((usize::from(*split % 32) * CHANGE_BYTES).min(rest.len()));
    let mut image = recorded.image.clone();
    for change in changes.chunks_exact(CHANGE_BYTES) {
        let (at, argument) = (recorded.word([change[0], change[1]]), [change[3], change[4]]);
        let number = u64::from(u16::from_le_bytes(argument));
        let value = match change[2] % 6 {
            0 => number,
            1 => u64::MAX - number,
            2 => 1 << 63 | number,
            // Loops come from pointers to elsewhere in the image.
            3 | 4 => recorded.word(argument),
            _ => number << 32,
        };
        image.insert(RemoteAddr(at), &value.to_le_bytes());
    }
    let hostile = Hostile { image, elsewhere };
    // Changes that keep us from attaching at all teach little.
    let attached = Interpreter::attach(&hostile).or_else(|_| Interpreter::attach(&recorded.image));
    let Ok(mut python) = attached else { return };
    let (mut interner, mut readings) = (Interner::new(), Vec::new());
    for _ in 0..2 {
        if python.sample(&hostile, &mut interner, &mut readings).is_err() {
            return;
        }
        for reading in &readings {
            assert!(interner.frames_of(reading.stack).count() <= 16_384);
        }
    }
});
