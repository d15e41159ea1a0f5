//! php-fpm workers: when they are idle, which request they are in, and what is known of it.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "helpers of tests")]

mod common;

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use common::{PATIENCE, Watch};
use slip_model::{Outcome, RequestFacts};
use slip_remote::{LiveProcess, Memory, Range, ReadError, RemoteAddr};
use slip_testkit::fpm::{Build, Fpm, builds};
use slip_zend::Phase;

/// Longer than looks may take if nothing but the time says that the request is still the same.
const SLOW: Duration = Duration::from_micros(400);

/// One request through all its parts: code, the time after the answer has been sent, shutdown functions, destructors,
/// giving back memory.
const PHASES: &str = "<?php
class Last {
    function __destruct() { usleep(100000); }
}
function at_shutdown() { usleep(100000); }
function works() {
    $usage = memory_get_usage(); usleep(100000); $GLOBALS['usage'] = $usage;
}
function after_the_answer() { usleep(100000); }
register_shutdown_function('at_shutdown');
$keep = new Last();
$large = str_repeat('x', 80 << 20);
works();
echo json_encode(['usage' => $usage, 'pid' => getmypid()]);
fastcgi_finish_request();
after_the_answer();
";

/// A target whose reader loses the CPU for a moment when it begins to look.
struct Slowly<'a> {
    target: &'a LiveProcess,
    lost: Cell<Duration>,
}

impl<'a> Slowly<'a> {
    /// For a single look, which takes so much longer.
    fn read(target: &'a LiveProcess, lost: Duration) -> Self {
        Self { target, lost: Cell::new(lost) }
    }
}

impl Memory for Slowly<'_> {
    fn read(&self, addr: RemoteAddr, buf: &mut [u8]) -> Result<(), ReadError> {
        std::thread::sleep(self.lost.take());
        self.target.read(addr, buf)
    }

    fn read_ranges(&self, ranges: &[Range], buf: &mut [u8]) -> Result<usize, ReadError> {
        std::thread::sleep(self.lost.take());
        self.target.read_ranges(ranges, buf)
    }

    fn io_calls(&self) -> Option<u64> {
        self.target.io_calls()
    }
}

/// What was seen, without repetitions: the phase and, in code, the outermost function.
fn watch_until_idle(watch: &mut Watch, target: &LiveProcess) -> Vec<(String, Option<RequestFacts>)> {
    let mut seen: Vec<(String, Option<RequestFacts>)> = Vec::new();
    let end = Instant::now() + PATIENCE;
    let mut begun = false;
    loop {
        watch.sample(target);
        let reading = watch.reading;
        if reading.stack.outcome == Outcome::Torn {
            continue;
        }
        let what = match reading.phase {
            Phase::Code => {
                let frames = watch.frames();
                // The outermost function: {main} is below it while the script runs.
                let named = frames.iter().rev().find(|frame| frame.name != "{main}");
                named.map_or("{main}".to_owned(), |frame| frame.name.clone())
            }
            other => format!("{other:?}"),
        };
        assert_eq!(reading.request.is_none(), reading.phase == Phase::Idle);
        if seen.last().is_none_or(|(last, _)| *last != what) {
            seen.push((what, reading.request));
        }
        begun |= reading.phase != Phase::Idle;
        if begun && reading.phase == Phase::Idle {
            return seen;
        }
        assert!(Instant::now() < end, "never idle: {seen:?}");
        std::thread::sleep(Duration::from_micros(200));
    }
}

#[test]
fn phases_and_facts_of_a_request() {
    for build in builds() {
        let fpm = Fpm::start(&build, &[("phases.php", PHASES)]);
        let target = LiveProcess::open(fpm.workers()[0]).unwrap();
        let mut watch = Watch::attach(&target);
        assert_eq!(watch.engine.version().sapi, "fpm-fcgi");
        assert_eq!(watch.sample(&target).phase, Phase::Idle, "{}: before its first request", build.label());
        let mut keys = Vec::new();
        for round in 0..3 {
            let what = format!("{}, round {round}", build.label());
            assert_eq!(watch.sample(&target).phase, Phase::Idle, "{what}");
            watch.options.keep_query = round == 2;
            let before = now_unix_ns();
            let (seen, output) = std::thread::scope(|scope| {
                let client = scope.spawn(|| fpm.fetch("phases.php", "/shop/basket?token=secret"));
                (watch_until_idle(&mut watch, &target), client.join().unwrap())
            });

            let names: Vec<&str> = seen.iter().map(|(name, _)| name.as_str()).collect();
            let mut order = names.iter();
            for expected in ["works", "after_the_answer", "at_shutdown", "Last::__destruct", "Idle"] {
                assert!(order.any(|name| *name == expected), "{what}: no {expected} in its place: {names:?}");
            }
            let facts: Vec<RequestFacts> = seen.iter().filter_map(|(_, facts)| *facts).collect();
            let key = facts[0].key;
            assert!(facts.iter().all(|facts| facts.key == key), "{what}: {facts:?}");
            assert!(!keys.contains(&key), "{what}");
            keys.push(key);
            let (_, in_works) = seen.iter().find(|(name, _)| name == "works").unwrap();
            let facts = in_works.unwrap();
            let uri = if round == 2 { "/shop/basket?token=secret" } else { "/shop/basket" };
            assert_eq!(watch.interner.text(facts.uri), uri, "{what}");
            assert_eq!(watch.interner.text(facts.method), "GET", "{what}");
            let script = fpm.inside.join("phases.php").display().to_string();
            assert_eq!(watch.interner.text(facts.script), script, "{what}");
            // At its end a request is still the same one.
            let (_, late) = seen.iter().find(|(name, _)| name == "Last::__destruct").unwrap();
            let late = late.unwrap();
            assert_eq!(
                (late.uri, late.method, late.script),
                (facts.uri, facts.method, facts.script),
                "{what}"
            );
            let usage: serde_json::Value = serde_json::from_str(&output).unwrap();
            assert_eq!(usage["usage"], facts.memory_bytes, "{what}: memory_get_usage()");
            assert_eq!(usage["pid"], target.pid(), "{what}");
            // Without opcache the engine notes the time only if the script asks for it.
            if build.label().contains("opcache") {
                let now = now_unix_ns();
                assert!((before - 1_000_000..now).contains(&facts.started_unix_ns), "{what}: {facts:?}");
            } else {
                assert_eq!(facts.started_unix_ns, 0, "{what}");
            }
        }
    }
}

fn now_unix_ns() -> u64 {
    u64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos()).unwrap()
}

#[test]
fn waiting_for_a_request_is_idle_and_waiting_in_one_is_not() {
    for build in builds() {
        let scripts = [
            ("wait.php", "<?php\nusleep(50000);\necho 'done';\n"),
            ("post.php", "<?php\necho strlen($_POST['a']);\n"),
        ];
        let fpm = Fpm::start(&build, &scripts);
        let target = LiveProcess::open(fpm.workers()[0]).unwrap();
        let mut watch = Watch::attach(&target);
        let idle = |watch: &mut Watch, what: &str| {
            // The answer comes before the end of the request.
            let end = Instant::now() + PATIENCE;
            while watch.sample(&target).phase != Phase::Idle {
                assert!(Instant::now() < end, "{}: {what}: never idle: {:?}", build.label(), watch.reading);
            }
            for _ in 0..50 {
                assert_eq!(watch.sample(&target).phase, Phase::Idle, "{}: {what}", build.label());
                std::thread::sleep(Duration::from_micros(500));
            }
        };
        idle(&mut watch, "before the first request");

        // A connection is there, but no request yet; then one that stays open after its request.
        let mut kept = fpm.connect();
        std::thread::sleep(Duration::from_millis(20));
        idle(&mut watch, "connected, nothing sent");
        for _ in 0..2 {
            kept.send("wait.php", "/", "GET", true);
            kept.finish(b"");
            assert_eq!(kept.receive_and_keep(), "done");
            std::thread::sleep(Duration::from_millis(20));
            idle(&mut watch, "connection kept open after a request");
        }
        drop(kept);

        // The body is read before any code runs: in a request, but no code.
        let mut posting = fpm.connect();
        posting.send("post.php", "/post", "POST", false);
        posting.body(b"a=12");
        let end = Instant::now() + PATIENCE;
        while watch.sample(&target).phase == Phase::Idle {
            assert!(Instant::now() < end);
        }
        std::thread::sleep(Duration::from_millis(20));
        for _ in 0..50 {
            watch.sample(&target);
            if watch.reading.stack.outcome == Outcome::Torn {
                continue;
            }
            assert_eq!(watch.reading.phase, Phase::Engine, "{}: waits for the body", build.label());
            let facts = watch.reading.request.unwrap();
            assert_eq!(watch.interner.text(facts.method), "POST");
            assert_eq!(watch.interner.text(facts.uri), "/post");
        }
        posting.finish(b"345678");
        assert_eq!(posting.receive(), "8");

        assert_eq!(fpm.fetch("missing.php", "/missing"), "File not found.\n");
        std::thread::sleep(Duration::from_millis(20));
        idle(&mut watch, "after a request without a script");
    }
}

/// Two scripts of the same shape: without opcache, the functions of one lie where those of the other lay, and only texts
/// and line numbers differ.
fn twin(name: &str, first_lines: &str, twins: Twins) -> String {
    let uses_server = twins == Twins::Timed;
    let sleep_us = if twins == Twins::Slow { 300 } else { 1 };
    let server =
        if uses_server { "$_SERVER['REQUEST_TIME_FLOAT'];" } else { "$GLOBALS['REQUEST_TIME_NONE'] ?? 0.0;" };
    format!(
        "<?php
{first_lines}
class Class_{name} {{
    public static function method_{name}(callable $next) {{ for ($i = 0; $i < 4; $i++) $next($i); }}
}}
function outer_{name}() {{
    Class_{name}::method_{name}(function ($i) {{
        inner_{name}($i);
    }});
}}
function inner_{name}($i) {{
    usleep({sleep_us});
    return str_repeat('x', 100 * $i);
}}
$time = {server}
for ($round = 0; $round < 2; $round++) {{
    outer_{name}();
}}
include __DIR__ . '/part_{name}.php';
"
    )
}

fn part(name: &str, first_lines: &str) -> String {
    format!(
        "<?php\n{first_lines}\nfor ($i = 0; $i < 4; $i++) {{\n    inner_{name}($i);\n}}\n(fn () => outer_{name}())();\n"
    )
}

/// What makes the functions of one script take the place of another's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Twins {
    /// The next request; the script does not make the engine note the time.
    Untimed,
    /// The next request; the script makes the engine note the time.
    Timed,
    /// opcache forgets its scripts in between.
    Reset,
    /// As the first, but who looks is slow, and the script waits for longer in one place.
    Slow,
}

fn twins_do_not_mix(build: &Build, twins: Twins) {
    // Lines differ by three.
    let scripts = [
        ("twin_a.php".to_owned(), twin("a", "//\n//\n//", twins)),
        ("twin_b.php".to_owned(), twin("b", "", twins)),
        ("part_a.php".to_owned(), part("a", "//\n//\n//")),
        ("part_b.php".to_owned(), part("b", "")),
        ("reset.php".to_owned(), "<?php opcache_reset();".to_owned()),
    ];
    let scripts: Vec<(&str, &str)> =
        scripts.iter().map(|(name, text)| (name.as_str(), text.as_str())).collect();
    let fpm = Fpm::start(build, &scripts);
    let target = LiveProcess::open(fpm.workers()[0]).unwrap();
    let mut watch = Watch::attach(&target);
    let what = format!("{}, {twins:?}", build.label());
    let lines = |text: &str, wanted: &str| -> Vec<u32> {
        (1..).zip(text.lines()).filter(|(_, line)| line.contains(wanted)).map(|(at, _)| at).collect()
    };
    let stop = AtomicBool::new(false);
    let (mut code, mut torn, mut repaired, mut last_key, mut requests) = (0, 0, 0, 0, 0);
    let mut seen = [0; 2];
    let deadline = Instant::now() + Duration::from_secs(4);
    std::thread::scope(|scope| {
        let client = scope.spawn(|| {
            let mut sent = 0;
            while !stop.load(Ordering::Relaxed) {
                for (script, uri) in [("twin_a.php", "/a"), ("twin_b.php", "/b")] {
                    assert_eq!(fpm.fetch(script, uri), "");
                    sent += 1;
                    if twins == Twins::Reset {
                        // The next request makes opcache start anew, and is the first to be compiled then.
                        assert_eq!(fpm.fetch("reset.php", "/reset"), "");
                    }
                }
            }
            sent
        });
        let failure = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            while Instant::now() < deadline {
                match twins {
                    Twins::Slow => watch.sample(&Slowly::read(&target, SLOW)),
                    _ => watch.sample(&target),
                };
                let reading = watch.reading;
                match reading.stack.outcome {
                    Outcome::Torn => torn += 1,
                    Outcome::Repaired => repaired += 1,
                    Outcome::Clean => {}
                }
                if reading.phase != Phase::Code || reading.stack.outcome == Outcome::Torn {
                    continue;
                }
                code += 1;
                let frames = watch.frames();
                let facts = reading.request.unwrap();
                if facts.key != last_key {
                    requests += 1;
                    last_key = facts.key;
                }
                let files: Vec<&str> = frames
                    .iter()
                    .filter_map(|frame| frame.file.rsplit('/').next())
                    .filter(|file| !file.is_empty())
                    .collect();
                assert!(!files.is_empty(), "{frames:?} {reading:?}");
                if files[0] == "reset.php" {
                    continue;
                }
                let name = if files[0].contains("_a") { "a" } else { "b" };
                seen[usize::from(name == "b")] += 1;
                let other = if name == "a" { "_b" } else { "_a" };
                for frame in &frames {
                    assert!(
                        !frame.name.ends_with(other) && !frame.file.contains(&format!("{other}.php")),
                        "{frames:?}"
                    );
                    assert_ne!(frame.name, "[unreadable]", "{frames:?}");
                    // Each function has few lines in which it can be. The innermost may be stale.
                    let script = scripts.iter().find(|(file, _)| frame.file.ends_with(file));
                    if let Some((_, text)) = script {
                        let expected = match frame.name.split(['_', ':', '{']).next().unwrap() {
                            "outer" => lines(text, "::method_"),
                            "inner" => [lines(text, "usleep"), lines(text, "str_repeat")].concat(),
                            "Class" if frame.name.ends_with(name) => lines(text, "public static"),
                            _ => continue,
                        };
                        let multi_line = frame.name.starts_with("outer");
                        let fits = expected.iter().any(|line| {
                            frame.line == *line || (multi_line && (*line..=line + 3).contains(&frame.line))
                        });
                        assert!(
                            fits || frame.line == 0,
                            "{what}: {frame:?}: expected {expected:?}; {frames:?}"
                        );
                    }
                }
                assert_eq!(
                    watch.interner.text(facts.uri),
                    format!("/{name}"),
                    "{what}: {frames:?} {facts:?}"
                );
                assert_eq!(
                    watch.interner.text(facts.script),
                    fpm.inside.join(format!("twin_{name}.php")).display().to_string(),
                    "{what}: {frames:?} {facts:?}"
                );
            }
        }));
        stop.store(true, Ordering::Relaxed);
        let sent: u32 = client.join().unwrap();
        println!(
            "{what}: {sent} requests, {code} stacks of code, {torn} torn, {repaired} repaired, {requests} requests told apart"
        );
        if let Err(failure) = failure {
            std::panic::resume_unwind(failure);
        }
        let [least_sent, least_code, least_seen] =
            if twins == Twins::Slow { [100, 500, 100] } else { [500, 500, 100] };
        assert!(sent > least_sent && code > least_code, "{what}: {sent} requests, {code} stacks");
        assert!(seen.iter().all(|seen| *seen > least_seen), "{what}: {seen:?}");
    });
}

#[test]
fn functions_at_the_same_addresses_are_not_mixed_up() {
    for build in builds() {
        twins_do_not_mix(&build, Twins::Untimed);
    }
}

#[test]
fn functions_at_the_same_addresses_are_not_mixed_up_when_the_time_is_noted() {
    for build in builds() {
        twins_do_not_mix(&build, Twins::Timed);
    }
}

#[test]
fn functions_at_the_same_addresses_are_not_mixed_up_by_who_is_slow() {
    for build in builds() {
        twins_do_not_mix(&build, Twins::Slow);
    }
}

#[test]
fn a_request_that_reads_nothing_is_known_to_who_is_slow() {
    let held = "<?php
function held() { for ($end = time() + 20; !file_exists(__DIR__ . '/go') && time() < $end;) usleep(50000); }
file_put_contents(__DIR__ . '/in', '');
held();
";
    for build in builds() {
        let fpm = Fpm::start(&build, &[("held.php", held)]);
        let target = LiveProcess::open(fpm.workers()[0]).unwrap();
        let mut watch = Watch::attach(&target);
        std::thread::scope(|scope| {
            scope.spawn(|| fpm.fetch("held.php", "/held"));
            let end = Instant::now() + PATIENCE;
            while !fpm.outside.join("in").exists() {
                assert!(Instant::now() < end, "{}: no request", build.label());
                std::thread::yield_now();
            }
            // The first look finds out how slow it is.
            let seen: Vec<_> = (0..20)
                .map(|_| {
                    watch.sample(&Slowly::read(&target, SLOW));
                    (watch.reading.stack.outcome, watch.reading.request.map(|request| request.uri))
                })
                .collect();
            std::fs::write(fpm.outside.join("go"), "").unwrap();
            let known = seen[1..].iter().filter(|(outcome, uri)| {
                *outcome != Outcome::Torn && uri.is_some_and(|uri| watch.interner.text(uri) == "/held")
            });
            let known = known.count();
            assert!(known >= 10, "{}: {seen:?}", build.label());
        });
    }
}

#[test]
fn functions_are_not_mixed_up_with_those_that_opcache_has_forgotten() {
    for build in builds().iter().filter(|build| build.opcache) {
        twins_do_not_mix(build, Twins::Reset);
    }
}
