//! Programs that run while they are read: what is innermost is what takes the time.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod common;

use std::cell::Cell;
use std::time::{Duration, Instant};

use common::{PATIENCE, Watch};
use slip_model::Outcome;
use slip_remote::{LiveProcess, Memory, Range, ReadError, RemoteAddr};
use slip_testkit::{Launch, phps};

/// A target whose reader loses the CPU before one system call in seven, for as long as `lost`.
struct Preempted<'a> {
    target: &'a LiveProcess,
    lost: Duration,
    calls: Cell<u32>,
}

impl Preempted<'_> {
    fn lose_cpu(&self) {
        self.calls.set(self.calls.get() + 1);
        if self.calls.get().is_multiple_of(7) {
            std::thread::sleep(self.lost);
        }
    }
}

impl Memory for Preempted<'_> {
    fn read(&self, addr: RemoteAddr, buf: &mut [u8]) -> Result<(), ReadError> {
        self.lose_cpu();
        self.target.read(addr, buf)
    }

    fn read_ranges(&self, ranges: &[Range], buf: &mut [u8]) -> Result<usize, ReadError> {
        self.lose_cpu();
        self.target.read_ranges(ranges, buf)
    }
}

/// Names of the three innermost frames of `count` samples of a program that runs until it is killed.
fn innermost(text: &str, count: usize) -> Vec<(String, Vec<[String; 3]>)> {
    innermost_seen_by(text, count, Duration::ZERO)
}

/// The same, seen by one who loses the CPU for so long now and then.
fn innermost_seen_by(text: &str, count: usize, lost: Duration) -> Vec<(String, Vec<[String; 3]>)> {
    let phps = phps();
    assert!(!phps.is_empty(), "no PHP on this machine");
    let mut all = Vec::new();
    for php in phps {
        let mut child = Launch::text(&php, "busy.php", text)
            .option("-dopcache.file_update_protection=0")
            .start()
            .unwrap();
        child.wait_ready().unwrap();
        let target = LiveProcess::open(child.pid()).unwrap();
        let mut watch = Watch::attach(&target);
        let (mut seen, mut turn) = (Vec::new(), 0);
        let end = Instant::now() + PATIENCE;
        while seen.len() < count && Instant::now() < end {
            std::thread::sleep(Duration::from_micros(700));
            if lost.is_zero() {
                watch.sample(&target);
            } else {
                watch.sample(&Preempted { target: &target, lost, calls: Cell::new(turn) });
            }
            turn += 1;
            if watch.reading.stack.outcome != Outcome::Torn {
                let frames = watch.frames();
                seen.push(
                    [0, 1, 2].map(|at| frames.get(at).map(|frame| frame.name.clone()).unwrap_or_default()),
                );
            }
        }
        all.push((php.label.clone(), seen));
    }
    all
}

#[test]
fn a_function_without_a_frame_is_shown_while_it_runs() {
    // Since 8.4, str_replace is called without a frame, and takes nearly all the time here.
    let text = "<?php
function replaces(string $text): int {
    $copy = str_replace('b', 'cc', $text);
    return strlen($copy);
}
echo \"ready\\n\";
$text = str_repeat('ab', 50000);
while (true) replaces($text);
";
    for (php, seen) in innermost(text, 400) {
        let in_it = seen.iter().filter(|names| names[..2] == ["str_replace", "replaces"]).count();
        assert!(in_it > 300, "{php}: {in_it} of {}", seen.len());
    }
}

#[test]
fn a_function_without_a_frame_is_not_shown_when_it_is_over() {
    let text = "<?php
function loops(string $text): int {
    $sum = 0;
    $copy = str_replace('b', 'cc', $text);
    for ($i = 0; $i < 20000; $i++) { $sum = $sum * 3 + $i & 255; }
    return $sum + strlen($copy);
}
echo \"ready\\n\";
while (true) loops('abab');
";
    for (php, seen) in innermost(text, 400) {
        let in_loop = seen.iter().filter(|names| names[0] == "loops").count();
        assert!(in_loop > 380, "{php}: {in_loop} of {}", seen.len());
    }
}

#[test]
fn only_a_fiber_that_is_destroyed_is_shown_without_who_resumed_it() {
    // A fiber is linked to nobody while it is destroyed, and for a moment whenever it suspends itself.
    let text = "<?php
function closes(bool $long): void { if ($long) usleep(300); }
function body(bool $long): void {
    $text = str_repeat('x', 20000);
    try {
        while (true) { strrev($text); Fiber::suspend(); }
    } finally {
        closes($long);
    }
}
function resumes(bool $long): void {
    $fiber = new Fiber('body');
    $fiber->start($long);
    for ($i = 0; $i < 5; $i++) $fiber->resume();
}
echo \"ready\\n\";
for ($i = 0; true; $i++) resumes($i % 100 === 0);
";
    for (php, seen) in innermost(text, 600) {
        let (mut working, mut closing) = (0, 0);
        for names in &seen {
            match names.each_ref().map(String::as_str) {
                ["usleep", "closes", "body"] => closing += 1,
                ["strrev", "body", next] => {
                    assert!(next.starts_with("Fiber::"), "{php}: {names:?}");
                    working += 1;
                }
                _ => {}
            }
        }
        assert!(working > 10 && closing > 10, "{php}: {working}, {closing}");
    }
}

/// Looks at closures that are bound to one class after another, by one who loses the CPU for so long now and then.
#[track_caller]
fn closures_are_of_their_class(lost: Duration) {
    // Both lie at the same address, one after the other, and have the same code.
    let text = "<?php
class A {}
class B {}
function in_a(Closure $f): void { $f(); }
function in_b(Closure $f): void { $f(); }
echo \"ready\\n\";
$f = function (): void { usleep(200); };
while (true) {
    $bound = Closure::bind($f, null, A::class);
    in_a($bound);
    unset($bound);
    $bound = Closure::bind($f, null, B::class);
    in_b($bound);
    unset($bound);
}
";
    for (php, seen) in innermost_seen_by(text, 400, lost) {
        let mut both = [0; 2];
        for names in &seen {
            for (class, caller, count) in [("A::{closure", "in_a", 0), ("B::{closure", "in_b", 1)] {
                if names[1].contains("{closure") && names[2] == caller {
                    assert!(names[1].starts_with(class), "{php}: {names:?}");
                    both[count] += 1;
                }
            }
        }
        assert!(both.iter().all(|count| *count > 50), "{php}: {both:?}");
    }
}

#[test]
fn a_closure_is_of_the_class_that_it_is_bound_to_now() {
    closures_are_of_their_class(Duration::ZERO);
}

#[test]
fn a_closure_is_of_its_class_where_the_cpu_is_lost() {
    // As long as it takes until the other closure has been called, and a moment less.
    closures_are_of_their_class(Duration::from_micros(250));
}
