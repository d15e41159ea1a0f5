//! Budgets of event loops: data that comes while they are busy waits.

#![allow(clippy::unwrap_used, reason = "what fails here fails the test")]

mod budget_support;

use std::thread;
use std::time::Duration;

use slip_model::{Budget, ServedRequest};
use slip_record::monotonic_ns;

use self::budget_support::python::{budget_of, gunicorn, uvicorn, uwsgi};
use self::budget_support::servers::serve_slowly;
use self::budget_support::{REQUESTS, SHARE, alone, assert_most, assert_share, take};

fn loop_blocked_ns(budget: &Budget) -> u64 {
    budget.workers.iter().map(|worker| worker.loop_blocked_ns).sum()
}

#[test]
fn requests_that_are_open_together_have_no_parts_of_their_own() {
    let _alone = alone();
    let Some(server) = uvicorn() else { return };
    let Some(mut books) = server.books() else { return };
    for _ in 0..REQUESTS {
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| server.fetch("/sleep"));
            }
        });
    }
    let (budget, requests) = take(&mut books, 4 * REQUESTS);
    assert_eq!(requests.len() as u64, 4 * REQUESTS);
    // Those that come while the first one is handled are read at once, and then handled one after the other.
    let begins = requests.iter().map(|request| (request.begin_ns, 1));
    let mut changes: Vec<(u64, i32)> =
        begins.chain(requests.iter().map(|request| (request.end_ns, -1))).collect();
    changes.sort_unstable();
    let (mut open, mut since_ns, mut together_ns) = (0, 0, 0);
    for (at_ns, change) in changes {
        together_ns += if open > 1 { at_ns - since_ns } else { 0 };
        (open, since_ns) = (open + change, at_ns);
    }
    let shared_ns: u64 = budget.workers.iter().map(|worker| worker.shared_ns).sum();
    assert!(shared_ns > 0 && shared_ns == together_ns, "{shared_ns} of {together_ns}: {requests:?}");
    for request in &requests {
        let overlaps =
            |other: &&ServedRequest| other.begin_ns < request.end_ns && request.begin_ns < other.end_ns;
        let is_alone = requests.iter().filter(overlaps).count() == 1;
        assert_eq!(request.serving.total_ns() > 0, is_alone, "{request:?}");
    }
}

#[test]
fn an_answer_that_a_blocked_loop_does_not_read_is_told() {
    let _alone = alone();
    let Some(server) = uvicorn() else { return };
    let port = serve_slowly(Duration::ZERO);
    for how in ["sleep", "code"] {
        let Some((budget, _, drag_ns)) = budget_of(&server, &format!("/late/{port}/{how}")) else { return };
        assert_most(loop_blocked_ns(&budget), drag_ns, &format!("loop blocked by {how}, of an answer"));
    }
}

#[test]
fn a_request_that_a_blocked_loop_does_not_read_is_told() {
    let _alone = alone();
    let Some(server) = uvicorn() else { return };
    let Some(mut books) = server.books() else { return };
    let (mut drag_ns, mut most_ns) = (0, 0);
    for _ in 0..REQUESTS {
        let mut second = server.connect();
        let begin_ns = monotonic_ns();
        // The loop has accepted the second one when it has served one that came after it.
        server.fetch("/");
        let mut first = server.connect();
        first.send("/announced");
        first.begin();
        // The loop is blocked now, until the moment that the response ends with.
        second.send("/");
        let sent_ns = monotonic_ns();
        drag_ns += first.finish().saturating_sub(sent_ns);
        second.finish();
        // No request waits after its response has come. Until then a loop that gets little of a CPU may not read it.
        most_ns += monotonic_ns() - begin_ns;
    }
    let (budget, _) = take(&mut books, 3 * REQUESTS);
    let bounds = SHARE..most_ns as f64 / drag_ns as f64;
    assert_share(loop_blocked_ns(&budget), drag_ns, bounds, "loop blocked, of a request");
}

#[test]
fn workers_that_serve_one_request_at_a_time_have_no_loop() {
    let _alone = alone();
    for server in [gunicorn(&[]), gunicorn(&["--threads", "3"]), uwsgi()] {
        let Some(server) = server else { continue };
        let Some(mut books) = server.books() else { return };
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| server.fetch("/sleep"));
            }
        });
        let (budget, _) = take(&mut books, 4);
        assert_eq!(loop_blocked_ns(&budget), 0, "{budget:?}");
    }
}
