//! When to sample: absolute times, so that a late wake-up does not shift those after it.
//!
//! At high rates a timer that comes too late is the rule on a virtual machine: the hypervisor gives the CPU to somebody else for
//! some milliseconds, in which nobody on it runs. At 10 kHz that lost 0.4 to 1.6 % of the looks, also those of a loop that does
//! nothing but sleep. A schedule that is [catching up](Schedule::catching_up) owes the ticks that have passed, and takes them
//! half-way between those that follow, one in each interval, until nothing is owed:
//!
//! - Not one after the other at once, as that would be one moment of the target counted many times. Between two looks there is
//!   always half an interval, give or take what a wake-up is late by.
//! - At times that are fixed by the schedule and by how late we woke up, not by what the looks find or how long they take: a
//!   half-way time that has passed when the look before it ends is not made up for, the next one is. So no state of the target
//!   is preferred, and the moments beside the gap stand for the gap, which nobody can see.
//! - At most [`MAX_OWED_NS`] worth of ticks: what is taken later than that says nothing about the time that was missed. Gaps are
//!   usually shorter: of 150,000 ticks at 10 kHz 1,080 had passed unused, in gaps of up to 4 ms. The rest is missed, and counted
//!   so. Below 250 Hz no tick is ever owed.

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

/// What a wait was for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wake {
    /// A tick has come, or one that is owed is taken.
    Tick {
        /// Now, by `CLOCK_MONOTONIC`.
        now_ns: u64,
        /// Ticks that have become due since the wake-up before: 0 if this one was counted when it passed unused. What has been due
        /// and is not taken is missed, unless it is owed and taken later.
        due: u64,
    },
    /// The end has come.
    End {
        /// Ticks that have become due since the wake-up before; none of them is taken any more.
        due: u64,
    },
    /// A signal came first: wait again unless it means the end.
    Signal,
}

/// For how much time ticks are owed at most: as long as a scheduler, ours or that of a hypervisor, usually lets another one run.
const MAX_OWED_NS: u64 = 4_000_000;

/// Ticks at a fixed interval from a fixed begin, up to an end.
#[derive(Debug)]
pub(crate) struct Schedule {
    /// When the next tick is due.
    next_ns: u64,
    interval_ns: u64,
    end_ns: u64,
    /// Ticks that have passed unused and are to be taken between others; never more than `max_owed`.
    owed: u64,
    max_owed: u64,
    /// The time half-way before the next tick has been used, or has passed.
    half_is_over: bool,
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
        Self {
            next_ns: start_ns + interval_ns,
            interval_ns,
            end_ns: end_ns.unwrap_or(u64::MAX),
            owed: 0,
            max_owed: 0,
            half_is_over: false,
        }
    }

    /// The same, but ticks that have passed unused are taken later, where that is soon enough: see above.
    pub(crate) fn catching_up(self) -> Self {
        Self { max_owed: MAX_OWED_NS.checked_div(self.interval_ns).unwrap_or(0), ..self }
    }

    /// Has the next tick be due this long after the last one, and those that follow as well.
    pub(crate) fn set_interval(&mut self, interval_ns: u64) {
        self.next_ns = self.next_ns - self.interval_ns + interval_ns;
        self.interval_ns = interval_ns;
    }

    /// Rests until the next tick, or the end if that comes first; `rest` is false if a signal came before.
    pub(crate) fn wait(&mut self, rest: impl FnOnce(u64) -> bool) -> Wake {
        let now_ns = monotonic_ns();
        let until_ns = self.rest_until(now_ns);
        if now_ns < until_ns && !rest(until_ns) {
            return Wake::Signal;
        }
        self.wake_at(monotonic_ns())
    }

    /// How long to rest if one begins at this time.
    fn rest_until(&mut self, now_ns: u64) -> u64 {
        let half_ns = self.next_ns - self.interval_ns / 2;
        // Without this a look that ends late would be followed by another one at once, at nearly the same moment.
        self.half_is_over |= now_ns >= half_ns;
        let waits_for_half = self.owed > 0 && !self.half_is_over;
        self.end_ns.min(if waits_for_half { half_ns } else { self.next_ns })
    }

    /// What it means to wake up at this time. A tick that was due by the end counts, although one wakes up after it.
    fn wake_at(&mut self, now_ns: u64) -> Wake {
        if self.owed > 0 && !self.half_is_over && now_ns < self.next_ns.min(self.end_ns) {
            self.owed -= 1;
            self.half_is_over = true;
            return Wake::Tick { now_ns, due: 0 };
        }
        if self.next_ns > self.end_ns {
            return Wake::End { due: 0 };
        }
        let passed = now_ns.saturating_sub(self.next_ns) / self.interval_ns;
        let last_due_ns = self.next_ns + passed * self.interval_ns;
        if last_due_ns > self.end_ns {
            return Wake::End { due: (self.end_ns - self.next_ns) / self.interval_ns + 1 };
        }
        self.next_ns = last_due_ns + self.interval_ns;
        self.half_is_over = false;
        self.owed = (self.owed + passed).min(self.max_owed);
        Wake::Tick { now_ns, due: 1 + passed }
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

    fn tick(now_ns: u64, due: u64) -> Wake {
        Wake::Tick { now_ns, due }
    }

    /// Rests from each of these times on, and wakes up as much too late as the second number says; when that was and how many
    /// ticks were due.
    fn follow(schedule: &mut Schedule, looks: &[(u64, u64)]) -> Vec<(u64, u64)> {
        let mut seen = Vec::new();
        for (now_ns, late_ns) in looks {
            let until_ns = schedule.rest_until(*now_ns).max(*now_ns);
            match schedule.wake_at(until_ns + late_ns) {
                Wake::Tick { now_ns, due } => seen.push((now_ns, due)),
                other => panic!("{other:?}"),
            }
        }
        seen
    }

    #[test]
    fn ticks_that_have_passed_are_counted_and_left_out() {
        let mut schedule = Schedule::new(1_000, 100, None);
        assert_eq!(schedule.wake_at(1_104), tick(1_104, 1));
        assert_eq!(schedule.wake_at(1_450), tick(1_450, 3));
        assert_eq!(schedule.next_ns, 1_500);
        assert_eq!(schedule.rest_until(1_451), 1_500);
    }

    #[test]
    fn another_interval_begins_at_the_last_tick() {
        let mut schedule = Schedule::new(1_000, 100, None);
        assert_eq!(schedule.wake_at(1_104), tick(1_104, 1));
        schedule.set_interval(30);
        assert_eq!(schedule.rest_until(1_105), 1_130);
        assert_eq!(schedule.wake_at(1_131), tick(1_131, 1));
        schedule.set_interval(100);
        assert_eq!(schedule.rest_until(1_132), 1_230);
    }

    #[test]
    fn the_tick_that_is_due_at_the_end_counts() {
        let mut schedule = Schedule::new(1_000, 100, Some(1_200));
        assert_eq!(schedule.wake_at(1_104), tick(1_104, 1));
        assert_eq!(schedule.wake_at(1_207), tick(1_207, 1));
        assert_eq!(schedule.wake_at(1_208), Wake::End { due: 0 });
    }

    #[test]
    fn who_wakes_up_after_the_end_has_missed_only_what_was_due_before() {
        let mut schedule = Schedule::new(1_000, 100, Some(1_250)).catching_up();
        assert_eq!(schedule.wake_at(1_704), Wake::End { due: 2 });
    }

    #[test]
    fn ticks_that_have_passed_are_taken_half_way_between_the_next_ones() {
        let mut schedule = Schedule::new(1_000, 100, None).catching_up();
        // The tick at 1,100 comes when those at 1,200 and 1,300 have passed as well.
        let looks = [(1_000, 204), (1_310, 5), (1_360, 5), (1_410, 5), (1_460, 5), (1_510, 5)];
        let seen = [(1_304, 3), (1_355, 0), (1_405, 1), (1_455, 0), (1_505, 1), (1_605, 1)];
        assert_eq!(follow(&mut schedule, &looks), seen);
        assert_eq!(schedule.owed, 0);
        let due: u64 = seen.iter().map(|(_, due)| due).sum();
        assert_eq!(due, seen.len() as u64, "each is taken once, and counted once");
    }

    #[test]
    fn no_look_follows_another_one_at_once_to_catch_up() {
        let mut schedule = Schedule::new(1_000, 100, None).catching_up();
        // Late by one tick and more than a half: the time half-way to the next one has passed.
        assert_eq!(
            follow(&mut schedule, &[(1_000, 160), (1_262, 1), (1_303, 1)]),
            [(1_260, 2), (1_301, 1), (1_351, 0)]
        );
        // A look that takes more than half an interval leaves no room.
        schedule.owed = 5;
        assert_eq!(follow(&mut schedule, &[(1_420, 2), (1_470, 2)]), [(1_422, 1), (1_502, 1)]);
        assert_eq!(schedule.owed, 5);
    }

    #[test]
    fn a_late_wake_up_half_way_takes_the_tick_that_is_due_by_then() {
        let mut schedule = Schedule::new(1_000, 100, None).catching_up();
        // From 1,205 on it rests until 1,250 and wakes up at 1,310.
        assert_eq!(
            follow(&mut schedule, &[(1_000, 104), (1_205, 60), (1_311, 0)]),
            [(1_204, 2), (1_310, 1), (1_350, 0)]
        );
        assert_eq!(schedule.owed, 0);
    }

    #[test]
    fn only_so_many_ticks_are_owed() {
        let interval_ns = 100_000;
        let mut schedule = Schedule::new(0, interval_ns, None).catching_up();
        assert_eq!(schedule.wake_at(101 * interval_ns), tick(101 * interval_ns, 101));
        assert_eq!(schedule.owed, MAX_OWED_NS / interval_ns);
        let (mut now_ns, mut extra) = (101 * interval_ns, 0);
        for _ in 0..200 {
            let [(woken_ns, due)] = follow(&mut schedule, &[(now_ns, 0)])[..] else { panic!() };
            extra += 1 - due;
            now_ns = woken_ns;
        }
        assert_eq!(extra, 40, "the other 60 are missed");
    }

    #[test]
    fn at_low_rates_nothing_is_caught_up() {
        for interval_ns in [5_000_000, 10_101_010, 1_000_000_000, u64::MAX / 8] {
            let mut schedule = Schedule::new(0, interval_ns, None).catching_up();
            assert_eq!(schedule.wake_at(3 * interval_ns), tick(3 * interval_ns, 3));
            assert_eq!(schedule.rest_until(3 * interval_ns), 4 * interval_ns);
        }
    }

    #[test]
    fn the_end_comes_before_what_is_owed() {
        let mut schedule = Schedule::new(1_000, 100, Some(1_320)).catching_up();
        assert_eq!(schedule.wake_at(1_301), tick(1_301, 3));
        assert_eq!(schedule.rest_until(1_302), 1_320);
        assert_eq!(schedule.wake_at(1_322), Wake::End { due: 0 });
        // Half-way comes before it.
        let mut schedule = Schedule::new(1_000, 100, Some(1_370)).catching_up();
        assert_eq!(schedule.wake_at(1_301), tick(1_301, 3));
        assert_eq!(schedule.rest_until(1_302), 1_350);
        assert_eq!(schedule.wake_at(1_352), tick(1_352, 0));
        assert_eq!(schedule.rest_until(1_353), 1_370);
        assert_eq!(schedule.wake_at(1_371), Wake::End { due: 0 });
    }

    #[test]
    fn a_wait_is_over_at_the_end_and_not_at_the_tick_after_it() {
        let now_ns = monotonic_ns();
        let mut schedule = Schedule::new(now_ns, u64::MAX / 2, Some(now_ns + 1));
        assert_eq!(schedule.wait(sleep_until), Wake::End { due: 0 });
    }
}
