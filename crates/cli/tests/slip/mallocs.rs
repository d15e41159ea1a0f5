//! `slip malloc` and `slip run`: real programs with the allocator and without it.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use crate::harness::{Ran, Target, WAITING, copy_program, python, root_or_skip, run, slip};

/// The library, built from `alloc/`.
pub(crate) fn library() -> &'static Path {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    LIBRARY.get_or_init(|| {
        let compile = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../alloc/compile");
        let ran = Ran::from(Command::new(compile).output().unwrap());
        assert_eq!(ran.code, 0, "{}", ran.stderr);
        PathBuf::from(ran.stdout.lines().next().unwrap())
    })
}

/// `slip run --malloc`, which finds the library by its variable.
pub(crate) fn run_with_malloc() -> Command {
    let mut command = Command::new(slip());
    command.args(["run", "--malloc", "--"]).env("SLIP_MALLOC_LIB", library());
    command
}

/// A program in C, built in `folder`.
fn build(folder: &Path, name: &str, text: &str, options: &[&str]) -> PathBuf {
    let (source, program) = (folder.join(format!("{name}.c")), folder.join(name));
    fs::write(&source, text).unwrap();
    let mut gcc = Command::new("gcc");
    gcc.args(["-std=gnu11", "-w", "-O1", "-fno-builtin"]).args(options);
    let ran = Ran::from(gcc.arg(&source).arg("-o").arg(&program).output().unwrap());
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    program
}

const READY: &str = "#include <stdio.h>\n#include <unistd.h>\n
static int wait_for_line(void) { char byte; write(1, \"ready\\n\", 6); return read(0, &byte, 1) < 0; }\n";

fn waiting() -> String {
    format!("{READY}int main(void) {{ return wait_for_line(); }}\n")
}

/// Started as a user does it without our help.
fn preloaded(program: &Path) -> Target {
    Target::start(Command::new(program).env("LD_PRELOAD", library()))
}

#[track_caller]
fn is_not_in_use(target: &Target, why: &str, hint: &str) {
    for verb in ["check", "stats"] {
        let ran = run(&["malloc", verb, "--pid", &target.pid()]);
        assert_eq!((ran.code, &*ran.stdout), (1, ""), "{verb}: {}", ran.stderr);
        let begin = format!("error: process {} (", target.pid());
        assert!(ran.stderr.starts_with(&begin), "{}", ran.stderr);
        assert!(ran.stderr.contains(&format!(") does not use libslipmalloc: {why}")), "{}", ran.stderr);
        assert!(ran.stderr.contains(&format!("\nhint: {hint}")), "{}", ran.stderr);
    }
}

#[test]
fn a_program_that_was_run_with_it_has_counters() {
    let text = format!("blocks = [bytes(100) for _ in range(20000)]; large = bytes(5_000_000)\n{WAITING}");
    let target =
        Target::start(run_with_malloc().env("PYTHONMALLOC", "malloc").arg(python()).args(["-c", &text]));
    let pid = target.pid();
    let ran = run(&["malloc", "check", "--pid", &pid]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert!(
        ran.stdout.starts_with(&format!("ok      {pid} python3.11: libslipmalloc is in use: ")),
        "{}",
        ran.stdout
    );

    let ran = run(&["malloc", "stats", "--pid", &pid, "--format", "json"]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    let document = ran.json();
    assert_eq!((&document["schema"], &document["processes_without"]), (&"slip.malloc/1".into(), &0.into()));
    let process = &document["processes"][0];
    let number = |key: &str| process[key].as_u64().unwrap();
    // 100 bytes and Python's head of 33.
    let class =
        process["classes"].as_array().unwrap().iter().find(|class| class["block_bytes"] == 144).unwrap();
    assert!(class["blocks"].as_u64().unwrap() >= 20_000 && class["slabs"].as_u64().unwrap() >= 44, "{class}");
    assert!(class["refills_from_slabs"].as_u64().unwrap() >= 160, "{class}");
    assert!(number("large_bytes") >= 5_000_000 && number("large_blocks") >= 1, "{process}");
    assert!(
        number("small_bytes") >= 20_000 * 144 && number("small_bytes") <= number("slab_bytes"),
        "{process}"
    );
    assert_eq!((number("caches"), number("forks"), number("failures")), (1, 0, 0), "{process}");
    assert_eq!(process["decay_ms"], 1_000);

    let ran = run(&["malloc", "stats", "--pid", &pid]);
    assert!(
        ran.stdout.starts_with(&format!("process {pid} (python3.11)\n  blocks up to 32 KiB")),
        "{}",
        ran.stdout
    );
    assert!(ran.stdout.contains("  fallbacks               none\n"), "{}", ran.stdout);
    assert!(ran.stdout.lines().any(|line| line.starts_with("      144 ")), "{}", ran.stdout);
}

#[test]
fn forked_children_have_counters_of_their_own() {
    let text = format!("import os, sys\nif os.fork() == 0: sys.stdin.readline(); os._exit(0)\n{WAITING}");
    let target = Target::start(run_with_malloc().arg(python()).args(["-c", &text]));
    let ran = run(&["malloc", "stats", "--pid", &target.pid(), "--children", "--format", "json"]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    let document = ran.json();
    let mut forks: Vec<u64> = document["processes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|process| process["forks"].as_u64().unwrap())
        .collect();
    forks.sort_unstable();
    assert_eq!(forks, [0, 1]);
}

#[test]
fn status_and_signals_are_the_command_s() {
    let status = |script: &str| run_with_malloc().args(["sh", "-c", script]).status().unwrap();
    assert_eq!(status("exit 7").code(), Some(7));
    assert_eq!(status("kill -TERM $$").signal(), Some(15));
    // What was preloaded before comes behind.
    let libc = "/lib/x86_64-linux-gnu/libc.so.6";
    let output =
        run_with_malloc().env("LD_PRELOAD", libc).args(["sh", "-c", "echo $LD_PRELOAD"]).output().unwrap();
    assert_eq!(Ran::from(output).stdout, format!("{}:{libc}\n", library().display()));
}

#[test]
fn other_builds_say_so() {
    let folder = tempfile::tempdir().unwrap();
    // As they are installed: the command in bin, the libraries in lib/slipstream.
    let (bin, lib) = (folder.path().join("bin"), folder.path().join("lib/slipstream"));
    fs::create_dir_all(&bin).unwrap();
    fs::create_dir_all(&lib).unwrap();
    copy_program(&slip(), &bin.join("slip"));
    let command = ["--", python().to_str().unwrap(), "-c", WAITING].map(str::to_owned);
    for build in ["secure", "debug"] {
        let name = format!("libslipmalloc-{build}.so");
        fs::copy(library().with_file_name(&name), lib.join(&name)).unwrap();
        let option = format!("--{build}");
        let target =
            Target::start(Command::new(bin.join("slip")).args(["run", "--malloc", &option]).args(&command));
        let ran = run(&["malloc", "stats", "--pid", &target.pid(), "--format", "json"]);
        assert_eq!((ran.code, &ran.json()["processes"][0][build]), (0, &true.into()), "{}", ran.stderr);
    }

    let output = Command::new(bin.join("slip")).args(["run", "--malloc"]).args(&command).output().unwrap();
    let ran = Ran::from(output);
    assert_eq!(ran.code, 7);
    let looked =
        format!("`{}`, `{}`", bin.join("libslipmalloc.so").display(), lib.join("libslipmalloc.so").display());
    let hint = "hint: `make install` installs it; SLIP_MALLOC_LIB may name it elsewhere\n";
    assert_eq!(ran.stderr, format!("error: no libslipmalloc.so: looked for {looked}\n{hint}"));
}

#[test]
fn what_cannot_be_run_is_said() {
    let said = |program: &str, library: &Path| {
        let mut command = Command::new(slip());
        command.args(["run", "--malloc", "--", program]).env("SLIP_MALLOC_LIB", library);
        Ran::from(command.output().unwrap())
    };
    let ran = said("/no/such/program", library());
    assert_eq!((ran.code, &*ran.stderr), (3, "error: no program `/no/such/program`\n"));
    let ran = said("/etc/passwd", library());
    assert_eq!((ran.code, &*ran.stderr), (5, "error: not permitted to execute `/etc/passwd`\n"));
    let ran = said("true", Path::new("/no/such/library"));
    assert_eq!(ran.code, 7);
    assert!(ran.stderr.contains("hint: SLIP_MALLOC_LIB names it: correct or unset it"), "{}", ran.stderr);

    let folder = tempfile::tempdir().unwrap();
    let program = build(folder.path(), "static", &waiting(), &["-static"]);
    let ran = said(program.to_str().unwrap(), library());
    assert_eq!(ran.code, 4);
    assert!(ran.stderr.contains("the program is statically linked"), "{}", ran.stderr);
    let blank = folder.path().join("a b.so");
    fs::copy(library(), &blank).unwrap();
    let ran = said("true", &blank);
    assert_eq!(ran.code, 4);
    assert!(ran.stderr.contains("blanks and colons"), "{}", ran.stderr);
    assert_eq!(run(&["run", "--", "true"]).code, 2);
}

#[test]
fn why_it_is_not_in_use() {
    let folder = tempfile::tempdir().unwrap();
    let plain = build(folder.path(), "plain", &waiting(), &[]);
    is_not_in_use(
        &Target::start(&mut Command::new(&plain)),
        "it was not preloaded",
        "start it with `slip run",
    );

    let missing =
        Target::start(Command::new(&plain).env("LD_PRELOAD", "/no/libslipmalloc.so").stderr(Stdio::null()));
    let why = "LD_PRELOAD names `/no/libslipmalloc.so`, and the process sees no such file";
    is_not_in_use(&missing, why, "in a container or a chroot");

    let broken = folder.path().join("libslipmalloc.so");
    fs::write(&broken, "no library").unwrap();
    let broken = Target::start(Command::new(&plain).env("LD_PRELOAD", &broken).stderr(Stdio::null()));
    is_not_in_use(&broken, "LD_PRELOAD names `", "it says why at start");

    let linked = build(folder.path(), "static", &waiting(), &["-static"]);
    is_not_in_use(&preloaded(&linked), "the program is statically linked", "build it without");

    let own = "static char all[1 << 20]; static unsigned long at;
        void *malloc(unsigned long bytes) { void *block = all + at; at += bytes + 15 & ~15ul; return block; }
        void free(void *block) {} void *realloc(void *block, unsigned long bytes) { return malloc(bytes); }
        void *calloc(unsigned long count, unsigned long bytes) { return malloc(count * bytes); }\n";
    let own = build(folder.path(), "own", &(own.to_owned() + &waiting()), &[]);
    is_not_in_use(
        &preloaded(&own),
        "it is mapped, but nothing was taken from it: the program has",
        "build the program",
    );
}

#[test]
fn a_program_that_gets_rights_is_told() {
    if !root_or_skip("a_program_that_gets_rights_is_told") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let program = build(folder.path(), "program", &waiting(), &[]);
    std::os::unix::fs::chown(&program, Some(65_534), Some(65_534)).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o4755)).unwrap();
    is_not_in_use(&preloaded(&program), "the program gets rights", "start it as the user");
    let ran = Ran::from(run_with_malloc().arg(&program).output().unwrap());
    assert_eq!(ran.code, 4);
    assert!(ran.stderr.contains("the program gets rights"), "{}", ran.stderr);
}

#[test]
fn a_page_that_lies_is_believed_no_further_than_its_numbers() {
    let folder = tempfile::tempdir().unwrap();
    let text = format!(
        "#include <stdlib.h>\n#include <string.h>\n#include <sys/mman.h>\n{READY}
        int main(int count, char **arguments) {{
            char *guard = mmap(0, 8192, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), *page = guard + 4096;
            mprotect(page, 4096, PROT_READ | PROT_WRITE);
            memset(page, 0xff, 4096);
            memcpy(page, \"slipheap\", 8);
            *(unsigned *)(page + 8) = atoi(arguments[1]);
            *(unsigned *)(page + 20) = 256;
            return wait_for_line();
        }}\n"
    );
    let program = build(folder.path(), "liar", &text, &[]);
    let target = Target::start(Command::new(&program).arg("1"));
    for format in ["table", "json"] {
        let ran = run(&["malloc", "stats", "--pid", &target.pid(), "--format", format]);
        assert_eq!(ran.code, 0, "{}", ran.stderr);
        assert!(ran.stdout.len() < 100_000);
    }
    let other = Target::start(Command::new(&program).arg("7"));
    let ran = run(&["malloc", "stats", "--pid", &other.pid()]);
    assert_eq!(ran.code, 4);
    assert!(ran.stderr.contains("counts in another way (version 7)"), "{}", ran.stderr);
}

#[test]
fn targets_that_are_gone_or_not_ours() {
    assert_eq!(run(&["malloc", "check", "--pid", "4194300"]).code, 3);
    assert_eq!(run(&["malloc", "check"]).code, 2);
    if !root_or_skip("targets_that_are_gone_or_not_ours") {
        return;
    }
    let target = Target::start(run_with_malloc().arg(python()).args(["-c", WAITING]));
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let copy = folder.path().join("slip");
    copy_program(&slip(), &copy);
    for verb in ["check", "stats"] {
        let mut command = Command::new("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(&copy);
        let ran = Ran::from(command.args(["malloc", verb, "--pid", &target.pid()]).output().unwrap());
        assert_eq!(ran.code, 5, "{}", ran.stderr);
        assert!(ran.stderr.contains("\nhint: "), "{}", ran.stderr);
    }
}
