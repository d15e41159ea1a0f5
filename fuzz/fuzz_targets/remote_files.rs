//! `/proc/PID/maps`, `smaps`, `pagemap` and `stat`, and ELF files: paths, names and files come from the target.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let text = String::from_utf8_lossy(data);
    let _ = slip_remote::parse_maps(&text);
    assert!(slip_remote::parse_smaps(&text).len() <= text.lines().count());
    let _ = slip_remote::parse_stat(&text);
    let _ = slip_remote::elf_symbol(data, "_PyRuntime");
    let _ = slip_remote::parse_program(data);
    let entries: Vec<u64> =
        data.chunks_exact(8).map(|entry| u64::from_ne_bytes(entry.try_into().unwrap())).collect();
    let (own, parent) = entries.split_at(entries.len() / 2);
    let found = slip_remote::compare_pages(own, parent);
    assert!(found.shared + found.copied + found.own <= own.len() as u64);
});
