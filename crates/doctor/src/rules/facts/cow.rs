//! COW006: memory that workers had from their master, and that was copied since.

use std::collections::BTreeMap;

use slip_model::{Facts, Language, MemoryKind, Recording, Sharing, WorkerMemory};

use super::asked::looked_at;
use crate::{COW006, Confidence, Cost, Finding, Statement, Value, Verdict, tenths};

/// Less for each worker is not told: an interpreter writes to some megabytes of what it set up itself, whatever it runs.
const MIN_COPIED: u64 = 16 << 20;

/// ... nor is a smaller share of what a worker had from its master, in tenths of a per cent.
const MIN_TENTHS: u64 = 250;

/// Workers of one master under one name.
struct Pool<'a> {
    name: &'a str,
    parent: u32,
    workers: Vec<(&'a WorkerMemory, &'a Sharing)>,
}

pub(crate) fn judge(recording: &Recording) -> Verdict {
    let facts = match looked_at(recording) {
        Ok(facts) => facts,
        Err(verdict) => return verdict,
    };
    let pools = pools(facts);
    if pools.is_empty() {
        let text = "no process was forked from one that still runs the same program";
        return Verdict::NotOf(Statement::new(text));
    }
    let found: Vec<Finding> =
        pools.iter().filter(|pool| pool.is_told()).map(|pool| pool.finding(facts, recording)).collect();
    if !found.is_empty() {
        return Verdict::Found(found);
    }
    let most = pools.iter().max_by_key(|pool| pool.mean(Sharing::copied_bytes));
    let (copied, shared) =
        most.map_or((0, 0), |pool| (pool.mean(Sharing::copied_bytes), pool.mean(Sharing::shared_bytes)));
    Verdict::Quiet(
        Statement::new(
            "a worker has copied {copied} of what it had from its master, and {shared} is still shared",
        )
        .with("copied", Value::Bytes(copied))
        .with("shared", Value::Bytes(shared))
        .by("pagemap"),
    )
}

fn pools(facts: &Facts) -> Vec<Pool<'_>> {
    let mut pools: BTreeMap<(u32, &str), Pool<'_>> = BTreeMap::new();
    for worker in &facts.workers {
        if let Some(sharing) = &worker.sharing {
            let new = || Pool { name: &worker.title, parent: sharing.parent, workers: Vec::new() };
            let pool = pools.entry((sharing.parent, &worker.title)).or_insert_with(new);
            pool.workers.push((worker, sharing));
        }
    }
    pools.into_values().collect()
}

impl Pool<'_> {
    fn count(&self) -> u64 {
        self.workers.len() as u64
    }

    fn sum(&self, of: impl Fn(&Sharing) -> u64) -> u64 {
        self.workers.iter().fold(0, |sum, (_, sharing)| sum.saturating_add(of(sharing)))
    }

    /// Of a worker on average.
    fn mean(&self, of: impl Fn(&Sharing) -> u64) -> u64 {
        self.sum(of) / self.count().max(1)
    }

    /// Of what workers had from the master, what was copied; in tenths of a per cent.
    fn copied_tenths(&self) -> u64 {
        let (copied, shared) = (self.sum(Sharing::copied_bytes), self.sum(Sharing::shared_bytes));
        tenths(copied.into(), u128::from(copied) + u128::from(shared))
    }

    fn is_told(&self) -> bool {
        self.mean(Sharing::copied_bytes) >= MIN_COPIED && self.copied_tenths() >= MIN_TENTHS
    }

    fn kind(&self, kind: MemoryKind) -> u64 {
        self.mean(|sharing| {
            let of_kind = sharing.kinds.iter().filter(|found| found.kind == kind);
            of_kind.fold(0, |sum, found| sum.saturating_add(found.copied))
        })
    }

    fn finding(&self, facts: &Facts, recording: &Recording) -> Finding {
        let copied = self.sum(Sharing::copied_bytes);
        let mean = self.mean(Sharing::copied_bytes);
        let pss: u128 = self.workers.iter().map(|(worker, _)| u128::from(worker.pss)).sum();
        Finding {
            rule: &COW006,
            cause: "written",
            headline: Statement::new(
                "{copied} of each of the {workers} workers of {pool} is no longer shared with their master",
            )
            .with("copied", Value::Bytes(mean))
            .with("workers", Value::Count(self.count()))
            .with("pool", Value::Name(self.name.to_owned())),
            cost: Some(Cost { value: Value::Bytes(copied), tenths: Some(tenths(copied.into(), pss)) }),
            evidence: self.evidence(facts),
            ruled_out: self.ruled_out(),
            fixes: self.fixes(recording),
            // How much of it collections wrote to, and how much the program itself, cannot be told from the pages.
            gain: None,
            confidence: Confidence::High,
        }
    }

    fn evidence(&self, facts: &Facts) -> Vec<Statement> {
        let mut evidence = vec![
            Statement::new(
                "a worker has {copied} in pages where its master, process {master}, has others by now: {share} of what it had from \
                 there, and {shared} is still shared",
            )
            .with("copied", Value::Bytes(self.mean(Sharing::copied_bytes)))
            .with("master", Value::Count(self.parent.into()))
            .with("share", Value::Tenths(self.copied_tenths()))
            .with("shared", Value::Bytes(self.mean(Sharing::shared_bytes)))
            .by("pagemap"),
            Statement::new("{anonymous} of that is in arenas and large blocks, {heap} in the heap, {data} in data of libraries")
                .with("anonymous", Value::Bytes(self.kind(MemoryKind::Anonymous)))
                .with("heap", Value::Bytes(self.kind(MemoryKind::Heap)))
                .with("data", Value::Bytes(self.kind(MemoryKind::Data)))
                .by("smaps"),
        ];
        if facts.left_out > 0 {
            let text = "{others} more workers were not looked at";
            evidence.push(Statement::new(text).with("others", Value::Count(facts.left_out)));
        }
        evidence
    }

    fn ruled_out(&self) -> Vec<Statement> {
        vec![
            Statement::new(
                "memory that workers came to have after the fork: {own} of each is at addresses where the master has nothing, and not \
                 counted",
            )
            .with("own", Value::Bytes(self.mean(Sharing::own_bytes)))
            .by("pagemap"),
            Statement::new("files and memory that is shared on purpose, such as opcache's: these pages are private").by("smaps"),
        ]
    }

    fn fixes(&self, recording: &Recording) -> Vec<Statement> {
        let pids: Vec<u32> = self.workers.iter().map(|(worker, _)| worker.pid).collect();
        let process = recording.processes.iter().find(|process| pids.contains(&process.pid));
        match process.map(|process| process.language) {
            Some(Language::Php) => vec![Statement::new(
                "load the code with opcache.preload: it is in opcache's shared memory then, which no worker copies",
            )],
            _ => vec![
                Statement::new(
                    "call gc.freeze() in the master when everything is loaded, before it forks (gunicorn: --preload, and in the hook \
                     pre_fork): collections in workers leave these objects alone then",
                ),
                Statement::new(
                    "call gc.disable() at the master's begin and gc.enable() in each worker, so that nothing is freed before the \
                     fork that a worker's new objects would be put into",
                ),
                Statement::new(
                    "keep large data that workers only read in few objects (bytes, array, numpy, mmap): to look at an object, CPython \
                     writes the number of its references, which no freezing prevents",
                ),
            ],
        }
    }
}

#[cfg(test)]
mod tests {
    use slip_model::{Process, SharedKind};

    use super::*;

    fn worker(pid: u32, copied: u64, shared: u64, own: u64) -> WorkerMemory {
        let kind = SharedKind { kind: MemoryKind::Anonymous, shared, copied, own };
        let sharing = Sharing { parent: 1, parent_bytes: 400 << 20, kinds: vec![kind] };
        let title = "gunicorn: shop".to_owned();
        WorkerMemory { pid, title, pss: copied + own, sharing: Some(sharing), ..WorkerMemory::default() }
    }

    fn recording(language: Language, workers: Vec<WorkerMemory>) -> Recording {
        let processes = workers
            .iter()
            .map(|worker| Process { pid: worker.pid, language, ..Process::default() })
            .collect();
        Recording { processes, facts: Some(Facts { workers, ..Facts::default() }), ..Recording::default() }
    }

    const MIB: u64 = 1 << 20;

    #[test]
    fn what_was_copied_is_told_for_each_worker_and_the_pool() {
        let workers =
            vec![worker(2, 300 * MIB, 100 * MIB, 50 * MIB), worker(3, 100 * MIB, 300 * MIB, 150 * MIB)];
        let Verdict::Found(found) = judge(&recording(Language::Python, workers)) else {
            panic!("nothing found")
        };
        let [finding] = &found[..] else { panic!("{found:?}") };
        assert_eq!(finding.cost, Some(Cost { value: Value::Bytes(400 * MIB), tenths: Some(667) }));
        assert_eq!(finding.headline.value("copied"), Some(&Value::Bytes(200 * MIB)));
        assert_eq!(finding.evidence[0].value("share"), Some(&Value::Tenths(500)));
        assert_eq!(finding.ruled_out[0].value("own"), Some(&Value::Bytes(100 * MIB)));
        assert!(finding.fixes[0].text.contains("gc.freeze()"));
        assert!(finding.statements().all(Statement::is_whole));
    }

    #[test]
    fn memory_that_came_after_the_fork_is_not_told() {
        let quiet = recording(Language::Python, vec![worker(2, 4 * MIB, 40 * MIB, 900 * MIB)]);
        assert!(matches!(judge(&quiet), Verdict::Quiet(why) if why.is_whole()));
    }

    #[test]
    fn some_megabytes_of_a_large_master_are_not_told() {
        let quiet = recording(Language::Python, vec![worker(2, 30 * MIB, 900 * MIB, 0)]);
        assert!(matches!(judge(&quiet), Verdict::Quiet(_)));
    }

    #[test]
    fn php_is_told_to_preload() {
        let php = recording(Language::Php, vec![worker(2, 30 * MIB, 30 * MIB, 0)]);
        assert!(
            matches!(judge(&php), Verdict::Found(found) if found[0].fixes[0].text.contains("opcache.preload"))
        );
    }

    #[test]
    fn without_a_master_there_is_nothing_to_tell() {
        let alone = WorkerMemory { pid: 2, ..WorkerMemory::default() };
        assert!(matches!(judge(&recording(Language::Python, vec![alone])), Verdict::NotOf(_)));
        assert!(matches!(judge(&recording(Language::Python, vec![])), Verdict::NotOf(_)));
        assert!(matches!(judge(&Recording::default()), Verdict::TooLittle(_)));
    }
}
