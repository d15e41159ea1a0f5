//! What `libslipmalloc.so` counts in the processes that use it: a page of theirs, `alloc/src/published.h`.

use slip_remote::{Mapping, Memory, Range, ReadError, RemoteAddr};

/// What the page begins with.
const MAGIC: u64 = 0x7061_6568_7069_6c73;
const VERSION: u32 = 1;
const PAGE_BYTES: usize = 4_096;
const CLASS_BYTES: usize = 64;
/// Fewest bytes before the first class.
const HEAD_BYTES: usize = 200;
/// Flag of the build that finds each misuse at once.
const SECURE: u32 = 1;
/// Flag: transparent huge pages are asked for.
const HUGE_PAGES: u32 = 2;
/// Flag of the build that gives each block a guard page.
const DEBUG: u32 = 4;
/// Most places in which the page is looked for: as many mappings as a process may have by default.
const MAX_PLACES: usize = 65_536;
/// As many are looked at by one system call.
const PLACES_AT_ONCE: usize = 1_024;
const KERNEL_PAGE_BYTES: u64 = 4_096;

/// The counters of one process. Numbers are the target's: any of them may be anything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MallocPage {
    /// The build that finds each misuse at once.
    pub is_secure: bool,
    /// The build that gives each block a guard page.
    pub is_debug: bool,
    /// Transparent huge pages are asked for.
    pub huge_pages: bool,
    /// Forks between the process that loaded the library and this one; counts go on from before.
    pub forks: u32,
    /// Address space that is reserved, and what would have been without a limit of it.
    pub region_bytes: u64,
    /// See there.
    pub wanted_bytes: u64,
    /// May be touched.
    pub usable_bytes: u64,
    /// Taken as slabs and large blocks.
    pub taken_bytes: u64,
    /// Free and resident, outside of slabs.
    pub kept_bytes: u64,
    /// Taken again while resident, since the start.
    pub reused_bytes: u64,
    /// Given back to the kernel since the start.
    pub purged_bytes: u64,
    /// By so many calls.
    pub purges: u64,
    /// Calls that the kernel refused: the memory is locked.
    pub purges_refused: u64,
    /// May have huge pages.
    pub huge_bytes: u64,
    /// Turns of decay.
    pub decay_turns: u64,
    /// How long free memory is kept at least, milliseconds; negative for ever.
    pub decay_ms: i64,
    /// Of magazines and caches of threads.
    pub arena_bytes: u64,
    /// Threads that have a cache.
    pub caches: u64,
    /// Caches of threads of the process that this one was forked from: lost.
    pub caches_lost: u64,
    /// Magazines that nobody had needed for a turn of decay.
    pub magazines_decayed: u64,
    /// Blocks of more than 32 KiB taken.
    pub large_taken: u64,
    /// And given back.
    pub large_given: u64,
    /// Blocks that threads without a cache took and gave.
    pub direct_blocks: u64,
    /// There was no memory at first: all that is kept was gathered for it.
    pub second_tries: u64,
    /// And none after that: `malloc()` returned NULL.
    pub failures: u64,
    /// Blocks that the debug build gave a guard page, and those that it had none for; zero in libraries before it.
    pub guarded_taken: u64,
    /// See there.
    pub unguarded_taken: u64,
    /// By size, the smallest first.
    pub classes: Vec<MallocClass>,
}

/// Blocks of one size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MallocClass {
    /// Of a block.
    pub block_bytes: u32,
    /// Full magazines that wait for a thread.
    pub full_magazines: u32,
    /// Slabs of 64 KiB.
    pub slabs: u64,
    /// Blocks that are in no slab.
    pub blocks_out: u64,
    /// Of these, in magazines that wait.
    pub magazine_blocks: u64,
    /// A thread that needed blocks got a full magazine.
    pub refills_hit: u64,
    /// It got one that was filled from slabs.
    pub refills_missed: u64,
    /// A thread had a magazine too many, which was kept.
    pub returns_kept: u64,
    /// It was emptied into slabs.
    pub returns_emptied: u64,
}

impl MallocClass {
    /// Blocks with the program or in caches of threads.
    pub fn blocks(&self) -> u64 {
        self.blocks_out.saturating_sub(self.magazine_blocks)
    }

    /// Their bytes.
    pub fn bytes(&self) -> u64 {
        self.blocks().saturating_mul(self.block_bytes.into())
    }

    /// Bytes of its slabs.
    pub fn slab_bytes(&self) -> u64 {
        self.slabs.saturating_mul(64 << 10)
    }

    /// Magazines that came and went.
    pub fn exchanges(&self) -> u64 {
        [self.refills_hit, self.refills_missed, self.returns_kept, self.returns_emptied]
            .into_iter()
            .fold(0, u64::saturating_add)
    }

    fn is_used(&self) -> bool {
        self.slabs > 0 || self.exchanges() > 0
    }
}

impl MallocPage {
    /// Classes that have been used.
    pub fn used_classes(&self) -> impl Iterator<Item = &MallocClass> {
        self.classes.iter().filter(|class| class.is_used())
    }

    /// Sum of something over all classes.
    pub fn sum(&self, of: impl Fn(&MallocClass) -> u64) -> u64 {
        self.classes.iter().map(of).fold(0, u64::saturating_add)
    }

    /// Large blocks that the program has.
    pub fn large_blocks(&self) -> u64 {
        self.large_taken.saturating_sub(self.large_given)
    }

    /// What they take.
    pub fn large_bytes(&self) -> u64 {
        self.taken_bytes.saturating_sub(self.sum(MallocClass::slab_bytes))
    }

    /// Page faults that did not happen, at most: memory that was kept may not have been touched.
    pub fn faults_avoided(&self) -> u64 {
        self.reused_bytes / KERNEL_PAGE_BYTES
    }
}

/// Why a page says nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MallocPageError {
    /// It is none.
    NotAPage,
    /// It is of another version of the library.
    OtherVersion(u32),
}

/// What the page says.
///
/// # Errors
///
/// If it is none that we know.
pub fn parse_malloc_page(page: &[u8]) -> Result<MallocPage, MallocPageError> {
    let known = || {
        let magic = u64::from_le_bytes(*page.first_chunk()?);
        Some((magic, u32::from_le_bytes(*page.get(8..)?.first_chunk()?)))
    };
    match known() {
        Some((MAGIC, VERSION)) => parse(page).ok_or(MallocPageError::NotAPage),
        Some((MAGIC, version)) => Err(MallocPageError::OtherVersion(version)),
        _ => Err(MallocPageError::NotAPage),
    }
}

fn half(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn word(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn parse(page: &[u8]) -> Option<MallocPage> {
    let len = usize::try_from(half(page, 12)?).ok()?.min(PAGE_BYTES);
    let offset = usize::try_from(half(page, 20)?).ok()?;
    if offset < HEAD_BYTES {
        return None;
    }
    let classes = page.get(offset..len.min(page.len()))?.chunks_exact(CLASS_BYTES);
    let count = usize::try_from(half(page, 16)?).ok()?;
    let flags = half(page, 24)?;
    let mut at = 32;
    let mut next = || {
        at += 8;
        word(page, at - 8)
    };
    Some(MallocPage {
        is_secure: flags & SECURE != 0,
        is_debug: flags & DEBUG != 0,
        huge_pages: flags & HUGE_PAGES != 0,
        forks: half(page, 28)?,
        region_bytes: next()?,
        wanted_bytes: next()?,
        usable_bytes: next()?,
        taken_bytes: next()?,
        kept_bytes: next()?,
        reused_bytes: next()?,
        purged_bytes: next()?,
        purges: next()?,
        purges_refused: next()?,
        huge_bytes: next()?,
        decay_turns: next()?,
        decay_ms: next()?.cast_signed(),
        arena_bytes: next()?,
        caches: next()?,
        caches_lost: next()?,
        magazines_decayed: next()?,
        large_taken: next()?,
        large_given: next()?,
        direct_blocks: next()?,
        second_tries: next()?,
        failures: next()?,
        guarded_taken: next()?,
        unguarded_taken: next()?,
        classes: classes.take(count).map(parse_class).collect::<Option<_>>()?,
    })
}

fn parse_class(bytes: &[u8]) -> Option<MallocClass> {
    Some(MallocClass {
        block_bytes: half(bytes, 0)?,
        full_magazines: half(bytes, 4)?,
        slabs: word(bytes, 8)?,
        blocks_out: word(bytes, 16)?,
        magazine_blocks: word(bytes, 24)?,
        refills_hit: word(bytes, 32)?,
        refills_missed: word(bytes, 40)?,
        returns_kept: word(bytes, 48)?,
        returns_emptied: word(bytes, 56)?,
    })
}

/// Where the page may be: private memory of no file, right after what cannot be read.
fn places(mappings: &[Mapping]) -> Vec<RemoteAddr> {
    mappings
        .windows(2)
        .filter_map(|pair| {
            let [before, mapping] = pair else { return None };
            let is_behind_a_guard = !before.readable && before.end == mapping.start;
            let is_private = !mapping.shared && mapping.inode == 0;
            let is_data = mapping.readable && !mapping.executable;
            // Kernels that name such memory show its name in the place of a path.
            let is_anonymous = mapping.path.is_empty() || mapping.path.starts_with("[anon:");
            (is_behind_a_guard && is_private && is_data && is_anonymous).then_some(RemoteAddr(mapping.start))
        })
        .take(MAX_PLACES)
        .collect()
}

/// The page of a process, found by how it begins; `None` if it has none.
pub(crate) fn find_page(
    memory: &impl Memory,
    mappings: &[Mapping],
) -> Result<Option<[u8; PAGE_BYTES]>, ReadError> {
    let places = places(mappings);
    let mut rest = &places[..];
    while !rest.is_empty() {
        let group = &rest[..rest.len().min(PLACES_AT_ONCE)];
        let ranges: Vec<Range> = group.iter().map(|place| Range::new(*place, 8)).collect();
        let mut begins = vec![0; 8 * group.len()];
        let read = memory.read_ranges(&ranges, &mut begins)?;
        for (place, begin) in group[..read].iter().zip(begins.chunks_exact(8)) {
            let mut page = [0; PAGE_BYTES];
            if begin == MAGIC.to_le_bytes() && memory.read(*place, &mut page).is_ok() {
                return Ok(Some(page));
            }
        }
        // What could not be read is gone since.
        rest = &rest[(read + usize::from(read < group.len())).min(rest.len())..];
    }
    Ok(None)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "test code")]
mod tests {
    use std::cell::Cell;

    use super::*;

    /// A page with two classes.
    fn page() -> Vec<u8> {
        let mut page = MAGIC.to_le_bytes().to_vec();
        page.extend([VERSION, 256 + 2 * 64, 2, 256, SECURE, 3].into_iter().flat_map(u32::to_le_bytes));
        page.extend((1..=23_u64).flat_map(u64::to_le_bytes));
        page[32 + 3 * 8..][..8].copy_from_slice(&(10_u64 << 20).to_le_bytes());
        page[32 + 11 * 8..][..8].copy_from_slice(&(-1_i64).to_le_bytes());
        page.resize(256, 0);
        for (block_bytes, counts) in [(16_u32, [2_u64, 100, 10, 4, 3, 2, 1]), (32, [0; 7])] {
            page.extend([block_bytes, 5].into_iter().flat_map(u32::to_le_bytes));
            page.extend(counts.into_iter().flat_map(u64::to_le_bytes));
        }
        page.resize(PAGE_BYTES, 0);
        page
    }

    #[test]
    fn what_the_page_says() {
        let page = parse_malloc_page(&page()).unwrap();
        assert!(page.is_secure && !page.is_debug && !page.huge_pages);
        assert_eq!((page.guarded_taken, page.unguarded_taken), (22, 23));
        assert_eq!((page.forks, page.region_bytes, page.decay_ms, page.failures), (3, 1, -1, 21));
        let used: Vec<&MallocClass> = page.used_classes().collect();
        let [class] = used[..] else { panic!("{used:?}") };
        assert_eq!((class.blocks(), class.bytes(), class.exchanges()), (90, 1_440, 10));
        assert_eq!(page.large_bytes(), (10 << 20) - (128 << 10));
        // 17 were taken, 18 given: torn, and nothing to panic about.
        assert_eq!(page.large_blocks(), 0);
    }

    #[test]
    fn what_is_no_page_of_ours_is_refused() {
        let mut other = page();
        other[8] = 9;
        assert_eq!(parse_malloc_page(&other), Err(MallocPageError::OtherVersion(9)));
        for bytes in [&[][..], &page()[..20], &page()[..200], &[0; PAGE_BYTES]] {
            assert_eq!(parse_malloc_page(bytes), Err(MallocPageError::NotAPage));
        }
        // A class more than there is room for, and an offset that leads out of the page.
        let mut many = page();
        many[12..20].fill(0xff);
        assert_eq!(parse_malloc_page(&many).unwrap().classes.len(), (PAGE_BYTES - 256) / CLASS_BYTES);
        for offset in [0_u32, 5_000, u32::MAX] {
            let mut wrong = page();
            wrong[20..24].copy_from_slice(&offset.to_le_bytes());
            assert_eq!(parse_malloc_page(&wrong), Err(MallocPageError::NotAPage), "{offset}");
        }
    }

    /// Pages at multiples of 1 MiB; the third is gone. Begins with the magic in one of them.
    struct Pages {
        with_magic: u64,
        calls: Cell<usize>,
    }

    impl Memory for Pages {
        fn read(&self, addr: RemoteAddr, buf: &mut [u8]) -> Result<(), ReadError> {
            self.calls.set(self.calls.get() + 1);
            if addr.0 == 3 << 20 {
                return Err(ReadError::Unmapped { addr, len: buf.len() });
            }
            let bytes = if addr.0 == self.with_magic << 20 { page() } else { vec![0; PAGE_BYTES] };
            buf.copy_from_slice(&bytes[..buf.len()]);
            Ok(())
        }
    }

    fn mappings(count: u64) -> Vec<Mapping> {
        let guard = |at: u64| Mapping { start: (at << 20) - 4_096, end: at << 20, ..Mapping::default() };
        let data = |at: u64| Mapping {
            start: at << 20,
            end: (at << 20) + 4_096,
            readable: true,
            ..Mapping::default()
        };
        (1..=count).flat_map(|at| [guard(at), data(at)]).collect()
    }

    #[test]
    fn the_page_is_found_by_how_it_begins() {
        for with_magic in [1, 4, 2_000] {
            let memory = Pages { with_magic, calls: Cell::default() };
            let found = find_page(&memory, &mappings(2_000)).unwrap();
            assert_eq!(found.map(|found| found.to_vec()), Some(page()), "{with_magic}");
        }
        let memory = Pages { with_magic: 0, calls: Cell::default() };
        assert_eq!(find_page(&memory, &mappings(100)), Ok(None));
        assert_eq!(memory.calls.get(), 100);
    }

    #[test]
    fn other_memory_is_not_looked_at() {
        let mut shared = mappings(1);
        shared[1].shared = true;
        let mut file = mappings(1);
        file[1].inode = 5;
        let mut apart = mappings(1);
        apart[0].end -= 4_096;
        let mut readable = mappings(1);
        readable[0].readable = true;
        for mappings in [shared, file, apart, readable] {
            assert_eq!(places(&mappings), [], "{mappings:?}");
        }
        assert_eq!(places(&mappings(1)), [RemoteAddr(1 << 20)]);
        assert_eq!(places(&mappings(70_000)).len(), MAX_PLACES);
    }
}
