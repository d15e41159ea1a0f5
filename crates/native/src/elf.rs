//! What is needed of an ELF file.

use object::read::elf::{FileHeader as _, ProgramHeader as _};
use object::{Endianness, elf, pod};

use crate::symbols::{Symbols, build_id, sections};
use crate::tables::Tables;

pub(crate) type Header = elf::FileHeader64<Endianness>;
type Segment = elf::ProgramHeader64<Endianness>;

/// Of x86-64.
const PAGE_BYTES: u64 = 4_096;

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
#[derive(Debug)]
pub struct Elf {
    loads: Vec<Load>,
    pub(crate) tables: Option<Tables>,
    symbols: Symbols,
    /// Nothing was stripped from them.
    has_all_symbols: bool,
    build_id: Vec<u8>,
}

impl Elf {
    /// Reads what is needed of a file; `None` if it is no such file.
    ///
    /// The file is the target's, and may be as large and say as much as it likes: what is read of it are a few blocks, each with a bound.
    pub fn parse(read: &ReadAt<'_>) -> Option<Self> {
        let head = block(read, 0, size_of::<Header>() as u64, u64::MAX)?;
        let header = Header::parse(&head[..]).ok()?;
        let endian = header.endian().ok()?;
        if header.e_machine(endian) != elf::EM_X86_64
            || endian != Endianness::Little
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
        let sections = sections(read, header, endian);
        let (symbols, has_all_symbols) = Symbols::read(read, &sections, endian);
        let build_id = build_id(read, &sections, endian);
        Some(Self { loads, tables, symbols, has_all_symbols, build_id })
    }

    /// The number of its build, if functions have no names in it: a file of the same number may have them.
    pub fn wanted_symbols(&self) -> Option<&[u8]> {
        (!self.has_all_symbols && !self.build_id.is_empty()).then_some(&self.build_id[..])
    }

    /// Takes the names of functions from the file that has what was stripped from this one; false if it is another's, or has none.
    ///
    /// As with [`Elf::parse`], what is read has bounds.
    pub fn add_symbols(&mut self, read: &ReadAt<'_>) -> bool {
        let Some(head) = block(read, 0, size_of::<Header>() as u64, u64::MAX) else { return false };
        let Ok(header) = Header::parse(&head[..]) else { return false };
        let Ok(endian) = header.endian() else { return false };
        let sections = sections(read, header, endian);
        if self.build_id.is_empty() || build_id(read, &sections, endian) != self.build_id {
            return false;
        }
        let (symbols, has_all) = Symbols::read(read, &sections, endian);
        if has_all {
            (self.symbols, self.has_all_symbols) = (symbols, true);
        }
        has_all
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
