//! What a worker says of the connections that it keeps: memory of the target.
#![no_main]

use libfuzzer_sys::fuzz_target;
use slip_record::{KeptServer, parse_kept};

fuzz_target!(|bytes: &[u8]| {
    let servers = parse_kept(bytes).unwrap_or_default();
    assert!(servers.len() <= 16);
    let mut sum = KeptServer::default();
    for server in &servers {
        sum.add(server);
    }
    let _ = sum.saved_ns();
});
