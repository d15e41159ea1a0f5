//! Where the workers' time went: `slip budget` and `slip diff`.

use std::path::{Path, PathBuf};

use slip_model::{Batch, Budget, Part, RecordingInfo, Totals};
use slip_record::file::Writer;

use crate::harness::run;

#[path = "../../../doctor/tests/support/budget.rs"]
mod by_hand;

/// A recording of this budget and nothing else, closed in order.
fn recorded(folder: &Path, name: &str, mut budget: Option<Budget>) -> PathBuf {
    let file = folder.join(name);
    let info =
        RecordingInfo { tool: "slip test".into(), interval_ns: 10_000_000, ..RecordingInfo::default() };
    let mut writer = Writer::create(&file, &info, false).unwrap();
    let served = budget.as_mut().map(|budget| std::mem::take(&mut budget.requests)).unwrap_or_default();
    writer.append(&Batch { budget, served, ..Batch::default() }).unwrap();
    writer.finish(Totals { duration_ns: 1_000_000, ..Totals::default() }).unwrap();
    file
}

/// What this prints, with the folder taken out.
#[track_caller]
fn prints(folder: &Path, arguments: &[&str]) -> String {
    let ran = run(arguments);
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""));
    ran.stdout.replace(&format!("{}/", folder.display()), "")
}

#[test]
fn a_budget_in_every_form() {
    let folder = tempfile::tempdir().unwrap();
    let file = recorded(folder.path(), "a.slip", Some(by_hand::budget()));
    let name = file.to_str().unwrap();
    insta::assert_snapshot!("budget_table", prints(folder.path(), &["budget", name]));
    for format in ["json", "md"] {
        let text = prints(folder.path(), &["budget", name, "--format", format]);
        insta::assert_snapshot!(format!("budget_{format}"), text);
    }
}

#[test]
fn two_budgets_in_every_form() {
    let folder = tempfile::tempdir().unwrap();
    let before = by_hand::budget();
    let mut after = before.clone();
    // Nobody queues any more, redis has moved, and what was memory is time on a disk.
    after.endpoints[0].address = "10.0.0.5:6379".into();
    for request in &mut after.requests {
        request.queued_ns = request.begin_ns;
        request.serving.0.swap(Part::Memory as usize, Part::Disk as usize);
    }
    let files = [("before.slip", before), ("after.slip", after)]
        .map(|(name, budget)| recorded(folder.path(), name, Some(budget)));
    let [a, b] = [0, 1].map(|at| files[at].to_str().unwrap());
    for format in ["table", "json", "md"] {
        let text = prints(folder.path(), &["diff", a, b, "--format", format]);
        insta::assert_snapshot!(format!("diff_{format}"), text);
    }
}

#[test]
fn a_report_begins_with_the_budget() {
    let folder = tempfile::tempdir().unwrap();
    let file = recorded(folder.path(), "a.slip", Some(by_hand::budget()));
    let text = prints(folder.path(), &["report", file.to_str().unwrap()]);
    let at = |words: &str| text.find(words).unwrap_or_else(|| panic!("{words}: {text}"));
    assert!(at("watched from") < at("| WAIT ") && at("| WAIT ") < at("## How good this is"), "{text}");
}

#[test]
fn files_without_a_budget() {
    let folder = tempfile::tempdir().unwrap();
    let with = recorded(folder.path(), "with.slip", Some(by_hand::budget()));
    let without = recorded(folder.path(), "without.slip", None);
    let [with, without] = [&with, &without].map(|file| file.to_str().unwrap());
    let message = format!("error: {without} has no budget\nhint: record with `--budget`\n");
    for arguments in [&["budget", without][..], &["diff", with, without], &["diff", without, with]] {
        let ran = run(arguments);
        assert_eq!((ran.code, ran.stdout.as_str(), ran.stderr.as_str()), (6, "", message.as_str()));
    }
    let ran = run(&["budget", "no-such-file.slip"]);
    assert_eq!(ran.code, 2, "{}", ran.stderr);
}

#[test]
fn a_budget_that_was_cut_off_is_read_with_a_warning() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("cut.slip");
    let mut writer = Writer::create(&file, &RecordingInfo::default(), false).unwrap();
    let mut budget = by_hand::budget();
    budget.requests.clear();
    writer.append(&Batch { budget: Some(budget), ..Batch::default() }).unwrap();
    drop(writer);
    let ran = run(&["budget", file.to_str().unwrap()]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert!(ran.stderr.contains("cut.slip: the recorder ended without closing the file"), "{}", ran.stderr);
    assert!(ran.stdout.contains("No request ended in the window."), "{}", ran.stdout);
}
