//! Requests by method and path.

use std::collections::HashMap;

use slip_model::{Mode, Process, Recording, Request, RequestId, StringId};

use super::{RequestSummary, Route};

/// Method and path; PHP's command line has neither, but a script.
pub(crate) type RouteKey = (StringId, StringId);

/// Finds the route of a request, for each of millions of samples.
#[derive(Debug)]
pub(crate) struct RouteTable {
    /// The routes, in the order of their first request that ended.
    pub(crate) routes: Vec<RouteKey>,
    of: RouteOf,
}

#[derive(Debug)]
enum RouteOf {
    /// By the number of the request; `u32::MAX` for none.
    Table(Vec<u32>),
    /// For numbers with large gaps, which only damaged recordings have.
    Map(HashMap<u32, u32>),
}

impl RouteTable {
    pub(crate) fn new(requests: &[Request]) -> Self {
        let largest = requests.iter().map(|request| request.id.0 as usize).max().unwrap_or(0);
        let mut of = if largest < requests.len() * 4 + 65_536 {
            RouteOf::Table(vec![u32::MAX; largest + 1])
        } else {
            RouteOf::Map(HashMap::new())
        };
        let mut routes = Vec::new();
        let mut known: HashMap<RouteKey, u32> = HashMap::new();
        for request in requests {
            let path = if request.uri == StringId::default() { request.script } else { request.uri };
            let key = (request.method, path);
            let route = *known.entry(key).or_insert_with(|| {
                routes.push(key);
                // Fewer routes than requests, whose numbers have 32 bits.
                (routes.len() - 1) as u32
            });
            match &mut of {
                RouteOf::Table(table) => table[request.id.0 as usize] = route,
                RouteOf::Map(map) => drop(map.insert(request.id.0, route)),
            }
        }
        Self { routes, of }
    }

    /// The route of a request, as an index; `None` if there is none, or none is known as the recorder was killed before it
    /// ended.
    pub(crate) fn find(&self, request: RequestId) -> Option<usize> {
        let route = match &self.of {
            RouteOf::Table(table) => table.get(request.0 as usize),
            RouteOf::Map(map) => map.get(&request.0),
        };
        route.map(|route| *route as usize).filter(|route| *route < self.routes.len())
    }
}

/// The first and the last time that a process was looked at, nanoseconds since the begin of the recording. A request that
/// was seen at one of them was not seen whole.
#[derive(Clone, Copy, Debug)]
pub(super) struct Watch {
    first_ns: u64,
    last_ns: u64,
}

impl Watch {
    /// Of a process that has these samples. One that ended took its request with it.
    pub(super) fn new(recording: &Recording, process: &Process, first_ns: u64, last_ns: u64) -> Self {
        let ended = process.ended_ns != 0;
        if recording.info.mode == Mode::Wall && recording.waits.is_empty() {
            return Self { first_ns, last_ns: if ended { u64::MAX } else { last_ns } };
        }
        // The looks that the mode leaves out are not in the recording, and of a wait only its end. The first and the last are within an interval,
        // and each may be late.
        let late_ns = recording.info.interval_ns.saturating_mul(2);
        Self {
            first_ns: process.first_ns.saturating_add(late_ns),
            last_ns: if ended { u64::MAX } else { recording.totals.duration_ns.saturating_sub(late_ns) },
        }
    }

    fn has_seen_whole(self, request: &Request) -> bool {
        request.first_ns > self.first_ns && request.last_ns < self.last_ns
    }
}

pub(super) struct Scan<'a> {
    recording: &'a Recording,
    table: RouteTable,
    /// Busy time of each route.
    busy_ns: Vec<u64>,
}

impl<'a> Scan<'a> {
    pub(super) fn new(recording: &'a Recording) -> Self {
        let table = RouteTable::new(&recording.requests);
        let busy_ns = vec![0; table.routes.len()];
        Self { recording, table, busy_ns }
    }

    /// Counts busy time of a request.
    pub(super) fn take(&mut self, request: RequestId, ns: u64) {
        if let Some(route) = self.table.find(request) {
            self.busy_ns[route] = self.busy_ns[route].saturating_add(ns);
        }
    }

    /// `watches` by number of the process.
    pub(super) fn finish(self, serving_ns: u64, watches: &[Watch]) -> RequestSummary {
        let interner = &self.recording.interner;
        let interval_ns = self.recording.info.interval_ns;
        let mut durations = vec![Vec::new(); self.busy_ns.len()];
        let mut routes = Vec::with_capacity(self.busy_ns.len());
        for ((method, uri), busy_ns) in self.table.routes.iter().zip(self.busy_ns) {
            routes.push(Route { method: *method, uri: *uri, busy_ns, ..Route::default() });
        }
        for request in &self.recording.requests {
            if let Some(at) = self.table.find(request.id) {
                let route = &mut routes[at];
                route.count += 1;
                route.peak_memory_bytes = request.peak_memory_bytes.max(route.peak_memory_bytes);
                let watch = watches.get(request.process.0 as usize);
                if watch.is_some_and(|watch| watch.has_seen_whole(request)) {
                    let seen_ns = request.last_ns.saturating_sub(request.first_ns);
                    durations[at].push(seen_ns.saturating_add(interval_ns));
                }
            }
        }
        for (route, durations) in routes.iter_mut().zip(&mut durations) {
            durations.sort_unstable();
            let sum: u128 = durations.iter().map(|ns| u128::from(*ns)).sum();
            route.whole = durations.len() as u64;
            route.mean_ns = u64::try_from(sum / durations.len().max(1) as u128).unwrap_or(u64::MAX);
            route.p50_ns = quantile(durations, 50);
            route.p95_ns = quantile(durations, 95);
        }
        routes.sort_by(|a, b| {
            let text = |id: StringId| interner.text(id);
            (b.busy_ns, b.count)
                .cmp(&(a.busy_ns, a.count))
                .then_with(|| (text(a.uri), text(a.method)).cmp(&(text(b.uri), text(b.method))))
        });
        RequestSummary { count: self.recording.requests.len() as u64, serving_ns, routes }
    }
}

/// The smallest value that at least `percent` of all do not exceed.
fn quantile(sorted: &[u64], percent: usize) -> u64 {
    let rank = (sorted.len() * percent).div_ceil(100);
    sorted.get(rank.saturating_sub(1)).copied().unwrap_or(0)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "test code")]
mod tests {
    use super::*;
    use crate::Summary;
    use crate::support::{Builder, INTERVAL_NS};
    use slip_model::{Language, StackId, State};

    #[test]
    fn requests_under_way_at_the_begin_or_the_end_do_not_make_durations_shorter() {
        for (mode, ended, whole, mean) in
            [(Mode::Wall, 0, 1, 11), (Mode::Cpu, 0, 1, 11), (Mode::Wall, 200, 2, 8), (Mode::Cpu, 200, 2, 8)]
        {
            let mut b = Builder::new("");
            b.recording.info.mode = mode;
            let process = b.process(Language::Php, "8.4.1", 7, "php-fpm: pool a");
            let thread = b.thread(process, 7, 0, "");
            // One look per interval, from the first on: a request for 3, then one for 11, and one for 5 to the end.
            for (id, first, looks) in [(1_u32, 1_u64, 3_u64), (2, 20, 11), (3, 196, 5)] {
                b.request(id, process, "GET", "/", looks - 1, 0);
                for look in first..first + looks {
                    b.sample_at(look * INTERVAL_NS, thread, StackId(0), State::ON_CPU, id);
                }
                let request = b.recording.requests.last_mut().unwrap();
                (request.first_ns, request.last_ns) =
                    (first * INTERVAL_NS, (first + looks - 1) * INTERVAL_NS);
            }
            let mut recording = b.finish();
            recording.processes[0].ended_ns = ended * INTERVAL_NS;
            let route = Summary::of(&recording).requests.routes[0];
            assert_eq!((route.count, route.whole), (3, whole), "{mode:?}, ended {ended}");
            assert_eq!(route.mean_ns, mean * INTERVAL_NS, "{mode:?}, ended {ended}");
        }
    }

    #[test]
    fn quantiles_are_values_that_occurred() {
        let values: Vec<u64> = (1..=20).collect();
        assert_eq!((quantile(&values, 50), quantile(&values, 95)), (10, 19));
        assert_eq!((quantile(&[7], 50), quantile(&[7], 95), quantile(&[], 50)), (7, 7, 0));
    }
}
