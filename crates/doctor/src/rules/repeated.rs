//! NPLUS008: the same question to a server many times in one request.

use slip_model::CallPart;

use crate::calls::{CallTimes, CommandCalls};
use crate::case::{Case, called, cut, each, parts_ns};
use crate::{Confidence, Cost, Finding, Gain, NPLUS008, Statement, Unit, Value, Verdict};

/// So many calls of one command for each request, in hundredths, are many: a page that was written with care makes some for each of its parts.
const MANY: u64 = 1_000;

/// Less of a request, in tenths of a per cent, is not told.
const MIN_TENTHS: u64 = 50;

/// Commands by which a client asks whether the server is there, and which bring nothing.
const CHECKS: [&str; 3] = ["PING", "INFO", "ECHO"];

/// Who is ready to run for longer waits for a CPU that somebody else has: to wake an idle one takes up to 50 us, on a virtual machine.
const TAKEN_NS: u64 = 100_000;

/// Most commands of a server that are named.
const MAX_COMMANDS: usize = 3;

pub(super) fn judge(case: &Case<'_>) -> Verdict {
    if case.unit == Unit::Run {
        return Verdict::NotOf(Statement::new(
            "a run without requests has nothing to count calls for; `--ops` says how many operations it did",
        ));
    }
    if case.table.calls.is_empty() {
        if case.table.is_by_looks() {
            return Verdict::TooLittle(Statement::new(
                "looks at /proc do not count calls; as root the kernel may",
            ));
        }
        return Verdict::Quiet(Statement::new("no server was called").by("sock_recv_length"));
    }
    let found = case.table.calls.iter().filter_map(|calls| of_server(case, calls)).collect::<Vec<_>>();
    if !found.is_empty() {
        return Verdict::Found(found);
    }
    let most = case.table.calls.iter().flat_map(|calls| {
        calls.commands.iter().map(move |command| (case.rate(command.calls), calls, command))
    });
    let Some((rate, calls, command)) = most.max_by_key(|(rate, ..)| *rate) else {
        return Verdict::TooLittle(Statement::new(
            "what servers are asked could not be read: their protocol is not known, or encrypted",
        ));
    };
    Verdict::Quiet(
        Statement::new("most often {command} of {server}: {rate} for each {unit}")
            .by("sock_send_length")
            .with("command", name(command))
            .with("server", called(&calls.endpoint))
            .with("rate", Value::Hundredths(rate))
            .with("unit", Value::Word(case.unit.name())),
    )
}

fn name(command: &CommandCalls) -> Value {
    if command.name.is_empty() {
        Value::Word("a command that was not read")
    } else {
        Value::Name(command.name.clone())
    }
}

/// All that calls to this server took.
fn all_ns(calls: &CallTimes) -> u64 {
    let rows = calls.parts.iter().filter(|row| row.part.is_of_calls());
    rows.fold(0, |sum, row| sum.saturating_add(row.ns))
}

/// The same but for the time in which a CPU was had by somebody else: that is no matter of how many calls there are, and WAKE003 has it.
fn own_ns(case: &Case<'_>, calls: &CallTimes) -> u64 {
    let ready = case.lengths(calls, CallPart::Running);
    all_ns(calls).saturating_sub(ready.map_or(0, |lengths| lengths.at_least(TAKEN_NS).ns))
}

/// What this command has of that: commands are looked at for one call in eight, also of long ones, so what they take together is not exact.
fn total_ns(case: &Case<'_>, calls: &CallTimes, command: &CommandCalls) -> u64 {
    let of = |command: &CommandCalls| command.mean_ns as f64 * command.calls as f64;
    let all: f64 = calls.commands.iter().map(of).sum();
    if all > 0.0 { (own_ns(case, calls) as f64 * (of(command) / all)).round() as u64 } else { 0 }
}

fn of_server(case: &Case<'_>, calls: &CallTimes) -> Option<Finding> {
    let many: Vec<&CommandCalls> = calls
        .commands
        .iter()
        .filter(|command| case.rate(command.calls) >= MANY && !CHECKS.contains(&&*command.name))
        .collect();
    let first = *many.first()?;
    let ns = case.each(many.iter().map(|command| u128::from(total_ns(case, calls, command))).sum());
    if case.tenths(ns) < MIN_TENTHS {
        return None;
    }
    let unit = Value::Word(case.unit.name());
    let mut evidence: Vec<Statement> = many
        .iter()
        .take(MAX_COMMANDS)
        .map(|command| {
            Statement::new("{command}: {rate} for each {unit}, {mean} each, at most {longest}")
                .by("sock_send_length")
                .with("command", name(command))
                .with("rate", Value::Hundredths(case.rate(command.calls)))
                .with("unit", unit.clone())
                .with("mean", Value::Ns(command.mean_ns))
                .with("longest", Value::Ns(command.longest_ns))
        })
        .collect();
    evidence.extend(
        calls
            .commands
            .iter()
            .filter(|command| CHECKS.contains(&&*command.name) && case.rate(command.calls) >= 90)
            .map(|command| {
                Statement::new(
                    "{command}: {rate} for each {unit}, {mean} each, which asks for no data at all",
                )
                .by("sock_send_length")
                .with("command", name(command))
                .with("rate", Value::Hundredths(case.rate(command.calls)))
                .with("unit", unit.clone())
                .with("mean", Value::Ns(command.mean_ns))
            }),
    );
    evidence.extend(elsewhere(case, calls));
    let part_ns = |parts: &[CallPart]| parts_ns(calls, parts);
    let work_ns = each(part_ns(&[CallPart::Work, CallPart::Queue]).into(), calls.calls);
    let is_remote =
        part_ns(&[CallPart::Remote]) > cut(u128::from(calls.mean_ns) * u128::from(calls.calls)) / 2;
    let ruled_out = if is_remote {
        Vec::new()
    } else {
        vec![
            Statement::new(
                "a slow server: it takes {work} for each answer on average, waiting in its queue included",
            )
            .by("sk_data_ready")
            .with("work", Value::Ns(work_ns)),
        ]
    };
    Some(Finding {
        rule: &NPLUS008,
        cause: "same_command",
        headline: Statement::new("{command} is asked of {server} {rate} times in each {unit}")
            .with("command", name(first))
            .with("server", called(&calls.endpoint))
            .with("rate", Value::Hundredths(case.rate(first.calls)))
            .with("unit", unit),
        cost: Some(Cost { value: Value::Ns(ns), tenths: Some(case.tenths(ns)) }),
        evidence,
        ruled_out,
        fixes: vec![fix(&calls.endpoint.protocol)],
        gain: gain(case, calls, &many, is_remote),
        confidence: Confidence::High,
    })
}

/// A server that works on the worker's own CPU takes it away before the worker waits: then most of a call is in another line than WAIT.
fn elsewhere(case: &Case<'_>, calls: &CallTimes) -> Option<Statement> {
    let server = case.table.servers.rows.iter().find(|row| row.endpoint == calls.endpoint)?;
    let all = u128::from(calls.mean_ns) * u128::from(calls.calls);
    (server.wait_ns < all / 2).then(|| {
        Statement::new(
            "of the {all} that calls to it take in each {unit}, {wait} are sending and waiting; in the rest the worker was ready, without a \
             CPU (WAKE), or had other work (CODE)",
        )
        .with("all", Value::Ns(case.each(all)))
        .with("unit", Value::Word(case.unit.name()))
        .with("wait", Value::Ns(case.each(server.wait_ns)))
    })
}

fn fix(protocol: &str) -> Statement {
    match protocol {
        "redis" => Statement::new(
            "ask once for all: MGET or HGETALL, or a pipeline; keep answers for the length of a request",
        ),
        "memcached" => Statement::new(
            "ask once for all: get with several keys; keep answers for the length of a request",
        ),
        "mysql" | "postgresql" => Statement::new(
            "ask once for all: a join, or WHERE ... IN (...); let the ORM load relations beforehand",
        ),
        _ => {
            Statement::new("ask once for all, or at the same time; keep answers for the length of a request")
        }
    }
}

/// What calls cost that is not the server's own work, for all but one of each command.
fn gain(case: &Case<'_>, calls: &CallTimes, many: &[&CommandCalls], is_remote: bool) -> Option<Gain> {
    if is_remote {
        // The way and the server's work are not told apart: how much is saved of them is not known.
        return None;
    }
    let own = own_ns(case, calls);
    let part = |parts: &[CallPart]| parts_ns(calls, parts);
    let around = own.saturating_sub(part(&[CallPart::Work]));
    let without_queue = around.saturating_sub(part(&[CallPart::Queue]));
    let all: u128 = many.iter().map(|command| u128::from(total_ns(case, calls, command))).sum();
    // One of each is left.
    let left = many.len() as u128 * 100;
    let rates: u128 = many.iter().map(|command| u128::from(case.rate(command.calls))).sum();
    let saved = |ns: u64| {
        let of_all = all * u128::from(ns) / u128::from(own.max(1));
        Value::Ns(case.each(of_all * rates.saturating_sub(left) / rates.max(1)))
    };
    Some(Gain {
        low: saved(without_queue),
        high: saved(around),
        basis: Statement::new(
            "what a call takes beside the server's work, for all calls but one; the work itself stays",
        ),
    })
}

#[cfg(test)]
mod tests {
    use slip_model::{EndpointTime, Part, Recording};

    use super::*;
    use crate::support::{assert_quiet, found, lengths, pool, serve};

    const US: u64 = 1_000;

    /// 200 requests of 10 ms that ask so often.
    fn asking(parts: &[(CallPart, slip_model::Lengths)], commands: &[(&str, u64, u64)]) -> Recording {
        let mut recording = pool(200, &[(Part::Code, 8_000 * US), (Part::Wait, 2_000 * US)]);
        let calls = commands.iter().map(|(_, calls, _)| calls).sum();
        let time = EndpointTime { calls, wait_ns: 400_000 * US, ..EndpointTime::default() };
        serve(&mut recording, ["127.0.0.1:6379", "redis"], time, parts, commands);
        recording
    }

    #[test]
    fn one_command_many_times_in_each_request_is_told() {
        let parts = [
            (CallPart::Write, lengths(20_200, 8 * US)),
            (CallPart::Queue, lengths(20_200, 4 * US)),
            (CallPart::Work, lengths(20_200, 8 * US)),
        ];
        let finding =
            found(judge, &asking(&parts, &[("GET", 20_000, 20_000 * 20 * US), ("PING", 200, 200 * 20 * US)]));
        assert_eq!((finding.cause, finding.ns()), ("same_command", 2_000 * US));
        assert_eq!(finding.evidence[0].value("rate"), Some(&Value::Hundredths(10_000)));
        assert_eq!(finding.evidence[1].value("command"), Some(&Value::Name("PING".into())));
        // 99 of 100 calls no more, each 8 or 12 of 20 us.
        let gain = finding.gain.unwrap();
        assert_eq!((gain.low, gain.high), (Value::Ns(792 * US), Value::Ns(1_188 * US)));
    }

    #[test]
    fn a_call_that_is_mostly_in_another_line_says_so() {
        let parts = [(CallPart::Work, lengths(20_000, 60 * US))];
        let finding = found(judge, &asking(&parts, &[("GET", 20_000, 20_000 * 60 * US)]));
        let said = &finding.evidence[1];
        assert_eq!(
            (said.value("all"), said.value("wait")),
            (Some(&Value::Ns(6_000 * US)), Some(&Value::Ns(2_000 * US)))
        );
    }

    #[test]
    fn many_commands_once_each_and_slow_ones_are_not() {
        let many = ["A", "B", "C", "D", "E", "F"].map(|name| (name, 1_000, 1_000 * 60 * US));
        assert_quiet(judge, &asking(&[], &many));
        assert_quiet(judge, &asking(&[], &[("GET", 200, 200 * 2_000 * US)]));
    }

    #[test]
    fn calls_that_are_long_for_want_of_a_cpu_are_not() {
        let parts =
            [(CallPart::Work, lengths(2_000, 20 * US)), (CallPart::Running, lengths(2_000, 230 * US))];
        assert_quiet(judge, &asking(&parts, &[("GET", 2_000, 2_000 * 250 * US)]));
    }

    #[test]
    fn nothing_is_promised_of_a_server_elsewhere() {
        let parts = [(CallPart::Remote, lengths(20_000, 20 * US))];
        let finding = found(judge, &asking(&parts, &[("GET", 20_000, 20_000 * 20 * US)]));
        assert_eq!((finding.gain, finding.ruled_out.len()), (None, 0));
    }
}
