//! Two budgets side by side.

use std::fmt::Write as _;

use slip_doctor::{BudgetDiff, DiffKey};

use super::{Style, called, millis};
use crate::table::Table;
use crate::text::count;

pub(super) fn render(diff: &BudgetDiff, names: [&str; 2], style: Style) -> String {
    let mut text = String::new();
    style.heading(&mut text, "A request on average, line by line (milliseconds)");
    for ((letter, name), requests) in ["A", "B"].iter().zip(names).zip(diff.requests) {
        let plural = if requests == 1 { "" } else { "s" };
        let mark = if style == Style::Markdown { "- " } else { "" };
        let _ = writeln!(text, "{mark}{letter}: {}, {} request{plural}", style.name(name), count(requests));
    }
    text.push('\n');
    let mut rows = Table::new(&["line", ">A", ">B", ">difference", ">ratio"]);
    for row in &diff.rows {
        let name = match &row.key {
            DiffKey::Line(line) => line.name().to_owned(),
            DiffKey::Server(endpoint) => format!("{}{}", style.below(), style.name(&called(endpoint))),
            DiffKey::Whole => "whole".to_owned(),
        };
        let [a, b] = row.mean_ns.map(|ns| ns.map_or_else(String::new, millis));
        let ratio = row.ratio().map_or_else(String::new, |ratio| format!("{ratio:.2}"));
        rows.row([name, a, b, signed(row.difference_ns()), ratio]);
    }
    style.table(&mut text, &rows);
    text
}

/// [`millis`] with a sign.
fn signed(ns: i128) -> String {
    let sign = if ns < 0 { '-' } else { '+' };
    format!("{sign}{}", millis(u64::try_from(ns.unsigned_abs()).unwrap_or(u64::MAX)))
}
