//! The loader, and the reports on what it loads. The corpus should have a few small recordings to begin with.
#![no_main]

use std::io::Write as _;

use libfuzzer_sys::fuzz_target;
use slip_doctor::{BudgetDiff, BudgetTable};
use slip_record::file::load;
use slip_report::{BudgetFormat, Format, Options, ReportError, render, render_budget, render_budget_diff};

fuzz_target!(|bytes: &[u8]| {
    let mut file = tempfile::NamedTempFile::new_in("/dev/shm").expect("space for a small file");
    file.write_all(bytes).expect("space for a small file");
    let Ok(loaded) = load(file.path()) else { return };
    let options = Options { include_idle: true, notes: loaded.warnings, ..Options::default() };
    for format in Format::ALL {
        match render(&loaded.recording, format, &options) {
            // Of allocations.
            Ok(_) | Err(ReportError::NoTimes(_)) => {}
            Err(error) => panic!("every recording has a report: {error}"),
        }
    }
    let Some(table) = BudgetTable::of(&loaded.recording) else { return };
    let diff = BudgetDiff::of(&table, &table);
    for format in [BudgetFormat::Table, BudgetFormat::Json] {
        render_budget(&table, format).expect("every budget has a table");
        render_budget_diff(&diff, ["a", "b"], format).expect("any two can be compared");
    }
});
