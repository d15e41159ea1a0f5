//! Names of functions of a program that was stripped, from what distributions leave of them.

#![allow(clippy::unwrap_used, reason = "what fails here fails the test")]

use std::fs::{self, File};
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::process::Command;

use slip_native::{DebugInfo, Elf, common_link, readable};
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

/// Functions with file and line at an address, the innermost first.
type Source = Vec<(String, String, u32)>;

/// What `addr2line` of the binutils says of addresses.
fn by_binutils(path: &Path, addrs: &[u64]) -> Vec<Source> {
    let mut found: Vec<Source> = Vec::new();
    let input = path.with_extension("addresses");
    fs::write(&input, addrs.iter().map(|addr| format!("{addr:#x}\n")).collect::<String>()).unwrap();
    let mut command = Command::new("addr2line");
    command.args(["-a", "-f", "-i", "-e"]).arg(path).stdin(File::open(input).unwrap());
    let said = String::from_utf8(command.output().unwrap().stdout).unwrap();
    let mut lines = said.lines();
    while let Some(line) = lines.next() {
        if line.starts_with("0x") {
            found.push(Source::new());
            continue;
        }
        let place = lines.next().unwrap().split(" (").next().unwrap();
        let (file, number) = place.rsplit_once(':').unwrap();
        found.last_mut().unwrap().push((
            readable(line.as_bytes()),
            file.to_owned(),
            number.parse().unwrap_or(0),
        ));
    }
    found
}

fn by_us(info: &DebugInfo, addr: u64) -> Source {
    let frames = info.frames_at(addr).into_iter().rev();
    frames.map(|frame| (frame.function, frame.file, frame.line)).collect()
}

/// Compares what both say of all addresses of functions, `step` apart. Of symbols, the binutils take the innermost function's name, which is that
/// of the outermost one: they look into a file without any.
fn compare(path: &Path, nameless: &Path, step: usize, with_files: bool) {
    let file = File::open(path).unwrap();
    let read = |at, buf: &mut [u8]| file.read_exact_at(buf, at).is_ok();
    let common = common_link(&read).map(|link| File::open(link.path).unwrap());
    let common = common.as_ref().map(|common| |at, buf: &mut [u8]| common.read_exact_at(buf, at).is_ok());
    let info = DebugInfo::read(&read, common.as_ref().map(|read| read as _)).unwrap();
    let mut addrs: Vec<u64> =
        functions(path).chunks(2).flat_map(|pair| pair[0].0..2 * pair[1].0 - pair[0].0).collect();
    addrs.sort_unstable();
    addrs.dedup();
    let addrs: Vec<u64> = addrs.into_iter().step_by(step).collect();
    let theirs = by_binutils(nameless, &addrs);
    let (mut compared, mut inlined, mut equal, mut examples) = (0, 0, 0, Vec::new());
    for (addr, theirs) in addrs.iter().zip(theirs) {
        // What was not compiled with `-g`.
        if theirs.iter().any(|(_, file, _)| file == "??") {
            continue;
        }
        compared += 1;
        inlined += usize::from(theirs.len() > 1);
        let plain = |mut source: Source| {
            source.iter_mut().filter(|_| !with_files).for_each(|(_, file, _)| file.clear());
            source
        };
        let (ours, theirs) = (plain(by_us(&info, *addr)), plain(theirs));
        equal += usize::from(ours == theirs);
        if ours != theirs && examples.len() < 4 {
            examples.push(format!("{addr:#x}: ours {ours:?}, theirs {theirs:?}"));
        }
    }
    assert!(compared > 100 && inlined > 20, "{compared} of {}, {inlined}", addrs.len());
    assert_eq!(equal, compared, "{examples:#?}");
}

#[test]
fn inlined_functions_and_lines_are_those_that_the_binutils_find() {
    for format in ["-gdwarf-5", "-gdwarf-4", "-gdwarf-5 -gz=zlib"] {
        let source = fixtures().join("programs/cpp/inlined.cpp");
        let Some(folder) = prepared(&format!(
            "g++ {format} -O2 -o other {}; objcopy -w --strip-symbol='*' other nameless",
            source.display()
        )) else {
            return;
        };
        compare(&folder.path().join("other"), &folder.path().join("nameless"), 5, true);
    }
}

#[test]
fn inlined_functions_are_found_in_what_several_files_have_in_common() {
    // As Debian does: of two programs and more, what they have in common is in a third file. The binutils do not read all of that, so they look into
    // the program of before, which has the same code.
    let Some(folder) = prepared(
        "cp whole other; cp whole third; dwz -m \"$PWD/common\" other third; objcopy -w --strip-symbol='*' whole nameless",
    ) else {
        return;
    };
    assert!(folder.path().join("common").exists());
    compare(&folder.path().join("other"), &folder.path().join("nameless"), 5, true);
}

#[test]
fn inlined_functions_of_the_c_library_are_those_that_the_binutils_find() {
    let elf = parsed(Path::new("/lib/x86_64-linux-gnu/libc.so.6"));
    let build_id = elf.debug_file().unwrap().build_id;
    let hex: String = build_id.iter().map(|byte| format!("{byte:02x}")).collect();
    let debug = format!("/usr/lib/debug/.build-id/{}/{}.debug", &hex[..2], &hex[2..]);
    let folder = tempfile::tempdir().unwrap();
    let nameless = folder.path().join("nameless");
    let made = Command::new("objcopy")
        .args(["-w", "--decompress-debug-sections", "--strip-symbol=*", &debug])
        .arg(&nameless)
        .output();
    if !made.is_ok_and(|made| made.status.success()) {
        return skip("the C library's debug file", "it is not installed");
    }
    // The binutils take files of this format for those beside them: `sysdeps/x86_64/l10nflist.c`, where there is none.
    compare(Path::new(&debug), &nameless, 397, false);
}
