//! Stacks that are copied in the kernel while the target runs: none is impossible, none is missing.

#![allow(clippy::unwrap_used, reason = "what fails here fails the test")]

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::time::{Duration, Instant};

use slip_model::{Interner, Outcome, StackId};
use slip_probe::{BudgetProbe, CopiedStack, Counters, Event, Look, Probe, ProbeError, ProbeOptions, Rung};
use slip_remote::{Copied, LiveProcess, StackPlan};
use slip_testkit::{Launch, skip};

/// Time between two looks at a CPU.
const INTERVAL_NS: u64 = 200_000;

/// Looks at a target, and longest wait for them. The machine may be busy with other tests.
const LOOKS: usize = 1_000;
const PATIENCE: Duration = Duration::from_secs(60);

/// Looks that are named when what they saw has gone.
const LATE: usize = 500;

/// How long ago the kernel may have looked at most, when its events are taken.
const PERIOD: Duration = Duration::from_millis(10);

/// A clock, or `None` where the kernel lets nobody have one.
fn start_clock() -> Option<Probe> {
    start(ProbeOptions {
        interval_ns: Some(INTERVAL_NS),
        waits: false,
        kernel_stacks: true,
        native_stacks: false,
        allocations: false,
    })
}

fn start(options: ProbeOptions) -> Option<Probe> {
    match Probe::start(options) {
        Ok(clock) => Some(clock),
        Err(error @ (ProbeError::Denied(_) | ProbeError::NoTypes)) => {
            skip("stacks copied in the kernel", &error.to_string());
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// Instructions of a program of ours that the verifier may have to look at: a quarter of what it does before it refuses a program. How many it
/// finds to be like others, and skips, differs from kernel to kernel.
const MOST_VERIFIED: u64 = 250_000;

/// Of each program that this process has in the kernel. Linux tells that since 5.16.
fn verified() -> Vec<u64> {
    let files = fs::read_dir("/proc/self/fdinfo").unwrap();
    let texts = files.filter_map(|file| fs::read_to_string(file.unwrap().path()).ok());
    texts
        .filter_map(|text| {
            text.lines().find_map(|line| line.strip_prefix("verified_insns:")?.trim().parse().ok())
        })
        .collect()
}

#[test]
fn the_verifier_is_far_from_giving_up() {
    let options = ProbeOptions {
        interval_ns: Some(INTERVAL_NS),
        waits: true,
        kernel_stacks: true,
        native_stacks: true,
        allocations: true,
    };
    let Some(_clock) = start(options) else { return };
    let Some(_budget) = BudgetProbe::start(Rung::Tracepoints, true).ok() else {
        return skip("what the verifier looks at", "no budget by tracepoints");
    };
    let verified = verified();
    if verified.is_empty() {
        return skip("what the verifier looks at", "this kernel does not tell");
    }
    assert!(verified.iter().all(|count| *count <= MOST_VERIFIED), "{verified:?}");
}

/// What was seen of one target.
#[derive(Debug, Default)]
struct Seen {
    looks: usize,
    /// Memory could not be read, the thread has no state, or the stack was never told.
    failed: usize,
    /// Stacks without a name.
    torn: usize,
    /// How often each stack was seen.
    stacks: BTreeMap<Vec<String>, usize>,
    counters: Counters,
}

/// Watches process `pid` and has `name` name each stack, until there are enough.
fn watch(
    clock: &mut Probe,
    pid: u32,
    plan: &StackPlan,
    mut name: impl FnMut(&Copied<'_>, bool) -> Option<Vec<String>>,
) -> Seen {
    let mut seen = Seen::default();
    let mut known: HashMap<u64, CopiedStack> = HashMap::new();
    let before = clock.counters();
    // What was seen of the target before may still be on its way.
    clock.watch(pid, pid, plan).unwrap();
    let begin = Instant::now();
    while seen.looks < LOOKS {
        assert!(begin.elapsed() < PATIENCE, "{seen:?}");
        let mut is_first = true;
        let _ = clock.wait(PERIOD);
        for event in clock.take().unwrap() {
            let look = match event {
                Event::Stack(stack) => {
                    known.insert(stack.key, stack);
                    continue;
                }
                Event::Look(look) => look,
                Event::KernelStack(_) | Event::Native(_) | Event::Allocated(_) | Event::Freed(_) => continue,
            };
            if look.id != pid {
                continue;
            }
            seen.looks += 1;
            // Their stack in the kernel if they were there, and else none.
            assert_eq!(look.in_kernel && !look.failed, !look.kernel.is_empty(), "{look:?}");
            let Some(copied) = copied(&look, &known) else {
                seen.failed += 1;
                continue;
            };
            match name(&copied, is_first) {
                Some(stack) => *seen.stacks.entry(stack).or_default() += 1,
                None => seen.torn += 1,
            }
            is_first = false;
        }
    }
    clock.forget(pid);
    let after = clock.counters();
    seen.counters = Counters {
        events: after.events - before.events,
        lost: after.lost - before.lost,
        ..Counters::default()
    };
    seen
}

fn copied<'a>(look: &'a Look, known: &'a HashMap<u64, CopiedStack>) -> Option<Copied<'a>> {
    if look.failed || look.is_foreign {
        return None;
    }
    let (addrs, frames): (&[_], &[_]) = match look.key {
        0 => (&[], &[]),
        key => known.get(&key).map(|stack| (&stack.addrs[..], &stack.frames[..]))?,
    };
    Some(Copied {
        thread_state: look.thread_state,
        addrs,
        frames,
        truncated: look.truncated,
        instruction: look.instruction,
        anchor: &look.anchor,
    })
}

/// Takes looks at process `pid` until there are so many.
fn take(
    clock: &mut Probe,
    pid: u32,
    enough: usize,
    known: &mut HashMap<u64, CopiedStack>,
    to: &mut Vec<Look>,
) {
    let begin = Instant::now();
    while to.len() < enough {
        assert!(begin.elapsed() < PATIENCE, "{} looks of {enough}", to.len());
        let _ = clock.wait(PERIOD);
        for event in clock.take().unwrap() {
            match event {
                Event::Stack(stack) => {
                    known.insert(stack.key, stack);
                }
                Event::Look(look) if look.id == pid => to.push(look),
                Event::Look(_)
                | Event::KernelStack(_)
                | Event::Native(_)
                | Event::Allocated(_)
                | Event::Freed(_) => {}
            }
        }
    }
}

/// Names and lines, innermost first.
fn frames(interner: &Interner, stack: StackId) -> Vec<String> {
    let frames = interner.frames_of(stack).map(|id| interner.frame_at(id));
    frames.map(|frame| format!("{}:{}", interner.text(frame.name), frame.line)).collect()
}

/// The line of `program` that holds `text`.
fn line_of(program: &str, text: &str) -> usize {
    let path = slip_testkit::fixtures().join("programs").join(program);
    let source = std::fs::read_to_string(path).unwrap();
    1 + source.lines().position(|line| line.contains(text)).unwrap()
}

/// A frame that waits for the call at this text.
fn at(program: &str, name: &str, text: &str) -> String {
    format!("{name}:{}", line_of(program, text))
}

#[test]
fn python_stacks_are_those_of_one_moment() {
    const PROGRAM: &str = "python/flutter.py";
    let Some(mut clock) = start_clock() else { return };
    let outer = [at(PROGRAM, "main", "path_a()  #"), at(PROGRAM, "main", "path_b()  #")];
    let module = at(PROGRAM, "<module>", "main(*paths)");
    let calls = [
        at(PROGRAM, "plain_a", "return leaf_a()  # calls"),
        at(PROGRAM, "plain_b", "return leaf_b()  # calls"),
    ];
    for python in slip_testkit::pythons().into_iter().filter(|python| python.version >= (3, 8)) {
        let mut child = Launch::script(&python, PROGRAM).arg("plain").start().unwrap();
        child.wait_ready().unwrap();
        let process = LiveProcess::open(child.pid()).unwrap();
        let mut reader = slip_cpython::Interpreter::attach(&process).unwrap();
        let plan = reader.plan(&process).unwrap().unwrap();
        let mut interner = Interner::new();
        let seen = watch(&mut clock, child.pid(), &plan, |copied, is_first| {
            if is_first {
                reader.begin_copied(&process).unwrap();
            }
            let reading =
                reader.name_copied(&process, &mut interner, (copied, Instant::now())).unwrap().unwrap();
            (reading.outcome == Outcome::Clean).then(|| frames(&interner, reading.stack))
        });
        let about = format!("{}: {seen:#?}", python.label);
        assert_eq!((seen.failed, seen.torn, seen.counters.lost), (0, 0, 0), "{about}");
        for stack in seen.stacks.keys() {
            // It is ready before it calls main.
            if stack.len() == 1 && stack[0].starts_with("<module>:") {
                continue;
            }
            // From the outermost frame on; main is at one of its own lines where it is innermost.
            let [inner @ .., main, outermost] = &stack[..] else { panic!("{stack:?} of {about}") };
            assert_eq!(outermost, &module, "{about}");
            let path = outer.iter().position(|line| line == main);
            let is_possible = match (inner, path) {
                ([], _) => main.starts_with("main:"),
                ([function], Some(path)) => function.starts_with(["plain_a:", "plain_b:"][path]),
                ([leaf, function], Some(path)) => {
                    leaf.starts_with(["leaf_a:", "leaf_b:"][path]) && *function == calls[path]
                }
                _ => false,
            };
            assert!(is_possible, "{stack:?} of {about}");
        }
        assert!(seen.stacks.len() >= 5, "{about}");
    }
}

#[test]
fn php_stacks_are_those_of_one_moment() {
    const PROGRAM: &str = "php/bench_flutter.php";
    let Some(mut clock) = start_clock() else { return };
    // Of each function, who calls it and at which line.
    let callers: BTreeMap<&str, Vec<String>> = [
        ("a1", "run", "        a1();"),
        ("a2", "a1", "return a2()"),
        ("a3", "a2", "return a3()"),
        ("leaf", "a3", "leaf(20 "),
        ("b1", "run", "b1($object);"),
        ("b2", "b1", "return b2($b)"),
        ("B::b3", "b2", "$b->b3()"),
        ("B::b4", "B::b3", "self::b4($n)"),
        ("leaf", "B::b4", "leaf($n "),
        // It may not have been told to begin yet.
        ("fgets", "{main}", "fgets(STDIN)"),
        ("hrtime", "run", "$t1 = hrtime"),
        ("hrtime", "run", "$t2 = hrtime"),
        ("hrtime", "run", "$t0 = hrtime"),
        ("hrtime", "{main}", "run(hrtime(true)"),
        ("run", "{main}", "run(hrtime(true)"),
    ]
    .into_iter()
    .fold(BTreeMap::new(), |mut callers: BTreeMap<&str, Vec<String>>, (callee, caller, text)| {
        callers.entry(callee).or_default().push(at(PROGRAM, caller, text));
        callers
    });
    const JIT: [&str; 3] =
        ["-dopcache.jit=tracing", "-dopcache.jit_buffer_size=64M", "-dopcache.file_update_protection=0"];
    let runs = slip_testkit::phps().into_iter().flat_map(|php| {
        let has_jit = php.label.contains("opcache");
        [(php.clone(), &[][..])].into_iter().chain(has_jit.then_some((php, &JIT[..])))
    });
    for (php, options) in runs {
        let launch = Launch::script(&php, PROGRAM).arg("60").arg("1");
        let mut child = options.iter().fold(launch, |launch, option| launch.option(*option)).start().unwrap();
        child.wait_ready().unwrap();
        let process = LiveProcess::open(child.pid()).unwrap();
        let mut code = slip_zend::CodeCache::default();
        let mut engine = slip_zend::Engine::attach(&process, &mut code).unwrap();
        let mut interner = Interner::new();
        let (mut live_lines, mut compiled) = (0, 0);
        child.send("go").unwrap();
        let seen = watch(&mut clock, child.pid(), &engine.plan(), |copied, _| {
            let mut reading = slip_zend::PhpReading::default();
            let options = slip_zend::SampleOptions::default();
            // Not later than that.
            let at = Instant::now() - PERIOD;
            engine
                .name_copied(&process, &mut interner, &mut code, &options, (copied, at), &mut reading)
                .unwrap();
            let in_compiled = copied.instruction.is_some_and(slip_remote::RemoteAddr::is_null);
            live_lines += usize::from(copied.instruction.is_some());
            compiled += usize::from(in_compiled);
            if in_compiled && let Some(innermost) = frames(&interner, reading.stack.stack).first() {
                assert!(innermost.ends_with(":0"), "{innermost} in compiled code, {}", php.label);
            }
            (reading.stack.outcome == Outcome::Clean).then(|| frames(&interner, reading.stack.stack))
        });
        let about = format!(
            "{} {options:?}: {live_lines} live lines, {compiled} in compiled code, {seen:#?}",
            php.label
        );
        assert_eq!((seen.failed, seen.counters.lost), (0, 0), "{about}");
        assert_eq!(seen.torn, 0, "{about}");
        assert!(live_lines * 2 > seen.looks, "{about}");
        assert_eq!(compiled * 4 > seen.looks, !options.is_empty(), "{about}");
        for stack in seen.stacks.keys() {
            for pair in stack.windows(2) {
                let callee = pair[0].rsplit_once(':').unwrap().0;
                let callers = callers.get(callee).map_or(&[][..], |callers| &callers[..]);
                assert!(callers.contains(&pair[1]), "{pair:?} in {stack:?} of {about}");
            }
            assert!(
                stack.last().is_none_or(|outermost| outermost.starts_with("{main}:")),
                "{stack:?} of {about}"
            );
        }
        assert!(seen.stacks.len() >= 8, "{about}");
    }
}

#[test]
fn included_code_is_named_after_its_copy_has_gone() {
    let Some(mut clock) = start_clock() else { return };
    for php in slip_testkit::phps().into_iter().filter(|php| php.label.contains("opcache")) {
        let launch =
            Launch::script(&php, "php/bench_include.php").option("-dopcache.file_update_protection=0");
        let mut child = launch.start().unwrap();
        child.wait_ready().unwrap();
        let process = LiveProcess::open(child.pid()).unwrap();
        let mut code = slip_zend::CodeCache::default();
        let mut engine = slip_zend::Engine::attach(&process, &mut code).unwrap();
        let mut interner = Interner::new();
        let mut known = HashMap::new();
        clock.watch(child.pid(), child.pid(), &engine.plan()).unwrap();
        let mut name = |looks: Vec<Look>, known: &HashMap<u64, CopiedStack>| {
            let mut stacks: BTreeMap<Vec<String>, usize> = BTreeMap::new();
            for look in looks {
                let copied = copied(&look, known).unwrap();
                let mut reading = slip_zend::PhpReading::default();
                let (options, at) = (slip_zend::SampleOptions::default(), Instant::now());
                engine
                    .name_copied(&process, &mut interner, &mut code, &options, (&copied, at), &mut reading)
                    .unwrap();
                // For a moment the engine may have a frame of its own, without an instruction, that is linked to nobody.
                if look.depth == 1 && copied.frames[..8] == [0; 8] {
                    assert_eq!(reading.stack.outcome, Outcome::Torn, "{look:?} of {}", php.label);
                    continue;
                }
                assert_eq!(reading.stack.outcome, Outcome::Clean, "{look:?} of {}", php.label);
                *stacks.entry(frames(&interner, reading.stack.stack)).or_default() += 1;
            }
            stacks
        };
        child.send("go").unwrap();
        let mut live = Vec::new();
        take(&mut clock, child.pid(), 50, &mut known, &mut live);
        let live = name(live, &known);
        child.send("again").unwrap();
        let mut late = Vec::new();
        // What was under way when the line was sent may be of the first time.
        take(&mut clock, child.pid(), LATE, &mut known, &mut late);
        child.send("over").unwrap();
        assert_eq!(child.read_line(PATIENCE).unwrap(), "over");
        clock.forget(child.pid());
        let late = name(late, &known);
        let about = format!("{}: first {live:#?}, then {late:#?}", php.label);
        let including = |stack: &[String]| {
            stack
                .iter()
                .rposition(|frame| frame.starts_with("include:"))
                .is_none_or(|at| at + 2 == stack.len())
                && stack.last().is_some_and(|frame| frame.starts_with("{main}:"))
        };
        assert!(late.keys().all(|stack| including(stack)), "{about}");
        let inner = |stack: &Vec<String>| stack[0].starts_with("include:");
        let through = |stack: &Vec<String>| stack.len() == 3 && stack[1].starts_with("include:");
        assert!(late.keys().any(inner) && late.keys().any(through), "{about}");
    }
}
