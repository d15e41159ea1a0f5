//! WAKE003: ready to run, without a CPU. The time is measured; who is to blame follows from what the kernel counts beside it.

use slip_model::{CallPart, Part};

use crate::calls::{CallPartTime, CallTimes};
use crate::case::{Case, called, cut, each, parts_ns};
use crate::workers::total_of;
use crate::{Confidence, Cost, Finding, Gain, Line, Statement, Value, Verdict, WAKE003, tenths};

/// Less of a unit, in tenths of a per cent, is not told whatever the cause: what can be gained is lost in the noise of any comparison.
const MIN_TENTHS: u64 = 20;

/// Less is not told if the cause is who else had the CPU: a worker and a server on one machine that wait for each other's answers take
/// turns on a CPU, for a tenth of each short call, and nothing is wrong with that.
const MIN_TENTHS_OF_TAKERS: u64 = 50;

/// A quota is to blame if it held the workers' groups back in as large a share of its periods as this, in tenths of a per cent ...
const MIN_THROTTLED_PERIODS: u64 = 20;

/// ... and if for as large a share of the time that workers were ready. Others in the group may be those that are held back.
const MIN_THROTTLED: u64 = 250;

/// Steal is to blame if the host took as large a share of the CPUs: below, guests share a host all the time.
const MIN_STEAL: u64 = 20;

/// ... and as large a share of the time that workers were ready.
const MIN_STOLEN: u64 = 500;

/// What is most of something.
const MOST: u64 = 500;

/// A call is late if the worker waits for a CPU for so long after its answer has come: what waking takes on an idle machine is a twentieth of that.
const LATE_NS: u64 = 1_000_000;

/// Who had the CPU for less than this has taken turns: a server answers, or takes a question, and goes to sleep. Nothing is wrong
/// with that, however often it comes.
const TURN_NS: u64 = 200_000;

/// What took the CPU away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cause {
    Quota,
    Steal,
    Priority,
    Workers,
    Other,
    Unknown,
}

/// Shares of the time that workers were ready to run, in tenths of a per cent.
struct Shares {
    throttled: u64,
    throttled_periods: u64,
    stolen: u64,
    steal: u64,
    workers: u64,
    /// Of the program that had most of it, which is no worker.
    other: u64,
    others: u64,
    /// Of whoever ran before the workers because of a higher priority.
    preferred: u64,
    /// Of others: the times that they had it for less than [`TURN_NS`], or, if they are servers, as long as they worked for the workers: those would
    /// have waited for the answer in any case.
    turns: u64,
    nobody: u64,
}

pub(super) fn judge(case: &Case<'_>) -> Verdict {
    let ns = case.line_ns(Line::Wake);
    let share = case.tenths(ns);
    let of_unit = |statement: Statement| {
        statement.with("time", Value::Ns(ns)).with("share", Value::Tenths(share)).by(case.scheduler())
    };
    let shares = Shares::of(case);
    let cause = shares.cause();
    let least = if matches!(cause, Cause::Quota | Cause::Steal) { MIN_TENTHS } else { MIN_TENTHS_OF_TAKERS };
    if share < least {
        let text = "{time}, {share}, ready to run without a CPU";
        return Verdict::Quiet(of_unit(Statement::new(text)));
    }
    if cause == Cause::Unknown && shares.nobody >= MOST && case.budget.quota_periods.is_some() {
        // Nobody had it, and no quota held it back: it had to wake up.
        let text = "{time}, {share}, and mostly of a CPU that was idle and had to wake up, with no quota in force that held it back";
        return Verdict::Quiet(of_unit(Statement::new(text)));
    }
    let turns_ns = cut(u128::from(ns) * u128::from(shares.turns) / 1_000).min(ns);
    if !matches!(cause, Cause::Quota | Cause::Steal) && case.tenths(ns - turns_ns) < least {
        let text = "{time}, {share}, of which {turns} were the work of servers on this machine for these workers, on the same CPU, or turns of less \
                    than {most}";
        let turns = Statement::new(text).with("turns", Value::Ns(turns_ns)).with("most", Value::Ns(TURN_NS));
        return Verdict::Quiet(of_unit(turns));
    }
    let (late, server) = late_call(case).unzip();
    let mut evidence = vec![of_unit(Statement::new(
        "{time}, {share}, between being ready to run and running, all of it measured",
    ))];
    evidence.extend(late);
    evidence.extend(by_kernel(case, &shares, cause));
    Verdict::Found(vec![Finding {
        rule: &WAKE003,
        cause: cause.key(),
        headline: headline(case, cause),
        cost: Some(Cost { value: Value::Ns(ns), tenths: Some(share) }),
        evidence,
        ruled_out: ruled_out(case, &shares, cause, server),
        fixes: fixes(case, cause),
        gain: gain(ns, &shares, cause),
        confidence: shares.confidence(cause, case),
    }])
}

impl Shares {
    fn of(case: &Case<'_>) -> Self {
        let budget = case.budget;
        let parts =
            budget.workers.iter().flat_map(|worker| [&worker.serving, &worker.after, &worker.between]);
        let ready_ns = parts.map(|parts| total_of(parts, &[Part::Wake, Part::Preempted])).sum::<u128>();
        let of_ready = |ns: u64| tenths(ns.into(), ready_ns);
        // Of all that is known: waits of a few microseconds are in the line, and have no taker.
        let known: u128 = budget.takers.iter().map(|taker| u128::from(taker.ns)).sum();
        let taken = |is_meant: &dyn Fn(&slip_model::CpuTaker) -> bool| {
            tenths(
                budget.takers.iter().filter(|taker| is_meant(taker)).map(|taker| u128::from(taker.ns)).sum(),
                known,
            )
        };
        let is_other = |taker: &slip_model::CpuTaker| !taker.is_worker && !taker.name.is_empty();
        let first = case.table.takers.iter().find(|taker| is_other(taker)).map_or(0, |taker| taker.ns);
        Self {
            throttled: of_ready(budget.throttled_ns),
            throttled_periods: tenths(
                budget.throttled_periods.into(),
                budget.quota_periods.unwrap_or(budget.throttled_periods).into(),
            ),
            stolen: of_ready(budget.steal_ns),
            steal: tenths(budget.steal_ns.into(), budget.cpus_ns.into()),
            workers: taken(&|taker| taker.is_worker),
            other: tenths(first.into(), known),
            others: taken(&is_other),
            preferred: tenths(budget.takers.iter().map(|taker| u128::from(taker.preferred_ns)).sum(), known),
            turns: tenths(
                budget.takers.iter().filter(|taker| is_other(taker)).map(|taker| turns_ns(case, taker)).sum(),
                known,
            ),
            nobody: taken(&|taker| taker.name.is_empty()),
        }
    }

    fn cause(&self) -> Cause {
        if self.throttled_periods >= MIN_THROTTLED_PERIODS && self.throttled >= MIN_THROTTLED {
            Cause::Quota
        } else if self.steal >= MIN_STEAL && self.stolen >= MIN_STOLEN {
            Cause::Steal
        } else if self.preferred * 2 > self.workers + self.others && self.preferred > self.nobody {
            Cause::Priority
        } else if self.workers > self.others && self.workers > self.nobody {
            Cause::Workers
        } else if self.others > self.nobody {
            Cause::Other
        } else {
            Cause::Unknown
        }
    }

    fn confidence(&self, cause: Cause, case: &Case<'_>) -> Confidence {
        let is_clear = match cause {
            Cause::Quota => self.throttled >= MOST,
            Cause::Priority => self.preferred >= MOST,
            Cause::Workers => self.workers >= MOST,
            Cause::Other => self.other >= MOST,
            // That time was stolen just then is not seen.
            Cause::Steal => return Confidence::Medium,
            Cause::Unknown => return Confidence::Low,
        };
        if is_clear && !case.table.is_by_looks() { Confidence::High } else { Confidence::Medium }
    }
}

/// What of its time was turns with the workers, or work for them.
fn turns_ns(case: &Case<'_>, taker: &slip_model::CpuTaker) -> u128 {
    // A program that computes has the CPU briefly often, too, where workers that wake up get it soon: how long it had it otherwise counts.
    let short_ns = taker.lengths.ns.saturating_sub(taker.lengths.at_least(TURN_NS).ns);
    let answers = |calls: &&CallTimes| is_server(&taker.name, &calls.endpoint.protocol);
    let work_ns =
        case.table.calls.iter().filter(answers).map(|calls| u128::from(parts_ns(calls, &[CallPart::Work])));
    work_ns.sum::<u128>().max(short_ns.into()).min(taker.ns.into())
}

/// Whether a thread of this name is of a server that speaks this.
fn is_server(name: &str, protocol: &str) -> bool {
    let names: &[&str] = match protocol {
        "redis" => &["redis-server", "valkey-server"],
        "mysql" => &["mysqld", "mariadbd"],
        "postgresql" => &["postgres"],
        "memcached" => &["memcached"],
        _ => &[],
    };
    names.contains(&name)
}

impl Cause {
    fn key(self) -> &'static str {
        match self {
            Self::Quota => "cpu_quota",
            Self::Steal => "steal",
            Self::Priority => "priority",
            Self::Workers => "own_workers",
            Self::Other => "another_process",
            Self::Unknown => "unknown",
        }
    }
}

/// The first program that had the CPU and is no worker.
fn other(case: &Case<'_>) -> Value {
    let taker = case.table.takers.iter().find(|taker| !taker.is_worker && !taker.name.is_empty());
    taker.map_or(Value::Word("nobody"), |taker| Value::Name(taker.name.clone()))
}

/// The program that ran longest before the workers because of its priority.
fn preferred(case: &Case<'_>) -> Value {
    let taker = case.budget.takers.iter().max_by_key(|taker| taker.preferred_ns);
    taker.map_or(Value::Word("nobody"), |taker| Value::Name(taker.name.clone()))
}

fn headline(case: &Case<'_>, cause: Cause) -> Statement {
    match cause {
        Cause::Quota => Statement::new("a CPU quota holds the workers back"),
        Cause::Steal => Statement::new("the machine's host gives its CPUs to others"),
        Cause::Priority => {
            Statement::new("{program} has a higher priority, and the CPU that workers are ready for")
                .with("program", preferred(case))
        }
        Cause::Workers => Statement::new("more workers want to run than there are CPUs for"),
        Cause::Other => {
            Statement::new("{program} has the CPU that workers are ready for").with("program", other(case))
        }
        Cause::Unknown => Statement::new("workers wait for a CPU, and for whom is not known"),
    }
}

/// The server after whose answers workers wait longest for a CPU, and how its calls look.
fn late_call<'a>(case: &'a Case<'_>) -> Option<(Statement, &'a CallTimes)> {
    let ready_ns = |times: &&CallTimes| part(times, CallPart::Running).map_or(0, |row| row.ns);
    let times = case.table.calls.iter().max_by_key(ready_ns)?;
    let ready = part(times, CallPart::Running)?;
    let late = case.lengths(times, CallPart::Running)?.at_least(LATE_NS);
    let count = late.count();
    if count == 0 {
        return None;
    }
    let statement = Statement::new(
        "{server}: after {late} of {calls} answers had come the worker waited {least} or longer for a CPU (p50 of these {late_p50}, p95 {late_p95}; p95 \
         of all answers {p95})",
    )
    .by("sched_switch")
    .with("server", called(&times.endpoint))
    .with("late", Value::Count(count))
    .with("calls", Value::Count(times.calls))
    .with("least", Value::Ns(LATE_NS))
    .with("late_p50", Value::Ns(late.quantile_ns(0.5, count)))
    .with("late_p95", Value::Ns(late.quantile_ns(0.95, count)))
    .with("p95", Value::Ns(ready.spread.p95_ns));
    Some((statement, times))
}

fn part(times: &CallTimes, part: CallPart) -> Option<&CallPartTime> {
    times.parts.iter().find(|row| row.part == part)
}

/// What the kernel counts that speaks for this cause.
fn by_kernel(case: &Case<'_>, shares: &Shares, cause: Cause) -> Vec<Statement> {
    let budget = case.budget;
    let quota = || {
        let statement = match budget.quota_periods {
            Some(periods) => {
                Statement::new("{throttled} of {periods} periods throttled, for {time}, all CPUs together")
                    .with("throttled", Value::Count(budget.throttled_periods))
                    .with("periods", Value::Count(periods))
            }
            None => Statement::new("throttled for {time}, all CPUs together"),
        };
        statement.by("cpu.stat").with("time", Value::Ns(budget.throttled_ns))
    };
    let takers = |text, share| Statement::new(text).by("sched_switch").with("share", Value::Tenths(share));
    // Looks at /proc do not tell.
    let knows_takers = !budget.takers.is_empty();
    match cause {
        Cause::Quota => {
            let nobody = takers("{share} of the time nobody had the CPU meanwhile", shares.nobody);
            let allowed = budget.quota.map(|quota| {
                Statement::new("the control group may use {quota} of CPU time in each {period}")
                    .by("cpu.max")
                    .with("quota", Value::Ns(quota.quota_ns))
                    .with("period", Value::Ns(quota.period_ns))
            });
            [quota()].into_iter().chain(allowed).chain(knows_takers.then_some(nobody)).chain(held_back(case)).collect()
        }
        Cause::Steal => vec![
            Statement::new("the host took {share} of the machine's CPUs, {time}")
                .by("/proc/stat")
                .with("share", Value::Tenths(shares.steal))
                .with("time", Value::Ns(budget.steal_ns)),
        ],
        Cause::Workers => {
            let mut found = vec![takers("{share} of the time another worker had the CPU", shares.workers)];
            let rounded = budget.cpus_ns.saturating_add(budget.window_ns / 2);
            if let Some(cpus) = rounded.checked_div(budget.window_ns).filter(|_| budget.cpus_ns > 0) {
                let text = "{workers} workers, on a machine of {cpus} CPUs";
                let cpus = Value::Count(cpus.max(1));
                let workers = Value::Count(budget.workers.len() as u64);
                found.push(Statement::new(text).with("workers", workers).with("cpus", cpus));
            }
            found
        }
        Cause::Priority => vec![
            takers(
                "{share} of the time somebody with a higher priority than the worker's had the CPU, {program} most of it",
                shares.preferred,
            )
            .with("program", preferred(case)),
        ],
        Cause::Other => {
            vec![takers("{share} of the time it was {program}", shares.other).with("program", other(case))]
        }
        Cause::Unknown if knows_takers => {
            vec![takers("{share} of the time nobody had the CPU", shares.nobody)]
        }
        Cause::Unknown => vec![Statement::new("who had the CPU meanwhile is not seen in this way")],
    }
}

/// For how long nobody had the CPU that a worker was ready for, each time, but for the moments that waking it takes.
fn held_back(case: &Case<'_>) -> Option<Statement> {
    let nobody = case.budget.takers.iter().find(|taker| taker.name.is_empty())?;
    let long = nobody.lengths.at_least(LATE_NS);
    let count = long.count();
    let statement =
        Statement::new("{count} times a worker was held back for {least} or longer: p50 {p50}, p95 {p95}")
            .by("sched_switch")
            .with("count", Value::Count(count))
            .with("least", Value::Ns(LATE_NS))
            .with("p50", Value::Ns(long.quantile_ns(0.5, count)))
            .with("p95", Value::Ns(long.quantile_ns(0.95, count)));
    (count > 0).then_some(statement)
}

fn ruled_out(case: &Case<'_>, shares: &Shares, cause: Cause, server: Option<&CallTimes>) -> Vec<Statement> {
    let budget = case.budget;
    let mut out = Vec::new();
    if let Some(times) = server {
        out.extend(of_server(times));
    }
    if cause != Cause::Quota {
        match (budget.quota_periods, budget.throttled_periods) {
            (Some(0), _) => out.push(Statement::new("a CPU quota: none is in force").by("cpu.stat")),
            (Some(periods), throttled) => out.push(
                Statement::new("a CPU quota: {throttled} of {periods} periods throttled, for {time}")
                    .by("cpu.stat")
                    .with("throttled", Value::Count(throttled))
                    .with("periods", Value::Count(periods))
                    .with("time", Value::Ns(budget.throttled_ns)),
            ),
            // Not known is not ruled out.
            (None, _) => {}
        }
    }
    if cause != Cause::Steal && budget.cpus_ns > 0 {
        let text = "steal: {share} of the machine's CPUs, as far as its host tells";
        out.push(Statement::new(text).by("/proc/stat").with("share", Value::Tenths(shares.steal)));
    }
    // Where nobody noted who had the CPU, as with looks at /proc, nothing follows.
    if !budget.takers.is_empty() {
        let takers =
            |text, share| Statement::new(text).by("sched_switch").with("share", Value::Tenths(share));
        if !matches!(cause, Cause::Priority) && shares.preferred < MOST {
            let text =
                "priorities: {share} of the time somebody with a higher one than the worker's had the CPU";
            out.push(takers(text, shares.preferred));
        }
        if !matches!(cause, Cause::Workers) && shares.workers < MOST {
            out.push(takers("too many workers: {share} of the time another one had the CPU", shares.workers));
        }
        if !matches!(cause, Cause::Other) && shares.others < MOST {
            out.push(takers("other programs: {share} of the time one of them had the CPU", shares.others));
        }
    }
    let code_ns = case.line_ns(Line::Code);
    out.push(
        Statement::new("the client library: it waits like any other would; all code of the program together takes {code}, {share}, and is not in this")
            .by(case.scheduler())
            .with("code", Value::Ns(code_ns))
            .with("share", Value::Tenths(case.tenths(code_ns))),
    );
    out
}

/// That it is neither this server nor the kernel's waking.
fn of_server(times: &CallTimes) -> Vec<Statement> {
    let mean = |parts: &[CallPart]| Value::Ns(each(parts_ns(times, parts).into(), times.calls));
    let mut out = Vec::new();
    if part(times, CallPart::Work).is_some() {
        out.push(
            Statement::new("a slow server: {server} takes {work} for an answer on average, and {queue} until it reads the question")
                .by("sk_data_ready")
                .with("server", called(&times.endpoint))
                .with("work", mean(&[CallPart::Work]))
                .with("queue", mean(&[CallPart::Queue])),
        );
        let text = "a late acknowledgement: questions and answers are under way for {flight} on average";
        out.push(Statement::new(text).by("sk_data_ready").with("flight", mean(&[CallPart::Flight])));
    }
    if let Some(woken) = part(times, CallPart::Woken) {
        let text = "the kernel's wake-up: {p99} from the answer to being woken (p99)";
        out.push(Statement::new(text).by("sched_waking").with("p99", Value::Ns(woken.spread.p99_ns)));
    }
    out
}

fn fixes(case: &Case<'_>, cause: Cause) -> Vec<Statement> {
    match cause {
        Cause::Quota => {
            let workers = &case.budget.workers;
            let computes = [Part::Code, Part::Boot, Part::Memory, Part::Transfer];
            let parts = workers.iter().flat_map(|worker| [&worker.serving, &worker.after, &worker.between]);
            let cpu_ns = parts.map(|parts| total_of(parts, &computes)).sum::<u128>();
            let window_ns = u128::from(case.table.window_ns.max(1));
            let code_ns = case.line_ns(Line::Code);
            vec![
                Statement::new(
                    "raise the quota, or take it away: cpu.max of the control group (systemd: CPUQuota=, Docker: --cpus, Kubernetes: \
                     limits.cpu); held back by it the workers used {cpus} CPUs on average",
                )
                .with("cpus", Value::Hundredths(cut(cpu_ns * 100 / window_ns))),
                Statement::new(
                    "another client library would not help: the quota holds back whatever computes, and what the client computes is a part of \
                     the {code} of code in all",
                )
                .with("code", Value::Ns(code_ns)),
            ]
        }
        Cause::Steal => vec![Statement::new("another host, or an instance whose CPUs are its own")],
        Cause::Priority => vec![of_taker(
            preferred(case),
            "the workers' priority no lower than that of {program} (PHP-FPM: process.priority; systemd: Nice=, CPUSchedulingPolicy=), or {program} \
             on other CPUs",
        )],
        Cause::Workers => vec![Statement::new(
            "more CPUs, or as many workers as there are CPUs for; what each request computes is in CODE",
        )],
        Cause::Other => vec![of_taker(
            other(case),
            "{program} on other CPUs or another machine, or with a lower priority (nice 19, CPUWeight=)",
        )],
        Cause::Unknown => vec![],
    }
}

/// What helps if this program has the CPU. The kernel's threads that work for what others ask of it can be given no CPU and no priority.
fn of_taker(program: Value, otherwise: &'static str) -> Statement {
    const OF_KERNEL: [&str; 4] = ["kworker/", "ksoftirqd/", "kswapd", "jbd2/"];
    let is_of_kernel =
        matches!(&program, Value::Name(name) if OF_KERNEL.iter().any(|begin| name.starts_with(begin)));
    let text = if is_of_kernel {
        "{program} is a thread of the kernel, and works for whoever uses disks and network most: that at other times, or on another machine"
    } else {
        otherwise
    };
    Statement::new(text).with("program", program)
}

/// What is left when the cause is gone is what others take, and what was not seen to be its own.
fn gain(ns: u64, shares: &Shares, cause: Cause) -> Option<Gain> {
    let of = |tenths: u64| Value::Ns(cut(u128::from(ns) * u128::from(tenths.min(1_000)) / 1_000));
    let (low, high, basis) = match cause {
        // A group that is held back has one worker ready at least, and may have several.
        Cause::Quota => (
            shares.throttled.min(1_000 - shares.others.min(1_000)),
            1_000,
            "the time that the kernel counts as throttled, up to all of the time without a CPU: several workers may be held back at once",
        ),
        Cause::Other => (
            shares.other,
            shares.others.max(shares.other),
            "the share of the time in which others had the CPU",
        ),
        Cause::Priority => (
            0,
            shares.preferred,
            "the share of the time in which somebody with a higher priority had the CPU: with the same one both still want it",
        ),
        Cause::Workers => (0, shares.workers, "the share of the time in which other workers had the CPU"),
        Cause::Steal | Cause::Unknown => return None,
    };
    Some(Gain { low: of(low), high: of(high), basis: Statement::new(basis) })
}

#[cfg(test)]
mod tests {
    use slip_model::{CpuTaker, EndpointTime, Lengths, Recording};

    use super::*;
    use crate::support::{ask, assert_quiet, found, lengths, of, pool, serve};

    const MS: u64 = 1_000_000;

    /// 200 requests that compute for 5 ms and are ready for 15 ms more, and who had the CPU then.
    fn ready(takers: &[(&str, bool, u64)]) -> Recording {
        let mut recording = pool(200, &[(Part::Code, 5 * MS), (Part::Wake, 15 * MS)]);
        of(&mut recording).takers = takers
            .iter()
            .map(|(name, is_worker, ns)| CpuTaker {
                name: (*name).into(),
                is_worker: *is_worker,
                ns: *ns,
                preferred_ns: 0,
                lengths: Lengths::default(),
            })
            .collect();
        recording
    }

    fn throttle(recording: &mut Recording) {
        let budget = of(recording);
        (budget.quota_periods, budget.throttled_periods, budget.throttled_ns) = (Some(210), 200, 2_900 * MS);
    }

    #[test]
    fn a_quota_is_told_and_no_client_library() {
        let mut recording = ready(&[("", false, 2_990 * MS), ("redis-server", false, 10 * MS)]);
        throttle(&mut recording);
        let time = EndpointTime { calls: 1_000, wait_ns: 100 * MS, ..EndpointTime::default() };
        let parts = [
            (CallPart::Work, lengths(1_000, 8_000)),
            (CallPart::Woken, lengths(1_000, 700)),
            (CallPart::Running, lengths(200, 15 * MS)),
        ];
        serve(&mut recording, ["127.0.0.1:6379", "redis"], time, &parts, &[]);
        let finding = found(judge, &recording);
        assert_eq!(
            (finding.cause, finding.ns(), finding.confidence),
            ("cpu_quota", 15 * MS, Confidence::High)
        );
        assert_eq!(finding.cost.as_ref().unwrap().tenths, Some(750));
        let late = &finding.evidence[1];
        assert_eq!(
            (late.value("late"), late.value("calls")),
            (Some(&Value::Count(200)), Some(&Value::Count(1_000)))
        );
        assert_eq!(late.value("late_p95"), Some(&Value::Ns(16_557_015)));
        let throttled = finding.evidence.iter().find(|statement| statement.probe == "cpu.stat").unwrap();
        assert_eq!(throttled.value("throttled"), Some(&Value::Count(200)));
        let texts: Vec<_> = finding.ruled_out.iter().map(|statement| statement.text).collect();
        for words in
            ["the client library", "a slow server", "steal", "other programs", "the kernel's wake-up"]
        {
            assert!(texts.iter().any(|text| text.starts_with(words)), "{words}: {texts:?}");
        }
        assert!(finding.fixes.iter().any(|fix| fix.text.contains("another client library")));
        // As if the quota were gone.
        let gain = finding.gain.unwrap();
        assert_eq!((gain.low, gain.high), (Value::Ns(14_505_000), Value::Ns(15 * MS)));
    }

    #[test]
    fn who_had_the_cpu_is_to_blame_if_no_quota_is() {
        let hogs = ready(&[("sh", false, 2_000 * MS), ("php-fpm", true, 500 * MS), ("", false, 100 * MS)]);
        let finding = found(judge, &hogs);
        assert_eq!((finding.cause, finding.confidence), ("another_process", Confidence::High));
        assert_eq!(finding.headline.value("program"), Some(&Value::Name("sh".into())));
        assert!(finding.ruled_out.iter().any(|out| out.text.starts_with("a CPU quota: none")), "{finding:?}");
        assert!(finding.fixes[0].text.contains("nice 19"), "{finding:?}");
        // Which can be given no priority.
        let finding = found(judge, &ready(&[("kworker/0:0H", false, 2_000 * MS)]));
        assert!(finding.fixes[0].text.contains("a thread of the kernel"), "{finding:?}");
        let workers = ready(&[("php-fpm", true, 2_000 * MS), ("sh", false, 500 * MS)]);
        assert_eq!(found(judge, &workers).cause, "own_workers");
        // Who is preferred is to blame for that, whoever it is.
        let mut recording = hogs.clone();
        of(&mut recording).takers[0].preferred_ns = 1_900 * MS;
        let finding = found(judge, &recording);
        assert_eq!((finding.cause, finding.confidence), ("priority", Confidence::High));
        assert_eq!(finding.headline.value("program"), Some(&Value::Name("sh".into())));
        // A quota that held back for a moment is not what they wait for.
        let mut recording = hogs.clone();
        let budget = of(&mut recording);
        (budget.quota_periods, budget.throttled_periods, budget.throttled_ns) = (Some(210), 10, 30 * MS);
        assert_eq!(found(judge, &recording).cause, "another_process");
        of(&mut recording).steal_ns = 2_000 * MS;
        let finding = found(judge, &recording);
        assert_eq!((finding.cause, finding.gain), ("steal", None));
    }

    #[test]
    fn a_cpu_that_has_to_wake_up_is_nobody_s_fault() {
        let mut recording = ready(&[("", false, 2_990 * MS)]);
        assert_quiet(judge, &recording);
        // Whether there is a quota is not known.
        of(&mut recording).quota_periods = None;
        let finding = found(judge, &recording);
        assert_eq!((finding.cause, finding.confidence), ("unknown", Confidence::Low));
    }

    #[test]
    fn turns_with_a_server_are_nobody_s_fault() {
        let mut recording = pool(200, &[(Part::Code, 22 * MS), (Part::Wake, 3 * MS)]);
        let taker = CpuTaker {
            name: "redis-server".into(),
            ns: 590 * MS,
            lengths: lengths(100, 5_900_000),
            ..CpuTaker::default()
        };
        of(&mut recording).takers = vec![taker];
        assert_eq!(found(judge, &recording).cause, "another_process");
        // 30 us after each of 100 answers in a request.
        of(&mut recording).takers[0].lengths = lengths(20_000, 30_000);
        assert_quiet(judge, &recording);
        // Longer, and it worked for the workers all that time: they would have waited for it.
        of(&mut recording).takers[0].lengths = lengths(1_000, 590_000);
        let time = EndpointTime { calls: 1_000, wait_ns: 100 * MS, ..EndpointTime::default() };
        let parts = [(CallPart::Work, lengths(1_000, 600_000))];
        serve(&mut recording, ["127.0.0.1:6379", "redis"], time, &parts, &[]);
        assert_quiet(judge, &recording);
        of(&mut recording).takers[0].name = "backup".into();
        assert_eq!(found(judge, &recording).cause, "another_process");
        // Most are short; what counts is the time of those that are not.
        let mut mixed = lengths(10_000, 30_000);
        mixed.add(&lengths(140, 2_000_000));
        of(&mut recording).takers[0].lengths = mixed;
        assert_eq!(found(judge, &recording).cause, "another_process");
    }

    #[test]
    fn looks_tell_a_quota_and_not_who_had_the_cpu() {
        let mut recording = ready(&[]);
        of(&mut recording).rung = "proc".into();
        assert_eq!(found(judge, &recording).cause, "unknown");
        throttle(&mut recording);
        let finding = found(judge, &recording);
        assert_eq!((finding.cause, finding.confidence), ("cpu_quota", Confidence::Medium));
        assert!(finding.statements().all(|statement| statement.probe != "sched_switch"), "{finding:?}");
    }

    #[test]
    fn little_is_not_told() {
        let mut recording = pool(200, &[(Part::Code, 96 * MS), (Part::Wake, 4 * MS)]);
        let taker = CpuTaker { name: "redis-server".into(), ns: 790 * MS, ..CpuTaker::default() };
        of(&mut recording).takers = vec![taker];
        assert_quiet(judge, &recording);
        // The same of a quota is.
        throttle(&mut recording);
        assert!(matches!(ask(judge, &recording), Verdict::Found(_)));
    }
}
