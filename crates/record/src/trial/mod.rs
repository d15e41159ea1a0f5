//! Tries what the extension would save: one page, by a PHP-FPM of our own with one worker that has the pool's settings, with the booted
//! state restored and without. Only when the user wants that: the page is run many times. The pool itself is asked one thing, which php.ini it has.

mod pool;
mod server;

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde::Deserialize;
use slip_model::Trial;
use thiserror::Error;

use self::pool::PoolSettings;
use self::server::Server;
use crate::ask::{ASK_TIMEOUT, AskError, ResponseError, Script, after_mark, run_script};

/// Requests to each before the measurement: the second is saved, the third restored, and opcache takes no file that is younger than two
/// seconds.
const WARM_REQUESTS: u32 = 12;

/// Pairs of requests, one with and one without: as many as the time allows.
const MAX_PAIRS: usize = 200;
const MAX_TIME: Duration = Duration::from_secs(10);

/// With fewer nothing is said: the interval of the median needs them.
const MIN_PAIRS: usize = 12;

/// Reasons that are kept, and of each so many letters.
const MAX_REASONS: usize = 8;
const MAX_CHARS: usize = 200;

/// What a worker of the pool is asked at the begin: a master does not show what it was started with.
const WHICH_INI: &str = r#"<?php
$files = array_filter(array_map('trim', explode(',', php_ini_scanned_files() ?: '')));
$folders = array_values(array_unique(array_map('dirname', $files)));
echo "\nslip-answer ", json_encode(['file' => php_ini_loaded_file() ?: null, 'folders' => $folders]), "\n";
"#;

/// What the trial's worker is asked at its end.
const QUESTION: &str = r#"<?php
$known = function_exists('Slipstream\status') ? Slipstream\status() : null;
echo "\nslip-answer ", json_encode($known, JSON_FORCE_OBJECT | JSON_INVALID_UTF8_SUBSTITUTE), "\n";
"#;

/// Which page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrialPage {
    /// The script that PHP runs for it.
    pub script: PathBuf,
    /// As a visitor asks for it: `https://shop.example/cart?item=1`, or only the path.
    pub url: String,
}

/// Why there was no trial.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum TrialError {
    /// It is no worker of PHP-FPM.
    #[error("process {pid} is no worker of a pool of PHP-FPM")]
    NoPool {
        /// The process.
        pid: u32,
    },
    /// Its program and files are not where they are for us.
    #[error("the files of process {pid} are in a root or a container of its own")]
    Elsewhere {
        /// The master.
        pid: u32,
    },
    /// The pool does not say which php.ini it has.
    #[error(transparent)]
    Asked(#[from] AskError),
    /// The pool's settings are not known.
    #[error("the pool's settings cannot be read from `{path}`: {reason}", path = path.display())]
    Config {
        /// The file.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// It does not start.
    #[error("a PHP-FPM for the trial does not start: {reason}")]
    NotStarted {
        /// The last line of its log.
        reason: String,
    },
    /// The extension is not there, or disabled.
    #[error("there is nothing to try: {reason}")]
    NoExtension {
        /// Why.
        reason: String,
    },
    /// The page does not answer as pages do.
    #[error("the page cannot be tried: {reason}")]
    Page {
        /// What it did.
        reason: String,
    },
}

impl TrialError {
    /// What the user can do about it.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::NoPool { .. } => Some("`--trial` goes with `--fpm POOL`"),
            Self::Elsewhere { .. } => Some("run slip in the container"),
            Self::Config { .. } => Some("run as root, who can read it"),
            Self::NotStarted { .. } => None,
            Self::Asked(error) => error.hint(),
            Self::NoExtension { .. } => Some("`--extension FILE` names slipstream.so, or load it in php.ini"),
            Self::Page { .. } => {
                Some("`--trial SCRIPT --url URL`: the script that PHP runs, and what a visitor asks for")
            }
        }
    }
}

/// Where a pool has its settings from.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Ini {
    /// Its php.ini.
    file: Option<PathBuf>,
    /// Folders whose files are read after that.
    folders: Vec<String>,
}

/// What the extension says of itself.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Status {
    enabled: bool,
    reason: Option<String>,
    snapshots: u64,
    restores: u64,
    refusals: BTreeMap<String, u64>,
    fallbacks: BTreeMap<String, u64>,
}

/// Tries the page with the settings of the pool of these workers. `extension` is loaded in addition to what php.ini loads.
///
/// # Errors
///
/// See [`TrialError`].
pub fn try_restoring(
    workers: &[u32],
    page: &TrialPage,
    extension: Option<&Path>,
) -> Result<Trial, TrialError> {
    let worker = workers.first().copied().unwrap_or_default();
    let pool = PoolSettings::of(worker)?;
    let response = run_script(&[worker], WHICH_INI, ASK_TIMEOUT)?;
    let answer = after_mark(&response.body).and_then(|line| serde_json::from_slice(line).ok());
    let ini: Ini = answer.unwrap_or_default();
    let start = |is_enabled| Server::start(&pool, &ini, extension, is_enabled);
    let (plain, restoring) = (start(false)?, start(true)?);
    let parameters = parameters(page);
    let parameters: Vec<(&str, &str)> = parameters.iter().map(|(name, value)| (*name, &**value)).collect();
    let ask = |server: &Server| match server.ask(&parameters) {
        Ok((response, took)) if (200..400).contains(&response.status) => Ok(took),
        Ok((response, _)) => {
            Err(TrialError::Page { reason: format!("it answers with status {}", response.status) })
        }
        Err(error) => Err(TrialError::Page { reason: error.to_string() }),
    };
    for _ in 0..WARM_REQUESTS {
        ask(&plain)?;
        ask(&restoring)?;
    }
    let before = status(&restoring)?;
    if !before.enabled {
        let reason = before.reason.unwrap_or_else(|| "the extension is off".to_owned());
        return Err(TrialError::NoExtension { reason: cut(&reason) });
    }
    let (mut without, mut with) = (Vec::new(), Vec::new());
    let end = Instant::now() + MAX_TIME;
    while with.len() < MAX_PAIRS && (with.len() < MIN_PAIRS || Instant::now() < end) {
        // What comes first has no advantage.
        let is_plain_first = with.len() % 2 == 0;
        if is_plain_first {
            without.push(ask(&plain)?);
        }
        with.push(ask(&restoring)?);
        if !is_plain_first {
            without.push(ask(&plain)?);
        }
    }
    let after = status(&restoring)?;
    let reasons = |found: BTreeMap<String, u64>| {
        let mut found: Vec<(String, u64)> =
            found.into_iter().map(|(reason, count)| (cut(&reason), count)).collect();
        found.sort_by(|(_, one), (_, other)| other.cmp(one));
        found.truncate(MAX_REASONS);
        found
    };
    let ns = |took: &Duration| i64::try_from(took.as_nanos()).unwrap_or(i64::MAX);
    let saved: Vec<i64> = without.iter().zip(&with).map(|(without, with)| ns(without) - ns(with)).collect();
    let [saved_ns, saved_low_ns, saved_high_ns] = middle(saved);
    let median =
        |took: &[Duration]| u64::try_from(middle(took.iter().map(ns).collect())[0]).unwrap_or_default();
    Ok(Trial {
        page: page.url.split(['?', '#']).next().unwrap_or_default().to_owned(),
        pairs: with.len() as u64,
        restores: after.restores.saturating_sub(before.restores),
        snapshots: after.snapshots,
        plain_ns: median(&without),
        restored_ns: median(&with),
        saved_ns,
        saved_low_ns,
        saved_high_ns,
        refusals: reasons(after.refusals),
        fallbacks: reasons(after.fallbacks),
    })
}

fn cut(text: &str) -> String {
    text.chars().filter(|letter| !letter.is_control()).take(MAX_CHARS).collect()
}

/// The median, and the interval that holds it with 95 %, by order.
fn middle(mut values: Vec<i64>) -> [i64; 3] {
    values.sort_unstable();
    let count = values.len();
    let at = |place: f64| {
        values.get((place.max(0.0) as usize).min(count.saturating_sub(1))).copied().unwrap_or_default()
    };
    let (half, middle) = (0.98 * (count as f64).sqrt(), count as f64 / 2.0);
    [at(middle), at(middle - half), at((middle + half).ceil())]
}

fn status(server: &Server) -> Result<Status, TrialError> {
    let failed = |reason: String| TrialError::NoExtension { reason };
    let worker = server.worker().ok_or_else(|| failed("the worker has ended".to_owned()))?;
    let script = Script::write(worker, QUESTION).map_err(|error: io::Error| failed(error.to_string()))?;
    let path = script.path();
    let asked = server.ask(&common(&path, "/slip-trial"));
    let (response, _) = asked.map_err(|error: ResponseError| failed(error.to_string()))?;
    let answer =
        after_mark(&response.body).and_then(|line| serde_json::from_slice::<Option<Status>>(line).ok());
    answer
        .ok_or_else(|| failed(format!("the worker's answer has status {}", response.status)))?
        .ok_or_else(|| failed("PHP does not load the extension slipstream".to_owned()))
}

fn common<'a>(script: &'a str, name: &'a str) -> Vec<(&'static str, &'a str)> {
    vec![
        ("GATEWAY_INTERFACE", "CGI/1.1"),
        ("SERVER_PROTOCOL", "HTTP/1.1"),
        ("SERVER_SOFTWARE", "slip"),
        ("REMOTE_ADDR", "127.0.0.1"),
        ("REQUEST_METHOD", "GET"),
        ("REQUEST_URI", name),
        ("SCRIPT_NAME", name),
        ("SCRIPT_FILENAME", script),
        ("QUERY_STRING", ""),
        ("CONTENT_LENGTH", ""),
    ]
}

/// As a web server passes a request on.
fn parameters(page: &TrialPage) -> Vec<(&'static str, String)> {
    let (scheme, rest) = page.url.split_once("://").unwrap_or(("http", &page.url));
    let (host, path) = match rest.find('/') {
        // Only a path.
        Some(0) => ("localhost", rest),
        Some(at) => rest.split_at(at),
        None => (rest, "/"),
    };
    let (path, _) = path.split_once('#').unwrap_or((path, ""));
    let (name, query) = path.split_once('?').unwrap_or((path, ""));
    let script = page.script.display().to_string();
    let folder = page.script.parent().unwrap_or(Path::new("/")).display().to_string();
    let file = page.script.file_name().map(|file| file.to_string_lossy().into_owned()).unwrap_or_default();
    let port = host.rsplit_once(':').map_or(if scheme == "https" { "443" } else { "80" }, |(_, port)| port);
    let mut found: Vec<(&'static str, String)> =
        common(&script, path).into_iter().map(|(name, value)| (name, value.to_owned())).collect();
    for (key, value) in &mut found {
        match *key {
            "SCRIPT_NAME" => *value = format!("/{file}"),
            "QUERY_STRING" => *value = query.to_owned(),
            _ => {}
        }
    }
    found.extend([
        ("DOCUMENT_ROOT", folder),
        ("DOCUMENT_URI", name.to_owned()),
        ("HTTP_HOST", host.to_owned()),
        ("SERVER_NAME", host.split(':').next().unwrap_or_default().to_owned()),
        ("SERVER_PORT", port.to_owned()),
        ("REQUEST_SCHEME", scheme.to_owned()),
        ("REDIRECT_STATUS", "200".to_owned()),
    ]);
    if scheme == "https" {
        found.push(("HTTPS", "on".to_owned()));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parameter(url: &str, wanted: &str) -> String {
        let page = TrialPage { script: "/srv/shop/public/index.php".into(), url: url.to_owned() };
        let found = parameters(&page);
        let found: Vec<&String> =
            found.iter().filter(|(name, _)| *name == wanted).map(|(_, value)| value).collect();
        assert!(found.len() <= 1, "{wanted} is there twice");
        found.first().map(|value| (*value).clone()).unwrap_or_default()
    }

    #[test]
    fn a_page_is_asked_for_as_a_web_server_does() {
        let url = "https://shop.example:8443/cart/7?item=1#top";
        let wanted = [
            "HTTP_HOST",
            "SERVER_NAME",
            "SERVER_PORT",
            "HTTPS",
            "REQUEST_URI",
            "QUERY_STRING",
            "SCRIPT_NAME",
            "DOCUMENT_ROOT",
        ];
        assert_eq!(
            wanted.map(|name| parameter(url, name)),
            [
                "shop.example:8443",
                "shop.example",
                "8443",
                "on",
                "/cart/7?item=1",
                "item=1",
                "/index.php",
                "/srv/shop/public"
            ]
        );
        assert_eq!(
            ["HTTP_HOST", "REQUEST_URI", "HTTPS"].map(|name| parameter("/a?b", name)),
            ["localhost", "/a?b", ""]
        );
        assert_eq!(
            ["HTTP_HOST", "REQUEST_URI", "SERVER_PORT"].map(|name| parameter("http://a.example", name)),
            ["a.example", "/", "80"]
        );
    }

    #[test]
    fn the_interval_of_a_median_is_found_by_order() {
        assert_eq!(middle((0..100).rev().collect()), [50, 40, 60]);
        assert_eq!(middle(vec![7]), [7, 7, 7]);
        assert_eq!(middle(Vec::new()), [0, 0, 0]);
    }

    #[test]
    fn an_answer_may_lack_what_older_extensions_do_not_say() {
        let status: Status =
            serde_json::from_str(r#"{"enabled":true,"restores":3,"refusals":{"x":1},"new":{}}"#).unwrap();
        assert_eq!(
            (status.enabled, status.restores, status.refusals.len(), status.snapshots),
            (true, 3, 1, 0)
        );
    }
}
