//! A budget, line by line.

use std::cmp::Reverse;

use slip_model::{Budget, CpuTaker, Language, Recording, State};

use crate::Line;
use crate::boot::BootSamples;
use crate::calls::CallTimes;
use crate::requests::RequestTimes;
use crate::run::RunTimes;
use crate::servers::ServerTimes;
use crate::workers::WorkerTimes;

/// Where all of the workers' time went, what a request takes, and what is known beside that of single lines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BudgetTable {
    /// How it was measured: [`Budget::rung`](slip_model::Budget::rung).
    pub rung: String,
    /// What this way cannot see, one sentence each.
    pub cannot_see: Vec<String>,
    /// Length of the watch.
    pub window_ns: u64,
    /// Number of workers.
    pub workers: u64,
    /// All of their time.
    pub time: WorkerTimes,
    /// What a request takes.
    pub requests: RequestTimes,
    /// The run of a program that serves no requests, if there is one. It is in none of the others but for `calls` and what stands behind
    /// them.
    pub run: Option<RunTimes>,
    /// Of [`Line::Wait`](crate::Line::Wait): which servers.
    pub servers: ServerTimes,
    /// What the calls to these servers were spent on, where that was seen.
    pub calls: Vec<CallTimes>,
    /// Of [`Line::Wake`](crate::Line::Wake): who had the CPU meanwhile, the longest first.
    pub takers: Vec<CpuTaker>,
    /// Of [`Line::Wake`](crate::Line::Wake): [`Budget::quota_periods`](slip_model::Budget::quota_periods).
    pub quota_periods: Option<u64>,
    /// Of [`Line::Wake`](crate::Line::Wake): periods of quotas in which these held workers' control groups back.
    pub throttled_periods: u64,
    /// Of [`Line::Wake`](crate::Line::Wake): for how long quotas held the workers' control groups back.
    pub throttled_ns: u64,
    /// Of [`Line::Wake`](crate::Line::Wake): for how long the machine's host gave its CPUs to others.
    pub steal_ns: u64,
    /// Time of the machine's CPUs, all together, of which that is a part; 0 if it is not known.
    pub cpus_ns: u64,
    /// Of [`Line::Code`](crate::Line::Code): how much of it is no code of the program, if there are samples that tell.
    pub engine: Option<EngineSamples>,
    /// Of [`Line::Code`](crate::Line::Code): how much of it is the application's boot, if there are samples that tell.
    pub boot: Option<BootSamples>,
}

/// Samples of PHP's workers on a CPU, in a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EngineSamples {
    /// Those with no code of the program: start-up, compilation, shutdown.
    pub engine: u64,
    /// All.
    pub on_cpu: u64,
}

impl BudgetTable {
    /// Whether what workers were blocked by was sampled, and only the rest measured.
    pub fn is_by_looks(&self) -> bool {
        self.rung == "proc"
    }

    /// Whether this way would see time of this line. If not, there is none in it, and that says nothing.
    pub fn sees(&self, line: Line) -> bool {
        let unseen = [Line::Queue, Line::Boot, Line::After, Line::Between];
        !(self.is_by_looks() && unseen.contains(&line))
    }

    /// The budget of this recording; `None` if none was measured.
    pub fn of(recording: &Recording) -> Option<Self> {
        let budget = recording.budget.as_ref()?;
        let (runs, workers) = budget.workers.iter().cloned().partition(|worker| worker.is_run);
        let of = |workers| Budget { workers, endpoints: budget.endpoints.clone(), ..Budget::default() };
        let (runs, workers): (Budget, Budget) = (of(runs), of(workers));
        let time = WorkerTimes::of(&workers.workers);
        let mut takers = budget.takers.clone();
        takers.sort_by_key(|taker| Reverse(taker.ns));
        Some(Self {
            rung: budget.rung.clone(),
            cannot_see: budget.cannot_see.clone(),
            window_ns: budget.window_ns,
            workers: workers.workers.len() as u64,
            requests: RequestTimes::of(budget),
            servers: ServerTimes::of(&workers, time.total_ns()),
            run: RunTimes::of(&runs, budget.run_begin),
            calls: CallTimes::of(budget),
            time,
            takers,
            quota_periods: budget.quota_periods,
            throttled_periods: budget.throttled_periods,
            throttled_ns: budget.throttled_ns,
            steal_ns: budget.steal_ns,
            cpus_ns: budget.cpus_ns,
            engine: EngineSamples::of(recording),
            boot: BootSamples::of(recording),
        })
    }
}

impl EngineSamples {
    fn of(recording: &Recording) -> Option<Self> {
        let is_php: Vec<bool> = recording
            .threads
            .iter()
            .map(|thread| {
                recording
                    .processes
                    .get(thread.process.index())
                    .is_some_and(|process| process.language == Language::Php)
            })
            .collect();
        let mut samples = Self { engine: 0, on_cpu: 0 };
        for sample in recording.samples() {
            let counts = sample.state.has(State::ON_CPU) && !sample.state.has(State::IDLE);
            if counts && is_php.get(sample.thread.index()) == Some(&true) {
                samples.on_cpu += 1;
                samples.engine += u64::from(sample.state.has(State::ENGINE));
            }
        }
        (samples.on_cpu > 0).then_some(samples)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use slip_model::{Process, ProcessId, Sample, SampleBlock, Thread, ThreadId};

    use super::*;
    use crate::support::{any_budget, budget};

    #[test]
    fn only_a_recording_with_a_budget_has_a_table() {
        assert_eq!(BudgetTable::of(&Recording::default()), None);
        let recording = Recording { budget: Some(budget()), ..Recording::default() };
        let table = BudgetTable::of(&recording).unwrap();
        assert_eq!((table.workers, table.engine), (2, None));
        let takers: Vec<_> = table.takers.iter().map(|taker| &*taker.name).collect();
        assert_eq!(takers, ["mysqld", "", "php-fpm8.2"]);
    }

    #[test]
    fn looks_do_not_see_every_line() {
        let table = |rung: &str| {
            let budget = slip_model::Budget { rung: rung.into(), ..budget() };
            BudgetTable::of(&Recording { budget: Some(budget), ..Recording::default() }).unwrap()
        };
        let seen = |rung| Line::ALL.into_iter().filter(|line| table(rung).sees(*line)).count();
        assert_eq!((seen("tracepoints"), seen("proc")), (Line::ALL.len(), Line::ALL.len() - 4));
        assert!(!table("proc").sees(Line::Queue));
    }

    #[test]
    fn samples_of_php_tell_how_much_of_the_code_is_the_engine() {
        let mut recording = Recording { budget: Some(budget()), ..Recording::default() };
        let mut block = SampleBlock::default();
        for (id, language) in [(0, Language::Php), (1, Language::Python)] {
            recording.processes.push(Process { language, ..Process::default() });
            recording.threads.push(Thread { process: ProcessId(id), ..Thread::default() });
            let on_cpu = State::ON_CPU;
            for state in [on_cpu, on_cpu, on_cpu.with(State::ENGINE), on_cpu.with(State::IDLE), State::ENGINE]
            {
                block.push(Sample { thread: ThreadId(id), state, ..Sample::default() });
            }
        }
        // Of a thread that a damaged file has lost.
        block.push(Sample { thread: ThreadId(9), state: State::ON_CPU, ..Sample::default() });
        recording.blocks.push(block);
        let table = BudgetTable::of(&recording).unwrap();
        assert_eq!(table.engine, Some(EngineSamples { engine: 1, on_cpu: 3 }));
    }

    proptest! {
        #[test]
        fn any_budget_has_a_table(budget in any_budget()) {
            let recording = Recording { budget: Some(budget), ..Recording::default() };
            prop_assert!(BudgetTable::of(&recording).is_some());
        }
    }
}
