//! Budgets of requests: their clients, and what is before and after the worker's answer.

#![allow(clippy::unwrap_used, reason = "what fails here fails the test")]

mod budget_support;

use std::thread;

use slip_model::Part;
use slip_record::monotonic_ns;
use slip_testkit::fpm::{Fpm, Pool};

use self::budget_support::php::{CLOCKS, Watched, builds, fetch_all, parse};
use self::budget_support::python::gunicorn;
use self::budget_support::{
    DRAG, REQUESTS, alone, assert_most, assert_most_blocked, drag, is_emulated, serving_ns, take,
};

#[test]
fn work_after_the_response_is_told_apart() {
    let _alone = alone();
    let script = "<?php echo 15000000; fastcgi_finish_request(); usleep(15000);";
    for build in builds() {
        let Some(watched) = Watched::start(&build, script) else { return };
        let drag_ns = fetch_all(&watched.fpm);
        let (budget, requests) = watched.finish(REQUESTS);
        let after_ns: u64 = budget.workers.iter().map(|worker| worker.after.of(Part::Sleep)).sum();
        assert_most(after_ns, drag_ns, &format!("{}: after the response", build.label()));
        assert_eq!(serving_ns(&budget, Part::Sleep), 0);
        for request in requests {
            assert!(request.end_ns - request.response_ns >= DRAG.as_nanos() as u64, "{request:?}");
        }
    }
}

#[test]
fn requests_of_code_that_was_moved_are_told_by_their_connections() {
    let _alone = alone();
    if is_emulated() {
        // There breakpoints are in the file all the time. PHP would copy them, and end by the first.
        return;
    }
    for build in builds() {
        // PHP moves what is in whole huge pages, which differs from start to start.
        for _ in 0..8 {
            let pool = Pool { ini: &["opcache.huge_code_pages=1"], ..Pool::default() };
            let script = "<?php usleep(15000); echo 15000000;";
            let Some(watched) = Watched::start_pool(&build, pool, script) else { return };
            let drag_ns = fetch_all(&watched.fpm);
            let (budget, _) = watched.finish(REQUESTS);
            let is_moved = budget.cannot_see.iter().any(|limit| limit.contains("huge_code_pages"));
            let what = if is_moved { "moved code" } else { "code that was not moved" };
            assert_most(serving_ns(&budget, Part::Sleep), drag_ns, &format!("{}: {what}", build.label()));
            if is_moved {
                break;
            }
        }
    }
}

#[test]
fn a_server_that_moves_its_code_can_start_while_another_one_is_watched() {
    let _alone = alone();
    if is_emulated() {
        // Before Linux 6.6 breakpoints are in the file.
        return;
    }
    for build in builds() {
        let Some(watched) = Watched::start(&build, "<?php echo 15000000;") else { return };
        // PHP moves what is in whole huge pages, which differs from start to start.
        for _ in 0..8 {
            let pool = Pool { ini: &["opcache.huge_code_pages=1"], ..Pool::default() };
            let other = Fpm::start_pool(&build, pool, &[("index.php", "<?php echo 15000000;")]);
            fetch_all(&other);
        }
        fetch_all(&watched.fpm);
        let (_, requests) = watched.finish(REQUESTS);
        assert_eq!(requests.len() as u64, REQUESTS, "{}", build.label());
    }
}

#[test]
fn a_client_that_sends_slowly_is_told() {
    let _alone = alone();
    let script = "<?php $begin = hrtime(true); file_get_contents('php://input'); echo hrtime(true) - $begin;";
    for build in builds() {
        let Some(watched) = Watched::start(&build, script) else { return };
        for _ in 0..REQUESTS {
            let mut connection = watched.fpm.connect();
            connection.send("index.php", "/", "POST", false);
            thread::sleep(drag());
            connection.finish(b"0123456789");
            connection.receive();
        }
        let (budget, _) = watched.finish(REQUESTS);
        let drag_ns = REQUESTS * drag().as_nanos() as u64;
        assert_most_blocked(&budget, Part::Client, drag_ns, &build.label());
    }
}

#[test]
fn a_client_that_takes_the_response_slowly_is_told() {
    let _alone = alone();
    let script = r#"
        $text = str_repeat("x", 4 << 20);
        $took = without_cpu(function () use ($text) {
            echo $text;
            flush();
        });
        echo "\n", $took;"#;
    for build in builds() {
        let Some(watched) = Watched::start(&build, &format!("{CLOCKS}{script}")) else { return };
        let mut told_ns = 0;
        for _ in 0..REQUESTS {
            let mut connection = watched.fpm.connect();
            connection.send("index.php", "/", "GET", false);
            connection.finish(b"");
            thread::sleep(drag());
            told_ns += parse(&connection.receive());
        }
        let drag_ns = watched.blocked_ns(told_ns);
        let (budget, _) = watched.finish(REQUESTS);
        assert_most_blocked(&budget, Part::Client, drag_ns, &format!("{}: slow reader", build.label()));
    }
}

#[test]
fn a_client_that_takes_the_response_slowly_over_the_network_is_told() {
    let _alone = alone();
    let Some(server) = gunicorn(&[]) else { return };
    let Some(mut books) = server.books() else { return };
    let mut drag_ns = 0;
    for _ in 0..REQUESTS {
        let mut connection = server.connect();
        connection.send("/large");
        // The kernel has all that it keeps for a client, which takes longer than the drag on a machine that is slow.
        server.wait_until_it_sends();
        thread::sleep(drag());
        drag_ns += connection.finish();
    }
    let (budget, _) = take(&mut books, REQUESTS);
    assert_most_blocked(&budget, Part::Client, drag_ns, "gunicorn: slow reader");
}

#[test]
fn requests_that_nobody_has_accepted_yet_are_queued() {
    let _alone = alone();
    let script = "<?php usleep(15000); echo 15000000;";
    for build in builds() {
        let Some(watched) = Watched::start(&build, script) else { return };
        let fpm = &watched.fpm;
        let send = || {
            let before_ns = monotonic_ns();
            let mut connection = fpm.connect();
            connection.send("index.php", "/", "GET", false);
            connection.finish(b"");
            // The first of what it sends tells, or the last if the kernel has not told us of that.
            let after_ns = monotonic_ns();
            connection.receive();
            (before_ns, after_ns)
        };
        let mut sent: Vec<(u64, u64)> = thread::scope(|scope| {
            let senders: Vec<_> = (0..4).map(|_| scope.spawn(send)).collect();
            senders.into_iter().map(|sender| sender.join().unwrap()).collect()
        });
        let (_, requests) = watched.finish(4);
        assert_eq!(requests.len(), 4);
        let mut free_ns = 0;
        for request in &requests {
            // The worker began when it was free.
            assert!(
                request.begin_ns >= free_ns && request.end_ns - request.begin_ns >= DRAG.as_nanos() as u64
            );
            free_ns = request.end_ns;
        }
        // Each came when a client connected or sent it. Of clients that did so together, each has the first that fits.
        let mut queued: Vec<u64> = requests.iter().map(|request| request.queued_ns).collect();
        queued.sort_unstable();
        sent.sort_unstable_by_key(|(_, after_ns)| *after_ns);
        for queued_ns in queued {
            let at =
                sent.iter().position(|(before_ns, after_ns)| (*before_ns..=*after_ns).contains(&queued_ns));
            sent.remove(at.unwrap_or_else(|| panic!("{queued_ns} of {sent:?}: {requests:?}")));
        }
    }
}

#[test]
fn a_backlog_that_is_full_is_the_queue_of_those_in_it() {
    const CLIENTS: u64 = 12;
    let _alone = alone();
    // The moment in which a worker has begun, by the clock that the clients have.
    let took_us = drag().as_micros();
    let script = format!(r#"<?php $begin = hrtime(true); usleep({took_us}); echo "\n$begin";"#);
    for build in builds() {
        // Two workers have one each, five wait, and the others are not let in before one of these has been accepted.
        let pool = Pool { workers: 2, settings: "listen.backlog = 4", ..Pool::default() };
        let Some(watched) = Watched::start_pool(&build, pool, &script) else { return };
        let fpm = &watched.fpm;
        let ask = || {
            let mut connection = fpm.connect();
            let sent_ns = monotonic_ns();
            connection.send("index.php", "/", "GET", false);
            connection.finish(b"");
            parse(&connection.receive()) - sent_ns
        };
        let drag_ns: u64 = thread::scope(|scope| {
            let clients: Vec<_> = (0..CLIENTS).map(|_| scope.spawn(ask)).collect();
            clients.into_iter().map(|client| client.join().unwrap()).sum()
        });
        let (_, requests) = watched.finish(CLIENTS);
        let queued_ns = requests.iter().map(|request| request.begin_ns - request.queued_ns).sum();
        assert_most(queued_ns, drag_ns, &format!("{}: full backlog", build.label()));
    }
}
