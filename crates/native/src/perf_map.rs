//! Names of functions that were compiled while the program ran, as their compiler tells `perf`.

use std::ops::Range;

/// Names that are kept. Those of a server that has run for days are fewer.
const MAX_ENTRIES: usize = 1 << 20;

/// Longer names are cut.
const MAX_NAME_BYTES: usize = 256;

/// Functions may lie inside each other, and code takes the place of other code: an address that is not in the last one that begins before it may be
/// in one of so many before.
const MAX_NESTED: usize = 32;

/// A `perf-PID.map`: lines of begin, length and name.
#[derive(Debug, Default)]
pub struct PerfMap {
    /// By address, and then in the order of the file.
    entries: Vec<Entry>,
    text: Vec<u8>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Entry {
    begin: u64,
    number: u32,
    bytes: u64,
    name: (u32, u32),
}

impl PerfMap {
    /// What the file says; lines that are none of it are left out, and the last one may not have been written to its end. It has no more than
    /// 4 GiB.
    pub fn parse(text: Vec<u8>) -> Self {
        let mut entries = Vec::new();
        let mut at = 0;
        for line in text.split_inclusive(|byte| *byte == b'\n').take(MAX_ENTRIES) {
            let begin = at;
            at += line.len();
            if let (Some(line), Ok(number)) = (line.strip_suffix(b"\n"), u32::try_from(entries.len()))
                && let Some((addr, bytes, name)) = parse_line(line)
                && let (Ok(from), Ok(to)) =
                    (u32::try_from(begin + name.start), u32::try_from(begin + name.end))
            {
                entries.push(Entry { begin: addr, number, bytes, name: (from, to) });
            }
        }
        entries.sort_unstable();
        Self { entries, text }
    }

    /// The function that an address is in. Of several it is the one that was told last.
    pub fn function_at(&self, addr: u64) -> Option<String> {
        let behind = self.entries.partition_point(|entry| entry.begin <= addr);
        let before = self.entries[..behind].iter().rev().take(MAX_NESTED);
        let entry =
            before.filter(|entry| addr - entry.begin < entry.bytes).max_by_key(|entry| entry.number)?;
        let name = self.text.get(entry.name.0 as usize..entry.name.1 as usize)?;
        let name = String::from_utf8_lossy(name.get(..MAX_NAME_BYTES).unwrap_or(name)).into_owned();
        Some(name)
    }
}

/// Begin, length, and where the name is.
fn parse_line(line: &[u8]) -> Option<(u64, u64, Range<usize>)> {
    let mut fields = line.splitn(3, |byte| *byte == b' ');
    let mut number = || {
        let text = std::str::from_utf8(fields.next()?).ok()?;
        let text = text.strip_prefix("0x").unwrap_or(text);
        let is_number = text.len() <= 16 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        u64::from_str_radix(text, 16).ok().filter(|_| is_number)
    };
    let (begin, bytes) = (number()?, number()?);
    let name = fields.next()?.trim_ascii();
    let end = line.trim_ascii_end().len();
    (bytes > 0 && !name.is_empty()).then(|| (begin, bytes, end - name.len()..end))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn name(text: &str, addr: u64) -> Option<String> {
        PerfMap::parse(text.as_bytes().to_vec()).function_at(addr)
    }

    #[test]
    fn an_address_is_in_what_was_told_last() {
        let text = "1000 40 LazyCompile:*outer /a b.js:1\n0x2000 0x10 other\n1010 10 py::inner\nwrong\n3000 x y\n4000 10 unfinished";
        let found =
            [0xfff, 0x1000, 0x1010, 0x1020, 0x1040, 0x200f, 0x3000, 0x4000].map(|addr| name(text, addr));
        let outer = Some("LazyCompile:*outer /a b.js:1");
        let expected = [None, outer, Some("py::inner"), outer, None, Some("other"), None, None];
        assert_eq!(found, expected.map(|name| name.map(str::to_owned)));
        assert_eq!(name("1010 10 before\n1000 40 after\n", 0x1015).as_deref(), Some("after"));
        assert_eq!(name("1010 10  both ends  \n", 0x1015).as_deref(), Some("both ends"));
        assert_eq!(name("", 0), None);
    }

    proptest! {
        #[test]
        fn any_text_is_read(text in prop::collection::vec(any::<u8>(), 0..200), addr in any::<u64>()) {
            let lines = [b"ffffffffffffffff ffffffffffffffff a\n0 1 b\n", &text[..]].concat();
            let map = PerfMap::parse(lines);
            prop_assert!(map.function_at(addr).is_none_or(|name| name.len() <= 3 * MAX_NAME_BYTES));
        }
    }
}
