//! Budgets kept by looks at `/proc`: what requests spend their time on, against what they measure themselves.
//!
//! Each program makes one drag and answers with how long it took by its own clock. At least nine tenths of that have to be in the part
//! that names it, over enough requests that it does not matter where in a drag the looks come.

#![allow(clippy::unwrap_used, reason = "what fails here fails the test")]

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use slip_model::{Budget, Language, Part, ServedRequest};
use slip_record::{Books, Rung};
use slip_testkit::fpm::{Build, Fpm, Pool};
use slip_testkit::{Child, Launch, alone, pythons, skip};

/// What a drag takes: three looks.
const DRAG: Duration = Duration::from_millis(15);

/// Longest wait for a look. The machine may be busy with other tests.
const PATIENCE: Duration = Duration::from_secs(60);

/// Requests of each kind.
const REQUESTS: u64 = 24;

/// The share of a drag that has to be in its part.
const SHARE: f64 = 0.9;

/// Of each version one: where a script comes from changes nothing here.
fn builds() -> Vec<Build> {
    slip_testkit::fpm::builds().into_iter().filter(|build| build.opcache).collect()
}

/// What has a clock of CPU time in PHP.
const CLOCKS: &str = r#"<?php
    function cpu() {
        $used = getrusage();
        return 1e9 * ($used["ru_utime.tv_sec"] + $used["ru_stime.tv_sec"]) + 1e3 * ($used["ru_utime.tv_usec"] + $used["ru_stime.tv_usec"]);
    }
"#;

/// Books of these processes, which have begun: a worker of each was seen.
fn books(pids: &[u32], language: Language, title: &str) -> Books {
    let mut books = Books::start_at(Rung::Proc, true).unwrap();
    for pid in pids {
        books.add(*pid, language, title).unwrap();
    }
    let end = Instant::now() + PATIENCE;
    while books.take(0, 0).unwrap().0.workers.iter().filter(|worker| worker.idle_ns > 0).count() < pids.len()
    {
        assert!(Instant::now() < end, "no worker was seen");
        thread::yield_now();
    }
    books
}

/// The books once all workers are idle again, and requests that have ended. They add up.
fn finish(mut books: Books) -> (Budget, Vec<ServedRequest>) {
    let (end, mut requests) = (Instant::now() + PATIENCE, Vec::new());
    let mut idle_ns: Vec<u64> = Vec::new();
    let budget = loop {
        let (budget, more) = books.take(0, 0).unwrap();
        requests.extend(more);
        let now: Vec<u64> = budget.workers.iter().map(|worker| worker.idle_ns).collect();
        // Twice since the last request: what was under way at the first look has ended.
        if idle_ns.is_empty() {
            idle_ns = now.iter().map(|ns| ns + 20_000_000).collect();
        } else if now.iter().zip(&idle_ns).all(|(now, then)| now > then) {
            break budget;
        }
        assert!(Instant::now() < end, "workers are not idle: {budget:?}");
        thread::yield_now();
    };
    assert_eq!((budget.rung.as_str(), budget.lost_requests), ("proc", 0));
    assert!(!budget.cannot_see.is_empty());
    for worker in &budget.workers {
        let ns = worker.idle_ns + worker.between.total_ns() + worker.serving.total_ns();
        assert_eq!((ns, worker.after.total_ns()), (worker.watched_ns, 0), "{worker:?}");
    }
    for request in &requests {
        assert_eq!(request.serving.total_ns(), request.end_ns - request.begin_ns, "{request:?}");
    }
    (budget, requests)
}

fn serving_ns(budget: &Budget, part: Part) -> u64 {
    budget.workers.iter().map(|worker| worker.serving.of(part)).sum()
}

/// Most of the drag is in `part`, or in the wait for a CPU after it, which who is blocked cannot tell apart; little is in others.
#[track_caller]
fn assert_most(budget: &Budget, part: Part, drag_ns: u64, what: &str) {
    let found_ns = serving_ns(budget, part);
    let ready_ns = if part == Part::Wake || part == Part::Code { 0 } else { serving_ns(budget, Part::Wake) };
    let share = (found_ns + ready_ns) as f64 / drag_ns as f64;
    let wrong_ns: u64 = Part::ALL
        .into_iter()
        .filter(|other| ![part, Part::Code, Part::Wake].contains(other))
        .map(|other| serving_ns(budget, other))
        .sum();
    assert!(
        (SHARE..1.5).contains(&share) && 2 * found_ns > drag_ns && 10 * wrong_ns < drag_ns,
        "{what}: {part:?} {found_ns} + {ready_ns} ns of {drag_ns}, {share:.3}, {wrong_ns} elsewhere: {budget:#?}"
    );
}

/// Looks that come too late miss a request.
#[track_caller]
fn assert_nearly_all(requests: &[ServedRequest]) {
    let count = requests.len() as u64;
    assert!((REQUESTS * 3 / 4..=REQUESTS).contains(&count), "{count}: {requests:?}");
}

/// A pool of one worker whose books are kept.
fn watched(build: &Build, script: &str) -> (Fpm, Books) {
    let fpm = Fpm::start_pool(build, Pool::default(), &[("index.php", script)]);
    // What is done once is not what is measured.
    (0..2).for_each(|_| drop(fpm.fetch("index.php", "/")));
    let books = books(&fpm.workers(), Language::Php, "pool");
    (fpm, books)
}

/// Nanoseconds that all requests say that they took.
fn fetch_all(fpm: &Fpm) -> u64 {
    (0..REQUESTS).map(|_| fpm.fetch("index.php", "/").trim().parse::<u64>().unwrap()).sum()
}

/// With each build of php-fpm: the script is asked some times, and its drag is in `part`.
#[track_caller]
fn assert_drag(script: &str, part: Part) {
    let _alone = alone();
    for build in builds() {
        let (fpm, books) = watched(&build, script);
        let drag_ns = fetch_all(&fpm);
        let (budget, requests) = finish(books);
        assert_most(&budget, part, drag_ns, &build.label());
        assert_nearly_all(&requests);
    }
}

#[test]
fn time_that_passes_is_sleep() {
    assert_drag("<?php $begin = hrtime(true); usleep(15000); echo hrtime(true) - $begin;", Part::Sleep);
}

#[test]
fn code_that_computes_is_code() {
    let script = format!("{CLOCKS} $used = cpu(); while (cpu() - $used < 15e6); echo (int) (cpu() - $used);");
    assert_drag(&script, Part::Code);
}

#[test]
fn a_slow_server_is_waited_for_and_named() {
    let _alone = alone();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let mut bytes = [0; 64];
            while stream.read(&mut bytes).is_ok_and(|len| len > 0) {
                thread::sleep(DRAG);
                stream.write_all(b"+OK\r\n").unwrap();
            }
        }
    });
    let script = format!(
        r#"<?php
        $server = stream_socket_client("tcp://127.0.0.1:{port}");
        $begin = hrtime(true);
        fwrite($server, "*1\r\n$4\r\nPING\r\n");
        fgets($server);
        echo hrtime(true) - $begin;"#
    );
    for build in builds() {
        let (fpm, books) = watched(&build, &script);
        let drag_ns = fetch_all(&fpm);
        let (budget, _) = finish(books);
        assert_most(&budget, Part::Wait, drag_ns, &build.label());
        let [time] = budget.workers[0].endpoints[..] else { panic!("{:?}", budget.workers) };
        assert_eq!(budget.endpoints[time.endpoint as usize].address, format!("127.0.0.1:{port}"));
        let share = (time.wait_ns + time.wake_ns) as f64 / drag_ns as f64;
        assert!((SHARE..1.5).contains(&share), "{time:?} of {drag_ns}");
        // Nobody has seen these.
        assert_eq!((time.calls, time.connects), (0, 0));
    }
}

#[test]
fn a_client_that_sends_slowly_is_told() {
    let _alone = alone();
    let script = "<?php file_get_contents('php://input');";
    for build in builds() {
        let (fpm, books) = watched(&build, script);
        let mut drag_ns = 0;
        for _ in 0..REQUESTS {
            let mut connection = fpm.connect();
            connection.send("index.php", "/", "POST", false);
            // PHP reads the body itself, so it has begun the request by then.
            let begin = Instant::now();
            thread::sleep(DRAG);
            connection.finish(b"0123456789");
            drag_ns += u64::try_from(begin.elapsed().as_nanos()).unwrap();
            connection.receive();
        }
        let (budget, _) = finish(books);
        assert_most(&budget, Part::Client, drag_ns, &build.label());
    }
}

#[test]
fn a_connection_that_is_kept_does_not_hide_that_a_worker_is_idle() {
    let _alone = alone();
    for build in builds() {
        let (fpm, books) = watched(&build, "<?php usleep(15000);");
        let mut connection = fpm.connect();
        for _ in 0..REQUESTS {
            connection.send("index.php", "/", "GET", true);
            connection.finish(b"");
            connection.receive_and_keep();
            thread::sleep(DRAG);
        }
        let (budget, requests) = finish(books);
        assert_most(&budget, Part::Sleep, REQUESTS * DRAG.as_nanos() as u64, &build.label());
        assert_nearly_all(&requests);
    }
}

#[test]
fn requests_without_a_pause_between_them_are_told_apart() {
    let _alone = alone();
    for build in builds() {
        let (fpm, books) = watched(&build, "<?php usleep(15000);");
        // So many at a time that the next one waits already.
        thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| (0..REQUESTS / 3).for_each(|_| drop(fpm.fetch("index.php", "/"))));
            }
        });
        let (budget, requests) = finish(books);
        assert_most(&budget, Part::Sleep, REQUESTS * DRAG.as_nanos() as u64, &build.label());
        assert_nearly_all(&requests);
    }
}

#[test]
fn a_cpu_that_others_have_is_told() {
    let _alone = alone();
    let script = format!(
        "{CLOCKS} [$begin, $used] = [hrtime(true), cpu()]; while (cpu() - $used < 20e6); echo (int) (hrtime(true) - $begin - (cpu() - $used));"
    );
    for build in builds() {
        let (fpm, books) = watched(&build, &script);
        let worker = fpm.workers()[0];
        let set = Command::new("taskset").args(["-pc", "0", &worker.to_string()]).output().unwrap();
        assert!(set.status.success());
        let mut hogs: Vec<_> = (0..2)
            .map(|_| {
                Command::new("taskset").args(["-c", "0", "sh", "-c", "while :; do :; done"]).spawn().unwrap()
            })
            .collect();
        let drag_ns =
            (0..REQUESTS / 3).map(|_| fpm.fetch("index.php", "/").trim().parse::<u64>().unwrap()).sum();
        for hog in &mut hogs {
            hog.kill().unwrap();
            hog.wait().unwrap();
        }
        let (budget, _) = finish(books);
        assert_most(&budget, Part::Wake, drag_ns, &build.label());
    }
}

/// Serves one request after the other, and answers with how long its drag took.
const SERVER: &str = r#"
import socket, sys, threading, time

DRAG = 0.015
clock = time.perf_counter_ns
wanted, ends, lock = threading.Semaphore(0), threading.Event(), threading.Lock()
held = threading.Semaphore(0)

def hold():
    while True:
        wanted.acquire()
        with lock:
            held.release()
            time.sleep(DRAG)

def wait_for_lock():
    wanted.release()
    held.acquire()
    begin = clock()
    with lock:
        return clock() - begin

def wait_for_gil():
    def compute():
        while not ends.is_set():
            sum(range(300_000))
    ends.clear()
    thread = threading.Thread(target=compute)
    thread.start()
    took, end = 0, clock() + int(8 * DRAG * 1e9)
    while clock() < end:
        begin = clock()
        time.sleep(0)
        took += clock() - begin
    ends.set()
    thread.join()
    return took

def sleep():
    begin = clock()
    time.sleep(DRAG)
    return clock() - begin

threading.Thread(target=hold, daemon=True).start()
drag = {"lock": wait_for_lock, "gil": wait_for_gil, "sleep": sleep}[sys.argv[1]]
server = socket.create_server(("127.0.0.1", 0))
print(server.getsockname()[1])
print("ready", flush=True)
while True:
    connection, _ = server.accept()
    with connection:
        connection.recv(64)
        connection.sendall(str(drag()).encode())
"#;

/// Asks it once.
fn ask(port: u16) -> u64 {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(b"x").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text.parse().unwrap()
}

/// With the oldest and the newest Python: its drag is in `part`.
#[track_caller]
fn assert_drag_of_python(drag: &str, part: Part) {
    let _alone = alone();
    let mut pythons = pythons();
    pythons.retain(|python| python.version >= (3, 8));
    if pythons.is_empty() {
        return skip("budgets of Python", "there is none");
    }
    let ends = [pythons.first(), pythons.last().filter(|_| pythons.len() > 1)];
    for python in ends.into_iter().flatten() {
        let mut child: Child = Launch::text(python, "server.py", SERVER).arg(drag).start().unwrap();
        let port: u16 = child.wait_ready().unwrap()[0].parse().unwrap();
        ask(port);
        let books = books(&[child.pid()], Language::Python, "server");
        let drag_ns = (0..REQUESTS).map(|_| ask(port)).sum();
        let (budget, _) = finish(books);
        let [worker] = &budget.workers[..] else { panic!("{:?}", budget.workers) };
        assert_eq!(worker.tid, child.pid());
        assert_most(&budget, part, drag_ns, &format!("{} {drag}", python.label));
    }
}

#[test]
fn python_that_lets_time_pass_sleeps() {
    assert_drag_of_python("sleep", Part::Sleep);
}

#[test]
fn python_waits_for_a_lock() {
    assert_drag_of_python("lock", Part::Lock);
}

#[test]
fn python_waits_for_the_global_lock() {
    assert_drag_of_python("gil", Part::Gil);
}
