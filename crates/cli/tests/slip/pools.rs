//! PHP-FPM pools, whose workers come and go.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;
use slip_testkit::fpm::{Build, Fpm, Pool, builds};

use crate::harness::{Recorder, kernel_refuses, run, wait_for};

const WORKERS: usize = 3;

/// Each worker serves two waves, by `pm.max_requests`; those of the last but one serve one, because of a reload.
const WAVES: [&[usize]; 4] = [&[0, 1], &[2, 3], &[4], &[5]];

/// The wave during which the pool is reloaded.
const RELOADED: usize = 4;

/// A script that says which worker serves it and stays in a function of its own until its wave may go.
fn script(wave: usize, number: usize) -> (String, String) {
    let text = format!(
        "<?php
function held_{wave}_{number}() {{
    while (!file_exists(__DIR__ . '/go-{wave}')) usleep(2000);
}}
file_put_contents(__DIR__ . '/in-{wave}-{number}', getmypid());
held_{wave}_{number}();
echo getmypid();
"
    );
    (format!("held-{wave}-{number}.php"), text)
}

/// Sends one request to each worker, holds all until they are in the recording, and returns the workers.
fn serve(fpm: &Fpm, file: &Path, wave: usize) -> BTreeSet<u32> {
    std::thread::scope(|scope| {
        let requests: Vec<_> = (0..WORKERS)
            .map(|number| {
                scope.spawn(move || fpm.fetch(&script(wave, number).0, &format!("/wave-{wave}/{number}")))
            })
            .collect();
        let pids: BTreeSet<u32> = (0..WORKERS)
            .map(|number| {
                let note = fpm.outside.join(format!("in-{wave}-{number}"));
                wait_for("a request", || fs::read_to_string(&note).ok()?.parse().ok())
            })
            .collect();
        assert_eq!(pids.len(), WORKERS, "one request each: {pids:?}");
        wait_for(&format!("wave {wave} in the recording"), || {
            let stacks = run(&["report", file.to_str().unwrap(), "--format", "collapsed"]).stdout;
            (0..WORKERS).all(|number| stacks.contains(&format!("held_{wave}_{number}"))).then_some(())
        });
        if wave == RELOADED {
            reload(fpm, &pids);
        }
        fs::write(fpm.outside.join(format!("go-{wave}")), "").unwrap();
        let served = requests.into_iter().map(|request| request.join().unwrap().parse::<u32>().unwrap());
        assert_eq!(served.collect::<BTreeSet<u32>>(), pids);
        pids
    })
}

/// Reloads the pool, and waits until these workers know that they are to end: one that does not would take another
/// request. They close the socket that they listen on.
fn reload(fpm: &Fpm, workers: &BTreeSet<u32>) {
    let open = |pid: &u32| -> BTreeSet<PathBuf> {
        let entries = fs::read_dir(format!("/proc/{pid}/fd")).unwrap();
        entries.filter_map(|entry| fs::read_link(entry.unwrap().path()).ok()).collect()
    };
    let before: Vec<_> = workers.iter().map(open).collect();
    fpm.signal("USR2");
    wait_for("the workers know of the reload", || {
        workers.iter().map(open).zip(&before).all(|(now, before)| !now.is_superset(before)).then_some(())
    });
}

fn all_workers_are_recorded(build: &Build) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("a.slip");
    let scripts: Vec<(String, String)> = WAVES
        .concat()
        .into_iter()
        .flat_map(|wave| (0..WORKERS).map(move |number| script(wave, number)))
        .collect();
    let scripts: Vec<(&str, &str)> =
        scripts.iter().map(|(name, text)| (name.as_str(), text.as_str())).collect();
    let pool = Pool {
        workers: WORKERS as u32,
        settings: "pm.max_requests = 2",
        // Without it a reload cuts off the requests that are being served.
        global: "process_control_timeout = 60",
        ..Pool::default()
    };
    let fpm = Fpm::start_pool(build, pool, &scripts);
    let recorder = Recorder::start(&file, &["--fpm", &fpm.pool, "--rate", "199"]);
    let what = build.label();

    let mut served = BTreeSet::new();
    for waves in WAVES {
        let mut generation = BTreeSet::new();
        for wave in waves {
            generation.extend(serve(&fpm, &file, *wave));
        }
        assert_eq!(generation.len(), WORKERS, "{what}: the same workers in waves {waves:?}");
        assert!(served.is_disjoint(&generation), "{what}: new workers in waves {waves:?}");
        served.extend(generation);
    }
    // The master ends once its workers have nothing to do, and with it the target.
    fpm.signal("QUIT");
    let ran = recorder.ends();
    assert_eq!(ran.code, 0, "{what}: {}", ran.stderr);

    let report = run(&["report", file.to_str().unwrap(), "--format", "json", "--top", "1000"]).json();
    let code_ns = |process: &serde_json::Value| {
        ["code_on_cpu_ns", "code_waiting_ns"]
            .into_iter()
            .map(|key| process["time"][key].as_u64().unwrap())
            .sum::<u64>()
    };
    let recorded: BTreeSet<u32> = report["processes"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|process| code_ns(process) > 0)
        .map(|process| process["pid"].as_u64().unwrap() as u32)
        .collect();
    assert_eq!(recorded, served, "{what}");
    let mut routes: Vec<(&str, u64)> = report["requests"]["routes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|route| (route["uri"].as_str().unwrap(), route["count"].as_u64().unwrap()))
        .collect();
    routes.sort_unstable();
    let uris: Vec<String> = WAVES
        .concat()
        .into_iter()
        .flat_map(|wave| (0..WORKERS).map(move |number| format!("/wave-{wave}/{number}")))
        .collect();
    let expected: Vec<(&str, u64)> = uris.iter().map(|uri| (uri.as_str(), 1)).collect();
    assert_eq!(routes, expected, "{what}");
    assert_eq!(report["quality"]["complete"], true, "{what}");
}

#[test]
fn workers_that_end_and_come_are_all_recorded() {
    for build in builds() {
        all_workers_are_recorded(&build);
    }
}

#[test]
fn a_pool_without_workers_says_when_it_has_some() {
    let Some(build) = builds().into_iter().next() else { return };
    let pool = Pool { workers: 0, settings: "pm = ondemand", ..Pool::default() };
    let fpm = Fpm::start_pool(&build, pool, &[("hello.php", "<?php echo 'hello';\n")]);
    let master = fpm.master().to_string();
    for verb in ["record", "dump", "check"] {
        let ran = run(&[verb, "--fpm", &fpm.pool, "--fpm-master", &master]);
        assert_eq!(ran.code, 3, "{verb}: {}", ran.stderr);
        let expected = format!(
            "error: PHP-FPM runs but pool `{}` has no worker\n\
             hint: with `pm = ondemand` a pool has no worker until a request comes: send one\n",
            fpm.pool
        );
        assert_eq!(ran.stderr, expected, "{verb}");
    }
    assert_eq!(fpm.fetch("hello.php", "/hello"), "hello");
    let ran = run(&["dump", "--fpm", &fpm.pool, "--fpm-master", &master]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert!(ran.stdout.contains(&fpm.pool), "{}", ran.stdout);
}

#[test]
fn a_pool_has_no_global_interpreter_lock() {
    let Some(build) = builds().into_iter().next() else { return };
    let fpm = Fpm::start_pool(&build, Pool::default(), &[]);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("a.slip");
    let recorder = Recorder::start(&file, &["--fpm", &fpm.pool, "--mode", "gil", "--duration", "600"]);
    let ran = recorder.ends();
    let message = "error: PHP has no global interpreter lock\n\
                   hint: `--mode cpu` counts the moments in which a worker runs\n";
    assert_eq!((ran.code, ran.stderr.as_str()), (2, message));
    assert!(!file.exists());
}

/// What the kernel's sampler has to say of the pool while it is asked; `None` where the kernel refuses.
fn record_with_kernel(fpm: &Fpm, file: &Path, arguments: &[&str], ask: impl FnOnce()) -> Option<Value> {
    let all = [&["--fpm", &fpm.pool, "--sampler", "kernel"], arguments].concat();
    let mut recorder = Recorder::start(file, &all);
    wait_for("the begin of the recording", || {
        // It ends at once where the kernel refuses.
        file.exists().then_some(()).or_else(|| recorder.has_ended().then_some(()))
    });
    ask();
    recorder.interrupt();
    let ran = recorder.ends();
    if kernel_refuses(&ran) {
        return None;
    }
    assert_eq!(ran.code, 130, "{}: {}", fpm.pool, ran.stderr);
    Some(run(&["report", file.to_str().unwrap(), "--format", "json"]).json())
}

#[test]
fn the_kernel_sees_what_a_pool_waits_for() {
    const NAPS: u64 = 5;
    const NAP_NS: u64 = 100_000_000;
    let text = "<?php
$method = $_SERVER['REQUEST_METHOD'];
function nap(): void {
    usleep(100_000);
}
nap();
echo 'done';
";
    for build in builds() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a.slip");
        let fpm = Fpm::start(&build, &[("nap.php", text)]);
        let ask = || (0..NAPS).for_each(|_| assert_eq!(fpm.fetch("nap.php", "/nap"), "done"));
        let Some(report) = record_with_kernel(&fpm, &file, &[], ask) else { return };
        let what = build.label();
        assert_eq!(report["quality"]["samples_failed"], 0, "{what}: {report}");
        let reasons = report["waits"]["by_reason"].as_array().unwrap();
        let sleep = reasons.iter().find(|row| row["reason"] == "sleep").unwrap();
        let number = |value: &Value| value.as_u64().unwrap();
        assert_eq!(number(&sleep["count"]), NAPS, "{what}: {reasons:?}");
        assert!(number(&sleep["total_ns"]) >= NAPS * NAP_NS, "{what}: {reasons:?}");
        let routes = report["requests"]["routes"].as_array().unwrap();
        let nap = routes.iter().find(|route| route["uri"] == "/nap").unwrap();
        // The first wait of each of the two workers may begin before it is known where the next request differs from it.
        assert!(number(&nap["busy_ns"]) >= (NAPS - 2) * NAP_NS, "{what}: {routes:?}");
        // They take turns, so each waits for requests.
        assert!(number(&report["time"]["idle_ns"]) > 0, "{what}: {}", report["time"]);
    }
}

#[test]
fn the_kernel_samples_the_requests_of_a_pool() {
    // PHP 8.2 notes when a request has begun once the script uses `$_SERVER`, and nothing else tells requests apart there.
    let text = "<?php
$method = $_SERVER['REQUEST_METHOD'];
function burn(int $until): int {
    for ($n = 0; hrtime(true) < $until; $n++);
    return $n;
}
echo burn(hrtime(true) + 200_000_000) > 0 ? 'done' : '';
";
    for build in builds() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a.slip");
        let fpm = Fpm::start(&build, &[("burn.php", text)]);
        let ask = || (0..5).for_each(|_| assert_eq!(fpm.fetch("burn.php", "/burn?secret=1"), "done"));
        let Some(report) = record_with_kernel(&fpm, &file, &["--mode", "cpu", "--rate", "499"], ask) else {
            return;
        };
        let what = build.label();
        let quality = &report["quality"];
        let number = |key: &str| quality[key].as_u64().unwrap_or_else(|| panic!("{key} in {quality}"));
        assert_eq!(number("samples_failed"), 0, "{what}: {quality}");
        // Without opcache functions go with their request, and may have gone before their names are read.
        assert!(number("samples_torn") * 10 < number("samples"), "{what}: {quality}");
        let functions = report["functions"]["by_own"].as_array().unwrap();
        let burn = functions.iter().find(|function| function["name"] == "burn");
        assert!(burn.is_some_and(|burn| burn["total_ns"].as_u64() > Some(0)), "{what}: {functions:?}");
        let routes = report["requests"]["routes"].as_array().unwrap();
        assert!(routes.iter().any(|route| route["uri"] == "/burn"), "{what}: {routes:?}");
    }
}
