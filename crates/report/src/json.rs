//! JSON, schema `slip.report/1`: `docs/formats.md` and `schema/slip.report-1.schema.json` describe it.
//!
//! Names are as the target has them, with `\u` escapes for all that a terminal might obey; who unescapes and shows them
//! must make them harmless again.

use serde::Serialize;
use slip_model::{Frame, FrameKind, Language, Recording, RecordingInfo, StackId, WaitReason};

use crate::fold::MAX_DEPTH;
use crate::text::clean_json;
use crate::{Function, Options, ReportError, Summary, TimeSplit};

#[derive(Serialize)]
struct Report<'a> {
    schema: &'static str,
    title: &'a str,
    notes: &'a [String],
    recording: &'a RecordingInfo,
    wall_ns: u64,
    time: Time,
    groups: Vec<Group<'a>>,
    processes: Vec<Process<'a>>,
    functions: Functions<'a>,
    lines: Vec<Line<'a>>,
    stacks: Vec<Stack<'a>>,
    waits: Waits<'a>,
    requests: Requests<'a>,
    quality: Quality,
}

/// Where time went. All but `total_ns`, `busy_ns` and the shares add up to `total_ns`.
#[derive(Serialize)]
struct Time {
    total_ns: u64,
    busy_ns: u64,
    idle_ns: u64,
    code_on_cpu_ns: u64,
    code_waiting_ns: u64,
    code_unknown_ns: u64,
    engine_ns: u64,
    idle_share_of_total: f64,
    engine_share_of_busy: f64,
}

#[derive(Serialize)]
struct Group<'a> {
    title: &'a str,
    language: Language,
    versions: &'a [String],
    workers: u64,
    threads: u64,
    time: Time,
    gil_held_ns: u64,
}

#[derive(Serialize)]
struct Process<'a> {
    pid: u32,
    ns_pid: u32,
    title: &'a str,
    language: Language,
    version: &'a str,
    first_ns: u64,
    ended_ns: Option<u64>,
    threads: u64,
    time: Time,
}

#[derive(Serialize)]
struct Functions<'a> {
    count: usize,
    frameless_ns: u64,
    by_own: Vec<FunctionRow<'a>>,
    by_total: Vec<FunctionRow<'a>>,
}

#[derive(Serialize)]
struct FunctionRow<'a> {
    name: &'a str,
    kind: FrameKind,
    file: &'a str,
    first_line: u32,
    own_ns: u64,
    own_on_cpu_ns: u64,
    total_ns: u64,
    own_share_of_busy: f64,
    total_share_of_busy: f64,
}

#[derive(Serialize)]
struct Line<'a> {
    function: &'a str,
    file: &'a str,
    line: u32,
    own_ns: u64,
    own_on_cpu_ns: u64,
    own_share_of_busy: f64,
}

#[derive(Serialize)]
struct Stack<'a> {
    frames: Vec<StackFrame<'a>>,
    samples: u64,
    wall_ns: u64,
    on_cpu_ns: u64,
    share_of_busy: f64,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    waits: Vec<StackWaits>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    in_kernel: Vec<InKernel<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    instructions: Vec<Instruction<'a>>,
}

#[derive(Serialize)]
struct Instruction<'a> {
    name: &'a str,
    samples: u64,
    wall_ns: u64,
    on_cpu_ns: u64,
}

#[derive(Serialize)]
struct InKernel<'a> {
    frames: Vec<StackFrame<'a>>,
    samples: u64,
    wall_ns: u64,
    on_cpu_ns: u64,
}

#[derive(Serialize)]
struct StackWaits {
    reason: WaitReason,
    count: u64,
    total_ns: u64,
}

#[derive(Serialize)]
struct Waits<'a> {
    count: u64,
    total_ns: u64,
    idle_count: u64,
    idle_ns: u64,
    by_reason: Vec<Reason<'a>>,
}

#[derive(Serialize)]
struct Reason<'a> {
    reason: WaitReason,
    count: u64,
    total_ns: u64,
    mean_ns: u64,
    share_of_waits: f64,
    most_in: Option<MostIn<'a>>,
}

/// A function.
#[derive(Serialize)]
struct MostIn<'a> {
    name: &'a str,
    kind: FrameKind,
    file: &'a str,
    first_line: u32,
}

#[derive(Serialize)]
struct StackFrame<'a> {
    name: &'a str,
    kind: FrameKind,
    file: &'a str,
    line: u32,
}

#[derive(Serialize)]
struct Requests<'a> {
    count: u64,
    resolution_ns: u64,
    serving_busy_ns: u64,
    routes: Vec<Route<'a>>,
}

#[derive(Serialize)]
struct Route<'a> {
    method: &'a str,
    uri: &'a str,
    count: u64,
    busy_ns: u64,
    share_of_serving_busy: f64,
    duration_count: u64,
    duration_mean_ns: u64,
    duration_p50_ns: u64,
    duration_p95_ns: u64,
    peak_memory_bytes: u64,
}

#[derive(Serialize)]
struct Quality {
    complete: bool,
    samples: u64,
    samples_filtered: u64,
    samples_repaired: u64,
    samples_torn: u64,
    samples_failed: u64,
    stacks_truncated: u64,
    ticks_planned: u64,
    ticks_taken: u64,
    ticks_missed: u64,
    own_cpu_ns: u64,
    own_cpu_share_of_core: f64,
}

pub(crate) fn render(
    recording: &Recording,
    summary: &Summary,
    options: &Options,
) -> Result<Vec<u8>, ReportError> {
    let interner = &recording.interner;
    let busy_ns = summary.time.busy_ns();
    let function = |function: &Function| FunctionRow {
        name: interner.text(function.name),
        kind: function.kind,
        file: interner.text(function.file),
        first_line: function.first_line,
        own_ns: function.own_ns,
        own_on_cpu_ns: function.own_on_cpu_ns,
        total_ns: function.total_ns,
        own_share_of_busy: share(function.own_ns, busy_ns),
        total_share_of_busy: share(function.total_ns, busy_ns),
    };
    let frame = |frame: Frame| StackFrame {
        name: interner.text(frame.name),
        kind: frame.kind,
        file: interner.text(frame.file),
        line: frame.line,
    };
    let stack = |id: StackId| {
        let mut frames: Vec<_> =
            interner.frames_of(id).take(MAX_DEPTH).map(|id| frame(interner.frame_at(id))).collect();
        frames.reverse();
        frames
    };
    let in_kernel = |id: StackId| {
        let times = summary.kernel.of_stack(id).iter().take(options.top).map(|time| {
            let mut frames: Vec<_> = time.frames(interner).take(MAX_DEPTH).map(frame).collect();
            frames.reverse();
            InKernel { frames, samples: time.samples, wall_ns: time.ns, on_cpu_ns: time.on_cpu_ns }
        });
        times.collect()
    };
    let instructions = |id: StackId| {
        let times = summary.kernel.instructions(id).iter().take(options.top).map(|time| {
            let frame =
                interner.node(time.stack).map(|node| interner.frame_at(node.frame)).unwrap_or_default();
            let name = interner.text(frame.name);
            Instruction { name, samples: time.samples, wall_ns: time.ns, on_cpu_ns: time.on_cpu_ns }
        });
        times.collect()
    };
    let report = Report {
        schema: "slip.report/1",
        title: &recording.info.target,
        notes: &options.notes,
        recording: &recording.info,
        wall_ns: summary.wall_ns,
        time: time(&summary.time),
        groups: groups(summary),
        processes: processes(recording, summary),
        functions: Functions {
            count: summary.functions.len(),
            frameless_ns: summary.frameless_ns,
            by_own: summary.functions.iter().take(options.top).map(function).collect(),
            by_total: summary.by_total().into_iter().take(options.top).map(function).collect(),
        },
        lines: summary
            .lines
            .iter()
            .take(options.top)
            .map(|line| {
                let frame = interner.frame_at(line.frame);
                Line {
                    function: interner.text(frame.name),
                    file: interner.text(frame.file),
                    line: frame.line,
                    own_ns: line.own_ns,
                    own_on_cpu_ns: line.own_on_cpu_ns,
                    own_share_of_busy: share(line.own_ns, busy_ns),
                }
            })
            .collect(),
        stacks: summary
            .stacks
            .iter()
            .take(options.top)
            .map(|hot| Stack {
                frames: stack(hot.stack),
                samples: hot.samples,
                wall_ns: hot.ns,
                on_cpu_ns: hot.on_cpu_ns,
                share_of_busy: share(hot.ns, busy_ns),
                waits: stack_waits(summary.waits.of_stack(hot.stack)),
                in_kernel: in_kernel(hot.stack),
                instructions: instructions(hot.stack),
            })
            .collect(),
        waits: waits(recording, summary),
        requests: requests(recording, summary, options),
        quality: quality(summary),
    };
    let mut json = clean_json(&serde_json::to_string_pretty(&report)?).into_owned();
    json.push('\n');
    Ok(json.into_bytes())
}

fn groups(summary: &Summary) -> Vec<Group<'_>> {
    let rows = summary.groups.iter().map(|group| Group {
        title: &group.title,
        language: group.language,
        versions: &group.versions,
        workers: group.workers,
        threads: group.threads,
        time: time(&group.time),
        gil_held_ns: group.gil_held_ns,
    });
    rows.collect()
}

fn processes<'a>(recording: &'a Recording, summary: &Summary) -> Vec<Process<'a>> {
    let rows = summary.processes.iter().filter_map(|counted| {
        let process = recording.processes.get(counted.process.0 as usize)?;
        Some(Process {
            pid: process.pid,
            ns_pid: process.ns_pid,
            title: &process.title,
            language: process.language,
            version: &process.version,
            first_ns: process.first_ns,
            ended_ns: Some(process.ended_ns).filter(|ns| *ns != 0),
            threads: counted.threads,
            time: time(&counted.time),
        })
    });
    rows.collect()
}

fn stack_waits(waits: &[crate::StackWaits]) -> Vec<StackWaits> {
    let row = |waits: &crate::StackWaits| StackWaits {
        reason: waits.reason,
        count: waits.count,
        total_ns: waits.total_ns,
    };
    waits.iter().map(row).collect()
}

fn waits<'a>(recording: &'a Recording, summary: &Summary) -> Waits<'a> {
    let interner = &recording.interner;
    let waits = &summary.waits;
    let by_reason = waits.reasons.iter().map(|of| Reason {
        reason: of.reason,
        count: of.count,
        total_ns: of.total_ns,
        mean_ns: of.total_ns / of.count.max(1),
        share_of_waits: share(of.total_ns, waits.total_ns),
        most_in: of.most_in.map(|frame| {
            let frame = interner.frame_at(frame);
            MostIn {
                name: interner.text(frame.name),
                kind: frame.kind,
                file: interner.text(frame.file),
                first_line: frame.first_line,
            }
        }),
    });
    Waits {
        count: waits.count,
        total_ns: waits.total_ns,
        idle_count: waits.idle_count,
        idle_ns: waits.idle_ns,
        by_reason: by_reason.collect(),
    }
}

fn requests<'a>(recording: &'a Recording, summary: &Summary, options: &Options) -> Requests<'a> {
    let requests = &summary.requests;
    let routes = requests.routes.iter().take(options.top).map(|route| Route {
        method: recording.interner.text(route.method),
        uri: recording.interner.text(route.uri),
        count: route.count,
        busy_ns: route.busy_ns,
        share_of_serving_busy: share(route.busy_ns, requests.serving_ns),
        duration_count: route.whole,
        duration_mean_ns: route.mean_ns,
        duration_p50_ns: route.p50_ns,
        duration_p95_ns: route.p95_ns,
        peak_memory_bytes: route.peak_memory_bytes,
    });
    Requests {
        count: requests.count,
        resolution_ns: summary.interval_ns,
        serving_busy_ns: requests.serving_ns,
        routes: routes.collect(),
    }
}

fn quality(summary: &Summary) -> Quality {
    let quality = &summary.quality;
    let totals = quality.totals;
    Quality {
        complete: totals.complete,
        samples: quality.samples,
        samples_filtered: totals.filtered,
        samples_repaired: totals.repaired,
        samples_torn: totals.torn,
        samples_failed: totals.failed,
        stacks_truncated: quality.truncated,
        ticks_planned: totals.ticks_planned,
        ticks_taken: totals.ticks_taken,
        ticks_missed: quality.missed_ticks,
        own_cpu_ns: totals.own_cpu_ns,
        own_cpu_share_of_core: ratio(totals.own_cpu_ns, totals.duration_ns),
    }
}

fn time(split: &TimeSplit) -> Time {
    Time {
        total_ns: split.total_ns(),
        busy_ns: split.busy_ns(),
        idle_ns: split.idle_ns,
        code_on_cpu_ns: split.on_cpu_ns,
        code_waiting_ns: split.waiting_ns,
        code_unknown_ns: split.unknown_ns,
        engine_ns: split.engine_ns,
        idle_share_of_total: share(split.idle_ns, split.total_ns()),
        engine_share_of_busy: share(split.engine_ns, split.busy_ns()),
    }
}

/// A share from 0 to 1 with four digits.
fn share(part: u64, whole: u64) -> f64 {
    ratio(part.min(whole), whole)
}

fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { (part as f64 / whole as f64 * 1e4).round() / 1e4 }
}
