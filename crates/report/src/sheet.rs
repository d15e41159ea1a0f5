//! What `slip doctor` says: the budget of a unit, what was found, and what could not be told.

mod json;

use std::fmt::Write as _;

use slip_doctor::{Cost, Finding, Gain, Line, LineCost, Piece, Rule, Sheet, Statement, Unit, Value, tenths};
use slip_model::Language;

use crate::text::{bytes, clean, code, count, duration, percent, shorten};
use crate::{BudgetFormat, ReportError};

/// Most characters of a name.
const NAME: usize = 60;

/// Where lines of a terminal's sheet end.
const WIDTH: usize = 110;

/// Where the text of what is told of a finding begins.
const INDENT: usize = 13;

/// The longest bar, in characters.
const BAR: u64 = 40;

/// Makes text of what `slip doctor` says.
///
/// # Errors
///
/// [`ReportError`], if memory runs out; there is nothing that the caller can do.
pub fn render_sheet(sheet: &Sheet, format: BudgetFormat) -> Result<Vec<u8>, ReportError> {
    match format {
        BudgetFormat::Json => json::sheet(sheet),
        BudgetFormat::Table => Ok(plain(sheet).into_bytes()),
        BudgetFormat::Markdown => Ok(markdown(sheet).into_bytes()),
    }
}

/// Makes text of a rule: what it means and how it decides.
pub fn render_rule(rule: &Rule) -> Vec<u8> {
    let mut text = format!("{}  {}\n", rule.id, rule.title);
    for (what, of) in [("means", rule.means), ("decides", rule.decides), ("helps", rule.helps)] {
        text.push('\n');
        item(&mut text, what, of);
    }
    text.into_bytes()
}

/// Makes text of all rules, one a line.
pub fn render_rules() -> Vec<u8> {
    let lines = Rule::ALL.iter().map(|rule| format!("{:<9} {}\n", rule.id, rule.title));
    lines.collect::<String>().into_bytes()
}

/// Where a sentence goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Style {
    Plain,
    Markdown,
}

impl Style {
    fn value(self, value: &Value) -> String {
        match value {
            Value::Count(number) => count(*number),
            Value::Ns(ns) => duration(*ns),
            Value::Bytes(number) => bytes(*number),
            Value::Tenths(share) => percent(*share),
            Value::Hundredths(rate) => hundredths(*rate),
            Value::Word(word) => (*word).to_owned(),
            Value::Name(name) if self == Self::Markdown => code(name, NAME, false),
            Value::Name(name) => shorten(&clean(name), NAME).into_owned(),
        }
    }

    fn sentence(self, statement: &Statement) -> String {
        let pieces = statement.pieces();
        pieces.iter().fold(String::new(), |mut text, piece| {
            match piece {
                Piece::Text(words) => text.push_str(words),
                Piece::Value(value) => text.push_str(&self.value(value)),
            }
            text
        })
    }
}

/// `1.05`, and from 10 on whole.
fn hundredths(rate: u64) -> String {
    if rate >= 1_000 { count((rate + 50) / 100) } else { format!("{}.{:02}", rate / 100, rate % 100) }
}

/// `--fpm www · php-fpm: pool www, PHP 8.2.36, 4 processes`.
fn target(sheet: &Sheet, style: Style) -> String {
    let name = |name: &str| style.value(&Value::Name(name.to_owned()));
    let mut words = Vec::new();
    if !sheet.target.is_empty() {
        words.push(name(&sheet.target));
    }
    for kind in &sheet.watched {
        let language = match kind.language {
            Language::Php => "PHP",
            Language::Python => "CPython",
            Language::Native => "native code",
        };
        let plural = if kind.count == 1 { "process" } else { "processes" };
        let title = if kind.title.is_empty() { String::new() } else { format!("{}, ", name(&kind.title)) };
        let version = clean(&kind.version);
        words.push(format!("{title}{language} {version}, {} {plural}", count(kind.count)));
    }
    words.join(" · ")
}

/// `15.0 s watched by tracepoints · 204 requests · watching cost 0.6 % of one core`.
fn watched(sheet: &Sheet) -> String {
    let table = &sheet.table;
    let mut words = vec![format!("{} watched by {}", duration(table.window_ns), clean(&table.rung))];
    match sheet.unit {
        Unit::Request => {
            words.push(format!("{} requests", count(table.requests.count)));
            let threads = if table.workers == 1 { "worker" } else { "workers" };
            words.push(format!("{} {threads}", count(table.workers)));
        }
        Unit::Operation => words.push(format!("{} operations", count(sheet.units))),
        Unit::Run => words.push("one run".to_owned()),
    }
    words.push(own_cost(sheet));
    words.join(" · ")
}

fn own_cost(sheet: &Sheet) -> String {
    let cost = sheet.cost;
    format!("watching cost {} of one core", percent(tenths(cost.cpu_ns.into(), cost.duration_ns.into())))
}

/// What is said if nothing was found.
pub(crate) fn healthy(sheet: &Sheet) -> String {
    let longest = sheet.lines.iter().max_by_key(|row| row.ns);
    let longest = longest.filter(|row| row.ns > 0).map_or(String::new(), |row| {
        format!(
            "; most of {} {} is {}: {}",
            article(sheet.unit),
            sheet.unit.name(),
            row.line.name(),
            row.line.meaning()
        )
    });
    format!("No drag was found{longest}. `slip record` and `slip report` name the functions.")
}

fn plain(sheet: &Sheet) -> String {
    let style = Style::Plain;
    let mut text = String::new();
    paragraph(&mut text, &format!("slip doctor: {}", target(sheet, style)));
    paragraph(&mut text, &watched(sheet));
    text.push('\n');
    if let Some(why) = &sheet.nothing {
        paragraph(&mut text, &format!("Not enough to tell: {}.", style.sentence(why)));
        return text;
    }
    lines(&mut text, sheet);
    text.push('\n');
    for (at, finding) in sheet.findings.iter().enumerate() {
        plain_finding(&mut text, at + 1, finding, sheet.unit);
    }
    if sheet.findings.is_empty() {
        paragraph(&mut text, &healthy(sheet));
    }
    for note in &sheet.notes {
        paragraph(&mut text, &format!("Note: {}.", style.sentence(note)));
    }
    for rules in sheet.too_little.chunk_by(|(_, one), (_, next)| one == next) {
        let ids: Vec<&str> = rules.iter().map(|(rule, _)| rule.id).collect();
        let missing = rules.first().map_or(String::new(), |(_, missing)| style.sentence(missing));
        paragraph(&mut text, &format!("Not enough data for {}: {missing}.", ids.join(", ")));
    }
    let quiet: Vec<&str> = sheet.quiet.iter().map(|(rule, _)| rule.id).collect();
    if !quiet.is_empty() {
        paragraph(&mut text, &format!("Looked at and fine: {} (`--format md` says why).", quiet.join(", ")));
    }
    if !sheet.findings.is_empty() {
        paragraph(&mut text, "`slip explain RULE` says what a rule means and how it decides.");
    }
    text
}

/// That of a unit.
fn article(unit: Unit) -> &'static str {
    match unit {
        Unit::Operation => "an",
        Unit::Run => "the",
        Unit::Request => "a",
    }
}

/// The lines of a unit, with bars.
fn lines(text: &mut String, sheet: &Sheet) {
    let mean = duration(sheet.unit_ns);
    let unit = sheet.unit.name();
    let spread =
        sheet.table.requests.whole.filter(|_| sheet.unit == Unit::Request).map_or(String::new(), |whole| {
            let [p50, p95, p99] = [whole.p50_ns, whole.p95_ns, whole.p99_ns].map(duration);
            format!(", p50 {p50}, p95 {p95}, p99 {p99}")
        });
    let _ = writeln!(text, "Where {} {unit} goes: {mean} on average{spread}\n", article(sheet.unit));
    for LineCost { line, ns, tenths } in shown(sheet) {
        let bar = "█".repeat(usize::try_from(tenths * BAR / 1_000).unwrap_or(0));
        let row = format!(
            "  {:<8} {:>9} {:>8}  {:<52} {bar}",
            line.name(),
            duration(*ns),
            percent(*tenths),
            line.meaning()
        );
        let _ = writeln!(text, "{}", row.trim_end());
    }
    let all: u64 = sheet.lines.iter().map(|row| row.tenths).sum();
    let ns = sheet.lines.iter().fold(0_u64, |sum, row| sum.saturating_add(row.ns));
    let _ = writeln!(text, "  {:<8} {:>9} {:>8}", "", duration(ns), percent(all));
}

/// Lines with something in them.
fn shown(sheet: &Sheet) -> impl Iterator<Item = &LineCost> {
    sheet.lines.iter().filter(|row| row.ns > 0 && (row.tenths > 0 || row.line != Line::Unknown))
}

fn plain_finding(text: &mut String, number: usize, finding: &Finding, unit: Unit) {
    let style = Style::Plain;
    let head = format!("{number:<3}{}  ", finding.rule.id);
    wrap(text, &head, &" ".repeat(INDENT), &style.sentence(&finding.headline));
    item(text, "cost", &cost_and_confidence(finding, unit));
    for (what, statements) in
        [("evidence", &finding.evidence), ("ruled out", &finding.ruled_out), ("fix", &finding.fixes)]
    {
        for (at, statement) in statements.iter().enumerate() {
            item(text, if at == 0 { what } else { "" }, &told(statement, style));
        }
    }
    item(text, "expect", &expected(finding.gain.as_ref(), unit, style));
    text.push('\n');
}

/// A sentence as text.
pub(crate) fn plain_sentence(statement: &Statement) -> String {
    Style::Plain.sentence(statement)
}

/// The same, and who tells it.
pub(crate) fn told_plain(statement: &Statement) -> String {
    told(statement, Style::Plain)
}

/// What is to be expected of a fix, as text.
pub(crate) fn expected_plain(gain: Option<&Gain>, unit: Unit) -> String {
    expected(gain, unit, Style::Plain)
}

/// A sentence and who tells it.
fn told(statement: &Statement, style: Style) -> String {
    let sentence = style.sentence(statement);
    if statement.probe.is_empty() { sentence } else { format!("{sentence} [{}]", statement.probe) }
}

/// `9.1 ms of each request, 19.0 %, confidence high`.
pub(crate) fn cost_and_confidence(finding: &Finding, unit: Unit) -> String {
    let cost = finding.cost.as_ref().map_or(String::new(), |cost| format!("{}, ", cost_of(cost, unit)));
    format!("{cost}confidence {}", finding.confidence.name())
}

/// `9.1 ms of each request, 19.0 %`.
fn cost_of(cost: &Cost, unit: Unit) -> String {
    let value = Style::Plain.value(&cost.value);
    let of = match (&cost.value, unit) {
        (Value::Ns(_), Unit::Run) => " of the run",
        (Value::Ns(_), Unit::Request) => " of each request",
        (Value::Ns(_), Unit::Operation) => " of each operation",
        _ => "",
    };
    let share = cost.tenths.map_or(String::new(), |share| format!(", {}", percent(share)));
    format!("{value}{of}{share}")
}

/// `7.4 ms to 8.8 ms less for each request, by ...`.
fn expected(gain: Option<&Gain>, unit: Unit, style: Style) -> String {
    let Some(gain) = gain else { return "not predicted".to_owned() };
    let [low, high] = [&gain.low, &gain.high].map(|value| style.value(value));
    let amount = if matches!(gain.low, Value::Ns(0) | Value::Bytes(0)) {
        format!("up to {high}")
    } else if low == high {
        low
    } else {
        format!("{low} to {high}")
    };
    let each = match (&gain.high, unit) {
        (Value::Ns(_), Unit::Request) => " for each request",
        (Value::Ns(_), Unit::Operation) => " for each operation",
        _ => "",
    };
    format!("{amount} less{each}; basis: {}", style.sentence(&gain.basis))
}

/// A paragraph whose first line has a word before it.
fn item(text: &mut String, what: &str, words: &str) {
    let head = format!("   {what:<width$}", width = INDENT - 3);
    wrap(text, &head, &" ".repeat(INDENT), words);
}

fn paragraph(text: &mut String, words: &str) {
    wrap(text, "", "", words);
}

/// Appends words in lines that are not longer than [`WIDTH`], if no word is.
fn wrap(text: &mut String, head: &str, indent: &str, words: &str) {
    let mut line = head.to_owned();
    let mut is_empty = true;
    for word in words.split(' ') {
        if !is_empty && line.chars().count() + 1 + word.chars().count() > WIDTH {
            let _ = writeln!(text, "{}", line.trim_end());
            indent.clone_into(&mut line);
            is_empty = true;
        }
        if !is_empty {
            line.push(' ');
        }
        line.push_str(word);
        is_empty = false;
    }
    let _ = writeln!(text, "{}", line.trim_end());
}

fn markdown(sheet: &Sheet) -> String {
    let style = Style::Markdown;
    let mut text = String::new();
    let _ = writeln!(text, "# slip doctor\n\n{}\n\n{}\n", target(sheet, style), watched(sheet));
    if let Some(why) = &sheet.nothing {
        let _ = writeln!(text, "Not enough to tell: {}.", style.sentence(why));
        return text;
    }
    let _ = writeln!(
        text,
        "## Where {} {} goes ({} on average)\n",
        article(sheet.unit),
        sheet.unit.name(),
        duration(sheet.unit_ns)
    );
    let mut rows = crate::table::Table::new(&["line", ">time", ">share", "what"]);
    for LineCost { line, ns, tenths } in shown(sheet) {
        rows.row([line.name().to_owned(), duration(*ns), percent(*tenths), line.meaning().to_owned()]);
    }
    rows.write(&mut text);
    text.push('\n');
    for (at, finding) in sheet.findings.iter().enumerate() {
        markdown_finding(&mut text, at + 1, finding, sheet.unit);
    }
    if sheet.findings.is_empty() {
        let _ = writeln!(text, "{}\n", healthy(sheet));
    }
    for note in &sheet.notes {
        let _ = writeln!(text, "Note: {}.\n", style.sentence(note));
    }
    let others = [
        ("Not enough data for", &sheet.too_little),
        ("Looked at and fine", &sheet.quiet),
        ("Not for this target", &sheet.not_of),
    ];
    for (heading, rules) in others.into_iter().filter(|(_, rules)| !rules.is_empty()) {
        let _ = writeln!(text, "## {heading}\n");
        for (rule, why) in rules {
            let _ = writeln!(text, "- {} ({}): {}", rule.id, rule.title, told(why, style));
        }
        text.push('\n');
    }
    text.truncate(text.trim_end().len());
    text.push('\n');
    text
}

fn markdown_finding(text: &mut String, number: usize, finding: &Finding, unit: Unit) {
    let style = Style::Markdown;
    let _ = writeln!(text, "## {number}. {}: {}\n", finding.rule.id, style.sentence(&finding.headline));
    let _ = writeln!(text, "{}.\n", cost_and_confidence(finding, unit));
    for (what, statements) in
        [("evidence", &finding.evidence), ("ruled out", &finding.ruled_out), ("fix", &finding.fixes)]
    {
        for statement in statements {
            let _ = writeln!(text, "- **{what}**: {}", told(statement, style));
        }
    }
    let _ = writeln!(text, "- **expect**: {}", expected(finding.gain.as_ref(), unit, style));
    text.push('\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_end_before_the_edge_and_long_words_have_one_of_their_own() {
        let mut text = String::new();
        let long = "x".repeat(WIDTH);
        item(&mut text, "fix", &format!("{} {long} end", "word ".repeat(30).trim_end()));
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[0].starts_with("   fix       word word"), "{text}");
        assert!(lines[0].chars().count() <= WIDTH && lines[1].starts_with(&" ".repeat(INDENT)), "{text}");
        assert_eq!((lines[2].trim_start(), lines[3].trim_start()), (&*long, "end"));
    }

    #[test]
    fn rates_are_short() {
        assert_eq!(
            [0, 5, 105, 999, 1_000, 13_649].map(hundredths),
            ["0.00", "0.05", "1.05", "9.99", "10", "136"]
        );
    }
}
