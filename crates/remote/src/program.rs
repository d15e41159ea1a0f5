//! What kind of program a file is: whether the loader takes part when it starts, and which one.

use std::fs::File;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::Path;

/// `PT_INTERP`
const LOADER_SEGMENT: u32 = 3;
/// `EM_X86_64`
const X86_64: u16 = 62;
const SEGMENT_BYTES: usize = 56;
/// Most segments that are looked at; programs have about a dozen.
const MAX_SEGMENTS: usize = 512;
/// Longest name of a loader; the kernel takes no longer one.
const MAX_NAME_BYTES: usize = 4_096;

/// What a file is to the kernel that is to run it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProgramKind {
    /// A program for x86-64 that names this loader.
    Dynamic {
        /// Path of the loader.
        loader: String,
    },
    /// A program for x86-64 without one: it is statically linked.
    Static,
    /// A program for another machine, or for 32 bits.
    Foreign,
    /// Begins with `#!`: this program runs it.
    Script {
        /// Path of the program.
        interpreter: String,
    },
    /// None of these.
    Other,
}

/// Looks at a file; `None` if it cannot be read.
pub fn program_kind(path: &Path) -> Option<ProgramKind> {
    // A target may put a pipe in the place of its file: opening that would wait for ever.
    let file = File::options().read(true).custom_flags(libc::O_NONBLOCK).open(path).ok()?;
    file.metadata().ok().filter(std::fs::Metadata::is_file)?;
    Some(parse(&|at, buf| {
        let mut len = 0;
        while len < buf.len() {
            match file.read_at(&mut buf[len..], at.saturating_add(len as u64)) {
                Ok(more @ 1..) => len += more,
                _ => break,
            }
        }
        len
    }))
}

/// The same of the bytes of a file; for tests of the parser.
pub fn parse_program(bytes: &[u8]) -> ProgramKind {
    parse(&|at, buf| {
        let rest = usize::try_from(at).ok().and_then(|at| bytes.get(at..)).unwrap_or_default();
        let len = rest.len().min(buf.len());
        buf[..len].copy_from_slice(&rest[..len]);
        len
    })
}

/// Reads the bytes of a file from an offset on; how many were there.
type ReadAt<'a> = dyn Fn(u64, &mut [u8]) -> usize + 'a;

fn parse(read: &ReadAt<'_>) -> ProgramKind {
    let mut head = [0; 256];
    let len = read(0, &mut head);
    let head = &head[..len];
    if let Some(line) = head.strip_prefix(b"#!") {
        let line = line.split(|byte| *byte == b'\n').next().unwrap_or_default();
        let mut words = line.split(|byte| b" \t".contains(byte)).filter(|word| !word.is_empty());
        let interpreter = String::from_utf8_lossy(words.next().unwrap_or_default()).into_owned();
        return ProgramKind::Script { interpreter };
    }
    if !head.starts_with(b"\x7fELF") || len < 64 {
        return ProgramKind::Other;
    }
    let half = |at: usize| u16::from_le_bytes([head[at], head[at + 1]]);
    // Class 2 is 64 bits, data 1 is little-endian.
    if head[4..6] != [2, 1] || half(18) != X86_64 {
        return ProgramKind::Foreign;
    }
    let segments_at = number(head, 32);
    if usize::from(half(54)) != SEGMENT_BYTES {
        return ProgramKind::Other;
    }
    let mut segments = vec![0; usize::from(half(56)).min(MAX_SEGMENTS) * SEGMENT_BYTES];
    let len = read(segments_at, &mut segments);
    let mut segments = segments[..len].chunks_exact(SEGMENT_BYTES);
    let Some(loader) = segments.find(|segment| segment[..4] == LOADER_SEGMENT.to_le_bytes()) else {
        return ProgramKind::Static;
    };
    let name_len = usize::try_from(number(loader, 32)).unwrap_or(usize::MAX).min(MAX_NAME_BYTES);
    let mut name = vec![0; name_len];
    let len = read(number(loader, 8), &mut name);
    name.truncate(len);
    let end = name.iter().position(|byte| *byte == 0).unwrap_or(len);
    ProgramKind::Dynamic { loader: String::from_utf8_lossy(&name[..end]).into_owned() }
}

/// Eight bytes that are there.
fn number(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..).and_then(|bytes| bytes.first_chunk()).map_or(0, |bytes| u64::from_le_bytes(*bytes))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "test code")]
mod tests {
    use super::*;

    #[test]
    fn programs_and_scripts() {
        let own = program_kind(Path::new("/proc/self/exe")).unwrap();
        assert_eq!(own, ProgramKind::Dynamic { loader: "/lib64/ld-linux-x86-64.so.2".to_owned() });
        let script = |interpreter: &str| ProgramKind::Script { interpreter: interpreter.to_owned() };
        assert_eq!(parse_program(b"#! /usr/bin/env python3\nx"), script("/usr/bin/env"));
        assert_eq!(parse_program(b"#!"), script(""));
        assert_eq!((parse_program(b""), parse_program(b"\x7fELF")), (ProgramKind::Other, ProgramKind::Other));
        assert_eq!((program_kind(Path::new("/proc")), program_kind(Path::new("/nothing"))), (None, None));
    }

    #[test]
    fn heads_without_a_loader_or_for_other_machines() {
        let mut head = vec![0; 64];
        head[..6].copy_from_slice(b"\x7fELF\x02\x01");
        head[18..20].copy_from_slice(&X86_64.to_le_bytes());
        head[32..40].copy_from_slice(&64_u64.to_le_bytes());
        head[54..56].copy_from_slice(&56_u16.to_le_bytes());
        assert_eq!(parse_program(&head), ProgramKind::Static);
        for (at, byte) in [(4, 1), (5, 2), (18, 3)] {
            let mut other = head.clone();
            other[at] = byte;
            assert_eq!(parse_program(&other), ProgramKind::Foreign, "{at}");
        }
        // A loader whose name is said to be as long as nothing is.
        head[56] = 1;
        head.resize(64 + 56, 0);
        head[64] = 3;
        head[72..80].copy_from_slice(&120_u64.to_le_bytes());
        head[96..104].fill(0xff);
        head.extend(b"/lib/ld-musl-x86_64.so.1\0");
        let loader = "/lib/ld-musl-x86_64.so.1".to_owned();
        assert_eq!(parse_program(&head), ProgramKind::Dynamic { loader });
    }
}
