//! Two budgets side by side: what a request takes on average.

use slip_model::Endpoint;

use crate::{BudgetTable, Line, ServerTime};

/// What a request takes in two recordings, line by line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BudgetDiff {
    /// Requests that ended in each.
    pub requests: [u64; 2],
    /// The rows, in the order of tables; what neither of the two has is left out.
    pub rows: Vec<DiffRow>,
}

/// What a row is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DiffKey {
    /// A line.
    Line(Line),
    /// A server, of [`Line::Wait`] and of what was not in requests: all the time of calls to it, by requests that ended.
    Server(Endpoint),
    /// All that a client waits for.
    Whole,
}

/// A row of [`BudgetDiff`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiffRow {
    /// What it is about.
    pub key: DiffKey,
    /// The time of a request in each, on average; `None` if there is no such line, or nothing in it.
    pub mean_ns: [Option<u64>; 2],
}

impl BudgetDiff {
    /// Compares `b` with `a`.
    pub fn of(a: &BudgetTable, b: &BudgetTable) -> Self {
        let both = [a, b];
        let mut diff = Self { requests: both.map(ended), rows: Vec::new() };
        for line in Line::ALL {
            if line == Line::After {
                continue;
            }
            diff.add(DiffKey::Line(line), both.map(|table| line_ns(table, line)));
            if line == Line::Wait {
                diff.add_servers(both);
            }
        }
        diff.add(DiffKey::Whole, both.map(|table| table.requests.whole.map(|whole| whole.mean_ns)));
        diff.add(
            DiffKey::Line(Line::After),
            both.map(|table| table.requests.after.map(|after| after.mean_ns)),
        );
        diff
    }

    fn add_servers(&mut self, both: [&BudgetTable; 2]) {
        let mut endpoints: Vec<(&Endpoint, [Option<u64>; 2])> = Vec::new();
        for table in both {
            for ServerTime { endpoint, .. } in &table.servers.rows {
                if endpoints.iter().all(|(known, _)| *known != endpoint) {
                    endpoints.push((endpoint, both.map(|table| server_ns(table, endpoint))));
                }
            }
        }
        // The one that takes most in either comes first; the order of names decides among equals.
        endpoints
            .sort_by(|(a, a_ns), (b, b_ns)| b_ns.iter().max().cmp(&a_ns.iter().max()).then_with(|| a.cmp(b)));
        for (endpoint, mean_ns) in endpoints {
            self.add(DiffKey::Server(endpoint.clone()), mean_ns);
        }
    }

    fn add(&mut self, key: DiffKey, mean_ns: [Option<u64>; 2]) {
        let mean_ns = mean_ns.map(|ns| ns.filter(|ns| *ns > 0));
        if mean_ns != [None, None] {
            self.rows.push(DiffRow { key, mean_ns });
        }
    }
}

impl DiffRow {
    /// How much longer the second one takes; what is not there takes no time.
    pub fn difference_ns(&self) -> i128 {
        let [a, b] = self.mean_ns.map(|ns| i128::from(ns.unwrap_or(0)));
        b - a
    }

    /// The second one as a multiple of the first; `None` if one of the two is not there.
    pub fn ratio(&self) -> Option<f64> {
        let [a, b] = self.mean_ns;
        Some(b? as f64 / a? as f64)
    }
}

fn ended(table: &BudgetTable) -> u64 {
    table.requests.count.saturating_add(table.requests.lost)
}

fn line_ns(table: &BudgetTable, line: Line) -> Option<u64> {
    table.requests.lines.iter().find(|row| row.line == line).map(|row| row.spread.mean_ns)
}

fn server_ns(table: &BudgetTable, endpoint: &Endpoint) -> Option<u64> {
    let row = table.servers.rows.iter().find(|row| row.endpoint == *endpoint)?;
    let mean = row.wait_ns.checked_div(ended(table).into())?;
    Some(u64::try_from(mean).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use slip_model::{Budget, Recording};

    use super::*;
    use crate::support::{any_budget, budget};

    fn table(budget: Budget) -> BudgetTable {
        BudgetTable::of(&Recording { budget: Some(budget), ..Recording::default() }).unwrap()
    }

    #[test]
    fn rows_of_one_have_nothing_in_the_other() {
        let before = table(budget());
        let mut changed = budget();
        changed.endpoints[0].address = "10.0.0.5:6379".into();
        changed.requests.iter_mut().for_each(|request| request.queued_ns = request.begin_ns);
        let diff = BudgetDiff::of(&before, &table(changed));
        assert_eq!(diff.requests, [7, 7]);
        let row = |key: &DiffKey| diff.rows.iter().find(|row| row.key == *key).unwrap();
        let queue = row(&DiffKey::Line(Line::Queue));
        assert_eq!(
            (queue.mean_ns, queue.difference_ns(), queue.ratio()),
            ([Some(12_500), None], -12_500, None)
        );
        let wait = row(&DiffKey::Line(Line::Wait));
        assert_eq!((wait.difference_ns(), wait.ratio()), (0, Some(1.0)));
        let servers: Vec<_> = diff
            .rows
            .iter()
            .filter_map(|row| match &row.key {
                DiffKey::Server(endpoint) => Some((&*endpoint.address, row.mean_ns)),
                _ => None,
            })
            .collect();
        let expected = [
            ("/run/mysqld/mysqld.sock", [Some(41_428); 2]),
            ("10.0.0.5:6379", [None, Some(17_142)]),
            ("127.0.0.1:6379", [Some(17_142), None]),
        ];
        assert_eq!(servers, expected);
        let keys: Vec<_> = diff.rows.iter().map(|row| row.key.clone()).collect();
        assert!(!keys.contains(&DiffKey::Line(Line::Disk)), "neither waits for a disk");
        assert_eq!(keys[keys.len() - 2..], [DiffKey::Whole, DiffKey::Line(Line::After)]);
    }

    proptest! {
        #[test]
        fn any_two_can_be_compared(a in any_budget(), b in any_budget()) {
            let diff = BudgetDiff::of(&table(a.clone()), &table(b.clone()));
            let back = BudgetDiff::of(&table(b), &table(a));
            for row in &diff.rows {
                let other = back.rows.iter().find(|other| other.key == row.key);
                prop_assert_eq!(other.map(DiffRow::difference_ns), Some(-row.difference_ns()));
            }
        }
    }
}
