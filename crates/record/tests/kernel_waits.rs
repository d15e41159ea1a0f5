//! Waits that the kernel sees begin and end: how long, in which function, and what for.

#![allow(clippy::unwrap_used, reason = "what fails here fails the test")]

use std::collections::BTreeMap;
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixListener;
use std::thread;
use std::time::{Duration, Instant};

use slip_model::{FrameKind, Mode, WaitReason};
use slip_probe::ProbeError;
use slip_record::{KernelSampler, OutsideOptions, Sampler, Sink};
use slip_testkit::{Child, Launch, pythons, skip};

/// Waits of each kind.
const TIMES: &str = "10";

/// Longest wait for a target. The machine may be busy with other tests.
const PATIENCE: Duration = Duration::from_secs(60);

/// Time between two looks at what the kernel has told.
const PERIOD: Duration = Duration::from_millis(10);

fn start(mode: Mode) -> Option<KernelSampler> {
    match KernelSampler::start(OutsideOptions { mode, ..OutsideOptions::default() }, 10_000_000) {
        Ok(sampler) => Some(sampler),
        Err(error @ (ProbeError::Denied(_) | ProbeError::NoTypes)) => {
            skip("waits seen by the kernel", &error.to_string());
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// Samples until the target says a line, which is returned.
fn sample_until_line(
    sampler: &mut KernelSampler,
    child: &mut Child,
    elapsed_ns: &dyn Fn() -> u64,
    sink: &mut Sink,
) -> String {
    let end = Instant::now() + PATIENCE;
    loop {
        sampler.sample(elapsed_ns(), sink);
        match child.read_line(PERIOD) {
            Ok(line) => return line,
            Err(error) => assert!(error.kind() == ErrorKind::TimedOut && Instant::now() < end, "{error}"),
        }
    }
}

/// Time by reason of the waits that have this function on their stack.
fn waits_in(sink: &Sink, function: &str) -> BTreeMap<WaitReason, u64> {
    let interner = &sink.interner;
    let mut times = BTreeMap::new();
    for wait in sink.waits() {
        let mut names = interner.frames_of(wait.stack).map(|id| interner.text(interner.frame_at(id).name));
        if names.any(|name| name == function) {
            *times.entry(wait.reason).or_default() += wait.total_ns;
        }
    }
    times
}

/// Time of waits right in functions with this in their name: what was told to be in a function of the kernel with this in its name,
/// what was told to be elsewhere in it, and all. To be ready is not to be there.
fn told_in(sink: &Sink, function: &str, call: &str) -> (u64, u64, u64) {
    let interner = &sink.interner;
    let (mut told_ns, mut elsewhere_ns, mut all_ns) = (0, 0, 0);
    for wait in sink.waits() {
        let frames = interner.frames_of(wait.stack).map(|id| interner.frame_at(id));
        let (inner, outer): (Vec<_>, Vec<_>) = frames.partition(|frame| frame.kind == FrameKind::Kernel);
        if wait.reason == WaitReason::Cpu {
            assert!(inner.is_empty(), "{inner:?}");
        } else if outer.first().is_some_and(|frame| interner.text(frame.name).contains(function)) {
            all_ns += wait.total_ns;
            if inner.iter().any(|frame| interner.text(frame.name).contains(call)) {
                told_ns += wait.total_ns;
            } else if !inner.is_empty() {
                elsewhere_ns += wait.total_ns;
            }
        }
    }
    (told_ns, elsewhere_ns, all_ns)
}

/// Has a program wait, and compares what was seen with what it says itself. Before that it waits in `first` for a line.
/// What the kernel does when it sleeps has `sleep` in its name.
fn check(mut child: Child, label: &str, (first, sleep): (&str, &str), expected: &[(&str, WaitReason)]) {
    let Some(mut sampler) = start(Mode::Offcpu) else { return };
    child.wait_ready().unwrap();
    wait_until_blocked(child.pid());
    let (mut sink, begin) = (Sink::new(), Instant::now());
    let elapsed_ns = || u64::try_from(begin.elapsed().as_nanos()).unwrap();
    sampler.add(child.pid(), 0, &mut sink).unwrap();
    child.send("go").unwrap();
    let line = sample_until_line(&mut sampler, &mut child, &elapsed_ns, &mut sink);
    sampler.finish(elapsed_ns(), &mut sink);
    let truth: BTreeMap<String, u64> = serde_json::from_str(&line).unwrap();
    // It does not know how long it was ready and had no CPU, only the kernel does, over all: the second number.
    let schedstat = std::fs::read_to_string(format!("/proc/{}/schedstat", child.pid())).unwrap();
    let ready_ns: u64 = schedstat.split_whitespace().nth(1).unwrap().parse().unwrap();
    assert_eq!((sink.totals.failed, sink.totals.torn), (0, 0), "{label}");
    for (function, reason) in expected {
        // Some builds cannot make a child.
        let Some(true_ns) = truth.get(*function).copied() else { continue };
        let times = waits_in(&sink, function);
        let is_blocked = |(reason, _): &(&WaitReason, &u64)| **reason != WaitReason::Cpu;
        let blocked_ns: u64 = times.iter().filter(is_blocked).map(|(_, ns)| *ns).sum();
        let about = format!("{label}: {function} of {true_ns} ns: {times:#?}");
        let (least, most) = ((true_ns - true_ns / 50).saturating_sub(ready_ns), true_ns + true_ns / 50);
        assert!((least..=most).contains(&blocked_ns), "at most {ready_ns} ns without a CPU; {about}");
        assert!(times[reason] * 50 > blocked_ns * 49, "{about}");
    }
    // They are long enough to tell where in the kernel they were. Of those whose end some kernels do not tell that is not known.
    let (told_ns, elsewhere_ns, all_ns) = told_in(&sink, "sleep", sleep);
    // It also waits for the interpreter's lock, for a moment.
    let is_told = told_ns * 2 >= all_ns && elsewhere_ns * 50 <= all_ns;
    assert!(is_told, "{label}: sleep {told_ns} and {elsewhere_ns} elsewhere of {all_ns} ns");
    let (_, elsewhere_ns, all_ns) = told_in(&sink, first, "pipe_read");
    assert!(elsewhere_ns * 2 <= all_ns, "{label}: {first} {elsewhere_ns} of {all_ns} ns");
    // This wait was under way when the recording began.
    assert!(waits_in(&sink, first).contains_key(&WaitReason::Pipe), "{label}: {first}");
}

/// Waits until the first thread of process `pid` waits in `read`, which is system call 0.
fn wait_until_blocked(pid: u32) {
    let end = Instant::now() + PATIENCE;
    let call = || std::fs::read_to_string(format!("/proc/{pid}/syscall"));
    while call().is_ok_and(|call| !call.starts_with("0 ")) {
        assert!(Instant::now() < end, "{:?}", call());
        std::thread::yield_now();
    }
}

#[test]
fn python_waits_are_as_long_as_they_were_and_for_what_they_were() {
    let expected = [
        ("sleeps", WaitReason::Sleep),
        ("waits_for_socket", WaitReason::Socket),
        ("waits_for_pipe", WaitReason::Pipe),
        ("waits_for_lock", WaitReason::Lock),
        ("waits_for_page", WaitReason::PageFault),
        ("waits_for_several", WaitReason::Poll),
        ("waits_for_child", WaitReason::Child),
        ("is_stopped", WaitReason::Stopped),
    ];
    for python in pythons().into_iter().filter(|python| python.version >= (3, 8)) {
        let child = Launch::script(&python, "python/waits.py").arg(TIMES).start().unwrap();
        let sleep = if python.version < (3, 11) { "select" } else { "nanosleep" };
        check(child, &python.label, ("<module>", sleep), &expected);
    }
}

#[test]
fn php_waits_are_as_long_as_they_were_and_for_what_they_were() {
    let expected = [
        ("sleeps", WaitReason::Sleep),
        ("waits_for_socket", WaitReason::Socket),
        ("waits_for_child", WaitReason::Child),
    ];
    for php in slip_testkit::phps() {
        let child = Launch::script(&php, "php/bench_waits.php").arg(TIMES).start().unwrap();
        check(child, &php.label, ("fgets", "nanosleep"), &expected);
    }
}

/// How long a server takes to answer, and a client to ask.
const LATE: Duration = Duration::from_millis(20);

/// Answers each question on a connection.
fn answer(mut connection: impl Read + Write) {
    while connection.read_exact(&mut [0]).is_ok() {
        thread::sleep(LATE);
        if connection.write_all(b"!").is_err() {
            return;
        }
    }
}

/// Asks on a connection until the other side has had enough.
fn ask(port: &str) {
    let mut connection = TcpStream::connect(("127.0.0.1", port.parse().unwrap())).unwrap();
    while connection.write_all(b"?").is_ok() && connection.read_exact(&mut [0]).is_ok() {
        thread::sleep(LATE);
    }
}

/// Time of waits for sockets that have this function on their stack, by the server that they are said to be for.
fn servers_in(sink: &Sink, function: &str) -> BTreeMap<Option<String>, u64> {
    let interner = &sink.interner;
    let mut times = BTreeMap::new();
    for wait in sink.waits().iter().filter(|wait| wait.reason == WaitReason::Socket) {
        let frames: Vec<_> = interner.frames_of(wait.stack).map(|id| interner.frame_at(id)).collect();
        if frames.iter().any(|frame| interner.text(frame.name) == function) {
            let server = frames.iter().find(|frame| frame.kind == FrameKind::Server);
            let server = server.map(|frame| interner.text(frame.name).to_owned());
            *times.entry(server).or_default() += wait.total_ns;
        }
    }
    times
}

#[test]
fn the_server_that_is_waited_for_is_told() {
    let launches = pythons().into_iter().filter(|python| python.version >= (3, 8));
    let launches = launches.map(|python| Launch::script(&python, "python/asks.py"));
    let php = slip_testkit::phps().into_iter().map(|php| Launch::script(&php, "php/bench_asks.php"));
    for launch in launches.chain(php) {
        let Some(mut sampler) = start(Mode::Offcpu) else { return };
        let mut child = launch.start().unwrap();
        let own_port = child.wait_ready().unwrap().remove(0);
        let by_port = TcpListener::bind("127.0.0.1:0").unwrap();
        let outside = child.folder_outside().join("server");
        let by_path = UnixListener::bind(&outside).unwrap();
        let (address, path) = (by_port.local_addr().unwrap(), outside.to_str().unwrap().to_owned());
        let inside = child.folder().join("server");
        thread::spawn(move || {
            by_port.incoming().for_each(|connection| {
                thread::spawn(|| answer(connection.unwrap()));
            });
        });
        thread::spawn(move || answer(by_path.accept().unwrap().0));
        thread::spawn(move || ask(&own_port));
        let (mut sink, begin) = (Sink::new(), Instant::now());
        let elapsed_ns = || u64::try_from(begin.elapsed().as_nanos()).unwrap();
        sampler.add(child.pid(), 0, &mut sink).unwrap();
        child.send(&format!("{} {}", address.port(), inside.display())).unwrap();
        assert_eq!(sample_until_line(&mut sampler, &mut child, &elapsed_ns, &mut sink), "done");
        sampler.finish(elapsed_ns(), &mut sink);
        for (function, server) in [
            ("asks_kept", Some(address.to_string())),
            ("asks_anew", Some(address.to_string())),
            ("asks_by_path", Some(path)),
            ("serves", None),
        ] {
            let times = servers_in(&sink, function);
            assert!(times.keys().eq([&server]), "{function}: {times:?}");
            assert!(times[&server] >= 9 * 20_000_000, "{function}: {times:?}");
        }
    }
}
