//! Markers: requests and waits, with their begin and end, and what the profiler is told of each kind of them.

use serde::Serialize;
use serde::ser::{SerializeMap as _, Serializer};
use slip_model::Recording;

use super::tables::Strings;
use super::{Category, ms};
use crate::piece;
use crate::spans::{self, PARTS, Span, What};
use crate::stacks::Stacks;

/// A marker with a begin and an end.
const INTERVAL: u8 = 1;

/// What one kind of markers has, and where the profiler shows it.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Schema {
    name: &'static str,
    display: [&'static str; 3],
    chart_label: &'static str,
    tooltip_label: &'static str,
    table_label: &'static str,
    description: &'static str,
    fields: Vec<Field>,
}

#[derive(Serialize)]
struct Field {
    key: &'static str,
    label: &'static str,
    format: &'static str,
}

const SERVED: &str = "ServedRequest";
const SEEN: &str = "SeenRequest";
const WAITS: &str = "Waits";

/// Those of all kinds. Formats of times are whole nanoseconds; paths are left out of profiles that are shared without addresses.
pub(super) fn schemas() -> [Schema; 3] {
    let field = |key, label, format| Field { key, label, format };
    let schema = |name, label, description, fields| Schema {
        name,
        display: ["marker-chart", "marker-table", "timeline-overview"],
        chart_label: label,
        tooltip_label: label,
        table_label: label,
        description,
        fields,
    };
    let mut served = vec![
        field("queue", "Queue", "nanoseconds"),
        field("response", "Until the response was sent", "nanoseconds"),
        field("after", "After the response", "nanoseconds"),
    ];
    served.extend(PARTS.iter().map(|part| field(part, part, "nanoseconds")));
    [
        schema(SERVED, "Request", "A request whose time was measured, by what it was spent on", served),
        schema(
            SEEN,
            "{marker.data.request}",
            "A request from the first to the last sample that saw it, and an interval more",
            vec![
                field("request", "Request", "sanitized-string"),
                field("samples", "Samples", "integer"),
                field("memory", "Most memory", "bytes"),
            ],
        ),
        schema(
            WAITS,
            "{marker.data.reason}",
            "Waits that ended within half a second, as long as they took together",
            vec![
                field("reason", "For", "string"),
                field("count", "Number", "integer"),
                field("total", "Together", "nanoseconds"),
            ],
        ),
    ]
}

/// The markers of a thread, by column.
#[derive(Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Markers {
    length: usize,
    category: Vec<u32>,
    data: Vec<Data>,
    start_time: Vec<f64>,
    end_time: Vec<f64>,
    name: Vec<u32>,
    phase: Vec<u8>,
}

/// What a marker has besides its times.
enum Data {
    Served { queue: u64, response: u64, after: u64, parts: [u64; PARTS.len()] },
    Seen { request: String, samples: u32, memory: u64 },
    Waits { stack: u32, start: f64, reason: &'static str, count: u32, total: u64 },
}

impl Markers {
    pub(super) fn of(
        recording: &Recording,
        spans: &[Span<'_>],
        stacks: &mut Stacks<'_>,
        strings: &mut Strings,
    ) -> Self {
        let mut markers = Self { length: spans.len(), ..Self::default() };
        for span in spans {
            let (name, category, data) = match span.what {
                What::Served(request) => {
                    let data = Data::Served {
                        queue: request.begin_ns.saturating_sub(request.queued_ns),
                        response: request.response_ns.saturating_sub(request.begin_ns),
                        after: request.end_ns.saturating_sub(request.response_ns),
                        parts: request.serving.0,
                    };
                    ("Request", Category::Requests, data)
                }
                What::Seen(request) => {
                    let text = spans::request_text(recording, request);
                    let (samples, memory) = (request.samples, request.peak_memory_bytes);
                    ("Request", Category::Requests, Data::Seen { request: text, samples, memory })
                }
                What::Waits(wait, key) => {
                    let category = if key.reason.is_none() { Category::Idle } else { Category::Waits };
                    let data = Data::Waits {
                        stack: stacks.node(&key),
                        start: ms(span.start_ns),
                        reason: piece::in_words(wait.reason),
                        count: wait.count,
                        total: wait.total_ns,
                    };
                    (spans::wait_name(wait), category, data)
                }
            };
            markers.category.push(category as u32);
            markers.data.push(data);
            markers.start_time.push(ms(span.start_ns));
            markers.end_time.push(ms(span.end_ns));
            markers.name.push(strings.number(name));
            markers.phase.push(INTERVAL);
        }
        markers
    }
}

#[derive(Serialize)]
struct Cause {
    time: f64,
    stack: u32,
}

impl Serialize for Data {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut data = serializer.serialize_map(None)?;
        match self {
            Self::Served { queue, response, after, parts } => {
                data.serialize_entry("type", SERVED)?;
                data.serialize_entry("queue", queue)?;
                data.serialize_entry("response", response)?;
                data.serialize_entry("after", after)?;
                for (part, ns) in PARTS.iter().zip(parts).filter(|(_, ns)| **ns > 0) {
                    data.serialize_entry(part, ns)?;
                }
            }
            Self::Seen { request, samples, memory } => {
                data.serialize_entry("type", SEEN)?;
                data.serialize_entry("request", request)?;
                data.serialize_entry("samples", samples)?;
                data.serialize_entry("memory", memory)?;
            }
            Self::Waits { stack, start, reason, count, total } => {
                data.serialize_entry("type", WAITS)?;
                data.serialize_entry("cause", &Cause { time: *start, stack: *stack })?;
                data.serialize_entry("reason", reason)?;
                data.serialize_entry("count", count)?;
                data.serialize_entry("total", total)?;
            }
        }
        data.end()
    }
}
