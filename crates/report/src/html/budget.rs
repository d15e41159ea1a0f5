//! The budget as a bar and its legend: what a request takes, and where all of the workers' time went.

use slip_doctor::{Line, LineCost, Sheet, Unit, shares, tenths};
use slip_model::{Recording, WaitReason};

use crate::summary::Summary;
use crate::text::{clean, count, duration, percent, shorten};

use super::base::Kind;
use super::findings::line_of;
use super::markup::Markup;
use super::{Base, NAME};

/// Segments of a smaller share have no name in the bar.
const NAMED_TENTHS: u64 = 60;
/// And of a smaller one than that none on a phone.
const WIDE_TENTHS: u64 = 170;

/// A part of a bar.
struct Segment {
    kind: Kind,
    ns: u64,
    tenths: u64,
}

pub(super) fn write(
    page: &mut Markup,
    recording: &Recording,
    summary: &Summary,
    sheet: Option<&Sheet>,
    base: Option<Base<'_>>,
) {
    page.raw("<section class=\"budget\" aria-labelledby=\"budget-heading\">\n");
    match sheet {
        Some(sheet) if sheet.unit_ns > 0 && sheet.lines.iter().any(|row| row.ns > 0) => {
            let before = base
                .and_then(|base| Sheet::of(base.recording, None))
                .filter(|before| before.unit == sheet.unit);
            of_unit(page, sheet, before.as_ref(), base);
            if sheet.table.workers > 0 {
                of_workers(page, sheet);
            }
        }
        Some(sheet) => {
            page.raw("<h2 id=\"budget-heading\">Where the workers' time went</h2>\n");
            page.raw("<p>No request ended in the recording.</p>\n");
            of_workers(page, sheet);
        }
        None => of_samples(page, recording, summary),
    }
    page.raw("</section>\n");
}

fn of_unit(page: &mut Markup, sheet: &Sheet, before: Option<&Sheet>, base: Option<Base<'_>>) {
    let segments = of_lines(&sheet.lines);
    let (article, unit) = match sheet.unit {
        Unit::Request => ("a", "request"),
        Unit::Operation => ("an", "operation"),
        Unit::Run => ("the", "run"),
    };
    page.raw("<h2 id=\"budget-heading\">Where ")
        .text(article)
        .raw(" ")
        .text(unit)
        .raw(" goes</h2>\n<p class=\"sum\"><b>");
    page.text(&duration(sheet.unit_ns)).raw("</b>");
    page.raw(if sheet.unit == Unit::Run { ", all threads together" } else { " on average" });
    if let Some(whole) = sheet.table.requests.whole.filter(|_| sheet.unit == Unit::Request) {
        let [p50, p95, p99] = [whole.p50_ns, whole.p95_ns, whole.p99_ns].map(duration);
        page.text(&format!(" · p50 {p50} · p95 {p95} · p99 {p99} · {} requests", count(sheet.units)));
    }
    page.raw("</p>\n");
    // Both bars have one scale, so that the longer one is the slower one.
    let sum =
        |segments: &[Segment]| segments.iter().fold(0_u64, |sum, segment| sum.saturating_add(segment.ns));
    let earlier = before.map(|before| of_lines(&before.lines));
    let scale_ns = sum(&segments).max(earlier.as_deref().map_or(0, sum));
    bar(page, &segments, scale_ns, "budget of one");
    if let (Some(before), Some(earlier), Some(base)) = (before, &earlier, base) {
        page.raw("<p class=\"sum\">before: <b>").text(&duration(before.unit_ns)).raw("</b>, ");
        page.text(&count(before.units))
            .raw(" ")
            .text(unit)
            .raw(if before.units == 1 { " in " } else { "s in " })
            .text(&shorten(&clean(base.name), NAME))
            .raw("</p>\n");
        bar(page, earlier, scale_ns, "the same before");
    }
    legend(page, &segments, earlier.as_deref(), Some(sheet));
    for note in &sheet.notes {
        page.raw("<p class=\"note\">Note: ").text(&crate::sheet::plain_sentence(note)).raw(".</p>\n");
    }
}

fn of_lines(lines: &[LineCost]) -> Vec<Segment> {
    let shown = lines.iter().filter(|row| row.ns > 0);
    shown.map(|row| Segment { kind: Kind::Line(row.line), ns: row.ns, tenths: row.tenths }).collect()
}

/// All of the workers' time: how busy they are.
fn of_workers(page: &mut Markup, sheet: &Sheet) {
    let time = &sheet.table.time;
    let shown = time.lines.iter().filter(|row| row.ns > 0);
    let segments: Vec<Segment> = shown
        .map(|row| Segment {
            kind: Kind::Line(row.line),
            ns: u64::try_from(row.ns).unwrap_or(u64::MAX),
            tenths: row.tenths,
        })
        .collect();
    if segments.is_empty() {
        return;
    }
    let idle = tenths(time.ns(Line::Idle), time.total_ns());
    let plural = if sheet.table.workers == 1 { "" } else { "s" };
    page.raw("<h3>All time of the workers</h3>\n<p class=\"sum\">");
    page.text(&format!(
        "{} worker{plural}, {} together, {} of it idle",
        count(sheet.table.workers),
        duration(u64::try_from(time.total_ns()).unwrap_or(u64::MAX)),
        percent(idle)
    ));
    page.raw("</p>\n");
    bar_small(page, &segments);
    page.raw("<details><summary>In numbers</summary>\n");
    legend(page, &segments, None, None);
    page.raw("</details>\n");
}

/// Without a budget: what samples and waits say.
fn of_samples(page: &mut Markup, recording: &Recording, summary: &Summary) {
    let time = &summary.time;
    // Waits count in the split as well: those for a CPU as on a CPU, others as waiting. Those of the engine are in neither.
    let in_code = waits_in_code(recording);
    let on_cpu_ns = time.on_cpu_ns.saturating_sub(in_code[WaitReason::Cpu as usize]);
    let mut parts = vec![(Kind::OnCpu, on_cpu_ns), (Kind::Engine, time.engine_ns)];
    let mut off_ns = time.waiting_ns;
    for (reason, ns) in WaitReason::ALL.into_iter().zip(in_code) {
        parts.push((Kind::Waits(reason), ns));
        if reason != WaitReason::Cpu {
            off_ns = off_ns.saturating_sub(ns);
        }
    }
    parts.extend([(Kind::OffCpu, off_ns), (Kind::NotTold, time.unknown_ns)]);
    parts.retain(|(_, ns)| *ns > 0);
    let tenths_of = shares(&parts.iter().map(|(_, ns)| u128::from(*ns)).collect::<Vec<_>>());
    let segments: Vec<Segment> =
        parts.into_iter().zip(tenths_of).map(|((kind, ns), tenths)| Segment { kind, ns, tenths }).collect();
    page.raw("<h2 id=\"budget-heading\">On a CPU, and waiting</h2>\n<p class=\"sum\"><b>");
    page.text(&duration(time.busy_ns())).raw("</b> busy");
    if time.idle_ns > 0 {
        page.text(&format!(
            " · workers were idle {} of the time",
            percent(tenths(time.idle_ns.into(), time.total_ns().into()))
        ));
    }
    page.raw("</p>\n");
    if segments.is_empty() {
        page.raw("<p>The recording holds no samples of busy threads.</p>\n");
    } else {
        let whole = segments.iter().fold(0_u64, |sum, segment| sum.saturating_add(segment.ns));
        bar(page, &segments, whole, "busy time");
        legend(page, &segments, None, None);
    }
    page.raw(concat!(
        "<p class=\"note\">This recording has no budget, so this is what samples and waits say: shares of busy time, estimated. ",
        "<code class=\"short\">slip record --budget</code> measures what each request takes, line by line, and which servers it waits for.</p>\n",
    ));
}

/// Time of waits in code, by reason.
fn waits_in_code(recording: &Recording) -> [u64; WaitReason::ALL.len()] {
    let mut sums = [0_u64; WaitReason::ALL.len()];
    for wait in &recording.waits {
        let is_elsewhere =
            wait.state.has(slip_model::State::IDLE) || wait.state.has(slip_model::State::ENGINE);
        if !is_elsewhere && wait.thread.index() < recording.threads.len() {
            let sum = &mut sums[wait.reason as usize];
            *sum = sum.saturating_add(wait.total_ns);
        }
    }
    sums
}

/// A bar of which `scale_ns` would be the whole width.
fn bar(page: &mut Markup, segments: &[Segment], scale_ns: u64, name: &'static str) {
    page.raw("<svg class=\"bar\" width=\"100%\" height=\"56\" role=\"img\" aria-label=\"")
        .raw(name)
        .raw(": ");
    let told: Vec<String> = segments
        .iter()
        .map(|segment| format!("{} {}", segment.kind.name(), percent(segment.tenths)))
        .collect();
    page.text(&told.join(", ")).raw("\">\n");
    let mut from_ns = 0_u64;
    for segment in segments {
        let at = |ns: u64| format!("{:.3}%", ns as f64 * 100.0 / scale_ns.max(1) as f64);
        page.raw("<svg x=\"").text(&at(from_ns)).raw("\" width=\"").text(&at(segment.ns));
        page.raw("\" height=\"56\"><g class=\"k-")
            .raw(segment.kind.key())
            .raw("\"><title>")
            .raw(segment.kind.name())
            .raw(" ");
        page.text(&format!("{}, {}: ", duration(segment.ns), percent(segment.tenths)))
            .raw(segment.kind.meaning());
        page.raw("</title><rect width=\"100%\" height=\"56\"/>");
        if segment.tenths >= NAMED_TENTHS {
            // On a phone there is no room for some.
            page.raw(if segment.tenths < WIDE_TENTHS { "<g class=\"narrow\">" } else { "<g>" });
            page.raw("<text x=\"7\" y=\"24\">")
                .raw(segment.kind.name())
                .raw("</text><text class=\"of\" x=\"7\" y=\"43\">");
            page.text(&percent(segment.tenths)).raw("</text></g>");
        }
        page.raw("</g></svg>\n");
        from_ns = from_ns.saturating_add(segment.ns);
    }
    page.raw("</svg>\n");
}

fn bar_small(page: &mut Markup, segments: &[Segment]) {
    page.raw("<svg class=\"bar small\" width=\"100%\" height=\"18\" role=\"img\" aria-label=\"all time of the workers: ");
    let told: Vec<String> = segments
        .iter()
        .map(|segment| format!("{} {}", segment.kind.name(), percent(segment.tenths)))
        .collect();
    page.text(&told.join(", ")).raw("\">\n");
    let whole = segments.iter().map(|segment| segment.ns as f64).sum::<f64>().max(1.0);
    let mut from = 0.0;
    for segment in segments {
        let width = segment.ns as f64 * 100.0 / whole;
        page.raw("<g class=\"k-").raw(segment.kind.key()).raw("\"><title>").raw(segment.kind.name()).raw(" ");
        page.text(&percent(segment.tenths)).raw("</title><rect x=\"").text(&format!("{from:.3}%"));
        page.raw("\" width=\"").text(&format!("{width:.3}%")).raw("\" height=\"18\"/></g>\n");
        from += width;
    }
    page.raw("</svg>\n");
}

/// The rows of a bar in numbers. `before` has the same of another recording.
fn legend(page: &mut Markup, segments: &[Segment], before: Option<&[Segment]>, sheet: Option<&Sheet>) {
    page.raw("<table class=\"legend\">\n<thead><tr><th>line<th class=\"n\">time<th class=\"n\">share");
    if before.is_some() {
        page.raw("<th class=\"n\">before<th class=\"n\">change");
    }
    page.raw("<th class=\"what\">what</tr></thead>\n<tbody>\n");
    let mut kinds: Vec<Kind> = segments.iter().map(|segment| segment.kind).collect();
    // What is gone has a row as well.
    kinds.extend(
        before
            .into_iter()
            .flatten()
            .map(|segment| segment.kind)
            .filter(|kind| segments.iter().all(|segment| segment.kind != *kind)),
    );
    for kind in kinds {
        let find = |segments: &[Segment]| {
            segments
                .iter()
                .find(|segment| segment.kind == kind)
                .map_or((0, 0), |found| (found.ns, found.tenths))
        };
        let (ns, share) = find(segments);
        page.raw("<tr><th scope=\"row\"><i class=\"k-").raw(kind.key()).raw("\"></i>").raw(kind.name());
        page.raw("<td class=\"n\">").text(&duration(ns)).raw("<td class=\"n\">").text(&percent(share));
        if let Some(before) = before {
            let (old_ns, _) = find(before);
            page.raw("<td class=\"n\">").text(&duration(old_ns)).raw("<td class=\"n ");
            page.raw(if ns > old_ns { "worse" } else { "better" }).raw("\">").text(&change(old_ns, ns));
        }
        page.raw("<td class=\"what\">").raw(kind.meaning());
        let findings = sheet.into_iter().flat_map(|sheet| &sheet.findings).enumerate();
        for (at, finding) in
            findings.filter(|(_, finding)| line_of(finding.rule).map(Kind::Line) == Some(kind))
        {
            page.raw(" <a href=\"#finding-")
                .text(&(at + 1).to_string())
                .raw("\">")
                .raw(finding.rule.id)
                .raw("</a>");
        }
        page.raw("</tr>\n");
    }
    page.raw("</tbody></table>\n");
}

/// `+1.2 ms`, `−300 µs`.
fn change(before_ns: u64, ns: u64) -> String {
    if ns >= before_ns {
        format!("+{}", duration(ns - before_ns))
    } else {
        format!("−{}", duration(before_ns - ns))
    }
}
