//! `slip budget` and `slip diff`.

use std::path::Path;

use slip_doctor::{BudgetDiff, BudgetTable};
use slip_record::file::load;
use slip_report::BudgetFormat;

use crate::args::{BudgetFormatName, BudgetOptions, DiffOptions};
use crate::failure::{self, Failure};

/// Prints one budget.
pub(crate) fn run(options: &BudgetOptions) -> Result<(), Failure> {
    let mut table = table(&options.file)?;
    if let Some(operations) = options.ops {
        let run = table.run.as_mut().ok_or_else(|| {
            let message =
                format!("{} has no run of a program to divide by operations", options.file.display());
            Failure::new(failure::NO_EVIDENCE, message)
                .hint("the unit of programs that serve requests is the request")
        })?;
        run.operations = Some(operations);
    }
    print(slip_report::render_budget(&table, options.format.into()))
}

/// Prints two budgets side by side.
pub(crate) fn diff(options: &DiffOptions) -> Result<(), Failure> {
    let files = [&options.before, &options.after];
    let [a, b] = [table(files[0])?, table(files[1])?];
    let names = files.map(|file| file.to_string_lossy());
    let diff = BudgetDiff::of(&a, &b);
    print(slip_report::render_budget_diff(&diff, [&names[0], &names[1]], options.format.into()))
}

/// The budget in this file.
#[allow(clippy::print_stderr, reason = "what is said to the user besides data")]
fn table(file: &Path) -> Result<BudgetTable, Failure> {
    let loaded = load(file)?;
    for warning in &loaded.warnings {
        eprintln!("warning: {}", slip_report::clean(&format!("{}: {warning}", file.display())));
    }
    BudgetTable::of(&loaded.recording).ok_or_else(|| {
        Failure::new(failure::NO_EVIDENCE, format!("{} has no budget", file.display()))
            .hint("record with `--budget`")
    })
}

fn print(text: Result<Vec<u8>, slip_report::ReportError>) -> Result<(), Failure> {
    crate::print(&text.map_err(|error| Failure::new(failure::IO, error.to_string()))?)
}

impl From<BudgetFormatName> for BudgetFormat {
    fn from(name: BudgetFormatName) -> Self {
        match name {
            BudgetFormatName::Table => Self::Table,
            BudgetFormatName::Json => Self::Json,
            BudgetFormatName::Md => Self::Markdown,
        }
    }
}
