//! What more can be known of a moment of Python: calls from C, exceptions, instructions, garbage collection.

use std::collections::BTreeMap;

use serde_json::Value;
use slip_testkit::{Interpreter, phps, pythons};

use crate::harness::{Recorder, Target, collapsed, folded, run, start};

/// Calls a function of Python from C, handles an exception, and collects garbage, whose end calls a function too.
const PROGRAM: &str = "
import gc, sys
def spins():
    for _ in range(20_000):
        pass
def key(number):
    for _ in range(40):
        pass
    return number
def sorts():
    sorted(range(500), key=key)
def handles():
    try:
        raise ValueError
    except ValueError:
        spins()
def after(phase, info):
    if phase == 'stop':
        for _ in range(20_000):
            pass
def collects():
    gc.collect()
kept = [[] for _ in range(50_000)]
gc.callbacks.append(after)
print('ready', flush=True)
while True:
    spins()
    sorts()
    handles()
    collects()
";

/// Those that can be read.
fn readable(from: (u32, u32), test: &str) -> Vec<Interpreter> {
    let found: Vec<Interpreter> = pythons().into_iter().filter(|python| python.version >= from).collect();
    if found.is_empty() {
        slip_testkit::skip(test, "no such CPython");
    }
    found
}

/// Records for a second; the collapsed stacks, the report and what was said.
fn record(target: &Target, arguments: &str) -> (BTreeMap<String, u64>, Value, String) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("a.slip");
    let name = file.to_str().unwrap();
    let pid = target.pid();
    let mut asked: Vec<&str> = arguments.split(' ').collect();
    asked.extend(["--rate", "499", "--pid", &pid, "--duration", "1", "--quiet", "--output", name]);
    let ran = run(&[&["record"], &asked[..]].concat());
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    for format in ["md", "speedscope", "pprof", "firefox", "chrome"] {
        let output = folder.path().join(format);
        let ran = run(&["report", name, "--format", format, "--output", output.to_str().unwrap()]);
        assert_eq!((ran.code, ran.stderr.as_str()), (0, ""), "{format}");
    }
    let report = run(&["report", name, "--format", "json"]).json();
    (folded(&collapsed(&file)), report, ran.stderr)
}

/// How many samples have a stack of which this holds.
fn count(stacks: &BTreeMap<String, u64>, holds: impl Fn(&str) -> bool) -> u64 {
    stacks.iter().filter(|(stack, _)| holds(stack)).map(|(_, count)| count).sum()
}

#[test]
fn a_call_from_c_is_marked() {
    for python in readable((3, 12), "marks of calls from C") {
        let target = start(&python, PROGRAM);
        let (stacks, report, _) = record(&target, "--native --sampler outside");
        assert!(
            count(&stacks, |stack| stack == "<module>;sorts;<native>;key") > 0,
            "{}: {stacks:?}",
            python.label
        );
        assert_eq!(count(&stacks, |stack| stack.contains("sorts;key")), 0, "{}: {stacks:?}", python.label);
        assert_eq!(count(&stacks, |stack| !stack.starts_with("<module>")), 0, "{}: {stacks:?}", python.label);
        assert!(report["recording"]["target"].as_str().unwrap().ends_with(" --native"));
        // Unless another mode is asked for.
        assert_eq!(report["recording"]["mode"], "cpu");
        let (stacks, ..) = record(&target, "--sampler outside");
        assert_eq!(count(&stacks, |stack| stack.contains("<native>")), 0, "{}", python.label);
    }
}

#[test]
fn only_moments_with_an_exception_count() {
    let text = "
import threading
begun = threading.Event()
def spins(says):
    says()
    while True:
        pass
def plain():
    spins(begun.set)
def handles():
    try:
        raise ValueError
    except ValueError:
        spins(lambda: print('ready', flush=True))
threading.Thread(target=plain, daemon=True).start()
begun.wait()
handles()
";
    for python in readable((3, 11), "moments with an exception") {
        let target = start(&python, text);
        let (stacks, report, said) = record(&target, "--mode exception");
        assert!(said.contains("does not see who handles an exception"), "{said}");
        // It may not have returned from saying that it is ready.
        let expected = "MainThread;<module>;handles;spins";
        assert!(stacks.contains_key(expected), "{}: {stacks:?}", python.label);
        assert_eq!(count(&stacks, |stack| !stack.starts_with(expected)), 0, "{}: {stacks:?}", python.label);
        let number = |key: &str| report["quality"][key].as_u64().unwrap();
        // The other thread, at the same moments.
        let (seen, left_out, torn) = (
            number("samples"),
            number("samples_filtered"),
            number("samples_torn") + number("samples_failed"),
        );
        assert!(seen > 0 && seen.abs_diff(left_out) <= torn, "{}: {report}", python.label);
        assert_eq!(report["recording"]["mode"], "exception");
    }
    let python = readable((3, 11), "a program without exceptions").remove(0);
    let target = start(&python, "print('ready', flush=True)\nwhile True:\n    pass\n");
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("a.slip");
    let asked = ["record", "--mode", "exception", "--duration", "0.3", "--pid", &target.pid(), "--output"];
    let ran = run(&[&asked[..], &[file.to_str().unwrap()]].concat());
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert!(ran.stdout.starts_with("No thread raised or handled an exception in any of "), "{}", ran.stdout);
}

#[test]
fn collecting_garbage_is_marked_where_the_interpreter_says_so() {
    for python in readable((3, 11), "marks of garbage collection") {
        let target = start(&python, PROGRAM);
        let says = python.version >= (3, 15);
        for arguments in ["--sampler outside", "--native --sampler outside"] {
            let (stacks, ..) = record(&target, arguments);
            let marked = count(&stacks, |stack| stack.ends_with("collects;<GC>"));
            assert_eq!(marked > 0, says, "{}: {stacks:?}", python.label);
        }
        let (stacks, ..) = record(&target, "--sampler outside --no-gc");
        assert_eq!(count(&stacks, |stack| stack.contains("<GC>")), 0, "{}", python.label);
        assert!(count(&stacks, |stack| stack == "<module>;collects") > 0, "{}: {stacks:?}", python.label);
    }
}

#[test]
fn an_instruction_stands_behind_its_function_and_takes_none_of_its_time() {
    for python in readable((3, 11), "instructions") {
        let target = start(&python, PROGRAM);
        let (stacks, report, said) = record(&target, "--opcodes --no-gc");
        assert!(said.contains("does not see which instruction is executed"), "{said}");
        let is_instruction = |name: &str| {
            let name = name.strip_prefix('[').and_then(|name| name.strip_suffix(']'));
            name.is_some_and(|name| {
                name.bytes().all(|byte| byte.is_ascii_uppercase() || b"_0123456789".contains(&byte))
            })
        };
        let last = |stack: &str| stack.rsplit(';').next().unwrap().to_owned();
        // In 3.11 an instruction may be in the middle of what belongs to it, which is none.
        let is_odd = |stack: &str| last(stack).starts_with('[') && !is_instruction(&last(stack));
        assert_eq!(count(&stacks, is_odd), 0, "{}: {stacks:?}", python.label);
        // Whoever called it: while the target has no CPU it is in the same place of one of them.
        let of_spins = |name: &str| count(&stacks, |stack| stack.contains(&format!(";spins;[{name}")));
        assert!(of_spins("FOR_ITER") > 0 && of_spins("STORE_FAST") > 0, "{}: {stacks:?}", python.label);
        // By function it is as without.
        let functions = report["functions"]["by_own"].as_array().unwrap();
        assert!(functions.iter().all(|function| function["kind"] == "python"), "{report}");
        let spins = functions.iter().find(|function| function["name"] == "spins").unwrap();
        let interval_ns = report["recording"]["interval_ns"].as_u64().unwrap();
        let expected = count(&stacks, |stack| stack.contains("spins;[") || stack.ends_with("spins"));
        assert_eq!(spins["own_ns"].as_u64().unwrap(), expected * interval_ns, "{}", python.label);
        let is_spins =
            |stack: &&Value| stack["frames"].as_array().unwrap().last().unwrap()["name"] == "spins";
        let stack = report["stacks"].as_array().unwrap().iter().find(is_spins).unwrap();
        let of_stack = stack["instructions"].as_array().unwrap().iter();
        let sum: u64 = of_stack.map(|instruction| instruction["wall_ns"].as_u64().unwrap()).sum();
        assert!(sum > 0 && sum <= stack["wall_ns"].as_u64().unwrap(), "{stack}");
    }
}

#[test]
fn children_are_seen_in_the_same_way() {
    let parent = "
import subprocess, sys
child = '''
def key(number):
    for _ in range(40):
        pass
    return number
def sorts():
    try:
        raise ValueError
    except ValueError:
        for _ in range(1_500):
            sorted(range(500), key=key)
sorts()
'''
print('ready', flush=True)
sys.stdin.readline()
for child in [subprocess.Popen([sys.executable, '-c', child]) for _ in range(2)]:
    child.wait()
";
    for python in readable((3, 12), "moments of children") {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a.slip");
        let mut target = start(&python, parent);
        let pid = target.pid();
        let asked = ["--native", "--opcodes", "--mode", "exception", "--children", "--duration", "30"];
        let recorder = Recorder::start(&file, &[&asked[..], &["--pid", &pid]].concat());
        // The recording must have begun.
        crate::harness::wait_for("the file", || file.exists().then_some(()));
        target.go_on();
        let ran = recorder.ends();
        assert_eq!(ran.code, 3, "{}: the target ends before the recording: {}", python.label, ran.stderr);
        let report = run(&["report", file.to_str().unwrap(), "--format", "json"]).json();
        let seen: Vec<&Value> = report["processes"].as_array().unwrap().iter().collect();
        assert_eq!(seen.len(), 2, "{}: {report}", python.label);
        let stacks = folded(&collapsed(&file));
        let expected = count(&stacks, |stack| stack.starts_with("<module>;sorts;<native>;key;["));
        assert!(expected > 0, "{}: {stacks:?}", python.label);
    }
}

#[test]
fn what_does_not_go_together_is_refused() {
    for (option, what) in
        [("--opcodes", "which instruction is executed"), ("--mode exception", "who handles an exception")]
    {
        let words: Vec<&str> = option.split(' ').collect();
        let asked = [&["record", "--sampler", "kernel", "--pid", "1"], &words[..]].concat();
        let ran = run(&asked);
        let expected = format!(
            "error: the kernel does not see {what}\nhint: `{option}` goes with `--sampler outside`\n"
        );
        assert_eq!((ran.code, ran.stderr), (2, expected));
        let ran = run(&[&["record", "--async", "--pid", "1"], &words[..]].concat());
        assert_eq!(ran.code, 2, "{option}: {}", ran.stderr);
    }
    let Some(php) = phps().into_iter().next() else { return };
    let target = Target::start(php.command().args(["-r", "echo \"ready\\n\"; fgets(STDIN);"]));
    for (option, what) in [
        ("--native --sampler outside", "native functions are not seen in stacks of PHP"),
        ("--opcodes", "instructions of PHP are not read"),
        ("--mode exception", "whether PHP handles an exception is not read"),
    ] {
        let words: Vec<&str> = option.split(' ').collect();
        let pid = target.pid();
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a.slip");
        let asked = ["record", "--duration", "0.1", "--pid", &pid, "--output", file.to_str().unwrap()];
        let ran = run(&[&asked[..], &words[..]].concat());
        assert_eq!(ran.code, 2, "{option}: {}", ran.stderr);
        assert!(ran.stderr.contains(what), "{option}: {}", ran.stderr);
        assert!(!file.exists(), "nothing is written");
    }
}
