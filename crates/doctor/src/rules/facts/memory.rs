//! CFG018, memory of workers is in the swap, and CFG019, their control group's limit of memory is reached.

use slip_model::{MemoryGroup, Recording};

use super::asked::{found_or, looked_at, setting};
use crate::{CFG018, CFG019, Confidence, Cost, Finding, Statement, Value, Verdict};

/// Less in the swap is what was never needed since the start.
const MIN_SWAPPED: u64 = 1 << 20;

/// So many faults had to read something while we watched.
const MIN_FAULTS: u64 = 10;

pub(crate) fn judge_swap(recording: &Recording) -> Verdict {
    let facts = match looked_at(recording) {
        Ok(facts) => facts,
        Err(verdict) => return verdict,
    };
    let swapped = facts.workers.iter().fold(0_u64, |sum, worker| sum.saturating_add(worker.swap));
    let faults = facts.workers.iter().fold(0_u64, |sum, worker| sum.saturating_add(worker.major_faults));
    let of_workers = |text| {
        Statement::new(text)
            .with("swapped", Value::Bytes(swapped))
            .with("faults", Value::Count(faults))
            .with("workers", Value::Count(facts.workers.len() as u64))
            .by("smaps, stat")
    };
    if swapped < MIN_SWAPPED || faults < MIN_FAULTS {
        return Verdict::Quiet(of_workers(
            "{swapped} of {workers} workers in the swap, and {faults} page faults that read something",
        ));
    }
    let headline = Statement::new("{swapped} of the workers' memory is in the swap, and pages are read back")
        .with("swapped", Value::Bytes(swapped));
    let most = facts.workers.iter().max_by_key(|worker| worker.swap).map(|worker| {
        Statement::new("most of one worker, process {pid}: {swapped}, and {rss} in memory")
            .with("pid", Value::Count(worker.pid.into()))
            .with("swapped", Value::Bytes(worker.swap))
            .with("rss", Value::Bytes(worker.rss))
            .by("smaps")
    });
    let evidence = of_workers(
        "{swapped} of {workers} workers in the swap, and {faults} page faults that read something while we watched",
    );
    let finding = setting(&CFG018, "swap", headline, Confidence::Medium)
        .shown(std::iter::once(evidence).chain(most))
        .fixed(Statement::new("fewer workers, or more memory: those there are do not fit"));
    Verdict::Found(vec![Finding {
        cost: Some(Cost { value: Value::Bytes(swapped), tenths: None }),
        ..finding
    }])
}

pub(crate) fn judge_limit(recording: &Recording) -> Verdict {
    let Some(facts) = &recording.facts else {
        return Verdict::TooLittle(Statement::new("the workers' memory was not looked at"));
    };
    let quiet = match facts.memory_groups.first() {
        Some(group) => of_group(group, "no limit was reached; {current} of {limit} is in use in {group}"),
        None => Statement::new("no control group limits the workers' memory").by("memory.max"),
    };
    found_or(facts.memory_groups.iter().filter_map(reached).collect(), quiet)
}

/// Use and limit of a group.
fn of_group(group: &MemoryGroup, text: &'static str) -> Statement {
    let limit = group.high.unwrap_or(u64::MAX).min(group.max.unwrap_or(u64::MAX));
    Statement::new(text)
        .with("current", Value::Bytes(group.current))
        .with("limit", Value::Bytes(limit))
        .with("group", Value::Name(group.path.clone()))
        .by("memory.current")
}

fn reached(group: &MemoryGroup) -> Option<Finding> {
    if group.high_events == 0 && group.max_events == 0 && group.oom_kills == 0 {
        return None;
    }
    let headline = if group.oom_kills > 0 {
        Statement::new("the kernel ended {kills} processes because the workers' control group was at its limit of memory")
            .with("kills", Value::Count(group.oom_kills))
    } else {
        Statement::new("the workers' control group was at its limit of memory {times} times, and had to give memory back")
            .with("times", Value::Count(group.high_events.saturating_add(group.max_events)))
    };
    let cause = if group.oom_kills > 0 { "killed" } else { "limit" };
    let events =
        Statement::new("memory.high was reached {high} times while we watched, memory.max {max} times")
            .with("high", Value::Count(group.high_events))
            .with("max", Value::Count(group.max_events))
            .by("memory.events");
    Some(
        setting(&CFG019, cause, headline, Confidence::High)
            .shown([events, of_group(group, "{current} in use in {group}, whose lowest limit is {limit}")])
            .fixed(Statement::new(
                "raise the limit (systemd: MemoryHigh=, MemoryMax=), or have fewer workers",
            )),
    )
}

#[cfg(test)]
mod tests {
    use slip_model::{Facts, WorkerMemory};

    use super::super::asked::tests::causes;
    use super::*;

    fn recording(facts: Facts) -> Recording {
        Recording { facts: Some(facts), ..Recording::default() }
    }

    #[test]
    fn swap_is_told_only_if_something_is_read_back() {
        let found = |swap, major_faults| {
            let worker = WorkerMemory { pid: 7, swap, major_faults, ..WorkerMemory::default() };
            causes(&judge_swap(&recording(Facts { workers: vec![worker], ..Facts::default() })))
        };
        assert_eq!([found(0, 900), found(80 << 20, 0)], [[""; 0]; 2]);
        assert_eq!(found(80 << 20, 40), ["swap"]);
        assert!(matches!(judge_swap(&recording(Facts::default())), Verdict::NotOf(_)));
    }

    #[test]
    fn a_limit_is_told_only_if_it_was_reached() {
        let found = |group: MemoryGroup| {
            let group = MemoryGroup { path: "/sys/fs/cgroup/a".to_owned(), max: Some(1 << 30), ..group };
            causes(&judge_limit(&recording(Facts { memory_groups: vec![group], ..Facts::default() })))
        };
        assert_eq!(found(MemoryGroup::default()), [""; 0]);
        assert_eq!(found(MemoryGroup { max_events: 3, ..MemoryGroup::default() }), ["limit"]);
        assert_eq!(found(MemoryGroup { high_events: 3, ..MemoryGroup::default() }), ["limit"]);
        assert_eq!(found(MemoryGroup { max_events: 3, oom_kills: 1, ..MemoryGroup::default() }), ["killed"]);
        assert_eq!(causes(&judge_limit(&recording(Facts::default()))), [""; 0]);
    }
}
