//! How many descriptors are left: a process may have 1,024 as a rule, and a thread that is watched takes three.

use std::os::fd::{AsRawFd, RawFd};
use std::sync::OnceLock;

/// Descriptors kept for what must not fail: the recording and its journal, memory of further processes, `/proc`.
const RESERVED: RawFd = 64;

/// Whether no more descriptors should be spent on knowing whether threads run.
pub(crate) fn are_scarce(newest: &impl AsRawFd) -> bool {
    newest.as_raw_fd() >= limit() - RESERVED
}

/// Whether no more descriptors should be spent on knowing it faster, or on more threads.
pub fn are_getting_scarce(newest: &impl AsRawFd) -> bool {
    newest.as_raw_fd() >= limit() / 2
}

fn limit() -> RawFd {
    static LIMIT: OnceLock<RawFd> = OnceLock::new();
    *LIMIT.get_or_init(|| {
        let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        // SAFETY: `limit` outlives the call, which writes it whole.
        let result = unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) };
        if result == 0 { RawFd::try_from(limit.rlim_cur).unwrap_or(RawFd::MAX) } else { RawFd::MAX }
    })
}
