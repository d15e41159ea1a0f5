//! What workers had to do with servers.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use slip_model::{Budget, Endpoint, Part};

use crate::tenths;

/// The servers that workers called. Their times are of calls in requests, after them and between them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServerTimes {
    /// Each server, the one that took most of the workers' time first.
    pub rows: Vec<ServerTime>,
    /// Asking servers and waiting for their answers, where it is not known which ones.
    pub unnamed_ns: u128,
    /// How much of all that was after a response or in no request, and so is not in [`Line::Wait`](crate::Line::Wait).
    pub outside_ns: u128,
}

/// What workers had to do with one server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServerTime {
    /// Where it listens, and what is spoken there.
    pub endpoint: Endpoint,
    /// Calls: sent something and read an answer.
    pub calls: u64,
    /// Connections that were begun.
    pub connects: u64,
    /// Asking it and waiting for its answers.
    pub wait_ns: u128,
    /// How much of that was spent in sending, which wakes a server that waits.
    pub send_ns: u128,
    /// Connecting to it.
    pub connect_ns: u128,
    /// Ready to run after its answers had come, and without a CPU.
    pub wake_ns: u128,
    /// The share of `wait_ns` of the workers' time, in tenths of a percent.
    pub tenths: u64,
}

impl ServerTimes {
    /// Adds up what the workers of this budget did; `total_ns` is what shares are of.
    pub(crate) fn of(budget: &Budget, total_ns: u128) -> Self {
        let mut times = Self::default();
        let mut by_endpoint: BTreeMap<&Endpoint, ServerTime> = BTreeMap::new();
        let mut in_requests = 0_u128;
        for worker in &budget.workers {
            for part in [Part::Transfer, Part::Wait] {
                in_requests += u128::from(worker.serving.of(part));
                times.outside_ns += u128::from(worker.after.of(part)) + u128::from(worker.between.of(part));
            }
            for time in &worker.endpoints {
                // One that is not there, in a file that somebody else made, has no name.
                let Some(endpoint) = budget.endpoints.get(time.endpoint as usize) else { continue };
                let row = by_endpoint.entry(endpoint).or_default();
                row.calls = row.calls.saturating_add(time.calls);
                row.connects = row.connects.saturating_add(time.connects);
                row.wait_ns += u128::from(time.transfer_ns) + u128::from(time.wait_ns);
                row.send_ns += u128::from(time.transfer_ns);
                row.connect_ns += u128::from(time.connect_ns);
                row.wake_ns += u128::from(time.wake_ns);
            }
        }
        times.rows = by_endpoint
            .into_iter()
            .map(|(endpoint, row)| ServerTime {
                endpoint: endpoint.clone(),
                tenths: tenths(row.wait_ns, total_ns),
                ..row
            })
            .collect();
        let named: u128 = times.rows.iter().map(|row| row.wait_ns).sum();
        times.unnamed_ns = (in_requests + times.outside_ns).saturating_sub(named);
        times.rows.sort_by_key(|row| Reverse(row.wait_ns));
        times
    }
}

impl ServerTime {
    /// What a call takes on average; `None` if there was none.
    pub fn mean_ns(&self) -> Option<u64> {
        Some(u64::try_from(self.wait_ns.checked_div(self.calls.into())?).unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use slip_model::{EndpointTime, Worker};

    use super::*;
    use crate::support::{budget, times};

    #[test]
    fn servers_are_added_up_over_workers_the_longest_first() {
        let times = ServerTimes::of(&budget(), 2_000_000);
        let rows: Vec<_> = times
            .rows
            .iter()
            .map(|row| {
                (&*row.endpoint.protocol, row.calls, row.connects, row.wait_ns, row.mean_ns(), row.tenths)
            })
            .collect();
        assert_eq!(
            rows,
            [("mysql", 8, 2, 290_000, Some(36_250), 145), ("redis", 13, 2, 120_000, Some(9_230), 60)]
        );
        assert_eq!((times.unnamed_ns, times.outside_ns), (20_000, 10_000));
    }

    #[test]
    fn a_server_that_is_not_there_is_unnamed() {
        let time = EndpointTime { endpoint: 7, wait_ns: 5, ..EndpointTime::default() };
        let worker =
            Worker { serving: times(&[(Part::Wait, 5)]), endpoints: vec![time], ..Worker::default() };
        let times = ServerTimes::of(&Budget { workers: vec![worker], ..Budget::default() }, 5);
        assert_eq!((times.rows.len(), times.unnamed_ns), (0, 5));
    }
}
