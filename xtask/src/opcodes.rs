//! `cargo xtask opcodes`: the names of instructions, asked of every CPython that is installed.
//!
//! To add a version: a line in [`INTERPRETERS`], one in `crates/cpython/src/opcodes.rs`, and `cargo xtask opcodes`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

/// Minor version of CPython 3, and how to run it: in the root folder `python`, or as it is.
const INTERPRETERS: [(u8, bool, &str); 5] = [
    (11, false, "/usr/bin/python3.11"),
    (12, false, "python3.12"),
    (13, true, "/usr/bin/python3.13"),
    (14, true, "/usr/bin/python3.14"),
    (15, true, "/usr/bin/python3.15"),
];

/// `dis` knows also those that the interpreter puts in the place of others at run time; it has more than fit into a byte for those
/// that only the compiler uses.
const PROGRAM: &str = "
import dis
for number, name in enumerate(dis._all_opname[:256]):
    if not name.startswith('<'):
        print(number, name)
";

/// Writes the tables.
pub(crate) fn write() -> Result<()> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates/cpython/src/opcodes");
    for (minor, is_in_root, program) in INTERPRETERS {
        let file = folder.join(format!("v3_{minor}.txt"));
        let Some(mut command) = command(minor, is_in_root, program) else {
            eprintln!("skipped {}: there is no {program}", file.display());
            continue;
        };
        let output =
            command.args(["-c", PROGRAM]).output().with_context(|| format!("cannot run {program}"))?;
        ensure!(output.status.success(), "{program}: {}", String::from_utf8_lossy(&output.stderr));
        let table = String::from_utf8(output.stdout).context("names are text")?;
        let head = format!("# Instructions of CPython 3.{minor}, by `cargo xtask opcodes`.\n");
        fs::write(&file, head + &table).with_context(|| format!("cannot write {}", file.display()))?;
    }
    Ok(())
}

/// Runs an interpreter, if it is there.
fn command(minor: u8, is_in_root: bool, program: &str) -> Option<Command> {
    if is_in_root {
        let cache = std::env::var_os("SLIP_CACHE").map(PathBuf::from);
        let cache =
            cache.or_else(|| Some(Path::new(&std::env::var_os("HOME")?).join(".cache/slipstream")))?;
        let root = cache.join("roots/python");
        let is_there = root.join(program.strip_prefix('/')?).exists();
        let mut command = Command::new("chroot");
        command.arg(root).arg(program);
        return is_there.then_some(command);
    }
    let program = if program.starts_with('/') { PathBuf::from(program) } else { of_pyenv(minor)? };
    program.exists().then(|| Command::new(program))
}

/// pyenv's interpreter of a version.
fn of_pyenv(minor: u8) -> Option<PathBuf> {
    let base = std::env::var_os("PYENV_ROOT").map(PathBuf::from);
    let base = base.or_else(|| Some(Path::new(&std::env::var_os("HOME")?).join(".pyenv")))?;
    let begin = format!("3.{minor}.");
    let is_it = |name: &str| {
        name.strip_prefix(&begin).is_some_and(|micro| micro.bytes().all(|byte| byte.is_ascii_digit()))
    };
    let entries = fs::read_dir(base.join("versions")).ok()?.flatten();
    let mut found: Vec<PathBuf> = entries
        .filter(|entry| entry.file_name().to_str().is_some_and(is_it))
        .map(|entry| entry.path())
        .collect();
    found.sort();
    Some(found.first()?.join("bin/python"))
}
