//! The kernel's own counters of what takes a CPU from all alike: quotas of control groups, and the machine's host.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Read as _;
use std::os::unix::fs::MetadataExt as _;

use slip_model::CpuQuota;

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
    /// By folder.
    groups: BTreeMap<String, Group>,
}

/// What the quota of a folder's group has done, and of those that were there before: who starts a service again makes a new one.
#[derive(Clone, Copy, Debug)]
struct Group {
    inode: u64,
    first: Throttled,
    /// As it could be read the last time.
    last: Throttled,
    earlier: Throttled,
}

impl Group {
    fn note(&mut self, inode: u64, now: Throttled) {
        if inode != self.inode {
            *self = Self { inode, first: Throttled::default(), last: now, earlier: self.done() };
        }
        self.last = now;
    }

    fn done(self) -> Throttled {
        self.earlier.plus(self.last.since(self.first))
    }
}

impl Quotas {
    /// Adds the groups whose quotas process `pid` has, from now on; none if it has ended.
    pub fn add(&mut self, pid: u32) {
        let text = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default();
        cpu_groups(&text).into_iter().for_each(|group| self.add_group(group));
    }

    fn add_group(&mut self, group: String) {
        if !self.groups.contains_key(&group)
            && let Some((inode, now)) = read(&group)
        {
            self.groups.insert(group, Group { inode, first: now, last: now, earlier: Throttled::default() });
        }
    }

    /// What they have done so far; `None` if the kernel tells of no group.
    pub fn so_far(&mut self) -> Option<Throttled> {
        for (folder, group) in &mut self.groups {
            if let Some((inode, now)) = read(folder) {
                group.note(inode, now);
            }
        }
        self.groups.values().map(|group| group.done()).reduce(Throttled::plus)
    }

    /// The quota of the group that has been held back longest, as it is now; `None` if none was.
    pub fn strictest(&self) -> Option<CpuQuota> {
        let held_back = self.groups.iter().filter(|(_, group)| group.done().ns > 0);
        let (folder, _) = held_back.max_by_key(|(_, group)| group.done().ns)?;
        let text = |name: &str| fs::read_to_string(format!("{folder}/{name}")).ok();
        match text("cpu.max") {
            Some(text) => parse_quota(&text),
            None => {
                parse_quota(&format!("{} {}", text("cpu.cfs_quota_us")?.trim(), text("cpu.cfs_period_us")?))
            }
        }
    }
}

/// The inode of a group's counters, which no other group has, and what they say.
fn read(group: &str) -> Option<(u64, Throttled)> {
    let mut file = File::open(format!("{group}/cpu.stat")).ok()?;
    let mut text = String::new();
    file.read_to_string(&mut text).ok()?;
    Some((file.metadata().ok()?.ino(), parse_throttled(&text)?))
}

/// The folders of the control groups whose CPU quotas a process has, by its `/proc/PID/cgroup`: its own, and all around it. The outermost
/// one has a quota where it is that of a container, which sees nothing around it.
pub(crate) fn cpu_groups(text: &str) -> Vec<String> {
    group_paths(text, "cpu")
}

/// The same for what another controller limits.
pub(crate) fn group_paths(text: &str, controller: &str) -> Vec<String> {
    // Lines are `NUMBER:CONTROLLERS:PATH`; version 2 has no controllers there.
    let path_of = |is_it: &dyn Fn(&str) -> bool| {
        text.lines().find_map(|line| {
            let mut parts = line.splitn(3, ':').skip(1);
            is_it(parts.next()?).then(|| parts.next()).flatten()
        })
    };
    let first = path_of(&|controllers| controllers.split(',').any(|name| name == controller));
    let root = match &first {
        Some(_) => format!("/sys/fs/cgroup/{controller}"),
        None => "/sys/fs/cgroup".to_owned(),
    };
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

/// Of `cpu.max`: the quota and the period in microseconds; `None` for none, which is `max`, or `-1` in version 1.
pub(crate) fn parse_quota(text: &str) -> Option<CpuQuota> {
    let (quota, period) = text.trim().split_once(' ')?;
    let ns = |text: &str| text.parse::<u64>().ok()?.checked_mul(1_000);
    Some(CpuQuota { quota_ns: ns(quota)?, period_ns: ns(period)? })
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
    use std::path::Path;

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
        let quota = CpuQuota { quota_ns: 5_000_000, period_ns: 20_000_000 };
        assert_eq!(parse_quota("5000 20000\n"), Some(quota));
        assert_eq!(["max 100000\n", "-1 100000\n", "5000", ""].map(parse_quota), [None; 4]);
    }

    /// Makes a group's folder, beside it first, so that it has another inode than the one that is there.
    fn make(folder: &Path, periods: u64, throttled_periods: u64) {
        let text =
            format!("nr_periods {periods}\nnr_throttled {throttled_periods}\nthrottled_usec {periods}\n");
        let next = folder.join("next");
        fs::create_dir_all(folder).unwrap();
        fs::write(&next, text).unwrap();
        fs::rename(next, folder.join("cpu.stat")).unwrap();
    }

    #[test]
    fn what_a_group_did_is_kept_when_it_has_gone() {
        let folder = tempfile::tempdir().unwrap();
        let group = folder.path().join("a");
        make(&group, 9, 2);
        let mut quotas = Quotas::default();
        assert_eq!(quotas.so_far(), None);
        quotas.add_group(group.to_str().unwrap().to_owned());
        assert_eq!(quotas.so_far(), Some(Throttled::default()));
        make(&group, 3, 3);
        let first = Throttled { periods: 3, throttled_periods: 3, ns: 3_000 };
        assert_eq!(quotas.so_far(), Some(first), "one of the same name, made anew");
        fs::write(group.join("cpu.stat"), "nr_periods 5\nnr_throttled 4\nthrottled_usec 5\n").unwrap();
        let second = Throttled { periods: 5, throttled_periods: 4, ns: 5_000 };
        assert_eq!(quotas.so_far(), Some(second), "the same one, some time later");
        // While it is open, its inode is not another's.
        let _kept = File::open(group.join("cpu.stat")).unwrap();
        fs::remove_dir_all(&group).unwrap();
        assert_eq!(quotas.so_far(), Some(second));
        make(&group, 1, 1);
        let third = Throttled { periods: 6, throttled_periods: 5, ns: 6_000 };
        assert_eq!(quotas.so_far(), Some(third));
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
