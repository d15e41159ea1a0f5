//! What rules look at.

use slip_model::{Budget, CallPart, Endpoint, Lengths, Recording};

use crate::{BudgetTable, CallTimes, Line, LineCost, Unit, Value, shares, tenths};

/// A recording, with its budget divided by its units.
pub(crate) struct Case<'a> {
    pub(crate) recording: &'a Recording,
    pub(crate) budget: &'a Budget,
    pub(crate) table: &'a BudgetTable,
    pub(crate) unit: Unit,
    /// So many, at least one.
    pub(crate) units: u64,
    /// What one takes on average. What shares are of.
    pub(crate) unit_ns: u64,
}

/// Units of a budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Units {
    pub(crate) unit: Unit,
    pub(crate) count: u64,
    pub(crate) mean_ns: u64,
}

impl Units {
    pub(crate) fn of(table: &BudgetTable) -> Self {
        match &table.run {
            Some(run) if table.workers == 0 => {
                let (unit, count) = match run.operations {
                    Some(operations) => (Unit::Operation, operations),
                    None => (Unit::Run, 1),
                };
                Self { unit, count, mean_ns: each(run.total_ns(), count) }
            }
            _ => {
                let mean_ns = table.requests.whole.map_or(0, |whole| whole.mean_ns);
                Self { unit: Unit::Request, count: table.requests.count, mean_ns }
            }
        }
    }
}

impl<'a> Case<'a> {
    pub(crate) fn new(recording: &'a Recording, budget: &'a Budget, table: &'a BudgetTable) -> Self {
        let Units { unit, count, mean_ns } = Units::of(table);
        Self { recording, budget, table, unit, units: count.max(1), unit_ns: mean_ns }
    }

    /// How long this part of the calls to a server was.
    pub(crate) fn lengths(&self, calls: &CallTimes, part: CallPart) -> Option<&'a Lengths> {
        let is_it = |at: u32| self.budget.endpoints.get(at as usize) == Some(&calls.endpoint);
        let calls = self.budget.calls.iter().find(|calls| is_it(calls.endpoint))?;
        calls.parts.get(part as usize)
    }

    /// Whether requests share their worker, as in an event loop: then none has lines, and those of the workers are divided by the number
    /// of requests.
    pub(crate) fn is_shared(&self) -> bool {
        let requests = &self.table.requests;
        self.unit == Unit::Request && 2 * requests.shared > requests.count
    }

    /// Who tells for how long threads run and are ready to.
    pub(crate) fn scheduler(&self) -> &'static str {
        if self.table.is_by_looks() { "schedstat" } else { "sched_switch" }
    }

    /// What a unit has of a line on average, nanoseconds.
    pub(crate) fn line_ns(&self, line: Line) -> u64 {
        if let (Some(run), true) = (&self.table.run, self.unit != Unit::Request) {
            let ns = run.lines.iter().find(|row| row.line == line).map_or(0, |row| row.ns);
            each(ns, self.units)
        } else if self.is_shared() {
            each(self.table.time.ns(line), self.ended())
        } else {
            let lines = &self.table.requests.lines;
            lines.iter().find(|row| row.line == line).map_or(0, |row| row.spread.mean_ns)
        }
    }

    /// All lines of a unit.
    pub(crate) fn lines(&self) -> Vec<LineCost> {
        let mut lines = Line::ALL.to_vec();
        lines.retain(|line| match line {
            Line::Idle => false,
            // Requests that have their worker for themselves end with their response.
            Line::After | Line::Between => self.is_shared(),
            _ => true,
        });
        let ns: Vec<u64> = lines.iter().map(|line| self.line_ns(*line)).collect();
        let tenths = shares(&ns.iter().map(|ns| u128::from(*ns)).collect::<Vec<_>>());
        let rows = lines.into_iter().zip(ns).zip(tenths);
        rows.map(|((line, ns), tenths)| LineCost { line, ns, tenths }).collect()
    }

    /// All of the workers' time, in requests and out of them, divided by the units: for what is counted by worker and not by request.
    pub(crate) fn each(&self, ns: u128) -> u64 {
        each(ns, if self.unit == Unit::Request { self.ended() } else { self.units })
    }

    /// So many of these for each unit, in hundredths.
    pub(crate) fn rate(&self, count: u64) -> u64 {
        let units = if self.unit == Unit::Request { self.ended() } else { self.units };
        let hundredths = (u128::from(count) * 100 + u128::from(units) / 2).checked_div(units.into());
        u64::try_from(hundredths.unwrap_or_default()).unwrap_or(u64::MAX)
    }

    /// The share of a unit's time, in tenths of a per cent. Where requests share their worker, of what the workers did for one.
    pub(crate) fn tenths(&self, ns: u64) -> u64 {
        let whole = if self.is_shared() { self.busy_ns() } else { self.unit_ns };
        tenths(ns.into(), whole.into())
    }

    /// Requests that ended, told one by one or not.
    fn ended(&self) -> u64 {
        let requests = &self.table.requests;
        requests.count.saturating_add(requests.lost).max(1)
    }

    /// What workers did for a request on average.
    fn busy_ns(&self) -> u64 {
        let time = &self.table.time;
        let busy = time.lines.iter().filter(|row| !matches!(row.line, Line::Idle | Line::Unknown));
        each(busy.map(|row| row.ns).sum(), self.ended())
    }
}

/// What each of so many has.
pub(crate) fn each(ns: u128, count: u64) -> u64 {
    u64::try_from(ns.checked_div(count.into()).unwrap_or_default()).unwrap_or(u64::MAX)
}

/// Times beyond 584 years are as long as that.
pub(crate) fn cut(ns: u128) -> u64 {
    u64::try_from(ns).unwrap_or(u64::MAX)
}

/// These parts of calls together.
pub(crate) fn parts_ns(calls: &CallTimes, parts: &[CallPart]) -> u64 {
    let rows = calls.parts.iter().filter(|row| parts.contains(&row.part));
    rows.fold(0, |sum, row| sum.saturating_add(row.ns))
}

/// `redis 127.0.0.1:6379`.
pub(crate) fn called(endpoint: &Endpoint) -> Value {
    match (&*endpoint.protocol, &*endpoint.address) {
        ("", "") => Value::Word("a server without a name"),
        ("", name) | (name, "") => Value::Name(name.to_owned()),
        (protocol, address) => Value::Name(format!("{protocol} {address}")),
    }
}
