//! Finding targets: the workers of an FPM pool, the descendants of a process, the host's number of a container's pid.

use std::collections::BTreeSet;
use std::fs;

use crate::procfs::{all_pids, children_of, command_line, process_stat, status_value};

/// Most processes of a target that are followed.
const MAX_DESCENDANTS: usize = 4_096;

/// A pool found by name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FpmPool {
    /// One master has workers in a pool of this name.
    Found {
        /// The master.
        master: u32,
        /// Its workers, in ascending order.
        workers: Vec<u32>,
    },
    /// Several masters have a pool of this name.
    Ambiguous(Vec<u32>),
    /// No master has a worker in it: the pools that have some, and the masters that run.
    Empty {
        /// Names of pools that have workers.
        pools: Vec<String>,
        /// Masters that run.
        masters: Vec<u32>,
    },
    /// This process is no master, or not any more.
    NotAMaster(u32),
}

/// The pool that a worker's title names: `php-fpm: pool www`.
fn pool_of(pid: u32) -> Option<String> {
    title(pid)?.strip_prefix("php-fpm: pool ").map(|name| name.trim().to_owned())
}

/// Whether a process calls itself a worker of a PHP-FPM pool.
pub fn is_fpm_worker(pid: u32) -> bool {
    pool_of(pid).is_some()
}

fn is_master(pid: &u32) -> bool {
    title(*pid).is_some_and(|title| title.starts_with("php-fpm: master process"))
}

fn title(pid: u32) -> Option<String> {
    command_line(pid).into_iter().next()
}

/// Finds the workers of the FPM pool `name`, of master `of_master` if given.
pub fn find_fpm_pool(name: &str, of_master: Option<u32>) -> FpmPool {
    let masters: Vec<u32> = match of_master {
        Some(pid) if is_master(&pid) => vec![pid],
        Some(pid) => return FpmPool::NotAMaster(pid),
        None => all_pids().into_iter().filter(is_master).collect(),
    };
    let mut found: Vec<(u32, Vec<u32>)> = Vec::new();
    let mut pools = BTreeSet::new();
    for master in &masters {
        let mut workers = Vec::new();
        for child in children_of(*master) {
            let Some(pool) = pool_of(child) else { continue };
            if pool == name {
                workers.push(child);
            }
            pools.insert(pool);
        }
        if !workers.is_empty() {
            found.push((*master, workers));
        }
    }
    if found.len() > 1 {
        return FpmPool::Ambiguous(found.into_iter().map(|(master, _)| master).collect());
    }
    match found.pop() {
        Some((master, workers)) => FpmPool::Found { master, workers },
        None => FpmPool::Empty { pools: pools.into_iter().collect(), masters },
    }
}

/// All descendants of these processes, themselves not included.
pub fn descendants(pids: &[u32]) -> Vec<u32> {
    let mut found = Vec::new();
    let mut seen: BTreeSet<u32> = pids.iter().copied().collect();
    let mut queue = pids.to_vec();
    while let Some(parent) = queue.pop() {
        for child in children_of(parent) {
            if found.len() < MAX_DESCENDANTS && seen.insert(child) {
                found.push(child);
                queue.push(child);
            }
        }
    }
    found.sort_unstable();
    found
}

/// The host's number of the process that a container calls `ns_pid`.
///
/// Every process whose innermost pid namespace is not ours and which has this number there; several containers may
/// each have one.
pub fn find_host_pid(ns_pid: u32) -> Vec<u32> {
    let own_namespace = fs::read_link("/proc/self/ns/pid").ok();
    all_pids()
        .into_iter()
        .filter(|pid| {
            let inner = status_value(*pid, "NSpid")
                .and_then(|all| all.split_whitespace().last()?.parse::<u32>().ok());
            inner == Some(ns_pid)
                && fs::read_link(format!("/proc/{pid}/ns/pid")).ok() != own_namespace
                && process_stat(*pid).is_some()
        })
        .collect()
}
