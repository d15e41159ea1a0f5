//! What was found beside times: by looks at workers' memory and at the machine, and by asking PHP itself.

use serde::{Deserialize, Serialize};

use crate::{PhpAnswer, Trial};

/// All that was found at the end of a watch.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Facts {
    /// The memory of workers, one each.
    pub workers: Vec<WorkerMemory>,
    /// Workers that were not looked at, because there were too many.
    pub left_out: u64,
    /// What the machine does with huge pages.
    pub huge_pages: HugePages,
    /// The control groups of the workers that limit memory, the innermost first.
    pub memory_groups: Vec<MemoryGroup>,
    /// What PHP said when it was asked; nothing unless the user wanted that.
    pub php: Option<PhpAnswer>,
    /// Connections that the extension kept during the watch, by server.
    pub kept: Vec<KeptConnections>,
    /// What restoring the booted state saved when that was tried; nothing unless the user wanted that.
    pub trial: Option<Trial>,
}

/// What became of connections that clients made to a server that `slipstream.keep` names, in all workers together.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct KeptConnections {
    /// As the setting has it: `redis://127.0.0.1:6379`.
    pub server: String,
    /// How often a client connected.
    pub asked: u64,
    /// How often it got a connection of before.
    pub reused: u64,
    /// Why others were not kept, and how often, the most frequent first.
    pub refused: Vec<(String, u64)>,
}

/// The memory of one worker, as the kernel counts it. All in bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct WorkerMemory {
    /// Process id as this host numbers it.
    pub pid: u32,
    /// What the process is called: an FPM pool's title, or program and script.
    pub title: String,
    /// What of its memory is there, whoever else has it, too.
    pub rss: u64,
    /// By how much the most that it ever had is more than what it had when it was seen first; `None` if nobody looked then.
    pub grown: Option<u64>,
    /// The same, each page divided by the number of processes that have it.
    pub pss: u64,
    /// What it alone has, and has written.
    pub private_dirty: u64,
    /// What others have as well.
    pub shared: u64,
    /// Memory of no file.
    pub anonymous: u64,
    /// What of that is in huge pages.
    pub anonymous_huge: u64,
    /// Pages of program code that are huge.
    pub code_huge: u64,
    /// What has been moved to the swap.
    pub swap: u64,
    /// Page faults since its start for which something was read, from a file or the swap; not bytes.
    pub major_faults: u64,
    /// Huge pages were asked for.
    pub wants_huge_pages: Option<HugePagesWish>,
    /// Huge pages are refused to it by `prctl(PR_SET_THP_DISABLE)`.
    pub refuses_huge_pages: bool,
    /// What it still has in common with the process that it was forked from; nothing if it was not forked, that process has
    /// ended, or the kernel does not show its pages.
    pub sharing: Option<Sharing>,
}

/// What asks for huge pages for a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HugePagesWish {
    /// `USE_ZEND_ALLOC_HUGE_PAGES=1`: PHP's memory.
    Zend,
    /// `glibc.malloc.hugetlb=1` in `GLIBC_TUNABLES`: that of `malloc`.
    Glibc,
    /// `madvise(MADV_HUGEPAGE)` for memory that is not code. It is all that shows what PHP-FPM does, whose title takes the place of its
    /// environment.
    Madvise,
}

/// What became of the private memory that a worker and the process it was forked from have at the same addresses.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Sharing {
    /// That process, as this host numbers it.
    pub parent: u32,
    /// Its private memory that is no longer what a file has, in bytes.
    pub parent_bytes: u64,
    /// By the kind of memory, all the same addresses once.
    pub kinds: Vec<SharedKind>,
}

impl Sharing {
    /// Memory that both have still in common, in bytes.
    pub fn shared_bytes(&self) -> u64 {
        self.sum(|kind| kind.shared)
    }

    /// Memory that was copied, in bytes.
    pub fn copied_bytes(&self) -> u64 {
        self.sum(|kind| kind.copied)
    }

    /// Memory that is the worker's own, in bytes.
    pub fn own_bytes(&self) -> u64 {
        self.sum(|kind| kind.own)
    }

    fn sum(&self, of: impl Fn(&SharedKind) -> u64) -> u64 {
        self.kinds.iter().fold(0, |sum, kind| sum.saturating_add(of(kind)))
    }
}

/// One kind of memory of a worker, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SharedKind {
    /// Which.
    pub kind: MemoryKind,
    /// Pages that are the parent's, too: neither has written to them since the fork.
    pub shared: u64,
    /// The parent has a page at this address, and it is another one: one of the two has written to it since the fork.
    pub copied: u64,
    /// The parent has none there: the worker came to have it after the fork.
    pub own: u64,
}

/// A kind of private memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MemoryKind {
    /// What grows by `brk`: small blocks of `malloc`.
    Heap,
    /// What was mapped without a file: arenas of an interpreter, and large blocks.
    Anonymous,
    /// What a program or library brings along to be written to.
    Data,
    /// The stack of the first thread.
    Stack,
}

impl MemoryKind {
    /// All.
    pub const ALL: [Self; 4] = [Self::Heap, Self::Anonymous, Self::Data, Self::Stack];
}

/// What the machine does with transparent huge pages.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct HugePages {
    /// `always`, `madvise` or `never`; empty if the kernel has none or does not tell.
    pub enabled: String,
}

/// A control group that limits memory. What it counts is that of the watch.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct MemoryGroup {
    /// Its folder among those of control groups.
    pub path: String,
    /// Memory in use, in bytes.
    pub current: u64,
    /// Beyond it, its processes are slowed down to give memory back; in bytes.
    pub high: Option<u64>,
    /// Beyond it, something is ended; in bytes.
    pub max: Option<u64>,
    /// How often `high` was exceeded in the watch.
    pub high_events: u64,
    /// How often `max` was about to be.
    pub max_events: u64,
    /// Processes that were ended for that.
    pub oom_kills: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_add_up_and_never_overflow() {
        let kind = |kind, shared, copied, own| SharedKind { kind, shared, copied, own };
        let kinds = vec![kind(MemoryKind::Heap, 1, 2, 4), kind(MemoryKind::Data, 8, 16, u64::MAX)];
        let sharing = Sharing { parent: 1, parent_bytes: 64, kinds };
        assert_eq!((sharing.shared_bytes(), sharing.copied_bytes(), sharing.own_bytes()), (9, 18, u64::MAX));
    }
}
