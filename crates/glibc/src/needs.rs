//! What an ELF file needs of the system that it runs on.

use std::fmt;

use object::read::elf::{Dyn, FileHeader};
use object::{Endianness, elf};

use crate::{GlibcError, OLDEST, Version};

type Header = elf::FileHeader64<Endianness>;

/// The libraries that every system has on which `manylinux_2_28` runs: glibc's, and the one that unwinds the stack of a panic.
const LIBRARIES: [&str; 7] = [
    "ld-linux-x86-64.so.2",
    "libc.so.6",
    "libdl.so.2",
    "libgcc_s.so.1",
    "libm.so.6",
    "libpthread.so.0",
    "librt.so.1",
];

/// Versions of the symbols of the latter; the newest is from 2007.
const OF_GCC: [&str; 3] = ["GCC_3.0", "GCC_3.3", "GCC_4.2.0"];

/// Something that the system must have.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Need {
    /// A shared library.
    Library(String),
    /// A version of the symbols of a library.
    Symbols {
        /// The library.
        library: String,
        /// As it is called, such as `GLIBC_2.28` or `GCC_3.0`.
        version: String,
    },
}

impl Need {
    /// The version of glibc, if it is one.
    pub fn glibc(&self) -> Option<Version> {
        match self {
            Need::Symbols { version, .. } => Version::of_name(version),
            Need::Library(_) => None,
        }
    }

    /// Whether every system has it on which `manylinux_2_28` runs.
    pub fn is_met_by_oldest(&self) -> bool {
        match self {
            Need::Library(library) => LIBRARIES.contains(&library.as_str()),
            Need::Symbols { library, version } => {
                LIBRARIES.contains(&library.as_str())
                    && (self.glibc().is_some_and(|version| version <= OLDEST)
                        || OF_GCC.contains(&version.as_str()))
            }
        }
    }
}

impl fmt::Display for Need {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Need::Library(library) => f.write_str(library),
            Need::Symbols { library, version } => write!(f, "{version} of {library}"),
        }
    }
}

/// Everything that a program or library needs, in order.
///
/// # Errors
///
/// [`GlibcError::Elf`] if the bytes are no ELF file of 64 bits.
pub fn needs(bytes: &[u8]) -> Result<Vec<Need>, GlibcError> {
    let mut needs = Vec::new();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let header = Header::parse(bytes)?;
    let endian = header.endian()?;
    let sections = header.sections(endian, bytes)?;
    if let Some((entries, link)) = sections.dynamic(endian, bytes)? {
        let strings = sections.strings(endian, bytes, link)?;
        for entry in entries.iter().filter(|entry| entry.tag32(endian) == Some(elf::DT_NEEDED)) {
            needs.push(Need::Library(text(entry.string(endian, strings)?)));
        }
    }
    if let Some((mut libraries, link)) = sections.gnu_verneed(endian, bytes)? {
        let strings = sections.strings(endian, bytes, link)?;
        while let Some((library, mut versions)) = libraries.next()? {
            let library = text(library.file(endian, strings)?);
            while let Some(version) = versions.next()? {
                let version = text(version.name(endian, strings)?);
                needs.push(Need::Symbols { library: library.clone(), version });
            }
        }
    }
    needs.sort();
    Ok(needs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn needs_of_a_program_are_read() {
        let bytes = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        let needs = needs(&bytes).unwrap();
        assert!(needs.contains(&Need::Library("libc.so.6".to_owned())), "{needs:?}");
        assert!(needs.iter().filter_map(Need::glibc).max() >= Some(Version([2, 2, 5])), "{needs:?}");
    }

    #[test]
    fn what_old_systems_lack_is_told() {
        let symbols = |library: &str, version: &str| Need::Symbols {
            library: library.to_owned(),
            version: version.to_owned(),
        };
        let library = |name: &str| Need::Library(name.to_owned());
        for met in
            [library("libc.so.6"), symbols("libc.so.6", "GLIBC_2.28"), symbols("libgcc_s.so.1", "GCC_4.2.0")]
        {
            assert!(met.is_met_by_oldest(), "{met}");
        }
        for unmet in [
            library("libelf.so.1"),
            symbols("libc.so.6", "GLIBC_2.29"),
            symbols("libc.so.6", "GLIBC_PRIVATE"),
            symbols("libc.so.6", "GLIBC_ABI_DT_RELR"),
            symbols("libgcc_s.so.1", "GCC_14.0.0"),
            symbols("libz.so.1", "GLIBC_2.2.5"),
        ] {
            assert!(!unmet.is_met_by_oldest(), "{unmet}");
        }
    }

    #[test]
    fn what_is_no_elf_file_is_refused() {
        assert!(needs(b"#!/bin/sh\n").is_err());
        assert!(needs(b"\x7fELF").is_err());
    }
}
