//! What rules have in common that need PHP's own word.

use slip_model::{Facts, Language, PhpAnswer, Recording};

use crate::{Confidence, Finding, Rule, Statement, Value, Verdict};

/// What PHP said; else why there is nothing to say.
pub(super) fn answer(recording: &Recording) -> Result<&PhpAnswer, Verdict> {
    if let Some(answer) = recording.facts.as_ref().and_then(|facts| facts.php.as_ref()) {
        return Ok(answer);
    }
    let is_php = |process: &slip_model::Process| process.language == Language::Php;
    Err(if recording.processes.iter().any(is_php) {
        Verdict::TooLittle(Statement::new("only PHP can tell: ask it, with one request, by `--ask`"))
    } else {
        Verdict::NotOf(Statement::new("no process runs PHP"))
    })
}

/// What was found of workers' memory, with one worker at least; else why there is nothing to say.
pub(super) fn looked_at(recording: &Recording) -> Result<&Facts, Verdict> {
    let Some(facts) = &recording.facts else {
        return Err(Verdict::TooLittle(Statement::new("the workers' memory was not looked at")));
    };
    if !facts.workers.is_empty() {
        return Ok(facts);
    }
    // Commands end before anybody can look.
    let none_is_left = recording.processes.iter().all(|process| process.ended_ns > 0);
    Err(if none_is_left {
        Verdict::NotOf(Statement::new("no process was there any more when the watch ended"))
    } else {
        Verdict::TooLittle(Statement::new("no worker's memory may be looked at"))
    })
}

/// That something could not be asked; `None` if all of `about` was.
pub(super) fn unanswered(answer: &PhpAnswer, about: &str) -> Option<Verdict> {
    let why = answer.unanswered.iter().find(|why| why.contains(about))?;
    let statement = Statement::new("PHP could not be asked: {why}").with("why", Value::Name(why.clone()));
    Some(Verdict::TooLittle(statement))
}

/// A finding of a setting: what it costs is not known until it is changed.
pub(super) fn setting(
    rule: &'static Rule,
    cause: &'static str,
    headline: Statement,
    confidence: Confidence,
) -> Finding {
    Finding {
        rule,
        cause,
        headline,
        cost: None,
        evidence: Vec::new(),
        ruled_out: Vec::new(),
        fixes: Vec::new(),
        gain: None,
        confidence,
    }
}

impl Finding {
    /// The same with more evidence.
    pub(super) fn shown(mut self, evidence: impl IntoIterator<Item = Statement>) -> Self {
        self.evidence.extend(evidence);
        self
    }

    /// The same with something more that it is not.
    pub(super) fn not(mut self, ruled_out: Statement) -> Self {
        self.ruled_out.push(ruled_out);
        self
    }

    /// The same with another way to take it away.
    pub(super) fn fixed(mut self, by: Statement) -> Self {
        self.fixes.push(by);
        self
    }
}

/// Those that there are, or what is said if there are none.
pub(super) fn found_or(found: Vec<Finding>, quiet: Statement) -> Verdict {
    if found.is_empty() { Verdict::Quiet(quiet) } else { Verdict::Found(found) }
}

#[cfg(test)]
pub(super) mod tests {
    use slip_model::Process;

    use super::*;

    /// A recording of PHP that was asked, with these settings, and the rest of its answer.
    pub(in crate::rules::facts) fn recording(settings: &[(&str, &str)], answer: PhpAnswer) -> Recording {
        let settings =
            settings.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let php = PhpAnswer { settings, ..answer };
        let process = Process { pid: 7, language: Language::Php, ..Process::default() };
        Recording {
            processes: vec![process],
            facts: Some(Facts { php: Some(php), ..Facts::default() }),
            ..Recording::default()
        }
    }

    /// What a rule found, cause by cause; all of its sentences are whole.
    pub(in crate::rules::facts) fn causes(verdict: &Verdict) -> Vec<&'static str> {
        match verdict {
            Verdict::Found(found) => {
                for finding in found {
                    assert!(finding.statements().all(Statement::is_whole), "{finding:?}");
                    assert!(!finding.evidence.is_empty() && !finding.fixes.is_empty(), "{finding:?}");
                }
                found.iter().map(|finding| finding.cause).collect()
            }
            Verdict::Quiet(why) | Verdict::TooLittle(why) | Verdict::NotOf(why) => {
                assert!(why.is_whole(), "{why:?}");
                Vec::new()
            }
        }
    }

    #[test]
    fn who_was_not_asked_said_nothing() {
        let php = Process { language: Language::Php, ..Process::default() };
        let recording = Recording { processes: vec![php], ..Recording::default() };
        assert!(matches!(answer(&recording), Err(Verdict::TooLittle(_))));
        assert!(matches!(answer(&Recording::default()), Err(Verdict::NotOf(_))));
    }
}
