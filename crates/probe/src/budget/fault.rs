//! What a page fault takes on its way into the kernel and back, where no program sees it.

use std::io;
use std::ptr;
use std::time::Instant;

use libbpf_rs::{MapCore as _, MapFlags, MapHandle, ObjectBuilder};
use slip_remote::{PerfEvent, PerfScope, open_perf_event, set_perf_event_enabled};

use super::{FAULTS, attach_perf};
use crate::ProbeError;
use crate::probe::{find_map, find_program, loading, other};

/// The programs, compiled by `build.rs`.
static OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/fault.bpf.o"));

/// Whose events `perf_event_open(2)` counts by this number: the caller's, whatever namespaces it is in.
const OWN_THREAD: u32 = 0;

/// So many pages are touched one after the other, each for the first time, and this so often.
const PAGES: usize = 64;
const ROUNDS: usize = 33;
const PAGE_BYTES: usize = 4_096;

/// Nanoseconds that a page fault takes beyond what programs see of it from its tracepoint to where the kernel counts it: the CPU's way into the
/// kernel and back, and a hypervisor's part. Of what programs take themselves only that is in it which those take that the kernel calls anyway.
///
/// It is measured, on memory of our own: how long a touch takes while its end is not looked at, less what programs see of the next ones. The two
/// take turns, as CPUs become faster and slower.
///
/// # Errors
///
/// As for [`BudgetProbe::start`](super::BudgetProbe::start).
pub(super) fn unseen_ns() -> Result<u64, ProbeError> {
    let object = ObjectBuilder::default().open_memory(OBJECT).map_err(|error| loading(&error))?;
    let object = object.load().map_err(|error| loading(&error))?;
    let seen = find_map(&object, "faults_seen")?;
    let (mut links, mut ends) = (Vec::new(), Vec::new());
    for kind in FAULTS {
        let end = open_perf_event(PerfEvent::Software(kind), 1, 0, PerfScope::Thread(OWN_THREAD));
        // The link keeps the other one.
        ends.push(
            end.as_ref()
                .map_err(unusable)
                .and_then(|end| end.try_clone().map_err(|error| unusable(&error)))?,
        );
        links.push(attach_perf(&object, "see_fault_end", end, 0)?);
    }
    links.push(find_program(&object, "see_fault")?.attach().map_err(|error| other(&error))?);
    let look = |is_on: bool| {
        ends.iter().try_for_each(|end| set_perf_event_enabled(end, is_on)).map_err(|error| unusable(&error))
    };
    // The first one tells which thread is ours.
    Fresh::map()?.touch();
    let mut unseen = Vec::new();
    for _ in 0..ROUNDS {
        look(false)?;
        let memory = Fresh::map()?;
        let begin = Instant::now();
        memory.touch();
        let touched = begin.elapsed().as_nanos() as u64 / PAGES as u64;
        look(true)?;
        let before = counted(&seen)?;
        Fresh::map()?.touch();
        let after = counted(&seen)?;
        unseen.push(touched.saturating_sub((after.1 - before.1) / (after.0 - before.0).max(1)));
    }
    super::detach(links);
    unseen.sort_unstable();
    // Rather too little is taken as memory's than too much.
    Ok(unseen[ROUNDS / 4])
}

fn unusable(error: &io::Error) -> ProbeError {
    ProbeError::Other(format!("page faults cannot be looked at: {error}"))
}

/// How many faults were seen, and for how long in all.
fn counted(seen: &MapHandle) -> Result<(u64, u64), ProbeError> {
    let bytes = seen.lookup(&0_u32.to_le_bytes(), MapFlags::ANY).map_err(|error| other(&error))?;
    let bytes = bytes.unwrap_or_default();
    let number = |at: usize| {
        bytes.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |word| u64::from_le_bytes(*word))
    };
    Ok((number(0), number(8)))
}

/// Memory that nobody has touched yet.
struct Fresh(ptr::NonNull<u8>);

impl Fresh {
    fn map() -> Result<Self, ProbeError> {
        let (access, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: asks for new memory of our own, at a place that the kernel chooses.
        let at = unsafe { libc::mmap(ptr::null_mut(), PAGES * PAGE_BYTES, access, kind, -1, 0) };
        let failed = || ProbeError::Other(format!("no memory: {}", io::Error::last_os_error()));
        let memory = ptr::NonNull::new(at.cast()).filter(|_| at != libc::MAP_FAILED).ok_or_else(failed)?;
        // One fault for each page. A kernel that knows no large pages refuses, and is right.
        // SAFETY: the mapping made above.
        unsafe { libc::madvise(at, PAGES * PAGE_BYTES, libc::MADV_NOHUGEPAGE) };
        Ok(Self(memory))
    }

    fn touch(&self) {
        for page in 0..PAGES {
            // SAFETY: `page` is below the count of pages that are mapped there.
            let at = unsafe { self.0.add(page * PAGE_BYTES) };
            // SAFETY: mapped, writable, and known to nobody else.
            unsafe { at.write_volatile(1) };
        }
    }
}

impl Drop for Fresh {
    fn drop(&mut self) {
        // SAFETY: the mapping of `map`, to which nothing refers any more.
        unsafe { libc::munmap(self.0.as_ptr().cast(), PAGES * PAGE_BYTES) };
    }
}
