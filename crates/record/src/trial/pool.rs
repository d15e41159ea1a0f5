//! What a pool's own configuration says, as far as a worker of ours has to be like one of its.

use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use slip_remote::{command_line, status_value};

use super::TrialError;

/// Largest file of a configuration, and most of them.
const MAX_FILE_BYTES: u64 = 1 << 20;
const MAX_FILES: usize = 256;

/// Files that include others, so deep.
const MAX_DEPTH: usize = 4;

/// What is not taken over: where the pool listens, how many workers it has, and what would write into its logs.
const LEFT_OUT: [&str; 7] =
    ["listen", "pm", "access", "slowlog", "request_slowlog_timeout", "ping", "catch_workers_output"];

/// A pool as its master has read it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PoolSettings {
    pub(super) program: PathBuf,
    pub(super) name: String,
    /// Lines `key = value` of its section.
    pub(super) lines: Vec<String>,
}

impl PoolSettings {
    /// Of the pool of this worker.
    ///
    /// # Errors
    ///
    /// [`TrialError::NoPool`] if it is none of PHP-FPM, [`TrialError::Elsewhere`] if its files are not ours, [`TrialError::Config`] if its
    /// configuration cannot be read.
    pub(super) fn of(worker: u32) -> Result<Self, TrialError> {
        let no_pool = || TrialError::NoPool { pid: worker };
        let title = |pid: u32| command_line(pid).into_iter().next().unwrap_or_default();
        let own = title(worker);
        let name = own.strip_prefix("php-fpm: pool ").ok_or_else(no_pool)?.trim().to_owned();
        let master = status_value(worker, "PPid").and_then(|pid| pid.parse().ok()).ok_or_else(no_pool)?;
        let of_master = title(master);
        let config = of_master
            .strip_prefix("php-fpm: master process (")
            .and_then(|rest| rest.trim_end().strip_suffix(')'))
            .ok_or_else(no_pool)?;
        let program = fs::read_link(format!("/proc/{master}/exe")).map_err(|_| no_pool())?;
        let is_ours = |what: &str| {
            let of = |pid: &str| fs::read_link(format!("/proc/{pid}/{what}")).ok();
            of("self").is_some_and(|ours| of(&master.to_string()) == Some(ours))
        };
        if !is_ours("root") || !is_ours("ns/mnt") {
            return Err(TrialError::Elsewhere { pid: master });
        }
        let mut reader = Reader { pool: name.clone(), lines: Vec::new(), files: 0 };
        let mut is_own = false;
        reader.read(Path::new(config), 0, &mut is_own)?;
        if reader.lines.is_empty() {
            return Err(TrialError::Config {
                path: config.into(),
                reason: format!("there is no pool [{name}]"),
            });
        }
        Ok(Self { program, name, lines: reader.lines })
    }
}

struct Reader {
    pool: String,
    lines: Vec<String>,
    files: usize,
}

impl Reader {
    /// A file, and those that it includes. `is_own`: we are in the pool's section, which goes on in files that are included.
    fn read(&mut self, path: &Path, depth: usize, is_own: &mut bool) -> Result<(), TrialError> {
        let wrong = |reason: String| TrialError::Config { path: path.to_owned(), reason };
        self.files += 1;
        if self.files > MAX_FILES || depth > MAX_DEPTH {
            return Err(wrong("there are too many files".to_owned()));
        }
        let mut text = String::new();
        let file = fs::File::open(path).map_err(|error| wrong(error.to_string()))?;
        file.take(MAX_FILE_BYTES).read_to_string(&mut text).map_err(|error| wrong(error.to_string()))?;
        for line in text.lines().map(str::trim) {
            if let Some(section) = line.strip_prefix('[').and_then(|rest| rest.split(']').next()) {
                *is_own = section.trim() == self.pool;
                continue;
            }
            let Some((key, value)) = line.split_once('=').map(|(key, value)| (key.trim(), value.trim()))
            else {
                continue;
            };
            if key.starts_with([';', '#']) {
                continue;
            }
            if key == "include" {
                let pattern = value.trim_matches('"');
                if !pattern.starts_with('/') {
                    return Err(wrong(format!("which folder {pattern} is in is not known")));
                }
                for path in matching(Path::new(pattern)) {
                    self.read(&path, depth + 1, is_own)?;
                }
            } else if *is_own && !is_left_out(key) {
                self.lines.push(format!("{key} = {value}"));
            }
        }
        Ok(())
    }
}

fn is_left_out(key: &str) -> bool {
    LEFT_OUT.contains(&key.split('.').next().unwrap_or(key))
}

/// The files that a pattern with `*` in its last part names, in order.
fn matching(pattern: &Path) -> Vec<PathBuf> {
    let name = pattern.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    if !name.contains('*') {
        return vec![pattern.to_owned()];
    }
    let folder = pattern.parent().unwrap_or(Path::new("/"));
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut found: Vec<PathBuf> = entries
        .filter(|entry| matches(&name, &entry.file_name().to_string_lossy()))
        .map(|entry| entry.path())
        .collect();
    found.sort();
    found
}

/// Whether a name is what a pattern says, in which `*` is anything.
fn matches(pattern: &str, name: &str) -> bool {
    let mut parts = pattern.split('*');
    let Some(rest) = parts.next().and_then(|first| name.strip_prefix(first)) else { return false };
    let parts: Vec<&str> = parts.collect();
    let Some((last, between)) = parts.split_last() else { return rest.is_empty() };
    let mut rest = rest;
    for part in between {
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    rest.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(files: &[(&str, &str)], pool: &str) -> Result<Vec<String>, TrialError> {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in files {
            fs::write(folder.path().join(name), text.replace("HERE", folder.path().to_str().unwrap()))
                .unwrap();
        }
        let mut reader = Reader { pool: pool.to_owned(), lines: Vec::new(), files: 0 };
        reader.read(&folder.path().join(files[0].0), 0, &mut false)?;
        Ok(reader.lines)
    }

    #[test]
    fn a_pool_keeps_what_its_workers_are_like() {
        let config = "[global]\npid = /run/x\ninclude=HERE/*.pool\n";
        let www = "; a comment = 1\n[www]\nuser = www-data\nlisten = /run/www.sock\nlisten.owner = x\npm = dynamic\npm.max_children = 5\n\
                   php_admin_value[memory_limit] = 64M\naccess.log = /var/log/x\nenv[A] = \"b = c\"\n";
        let files = [
            ("fpm.conf", config),
            ("www.pool", www),
            ("shop.pool", "[shop]\nuser = shop\n"),
            ("www.old", "[www]\nuser = old\n"),
        ];
        assert_eq!(
            read(&files, "www").unwrap(),
            ["user = www-data", "php_admin_value[memory_limit] = 64M", "env[A] = \"b = c\""]
        );
        assert_eq!(read(&files, "shop").unwrap(), ["user = shop"]);
        assert!(read(&files, "none").unwrap().is_empty());
    }

    #[test]
    fn files_that_include_themselves_end() {
        assert!(matches!(read(&[("a.conf", "include=HERE/a.conf")], "www"), Err(TrialError::Config { .. })));
        assert!(matches!(read(&[("a.conf", "include=etc/*.conf")], "www"), Err(TrialError::Config { .. })));
        assert!(matches!(
            read(&[("a.conf", "include=HERE/none.conf")], "www"),
            Err(TrialError::Config { .. })
        ));
    }

    #[test]
    fn patterns_name_files() {
        let right = [("*.conf", "a.conf"), ("*", ""), ("a*b*c", "aXbYc"), ("a*b*c", "abc"), ("*b", "ab")];
        assert!(right.iter().all(|(pattern, name)| matches(pattern, name)));
        let wrong = [("*.conf", "a.conf.bak"), ("a*", "b"), ("a*b*c", "ac"), ("ab*b", "ab")];
        assert!(wrong.iter().all(|(pattern, name)| !matches(pattern, name)));
    }

    #[test]
    fn what_is_no_worker_has_no_pool() {
        assert!(matches!(PoolSettings::of(std::process::id()), Err(TrialError::NoPool { .. })));
    }
}
