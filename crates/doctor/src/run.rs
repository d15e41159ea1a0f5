//! The run of a program that serves no requests, by line.

use slip_model::{Budget, Part, RunBegin, Worker};

use crate::servers::ServerTimes;
use crate::workers::total;
use crate::{Line, LineTime, shares};

/// The whole run of a program, without its start-up and its exit: all of its threads' time, its lines and nothing else.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RunTimes {
    /// Number of threads.
    pub threads: u64,
    /// Where the run begins.
    pub begin: Option<RunBegin>,
    /// The run of the thread that ran longest, from begin to end.
    pub longest_ns: u128,
    /// The lines of all threads together, from [`Line::Boot`] to [`Line::Other`], and [`Line::Unknown`].
    pub lines: Vec<LineTime>,
    /// Of [`Line::Wait`]: which servers.
    pub servers: ServerTimes,
    /// Before the run, in the order of [`RunTimes::lines`]: shares are of the start-up.
    pub startup: Vec<LineTime>,
    /// After it.
    pub exit: Vec<LineTime>,
    /// So many operations are all that was done, if somebody has told.
    pub operations: Option<u64>,
}

impl RunTimes {
    /// Adds up the threads of `runs`; `None` if there are none.
    pub(crate) fn of(runs: &Budget, begin: Option<RunBegin>) -> Option<Self> {
        let threads = &runs.workers;
        let longest_ns = threads.iter().map(|thread| total(&thread.serving)).max()?;
        let unknown = |thread: &Worker| {
            let known = total(&thread.between) + total(&thread.serving) + total(&thread.after);
            u128::from(thread.watched_ns).saturating_sub(known)
        };
        let lines = lines(threads, |thread, part| thread.serving.of(part), unknown);
        let total_ns = sum(&lines);
        Some(Self {
            threads: threads.len() as u64,
            begin,
            longest_ns,
            servers: ServerTimes::of(runs, total_ns),
            startup: self::lines(threads, |thread, part| thread.between.of(part), |_| 0),
            exit: self::lines(threads, |thread, part| thread.after.of(part), |_| 0),
            lines,
            operations: None,
        })
    }

    /// What all shares of the run are shares of.
    pub fn total_ns(&self) -> u128 {
        sum(&self.lines)
    }

    /// All of the start-up.
    pub fn startup_ns(&self) -> u128 {
        sum(&self.startup)
    }

    /// All of the exit.
    pub fn exit_ns(&self) -> u128 {
        sum(&self.exit)
    }

    /// What of `ns` an operation has, in tenths of a nanosecond; `None` if it is not known how many there were.
    pub fn each_tenths(&self, ns: u128) -> Option<u128> {
        let operations = u128::from(self.operations?);
        (ns * 10 + operations / 2).checked_div(operations)
    }
}

fn sum(lines: &[LineTime]) -> u128 {
    lines.iter().map(|row| row.ns).sum()
}

fn lines(
    threads: &[Worker],
    of: impl Fn(&Worker, Part) -> u64,
    unknown: impl Fn(&Worker) -> u128,
) -> Vec<LineTime> {
    let mut sums = [0_u128; Line::ALL.len()];
    for thread in threads {
        for part in Part::ALL {
            sums[Line::of(part) as usize] += u128::from(of(thread, part));
        }
        sums[Line::Unknown as usize] += unknown(thread);
    }
    let rows = Line::ALL.into_iter().zip(sums).zip(shares(&sums));
    rows.map(|((line, ns), tenths)| LineTime { line, ns, tenths })
        .filter(|row| !matches!(row.line, Line::Queue | Line::After | Line::Idle | Line::Between))
        .collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::support::{any_budget, times};

    #[test]
    fn a_run_is_without_its_start_up_and_its_exit() {
        let main = Worker {
            is_run: true,
            watched_ns: 100,
            between: times(&[(Part::Code, 7), (Part::Disk, 3)]),
            serving: times(&[(Part::Sleep, 60), (Part::Preempted, 10)]),
            after: times(&[(Part::Memory, 5)]),
            ..Worker::default()
        };
        let other = Worker { watched_ns: 30, serving: times(&[(Part::Lock, 30)]), ..main.clone() };
        let other = Worker { between: times(&[]), after: times(&[]), ..other };
        let budget = Budget { workers: vec![main, other], ..Budget::default() };
        let mut run = RunTimes::of(&budget, Some(RunBegin::Script)).unwrap();
        assert_eq!((run.threads, run.longest_ns, run.total_ns()), (2, 70, 115));
        assert_eq!((run.startup_ns(), run.exit_ns()), (10, 5));
        let ns = |line| run.lines.iter().find(|row| row.line == line).map(|row| row.ns);
        let found = [Line::Sleep, Line::Wake, Line::Lock, Line::Unknown, Line::After].map(ns);
        assert_eq!(found, [Some(60), Some(10), Some(30), Some(15), None]);
        assert_eq!(run.each_tenths(60), None);
        run.operations = Some(8);
        assert_eq!((run.each_tenths(60), run.each_tenths(1)), (Some(75), Some(1)));
    }

    proptest! {
        #[test]
        fn lines_of_any_runs_add_up(budget in any_budget()) {
            let run = RunTimes::of(&budget, None);
            prop_assert_eq!(run.is_none(), budget.workers.is_empty());
            for rows in run.iter().flat_map(|run| [&run.lines, &run.startup, &run.exit]) {
                let tenths: u64 = rows.iter().map(|row| row.tenths).sum();
                prop_assert_eq!(tenths, if sum(rows) == 0 { 0 } else { 1_000 });
            }
        }
    }
}
