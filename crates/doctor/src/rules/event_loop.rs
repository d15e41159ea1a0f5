//! LOOP007: an event loop that is busy while data waits.

use slip_model::{Part, ThreadId, WaitReason, Worker};

use crate::case::{Case, each};
use crate::sites::Sites;
use crate::workers::total_of;
use crate::{Confidence, Cost, Finding, Gain, LOOP007, Line, Statement, Unit, Value, Verdict, tenths};

/// Less of a request, in tenths of a per cent, is not told: some code has to run between two reads.
const MIN_TENTHS: u64 = 50;

/// What holds a loop up.
struct Held {
    ns: u64,
    cause: &'static str,
    what: &'static str,
}

pub(super) fn judge(case: &Case<'_>) -> Verdict {
    if case.table.is_by_looks() {
        return Verdict::TooLittle(Statement::new(
            "when data comes is not seen by looks at /proc; as root the kernel may tell",
        ));
    }
    let is_loop = |worker: &Worker| worker.shared_ns > 0 || worker.loop_blocked_ns > 0;
    let loops: Vec<&Worker> = case.budget.workers.iter().filter(|worker| is_loop(worker)).collect();
    if case.unit != Unit::Request || loops.is_empty() {
        return Verdict::NotOf(
            Statement::new("no worker is an event loop with a request open").by("epoll_wait"),
        );
    }
    let blocked_ns = case.each(case.table.time.loop_blocked_ns);
    // Of who waits to be accepted the loop has no connection yet that data could come for.
    let queued = case
        .budget
        .requests
        .iter()
        .filter(|request| case.budget.workers.get(request.worker as usize).is_some_and(is_loop));
    let queued_ns =
        queued.map(|request| u128::from(request.begin_ns.saturating_sub(request.queued_ns))).sum::<u128>();
    let queued_ns = each(queued_ns, case.units);
    let ns = blocked_ns.max(queued_ns);
    let share = tenths(ns.into(), case.unit_ns.into());
    let of_loop = |text| {
        Statement::new(text)
            .by("sk_data_ready")
            .with("time", Value::Ns(ns))
            .with("share", Value::Tenths(share))
    };
    if share < MIN_TENTHS {
        return Verdict::Quiet(of_loop("{time} of a request, {share}, until the loop reads what has come"));
    }
    let wake_ns = case.line_ns(Line::Wake);
    if wake_ns >= ns / 2 {
        return Verdict::Quiet(
            of_loop("{time} of a request, {share}, until the loop reads what has come; but it had no CPU for {wake} of each")
                .with("wake", Value::Ns(wake_ns)),
        );
    }
    let Held { ns: longest_ns, cause, what } = held(case, &loops);
    let mut evidence = vec![
        of_loop("{time} of a request, {share}, until the loop reads what has come"),
        Statement::new("meanwhile it was busy: for each request it has {time} of {what}")
            .by("sched_switch")
            .with("time", Value::Ns(longest_ns))
            .with("what", Value::Word(what)),
    ];
    let sites = Sites::of(case.recording, |look| {
        is_of(case, &loops, look.sample.thread)
            && match (cause, look.reason) {
                ("computes", None) => look.is_on_cpu(),
                ("sleeps", Some(reason)) => reason == WaitReason::Sleep,
                ("disk", Some(reason)) => reason == WaitReason::File,
                ("lock", Some(reason)) => reason == WaitReason::Lock,
                ("server", Some(reason)) => reason == WaitReason::Socket,
                _ => false,
            }
    });
    evidence.extend(
        sites.statements(case.recording, "{function}: {share} of that, by {samples} samples and waits"),
    );
    let moves = cause != "computes";
    Verdict::Found(vec![Finding {
        rule: &LOOP007,
        cause,
        headline: Statement::new("the event loop is held up by {what}").with("what", Value::Word(what)),
        cost: Some(Cost { value: Value::Ns(ns), tenths: Some(share) }),
        evidence,
        ruled_out: vec![
            Statement::new("slow clients and servers: time in which the loop waits for all of them is not in this").by("epoll_wait"),
            Statement::new("no CPU for the loop: {time} for each request").by("sched_switch").with("time", Value::Ns(case.line_ns(Line::Wake))),
        ],
        fixes: if moves {
            vec![Statement::new("await it: asyncio.sleep, an asyncio client; or in a thread: asyncio.to_thread, run_in_executor")]
        } else {
            vec![Statement::new("cut it into pieces with await between them, or another process (ProcessPoolExecutor, more workers): in a thread it would hold the global interpreter lock")]
        },
        gain: moves.then(|| Gain {
            low: Value::Ns(0),
            high: Value::Ns(ns),
            basis: Statement::new("the time in which data waited, counted once however many connections waited; less what still computes"),
        }),
        confidence: if longest_ns >= ns / 2 && longest_ns > 0 { Confidence::High } else { Confidence::Medium },
    }])
}

/// What loops are busy with most. Waiting with `await` is in the line of sleep as well; only waits tell that apart.
fn held(case: &Case<'_>, loops: &[&Worker]) -> Held {
    let code =
        loops.iter().map(|worker| total_of(&worker.serving, &[Part::Code, Part::Memory])).sum::<u128>();
    let waited = |reason| {
        let waits = case.recording.waits.iter();
        let waits = waits.filter(|wait| wait.reason == reason && is_of(case, loops, wait.thread));
        waits.map(|wait| u128::from(wait.total_ns)).sum::<u128>()
    };
    let all = [
        (code, "computes", "code that computes"),
        (waited(WaitReason::Sleep), "sleeps", "code that sleeps"),
        (waited(WaitReason::File), "disk", "a file system or a disk"),
        (waited(WaitReason::Lock), "lock", "a lock"),
        (waited(WaitReason::Socket), "server", "a socket that is waited for without await"),
    ];
    let (ns, cause, what) = all.into_iter().max_by_key(|(ns, ..)| *ns).unwrap_or_default();
    Held { ns: case.each(ns), cause, what }
}

/// Whether a loop runs in this thread: others of its process wait for work of their own.
fn is_of(case: &Case<'_>, loops: &[&Worker], thread: ThreadId) -> bool {
    let tid = case.recording.threads.get(thread.index()).map(|thread| thread.tid);
    loops.iter().any(|worker| Some(worker.tid) == tid)
}

#[cfg(test)]
mod tests {
    use slip_model::{Part, Recording, State, Wait};

    use super::*;
    use crate::support::{ask, assert_quiet, found, of, pool};

    const MS: u64 = 1_000_000;

    /// A loop in which data waits for so long in each of 200 requests.
    fn event_loop(parts: &[(Part, u64)], blocked_ns: u64) -> Recording {
        let mut recording = pool(200, parts);
        of(&mut recording).workers[0].loop_blocked_ns = 200 * blocked_ns;
        of(&mut recording).workers[0].shared_ns = 1;
        recording
    }

    #[test]
    fn what_holds_a_loop_up_is_told() {
        let mut recording = event_loop(&[(Part::Code, 2 * MS), (Part::Sleep, 10 * MS)], 8 * MS);
        let name = recording.interner.string("nap");
        let frame = recording.interner.frame(slip_model::Frame { name, ..slip_model::Frame::default() });
        let stack = recording.interner.stack(&[frame]);
        let wait = Wait {
            stack,
            state: State::default(),
            reason: WaitReason::Sleep,
            count: 200,
            total_ns: 2_000 * MS,
            ..Wait::default()
        };
        recording.waits.push(wait);
        let finding = found(judge, &recording);
        assert_eq!((finding.cause, finding.ns(), finding.confidence), ("sleeps", 8 * MS, Confidence::High));
        assert_eq!(finding.evidence[2].value("function"), Some(&Value::Name("nap".into())));
        let finding = found(judge, &event_loop(&[(Part::Code, 10 * MS), (Part::Sleep, MS)], 8 * MS));
        assert_eq!((finding.cause, finding.gain), ("computes", None));
    }

    #[test]
    fn who_waits_to_be_accepted_waits_too() {
        let mut recording = event_loop(&[(Part::Code, 10 * MS)], 0);
        for request in &mut of(&mut recording).requests {
            request.queued_ns = request.begin_ns.saturating_sub(20 * MS);
        }
        let finding = found(judge, &recording);
        assert!((19 * MS..=20 * MS).contains(&finding.ns()), "{finding:?}");
        // But not for a loop that has no CPU.
        let mut recording = event_loop(&[(Part::Code, MS), (Part::Wake, 10 * MS)], 0);
        for request in &mut of(&mut recording).requests {
            request.queued_ns = request.begin_ns.saturating_sub(10 * MS);
        }
        assert_quiet(judge, &recording);
    }

    #[test]
    fn a_loop_that_reads_what_comes_is_fine_and_others_have_none() {
        assert_quiet(judge, &event_loop(&[(Part::Code, 2 * MS), (Part::Sleep, 10 * MS)], 10_000));
        let verdict = ask(judge, &pool(200, &[(Part::Sleep, 10 * MS)]));
        assert!(matches!(verdict, Verdict::NotOf(_)), "{verdict:?}");
    }
}
