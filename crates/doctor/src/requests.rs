//! What a request takes, by line.

use slip_model::{Budget, Part, ServedRequest};

use crate::workers::total;
use crate::{Line, shares};

/// The time that clients wait for their responses, and its lines.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestTimes {
    /// Requests that ended in the window and are told one by one.
    pub count: u64,
    /// Those among them that shared their worker with others: they count in `whole`, and in no line, as no part of the worker's
    /// time belongs to one of them.
    pub shared: u64,
    /// Requests that ended too, but for which there was no room: they are in the workers' time alone.
    pub lost: u64,
    /// From the moment in which a request could have been accepted until its response was sent. `None` without requests.
    pub whole: Option<Spread>,
    /// The lines of that from [`Line::Queue`] to [`Line::Other`], and [`Line::Unknown`], of requests that had their worker for
    /// themselves; none if no request had.
    pub lines: Vec<LineSpread>,
    /// What the worker did for such a request after its response.
    pub after: Option<Spread>,
    /// By how much the parts of some requests are longer than these took. Nothing, if all went well.
    pub excess_ns: u128,
}

/// A time that differs from request to request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spread {
    /// On average.
    pub mean_ns: u64,
    /// Half of all requests take no longer.
    pub p50_ns: u64,
    /// 95 of 100 take no longer.
    pub p95_ns: u64,
    /// 99 of 100 take no longer.
    pub p99_ns: u64,
}

/// A line of [`RequestTimes`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LineSpread {
    /// Which.
    pub line: Line,
    /// Of how long it is. Quantiles of lines do not add up to those of the whole: the slowest requests of each are others.
    pub spread: Spread,
    /// Of all requests together.
    pub total_ns: u128,
    /// Its share of all lines, in tenths of a percent. All shares together are 1000.
    pub tenths: u64,
}

impl RequestTimes {
    /// Looks at the requests of this budget.
    pub(crate) fn of(budget: &Budget) -> Self {
        let requests = &budget.requests;
        let alone: Vec<&ServedRequest> = requests.iter().filter(|request| !is_shared(request)).collect();
        let mut times = Self {
            count: requests.len() as u64,
            shared: (requests.len() - alone.len()) as u64,
            lost: budget.lost_requests,
            whole: Spread::of(
                requests.iter().map(|request| queue_ns(request).saturating_add(serving_ns(request))),
            ),
            after: Spread::of(alone.iter().map(|request| short(total(&request.after)))),
            excess_ns: alone
                .iter()
                .map(|request| total(&request.serving).saturating_sub(serving_ns(request).into()))
                .sum(),
            lines: Vec::new(),
        };
        for line in Line::ALL {
            if matches!(line, Line::After | Line::Idle | Line::Between) {
                continue;
            }
            let total_ns = alone.iter().map(|request| line_ns(request, line)).sum();
            if let Some(spread) = Spread::of(alone.iter().map(|request| short(line_ns(request, line)))) {
                times.lines.push(LineSpread { line, spread, total_ns, tenths: 0 });
            }
        }
        let totals: Vec<u128> = times.lines.iter().map(|row| row.total_ns).collect();
        for (row, tenths) in times.lines.iter_mut().zip(shares(&totals)) {
            row.tenths = tenths;
        }
        times
    }

    /// What all shares are shares of: the time of all requests that had their worker for themselves.
    pub fn total_ns(&self) -> u128 {
        self.lines.iter().map(|row| row.total_ns).sum()
    }
}

impl Spread {
    /// That of these values; `None` without any.
    fn of(values: impl Iterator<Item = u64>) -> Option<Self> {
        let mut values: Vec<u64> = values.collect();
        values.sort_unstable();
        let count = values.len() as u128;
        let sum: u128 = values.iter().map(|ns| u128::from(*ns)).sum();
        let mean = (sum + count / 2).checked_div(count)?;
        Some(Self {
            mean_ns: short(mean),
            p50_ns: quantile(&values, 50),
            p95_ns: quantile(&values, 95),
            p99_ns: quantile(&values, 99),
        })
    }
}

/// Whether its worker had others at the same time: a request alone has parts, whatever it does.
fn is_shared(request: &ServedRequest) -> bool {
    let ServedRequest { begin_ns, response_ns, end_ns, .. } = *request;
    let has_none = total(&request.serving) == 0;
    has_none && (response_ns > begin_ns || end_ns > begin_ns && total(&request.after) == 0)
}

fn queue_ns(request: &ServedRequest) -> u64 {
    request.begin_ns.saturating_sub(request.queued_ns)
}

fn serving_ns(request: &ServedRequest) -> u64 {
    request.response_ns.saturating_sub(request.begin_ns)
}

fn line_ns(request: &ServedRequest, line: Line) -> u128 {
    match line {
        Line::Queue => queue_ns(request).into(),
        Line::Unknown => u128::from(serving_ns(request)).saturating_sub(total(&request.serving)),
        _ => {
            let parts = Part::ALL.into_iter().filter(|part| Line::of(*part) == line);
            parts.map(|part| u128::from(request.serving.of(part))).sum()
        }
    }
}

/// Times beyond 584 years are as long as that.
fn short(ns: u128) -> u64 {
    u64::try_from(ns).unwrap_or(u64::MAX)
}

/// The smallest value that at least `percent` of all do not exceed.
fn quantile(sorted: &[u64], percent: usize) -> u64 {
    let rank = (sorted.len() * percent).div_ceil(100);
    sorted.get(rank.saturating_sub(1)).copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::support::{any_budget, budget, times};

    #[test]
    fn a_shared_request_counts_in_the_whole_alone() {
        let times = RequestTimes::of(&budget());
        assert_eq!((times.count, times.shared, times.lost, times.excess_ns), (5, 1, 2, 0));
        let whole = times.whole.unwrap();
        // 270, 170, 180 and 280 us alone, 150 shared.
        assert_eq!((whole.mean_ns, whole.p50_ns, whole.p95_ns), (210_000, 180_000, 280_000));
        assert_eq!(times.lines.iter().map(|row| row.spread.mean_ns).sum::<u64>(), 225_000);
        assert_eq!(times.total_ns(), 900_000);
        let line = |line| times.lines.iter().find(|row| row.line == line).unwrap();
        let wait = Spread { mean_ns: 92_500, p50_ns: 70_000, p95_ns: 140_000, p99_ns: 140_000 };
        assert_eq!((line(Line::Wait).spread, line(Line::Wait).tenths), (wait, 411));
        assert_eq!(line(Line::Queue).total_ns, 50_000);
        assert_eq!(times.lines.iter().map(|row| row.tenths).sum::<u64>(), 1_000);
        assert_eq!(times.after.unwrap().mean_ns, 15_000);
    }

    #[test]
    fn requests_that_do_not_add_up_show_it() {
        let alone = ServedRequest {
            begin_ns: 10,
            response_ns: 20,
            end_ns: 20,
            serving: times(&[(Part::Code, 7)]),
            ..ServedRequest::default()
        };
        let longer = ServedRequest { serving: times(&[(Part::Code, 14)]), queued_ns: 10, ..alone };
        let times = RequestTimes::of(&Budget { requests: vec![alone, longer], ..Budget::default() });
        let unknown = times.lines.last().unwrap();
        assert_eq!((unknown.line, unknown.total_ns, times.excess_ns), (Line::Unknown, 3, 4));
        assert_eq!(times.lines[0].spread.p50_ns, 0, "the second one did not queue");
    }

    #[test]
    fn without_a_request_alone_there_are_no_lines() {
        let shared = ServedRequest { end_ns: 9, response_ns: 9, ..ServedRequest::default() };
        let times = RequestTimes::of(&Budget { requests: vec![shared; 3], ..Budget::default() });
        assert_eq!((times.shared, times.lines.len(), times.after), (3, 0, None));
        assert_eq!(times.whole.map(|whole| whole.p99_ns), Some(9));
        assert_eq!(RequestTimes::of(&Budget::default()), RequestTimes::default());
    }

    proptest! {
        #[test]
        fn any_requests_add_up(budget in any_budget()) {
            let times = RequestTimes::of(&budget);
            let alone = budget.requests.iter().filter(|request| !is_shared(request));
            let whole: u128 = alone.map(|request| u128::from(queue_ns(request)) + u128::from(serving_ns(request))).sum();
            prop_assert_eq!(times.total_ns(), whole + times.excess_ns);
            let tenths: u64 = times.lines.iter().map(|row| row.tenths).sum();
            prop_assert_eq!(tenths, if times.total_ns() == 0 { 0 } else { 1_000 });
            for spread in times.lines.iter().map(|row| row.spread).chain(times.whole).chain(times.after) {
                prop_assert!(spread.p50_ns <= spread.p95_ns && spread.p95_ns <= spread.p99_ns);
                prop_assert!(spread.mean_ns > 0 || spread.p50_ns == 0);
            }
        }
    }
}
