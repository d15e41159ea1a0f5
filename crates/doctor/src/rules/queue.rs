//! QUEUE010: requests wait because all workers are busy.

use slip_model::{Budget, ServedRequest};

use crate::case::Case;
use crate::{Confidence, Cost, Finding, Line, QUEUE010, Statement, Unit, Value, Verdict, tenths};

/// Less of a request, in tenths of a per cent, is not told: each request waits for some microseconds until a worker is awake.
const MIN_TENTHS: u64 = 50;

/// From this share of the time on, in tenths of a per cent, it is because all workers were busy.
const MOSTLY_BUSY: u64 = 800;

pub(super) fn judge(case: &Case<'_>) -> Verdict {
    if case.unit != Unit::Request {
        return Verdict::NotOf(Statement::new("what serves no requests has no queue"));
    }
    if !case.table.sees(Line::Queue) {
        return Verdict::TooLittle(Statement::new(
            "when requests come is not seen by looks at /proc; as root the kernel may tell",
        ));
    }
    if case.is_shared() {
        return Verdict::NotOf(Statement::new(
            "an event loop takes each request at once; LOOP007 tells for how long it lets them wait",
        ));
    }
    let ns = case.line_ns(Line::Queue);
    let share = case.tenths(ns);
    let of_queue = |text| {
        Statement::new(text)
            .by("sk_data_ready")
            .with("time", Value::Ns(ns))
            .with("share", Value::Tenths(share))
    };
    if share < MIN_TENTHS {
        return Verdict::Quiet(of_queue("{time}, {share}, until a worker begins"));
    }
    let Queued { all_ns, busy_ns } = Queued::of(case.budget);
    let busy = tenths(busy_ns, all_ns);
    if busy < MOSTLY_BUSY {
        return Verdict::Quiet(
            of_queue("{time}, {share}, until a worker begins; but in {idle} of that time a worker was idle, or not known to be busy")
                .with("idle", Value::Tenths(1_000 - busy)),
        );
    }
    let workers = &case.budget.workers;
    let watched: u128 = workers.iter().map(|worker| u128::from(worker.watched_ns)).sum();
    let idle: u128 = workers.iter().map(|worker| u128::from(worker.idle_ns)).sum();
    let p95 = case
        .table
        .requests
        .lines
        .iter()
        .find(|row| row.line == Line::Queue)
        .map_or(0, |row| row.spread.p95_ns);
    let wake = case.tenths(case.line_ns(Line::Wake));
    Verdict::Found(vec![Finding {
        rule: &QUEUE010,
        cause: "all_busy",
        headline: Statement::new("all {workers} workers are busy when requests come").with("workers", Value::Count(workers.len() as u64)),
        cost: Some(Cost { value: Value::Ns(ns), tenths: Some(share) }),
        evidence: vec![
            of_queue("{time} on average, {share}, until a worker begins (p95 {p95})").with("p95", Value::Ns(p95)),
            Statement::new("in {busy} of that time each worker that was watched had another request")
                .by("sched_switch")
                .with("busy", Value::Tenths(busy)),
            Statement::new("over the whole watch workers were idle for {idle} of their time")
                .by("sched_switch")
                .with("idle", Value::Tenths(tenths(idle, watched))),
        ],
        ruled_out: vec![
            Statement::new("a worker that was idle and did not take it: {idle} of the time in the queue")
                .by("sched_switch")
                .with("idle", Value::Tenths(1_000 - busy)),
        ],
        fixes: vec![
            Statement::new("more workers (pm.max_children, --workers) if the CPUs are there for them: workers were ready without a CPU for {wake} of a request")
                .with("wake", Value::Tenths(wake)),
            Statement::new("shorter requests: each millisecond that the other findings save is saved for those in the queue as well"),
        ],
        // It depends on when requests come, and on what the workers share.
        gain: None,
        confidence: if case.table.requests.lost == 0 { Confidence::High } else { Confidence::Medium },
    }])
}

/// Time of requests in the queue.
struct Queued {
    all_ns: u128,
    /// Of that, while each worker had another request.
    busy_ns: u128,
}

impl Queued {
    /// By sweeping over the begins and ends of requests and of waits for workers.
    fn of(budget: &Budget) -> Self {
        let workers = budget.workers.iter().filter(|worker| !worker.is_run).count();
        let mut moments: Vec<(u64, i64, i64)> = Vec::with_capacity(4 * budget.requests.len());
        for ServedRequest { queued_ns, begin_ns, end_ns, .. } in &budget.requests {
            let begin_ns = (*begin_ns).max(*queued_ns);
            moments.extend([(*queued_ns, 1, 0), (begin_ns, -1, 1), ((*end_ns).max(begin_ns), 0, -1)]);
        }
        moments.sort_unstable();
        let mut found = Self { all_ns: 0, busy_ns: 0 };
        let (mut queued, mut busy, mut since) = (0_i64, 0_i64, 0_u64);
        for (at, of_queue, of_busy) in moments {
            let ns = u128::from(at - since) * u128::try_from(queued).unwrap_or(0);
            found.all_ns += ns;
            if usize::try_from(busy).is_ok_and(|busy| busy >= workers) {
                found.busy_ns += ns;
            }
            (queued, busy, since) = (queued + of_queue, busy + of_busy, at);
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use slip_model::{Part, Recording, Worker};

    use super::*;
    use crate::support::{assert_quiet, found, of, pool};

    const MS: u64 = 1_000_000;

    /// Requests of 10 ms that come together in pairs, so the second one waits for the first.
    fn pairs() -> Recording {
        let mut recording = pool(400, &[(Part::Code, 10 * MS)]);
        let requests = &mut of(&mut recording).requests;
        for at in (1..requests.len()).step_by(2) {
            requests[at].queued_ns = requests[at - 1].begin_ns;
        }
        recording
    }

    #[test]
    fn requests_that_wait_while_each_worker_is_busy_are_told() {
        let finding = found(judge, &pairs());
        // The millisecond between two requests is no worker's: 10 of 11 ms.
        assert_eq!((finding.cause, finding.ns()), ("all_busy", 5_500_000));
        assert_eq!(finding.evidence[1].value("busy"), Some(&Value::Tenths(909)));
        assert_eq!(finding.gain, None);
    }

    #[test]
    fn requests_that_wait_beside_an_idle_worker_are_not() {
        let mut recording = pairs();
        of(&mut recording).workers.push(Worker { pid: 8, idle_ns: 9, watched_ns: 9, ..Worker::default() });
        assert_quiet(judge, &recording);
        assert_quiet(judge, &pool(200, &[(Part::Code, 10 * MS)]));
    }
}
