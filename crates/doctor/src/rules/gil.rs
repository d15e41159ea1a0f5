//! GIL005: waiting for the global interpreter lock.

use slip_model::{Language, State};

use crate::case::Case;
use crate::sites::Sites;
use crate::{Confidence, Cost, Finding, GIL005, Line, Statement, Value, Verdict};

/// Less of a unit, in tenths of a per cent, is not told.
const MIN_TENTHS: u64 = 30;

/// Fewer samples name nobody.
const MIN_SAMPLES: u64 = 20;

pub(super) fn judge(case: &Case<'_>) -> Verdict {
    let is_python = case.recording.processes.iter().any(|process| process.language == Language::Python);
    if !is_python {
        return Verdict::NotOf(Statement::new("only CPython has such a lock"));
    }
    let ns = case.line_ns(Line::Gil);
    let share = case.tenths(ns);
    let of_lock = |text| {
        Statement::new(text).by("futex").with("time", Value::Ns(ns)).with("share", Value::Tenths(share))
    };
    if share < MIN_TENTHS {
        return Verdict::Quiet(of_lock("{time}, {share}"));
    }
    let mut evidence = vec![of_lock(if case.table.is_by_looks() {
        "{time}, {share}, blocked by the lock, as far as looks at /proc tell"
    } else {
        "{time}, {share}, blocked by the lock, all of it measured"
    })];
    // Who holds it is read from outside alone; the kernel's sampler knows who ran.
    let holders = Sites::of(case.recording, |look| look.sample.state.has(State::HAS_GIL));
    let runners = Sites::of(case.recording, |look| look.is_on_cpu());
    let is_known = holders.count >= MIN_SAMPLES;
    if is_known {
        evidence
            .extend(holders.statements(case.recording, "{function} held it in {share} of {samples} samples"));
        evidence.extend(holders.of_threads(case.recording, "thread {thread} in {share} of these"));
    } else if runners.count >= MIN_SAMPLES {
        let text =
            "{function} ran in {share} of {samples} samples on a CPU: who runs code of Python holds the lock";
        evidence.extend(runners.statements(case.recording, text));
        evidence.extend(runners.of_threads(case.recording, "thread {thread} in {share} of these"));
    }
    let lock_ns = case.line_ns(Line::Lock);
    let ruled_out = vec![
        Statement::new("locks of the program: {time}, and not in this")
            .by("futex")
            .with("time", Value::Ns(lock_ns)),
        Statement::new("no CPU: ready to run for {time}")
            .by(case.scheduler())
            .with("time", Value::Ns(case.line_ns(Line::Wake))),
    ];
    let confidence = if is_known { Confidence::High } else { Confidence::Medium };
    Verdict::Found(vec![Finding {
        rule: &GIL005,
        cause: if is_known || runners.count >= MIN_SAMPLES { "other_thread" } else { "unknown_holder" },
        headline: Statement::new("threads wait for each other's global interpreter lock"),
        cost: Some(Cost { value: Value::Ns(ns), tenths: Some(share) }),
        evidence,
        ruled_out,
        fixes: vec![
            Statement::new(
                "what computes into a process of its own (ProcessPoolExecutor, a task queue), or more worker processes with fewer threads each",
            ),
            Statement::new("who holds it, by thread and function: `slip record --mode gil`"),
        ],
        gain: None,
        confidence,
    }])
}

#[cfg(test)]
mod tests {
    use slip_model::{Frame, FrameKind, Part, Recording, Sample, SampleBlock, Thread, ThreadId};

    use super::*;
    use crate::support::{ask, assert_quiet, found, pool};

    const MS: u64 = 1_000_000;

    fn python(parts: &[(Part, u64)]) -> Recording {
        let mut recording = pool(200, parts);
        recording.processes[0].language = Language::Python;
        recording
    }

    fn sample(recording: &mut Recording, count: u64, function: &str, state: State) {
        let name = recording.interner.string(function);
        let frame = recording.interner.frame(Frame { kind: FrameKind::Python, name, ..Frame::default() });
        let stack = recording.interner.stack(&[frame]);
        let name = recording.interner.string("beside");
        let id = ThreadId(u32::try_from(recording.threads.len()).unwrap());
        recording.threads.push(Thread { id, tid: 17, name, ..Thread::default() });
        let mut block = SampleBlock::default();
        (0..count).for_each(|_| block.push(Sample { thread: id, stack, state, ..Sample::default() }));
        recording.blocks.push(block);
    }

    #[test]
    fn the_lock_is_told_and_its_holder_only_if_somebody_saw_it() {
        let mut recording = python(&[(Part::Code, 10 * MS), (Part::Gil, 10 * MS)]);
        let finding = found(judge, &recording);
        assert_eq!((finding.cause, finding.ns(), finding.evidence.len()), ("unknown_holder", 10 * MS, 1));
        sample(&mut recording, 30, "resize", State::ON_CPU);
        let finding = found(judge, &recording);
        assert_eq!((finding.cause, finding.confidence), ("other_thread", Confidence::Medium));
        assert_eq!(finding.evidence[1].value("function"), Some(&Value::Name("resize".into())));
        assert_eq!(finding.evidence[2].value("thread"), Some(&Value::Name("beside (17)".into())));
        sample(&mut recording, 40, "encode", State::ON_CPU.with(State::HAS_GIL));
        let finding = found(judge, &recording);
        assert_eq!(finding.confidence, Confidence::High);
        assert_eq!(finding.evidence[1].value("function"), Some(&Value::Name("encode".into())));
    }

    #[test]
    fn another_lock_is_none_of_it() {
        assert_quiet(judge, &python(&[(Part::Code, 10 * MS), (Part::Lock, 10 * MS)]));
        let php = pool(200, &[(Part::Code, 10 * MS), (Part::Lock, 10 * MS)]);
        assert!(matches!(ask(judge, &php), Verdict::NotOf(_)));
    }
}
