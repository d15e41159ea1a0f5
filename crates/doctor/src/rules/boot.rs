//! BOOT001: the same boot in every request. The interpreter's part is measured, the application's estimated by samples.

use slip_model::{Language, Trial};

use crate::boot::BootSamples;
use crate::case::{Case, cut};
use crate::{BOOT001, Confidence, Cost, Finding, Gain, Line, Statement, Unit, Value, Verdict};

/// Less of a request, in tenths of a per cent, is not told: restoring a booted state costs some itself.
const MIN_TENTHS: u64 = 50;

/// Nor is less than so much, however short the request: PHP alone begins one in 50 to 100 us, which nothing takes away.
const MIN_NS: u64 = 500_000;

pub(super) fn judge(case: &Case<'_>) -> Verdict {
    let is_php = case.recording.processes.iter().any(|process| process.language == Language::Php);
    if !is_php || case.unit != Unit::Request {
        return Verdict::NotOf(Statement::new("PHP alone begins each request from nothing"));
    }
    if !case.table.sees(Line::Boot) {
        return Verdict::TooLittle(Statement::new(
            "when requests begin is not seen by looks at /proc; as root the kernel may tell",
        ));
    }
    let measured_ns = case.line_ns(Line::Boot);
    let code_ns = case.line_ns(Line::Code);
    let samples = case.table.boot.as_ref();
    let share = samples.and_then(BootSamples::share);
    let of_code = |tenths: u64| cut(u128::from(code_ns) * u128::from(tenths) / 1_000);
    let [low_ns, ns, high_ns] = match share {
        Some((share, [low, high])) => {
            [low, share, high].map(|tenths| measured_ns.saturating_add(of_code(tenths)))
        }
        None => [measured_ns; 3],
    };
    let is_much = |ns: u64| case.tenths(ns) >= MIN_TENTHS && ns >= MIN_NS;
    let trial = case.recording.facts.as_ref().and_then(|facts| facts.trial.as_ref());
    // What a request does for the first time is not in the boot, and is restored as well if the image was made after one.
    let measured = trial.filter(|trial| trial.is_restored() && is_much(saved(trial.saved_low_ns)));
    if !is_much(low_ns) && measured.is_none() {
        return match samples {
            Some(samples) if share.is_none() => Verdict::TooLittle(
                Statement::new("{samples} samples of code in requests, and {enough} tell how much of it is the application's boot: watch for longer")
                    .by("samples")
                    .with("samples", Value::Count(samples.samples))
                    .with("enough", Value::Count(BootSamples::min_samples())),
            ),
            None => Verdict::Quiet(
                Statement::new("PHP's own start takes {boot}, {share}, and no boot of a framework that is known was seen")
                    .by("php_request_startup")
                    .with("boot", Value::Ns(measured_ns))
                    .with("share", Value::Tenths(case.tenths(measured_ns))),
            ),
            Some(_) => Verdict::Quiet(
                Statement::new("{boot}, {share}, estimated")
                    .by("samples")
                    .with("boot", Value::Ns(ns))
                    .with("share", Value::Tenths(case.tenths(ns))),
            ),
        };
    }
    let mut evidence = vec![
        Statement::new("PHP's own start, until the first line of the script, takes {time}")
            .by("php_request_startup")
            .with("time", Value::Ns(measured_ns)),
    ];
    if let (Some(samples), Some((share, [low, high]))) = (samples, share) {
        let framework = samples.frameworks.first().copied().unwrap_or("the application");
        evidence.push(
            Statement::new("{framework} boots in {share} of the code ({low} to {high} with 95 %), {time}: an estimate by {samples} samples")
                .by("samples")
                .with("framework", Value::Word(framework))
                .with("share", Value::Tenths(share))
                .with("low", Value::Tenths(low))
                .with("high", Value::Tenths(high))
                .with("time", Value::Ns(of_code(share)))
                .with("samples", Value::Count(samples.samples)),
        );
    }
    evidence.extend(trial.map(tried));
    let mut ruled_out = Vec::new();
    if let Some(engine) = case.table.engine {
        let share = crate::tenths(engine.engine.into(), engine.on_cpu.into());
        ruled_out.push(
            Statement::new("compiling scripts anew: start-up, compilation and shutdown together are {share} of {samples} samples on a CPU")
                .by("samples")
                .with("share", Value::Tenths(share))
                .with("samples", Value::Count(engine.on_cpu)),
        );
        // That much may be a cache that is off.
        if share >= 200 {
            ruled_out.clear();
        }
    }
    let ns = measured.map_or(ns, |trial| saved(trial.saved_ns));
    let is_of_application = share.is_some() || measured.is_some();
    Verdict::Found(vec![Finding {
        rule: &BOOT001,
        cause: if is_of_application { "application" } else { "interpreter" },
        headline: Statement::new("each request boots anew before it comes to its own work"),
        cost: Some(Cost { value: Value::Ns(ns), tenths: Some(case.tenths(ns)) }),
        evidence,
        ruled_out,
        fixes: vec![Statement::new(
            "the extension slipstream with snapshot_state() after the boot, or after one request of the usual kind, which mostly saves more: later requests begin with that state restored, on stock PHP and without a worker mode",
        )],
        gain: Some(trial.filter(|trial| trial.is_restored()).map_or_else(
            || Gain {
                low: Value::Ns(0),
                high: Value::Ns(high_ns),
                basis: Statement::new(
                    "no more than the boot itself; what restoring costs depends on the memory that a request changes, and a trial on one worker tells (`--trial`)",
                ),
            },
            gain_of,
        )),
        confidence: if measured.is_none() && is_of_application { Confidence::Medium } else { Confidence::High },
    }])
}

/// What came of the trial.
fn tried(trial: &Trial) -> Statement {
    let page = Value::Name(trial.page.clone());
    if trial.is_restored() {
        return Statement::new("{page}, tried on one worker of our own: {plain} with its boot, {restored} with the booted state restored ({pairs} pairs of requests)")
            .by("trial")
            .with("page", page)
            .with("plain", Value::Ns(trial.plain_ns))
            .with("restored", Value::Ns(trial.restored_ns))
            .with("pairs", Value::Count(trial.pairs));
    }
    let of = |reasons: &[(String, u64)]| reasons.first().map(|(reason, _)| Value::Name(reason.clone()));
    let count = |text| {
        Statement::new(text)
            .by("trial")
            .with("page", page.clone())
            .with("restores", Value::Count(trial.restores))
            .with("pairs", Value::Count(trial.pairs))
    };
    match of(if trial.snapshots > 0 { &trial.fallbacks } else { &trial.refusals }) {
        Some(reason) => count("{page}, tried on one worker of our own: restored in {restores} of {pairs} requests, because of: {reason}")
            .with("reason", reason),
        None => count("{page}, tried on one worker of our own: restored in {restores} of {pairs} requests; it has to call restore_state() and snapshot_state()"),
    }
}

fn saved(ns: i64) -> u64 {
    u64::try_from(ns).unwrap_or_default()
}

/// What the trial says of later requests.
fn gain_of(trial: &Trial) -> Gain {
    Gain {
        low: Value::Ns(saved(trial.saved_low_ns)),
        high: Value::Ns(saved(trial.saved_high_ns)),
        basis: Statement::new("a trial: by so much a request of {page} was shorter, the median of {pairs} pairs with its interval of 95 %")
            .with("page", Value::Name(trial.page.clone()))
            .with("pairs", Value::Count(trial.pairs)),
    }
}

#[cfg(test)]
mod tests {
    use slip_model::{Facts, Frame, FrameKind, Part, Recording, Sample, SampleBlock, State};

    use super::*;
    use crate::support::{ask, assert_quiet, found, of, pool};

    const MS: u64 = 1_000_000;

    /// Samples of code in the first requests, so many of them in the boot of WordPress.
    fn sample(recording: &mut Recording, boot: u64, others: u64) {
        for (count, file) in [(boot, "/www/wp-load.php"), (others, "/www/index.php")] {
            let interner = &mut recording.interner;
            let (name, file) = (interner.string("require_once"), interner.string(file));
            let frame = interner.frame(Frame { kind: FrameKind::Php, name, file, ..Frame::default() });
            let stack = interner.stack(&[frame]);
            let mut block = SampleBlock::default();
            let sample = Sample { time_ns: 2 * MS, stack, state: State::ON_CPU, ..Sample::default() };
            (0..count).for_each(|_| block.push(sample));
            recording.blocks.push(block);
        }
    }

    #[test]
    fn the_boot_of_an_application_is_told_as_an_estimate() {
        let mut recording = pool(200, &[(Part::Boot, MS), (Part::Code, 20 * MS)]);
        sample(&mut recording, 60, 60);
        let finding = found(judge, &recording);
        assert_eq!(
            (finding.cause, finding.ns(), finding.confidence),
            ("application", 11 * MS, Confidence::Medium)
        );
        assert!(finding.evidence[1].text.contains("an estimate"));
        let gain = finding.gain.unwrap();
        assert_eq!(gain.low, Value::Ns(0));
        assert!(matches!(gain.high, Value::Ns(ns) if ns > 11 * MS), "{gain:?}");
    }

    #[test]
    fn without_enough_samples_nothing_is_told_of_it() {
        let mut recording = pool(200, &[(Part::Code, 20 * MS)]);
        sample(&mut recording, 20, 20);
        assert!(matches!(ask(judge, &recording), Verdict::TooLittle(_)));
        sample(&mut recording, 0, 2_000);
        assert_quiet(judge, &recording);
        // Code that is not a boot, however long.
        let mut recording = pool(200, &[(Part::Code, 20 * MS)]);
        sample(&mut recording, 0, 200);
        assert_quiet(judge, &recording);
    }

    #[test]
    fn a_trial_tells_what_restoring_saves() {
        let ms = i64::try_from(MS).unwrap();
        let mut recording = pool(200, &[(Part::Boot, 5 * MS), (Part::Code, 10 * MS)]);
        let mut trial = Trial {
            page: "/cart".to_owned(),
            pairs: 100,
            restores: 100,
            snapshots: 1,
            plain_ns: 15 * MS,
            restored_ns: 11 * MS,
            saved_ns: 4 * ms,
            saved_low_ns: 3 * ms,
            saved_high_ns: 5 * ms,
            ..Trial::default()
        };
        let with = |recording: &mut Recording, trial: &Trial| {
            recording.facts = Some(Facts { trial: Some(trial.clone()), ..Facts::default() });
            found(judge, recording)
        };
        let finding = with(&mut recording, &trial);
        let gain = finding.gain.unwrap();
        assert_eq!((gain.low, gain.high), (Value::Ns(3 * MS), Value::Ns(5 * MS)));
        assert!(finding.evidence.iter().any(|statement| statement.text.contains("state restored")));
        // It may be longer for it.
        trial.saved_low_ns = -ms;
        assert_eq!(with(&mut recording, &trial).gain.unwrap().low, Value::Ns(0));
        // What was not restored says nothing of that.
        trial.restores = 3;
        trial.fallbacks = vec![("another script".to_owned(), 97)];
        let finding = with(&mut recording, &trial);
        assert_eq!(finding.gain.unwrap().low, Value::Ns(0));
        assert!(finding.evidence.iter().any(|statement| statement.text.contains("because of")));
    }

    #[test]
    fn a_trial_that_saves_more_than_the_boot_is_told_for_itself() {
        let mut recording = pool(200, &[(Part::Boot, MS / 10), (Part::Code, 10 * MS)]);
        sample(&mut recording, 1, 2_000);
        assert_quiet(judge, &recording);
        let mut trial = Trial {
            pairs: 100,
            restores: 100,
            saved_ns: 4_000_000,
            saved_low_ns: 3_000_000,
            ..Trial::default()
        };
        recording.facts = Some(Facts { trial: Some(trial.clone()), ..Facts::default() });
        let finding = found(judge, &recording);
        assert_eq!(
            (finding.cause, finding.ns(), finding.confidence),
            ("application", 4 * MS, Confidence::High)
        );
        trial.saved_low_ns = 100_000;
        recording.facts = Some(Facts { trial: Some(trial), ..Facts::default() });
        assert_quiet(judge, &recording);
    }

    #[test]
    fn what_does_not_boot_is_not_asked() {
        let recording = pool(200, &[(Part::Boot, MS / 10), (Part::Code, MS / 10)]);
        assert_quiet(judge, &recording);
        let mut recording = pool(200, &[(Part::Boot, 10 * MS), (Part::Code, MS)]);
        assert_eq!(found(judge, &recording).cause, "interpreter");
        of(&mut recording).rung = "proc".into();
        assert!(matches!(ask(judge, &recording), Verdict::TooLittle(_)));
        recording.processes[0].language = Language::Python;
        assert!(matches!(ask(judge, &recording), Verdict::NotOf(_)));
    }
}
