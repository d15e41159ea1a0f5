//! What a process says of its malloc: memory of the target.
#![no_main]

use libfuzzer_sys::fuzz_target;
use slip_record::{MallocClass, parse_malloc_page};

fuzz_target!(|bytes: &[u8]| {
    let Ok(page) = parse_malloc_page(bytes) else { return };
    assert!(page.classes.len() <= 64);
    assert!(page.used_classes().count() <= page.classes.len());
    let _ = (page.sum(MallocClass::bytes), page.sum(MallocClass::exchanges), page.large_bytes());
    let _ = (page.large_blocks(), page.faults_avoided());
});
