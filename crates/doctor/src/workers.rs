//! All of the workers' time, by line.

use slip_model::{Part, PartTimes, Worker};

use crate::{Line, shares};

/// All of the workers' time: its lines and nothing else.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WorkerTimes {
    /// For how long the workers were watched, all together.
    pub watched_ns: u128,
    /// The lines from [`Line::Boot`] on, in the order of [`Line::ALL`]. Together they are `watched_ns + excess_ns`: what of the
    /// watched time no part accounts for is [`Line::Unknown`].
    pub lines: Vec<LineTime>,
    /// For how long workers that are event loops were busy while data had come for them, which is in the lines as well.
    pub loop_blocked_ns: u128,
    /// By how much the parts of some workers are longer than these were watched. Nothing, if all went well.
    pub excess_ns: u128,
}

/// A line of [`WorkerTimes`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LineTime {
    /// Which.
    pub line: Line,
    /// Its time, of all workers together.
    pub ns: u128,
    /// Its share of all lines, in tenths of a percent. All shares together are 1000.
    pub tenths: u64,
}

impl WorkerTimes {
    /// Adds up the time of these workers.
    pub(crate) fn of(workers: &[Worker]) -> Self {
        let mut times = Self::default();
        let mut sums = [0_u128; Line::ALL.len()];
        for worker in workers {
            let known = u128::from(worker.idle_ns)
                + total(&worker.between)
                + total(&worker.serving)
                + total(&worker.after);
            let watched = u128::from(worker.watched_ns);
            times.watched_ns += watched;
            times.loop_blocked_ns += u128::from(worker.loop_blocked_ns);
            times.excess_ns += known.saturating_sub(watched);
            for part in Part::ALL {
                sums[Line::of(part) as usize] += u128::from(worker.serving.of(part));
            }
            sums[Line::After as usize] += total(&worker.after);
            sums[Line::Idle as usize] += u128::from(worker.idle_ns);
            sums[Line::Between as usize] += total(&worker.between);
            sums[Line::Unknown as usize] += watched.saturating_sub(known);
        }
        // No worker's time is spent in the queue.
        let lines = Line::ALL.into_iter().zip(sums).zip(shares(&sums)).skip(1);
        times.lines = lines.map(|((line, ns), tenths)| LineTime { line, ns, tenths }).collect();
        times
    }

    /// The time of a line.
    pub fn ns(&self, line: Line) -> u128 {
        self.lines.iter().find(|row| row.line == line).map_or(0, |row| row.ns)
    }

    /// What all shares are shares of: the watched time, or more if some of it is counted twice.
    pub fn total_ns(&self) -> u128 {
        self.watched_ns + self.excess_ns
    }
}

/// All parts together, of which the sum may not fit into 64 bits if they come from a file that somebody else made.
pub(crate) fn total(times: &PartTimes) -> u128 {
    times.0.iter().map(|ns| u128::from(*ns)).sum()
}

/// These parts together.
pub(crate) fn total_of(times: &PartTimes, parts: &[Part]) -> u128 {
    parts.iter().map(|part| u128::from(times.of(*part))).sum()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::support::{any_budget, budget, times};

    #[test]
    fn every_moment_of_a_worker_is_in_one_line() {
        let times = WorkerTimes::of(&budget().workers);
        assert_eq!((times.watched_ns, times.loop_blocked_ns, times.excess_ns), (2_000_000, 40_000, 0));
        let lines: Vec<_> = times.lines.iter().map(|row| (row.line.name(), row.ns, row.tenths)).collect();
        let expected = [
            ("BOOT", 40_000, 20),
            ("CODE", 260_000, 130),
            ("MEM", 20_000, 10),
            ("CONN", 50_000, 25),
            ("WAIT", 420_000, 210),
            ("CLIENT", 10_000, 5),
            ("WAKE", 100_000, 50),
            ("LOCK", 0, 0),
            ("GIL", 30_000, 15),
            ("DISK", 0, 0),
            ("SLEEP", 0, 0),
            ("OTHER", 0, 0),
            ("AFTER", 60_000, 30),
            ("IDLE", 1_000_000, 500),
            ("BETWEEN", 10_000, 5),
            ("UNKNOWN", 0, 0),
        ];
        assert_eq!(lines, expected);
    }

    #[test]
    fn what_does_not_add_up_shows_and_does_not_cancel_out() {
        let worker = |watched_ns| Worker {
            watched_ns,
            idle_ns: 6,
            serving: times(&[(Part::Code, 4)]),
            ..Worker::default()
        };
        let times = WorkerTimes::of(&[worker(13), worker(10), worker(9)]);
        assert_eq!((times.watched_ns, times.ns(Line::Unknown), times.excess_ns), (32, 3, 1));
        assert_eq!(times.lines.iter().map(|row| row.ns).sum::<u128>(), times.total_ns());
    }

    proptest! {
        #[test]
        fn any_workers_add_up(budget in any_budget()) {
            let times = WorkerTimes::of(&budget.workers);
            let sum: u128 = times.lines.iter().map(|row| row.ns).sum();
            prop_assert_eq!(sum, times.watched_ns + times.excess_ns);
            let watched: u128 = budget.workers.iter().map(|worker| u128::from(worker.watched_ns)).sum();
            prop_assert_eq!(times.watched_ns, watched);
            let tenths: u64 = times.lines.iter().map(|row| row.tenths).sum();
            prop_assert_eq!(tenths, if sum == 0 { 0 } else { 1_000 });
        }
    }
}
