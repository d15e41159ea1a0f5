//! The processed profile format of <https://profiler.firefox.com>, version 55 of its changelog
//! (`docs-developer/CHANGELOG-formats.md` of `firefox-devtools/profiler`). Later versions of the profiler read all earlier formats.
//!
//! Written by hand: weights of the crate `fxprof-processed-profile` are whole milliseconds of 32 bits, and ours are nanoseconds.

mod markers;
mod tables;

use serde::Serialize;
use serde::ser::{SerializeSeq as _, Serializer};
use slip_model::{FrameId, Recording};

use crate::spans::{self, Span, Track};
use crate::summary::{Function, FunctionTable};
use crate::text::clean;
use crate::timeline::{Detail, Row, Timeline};
use crate::{Options, ReportError, stacks};

use markers::{Markers, Schema};
use tables::Tables;

/// The version of the format.
const VERSION: u32 = 55;

/// A sample takes some 35 bytes in the file: 35 MB for a million, which is what the profiler opens within seconds. It is that of eight
/// workers at 100 Hz for 20 minutes.
const DETAIL: Detail = Detail { most_rows: 1_000_000, joins: false };

/// A list that is always empty.
type Nothing = [(); 0];

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Profile<'a> {
    meta: Meta<'a>,
    libs: Nothing,
    threads: Threads<'a>,
    pages: Nothing,
    profiler_overhead: Nothing,
    counters: Nothing,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Meta<'a> {
    categories: Vec<CategoryRow>,
    debug: bool,
    extensions: Extensions,
    interval: f64,
    preprocessed_profile_version: u32,
    process_type: u32,
    product: String,
    oscpu: String,
    sample_units: SampleUnits,
    start_time: f64,
    symbolicated: bool,
    paused_ranges: Nothing,
    /// That of another format, which readers of this one ignore.
    version: u32,
    uses_only_one_stack_type: bool,
    source_code_is_not_on_searchfox: bool,
    marker_schema: &'a [Schema],
    extra: [Section; 1],
}

#[derive(Serialize)]
struct CategoryRow {
    name: &'static str,
    color: &'static str,
    subcategories: [&'static str; 1],
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Extensions {
    length: u32,
    #[serde(rename = "baseURL")]
    base_url: Nothing,
    id: Nothing,
    name: Nothing,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct SampleUnits {
    time: &'static str,
    event_delay: &'static str,
    #[serde(rename = "threadCPUDelta")]
    thread_cpu_delta: &'static str,
}

/// What the profiler shows of a profile as a whole.
#[derive(Serialize)]
struct Section {
    label: &'static str,
    entries: Vec<Entry>,
}

#[derive(Serialize)]
struct Entry {
    label: &'static str,
    format: &'static str,
    value: String,
}

/// What a frame or a marker is of, for colours and for filters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Category {
    Other,
    Python,
    Php,
    PhpInternal,
    Native,
    Kernel,
    Engine,
    Waits,
    Idle,
    Requests,
}

impl Category {
    /// By number. The profiler needs one that is grey.
    const ALL: [(Self, &'static str, &'static str); 10] = [
        (Self::Other, "Other", "grey"),
        (Self::Python, "Python", "yellow"),
        (Self::Php, "PHP", "purple"),
        (Self::PhpInternal, "PHP internal", "blue"),
        (Self::Native, "Native", "magenta"),
        (Self::Kernel, "Kernel", "orange"),
        (Self::Engine, "Engine", "lightblue"),
        (Self::Waits, "Waits", "red"),
        (Self::Idle, "Idle", "transparent"),
        (Self::Requests, "Requests", "green"),
    ];
}

/// The threads, each of which is made only when it is written: tables of all of them would take as much memory as the file.
struct Threads<'a> {
    source: &'a Source<'a>,
    tracks: &'a [Track],
    spans: &'a [Span<'a>],
    timeline: &'a Timeline,
}

/// What all threads are made from.
struct Source<'a> {
    recording: &'a Recording,
    /// From [`stacks::without_kernel`].
    code_of: Vec<u32>,
    functions: Vec<Function>,
    /// By frame; the last one is of frames that do not exist.
    function_of: Vec<u32>,
}

impl Source<'_> {
    /// The function of a frame, by number.
    fn function(&self, frame: u32) -> u32 {
        let functions = &self.function_of;
        functions.get(frame as usize).or(functions.last()).copied().unwrap_or(0)
    }
}

impl Serialize for Threads<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut threads = serializer.serialize_seq(None)?;
        for (number, track) in self.tracks.iter().enumerate() {
            let rows = track.thread.and_then(|thread| self.timeline.rows.get(thread));
            let rows = rows.map_or(&[][..], Vec::as_slice);
            let from = self.spans.partition_point(|span| span.track < number);
            let to = self.spans.partition_point(|span| span.track <= number);
            let spans = &self.spans[from..to];
            // Without a main one the profiler does not know a process.
            if track.is_main || !spans.is_empty() || rows.iter().any(|row| row.key.is_some()) {
                threads.serialize_element(&self.thread(track, rows, spans))?;
            }
        }
        threads.end()
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Thread<'a> {
    name: String,
    is_main_thread: bool,
    process_type: &'static str,
    process_name: &'a str,
    pid: String,
    tid: u32,
    process_startup_time: f64,
    process_shutdown_time: Option<f64>,
    register_time: f64,
    unregister_time: Option<f64>,
    paused_ranges: Nothing,
    show_markers_in_timeline: bool,
    samples: Samples,
    markers: Markers,
    #[serde(flatten)]
    tables: Tables,
}

#[derive(Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct Samples {
    length: usize,
    weight_type: &'static str,
    stack: Vec<Option<u32>>,
    time: Vec<f64>,
    weight: Vec<f64>,
    #[serde(rename = "threadCPUDelta")]
    thread_cpu_delta: Vec<u64>,
}

impl<'a> Threads<'a> {
    fn thread(&self, track: &'a Track, rows: &[Row], spans: &[Span]) -> Thread<'a> {
        let number = |frame: FrameId| frame.0;
        let mut stacks = stacks::Stacks::new(&self.source.recording.interner, &self.source.code_of, &number);
        let mut samples = Samples { length: rows.len(), weight_type: "tracing-ms", ..Samples::default() };
        for row in rows {
            samples.stack.push(row.key.map(|key| stacks.node(&key)));
            samples.time.push(ms(row.time_ns));
            samples.weight.push(ms(row.ns));
            samples.thread_cpu_delta.push(row.on_cpu_ns);
        }
        let mut strings = tables::Strings::default();
        let markers = Markers::of(self.source.recording, spans, &mut stacks, &mut strings);
        let tables = Tables::of(self.source, stacks.nodes(), strings);
        let order = if self.timeline.is_in_order { "" } else { " (by stack, not in the order of time)" };
        Thread {
            name: format!("{}{order}", track.name),
            is_main_thread: track.is_main,
            process_type: "default",
            process_name: &track.process,
            pid: track.pid.to_string(),
            tid: track.tid,
            process_startup_time: ms(track.first_ns),
            process_shutdown_time: track.ended_ns.map(ms),
            register_time: ms(track.first_ns),
            unregister_time: track.ended_ns.map(ms),
            paused_ranges: [],
            show_markers_in_timeline: true,
            samples,
            markers,
            tables,
        }
    }
}

/// Nanoseconds in the unit of the format. Its numbers have 53 bits, so that nothing is lost of times below 104 days.
fn ms(ns: u64) -> f64 {
    ns as f64 / 1e6
}

pub(crate) fn render(recording: &Recording, options: &Options) -> Result<Vec<u8>, ReportError> {
    let interner = &recording.interner;
    let mut table = FunctionTable::new(interner);
    let function_of = (0..=interner.sizes().1 as u32).map(|id| table.index(FrameId(id)) as u32).collect();
    let functions = table.functions;
    let source = Source { recording, code_of: stacks::without_kernel(interner), functions, function_of };
    let tracks = spans::tracks(recording);
    let spans = spans::spans(recording, &tracks, options.include_idle);
    let timeline = Timeline::of(recording, options.include_idle, DETAIL);
    let schemas = markers::schemas();
    let profile = Profile {
        meta: meta(recording, options, &schemas),
        libs: [],
        threads: Threads { source: &source, tracks: &tracks, spans: &spans, timeline: &timeline },
        pages: [],
        profiler_overhead: [],
        counters: [],
    };
    Ok(serde_json::to_vec(&profile)?)
}

fn meta<'a>(recording: &Recording, options: &Options, schemas: &'a [Schema]) -> Meta<'a> {
    let info = &recording.info;
    let row = |(_, name, color)| CategoryRow { name, color, subcategories: ["Other"] };
    let entry = |label, text: &str| Entry { label, format: "string", value: clean(text).into_owned() };
    let entries = [entry("Recorded by", &info.tool), entry("Sampler", &info.sampler)].into_iter();
    let blind = info.cannot_see.iter().map(|what| entry("Cannot see", what));
    let notes = options.notes.iter().map(|note| entry("Note", note));
    Meta {
        categories: Category::ALL.map(row).into(),
        debug: false,
        extensions: Extensions { length: 0, base_url: [], id: [], name: [] },
        interval: ms(info.interval_ns),
        preprocessed_profile_version: VERSION,
        process_type: 0,
        product: clean(&info.target).into_owned(),
        oscpu: clean(&info.host).into_owned(),
        sample_units: SampleUnits { time: "ms", event_delay: "ms", thread_cpu_delta: "ns" },
        start_time: ms(info.started_unix_ns),
        symbolicated: true,
        paused_ranges: [],
        version: 24,
        uses_only_one_stack_type: true,
        source_code_is_not_on_searchfox: true,
        marker_schema: schemas,
        extra: [Section { label: "Recording", entries: entries.chain(blind).chain(notes).collect() }],
    }
}
