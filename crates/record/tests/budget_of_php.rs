//! Budgets of php-fpm: what a request spends its time on, against what it measures itself.
//!
//! Each script makes one drag and answers with how long it took by PHP's own clock. At least nine tenths of that have to be in the part
//! that names it.

#![allow(clippy::unwrap_used, reason = "what fails here fails the test")]

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd as _;
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use slip_model::{Budget, Language, Part, ServedRequest, Worker};
use slip_probe::ProbeError;
use slip_record::{Books, monotonic_ns};
use slip_testkit::fpm::{Build, Fpm, Pool};
use slip_testkit::skip;

/// What a drag takes, so that it stands out of all else.
const DRAG: Duration = Duration::from_millis(15);

/// Longest wait for a request to end. The machine may be busy with other tests.
const PATIENCE: Duration = Duration::from_secs(60);

/// Requests of each kind.
const REQUESTS: u64 = 8;

/// The share of a drag that has to be in its part.
const SHARE: f64 = 0.9;

/// Programs in the kernel see all processes; one test after the other keeps the machine's CPUs free for the clock to be right.
static ALONE: Mutex<()> = Mutex::new(());

/// Of each version one: where a script comes from changes nothing here.
fn builds() -> Vec<Build> {
    slip_testkit::fpm::builds().into_iter().filter(|build| build.opcache).collect()
}

fn alone() -> MutexGuard<'static, ()> {
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What a script needs to know how much of a time it had no CPU.
const CLOCKS: &str = r#"<?php
    function cpu() {
        $used = getrusage();
        return 1e9 * ($used["ru_utime.tv_sec"] + $used["ru_stime.tv_sec"]) + 1e3 * ($used["ru_utime.tv_usec"] + $used["ru_stime.tv_usec"]);
    }
    function without_cpu($work) {
        [$begin, $used] = [hrtime(true), cpu()];
        $work();
        return (int) (hrtime(true) - $begin - (cpu() - $used));
    }
"#;

fn books() -> Option<Books> {
    match Books::start(true) {
        Ok(books) => Some(books),
        Err(error @ (ProbeError::Denied(_) | ProbeError::NoTypes | ProbeError::Namespace)) => {
            skip("budgets by the kernel", &error.to_string());
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// A pool whose books are kept.
struct Watched {
    fpm: Fpm,
    books: Books,
}

impl Watched {
    fn start(build: &Build, workers: u32, script: &str) -> Option<Self> {
        let fpm = Fpm::start_pool(build, Pool { workers, ..Pool::default() }, &[("index.php", script)]);
        // What is done once is not what is measured.
        for _ in 0..2 * workers {
            fpm.fetch("index.php", "/");
        }
        let mut books = books()?;
        for pid in fpm.workers() {
            books.add(pid, Language::Php, "pool").unwrap();
        }
        Some(Self { fpm, books })
    }

    /// Nanoseconds that all requests say that they took.
    fn fetch_all(&self) -> u64 {
        (0..REQUESTS).map(|_| fetch(&self.fpm)).sum()
    }

    /// The books, once so many requests have ended; they add up.
    fn finish(mut self, count: u64) -> (Budget, Vec<ServedRequest>) {
        let (end, mut requests) = (Instant::now() + PATIENCE, Vec::new());
        let budget = loop {
            let (budget, more) = self.books.take(0, 0).unwrap();
            requests.extend(more);
            if requests.len() as u64 >= count {
                break budget;
            }
            assert!(Instant::now() < end, "{} of {count} requests: {budget:?}", requests.len());
        };
        assert_eq!(budget.lost_requests, 0);
        for worker in &budget.workers {
            assert_eq!(total_ns(worker), worker.watched_ns, "{worker:?}");
        }
        for request in &requests {
            let parts_ns = request.serving.total_ns() + request.after.total_ns();
            assert_eq!(parts_ns, request.end_ns - request.begin_ns, "{request:?}");
        }
        (budget, requests)
    }
}

/// Nanoseconds that one request says that it took.
fn fetch(fpm: &Fpm) -> u64 {
    fpm.fetch("index.php", "/").trim().parse().unwrap()
}

fn total_ns(worker: &Worker) -> u64 {
    worker.idle_ns + worker.between.total_ns() + worker.serving.total_ns() + worker.after.total_ns()
}

fn serving_ns(budget: &Budget, part: Part) -> u64 {
    budget.workers.iter().map(|worker| worker.serving.of(part)).sum()
}

/// Most of the drag is in this part, and the part has little else.
#[track_caller]
fn assert_most(found_ns: u64, drag_ns: u64, what: &str) {
    let share = found_ns as f64 / drag_ns as f64;
    assert!((SHARE..1.5).contains(&share), "{what}: {found_ns} ns of {drag_ns}, {share:.3}");
}

/// The same of a part in which the worker is blocked. After it, it may have to wait for a CPU, which its clock does not tell apart.
#[track_caller]
fn assert_most_blocked(budget: &Budget, part: Part, drag_ns: u64, what: &str) {
    let found_ns = serving_ns(budget, part);
    let ready_ns = serving_ns(budget, Part::Wake) + serving_ns(budget, Part::Preempted);
    assert_most(
        found_ns + ready_ns,
        drag_ns,
        &format!("{what} {part:?} {found_ns}, without a CPU {ready_ns}"),
    );
    let others = [
        Part::Connect,
        Part::Wait,
        Part::Client,
        Part::Lock,
        Part::Gil,
        Part::Disk,
        Part::Sleep,
        Part::Other,
    ];
    let wrong_ns: u64 =
        others.iter().filter(|other| **other != part).map(|other| serving_ns(budget, *other)).sum();
    assert!(
        found_ns > 0 && 10 * wrong_ns < drag_ns,
        "{what}: {part:?} {found_ns} ns of {drag_ns}: {budget:?}"
    );
}

/// With each build of php-fpm: the script is asked some times, and its drag is in `part`.
#[track_caller]
fn assert_drag(script: &str, part: Part) {
    let _alone = alone();
    for build in builds() {
        let Some(watched) = Watched::start(&build, 1, script) else { return };
        let drag_ns = watched.fetch_all();
        let (budget, requests) = watched.finish(REQUESTS);
        assert_eq!(requests.len() as u64, REQUESTS, "{}", build.label());
        if part == Part::Code {
            assert_most(serving_ns(&budget, part), drag_ns, &build.label());
        } else {
            assert_most_blocked(&budget, part, drag_ns, &build.label());
        }
    }
}

/// A server that answers each line after a time.
fn serve_slowly(delay: Duration) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let answer = move |mut stream: TcpStream| {
        let mut bytes = [0; 64];
        while stream.read(&mut bytes).is_ok_and(|len| len > 0) {
            thread::sleep(delay);
            if stream.write_all(b"+OK\r\n").is_err() {
                return;
            }
        }
    };
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            thread::spawn(move || answer(stream));
        }
    });
    port
}

#[test]
fn a_slow_server_is_waited_for() {
    let _alone = alone();
    let port = serve_slowly(DRAG);
    let script = format!(
        r#"<?php
        $server = stream_socket_client("tcp://127.0.0.1:{port}");
        $begin = hrtime(true);
        fwrite($server, "*1\r\n$4\r\nPING\r\n");
        fgets($server);
        echo hrtime(true) - $begin;"#
    );
    for build in builds() {
        let Some(watched) = Watched::start(&build, 1, &script) else { return };
        let drag_ns = watched.fetch_all();
        let (budget, _) = watched.finish(REQUESTS);
        assert_most_blocked(&budget, Part::Wait, drag_ns, &build.label());
        let [time] = budget.workers[0].endpoints[..] else { panic!("{:?}", budget.workers) };
        let endpoint = &budget.endpoints[time.endpoint as usize];
        assert_eq!(
            (endpoint.address.as_str(), endpoint.protocol.as_str()),
            (&*format!("127.0.0.1:{port}"), "redis")
        );
        assert_eq!((time.calls, time.connects), (REQUESTS, REQUESTS));
        assert_most(time.wait_ns + time.wake_ns, drag_ns, "of the endpoint");
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
        let Some(watched) = Watched::start(&build, 1, &script) else { return };
        let (fpm, waits) = (&watched.fpm, TcpStream::connect(address).unwrap());
        let drag_ns = thread::scope(|scope| {
            let asks = scope.spawn(|| fpm.fetch("index.php", "/slow"));
            // The kernel asks again after a second.
            thread::sleep(10 * DRAG);
            drop(listener.accept().unwrap());
            asks.join().unwrap().trim().parse::<u64>().unwrap()
        });
        drop(waits);
        assert!(drag_ns > 900_000_000, "{drag_ns}");
        let (budget, _) = watched.finish(1);
        assert_most_blocked(&budget, Part::Connect, drag_ns, &build.label());
        let [time] = budget.workers[0].endpoints[..] else { panic!("{:?}", budget.workers) };
        assert_eq!(budget.endpoints[time.endpoint as usize].address, address.to_string());
        assert_most(time.connect_ns, drag_ns, "of the endpoint");
    }
}

#[test]
fn time_that_passes_is_sleep() {
    assert_drag("<?php $begin = hrtime(true); usleep(15000); echo hrtime(true) - $begin;", Part::Sleep);
}

#[test]
fn a_response_that_was_read_late_is_sleep() {
    let _alone = alone();
    let port = serve_slowly(Duration::ZERO);
    let script = format!(
        r#"<?php
        $server = stream_socket_client("tcp://127.0.0.1:{port}");
        fwrite($server, "*1\r\n$4\r\nPING\r\n");
        $begin = hrtime(true);
        usleep(15000);
        echo hrtime(true) - $begin;
        fgets($server);"#
    );
    for build in builds() {
        let Some(watched) = Watched::start(&build, 1, &script) else { return };
        let drag_ns = watched.fetch_all();
        let (budget, _) = watched.finish(REQUESTS);
        assert_most_blocked(&budget, Part::Sleep, drag_ns, &build.label());
    }
}

#[test]
fn code_that_computes_is_code() {
    let script = format!("{CLOCKS} $used = cpu(); while (cpu() - $used < 15e6); echo (int) (cpu() - $used);");
    assert_drag(&script, Part::Code);
}

#[test]
fn a_file_that_is_written_through_is_disk() {
    let script = r#"
        $file = fopen(__DIR__ . "/data", "w");
        echo without_cpu(function () use ($file) {
            for ($i = 0; $i < 50; $i++) {
                fwrite($file, str_repeat("x", 65536));
                fsync($file);
            }
        });"#;
    assert_drag(&format!("{CLOCKS}{script}"), Part::Disk);
}

#[test]
fn a_lock_that_another_process_holds_is_told() {
    let _alone = alone();
    let script = r#"<?php
        $file = fopen(__DIR__ . "/lock", "c");
        $begin = hrtime(true);
        flock($file, LOCK_EX);
        echo hrtime(true) - $begin;"#;
    for build in builds() {
        let Some(watched) = Watched::start(&build, 1, script) else { return };
        let file = File::create(watched.fpm.outside.join("lock")).unwrap();
        let (fpm, mut drag_ns) = (&watched.fpm, 0);
        for _ in 0..REQUESTS {
            file.lock().unwrap();
            thread::scope(|scope| {
                let asks = scope.spawn(|| fetch(fpm));
                thread::sleep(DRAG);
                file.unlock().unwrap();
                drag_ns += asks.join().unwrap();
            });
        }
        let (budget, _) = watched.finish(REQUESTS);
        assert_most_blocked(&budget, Part::Lock, drag_ns, &build.label());
    }
}

#[test]
fn work_after_the_response_is_told_apart() {
    let _alone = alone();
    let script = "<?php echo 15000000; fastcgi_finish_request(); usleep(15000);";
    for build in builds() {
        let Some(watched) = Watched::start(&build, 1, script) else { return };
        let drag_ns = watched.fetch_all();
        let (budget, requests) = watched.finish(REQUESTS);
        let after_ns: u64 = budget.workers.iter().map(|worker| worker.after.of(Part::Sleep)).sum();
        assert_most(after_ns, drag_ns, &format!("{} {budget:?} {requests:?}", build.label()));
        assert_eq!(serving_ns(&budget, Part::Sleep), 0);
        for request in requests {
            assert!(request.end_ns - request.response_ns >= DRAG.as_nanos() as u64, "{request:?}");
        }
    }
}

#[test]
fn a_client_that_sends_slowly_is_told() {
    let _alone = alone();
    let script = "<?php $begin = hrtime(true); file_get_contents('php://input'); echo hrtime(true) - $begin;";
    for build in builds() {
        let Some(watched) = Watched::start(&build, 1, script) else { return };
        for _ in 0..REQUESTS {
            let mut connection = watched.fpm.connect();
            connection.send("index.php", "/", "POST", false);
            thread::sleep(DRAG);
            connection.finish(b"0123456789");
            connection.receive();
        }
        let (budget, _) = watched.finish(REQUESTS);
        let drag_ns = REQUESTS * DRAG.as_nanos() as u64;
        assert_most_blocked(&budget, Part::Client, drag_ns, &build.label());
    }
}

#[test]
fn requests_that_nobody_has_accepted_yet_are_queued() {
    let _alone = alone();
    let script = "<?php usleep(15000); echo 15000000;";
    for build in builds() {
        let Some(watched) = Watched::start(&build, 1, script) else { return };
        let fpm = &watched.fpm;
        let send = || {
            let before_ns = monotonic_ns();
            let mut connection = fpm.connect();
            connection.send("index.php", "/", "GET", false);
            let after_ns = monotonic_ns();
            connection.finish(b"");
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
        for request in requests {
            // It came when a client connected or sent it, and the worker began when it was free.
            let has_come =
                |(before_ns, after_ns): &(u64, u64)| (*before_ns..=*after_ns).contains(&request.queued_ns);
            let at = sent.iter().position(has_come);
            sent.remove(at.unwrap_or_else(|| panic!("{request:?} of {sent:?}")));
            assert!(
                request.begin_ns >= free_ns && request.end_ns - request.begin_ns >= DRAG.as_nanos() as u64
            );
            free_ns = request.end_ns;
        }
    }
}

#[test]
fn a_cpu_that_others_have_is_told() {
    let _alone = alone();
    let script =
        format!("{CLOCKS} echo without_cpu(function () {{ $used = cpu(); while (cpu() - $used < 20e6); }});");
    for build in builds() {
        let Some(watched) = Watched::start(&build, 1, &script) else { return };
        let worker = watched.fpm.workers()[0];
        let set = Command::new("taskset").args(["-pc", "0", &worker.to_string()]).output().unwrap();
        assert!(set.status.success());
        let mut hogs: Vec<_> = (0..2)
            .map(|_| {
                Command::new("taskset").args(["-c", "0", "sh", "-c", "while :; do :; done"]).spawn().unwrap()
            })
            .collect();
        let drag_ns = watched.fetch_all();
        for hog in &mut hogs {
            hog.kill().unwrap();
            hog.wait().unwrap();
        }
        let (budget, _) = watched.finish(REQUESTS);
        let found_ns = serving_ns(&budget, Part::Wake) + serving_ns(&budget, Part::Preempted);
        assert_most(found_ns, drag_ns, &build.label());
        assert!(budget.takers.iter().any(|taker| taker.name == "sh"), "{:?}", budget.takers);
    }
}
