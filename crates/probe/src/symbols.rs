//! Names of the kernel's functions.

use std::collections::HashMap;
use std::io::{self, Read as _};

use libbpf_rs::{Iter, Link, MapCore as _, MapFlags, MapHandle, ProgramMut};

use crate::wire::KernelAddr;

/// `SLIP_ADDRESSES` of `bpf/sample.h`.
const ADDRESSES: usize = 64;

/// A function of the kernel.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct KernelSymbol {
    /// Its name; empty if the kernel does not know it either.
    pub name: String,
    /// The module that it belongs to, without brackets; empty for the kernel itself.
    pub module: String,
}

/// Asks the kernel what is at its addresses.
///
/// A program in the kernel has it print them, some microseconds each. The other way, `/proc/kallsyms`, takes 65 ms to read and 3 MB to
/// keep, of which a recording uses some hundred lines, and needs `CAP_SYSLOG`, because it tells addresses; these come from the kernel.
#[derive(Debug)]
pub struct KernelSymbols {
    addresses: MapHandle,
    list: Link,
}

impl KernelSymbols {
    pub(crate) fn new(program: &ProgramMut<'_>, addresses: MapHandle) -> Result<Self, libbpf_rs::Error> {
        let list = program.attach()?;
        Ok(Self { addresses, list })
    }

    /// The functions at these addresses, each behind a call; those that the kernel does not name are left out.
    ///
    /// # Errors
    ///
    /// What the kernel says; then nothing is known.
    pub fn name(&self, addrs: &[KernelAddr]) -> io::Result<HashMap<KernelAddr, KernelSymbol>> {
        let mut named = HashMap::new();
        for addrs in addrs.chunks(ADDRESSES) {
            for (number, addr) in (0_u32..).zip(addrs) {
                let written =
                    self.addresses.update(&number.to_le_bytes(), &addr.0.to_le_bytes(), MapFlags::ANY);
                written.map_err(io::Error::other)?;
            }
            let mut text = String::new();
            Iter::new(&self.list).map_err(io::Error::other)?.read_to_string(&mut text)?;
            for (number, symbol) in text.lines().filter_map(parse) {
                // What is behind is of the time before.
                if let Some(addr) = addrs.get(number) {
                    named.insert(*addr, symbol);
                }
            }
        }
        Ok(named)
    }
}

/// The number and the function of a line such as `3 nf_hook_slow+0x3d/0xb0 [nf_tables]`.
pub(crate) fn parse(line: &str) -> Option<(usize, KernelSymbol)> {
    let (number, text) = line.split_once(' ')?;
    // An address that has no name is written as it is.
    let (name, behind) = text.split_once('+')?;
    let module = behind.split_once(" [").and_then(|(_, module)| module.split([' ', ']']).next());
    let symbol = KernelSymbol { name: name.to_owned(), module: module.unwrap_or_default().to_owned() };
    Some((number.parse().ok()?, symbol))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_have_a_name_and_perhaps_a_module() {
        let symbol = |name: &str, module: &str| KernelSymbol { name: name.into(), module: module.into() };
        assert_eq!(parse("0 vfs_read+0x8e/0x240"), Some((0, symbol("vfs_read", ""))));
        let module = "12 nft_do_chain+0x3d/0xb0 [nf_tables]";
        assert_eq!(parse(module), Some((12, symbol("nft_do_chain", "nf_tables"))));
        // A kernel that says which build of the module it is.
        let build = "1 a.isra.0+0x1/0x2 [m 0123456789abcdef]";
        assert_eq!(parse(build), Some((1, symbol("a.isra.0", "m"))));
        for none in ["", "1", "1 0xffffffffc0123456", "x vfs_read+0x1/0x2"] {
            assert_eq!(parse(none), None, "{none}");
        }
    }
}
