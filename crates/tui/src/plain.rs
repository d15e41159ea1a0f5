//! The same tables as plain text.

use slip_report::{clean, duration};

use crate::app::App;
use crate::draw::{serves, summary, what_of};
use crate::rows::{self, state_word, wait_ns, where_of};
use crate::text::{Cut, fit, percent, width};

/// Longest name, and longest path.
const MOST_COLUMNS: usize = 120;

/// Columns of plain text.
struct Text {
    right: Vec<bool>,
    rows: Vec<Vec<String>>,
}

impl Text {
    /// `>` before a name puts the column to the right.
    fn new(names: &[&str]) -> Self {
        let right = names.iter().map(|name| name.starts_with('>')).collect();
        Self { right, rows: vec![names.iter().map(|name| name.trim_start_matches('>').to_owned()).collect()] }
    }

    fn write(&self, text: &mut String) {
        let widths: Vec<usize> = (0..self.right.len())
            .map(|at| self.rows.iter().map(|row| width(&row[at])).max().unwrap_or(0))
            .collect();
        for row in &self.rows {
            let mut line = String::new();
            for ((cell, most), right) in row.iter().zip(&widths).zip(&self.right) {
                let padding = " ".repeat(most - width(cell));
                line += &if *right { format!("{padding}{cell}  ") } else { format!("{cell}{padding}  ") };
            }
            text.push_str(line.trim_end());
            text.push('\n');
        }
    }
}

/// What was seen last as plain text, with at most `most` functions.
pub fn plain(app: &App, most: usize) -> String {
    let App { about, view, shown, .. } = app;
    let mut text = format!(
        "{}: {}, {} at {} Hz, {} samples, {} torn\n{}\n\n",
        clean(&about.target),
        duration(shown.end_ns),
        about.sampler,
        about.rate_hz,
        shown.samples,
        percent(shown.torn, shown.samples + shown.torn),
        summary(app).join(", "),
    );
    let serves = serves(shown);
    let mut names = vec![">pid"];
    names.extend(view.threads.then_some(">tid"));
    names.extend(["state", ">CPU", ">ready"]);
    names.extend(serves.then_some(">time"));
    names.extend([what_of(view, serves), "function", "where"]);
    let mut table = Text::new(&names);
    for row in rows::workers(view, shown) {
        let part = |ns: Option<u64>| ns.map_or_else(String::new, |ns| percent(ns, shown.length_ns));
        let mut cells = vec![row.thread.pid.to_string()];
        cells.extend(view.threads.then(|| row.thread.tid.to_string()));
        cells.extend([state_word(row.thread.state).to_owned(), part(row.cpu_ns), part(row.ready_ns)]);
        cells.extend(serves.then(|| rows::age_of(row.thread).map_or_else(String::new, duration)));
        cells.extend([
            fit(&row.request, MOST_COLUMNS, Cut::Middle),
            fit(&row.place.0, MOST_COLUMNS, Cut::Middle),
            fit(&row.place.1, MOST_COLUMNS, Cut::Begin),
        ]);
        table.rows.push(cells);
    }
    table.write(&mut text);
    let functions = rows::functions(view, shown);
    let busy = duration(shown.busy_ns);
    text += &format!("\nfunctions: 100 % is {busy} of all workers that was not idle\n\n");
    let mut table = Text::new(&[">own", ">CPU", ">wait", ">total", ">own time", "function", "where"]);
    for function in functions.iter().take(most) {
        let part = |ns| percent(ns, shown.busy_ns);
        table.rows.push(vec![
            part(function.own_ns),
            part(function.own_cpu_ns),
            part(wait_ns(function)),
            part(function.total_ns),
            duration(function.own_ns),
            fit(&clean(&function.name), MOST_COLUMNS, Cut::Middle),
            fit(&where_of(function), MOST_COLUMNS, Cut::Begin),
        ]);
    }
    table.write(&mut text);
    if let Some(left @ 1..) = functions.len().checked_sub(most) {
        text += &format!("{left} more functions\n");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::support::{hostile, pool};

    #[test]
    fn the_tables_are_plain_text() {
        insta::assert_snapshot!("plain", plain(&pool(), 5));
    }

    #[test]
    fn nothing_harmful_is_printed() {
        let text = plain(&hostile(), 20);
        assert!(!text.replace('\n', "").contains(char::is_control));
    }
}
