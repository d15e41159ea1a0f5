//! LOOP007: an event loop that is busy while data waits.

use slip_model::WaitReason;

use crate::case::Case;
use crate::sites::Sites;
use crate::workers::total;
use crate::{Confidence, Cost, Finding, Gain, LOOP007, Line, Statement, Unit, Value, Verdict, tenths};

/// Less of the time in which loops served requests, in tenths of a per cent, is not told: some code has to run between two reads.
const MIN_TENTHS: u64 = 20;

pub(super) fn judge(case: &Case<'_>) -> Verdict {
    let blocked_ns = case.table.time.loop_blocked_ns;
    let loops =
        case.budget.workers.iter().filter(|worker| worker.shared_ns > 0 || worker.loop_blocked_ns > 0);
    let loops: Vec<_> = loops.collect();
    if case.table.is_by_looks() {
        return Verdict::TooLittle(Statement::new(
            "when data comes is not seen by looks at /proc; as root the kernel may tell",
        ));
    }
    if case.unit != Unit::Request || loops.is_empty() {
        return Verdict::NotOf(
            Statement::new("no worker is an event loop with a request open").by("epoll_wait"),
        );
    }
    let serving_ns: u128 = loops
        .iter()
        .map(|worker| total(&worker.serving) + total(&worker.after) + total(&worker.between))
        .sum();
    let share = tenths(blocked_ns, serving_ns);
    let ns = case.each(blocked_ns);
    let of_loop = |text| {
        Statement::new(text)
            .by("sk_data_ready")
            .with("time", Value::Ns(ns))
            .with("share", Value::Tenths(share))
    };
    if share < MIN_TENTHS {
        return Verdict::Quiet(of_loop(
            "data waited for {time} for each request, {share} of the time in which the loop was busy",
        ));
    }
    // What the loop does while it does not wait for data.
    let lines = [
        (Line::Code, "computes", "code that computes"),
        (Line::Sleep, "sleeps", "code that sleeps"),
        (Line::Disk, "disk", "a file system or a disk"),
        (Line::Lock, "lock", "a lock"),
        (Line::Wait, "server", "a server that is waited for without await"),
    ];
    let with_ns = lines.map(|(line, cause, what)| {
        let parts = loops.iter().flat_map(|worker| {
            slip_model::Part::ALL
                .into_iter()
                .filter(|part| Line::of(*part) == line)
                .map(|part| u128::from(worker.serving.of(part)))
        });
        (parts.sum::<u128>(), cause, what)
    });
    // A server that is waited for with await is waited for with everything else, and blocks nobody.
    let is_candidate = |at: usize| at != 4;
    let (longest_ns, cause, what) = with_ns
        .iter()
        .enumerate()
        .filter(|(at, _)| is_candidate(*at))
        .map(|(_, row)| *row)
        .max_by_key(|(ns, ..)| *ns)
        .unwrap_or((0, "computes", "code that computes"));
    let mut evidence = vec![
        of_loop(
            "data had come and waited to be read for {time} for each request, {share} of the time in which the loop was busy",
        ),
        Statement::new("the loop's own time for each request has {time} of {what}")
            .by("sched_switch")
            .with("time", Value::Ns(case.each(longest_ns)))
            .with("what", Value::Word(what)),
    ];
    let sites = Sites::of(case.recording, |look| match (cause, look.reason) {
        ("computes", None) => look.is_on_cpu(),
        ("sleeps", Some(reason)) => reason == WaitReason::Sleep,
        ("disk", Some(reason)) => reason == WaitReason::File,
        ("lock", Some(reason)) => reason == WaitReason::Lock,
        _ => false,
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
        confidence: if 2 * longest_ns >= blocked_ns { Confidence::High } else { Confidence::Medium },
    }])
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
    fn a_loop_that_reads_what_comes_is_fine_and_others_have_none() {
        assert_quiet(judge, &event_loop(&[(Part::Code, 2 * MS), (Part::Sleep, 10 * MS)], 10_000));
        let verdict = ask(judge, &pool(200, &[(Part::Sleep, 10 * MS)]));
        assert!(matches!(verdict, Verdict::NotOf(_)), "{verdict:?}");
    }
}
