//! Budgets of workers that call servers.

#![allow(clippy::unwrap_used, reason = "what fails here fails the test")]

mod budget_support;

use std::fs::{self, Permissions};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::PermissionsExt as _;
use std::thread;
use std::time::Duration;

use slip_model::{Budget, CallPart, EndpointTime, Part};
use slip_record::Rung;
use slip_testkit::skip;

use self::budget_support::php::{Watched, builds, fetch_all, fetch_all_and_rest};
use self::budget_support::python::{budget_of, gunicorn};
use self::budget_support::servers::{Redis, serve_slowly, serve_slowly_at};
use self::budget_support::{
    REQUESTS, SHARE, alone, assert_most, assert_most_blocked, assert_share, drag, ready_ns, rung, serving_ns,
};

/// What the only worker had to do with the only server, which is this one.
#[track_caller]
fn only_endpoint(budget: &Budget, port: u16, protocol: &str) -> EndpointTime {
    let [time] = budget.workers[0].endpoints[..] else { panic!("{:?}", budget.workers) };
    let endpoint = &budget.endpoints[time.endpoint as usize];
    assert_eq!(
        (endpoint.address.as_str(), endpoint.protocol.as_str()),
        (&*format!("127.0.0.1:{port}"), protocol)
    );
    time
}

/// Most of the drag is in these parts of the calls to the only server. The worker's clock also has the time that it was ready to run. Of the
/// first call on a connection that is not seen to begin, nor is it when the server has it. `rest_ns` is the time of calls without the drag.
#[track_caller]
fn assert_most_of_calls(budget: &Budget, parts: &[CallPart], (drag_ns, rest_ns): (u64, u64), what: &str) {
    let [calls] = &budget.calls[..] else { panic!("{:?}", budget.calls) };
    let ns = |part: CallPart| calls.parts[part as usize].ns;
    let ready_ns = ns(CallPart::Woken) + ns(CallPart::Running);
    let sees_sending = !budget.cannot_see.iter().any(|text| text.starts_with("sending to a server"));
    let unseen: &[CallPart] = if sees_sending { &[] } else { &[CallPart::Remote] };
    let found_ns: u64 = parts.iter().chain(unseen).map(|part| ns(*part)).sum();
    let what = format!("{what}: {parts:?}");
    let parts_ms = CallPart::ALL.map(|part| format!("{part:?} {:.1}", ns(part) as f64 / 1e6)).join(", ");
    let split = format!("{what} of {} calls (ms: {parts_ms})", calls.calls);
    assert_share(found_ns + ready_ns, drag_ns, SHARE..f64::INFINITY, &split);
    let rights = [parts, unseen, &[CallPart::Woken, CallPart::Running]].concat();
    let others = CallPart::ALL.into_iter().filter(|other| other.is_of_calls() && !rights.contains(other));
    let wrong_ns: u64 = others.map(ns).sum();
    assert!(
        2 * found_ns < 3 * drag_ns && 10 * wrong_ns.saturating_sub(rest_ns) < drag_ns,
        "{what} {found_ns}, others {wrong_ns}, of {drag_ns} ns and {rest_ns} of other calls: {calls:?}"
    );
}

/// How often the only server was asked each command.
fn commands(budget: &Budget) -> Vec<(&str, u64)> {
    budget.commands.iter().map(|command| (&*command.name, command.calls)).collect()
}

#[test]
fn a_slow_server_is_waited_for() {
    let _alone = alone();
    let port = serve_slowly(drag());
    let script = format!(
        r#"<?php
        $server = stream_socket_client("tcp://127.0.0.1:{port}");
        $begin = hrtime(true);
        fwrite($server, "*1\r\n$4\r\nPING\r\n");
        fgets($server);
        echo hrtime(true) - $begin;"#
    );
    for build in builds() {
        let Some(watched) = Watched::start(&build, &script) else { return };
        let drag_ns = fetch_all(&watched.fpm);
        let (budget, _) = watched.finish(REQUESTS);
        assert_most_blocked(&budget, Part::Wait, drag_ns, &build.label());
        let time = only_endpoint(&budget, port, "redis");
        assert_eq!((time.calls, time.connects), (REQUESTS, REQUESTS));
        assert_most(time.wait_ns + time.wake_ns, drag_ns, "of the endpoint");
        assert_most_of_calls(&budget, &[CallPart::Work], (drag_ns, 0), &build.label());
        assert_eq!(commands(&budget), [("PING", REQUESTS)]);
    }
}

#[test]
fn a_slow_server_at_a_unix_socket_is_waited_for() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("slow.sock");
    serve_slowly_at(&path, drag());
    fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).unwrap();
    fs::set_permissions(&path, Permissions::from_mode(0o777)).unwrap();
    let script = format!(
        r#"<?php
        $server = stream_socket_client("unix://{}");
        fwrite($server, "*1\r\n$4\r\nPING\r\n");
        fgets($server);
        $begin = hrtime(true);
        fwrite($server, "*1\r\n$4\r\nPING\r\n");
        fgets($server);
        echo hrtime(true) - $begin;"#,
        path.display()
    );
    for build in builds().into_iter().filter(|build| build.version == (8, 2)) {
        let Some(watched) = Watched::start(&build, &script) else { return };
        let drag_ns = fetch_all(&watched.fpm);
        let (budget, _) = watched.finish(REQUESTS);
        let wait_ns = serving_ns(&budget, Part::Wait);
        assert_share(wait_ns + ready_ns(&budget), 2 * drag_ns, SHARE..f64::INFINITY, "UNIX socket");
        let parts = &budget.calls[0].parts;
        let (work_ns, remote_ns) = (parts[CallPart::Work as usize].ns, parts[CallPart::Remote as usize].ns);
        if rung() == Rung::Syscalls {
            assert_most(work_ns, 2 * drag_ns, "the server's work");
            assert_eq!(remote_ns, 0);
        } else {
            assert_most(work_ns, drag_ns, "the server's work");
            // Of the first call on a connection it is not seen when the server has it.
            assert_most(remote_ns, drag_ns, "of the first");
        }
        assert_eq!(commands(&budget), [("PING", 2 * REQUESTS)]);
    }
}

#[test]
fn an_answer_that_is_read_late_is_no_fault_of_the_server() {
    let _alone = alone();
    let port = serve_slowly(Duration::ZERO);
    let script = format!(
        r#"<?php
        $server = stream_socket_client("tcp://127.0.0.1:{port}");
        $asked = hrtime(true);
        fwrite($server, "*1\r\n$4\r\nPING\r\n");
        // Until the answer has come.
        usleep({});
        $begin = hrtime(true);
        usleep({});
        fgets($server);
        echo $begin - $asked, "\n", hrtime(true) - $begin;"#,
        drag().as_micros() / 6,
        drag().as_micros()
    );
    for build in builds() {
        let Some(watched) = Watched::start(&build, &script) else { return };
        // How long the server takes to answer is no part of it.
        let (drag_ns, rest_ns) = fetch_all_and_rest(&watched.fpm);
        let (budget, _) = watched.finish(REQUESTS);
        assert_most_blocked(&budget, Part::Sleep, drag_ns, &format!("{}: read late", build.label()));
        assert_most_of_calls(&budget, &[CallPart::Read], (drag_ns, rest_ns), &build.label());
    }
}

#[test]
fn a_redis_that_another_client_keeps_busy_is_waited_for() {
    let _alone = alone();
    let Some(redis) = Redis::start() else { return };
    let port = redis.port;
    let script = format!(
        r#"<?php
        $server = stream_socket_client("tcp://127.0.0.1:{port}");
        $took = 0;
        for ($i = 0; $i < 3; $i++) {{
            $begin = hrtime(true);
            fwrite($server, "*1\r\n$4\r\nPING\r\n");
            fgets($server);
            $took += hrtime(true) - $begin;
        }}
        echo $took;"#
    );
    for build in builds() {
        let Some(watched) = Watched::start(&build, &script) else { return };
        let drag_ns = redis.while_blocked(drag(), || fetch_all(&watched.fpm));
        let (budget, _) = watched.finish(REQUESTS);
        assert_most_blocked(&budget, Part::Wait, drag_ns, &format!("{}: DEBUG SLEEP", build.label()));
        let time = only_endpoint(&budget, port, "redis");
        assert_eq!((time.calls, time.connects), (3 * REQUESTS, REQUESTS));
        assert_most(time.wait_ns + time.wake_ns, drag_ns, "of the endpoint");
        // What Redis reads together it answers together: after it has slept again, if that was asked for in time.
        let parts = [CallPart::Queue, CallPart::Work];
        assert_most_of_calls(&budget, &parts, (drag_ns, 0), &build.label());
    }
}

#[test]
fn a_call_in_two_pieces_waits_for_an_acknowledgement() {
    let _alone = alone();
    let port = serve_slowly(Duration::ZERO);
    // Both sides have to have talked for a while before the server acknowledges late, and the client sends little at a time.
    let script = format!(
        r#"<?php
        $server = stream_socket_client("tcp://127.0.0.1:{port}");
        $begin = hrtime(true);
        for ($i = 0; $i < 20; $i++) {{
            fwrite($server, "*1\r\n$4\r\nPING\r\n");
            fgets($server);
        }}
        echo hrtime(true) - $begin, "\n";
        $begin = hrtime(true);
        for ($i = 0; $i < 5; $i++) {{
            fwrite($server, "*1\r\n$4\r\n");
            fwrite($server, "PING\r\n");
            fgets($server);
        }}
        echo hrtime(true) - $begin;"#
    );
    for build in builds() {
        let Some(watched) = Watched::start(&build, &script) else { return };
        let (drag_ns, rest_ns) = fetch_all_and_rest(&watched.fpm);
        let (budget, _) = watched.finish(REQUESTS);
        if drag_ns < 100_000_000 * REQUESTS {
            skip("late acknowledgements", "this kernel acknowledges at once");
            return;
        }
        assert_most_blocked(&budget, Part::Wait, drag_ns, &format!("{}: two pieces", build.label()));
        let time = only_endpoint(&budget, port, "redis");
        assert_eq!((time.calls, time.connects), (25 * REQUESTS, REQUESTS));
        assert_most(time.wait_ns + time.wake_ns, drag_ns, "of the endpoint");
        assert_most_of_calls(&budget, &[CallPart::Flight], (drag_ns, rest_ns), &build.label());
    }
}

#[test]
fn a_connection_that_takes_long_is_told() {
    let _alone = alone();
    for build in builds().into_iter().filter(|build| build.version == (8, 2)) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        // SAFETY: the socket is open; to listen again sets how many may wait, one more than is said.
        assert_eq!(unsafe { libc::listen(listener.as_raw_fd(), 0) }, 0);
        let script = format!(
            r#"<?php
            if ($_SERVER["REQUEST_URI"] != "/slow") {{
                exit("0");
            }}
            $begin = hrtime(true);
            $server = stream_socket_client("tcp://{address}");
            echo hrtime(true) - $begin;
            fwrite($server, "*1\r\n$4\r\nPING\r\n");"#
        );
        let Some(watched) = Watched::start(&build, &script) else { return };
        let (fpm, waits) = (&watched.fpm, TcpStream::connect(address).unwrap());
        let drag_ns = thread::scope(|scope| {
            let asks = scope.spawn(|| fpm.fetch("index.php", "/slow"));
            // The kernel asks again after a second.
            thread::sleep(Duration::from_millis(150));
            drop(listener.accept().unwrap());
            asks.join().unwrap().trim().parse::<u64>().unwrap()
        });
        drop(waits);
        assert!(drag_ns > 900_000_000, "{drag_ns}");
        let (budget, _) = watched.finish(1);
        assert_most_blocked(&budget, Part::Connect, drag_ns, &format!("{}: SYN again", build.label()));
        let time = only_endpoint(&budget, address.port(), "redis");
        assert_most(time.connect_ns, drag_ns, "of the endpoint");
        let connect = &budget.calls[0].parts[CallPart::Connect as usize];
        assert_most(connect.ns, drag_ns, "connect");
        assert_eq!(connect.count(), 1);
    }
}

#[test]
fn connections_for_each_call_are_told() {
    let _alone = alone();
    let port = serve_slowly(Duration::ZERO);
    let Some(server) = gunicorn(&[]) else { return };
    let Some((budget, _, drag_ns)) = budget_of(&server, &format!("/connect/{port}")) else { return };
    let connect_ns = serving_ns(&budget, Part::Connect);
    // It has the sending of what is first as well.
    assert_share(connect_ns, drag_ns, SHARE..2.5, "gunicorn: connect per call");
    // Also where ports of connections that were closed are taken again.
    assert_eq!(only_endpoint(&budget, port, "").connect_ns, connect_ns);
}

#[test]
fn connections_for_each_call_are_counted() {
    let _alone = alone();
    let port = serve_slowly(Duration::ZERO);
    let script = format!(
        r#"<?php
        for ($i = 0; $i < 50; $i++) {{
            $server = stream_socket_client("tcp://127.0.0.1:{port}");
            fwrite($server, "*1\r\n$4\r\nPING\r\n");
            fgets($server);
            fclose($server);
        }}
        echo 0;"#
    );
    for build in builds() {
        let Some(watched) = Watched::start(&build, &script) else { return };
        fetch_all(&watched.fpm);
        let (budget, _) = watched.finish(REQUESTS);
        let time = only_endpoint(&budget, port, "redis");
        assert_eq!((time.calls, time.connects), (50 * REQUESTS, 50 * REQUESTS));
        assert_eq!(time.connect_ns, serving_ns(&budget, Part::Connect));
    }
}
