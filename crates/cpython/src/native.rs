//! The kernel's numbers of threads where the interpreter does not know them, up to CPython 3.10.
//!
//! It knows `pthread_self()`, which is the address of a structure of the C library that has the number. Where in it depends on the
//! library, and nothing says which that is. So a place is taken only if what stands there are numbers of threads of this process, by
//! what the kernel says; where none is, threads have no number.

use slip_remote::{Memory, ReadError, RemoteAddr, Symbols};

use crate::bytes::{addr_at, u32_at};
use crate::offsets::{NativeId, ThreadOffsets};
use crate::threads::{Links, Thread};

/// `struct pthread.tid` on x86-64: of [glibc](https://sourceware.org/git/?p=glibc.git;a=blob;f=nptl/descr.h), where it comes after
/// `tcbhead_t`, which is padded to 704 bytes, and a list of two pointers; and of
/// [musl](https://git.musl-libc.org/cgit/musl/tree/src/internal/pthread_impl.h).
const TID_PLACES: [u64; 2] = [720, 48];

/// Finds out where the C library keeps the number of a thread, and takes the numbers of `threads` from there.
pub(crate) fn find<T: Memory + Symbols + ?Sized>(
    target: &T,
    offsets: &mut ThreadOffsets,
    threads: &[Thread],
) -> Result<(), ReadError> {
    let NativeId::Library { serial, counter, .. } = offsets.native_thread_id else { return Ok(()) };
    let library = |tid| NativeId::Library { serial, counter, tid };
    for place in TID_PLACES {
        let mut tids = Vec::new();
        for thread in threads {
            tids.push(read(target, &library(Some(place)), &thread.links)?);
        }
        // In this order: who has a number now is in the list, or has ended since.
        let known = target.thread_ids();
        tids.retain(|tid| *tid != 0);
        let all = tids.len();
        tids.sort_unstable();
        tids.dedup();
        tids.retain(|tid| known.iter().any(|known| u64::from(*known) == *tid));
        if tids.len() * 2 > all {
            offsets.native_thread_id = library(Some(place));
            return Ok(());
        }
    }
    Ok(())
}

/// The number of a thread; 0 if it is not known.
pub(crate) fn read<M: Memory + ?Sized>(
    memory: &M,
    native: &NativeId,
    links: &Links,
) -> Result<u64, ReadError> {
    let NativeId::Library { tid: Some(place), .. } = native else { return Ok(links.native_thread_id) };
    if links.thread_id == 0 {
        return Ok(0);
    }
    /// `tcbhead_t.tcb` of glibc and `struct pthread.self` of musl: the structure begins with its own address.
    const SELF_BYTES: usize = 8;
    let at = RemoteAddr(links.thread_id);
    let (mut own, mut tid) = ([0; SELF_BYTES], [0; 4]);
    let found = memory.read(at, &mut own).and_then(|()| memory.read(at.offset(*place), &mut tid));
    match found {
        Ok(()) if addr_at(&own, 0) == at => Ok(u64::from(u32_at(&tid, 0))),
        // The thread has ended.
        Ok(()) | Err(ReadError::Unmapped { .. }) => Ok(0),
        Err(error) => Err(error),
    }
}
