//! What names the functions of native code: packed symbols, names of debug files, what compilers say of lines, and what they tell `perf`.
#![no_main]

use libfuzzer_sys::fuzz_target;
use slip_native::{DebugInfo, Elf, PerfMap, build_id, common_link, parse_debug_link};

/// Sections of a file that the input is cut into, and one of names.
const SECTIONS: [&str; 9] = [
    ".debug_info",
    ".debug_abbrev",
    ".debug_line",
    ".debug_str",
    ".debug_rnglists",
    ".debug_ranges",
    ".gnu_debugdata",
    ".debug_addr",
    ".gnu_debugaltlink",
];

const HEAD_BYTES: usize = 64;
const SECTION_BYTES: usize = 64;
const FLAG_COMPRESSED: u64 = 0x800;

fuzz_target!(|bytes: &[u8]| {
    if let Some(link) = parse_debug_link(bytes) {
        assert!(!link.name.is_empty() && !link.name.contains('/') && link.name != "..");
    }
    let map = PerfMap::parse(bytes.to_vec());
    // Lengths of the sections, which of them are compressed, and an address.
    let Some((lens, rest)) = bytes.split_first_chunk::<18>() else { return };
    let Some((compressed, rest)) = rest.split_first_chunk::<1>() else { return };
    let Some((addr, rest)) = rest.split_first_chunk::<2>() else { return };
    let addr = u64::from(u16::from_le_bytes(*addr));
    let _ = map.function_at(addr);
    let lens = lens.as_chunks::<2>().0.iter().map(|len| usize::from(u16::from_le_bytes(*len)));
    let file = with_sections(rest, lens, compressed[0]);
    let read = |at: u64, buf: &mut [u8]| {
        let from = usize::try_from(at).ok();
        let found = from.and_then(|from| file.get(from..from.checked_add(buf.len())?));
        found.map(|found| buf.copy_from_slice(found)).is_some()
    };
    if let Some(elf) = Elf::parse(&read) {
        let _ = (elf.function_at(addr), elf.debug_file().is_some(), elf.has_lines());
    }
    let _ = (common_link(&read), build_id(&read));
    // A file that has something in common with itself.
    let common = (addr % 2 == 1).then_some(&read as _);
    if let Some(info) = DebugInfo::read(&read, common) {
        for addr in [addr, 0x1000, 0x1010] {
            assert!(info.frames_at(addr).len() <= 65);
        }
    }
});

/// An ELF file with these sections, one behind the other.
fn with_sections(bytes: &[u8], lens: impl Iterator<Item = usize>, compressed: u8) -> Vec<u8> {
    let names_at = HEAD_BYTES + (SECTIONS.len() + 2) * SECTION_BYTES;
    let mut names = vec![0];
    let mut rows = vec![[0_u64; 8]; 2];
    let mut data: Vec<u8> = Vec::new();
    let names_bytes = 1 + SECTIONS.iter().map(|name| name.len() + 1).sum::<usize>();
    let mut rest = bytes;
    for (number, (name, len)) in SECTIONS.iter().zip(lens).enumerate() {
        let (own, behind) = rest.split_at(len.min(rest.len()));
        rest = behind;
        // Name and kind, flags, address, place, length, and what is not read.
        let flags = if number < 8 && compressed >> number & 1 == 1 { FLAG_COMPRESSED } else { 0 };
        let at = names_at + names_bytes + data.len();
        if !own.is_empty() {
            rows.push([names.len() as u64 | 1 << 32, flags, 0, at as u64, own.len() as u64, 0, 1, 0]);
        }
        data.extend(own);
        names.extend(name.as_bytes());
        names.push(0);
    }
    rows[1] = [3 << 32, 0, 0, names_at as u64, names.len() as u64, 0, 1, 0];
    let mut file = vec![0; HEAD_BYTES];
    let mut put = |at: usize, field: &[u8]| file[at..at + field.len()].copy_from_slice(field);
    put(0, b"\x7fELF\x02\x01\x01");
    put(18, &62_u16.to_le_bytes());
    put(20, &1_u32.to_le_bytes());
    put(40, &(HEAD_BYTES as u64).to_le_bytes());
    let count = rows.len() as u16;
    for (at, number) in [(52, 64_u16), (54, 56), (58, 64), (60, count), (62, 1)] {
        put(at, &number.to_le_bytes());
    }
    file.extend(rows.iter().flatten().flat_map(|field| field.to_le_bytes()));
    file.resize(names_at, 0);
    file.extend(names);
    file.extend(data);
    file
}
