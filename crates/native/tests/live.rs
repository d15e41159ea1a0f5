//! Walks the stack of a program that blocks at a place that is known, and was compiled without frame pointers.

#![allow(clippy::unwrap_used, reason = "what fails here fails the test")]

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::FileExt as _;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use slip_native::{Code, Elf, End, Mapped, Registers, Stack, unwind};
use slip_remote::{Mapping, open_mapped, parse_maps};
use slip_testkit::{fixtures, skip};

const PATIENCE: Duration = Duration::from_secs(30);

struct Modules(Vec<(Mapping, Option<(Elf, u64)>)>);

impl Modules {
    fn of(pid: u32) -> Self {
        let maps = parse_maps(&fs::read_to_string(format!("/proc/{pid}/maps")).unwrap());
        let code = maps.into_iter().filter(|mapping| mapping.executable).map(|mapping| {
            let elf = open_mapped(pid, &mapping).and_then(|(file, _)| {
                let elf = Elf::parse(&|at, buf| file.read_exact_at(buf, at).is_ok())?;
                let bias = elf.bias(mapping.start, mapping.file_offset)?;
                Some((elf, bias))
            });
            (mapping, elf)
        });
        Self(code.collect())
    }

    fn name(&self, addr: u64) -> String {
        match self.at(addr) {
            Some(Mapped::File { elf, bias }) => elf.function_at(addr.wrapping_sub(bias)).unwrap_or_default(),
            _ => String::new(),
        }
    }
}

impl Code for Modules {
    fn at(&self, addr: u64) -> Option<Mapped<'_>> {
        let (_, file) = self.0.iter().find(|(mapping, _)| (mapping.start..mapping.end).contains(&addr))?;
        Some(file.as_ref().map_or(Mapped::Bare, |(elf, bias)| Mapped::File { elf, bias: *bias }))
    }
}

/// A program, killed at the end.
struct Blocked(Child);

impl Drop for Blocked {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The instruction and the stack pointer of a program that blocks in a system call of this number.
fn place(pid: u32, number: &str) -> (u64, u64) {
    let end = Instant::now() + PATIENCE;
    loop {
        let call = fs::read_to_string(format!("/proc/{pid}/syscall")).unwrap();
        let mut words = call.split_whitespace();
        if words.next() == Some(number) {
            let mut hex = words.rev().map(|word| u64::from_str_radix(&word[2..], 16).unwrap());
            return (hex.next().unwrap(), hex.next().unwrap());
        }
        assert!(Instant::now() < end, "it does not block: {call}");
        thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_stack_without_frame_pointers_is_walked_from_the_system_call_to_the_begin() {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("deep");
    let mut gcc = Command::new("gcc");
    gcc.args(["-O2", "-fomit-frame-pointer", "-o"]).arg(&program).arg(fixtures().join("programs/c/deep.c"));
    if !gcc.status().is_ok_and(|status| status.success()) {
        skip("a program of our own", "gcc does not compile it");
        return;
    }
    let child = Command::new(&program).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut child = Blocked(child);
    let pid = child.0.id();
    let mut line = String::new();
    BufReader::new(child.0.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let (ip, sp) = place(pid, "0");
    let modules = Modules::of(pid);
    let maps = parse_maps(&fs::read_to_string(format!("/proc/{pid}/maps")).unwrap());
    let stack = maps.iter().find(|mapping| (mapping.start..mapping.end).contains(&sp)).unwrap();
    let mut bytes = vec![0; usize::try_from(stack.end - sp).unwrap()];
    File::open(format!("/proc/{pid}/mem")).unwrap().read_exact_at(&mut bytes, sp).unwrap();
    let registers = Registers { ip, sp, ..Registers::default() };
    let walk = unwind(&modules, &registers, &Stack { begin: sp, bytes: &bytes });
    let names: Vec<String> = walk.addrs.iter().map(|addr| modules.name(*addr)).collect();
    assert_eq!(walk.end, End::Outermost, "{names:?}");
    assert_eq!(names[..6], ["read", "wait_here", "inner", "middle", "outer", "main"]);
    assert_eq!(names.last().map(String::as_str), Some("_start"));
    // A copy that ends before is cut where it does.
    let short = Stack { begin: sp, bytes: &bytes[..256] };
    let walk = unwind(&modules, &registers, &short);
    let cut: Vec<String> = walk.addrs.iter().map(|addr| modules.name(*addr)).collect();
    assert_eq!((cut, walk.end), (names[..4].to_vec(), End::Cut));
}
