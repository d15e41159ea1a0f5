//! Where in an ELF file what its symbols name lies.

use std::fs::File;
use std::os::unix::fs::FileExt as _;

use object::read::elf::{FileHeader, ProgramHeader, SectionHeader, Sym};
use object::{Endianness, elf, pod};

type Header = elf::FileHeader64<Endianness>;
type Segment = elf::ProgramHeader64<Endianness>;
type Section = elf::SectionHeader64<Endianness>;
type Symbol = elf::Sym64<Endianness>;

/// Largest table that is read: the file is the target's, and may say what it likes.
const MAX_TABLE_BYTES: u64 = 4 << 20;

/// Bytes from the begin of a library's file to what these symbols of its dynamic table name; `None` unless it has all of them.
pub fn symbol_offsets<const N: usize>(file: &File, names: [&str; N]) -> Option<[u64; N]> {
    let block = |at: u64, bytes: u64| -> Option<Vec<u8>> {
        let mut buffer = vec![0; usize::try_from(bytes).ok().filter(|_| bytes <= MAX_TABLE_BYTES)?];
        file.read_exact_at(&mut buffer, at).ok().map(|()| buffer)
    };
    let head = block(0, size_of::<Header>() as u64)?;
    let header = Header::parse(&head[..]).ok()?;
    let endian = header.endian().ok()?;
    if usize::from(header.e_phentsize(endian)) != size_of::<Segment>()
        || usize::from(header.e_shentsize(endian)) != size_of::<Section>()
    {
        return None;
    }
    let table = |at: u64, count: u16, bytes: usize| block(at, u64::from(count) * bytes as u64);
    let segments = table(header.e_phoff(endian), header.e_phnum(endian), size_of::<Segment>())?;
    let segments: &[Segment] = pod::slice_from_all_bytes(&segments).ok()?;
    let sections = table(header.e_shoff(endian), header.e_shnum(endian), size_of::<Section>())?;
    let sections: &[Section] = pod::slice_from_all_bytes(&sections).ok()?;
    let dynamic = sections.iter().find(|section| section.sh_type(endian) == elf::SHT_DYNSYM)?;
    let texts = sections.get(usize::try_from(dynamic.sh_link(endian)).ok()?)?;
    let symbols = block(dynamic.sh_offset(endian), dynamic.sh_size(endian))?;
    let symbols: &[Symbol] = pod::slice_from_all_bytes(&symbols).ok()?;
    let texts = block(texts.sh_offset(endian), texts.sh_size(endian))?;
    let is_named = |symbol: &Symbol, name: &str| {
        let rest = usize::try_from(symbol.st_name(endian)).ok().and_then(|at| texts.get(at..));
        let after = rest.and_then(|rest| rest.strip_prefix(name.as_bytes()));
        symbol.st_value(endian) != 0 && after.and_then(<[u8]>::first) == Some(&0)
    };
    let offset_of = |name: &str| {
        let symbol = symbols.iter().find(|symbol| is_named(symbol, name))?;
        segments.iter().filter(|segment| segment.p_type(endian) == elf::PT_LOAD).find_map(|segment| {
            let within = symbol.st_value(endian).checked_sub(segment.p_vaddr(endian))?;
            let is_in_file = within < segment.p_filesz(endian);
            segment.p_offset(endian).checked_add(within).filter(|_| is_in_file)
        })
    };
    let mut offsets = [0; N];
    for (offset, name) in offsets.iter_mut().zip(names) {
        *offset = offset_of(name)?;
    }
    Some(offsets)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "test code")]
mod tests {
    use std::io::Write as _;

    use super::*;
    use crate::{open_mapped, parse_maps};

    #[test]
    fn functions_of_a_library_are_where_its_code_is() {
        let maps = parse_maps(&std::fs::read_to_string("/proc/self/maps").unwrap());
        let code = maps
            .iter()
            .find(|mapping| mapping.executable && mapping.path.rsplit('/').next() == Some("libc.so.6"))
            .unwrap();
        let (file, _) = open_mapped(std::process::id(), code).unwrap();
        let [malloc, free] = symbol_offsets(&file, ["malloc", "free"]).unwrap();
        let in_code = |offset: u64| {
            offset.checked_sub(code.file_offset).is_some_and(|within| within < code.end - code.start)
        };
        assert!(in_code(malloc) && in_code(free) && malloc != free);
        assert_eq!(symbol_offsets(&file, ["malloc", "mallo"]), None);
    }

    #[test]
    fn what_is_damaged_has_none() {
        let own = std::fs::read("/proc/self/exe").unwrap();
        for length in [0, 16, 63, 64, 200, 4096] {
            let mut file = tempfile();
            file.write_all(&own[..length.min(own.len())]).unwrap();
            assert_eq!(symbol_offsets(&file, ["malloc"]), None, "{length}");
        }
    }

    /// Without a name.
    fn tempfile() -> File {
        let path = std::env::temp_dir().join(format!("slip-remote-offsets.{}", std::process::id()));
        let file = File::options().read(true).write(true).create(true).truncate(true).open(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        file
    }
}
