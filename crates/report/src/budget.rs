//! The budget of the workers' time as text: plain for a terminal, Markdown or JSON; and two of them side by side.

mod diff;
mod json;
mod run;

use std::fmt::Write as _;

use slip_doctor::{
    BootSamples, BudgetDiff, BudgetTable, CallTimes, Line, ServerTime, Spread, call_part_meaning,
    call_part_name, tenths,
};
use slip_model::{CpuTaker, Endpoint};

use crate::ReportError;
use crate::markdown::sentence;
use crate::table::Table;
use crate::text::{clean, code, count, duration, percent, shorten};

/// Most servers, and most programs that had the CPU, that are shown.
const MAX_SERVERS: usize = 10;
const MAX_TAKERS: usize = 5;
/// Most commands of a server that are shown.
const MAX_COMMANDS: usize = 5;
/// Most characters of a name.
const NAME: usize = 48;

/// A form of a budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum BudgetFormat {
    /// Plain text whose columns line up.
    Table,
    /// Schemas `slip.budget/1` and `slip.diff/1`.
    Json,
    /// Markdown.
    Markdown,
}

/// Makes text of a budget.
///
/// # Errors
///
/// [`ReportError`], if memory runs out; there is nothing that the caller can do.
pub fn render_budget(table: &BudgetTable, format: BudgetFormat) -> Result<Vec<u8>, ReportError> {
    let style = match format {
        BudgetFormat::Json => return json::budget(table),
        BudgetFormat::Table => Style::Plain,
        BudgetFormat::Markdown => Style::Markdown,
    };
    let mut text = String::new();
    if let Some(run) = &table.run {
        run::times(&mut text, table, run, style);
        text.push('\n');
    }
    if table.workers > 0 || table.run.is_none() {
        worker_times(&mut text, table, style);
        text.push('\n');
        request_times(&mut text, table, style);
        text.push('\n');
    }
    for times in table.calls.iter().take(MAX_SERVERS) {
        call_times(&mut text, times, style);
        text.push('\n');
    }
    how(&mut text, table, style);
    Ok(text.into_bytes())
}

/// Makes text of two budgets that are compared, which are called `names`.
///
/// # Errors
///
/// As [`render_budget`].
pub fn render_budget_diff(
    diff: &BudgetDiff,
    names: [&str; 2],
    format: BudgetFormat,
) -> Result<Vec<u8>, ReportError> {
    match format {
        BudgetFormat::Json => json::diff(diff, names),
        BudgetFormat::Table => Ok(diff::render(diff, names, Style::Plain).into_bytes()),
        BudgetFormat::Markdown => Ok(diff::render(diff, names, Style::Markdown).into_bytes()),
    }
}

/// Appends what a report says of a budget: its lines that are not empty.
pub(crate) fn short(text: &mut String, table: &BudgetTable) {
    if let Some(run) = &table.run {
        text.push('\n');
        run::times(text, table, run, Style::Markdown);
        if table.workers == 0 {
            return;
        }
    }
    let _ = writeln!(
        text,
        "\n## What the workers' time was spent on ({}; the lines make 100 %)\n",
        watched(table)
    );
    let mut rows = Table::new(&["line", ">share", ">time", "what"]);
    for row in table.time.lines.iter().filter(|row| row.ns > 0) {
        let what = row.line.meaning().to_owned();
        rows.row([row.line.name().to_owned(), percent(row.tenths), time(row.ns), what]);
    }
    rows.write(text);
    text.extend(excess(table).map(|note| format!("\n{note}\n")));
    let how = if table.is_by_looks() {
        "Time on a CPU, and time ready for one, is measured; what workers were blocked by is sampled"
    } else {
        "All of it is measured, none of it sampled"
    };
    let _ = writeln!(text, "\n{how}. `slip budget` adds servers, who had the CPU, and requests.");
}

/// How text is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Style {
    Plain,
    Markdown,
}

impl Style {
    fn heading(self, text: &mut String, heading: &str) {
        let mark = if self == Self::Markdown { "## " } else { "" };
        let _ = writeln!(text, "{mark}{heading}\n");
    }

    fn table(self, text: &mut String, table: &Table) {
        match self {
            Self::Plain => table.write_plain(text),
            Self::Markdown => table.write(text),
        }
    }

    /// An untrusted name in a table.
    fn name(self, name: &str) -> String {
        match self {
            Self::Plain => shorten(&clean(name), NAME).into_owned(),
            Self::Markdown => code(name, NAME, true),
        }
    }

    /// The begin of a row that is a part of the line above.
    fn below(self) -> &'static str {
        if self == Self::Markdown { "↳ " } else { "  " }
    }

    /// A sentence from us as a rule, but perhaps from a file that somebody else made.
    fn sentence(self, text: &str) -> String {
        match self {
            Self::Plain => shorten(&clean(text.trim_end_matches('.')), 200).into_owned(),
            Self::Markdown => sentence(text),
        }
    }

    /// A paragraph below a table, if there is anything to say.
    fn notes(self, text: &mut String, notes: &[String]) {
        if !notes.is_empty() {
            text.push('\n');
        }
        for note in notes {
            let _ = writeln!(text, "- {note}");
        }
    }
}

/// `2 workers watched, 20.0 s together`.
fn watched(table: &BudgetTable) -> String {
    let plural = if table.workers == 1 { "" } else { "s" };
    format!("{} worker{plural} watched, {} together", count(table.workers), time(table.time.watched_ns))
}

fn worker_times(text: &mut String, table: &BudgetTable, style: Style) {
    style.heading(text, &format!("The workers' time ({}; the lines make 100 %)", watched(table)));
    let mut rows = Table::new(&["line", ">share", ">time", "what"]);
    let total_ns = table.time.total_ns();
    for row in &table.time.lines {
        if row.ns == 0 && (row.line == Line::Unknown || !table.sees(row.line)) {
            continue;
        }
        let what = row.line.meaning().to_owned();
        rows.row([row.line.name().to_owned(), percent(row.tenths), time(row.ns), what]);
        let mut part = |name: String, share: String, time: String, what: String| {
            rows.row([format!("{}{name}", style.below()), share, time, what]);
        };
        match row.line {
            Line::Code => {
                if let Some(engine) = table.engine {
                    let share = percent(tenths(engine.engine.into(), engine.on_cpu.into()));
                    let what = format!(
                        "{share} of it, by {} samples of PHP on a CPU: start-up, compilation, shutdown",
                        count(engine.on_cpu)
                    );
                    part("of which engine".into(), String::new(), String::new(), what);
                }
                if let Some(boot) = &table.boot {
                    part("of which boot".into(), String::new(), String::new(), booting(boot));
                }
            }
            Line::Wait => {
                let servers = &table.servers;
                for server in servers.rows.iter().take(MAX_SERVERS) {
                    part(
                        style.name(&called(&server.endpoint)),
                        percent(server.tenths),
                        time(server.wait_ns),
                        calls(server),
                    );
                }
                if servers.rows.len() > MAX_SERVERS {
                    let more = &servers.rows[MAX_SERVERS..];
                    let ns: u128 = more.iter().map(|server| server.wait_ns).sum();
                    let name = format!("{} more", count(more.len() as u64));
                    part(name, percent(tenths(ns, total_ns)), time(ns), String::new());
                }
                if servers.unnamed_ns > 0 {
                    let ns = servers.unnamed_ns;
                    part("not known which".into(), percent(tenths(ns, total_ns)), time(ns), String::new());
                }
            }
            Line::Wake => {
                for CpuTaker { name, is_worker, ns, .. } in table.takers.iter().take(MAX_TAKERS) {
                    let (name, what) = match (&**name, is_worker) {
                        ("", _) => {
                            ("nobody".to_owned(), "the CPU was idle: being woken, or held back by a quota")
                        }
                        (name, true) => (style.name(name), "had the CPU before, a worker itself"),
                        (name, false) => (style.name(name), "had the CPU before"),
                    };
                    part(name, percent(tenths((*ns).into(), total_ns)), duration(*ns), what.into());
                }
                for (name, what) in cpu_counters(table) {
                    part(name.into(), String::new(), String::new(), what);
                }
            }
            _ => {}
        }
    }
    style.table(text, &rows);
    style.notes(text, &worker_notes(table));
}

/// `25.0 % [18.1, 33.4] of it, estimated by 120 samples of PHP: WordPress before it comes to the request`.
fn booting(boot: &BootSamples) -> String {
    let samples = count(boot.samples);
    let Some((share, [low, high])) = boot.share() else {
        return format!("not enough samples to tell: {samples} of {}", count(BootSamples::min_samples()));
    };
    let bound = |tenths: u64| percent(tenths).trim_end_matches(" %").to_owned();
    format!(
        "{} [{}, {}] of it, estimated by {samples} samples of PHP: {} before it comes to the request",
        percent(share),
        bound(low),
        bound(high),
        boot.frameworks.join(", ")
    )
}

/// What the kernel's own counters say of being without a CPU, also that it was not that.
fn cpu_counters(table: &BudgetTable) -> impl Iterator<Item = (&'static str, String)> {
    let held_back = || duration(table.throttled_ns);
    let quota = match (table.quota_periods, table.throttled_periods) {
        (None, _) if table.throttled_ns == 0 => None,
        (None, _) => Some(format!("held the workers' control groups back for {}", held_back())),
        (Some(0), _) => Some("ruled out: none was in force".to_owned()),
        (Some(periods), 0) => Some(format!("ruled out: 0 throttled periods of {}", count(periods))),
        (Some(periods), throttled) => Some(format!(
            "{} throttled periods of {}, {}, all CPUs together",
            count(throttled),
            count(periods),
            held_back()
        )),
    };
    let stolen = || duration(table.steal_ns);
    let steal = match (table.cpus_ns, table.steal_ns) {
        (0, 0) => None,
        (0, _) => Some(format!("{}, all CPUs together", stolen())),
        (_, 0) => Some("0.0 % of the machine's CPUs, as far as its host tells".to_owned()),
        (all, steal) => {
            let share = percent(tenths(steal.into(), all.into()));
            Some(format!("{share} of the machine's CPUs, {}: its host gave them to others", stolen()))
        }
    };
    quota.map(|what| ("CPU quota", what)).into_iter().chain(steal.map(|what| ("steal", what)))
}

/// What is to be known of the workers' time beside its lines.
fn worker_notes(table: &BudgetTable) -> Vec<String> {
    let mut notes = Vec::new();
    if table.servers.outside_ns > 0 {
        notes.push(format!(
            "Servers have all of their time: {} of it is in AFTER and BETWEEN, and not in WAIT.",
            time(table.servers.outside_ns)
        ));
    }
    let blocked_ns = table.time.loop_blocked_ns;
    if blocked_ns > 0 {
        notes.push(format!(
            "LOOP {}, {}: data had come and waited while the event loop was busy with something else.",
            percent(tenths(blocked_ns, table.time.total_ns())),
            time(blocked_ns)
        ));
    }
    notes.extend(excess(table));
    notes
}

/// What is to be said if the parts of workers are longer than these were watched.
fn excess(table: &BudgetTable) -> Option<String> {
    let excess_ns = table.time.excess_ns;
    (excess_ns > 0).then(|| {
        format!(
            "The lines are {} longer than the workers were watched: some time counts twice.",
            time(excess_ns)
        )
    })
}

fn request_times(text: &mut String, table: &BudgetTable, style: Style) {
    let requests = &table.requests;
    let Some(whole) = requests.whole else {
        text.push_str("No request ended in the window.\n");
        return;
    };
    let plural = if requests.count == 1 { "" } else { "s" };
    style.heading(
        text,
        &format!(
            "A request, as its client waits for it ({} request{plural}; milliseconds)",
            count(requests.count)
        ),
    );
    let mut rows = Table::new(&["line", ">share", ">mean", ">p50", ">p95", ">p99"]);
    let mut row = |name: &str, share: String, spread: Spread| {
        let Spread { mean_ns, p50_ns, p95_ns, p99_ns } = spread;
        let times = [mean_ns, p50_ns, p95_ns, p99_ns].map(millis);
        rows.row([name.to_owned(), share].into_iter().chain(times));
    };
    for line in &requests.lines {
        let says_nothing = line.line == Line::Unknown || !table.sees(line.line);
        if line.total_ns > 0 || !says_nothing {
            row(line.line.name(), percent(line.tenths), line.spread);
        }
    }
    // The lines add up to another mean if some requests are in the whole alone.
    let adds_up = requests.shared == 0 && requests.excess_ns == 0;
    row("whole", if adds_up { percent(1_000) } else { String::new() }, whole);
    if let Some(after) = requests.after.filter(|_| table.sees(Line::After)) {
        row("AFTER", String::new(), after);
    }
    style.table(text, &rows);
    let mut notes = Vec::new();
    if requests.shared > 0 {
        notes.push(format!(
            "Requests that shared their worker with others: {}. They are in `whole` alone; the lines are of the rest.",
            count(requests.shared)
        ));
    }
    if requests.lost > 0 {
        notes.push(format!(
            "Requests for which there was no room: {}. They are in the workers' time alone.",
            count(requests.lost)
        ));
    }
    if requests.excess_ns > 0 {
        notes.push(format!(
            "The lines are {} longer than these requests took: some time counts twice.",
            time(requests.excess_ns)
        ));
    }
    style.notes(text, &notes);
}

fn call_times(text: &mut String, times: &CallTimes, style: Style) {
    let name = style.name(&called(&times.endpoint));
    let plural = if times.calls == 1 { "" } else { "s" };
    style.heading(
        text,
        &format!(
            "A call to {name} ({} call{plural}, {} each on average; microseconds)",
            count(times.calls),
            duration(times.mean_ns)
        ),
    );
    let mut rows = Table::new(&["part", ">share", ">mean", ">p50", ">p95", ">p99", "what"]);
    for row in &times.parts {
        let Spread { mean_ns, p50_ns, p95_ns, p99_ns } = row.spread;
        let head = [call_part_name(row.part).to_owned(), row.tenths.map(percent).unwrap_or_default()];
        let spread = [mean_ns, p50_ns, p95_ns, p99_ns].map(micros);
        let what = match row.tenths {
            Some(_) => call_part_meaning(row.part).to_owned(),
            None => format!("{}: {}", call_part_meaning(row.part), count(row.count)),
        };
        rows.row(head.into_iter().chain(spread).chain([what]));
    }
    style.table(text, &rows);
    let commands = times.commands.iter().take(MAX_COMMANDS).map(|command| {
        let name = if command.name.is_empty() { "not read".into() } else { style.name(&command.name) };
        let each = duration(command.mean_ns);
        format!("{name}: {}, {each} each, at most {}", count(command.calls), duration(command.longest_ns))
    });
    style.notes(text, &commands.collect::<Vec<_>>());
}

fn how(text: &mut String, table: &BudgetTable, style: Style) {
    let blind: Vec<_> = table.cannot_see.iter().map(|what| style.sentence(what)).collect();
    let blind = if blind.is_empty() { String::new() } else { format!("; cannot see: {}", blind.join("; ")) };
    let rung = if table.rung.is_empty() { "an unknown way".into() } else { style.sentence(&table.rung) };
    let _ = writeln!(text, "Measured for {} by {rung}{blind}.", duration(table.window_ns));
}

/// `redis 127.0.0.1:6379`.
pub(crate) fn called(Endpoint { address, protocol }: &Endpoint) -> String {
    match (&**protocol, &**address) {
        ("", "") => "[unnamed]".to_owned(),
        ("", name) | (name, "") => name.to_owned(),
        (protocol, address) => format!("{protocol} {address}"),
    }
}

/// `12 calls, 1.5 ms each; 3 connects, 0.1 ms each`; nothing if none was counted.
fn calls(server: &ServerTime) -> String {
    if server.calls == 0 && server.connects == 0 {
        return String::new();
    }
    let some = |number: u64, what: &str, mean_ns: Option<u64>| {
        let plural = if number == 1 { "" } else { "s" };
        let each = mean_ns.map(|ns| format!(", {} each", duration(ns))).unwrap_or_default();
        format!("{} {what}{plural}{each}", count(number))
    };
    let connect_ns = server.connect_ns.checked_div(server.connects.into()).map(cut);
    let calls = some(server.calls, "call", server.mean_ns());
    format!("{calls}; {}", some(server.connects, "connect", connect_ns))
}

fn time(ns: u128) -> String {
    duration(cut(ns))
}

/// Times beyond 584 years are as long as that.
fn cut(ns: u128) -> u64 {
    u64::try_from(ns).unwrap_or(u64::MAX)
}

/// Milliseconds with microseconds behind the point.
fn millis(ns: u64) -> String {
    let us = ns / 1_000 + u64::from(ns % 1_000 >= 500);
    format!("{}.{:03}", us / 1_000, us % 1_000)
}

/// Microseconds with a tenth.
fn micros(ns: u64) -> String {
    let tenths = ns / 100 + u64::from(ns % 100 >= 50);
    format!("{}.{}", tenths / 10, tenths % 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn milliseconds_line_up() {
        assert_eq!([0, 499, 500, 1_234_567].map(millis), ["0.000", "0.000", "0.001", "1.235"]);
        assert_eq!(millis(u64::MAX), "18446744073709.552");
    }

    #[test]
    fn calls_that_nobody_has_counted_are_not_none() {
        let server = ServerTime { wait_ns: 5_000_000, ..ServerTime::default() };
        assert_eq!(calls(&server), "");
        assert_eq!(calls(&ServerTime { calls: 1, ..server }), "1 call, 5.0 ms each; 0 connects");
    }

    #[test]
    fn the_boot_is_told_with_its_interval() {
        let text =
            |boot, samples| booting(&BootSamples { samples, boot, frameworks: vec!["WordPress", "Symfony"] });
        assert_eq!(
            text(30, 120),
            "25.0 % [18.1, 33.4] of it, estimated by 120 samples of PHP: WordPress, Symfony before it comes to the request"
        );
        assert_eq!(text(30, 99), "not enough samples to tell: 99 of 100");
    }

    #[test]
    fn what_holds_no_cpu_back_is_said_too() {
        let texts = |budget: slip_model::Budget| {
            let recording =
                slip_model::Recording { budget: Some(budget), ..slip_model::Recording::default() };
            cpu_counters(&BudgetTable::of(&recording).unwrap()).map(|(_, text)| text).collect::<Vec<_>>()
        };
        let quota = |quota_periods, throttled_periods, throttled_ns| {
            let budget =
                slip_model::Budget { quota_periods, throttled_periods, throttled_ns, ..Default::default() };
            texts(budget).first().cloned().unwrap_or_default()
        };
        // Files of before have no periods.
        assert_eq!(
            (quota(None, 0, 0), quota(None, 0, 1_000_000)),
            (String::new(), "held the workers' control groups back for 1.0 ms".into())
        );
        assert_eq!(
            (&*quota(Some(0), 0, 0), &*quota(Some(9), 0, 0)),
            ("ruled out: none was in force", "ruled out: 0 throttled periods of 9")
        );
        assert_eq!(quota(Some(9), 2, 1_000_000), "2 throttled periods of 9, 1.0 ms, all CPUs together");
        let steal = |cpus_ns, steal_ns| {
            texts(slip_model::Budget { cpus_ns, steal_ns, ..Default::default() })
                .first()
                .cloned()
                .unwrap_or_default()
        };
        assert_eq!((steal(0, 0), steal(0, 1_000_000)), (String::new(), "1.0 ms, all CPUs together".into()));
        assert_eq!(steal(9, 0), "0.0 % of the machine's CPUs, as far as its host tells");
        assert_eq!(
            steal(100_000_000, 1_000_000),
            "1.0 % of the machine's CPUs, 1.0 ms: its host gave them to others"
        );
    }

    #[test]
    fn endpoints_without_a_protocol_or_a_name_are_called_something() {
        let name = |address: &str, protocol: &str| {
            called(&Endpoint { address: address.into(), protocol: protocol.into() })
        };
        assert_eq!(
            [name("a:1", "http"), name("a:1", ""), name("", "http"), name("", "")],
            ["http a:1", "a:1", "http", "[unnamed]"]
        );
    }
}
