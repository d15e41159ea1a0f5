//! Symbols and sections of the ELF files that a target has mapped.

use std::collections::HashMap;
use std::fs::File;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, OnceLock};

use object::read::elf::{FileHeader, ProgramHeader, SectionHeader, Sym};
use object::{Endianness, elf, pod};

use crate::Mapping;

type Header = elf::FileHeader64<Endianness>;
type Segment = elf::ProgramHeader64<Endianness>;
type Section = elf::SectionHeader64<Endianness>;
type Symbol = elf::Sym64<Endianness>;

/// Symbols and sections of one file, by virtual address as the file has it.
#[derive(Debug, Default)]
pub(crate) struct ElfFacts {
    symbols: HashMap<String, u64>,
    sections: HashMap<String, (u64, u64)>,
    /// Virtual address minus file offset of the first segment that is loaded, and of the first that holds code.
    base_vaddr: u64,
    code_base_vaddr: u64,
}

/// Names that interpreters are found by. Keeping only these makes a table of a few entries out of tens of thousands.
const WANTED: [&str; 13] = [
    "_PyRuntime",
    "Py_Version",
    "PyCode_NewWithPosOnlyArgs",
    "_Py_NoneStruct",
    "executor_globals",
    "executor_globals_offset",
    "sapi_globals",
    "core_globals",
    "compiler_globals",
    "basic_functions_module",
    "sapi_module",
    "module_registry",
    "zend_flf_functions",
];

/// Largest table of symbols that is read: 1.4 million of them, fifty times those of a debug build of CPython.
const MAX_TABLE_BYTES: u64 = 32 << 20;

/// Largest table of names that is read, those of sections or those of symbols.
const MAX_NAMES_BYTES: u64 = 64 << 20;

/// Sections that interpreters are found by.
const WANTED_SECTIONS: [&str; 2] = [".PyRuntime", ".AsyncioDebug"];

impl ElfFacts {
    pub(crate) fn symbol(&self, name: &str) -> Option<u64> {
        self.symbols.get(name).copied()
    }

    pub(crate) fn section(&self, name: &str) -> Option<(u64, u64)> {
        self.sections.get(name).copied()
    }

    /// What is to be added to the addresses of the file, given a mapping of it.
    pub(crate) fn bias(&self, mapping: &Mapping) -> u64 {
        let base_vaddr = if mapping.executable { self.code_base_vaddr } else { self.base_vaddr };
        mapping.start.wrapping_sub(mapping.file_offset).wrapping_sub(base_vaddr)
    }

    /// Whether the file has anything that an interpreter is found by.
    pub(crate) fn is_empty(&self) -> bool {
        self.symbols.is_empty() && self.sections.is_empty()
    }
}

/// Device, inode, modification time and size: the same file as long as they stay the same.
type FileKey = (u64, u64, i64, i64, u64);

/// Reads the facts of the first of `paths` that is the mapped file: `inode` is compared unless it is 0.
///
/// Workers of a pool share their binaries, so what was read is kept for the life of the process. `None` if no path
/// leads to the file or it is not a 64-bit ELF file.
pub(crate) fn read_facts(paths: &[PathBuf], inode: u64) -> Option<Arc<ElfFacts>> {
    static CACHE: OnceLock<Mutex<HashMap<FileKey, Arc<ElfFacts>>>> = OnceLock::new();
    let cache = CACHE.get_or_init(Mutex::default);
    for path in paths {
        // A target may put a pipe in the place of its file: opening that would wait for ever.
        let Ok(file) = File::options().read(true).custom_flags(libc::O_NONBLOCK).open(path) else { continue };
        let Ok(meta) = file.metadata() else { continue };
        if !meta.is_file() || (inode != 0 && meta.ino() != inode) {
            continue;
        }
        let key = (meta.dev(), meta.ino(), meta.mtime(), meta.mtime_nsec(), meta.size());
        if let Ok(kept) = cache.lock()
            && let Some(facts) = kept.get(&key)
        {
            return Some(facts.clone());
        }
        let Some(facts) = parse(&|at, buf| file.read_exact_at(buf, at).is_ok()) else { continue };
        let facts = Arc::new(facts);
        if let Ok(mut kept) = cache.lock() {
            kept.insert(key, facts.clone());
        }
        return Some(facts);
    }
    None
}

/// Virtual address of a symbol that interpreters are found by, in an ELF file; for tests of the parser.
pub fn elf_symbol(data: &[u8], name: &str) -> Option<u64> {
    let read = |at: u64, buf: &mut [u8]| {
        let from = usize::try_from(at).ok();
        match from.and_then(|from| data.get(from..from.checked_add(buf.len())?)) {
            Some(bytes) => {
                buf.copy_from_slice(bytes);
                true
            }
            None => false,
        }
    };
    parse(&read)?.symbol(name)
}

/// Reads the bytes of a file from an offset on; false if they are not all there.
type ReadAt<'a> = dyn Fn(u64, &mut [u8]) -> bool + 'a;

/// Parses an ELF file; `None` if it is none or is damaged.
///
/// The file is the target's, and may be as large and say as much as it likes: what is read of it are a few blocks, each
/// with a bound.
fn parse(read: &ReadAt<'_>) -> Option<ElfFacts> {
    let block = |at: u64, len: u64, limit: u64| -> Option<Vec<u8>> {
        let mut bytes = vec![0; usize::try_from(len).ok().filter(|_| len <= limit)?];
        read(at, &mut bytes).then_some(bytes)
    };
    let head = block(0, size_of::<Header>() as u64, u64::MAX)?;
    let header = Header::parse(&head[..]).ok()?;
    let endian = header.endian().ok()?;
    if header.e_machine(endian) != elf::EM_X86_64
        || usize::from(header.e_phentsize(endian)) != size_of::<Segment>()
    {
        return None;
    }
    let mut facts = ElfFacts::default();
    // The count has 16 bits: that is bound enough, here and for the sections.
    let segments_len = u64::from(header.e_phnum(endian)) * size_of::<Segment>() as u64;
    let segments = block(header.e_phoff(endian), segments_len, u64::MAX)?;
    let segments: &[Segment] = pod::slice_from_all_bytes(&segments).ok()?;
    let mut loaded = segments.iter().filter(|segment| segment.p_type(endian) == elf::PT_LOAD).peekable();
    let first = *loaded.peek()?;
    let code = loaded.find(|segment| segment.p_flags(endian) & elf::PF_X != 0).unwrap_or(first);
    facts.base_vaddr = first.p_vaddr(endian).checked_sub(first.p_offset(endian))?;
    facts.code_base_vaddr = code.p_vaddr(endian).checked_sub(code.p_offset(endian))?;

    if usize::from(header.e_shentsize(endian)) != size_of::<Section>() {
        return Some(facts);
    }
    let sections_len = u64::from(header.e_shnum(endian)) * size_of::<Section>() as u64;
    let sections = block(header.e_shoff(endian), sections_len, u64::MAX)?;
    let sections: &[Section] = pod::slice_from_all_bytes(&sections).ok()?;
    let names_of = |index: u32| -> Option<Vec<u8>> {
        let names = sections.get(usize::try_from(index).ok()?)?;
        let is_names = names.sh_type(endian) == elf::SHT_STRTAB;
        is_names.then(|| block(names.sh_offset(endian), names.sh_size(endian), MAX_NAMES_BYTES))?
    };
    if let Some(names) = names_of(header.e_shstrndx(endian).into()) {
        for section in sections {
            if let Some(name) = known_name(&WANTED_SECTIONS, &names, section.sh_name(endian)) {
                facts.sections.insert(name.to_owned(), (section.sh_addr(endian), section.sh_size(endian)));
            }
        }
    }
    // The dynamic table is what a stripped distribution build still has; a full one adds nothing that we look for,
    // except in programs that are linked without exporting (`-rdynamic`) anything.
    for kind in [elf::SHT_DYNSYM, elf::SHT_SYMTAB] {
        let Some(table) = sections.iter().find(|section| section.sh_type(endian) == kind) else { continue };
        let symbols = block(table.sh_offset(endian), table.sh_size(endian), MAX_TABLE_BYTES);
        let (Some(symbols), Some(names)) = (symbols, names_of(table.sh_link(endian))) else { continue };
        let Ok(symbols) = pod::slice_from_all_bytes::<Symbol>(&symbols) else { continue };
        for symbol in symbols {
            if symbol.st_value(endian) == 0 {
                continue;
            }
            if let Some(name) = known_name(&WANTED, &names, symbol.st_name(endian)) {
                facts.symbols.entry(name.to_owned()).or_insert(symbol.st_value(endian));
            }
        }
    }
    Some(facts)
}

/// Which of the names that we look for stands at `at`.
fn known_name(wanted: &[&'static str], names: &[u8], at: u32) -> Option<&'static str> {
    let rest = names.get(usize::try_from(at).ok()?..)?;
    let stands = |name: &str| rest.strip_prefix(name.as_bytes()).is_some_and(|rest| rest.first() == Some(&0));
    wanted.iter().copied().find(|name| stands(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pipe_in_the_place_of_a_file_is_not_waited_for() {
        let path = std::env::temp_dir().join(format!("slip-remote-pipe.{}", std::process::id()));
        let made = std::process::Command::new("mkfifo").arg(&path).status().unwrap();
        assert!(made.success());
        let facts = read_facts(std::slice::from_ref(&path), 0);
        std::fs::remove_file(&path).unwrap();
        assert!(facts.is_none());
    }

    /// The begin of an ELF file with two tables of symbols and one of names, each of `size` bytes.
    fn with_tables(size: u64) -> Vec<u8> {
        let mut bytes = vec![0; 64];
        let mut put = |at: usize, field: &[u8]| bytes[at..at + field.len()].copy_from_slice(field);
        put(0, b"\x7fELF\x02\x01\x01");
        put(18, &elf::EM_X86_64.to_le_bytes());
        put(20, &1_u32.to_le_bytes());
        put(32, &64_u64.to_le_bytes());
        put(40, &(64 + 56_u64).to_le_bytes());
        for (at, number) in [(52, 64_u16), (54, 56), (56, 1), (58, 64), (60, 4), (62, 1)] {
            put(at, &number.to_le_bytes());
        }
        let mut segment = [0; 56];
        segment[..4].copy_from_slice(&elf::PT_LOAD.to_le_bytes());
        bytes.extend(segment);
        for (kind, link) in
            [(elf::SHT_NULL, 0), (elf::SHT_STRTAB, 0), (elf::SHT_DYNSYM, 1), (elf::SHT_SYMTAB, 1_u32)]
        {
            let mut section = [0; 64];
            section[4..8].copy_from_slice(&kind.to_le_bytes());
            section[32..40].copy_from_slice(&size.to_le_bytes());
            section[40..44].copy_from_slice(&link.to_le_bytes());
            bytes.extend(section);
        }
        bytes
    }

    #[test]
    fn tables_of_any_size_cost_little() {
        /// Of the file, which is nearly all holes.
        const FILE_BYTES: u64 = 1 << 40;
        for size in [24, MAX_TABLE_BYTES / 24 * 24, MAX_TABLE_BYTES + 24, FILE_BYTES, u64::MAX] {
            let data = with_tables(size);
            let asked = std::cell::Cell::new(0);
            let read = |at: u64, buf: &mut [u8]| {
                asked.set(asked.get() + buf.len() as u64);
                for (at, byte) in (at..).zip(&mut *buf).take(data.len()) {
                    *byte = usize::try_from(at).ok().and_then(|at| data.get(at)).copied().unwrap_or(0);
                }
                at + (buf.len() as u64) < FILE_BYTES
            };
            assert!(parse(&read).is_some_and(|facts| facts.is_empty()), "{size}");
            assert!(asked.get() <= 2 * (MAX_TABLE_BYTES + MAX_NAMES_BYTES) + (64 << 10), "{size}");
        }
    }
}
