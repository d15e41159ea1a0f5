//! Markdown that reads as plain text too: what `slip record` prints at its end.

mod headline;

use std::fmt::Write as _;

use slip_doctor::BudgetTable;
use slip_model::{FrameKind, Language, Mode, Recording, StringId};

use crate::Options;
use crate::budget;
use crate::piece::in_words;
use crate::summary::{Function, HotStack, KernelTime, Summary, TimeSplit};
use crate::table::Table;
use crate::text::{
    bytes, clean, code, count, date, duration, percent, place, share, shares, shorten, tenths,
};

/// Most groups in a table. With the other tables at ten rows this keeps the report below 80 lines, 90 with waits.
const MAX_GROUPS: usize = 4;
/// Most rows of the tables that only support the one before.
const MAX_MINOR: usize = 5;
/// Most characters of a name and of a place.
const NAME: usize = 48;
const PLACE: usize = 40;
/// Frames of a hot stack that are shown.
const STACK_FRAMES: usize = 5;

pub(crate) fn render(recording: &Recording, summary: &Summary, options: &Options) -> String {
    let own = OwnShares::new(summary, options.top);
    let mut text = headline::headline(recording, summary, &own);
    text.push_str("\n\n");
    introduction(&mut text, recording, summary);
    if let Some(table) = BudgetTable::of(recording) {
        budget::short(&mut text, &table);
    }
    if summary.quality.samples > 0 || summary.quality.waits > 0 {
        groups(&mut text, recording, summary, options);
        functions(&mut text, recording, summary, options, &own);
        waits(&mut text, recording, summary, options);
        lines(&mut text, recording, summary, options);
        stacks(&mut text, recording, summary, options);
        requests(&mut text, recording, summary, options);
    }
    quality(&mut text, recording, summary, options);
    text
}

fn introduction(text: &mut String, recording: &Recording, summary: &Summary) {
    let info = &recording.info;
    let mode = match info.mode {
        Mode::Wall => "all moments count",
        Mode::Cpu => "only moments on a CPU count",
        Mode::Gil => "only moments with the global interpreter lock count",
        Mode::Offcpu => "only moments off the CPU count",
        Mode::Exception => "only moments with an exception count",
        Mode::Alloc => "no moments count",
    };
    let rate = 1e9 / summary.interval_ns as f64;
    let interval = format!("one per {} ({rate:.0} Hz)", duration(summary.interval_ns));
    let (samples, waits) = (summary.quality.samples, summary.quality.waits);
    let seen = match (samples, waits) {
        (_, 0) => format!("{} samples, {interval} and thread", count(samples)),
        (0, 1) => "1 wait with its duration".to_owned(),
        (0, _) => format!("{} waits, each with its duration", count(waits)),
        // Who sees waits takes samples of what runs.
        _ => format!(
            "{} samples, {interval} and running thread, and {} waits, each with its duration",
            count(samples),
            count(waits)
        ),
    };
    let _ = writeln!(
        text,
        "{} watched from {}: {seen}; {mode}. Asked for: {}.",
        duration(summary.wall_ns),
        date(info.started_unix_ns),
        code(&info.target, 60, false),
    );
}

/// The columns of [`split_cells`].
fn split_columns(summary: &Summary) -> [&'static str; 6] {
    let whole = if summary.quality.waits == 0 { ">samples" } else { ">of" };
    [">idle", ">code on CPU", ">code waiting", ">engine", ">unknown", whole]
}

/// The shares of some threads' time, and what they are shares of: samples or, as waits are no samples, time.
fn split_cells(summary: &Summary, time: &TimeSplit, samples: u64) -> Vec<String> {
    let parts = [time.idle_ns, time.on_cpu_ns, time.waiting_ns, time.engine_ns, time.unknown_ns];
    let whole = if summary.quality.waits == 0 { count(samples) } else { duration(time.total_ns()) };
    shares(&parts).into_iter().map(percent).chain([whole]).collect()
}

/// Shares of busy time, in tenths of a percent, that add up to 100 %.
struct OwnShares {
    /// Of the first functions, as many as are shown.
    functions: Vec<u64>,
    engine: u64,
    frameless: u64,
    /// Of the other functions.
    rest: u64,
}

impl OwnShares {
    fn new(summary: &Summary, shown: usize) -> Self {
        let own = summary.functions.iter().map(|function| function.own_ns).filter(|own| *own > 0);
        let mut parts: Vec<u64> = own.take(shown).collect();
        parts.extend([summary.time.engine_ns, summary.frameless_ns]);
        let known = parts.iter().fold(0, |sum: u64, part| sum.saturating_add(*part));
        parts.push(summary.time.busy_ns().saturating_sub(known));
        let mut functions = shares(&parts);
        let mut last = || functions.pop().unwrap_or(0);
        let (rest, frameless, engine) = (last(), last(), last());
        Self { functions, engine, frameless, rest }
    }
}

fn groups(text: &mut String, recording: &Recording, summary: &Summary, options: &Options) {
    let _ = writeln!(text, "\n## Where the workers' time went (idle to unknown make 100 %)\n");
    let has_gil = summary.groups.iter().any(|group| group.gil_held_ns > 0);
    let gil: &[&str] = if has_gil { &[">with GIL"] } else { &[] };
    let split = split_columns(summary);
    let mut table = Table::new(&[&["group", ">workers"], &split[..], gil].concat());
    let mut row = |name: String, workers: String, time: &TimeSplit, samples: u64, gil_held_ns: u64| {
        let gil = if gil_held_ns > 0 { share(gil_held_ns, time.total_ns()) } else { String::new() };
        let cells = split_cells(summary, time, samples);
        table.row([name, workers].into_iter().chain(cells).chain(has_gil.then_some(gil)));
    };
    for group in summary.groups.iter().take(MAX_GROUPS) {
        let language = match group.language {
            Language::Php => "PHP",
            Language::Python => "Python",
            Language::Native => "native code",
        };
        let versions = group.versions.join(", ");
        // A program of native code has none.
        let versions =
            if versions.is_empty() { String::new() } else { format!(" {}", code(&versions, 20, true)) };
        let name = format!("{}, {language}{versions}", code(&group.title, NAME, true));
        let workers = if group.threads > group.workers {
            format!("{} ({} threads)", group.workers, group.threads)
        } else {
            group.workers.to_string()
        };
        row(name, workers, &group.time, group.samples, group.gil_held_ns);
    }
    if summary.groups.len() > MAX_GROUPS {
        let mut rest = TimeSplit::default();
        let (mut workers, mut samples, mut gil_held_ns) = (0, 0, 0_u64);
        for group in &summary.groups[MAX_GROUPS..] {
            rest.add(&group.time);
            workers += group.workers;
            samples += group.samples;
            gil_held_ns = gil_held_ns.saturating_add(group.gil_held_ns);
        }
        let name = format!("{} more groups", summary.groups.len() - MAX_GROUPS);
        row(name, workers.to_string(), &rest, samples, gil_held_ns);
    }
    table.write(text);
    if !options.per_worker {
        return;
    }
    let mut table = Table::new(&[&["worker", ">pid"], &split[..]].concat());
    for counted in summary.processes.iter().take(options.top) {
        let Some(process) = recording.processes.get(counted.process.0 as usize) else { continue };
        let cells = [code(&process.title, NAME, true), process.pid.to_string()];
        table.row(cells.into_iter().chain(split_cells(summary, &counted.time, counted.samples)));
    }
    text.push('\n');
    table.write(text);
    if summary.processes.len() > options.top {
        let _ = writeln!(text, "\n{} more workers.", count((summary.processes.len() - options.top) as u64));
    }
}

fn functions(
    text: &mut String,
    recording: &Recording,
    summary: &Summary,
    options: &Options,
    shares: &OwnShares,
) {
    let busy = summary.time.busy_ns();
    if busy == 0 {
        return;
    }
    let _ = writeln!(
        text,
        "\n## Functions by their own time (100 % = {} busy, over all workers)\n",
        duration(busy)
    );
    let mut table = Table::new(&[">own", ">on CPU", ">with callees", "function", "where"]);
    for (function, own) in summary.functions.iter().zip(&shares.functions) {
        table.row([
            percent(*own),
            percent(tenths(function.own_on_cpu_ns, busy).min(*own)),
            // Rounding must not make a part larger than the whole.
            percent(tenths(function.total_ns, busy).max(*own)),
            function_name(recording, function),
            function_place(recording, function),
        ]);
    }
    let mut remainder = |tenths: u64, name: &str| {
        if tenths > 0 {
            table.row([percent(tenths), String::new(), String::new(), name.into(), String::new()]);
        }
    };
    remainder(shares.engine, "engine: start-up, compilation and shutdown of requests");
    remainder(shares.frameless, "code without a frame");
    remainder(shares.rest, "all other functions");
    table.write(text);

    // What is outermost is in (nearly) every sample and says nothing. Products of times may not fit into 64 bits.
    let callers: Vec<&Function> = summary
        .by_total()
        .into_iter()
        .filter(|function| {
            let [own, total, busy] = [function.own_ns, function.total_ns, busy].map(u128::from);
            total > own * 2 && total * 100 < busy * 98
        })
        .take(options.top.min(MAX_MINOR))
        .collect();
    if !callers.is_empty() {
        let _ = writeln!(text, "\n## Functions by time with callees (recursion counts once)\n");
        let mut table = Table::new(&[">with callees", ">own", "function", "where"]);
        for function in callers {
            table.row([
                share(function.total_ns, busy),
                share(function.own_ns, busy),
                function_name(recording, function),
                function_place(recording, function),
            ]);
        }
        table.write(text);
    }
}

fn waits(text: &mut String, recording: &Recording, summary: &Summary, options: &Options) {
    let waits = &summary.waits;
    if waits.count == 0 {
        return;
    }
    let idle = if waits.idle_count == 0 { "" } else { " but those of idle workers" };
    let _ = writeln!(
        text,
        "\n## What threads waited for (100 % = {} waiting, all waits counted{idle})\n",
        duration(waits.total_ns)
    );
    let mut table = Table::new(&[">share", "for", ">waits", ">mean", "most in", "where"]);
    for of in waits.reasons.iter().take(options.top.min(MAX_MINOR)) {
        let function = of.most_in.map(|frame| Function::of(&recording.interner.frame_at(frame)));
        table.row([
            share(of.total_ns, waits.total_ns),
            in_words(of.reason).into(),
            count(of.count),
            duration(of.total_ns / of.count.max(1)),
            function.map_or_else(String::new, |function| function_name(recording, &function)),
            function.map_or_else(String::new, |function| function_place(recording, &function)),
        ]);
    }
    table.write(text);
}

fn lines(text: &mut String, recording: &Recording, summary: &Summary, options: &Options) {
    if summary.lines.is_empty() {
        return;
    }
    let busy = summary.time.busy_ns();
    let _ = writeln!(text, "\n## Hottest lines (own time, of the same 100 %)\n");
    let mut table = Table::new(&[">own", "line", "function"]);
    for line in summary.lines.iter().take(options.top.min(MAX_MINOR)) {
        let frame = recording.interner.frame_at(line.frame);
        let place = place(recording.interner.text(frame.file), frame.line, PLACE, true);
        let name = code(recording.interner.text(frame.name), NAME, true);
        table.row([share(line.own_ns, busy), place, name]);
    }
    table.write(text);
}

fn stacks(text: &mut String, recording: &Recording, summary: &Summary, options: &Options) {
    if summary.stacks.is_empty() {
        return;
    }
    let busy = summary.time.busy_ns();
    let _ = writeln!(text, "\n## Hottest stacks (innermost first)\n");
    for hot in summary.stacks.iter().take(options.top.min(3)) {
        let mut frames = recording.interner.frames_of(hot.stack);
        let shown: Vec<String> = frames
            .by_ref()
            .take(STACK_FRAMES)
            .map(|id| {
                let frame = recording.interner.frame_at(id);
                let name = recording.interner.text(frame.name);
                let line = if frame.line > 0 { format!(":{}", frame.line) } else { String::new() };
                code(&format!("{name}{line}"), NAME, false)
            })
            .collect();
        let rest = if frames.next().is_some() { " ← …" } else { "" };
        let kernel = in_kernel(recording, summary, hot, busy);
        let _ = writeln!(text, "- {} {}{rest}{kernel}", share(hot.ns, busy), shown.join(" ← "));
    }
}

/// How much of a stack's time was in the kernel, and for what most of that: names there say little to most readers, so that two
/// must do, what was asked for and where it spent the most time.
fn in_kernel(recording: &Recording, summary: &Summary, hot: &HotStack, busy: u64) -> String {
    let interner = &recording.interner;
    let times = summary.kernel.of_stack(hot.stack);
    let mut asked: Vec<(StringId, u64, &KernelTime)> = Vec::new();
    for time in times {
        let Some(name) = time.asked_for(interner).map(|frame| frame.name) else { continue };
        match asked.iter_mut().find(|(known, ..)| *known == name) {
            Some((_, ns, _)) => *ns = ns.saturating_add(time.ns),
            // The one with the most time comes first.
            None => asked.push((name, time.ns, time)),
        }
    }
    // The first decides among equals.
    let Some((name, _, time)) = asked.into_iter().rev().max_by_key(|(_, ns, _)| *ns) else {
        return String::new();
    };
    let ns = times.iter().fold(0_u64, |sum, time| sum.saturating_add(time.ns));
    let name_of = |name: StringId| code(interner.text(name), NAME, false);
    let innermost = time.frames(interner).next().map(|frame| frame.name).filter(|inner| *inner != name);
    let most = innermost.map(|inner| format!(" ({})", name_of(inner))).unwrap_or_default();
    format!("; {} in the kernel, mostly {}{most}", share(ns, busy), name_of(name))
}

fn requests(text: &mut String, recording: &Recording, summary: &Summary, options: &Options) {
    let requests = &summary.requests;
    if requests.count == 0 {
        return;
    }
    let _ = writeln!(
        text,
        "\n## Requests ({} seen; 100 % = {} busy of the workers that serve them)\n",
        count(requests.count),
        duration(requests.serving_ns)
    );
    let mut table = Table::new(&[">share", ">number", ">mean", ">p50", ">p95", ">memory", "request"]);
    let shown = options.top.min(MAX_MINOR);
    for route in requests.routes.iter().take(shown) {
        let [method, uri] = [route.method, route.uri].map(|id| recording.interner.text(id));
        let memory = if route.peak_memory_bytes == 0 { "?".into() } else { bytes(route.peak_memory_bytes) };
        let seen = |ns| if route.whole == 0 { "?".into() } else { duration(ns) };
        table.row([
            share(route.busy_ns, requests.serving_ns),
            count(route.count),
            seen(route.mean_ns),
            seen(route.p50_ns),
            seen(route.p95_ns),
            memory,
            match format!("{method} {uri}").trim() {
                "" => "[unnamed]".into(),
                text => code(text, NAME, true),
            },
        ]);
    }
    table.write(text);
    let more = match requests.routes.len().saturating_sub(shown) {
        0 => String::new(),
        more => format!("{} more routes. ", count(more as u64)),
    };
    let cut: u64 = requests.routes.iter().map(|route| route.count - route.whole).sum();
    let cut = match cut {
        0 => String::new(),
        cut => format!(" {} seen only in part, at the begin or the end, have no duration.", count(cut)),
    };
    let _ = writeln!(
        text,
        "\n{more}Durations are as seen by samples, good to ±{}; shorter requests may not have been seen at all.{cut}",
        duration(summary.interval_ns)
    );
}

fn quality(text: &mut String, recording: &Recording, summary: &Summary, options: &Options) {
    let quality = &summary.quality;
    let totals = &quality.totals;
    let _ = writeln!(text, "\n## How good this is\n");
    let cost = cost(totals.own_cpu_ns, totals.duration_ns);
    // The kernel's clocks are its own.
    if totals.ticks_planned == 0 {
        let _ = writeln!(text, "- Recording cost {cost} of one core.");
    } else {
        let _ = writeln!(
            text,
            "- {} of {} ticks taken, {} missed ({}); recording cost {cost} of one core.",
            count(totals.ticks_taken),
            count(totals.ticks_planned),
            count(quality.missed_ticks),
            share(quality.missed_ticks, totals.ticks_planned),
        );
    }
    let kept = quality.samples.saturating_add(quality.waits);
    let tried = kept.saturating_add(totals.torn).saturating_add(totals.failed);
    let what = if quality.waits == 0 { "Samples" } else { "Samples and waits" };
    let _ = writeln!(
        text,
        "- {what}: {} read twice, {} torn and dropped, {} failed ({} lost); stacks cut at their outer end: {}.",
        count(totals.repaired),
        count(totals.torn),
        count(totals.failed),
        share(totals.torn.saturating_add(totals.failed), tried),
        count(quality.truncated),
    );
    if totals.filtered > 0 {
        let _ = writeln!(text, "- Looks at threads that the mode leaves out: {}.", count(totals.filtered));
    }
    let blind: Vec<String> = recording.info.cannot_see.iter().take(4).map(|what| sentence(what)).collect();
    let sees =
        if blind.is_empty() { String::new() } else { format!("; it cannot see: {}", blind.join("; ")) };
    let _ = writeln!(text, "- Sampler {}{sees}.", code(&recording.info.sampler, NAME, false));
    for note in options.notes.iter().take(3) {
        let _ = writeln!(text, "- Note: {}.", sentence(note));
    }
}

/// A sentence, without the full stop. It comes from us as a rule, but may come from a file that somebody else made.
pub(crate) fn sentence(text: &str) -> String {
    let text = clean(text.trim_end_matches('.'));
    let mut safe = String::new();
    for character in shorten(&text, 200).chars() {
        // Emphasis does no harm; HTML, links and pictures may.
        if matches!(character, '<' | '[' | '\\') {
            safe.push('\\');
        }
        safe.push(character);
    }
    safe
}

/// CPU time as a share of one core. This may exceed a core, so it is not one of the shares that stop at 100 %.
fn cost(own_cpu_ns: u64, wall_ns: u64) -> String {
    if wall_ns == 0 {
        return "an unknown share".into();
    }
    format!("{:.2} %", own_cpu_ns as f64 / wall_ns as f64 * 100.0)
}

fn function_name(recording: &Recording, function: &Function) -> String {
    code(recording.interner.text(function.name), NAME, true)
}

fn function_place(recording: &Recording, function: &Function) -> String {
    match (function.kind, recording.interner.text(function.file)) {
        (FrameKind::PhpInternal, "") => "PHP itself".into(),
        (_, "") => String::new(),
        (_, file) => place(file, function.first_line, PLACE, true),
    }
}
