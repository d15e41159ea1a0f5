//! `slip report`.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use slip_model::{Mode, Recording};
use slip_record::file::load;
use slip_report::{Base, Format, Options};

use crate::args::{FormatName, ReportOptions};
use crate::failure::{self, Failure};

/// Writes the report.
#[allow(clippy::print_stderr, reason = "what is said to the user besides data")]
pub(crate) fn run(options: &ReportOptions) -> Result<(), Failure> {
    if let Some(output) = &options.output
        && is_same_file(&options.file, output)
    {
        return Err(Failure::new(failure::USAGE, "the report would overwrite the recording")
            .hint("choose another name with -o"));
    }
    if options.base.is_some() && !matches!(options.format, FormatName::Html) {
        return Err(Failure::new(failure::USAGE, "only a page of HTML compares two recordings")
            .hint("`--base` goes with `--format html`; `slip diff` compares budgets as text"));
    }
    let loaded = load(&options.file)?;
    for warning in &loaded.warnings {
        eprintln!("warning: {}", slip_report::clean(warning));
    }
    let is_of_allocations = loaded.recording.info.mode == Mode::Alloc;
    if options.kept && !(is_of_allocations && matches!(options.format, FormatName::Collapsed)) {
        return Err(Failure::new(failure::USAGE, "`--kept` is for collapsed stacks of allocations")
            .hint("it goes with `--format collapsed` and a recording by `slip record --alloc`"));
    }
    let format = match options.format {
        FormatName::Md => Format::Markdown,
        FormatName::Html => Format::Html,
        FormatName::Json => Format::Json,
        FormatName::Collapsed => Format::Collapsed,
        FormatName::Speedscope => Format::Speedscope,
        FormatName::Pprof => Format::Pprof,
        FormatName::Firefox => Format::Firefox,
        FormatName::Chrome => Format::Chrome,
    };
    let report_options = Options {
        top: options.top as usize,
        include_idle: options.idle,
        per_worker: options.per_worker,
        kept: options.kept,
        notes: loaded.warnings.clone(),
    };
    let report = match &options.base {
        None => slip_report::render(&loaded.recording, format, &report_options)?,
        Some(base) => compared(&loaded.recording, base, &report_options)?,
    };
    match &options.output {
        None => crate::print(&report)?,
        Some(path) => {
            let written = OpenOptions::new().write(true).create(true).truncate(true).open(path);
            written
                .and_then(|mut file| file.write_all(&report))
                .map_err(|error| Failure::io(format!("cannot write `{}`", path.display()), &error))?;
        }
    }
    // That no thread ran is evidence too, and so is a budget.
    let recording = &loaded.recording;
    if recording.totals.is_empty() && recording.samples().next().is_none() && recording.budget.is_none() {
        let (message, hint) = if is_of_allocations {
            ("the recording holds no allocations", "record for longer, or while it works")
        } else {
            ("the recording holds no samples", "record for longer, or at a higher rate")
        };
        return Err(Failure::new(failure::NO_EVIDENCE, message).hint(hint));
    }
    Ok(())
}

/// The page of a recording that is compared with an earlier one.
#[allow(clippy::print_stderr, reason = "what is said to the user besides data")]
pub(crate) fn compared(recording: &Recording, base: &Path, options: &Options) -> Result<Vec<u8>, Failure> {
    let earlier = load(base)?;
    for warning in &earlier.warnings {
        eprintln!("warning: {}", slip_report::clean(&format!("{}: {warning}", base.display())));
    }
    let name = base.file_name().unwrap_or(base.as_os_str()).to_string_lossy();
    let base = Base { recording: &earlier.recording, name: &name };
    Ok(slip_report::render_page(recording, Some(base), options)?)
}

/// By whatever name. A file that does not exist is none.
fn is_same_file(one: &Path, other: &Path) -> bool {
    let number = |path: &Path| fs::metadata(path).map(|found| (found.dev(), found.ino())).ok();
    number(one).is_some_and(|found| number(other) == Some(found))
}
