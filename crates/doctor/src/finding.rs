//! A drag that was found, with all that is known of it.

use crate::{Rule, Statement, Value};

/// A drag: what costs time or memory, why, what it is not, and what takes it away.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Which rule found it.
    pub rule: &'static Rule,
    /// The cause among those that the rule tells apart, a key for programs: `cpu_quota`.
    pub cause: &'static str,
    /// The same for people, with what names it: `the CPU quota of the workers' control group holds them back`.
    pub headline: Statement,
    /// What it costs, if that was measured.
    pub cost: Option<Cost>,
    /// What shows it.
    pub evidence: Vec<Statement>,
    /// What it is not, and by which number.
    pub ruled_out: Vec<Statement>,
    /// What takes it away; several are alternatives, the simplest first.
    pub fixes: Vec<Statement>,
    /// What that saves, if the data can tell.
    pub gain: Option<Gain>,
    /// How certain the cause is.
    pub confidence: Confidence,
}

/// What a drag costs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cost {
    /// How much: of time on average for each [`Unit`](crate::Unit) of the sheet, of memory all together.
    pub value: Value,
    /// Its share of that unit's time, or of the memory, in tenths of a per cent.
    pub tenths: Option<u64>,
}

/// What is saved when a drag is gone, for each unit as [`Cost::value`] and between two bounds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gain {
    /// At least.
    pub low: Value,
    /// At most.
    pub high: Value,
    /// What that is concluded from.
    pub basis: Statement,
}

/// How certain a cause is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Confidence {
    /// It fits, and other causes fit as well.
    Low,
    /// It fits best, and what would prove it was not seen.
    Medium,
    /// It was measured itself, and the others were ruled out.
    High,
}

impl Confidence {
    /// In a word.
    pub fn name(self) -> &'static str {
        match self {
            Self::Low => "low",
            Self::Medium => "medium",
            Self::High => "high",
        }
    }
}

/// What a rule says of a recording.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// These.
    Found(Vec<Finding>),
    /// It looked and there is nothing to say: why.
    Quiet(Statement),
    /// It cannot tell: what is missing, and how to get it.
    TooLittle(Statement),
    /// It is not of such targets: why.
    NotOf(Statement),
}

impl Finding {
    /// Its cost in time, nanoseconds for each unit; 0 if that is not what it costs.
    pub fn ns(&self) -> u64 {
        match self.cost {
            Some(Cost { value: Value::Ns(ns), .. }) => ns,
            _ => 0,
        }
    }

    /// All of its sentences.
    pub fn statements(&self) -> impl Iterator<Item = &Statement> {
        let lists = [&self.evidence, &self.ruled_out, &self.fixes];
        let basis = self.gain.iter().map(|gain| &gain.basis);
        std::iter::once(&self.headline).chain(lists.into_iter().flatten()).chain(basis)
    }
}
