//! What `slip doctor` says of a target: its budget, what was found, and what could not be told.

use std::cmp::Reverse;

use slip_model::{Language, Recording};

use crate::case::{Case, Units};
use crate::rules;
use crate::{BudgetTable, Finding, Line, Rule, Statement, Value, Verdict};

/// Fewer requests tell little: a mean of as many that differ as requests do, by their own length, is known to 10 %.
pub const MIN_REQUESTS: u64 = 200;

/// Of fewer nothing is told: each of them is 5 % of all and more.
pub const LEAST_REQUESTS: u64 = 20;

/// The shortest run of a program that is told of.
pub const LEAST_RUN_NS: u64 = 50_000_000;

/// What times are for each of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// A request.
    Request,
    /// An operation of a run, of which the user has told the number.
    Operation,
    /// The whole run of a program.
    Run,
}

impl Unit {
    /// In a word.
    pub fn name(self) -> &'static str {
        match self {
            Self::Request => "request",
            Self::Operation => "operation",
            Self::Run => "run",
        }
    }
}

/// Processes of one kind that were watched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Watched {
    /// Language.
    pub language: Language,
    /// Version of the interpreter.
    pub version: String,
    /// Title of the first of them.
    pub title: String,
    /// So many.
    pub count: u64,
}

/// What watching has cost us.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OwnCost {
    /// CPU time of our own process. What programs in the kernel take is the workers' time, and not in it.
    pub cpu_ns: u64,
    /// Meanwhile so much time has passed.
    pub duration_ns: u64,
}

/// What a unit has of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LineCost {
    /// Which.
    pub line: Line,
    /// On average, nanoseconds.
    pub ns: u64,
    /// Its share of all lines, in tenths of a per cent. All shares together are 1000.
    pub tenths: u64,
}

/// A diagnosis.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sheet {
    /// What was asked for, as typed: `--fpm www`.
    pub target: String,
    /// Version of the tool that recorded.
    pub tool: String,
    /// When watching began, nanoseconds since 1970.
    pub started_unix_ns: u64,
    /// Processes by kind, the most first.
    pub watched: Vec<Watched>,
    /// What all times are for each of.
    pub unit: Unit,
    /// So many units there were.
    pub units: u64,
    /// What one takes on average, nanoseconds.
    pub unit_ns: u64,
    /// What a unit is made of. Where requests share their worker, what the workers did for one.
    pub lines: Vec<LineCost>,
    /// The budget.
    pub table: BudgetTable,
    /// What was found, the longest first; what costs no time last.
    pub findings: Vec<Finding>,
    /// Rules that looked, and found nothing: why.
    pub quiet: Vec<(&'static Rule, Statement)>,
    /// Rules that could not tell: what is missing.
    pub too_little: Vec<(&'static Rule, Statement)>,
    /// Rules that do not apply: why.
    pub not_of: Vec<(&'static Rule, Statement)>,
    /// Why nothing can be told at all, if that is so: then there are no findings.
    pub nothing: Option<Statement>,
    /// What is to be kept in mind: few requests, ones that were lost.
    pub notes: Vec<Statement>,
    /// What watching has cost.
    pub cost: OwnCost,
}

impl Sheet {
    /// What this recording tells; `None` if no budget was measured. `operations` is how many operations the run of a program did, if the
    /// user knows.
    pub fn of(recording: &Recording, operations: Option<u64>) -> Option<Self> {
        let budget = recording.budget.as_ref()?;
        let mut table = BudgetTable::of(recording)?;
        if let Some(run) = &mut table.run {
            run.operations = operations;
        }
        let totals = &recording.totals;
        let Units { unit, count: units, mean_ns: unit_ns } = Units::of(&table);
        let mut sheet = Self {
            target: recording.info.target.clone(),
            tool: recording.info.tool.clone(),
            started_unix_ns: recording.info.started_unix_ns,
            watched: watched(recording),
            unit,
            units,
            unit_ns,
            lines: Case::new(recording, budget, &table).lines(),
            findings: Vec::new(),
            quiet: Vec::new(),
            too_little: Vec::new(),
            not_of: Vec::new(),
            nothing: None,
            notes: Vec::new(),
            cost: OwnCost { cpu_ns: totals.own_cpu_ns, duration_ns: totals.duration_ns },
            table,
        };
        sheet.nothing = sheet.why_nothing();
        if sheet.nothing.is_none() {
            if unit == Unit::Request && units < MIN_REQUESTS {
                sheet.notes.push(
                    Statement::new("only {requests} requests ended; {enough} tell to 10 %")
                        .with("requests", Value::Count(units))
                        .with("enough", Value::Count(MIN_REQUESTS)),
                );
            }
            if sheet.table.is_by_looks() {
                let text = "coarse: what workers were blocked by was looked at in /proc 200 times a second, and not measured";
                sheet.notes.push(Statement::new(text));
            }
            let case = Case::new(recording, budget, &sheet.table);
            for (rule, verdict) in rules::judge(&case).into_iter().chain(rules::facts::judge(recording)) {
                sheet.add(rule, verdict);
            }
        }
        Some(sheet)
    }

    /// Adds what a rule says. It is not told where nothing can be.
    pub fn add(&mut self, rule: &'static Rule, verdict: Verdict) {
        match verdict {
            Verdict::Found(findings) => {
                self.findings.extend(findings);
                self.findings.sort_by_key(|finding| (Reverse(finding.ns()), finding.rule.id));
            }
            Verdict::Quiet(why) => self.quiet.push((rule, why)),
            Verdict::TooLittle(missing) => self.too_little.push((rule, missing)),
            Verdict::NotOf(why) => self.not_of.push((rule, why)),
        }
    }

    /// For how many seconds to watch for enough requests, if they go on to come as they did; `None` if there were none, and for runs.
    pub fn longer_seconds(&self) -> Option<u64> {
        if self.unit != Unit::Request || self.units == 0 {
            return None;
        }
        let needed_ns = u128::from(self.table.window_ns) * u128::from(MIN_REQUESTS) / u128::from(self.units);
        // With some to spare.
        let seconds = u64::try_from(needed_ns * 12 / 10 / 1_000_000_000).unwrap_or(u64::MAX);
        Some(seconds.max(1).next_multiple_of(5))
    }

    /// What is missing if no rule can be asked.
    fn why_nothing(&self) -> Option<Statement> {
        match self.unit {
            Unit::Request if self.units < LEAST_REQUESTS => Some(
                Statement::new("only {requests} requests ended in {window}; {least} is the least, and {enough} tell to 10 %")
                    .with("requests", Value::Count(self.units))
                    .with("window", Value::Ns(self.table.window_ns))
                    .with("least", Value::Count(LEAST_REQUESTS))
                    .with("enough", Value::Count(MIN_REQUESTS)),
            ),
            Unit::Run if self.unit_ns < LEAST_RUN_NS => Some(
                Statement::new("the run took {run}, and {least} is the least")
                    .with("run", Value::Ns(self.unit_ns))
                    .with("least", Value::Ns(LEAST_RUN_NS)),
            ),
            _ => None,
        }
    }
}

fn watched(recording: &Recording) -> Vec<Watched> {
    let mut kinds: Vec<Watched> = Vec::new();
    for process in &recording.processes {
        let is_same =
            |kind: &&mut Watched| (kind.language, &kind.version) == (process.language, &process.version);
        match kinds.iter_mut().find(is_same) {
            Some(kind) => kind.count += 1,
            None => kinds.push(Watched {
                language: process.language,
                version: process.version.clone(),
                title: process.title.clone(),
                count: 1,
            }),
        }
    }
    kinds.sort_by_key(|kind| Reverse(kind.count));
    kinds
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use slip_model::{CpuTaker, Part};

    use super::*;
    use crate::support::{any_budget, assert_whole, of, pool};
    use crate::{Amount, Limit, Of, Quantile, WAKE003};

    const MS: u64 = 1_000_000;

    fn sheet(recording: &Recording) -> Sheet {
        Sheet::of(recording, None).unwrap()
    }

    #[test]
    fn a_few_requests_tell_nothing_and_some_more_a_little() {
        let recording = pool(7, &[(Part::Code, 10 * MS), (Part::Wake, 30 * MS)]);
        let few = sheet(&recording);
        let missing = few.nothing.as_ref().unwrap();
        assert_eq!(missing.value("requests"), Some(&Value::Count(7)));
        assert_eq!(
            (few.findings.len(), few.exceeds(&Limit { of: Of::Any, amount: Amount::Ns(0) })),
            (0, None)
        );
        // 41 ms each, 200 of them and a fifth more.
        assert_eq!(few.longer_seconds(), Some(10));
        let some = sheet(&pool(50, &[(Part::Code, 10 * MS)]));
        assert_eq!((some.nothing, some.notes.len()), (None, 1));
        let enough = sheet(&pool(200, &[(Part::Code, 10 * MS)]));
        assert_eq!((enough.notes.len(), enough.findings.len()), (0, 0));
        assert_eq!(sheet(&pool(0, &[])).longer_seconds(), None);
    }

    #[test]
    fn limits_are_of_lines_rules_and_the_whole() {
        let mut recording = pool(200, &[(Part::Boot, 2 * MS), (Part::Code, 8 * MS), (Part::Wake, 10 * MS)]);
        of(&mut recording).takers =
            vec![CpuTaker { name: "sh".into(), ns: 1_900 * MS, ..CpuTaker::default() }];
        let sheet = sheet(&recording);
        assert_eq!(sheet.findings[0].rule, &WAKE003);
        let exceeds = |of, amount| sheet.exceeds(&Limit { of, amount });
        let wake = |quantile| Of::Line(Line::Wake, quantile);
        assert_eq!(exceeds(wake(Quantile::Mean), Amount::Ns(9 * MS)), Some(true));
        assert_eq!(exceeds(wake(Quantile::P95), Amount::Ns(10 * MS)), Some(false));
        assert_eq!(exceeds(wake(Quantile::Mean), Amount::Tenths(499)), Some(true));
        assert_eq!(exceeds(Of::Rule(&WAKE003), Amount::Ns(11 * MS)), Some(false));
        assert_eq!(exceeds(Of::Boot, Amount::Ns(MS)), Some(true));
        assert_eq!(exceeds(Of::Whole(Quantile::P99), Amount::Ns(19 * MS)), Some(true));
        assert_eq!(exceeds(Of::Any, Amount::Ns(0)), Some(true));
    }

    #[test]
    fn what_looks_do_not_see_cannot_exceed_a_limit() {
        let mut recording = pool(200, &[(Part::Code, 8 * MS)]);
        of(&mut recording).rung = "proc".into();
        let limit = Limit { of: Of::Boot, amount: Amount::Ns(1) };
        assert_eq!(sheet(&recording).exceeds(&limit), None);
    }

    #[test]
    fn a_run_is_divided_by_its_operations() {
        let mut recording = pool(0, &[]);
        let worker = &mut of(&mut recording).workers[0];
        (worker.is_run, worker.watched_ns) = (true, 100 * MS);
        worker.serving = crate::support::times(&[(Part::Code, 100 * MS)]);
        let run = sheet(&recording);
        assert_eq!((run.unit, run.units, run.unit_ns, run.nothing), (Unit::Run, 1, 100 * MS, None));
        let each = Sheet::of(&recording, Some(1_000)).unwrap();
        assert_eq!((each.unit, each.units, each.unit_ns), (Unit::Operation, 1_000, 100_000));
        assert_eq!(each.lines.iter().map(|row| row.ns).sum::<u64>(), 100_000);
    }

    proptest! {
        #[test]
        fn any_budget_has_a_sheet_whose_sentences_are_whole(budget in any_budget(), operations in prop::option::of(1..9_u64)) {
            let mut recording = Recording { budget: Some(budget), ..Recording::default() };
            recording.processes.push(slip_model::Process::default());
            let table = BudgetTable::of(&recording).unwrap();
            let case = Case::new(&recording, recording.budget.as_ref().unwrap(), &table);
            for (_, verdict) in rules::judge(&case) {
                assert_whole(&verdict);
            }
            prop_assert!(Sheet::of(&recording, operations).is_some());
        }
    }
}
