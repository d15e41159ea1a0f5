//! Where the run of a program begins that serves no requests.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use slip_model::RunBegin;

/// Of an ELF file's header and its segments (`elf.h`).
const PT_LOAD: u32 = 1;
const SEGMENT_BYTES: usize = 56;
/// Linux loads no program with more.
const MAX_SEGMENTS: usize = 65_536 / SEGMENT_BYTES;

/// When the start-up of a process is over, and its run begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RunStart {
    /// At once: it has been running for some time.
    Now,
    /// As soon as it has become another program: nothing tells when that has started.
    Exec,
    /// After that, when its interpreter opens the script, a file with this inode.
    Script {
        /// Its number in its file system.
        inode: u64,
    },
    /// After that, when `main` is called, or if it has no symbols, when the dynamic linker gives the program control.
    Program {
        /// The file of the program.
        path: PathBuf,
    },
}

impl RunStart {
    pub(super) fn begin(&self) -> RunBegin {
        match self {
            Self::Now => RunBegin::Watch,
            Self::Exec => RunBegin::Exec,
            Self::Script { .. } => RunBegin::Script,
            Self::Program { .. } => RunBegin::Program,
        }
    }
}

/// Where the first instruction of a program is in its file; `None` if it is no ELF file of 64 bits.
pub(super) fn entry_offset(path: &Path) -> Option<usize> {
    let file = File::open(path).ok()?;
    let mut header = [0; 64];
    file.read_exact_at(&mut header, 0).ok()?;
    let (entry, at, count) = parse_header(&header)?;
    let mut segments = vec![0; count * SEGMENT_BYTES];
    file.read_exact_at(&mut segments, at).ok()?;
    usize::try_from(offset_in(&segments, entry)?).ok()
}

/// The entry point, and where how many segments are.
fn parse_header(header: &[u8; 64]) -> Option<(u64, u64, usize)> {
    // Of 64 bits, the lower byte first.
    if !header.starts_with(b"\x7fELF\x02\x01") {
        return None;
    }
    let short = |at: usize| Some(usize::from(u16::from_le_bytes(*header.get(at..)?.first_chunk()?)));
    let long = |at: usize| Some(u64::from_le_bytes(*header.get(at..)?.first_chunk()?));
    let count = short(56)?;
    (short(54)? == SEGMENT_BYTES && count <= MAX_SEGMENTS).then_some((long(24)?, long(32)?, count))
}

/// Where an address is in the file, by its segments.
fn offset_in(segments: &[u8], addr: u64) -> Option<u64> {
    segments.chunks_exact(SEGMENT_BYTES).find_map(|segment| {
        let long = |at: usize| Some(u64::from_le_bytes(*segment.get(at..)?.first_chunk()?));
        let is_loaded = u32::from_le_bytes(*segment.first_chunk()?) == PT_LOAD;
        let (offset, begin, in_file) = (long(8)?, long(16)?, long(32)?);
        let within = addr.checked_sub(begin).filter(|within| is_loaded && *within < in_file)?;
        offset.checked_add(within)
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn our_own_program_has_an_entry_point_in_its_code() {
        let own = std::env::current_exe().unwrap();
        let offset = entry_offset(&own).unwrap();
        let bytes = std::fs::read(own).unwrap();
        assert!(offset > 64 && offset < bytes.len());
        // What `_start` of glibc begins with: `xor ebp, ebp`, perhaps behind `endbr64`.
        let code = &bytes[offset..offset + 8];
        assert!(code.starts_with(&[0x31, 0xed]) || code.starts_with(&[0xf3, 0x0f, 0x1e, 0xfa, 0x31, 0xed]));
    }

    #[test]
    fn what_is_no_program_has_no_entry_point() {
        assert_eq!(entry_offset(Path::new("/proc/self/cmdline")), None);
        assert_eq!(entry_offset(Path::new("/does/not/exist")), None);
        assert_eq!(offset_in(&[0xff; 2 * SEGMENT_BYTES], 7), None);
    }

    proptest! {
        #[test]
        fn any_header_is_parsed_or_refused(mut header in prop::array::uniform32(any::<[u8; 2]>()), addr in any::<u64>()) {
            header[..3].copy_from_slice(&[*b"\x7fE", *b"LF", [2, 1]]);
            let bytes: [u8; 64] = std::array::from_fn(|at| header[at / 2][at % 2]);
            if let Some((_, _, count)) = parse_header(&bytes) {
                prop_assert!(count <= MAX_SEGMENTS);
            }
            let _ = offset_in(&bytes, addr);
        }
    }
}
