//! One rule each: what it looks at, from which number on it speaks, and what it rules out.

mod boot;
mod connections;
mod event_loop;
pub(crate) mod facts;
mod gil;
mod memory;
mod nagle;
mod queue;
mod repeated;
mod wake;

use crate::case::Case;
use crate::{
    BOOT001, CONN002, GIL005, LOOP007, MEM004, NAGLE009, NPLUS008, QUEUE010, Rule, Verdict, WAKE003,
};

/// What all rules say of a recording.
pub(crate) fn judge(case: &Case<'_>) -> Vec<(&'static Rule, Verdict)> {
    vec![
        (&BOOT001, boot::judge(case)),
        (&CONN002, connections::judge(case)),
        (&WAKE003, wake::judge(case)),
        (&MEM004, memory::judge(case)),
        (&GIL005, gil::judge(case)),
        (&LOOP007, event_loop::judge(case)),
        (&NPLUS008, repeated::judge(case)),
        (&NAGLE009, nagle::judge(case)),
        (&QUEUE010, queue::judge(case)),
    ]
}
