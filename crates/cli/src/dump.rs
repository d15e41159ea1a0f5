//! `slip dump`: one stack of everything, now.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use slip_model::{FrameId, FrameKind, Interner, Mode, Process, RequestId, Sample, StackId, State};
use slip_record::{OutsideOptions, OutsideSampler, Sampler, Sink, TargetIssue, TargetSet, TaskChoice};
use slip_report::{bytes, clean, clean_json};

use crate::args::DumpOptions;
use crate::failure::{self, Failure, of_issue};
use crate::record::{ENDING_SIGNALS, cannot_listen, listen, target_of};

/// Looks again, so often at most, while a thread's stack moves: here each thread is to be shown, none is counted.
pub(crate) const MAX_LOOKS: u32 = 50;

/// Prints the stacks.
#[allow(clippy::print_stderr, reason = "what is said to the user besides data")]
pub(crate) fn run(options: &DumpOptions) -> Result<(), Failure> {
    let (target, _) = target_of(&options.target, None)?;
    let mut targets = TargetSet::find(target)?;
    let mut sink = Sink::new();
    let mut sampler = OutsideSampler::new(OutsideOptions {
        mode: Mode::Wall,
        keep_query: options.keep_query,
        pause: options.pause,
        tasks: options.tasks.then_some(TaskChoice::All),
        ..OutsideOptions::default()
    });
    let mut issues: Vec<(u32, TargetIssue)> = Vec::new();
    for pid in targets.refresh().started {
        if let Err(issue) = sampler.add(pid, 0, &mut sink) {
            // A worker of a pool may end at any moment; nobody asked for it by its number.
            let has_ended = options.target.fpm.is_some() && issue == TargetIssue::NotFound;
            if targets.is_explicit(pid) && !has_ended {
                return Err(of_issue(pid, &issue));
            }
            issues.push((pid, issue));
        }
    }
    if sampler.is_empty() {
        return Err(issues.first().map_or_else(
            || Failure::new(failure::NO_TARGET, "the target has ended"),
            |(pid, issue)| of_issue(*pid, issue),
        ));
    }
    // A signal must not end us while a target stands still for us; afterwards it may.
    let (stop, taken) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    if options.pause {
        listen(&stop)?;
        for signal in ENDING_SIGNALS {
            signal_hook::flag::register_conditional_default(signal, taken.clone()).map_err(cannot_listen)?;
        }
    }
    if options.tasks {
        let result = crate::tasks::dump(&mut sampler, &mut sink, &stop, (options.json, options.pause));
        taken.store(true, Ordering::Relaxed);
        sampler.finish(0, &mut sink);
        result?;
        warn_of(&issues);
        return Ok(());
    }
    let samples = take(&mut sampler, &mut sink, &stop);
    taken.store(true, Ordering::Relaxed);
    if stop.load(Ordering::Relaxed) {
        return Err(Failure::silent(failure::INTERRUPTED));
    }
    sampler.finish(0, &mut sink);
    let threads = sink.threads().len();
    let text = if options.json { json(&mut sink, &samples) } else { plain(&mut sink, &samples) };
    crate::print(text.as_bytes())?;
    if samples.is_empty() {
        return Err(failure::no_stack("no stack could be read", options.pause));
    }
    if samples.len() < threads {
        let remedy = if options.pause { "" } else { "; if they are too fast, `--pause` stops them" };
        eprintln!("warning: {} of {threads} threads could not be read{remedy}", threads - samples.len());
    }
    Ok(())
}

/// Says whose tasks are not shown, though they may have some.
#[allow(clippy::print_stderr, reason = "what is said to the user besides data")]
fn warn_of(issues: &[(u32, TargetIssue)]) {
    let missed =
        |issue: &TargetIssue| matches!(issue, TargetIssue::Denied { .. } | TargetIssue::Unsupported { .. });
    for (pid, issue) in issues.iter().filter(|(_, issue)| missed(issue)) {
        eprintln!("warning: {}", of_issue(*pid, issue).words().0);
    }
}

/// One sample of each thread: the first that is not torn.
fn take(sampler: &mut OutsideSampler, sink: &mut Sink, stop: &AtomicBool) -> Vec<Sample> {
    let mut samples: Vec<Sample> = Vec::new();
    for _ in 0..MAX_LOOKS {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let before = sink.samples().len();
        sampler.sample(0, sink);
        for sample in sink.samples().iter().skip(before) {
            if !samples.iter().any(|known| known.thread == sample.thread) {
                samples.push(sample);
            }
        }
        if samples.len() >= sink.threads().len() && !sink.threads().is_empty() {
            break;
        }
    }
    samples.sort_by_key(|sample| sample.thread);
    samples
}

fn plain(sink: &mut Sink, samples: &[Sample]) -> String {
    let requests = sink.take_batch().requests;
    let interner = &sink.interner;
    let mut text = String::new();
    for process in sink.processes() {
        text += &head(process);
        for sample in samples {
            let thread = sink.threads()[sample.thread.0 as usize];
            if thread.process != process.id {
                continue;
            }
            let interpreter = match thread.interpreter {
                0 => String::new(),
                number => format!(", interpreter {number}"),
            };
            text += &format!(
                "  thread {} \"{}\"{interpreter}: {}\n",
                thread.tid,
                clean(interner.text(thread.name)),
                state_words(sample.state).join(", ")
            );
            if let Some(request) = request_of(&requests, sample.request) {
                let [method, uri, script] =
                    [request.method, request.uri, request.script].map(|id| clean(interner.text(id)));
                // PHP's command line has neither a method nor a URI.
                let what = if uri.is_empty() { String::new() } else { format!("{method} {uri} ") };
                let memory = bytes(request.peak_memory_bytes);
                text += &format!("    {what}({script}, {memory} in use)\n");
            }
            for frame in frames(interner, sample.stack) {
                text += &format!("    {}\n", frame.text());
            }
            if sample.state.has(State::TRUNCATED) {
                text += "    [truncated]\n";
            }
        }
    }
    text
}

fn json(sink: &mut Sink, samples: &[Sample]) -> String {
    let requests = sink.take_batch().requests;
    let interner = &sink.interner;
    let processes: Vec<serde_json::Value> = sink
        .processes()
        .iter()
        .map(|process| {
            let threads: Vec<serde_json::Value> = samples
                .iter()
                .filter_map(|sample| {
                    let thread = sink.threads()[sample.thread.0 as usize];
                    if thread.process != process.id {
                        return None;
                    }
                    let frames: Vec<serde_json::Value> =
                        frames(interner, sample.stack).map(|frame| frame.json()).collect();
                    let request = request_of(&requests, sample.request).map(|request| {
                        serde_json::json!({
                            "method": interner.text(request.method), "uri": interner.text(request.uri),
                            "script": interner.text(request.script),
                            "started_unix_ns": request.started_unix_ns,
                            "memory_bytes": request.peak_memory_bytes,
                        })
                    });
                    Some(serde_json::json!({
                        "tid": thread.tid, "name": interner.text(thread.name),
                        "interpreter": thread.interpreter,
                        "state": state_words(sample.state),
                        "truncated": sample.state.has(State::TRUNCATED),
                        "request": request,
                        "frames": frames,
                    }))
                })
                .collect();
            serde_json::json!({
                "pid": process.pid, "ns_pid": process.ns_pid, "title": process.title,
                "language": process.language, "version": process.version, "threads": threads,
            })
        })
        .collect();
    let document = serde_json::json!({ "schema": "slip.dump/1", "processes": processes });
    let mut text = clean_json(&serde_json::to_string_pretty(&document).unwrap_or_default()).into_owned();
    text.push('\n');
    text
}

/// The first line of a process.
pub(crate) fn head(process: &Process) -> String {
    let container = if process.ns_pid == process.pid {
        String::new()
    } else {
        format!(", {} in its container", process.ns_pid)
    };
    format!(
        "process {}{container}: {} ({} {})\n",
        process.pid,
        clean(&process.title),
        language(process.language),
        clean(&process.version)
    )
}

pub(crate) struct ShownFrame<'a> {
    pub(crate) name: &'a str,
    pub(crate) file: &'a str,
    pub(crate) line: u32,
    pub(crate) first_line: u32,
    pub(crate) kind: FrameKind,
}

impl ShownFrame<'_> {
    /// `name (file:line)`
    pub(crate) fn text(&self) -> String {
        let (name, file) = (clean(self.name), clean(self.file));
        match (self.kind, self.line) {
            (FrameKind::PhpInternal | FrameKind::Marker, _) => name.into_owned(),
            (_, 0) => format!("{name} ({file})"),
            (_, line) => format!("{name} ({file}:{line})"),
        }
    }

    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::json!({
            "name": self.name, "file": self.file, "line": self.line,
            "first_line": self.first_line, "kind": self.kind,
        })
    }
}

fn frames(interner: &Interner, stack: StackId) -> impl Iterator<Item = ShownFrame<'_>> {
    shown(interner, interner.frames_of(stack))
}

/// What is to be said of these frames.
pub(crate) fn shown<'a>(
    interner: &'a Interner,
    frames: impl Iterator<Item = FrameId>,
) -> impl Iterator<Item = ShownFrame<'a>> {
    frames.map(|id| {
        let frame = interner.frame_at(id);
        ShownFrame {
            name: interner.text(frame.name),
            file: interner.text(frame.file),
            line: frame.line,
            first_line: frame.first_line,
            kind: frame.kind,
        }
    })
}

fn request_of(requests: &[slip_model::Request], id: RequestId) -> Option<&slip_model::Request> {
    requests.iter().find(|request| id.0 != 0 && request.id == id)
}

fn language(language: slip_model::Language) -> &'static str {
    match language {
        slip_model::Language::Python => "CPython",
        slip_model::Language::Php => "PHP",
        slip_model::Language::Native => "native",
    }
}

fn state_words(state: State) -> Vec<&'static str> {
    let mut words = Vec::new();
    if state.has(State::IDLE) {
        words.push("idle");
    } else if state.has(State::CPU_UNKNOWN) {
        words.push("unknown");
    } else if state.has(State::ON_CPU) {
        words.push("running");
    } else {
        words.push("waiting");
    }
    if state.has(State::ENGINE) {
        words.push("engine");
    }
    if state.has(State::HAS_GIL) {
        words.push("gil");
    }
    words
}
