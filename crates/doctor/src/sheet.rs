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
            let case = Case::new(recording, budget, &sheet.table);
            for (rule, verdict) in rules::judge(&case) {
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
