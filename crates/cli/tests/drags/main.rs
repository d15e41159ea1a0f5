//! The rules of `slip doctor` on real servers: each finds the drag of its labs, with its cause, and nothing in what only looks like it.
//!
//! This is a test binary of its own because what it watches needs the machine for itself.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "what fails here fails the test")]

mod lab;
mod manifest;

use std::fmt::Write as _;
use std::io::Write as _;

use serde_json::Value;
use slip_doctor::Rule;

use self::lab::{Labs, Told, Watched};
use self::manifest::{Lab, labs};

/// What a rule says of a lab.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Says {
    Found,
    Quiet,
    TooLittle,
    NotOf,
}

impl Says {
    fn of(sheet: &Value, rule: &Rule) -> Self {
        let lists = [("findings", Self::Found), ("too_little", Self::TooLittle), ("not_of", Self::NotOf)];
        let is_in = |list: &str| sheet[list].as_array().unwrap().iter().any(|row| row["rule"] == rule.id);
        lists.into_iter().find(|(list, _)| is_in(list)).map_or(Self::Quiet, |(_, says)| says)
    }

    fn mark(self) -> &'static str {
        match self {
            Self::Found => "FOUND",
            Self::Quiet => ".",
            Self::TooLittle => "?",
            Self::NotOf => "",
        }
    }
}

#[test]
fn the_table_of_labs_is_whole() {
    let labs = labs();
    let mut names: Vec<&str> = labs.iter().map(|lab| &*lab.name).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), labs.len(), "two have the same name");
    for rule in Rule::ALL {
        let finds = |lab: &&Lab| lab.finds.as_ref().is_some_and(|(finds, _)| finds == rule);
        assert!(labs.iter().any(|lab| finds(&lab)), "{} has no lab", rule.id);
        // The twin is the first behind the last of the labs that it looks like.
        let last = labs.iter().rposition(|lab| finds(&lab)).unwrap();
        let twin = labs[last..].iter().find(|lab| lab.finds.is_none());
        assert!(twin.is_some_and(|twin| twin.silent.contains(rule)), "{} has no twin", rule.id);
    }
}

#[test]
fn each_rule_finds_its_drag_and_nothing_else() {
    let Some(running) = Labs::open() else { return };
    let (mut rows, mut failures, mut pending) = (Vec::new(), Vec::new(), Vec::new());
    for lab in labs() {
        match running.tell(&lab) {
            Ok(told) => {
                failures
                    .extend(judge(&lab, &told).into_iter().map(|failure| format!("{}: {failure}", lab.name)));
                rows.push((lab, told));
            }
            Err(why) => pending.push(format!("pending: {}: {why}\n", lab.name)),
        }
    }
    drop(running);
    let mut text = table(&rows);
    for (lab, told) in &rows {
        for watched in [Some(&told.sheet), told.coarse.as_ref()].into_iter().flatten() {
            for finding in findings(&watched.sheet).filter(|finding| is_of_others(finding, watched)) {
                let headline = &finding["headline"]["text"];
                let _ =
                    writeln!(text, "others: {}: {headline}, as they did by the test's own reading", lab.name);
            }
        }
    }
    text.push_str(&coarse_counts(&rows));
    // What this machine has not.
    text.extend(pending);
    // Past the capturing of the test harness.
    let _ = std::io::stderr().write_all(text.as_bytes());
    assert!(failures.is_empty(), "{}", failures.join("\n\n"));
}

/// From what share of the machine's CPUs on it is true that the host takes them.
const STOLEN: f64 = 0.01;

/// What the host does, or a program that is of no lab, by the test's own reading, is right to tell.
fn is_of_others(finding: &Value, watched: &Watched) -> bool {
    let is_busy =
        |statement: &Value| watched.busy.iter().any(|name| statement["values"]["program"] == **name);
    match finding["cause"].as_str() {
        _ if finding["rule"] != "WAKE003" => false,
        Some("steal") => watched.steal >= STOLEN,
        Some("another_process" | "priority") => is_busy(&finding["headline"]),
        _ => false,
    }
}

fn findings(sheet: &Value) -> impl Iterator<Item = &Value> {
    sheet["findings"].as_array().unwrap().iter()
}

/// What is wrong with what looks at `/proc` tell: they may find less, and name no cause where they do not know it.
fn judge_coarse(lab: &Lab, watched: &Watched) -> Vec<String> {
    let mut wrong = Vec::new();
    // Who does not know the cause claims none.
    let claims = findings(&watched.sheet).filter(|finding| finding["cause"] != "unknown");
    for finding in claims.filter(|finding| !is_of_others(finding, watched)) {
        let is_silent = lab.silent.iter().any(|rule| finding["rule"] == rule.id);
        let expected = lab.finds.as_ref().filter(|(rule, _)| finding["rule"] == rule.id);
        if is_silent || expected.is_some_and(|(_, cause)| finding["cause"] != **cause) {
            wrong.push(format!("by looks at /proc {} finds {finding:#}", finding["rule"]));
        }
    }
    wrong
}

/// How many of the drags these find.
fn coarse_counts(rows: &[(Lab, Told)]) -> String {
    let wanted = rows.iter().filter_map(|(lab, told)| Some((lab.finds.as_ref()?.0, told.coarse.as_ref()?)));
    let says: Vec<Says> = wanted.map(|(rule, watched)| Says::of(&watched.sheet, rule)).collect();
    let found = says.iter().filter(|says| **says == Says::Found).count();
    format!("by looks at /proc: {found} of {} drags found\n", says.len())
}

/// What is wrong.
fn judge(lab: &Lab, told: &Told) -> Vec<String> {
    let (sheet, load) = (&told.sheet.sheet, &told.load);
    let mut wrong = told.coarse.as_ref().map_or(Vec::new(), |watched| judge_coarse(lab, watched));
    if !sheet["nothing"].is_null() || load["errors"] != 0 {
        return vec![format!("nothing can be told: {} {load}", sheet["nothing"])];
    }
    let found =
        |rule: &Rule| findings(sheet).filter(|finding| finding["rule"] == rule.id).collect::<Vec<_>>();
    if let Some((rule, cause)) = &lab.finds {
        match found(rule)[..] {
            [finding] if finding["cause"] == **cause => {
                if let Some(size) = &lab.size {
                    let cost_ms = finding["cost"]["ns"].as_f64().unwrap_or_default() / 1e6;
                    let (least, most) = told.drag_ms().into_inner();
                    if !(size.start * least..size.end * most).contains(&cost_ms) {
                        let clock = clock_text(told);
                        wrong.push(format!(
                            "{} says {cost_ms:.3} ms, by its clock {clock} ms: {load}, {sheet:#}",
                            rule.id
                        ));
                    }
                }
            }
            [finding] => {
                wrong.push(format!("{} says {}, not {cause}: {finding:#}", rule.id, finding["cause"]))
            }
            [] => wrong.push(format!("{} finds nothing: {}", rule.id, why(sheet, rule))),
            _ => wrong.push(format!("{} finds several: {:#}", rule.id, sheet["findings"])),
        }
    }
    for rule in &lab.silent {
        let others = found(rule).into_iter().filter(|finding| !is_of_others(finding, &told.sheet));
        wrong.extend(others.map(|finding| format!("{} finds {finding:#}", rule.id)));
    }
    wrong
}

/// By the lab's clock, milliseconds.
fn clock_text(told: &Told) -> String {
    let (least, most) = told.drag_ms().into_inner();
    if least < most { format!("{least:.3} to {most:.3}") } else { format!("{least:.3}") }
}

/// What the rule says in the place of a finding.
fn why(sheet: &Value, rule: &Rule) -> String {
    let lists = ["quiet", "too_little", "not_of"].into_iter();
    let mut rows = lists.flat_map(|list| sheet[list].as_array().unwrap());
    rows.find(|row| row["rule"] == rule.id)
        .map_or("no word".to_owned(), |row| row["says"]["text"].to_string())
}

/// Labs by rules.
fn table(rows: &[(Lab, Told)]) -> String {
    let mut text = format!("\n{:20}", "");
    for rule in Rule::ALL {
        let _ = write!(text, " {:8}", rule.id);
    }
    text.push_str("  request, drag, finding\n");
    for (lab, told) in rows {
        let _ = write!(text, "{:20}", lab.name);
        for rule in Rule::ALL {
            let says = Says::of(&told.sheet.sheet, rule);
            let is_wanted = lab.finds.as_ref().is_some_and(|(finds, _)| finds == rule);
            let is_told = findings(&told.sheet.sheet)
                .any(|finding| finding["rule"] == rule.id && !is_of_others(finding, &told.sheet));
            let is_wrong = (is_told && lab.silent.contains(rule)) || (is_wanted && says != Says::Found);
            let _ = write!(text, " {:8}", format!("{}{}", says.mark(), if is_wrong { "!" } else { "" }));
        }
        let request_ms = told.sheet.sheet["unit"]["mean_ns"].as_f64().unwrap_or_default() / 1e6;
        let finding = lab.finds.as_ref().and_then(|(rule, _)| {
            findings(&told.sheet.sheet).find(|finding| finding["rule"] == rule.id)?["cost"]["ns"].as_f64()
        });
        let found = finding.map_or(String::new(), |ns| format!(", {:.3} ms", ns / 1e6));
        let _ = writeln!(text, "  {request_ms:.3} ms, {} ms{found}", clock_text(told));
    }
    text.push_str("FOUND: as it has to be; .: looked and found nothing; ?: too little to tell; empty: not of this target; !: wrong\n\n");
    text
}
