//! Symbols and sections of the ELF files that a target has mapped.

use std::collections::HashMap;
use std::fs::File;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, OnceLock};

use object::read::elf::{FileHeader, ProgramHeader, SectionHeader, Sym};
use object::{Endianness, ReadCache, ReadRef, elf};

use crate::Mapping;

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
const WANTED: [&str; 11] = [
    "_PyRuntime",
    "Py_Version",
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

/// Largest table of symbols that is read: 2.8 million of them, a hundred times those of a debug build of CPython.
const MAX_TABLE_BYTES: u64 = 64 << 20;

/// Sections that interpreters are found by.
const WANTED_SECTIONS: [&str; 1] = [".PyRuntime"];

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
        let reader = ReadCache::new(file);
        let Some(facts) = parse(&reader) else { continue };
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
    parse(data)?.symbol(name)
}

/// Parses an ELF file; `None` if it is none or is damaged.
pub(crate) fn parse<'data, R: ReadRef<'data>>(data: R) -> Option<ElfFacts> {
    let header = elf::FileHeader64::<Endianness>::parse(data).ok()?;
    let endian = header.endian().ok()?;
    if header.e_machine(endian) != elf::EM_X86_64 {
        return None;
    }
    let mut facts = ElfFacts::default();
    let segments = header.program_headers(endian, data).ok()?;
    let mut loaded = segments.iter().filter(|segment| segment.p_type(endian) == elf::PT_LOAD).peekable();
    let first = *loaded.peek()?;
    let code = loaded.find(|segment| segment.p_flags(endian) & elf::PF_X != 0).unwrap_or(first);
    facts.base_vaddr = first.p_vaddr(endian).checked_sub(first.p_offset(endian))?;
    facts.code_base_vaddr = code.p_vaddr(endian).checked_sub(code.p_offset(endian))?;
    let sections = header.sections(endian, data).ok()?;
    for section in sections.iter() {
        let Ok(name) = sections.section_name(endian, section) else { continue };
        if let Some(name) = WANTED_SECTIONS.iter().find(|wanted| wanted.as_bytes() == name) {
            facts.sections.insert((*name).to_owned(), (section.sh_addr(endian), section.sh_size(endian)));
        }
    }
    // The dynamic table is what a stripped distribution build still has; a full one adds nothing that we look for,
    // except in programs that are linked without exporting (`-rdynamic`) anything.
    for kind in [elf::SHT_DYNSYM, elf::SHT_SYMTAB] {
        let mut tables = sections.iter().filter(|section| section.sh_type(endian) == kind);
        if tables.any(|section| section.sh_size(endian) > MAX_TABLE_BYTES) {
            continue;
        }
        let Ok(table) = sections.symbols(endian, data, kind) else { continue };
        for symbol in table.iter() {
            if symbol.st_value(endian) == 0 {
                continue;
            }
            let Ok(name) = symbol.name(endian, table.strings()) else { continue };
            if let Some(name) = WANTED.iter().find(|wanted| wanted.as_bytes() == name) {
                facts.symbols.entry((*name).to_owned()).or_insert(symbol.st_value(endian));
            }
        }
    }
    Some(facts)
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
}
