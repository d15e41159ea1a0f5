//! `/proc/PID/pagemap`: which pages of memory a process has, and which of them another one has, too.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;

/// Of `Documentation/admin-guide/mm/pagemap.rst` in the kernel.
const PRESENT: u64 = 1 << 63;
const SWAPPED: u64 = 1 << 62;
/// It belongs to a file, or to memory that is shared on purpose.
const OF_FILE: u64 = 1 << 61;
/// It is mapped once.
const EXCLUSIVE: u64 = 1 << 56;
/// The page's number, or its place in the swap: 0 for who may not know it (`CAP_SYS_ADMIN`).
const PLACE: u64 = (1 << 55) - 1;

/// Entries that are read at once: 512 KiB.
const CHUNK_PAGES: usize = 65_536;

const ENTRY_BYTES: u64 = 8;

/// Bytes of a page.
fn page_bytes() -> u64 {
    // SAFETY: takes a number and touches no memory.
    u64::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4_096).max(1)
}

/// Private pages of a process, compared with those at the same addresses of the process that it was forked from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SharedPages {
    /// Both have the same page.
    pub shared: u64,
    /// Each has one of its own.
    pub copied: u64,
    /// The other process has none.
    pub own: u64,
}

impl SharedPages {
    /// Adds those of another range.
    pub fn add(&mut self, other: Self) {
        self.shared += other.shared;
        self.copied += other.copied;
        self.own += other.own;
    }
}

/// The pages of one process.
#[derive(Debug)]
pub struct PageMap {
    file: File,
    page_bytes: u64,
}

impl PageMap {
    /// Opens it.
    ///
    /// # Errors
    ///
    /// If there is no such process, or its memory may not be read (same user, or `CAP_SYS_PTRACE`).
    pub fn open(pid: u32) -> io::Result<Self> {
        Ok(Self { file: File::open(format!("/proc/{pid}/pagemap"))?, page_bytes: page_bytes() })
    }

    /// Bytes of a page.
    pub fn page_bytes(&self) -> u64 {
        self.page_bytes
    }

    /// Compares the pages from address `start` up to `end` with those of `parent`. Nothing stops meanwhile: what is written to between the
    /// two looks, some microseconds apart, may be counted on either side.
    ///
    /// # Errors
    ///
    /// If one of the processes has ended.
    pub fn compare(&self, parent: &Self, start: u64, end: u64) -> io::Result<SharedPages> {
        let (mut at, mut found) = (start / self.page_bytes, SharedPages::default());
        let end = end / self.page_bytes;
        while at < end {
            let len = usize::try_from(end - at).unwrap_or(CHUNK_PAGES).min(CHUNK_PAGES);
            let own = self.read(at, len)?;
            if own.is_empty() {
                break;
            }
            found.add(compare_pages(&own, &parent.read(at, own.len())?));
            at += own.len() as u64;
        }
        Ok(found)
    }

    /// Entries from page number `first` on, `len` at most; fewer where addresses end.
    fn read(&self, first: u64, len: usize) -> io::Result<Vec<u64>> {
        let mut bytes = vec![0; len * ENTRY_BYTES as usize];
        let mut filled = 0;
        while filled < bytes.len() {
            match self.file.read_at(&mut bytes[filled..], first * ENTRY_BYTES + filled as u64) {
                Ok(0) => break,
                Ok(read) => filled += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(bytes[..filled]
            .chunks_exact(8)
            .map(|entry| entry.try_into().map_or(0, u64::from_ne_bytes))
            .collect())
    }
}

/// Compares entries of a process with those of the one that it was forked from, from the same address on; what is missing from the
/// latter is not there. What is in the swap of only one of the two is left out, because whether it is the same page cannot be told.
pub fn compare_pages(own: &[u64], parent: &[u64]) -> SharedPages {
    let mut found = SharedPages::default();
    for (at, own) in own.iter().enumerate() {
        let parent = parent.get(at).copied().unwrap_or_default();
        let is_there = |entry: u64| entry & (PRESENT | SWAPPED) != 0;
        if !is_there(*own) || own & OF_FILE != 0 {
            continue;
        }
        if !is_there(parent) {
            found.own += 1;
        } else if (own | parent) & SWAPPED != 0 {
            let is_same = own & parent & SWAPPED != 0 && own & PLACE == parent & PLACE;
            found.shared += u64::from(is_same);
        } else if own & PLACE == 0 || parent & PLACE == 0 {
            // Where they are is not told. But if nobody else has it, the parent does not either.
            let is_copied = own & EXCLUSIVE != 0 || parent & OF_FILE != 0;
            found.copied += u64::from(is_copied);
            found.shared += u64::from(!is_copied);
        } else if own & PLACE == parent & PLACE {
            found.shared += 1;
        } else {
            found.copied += 1;
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_the_same_by_their_number() {
        let own = [PRESENT | 7, PRESENT | 8, PRESENT | EXCLUSIVE | 9, 0, PRESENT | OF_FILE | 5, PRESENT | 3];
        let parent = [PRESENT | 7, PRESENT | 6, 0, PRESENT | 4, PRESENT | OF_FILE | 5];
        assert_eq!(compare_pages(&own, &parent), SharedPages { shared: 1, copied: 1, own: 2 });
    }

    #[test]
    fn without_numbers_it_counts_whether_anybody_else_has_it() {
        let own = [PRESENT, PRESENT | EXCLUSIVE, PRESENT | EXCLUSIVE, PRESENT];
        let parent = [PRESENT, PRESENT, 0, PRESENT | OF_FILE];
        assert_eq!(compare_pages(&own, &parent), SharedPages { shared: 1, copied: 2, own: 1 });
    }

    #[test]
    fn what_only_one_has_in_the_swap_is_left_out() {
        let own = [SWAPPED | 5, SWAPPED | 5, PRESENT | 5, SWAPPED | 5];
        let parent = [SWAPPED | 5, SWAPPED | 6, SWAPPED | 5, 0];
        assert_eq!(compare_pages(&own, &parent), SharedPages { shared: 1, copied: 0, own: 1 });
    }

    #[test]
    fn a_child_that_writes_has_pages_of_its_own() {
        const PAGES: usize = 64;
        let page = usize::try_from(page_bytes()).unwrap();
        // Mapped by itself, so that nothing else lies in its pages.
        // SAFETY: asks for new memory of our own.
        let memory = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                PAGES * page,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        assert_ne!(memory, libc::MAP_FAILED);
        let write = |from: usize, to: usize| {
            for number in from..to {
                // SAFETY: within the memory that was mapped above.
                let byte = unsafe { memory.cast::<u8>().add(number * page) };
                // SAFETY: it may be written to, and nobody else uses it.
                unsafe { byte.write_volatile(1) };
            }
        };
        // 48 of 64 pages are there before the fork; the child writes to 16 of them, and to 8 others.
        write(0, 48);
        let (mut ends, mut tells) = ([0; 2], [0; 2]);
        // SAFETY: both arrays have room for two files.
        assert_eq!(unsafe { libc::pipe(ends.as_mut_ptr()) }, 0);
        // SAFETY: likewise.
        assert_eq!(unsafe { libc::pipe(tells.as_mut_ptr()) }, 0);
        // SAFETY: the child calls only what may be called after a fork of a process with threads.
        let child = unsafe { libc::fork() };
        if child == 0 {
            write(0, 16);
            write(48, 56);
            // SAFETY: files and a byte that are there; then it ends without running anything else.
            unsafe { libc::close(ends[1]) };
            // SAFETY: likewise.
            unsafe { libc::write(tells[1], [1_u8].as_ptr().cast(), 1) };
            // SAFETY: likewise. It comes back when the parent closes its end.
            unsafe { libc::read(ends[0], [0_u8].as_mut_ptr().cast(), 1) };
            // SAFETY: ends this process.
            unsafe { libc::_exit(0) };
        }
        // SAFETY: waits for a byte of the child.
        assert_eq!(unsafe { libc::read(tells[0], [0_u8].as_mut_ptr().cast(), 1) }, 1);
        let pid = u32::try_from(child).unwrap();
        let start = memory as u64;
        let found = PageMap::open(pid).and_then(|own| {
            own.compare(&PageMap::open(std::process::id())?, start, start + (PAGES * page) as u64)
        });
        for file in ends.into_iter().chain(tells) {
            // SAFETY: ours, and not used any more.
            unsafe { libc::close(file) };
        }
        // SAFETY: the child's number; nothing is written.
        unsafe { libc::waitpid(child, std::ptr::null_mut(), 0) };
        assert_eq!(found.unwrap(), SharedPages { shared: 32, copied: 16, own: 8 });
    }
}
