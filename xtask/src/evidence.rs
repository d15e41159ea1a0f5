//! `make evidence`: runs the command of each row of `docs/evidence.md` and writes down what it printed.
//!
//! A command ends with a line `result: TEXT`, or with `N passed, N failed, N skipped`; exit status 0 means that the bar holds.

use std::fs;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

const FILE: &str = "docs/evidence.md";

/// Rows that take an hour or a build of PHP: measured only when named.
const LONG: [&str; 2] = ["hour-real", "asan"];

/// Measures all rows but the long ones, or the one called `only`.
pub(crate) fn run(only: Option<&str>) -> Result<()> {
    let lines: Vec<String> = fs::read_to_string(FILE)?.lines().map(str::to_owned).collect();
    // A row that is not understood would never be measured, and nobody would notice.
    if let Some(line) = lines.iter().find(|line| line.contains(" | `") && row(line).is_none()) {
        bail!("{FILE} has a row without five cells, none of them empty: {line}");
    }
    let conditions = conditions()?;
    let (mut measured, mut failed) = (0, Vec::new());
    for line in &lines {
        let Some(mut cells) = row(line) else { continue };
        let wanted = only.map_or(!LONG.contains(&cells[0].as_str()), |name| name == cells[0]);
        if !wanted {
            continue;
        }
        let command = cells[2].trim_matches('`').to_owned();
        say(&format!("== {}: {command}", cells[0]));
        let output = Command::new("bash")
            .args(["-c", &command])
            .stdin(Stdio::null())
            .stderr(Stdio::inherit())
            .output()
            .context("cannot start bash")?;
        let text = String::from_utf8_lossy(&output.stdout);
        say(text.trim_end());
        let result = result(&text).unwrap_or("no result");
        let holds = output.status.success() && result != "no result";
        cells[3] = if holds { result.to_owned() } else { format!("**does not hold**: {result}") };
        cells[4] = conditions.clone();
        if !holds {
            failed.push(cells[0].clone());
        }
        measured += 1;
        // After each row: a measurement that is interrupted keeps what it has. What else was edited meanwhile stays.
        let text = fs::read_to_string(FILE)?;
        if !text.contains(line) {
            bail!("{FILE}: the row has been changed while it was measured: {line}");
        }
        fs::write(FILE, text.replacen(line, &format!("| {} |", cells.join(" | ")), 1))?;
    }
    if measured == 0 {
        bail!("{FILE} has no row `{}`", only.unwrap_or("at all"));
    }
    if !failed.is_empty() {
        bail!("does not hold: {}", failed.join(", "));
    }
    Ok(())
}

/// What the command says of itself.
fn result(output: &str) -> Option<&str> {
    let counts =
        || output.lines().rev().find(|line| line.contains(" passed, ") && line.ends_with(" skipped"));
    output.lines().rev().find_map(|line| line.strip_prefix("result: ")).or_else(counts)
}

/// The cells of a row: name, promise, command, last figure, conditions.
fn row(line: &str) -> Option<Vec<String>> {
    let cells: Vec<String> = line
        .strip_prefix("| ")?
        .strip_suffix(" |")?
        .split(" | ")
        .map(|cell| cell.trim().to_owned())
        .collect();
    (cells.len() == 5 && cells[2].starts_with('`')).then_some(cells)
}

fn conditions() -> Result<String> {
    let ask = |command: &str| -> Result<String> {
        let output = Command::new("bash").args(["-c", command]).output()?;
        Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    Ok(format!(
        "{}, Linux {}, {} cores, {}",
        ask("date -u +%F")?,
        ask("uname -r | cut -d- -f1")?,
        ask("nproc")?,
        ask("sed -n 's/^model name.*: //p' /proc/cpuinfo | head -n 1")?
    ))
}

#[allow(clippy::print_stdout, reason = "this is the output of the command")]
fn say(text: &str) {
    println!("{text}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_result_is_preferred_to_counts() {
        assert_eq!(result("ok a\n2 passed, 0 failed, 0 skipped"), Some("2 passed, 0 failed, 0 skipped"));
        assert_eq!(result("result: fine\n2 passed, 0 failed, 0 skipped"), Some("fine"));
        assert_eq!(result("ok a"), None);
    }

    #[test]
    fn only_rows_with_a_command_are_measured() {
        assert_eq!(row("| a | b | `c` | d | e |").unwrap()[2], "`c`");
        assert!(row("| name | promise | command | last figure | conditions |").is_none());
        assert!(row("|---|---|---|---|---|").is_none());
    }
}
