//! What is needed of an ELF file.

use object::read::elf::{FileHeader as _, ProgramHeader as _};
use object::{Endianness, elf, pod};

use crate::sections::{DebugLink, ENDIAN, Sections};
use crate::symbols::Symbols;
use crate::tables::Tables;
use crate::xz;

pub(crate) type Header = elf::FileHeader64<Endianness>;
type Segment = elf::ProgramHeader64<Endianness>;

/// Of x86-64.
const PAGE_BYTES: u64 = 4_096;

/// Largest file within a file that is looked into, packed and unpacked: that of a browser has 3 MiB of 14.
const MAX_PACKED_BYTES: u64 = 16 << 20;
const MAX_UNPACKED_BYTES: u32 = 64 << 20;

/// Reads the bytes of a file from an offset on; false if they are not all there.
pub type ReadAt<'a> = dyn Fn(u64, &mut [u8]) -> bool + 'a;

/// So many bytes from there on, unless they are more than `limit`.
pub(crate) fn block(read: &ReadAt<'_>, at: u64, len: u64, limit: u64) -> Option<Vec<u8>> {
    let mut bytes = vec![0; usize::try_from(len).ok().filter(|_| len <= limit)?];
    read(at, &mut bytes).then_some(bytes)
}

/// A part of a file that is mapped.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Load {
    pub(crate) vaddr: u64,
    pub(crate) offset: u64,
    pub(crate) bytes: u64,
    executable: bool,
}

/// An ELF file of x86-64: how its functions are unwound, and what they are called.
#[derive(Clone, Debug)]
pub struct Elf {
    loads: Vec<Load>,
    pub(crate) tables: Option<Tables>,
    symbols: Symbols,
    /// It has its own table of all functions, and what tells their lines.
    has_symbols: bool,
    has_lines: bool,
    build_id: Vec<u8>,
    link: Option<DebugLink>,
}

/// Which other file has what is missing in one.
#[derive(Clone, Copy, Debug)]
pub struct DebugFile<'a> {
    /// The number of its build; empty if it has none.
    pub build_id: &'a [u8],
    /// Its name.
    pub link: Option<&'a DebugLink>,
}

/// What a debug file has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// The names of all functions.
    pub symbols: bool,
    /// What [`crate::DebugInfo`] reads.
    pub lines: bool,
}

impl Elf {
    /// Reads what is needed of a file; `None` if it is no such file.
    ///
    /// The file is the target's, and may be as large and say as much as it likes: what is read of it are a few blocks, each with a bound.
    pub fn parse(read: &ReadAt<'_>) -> Option<Self> {
        let head = head(read)?;
        let header = header(&head)?;
        let endian = ENDIAN;
        if header.e_machine(endian) != elf::EM_X86_64
            || usize::from(header.e_phentsize(endian)) != size_of::<Segment>()
        {
            return None;
        }
        // The count has 16 bits: that is bound enough.
        let segments_len = u64::from(header.e_phnum(endian)) * size_of::<Segment>() as u64;
        let segments = block(read, header.e_phoff(endian), segments_len, u64::MAX)?;
        let segments: &[Segment] = pod::slice_from_all_bytes(&segments).ok()?;
        let loaded = segments.iter().filter(|segment| segment.p_type(endian) == elf::PT_LOAD);
        let loads: Vec<Load> = loaded
            .map(|segment| Load {
                vaddr: segment.p_vaddr(endian),
                offset: segment.p_offset(endian),
                bytes: segment.p_filesz(endian),
                executable: segment.p_flags(endian) & elf::PF_X != 0,
            })
            .collect();
        let index = segments.iter().find(|segment| segment.p_type(endian) == elf::PT_GNU_EH_FRAME);
        let tables = index.and_then(|index| Tables::read(read, &loads, index.p_vaddr(endian)));
        let sections = Sections::read(read, header);
        let (mut symbols, has_symbols) = Symbols::read(read, &sections);
        if !has_symbols && let Some(hidden) = packed_symbols(read, &sections) {
            // These are the functions that are not exported; the others are in the table that is not packed.
            symbols = hidden.with(symbols);
        }
        Some(Self {
            loads,
            tables,
            symbols,
            has_symbols,
            has_lines: has_lines(&sections),
            build_id: sections.build_id(read),
            link: sections.debug_link(read),
        })
    }

    /// Which file has what was stripped from this one, if something was and it says which.
    pub fn debug_file(&self) -> Option<DebugFile<'_>> {
        let is_named = !self.build_id.is_empty() || self.link.is_some();
        let is_wanted = is_named && !(self.has_symbols && self.has_lines);
        is_wanted.then_some(DebugFile { build_id: &self.build_id, link: self.link.as_ref() })
    }

    /// Whether it says itself which lines its functions are of.
    pub fn has_lines(&self) -> bool {
        self.has_lines
    }

    /// Takes the names of functions from the file that has what was stripped from this one, and says what it has. One of another build has
    /// nothing; if `is_checked`, it need not say of which it is.
    ///
    /// As with [`Elf::parse`], what is read has bounds.
    pub fn add_debug_file(&mut self, read: &ReadAt<'_>, is_checked: bool) -> Found {
        let Some(head) = head(read) else { return Found::default() };
        let Some(header) = header(&head) else { return Found::default() };
        let sections = Sections::read(read, header);
        let build_id = sections.build_id(read);
        let is_same = !build_id.is_empty() && build_id == self.build_id;
        if !(is_same || is_checked && (build_id.is_empty() || self.build_id.is_empty())) {
            return Found::default();
        }
        let mut found = Found { symbols: self.has_symbols, lines: has_lines(&sections) };
        if !self.has_symbols
            && let Some(symbols) = Symbols::read_all(read, &sections)
        {
            self.symbols = symbols;
            (self.has_symbols, found.symbols) = (true, true);
        }
        found
    }

    /// What is to be added to the addresses of the file, where its code is mapped from `file_offset` on, and to `start`; `None` if that is not
    /// code of it.
    pub fn bias(&self, start: u64, file_offset: u64) -> Option<u64> {
        let load = self.loads.iter().filter(|load| load.executable).find(|load| {
            let begin = load.offset & !(PAGE_BYTES - 1);
            file_offset >= begin && file_offset - begin < load.bytes.saturating_add(load.offset - begin)
        })?;
        let vaddr = file_offset.wrapping_sub(load.offset).wrapping_add(load.vaddr);
        Some(start.wrapping_sub(vaddr))
    }

    /// What is kept of it in memory.
    pub fn len_bytes(&self) -> u64 {
        self.tables.as_ref().map_or(0, Tables::len_bytes).saturating_add(self.symbols.len_bytes())
    }

    /// Where the function begins that this address of the file is in; `None` if no table says.
    pub fn begin_of(&self, vaddr: u64) -> Option<u64> {
        self.tables.as_ref()?.begin_of(vaddr)
    }

    /// Whether what is at this address is a part of a function that the compiler has put apart from the rest, by the tables.
    pub fn is_part(&self, vaddr: u64) -> bool {
        let tables = self.tables.as_ref();
        tables.is_some_and(|tables| tables.is_part(vaddr, &mut gimli::UnwindContext::new()))
    }

    /// The function that this address of the file is in, as people call it.
    pub fn function_at(&self, vaddr: u64) -> Option<String> {
        self.symbols.at(vaddr).map(crate::readable)
    }
}

/// The bytes of a file's header.
pub(crate) fn head(read: &ReadAt<'_>) -> Option<Vec<u8>> {
    block(read, 0, size_of::<Header>() as u64, u64::MAX)
}

/// The header in these bytes, if it is that of a file as we read them.
pub(crate) fn header(head: &[u8]) -> Option<&Header> {
    let header = Header::parse(head).ok()?;
    header.endian().ok().filter(|endian| *endian == ENDIAN).map(|_| header)
}

fn has_lines(sections: &Sections) -> bool {
    sections.named(".debug_info").is_some() && sections.named(".debug_abbrev").is_some()
}

/// What a distribution packs of the symbols before it strips a file (MiniDebugInfo): those of functions that are not exported.
fn packed_symbols(read: &ReadAt<'_>, sections: &Sections) -> Option<Symbols> {
    let packed = sections.contents(read, ".gnu_debugdata", MAX_PACKED_BYTES)?;
    let file = xz::unpack(&packed, MAX_UNPACKED_BYTES)?;
    let read = |at: u64, buf: &mut [u8]| {
        let from = usize::try_from(at).ok();
        let found = from.and_then(|from| file.get(from..from.checked_add(buf.len())?));
        found.map(|found| buf.copy_from_slice(found)).is_some()
    };
    Symbols::read_all(&read, &Sections::read(&read, header(&head(&read)?)?))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "test code")]
mod tests {
    use std::fs::File;
    use std::os::unix::fs::FileExt as _;

    use proptest::prelude::*;

    use super::*;

    fn own() -> (Elf, File) {
        let file = File::open("/proc/self/exe").unwrap();
        let elf = Elf::parse(&|at, buf| file.read_exact_at(buf, at).is_ok()).unwrap();
        (elf, file)
    }

    #[test]
    fn our_own_functions_have_names_and_tables() {
        let (elf, _) = own();
        assert!(elf.tables.is_some());
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let exe = std::fs::read_link("/proc/self/exe").unwrap();
        let line = maps.lines().find(|line| line.contains(" r-xp ") && line.ends_with(exe.to_str().unwrap()));
        let mut fields = line.unwrap().split([' ', '-']);
        let start = u64::from_str_radix(fields.next().unwrap(), 16).unwrap();
        let offset = u64::from_str_radix(fields.nth(3).unwrap(), 16).unwrap();
        let bias = elf.bias(start, offset).unwrap();
        let here = our_own_functions_have_names_and_tables as fn() as usize as u64;
        let name = elf.function_at(here.wrapping_sub(bias)).unwrap();
        assert!(name.ends_with("elf::tests::our_own_functions_have_names_and_tables"), "{name}");
        assert_eq!(elf.bias(start, u64::MAX), None);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]
        #[test]
        fn a_file_that_was_damaged_is_read_or_refused(
            changes in prop::collection::vec((0..4_096_u64, any::<u8>()), 1..40),
            vaddr in any::<u64>(),
        ) {
            let (_, file) = own();
            let read = |at: u64, buf: &mut [u8]| {
                let is_there = file.read_exact_at(buf, at).is_ok();
                for (place, byte) in &changes {
                    if let Some(changed) = place.checked_sub(at).and_then(|at| buf.get_mut(usize::try_from(at).ok()?)) {
                        *changed = *byte;
                    }
                }
                is_there
            };
            if let Some(elf) = Elf::parse(&read) {
                let _ = (elf.bias(vaddr, vaddr / 2), elf.function_at(vaddr));
            }
        }
    }
}
