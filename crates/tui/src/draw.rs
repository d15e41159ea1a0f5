//! The layout, for any size of terminal.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier, Style};
use slip_model::{Language, LiveFunction, ThreadState, Window};
use slip_report::{clean, duration};

use crate::app::App;
use crate::help;
use crate::rows::{self, FunctionColumn, WorkerColumn, WorkerRow, state_word, wait_ns, where_of};
use crate::text::{Cut, fit, fit_place, percent, rate, width};
use crate::view::{Table, View};

/// From so many rows on both tables are shown, one below the other.
const BOTH_FROM_ROWS: u16 = 20;

/// Columns that are left out of narrower tables.
const READY_FROM: u16 = 76;
const PLACE_FROM: u16 = 100;
const WHERE_FROM: u16 = 72;

/// Widths of columns of numbers: `100.0 %`, `4194304`, `123.4 ms`, `waits: socket`.
const SHARE: u16 = 7;
const PID: u16 = 7;
const TIME: u16 = 8;
const STATE: u16 = 13;

/// What a cell says, and what of it may be missing.
struct Cell {
    text: String,
    cut: Cut,
    style: Style,
    /// File and line behind the text.
    place: Option<String>,
}

impl Cell {
    fn new(text: impl Into<String>) -> Self {
        Self { text: text.into(), cut: Cut::End, style: Style::new(), place: None }
    }

    fn cut(self, cut: Cut) -> Self {
        Self { cut, ..self }
    }
}

struct Column {
    name: &'static str,
    /// How wide; 0 for a share of what is left, by `weight`.
    width: u16,
    weight: u16,
    right: bool,
    is_sorted: bool,
}

impl Column {
    fn number(name: &'static str, width: u16, is_sorted: bool) -> Self {
        Self { name, width, weight: 0, right: true, is_sorted }
    }

    fn text(name: &'static str, width: u16, is_sorted: bool) -> Self {
        Self { name, width, weight: 0, right: false, is_sorted }
    }

    fn rest(name: &'static str, weight: u16, is_sorted: bool) -> Self {
        Self { name, width: 0, weight, right: false, is_sorted }
    }
}

/// Draws all of it. What does not fit is left out.
pub(crate) fn draw(app: &mut App, area: Rect, buffer: &mut Buffer) {
    if area.is_empty() {
        return;
    }
    let mut rest = area;
    let (head, foot) = (head_rows(area), u16::from(area.height > 3));
    draw_head(app, take_top(&mut rest, head), buffer);
    let bottom = Rect { y: rest.bottom() - foot.min(rest.height), height: foot.min(rest.height), ..rest };
    rest.height -= bottom.height;
    draw_foot(app, bottom, buffer);
    if app.view.shows_help {
        draw_help(app, rest, buffer);
    } else if area.height >= BOTH_FROM_ROWS {
        let rows = rows::workers(&app.view, &app.shown).len();
        // Title and head of the columns, and a row between the tables.
        let most = (rest.height - 1) / 2;
        let workers = u16::try_from(rows.max(1)).unwrap_or(u16::MAX).saturating_add(2).min(most);
        let upper = take_top(&mut rest, workers);
        take_top(&mut rest, 1);
        draw_workers(app, upper, buffer);
        draw_functions(app, rest, buffer);
    } else if app.view.table == Table::Workers {
        draw_workers(app, rest, buffer);
    } else {
        draw_functions(app, rest, buffer);
    }
}

fn take_top(rest: &mut Rect, rows: u16) -> Rect {
    let rows = rows.min(rest.height);
    let top = Rect { height: rows, ..*rest };
    rest.y += rows;
    rest.height -= rows;
    top
}

fn head_rows(area: Rect) -> u16 {
    match area.height {
        0..14 => 1,
        14..BOTH_FROM_ROWS => 2,
        _ => 4,
    }
}

/// Writes a text where there is room for it.
fn put(buffer: &mut Buffer, area: Rect, x: u16, y: u16, text: &str, style: Style) {
    if y < area.bottom() && x < area.right() {
        buffer.set_stringn(x, y, text, usize::from(area.right() - x), style);
    }
}

/// As many of the pieces as there is room for, those that come first.
fn joined(pieces: &[String], most: usize) -> String {
    let mut line = String::new();
    for piece in pieces.iter().filter(|piece| !piece.is_empty()) {
        let gap = if line.is_empty() { "" } else { "  " };
        if width(&line) + gap.len() + width(piece) > most {
            if line.is_empty() {
                line = fit(piece, most, Cut::End);
            }
            break;
        }
        line = line + gap + piece;
    }
    line
}

fn draw_head(app: &App, area: Rect, buffer: &mut Buffer) {
    let most = usize::from(area.width);
    let App { about, shown, view, .. } = app;
    let bold = Style::new().add_modifier(Modifier::BOLD);
    let target = clean(&about.target).into_owned();
    let who = summary(app);
    let sampler = format!("{} {} Hz", about.sampler, about.rate_hz);
    let quality = format!(
        "{} samples/s, {} torn",
        rate(shown.samples, shown.span_ns),
        percent(shown.torn, shown.samples + shown.torn)
    );
    let elapsed = format!("after {}", duration(shown.end_ns));
    let paused = if view.is_paused { "PAUSED".to_owned() } else { String::new() };
    let lines = match area.height {
        0 => return,
        1 => vec![[&[paused, target], &who[..], &[sampler, quality, elapsed]].concat()],
        2 => vec![[&[paused, target], &who[..]].concat(), vec![sampler, quality, elapsed]],
        _ => {
            let unseen: Vec<String> =
                about.cannot_see.iter().map(|sentence| clean(sentence).into_owned()).collect();
            let unseen = fit(&format!("Not seen: {}", unseen.join("; ")), most, Cut::End);
            vec![
                [&[paused, format!("slip top {target}")], &who[..]].concat(),
                vec![sampler, quality, elapsed],
                vec![unseen],
            ]
        }
    };
    for (y, (line, style)) in (area.y..).zip(lines.iter().zip([bold, Style::new(), dim()])) {
        put(buffer, area, area.x, y, &joined(line, most), style);
    }
    if view.is_paused {
        let marked = Rect { width: area.width.min(6), height: 1, ..area };
        buffer.set_style(marked, Style::new().add_modifier(Modifier::REVERSED));
    }
}

fn dim() -> Style {
    Style::new().add_modifier(Modifier::DIM)
}

/// How many there are, and what they do.
pub(crate) fn summary(app: &App) -> Vec<String> {
    let window = &app.shown;
    let processes = window.threads.chunk_by(|a, b| a.pid == b.pid).count();
    let of_php = || window.threads.iter().filter(|thread| thread.language == Language::Php);
    if of_php().next().is_none() {
        let runs = |state| matches!(state, ThreadState::Running | ThreadState::Ready);
        let running = window.threads.iter().filter(|thread| runs(thread.state)).count();
        let threads = window.threads.len();
        return vec![
            format!("{processes} {}", if processes == 1 { "process" } else { "processes" }),
            format!("{threads} {}, {running} running", if threads == 1 { "thread" } else { "threads" }),
        ];
    }
    let busy = of_php().filter(|thread| thread.state != ThreadState::Idle).count();
    // What was not idle of all their time: a request that is short is rarely under way at the moment of a picture.
    let all_ns = window.span_ns.saturating_mul(processes as u64);
    vec![
        format!("{busy} of {processes} busy, {} lately", percent(window.busy_ns.min(all_ns), all_ns)),
        format!("≥ {} requests/s", rate(window.requests, window.span_ns)),
    ]
}

fn draw_foot(app: &App, area: Rect, buffer: &mut Buffer) {
    let most = usize::from(area.width);
    let View { typed, table, shows_help, .. } = &app.view;
    if let Some(typed) = typed {
        let line = format!("/{}_  Enter keeps it, Esc ends it", clean(typed));
        put(buffer, area, area.x, area.y, &fit(&line, most, Cut::Begin), Style::new());
        return;
    }
    let other = if *table == Table::Workers { "Tab functions" } else { "Tab workers" };
    let keys: &[&str] = if *shows_help {
        &["q quit", "arrows scroll", "other keys leave this"]
    } else {
        &["q quit", other, "s sort", "/ filter", "p pause", "? help", "t threads", "r reverse", "+- interval"]
    };
    let keys: Vec<String> = keys.iter().map(|key| (*key).to_owned()).collect();
    put(buffer, area, area.x, area.y, &joined(&keys, most), dim());
}

fn draw_help(app: &mut App, area: Rect, buffer: &mut Buffer) {
    let lines = help::lines(app, usize::from(area.width));
    let page = usize::from(area.height);
    let view = &mut app.view;
    view.help_page = page;
    view.help_scroll = view.help_scroll.min(lines.len().saturating_sub(page));
    for (y, line) in (area.y..area.bottom()).zip(lines.iter().skip(view.help_scroll)) {
        put(buffer, area, area.x, y, line, Style::new());
    }
}

fn draw_workers(app: &mut App, area: Rect, buffer: &mut Buffer) {
    let App { view, shown, .. } = app;
    let rows = rows::workers(view, shown);
    let (by, _) = view.worker_order();
    let serves = serves(shown);
    let has_place = area.width >= PLACE_FROM || !serves;
    let mut columns = vec![Column::number("PID", PID, by == WorkerColumn::Pid)];
    if view.threads {
        columns.push(Column::number("TID", PID, false));
    }
    columns.push(Column::text("STATE", STATE, by == WorkerColumn::State));
    columns.push(Column::number("CPU", SHARE, by == WorkerColumn::Cpu));
    if area.width >= READY_FROM {
        columns.push(Column::number("READY", SHARE, by == WorkerColumn::Ready));
    }
    if serves {
        columns.push(Column::number("TIME", TIME, by == WorkerColumn::Time));
        columns.push(Column::rest("REQUEST", 3, by == WorkerColumn::Request));
    } else if area.width >= PLACE_FROM {
        columns.push(Column::rest(
            if view.threads { "THREAD" } else { "PROGRAM" },
            2,
            by == WorkerColumn::Request,
        ));
    }
    if has_place {
        columns.push(Column::rest("FUNCTION", 5, by == WorkerColumn::Function));
    }
    let length_ns = shown.length_ns;
    let (has_colour, wide) = (view.has_colour, area.width);
    let is_by_thread = view.threads;
    let cells = |row: &WorkerRow<'_>| {
        let thread = row.thread;
        let style = style_of(thread.state, has_colour);
        let part = |ns: Option<u64>| ns.map_or_else(String::new, |ns| percent(ns, length_ns));
        let mut cells = vec![Cell::new(thread.pid.to_string())];
        if is_by_thread {
            cells.push(Cell::new(thread.tid.to_string()));
        }
        cells.push(Cell { style, ..Cell::new(state_word(thread.state)) });
        cells.push(Cell::new(part(row.cpu_ns)));
        if wide >= READY_FROM {
            cells.push(Cell::new(part(row.ready_ns)));
        }
        if serves {
            cells.push(Cell::new(rows::age_of(thread).map_or_else(String::new, duration)));
        }
        if serves || wide >= PLACE_FROM {
            cells.push(Cell::new(row.request.clone()).cut(Cut::Middle));
        }
        if has_place {
            let (name, place) = row.place.clone();
            cells.push(Cell { place: Some(place), ..Cell::new(name) });
        }
        cells
    };
    let what = if view.threads { "thread" } else { "worker" };
    let title = title_of(view, Table::Workers, what, by.name(), rows.len(), "");
    draw_table(view, Table::Workers, area, buffer, &title, &columns, &rows, cells);
}

/// Whether any of them serves requests that are known.
pub(crate) fn serves(window: &Window) -> bool {
    window.threads.iter().any(|thread| thread.language == Language::Php)
}

/// What stands in the column of requests.
pub(crate) fn what_of(view: &View, serves: bool) -> &'static str {
    match (serves, view.threads) {
        (true, _) => "request",
        (false, true) => "thread",
        (false, false) => "program",
    }
}

/// A worker that does something is easier to find than one that does not.
fn style_of(state: ThreadState, has_colour: bool) -> Style {
    match state {
        ThreadState::Idle | ThreadState::Unknown => dim(),
        ThreadState::Running if has_colour => Style::new().fg(Color::Green),
        ThreadState::Ready if has_colour => Style::new().fg(Color::Yellow),
        ThreadState::Running => Style::new().add_modifier(Modifier::BOLD),
        _ => Style::new(),
    }
}

fn draw_functions(app: &mut App, area: Rect, buffer: &mut Buffer) {
    let App { view, shown, .. } = app;
    let rows = rows::functions(view, shown);
    let (by, _) = view.function_order();
    let wide = area.width;
    let mut columns = vec![
        Column::number("OWN", SHARE, by == FunctionColumn::Own),
        Column::number("CPU", SHARE, by == FunctionColumn::Cpu),
    ];
    if wide >= WHERE_FROM {
        columns.push(Column::number("WAIT", SHARE, by == FunctionColumn::Wait));
    }
    columns.push(Column::number("TOTAL", SHARE, by == FunctionColumn::Total));
    if wide >= PLACE_FROM {
        columns.push(Column::number("OWN TIME", TIME, false));
    }
    columns.push(Column::rest("FUNCTION", 5, by == FunctionColumn::Name));
    if wide >= WHERE_FROM {
        columns.push(Column::rest("WHERE", 4, by == FunctionColumn::Where));
    }
    let busy_ns = shown.busy_ns;
    let cells = |function: &&LiveFunction| {
        let part = |ns| Cell::new(percent(ns, busy_ns));
        let mut cells = vec![part(function.own_ns), part(function.own_cpu_ns)];
        if wide >= WHERE_FROM {
            cells.push(part(wait_ns(function)));
        }
        cells.push(part(function.total_ns));
        if wide >= PLACE_FROM {
            cells.push(Cell::new(duration(function.own_ns)));
        }
        cells.push(Cell::new(clean(&function.name)).cut(Cut::Middle));
        if wide >= WHERE_FROM {
            cells.push(Cell::new(where_of(function)).cut(Cut::Begin));
        }
        cells
    };
    let span = format!("of the last {}", duration(shown.span_ns));
    let title = title_of(view, Table::Functions, "function", by.name(), rows.len(), &span);
    draw_table(view, Table::Functions, area, buffer, &title, &columns, &rows, cells);
}

/// What is in a table, in which order.
fn title_of(view: &View, table: Table, what: &str, by: &str, count: usize, span: &str) -> Vec<String> {
    let is_reversed = match table {
        Table::Workers => view.worker_order().1,
        Table::Functions => view.function_order().1,
    };
    let reversed = if is_reversed { ", reversed" } else { "" };
    let filter = match view.filter() {
        "" => String::new(),
        text => format!("with `{}`", clean(text)),
    };
    let what = if count == 1 { format!("1 {what}") } else { format!("{count} {what}s") };
    vec![what, filter, span.to_owned(), format!("by {by}{reversed}")]
}

#[allow(clippy::too_many_arguments, reason = "what a table is made of")]
fn draw_table<R>(
    view: &mut View,
    table: Table,
    area: Rect,
    buffer: &mut Buffer,
    title: &[String],
    columns: &[Column],
    rows: &[R],
    cells: impl Fn(&R) -> Vec<Cell>,
) {
    let mut rest = area;
    let (top, head) = (take_top(&mut rest, 1), take_top(&mut rest, 1));
    // Keys belong to the table whose title is marked.
    let is_chosen = view.table == table;
    let style = if is_chosen { Style::new().add_modifier(Modifier::BOLD) } else { Style::new() };
    let mark = if is_chosen { "> " } else { "  " };
    let page = usize::from(rest.height);
    let at = table as usize;
    let first = view.scroll[at].min(rows.len().saturating_sub(page));
    (view.page[at], view.scroll[at]) = (page, first);
    let mut title = title.to_vec();
    if rows.len() > page {
        title.push(format!("rows {} to {}", first + 1, (first + page).min(rows.len())));
    }
    let line = format!("{mark}{}", joined(&title, usize::from(area.width).saturating_sub(mark.len())));
    put(buffer, top, top.x, top.y, &line, style);
    let places = places_of(columns, area.width);
    for (column, (x, width)) in columns.iter().zip(&places) {
        let style = Style::new().add_modifier(Modifier::UNDERLINED);
        let style = if column.is_sorted { style.add_modifier(Modifier::BOLD) } else { style };
        put_cell(buffer, head, head.x + x, head.y, *width, column.right, column.name, style);
    }
    if rows.is_empty() {
        put(buffer, rest, rest.x, rest.y, &nothing(view, table), dim());
    }
    for (y, row) in (rest.y..rest.bottom()).zip(&rows[first..]) {
        for ((column, (x, width)), cell) in columns.iter().zip(&places).zip(cells(row)) {
            let most = usize::from(*width);
            let text = match &cell.place {
                Some(place) => fit_place(&cell.text, place, most),
                None => fit(&cell.text, most, cell.cut),
            };
            put_cell(buffer, rest, rest.x + x, y, *width, column.right, &text, cell.style);
        }
    }
}

/// Why a table has no rows.
fn nothing(view: &View, table: Table) -> String {
    match (view.filter(), table) {
        ("", Table::Workers) => "no worker has been seen yet".to_owned(),
        ("", Table::Functions) => "no function has been seen lately".to_owned(),
        (text, _) => format!("nothing with `{}`; Esc shows all", clean(text)),
    }
}

#[allow(clippy::too_many_arguments, reason = "what a cell is made of")]
fn put_cell(
    buffer: &mut Buffer,
    area: Rect,
    x: u16,
    y: u16,
    most: u16,
    right: bool,
    text: &str,
    style: Style,
) {
    let used = u16::try_from(width(text)).unwrap_or(u16::MAX);
    let x = if right { x + most.saturating_sub(used) } else { x };
    let area = Rect { width: area.width.min((x + most.min(used)).saturating_sub(area.x)), ..area };
    put(buffer, area, x, y, text, style);
}

/// Where each column begins, and how wide it is; those at the end may have no room.
fn places_of(columns: &[Column], width: u16) -> Vec<(u16, u16)> {
    let gaps = u16::try_from(columns.len().saturating_sub(1)).unwrap_or(u16::MAX);
    let fixed: u16 = columns.iter().map(|column| column.width).sum();
    let rest = width.saturating_sub(fixed.saturating_add(gaps));
    let weights = columns.iter().map(|column| column.weight).sum::<u16>().max(1);
    let mut x = 0;
    let mut given = 0;
    columns
        .iter()
        .map(|column| {
            let share = match (column.width, column.weight) {
                (0, weight) => {
                    given += weight;
                    // The last one has what rounding left.
                    let until =
                        |before: u16| (u32::from(rest) * u32::from(before) / u32::from(weights)) as u16;
                    until(given) - until(given - weight)
                }
                (fixed, _) => fixed,
            };
            let place = (x, share.min(width.saturating_sub(x)));
            x = x.saturating_add(share).saturating_add(1).min(width);
            place
        })
        .collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "test code")]
mod tests {
    use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    use super::*;
    use crate::support::{hostile, pool, python};

    fn press(app: &mut App, keys: &str) {
        for letter in keys.chars() {
            let code = if letter == '\t' { KeyCode::Tab } else { KeyCode::Char(letter) };
            app.key(KeyEvent::new(code, KeyModifiers::NONE));
        }
    }

    fn shown(app: &mut App, width: u16, height: u16) -> String {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| app.draw(frame.area(), frame.buffer_mut())).unwrap();
        let text = terminal.backend().to_string();
        // Each row is in quotes, so that spaces at its end show; no golden file needs them.
        // Behind a row with wide characters it says which places these hide.
        let rows = text.lines().map(|line| {
            let row = line.split_once("\" Hidden by").map_or(line, |(row, _)| row);
            row.trim_matches('"').trim_end()
        });
        rows.collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn a_small_terminal_has_one_table_at_a_time() {
        let mut app = pool();
        insta::assert_snapshot!("workers_60x12", shown(&mut app, 60, 12));
        press(&mut app, "\t");
        insta::assert_snapshot!("functions_60x12", shown(&mut app, 60, 12));
    }

    #[test]
    fn a_large_terminal_has_both() {
        insta::assert_snapshot!("pool_200x50", shown(&mut pool(), 200, 50));
    }

    #[test]
    fn python_has_threads_and_no_requests() {
        let mut app = python();
        insta::assert_snapshot!("python_100x24", shown(&mut app, 100, 24));
        press(&mut app, "t");
        insta::assert_snapshot!("python_threads_100x24", shown(&mut app, 100, 24));
    }

    #[test]
    fn there_may_be_nothing_to_show() {
        insta::assert_snapshot!("nothing_60x12", shown(&mut App::default(), 60, 12));
        let mut app = pool();
        press(&mut app, "/no such thing");
        insta::assert_snapshot!("filtered_60x12", shown(&mut app, 60, 12));
    }

    #[test]
    fn names_cannot_break_the_layout() {
        let mut app = hostile();
        let text = shown(&mut app, 120, 24);
        assert!(!text.replace('\n', "").contains(char::is_control), "{text}");
        insta::assert_snapshot!("hostile_120x24", text);
    }

    #[test]
    fn no_size_is_too_small() {
        for width in 0..70 {
            for height in 0..30 {
                for (keys, mut app) in [("", pool()), ("\tt", python()), ("?", hostile()), ("/xyz", pool())] {
                    press(&mut app, keys);
                    let area = Rect::new(0, 0, width, height);
                    let mut buffer = Buffer::empty(area);
                    app.draw(area, &mut buffer);
                    assert_eq!(*buffer.area(), area);
                }
            }
        }
    }

    #[test]
    fn the_help_says_what_is_not_seen() {
        let mut app = pool();
        press(&mut app, "?");
        let text = shown(&mut app, 80, 50);
        assert!(text.contains("why a thread waits is not known"), "{text}");
        for (key, _) in [("q  ", ()), ("Tab", ()), ("Ctrl-L", ())] {
            assert!(text.contains(key));
        }
        let first = shown(&mut app, 60, 12);
        press(&mut app, "j");
        assert_ne!(shown(&mut app, 60, 12), first, "it can be scrolled");
    }

    #[test]
    fn rows_can_be_scrolled_and_not_beyond_the_last() {
        let mut app = pool();
        press(&mut app, "\t");
        shown(&mut app, 60, 8);
        app.key(KeyEvent::new(KeyCode::End, KeyModifiers::NONE));
        let end = shown(&mut app, 60, 8);
        app.key(KeyEvent::new(KeyCode::Down, KeyModifiers::NONE));
        assert_eq!(shown(&mut app, 60, 8), end);
        app.key(KeyEvent::new(KeyCode::Up, KeyModifiers::NONE));
        assert_ne!(shown(&mut app, 60, 8), end);
    }

    #[test]
    fn columns_have_all_of_the_width() {
        let columns = [
            Column::number("A", 7, false),
            Column::rest("B", 4, false),
            Column::text("C", 3, true),
            Column::rest("D", 5, false),
        ];
        for width in 0..200 {
            let places = places_of(&columns, width);
            let end = places.last().map(|(x, width)| x + width).unwrap();
            assert!(end <= width);
            assert!(width < 14 || end == width, "{width}: {places:?}");
        }
    }
}
