//! A recording as text for people and as files for other tools: Markdown, a page of HTML, JSON, collapsed stacks, speedscope, pprof, Firefox
//! Profiler, Chrome.
//!
//! Owns [`Summary`], what a recording says in numbers, and every output format, also of `slip_doctor`'s tables. Never does I/O and never reads a clock
//! or the environment: the same recording and options give the same bytes. Names that come from a target are
//! untrusted, and what a terminal or an editor could take for a command is shown as an escape (see [`clean`]).
#![forbid(unsafe_code)]

mod allocations;
mod budget;
mod chrome;
mod collapsed;
mod firefox;
mod fold;
mod html;
mod json;
mod markdown;
mod piece;
mod pprof;
mod proto;
mod sheet;
mod spans;
mod speedscope;
mod stacks;
mod summary;
mod table;
mod text;
mod timeline;

#[cfg(test)]
#[path = "../tests/support/mod.rs"]
mod support;

use slip_model::{Mode, Recording};

pub use budget::{BudgetFormat, render_budget, render_budget_diff};
pub use html::Base;
pub use sheet::{render_rule, render_rules, render_sheet};
pub use summary::{
    Function, Group, HotStack, KernelSummary, KernelTime, Line, ProcessSummary, Quality, ReasonSummary,
    RequestSummary, Route, StackWaits, Summary, TimeSplit, WaitSummary,
};
pub use text::{bytes, clean, clean_json, duration, utc};

/// An output format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Format {
    /// For reading, in a terminal or anywhere: at most 80 lines with the default options, 90 if the recording has waits, and 25
    /// more if it has a budget.
    Markdown,
    /// One page for a browser: budget, findings, requests and a flame graph, without any network.
    Html,
    /// All of it in numbers, schema `slip.report/1`.
    Json,
    /// One line per stack, for flamegraph.pl and its relatives.
    Collapsed,
    /// For <https://www.speedscope.app>.
    Speedscope,
    /// gzip-compressed `profile.proto`, for `go tool pprof`, Pyroscope, Parca and others.
    Pprof,
    /// For <https://profiler.firefox.com>: samples in the order of time, requests and waits as markers.
    Firefox,
    /// Trace events, for `chrome://tracing`, and without the samples for <https://ui.perfetto.dev>.
    Chrome,
}

impl Format {
    /// All formats.
    pub const ALL: [Self; 8] = [
        Self::Markdown,
        Self::Html,
        Self::Json,
        Self::Collapsed,
        Self::Speedscope,
        Self::Pprof,
        Self::Firefox,
        Self::Chrome,
    ];

    /// The name that the command line knows it by.
    pub fn name(self) -> &'static str {
        match self {
            Self::Markdown => "md",
            Self::Html => "html",
            Self::Json => "json",
            Self::Collapsed => "collapsed",
            Self::Speedscope => "speedscope",
            Self::Pprof => "pprof",
            Self::Firefox => "firefox",
            Self::Chrome => "chrome",
        }
    }

    /// Whether it is bytes that do not belong on a terminal.
    pub fn is_binary(self) -> bool {
        self == Self::Pprof
    }
}

/// What a report contains.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Most rows of a table in Markdown, and most functions, lines, stacks and routes in JSON.
    pub top: usize,
    /// Whether workers between requests appear as `[idle]` in the formats for other tools (JSON and Markdown always count them).
    pub include_idle: bool,
    /// Whether each worker is told apart: a table in Markdown, a root of its own in collapsed stacks. (The
    /// formats after them always tell workers apart, by profile, by label or by thread.)
    pub per_worker: bool,
    /// Sentences to pass on to the reader, such as the warnings of the loader.
    pub notes: Vec<String>,
    /// Of a recording of allocations: whether collapsed stacks have what is kept, in the place of all that was allocated. (The other
    /// formats have both.)
    pub kept: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self { top: 10, include_idle: false, per_worker: false, notes: Vec::new(), kept: false }
    }
}

/// Why a report could not be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReportError {
    /// A number that JSON cannot express. No recording leads there.
    #[error("cannot write JSON")]
    Json(#[from] serde_json::Error),
    /// The compressor failed, which it does without memory only.
    #[error("cannot compress the profile")]
    Compress(#[from] std::io::Error),
    /// The recording is of allocations, and has no times; what the format is called.
    #[error("a recording of allocations has no times, which `{0}` is of")]
    NoTimes(&'static str),
}

/// Makes a report.
///
/// # Errors
///
/// [`ReportError::NoTimes`], if the format is of times and the recording of allocations; else if memory runs out, and there is nothing that the
/// caller can do.
pub fn render(recording: &Recording, format: Format, options: &Options) -> Result<Vec<u8>, ReportError> {
    if recording.info.mode == Mode::Alloc {
        return match format {
            Format::Markdown => Ok(allocations::markdown(recording, options).into_bytes()),
            Format::Collapsed => Ok(allocations::collapsed(recording, options).into_bytes()),
            Format::Speedscope => speedscope::render_allocations(recording),
            Format::Pprof => pprof::render_allocations(recording, options),
            Format::Html | Format::Json | Format::Firefox | Format::Chrome => {
                Err(ReportError::NoTimes(format.name()))
            }
        };
    }
    match format {
        Format::Markdown => Ok(markdown::render(recording, &Summary::of(recording), options).into_bytes()),
        Format::Html => html::render(recording, None, options),
        Format::Json => json::render(recording, &Summary::of(recording), options),
        Format::Collapsed => Ok(collapsed::render(recording, options).into_bytes()),
        Format::Speedscope => speedscope::render(recording, options),
        Format::Pprof => pprof::render(recording, options),
        Format::Firefox => firefox::render(recording, options),
        Format::Chrome => chrome::render(recording, options),
    }
}

/// Makes a page as [`Format::Html`] that also shows what has changed since another recording.
///
/// # Errors
///
/// As [`render`].
pub fn render_page(
    recording: &Recording,
    base: Option<Base<'_>>,
    options: &Options,
) -> Result<Vec<u8>, ReportError> {
    let is_of_times = |recording: &Recording| recording.info.mode != Mode::Alloc;
    if !is_of_times(recording) || base.is_some_and(|base| !is_of_times(base.recording)) {
        return Err(ReportError::NoTimes(Format::Html.name()));
    }
    html::render(recording, base, options)
}
