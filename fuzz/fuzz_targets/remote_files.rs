//! `/proc/PID/maps`, `/proc/PID/stat` and ELF files: paths, names and files come from the target.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let text = String::from_utf8_lossy(data);
    let _ = slip_remote::parse_maps(&text);
    let _ = slip_remote::parse_stat(&text);
    let _ = slip_remote::elf_symbol(data, "_PyRuntime");
});
