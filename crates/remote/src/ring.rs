//! A ring in which the kernel notes what becomes of a thread, and that we share with it.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::descriptors::are_getting_scarce;
use crate::perf::{PerfEvent, PerfScope, open_perf_event};
use crate::prefetch::prefetch;

/// `PERF_COUNT_SW_DUMMY` and bits of `perf_event_attr` (`include/uapi/linux/perf_event.h`).
const PERF_COUNT_SW_DUMMY: u64 = 9;
const EXCLUDE_KERNEL: u64 = 1 << 5;
const TASK: u64 = 1 << 13;
const CONTEXT_SWITCH: u64 = 1 << 26;

/// `PERF_RECORD_SWITCH`, and what its `misc` says: switched out; and that although it could run on.
const PERF_RECORD_SWITCH: u64 = 14;
const SWITCH_OUT: u64 = 1 << (32 + 13);
const SWITCH_OUT_PREEMPT: u64 = 1 << (32 + 14);

/// Length of a record of a switch: its header, nothing else was asked for.
pub(crate) const SWITCH_BYTES: u64 = 8;

/// Where `data_head` lies in `perf_event_mmap_page`, in words.
const DATA_HEAD: usize = 1_024 / 8;

/// One page for the header, one for the ring.
pub(crate) const PAGE_BYTES: usize = 4_096;

/// Where a thread is, by its last switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// On a CPU.
    In,
    /// Off the CPU although it could run on.
    Preempted,
    /// Off the CPU because it waited for something; it may wait for a CPU by now.
    Out,
    /// It has not been switched since it is watched.
    Unknown,
}

/// What is noted beside switches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Notes {
    /// Nothing: all records are of the same length.
    Switches,
    /// That the thread makes another one or a process, or ends.
    SwitchesAndTasks,
}

/// What a thread did, oldest first, as far as it is still there.
#[derive(Debug)]
pub(crate) struct Ring {
    _event: OwnedFd,
    /// The header's page and the ring's, which the kernel writes.
    pages: ptr::NonNull<AtomicU64>,
}

// SAFETY: the pages are only read, with atomic loads, and unmapped by whoever drops the value.
unsafe impl Send for Ring {}
// SAFETY: as above.
unsafe impl Sync for Ring {}

impl Ring {
    /// Watches thread `tid`. Needs no privilege for threads of the same user where `kernel.perf_event_paranoid` is at
    /// most 2.
    ///
    /// # Errors
    ///
    /// If the kernel refuses, as in most containers, or has no such thread; `EMFILE` if we have many files open.
    pub(crate) fn watch(tid: u32, notes: Notes) -> io::Result<Self> {
        let task = if notes == Notes::SwitchesAndTasks { TASK } else { 0 };
        let flags = EXCLUDE_KERNEL | CONTEXT_SWITCH | task;
        let event =
            open_perf_event(PerfEvent::Software(PERF_COUNT_SW_DUMMY), 0, flags, PerfScope::Thread(tid))?;
        if are_getting_scarce(&event) {
            return Err(io::Error::from_raw_os_error(libc::EMFILE));
        }
        // A ring that we cannot write to is one that never fills up: the kernel overwrites what is old.
        // SAFETY: a new mapping, at a place that the kernel chooses.
        let pages = unsafe {
            libc::mmap(
                ptr::null_mut(),
                2 * PAGE_BYTES,
                libc::PROT_READ,
                libc::MAP_SHARED,
                event.as_raw_fd(),
                0,
            )
        };
        match ptr::NonNull::new(pages.cast::<AtomicU64>()) {
            Some(pages) if pages.as_ptr().cast() != libc::MAP_FAILED => Ok(Self { _event: event, pages }),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Has the CPU fetch the ring's header.
    pub(crate) fn prefetch(&self) {
        prefetch(self.word(DATA_HEAD));
    }

    /// Bytes that the kernel has written so far.
    pub(crate) fn written(&self) -> u64 {
        self.word(DATA_HEAD).load(Ordering::Acquire)
    }

    /// Where the thread was when so much had been written.
    pub(crate) fn place(&self, written: u64) -> Place {
        let Some(last) = written.checked_sub(SWITCH_BYTES) else { return Place::Unknown };
        let record = self.record(last);
        // What ends another record is a time.
        if record & 0xffff_ffff != PERF_RECORD_SWITCH || record >> 48 != SWITCH_BYTES {
            Place::Unknown
        } else if record & SWITCH_OUT == 0 {
            Place::In
        } else if record & SWITCH_OUT_PREEMPT != 0 {
            Place::Preempted
        } else {
            Place::Out
        }
    }

    /// Whether anything but switches was noted between two such numbers: the thread has made another one, or ends. True as well
    /// if what was written in between is gone.
    pub(crate) fn notes_more_than_switches(&self, from: u64, to: u64) -> bool {
        if to.wrapping_sub(from) > PAGE_BYTES as u64 / 2 {
            return true;
        }
        let mut at = from;
        while at < to {
            let record = self.record(at);
            if record & 0xffff_ffff != PERF_RECORD_SWITCH || record >> 48 != SWITCH_BYTES {
                return true;
            }
            at += SWITCH_BYTES;
        }
        // What was just read may have been overwritten meanwhile.
        self.written().wrapping_sub(from) > PAGE_BYTES as u64
    }

    /// The first word of the record that was written after so many bytes.
    fn record(&self, at: u64) -> u64 {
        let at = at % PAGE_BYTES as u64 / 8;
        self.word(PAGE_BYTES / 8 + at as usize).load(Ordering::Relaxed)
    }

    fn word(&self, at: usize) -> &AtomicU64 {
        debug_assert!(at < 2 * PAGE_BYTES / 8);
        // SAFETY: `at` is less than the number of words of the two pages.
        let word = unsafe { self.pages.add(at) };
        // SAFETY: the pages stay mapped as long as `self` lives, and the kernel writes whole words.
        unsafe { word.as_ref() }
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: these pages were mapped in `watch`, and nobody else knows them.
        unsafe { libc::munmap(self.pages.as_ptr().cast(), 2 * PAGE_BYTES) };
    }
}
