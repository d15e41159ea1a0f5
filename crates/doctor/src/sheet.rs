//! What `slip doctor` says of a target: its budget, what was found, and what could not be told.

use std::cmp::Reverse;

use slip_model::{Language, Recording};

use crate::{BudgetTable, Finding, Rule, Statement, Value, Verdict};

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
    /// What this recording tells; `None` if no budget was measured.
    pub fn of(recording: &Recording) -> Option<Self> {
        let table = BudgetTable::of(recording)?;
        let totals = &recording.totals;
        let (unit, units, unit_ns) = units(&table);
        let mut sheet = Self {
            target: recording.info.target.clone(),
            tool: recording.info.tool.clone(),
            watched: watched(recording),
            unit,
            units,
            unit_ns,
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

fn units(table: &BudgetTable) -> (Unit, u64, u64) {
    match &table.run {
        Some(run) if table.workers == 0 => {
            let total_ns = u64::try_from(run.total_ns()).unwrap_or(u64::MAX);
            match run.operations {
                Some(operations) => {
                    (Unit::Operation, operations, total_ns.checked_div(operations).unwrap_or_default())
                }
                None => (Unit::Run, 1, total_ns),
            }
        }
        _ => {
            let whole = table.requests.whole.map_or(0, |whole| whole.mean_ns);
            (Unit::Request, table.requests.count, whole)
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
