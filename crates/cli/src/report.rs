//! `slip report`.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use slip_record::file::load;
use slip_report::{Format, Options};

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
    let loaded = load(&options.file)?;
    for warning in &loaded.warnings {
        eprintln!("warning: {}", slip_report::clean(warning));
    }
    let format = match options.format {
        FormatName::Md => Format::Markdown,
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
        notes: loaded.warnings.clone(),
    };
    let report = slip_report::render(&loaded.recording, format, &report_options)
        .map_err(|error| Failure::new(failure::IO, error.to_string()))?;
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
        return Err(Failure::new(failure::NO_EVIDENCE, "the recording holds no samples")
            .hint("record for longer, or at a higher rate"));
    }
    Ok(())
}

/// By whatever name. A file that does not exist is none.
fn is_same_file(one: &Path, other: &Path) -> bool {
    let number = |path: &Path| fs::metadata(path).map(|found| (found.dev(), found.ino())).ok();
    number(one).is_some_and(|found| number(other) == Some(found))
}
