//! `slip dump --async` and `slip record --async`.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use serde_json::Value;
use slip_testkit::{Interpreter, Launch, phps, pythons};

use crate::harness::{Recorder, Target, collapsed, folded, run, start};

/// Longest wait for a program. The machine may be busy with other tests.
const PATIENCE: Duration = Duration::from_secs(60);

/// A program in which two tasks wait for the same third one.
const TREE: &str = "
import asyncio
async def leaf():
    await asyncio.get_running_loop().create_future()
async def shared():
    await leaf()
async def worker(task):
    await task
async def main():
    task = asyncio.create_task(shared(), name='shared')
    async with asyncio.TaskGroup() as group:
        group.create_task(worker(task), name='first')
        group.create_task(worker(task), name='second')
        await asyncio.sleep(0.1)
        print('ready', flush=True)
asyncio.run(main())
";

/// Those that say where their tasks are.
fn with_tasks(test: &str) -> Vec<Interpreter> {
    let found: Vec<Interpreter> = pythons().into_iter().filter(|python| python.version >= (3, 14)).collect();
    if found.is_empty() {
        slip_testkit::skip(test, "no CPython from 3.14 on");
    }
    found
}

/// The lines of a dump, without what differs from one run to the next.
fn lines(text: &str) -> Vec<String> {
    let lines = text.lines().map(|line| {
        let words = line.split(' ').map(|word| if word.starts_with("0x") { "0x:" } else { word });
        words.collect::<Vec<_>>().join(" ")
    });
    lines.filter(|line| !line.contains("asyncio/") && !line.starts_with("process ")).collect()
}

#[test]
fn tasks_stand_below_those_that_wait_for_them() {
    for python in with_tasks("a tree of tasks") {
        let target = start(&python, TREE);
        target.wait_until_it_waits();
        let ran = run(&["dump", "--async", "--pid", &target.pid()]);
        assert_eq!((ran.code, ran.stderr.as_str()), (0, ""), "{}", python.label);
        let thread = format!("  thread {} \"MainThread\": 4 tasks", target.pid());
        assert_eq!(
            lines(&ran.stdout),
            [
                thread.as_str(),
                "    task \"Task-1\" 0x: waiting",
                "      main (<string>:11)",
                "      task \"first\" 0x: waiting",
                "        worker (<string>:8)",
                "        task \"shared\" 0x: waiting, 2 wait for it",
                "          shared (<string>:6)",
                "          leaf (<string>:4)",
                "      task \"second\" 0x: waiting",
                "        worker (<string>:8)",
                "        task \"shared\" 0x: waiting, 2 wait for it, shown above",
            ],
            "{}",
            python.label
        );
    }
}

/// Name, names of those that wait for it, and frames, of each task.
type Graph = (String, Vec<String>, Vec<(String, u64)>);

#[test]
fn tasks_are_what_asyncio_says_they_are() {
    let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../python/tests/tasks_target.py");
    for python in with_tasks("tasks as asyncio has them") {
        let mut target = Launch::script(&python, &program).start().unwrap();
        let report = target.read_line(PATIENCE).unwrap();
        let report: BTreeMap<String, Vec<Graph>> = serde_json::from_str(&report).unwrap();
        let ran = run(&["dump", "--async", "--json", "--pid", &target.pid().to_string()]);
        assert_eq!(ran.code, 0, "{}", ran.stderr);
        let dump = ran.json();
        let tasks = dump["processes"][0]["tasks"].as_array().unwrap();
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let name_of: BTreeMap<String, String> =
            tasks.iter().map(|task| (text(&task["id"]), text(&task["name"]))).collect();
        let mut expected_count = 0;
        for (tid, graphs) in report {
            // The one that runs is not in the report.
            expected_count += graphs.len() + 1;
            for (name, awaited_by, mut frames) in graphs {
                let is_it =
                    |task: &&Value| text(&task["name"]) == name && task["tid"].as_u64() == tid.parse().ok();
                let task = tasks.iter().find(is_it).unwrap_or_else(|| panic!("no {name} in {dump}"));
                let waiters = task["awaited_by"].as_array().unwrap().iter();
                let mut waiters: Vec<String> =
                    waiters.map(|id| name_of[id.as_str().unwrap()].clone()).collect();
                waiters.sort();
                assert_eq!(waiters, awaited_by, "{name}, {}", python.label);
                let seen = task["frames"].as_array().unwrap().iter();
                let seen: Vec<(String, u64)> =
                    seen.map(|frame| (text(&frame["name"]), frame["line"].as_u64().unwrap())).collect();
                // asyncio ends a stack at an asynchronous generator, because its wrapper tells nothing; we go on.
                if frames.last().is_some_and(|(name, _)| name == "consumer") {
                    frames.insert(0, seen[0].clone());
                    assert_eq!(seen[0].0, "numbers");
                }
                assert_eq!(seen, frames, "{name}, {}", python.label);
                assert_eq!(
                    (&task["running"], &task["truncated"]),
                    (&Value::Bool(false), &Value::Bool(false))
                );
            }
        }
        assert_eq!(tasks.len(), expected_count, "{dump}");
        let running: Vec<&Value> = tasks.iter().filter(|task| task["running"] == true).collect();
        assert_eq!(running.len(), 2, "one in each thread: {dump}");
        for task in running {
            let names: Vec<String> =
                task["frames"].as_array().unwrap().iter().map(|frame| text(&frame["name"])).collect();
            assert_eq!(names[names.len() - 2..], ["stands", "main"], "{}", python.label);
        }
    }
}

#[test]
fn who_has_no_tasks_is_told_why() {
    let text = "import sys\nprint('ready', flush=True)\nsys.stdin.readline()\n";
    for python in pythons() {
        let target = start(&python, text);
        let pid = target.pid();
        let commands = ["dump --async", "record --async --duration 0.1", "record --duration 0.1 --async all"];
        for command in commands {
            let command: Vec<&str> = command.split(' ').collect();
            let ran = run(&[&command[..], &["--pid", &pid]].concat());
            let why = match python.version {
                (3, 0..11) => "unsupported CPython",
                (3, 11..14) => "CPython before 3.14 does not say where asyncio's tasks are",
                _ => "has not imported asyncio, so it has no tasks",
            };
            assert_eq!(ran.code, 4, "{}: {}", python.label, ran.stderr);
            assert!(ran.stderr.contains(why) || python.version < (3, 11), "{}: {}", python.label, ran.stderr);
            assert_eq!(ran.stdout, "");
        }
    }
    if let Some(php) = phps().into_iter().next() {
        let target = Target::start(php.command().args(["-r", "echo \"ready\\n\"; fgets(STDIN);"]));
        let ran = run(&["dump", "--async", "--pid", &target.pid()]);
        assert_eq!((ran.code, ran.stdout.as_str()), (4, ""), "{}", ran.stderr);
        assert!(ran.stderr.contains("PHP has no tasks of asyncio"), "{}", ran.stderr);
    }
}

/// Records for half a second; the collapsed stacks, without files and lines, and how often each was seen.
fn record(target: &Target, arguments: &str) -> (BTreeMap<String, u64>, Value) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("a.slip");
    let name = file.to_str().unwrap();
    let pid = target.pid();
    let mut asked: Vec<&str> = arguments.split(' ').collect();
    asked.extend(["--pid", &pid, "--duration", "0.5", "--quiet", "--output", name]);
    let ran = run(&[&["record"], &asked[..]].concat());
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert!(ran.stderr.contains("not by the kernel: it does not see the tasks of asyncio"), "{}", ran.stderr);
    for format in ["md", "speedscope", "pprof", "firefox", "chrome"] {
        let output = folder.path().join(format);
        let ran = run(&["report", name, "--format", format, "--output", output.to_str().unwrap()]);
        assert_eq!((ran.code, ran.stderr.as_str()), (0, ""), "{format}");
    }
    let report = run(&["report", name, "--format", "json"]).json();
    (folded(&collapsed(&file)), report)
}

#[test]
fn each_task_is_a_sample_below_those_that_wait_for_it() {
    for python in with_tasks("samples of all tasks") {
        let target = start(&python, TREE);
        target.wait_until_it_waits();
        let (stacks, report) = record(&target, "--async all");
        let first = stacks["[task];main"];
        let expected = [
            "[task];main",
            "[task];main;[task first];worker",
            "[task];main;[task first];worker;[task shared];shared;leaf",
            "[task];main;[task second];worker",
        ];
        assert_eq!(
            stacks,
            expected.iter().map(|stack| ((*stack).to_owned(), first)).collect(),
            "{}",
            python.label
        );
        assert_eq!(report["quality"]["samples"], 4 * first);
        assert_eq!(report["time"]["code_waiting_ns"], report["time"]["total_ns"], "none of them runs");
        assert!(report["recording"]["target"].as_str().unwrap().ends_with(" --async all"));
    }
}

#[test]
fn a_task_that_runs_is_a_sample_and_others_are_not() {
    let busy = "
import asyncio
async def waits():
    await asyncio.sleep(1_000)
def spins():
    print('ready', flush=True)
    while True:
        pass
async def runs():
    await asyncio.sleep(0)
    spins()
async def main():
    await asyncio.gather(asyncio.create_task(waits()), asyncio.create_task(runs(), name='busy'))
asyncio.run(main())
";
    for python in with_tasks("samples of running tasks") {
        let target = start(&python, busy);
        let (stacks, _) = record(&target, "--async");
        let stacks: Vec<&str> = stacks.keys().map(String::as_str).collect();
        assert_eq!(stacks, ["[task];main;[task busy];runs;spins"], "{}", python.label);
        let (stacks, report) = record(&target, "--async all --mode cpu");
        let stacks: Vec<&str> = stacks.keys().map(String::as_str).collect();
        assert_eq!(stacks, ["[task];main;[task busy];runs;spins"], "{}", python.label);
        assert!(report["quality"]["samples_filtered"].as_u64() >= report["quality"]["samples"].as_u64());
    }
}

#[test]
fn moments_without_a_running_task_are_left_out() {
    for python in with_tasks("a loop that waits").into_iter().take(1) {
        let target = start(&python, TREE);
        target.wait_until_it_waits();
        let (stacks, report) = record(&target, "--async running");
        assert_eq!(stacks, BTreeMap::new());
        assert!(report["quality"]["samples_filtered"].as_u64().unwrap() > 10, "{report}");
    }
}

#[test]
fn tasks_of_children_are_recorded_once_they_have_asyncio() {
    let parent = "
import subprocess, sys
child = '''
import sys, time
time.sleep(0.3)
import asyncio
async def waits():
    await asyncio.sleep(2.5)
asyncio.run(waits())
'''
print('ready', flush=True)
sys.stdin.readline()
for child in [subprocess.Popen([sys.executable, '-c', child]) for _ in range(2)]:
    child.wait()
";
    for python in with_tasks("tasks of children") {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a.slip");
        let mut target = start(&python, parent);
        let asked = ["--async", "all", "--children", "--duration", "30", "--pid", &target.pid()];
        let recorder = Recorder::start(&file, &asked);
        target.go_on();
        let ran = recorder.ends();
        assert!([0, 3].contains(&ran.code), "{}: {}", python.label, ran.stderr);
        let report = run(&["report", file.to_str().unwrap(), "--format", "json"]).json();
        assert_eq!(report["processes"].as_array().unwrap().len(), 2, "{}: {report}", python.label);
        let stacks = folded(&collapsed(&file));
        assert_eq!(stacks.keys().collect::<Vec<_>>(), ["[task];waits"], "{}", python.label);
    }
}

#[test]
fn the_kernel_sees_no_tasks() {
    let ran = run(&["record", "--async", "--sampler", "kernel", "--pid", "1"]);
    assert_eq!(ran.code, 2, "{}", ran.stderr);
    let text = "error: the kernel does not see the tasks of asyncio\nhint: `--async` goes with `--sampler outside`\n";
    assert_eq!(ran.stderr, text);
}
