//! Names of functions, by address.

use object::read::elf::{SectionHeader as _, Sym as _};
use object::{Endianness, elf, pod};

use crate::elf::{ReadAt, block};
use crate::sections::{ENDIAN, Sections};

type Symbol = elf::Sym64<Endianness>;

/// Largest table of symbols that is read: 1.4 million of them.
const MAX_TABLE_BYTES: u64 = 32 << 20;

/// Largest table of names.
const MAX_NAMES_BYTES: u64 = 64 << 20;

/// Functions may lie inside each other, so an address that is not in the last one that begins before it may be in one of so many before.
const MAX_NESTED: usize = 8;

/// Names are compared by length up to this one.
const MAX_LETTERS: usize = 256;

#[derive(Clone, Debug, Default)]
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
    pub(crate) fn read(read: &ReadAt<'_>, sections: &Sections) -> (Self, bool) {
        // The table of a file that was not stripped has all that the dynamic one has, and functions that are not exported.
        match Self::of_kind(read, sections, elf::SHT_SYMTAB) {
            Some(all) => (all, true),
            None => (Self::of_kind(read, sections, elf::SHT_DYNSYM).unwrap_or_default(), false),
        }
    }

    /// Those that a file has beside the ones that are exported; `None` if it has none.
    pub(crate) fn read_all(read: &ReadAt<'_>, sections: &Sections) -> Option<Self> {
        Self::of_kind(read, sections, elf::SHT_SYMTAB)
    }

    fn of_kind(read: &ReadAt<'_>, sections: &Sections, kind: u32) -> Option<Self> {
        let table = sections.list.iter().find(|section| section.sh_type(ENDIAN) == kind)?;
        let names = sections.list.get(usize::try_from(table.sh_link(ENDIAN)).ok()?)?;
        let names = block(read, names.sh_offset(ENDIAN), names.sh_size(ENDIAN), MAX_NAMES_BYTES)?;
        let symbols = block(read, table.sh_offset(ENDIAN), table.sh_size(ENDIAN), MAX_TABLE_BYTES)?;
        let symbols = pod::slice_from_all_bytes::<Symbol>(&symbols).ok()?;
        Some(Self::of(symbols, ENDIAN, names))
    }

    /// These, and the others where they name another place. Both tables of names have bounds that keep their numbers within 32 bits.
    pub(crate) fn with(mut self, other: Self) -> Self {
        // The last name of the first table must not go on in the other one.
        self.names.push(0);
        let behind = u32::try_from(self.names.len()).unwrap_or(u32::MAX);
        let moved = |function: Function| Function { name: function.name.saturating_add(behind), ..function };
        self.functions.extend(other.functions.into_iter().map(moved));
        self.names.extend(other.names);
        self.functions.sort_unstable();
        self.functions.dedup_by_key(|function| function.vaddr);
        self
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
