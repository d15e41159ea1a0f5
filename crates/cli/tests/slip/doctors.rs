//! What is wrong, and why: `slip doctor` and `slip explain`.

use std::fs;
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::Value;
use slip_model::{Batch, Budget, Part, RecordingInfo, ServedRequest, Totals, Worker};
use slip_record::file::Writer;
use slip_testkit::fpm::{Fpm, Pool, builds};
use slip_testkit::{alone, skip};

use crate::harness::{Ran, run, slip, wait_for};

#[path = "../../../record/tests/budget_support/cpu.rs"]
#[allow(dead_code, reason = "of the others' tests too")]
mod cpu;

/// Longest wait for a control group to become empty, as in the tests of budgets.
const PATIENCE: Duration = Duration::from_secs(60);

/// A recording of so many requests of these parts.
fn recorded(folder: &Path, count: u64, parts: &[(Part, u64)]) -> String {
    let mut serving = slip_model::PartTimes::default();
    parts.iter().for_each(|(part, ns)| serving.0[*part as usize] += ns);
    let mut worker = Worker { pid: 7, tid: 7, ..Worker::default() };
    let mut served = Vec::new();
    for _ in 0..count {
        let begin_ns = worker.watched_ns;
        let end_ns = begin_ns + serving.total_ns();
        worker.serving.add(&serving);
        worker.watched_ns = end_ns;
        served.push(ServedRequest {
            queued_ns: begin_ns,
            begin_ns,
            response_ns: end_ns,
            end_ns,
            serving,
            ..ServedRequest::default()
        });
    }
    let budget = Budget {
        rung: "tracepoints".into(),
        window_ns: worker.watched_ns,
        workers: vec![worker],
        ..Budget::default()
    };
    let file = folder.join(format!("{count}.slip"));
    let info =
        RecordingInfo { tool: "slip test".into(), interval_ns: 10_000_000, ..RecordingInfo::default() };
    let mut writer = Writer::create(&file, &info, false).unwrap();
    writer.append(&Batch { budget: Some(budget), served, ..Batch::default() }).unwrap();
    writer.finish(Totals { duration_ns: 1_000_000_000, own_cpu_ns: 6_000_000, ..Totals::default() }).unwrap();
    file.to_str().unwrap().to_owned()
}

/// Recordings of services that people run, by `bench/doctor/run sheets`. Who accepts another sheet has to have read it: each sentence
/// is true of that service.
#[test]
fn sheets_of_real_services_are_those_that_were_read() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/recordings");
    for name in ["wordpress", "mediawiki", "symfony", "flask", "aiohttp"] {
        let ran = run(&["doctor", folder.join(format!("{name}.slip")).to_str().unwrap()]);
        assert_eq!((ran.code, ran.stderr.as_str()), (0, ""), "{name}: {}", ran.stdout);
        insta::assert_snapshot!(format!("sheet_of_{name}"), ran.stdout);
    }
}

#[test]
fn a_recording_is_judged_and_limits_decide_the_status() {
    let folder = tempfile::tempdir().unwrap();
    let file = recorded(folder.path(), 250, &[(Part::Code, 8_000_000), (Part::Gil, 2_000_000)]);
    let ran = run(&["doctor", &file]);
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""), "{}", ran.stdout);
    for words in ["Where a request goes: 10.0 ms", "0.6 % of one core", "250 requests", "CODE"] {
        assert!(ran.stdout.contains(words), "{words}: {}", ran.stdout);
    }
    for (limit, code) in [
        ("code>7ms", 1),
        ("code>9ms", 0),
        ("gil>19%", 1),
        ("whole.p95>1s", 0),
        ("gil.p99 > 1ms", 1),
        ("WAKE003>1ms", 0),
        ("boots>1ms", 2),
    ] {
        let ran = run(&["doctor", &file, "--fail-on", "code>1s", "--fail-on", limit]);
        assert_eq!(ran.code, code, "{limit}: {}", ran.stderr);
    }
    assert_eq!(run(&["doctor", &file, "-d", "3"]).code, 2);
    assert_eq!(run(&["doctor", &file, "--ops", "3"]).code, 6);
    assert_eq!(run(&["doctor"]).code, 2);
}

#[test]
fn too_few_requests_are_not_judged() {
    let folder = tempfile::tempdir().unwrap();
    let file = recorded(folder.path(), 7, &[(Part::Code, 8_000_000), (Part::Gil, 2_000_000)]);
    let ran = run(&["doctor", &file, "--fail-on", "code>1ms"]);
    assert_eq!(ran.code, 6);
    assert!(ran.stdout.contains("only 7 requests"), "{}", ran.stdout);
    assert!(ran.stderr.contains("hint: watch for longer: `-d "), "{}", ran.stderr);
    let none = recorded(folder.path(), 0, &[]);
    let ran = run(&["doctor", &none]);
    assert_eq!((ran.code, ran.stderr.contains("while there are requests")), (6, true), "{}", ran.stderr);
}

#[test]
fn rules_are_explained() {
    let all = run(&["explain"]);
    assert_eq!(all.code, 0);
    assert!(all.stdout.contains("WAKE003") && all.stdout.contains("BOOT001"), "{}", all.stdout);
    let one = run(&["explain", "wake003"]);
    assert!(one.stdout.starts_with("WAKE003") && one.stdout.contains("CPU quota"), "{}", one.stdout);
    assert_eq!(run(&["explain", "WAKE"]).code, 2);
}

/// A Redis that keeps nothing. Killed when dropped.
struct Redis(Child, u16);

impl Redis {
    fn start() -> Option<Self> {
        let path = Path::new("/usr/bin/redis-server");
        if !path.exists() {
            skip("redis-server", "it is not installed");
            return None;
        }
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let mut command = Command::new(path);
        command.args(["--bind", "127.0.0.1", "--save", "", "--port", &port.to_string()]);
        let process = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap();
        let redis = Self(process, port);
        wait_for("redis-server", || TcpStream::connect(("127.0.0.1", port)).ok());
        Some(redis)
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Computes for some time and asks Redis some times, as a page does.
fn page(port: u16) -> String {
    format!(
        r#"<?php
        function cpu() {{
            $used = getrusage();
            return 1e9 * ($used["ru_utime.tv_sec"] + $used["ru_stime.tv_sec"]) + 1e3 * ($used["ru_utime.tv_usec"] + $used["ru_stime.tv_usec"]);
        }}
        $server = stream_socket_client("tcp://127.0.0.1:{port}");
        for ($i = 0; $i < 4; $i++) {{
            fwrite($server, "*1\r\n$4\r\nPING\r\n");
            fgets($server);
            $used = cpu();
            while (cpu() - $used < 1e6);
        }}
        echo "done";"#
    )
}

/// What `slip doctor` says of a pool that is asked meanwhile; `None` where the kernel keeps no budgets.
fn doctor(fpm: &Fpm, rung: &str, arguments: &[&str]) -> Option<Ran> {
    let mut command = Command::new(slip());
    command.args(["doctor", "--fpm", &fpm.pool, "--rung", rung, "-d", "4"]).args(arguments);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    while child.try_wait().unwrap().is_none() {
        assert_eq!(fpm.fetch("index.php", "/"), "done");
    }
    let ran: Ran = child.wait_with_output().unwrap().into();
    if [4, 5].contains(&ran.code) && ran.stderr.contains("`--rung proc`") {
        skip("budgets by the kernel", ran.stderr.trim());
        return None;
    }
    Some(ran)
}

fn finding<'a>(sheet: &'a Value, rule: &str) -> Option<&'a Value> {
    sheet["findings"].as_array().unwrap().iter().find(|finding| finding["rule"] == rule)
}

#[test]
fn a_quota_is_found_to_be_one_and_without_it_there_is_none() {
    let _alone = alone();
    let Some(build) = builds().into_iter().find(|build| build.opcache) else { return };
    let Some(redis) = Redis::start() else { return };
    let Some(quota) = cpu::Quota::start(Duration::from_millis(5), Duration::from_millis(20), "") else {
        return;
    };
    let fpm = Fpm::start_pool(&build, Pool::default(), &[("index.php", &page(redis.1))]);
    let Some(ran) = doctor(&fpm, "tracepoints", &["--format", "json"]) else { return };
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    let sheet = ran.json();
    assert_eq!((&sheet["schema"], &sheet["unit"]["kind"]), (&"slip.doctor/1".into(), &"request".into()));
    // The machine may be busy with other things; it has no quota.
    let cause = finding(&sheet, "WAKE003").map(|finding| finding["cause"].clone());
    assert_ne!(cause, Some("cpu_quota".into()), "{}", ran.stdout);
    assert!(sheet["own_cost"]["cpu_ns"].as_u64() > Some(0), "{}", ran.stdout);

    quota.add(&fpm.workers());
    let folder = tempfile::tempdir().unwrap();
    let kept = folder.path().join("kept.slip");
    let kept_name = kept.to_str().unwrap();
    let Some(ran) = doctor(&fpm, "tracepoints", &["--fail-on", "wake>1ms", "--output", kept_name]) else {
        return;
    };
    assert_eq!(ran.code, 1, "{}\n{}", ran.stdout, ran.stderr);
    for words in
        ["WAKE003  a CPU quota holds the workers back", "periods throttled", "another client library"]
    {
        assert!(ran.stdout.contains(words), "{words}: {}", ran.stdout);
    }
    let ran = run(&["doctor", kept_name, "--format", "json"]);
    let sheet = ran.json();
    let found = finding(&sheet, "WAKE003").unwrap();
    assert_eq!(found["cause"], "cpu_quota");
    let ns = |value: &Value| value.as_f64().unwrap();
    // Each request needs the CPU for 4 ms of the 5 that there are in 20.
    assert!(ns(&found["cost"]["share_of_unit"]) > 0.3, "{found}");
    assert!(ns(&found["gain"]["high_ns"]) >= ns(&found["gain"]["low_ns"]), "{found}");
    assert!(fs::metadata(&kept).is_ok());

    // Coarser, and not wrong.
    let Some(ran) = doctor(&fpm, "proc", &["--format", "json"]) else { return };
    let sheet = ran.json();
    assert_eq!(finding(&sheet, "WAKE003").unwrap()["cause"], "cpu_quota", "{}", ran.stdout);
    let notes = sheet["notes"].to_string();
    assert!(notes.contains("coarse: "), "{notes}");
    drop(fpm);
}
