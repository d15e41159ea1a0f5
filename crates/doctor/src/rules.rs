//! One rule each: what it looks at, from which number on it speaks, and what it rules out.

mod wake;

use crate::case::Case;
use crate::{Rule, Verdict, WAKE003};

/// What all rules say of a recording.
pub(crate) fn judge(case: &Case<'_>) -> Vec<(&'static Rule, Verdict)> {
    vec![(&WAKE003, wake::judge(case))]
}
