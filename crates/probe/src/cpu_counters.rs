//! The kernel's own counters of what takes a CPU from all alike: quotas of control groups, and the machine's host.

use std::collections::BTreeMap;
use std::fs;

/// What quotas of control groups have done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Throttled {
    /// Periods of a quota in which something ran.
    pub periods: u64,
    /// Those among them in which the quota was used up, and the group held back.
    pub throttled_periods: u64,
    /// For how long, each CPU by itself.
    pub ns: u64,
}

impl Throttled {
    fn since(self, before: Self) -> Self {
        Self {
            periods: self.periods.saturating_sub(before.periods),
            throttled_periods: self.throttled_periods.saturating_sub(before.throttled_periods),
            ns: self.ns.saturating_sub(before.ns),
        }
    }

    fn plus(self, other: Self) -> Self {
        Self {
            periods: self.periods.saturating_add(other.periods),
            throttled_periods: self.throttled_periods.saturating_add(other.throttled_periods),
            ns: self.ns.saturating_add(other.ns),
        }
    }
}

/// The control groups that some processes are in, and what their quotas have done since the first of these was added. Each group counts
/// once, also after its last process has ended.
#[derive(Debug, Default)]
pub struct Quotas {
    /// By folder: as it was at first, and the last time that it could be read.
    groups: BTreeMap<String, (Throttled, Throttled)>,
}

impl Quotas {
    /// Adds the groups whose quotas process `pid` has, from now on; none if it has ended.
    pub fn add(&mut self, pid: u32) {
        let text = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default();
        for group in cpu_groups(&text) {
            if !self.groups.contains_key(&group)
                && let Some(now) = read(&group)
            {
                self.groups.insert(group, (now, now));
            }
        }
    }

    /// What they have done so far; `None` if the kernel tells of no group.
    pub fn so_far(&mut self) -> Option<Throttled> {
        for (group, (_, last)) in &mut self.groups {
            *last = read(group).unwrap_or(*last);
        }
        self.groups.values().map(|(first, last)| last.since(*first)).reduce(Throttled::plus)
    }
}

fn read(group: &str) -> Option<Throttled> {
    parse_throttled(&fs::read_to_string(format!("{group}/cpu.stat")).ok()?)
}

/// The folders of the control groups whose CPU quotas a process has, by its `/proc/PID/cgroup`: its own, and all around it. The outermost
/// one has a quota where it is that of a container, which sees nothing around it.
pub(crate) fn cpu_groups(text: &str) -> Vec<String> {
    // Lines are `NUMBER:CONTROLLERS:PATH`; version 2 has no controllers there.
    let path_of = |is_it: &dyn Fn(&str) -> bool| {
        text.lines().find_map(|line| {
            let mut parts = line.splitn(3, ':').skip(1);
            is_it(parts.next()?).then(|| parts.next()).flatten()
        })
    };
    let first = path_of(&|controllers| controllers.split(',').any(|name| name == "cpu"));
    let root = if first.is_some() { "/sys/fs/cgroup/cpu" } else { "/sys/fs/cgroup" };
    let Some(path) = first.or_else(|| path_of(&str::is_empty)) else { return Vec::new() };
    let ends = path.match_indices('/').map(|(end, _)| end).chain([path.len()]).filter(|end| *end != 1);
    ends.map(|end| format!("{root}{}", &path[..end])).collect()
}

/// Of `cpu.stat`: `throttled_usec` in version 2 of control groups, `throttled_time` in version 1, in nanoseconds. Both are missing where
/// a group cannot have a quota.
pub(crate) fn parse_throttled(text: &str) -> Option<Throttled> {
    let value = |key: &str| text.lines().find_map(|line| line.strip_prefix(key)?.trim().parse::<u64>().ok());
    let ns = value("throttled_time ").or_else(|| Some(value("throttled_usec ")?.saturating_mul(1_000)))?;
    Some(Throttled {
        periods: value("nr_periods ").unwrap_or_default(),
        throttled_periods: value("nr_throttled ").unwrap_or_default(),
        ns,
    })
}

/// The time of the machine's CPUs so far, all together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuTime {
    /// All of it, in nanoseconds; 0 if the kernel does not tell.
    pub all_ns: u64,
    /// What the host of the machine has given to others.
    pub steal_ns: u64,
}

impl CpuTime {
    /// By now.
    pub fn now() -> Self {
        Self::parse(&fs::read_to_string("/proc/stat").unwrap_or_default())
    }

    /// From then until now.
    #[must_use]
    pub fn since(self, before: Self) -> Self {
        Self {
            all_ns: self.all_ns.saturating_sub(before.all_ns),
            steal_ns: self.steal_ns.saturating_sub(before.steal_ns),
        }
    }

    pub(crate) fn parse(text: &str) -> Self {
        // `cpu user nice system idle iowait irq softirq steal guest guest_nice`, in hundredths of a second; guests are in `user` too.
        let words = text.lines().next().unwrap_or_default().split_ascii_whitespace();
        let values: Vec<u64> = words.skip(1).take(8).filter_map(|word| word.parse().ok()).collect();
        let ns = |hundredths: u64| hundredths.saturating_mul(10_000_000);
        Self {
            all_ns: ns(values.iter().fold(0, |sum, value| sum.saturating_add(*value))),
            steal_ns: ns(values.get(7).copied().unwrap_or_default()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotas_are_those_of_all_groups_around_a_process() {
        let first = "12:pids:/other\n4:cpu,cpuacct:/pod/container\n0::/pod\n";
        let root = "/sys/fs/cgroup/cpu";
        assert_eq!(cpu_groups(first), [root, &format!("{root}/pod"), &format!("{root}/pod/container")]);
        assert_eq!(cpu_groups("0::/a.slice\n"), ["/sys/fs/cgroup", "/sys/fs/cgroup/a.slice"]);
        // In a container that sees nothing around itself.
        assert_eq!(cpu_groups("0::/\n"), ["/sys/fs/cgroup"]);
        assert!(cpu_groups("").is_empty());
    }

    #[test]
    fn quotas_are_read_in_both_versions() {
        let expected = Throttled { periods: 5, throttled_periods: 2, ns: 15_000_000 };
        let text = "nr_periods 5\nnr_throttled 2\n";
        assert_eq!(parse_throttled(&format!("{text}throttled_time 15000000\n")), Some(expected));
        assert_eq!(parse_throttled(&format!("usage_usec 5\n{text}throttled_usec 15000\n")), Some(expected));
        assert_eq!(parse_throttled("usage_usec 5\n"), None);
    }

    #[test]
    fn what_a_group_did_is_kept_when_it_has_gone() {
        let throttled = |periods| Throttled { periods, throttled_periods: 1, ns: 7 };
        let gone = |first, last| (throttled(first), Throttled { ns: 10, ..throttled(last) });
        let groups = [("/nowhere/a", gone(1, 3)), ("/nowhere/b", gone(4, 9))];
        let mut quotas = Quotas { groups: groups.map(|(path, times)| (path.into(), times)).into() };
        assert_eq!(quotas.so_far(), Some(Throttled { periods: 7, throttled_periods: 0, ns: 6 }));
        assert_eq!(Quotas::default().so_far(), None);
    }

    #[test]
    fn steal_is_part_of_all_time() {
        let text = "cpu  10 20 30 40 50 60 70 80 9 9\ncpu0 1 1 1 1 1 1 1 1 0 0\n";
        let time = CpuTime { all_ns: 3_600_000_000, steal_ns: 800_000_000 };
        assert_eq!(CpuTime::parse(text), time);
        assert_eq!(time.since(CpuTime { all_ns: 1, steal_ns: 2 }).steal_ns, 799_999_998);
        assert_eq!(CpuTime::parse(""), CpuTime::default());
    }
}
