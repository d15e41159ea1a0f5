//! What PHP says of itself when it is asked.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The answer of one worker of a pool; settings are those of all of its workers, and memory of opcache is the master's.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PhpAnswer {
    /// Version, such as `8.4.11`.
    pub version: String,
    /// The pool by its own name, if it said so.
    pub pool: String,
    /// When it answered, seconds since 1970.
    pub time_s: u64,
    /// Names of the extensions that are loaded.
    pub extensions: Vec<String>,
    /// Settings by name, as they hold in the pool. Only those that the question names; none of them is secret.
    pub settings: BTreeMap<String, String>,
    /// Names of the settings that a configuration file, or the command, sets.
    pub configured: Vec<String>,
    /// What could not be asked, one sentence each.
    pub unanswered: Vec<String>,
    /// Opcache, if it is loaded and answered.
    pub opcache: Option<Opcache>,
    /// Bytes in use of the cache of real paths.
    pub realpath_bytes: u64,
    /// Sessions are kept in Redis, with connections that are to outlive a request.
    pub keeps_sessions_by_persistent_redis: bool,
    /// The process manager of the pool.
    pub manager: Option<Manager>,
}

impl PhpAnswer {
    /// A setting; nothing if it is not known.
    pub fn setting(&self, name: &str) -> &str {
        self.settings.get(name).map_or("", String::as_str)
    }

    /// Whether a setting is on, as PHP reads it.
    pub fn is_on(&self, name: &str) -> bool {
        let value = self.setting(name).trim().to_ascii_lowercase();
        matches!(&*value, "on" | "yes" | "true") || value.parse::<i64>().is_ok_and(|number| number != 0)
    }

    /// A size in bytes, with the letters that PHP knows; `None` if it is not known or no number.
    pub fn bytes(&self, name: &str) -> Option<u64> {
        parse_bytes(self.setting(name))
    }

    /// Whether a configuration file, or the command, sets it.
    pub fn is_configured(&self, name: &str) -> bool {
        self.configured.iter().any(|known| known == name)
    }

    /// Whether this extension is loaded.
    pub fn has_extension(&self, name: &str) -> bool {
        self.extensions.iter().any(|known| known.eq_ignore_ascii_case(name))
    }
}

/// `4096K`, `64M`, `1G` or a plain number of bytes; `None` for what is none, and for what is negative: no limit.
fn parse_bytes(text: &str) -> Option<u64> {
    let text = text.trim();
    let digits = text.len() - text.trim_start_matches(|letter: char| letter.is_ascii_digit()).len();
    let number: u64 = text[..digits].parse().ok()?;
    let shift = match text[digits..].trim() {
        "" => 0,
        "k" | "K" => 10,
        "m" | "M" => 20,
        "g" | "G" => 30,
        _ => return None,
    };
    number.checked_mul(1 << shift)
}

/// What opcache says. Bytes, if nothing else is said.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Opcache {
    /// It takes part in requests.
    pub enabled: bool,
    /// It keeps code in files alone: nothing of what follows is known then.
    pub only_files: bool,
    /// It has no room left, and waits for a restart.
    pub cache_full: bool,
    /// A restart is due.
    pub restart_pending: bool,
    /// A restart is under way: nothing is taken from it meanwhile.
    pub restart_in_progress: bool,
    /// Memory in use.
    pub used: u64,
    /// Memory that is free.
    pub free: u64,
    /// Memory of scripts that have changed since: lost until the next restart.
    pub wasted: u64,
    /// Room for strings.
    pub strings_size: u64,
    /// What of it is in use.
    pub strings_used: u64,
    /// What of it is free.
    pub strings_free: u64,
    /// Scripts in it; not bytes.
    pub scripts: u64,
    /// Names that lead to them; not bytes.
    pub keys: u64,
    /// Most names that it can have: a prime above `opcache.max_accelerated_files`; not bytes.
    pub max_keys: u64,
    /// Scripts that were taken from it.
    pub hits: u64,
    /// Scripts that had to be compiled.
    pub misses: u64,
    /// Scripts that are never kept, by its blacklist.
    pub blacklist_misses: u64,
    /// When it started, seconds since 1970.
    pub start_s: u64,
    /// When it restarted last; 0 for never.
    pub last_restart_s: u64,
    /// Restarts because its memory was full.
    pub oom_restarts: u64,
    /// Restarts because it had no room for names.
    pub hash_restarts: u64,
    /// Restarts that somebody asked for.
    pub manual_restarts: u64,
    /// The compiler of machine code, if this PHP has one.
    pub jit: Option<Jit>,
    /// What was loaded before the first request, if anything was.
    pub preload: Option<Preload>,
}

/// What the compiler of machine code says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Jit {
    /// It can be used: it has memory, and nothing is in its way.
    pub enabled: bool,
    /// It is used.
    pub on: bool,
    /// Memory for what it compiles, in bytes.
    pub buffer_size: u64,
    /// What of it is free.
    pub buffer_free: u64,
}

/// What was loaded before the first request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Preload {
    /// Files.
    pub scripts: u64,
    /// Memory that they take, in bytes.
    pub memory: u64,
    /// Files among them that have changed since the start.
    pub newer: u64,
    /// Files among them that are there no more.
    pub missing: u64,
    /// The first of these two, by name.
    pub examples: Vec<String>,
}

/// How the pool's master keeps workers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Manager {
    /// `static`, `dynamic` or `ondemand`.
    pub kind: String,
    /// Requests that wait for a worker.
    pub listen_queue: u64,
    /// Most that ever waited.
    pub max_listen_queue: u64,
    /// Workers that wait for requests.
    pub idle: u64,
    /// Workers that have one, the one that answered among them.
    pub active: u64,
    /// Most that ever had one at the same time.
    pub max_active: u64,
    /// How often `pm.max_children` was reached.
    pub max_children_reached: u64,
    /// Requests that took longer than `request_slowlog_timeout`.
    pub slow_requests: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_read_as_php_reads_them() {
        let pairs =
            [("a", "1"), ("b", "On"), ("c", "0"), ("d", ""), ("e", "64M"), ("f", "-1"), ("g", "4096k")];
        let settings = pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let answer = PhpAnswer { settings, ..PhpAnswer::default() };
        assert_eq!(
            ["a", "b", "c", "d", "none"].map(|name| answer.is_on(name)),
            [true, true, false, false, false]
        );
        assert_eq!(
            ["a", "d", "e", "f", "g"].map(|name| answer.bytes(name)),
            [Some(1), None, Some(64 << 20), None, Some(4 << 20)]
        );
        assert_eq!(parse_bytes("99999999999999999999"), None);
        assert_eq!(parse_bytes("18446744073709551615G"), None);
    }
}
