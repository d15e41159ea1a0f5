//! The first sentence: the one thing to do about it.

use std::collections::HashMap;

use slip_model::{FrameId, FrameKind, Language, Mode, Recording, StringId, WaitReason};

use super::{NAME, OwnShares, PLACE};
use crate::piece::in_words;
use crate::summary::{Function, Summary};
use crate::text::{code, count, duration, percent, place, share};

/// Share of idle time, in percent, from which workers are not what limits a service.
const MOSTLY_IDLE_PERCENT: u128 = 90;

/// Share of busy time, in percent, from which one cause is worth a headline.
const NOTABLE_PERCENT: u128 = 8;

/// Whether there is a budget of a whole run, which needs no interpreter.
fn has_run(recording: &Recording) -> bool {
    recording.budget.iter().flat_map(|budget| &budget.workers).any(|worker| worker.is_run)
}

/// One sentence.
pub(super) fn headline(recording: &Recording, summary: &Summary, shares: &OwnShares) -> String {
    let time = &summary.time;
    let (total, busy) = (time.total_ns(), time.busy_ns());
    let wall = duration(summary.wall_ns);
    if total == 0 {
        if summary.quality.totals.filtered > 0 {
            return all_left_out(recording, summary);
        }
        if summary.quality.totals.samples == 0 && has_run(recording) {
            return format!("Stacks of this program are not read; what it did in these {wall} is below.");
        }
        if recording.info.mode == Mode::Offcpu {
            return format!("No thread was seen to wait in the {wall} that were watched.");
        }
        return format!(
            "Nothing was sampled in the {wall} that were watched: the target ran no code, or could not be read."
        );
    }
    if busy == 0 {
        let workers: u64 = summary.groups.iter().map(|group| group.workers).sum();
        let (all, were) = if workers == 1 { ("The worker", "was") } else { ("All workers", "were") };
        return format!("{all} {were} idle for the whole {wall}: record again while there are requests.");
    }
    let spare = if reaches(time.idle_ns, MOSTLY_IDLE_PERCENT, total) {
        format!(
            "The workers were idle {} of the time, so adding more gains nothing; of the rest, ",
            share(time.idle_ns, total)
        )
    } else {
        String::new()
    };
    let Some(top) = summary.functions.first().filter(|function| function.own_ns > 0) else {
        let what = if time.engine_ns > 0 {
            engine(shares)
        } else {
            let what = if summary.quality.samples > 0 { "sample" } else { "wait" };
            format!("no {what} has a function that can be named.")
        };
        return capital(spare + &what);
    };
    if time.engine_ns >= top.own_ns && reaches(time.engine_ns, NOTABLE_PERCENT, busy) {
        return capital(spare + &engine(shares));
    }
    if !reaches(top.own_ns, NOTABLE_PERCENT, busy) {
        return capital(spare + &spread(recording, summary, top));
    }
    let name = code(recording.interner.text(top.name), NAME, false);
    let place = at(recording, top.file, top.first_line);
    let own = shares.functions.first().map_or_else(|| share(top.own_ns, busy), |own| percent(*own));
    let from = caller(recording, summary, top);
    let is_unknown = reaches(time.unknown_ns, 50, busy);
    let main = main_wait(recording, summary, top);
    capital(if let Some((WaitReason::Cpu, ns)) = main {
        format!(
            "{spare}{name}{place} was ready to run for {} of busy time while others had the CPU: more CPUs or fewer \
             workers make it faster.",
            share(ns, busy)
        )
    } else if reaches(top.own_on_cpu_ns, 50, top.own_ns) || is_unknown {
        let cpu = if is_unknown { "" } else { ", computing" };
        if top.kind == FrameKind::PhpInternal && !from.is_empty() {
            format!("{spare}{name} took {own} of busy time itself{cpu}: call it less often{from}.")
        } else if top.kind == FrameKind::Marker {
            // It is nowhere in the program, as `<GC>` is.
            format!("{spare}{name} took {own} of busy time itself{cpu}{from}.")
        } else {
            format!("{spare}{name}{place} took {own} of busy time itself{cpu}: start there.")
        }
    } else if top.kind == FrameKind::Python {
        spare + &python_waits(recording, summary, top)
    } else if let Some((reason, ns)) = main {
        let (waited, look) = (in_words(reason), what_to_look_at(reason));
        format!(
            "{spare}{name}{place} waited for {waited} for {} of busy time: {look}{from}.",
            share(ns, busy)
        )
    } else {
        format!("{spare}{name}{place} waited for {own} of busy time: look at what it waits for{from}.")
    })
}

/// Whether `part` is at least so many percent of `whole`. Products of times may not fit into 64 bits.
fn reaches(part: u64, percent: u128, whole: u64) -> bool {
    u128::from(part) * 100 >= u128::from(whole) * percent
}

/// The reason that a function waited for in at least half of its own time, and how long, if one that has a name is known.
fn main_wait(recording: &Recording, summary: &Summary, function: &Function) -> Option<(WaitReason, u64)> {
    let interner = &recording.interner;
    let identity = |function: &Function| (function.kind, function.name, function.file, function.first_line);
    let mut by_reason = [0_u64; WaitReason::ALL.len()];
    for waits in &summary.waits.stacks {
        let leaf = interner.frames_of(waits.stack).next().map(|id| Function::of(&interner.frame_at(id)));
        if leaf.is_some_and(|leaf| identity(&leaf) == identity(function)) {
            let ns = &mut by_reason[waits.reason as usize];
            *ns = ns.saturating_add(waits.total_ns);
        }
    }
    let most = WaitReason::ALL.into_iter().zip(by_reason).max_by_key(|(_, ns)| *ns)?;
    Some(most)
        .filter(|(reason, ns)| *reason != WaitReason::Other && *ns > 0 && reaches(*ns, 50, function.own_ns))
}

fn what_to_look_at(reason: WaitReason) -> &'static str {
    match reason {
        WaitReason::Socket => "look at what answers there",
        WaitReason::Pipe => "look at who is at its other end",
        WaitReason::File => "look at what it reads and writes",
        WaitReason::Lock => "look at who holds it",
        WaitReason::Sleep => "look at whether it has to",
        WaitReason::PageFault => "look at whether memory is short",
        WaitReason::Child => "look at what the child does",
        WaitReason::Stopped => "look at who sends it SIGSTOP or traces it",
        WaitReason::Poll | WaitReason::Cpu | WaitReason::Other => "look at what it waits for",
    }
}

/// For when there were threads to look at, but none at a moment that counts.
fn all_left_out(recording: &Recording, summary: &Summary) -> String {
    let looks =
        format!("{} looks of the {}", count(summary.quality.totals.filtered), duration(summary.wall_ns));
    let is_php = |process: &slip_model::Process| process.language == Language::Php;
    match recording.info.mode {
        Mode::Gil if recording.processes.iter().all(is_php) => {
            "PHP has no global interpreter lock: record in another mode.".into()
        }
        Mode::Gil => format!(
            "No thread held the global interpreter lock in any of {looks} watched: all waited, or ran without it."
        ),
        Mode::Offcpu => format!("No thread waited in any of {looks} watched: all were on a CPU."),
        Mode::Exception => {
            format!("No thread raised or handled an exception in any of {looks} watched.")
        }
        // All moments count, but perhaps only of tasks that run.
        Mode::Wall | Mode::Alloc => {
            format!("Nothing of what was asked for was there in any of {looks} watched.")
        }
        Mode::Cpu => {
            format!(
                "No thread was on a CPU in any of {looks} watched: the CPU is not what limits this target."
            )
        }
    }
}

/// For when threads of Python mostly wait. What they wait for may be work, which is no reason to do anything: what uses
/// the CPU comes first.
fn python_waits(recording: &Recording, summary: &Summary, waiting: &Function) -> String {
    let time = &summary.time;
    let named = |function: &Function| code(recording.interner.text(function.name), NAME, false);
    let mostly = match main_wait(recording, summary, waiting) {
        Some((reason, _)) => format!("{}, for {}", named(waiting), in_words(reason)),
        None => named(waiting),
    };
    // Without samples nothing is known of what runs.
    let busiest = summary.functions.iter().rev().max_by_key(|function| function.own_on_cpu_ns);
    let busiest = busiest.filter(|_| summary.quality.samples > 0);
    match busiest.filter(|function| function.own_on_cpu_ns > 0) {
        Some(busiest) => format!(
            "{}{} took the most CPU time, {} of all{}; threads waited for {} of the time, mostly in {}, and waiting \
             for work counts as waiting.",
            named(busiest),
            at(recording, busiest.file, busiest.first_line),
            share(busiest.own_on_cpu_ns, time.on_cpu_ns),
            match busiest.kind {
                // It is nowhere in the program: `<GC>`.
                FrameKind::Marker => caller(recording, summary, busiest),
                _ => ": start there".to_owned(),
            },
            share(time.waiting_ns, time.total_ns()),
            mostly,
        ),
        None if summary.quality.samples == 0 => {
            format!("threads waited mostly in {mostly}, and waiting for work counts as waiting.")
        }
        None => format!(
            "no thread was seen on a CPU, all waited, mostly in {}: waiting for work counts as waiting, so record \
             again while there is work.",
            mostly
        ),
    }
}

/// `, mostly called from ...`; empty if no caller stands out.
fn caller(recording: &Recording, summary: &Summary, callee: &Function) -> String {
    let interner = &recording.interner;
    let mut callers: HashMap<FrameId, u64> = HashMap::new();
    for hot in &summary.stacks {
        let mut frames = interner.frames_of(hot.stack);
        let Some(leaf) = frames.next().map(|id| interner.frame_at(id)) else { continue };
        let is_callee =
            (leaf.name, leaf.file, leaf.first_line) == (callee.name, callee.file, callee.first_line);
        if is_callee && let Some(caller) = frames.next() {
            let ns: &mut u64 = callers.entry(caller).or_default();
            *ns = ns.saturating_add(hot.ns);
        }
    }
    // The smaller number decides among equals, so that the order of the map does not.
    let most = callers.into_iter().max_by_key(|(frame, ns)| (*ns, std::cmp::Reverse(*frame)));
    let Some((frame, _)) = most.filter(|(_, ns)| *ns > callee.own_ns / 2) else { return String::new() };
    let frame = interner.frame_at(frame);
    let name = code(interner.text(frame.name), NAME, false);
    format!(", mostly called from {name}{}", at(recording, frame.file, frame.line))
}

fn engine(shares: &OwnShares) -> String {
    format!(
        "{} of busy time went to starting, compiling and shutting down requests, more than to any function: check \
         that the opcode cache is on and large enough.",
        percent(shares.engine)
    )
}

/// For when no function stands out by its own time.
fn spread(recording: &Recording, summary: &Summary, top: &Function) -> String {
    let busy = summary.time.busy_ns();
    let named = |function: &Function| {
        let name = code(recording.interner.text(function.name), NAME, false);
        format!("{name}{}", at(recording, function.file, function.first_line))
    };
    let own = format!("no function takes more than {} of busy time itself", share(top.own_ns, busy));
    // Outermost functions are in every sample.
    let by_total = summary.by_total();
    match by_total
        .iter()
        .find(|function| !reaches(function.total_ns, 90, busy) && function.total_ns > top.own_ns)
    {
        Some(most) => {
            format!(
                "{own}; {} takes {} with what it calls: look there first.",
                named(most),
                share(most.total_ns, busy)
            )
        }
        None => format!("{own}; the first is {}.", named(top)),
    }
}

/// ` (file:line)`, as far as it is known.
fn at(recording: &Recording, file: StringId, line: u32) -> String {
    match recording.interner.text(file) {
        "" => String::new(),
        file => format!(" ({})", place(file, line, PLACE, false)),
    }
}

/// A sentence begins with a capital letter, unless it begins with a name.
fn capital(sentence: String) -> String {
    let mut characters = sentence.chars();
    match characters.next() {
        Some(first) => first.to_uppercase().chain(characters).collect(),
        None => sentence,
    }
}
