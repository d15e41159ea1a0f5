//! When to sample: absolute times, so that a late wake-up does not shift those after it.

use std::ptr;

/// Nanoseconds of `CLOCK_MONOTONIC`.
pub fn monotonic_ns() -> u64 {
    clock_ns(libc::CLOCK_MONOTONIC)
}

/// Nanoseconds since 1970.
pub fn unix_ns() -> u64 {
    clock_ns(libc::CLOCK_REALTIME)
}

/// CPU time that this process has used, all threads together, in nanoseconds.
pub fn own_cpu_ns() -> u64 {
    clock_ns(libc::CLOCK_PROCESS_CPUTIME_ID)
}

fn clock_ns(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` outlives the call, which writes it whole. The clocks used here exist on every Linux.
    unsafe { libc::clock_gettime(clock, &raw mut time) };
    time.tv_sec.cast_unsigned() * 1_000_000_000 + time.tv_nsec.cast_unsigned()
}

/// A tick that has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tick {
    /// Now, by `CLOCK_MONOTONIC`.
    pub now_ns: u64,
    /// Ticks that have passed unused since the one before.
    pub missed: u64,
}

/// Ticks at a fixed interval from a fixed begin.
#[derive(Debug)]
pub struct Schedule {
    next_ns: u64,
    interval_ns: u64,
}

impl Schedule {
    /// A schedule whose first tick is one interval after `start_ns` (by `CLOCK_MONOTONIC`).
    ///
    /// Asks the kernel to wake this thread on time: its timers are otherwise put off by up to 50 us to save wake-ups,
    /// which is a whole interval at 20 kHz.
    pub fn new(start_ns: u64, interval_ns: u64) -> Self {
        let slack_ns: libc::c_ulong = if interval_ns < 2_000_000 { 1 } else { 50_000 };
        // SAFETY: `PR_SET_TIMERSLACK` takes a number and concerns only the calling thread.
        unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, slack_ns, 0, 0, 0) };
        Self { next_ns: start_ns + interval_ns, interval_ns }
    }

    /// Sleeps until the next tick. `None` if a signal came first: ask again unless it means the end.
    pub fn wait(&mut self) -> Option<Tick> {
        let mut now_ns = monotonic_ns();
        if now_ns < self.next_ns {
            let until = libc::timespec {
                tv_sec: (self.next_ns / 1_000_000_000).cast_signed(),
                tv_nsec: (self.next_ns % 1_000_000_000).cast_signed(),
            };
            // SAFETY: `until` outlives the call; with an absolute time the remainder is not written.
            let result = unsafe {
                libc::clock_nanosleep(
                    libc::CLOCK_MONOTONIC,
                    libc::TIMER_ABSTIME,
                    &raw const until,
                    ptr::null_mut(),
                )
            };
            if result != 0 {
                return None;
            }
            now_ns = monotonic_ns();
        }
        let missed = now_ns.saturating_sub(self.next_ns) / self.interval_ns;
        self.next_ns += (missed + 1) * self.interval_ns;
        Some(Tick { now_ns, missed })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_that_have_passed_are_counted_and_left_out() {
        let start = monotonic_ns();
        let mut schedule = Schedule::new(start.saturating_sub(10_500_000), 1_000_000);
        let late = schedule.wait().unwrap();
        assert!(late.missed >= 9, "{late:?}");
        let next = schedule.wait().unwrap();
        assert!(next.now_ns > late.now_ns);
        assert_eq!((schedule.next_ns - start.saturating_sub(10_500_000)) % 1_000_000, 0);
    }
}
