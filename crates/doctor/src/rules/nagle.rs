//! NAGLE009: small pieces that wait for an acknowledgement.

use slip_model::{CallPart, EndpointCalls};

use crate::case::{Case, called};
use crate::{Confidence, Cost, Finding, Gain, NAGLE009, Statement, Unit, Value, Verdict, tenths};

/// An acknowledgement is late by 40 ms on Linux (`TCP_DELACK_MIN`, 1/25 s); up to 10 ms more pass until a clock that ticks 100 times a second
/// looks. Both are in one bucket of lengths, from 33.6 to 50.3 ms.
const LATE_NS: u64 = 40_000_000;

/// Fewer such calls are chance.
const MIN_CALLS: u64 = 5;

/// Less of a unit, in tenths of a per cent, is not told.
const MIN_TENTHS: u64 = 20;

/// Of all that took as long or longer, so many, in tenths, are as long as a late acknowledgement: a way that is slow has all lengths.
const MOSTLY: u64 = 800;

/// Where 33.6 to 50.3 ms are counted.
const BUCKET: usize = 34;

pub(super) fn judge(case: &Case<'_>) -> Verdict {
    if case.budget.calls.is_empty() {
        if case.table.is_by_looks() {
            return Verdict::TooLittle(Statement::new(
                "looks at /proc do not see the parts of calls; as root the kernel may",
            ));
        }
        return Verdict::Quiet(Statement::new("no server was called").by("sock_recv_length"));
    }
    let found: Vec<Finding> = case.budget.calls.iter().filter_map(|calls| of_server(case, calls)).collect();
    if !found.is_empty() {
        return Verdict::Found(found);
    }
    let late = case.budget.calls.iter().fold(0_u64, |sum, calls| sum.saturating_add(late(calls).0));
    Verdict::Quiet(
        Statement::new("{late} questions to servers on this machine were under way as long as a late acknowledgement takes")
            .by("sk_data_ready")
            .with("late", Value::Count(late)),
    )
}

/// Calls under way for as long as that, and how long these were together; and those that were as long or longer.
fn late(calls: &EndpointCalls) -> (u64, u64, u64) {
    let Some(flight) = calls.parts.get(CallPart::Flight as usize) else { return (0, 0, 0) };
    let count = flight.buckets.get(BUCKET).copied().unwrap_or(0);
    let longer = flight.buckets.iter().skip(BUCKET).fold(0_u64, |sum, count| sum.saturating_add(*count));
    // All is known exactly, and what the others had to within half an octave.
    let mut rest = flight.clone();
    if let Some(bucket) = rest.buckets.get_mut(BUCKET) {
        *bucket = 0;
    }
    (count, flight.ns.saturating_sub(rest.least_total_ns()), longer)
}

fn of_server(case: &Case<'_>, calls: &EndpointCalls) -> Option<Finding> {
    let endpoint = case.budget.endpoints.get(calls.endpoint as usize)?;
    let (count, late_ns, longer) = late(calls);
    let ns = case.each(late_ns.into());
    let is_tcp = !endpoint.address.starts_with(['/', '@']);
    let is_mostly = tenths(count.into(), longer.into()) >= MOSTLY;
    if !is_tcp || count < MIN_CALLS || !is_mostly || case.tenths(ns) < MIN_TENTHS {
        return None;
    }
    let part = |part: CallPart| calls.parts.get(part as usize).map_or(0, |lengths| lengths.ns);
    let mean = |ns: u64| Value::Ns(ns.checked_div(calls.calls).unwrap_or_default());
    let kept = case.each(u128::from(count) * 1_000_000);
    Some(Finding {
        rule: &NAGLE009,
        cause: "delayed_ack",
        headline: Statement::new("questions to {server} are sent in pieces, and the last waits for an acknowledgement")
            .with("server", called(endpoint)),
        cost: Some(Cost { value: Value::Ns(ns), tenths: Some(case.tenths(ns)) }),
        evidence: vec![
            Statement::new("{late} of {calls} questions were under way to a server on this machine for {mean} each: what a late acknowledgement takes")
                .by("sk_data_ready")
                .with("late", Value::Count(count))
                .with("calls", Value::Count(calls.calls))
                .with("mean", Value::Ns(late_ns.checked_div(count).unwrap_or(LATE_NS))),
        ],
        ruled_out: vec![
            Statement::new("a slow server: {work} for an answer on average, and {queue} until it reads the question")
                .by("sk_data_ready")
                .with("work", mean(part(CallPart::Work)))
                .with("queue", mean(part(CallPart::Queue))),
            Statement::new("no CPU for the worker: {ready} after an answer on average")
                .by("sched_switch")
                .with("ready", mean(part(CallPart::Running))),
            Statement::new("a slow network: no question that goes to a server on this machine leaves it"),
        ],
        fixes: vec![
            Statement::new("TCP_NODELAY on the client's socket (PHP streams: the context option tcp_nodelay of socket), or the question in one write"),
        ],
        gain: Some(Gain {
            low: Value::Ns(ns.saturating_sub(kept)),
            high: Value::Ns(ns),
            basis: Statement::new("all of the time under way of these calls, but for up to a millisecond each"),
        }),
        confidence: if case.unit == Unit::Request { Confidence::High } else { Confidence::Medium },
    })
}

#[cfg(test)]
mod tests {
    use slip_model::{EndpointTime, Part, Recording};

    use super::*;
    use crate::support::{assert_quiet, found, lengths, pool, serve};

    const MS: u64 = 1_000_000;

    fn calling(address: &str, parts: &[(CallPart, slip_model::Lengths)]) -> Recording {
        let mut recording = pool(200, &[(Part::Code, 10 * MS), (Part::Wait, 43 * MS)]);
        let time = EndpointTime { calls: 400, ..EndpointTime::default() };
        serve(&mut recording, [address, "redis"], time, parts, &[]);
        recording
    }

    #[test]
    fn a_late_acknowledgement_is_told() {
        let mut flight = lengths(200, 43 * MS);
        flight.add(&lengths(200, 10_000));
        let recording =
            calling("127.0.0.1:6379", &[(CallPart::Flight, flight), (CallPart::Work, lengths(400, 8_000))]);
        let finding = found(judge, &recording);
        assert_eq!((finding.cause, finding.confidence), ("delayed_ack", Confidence::High));
        assert!((42 * MS..=43 * MS + 10_000).contains(&finding.ns()), "{finding:?}");
    }

    #[test]
    fn what_takes_as_long_elsewhere_is_not() {
        let of = |part, ns| [(part, lengths(200, ns))];
        // The server itself; one on another machine; a way that takes all lengths; one that is no TCP.
        assert_quiet(judge, &calling("127.0.0.1:6379", &of(CallPart::Work, 43 * MS)));
        assert_quiet(judge, &calling("10.0.0.5:6379", &of(CallPart::Remote, 43 * MS)));
        assert_quiet(judge, &calling("127.0.0.1:6379", &of(CallPart::Flight, 70 * MS)));
        assert_quiet(judge, &calling("/run/redis.sock", &of(CallPart::Flight, 43 * MS)));
        let mut flight = lengths(100, 43 * MS);
        flight.add(&lengths(100, 80 * MS));
        assert_quiet(judge, &calling("127.0.0.1:6379", &[(CallPart::Flight, flight)]));
    }
}
