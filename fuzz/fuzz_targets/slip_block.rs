//! The decoders of blocks of samples and of waits: any bytes are a block or an error, and what is a block survives another
//! round.
#![no_main]

use libfuzzer_sys::fuzz_target;
use slip_record::file::{block, wait_block};

fuzz_target!(|bytes: &[u8]| {
    // Behind the checksum, which nothing would get past.
    samples(bytes);
    waits(bytes);
});

fn samples(bytes: &[u8]) {
    let Ok((samples, requests)) = block::decode_body(bytes) else { return };
    assert!(samples.len() <= (bytes.len() + 4) * block::MAX_SAMPLES_PER_BYTE);
    let again = block::decode(&block::encode(&samples, &requests, None));
    let (samples_again, mut requests_again) = again.expect("what was encoded can be decoded");
    assert_eq!(samples, samples_again);
    for (request, again) in requests.iter().zip(&mut requests_again) {
        // The one time whose difference does not fit into 64 bits is kept as "unknown".
        if again.started_unix_ns == 0 {
            again.started_unix_ns = request.started_unix_ns;
        }
    }
    assert_eq!(requests, requests_again);
}

fn waits(bytes: &[u8]) {
    let Ok(waits) = wait_block::decode_body(bytes) else { return };
    assert!(waits.len() <= (bytes.len() + 4) * wait_block::MAX_WAITS_PER_BYTE);
    let again = wait_block::decode(&wait_block::encode(&waits, None));
    assert_eq!(again.expect("what was encoded can be decoded"), waits);
}
