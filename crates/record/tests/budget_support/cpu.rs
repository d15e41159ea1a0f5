//! Taking the CPU away from workers.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::thread;
use std::time::{Duration, Instant};

use slip_testkit::skip;

use super::PATIENCE;

/// As many CPUs as a small machine has: on a large one nobody would have to wait.
const CPUS: &str = "0,1";

/// Keeps processes on these CPUs.
pub(crate) fn pin(pids: &[u32]) {
    for pid in pids {
        let set = Command::new("taskset").args(["-pc", CPUS, &pid.to_string()]).output().unwrap();
        assert!(set.status.success(), "{set:?}");
    }
}

/// Processes that compute on these CPUs, until they are dropped.
pub(crate) struct Hogs(Vec<Child>);

impl Hogs {
    /// What the kernel calls them.
    pub(crate) const NAME: &str = "sh";

    pub(crate) fn start(count: usize) -> Self {
        let start =
            || Command::new("taskset").args(["-c", CPUS, "sh", "-c", "while :; do :; done"]).spawn().unwrap();
        Self((0..count).map(|_| start()).collect())
    }
}

impl Drop for Hogs {
    fn drop(&mut self) {
        for hog in &mut self.0 {
            let _ = hog.kill();
            let _ = hog.wait();
        }
    }
}

/// A control group with a CPU quota. Removed when dropped, which the end of its processes has to precede.
pub(crate) struct Quota {
    folder: PathBuf,
    /// The group that processes are put into: it, or one in it.
    inner: PathBuf,
}

impl Quota {
    /// So much CPU time of each period, for processes in a group in it that is called `below`, or itself. None where there are no
    /// such groups.
    pub(crate) fn start(quota: Duration, period: Duration, below: &str) -> Option<Self> {
        match Self::make(quota, period, below) {
            Ok(group) => Some(group),
            Err(reason) => {
                skip("CPU quotas", &reason);
                None
            }
        }
    }

    fn make(quota: Duration, period: Duration, below: &str) -> Result<Self, String> {
        let (quota, period) = (quota.as_micros(), period.as_micros());
        let (root, is_first) = controller()?;
        let folder = root.join(format!("slip-test-{}", std::process::id()));
        let at = |path: &Path| format!("{}: ", path.display());
        let write = |path: PathBuf, text: String| {
            fs::write(&path, text).map_err(|error| at(&path) + &error.to_string())
        };
        if !is_first {
            write(root.join("cgroup.subtree_control"), "+cpu".to_owned())?;
        }
        let inner = folder.join(below);
        fs::create_dir_all(&inner).map_err(|error| at(&inner) + &error.to_string())?;
        let group = Self { folder, inner };
        if is_first {
            write(group.folder.join("cpu.cfs_period_us"), period.to_string())?;
            write(group.folder.join("cpu.cfs_quota_us"), quota.to_string())?;
        } else {
            write(group.folder.join("cpu.max"), format!("{quota} {period}"))?;
        }
        Ok(group)
    }

    /// For how long it has held its group back so far, each CPU by itself.
    pub(crate) fn throttled_ns(&self) -> u64 {
        let text = fs::read_to_string(self.folder.join("cpu.stat")).unwrap();
        let value =
            |key: &str| text.lines().find_map(|line| line.strip_prefix(key)?.trim().parse::<u64>().ok());
        value("throttled_time ").unwrap_or_else(|| 1_000 * value("throttled_usec ").unwrap())
    }

    pub(crate) fn add(&self, pids: &[u32]) {
        for pid in pids {
            fs::write(self.inner.join("cgroup.procs"), pid.to_string()).unwrap();
        }
    }
}

impl Drop for Quota {
    fn drop(&mut self) {
        let end = Instant::now() + PATIENCE;
        for folder in [&self.inner, &self.folder] {
            while folder.exists() && fs::remove_dir(folder).is_err() && Instant::now() < end {
                thread::sleep(Duration::from_millis(5));
            }
        }
    }
}

/// Where control groups with the controller `cpu` are, and whether they are of version 1.
fn controller() -> Result<(PathBuf, bool), String> {
    let mounts = fs::read_to_string("/proc/mounts").map_err(|error| error.to_string())?;
    let mounts: Vec<Vec<&str>> = mounts.lines().map(|line| line.split(' ').collect()).collect();
    let first =
        mounts.iter().find(|fields| fields[2] == "cgroup" && fields[3].split(',').any(|word| word == "cpu"));
    if let Some(fields) = first {
        return Ok((fields[1].into(), true));
    }
    let second = mounts.iter().find(|fields| fields[2] == "cgroup2").ok_or("no control groups")?;
    let root = PathBuf::from(second[1]);
    let controllers = fs::read_to_string(root.join("cgroup.controllers")).unwrap_or_default();
    if controllers.split_whitespace().any(|name| name == "cpu") {
        Ok((root, false))
    } else {
        Err("no controller of CPU time".to_owned())
    }
}
