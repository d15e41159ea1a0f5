//! What is found beside times at the end of a watch: the memory of workers, and what the machine does with memory. Nothing is stopped
//! and nothing is written to.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::os::unix::fs::MetadataExt as _;

use slip_model::{
    Facts, HugePages, HugePagesWish, KeptConnections, MemoryKind, Process, SharedKind, Sharing, WorkerMemory,
};
use slip_probe::MemoryGroups;
use slip_remote::{
    CountedMapping, PageMap, SharedPages, counted_mappings, environment_value, memory_counts, process_stat,
    status_value,
};

use crate::kept::{KEPT_REASONS, KeptServer, kept_connections};

/// Most workers that are looked at.
const MAX_WORKERS: usize = 64;

/// Addresses that are compared in all of a look at most, in bytes: 64 GiB, the entries of which take 128 MiB to read.
const MAX_COMPARED_BYTES: u64 = 64 << 30;

/// Keeps what is to be known from the begin on.
#[derive(Debug, Default)]
pub(crate) struct FactsKeeper {
    groups: MemoryGroups,
    /// By pid, what it was when it was seen first.
    first: HashMap<u32, First>,
}

/// What a process was like when it was seen first.
#[derive(Clone, Debug, Default)]
struct First {
    /// So many page faults had read something.
    major_faults: u64,
    /// So much memory it had.
    rss: Option<u64>,
    /// What had become of the connections that it kept.
    kept: Vec<KeptServer>,
}

impl FactsKeeper {
    /// Notes that this process belongs to the target, from now on.
    pub(crate) fn add(&mut self, pid: u32) {
        self.groups.add(pid);
        if let Some(stat) = process_stat(pid) {
            let (rss, kept) = (status_bytes(pid, "VmRSS"), kept_by(pid));
            self.first.insert(pid, First { major_faults: stat.major_faults, rss, kept });
        }
    }

    /// Looks at the processes that run.
    pub(crate) fn collect(&self, pids: &[u32], known: &[Process]) -> Facts {
        let title = |pid: u32| {
            let process = known.iter().rev().find(|process| process.pid == pid);
            process.map(|process| process.title.clone()).unwrap_or_default()
        };
        let mut workers: Vec<(u32, String)> = pids.iter().map(|pid| (*pid, title(*pid))).collect();
        workers.retain(|(_, title)| !title.contains("master process"));
        let left_out = workers.len().saturating_sub(MAX_WORKERS) as u64;
        workers.truncate(MAX_WORKERS);
        let mut look = Look { parents: BTreeMap::new(), left_bytes: MAX_COMPARED_BYTES };
        Facts {
            workers: workers
                .into_iter()
                .filter_map(|(pid, title)| self.worker(pid, title, &mut look))
                .collect(),
            left_out,
            huge_pages: HugePages { enabled: enabled_huge_pages() },
            memory_groups: self.groups.so_far(),
            php: None,
            kept: self.kept(pids),
            trial: None,
        }
    }

    /// What became of connections since their workers were seen first.
    fn kept(&self, pids: &[u32]) -> Vec<KeptConnections> {
        let mut sums: BTreeMap<String, KeptServer> = BTreeMap::new();
        for pid in pids {
            let first = self.first.get(pid).map_or(&[][..], |first| &first.kept);
            for server in kept_by(*pid) {
                let before =
                    first.iter().find(|before| before.name == server.name).cloned().unwrap_or_default();
                sums.entry(server.name.clone()).or_default().add(&server.since(&before));
            }
        }
        let list = |(server, counts): (String, KeptServer)| {
            let reasons = KEPT_REASONS.iter().zip(counts.refused).filter(|(_, count)| *count > 0);
            let mut refused: Vec<(String, u64)> =
                reasons.map(|(reason, count)| ((*reason).to_owned(), count)).collect();
            refused.sort_by(|(_, one), (_, other)| other.cmp(one));
            KeptConnections { server, asked: counts.asked, reused: counts.reused, refused }
        };
        sums.into_iter().map(list).collect()
    }

    /// The memory of a process; `None` if it has ended, or may not be read.
    fn worker(&self, pid: u32, title: String, look: &mut Look) -> Option<WorkerMemory> {
        let stat = process_stat(pid)?;
        let first = self.first.get(&pid).cloned().unwrap_or_default();
        let mappings = counted_mappings(pid).ok()?;
        let all = memory_counts(pid).unwrap_or_else(|_| sum(&mappings));
        let parent = stat.is_fork.then_some(stat.parent).filter(|parent| same_program(pid, *parent));
        let code = mappings.iter().filter(|counted| counted.mapping.executable);
        let code_huge =
            code.map(|counted| counted.counts.anonymous_huge.saturating_add(counted.counts.file_huge));
        Some(WorkerMemory {
            pid,
            title,
            rss: all.rss,
            grown: first.rss.and_then(|rss| Some(status_bytes(pid, "VmHWM")?.saturating_sub(rss))),
            pss: all.pss,
            private_dirty: all.private_dirty,
            shared: all.shared,
            anonymous: all.anonymous,
            anonymous_huge: all.anonymous_huge,
            code_huge: code_huge.fold(0, u64::saturating_add),
            swap: all.swap,
            major_faults: stat.major_faults.saturating_sub(first.major_faults),
            wants_huge_pages: huge_pages_wish(pid)
                .or_else(|| huge_pages_wish(parent?))
                .or_else(|| mappings.iter().any(asks_for_huge_pages).then_some(HugePagesWish::Madvise)),
            refuses_huge_pages: status_value(pid, "THP_enabled").is_some_and(|value| value == "0"),
            sharing: parent.and_then(|parent| look.sharing(pid, parent, &mappings)),
        })
    }
}

/// What the extension counts in this process; nothing if there is none, or it may not be read.
fn kept_by(pid: u32) -> Vec<KeptServer> {
    kept_connections(pid).ok().flatten().unwrap_or_default()
}

/// An amount of memory among the lines of `/proc/PID/status`.
fn status_bytes(pid: u32, key: &str) -> Option<u64> {
    let kib: u64 = status_value(pid, key)?.strip_suffix(" kB")?.parse().ok()?;
    kib.checked_mul(1_024)
}

/// One look at all workers.
struct Look {
    /// Processes that others were forked from: their pages, and their anonymous memory in bytes.
    parents: BTreeMap<u32, Option<(PageMap, u64)>>,
    /// What may still be compared.
    left_bytes: u64,
}

impl Look {
    /// What `pid` still has in common with its parent.
    fn sharing(&mut self, pid: u32, parent: u32, mappings: &[CountedMapping]) -> Option<Sharing> {
        let opened = self.parents.entry(parent).or_insert_with(|| {
            let all =
                memory_counts(parent).or_else(|_| counted_mappings(parent).map(|all| sum(&all))).ok()?;
            Some((PageMap::open(parent).ok()?, all.anonymous))
        });
        let (parent_pages, parent_bytes) = opened.as_ref()?;
        let pages = PageMap::open(pid).ok()?;
        let mut kinds: BTreeMap<MemoryKind, SharedPages> = BTreeMap::new();
        for CountedMapping { mapping, counts, .. } in mappings {
            // Most mappings of files have nothing that was written to, and what is reserved is not there.
            let Some(kind) = kind_of(mapping).filter(|_| counts.anonymous > 0) else { continue };
            self.left_bytes = self.left_bytes.checked_sub(mapping.end.saturating_sub(mapping.start))?;
            let found = pages.compare(parent_pages, mapping.start, mapping.end).ok()?;
            kinds.entry(kind).or_default().add(found);
        }
        let bytes = |count: u64| count.saturating_mul(pages.page_bytes());
        let kinds = kinds.into_iter().map(|(kind, found)| SharedKind {
            kind,
            shared: bytes(found.shared),
            copied: bytes(found.copied),
            own: bytes(found.own),
        });
        Some(Sharing { parent, parent_bytes: *parent_bytes, kinds: kinds.collect() })
    }
}

fn kind_of(mapping: &slip_remote::Mapping) -> Option<MemoryKind> {
    if mapping.shared {
        return None;
    }
    match mapping.path.as_str() {
        "[heap]" => Some(MemoryKind::Heap),
        "[stack]" => Some(MemoryKind::Stack),
        path if mapping.inode != 0 && !path.starts_with('[') => Some(MemoryKind::Data),
        // `[anon: NAME]` has a name by `prctl`.
        path if path.is_empty() || path.starts_with("[anon:") => Some(MemoryKind::Anonymous),
        _ => None,
    }
}

fn sum(mappings: &[CountedMapping]) -> slip_remote::MemoryCounts {
    mappings.iter().fold(slip_remote::MemoryCounts::default(), |sum, counted| sum.plus(counted.counts))
}

/// Whether both run the same file. Who was forked by a process that has ended hangs below another one, which is not the one it was
/// forked from.
fn same_program(pid: u32, other: u32) -> bool {
    let program =
        |pid: u32| fs::metadata(format!("/proc/{pid}/exe")).map(|meta| (meta.dev(), meta.ino())).ok();
    program(pid).is_some_and(|own| program(other) == Some(own))
}

/// Of opcache's code PHP tells itself whether it is to be in huge pages.
fn asks_for_huge_pages(counted: &CountedMapping) -> bool {
    counted.asks_for_huge_pages && !counted.mapping.executable
}

/// What the environment says.
fn huge_pages_wish(pid: u32) -> Option<HugePagesWish> {
    let zend = environment_value(pid, "USE_ZEND_ALLOC_HUGE_PAGES");
    // PHP takes any number but 0 for it.
    if zend.and_then(|value| value.trim().parse::<i64>().ok()).is_some_and(|number| number != 0) {
        return Some(HugePagesWish::Zend);
    }
    let tunables = environment_value(pid, "GLIBC_TUNABLES").unwrap_or_default();
    tunables.split(':').any(|tunable| tunable == "glibc.malloc.hugetlb=1").then_some(HugePagesWish::Glibc)
}

/// What stands in brackets: `always [madvise] never`.
fn enabled_huge_pages() -> String {
    let text = fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled").unwrap_or_default();
    let chosen = text.split_once('[').and_then(|(_, rest)| rest.split_once(']'));
    chosen.map_or_else(String::new, |(chosen, _)| chosen.to_owned())
}

#[cfg(test)]
mod tests {
    use slip_remote::Mapping;

    use super::*;

    #[test]
    fn kinds_of_memory_are_told_by_path() {
        let kind = |path: &str, inode, shared| {
            kind_of(&Mapping { path: path.to_owned(), inode, shared, ..Mapping::default() })
        };
        assert_eq!(kind("[heap]", 0, false), Some(MemoryKind::Heap));
        assert_eq!(kind("[stack]", 0, false), Some(MemoryKind::Stack));
        assert_eq!(kind("", 0, false), Some(MemoryKind::Anonymous));
        assert_eq!(kind("[anon:cpython]", 0, false), Some(MemoryKind::Anonymous));
        assert_eq!(kind("/usr/lib/libc.so.6", 7, false), Some(MemoryKind::Data));
        assert_eq!([kind("[vdso]", 0, false), kind("/dev/zero", 7, true)], [None; 2]);
    }

    /// Asks for huge pages as PHP-FPM does, with nothing of that in its environment.
    const ASKS: &str = "\
import mmap, sys
memory = mmap.mmap(-1, 8 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
if sys.argv[1] == 'asks':
    memory.madvise(mmap.MADV_HUGEPAGE)
print('ready', flush=True)
sys.stdin.read()
";

    #[test]
    fn who_asks_for_huge_pages_by_a_call_is_known_without_an_environment() {
        // From 3.8 on one can ask; what is built of 3.15 asks by itself.
        let can_ask = |python: &slip_testkit::Interpreter| ((3, 8)..(3, 15)).contains(&python.version);
        let Some(python) = slip_testkit::pythons().into_iter().find(can_ask) else { return };
        let wishes = ["asks", "does not"].map(|mode| {
            let launch = slip_testkit::Launch::text(&python, "asks.py", ASKS).arg(mode);
            let mut child = launch.start().unwrap();
            child.wait_ready().unwrap();
            FactsKeeper::default().collect(&[child.pid()], &[]).workers[0].wants_huge_pages
        });
        assert_eq!(wishes, [Some(HugePagesWish::Madvise), None], "{}", python.label);
    }

    /// Objects that are there before the fork; each child collects garbage, and makes further ones.
    const FORKS: &str = "\
import gc, os, sys
objects = [[number] for number in range(400_000)]
if sys.argv[1] == 'frozen':
    gc.freeze()
tell = os.pipe()
for _ in range(2):
    child = os.fork()
    if child == 0:
        gc.collect()
        more = [[number] for number in range(200_000)]
        os.write(tell[1], b'.')
        sys.stdin.read()
        os._exit(0)
    print(child, flush=True)
for _ in range(2):
    os.read(tell[0], 1)
print('ready', flush=True)
os.wait(), os.wait()
";

    #[test]
    fn collections_in_workers_copy_what_was_not_frozen() {
        const MIB: u64 = 1 << 20;
        for python in slip_testkit::pythons() {
            let copied = ["frozen", "thawed"].map(|mode| {
                let launch = slip_testkit::Launch::text(&python, "forks.py", FORKS).arg(mode);
                let mut master = launch.start().unwrap();
                let children = master.wait_ready().unwrap();
                let children: Vec<u32> = children.iter().map(|line| line.parse().unwrap()).collect();
                let mut keeper = FactsKeeper::default();
                let all: Vec<u32> = children.iter().copied().chain([master.pid()]).collect();
                all.iter().for_each(|pid| keeper.add(*pid));
                let facts = keeper.collect(&all, &[]);
                assert_eq!(facts.workers.len(), 3, "{}", python.label);
                assert_eq!(facts.workers[2].sharing, None, "the master was not forked from such a one");
                let sharing = facts.workers[0].sharing.as_ref().unwrap();
                let (shared, copied, own) =
                    (sharing.shared_bytes(), sharing.copied_bytes(), sharing.own_bytes());
                let worker = &facts.workers[0];
                assert_eq!(sharing.parent, master.pid());
                assert!(shared <= sharing.parent_bytes && own > 4 * MIB, "{}: {sharing:?}", python.label);
                assert!(
                    copied + own <= worker.anonymous && shared + copied + own >= worker.anonymous / 10 * 9
                );
                copied
            });
            let [frozen, thawed] = copied;
            assert!(frozen < 8 * MIB && thawed > 24 * MIB, "{}: {frozen} and {thawed} bytes", python.label);
        }
    }
}
