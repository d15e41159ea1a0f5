//! When to sample: absolute times, so that a late wake-up does not shift those after it.

use std::ptr;

/// Nanoseconds of `CLOCK_MONOTONIC`.
pub(crate) fn monotonic_ns() -> u64 {
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

/// What a wait was for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wake {
    /// A tick has come.
    Tick {
        /// Now, by `CLOCK_MONOTONIC`.
        now_ns: u64,
        /// Ticks that have passed unused since the one before.
        missed: u64,
    },
    /// The end has come.
    End {
        /// Ticks that were due by the end and have passed unused.
        missed: u64,
    },
    /// A signal came first: wait again unless it means the end.
    Signal,
}

/// Ticks at a fixed interval from a fixed begin, up to an end.
#[derive(Debug)]
pub(crate) struct Schedule {
    next_ns: u64,
    interval_ns: u64,
    end_ns: u64,
}

impl Schedule {
    /// A schedule whose first tick is one interval after `start_ns`, and whose last is due by `end_ns` (by
    /// `CLOCK_MONOTONIC`).
    ///
    /// Asks the kernel to wake this thread on time: its timers are otherwise put off by up to 50 us to save wake-ups,
    /// which is a whole interval at 20 kHz.
    pub(crate) fn new(start_ns: u64, interval_ns: u64, end_ns: Option<u64>) -> Self {
        let slack_ns: libc::c_ulong = if interval_ns < 2_000_000 { 1 } else { 50_000 };
        // SAFETY: `PR_SET_TIMERSLACK` takes a number and concerns only the calling thread.
        unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, slack_ns, 0, 0, 0) };
        Self { next_ns: start_ns + interval_ns, interval_ns, end_ns: end_ns.unwrap_or(u64::MAX) }
    }

    /// Rests until the next tick, or the end if that comes first; `rest` is false if a signal came before.
    pub(crate) fn wait(&mut self, rest: impl FnOnce(u64) -> bool) -> Wake {
        let until_ns = self.next_ns.min(self.end_ns);
        if monotonic_ns() < until_ns && !rest(until_ns) {
            return Wake::Signal;
        }
        self.wake_at(monotonic_ns())
    }

    /// What it means to wake up at this time. A tick that was due by the end counts, although one wakes up after it.
    fn wake_at(&mut self, now_ns: u64) -> Wake {
        if self.next_ns > self.end_ns {
            return Wake::End { missed: 0 };
        }
        let missed = now_ns.saturating_sub(self.next_ns) / self.interval_ns;
        let last_due_ns = self.next_ns + missed * self.interval_ns;
        if last_due_ns > self.end_ns {
            return Wake::End { missed: (self.end_ns - self.next_ns) / self.interval_ns + 1 };
        }
        self.next_ns = last_due_ns + self.interval_ns;
        Wake::Tick { now_ns, missed }
    }
}

/// False if a signal came first.
pub(crate) fn sleep_until(monotonic_ns: u64) -> bool {
    let until = libc::timespec {
        tv_sec: (monotonic_ns / 1_000_000_000).cast_signed(),
        tv_nsec: (monotonic_ns % 1_000_000_000).cast_signed(),
    };
    // SAFETY: `until` outlives the call; with an absolute time the remainder is not written.
    let result = unsafe {
        libc::clock_nanosleep(libc::CLOCK_MONOTONIC, libc::TIMER_ABSTIME, &raw const until, ptr::null_mut())
    };
    result == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_that_have_passed_are_counted_and_left_out() {
        let mut schedule = Schedule::new(1_000, 100, None);
        assert_eq!(schedule.wake_at(1_104), Wake::Tick { now_ns: 1_104, missed: 0 });
        assert_eq!(schedule.wake_at(1_450), Wake::Tick { now_ns: 1_450, missed: 2 });
        assert_eq!(schedule.next_ns, 1_500);
    }

    #[test]
    fn the_tick_that_is_due_at_the_end_counts() {
        let mut schedule = Schedule::new(1_000, 100, Some(1_200));
        assert_eq!(schedule.wake_at(1_104), Wake::Tick { now_ns: 1_104, missed: 0 });
        assert_eq!(schedule.wake_at(1_207), Wake::Tick { now_ns: 1_207, missed: 0 });
        assert_eq!(schedule.wake_at(1_208), Wake::End { missed: 0 });
    }

    #[test]
    fn who_wakes_up_after_the_end_has_missed_only_what_was_due_before() {
        let mut schedule = Schedule::new(1_000, 100, Some(1_250));
        assert_eq!(schedule.wake_at(1_704), Wake::End { missed: 2 });
    }

    #[test]
    fn a_wait_is_over_at_the_end_and_not_at_the_tick_after_it() {
        let now_ns = monotonic_ns();
        let mut schedule = Schedule::new(now_ns, u64::MAX / 2, Some(now_ns + 1));
        assert_eq!(schedule.wait(sleep_until), Wake::End { missed: 0 });
    }
}
