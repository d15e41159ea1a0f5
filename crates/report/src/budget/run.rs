//! The run of a program that serves no requests.

use slip_doctor::{BudgetTable, Line, RunTimes, tenths};
use slip_model::RunBegin;

use super::{MAX_SERVERS, Style, called, calls, cpu_counters, time, worker_notes};
use crate::table::Table;
use crate::text::{count, percent};

/// Appends the table of a run, by line, and by operation if it is known how many there were.
pub(super) fn times(text: &mut String, table: &BudgetTable, run: &RunTimes, style: Style) {
    let plural = if run.threads == 1 { "" } else { "s" };
    let operations =
        run.operations.map(|number| format!("; {} operations", count(number))).unwrap_or_default();
    style.heading(
        text,
        &format!(
            "The run ({} thread{plural}, {} together{operations}; the lines make 100 %)",
            count(run.threads),
            time(run.total_ns())
        ),
    );
    let has_each = run.operations.is_some();
    let head = ["line", ">share", ">time", ">per operation", "what"];
    let mut rows = Table::new(&columns(head, has_each).collect::<Vec<_>>());
    let total_ns = run.total_ns();
    let cells = |name: String, share: u64, ns: u128, what: String| {
        let each = run.each_tenths(ns).map(short).unwrap_or_default();
        columns([name, percent(share), time(ns), each, what], has_each)
    };
    let below = |name: String| format!("{}{name}", style.below());
    for line in run.lines.iter().filter(|line| line.ns > 0) {
        rows.row(cells(line.line.name().to_owned(), line.tenths, line.ns, line.line.meaning().to_owned()));
        let servers = run.servers.rows.iter().take(MAX_SERVERS);
        let name = |endpoint| below(style.name(&called(endpoint)));
        if line.line == Line::Wait {
            for server in servers {
                rows.row(cells(name(&server.endpoint), server.tenths, server.wait_ns, calls(server)));
            }
        } else if line.line == Line::Wake {
            for server in servers.filter(|server| server.wake_ns > 0) {
                let (ns, what) = (server.wake_ns, "after its answers".to_owned());
                rows.row(cells(name(&server.endpoint), tenths(ns, total_ns), ns, what));
            }
            for (name, what) in cpu_counters(table) {
                let none = String::new;
                rows.row(columns([below(name.to_owned()), none(), none(), none(), what], has_each));
            }
        }
    }
    rows.row(cells("whole".to_owned(), 1_000, total_ns, String::new()));
    style.table(text, &rows);
    let mut notes = vec![startup(run)];
    if run.exit_ns() > 0 {
        notes.push(format!("Exit, from `exit_group` on, {}: {}.", time(run.exit_ns()), made_of(&run.exit)));
    }
    if run.threads > 1 {
        notes.push(format!("The thread that ran longest ran for {}.", time(run.longest_ns)));
    }
    if table.workers == 0 {
        notes.extend(worker_notes(table));
    }
    style.notes(text, &notes);
}

/// Those columns that are wanted.
fn columns<T>(all: [T; 5], has_each: bool) -> impl Iterator<Item = T> {
    all.into_iter().enumerate().filter(move |(at, _)| has_each || *at != 3).map(|(_, column)| column)
}

fn startup(run: &RunTimes) -> String {
    let until = match run.begin {
        Some(RunBegin::Script | RunBegin::Program) if run.startup_ns() == 0 => {
            return "Its start-up is not told apart: it became another program than the one that was started."
                .to_owned();
        }
        Some(RunBegin::Script) => "until the script was opened",
        Some(RunBegin::Program) => "until the program was loaded and called",
        Some(RunBegin::Exec) => return "Its start-up is not told apart.".to_owned(),
        Some(RunBegin::Watch) | None => {
            return "It had begun before the recording; its start-up was not seen.".to_owned();
        }
    };
    format!("Start-up, {until}, {}: {}.", time(run.startup_ns()), made_of(&run.startup))
}

/// `CODE 7.1 ms, DISK 1.2 ms`, the longest first.
fn made_of(lines: &[slip_doctor::LineTime]) -> String {
    let mut lines: Vec<_> = lines.iter().filter(|row| row.ns > 0).collect();
    lines.sort_by_key(|row| std::cmp::Reverse(row.ns));
    let texts = lines.iter().map(|row| format!("{} {}", row.line.name(), time(row.ns)));
    texts.collect::<Vec<_>>().join(", ")
}

/// Tenths of a nanosecond, as nanoseconds, or in larger units from 10 us on.
fn short(tenths: u128) -> String {
    if tenths < 100_000 { format!("{}.{} ns", tenths / 10, tenths % 10) } else { time(tenths / 10) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_operation_is_told_in_nanoseconds_as_long_as_it_is_short() {
        assert_eq!([0, 7, 99_999].map(short), ["0.0 ns", "0.7 ns", "9999.9 ns"]);
        assert_eq!(short(123_456_000), time(12_345_600));
    }
}
