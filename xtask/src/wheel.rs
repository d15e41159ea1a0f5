//! `cargo xtask wheel`: the Python wheel, with the module, the command and the allocator.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

use anyhow::{Context, Result, bail};
use slip_glibc::{Need, OLDEST, needs};

use crate::malloc;

const OUT: &str = "target/dist";

/// What maturin puts into the wheel beside the package: `data` of pyproject.toml.
const DATA: &str = "target/dist/slipstream_prof.data";

/// What builds it, with versions and hashes.
const REQUIREMENTS: &str = "python/build-requirements.txt";

/// Builds `target/dist/slipstream_prof-*.whl` and refuses one that a system that its name promises cannot use.
pub(crate) fn run() -> Result<()> {
    let tools = tools()?;
    execute(Command::new("cargo").args(["build", "-q", "--release", "--locked", "-p", "slip-cli"]))?;
    fs::create_dir_all(OUT)?;
    let _ = fs::remove_dir_all(DATA);
    let command = Path::new(DATA).join("scripts/slip");
    fs::create_dir_all(command.with_file_name(""))?;
    execute(Command::new("strip").arg("-o").arg(&command).arg("target/release/slip"))?;
    malloc::compile(Path::new("."), &Path::new(DATA).join("data").join(malloc::FOLDER))?;
    for old in wheels()? {
        fs::remove_file(old)?;
    }
    execute(Command::new(tools.join("bin/maturin")).args(["build", "--quiet", "--locked", "--out", OUT]))?;
    fs::remove_dir_all(DATA)?;
    let [wheel] = wheels()?.try_into().map_err(|found| anyhow::anyhow!("not one wheel: {found:?}"))?;
    check(&wheel)?;
    say(&format!("{} ({} KB)", wheel.display(), fs::metadata(&wheel)?.len() / 1_000));
    Ok(())
}

/// The folder of a virtual environment with what builds wheels; made with the first use and whenever the requirements change.
fn tools() -> Result<PathBuf> {
    let cache = match env::var_os("SLIP_CACHE") {
        Some(cache) => PathBuf::from(cache),
        None => Path::new(&env::var_os("HOME").context("no HOME")?).join(".cache/slipstream"),
    };
    let (folder, wanted) = (cache.join("wheel-tools"), fs::read_to_string(REQUIREMENTS)?);
    let stamp = folder.join("requirements.txt");
    if fs::read_to_string(&stamp).is_ok_and(|found| found == wanted) {
        return Ok(folder);
    }
    fs::create_dir_all(&cache)?;
    let made = Command::new("python3").args(["-m", "venv", "--clear"]).arg(&folder).output()?;
    if !made.status.success() {
        let said = String::from_utf8_lossy(if made.stderr.is_empty() { &made.stdout } else { &made.stderr });
        bail!("python3 makes no virtual environment: {}\nhint: apt-get install python3-venv", said.trim());
    }
    let pip = ["-m", "pip", "-q", "install", "--disable-pip-version-check", "--require-hashes", "-r"];
    execute(Command::new(folder.join("bin/python3")).args(pip).arg(REQUIREMENTS))?;
    fs::write(stamp, wanted)?;
    Ok(folder)
}

fn wheels() -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(OUT)? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if name.starts_with("slipstream_prof-") && name.ends_with(".whl") {
            found.push(path);
        }
    }
    Ok(found)
}

/// Holds what is in the wheel against what its name promises. maturin does so too, but only for the module.
fn check(wheel: &Path) -> Result<()> {
    let name = wheel.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let promised = format!("manylinux_{}_{}_x86_64.whl", OLDEST.0[0], OLDEST.0[1]);
    if !name.ends_with(&promised) {
        bail!("{name} is not called {promised}");
    }
    let unpacked = Path::new(OUT).join("unpacked");
    let _ = fs::remove_dir_all(&unpacked);
    execute(Command::new("python3").args(["-m", "zipfile", "-e"]).arg(wheel).arg(&unpacked))?;
    let mut programs = 0;
    let mut folders = vec![unpacked.clone()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder)? {
            let path = entry?.path();
            if path.is_dir() {
                folders.push(path);
            } else if fs::read(&path)?.starts_with(b"\x7fELF") {
                check_program(&path)?;
                programs += 1;
            }
        }
    }
    if programs != 2 + malloc::LIBRARIES {
        bail!("{name} has {programs} programs and libraries, not the command, the module and the allocator");
    }
    fs::remove_dir_all(unpacked)?;
    Ok(())
}

/// Refuses a program or library that needs more than the oldest system has that it is for.
pub(crate) fn check_program(path: &Path) -> Result<()> {
    let name = path.display();
    let needs = needs(&fs::read(path)?).with_context(|| name.to_string())?;
    let unmet: Vec<String> =
        needs.iter().filter(|need| !need.is_met_by_oldest()).map(Need::to_string).collect();
    if !unmet.is_empty() {
        bail!("{name} needs {}, which systems with glibc {OLDEST} need not have", unmet.join(", "));
    }
    if let Some(glibc) = needs.iter().filter_map(Need::glibc).max() {
        say(&format!("{name}: needs glibc {glibc}"));
    }
    Ok(())
}

/// Runs a command; fails if it does.
pub(crate) fn execute(command: &mut Command) -> Result<()> {
    let program = command.get_program().to_string_lossy().into_owned();
    let status = command.status().with_context(|| format!("{program} cannot be run"))?;
    if !status.success() {
        bail!("failed: {command:?}");
    }
    Ok(())
}

#[allow(clippy::print_stdout, reason = "this is the output of the command")]
fn say(text: &str) {
    println!("{text}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_maturin_is_meant() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let read = |name: &str| fs::read_to_string(root.join(name)).unwrap();
        let (project, requirements) = (read("pyproject.toml"), read(REQUIREMENTS));
        let pinned = requirements.split_whitespace().find(|word| word.starts_with("maturin==")).unwrap();
        assert!(project.contains(&format!("requires = [\"{pinned}\"]")), "{pinned}");
    }
}
