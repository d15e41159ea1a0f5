//! Limits of memory of control groups, and what the kernel has done because of them.

use std::collections::BTreeMap;
use std::fs;

use slip_model::MemoryGroup;

use crate::cpu_counters::group_paths;

/// Groups whose limits are looked at; those of further processes are left out.
const MAX_GROUPS: usize = 64;

/// What version 1 of control groups has for no limit is as large as this, or larger.
const NO_LIMIT: u64 = 1 << 62;

/// The control groups that some processes are in, and what has happened to them since the first of these was added.
#[derive(Debug, Default)]
pub struct MemoryGroups {
    /// By path, as it was when it was added.
    groups: BTreeMap<String, MemoryGroup>,
}

impl MemoryGroups {
    /// Adds the groups of process `pid`, from now on; none if it has ended.
    pub fn add(&mut self, pid: u32) {
        let text = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default();
        for path in group_paths(&text, "memory") {
            if self.groups.len() < MAX_GROUPS && !self.groups.contains_key(&path) {
                let group = read(&path);
                self.groups.insert(path, group);
            }
        }
    }

    /// Those that limit memory, as they are now; what they count is what has come since they were added.
    pub fn so_far(&self) -> Vec<MemoryGroup> {
        let mut groups: Vec<MemoryGroup> =
            self.groups.iter().map(|(path, first)| since(first, read(path))).collect();
        groups.retain(|group| group.high.is_some() || group.max.is_some());
        // The innermost first.
        groups.reverse();
        groups
    }
}

fn since(first: &MemoryGroup, now: MemoryGroup) -> MemoryGroup {
    MemoryGroup {
        high_events: now.high_events.saturating_sub(first.high_events),
        max_events: now.max_events.saturating_sub(first.max_events),
        oom_kills: now.oom_kills.saturating_sub(first.oom_kills),
        ..now
    }
}

fn read(folder: &str) -> MemoryGroup {
    let text = |name: &str| fs::read_to_string(format!("{folder}/{name}")).unwrap_or_default();
    let files = match fs::read_to_string(format!("{folder}/memory.limit_in_bytes")) {
        Ok(limit) => [text("memory.usage_in_bytes"), String::new(), limit, text("memory.failcnt")],
        Err(_) => ["current", "high", "max", "events"].map(|name| text(&format!("memory.{name}"))),
    };
    parse(folder, &files)
}

/// By the texts of use, the soft limit, the limit, and events, in either version of control groups.
pub(crate) fn parse(path: &str, [current, high, max, events]: &[String; 4]) -> MemoryGroup {
    let limit = |text: &str| text.trim().parse::<u64>().ok().filter(|bytes| *bytes < NO_LIMIT);
    let event = |key: &str| {
        events.lines().find_map(|line| line.strip_prefix(key)?.trim().parse().ok()).unwrap_or_default()
    };
    MemoryGroup {
        path: path.to_owned(),
        current: current.trim().parse().unwrap_or_default(),
        high: limit(high),
        max: limit(max),
        high_events: event("high "),
        // Version 1 has nothing but the number of times.
        max_events: events.trim().parse().unwrap_or_else(|_| event("max ")),
        oom_kills: event("oom_kill "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_read_in_both_versions() {
        let files = [
            "1048576\n",
            "max\n",
            "2097152\n",
            "low 0\nhigh 4\nmax 7\noom 1\noom_kill 2\noom_group_kill 3\n",
        ];
        let group = parse("/a", &files.map(str::to_owned));
        assert_eq!((group.current, group.high, group.max), (1 << 20, None, Some(2 << 20)));
        assert_eq!((group.high_events, group.max_events, group.oom_kills), (4, 7, 2));
        let files = ["5", "", "9223372036854771712\n", "9\n"];
        let group = parse("/a", &files.map(str::to_owned));
        assert_eq!((group.max, group.max_events, group.oom_kills), (None, 9, 0));
    }

    #[test]
    fn what_happened_before_is_not_counted() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().to_str().unwrap().to_owned();
        let write = |max: &str, events: u64| {
            fs::write(folder.path().join("memory.max"), max).unwrap();
            fs::write(folder.path().join("memory.events"), format!("high 0\nmax {events}\n")).unwrap();
        };
        write("max", 3);
        let mut groups = MemoryGroups::default();
        groups.groups.insert(path.clone(), read(&path));
        assert_eq!(groups.so_far(), []);
        write("4096", 5);
        let expected = MemoryGroup { path, max: Some(4_096), max_events: 2, ..MemoryGroup::default() };
        assert_eq!(groups.so_far(), [expected]);
    }
}
