//! JSON, schema `slip.doctor/1`: `docs/formats.md` describes it.

use serde::Serialize;
use serde_json::{Map, Value as Json, json};
use slip_doctor::{Finding, Rule, Sheet, Statement, Unit, Value};
use slip_model::Language;

use super::Style;
use crate::ReportError;
use crate::text::clean_json;

#[derive(Serialize)]
struct Document<'a> {
    schema: &'static str,
    tool: &'a str,
    target: &'a str,
    watched: Vec<Watched<'a>>,
    started_unix_ns: u64,
    window_ns: u64,
    measured_by: &'a str,
    cannot_see: &'a [String],
    unit: UnitTimes,
    lines: Vec<Line>,
    findings: Vec<Found>,
    too_little: Vec<Told>,
    quiet: Vec<Told>,
    not_of: Vec<Told>,
    nothing: Option<Json>,
    notes: Vec<Json>,
    own_cost: OwnCost,
}

#[derive(Serialize)]
struct Watched<'a> {
    language: Language,
    version: &'a str,
    title: &'a str,
    processes: u64,
}

#[derive(Serialize)]
struct UnitTimes {
    kind: &'static str,
    count: u64,
    mean_ns: u64,
    p50_ns: Option<u64>,
    p95_ns: Option<u64>,
    p99_ns: Option<u64>,
}

#[derive(Serialize)]
struct Line {
    line: String,
    ns: u64,
    share: f64,
}

#[derive(Serialize)]
struct Found {
    rule: &'static str,
    title: &'static str,
    cause: &'static str,
    headline: Json,
    cost: Option<Json>,
    confidence: &'static str,
    evidence: Vec<Json>,
    ruled_out: Vec<Json>,
    fixes: Vec<Json>,
    gain: Option<Json>,
}

#[derive(Serialize)]
struct Told {
    rule: &'static str,
    title: &'static str,
    says: Json,
}

#[derive(Serialize)]
struct OwnCost {
    cpu_ns: u64,
    duration_ns: u64,
    share_of_core: f64,
}

pub(super) fn sheet(sheet: &Sheet) -> Result<Vec<u8>, ReportError> {
    let whole = sheet.table.requests.whole.filter(|_| sheet.unit == Unit::Request);
    let told = |rules: &[(&'static Rule, Statement)]| {
        rules
            .iter()
            .map(|(rule, says)| Told { rule: rule.id, title: rule.title, says: statement(says) })
            .collect()
    };
    let document = Document {
        schema: "slip.doctor/1",
        tool: &sheet.tool,
        target: &sheet.target,
        watched: sheet
            .watched
            .iter()
            .map(|kind| Watched {
                language: kind.language,
                version: &kind.version,
                title: &kind.title,
                processes: kind.count,
            })
            .collect(),
        started_unix_ns: sheet.started_unix_ns,
        window_ns: sheet.table.window_ns,
        measured_by: &sheet.table.rung,
        cannot_see: &sheet.table.cannot_see,
        unit: UnitTimes {
            kind: sheet.unit.name(),
            count: sheet.units,
            mean_ns: sheet.unit_ns,
            p50_ns: whole.map(|whole| whole.p50_ns),
            p95_ns: whole.map(|whole| whole.p95_ns),
            p99_ns: whole.map(|whole| whole.p99_ns),
        },
        lines: sheet
            .lines
            .iter()
            .map(|row| Line {
                line: row.line.name().to_ascii_lowercase(),
                ns: row.ns,
                share: share(row.tenths),
            })
            .collect(),
        findings: sheet.findings.iter().map(found).collect(),
        too_little: told(&sheet.too_little),
        quiet: told(&sheet.quiet),
        not_of: told(&sheet.not_of),
        nothing: sheet.nothing.as_ref().map(statement),
        notes: statements(&sheet.notes),
        own_cost: OwnCost {
            cpu_ns: sheet.cost.cpu_ns,
            duration_ns: sheet.cost.duration_ns,
            share_of_core: ratio(sheet.cost.cpu_ns, sheet.cost.duration_ns),
        },
    };
    let mut json = clean_json(&serde_json::to_string_pretty(&document)?).into_owned();
    json.push('\n');
    Ok(json.into_bytes())
}

fn found(finding: &Finding) -> Found {
    let cost = finding.cost.as_ref().map(|cost| {
        let mut fields = Map::new();
        set(&mut fields, "", &cost.value);
        fields.insert("share_of_unit".to_owned(), json!(cost.tenths.map(share)));
        Json::Object(fields)
    });
    let gain = finding.gain.as_ref().map(|gain| {
        let mut fields = Map::new();
        set(&mut fields, "low", &gain.low);
        set(&mut fields, "high", &gain.high);
        fields.insert("basis".to_owned(), statement(&gain.basis));
        Json::Object(fields)
    });
    Found {
        rule: finding.rule.id,
        title: finding.rule.title,
        cause: finding.cause,
        headline: statement(&finding.headline),
        cost,
        confidence: finding.confidence.name(),
        evidence: statements(&finding.evidence),
        ruled_out: statements(&finding.ruled_out),
        fixes: statements(&finding.fixes),
        gain,
    }
}

fn statements(statements: &[Statement]) -> Vec<Json> {
    statements.iter().map(statement).collect()
}

/// The sentence as people read it, and its values by name.
fn statement(statement: &Statement) -> Json {
    let mut values = Map::new();
    for (name, value) in &statement.values {
        set(&mut values, name, value);
    }
    let probe = (!statement.probe.is_empty()).then_some(statement.probe);
    json!({ "probe": probe, "text": Style::Plain.sentence(statement), "values": values })
}

/// Sets the field of a value: its name, and its unit behind that.
fn set(fields: &mut Map<String, Json>, name: &str, value: &Value) {
    let (unit, json) = match value {
        Value::Count(number) => ("", json!(number)),
        Value::Ns(ns) => ("ns", json!(ns)),
        Value::Bytes(bytes) => ("bytes", json!(bytes)),
        Value::Tenths(tenths) => ("share", json!(share(*tenths))),
        Value::Hundredths(rate) => ("", json!(*rate as f64 / 100.0)),
        Value::Name(name) => ("", json!(name)),
        Value::Word(word) => ("", json!(word)),
    };
    let key = match (name, unit) {
        ("", unit) => unit.to_owned(),
        (name, unit) if unit.is_empty() || name == unit => name.to_owned(),
        (name, unit) => format!("{name}_{unit}"),
    };
    fields.insert(key, json);
}

/// From 0 to 1.
fn share(tenths: u64) -> f64 {
    tenths as f64 / 1_000.0
}

fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { (part as f64 / whole as f64 * 1e4).round() / 1e4 }
}
