//! JSON, schemas `slip.budget/1` and `slip.diff/1`: `docs/formats.md` describes them.

use serde::Serialize;
use slip_doctor::{
    BootSamples, BudgetDiff, BudgetTable, CallPartTime, CallTimes, DiffKey, Line, LineTime, RunTimes,
    ServerTimes, Spread,
};
use slip_model::{CallPart, CpuTaker, Endpoint, RunBegin};

use crate::ReportError;
use crate::text::clean_json;

#[derive(Serialize)]
struct Budget<'a> {
    schema: &'static str,
    measured_by: &'a str,
    cannot_see: &'a [String],
    window_ns: u64,
    workers: Workers,
    requests: Requests,
    run: Option<Run<'a>>,
    servers: Servers<'a>,
    calls: Vec<Calls<'a>>,
    cpu: Cpu<'a>,
    engine: Option<Engine>,
    boot: Option<Boot<'a>>,
}

/// The lines are `watched_ns + excess_ns` together.
#[derive(Serialize)]
struct Workers {
    count: u64,
    watched_ns: u128,
    excess_ns: u128,
    loop_blocked_ns: u128,
    lines: Vec<WorkerLine>,
}

#[derive(Serialize)]
struct WorkerLine {
    line: String,
    ns: u128,
    share_of_lines: f64,
}

#[derive(Serialize)]
struct Requests {
    count: u64,
    shared: u64,
    lost: u64,
    excess_ns: u128,
    whole: Option<Times>,
    lines: Vec<RequestLine>,
    after: Option<Times>,
}

/// The lines, with those of the start-up and the exit, are all that the threads were watched for.
#[derive(Serialize)]
struct Run<'a> {
    threads: u64,
    begins_at: Option<RunBegin>,
    operations: Option<u64>,
    longest_ns: u128,
    lines: Vec<RunLine>,
    startup: Vec<WorkerLine>,
    exit: Vec<WorkerLine>,
    servers: Servers<'a>,
}

#[derive(Serialize)]
struct RunLine {
    #[serde(flatten)]
    line: WorkerLine,
    per_operation_ns: Option<f64>,
}

#[derive(Serialize)]
struct Times {
    mean_ns: u64,
    p50_ns: u64,
    p95_ns: u64,
    p99_ns: u64,
}

#[derive(Serialize)]
struct RequestLine {
    line: String,
    #[serde(flatten)]
    times: Times,
    share_of_lines: f64,
}

#[derive(Serialize)]
struct Servers<'a> {
    named: Vec<Server<'a>>,
    unnamed_ns: u128,
    outside_requests_ns: u128,
}

#[derive(Serialize)]
struct Server<'a> {
    address: &'a str,
    protocol: &'a str,
    calls: u64,
    connects: u64,
    wait_ns: u128,
    connect_ns: u128,
    wake_ns: u128,
    call_mean_ns: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    wait_per_operation_ns: Option<f64>,
}

/// The parts of calls are `calls` times `mean_ns` together; `connect`, `first` and `tls` are beside them.
#[derive(Serialize)]
struct Calls<'a> {
    address: &'a str,
    protocol: &'a str,
    calls: u64,
    mean_ns: u64,
    parts: Vec<CallPartRow>,
    commands: Vec<CommandRow<'a>>,
}

#[derive(Serialize)]
struct CallPartRow {
    part: CallPart,
    ns: u64,
    count: u64,
    #[serde(flatten)]
    times: Times,
}

#[derive(Serialize)]
struct CommandRow<'a> {
    name: &'a str,
    calls: u64,
    mean_ns: u64,
    longest_ns: u64,
}

#[derive(Serialize)]
struct Cpu<'a> {
    takers: &'a [CpuTaker],
    quota_periods: Option<u64>,
    throttled_periods: u64,
    throttled_ns: u64,
    steal_ns: u64,
    cpus_ns: Option<u64>,
}

#[derive(Serialize)]
struct Engine {
    engine_samples: u64,
    on_cpu_samples: u64,
}

/// The shares are between 0 and 1, or null if there are too few samples.
#[derive(Serialize)]
struct Boot<'a> {
    samples: u64,
    boot_samples: u64,
    frameworks: &'a [&'static str],
    share_of_code: Option<f64>,
    interval_95: Option<[f64; 2]>,
}

#[derive(Serialize)]
struct Diff<'a> {
    schema: &'static str,
    a: Side<'a>,
    b: Side<'a>,
    rows: Vec<DiffRow<'a>>,
}

#[derive(Serialize)]
struct Side<'a> {
    name: &'a str,
    requests: u64,
}

#[derive(Serialize)]
struct DiffRow<'a> {
    line: String,
    server: Option<&'a Endpoint>,
    a_mean_ns: Option<u64>,
    b_mean_ns: Option<u64>,
    difference_ns: i128,
    ratio: Option<f64>,
}

pub(super) fn budget(table: &BudgetTable) -> Result<Vec<u8>, ReportError> {
    let BudgetTable { time, requests, servers, .. } = table;
    let budget = Budget {
        schema: "slip.budget/1",
        measured_by: &table.rung,
        cannot_see: &table.cannot_see,
        window_ns: table.window_ns,
        workers: Workers {
            count: table.workers,
            watched_ns: time.watched_ns,
            excess_ns: time.excess_ns,
            loop_blocked_ns: time.loop_blocked_ns,
            lines: worker_lines(&time.lines, time.total_ns()),
        },
        requests: Requests {
            count: requests.count,
            shared: requests.shared,
            lost: requests.lost,
            excess_ns: requests.excess_ns,
            whole: requests.whole.map(times),
            lines: requests
                .lines
                .iter()
                .map(|row| RequestLine {
                    line: key(row.line),
                    times: times(row.spread),
                    share_of_lines: share(row.total_ns, requests.total_ns()),
                })
                .collect(),
            after: requests.after.map(times),
        },
        run: table.run.as_ref().map(run),
        servers: self::servers(servers, |_| None),
        calls: table.calls.iter().map(calls).collect(),
        cpu: Cpu {
            takers: &table.takers,
            quota_periods: table.quota_periods,
            throttled_periods: table.throttled_periods,
            throttled_ns: table.throttled_ns,
            steal_ns: table.steal_ns,
            cpus_ns: (table.cpus_ns > 0).then_some(table.cpus_ns),
        },
        engine: table
            .engine
            .map(|samples| Engine { engine_samples: samples.engine, on_cpu_samples: samples.on_cpu }),
        boot: table.boot.as_ref().map(boot),
    };
    bytes(&budget)
}

fn boot(boot: &BootSamples) -> Boot<'_> {
    let share = |tenths: u64| tenths as f64 / 1_000.0;
    Boot {
        samples: boot.samples,
        boot_samples: boot.boot,
        frameworks: &boot.frameworks,
        share_of_code: boot.share().map(|(tenths, _)| share(tenths)),
        interval_95: boot.share().map(|(_, interval)| interval.map(share)),
    }
}

fn run(run: &RunTimes) -> Run<'_> {
    let each = |ns| run.each_tenths(ns).map(|tenths| tenths as f64 / 10.0);
    let lines = worker_lines(&run.lines, run.total_ns()).into_iter();
    Run {
        threads: run.threads,
        begins_at: run.begin,
        operations: run.operations,
        longest_ns: run.longest_ns,
        lines: lines.map(|line| RunLine { per_operation_ns: each(line.ns), line }).collect(),
        startup: worker_lines(&run.startup, run.startup_ns()),
        exit: worker_lines(&run.exit, run.exit_ns()),
        servers: servers(&run.servers, each),
    }
}

fn worker_lines(lines: &[LineTime], total_ns: u128) -> Vec<WorkerLine> {
    let line = |row: &LineTime| WorkerLine {
        line: key(row.line),
        ns: row.ns,
        share_of_lines: share(row.ns, total_ns),
    };
    lines.iter().map(line).collect()
}

fn servers(times: &ServerTimes, each: impl Fn(u128) -> Option<f64>) -> Servers<'_> {
    Servers {
        named: times
            .rows
            .iter()
            .map(|row| Server {
                address: &row.endpoint.address,
                protocol: &row.endpoint.protocol,
                calls: row.calls,
                connects: row.connects,
                wait_ns: row.wait_ns,
                connect_ns: row.connect_ns,
                wake_ns: row.wake_ns,
                call_mean_ns: row.mean_ns(),
                wait_per_operation_ns: each(row.wait_ns),
            })
            .collect(),
        unnamed_ns: times.unnamed_ns,
        outside_requests_ns: times.outside_ns,
    }
}

fn calls(of_server: &CallTimes) -> Calls<'_> {
    let part = |row: &CallPartTime| CallPartRow {
        part: row.part,
        ns: row.ns,
        count: row.count,
        times: times(row.spread),
    };
    Calls {
        address: &of_server.endpoint.address,
        protocol: &of_server.endpoint.protocol,
        calls: of_server.calls,
        mean_ns: of_server.mean_ns,
        parts: of_server.parts.iter().map(part).collect(),
        commands: of_server
            .commands
            .iter()
            .map(|row| CommandRow {
                name: &row.name,
                calls: row.calls,
                mean_ns: row.mean_ns,
                longest_ns: row.longest_ns,
            })
            .collect(),
    }
}

pub(super) fn diff(diff: &BudgetDiff, names: [&str; 2]) -> Result<Vec<u8>, ReportError> {
    let [a, b] = [0, 1].map(|at| Side { name: names[at], requests: diff.requests[at] });
    let rows = diff.rows.iter().map(|row| {
        let (line, server) = match &row.key {
            DiffKey::Line(line) => (key(*line), None),
            DiffKey::Server(endpoint) => (key(Line::Wait), Some(endpoint)),
            DiffKey::Whole => ("whole".to_owned(), None),
        };
        let [a_mean_ns, b_mean_ns] = row.mean_ns;
        let ratio = row.ratio().map(rounded);
        DiffRow { line, server, a_mean_ns, b_mean_ns, difference_ns: row.difference_ns(), ratio }
    });
    bytes(&Diff { schema: "slip.diff/1", a, b, rows: rows.collect() })
}

fn key(line: Line) -> String {
    line.name().to_ascii_lowercase()
}

fn times(Spread { mean_ns, p50_ns, p95_ns, p99_ns }: Spread) -> Times {
    Times { mean_ns, p50_ns, p95_ns, p99_ns }
}

/// A share from 0 to 1 with four digits.
fn share(part: u128, whole: u128) -> f64 {
    if whole == 0 { 0.0 } else { rounded(part as f64 / whole as f64) }
}

fn rounded(value: f64) -> f64 {
    (value * 1e4).round() / 1e4
}

fn bytes(document: &impl Serialize) -> Result<Vec<u8>, ReportError> {
    let mut json = clean_json(&serde_json::to_string_pretty(document)?).into_owned();
    json.push('\n');
    Ok(json.into_bytes())
}
