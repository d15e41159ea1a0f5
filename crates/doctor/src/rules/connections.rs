//! CONN002: connections that are made again and again, by server.

use slip_model::{CallPart, KeptConnections};

use crate::case::{Case, called, cut, parts_ns};
use crate::sites::{MIN_SAMPLES, Sites, is_in_kernel};
use crate::{CONN002, Confidence, Cost, Finding, ServerTime, Statement, Unit, Value, Verdict};

mod gain;

use gain::{Between, by_client, by_extension, may_keep};

/// Less of a unit, in tenths of a per cent, is not told.
const MIN_TENTHS: u64 = 20;

/// From so many connections for each request on, in hundredths, each request has one: workers that keep theirs make one in their life.
const EACH_REQUEST: u64 = 80;

/// From so many of a hundred calls on that have a connection of their own, each has one, as good as.
const EACH_CALL: u64 = 50;

/// The kernel's functions for that.
const CONNECT: [&str; 3] = ["__x64_sys_connect*", "__sys_connect", "__sys_connect_file"];

/// Commands that clients send first on a connection.
const HELLO: [&str; 4] = ["AUTH", "SELECT", "HELLO", "CLIENT"];

pub(super) fn judge(case: &Case<'_>) -> Verdict {
    let servers = servers(case);
    if case.table.is_by_looks() && servers.iter().all(|server| server.connects == 0) {
        return Verdict::TooLittle(Statement::new(
            "looks at /proc do not count connections; as root the kernel may",
        ));
    }
    let mut found: Vec<(u64, Finding)> = Vec::new();
    for server in servers.iter().filter(|server| is_repeated(case, server)) {
        let ns = all_ns(case, server);
        if case.tenths(ns) >= MIN_TENTHS {
            found.push((ns, finding(case, server, ns)));
        }
    }
    // Samples do not tell which server it was.
    if let [(_, finding)] = &mut found[..] {
        finding.evidence.extend(callers(case));
    }
    if !found.is_empty() {
        return Verdict::Found(found.into_iter().map(|(_, finding)| finding).collect());
    }
    let connects = servers.iter().fold(0_u64, |sum, server| sum.saturating_add(server.connects));
    let sums = |sums: (u64, u64), kept: &KeptConnections| (sums.0 + kept.asked, sums.1 + kept.reused);
    let (asked, reused) = all_kept(case).iter().fold((0, 0), sums);
    if reused > 0 {
        return Verdict::Quiet(
            Statement::new("the extension used connections again in {reused} of {asked} cases; {rate} new ones for each {unit}")
                .by("slipstream.keep")
                .with("reused", Value::Count(reused))
                .with("asked", Value::Count(asked))
                .with("rate", Value::Hundredths(case.rate(connects)))
                .with("unit", Value::Word(case.unit.name())),
        );
    }
    let ns = servers.iter().map(|server| server.connect_ns).sum::<u128>();
    let ns = case.each(ns);
    Verdict::Quiet(
        Statement::new("{rate} connections to servers for each {unit}, {time}, {share}")
            .by("inet_sock_set_state")
            .with("rate", Value::Hundredths(case.rate(connects)))
            .with("unit", Value::Word(case.unit.name()))
            .with("time", Value::Ns(ns))
            .with("share", Value::Tenths(case.tenths(ns))),
    )
}

/// What the extension kept during the watch.
fn all_kept<'a>(case: &'a Case<'_>) -> &'a [KeptConnections] {
    case.recording.facts.as_ref().map_or(&[], |facts| &facts.kept)
}

/// And of it what it was asked for of this server.
fn kept<'a>(case: &'a Case<'_>, server: &ServerTime) -> Option<&'a KeptConnections> {
    let is_it = |kept: &&KeptConnections| {
        kept.asked > 0
            && kept.server.split_once("://").is_some_and(|(_, address)| address == server.endpoint.address)
    };
    all_kept(case).iter().find(is_it)
}

/// Who connects, if there are enough samples.
fn callers(case: &Case<'_>) -> Vec<Statement> {
    let interner = &case.recording.interner;
    let sites = Sites::of(case.recording, |look| is_in_kernel(interner, look.sample.stack, &CONNECT));
    if sites.count < MIN_SAMPLES {
        return Vec::new();
    }
    sites.statements(case.recording, "{function}: {share} of {samples} samples in connect()")
}

fn servers<'a>(case: &'a Case<'_>) -> &'a [ServerTime] {
    match &case.table.run {
        Some(run) if case.unit != Unit::Request => &run.servers.rows,
        _ => &case.table.servers.rows,
    }
}

/// Whether it is connected to again by who was connected to it before.
fn is_repeated(case: &Case<'_>, server: &ServerTime) -> bool {
    let is_each_request = case.unit != Unit::Run && case.rate(server.connects) >= EACH_REQUEST;
    is_each_request || is_for_each_call(server) && server.connects > case.table.workers.max(1) * 4
}

fn is_for_each_call(server: &ServerTime) -> bool {
    server.connects > 1
        && u128::from(server.connects) * 100 >= u128::from(server.calls) * u128::from(EACH_CALL)
}

/// Connecting, and what of TLS comes once for a connection.
fn all_ns(case: &Case<'_>, server: &ServerTime) -> u64 {
    case.each(server.connect_ns + u128::from(tls_ns(case, server)))
}

fn calls<'a>(case: &'a Case<'_>, server: &ServerTime) -> Option<&'a crate::CallTimes> {
    case.table.calls.iter().find(|calls| calls.endpoint == server.endpoint)
}

fn tls_ns(case: &Case<'_>, server: &ServerTime) -> u64 {
    calls(case, server).map_or(0, |calls| parts_ns(calls, &[CallPart::Tls]))
}

fn finding(case: &Case<'_>, server: &ServerTime, ns: u64) -> Finding {
    let units = Value::Word(match case.unit {
        Unit::Request => "request",
        Unit::Operation => "operation",
        Unit::Run => "run",
    });
    let rate = case.rate(server.connects);
    let of_calls = is_for_each_call(server) && rate > 150;
    let mean_ns = cut(server.connect_ns.checked_div(server.connects.into()).unwrap_or_default());
    let mut evidence = vec![
        Statement::new("{connects} connections to {server}, {rate} for each {unit}, for {calls} calls")
            .by("inet_sock_set_state")
            .with("connects", Value::Count(server.connects))
            .with("server", called(&server.endpoint))
            .with("rate", Value::Hundredths(rate))
            .with("unit", units)
            .with("calls", Value::Count(server.calls)),
        Statement::new("each takes {time} until something is sent on it")
            .by("inet_sock_set_state")
            .with("time", Value::Ns(mean_ns)),
    ];
    let sockets = Between::of_sockets(case, server);
    if let Some(sockets) = sockets {
        evidence.push(
            Statement::new("and making and closing their sockets {low} to {high} of each {unit} on a CPU, by {samples} samples")
                .by("samples")
                .with("low", Value::Ns(sockets.low_ns))
                .with("high", Value::Ns(sockets.high_ns))
                .with("unit", Value::Word(case.unit.name()))
                .with("samples", Value::Count(sockets.samples)),
        );
    }
    if let Some(kept) = kept(case, server) {
        let counts = |text| {
            Statement::new(text)
                .by("slipstream.keep")
                .with("asked", Value::Count(kept.asked))
                .with("reused", Value::Count(kept.reused))
        };
        evidence.push(match kept.refused.first() {
            Some((reason, count)) => counts("the extension was to keep them: of {asked} connections {reused} were used again; {count} were not kept: `{reason}`")
                .with("count", Value::Count(*count))
                .with("reason", Value::Name(reason.clone())),
            None => counts("the extension was to keep them: of {asked} connections {reused} were used again"),
        });
    }
    let tls_ns = tls_ns(case, server);
    if tls_ns > 0 {
        evidence.push(
            Statement::new("and {time} more for TLS")
                .with("time", Value::Ns(tls_ns.checked_div(server.connects).unwrap_or_default())),
        );
    }
    let (hello, hello_ns) = hello(case, server);
    if hello > 0 {
        evidence.push(
            Statement::new("and {calls} commands that log in or choose a database, {time} for each {unit}")
                .with("calls", Value::Count(hello))
                .with("time", Value::Ns(case.each(hello_ns)))
                .with("unit", Value::Word(case.unit.name())),
        );
    }
    let wait_ns = case.each(server.wait_ns);
    Finding {
        rule: &CONN002,
        cause: if of_calls { "per_command" } else { "per_request" },
        headline: if of_calls {
            Statement::new("a new connection to {server} for each command")
                .with("server", called(&server.endpoint))
        } else {
            Statement::new("a new connection to {server} in each {unit}")
                .with("server", called(&server.endpoint))
                .with("unit", Value::Word(case.unit.name()))
        },
        cost: Some(Cost { value: Value::Ns(ns), tenths: Some(case.tenths(ns)) }),
        evidence,
        ruled_out: vec![
            Statement::new("a slow server: its answers are {time} of each {unit}, and not in this")
                .by("sock_recv_length")
                .with("time", Value::Ns(wait_ns))
                .with("unit", Value::Word(case.unit.name())),
            Statement::new(
                "connections that are kept: each worker would have made one in its life (workers: {workers})",
            )
            .with("workers", Value::Count(case.table.workers)),
        ],
        fixes: fixes(case, server),
        gain: Some(if may_keep(case, server) {
            by_extension(case, server, ns, sockets)
        } else {
            by_client(case, server, ns, sockets, case.each(hello_ns))
        }),
        confidence: if case.table.is_by_looks() { Confidence::Medium } else { Confidence::High },
    }
}

fn fixes(case: &Case<'_>, server: &ServerTime) -> Vec<Statement> {
    let mut fixes = vec![Statement::new(
        "a persistent connection in the client's configuration (phpredis: pconnect, Predis: persistent, PDO: ATTR_PERSISTENT); connections that are said to be persistent are not, if this counts them",
    )];
    if may_keep(case, server) {
        fixes.push(
            Statement::new("or without a change of the application: the PHP extension, with slipstream.keep={server} (the address as the client has it)")
                .with("server", Value::Name(format!("{}://{}", server.endpoint.protocol, server.endpoint.address))),
        );
    }
    fixes
}

/// Commands that come once for each connection, and how long they take.
fn hello(case: &Case<'_>, server: &ServerTime) -> (u64, u128) {
    let commands = calls(case, server).into_iter().flat_map(|calls| &calls.commands);
    // SELECT is a question of SQL as well.
    let commands = commands.filter(|_| server.endpoint.protocol == "redis");
    let commands = commands.filter(|command| {
        HELLO.contains(&&*command.name) && command.calls <= server.connects.saturating_mul(2)
    });
    commands.fold((0, 0), |(calls, ns), command| {
        (calls.saturating_add(command.calls), ns + u128::from(command.mean_ns.saturating_mul(command.calls)))
    })
}

#[cfg(test)]
mod tests {
    use slip_model::{
        EndpointTime, Facts, Frame, FrameKind, Language, Part, Recording, Sample, SampleBlock, State,
    };

    use super::*;
    use crate::support::{ask, assert_quiet, found, lengths, of, pool, serve};

    const US: u64 = 1_000;

    /// 200 requests of a millisecond, with so many connections and calls.
    fn connecting(connects: u64, calls: u64, commands: &[(&str, u64, u64)]) -> Recording {
        let mut recording = pool(200, &[(Part::Code, 900 * US), (Part::Connect, 100 * US)]);
        let time = EndpointTime {
            connects,
            calls,
            connect_ns: 100 * US * 200,
            wait_ns: 20 * US * calls,
            ..EndpointTime::default()
        };
        serve(
            &mut recording,
            ["10.0.0.5:6379", "redis"],
            time,
            &[(CallPart::Connect, lengths(200, 40 * US)), (CallPart::Work, lengths(calls, 20 * US))],
            commands,
        );
        recording
    }

    /// Adds samples on a CPU with this stack, innermost first: a function of the kernel, and one of the program.
    fn sample(recording: &mut Recording, count: u64, stack: &[&str]) {
        let kinds = [FrameKind::Kernel, FrameKind::Php];
        let interner = &mut recording.interner;
        let frames = stack.iter().zip(kinds).map(|(name, kind)| {
            let name = interner.string(name);
            interner.frame(Frame { kind, name, ..Frame::default() })
        });
        let frames: Vec<_> = frames.collect();
        let stack = interner.stack(&frames);
        let mut block = SampleBlock::default();
        (0..count).for_each(|_| block.push(Sample { stack, state: State::ON_CPU, ..Sample::default() }));
        recording.blocks.push(block);
    }

    #[test]
    fn a_connection_for_each_request_is_told() {
        let mut recording =
            connecting(200, 1_000, &[("AUTH", 200, 200 * 30 * US), ("GET", 800, 800 * 20 * US)]);
        recording.processes[0].language = Language::Python;
        let finding = found(judge, &recording);
        assert_eq!(
            (finding.cause, finding.ns(), finding.confidence),
            ("per_request", 100 * US, Confidence::High)
        );
        let gain = finding.gain.unwrap();
        // One call less, to ask whether it is there; and without AUTH.
        assert_eq!((gain.low, gain.high), (Value::Ns(80 * US), Value::Ns(130 * US)));
    }

    #[test]
    fn what_the_extension_keeps_is_told() {
        let kept = |recording: &mut Recording, reused: u64, refused: &[(&str, u64)]| {
            let refused = refused.iter().map(|(reason, count)| ((*reason).to_owned(), *count)).collect();
            let kept =
                KeptConnections { server: "redis://10.0.0.5:6379".to_owned(), asked: 200, reused, refused };
            recording.facts = Some(Facts { kept: vec![kept], ..Facts::default() });
        };
        let mut recording = connecting(200, 1_000, &[]);
        recording.processes[0].language = Language::Php;
        of(&mut recording).workers[0].endpoints[0].transfer_ns = 1_000 * 10 * US;
        let gain = found(judge, &recording).gain.unwrap();
        // What the program does after connecting may be left; less a reset for each connection, if there is something to forget.
        assert_eq!((gain.low, gain.high), (Value::Ns(30 * US), Value::Ns(100 * US)));
        let advice = |finding: &Finding| finding.fixes.iter().any(|fix| fix.text.contains("slipstream.keep"));
        assert!(advice(&found(judge, &recording)));
        // On in name, and not used.
        kept(&mut recording, 0, &[("unknown", 200)]);
        let finding = found(judge, &recording);
        assert!(!advice(&finding));
        assert!(finding.evidence.iter().any(|statement| statement.text.contains("not kept")));
        let mut recording = connecting(1, 1_000, &[]);
        kept(&mut recording, 199, &[]);
        let Verdict::Quiet(statement) = ask(judge, &recording) else { panic!() };
        assert!(statement.text.contains("used connections again"));
    }

    #[test]
    fn what_sockets_take_is_saved_as_well() {
        let mut recording = connecting(200, 1_000, &[("GET", 1_000, 1_000 * 20 * US)]);
        recording.processes[0].language = Language::Php;
        recording.info.interval_ns = 400 * US;
        of(&mut recording).workers[0].endpoints[0].transfer_ns = 1_000 * 10 * US;
        let gain = |recording: &Recording| {
            let gain = found(judge, recording).gain.unwrap();
            (gain.low, gain.high)
        };
        // Nothing has to be forgotten after GET.
        assert_eq!(gain(&recording), (Value::Ns(40 * US), Value::Ns(100 * US)));
        sample(&mut recording, 9, &["inet_release", "Client::close"]);
        assert_eq!(gain(&recording), (Value::Ns(40 * US), Value::Ns(100 * US)));
        // 16 of 0.4 ms for 200 requests, and half of them either way.
        sample(&mut recording, 7, &["inet_release", "Client::close"]);
        assert_eq!(gain(&recording), (Value::Ns((40 + 16) * US), Value::Ns((100 + 48) * US)));
        assert_eq!(found(judge, &recording).evidence[2].value("samples"), Some(&Value::Count(16)));
        // Of a socket that no function of the program closes the worker's own client may be at the other end.
        sample(&mut recording, 9, &["inet_release"]);
        assert_eq!(gain(&recording), (Value::Ns(40 * US + 19_200), Value::Ns((100 + 70) * US)));
    }

    #[test]
    fn what_the_program_does_after_connecting_is_not_saved() {
        let mut recording = connecting(200, 1_000, &[("GET", 1_000, 1_000 * 20 * US)]);
        recording.processes[0].language = Language::Php;
        recording.info.interval_ns = 120 * US;
        of(&mut recording).workers[0].endpoints[0].transfer_ns = 1_000 * 10 * US;
        let gain = |recording: &Recording| {
            let gain = found(judge, recording).gain.unwrap();
            (gain.low, gain.high)
        };
        // 100 samples of 0.12 ms are 60 us of each request, a fifth more or less.
        sample(&mut recording, 100, &["__x64_sys_connect", "Client::open"]);
        assert_eq!(gain(&recording), (Value::Ns(48 * US), Value::Ns(72 * US)));
        // Nor is waking the server, which the first command does then.
        let name = recording.interner.string("sock_def_readable");
        let waking = recording.interner.frame(Frame { kind: FrameKind::Kernel, name, ..Frame::default() });
        let name = recording.interner.string("__x64_sys_connect");
        let connect = recording.interner.frame(Frame { kind: FrameKind::Kernel, name, ..Frame::default() });
        let stack = recording.interner.stack(&[waking, connect]);
        let mut block = SampleBlock::default();
        (0..50).for_each(|_| block.push(Sample { stack, state: State::ON_CPU, ..Sample::default() }));
        recording.blocks.push(block);
        assert_eq!(gain(&recording), (Value::Ns(48 * US), Value::Ns(72 * US)));
        // On another machine it is besides what is waited for.
        recording.info.interval_ns = 20 * US;
        assert_eq!(gain(&recording), (Value::Ns(48 * US), Value::Ns(52 * US)));
    }

    #[test]
    fn a_connection_for_each_command_is_told() {
        let finding = found(judge, &connecting(1_000, 1_000, &[]));
        assert_eq!(finding.cause, "per_command");
        assert_eq!(finding.evidence[0].value("rate"), Some(&Value::Hundredths(500)));
    }

    #[test]
    fn connections_that_are_kept_are_not() {
        assert_quiet(judge, &connecting(4, 1_000, &[]));
        // Nor are those that cost next to nothing.
        let mut recording = connecting(200, 1_000, &[]);
        of(&mut recording).workers[0].endpoints[0].connect_ns = 200 * 10 * US;
        assert_quiet(judge, &recording);
    }
}
