//! `/proc/PID/smaps` and `/proc/PID/smaps_rollup`, parsed: how much of each mapping is in memory, and who else has it.

use std::fs::File;
use std::io::{self, Read as _};

use crate::maps::{Mapping, parse_line};

/// What is read of such a file at most: 65,530 mappings, the most that a process may have by default, take less.
const MAX_BYTES: u64 = 64 << 20;

/// What the kernel counts of a mapping, or of all of a process. All in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryCounts {
    /// In memory, whoever else has it, too.
    pub rss: u64,
    /// The same, each page divided by the number of processes that have it.
    pub pss: u64,
    /// What others have as well, clean or written to.
    pub shared: u64,
    /// What nobody else has, and was written to.
    pub private_dirty: u64,
    /// Of no file, or a copy of what a file has.
    pub anonymous: u64,
    /// What of that is in huge pages.
    pub anonymous_huge: u64,
    /// Pages of files that are huge.
    pub file_huge: u64,
    /// Moved to the swap.
    pub swap: u64,
}

impl MemoryCounts {
    /// Both together.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            rss: self.rss.saturating_add(other.rss),
            pss: self.pss.saturating_add(other.pss),
            shared: self.shared.saturating_add(other.shared),
            private_dirty: self.private_dirty.saturating_add(other.private_dirty),
            anonymous: self.anonymous.saturating_add(other.anonymous),
            anonymous_huge: self.anonymous_huge.saturating_add(other.anonymous_huge),
            file_huge: self.file_huge.saturating_add(other.file_huge),
            swap: self.swap.saturating_add(other.swap),
        }
    }

    fn field(&mut self, key: &str) -> Option<&mut u64> {
        Some(match key {
            "Rss" => &mut self.rss,
            "Pss" => &mut self.pss,
            "Shared_Clean" | "Shared_Dirty" => &mut self.shared,
            "Private_Dirty" => &mut self.private_dirty,
            "Anonymous" => &mut self.anonymous,
            "AnonHugePages" | "Private_Hugetlb" => &mut self.anonymous_huge,
            "FilePmdMapped" => &mut self.file_huge,
            "Swap" => &mut self.swap,
            _ => return None,
        })
    }
}

/// A mapping and what the kernel counts of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CountedMapping {
    /// The mapping. That of `smaps_rollup` has the path `[rollup]` and stands for all.
    pub mapping: Mapping,
    /// The counts.
    pub counts: MemoryCounts,
    /// The process has asked for huge pages here, by `madvise(MADV_HUGEPAGE)`, whether it has got some or not.
    pub asks_for_huge_pages: bool,
}

/// Reads `/proc/PID/smaps`.
///
/// # Errors
///
/// If there is no such process, or its memory may not be read (same user, or `CAP_SYS_PTRACE`).
pub fn counted_mappings(pid: u32) -> io::Result<Vec<CountedMapping>> {
    read(pid, "smaps")
}

/// What the kernel counts of all of process `pid`: `/proc/PID/smaps_rollup`.
///
/// # Errors
///
/// As for [`counted_mappings`]; and if the kernel is older than Linux 4.14.
pub fn memory_counts(pid: u32) -> io::Result<MemoryCounts> {
    let all = read(pid, "smaps_rollup")?;
    all.first().map(|all| all.counts).ok_or_else(|| io::ErrorKind::InvalidData.into())
}

fn read(pid: u32, name: &str) -> io::Result<Vec<CountedMapping>> {
    let mut bytes = Vec::new();
    File::open(format!("/proc/{pid}/{name}"))?.take(MAX_BYTES).read_to_end(&mut bytes)?;
    Ok(parse_smaps(&String::from_utf8_lossy(&bytes)))
}

/// Parses the text of such a file. Lines that do not fit the format are left out.
pub fn parse_smaps(text: &str) -> Vec<CountedMapping> {
    let mut found: Vec<CountedMapping> = Vec::new();
    for line in text.lines() {
        if let Some(kilobytes) = parse_count(line) {
            let (key, kilobytes) = kilobytes;
            if let Some(field) = found.last_mut().and_then(|last| last.counts.field(key)) {
                *field = field.saturating_add(kilobytes.saturating_mul(1_024));
            }
        } else if let Some(flags) = line.strip_prefix("VmFlags:") {
            if let Some(last) = found.last_mut() {
                last.asks_for_huge_pages = flags.split_whitespace().any(|flag| flag == "hg");
            }
        } else if let Some(mapping) = parse_line(line) {
            found.push(CountedMapping { mapping, ..CountedMapping::default() });
        }
    }
    found
}

/// `Rss:        132 kB`. A mapping's line never ends like that: it begins with addresses, which have a hyphen.
fn parse_count(line: &str) -> Option<(&str, u64)> {
    let (key, rest) = line.split_once(':')?;
    if key.contains(['-', ' ']) {
        return None;
    }
    Some((key, rest.trim().strip_suffix(" kB")?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
55d0c0a00000-55d0c0a21000 rw-p 00000000 00:00 0                          [heap]
Size:                132 kB
Rss:                 100 kB
Pss:                  60 kB
Pss_Dirty:            60 kB
Shared_Clean:          4 kB
Shared_Dirty:         76 kB
Private_Clean:         0 kB
Private_Dirty:        20 kB
Anonymous:           100 kB
AnonHugePages:         0 kB
Swap:                  8 kB
VmFlags: rd wr mr mw me ac sd
7f0000000000-7f0000200000 r-xp 00000000 00:00 0
Rss:                2048 kB
AnonHugePages:      2048 kB
FilePmdMapped:         0 kB
VmFlags: rd ex mr mw me ac sd hg
7f0000200000-7f0000201000 rw-p 00000000 fe:01 9 /srv/Rss: 7 kB
Rss:                   x kB
";

    #[test]
    fn counts_belong_to_the_mapping_above() {
        let found = parse_smaps(TEXT);
        assert_eq!(found.len(), 3);
        let heap = MemoryCounts {
            rss: 100 << 10,
            pss: 60 << 10,
            shared: 80 << 10,
            private_dirty: 20 << 10,
            anonymous: 100 << 10,
            swap: 8 << 10,
            ..MemoryCounts::default()
        };
        assert_eq!((&*found[0].mapping.path, found[0].counts), ("[heap]", heap));
        assert!(found[1].mapping.executable);
        assert_eq!([0, 1, 2].map(|number: usize| found[number].asks_for_huge_pages), [false, true, false]);
        assert_eq!(found[1].counts.anonymous_huge, 2 << 20);
        assert_eq!((&*found[2].mapping.path, found[2].counts), ("/srv/Rss: 7 kB", MemoryCounts::default()));
    }

    #[test]
    fn counts_of_no_mapping_are_left_out() {
        assert_eq!(parse_smaps("Rss: 4 kB\n\nnothing\n"), []);
    }

    #[test]
    fn this_process_is_counted() {
        let (mappings, all) = (counted_mappings(std::process::id()), memory_counts(std::process::id()));
        let (Ok(mappings), Ok(all)) = (mappings, all) else {
            return slip_testkit::skip("memory of processes", "this kernel has no smaps_rollup");
        };
        let sum: u64 = mappings.iter().map(|mapping| mapping.counts.anonymous).sum();
        assert!(all.rss >= all.anonymous && all.anonymous > 0 && sum > 0);
        assert!(mappings.iter().any(|mapping| mapping.mapping.path == "[stack]"));
        assert!(counted_mappings(u32::MAX).is_err());
    }
}
