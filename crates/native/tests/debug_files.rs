//! Names of functions of a program that was stripped, from what distributions leave of them.

#![allow(clippy::unwrap_used, reason = "what fails here fails the test")]

use std::fs::{self, File};
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::process::Command;

use slip_native::{Elf, readable};
use slip_testkit::{fixtures, skip};

/// Runs a shell with a program of C++ in its folder, `whole`, which has everything; `None` if that or a tool is not to be had.
fn prepared(script: &str) -> Option<tempfile::TempDir> {
    let folder = tempfile::tempdir().unwrap();
    let source = fixtures().join("programs/cpp/inlined.cpp");
    let script = format!("set -e; g++ -g -O2 -o whole {}; {script}", source.display());
    let ran = Command::new("sh").args(["-c", &script]).current_dir(folder.path()).output().unwrap();
    if !ran.status.success() {
        skip("a program of our own", &String::from_utf8_lossy(&ran.stderr));
        return None;
    }
    Some(folder)
}

fn parsed(path: &Path) -> Elf {
    let file = File::open(path).unwrap();
    Elf::parse(&|at, buf| file.read_exact_at(buf, at).is_ok()).unwrap()
}

/// The functions of a program by `nm`: where they begin, where they are half-way, and what they are called.
fn functions(path: &Path) -> Vec<(u64, String)> {
    let listed = Command::new("nm").args(["-S", "--defined-only"]).arg(path).output().unwrap();
    let listed = String::from_utf8(listed.stdout).unwrap();
    let rows = listed.lines().filter_map(|line| {
        let [begin, len, kind, name] = line.split_whitespace().collect::<Vec<_>>().try_into().ok()?;
        let [begin, len] = [begin, len].map(|number| u64::from_str_radix(number, 16).unwrap());
        matches!(kind, "t" | "T" | "w" | "W")
            .then_some([begin, begin + len / 2].map(|at| (at, name.to_owned())))
    });
    rows.flatten().collect()
}

/// How many functions have the name that `nm` says; those at one place have one name.
fn named(elf: &Elf, functions: &[(u64, String)]) -> usize {
    let is_right = |(at, _): &&(u64, String)| {
        let name = elf.function_at(*at);
        functions.iter().any(|(of, known)| of == at && name.as_ref() == Some(&readable(known.as_bytes())))
    };
    functions.iter().filter(is_right).count()
}

#[test]
fn names_are_in_what_a_distribution_has_packed() {
    // As Fedora does: the functions that the dynamic table does not have, without anything else.
    let Some(folder) = prepared(
        "nm -D whole --format=posix --defined-only | cut -d' ' -f1 | sort > exported
        nm whole --format=posix --defined-only | awk '$2 ~ /[TtDd]/ {print $1}' | sort > all
        comm -13 exported all > hidden
        objcopy --only-keep-debug whole debug
        objcopy -S --remove-section .gdb_index --remove-section .comment --keep-symbols=hidden debug mini
        xz mini
        strip -o stripped whole
        objcopy --add-section .gnu_debugdata=mini.xz stripped packed",
    ) else {
        return;
    };
    let path = |name: &str| folder.path().join(name);
    let hidden = fs::read_to_string(path("hidden")).unwrap();
    let is_kept = |(_, name): &(u64, String)| hidden.lines().any(|line| line == name);
    let functions: Vec<(u64, String)> = functions(&path("whole")).into_iter().filter(is_kept).collect();
    assert!(functions.len() > 10, "{functions:?}");
    let found = ["whole", "stripped", "packed"].map(|name| named(&parsed(&path(name)), &functions));
    assert_eq!(found[0], functions.len());
    assert!(found[1] < functions.len() / 2, "{found:?}");
    assert_eq!(found[2], functions.len(), "{functions:?}");
    let names = functions.iter().map(|(_, name)| readable(name.as_bytes()));
    assert_eq!(names.filter(|name| name == "hidden" || name == "shop::Cart::total").count(), 4);
}
