use std::time::Instant;
use std::{fs, thread};

use crate::PATIENCE;

/// For how long a thread has had a CPU, as the scheduler counts it: nanoseconds.
///
/// # Panics
///
/// If there is no such thread.
pub fn cpu_time_ns(tid: u32) -> u64 {
    let told = fs::read_to_string(format!("/proc/{tid}/schedstat")).expect("a thread that is there");
    told.split_whitespace().next().and_then(|ns| ns.parse().ok()).expect("a number")
}

/// Returns when a thread has had a CPU for so many nanoseconds from now on.
///
/// # Panics
///
/// If it ends, or has not had it within a minute.
pub fn wait_cpu_time(tid: u32, ns: u64) {
    let (begin, before) = (Instant::now(), cpu_time_ns(tid));
    while cpu_time_ns(tid) < before + ns {
        assert!(begin.elapsed() < PATIENCE, "it has run for {} ns", cpu_time_ns(tid) - before);
        thread::yield_now();
    }
}
