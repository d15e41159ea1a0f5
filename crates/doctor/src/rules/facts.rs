//! Rules of what is found beside times: memory, the machine's settings, and what PHP says of itself. They need no requests.

mod asked;
mod cow;
mod huge_pages;
mod jit;
mod memory;
mod opcache;
mod persistent;
mod preload;
mod realpath;

use slip_model::Recording;

use crate::{CFG011, CFG012, CFG013, CFG014, CFG015, CFG016, CFG017, CFG018, CFG019, COW006, Rule, Verdict};

/// What these rules say of a recording.
pub(crate) fn judge(recording: &Recording) -> Vec<(&'static Rule, Verdict)> {
    vec![
        (&COW006, cow::judge(recording)),
        (&CFG011, opcache::judge_use(recording)),
        (&CFG012, opcache::judge_room(recording)),
        (&CFG013, jit::judge(recording)),
        (&CFG014, preload::judge(recording)),
        (&CFG015, realpath::judge(recording)),
        (&CFG016, persistent::judge(recording)),
        (&CFG017, huge_pages::judge(recording)),
        (&CFG018, memory::judge_swap(recording)),
        (&CFG019, memory::judge_limit(recording)),
    ]
}
