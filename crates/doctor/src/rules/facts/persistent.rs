//! CFG016: connections are configured to persist, and do not.

use slip_model::Recording;

use super::asked::{answer, found_or, setting};
use crate::{BudgetTable, CFG016, Confidence, Finding, Statement, Value, Verdict};

/// Of a hundred requests, as many that connect are too many.
const MIN_CONNECTS_PER_HUNDRED: u64 = 90;

pub(crate) fn judge(recording: &Recording) -> Verdict {
    let php = match answer(recording) {
        Ok(php) => php,
        Err(verdict) => return verdict,
    };
    let sessions = connects(recording, "redis")
        .filter(|rate| php.keeps_sessions_by_persistent_redis && *rate >= MIN_CONNECTS_PER_HUNDRED)
        .map(sessions);
    let quiet = if php.keeps_sessions_by_persistent_redis {
        "no connection that is to persist was seen to be made again and again"
    } else {
        "nothing is configured to persist, as far as extensions that are loaded tell"
    };
    found_or(sessions.into_iter().collect(), Statement::new(quiet).by("ini_get"))
}

/// Connections to servers that speak this, for each hundred requests; nothing if no requests were counted.
fn connects(recording: &Recording, protocol: &str) -> Option<u64> {
    let table = BudgetTable::of(recording)?;
    let requests = table.requests.count.saturating_add(table.requests.lost);
    let rows = table.servers.rows.iter().filter(|row| row.endpoint.protocol == protocol);
    let connects = rows.fold(0_u64, |sum, row| sum.saturating_add(row.connects));
    connects.saturating_mul(100).checked_div(requests)
}

/// From outside.
fn counted(rate: u64, text: &'static str) -> Statement {
    Statement::new(text).with("rate", Value::Hundredths(rate)).by("tcp_connect")
}

fn sessions(rate: u64) -> Finding {
    let headline = Statement::new(
        "sessions are to keep their connection to Redis, and {rate} are made for each request",
    )
    .with("rate", Value::Hundredths(rate));
    setting(&CFG016, "redis_sessions", headline, Confidence::Medium)
        .shown([
            Statement::new("session.save_path asks for a persistent connection").by("ini_get"),
            counted(rate, "{rate} connections to Redis for each request, seen from outside"),
        ])
        .fixed(Statement::new(
            "raise the server's timeout, which closes idle connections; if it is other code that connects, make that persistent \
             (pconnect)",
        ))
}

#[cfg(test)]
mod tests {
    use slip_model::PhpAnswer;

    use super::super::asked::tests::{causes, recording};
    use super::*;

    #[test]
    fn connections_of_sessions_are_counted_from_outside() {
        use slip_model::{Budget, Endpoint, EndpointTime, ServedRequest, Worker};
        let found = |connects, keeps_sessions_by_persistent_redis| {
            let php = PhpAnswer { keeps_sessions_by_persistent_redis, ..PhpAnswer::default() };
            let endpoint = EndpointTime { connects, calls: 400, ..EndpointTime::default() };
            let budget = Budget {
                window_ns: 1_000_000_000,
                workers: vec![Worker { endpoints: vec![endpoint], ..Worker::default() }],
                endpoints: vec![Endpoint {
                    address: "127.0.0.1:6379".to_owned(),
                    protocol: "redis".to_owned(),
                }],
                requests: vec![
                    ServedRequest { end_ns: 1_000, response_ns: 900, ..ServedRequest::default() };
                    100
                ],
                ..Budget::default()
            };
            causes(&judge(&Recording { budget: Some(budget), ..recording(&[], php) }))
        };
        assert_eq!([found(100, false), found(4, true)], [[""; 0]; 2]);
        assert_eq!(found(100, true), ["redis_sessions"]);
    }
}
