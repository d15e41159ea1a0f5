//! What answers at the socket of a pool: bytes of anybody who listens there, and in them what a script of ours has printed.
#![no_main]

use libfuzzer_sys::fuzz_target;
use slip_record::{parse_answer, read_response};

/// What is kept of an answer at most.
const MAX_BODY: usize = 1 << 20;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(response) = read_response(bytes) {
        assert!(response.body.len() <= bytes.len().min(MAX_BODY) && response.messages.len() <= 4 << 10);
        let _ = parse_answer(&response.body);
    }
    // And without the records around it, which are not easily guessed.
    if let Some(answer) = parse_answer(bytes) {
        assert!(answer.extensions.len() <= 512 && answer.version.chars().count() <= 256);
    }
});
