//! One page that shows a recording, and on request what has changed since another one: the budget and the findings, its requests in
//! the order of time, and a flame graph.
//!
//! The first screen is HTML and needs no script. Everything else is drawn by `page.js`, which is made of `web/`, from the columns that
//! `data.rs` writes. The page's own policy (`Content-Security-Policy`) refuses it any network, and any script and style but these two.

mod base;
mod budget;
mod data;
mod findings;
mod markup;
mod requests;
mod stacks;

use slip_doctor::Sheet;
use slip_model::{Language, Mode, Recording};

use crate::summary::Summary;
use crate::text::{clean, count, date, duration, shorten};
use crate::{Options, ReportError};

use markup::Markup;

/// Made by `cargo xtask page`, as [`STYLE`] and [`POLICY`] are.
const SCRIPT: &str = include_str!("html/page.js");
const STYLE: &str = include_str!("html/page.css");
/// Which script and which style may be used, by their hashes.
const POLICY: &str = include_str!("html/policy.txt");
/// What the script fills with content.
const VIEWS: &str = include_str!("html/views.html");

/// Most characters of a name on the first screen.
const NAME: usize = 80;

/// A recording that another one is compared with.
#[derive(Clone, Copy, Debug)]
pub struct Base<'a> {
    /// The earlier one.
    pub recording: &'a Recording,
    /// What it is called. Untrusted, as names of files are.
    pub name: &'a str,
}

pub(crate) fn render(
    recording: &Recording,
    base: Option<Base<'_>>,
    options: &Options,
) -> Result<Vec<u8>, ReportError> {
    let summary = Summary::of(recording);
    let sheet = Sheet::of(recording, None);
    let mut page = Markup::default();
    page.raw("<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n");
    page.raw("<meta http-equiv=\"Content-Security-Policy\" content=\"").raw(POLICY.trim_end()).raw("\">\n");
    page.raw("<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n");
    page.raw("<meta name=\"color-scheme\" content=\"light dark\">\n");
    page.raw("<meta name=\"referrer\" content=\"no-referrer\">\n<title>");
    page.text(&title(recording))
        .raw(" · Slipstream</title>\n<style>")
        .raw(STYLE)
        .raw("</style>\n</head>\n<body>\n");
    heading(&mut page, recording, &summary, base);
    page.raw("<main>\n<section id=\"overview\" role=\"tabpanel\" aria-labelledby=\"tab-overview\">\n<div class=\"first\">\n");
    budget::write(&mut page, recording, &summary, sheet.as_ref(), base);
    findings::write(&mut page, sheet.as_ref());
    page.raw("</div>\n");
    reservations(&mut page, recording, &summary, options);
    page.raw("</section>\n").raw(VIEWS).raw("</main>\n");
    page.raw("<script type=\"application/json\" id=\"data\">");
    page.json(&data::Data::of(recording, sheet.as_ref(), base, options))?;
    page.raw("</script>\n<script>").raw(SCRIPT).raw("</script>\n</body>\n</html>\n");
    Ok(page.into_bytes())
}

/// What was recorded, in a few words.
fn title(recording: &Recording) -> String {
    let target = recording.info.target.trim();
    let title = recording.processes.first().map_or("", |process| &process.title);
    match (target, title) {
        ("", "") => "recording".to_owned(),
        ("", title) => title.to_owned(),
        (target, _) => target.to_owned(),
    }
}

fn heading(page: &mut Markup, recording: &Recording, summary: &Summary, base: Option<Base<'_>>) {
    page.raw("<header>\n<div class=\"title\"><h1>")
        .text(&shorten(&clean(&title(recording)), NAME))
        .raw("</h1>\n<p>");
    if let Some(base) = base {
        page.raw("<b>Compared with ").text(&shorten(&clean(base.name), NAME)).raw("</b> · ");
    }
    page.text(&watched(recording, summary));
    page.raw("</p></div>\n");
    page.raw(concat!(
        "<nav role=\"tablist\" aria-label=\"Views\">",
        "<button type=\"button\" role=\"tab\" id=\"tab-overview\" aria-controls=\"overview\" aria-selected=\"true\">Overview</button>",
        "<button type=\"button\" role=\"tab\" id=\"tab-requests\" aria-controls=\"requests\" aria-selected=\"false\">Requests</button>",
        "<button type=\"button\" role=\"tab\" id=\"tab-flame\" aria-controls=\"flame\" aria-selected=\"false\">Flame graph</button>",
        "</nav>\n<div class=\"tools\">",
        "<button type=\"button\" id=\"theme\" aria-label=\"Dark or light (t)\" title=\"Dark or light (t)\">◐</button>",
        "<button type=\"button\" id=\"help\" aria-label=\"Keys (?)\" title=\"Keys (?)\">?</button>",
        "</div>\n</header>\n",
    ));
}

/// `10.0 s from 2026-11-22 00:16:06 UTC · 4 × php-fpm: pool www, PHP 8.2.36 · kernel, 99 Hz · 3,922 samples`.
fn watched(recording: &Recording, summary: &Summary) -> String {
    let info = &recording.info;
    let mut words = vec![format!("{} from {}", duration(summary.wall_ns), date(info.started_unix_ns))];
    for group in summary.groups.iter().take(3) {
        let language = match group.language {
            Language::Php => "PHP",
            Language::Python => "CPython",
            Language::Native => "native code",
        };
        let name = if group.title.is_empty() { "[unnamed]" } else { &*group.title };
        let name = clean(name);
        let name = shorten(&name, NAME);
        let versions = group.versions.iter().map(|version| clean(version)).collect::<Vec<_>>().join(", ");
        // A program of native code has none.
        let versions = if versions.is_empty() { String::new() } else { format!(" {versions}") };
        words.push(format!("{} × {name}, {language}{versions}", count(group.workers)));
    }
    if summary.groups.len() > 3 {
        words.push(format!("{} more kinds", summary.groups.len() - 3));
    }
    let sampler = if info.sampler.is_empty() { "unknown".into() } else { clean(&info.sampler) };
    let rate = 1_000_000_000_u64.checked_div(info.interval_ns).unwrap_or(0);
    words.push(format!("sampler {sampler}, {} Hz{}", count(rate), mode(info.mode)));
    words.push(format!("{} samples", count(summary.quality.samples)));
    if summary.waits.count > 0 {
        words.push(format!("{} waits", count(summary.waits.count)));
    }
    words.join(" · ")
}

fn mode(mode: Mode) -> &'static str {
    match mode {
        Mode::Wall => "",
        Mode::Cpu => ", only moments on a CPU",
        Mode::Gil => ", only moments with the global interpreter lock",
        Mode::Offcpu => ", only moments of waiting",
        Mode::Exception => ", only moments of exceptions",
        Mode::Alloc => ", allocations",
    }
}

/// What the recording cannot tell, and how well it went.
fn reservations(page: &mut Markup, recording: &Recording, summary: &Summary, options: &Options) {
    let totals = &summary.quality.totals;
    let mut sentences: Vec<String> = options.notes.iter().map(|note| clean(note).into_owned()).collect();
    if !totals.complete {
        sentences.push("The recording was not closed in order: its end may be missing.".to_owned());
    }
    for (number, what) in [
        (totals.torn, "samples were dropped because the stack moved while it was read"),
        (totals.failed, "samples were lost to failed reads"),
        (summary.quality.missed_ticks, "moments at which a sample was due were missed"),
        (summary.quality.truncated, "stacks lack their outer end"),
    ] {
        if number > 0 {
            sentences.push(format!("{} {what}.", count(number)));
        }
    }
    let of_budget = recording.budget.iter().flat_map(|budget| &budget.cannot_see);
    let blind: Vec<&String> = recording.info.cannot_see.iter().chain(of_budget).collect();
    page.raw(
        "<details class=\"blind\"><summary>How it was recorded, and what that cannot see</summary>\n<ul>\n",
    );
    for sentence in blind.into_iter().chain(&sentences) {
        page.raw("<li>").text(sentence.trim()).raw("</li>\n");
    }
    page.raw("<li>Recorded by ").text(&recording.info.tool).raw(" on ").text(&recording.info.host);
    page.raw("; the recorder itself used ")
        .text(&duration(totals.own_cpu_ns))
        .raw(" of CPU.</li>\n</ul></details>\n");
}
