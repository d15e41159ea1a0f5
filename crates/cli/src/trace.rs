//! `slip trace`.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use slip_doctor::call_part_name;
use slip_model::{Budget, CallPart, CpuTaker, Endpoint, Interner};
use slip_record::{
    Ending, KernelSampler, Launched, NoStack, ProbeError, RunStart, Rung, Sampler as _, Session,
    SessionError, SessionOptions, TRACE_CANNOT_SEE, TargetIssue, TargetSet, TracedCall, unix_ns,
};
use slip_report::{clean, clean_json, duration, utc};

use crate::args::{TraceFormatName, TraceOptions};
use crate::dump::shown;
use crate::failure::{self, Failure};
use crate::record::{listen, start_watched, target_of, warn_of};

/// Most parts of a call that a line of text names.
const SHOWN_PARTS: usize = 3;

/// What is fetched late is looked at so often; the kernel wakes us for what is new.
const INTERVAL_NS: u64 = 10_000_000;

/// Prints calls as they come, and counts them.
#[derive(Debug, Default)]
struct Printer {
    format: TraceFormatName,
    /// Most frames of a stack.
    frames: usize,
    /// Part of the address, or the protocol, of servers that are shown.
    endpoint: Option<String>,
    slower_than_ns: u64,
    started_unix_ns: u64,
    /// Slow calls and the longest one, by server.
    slow: BTreeMap<Endpoint, (u64, u64)>,
    without_stack: u64,
}

impl Printer {
    fn shows(&self, endpoint: &Endpoint) -> bool {
        self.endpoint
            .as_ref()
            .is_none_or(|asked| endpoint.address.contains(asked) || endpoint.protocol == *asked)
    }

    /// Counts a call and says what is to be printed of it; `None` if it is not to be shown.
    fn call(&mut self, call: &TracedCall, interner: &Interner) -> Option<String> {
        if !self.shows(&call.endpoint) {
            return None;
        }
        let (count, longest_ns) = self.slow.entry(call.endpoint.clone()).or_default();
        *count += 1;
        *longest_ns = call.total_ns().max(*longest_ns);
        self.without_stack += u64::from(call.stack.is_err());
        Some(match self.format {
            TraceFormatName::Text => self.call_text(call, interner),
            TraceFormatName::Json => line_of(&self.call_json(call, interner)),
        })
    }

    fn call_text(&self, call: &TracedCall, interner: &Interner) -> String {
        let time_ns = self.started_unix_ns.saturating_add(call.end_ns);
        let [_, _, _, hour, minute, second] = utc(time_ns);
        let thread = if call.pid == call.tid { String::new() } else { format!("/{}", call.tid) };
        let command = if call.command.is_empty() { "?" } else { &call.command };
        let parts: Vec<String> = call
            .longest_parts()
            .into_iter()
            .take(SHOWN_PARTS)
            .map(|(part, ns)| {
                let taker = call.taker.as_ref().filter(|_| part == CallPart::Running).map(taken);
                format!("{} {}{}", call_part_name(part), duration(ns), taker.unwrap_or_default())
            })
            .collect();
        let mut text = format!(
            "{hour:02}:{minute:02}:{second:02}.{:03}  {}{thread}  {}  {}  {}  {}\n",
            time_ns / 1_000_000 % 1_000,
            call.pid,
            server(&call.endpoint),
            clean(command),
            duration(call.total_ns()),
            parts.join(", "),
        );
        match call.stack {
            Ok(stack) => {
                let frames: Vec<_> = shown(interner, interner.frames_of(stack)).collect();
                for frame in frames.iter().take(self.frames) {
                    let _ = writeln!(text, "    {}", frame.text());
                }
                if frames.len() > self.frames {
                    let _ = writeln!(text, "    ... {} more", frames.len() - self.frames);
                }
            }
            Err(reason) => {
                let _ = writeln!(text, "    no stack: {}", words(reason));
            }
        }
        text
    }

    fn call_json(&self, call: &TracedCall, interner: &Interner) -> Value {
        let parts: serde_json::Map<String, Value> = call
            .longest_parts()
            .into_iter()
            .filter_map(|(part, ns)| Some((serde_json::to_value(part).ok()?.as_str()?.to_owned(), ns.into())))
            .collect();
        let frames = |stack| -> Vec<Value> {
            let frames = shown(interner, interner.frames_of(stack));
            frames.take(self.frames).map(|frame| frame.json()).collect()
        };
        let known = |stack| interner.frames_of(stack).count();
        json!({
            "schema": "slip.trace/1",
            "event": "call",
            "unix_ns": self.started_unix_ns.saturating_add(call.end_ns),
            "pid": call.pid,
            "tid": call.tid,
            "address": call.endpoint.address,
            "protocol": call.endpoint.protocol,
            "command": call.command,
            "total_ns": call.total_ns(),
            "parts": parts,
            "taker": call.taker.as_ref().map(|taker| json!({ "name": taker.name, "is_worker": taker.is_worker })),
            "frames": call.stack.map(frames).unwrap_or_default(),
            "frames_left_out": call.stack.map_or(0, |stack| known(stack).saturating_sub(self.frames)),
            "no_stack": call.stack.err().map(words),
        })
    }

    /// What there is to say at the end.
    fn summary(&self, budget: &Budget, duration_ns: u64) -> String {
        let mut servers: BTreeMap<&Endpoint, u64> = self.slow.keys().map(|endpoint| (endpoint, 0)).collect();
        for calls in &budget.calls {
            let endpoint = budget.endpoints.get(calls.endpoint as usize);
            if let Some(endpoint) = endpoint.filter(|endpoint| self.shows(endpoint)) {
                *servers.entry(endpoint).or_default() += calls.calls;
            }
        }
        let (calls, slow): (u64, u64) =
            (servers.values().sum(), self.slow.values().map(|(count, _)| count).sum());
        let of = |endpoint: &Endpoint| self.slow.get(endpoint).copied().unwrap_or_default();
        if self.format == TraceFormatName::Json {
            let servers: Vec<Value> = servers
                .iter()
                .map(|(endpoint, calls)| {
                    let (slow, longest_ns) = of(endpoint);
                    json!({
                        "address": endpoint.address, "protocol": endpoint.protocol, "calls": calls, "slow": slow,
                        "longest_ns": if slow > 0 { Some(longest_ns) } else { None },
                    })
                })
                .collect();
            return line_of(&json!({
                "schema": "slip.trace/1",
                "event": "summary",
                "duration_ns": duration_ns,
                "slower_than_ns": self.slower_than_ns,
                "calls": calls,
                "slow": slow,
                "without_stack": self.without_stack,
                "lost": budget.lost_requests,
                "servers": servers,
                "cannot_see": TRACE_CANNOT_SEE,
            }));
        }
        let mut text = format!(
            "\n{calls} calls in {}, {slow} of them took {} or more",
            duration(duration_ns),
            duration(self.slower_than_ns),
        );
        text += &match self.without_stack {
            0 => "\n".to_owned(),
            count => format!(", {count} of these have no stack\n"),
        };
        for (endpoint, calls) in &servers {
            let (slow, longest_ns) = of(endpoint);
            let longest =
                if slow > 0 { format!(", the longest {}", duration(longest_ns)) } else { String::new() };
            let _ = writeln!(text, "  {}: {calls} calls, {slow} slow{longest}", server(endpoint));
        }
        if budget.lost_requests > 0 {
            let _ = writeln!(
                text,
                "lost: {} events had no room; among them may be slow calls",
                budget.lost_requests
            );
        }
        text += "not seen:\n";
        for sentence in TRACE_CANNOT_SEE {
            let _ = writeln!(text, "  {sentence}");
        }
        text
    }
}

/// A server by what is spoken there and where it listens.
fn server(endpoint: &Endpoint) -> String {
    let address = if endpoint.address.is_empty() { "unknown" } else { &endpoint.address };
    let text = if endpoint.protocol.is_empty() {
        address.to_owned()
    } else {
        format!("{} {address}", endpoint.protocol)
    };
    clean(&text).into_owned()
}

/// Who had the CPU that a thread was ready for.
fn taken(taker: &CpuTaker) -> String {
    match (&*taker.name, taker.is_worker) {
        ("", _) => " (the CPU was idle)".to_owned(),
        (name, true) => format!(" ({} had the CPU, itself traced)", clean(name)),
        (name, false) => format!(" ({} had the CPU)", clean(name)),
    }
}

fn words(reason: NoStack) -> &'static str {
    match reason {
        NoStack::NoCode => "the thread runs no code of the interpreter",
        NoStack::Unknown => "no interpreter had been found in the process yet",
        NoStack::Unreadable => "it could not be read, or its functions were gone before they were named",
        NoStack::Lost => "the kernel did not tell it",
    }
}

fn line_of(value: &Value) -> String {
    format!("{}\n", clean_json(&value.to_string()))
}

/// Prints slow calls as they come.
#[allow(clippy::print_stderr, reason = "what is said to the user besides data")]
pub(crate) fn run(options: &TraceOptions) -> Result<(), Failure> {
    slip_record::use_huge_pages();
    if let Some(rung) = options.rung.filter(|rung| *rung != Rung::Tracepoints) {
        return Err(Failure::new(
            failure::USAGE,
            format!("`--rung {}` does not see single calls", rung.name()),
        )
        .hint("`slip trace` needs `--rung tracepoints`: programs in the kernel"));
    }
    let stop = Arc::new(AtomicBool::new(false));
    listen(&stop)?;
    let printer = Rc::new(RefCell::new(Printer {
        format: options.format,
        frames: options.frames,
        endpoint: options.endpoint.clone(),
        slower_than_ns: options.slower_than,
        ..Printer::default()
    }));
    // A reader that has seen enough (`| head`) ends the trace, and is not an error.
    let broken: Rc<RefCell<Option<io::Error>>> = Rc::default();
    let on_call = {
        let (printer, stop, broken) = (Rc::clone(&printer), Arc::clone(&stop), Rc::clone(&broken));
        move |call: &TracedCall, interner: &Interner| {
            let Some(text) = printer.borrow_mut().call(call, interner) else { return };
            let mut out = io::stdout().lock();
            if let Err(error) = out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
                broken.borrow_mut().get_or_insert(error);
                stop.store(true, Ordering::Relaxed);
            }
        }
    };
    let mut sampler = KernelSampler::start_trace(options.slower_than, Box::new(on_call))
        .map_err(|error| refused(&error))?;
    let session_options = SessionOptions {
        interval_ns: INTERVAL_NS,
        duration_ns: options.duration.map(|seconds| Duration::from_secs_f64(seconds).as_nanos() as u64),
        waits_for_interpreter: !options.command.is_empty(),
    };
    let mut launched = match &*options.command {
        [] => None,
        command => {
            let unless = "what it calls before its interpreter is found is not seen";
            Some(start_watched(command, &mut sampler, unless)?)
        }
    };
    for pid in &options.target.pid {
        // What serves no requests: else it would be known only of requests how long a thread is ready to run.
        let _ = sampler.may_run(*pid, RunStart::Now, "");
    }
    let (target, text) = target_of(&options.target, launched.as_ref().map(Launched::pid))?;
    let text = options.command.first().map_or(text, |program| format!("-- {program}"));
    let mut session = Session::new(session_options, TargetSet::find(target)?, &mut sampler).remembering();
    session.prepare().map_err(|error| match error {
        SessionError::Issue { pid, issue: TargetIssue::NeedsOutside { reason } } => {
            Failure::new(failure::UNSUPPORTED, format!("the kernel cannot look at process {pid}: {reason}"))
        }
        other => other.into(),
    })?;
    let slower_than = duration(options.slower_than);
    eprintln!("calls to servers that take {slower_than} or more, times in UTC: {}", clean(&text));
    printer.borrow_mut().started_unix_ns = unix_ns();
    let (ending, batch) = session.watch(&stop);
    let left_out = session.left_out();
    warn_of(&left_out);
    if let Some(error) = broken.take() {
        return if error.kind() == io::ErrorKind::BrokenPipe {
            Ok(())
        } else {
            Err(Failure::io("cannot write to standard output".to_owned(), &error))
        };
    }
    let budget = batch.budget.unwrap_or_default();
    crate::print(printer.borrow().summary(&budget, batch.totals.duration_ns).as_bytes())?;
    match ending {
        Ending::Stopped if stop.load(Ordering::Relaxed) => Err(Failure::silent(failure::INTERRUPTED)),
        Ending::TargetsGone if options.duration.is_some() && launched.is_none() => {
            let seconds = batch.totals.duration_ns as f64 / 1e9;
            Err(Failure::new(failure::NO_TARGET, format!("the target ended after {seconds:.1} s")))
        }
        _ => {
            if let Some(code) = launched.as_mut().and_then(Launched::ended).filter(|code| *code != 0) {
                eprintln!("note: the command ended with status {code}");
            }
            Ok(())
        }
    }
}

/// Why no call can be traced here.
fn refused(error: &ProbeError) -> Failure {
    let code = match error {
        ProbeError::Denied(_) => failure::PERMISSION,
        _ => failure::UNSUPPORTED,
    };
    // What the kernel's verifier says is long.
    let reason = error.to_string().lines().next().unwrap_or_default().to_owned();
    Failure::new(code, format!("single calls are seen by programs in the kernel alone: {reason}")).hint(
        "as root it may be allowed; `slip record --budget --rung proc` needs nothing of the kernel, and has no single calls",
    )
}

#[cfg(test)]
mod tests {
    use slip_model::{Frame, FrameKind, StackId};

    use super::*;

    fn printer(format: TraceFormatName) -> Printer {
        Printer { format, frames: 2, slower_than_ns: 10_000_000, ..Printer::default() }
    }

    fn redis() -> Endpoint {
        Endpoint { address: "127.0.0.1:6379".to_owned(), protocol: "redis".to_owned() }
    }

    /// A call with a stack of three functions.
    fn call(interner: &mut Interner) -> TracedCall {
        let file = interner.string("/srv/index.php");
        let frames =
            [("fgets", FrameKind::PhpInternal, 0), ("ask", FrameKind::Php, 7), ("{main}", FrameKind::Php, 9)];
        let frames = frames.map(|(name, kind, line)| {
            let name = interner.string(name);
            interner.frame(Frame { kind, name, file, first_line: 1, line })
        });
        let mut parts = [0; CallPart::ALL.len()];
        parts[CallPart::Write as usize] = 40_000;
        parts[CallPart::Work as usize] = 15_000_000;
        parts[CallPart::Running as usize] = 900_000;
        parts[CallPart::Read as usize] = 5_000;
        TracedCall {
            pid: 41,
            tid: 42,
            end_ns: 3_723_004_000_000,
            endpoint: redis(),
            command: "DEBUG".to_owned(),
            parts,
            taker: Some(CpuTaker { name: "mysqld".to_owned(), ns: 900_000, ..CpuTaker::default() }),
            stack: Ok(interner.stack(&frames)),
        }
    }

    #[test]
    fn a_call_is_a_line_and_its_stack() {
        let mut interner = Interner::new();
        let call = call(&mut interner);
        let text = printer(TraceFormatName::Text).call(&call, &interner).unwrap();
        insta::assert_snapshot!(text, @r"
        01:02:03.004  41/42  redis 127.0.0.1:6379  DEBUG  15.9 ms  server work 15.0 ms, woken 900.0 µs (mysqld had the CPU), write 40.0 µs
            fgets
            ask (/srv/index.php:7)
            ... 1 more
        ");
    }

    #[test]
    fn a_call_without_a_stack_says_why() {
        let mut interner = Interner::new();
        let call =
            TracedCall { stack: Err(NoStack::Lost), command: String::new(), tid: 41, ..call(&mut interner) };
        let mut printer = printer(TraceFormatName::Text);
        let text = printer.call(&call, &interner).unwrap();
        assert!(text.contains("  41  redis 127.0.0.1:6379  ?  15.9 ms  "), "{text}");
        assert!(text.ends_with("\n    no stack: the kernel did not tell it\n"), "{text}");
        assert_eq!(printer.without_stack, 1);
    }

    #[test]
    fn who_had_the_cpu_is_told_of_the_part_that_it_took() {
        let mut interner = Interner::new();
        let call = call(&mut interner);
        for (name, is_worker, told) in [
            ("php-fpm8.2", true, "woken 900.0 µs (php-fpm8.2 had the CPU, itself traced), write"),
            ("", false, "woken 900.0 µs (the CPU was idle), write"),
        ] {
            let taker = Some(CpuTaker {
                name: name.to_owned(),
                is_worker,
                ns: 900_000,
                preferred_ns: 0,
                lengths: slip_model::Lengths::default(),
            });
            let text = printer(TraceFormatName::Text)
                .call(&TracedCall { taker, ..call.clone() }, &interner)
                .unwrap();
            assert!(text.contains(told), "{text}");
        }
        let call = TracedCall { taker: None, ..call };
        let text = printer(TraceFormatName::Text).call(&call, &interner).unwrap();
        assert!(text.contains("woken 900.0 µs, write"), "{text}");
        let text = printer(TraceFormatName::Json).call(&call, &interner).unwrap();
        assert_eq!(serde_json::from_str::<Value>(&text).unwrap()["taker"], Value::Null);
    }

    #[test]
    fn json_is_one_object_a_line() {
        let mut interner = Interner::new();
        let call = call(&mut interner);
        let text = printer(TraceFormatName::Json).call(&call, &interner).unwrap();
        assert_eq!(text.matches('\n').count(), 1);
        let value: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(value["schema"], "slip.trace/1");
        assert_eq!((&value["event"], &value["command"]), (&json!("call"), &json!("DEBUG")));
        assert_eq!(
            value["parts"],
            json!({"write": 40_000, "work": 15_000_000, "running": 900_000, "read": 5_000})
        );
        assert_eq!(value["taker"], json!({"name": "mysqld", "is_worker": false}));
        assert_eq!((&value["frames"][1]["line"], &value["frames_left_out"]), (&json!(7), &json!(1)));
        assert_eq!(value["no_stack"], Value::Null);
    }

    #[test]
    fn other_servers_are_neither_shown_nor_counted() {
        let mut interner = Interner::new();
        let call = call(&mut interner);
        for (asked, is_shown) in [("redis", true), (":6379", true), ("mysql", false)] {
            let mut printer = Printer { endpoint: Some(asked.to_owned()), ..printer(TraceFormatName::Text) };
            assert_eq!(printer.call(&call, &interner).is_some(), is_shown, "{asked}");
            assert_eq!(printer.slow.len(), usize::from(is_shown), "{asked}");
        }
    }

    #[test]
    fn what_a_target_has_named_is_harmless() {
        let mut interner = Interner::new();
        let name = interner.string("\u{1b}[2Jf");
        let frame = interner.frame(Frame { name, kind: FrameKind::PhpInternal, ..Frame::default() });
        let stack: StackId = interner.stack(&[frame]);
        let endpoint = Endpoint { address: "/run/\u{1b}[2J.sock".to_owned(), protocol: String::new() };
        let taker = CpuTaker { name: "\u{1b}[2Jx".to_owned(), ..CpuTaker::default() };
        let call = TracedCall { stack: Ok(stack), endpoint, taker: Some(taker), ..call(&mut interner) };
        for format in [TraceFormatName::Text, TraceFormatName::Json] {
            let text = printer(format).call(&call, &interner).unwrap();
            assert!(!text.contains('\u{1b}'), "{text}");
        }
    }

    #[test]
    fn the_summary_counts_all_calls_and_those_that_were_lost() {
        let mut interner = Interner::new();
        let call = call(&mut interner);
        let calls = vec![slip_model::EndpointCalls { endpoint: 0, calls: 120, parts: Vec::new() }];
        let budget = Budget { endpoints: vec![redis()], calls, lost_requests: 3, ..Budget::default() };
        let mut printer = printer(TraceFormatName::Text);
        printer.call(&call, &interner);
        let text = printer.summary(&budget, 2_000_000_000);
        let (counts, unseen) = text.split_once("not seen:\n").unwrap();
        insta::assert_snapshot!(counts, @r"

        120 calls in 2.0 s, 1 of them took 10.0 ms or more
          redis 127.0.0.1:6379: 120 calls, 1 slow, the longest 15.9 ms
        lost: 3 events had no room; among them may be slow calls
        ");
        assert_eq!(unseen.lines().count(), TRACE_CANNOT_SEE.len());
    }
}
