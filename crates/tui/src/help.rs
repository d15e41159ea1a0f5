//! What the keys do, and what the sampler cannot see.

use slip_report::clean;

use crate::app::App;
use crate::rows::{FunctionColumn, WorkerColumn};
use crate::text::width;

const KEYS: [(&str, &str); 11] = [
    ("q", "quit"),
    ("Tab", "the other table"),
    ("p, space", "pause: the picture stays, the watch goes on"),
    ("s", "sort by the next column; capitals: see below"),
    ("r", "the other way round"),
    ("/", "only rows with a text; Esc shows all again"),
    ("t", "a row for each thread"),
    ("+ -", "longer or shorter windows"),
    ("arrows", "scroll, as PgUp, PgDn, Home, End"),
    ("Ctrl-L/Z", "draw anew; suspend"),
    ("?", "this; arrows scroll, other keys leave it"),
];

const TERMS: [&str; 5] = [
    "CPU and ready: of the last window, by the kernel's account. Ready is time that a worker could have run and had no CPU.",
    "State and function: what the last look saw. A state is `ready` if the worker has had no CPU for most of the time that it could run.",
    "Time: how long the request has lasted. Requests that begin and end between two looks are not counted.",
    "Functions: of the last seconds. 100 % is the time of all workers that was not idle; own is without what the function called, \
     total with it, CPU and wait are parts of own.",
    "What is torn moved while it was read, and is dropped.",
];

/// The lines of the help, no longer than `most` columns.
pub(crate) fn lines(app: &App, most: usize) -> Vec<String> {
    let key_width = KEYS.iter().map(|(key, _)| key.len()).max().unwrap_or(0);
    let mut lines: Vec<String> =
        KEYS.iter().map(|(key, meaning)| format!("{key:key_width$}  {meaning}")).collect();
    let keys = |names: &[(char, &'static str)]| {
        names.iter().map(|(key, name)| format!("{key} {name}")).collect::<Vec<_>>().join(", ")
    };
    let workers = WorkerColumn::ALL.map(|column| (column.key(), column.name()));
    let functions = FunctionColumn::ALL.map(|column| (column.key(), column.name()));
    lines.push(String::new());
    wrap(&format!("Sort workers: {}", keys(&workers)), most, &mut lines);
    wrap(&format!("Sort functions: {}", keys(&functions)), most, &mut lines);
    lines.push(String::new());
    TERMS.iter().for_each(|term| wrap(term, most, &mut lines));
    lines.push(String::new());
    wrap(&format!("Not seen by the sampler `{}`:", app.about.sampler), most, &mut lines);
    for sentence in &app.about.cannot_see {
        wrap(&format!("- {}", clean(sentence)), most, &mut lines);
    }
    lines
}

/// Appends a text as lines that are no longer than `most`, but for words that are.
fn wrap(text: &str, most: usize, lines: &mut Vec<String>) {
    let mut line = String::new();
    for word in text.split(' ') {
        if !line.is_empty() && width(&line) + 1 + width(word) > most {
            lines.push(std::mem::take(&mut line));
            line.push_str("  ");
        } else if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
    }
    lines.push(line);
}
