//! What to sample, as the user says it, and the processes that this means at the moment.

use std::collections::BTreeMap;

use slip_remote::{
    ChildrenReader, FpmPool, descendants, find_fpm_pool, find_host_pid, is_fpm_worker, process_stat,
    status_value,
};
use thiserror::Error;

/// What to sample.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// Single processes.
    Pids(Vec<u32>),
    /// All workers of a PHP-FPM pool, now and later.
    Fpm {
        /// Name of the pool.
        pool: String,
        /// The master, where several have a pool of this name.
        master: Option<u32>,
    },
    /// Processes and all their descendants, now and later.
    Trees(Vec<u32>),
}

/// Why a target cannot be found.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum TargetError {
    /// No such process, on this host or in a container.
    #[error("no process {pid}")]
    NoProcess {
        /// The process asked for.
        pid: u32,
    },
    /// Several containers have a process of this number.
    #[error("process {pid} exists in {} containers, as {}", hosts.len(), list(hosts))]
    AmbiguousPid {
        /// The process asked for.
        pid: u32,
        /// How this host numbers them.
        hosts: Vec<u32>,
    },
    /// The pool has no worker, or there is no such pool.
    #[error("{}", empty_pool(pool, pools, *masters))]
    NoPool {
        /// The pool asked for.
        pool: String,
        /// Pools that have workers.
        pools: Vec<String>,
        /// Number of masters that run.
        masters: usize,
    },
    /// The process that was named as master of the pool is none.
    #[error("process {pid} is no PHP-FPM master")]
    NotAMaster {
        /// How this host numbers it.
        pid: u32,
    },
    /// Several masters have a pool of this name.
    #[error("{} PHP-FPM masters have a pool `{pool}`: {}", masters.len(), list(masters))]
    AmbiguousPool {
        /// The pool asked for.
        pool: String,
        /// Process ids of the masters.
        masters: Vec<u32>,
    },
}

impl TargetError {
    /// What the user can do about it.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::NoProcess { .. } => None,
            Self::AmbiguousPid { hosts, .. } => {
                Some(format!("use the host's number: `--pid {}`", hosts.first().copied().unwrap_or_default()))
            }
            Self::NoPool { pools, .. } if !pools.is_empty() => {
                Some(format!("pools with workers: {}", pools.join(", ")))
            }
            Self::NoPool { masters: 0, .. } => {
                Some("start PHP-FPM, or look for it: `pgrep -a php-fpm`".to_owned())
            }
            Self::NotAMaster { .. } => Some("look for it: `pgrep -a php-fpm`".to_owned()),
            Self::NoPool { .. } => {
                Some("with `pm = ondemand` a pool has no worker until a request comes: send one".to_owned())
            }
            Self::AmbiguousPool { masters, .. } => Some(format!(
                "name the master: `--fpm-master {}`",
                masters.first().copied().unwrap_or_default()
            )),
        }
    }
}

fn empty_pool(pool: &str, pools: &[String], masters: usize) -> String {
    if masters == 0 {
        "no PHP-FPM master is running".to_owned()
    } else if pools.is_empty() {
        format!("PHP-FPM runs but pool `{pool}` has no worker")
    } else {
        format!("no PHP-FPM pool `{pool}` has a worker")
    }
}

fn list(pids: &[u32]) -> String {
    pids.iter().map(u32::to_string).collect::<Vec<_>>().join(", ")
}

/// Follows the processes of a target.
#[derive(Debug)]
pub struct TargetSet {
    target: Target,
    /// The master of a pool, the roots of trees, with their start time: found once.
    roots: BTreeMap<u32, u64>,
    /// Processes of the target, with their start time: a pid that comes back is another process.
    known: BTreeMap<u32, u64>,
    /// Lists the children of a pool's master.
    master: Option<ChildrenReader>,
    /// The master's children, if it was clear to which pool each belongs: as long as these are the same, so is the pool.
    children: Option<Vec<u32>>,
}

/// What has changed since the last look.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Change {
    /// Processes that have come.
    pub started: Vec<u32>,
    /// Processes that have gone.
    pub ended: Vec<u32>,
}

impl TargetSet {
    /// Finds the target.
    ///
    /// # Errors
    ///
    /// See [`TargetError`].
    pub fn find(target: Target) -> Result<Self, TargetError> {
        let roots = match &target {
            Target::Pids(pids) | Target::Trees(pids) => {
                pids.iter().map(|pid| host_pid(*pid)).collect::<Result<Vec<u32>, _>>()?
            }
            Target::Fpm { pool, master } => match find_fpm_pool(pool, master.map(host_pid).transpose()?) {
                FpmPool::Found { master, .. } => vec![master],
                FpmPool::Ambiguous(masters) => {
                    return Err(TargetError::AmbiguousPool { pool: pool.clone(), masters });
                }
                FpmPool::NotAMaster(pid) => return Err(TargetError::NotAMaster { pid }),
                FpmPool::Empty { pools, masters } => {
                    return Err(TargetError::NoPool { pool: pool.clone(), pools, masters: masters.len() });
                }
            },
        };
        // One that has just ended was found all the same.
        let start =
            |pid| process_stat(pid).map(|stat| stat.start_ticks).ok_or(TargetError::NoProcess { pid });
        let roots: BTreeMap<u32, u64> =
            roots.into_iter().map(|pid| Ok((pid, start(pid)?))).collect::<Result<_, _>>()?;
        let master = roots.keys().next().filter(|_| matches!(target, Target::Fpm { .. }));
        let master = master.map(|pid| ChildrenReader::open(*pid));
        Ok(Self { target, roots, known: BTreeMap::new(), master, children: None })
    }

    /// Whether processes may still come: a pool whose master runs, a tree whose root runs.
    pub fn may_grow(&self) -> bool {
        match self.target {
            Target::Pids(_) => false,
            Target::Fpm { .. } | Target::Trees(_) => self.roots.iter().any(runs),
        }
    }

    /// Whether a single process was asked for by name: it then has to be one that can be sampled.
    pub fn is_explicit(&self, pid: u32) -> bool {
        matches!(self.target, Target::Pids(_) | Target::Fpm { .. })
            || self.roots.keys().eq([&pid]) && !self.may_grow()
    }

    /// Whether this process was one of the target at the last look.
    pub(crate) fn has(&self, pid: u32) -> bool {
        self.known.contains_key(&pid)
    }

    /// Whether it is clear which processes belong to the target: a worker that was just forked does not say so yet.
    pub fn is_settled(&self) -> bool {
        self.children.is_some() || !matches!(self.target, Target::Fpm { .. })
    }

    /// Looks for processes that came and went.
    pub fn refresh(&mut self) -> Change {
        if let Some(master) = &self.master {
            let children = master.read();
            if self.children.as_ref() == Some(&children) {
                return Change::default();
            }
            // A worker that was just forked is not called one yet.
            let settled = children.iter().all(|child| is_fpm_worker(*child));
            self.children = settled.then_some(children);
        }
        let present: Vec<u32> = match &self.target {
            Target::Pids(_) => self.roots.keys().copied().collect(),
            // A reload keeps the master's pid and replaces its children.
            Target::Fpm { pool, .. } => match find_fpm_pool(pool, self.roots.keys().next().copied()) {
                FpmPool::Found { workers, .. } => workers,
                _ => Vec::new(),
            },
            Target::Trees(_) => {
                // A child whose parent ended belongs to the tree still, though it hangs elsewhere now, and so do its
                // own children. What has the pid of one that ended does not.
                let all = self.roots.iter().chain(&self.known).filter(|process| runs(*process));
                let mut all: Vec<u32> = all.map(|(pid, _)| *pid).collect();
                all.extend(descendants(&all));
                all
            }
        };
        let mut now = BTreeMap::new();
        for pid in present {
            if let Some(start) = started(pid) {
                now.insert(pid, start);
            }
        }
        if matches!(self.target, Target::Pids(_)) {
            // The process that was meant is the one that ran when we looked first.
            now.retain(|pid, start| self.known.is_empty() || self.known.get(pid) == Some(start));
        }
        let change = Change {
            started: now
                .iter()
                .filter(|(pid, start)| self.known.get(pid) != Some(start))
                .map(|(pid, _)| *pid)
                .collect(),
            ended: self
                .known
                .iter()
                .filter(|(pid, start)| now.get(pid) != Some(start))
                .map(|(pid, _)| *pid)
                .collect(),
        };
        self.known = now;
        change
    }
}

/// When a process was started; `None` if there is none, or only what is left of one that has ended.
fn started(pid: u32) -> Option<u64> {
    process_stat(pid).filter(|stat| !matches!(stat.state, 'Z' | 'X')).map(|stat| stat.start_ticks)
}

/// Whether a process runs, and is the one that was started then.
fn runs((pid, start): (&u32, &u64)) -> bool {
    started(*pid) == Some(*start)
}

/// The host's number of process `pid`, which may be a container's own number.
fn host_pid(pid: u32) -> Result<u32, TargetError> {
    // The files of a thread can be opened by its number too, but only the first thread's is that of the process.
    if status_value(pid, "Tgid").is_some_and(|first| first == pid.to_string()) {
        return Ok(pid);
    }
    match find_host_pid(pid).as_slice() {
        [] => Err(TargetError::NoProcess { pid }),
        [host] => Ok(*host),
        hosts => Err(TargetError::AmbiguousPid { pid, hosts: hosts.to_vec() }),
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, Write};
    use std::os::unix::process::CommandExt;

    use super::*;

    #[test]
    fn a_single_process_starts_and_ends_once() {
        let mut child =
            std::process::Command::new("cat").stdin(std::process::Stdio::piped()).spawn().unwrap();
        let mut set = TargetSet::find(Target::Pids(vec![child.id()])).unwrap();
        assert_eq!(set.refresh().started, [child.id()]);
        assert_eq!(set.refresh(), Change::default());
        drop(child.stdin.take());
        child.wait().unwrap();
        assert_eq!(set.refresh().ended, [child.id()]);
        assert_eq!(set.refresh(), Change::default());
    }

    #[test]
    fn what_is_not_there_is_said() {
        let error = TargetSet::find(Target::Pids(vec![u32::MAX])).unwrap_err();
        assert_eq!(error, TargetError::NoProcess { pid: u32::MAX });
    }

    #[test]
    fn the_number_of_a_thread_is_no_process() {
        let (tell, told) = std::sync::mpsc::channel();
        let (stop, stopped) = std::sync::mpsc::channel::<()>();
        let thread = std::thread::spawn(move || {
            // `PID/task/TID`
            tell.send(std::fs::read_link("/proc/thread-self").unwrap()).unwrap();
            let _ = stopped.recv();
        });
        let link = told.recv().unwrap();
        let tid = link.file_name().unwrap().to_str().unwrap().parse().unwrap();
        let error = TargetSet::find(Target::Pids(vec![tid])).unwrap_err();
        assert_eq!(error, TargetError::NoProcess { pid: tid });
        drop(stop);
        thread.join().unwrap();
    }

    #[test]
    fn a_process_that_is_no_master_is_named() {
        let pid = std::process::id();
        let target = Target::Fpm { pool: "www".to_owned(), master: Some(pid) };
        assert_eq!(TargetSet::find(target).unwrap_err(), TargetError::NotAMaster { pid });
    }

    /// A process and what it started; killed when dropped.
    struct Group(std::process::Child);

    impl Drop for Group {
        fn drop(&mut self) {
            let group = format!("-{}", self.0.id());
            let _ = std::process::Command::new("kill").args(["-KILL", "--", &group]).status();
            let _ = self.0.wait();
        }
    }

    #[test]
    fn a_child_of_an_orphan_belongs_to_the_tree() {
        let orphan = "read line; sleep 1000 & echo started; wait";
        let script = format!("exec 3<&0; sh -c '{orphan}' <&3 & echo ready; wait");
        let mut root = std::process::Command::new("sh")
            .args(["-c", &script])
            .process_group(0)
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .spawn()
            .map(Group)
            .unwrap();
        let mut input = root.0.stdin.take().unwrap();
        let mut lines = std::io::BufReader::new(root.0.stdout.take().unwrap()).lines();
        assert_eq!(lines.next().unwrap().unwrap(), "ready");
        let mut set = TargetSet::find(Target::Trees(vec![root.0.id()])).unwrap();
        assert_eq!(set.refresh().started.len(), 2);
        root.0.kill().unwrap();
        root.0.wait().unwrap();
        assert_eq!(set.refresh().ended, [root.0.id()]);
        input.write_all(b"\n").unwrap();
        assert_eq!(lines.next().unwrap().unwrap(), "started");
        assert_eq!(set.refresh().started.len(), 1);
    }

    #[test]
    fn what_has_the_pid_of_one_that_ended_is_not_of_the_tree() {
        let pid = std::process::id();
        let mut set = TargetSet::find(Target::Trees(vec![pid])).unwrap();
        for processes in [&mut set.roots, &mut set.known] {
            // Somebody was started under this pid a tick before us.
            processes.insert(pid, process_stat(pid).unwrap().start_ticks - 1);
        }
        assert_eq!(set.refresh(), Change { started: Vec::new(), ended: vec![pid] });
        assert!(!set.may_grow());
    }
}
