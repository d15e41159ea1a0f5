//! Where the workers' time went: `slip budget` and `slip diff`.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use slip_model::{Batch, Budget, Part, RecordingInfo, RunBegin, Totals, Worker};
use slip_record::file::Writer;

use slip_testkit::fpm::{Fpm, Pool, builds};

use crate::harness::{Ran, Recorder, Target, python, root_or_skip, run, slip, wait_for};

#[path = "../../../doctor/tests/support/budget.rs"]
mod by_hand;

/// A recording of this budget and nothing else, closed in order.
fn recorded(folder: &Path, name: &str, mut budget: Option<Budget>) -> PathBuf {
    let file = folder.join(name);
    let info =
        RecordingInfo { tool: "slip test".into(), interval_ns: 10_000_000, ..RecordingInfo::default() };
    let mut writer = Writer::create(&file, &info, false).unwrap();
    let served = budget.as_mut().map(|budget| std::mem::take(&mut budget.requests)).unwrap_or_default();
    writer.append(&Batch { budget, served, ..Batch::default() }).unwrap();
    writer.finish(Totals { duration_ns: 1_000_000, ..Totals::default() }).unwrap();
    file
}

/// What this prints, with the folder taken out.
#[track_caller]
fn prints(folder: &Path, arguments: &[&str]) -> String {
    let ran = run(arguments);
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""));
    ran.stdout.replace(&format!("{}/", folder.display()), "")
}

#[test]
fn a_budget_in_every_form() {
    let folder = tempfile::tempdir().unwrap();
    let file = recorded(folder.path(), "a.slip", Some(by_hand::budget()));
    let name = file.to_str().unwrap();
    insta::assert_snapshot!("budget_table", prints(folder.path(), &["budget", name]));
    for format in ["json", "md"] {
        let text = prints(folder.path(), &["budget", name, "--format", format]);
        insta::assert_snapshot!(format!("budget_{format}"), text);
    }
}

#[test]
fn two_budgets_in_every_form() {
    let folder = tempfile::tempdir().unwrap();
    let before = by_hand::budget();
    let mut after = before.clone();
    // Nobody queues any more, redis has moved, and what was memory is time on a disk.
    after.endpoints[0].address = "10.0.0.5:6379".into();
    for request in &mut after.requests {
        request.queued_ns = request.begin_ns;
        request.serving.0.swap(Part::Memory as usize, Part::Disk as usize);
    }
    let files = [("before.slip", before), ("after.slip", after)]
        .map(|(name, budget)| recorded(folder.path(), name, Some(budget)));
    let [a, b] = [0, 1].map(|at| files[at].to_str().unwrap());
    for format in ["table", "json", "md"] {
        let text = prints(folder.path(), &["diff", a, b, "--format", format]);
        insta::assert_snapshot!(format!("diff_{format}"), text);
    }
}

/// A run of 100 ms that sleeps nearly all of the time.
fn run_of_a_program() -> Budget {
    let serving = by_hand::times(&[(Part::Code, 1_000_000), (Part::Sleep, 99_000_000)]);
    let between = by_hand::times(&[(Part::Code, 5_000_000)]);
    let after = by_hand::times(&[(Part::Memory, 1_000_000)]);
    let worker =
        Worker { is_run: true, watched_ns: 106_000_000, between, serving, after, ..Worker::default() };
    Budget { workers: vec![worker], run_begin: Some(RunBegin::Script), ..Budget::default() }
}

#[test]
fn a_run_is_told_by_operation() {
    let folder = tempfile::tempdir().unwrap();
    let file = recorded(folder.path(), "a.slip", Some(run_of_a_program()));
    let name = file.to_str().unwrap();
    let text = prints(folder.path(), &["budget", name, "--ops", "1000"]);
    for words in
        ["The run (1 thread, 100 ms", "99.0 %", "1000.0 ns", "until the script was opened, 5.0 ms", "Exit"]
    {
        assert!(text.contains(words), "{words}: {text}");
    }
    assert!(!text.contains("No request ended"), "{text}");
    let json = prints(folder.path(), &["budget", name, "--ops", "1000", "--format", "json"]);
    for words in [r#""begins_at": "script""#, r#""operations": 1000"#, r#""per_operation_ns": 99000.0"#] {
        assert!(json.contains(words), "{words}: {json}");
    }
    let json = prints(folder.path(), &["budget", name, "--format", "json"]);
    assert!(json.contains(r#""per_operation_ns": null"#), "{json}");
    let markdown = prints(folder.path(), &["budget", name, "--format", "md"]);
    assert!(markdown.contains("| SLEEP |") && !markdown.contains("per operation"), "{markdown}");
    let requests = recorded(folder.path(), "requests.slip", Some(by_hand::budget()));
    assert_eq!(run(&["budget", requests.to_str().unwrap(), "--ops", "5"]).code, 6);
}

#[test]
fn a_report_begins_with_the_budget() {
    let folder = tempfile::tempdir().unwrap();
    let file = recorded(folder.path(), "a.slip", Some(by_hand::budget()));
    let text = prints(folder.path(), &["report", file.to_str().unwrap()]);
    let at = |words: &str| text.find(words).unwrap_or_else(|| panic!("{words}: {text}"));
    assert!(at("watched from") < at("| WAIT ") && at("| WAIT ") < at("## How good this is"), "{text}");
}

#[test]
fn files_without_a_budget() {
    let folder = tempfile::tempdir().unwrap();
    let with = recorded(folder.path(), "with.slip", Some(by_hand::budget()));
    let without = recorded(folder.path(), "without.slip", None);
    let [with, without] = [&with, &without].map(|file| file.to_str().unwrap());
    let message = format!("error: {without} has no budget\nhint: record with `--budget`\n");
    for arguments in [&["budget", without][..], &["diff", with, without], &["diff", without, with]] {
        let ran = run(arguments);
        assert_eq!((ran.code, ran.stdout.as_str(), ran.stderr.as_str()), (6, "", message.as_str()));
    }
    let ran = run(&["budget", "no-such-file.slip"]);
    assert_eq!(ran.code, 2, "{}", ran.stderr);
}

#[test]
fn a_budget_that_was_cut_off_is_read_with_a_warning() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("cut.slip");
    let mut writer = Writer::create(&file, &RecordingInfo::default(), false).unwrap();
    let mut budget = by_hand::budget();
    budget.requests.clear();
    writer.append(&Batch { budget: Some(budget), ..Batch::default() }).unwrap();
    drop(writer);
    let ran = run(&["budget", file.to_str().unwrap()]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert!(ran.stderr.contains("cut.slip: the recorder ended without closing the file"), "{}", ran.stderr);
    assert!(ran.stdout.contains("No request ended in the window."), "{}", ran.stdout);
}

#[test]
fn a_pool_is_recorded_with_its_budget() {
    // Not each: what differs between them is measured elsewhere.
    let Some(build) = builds().into_iter().next() else { return };
    let fpm =
        Fpm::start_pool(&build, Pool { workers: 2, ..Pool::default() }, &[("a.php", "<?php usleep(2000);")]);
    fpm.fetch("a.php", "/");
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("a.slip");
    let mut recorder = Recorder::start(&file, &["--fpm", &fpm.pool, "--budget", "--rung", "tracepoints"]);
    let is_there = || (recorder.has_ended() || file.exists()).then_some(());
    wait_for("the recording", is_there);
    if recorder.has_ended() {
        let ran = recorder.ends();
        assert!([4, 5].contains(&ran.code) && ran.stderr.contains("`--rung proc`"), "{}", ran.stderr);
        return slip_testkit::skip("a_pool_is_recorded_with_its_budget", ran.stderr.trim());
    }
    let name = file.to_str().unwrap();
    // A request that begins before the recording is not in it.
    wait_for("its begin", || (run(&["budget", name]).code == 0).then_some(()));
    (0..10).for_each(|_| drop(fpm.fetch("a.php", "/")));
    // They are in the file with the next flush, while it is being recorded.
    let told = || {
        let ran = run(&["budget", name, "--format", "json"]);
        (ran.code == 0).then(|| ran.json()).filter(|json| json["requests"]["count"] == 10)
    };
    let json = wait_for("ten requests", told);
    let workers = &json["workers"];
    assert_eq!((&workers["count"], &workers["excess_ns"]), (&2.into(), &0.into()));
    let lines = workers["lines"].as_array().unwrap();
    let sum: u64 = lines.iter().map(|line| line["ns"].as_u64().unwrap()).sum();
    assert_eq!(Some(sum), workers["watched_ns"].as_u64());
    let sleep = lines.iter().find(|line| line["line"] == "sleep").unwrap();
    assert!(sleep["ns"].as_u64().unwrap() >= 10 * 2_000_000, "{sleep}");
    recorder.interrupt();
    assert_eq!(recorder.ends().code, 130);
}

#[test]
fn a_budget_is_kept_by_looks_with_either_sampler() {
    let Some(build) = builds().into_iter().next() else { return };
    let fpm = Fpm::start_pool(&build, Pool::default(), &[("a.php", "<?php usleep(15000);")]);
    fpm.fetch("a.php", "/");
    let folder = tempfile::tempdir().unwrap();
    for sampler in ["auto", "outside"] {
        let file = folder.path().join(sampler);
        let name = file.to_str().unwrap();
        let arguments = ["--fpm", &fpm.pool, "--sampler", sampler, "--budget", "--rung", "proc"];
        let recorder = Recorder::start(&file, &arguments);
        wait_for("the recording", || file.exists().then_some(()));
        let told = || {
            fpm.fetch("a.php", "/");
            let ran = run(&["budget", name, "--format", "json"]);
            (ran.code == 0).then(|| ran.json()).filter(|json| json["requests"]["count"].as_u64() > Some(10))
        };
        let json = wait_for("ten requests", told);
        assert_eq!((&json["measured_by"], &json["workers"]["excess_ns"]), (&"proc".into(), &0.into()));
        let lines = json["workers"]["lines"].as_array().unwrap();
        let ns = |line: &serde_json::Value| line["ns"].as_u64().unwrap();
        assert_eq!(Some(lines.iter().map(ns).sum()), json["workers"]["watched_ns"].as_u64());
        let sleep = lines.iter().find(|line| line["line"] == "sleep").unwrap();
        assert!(ns(sleep) > 10 * 10_000_000, "{sleep}");
        recorder.interrupt();
        let ran = recorder.ends();
        assert_eq!(ran.code, 130);
        // It was asked for.
        assert!(!ran.stderr.contains("note: the budget"), "{}", ran.stderr);
        let ran = run(&["budget", name]);
        assert!(
            ran.stdout.contains(" by proc; cannot see: threads are looked at 200 times"),
            "{}",
            ran.stdout
        );
        // What was not looked for is not nothing.
        assert!(!ran.stdout.contains("QUEUE") && !ran.stdout.contains("AFTER"), "{}", ran.stdout);
        let ran = run(&["report", name]);
        assert!(ran.stdout.contains("what workers were blocked by is sampled"), "{}", ran.stdout);
    }
}

/// A program that serves one request after the other, each of which takes 2 ms, at a path that is put in for `PATH`.
const SERVING: &str = "
import socket, time
listener = socket.socket(socket.AF_UNIX)
listener.bind('PATH')
listener.listen()
print('ready', flush=True)
while True:
    connection, _ = listener.accept()
    with connection:
        connection.recv(1)
        time.sleep(0.002)
        connection.sendall(b'x')
";

fn ask(path: &Path) {
    let mut stream = UnixStream::connect(path).unwrap();
    stream.write_all(b"x").unwrap();
    stream.read_exact(&mut [0]).unwrap();
}

/// `slip record --budget` of a process, by this number and with this sampler, begun by the words `enter`, tells of the requests that come
/// there.
#[track_caller]
fn tells_of_requests(enter: &[&str], rung: &str, target: [&str; 2], socket: &Path) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("a.slip");
    let name = file.to_str().unwrap();
    let slip = slip();
    let [pid, sampler] = target;
    let asked =
        ["record", "--quiet", "--output", name, "--duration", "60", "--pid", pid, "--sampler", sampler];
    let asked = [&asked[..], &["--budget", "--rung", rung]].concat();
    let words = [enter, &[slip.to_str().unwrap()], &asked].concat();
    let mut command = Command::new(words[0]);
    let mut recorder = command.args(&words[1..]).stdin(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    wait_for("its begin", || {
        let has_ended = recorder.try_wait().unwrap().is_some();
        (has_ended || run(&["budget", name]).code == 0).then_some(())
    });
    if recorder.try_wait().unwrap().is_some() {
        let ran: Ran = recorder.wait_with_output().unwrap().into();
        assert!([4, 5].contains(&ran.code) && ran.stderr.contains("`--rung proc`"), "{}", ran.stderr);
        return slip_testkit::skip(&format!("a budget by `{rung}`"), ran.stderr.trim());
    }
    (0..10).for_each(|_| ask(socket));
    let told = || {
        let ran = run(&["budget", name, "--format", "json"]);
        (ran.code == 0).then(|| ran.json()).filter(|json| json["requests"]["count"] == 10)
    };
    let json = wait_for("ten requests", told);
    let lines = json["workers"]["lines"].as_array().unwrap();
    let sleep = lines.iter().find(|line| line["line"] == "sleep").unwrap();
    assert!(sleep["ns"].as_u64().unwrap() >= 10 * 2_000_000, "{sleep}");
    assert_eq!((&json["workers"]["count"], &json["workers"]["excess_ns"]), (&1.into(), &0.into()));
    let id = recorder.id();
    // Whom it has entered a namespace with ends with it, or with the namespace.
    let children = std::fs::read_to_string(format!("/proc/{id}/task/{id}/children")).unwrap();
    for pid in children.split_whitespace().chain([&*id.to_string()]) {
        let _ = Command::new("kill").args(["-s", "INT", pid]).stderr(Stdio::null()).status();
    }
    recorder.wait().unwrap();
}

#[test]
fn budgets_are_kept_in_and_around_pid_namespaces() {
    if !root_or_skip("budgets_are_kept_in_and_around_pid_namespaces") {
        return;
    }
    let children = |pid: &str| {
        std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap().trim().to_owned()
    };
    let contain = ["--fork", "--pid", "--kill-child"];
    for rung in ["tracepoints", "fentry", "syscalls"] {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("socket");
        let text = SERVING.replace("PATH", socket.to_str().unwrap());
        // In a namespace, in which its number is 1, and what serves in one inside it.
        let mut command = Command::new("unshare");
        command.args(contain).arg("--mount-proc").arg("unshare").args(contain);
        let target = Target::start(command.arg(python()).args(["-c", &text]));
        let outer = children(&target.pid());
        let server = children(&outer);
        tells_of_requests(&[], rung, [&server, "auto"], &socket);
        let enter = ["nsenter", "--target", &outer, "--pid", "--mount"];
        // From there the sampler in the kernel does not see who is in another namespace.
        tells_of_requests(&enter, rung, ["2", "outside"], &socket);
        drop(target);
        std::fs::remove_file(&socket).unwrap();
        // The same namespace as the server's own.
        let mut command = Command::new("unshare");
        command.args(contain).arg("--mount-proc");
        let target = Target::start(command.arg(python()).args(["-c", &text]));
        let server = children(&target.pid());
        let enter = ["nsenter", "--target", &server, "--pid", "--mount"];
        tells_of_requests(&enter, rung, ["1", "auto"], &socket);
    }
}

#[test]
fn options_of_a_budget_need_one() {
    let pid = std::process::id().to_string();
    for options in [&["--no-uprobes"][..], &["--rung", "proc"], &["--budget", "--rung", "guesses"]] {
        assert_eq!(run(&[&["record", "--pid", &pid], options].concat()).code, 2, "{options:?}");
    }
}
