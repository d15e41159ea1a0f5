//! Who calls for memory in a native program, against what it counts and clocks itself.

#![allow(clippy::unwrap_used, reason = "what fails here fails the test")]

mod budget_support;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::thread;
use std::time::{Duration, Instant};

use slip_model::{MemoryCall, MemoryCalls};
use slip_record::{hold, start_of};
use slip_testkit::{fixtures, skip};

use self::budget_support::{PATIENCE, alone, assert_share, books};

const OPERATIONS: u64 = 2_000;

/// `labs/allocator`, compiled without frame pointers.
fn program(folder: &Path) -> Option<PathBuf> {
    let status = Command::new(fixtures().join("../labs/allocator/build")).arg(folder).status();
    if !status.as_ref().is_ok_and(|status| status.success()) {
        skip("programs of our own", &format!("gcc: {status:?}"));
        return None;
    }
    Some(folder.join("words"))
}

/// Who calls for memory in it, and what it says itself. None where the kernel keeps no books.
fn run(program: &Path, arguments: &[&str]) -> Option<(MemoryCalls, String)> {
    let out = program.with_extension("json");
    let ends = [&OPERATIONS.to_string(), out.to_str().unwrap()];
    let words = [&[program.to_str().unwrap()], arguments, &ends].concat();
    let command: Vec<String> = words.into_iter().map(str::to_owned).collect();
    let mut books = books()?;
    let held = hold(&command).unwrap();
    let name = program.file_name().unwrap().to_str().unwrap();
    books.may_run(held.pid(), start_of(&command), name).unwrap();
    let mut launched = held.release().unwrap();
    let end = Instant::now() + PATIENCE;
    while launched.ended().is_none() {
        assert!(Instant::now() < end, "{command:?} does not end");
        books.look_at_sites();
        thread::sleep(Duration::from_millis(1));
    }
    let (budget, _) = books.take(0, 0).unwrap();
    Some((budget.memory.unwrap(), fs::read_to_string(out).unwrap()))
}

fn number(said: &str, name: &str) -> u64 {
    let (_, rest) = said.split_once(&format!("\"{name}\": ")).unwrap();
    let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().unwrap()
}

#[test]
fn who_maps_and_unmaps_is_told_as_often_and_for_as_long_as_the_program_says() {
    let _alone = alone();
    let folder = tempfile::Builder::new().prefix("slip-native.").tempdir_in("/var/tmp").unwrap();
    let Some(program) = program(folder.path()) else { return };
    let Some((memory, said)) = run(&program, &[]) else { return };
    assert_eq!((memory.lost, number(&said, "maps")), (0, OPERATIONS));
    let ways = [
        (MemoryCall::Mmap, "map_ns", ["map_block", "block_take", "table_open", "count_words", "main"]),
        (MemoryCall::Munmap, "unmap_ns", ["unmap_block", "block_give", "table_close", "count_words", "main"]),
    ];
    for (call, clock, way) in ways {
        let site = memory.sites.iter().find(|site| site.call == call).unwrap();
        let names: Vec<&str> = site.frames.iter().map(|frame| &*frame.function).collect();
        assert_eq!(names[1..6], way, "{names:?}");
        assert_eq!(names.last(), Some(&"_start"), "{names:?}");
        assert!(!site.is_cut && site.frames[1].module == "words", "{site:?}");
        assert_eq!(site.calls, OPERATIONS, "{call:?}");
        assert_share(site.ns, number(&said, clock), 0.8..1.1, call.name());
    }
    // What the program did before `main`, and what its end takes, is not in this.
    assert!(memory.calls(MemoryCall::Fault) < 5_000, "{:?}", memory.sums);
}

/// The way of a page fault into the kernel and back is in it, which no program in the kernel sees: a third of all here.
#[test]
fn memory_that_is_mapped_and_touched_takes_as_long_as_the_program_says() {
    let _alone = alone();
    let folder = tempfile::Builder::new().prefix("slip-native.").tempdir_in("/var/tmp").unwrap();
    let program = folder.path().join("churn");
    let source = fixtures().join("../labs/drags/native/churn.c");
    let status = Command::new("gcc").args(["-O2", "-o"]).args([&program, &source]).status();
    if !status.as_ref().is_ok_and(ExitStatus::success) {
        return skip("programs of our own", &format!("gcc: {status:?}"));
    }
    let Some((memory, said)) = run(&program, &["churn"]) else { return };
    let (_, rest) = said.split_once("\"drag_ms\": ").unwrap();
    let drag_ms: f64 = rest.split(',').next().unwrap().parse().unwrap();
    assert_share(memory.ns(), (drag_ms * 1e6 * OPERATIONS as f64) as u64, 0.7..1.0, "mapped and touched");
}
