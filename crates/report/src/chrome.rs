//! The Trace Event Format, as `chrome://tracing` and Perfetto read it: requests and waits as events, code as `samples` with `stackFrames`.
//!
//! Times are microseconds with three decimals, weights of samples nanoseconds.

use std::collections::HashMap;

use serde::Serialize;
use serde::ser::{SerializeMap as _, SerializeSeq as _, Serializer};
use slip_model::{FrameId, FrameKind, Recording};

use crate::fold::{self, Element};
use crate::piece;
use crate::spans::{self, PARTS, Span, Track, What};
use crate::stacks::{self, Node, Stacks};
use crate::summary::{Function, FunctionTable};
use crate::text::clean;
use crate::timeline::{Detail, Timeline};
use crate::{Options, ReportError};

/// A sample takes some 80 bytes in the file, and what reads it keeps all of them as objects.
const DETAIL: Detail = Detail { most_rows: 200_000, joins: true };

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct File<'a> {
    trace_events: Events<'a>,
    display_time_unit: &'static str,
    other_data: OtherData,
    stack_frames: Frames<'a>,
    samples: &'a [Sample],
}

/// What readers show of a trace as a whole.
#[derive(Serialize)]
struct OtherData {
    tool: String,
    target: String,
    sampler: String,
    host: String,
    started_unix_ns: u64,
    interval_ns: u64,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    cannot_see: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    notes: Vec<String>,
}

/// Frames by number, each with that of its caller.
struct Frames<'a> {
    recording: &'a Recording,
    functions: &'a [Function],
    /// Their frames are functions.
    nodes: &'a [Node],
}

#[derive(Serialize)]
struct Frame {
    name: String,
    category: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    parent: Option<u32>,
}

#[derive(Serialize)]
struct Sample {
    tid: u32,
    ts: f64,
    name: &'static str,
    sf: u32,
    weight: u64,
}

struct Events<'a> {
    recording: &'a Recording,
    tracks: &'a [Track],
    spans: &'a [Span<'a>],
    is_in_order: bool,
}

/// One event. What a phase does not have is left out.
#[derive(Default, Serialize)]
struct Event<'a> {
    ph: &'static str,
    pid: u32,
    tid: u32,
    ts: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    dur: Option<f64>,
    name: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    cat: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    args: Option<Arguments<'a>>,
}

/// What an event has besides its times. Units end the key.
#[derive(Clone, Copy)]
enum Arguments<'a> {
    Name(&'a str),
    Span(&'a What<'a>),
}

/// Nanoseconds in the unit of the format. Its numbers have 53 bits, so that nothing is lost of times below 104 days.
fn us(ns: u64) -> f64 {
    ns as f64 / 1e3
}

pub(crate) fn render(recording: &Recording, options: &Options) -> Result<Vec<u8>, ReportError> {
    let interner = &recording.interner;
    let mut table = FunctionTable::new(interner);
    let function_of: Vec<u32> =
        (0..=interner.sizes().1 as u32).map(|id| table.index(FrameId(id)) as u32).collect();
    let functions = table.functions;
    let number = |frame: FrameId| function_of[frame.index().min(function_of.len() - 1)];
    let code_of = stacks::without_kernel(interner);
    let mut stacks = Stacks::new(interner, &code_of, &number);

    let tracks = spans::tracks(recording);
    let spans = spans::spans(recording, &tracks, options.include_idle);
    let timeline = Timeline::of(recording, options.include_idle, DETAIL);
    let mut samples = Vec::new();
    for track in &tracks {
        let rows = track.thread.and_then(|thread| timeline.rows.get(thread));
        for row in rows.into_iter().flatten() {
            let Some(key) = row.key else { continue };
            let sf = stacks.node(&key);
            let on_cpu_ns = row.on_cpu_ns.min(row.ns);
            for (name, weight) in [("on CPU", on_cpu_ns), ("off CPU", row.ns - on_cpu_ns)] {
                if weight > 0 {
                    samples.push(Sample { tid: track.tid, ts: us(row.time_ns), name, sf, weight });
                }
            }
        }
    }

    let info = &recording.info;
    let text = |text: &String| clean(text).into_owned();
    let file = File {
        trace_events: Events { recording, tracks: &tracks, spans: &spans, is_in_order: timeline.is_in_order },
        display_time_unit: "ns",
        other_data: OtherData {
            tool: text(&info.tool),
            target: text(&info.target),
            sampler: text(&info.sampler),
            host: text(&info.host),
            started_unix_ns: info.started_unix_ns,
            interval_ns: info.interval_ns,
            cannot_see: info.cannot_see.iter().map(text).collect(),
            notes: options.notes.iter().map(text).collect(),
        },
        stack_frames: Frames { recording, functions: &functions, nodes: stacks.nodes() },
        samples: &samples,
    };
    Ok(serde_json::to_vec(&file)?)
}

impl Serialize for Frames<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let labels: Vec<String> = self
            .functions
            .iter()
            .map(|function| fold::function_label(&self.recording.interner, function, &[]))
            .collect();
        let mut frames = serializer.serialize_map(Some(self.nodes.len()))?;
        for (number, (parent, element)) in self.nodes.iter().enumerate() {
            let (name, category) = match element {
                Element::Marker(marker) => ((*marker).to_owned(), "marker"),
                Element::Frame(function) => {
                    (labels[*function as usize].clone(), kind(self.functions[*function as usize].kind))
                }
            };
            frames.serialize_entry(&number, &Frame { name, category, parent: *parent })?;
        }
        frames.end()
    }
}

fn kind(kind: FrameKind) -> &'static str {
    match kind {
        FrameKind::Python => "python",
        FrameKind::Php => "php",
        FrameKind::PhpInternal => "php internal",
        FrameKind::Native => "native",
        FrameKind::Kernel => "kernel",
        FrameKind::Server => "server",
        FrameKind::Marker | FrameKind::Instruction => "marker",
    }
}

impl Serialize for Events<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut events = serializer.serialize_seq(None)?;
        let order = if self.is_in_order { "" } else { " (by stack, not in the order of time)" };
        for track in self.tracks {
            if track.is_first {
                let args = Some(Arguments::Name(&track.process));
                events.serialize_element(&track.event("M", "process_name", args))?;
            }
            let name = format!("{}{order}", track.name);
            events.serialize_element(&track.event("M", "thread_name", Some(Arguments::Name(&name))))?;
        }
        // Where the last request of a track ended that is an event of its thread.
        let mut ended_ns: HashMap<usize, u64> = HashMap::new();
        for (number, span) in self.spans.iter().enumerate() {
            let track = &self.tracks[span.track];
            let (name, cat) = match span.what {
                What::Served(_) => ("request".into(), "request"),
                What::Seen(request) => (spans::request_text(self.recording, request), "request"),
                What::Waits(wait, _) => (spans::wait_name(wait).to_owned(), "wait"),
            };
            let args = Some(Arguments::Span(&span.what));
            let is_request = !matches!(span.what, What::Waits(..));
            let free_ns = ended_ns.entry(span.track).or_default();
            // Events of a thread may only enclose each other, which requests that share their worker and waits do not.
            if is_request && span.start_ns >= *free_ns {
                *free_ns = span.end_ns;
                let event = Event {
                    ts: us(span.start_ns),
                    dur: Some(us(span.end_ns - span.start_ns)),
                    cat,
                    ..track.event("X", &name, args)
                };
                events.serialize_element(&event)?;
                continue;
            }
            for (ph, ns, args) in [("b", span.start_ns, args), ("e", span.end_ns, None)] {
                let id = Some(format!("0x{number:x}"));
                events.serialize_element(&Event { ts: us(ns), cat, id, ..track.event(ph, &name, args) })?;
            }
        }
        events.end()
    }
}

impl Track {
    fn event<'a>(&self, ph: &'static str, name: &'a str, args: Option<Arguments<'a>>) -> Event<'a> {
        Event { ph, pid: self.pid, tid: self.tid, name, args, ..Event::default() }
    }
}

impl Serialize for Arguments<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut arguments = serializer.serialize_map(None)?;
        match self {
            Self::Name(name) => arguments.serialize_entry("name", name)?,
            Self::Span(What::Served(request)) => {
                let times = [
                    ("queue_ns", request.begin_ns.saturating_sub(request.queued_ns)),
                    ("response_ns", request.response_ns.saturating_sub(request.begin_ns)),
                    ("after_ns", request.end_ns.saturating_sub(request.response_ns)),
                ];
                for (key, ns) in times {
                    arguments.serialize_entry(key, &ns)?;
                }
                for (part, ns) in PARTS.iter().zip(request.serving.0).filter(|(_, ns)| *ns > 0) {
                    arguments.serialize_entry(&format!("{part}_ns"), &ns)?;
                }
            }
            Self::Span(What::Seen(request)) => {
                arguments.serialize_entry("samples", &request.samples)?;
                arguments.serialize_entry("peak_memory_bytes", &request.peak_memory_bytes)?;
            }
            Self::Span(What::Waits(wait, _)) => {
                arguments.serialize_entry("for", piece::in_words(wait.reason))?;
                arguments.serialize_entry("count", &wait.count)?;
                arguments.serialize_entry("total_ns", &wait.total_ns)?;
            }
        }
        arguments.end()
    }
}
