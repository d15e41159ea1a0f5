//! Names of functions, by address.

use object::read::elf::{FileHeader as _, SectionHeader as _, Sym as _};
use object::{Endianness, elf, pod};

use crate::elf::{Header, ReadAt, block};

pub(crate) type Section = elf::SectionHeader64<Endianness>;
type Symbol = elf::Sym64<Endianness>;

/// Largest table of symbols that is read: 1.4 million of them.
const MAX_TABLE_BYTES: u64 = 32 << 20;

/// Largest table of names.
const MAX_NAMES_BYTES: u64 = 64 << 20;

/// Functions may lie inside each other, so an address that is not in the last one that begins before it may be in one of so many before.
const MAX_NESTED: usize = 8;

/// Names are compared by length up to this one.
const MAX_LETTERS: usize = 256;

/// Longest notes that are looked into, and longest number of a build.
const MAX_NOTES_BYTES: u64 = 4_096;
const MAX_BUILD_ID_BYTES: usize = 64;

/// The sections of a file; none if it does not say.
pub(crate) fn sections(read: &ReadAt<'_>, header: &Header, endian: Endianness) -> Vec<Section> {
    if usize::from(header.e_shentsize(endian)) != size_of::<Section>() {
        return Vec::new();
    }
    // The count has 16 bits: that is bound enough.
    let len = u64::from(header.e_shnum(endian)) * size_of::<Section>() as u64;
    let bytes = block(read, header.e_shoff(endian), len, u64::MAX);
    let sections = bytes.as_deref().and_then(|bytes| pod::slice_from_all_bytes(bytes).ok());
    sections.map(<[Section]>::to_vec).unwrap_or_default()
}

/// The number of a build, which a file and the one with what was stripped from it have in common; empty if there is none.
pub(crate) fn build_id(read: &ReadAt<'_>, sections: &[Section], endian: Endianness) -> Vec<u8> {
    let notes = sections.iter().filter(|section| section.sh_type(endian) == elf::SHT_NOTE);
    let find = |section: &Section| {
        let bytes = block(read, section.sh_offset(endian), section.sh_size(endian), MAX_NOTES_BYTES)?;
        let (lens, rest) = bytes.split_first_chunk::<12>()?;
        let [name_len, id_len, kind] =
            [0, 4, 8].map(|at| lens[at..].first_chunk().copied().map_or(0, u32::from_le_bytes));
        let id_len = usize::try_from(id_len).ok().filter(|len| *len <= MAX_BUILD_ID_BYTES)?;
        let is_it = kind == elf::NT_GNU_BUILD_ID && name_len == 4 && rest.starts_with(elf::ELF_NOTE_GNU);
        rest.get(4..)?.get(..id_len).filter(|_| is_it).map(<[u8]>::to_vec)
    };
    notes.into_iter().find_map(find).unwrap_or_default()
}

#[derive(Debug, Default)]
pub(crate) struct Symbols {
    /// By address, one at each.
    functions: Vec<Function>,
    names: Vec<u8>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Function {
    vaddr: u64,
    /// Of two names the one that is meant for people comes first, and then the shorter one.
    underscores: usize,
    letters: usize,
    name: u32,
    /// 0 if it is not told, as of functions in assembler: it goes on to the next one.
    bytes: u64,
}

impl Symbols {
    /// Those of a file; of two tables the one that has more. False if functions are missing that are not exported.
    pub(crate) fn read(read: &ReadAt<'_>, sections: &[Section], endian: Endianness) -> (Self, bool) {
        // The table of a file that was not stripped has all that the dynamic one has, and functions that are not exported.
        match Self::of_kind(read, sections, endian, elf::SHT_SYMTAB) {
            Some(all) => (all, true),
            None => (Self::of_kind(read, sections, endian, elf::SHT_DYNSYM).unwrap_or_default(), false),
        }
    }

    fn of_kind(read: &ReadAt<'_>, sections: &[Section], endian: Endianness, kind: u32) -> Option<Self> {
        let table = sections.iter().find(|section| section.sh_type(endian) == kind)?;
        let names = sections.get(usize::try_from(table.sh_link(endian)).ok()?)?;
        let names = block(read, names.sh_offset(endian), names.sh_size(endian), MAX_NAMES_BYTES)?;
        let symbols = block(read, table.sh_offset(endian), table.sh_size(endian), MAX_TABLE_BYTES)?;
        let symbols = pod::slice_from_all_bytes::<Symbol>(&symbols).ok()?;
        Some(Self::of(symbols, endian, names))
    }

    fn of(symbols: &[Symbol], endian: Endianness, names: Vec<u8>) -> Self {
        let is_function = |symbol: &&Symbol| {
            matches!(symbol.st_type(), elf::STT_FUNC | elf::STT_GNU_IFUNC)
                && symbol.st_shndx(endian) != elf::SHN_UNDEF
        };
        let mut functions: Vec<Function> = symbols
            .iter()
            .filter(is_function)
            .map(|symbol| {
                let name = symbol.st_name(endian);
                let begin = names.get(name as usize..).unwrap_or_default();
                Function {
                    vaddr: symbol.st_value(endian),
                    underscores: begin.iter().take_while(|byte| **byte == b'_').count(),
                    letters: begin.iter().take_while(|byte| **byte != 0).take(MAX_LETTERS).count(),
                    name,
                    bytes: symbol.st_size(endian),
                }
            })
            .collect();
        functions.sort_unstable();
        functions.dedup_by_key(|function| function.vaddr);
        Self { functions, names }
    }

    pub(crate) fn len_bytes(&self) -> u64 {
        (self.names.len() + self.functions.len() * size_of::<Function>()) as u64
    }

    /// The name of the function that this address is in, as the file has it.
    pub(crate) fn at(&self, vaddr: u64) -> Option<&[u8]> {
        let behind = self.functions.partition_point(|function| function.vaddr <= vaddr);
        let before = self.functions[..behind].iter().rev().take(MAX_NESTED).enumerate();
        let is_in = |(number, function): &(usize, &Function)| {
            vaddr - function.vaddr < function.bytes || *number == 0 && function.bytes == 0
        };
        let (_, function) = before.into_iter().find(is_in)?;
        let name = self.names.get(function.name as usize..)?;
        let end = name.iter().position(|byte| *byte == 0)?;
        name.get(..end).filter(|name| !name.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_in_the_innermost_function_around_it() {
        let names = b"\0outer\0inner\0__end\0end\0".to_vec();
        let function =
            |vaddr, bytes, name, underscores| Function { vaddr, underscores, letters: 0, name, bytes };
        let symbols = Symbols {
            functions: vec![function(10, 100, 1, 0), function(40, 10, 7, 0), function(200, 0, 19, 0)],
            names,
        };
        let at = |vaddr| symbols.at(vaddr).map(|name| String::from_utf8_lossy(name).into_owned());
        let found = [9, 10, 45, 60, 110, 199, 200, 5_000].map(at);
        let expected =
            [None, Some("outer"), Some("inner"), Some("outer"), None, None, Some("end"), Some("end")];
        assert_eq!(found, expected.map(|name| name.map(str::to_owned)));
        assert_eq!(Symbols::default().at(0), None);
    }
}
