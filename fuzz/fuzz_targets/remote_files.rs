//! `/proc/PID/maps` and ELF files: both come from the target.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let _ = slip_remote::parse_maps(&String::from_utf8_lossy(data));
    let _ = slip_remote::elf_symbol(data, "_PyRuntime");
});
