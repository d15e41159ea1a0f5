//! What to sample, as the user says it, and the processes that this means at the moment.

use std::collections::BTreeMap;

use slip_remote::{
    FpmPool, children_of, descendants, find_fpm_pool, find_host_pid, is_fpm_worker, process_stat,
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
    /// The master of a pool, the roots of trees: found once.
    roots: Vec<u32>,
    /// Processes of the target, with their start time: a pid that comes back is another process.
    known: BTreeMap<u32, u64>,
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
            Target::Fpm { pool, master } => match find_fpm_pool(pool, *master) {
                FpmPool::Found { master, .. } => vec![master.pid],
                FpmPool::Ambiguous(masters) => {
                    return Err(TargetError::AmbiguousPool {
                        pool: pool.clone(),
                        masters: masters.iter().map(|master| master.pid).collect(),
                    });
                }
                FpmPool::Empty { pools, masters } => {
                    return Err(TargetError::NoPool { pool: pool.clone(), pools, masters: masters.len() });
                }
            },
        };
        Ok(Self { target, roots, known: BTreeMap::new(), children: None })
    }

    /// Whether processes may still come: a pool whose master runs, a tree whose root runs.
    pub fn may_grow(&self) -> bool {
        match self.target {
            Target::Pids(_) => false,
            Target::Fpm { .. } | Target::Trees(_) => self.roots.iter().any(|pid| runs(*pid)),
        }
    }

    /// Whether a single process was asked for by name: it then has to be one that can be sampled.
    pub fn is_explicit(&self, pid: u32) -> bool {
        matches!(self.target, Target::Pids(_) | Target::Fpm { .. }) || self.roots == [pid] && !self.may_grow()
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
        if matches!(self.target, Target::Fpm { .. })
            && let Some(master) = self.roots.first()
        {
            let children = children_of(*master);
            if self.children.as_ref() == Some(&children) {
                return Change::default();
            }
            // A worker that was just forked is not called one yet.
            let settled = children.iter().all(|child| is_fpm_worker(*child));
            self.children = settled.then_some(children);
        }
        let present: Vec<u32> = match &self.target {
            Target::Pids(_) => self.roots.clone(),
            // A reload keeps the master's pid and replaces its children.
            Target::Fpm { pool, .. } => match find_fpm_pool(pool, self.roots.first().copied()) {
                FpmPool::Found { workers, .. } => workers,
                _ => Vec::new(),
            },
            Target::Trees(_) => {
                let mut all: Vec<u32> = self
                    .roots
                    .iter()
                    .flat_map(|root| std::iter::once(*root).chain(descendants(*root)))
                    .collect();
                // A child whose parent ended belongs to the tree still, though it hangs elsewhere now.
                all.extend(self.known.keys());
                all
            }
        };
        let mut now = BTreeMap::new();
        for pid in present {
            if let Some(stat) = process_stat(pid)
                && !matches!(stat.state, 'Z' | 'X')
            {
                now.insert(pid, stat.start_ticks);
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

fn runs(pid: u32) -> bool {
    process_stat(pid).is_some_and(|stat| !matches!(stat.state, 'Z' | 'X'))
}

/// The host's number of process `pid`, which may be a container's own number.
fn host_pid(pid: u32) -> Result<u32, TargetError> {
    if process_stat(pid).is_some() {
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
}
