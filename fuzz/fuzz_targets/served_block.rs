//! The decoder of blocks of a budget's requests: any bytes are a block or an error, and what is a block survives another round.
#![no_main]

use libfuzzer_sys::fuzz_target;
use slip_record::file::served_block;

fuzz_target!(|bytes: &[u8]| {
    // Behind the checksum, which nothing would get past.
    let Ok(served) = served_block::decode_body(bytes) else { return };
    assert!(served.len() <= (bytes.len() + 4) * served_block::MAX_SERVED_PER_BYTE);
    let again = served_block::decode(&served_block::encode(&served, None));
    assert_eq!(again.expect("what was encoded can be decoded"), served);
});
