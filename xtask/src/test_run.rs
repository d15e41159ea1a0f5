//! `make test`: runs everything that must pass and adds the counts up.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

#[derive(Debug, Default)]
struct Counts {
    passed: u64,
    failed: u64,
    skipped: u64,
    failures: Vec<String>,
    /// When each step began.
    steps: Vec<(String, Instant)>,
}

/// Steps that take less are not told at the end.
const LONG: Duration = Duration::from_secs(30);

impl Counts {
    fn begin(&mut self, name: &str) {
        say(&format!("== {name}"));
        self.steps.push((name.to_owned(), Instant::now()));
    }

    /// The longest steps first, for who wants to know what to cut.
    fn say_times(&self) {
        let ends = self.steps.iter().skip(1).map(|(_, begin)| *begin).chain([Instant::now()]);
        let mut times: Vec<(Duration, &str)> =
            self.steps.iter().zip(ends).map(|((name, begin), end)| (end - *begin, &**name)).collect();
        times.sort_unstable_by(|one, other| other.cmp(one));
        for (time, name) in times.iter().take_while(|(time, _)| *time >= LONG) {
            say(&format!("took {:4} s: {name}", time.as_secs()));
        }
        let whole: Duration = times.iter().map(|(time, _)| *time).sum();
        say(&format!("took {:4} s: all steps", whole.as_secs()));
    }
}

/// What tests of scripts build or run, as they do: one after the other, since packages that are built together share features.
const RELEASE_BUILD: &str = "cargo build -q --release --locked -p slip-cli && \
    cargo build -q --release --locked -p slip-record --example motion";

/// Runs all steps, also after a failure, and ends with one line of counts.
pub(crate) fn run() -> Result<()> {
    let skips = std::path::absolute("target/skips.txt")?;
    fs::create_dir_all("target")?;
    fs::write(&skips, "")?;
    let mut counts = Counts::default();

    // Most of it is one thread's work, and what only compiles has room beside it.
    let release = Command::new("sh")
        .args(["-c", RELEASE_BUILD])
        .stdin(Stdio::null())
        .spawn()
        .context("cannot start sh")?;
    step(&mut counts, "format", "cargo", &["fmt", "--all", "--check"], &[]);
    let clippy = ["clippy", "-q", "--workspace", "--all-targets", "--locked", "--", "-D", "warnings"];
    step(&mut counts, "clippy", "cargo", &clippy, &[]);
    let doc = ["doc", "-q", "--workspace", "--no-deps", "--locked"];
    step(&mut counts, "documentation", "cargo", &doc, &[("RUSTDOCFLAGS", "-D warnings")]);
    let scripts = shell_scripts()?;
    let mut shellcheck = vec!["-x"];
    shellcheck.extend(scripts.iter().map(String::as_str));
    step(&mut counts, "shell scripts", "shellcheck", &shellcheck, &[]);
    // Outside the workspace, so that nothing above builds them.
    check_alone(&mut counts, "bench/report");
    if Command::new("c++").arg("--version").output().is_ok() {
        check_alone(&mut counts, "fuzz");
    } else {
        fs::write(&skips, "fuzz targets: libFuzzer needs c++\n")?;
    }
    step(&mut counts, "programs for the kernel", "bpf/tests/run", &[], &[]);
    // What follows looks at clocks, and has the machine to itself.
    join(&mut counts, "release build", release);
    for check in ["types", "boot"] {
        counted_step(&mut counts, "bpf/tests/kernels", &[check], &[])?;
    }
    cargo_tests(&mut counts, &skips)?;
    step(&mut counts, "extension, parts", "ext/tests/units/run", &[], &[]);
    for version in ["8.2", "8.4"] {
        extension_tests(&mut counts, version)?;
    }
    // From a suite that need not carry it for ever, so that it is no failure if it cannot be had.
    match root_unusable("php8.5")? {
        None => extension_tests(&mut counts, "8.5")?,
        Some(reason) => {
            let line = format!("extension, PHP 8.5: {reason}\n");
            fs::write(&skips, fs::read_to_string(&skips)? + &line)?;
        }
    }
    counted_step(&mut counts, "alloc/tests/run", &[], &[])?;
    counted_step(&mut counts, "python/tests/run", &[], &[])?;
    // Short forms of what `make evidence` runs with 100,000 requests each.
    for (bench, requests) in
        [("isolation", "300"), ("faults", "500"), ("randomness", "500"), ("connections", "200")]
    {
        let command = format!("bench/{bench}/run");
        counted_step(&mut counts, &command, &["--requests", requests], &[])?;
    }
    counted_step(
        &mut counts,
        "bench/fallbacks/run",
        &["auto", "docker", "docker-old-kernel", "no-memfd", "ini", "weak"],
        &[],
    )?;
    // Without what only a quiet machine can tell: how near to the truth.
    counted_step(&mut counts, "bench/motion/run", &["--quick"], &[])?;
    step(&mut counts, "page", "cargo", &["run", "-q", "-p", "xtask", "--", "page", "--check"], &[]);
    counted_step(&mut counts, "web/tests/use.py", &["target/debug/slip"], &[])?;
    counted_step(&mut counts, "bench/viewers/run", &["--short"], &[("SLIP", "target/debug/slip")])?;
    step(&mut counts, "notice", "cargo", &["run", "-q", "-p", "xtask", "--", "notice", "--check"], &[]);
    if is_root()? {
        step(&mut counts, "demo", "labs/demo", &[], &[("DEMO_SECONDS", "3"), ("DEMO_POSTS", "40")]);
    } else {
        fs::write(&skips, fs::read_to_string(&skips)? + "demo: needs root\n")?;
    }

    let reasons = fs::read_to_string(&skips).unwrap_or_default();
    let mut reasons: Vec<&str> = reasons.lines().filter(|line| !line.trim().is_empty()).collect();
    reasons.sort_unstable();
    reasons.dedup();
    counts.skipped += reasons.len() as u64;
    say("");
    for reason in &reasons {
        say(&format!("skipped: {}", reason.strip_prefix("SKIP ").unwrap_or(reason)));
    }
    counts.say_times();
    for failure in &counts.failures {
        say(&format!("failed: {failure}"));
    }
    say(&format!("{} passed, {} failed, {} skipped", counts.passed, counts.failed, counts.skipped));
    if counts.failed > 0 {
        bail!("{} failed", counts.failed);
    }
    Ok(())
}

/// One command that passes or fails as a whole.
fn step(counts: &mut Counts, name: &str, program: &str, arguments: &[&str], variables: &[(&str, &str)]) {
    counts.begin(name);
    let mut command = Command::new(program);
    command.args(arguments).envs(variables.iter().copied()).stdin(Stdio::null());
    count(counts, name, command.status().is_ok_and(|status| status.success()));
}

/// The end of one that was begun before.
fn join(counts: &mut Counts, name: &str, mut child: Child) {
    counts.begin(name);
    count(counts, name, child.wait().is_ok_and(|status| status.success()));
}

fn count(counts: &mut Counts, name: &str, has_passed: bool) {
    if has_passed {
        counts.passed += 1;
    } else {
        counts.failed += 1;
        counts.failures.push(name.to_owned());
    }
}

/// Whether a package that is no member of the workspace builds.
fn check_alone(counts: &mut Counts, folder: &str) {
    let manifest = format!("{folder}/Cargo.toml");
    let arguments =
        ["check", "-q", "--locked", "--target-dir", "target", "--manifest-path", manifest.as_str()];
    step(counts, folder, "cargo", &arguments, &[]);
}

/// All tests of the workspace; the counts are those of the runner's own closing lines.
fn cargo_tests(counts: &mut Counts, skips: &Path) -> Result<()> {
    counts.begin("tests");
    let mut child = Command::new("cargo")
        .args(["test", "--workspace", "--locked", "--no-fail-fast"])
        .env("SLIP_SKIPS", skips)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .context("cannot start cargo")?;
    let stdout = child.stdout.take().context("no standard output")?;
    for line in BufReader::new(stdout).lines() {
        let line = line?;
        if let Some(rest) = line.strip_prefix("test result: ") {
            counts.passed += number_before(rest, " passed");
            counts.failed += number_before(rest, " failed");
            counts.skipped += number_before(rest, " ignored");
        }
        if let Some(name) = line.strip_prefix("test ").and_then(|rest| rest.strip_suffix(" ... FAILED")) {
            counts.failures.push(name.to_owned());
        }
        say(&line);
    }
    if !child.wait()?.success() && counts.failures.is_empty() {
        counts.failed += 1;
        counts.failures.push("the tests did not build".to_owned());
    }
    Ok(())
}

/// The PHP extension, built for one PHP version and tested on all its SAPIs.
fn extension_tests(counts: &mut Counts, version: &str) -> Result<()> {
    counts.begin(&format!("extension, PHP {version}"));
    let built =
        Command::new("ext/compile").arg(version).env("CFLAGS", "-Werror").stdin(Stdio::null()).output()?;
    let extension = String::from_utf8_lossy(&built.stdout).trim().to_owned();
    if !built.status.success() {
        counts.failed += 1;
        counts.failures.push(format!("build of the extension, PHP {version}"));
        say(&String::from_utf8_lossy(&built.stderr));
        return Ok(());
    }
    let arguments = ["--php", version, "--sapi", "all"];
    counted_step(counts, "ext/tests/run", &arguments, &[("SLIP_EXTENSION", &extension)])
}

/// Why a folder of `fixtures/roots` cannot be used, or `None` if it can.
fn root_unusable(name: &str) -> Result<Option<String>> {
    let asked = Command::new("fixtures/roots/roots").args(["path", name]).stdin(Stdio::null()).output()?;
    if asked.status.success() {
        return Ok(None);
    }
    let said = String::from_utf8_lossy(&asked.stderr).into_owned();
    let first = said.lines().next().unwrap_or("its root cannot be found");
    Ok(Some(first.strip_prefix("error: ").unwrap_or(first).to_owned()))
}

/// A command that prints `not ok NAME: …` for each failure and ends with its own line of counts.
fn counted_step(
    counts: &mut Counts,
    command: &str,
    arguments: &[&str],
    variables: &[(&str, &str)],
) -> Result<()> {
    let name = format!("{command} {}", arguments.join(" "));
    counts.begin(name.trim_end());
    let mut child = Command::new(command)
        .args(arguments)
        .envs(variables.iter().copied())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot start {command}"))?;
    let stdout = child.stdout.take().context("no standard output")?;
    let mut counted = None;
    for line in BufReader::new(stdout).lines() {
        let line = line?;
        if let Some(failure) = line.strip_prefix("not ok ") {
            counts.failures.push(format!("{name}: {}", failure.split(':').next().unwrap_or(failure)));
        }
        if line.contains(" passed, ") && line.ends_with(" skipped") && !line.starts_with("result:") {
            counted = Some(line.clone());
        }
        if !line.starts_with("ok ") {
            say(&line);
        }
    }
    let succeeded = child.wait()?.success();
    let line = counted.unwrap_or_default();
    counts.passed += number_before(&line, " passed");
    counts.skipped += number_before(&line, " skipped");
    let failed = number_before(&line, " failed");
    counts.failed += failed;
    if failed == 0 && (!succeeded || line.is_empty()) {
        counts.failed += 1;
        counts.failures.push(name);
    }
    Ok(())
}

fn number_before(text: &str, word: &str) -> u64 {
    text.split(word).next().and_then(|head| head.rsplit(' ').next()).and_then(|n| n.parse().ok()).unwrap_or(0)
}

/// Files of the repository that begin like a shell script.
fn shell_scripts() -> Result<Vec<String>> {
    let listed = Command::new("git").args(["ls-files", "-co", "--exclude-standard"]).output()?;
    let names = String::from_utf8_lossy(&listed.stdout).into_owned();
    Ok(names
        .lines()
        .filter(|name| {
            fs::read(name).is_ok_and(|bytes| {
                let first = bytes.split(|byte| *byte == b'\n').next().unwrap_or_default();
                first == b"#!/bin/bash" || first == b"#!/bin/sh" || first == b"#!/usr/bin/env bash"
            })
        })
        .map(str::to_owned)
        .collect())
}

fn is_root() -> Result<bool> {
    Ok(Command::new("id").arg("-u").output()?.stdout.starts_with(b"0\n"))
}

#[allow(clippy::print_stdout, reason = "this is the output of the command")]
fn say(text: &str) {
    println!("{text}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_read_from_the_runner() {
        let line = "ok. 12 passed; 3 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.03s";
        assert_eq!((number_before(line, " passed"), number_before(line, " failed")), (12, 3));
        assert_eq!((number_before(line, " ignored"), number_before("ok.", " passed")), (1, 0));
    }
}
