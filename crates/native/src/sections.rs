//! The sections of a file, and what of them says which other file has what is missing in it.

use std::io::Read as _;

use object::read::elf::{FileHeader as _, SectionHeader as _};
use object::{Endianness, elf, pod};

use crate::elf::{Header, ReadAt, block, head, header};

type Section = elf::SectionHeader64<Endianness>;

/// Of x86-64.
pub(crate) const ENDIAN: Endianness = Endianness::Little;

/// Longest table of the sections' names: they have some ten letters each.
const MAX_NAMES_BYTES: u64 = 1 << 20;

/// Longest notes that are looked into, and longest number of a build.
const MAX_NOTES_BYTES: u64 = 4_096;
const MAX_BUILD_ID_BYTES: usize = 64;

/// Longest name of a debug file that is looked for, with what stands behind it.
const MAX_LINK_BYTES: u64 = 260;

/// The same with a path and the number of a build.
const MAX_COMMON_LINK_BYTES: u64 = 1_024;

/// A window of 128 MiB is what `zstd` itself unpacks without being asked to.
const MAX_WINDOW_LOG: u32 = 27;

/// The sections of a file; none if it does not say.
#[derive(Debug, Default)]
pub(crate) struct Sections {
    pub(crate) list: Vec<Section>,
    names: Vec<u8>,
}

/// The file with what was stripped from another one, as that one names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DebugLink {
    /// A name without folders.
    pub name: String,
    /// The sum of its bytes, as [`checksum`] makes it.
    pub checksum: u32,
}

/// The file with what several debug files have in common, as they name it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommonLink {
    /// Where it is.
    pub path: String,
    /// The number of its build.
    pub build_id: Vec<u8>,
}

/// Which file has what a debug file has in common with others; `None` if nothing was put apart.
pub fn common_link(read: &ReadAt<'_>) -> Option<CommonLink> {
    Sections::read(read, header(&head(read)?)?).common_link(read)
}

/// The number of a file's build; empty if it has none.
pub fn build_id(read: &ReadAt<'_>) -> Vec<u8> {
    let head = head(read).unwrap_or_default();
    header(&head).map(|header| Sections::read(read, header).build_id(read)).unwrap_or_default()
}

impl Sections {
    pub(crate) fn read(read: &ReadAt<'_>, header: &Header) -> Self {
        if usize::from(header.e_shentsize(ENDIAN)) != size_of::<Section>() {
            return Self::default();
        }
        // The count has 16 bits: that is bound enough.
        let len = u64::from(header.e_shnum(ENDIAN)) * size_of::<Section>() as u64;
        let bytes = block(read, header.e_shoff(ENDIAN), len, u64::MAX);
        let list = bytes.as_deref().and_then(|bytes| pod::slice_from_all_bytes(bytes).ok());
        let list: Vec<Section> = list.map(<[Section]>::to_vec).unwrap_or_default();
        let names = list.get(usize::from(header.e_shstrndx(ENDIAN)));
        let names = names
            .and_then(|names| block(read, names.sh_offset(ENDIAN), names.sh_size(ENDIAN), MAX_NAMES_BYTES));
        Self { names: names.unwrap_or_default(), list }
    }

    /// The section of this name, if the file has its bytes.
    pub(crate) fn named(&self, name: &str) -> Option<&Section> {
        let is_it = |section: &&Section| {
            let own = self.names.get(section.sh_name(ENDIAN) as usize..).unwrap_or_default();
            own.strip_prefix(name.as_bytes()).is_some_and(|rest| rest.first() == Some(&0))
                && section.sh_type(ENDIAN) != elf::SHT_NOBITS
        };
        self.list.iter().find(is_it)
    }

    /// What is in a section, unpacked; `None` if it has none, or more than `limit` bytes.
    pub(crate) fn contents(&self, read: &ReadAt<'_>, name: &str, limit: u64) -> Option<Vec<u8>> {
        let section = self.named(name)?;
        let bytes = block(read, section.sh_offset(ENDIAN), section.sh_size(ENDIAN), limit)?;
        if section.sh_flags(ENDIAN) & u64::from(elf::SHF_COMPRESSED) == 0 {
            return Some(bytes);
        }
        let (head, packed) = bytes.split_first_chunk::<24>()?;
        let kind = u32::from_le_bytes(*head.first_chunk()?);
        let len = u64::from_le_bytes(*head[8..].first_chunk()?);
        if len > limit {
            return None;
        }
        let mut unpacked = Vec::new();
        // One more than there may be: what is longer than it says is damaged.
        match kind {
            elf::ELFCOMPRESS_ZLIB => {
                flate2::bufread::ZlibDecoder::new(packed).take(len + 1).read_to_end(&mut unpacked).ok()?
            }
            elf::ELFCOMPRESS_ZSTD => {
                let mut decoder = zstd::stream::read::Decoder::with_buffer(packed).ok()?;
                decoder.window_log_max(MAX_WINDOW_LOG).ok()?;
                decoder.take(len + 1).read_to_end(&mut unpacked).ok()?
            }
            _ => return None,
        };
        (unpacked.len() as u64 == len).then_some(unpacked)
    }

    /// The number of a build, which a file and the one with what was stripped from it have in common; empty if there is none.
    pub(crate) fn build_id(&self, read: &ReadAt<'_>) -> Vec<u8> {
        let notes = self.list.iter().filter(|section| section.sh_type(ENDIAN) == elf::SHT_NOTE);
        let find = |section: &Section| {
            let bytes = block(read, section.sh_offset(ENDIAN), section.sh_size(ENDIAN), MAX_NOTES_BYTES)?;
            let (lens, rest) = bytes.split_first_chunk::<12>()?;
            let [name_len, id_len, kind] =
                [0, 4, 8].map(|at| lens[at..].first_chunk().copied().map_or(0, u32::from_le_bytes));
            let id_len = usize::try_from(id_len).ok().filter(|len| *len <= MAX_BUILD_ID_BYTES)?;
            let is_it = kind == elf::NT_GNU_BUILD_ID && name_len == 4 && rest.starts_with(elf::ELF_NOTE_GNU);
            rest.get(4..)?.get(..id_len).filter(|_| is_it).map(<[u8]>::to_vec)
        };
        notes.into_iter().find_map(find).unwrap_or_default()
    }

    /// The file that `.gnu_debugaltlink` names.
    fn common_link(&self, read: &ReadAt<'_>) -> Option<CommonLink> {
        let bytes = self.contents(read, ".gnu_debugaltlink", MAX_COMMON_LINK_BYTES)?;
        let end = bytes.iter().position(|byte| *byte == 0)?;
        let (path, build_id) = (std::str::from_utf8(&bytes[..end]).ok()?, bytes.get(end + 1..)?);
        let is_number = !build_id.is_empty() && build_id.len() <= MAX_BUILD_ID_BYTES;
        is_number.then(|| CommonLink { path: path.to_owned(), build_id: build_id.to_owned() })
    }

    /// The debug file that `.gnu_debuglink` names.
    pub(crate) fn debug_link(&self, read: &ReadAt<'_>) -> Option<DebugLink> {
        parse_debug_link(&self.contents(read, ".gnu_debuglink", MAX_LINK_BYTES)?)
    }
}

/// What a section `.gnu_debuglink` says; `None` if that is no file's name.
pub fn parse_debug_link(bytes: &[u8]) -> Option<DebugLink> {
    let end = bytes.iter().position(|byte| *byte == 0)?;
    let checksum = u32::from_le_bytes(*bytes.get(end.checked_add(4)? & !3..)?.first_chunk()?);
    let name = std::str::from_utf8(&bytes[..end]).ok()?;
    // It is looked for in folders that others own: it must not lead out of them.
    let is_name = !name.is_empty() && name != "." && name != ".." && !name.contains('/');
    is_name.then(|| DebugLink { name: name.to_owned(), checksum })
}

/// The sum that a debug link has of a file; `None` if the file cannot be read, or is longer than `limit`.
pub fn checksum(mut file: impl std::io::Read, limit: u64) -> Option<u32> {
    let mut sum = flate2::Crc::new();
    let mut piece = vec![0; 1 << 16];
    let mut len = 0_u64;
    loop {
        let read = file.read(&mut piece).ok()?;
        len += read as u64;
        if len > limit {
            return None;
        }
        if read == 0 {
            return Some(sum.sum());
        }
        sum.update(piece.get(..read)?);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_is_the_name_of_a_file_and_nothing_else() {
        let link = |name: &str, checksum| Some(DebugLink { name: name.to_owned(), checksum });
        assert_eq!(parse_debug_link(b"a.debug\0\x01\x02\x03\x04"), link("a.debug", 0x0403_0201));
        assert_eq!(parse_debug_link(b"ab.debug\0\0\0\0\x01\x02\x03\x04"), link("ab.debug", 0x0403_0201));
        for wrong in [
            &b""[..],
            b"a.debug",
            b"a.debug\0\x01\x02\x03",
            b"../pass\0\x01\x02\x03\x04",
            b"..\0\0\x01\x02\x03\x04",
        ] {
            assert_eq!(parse_debug_link(wrong), None, "{wrong:?}");
        }
    }

    #[test]
    fn the_sum_of_a_file_is_the_one_that_everybody_makes() {
        assert_eq!(checksum(&b"123456789"[..], 9), Some(0xcbf4_3926));
        assert_eq!(checksum(&b"123456789"[..], 8), None);
    }
}
