//! Asks PHP itself, with one request to its pool: only when the user wants that. All else that we know of a target comes from outside.
//!
//! The request is one as any other: it counts, a worker serves it, and `auto_prepend_file` runs before it. Its script is a file of our
//! own that is gone afterwards; opcache keeps no file that is so young, unless `opcache.file_update_protection` is 0.

mod answer;
mod door;
pub(crate) mod fastcgi;
mod script;

use std::io::{self, Write as _};
use std::time::{Duration, Instant};

use slip_model::PhpAnswer;
use thiserror::Error;

pub(crate) use answer::after_mark;
pub use answer::parse_answer;
use door::Door;
pub use fastcgi::{Response, ResponseError, read_response};
use script::QUESTION;
pub(crate) use script::Script;

/// A question that all workers are too busy for is best given up after this time.
pub const ASK_TIMEOUT: Duration = Duration::from_secs(5);

/// Why PHP did not answer.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum AskError {
    /// There is no worker.
    #[error("the pool has no worker that could be asked")]
    NoWorker,
    /// Where the worker listens is not known.
    #[error("process {pid} does not listen for requests, or may not be asked where")]
    NoSocket {
        /// The worker.
        pid: u32,
    },
    /// It listens in a container's own network.
    #[error("the pool listens at {address} in a network of its own")]
    OtherNetwork {
        /// There.
        address: String,
    },
    /// The question cannot be put where the worker could read it.
    #[error("the question cannot be written to the /tmp of process {pid}: {source}")]
    NoPlace {
        /// The worker.
        pid: u32,
        /// Why.
        source: io::Error,
    },
    /// The pool cannot be connected.
    #[error("no connection to the pool at {address}: {source}")]
    Unreachable {
        /// Where it listens.
        address: String,
        /// Why.
        source: io::Error,
    },
    /// Nobody answered in time.
    #[error("no worker answered at {address} within {:.1} s", timeout.as_secs_f64())]
    Busy {
        /// Where the pool listens.
        address: String,
        /// So long they had time.
        timeout: Duration,
    },
    /// The answer is none.
    #[error("what came from {address} is no answer: {source}")]
    Broken {
        /// Where the pool listens.
        address: String,
        /// Why.
        source: ResponseError,
    },
    /// PHP did not run the question.
    #[error("PHP refused to run the question: {reason}")]
    Refused {
        /// HTTP status.
        status: u16,
        /// What PHP said, one line.
        reason: String,
    },
}

impl AskError {
    /// What the user can do about it.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::NoWorker => {
                Some("with `pm = ondemand` a pool has no worker until a request comes: send one")
            }
            Self::NoSocket { .. } => Some("`--ask` is for workers of PHP-FPM, and takes root"),
            Self::OtherNetwork { .. } => {
                Some("run slip in the container's network: `nsenter --net -t PID slip …`")
            }
            Self::NoPlace { .. } => Some("the pool's root needs a folder `/tmp`, and we need to be root"),
            Self::Unreachable { source, .. } => Some(match source.kind() {
                io::ErrorKind::PermissionDenied => "run as root, or as a user that `listen.acl_users` names",
                io::ErrorKind::NotFound => "the socket's file was removed: reload PHP-FPM",
                _ => "look whether the pool still runs",
            }),
            Self::Busy { .. } => Some("all workers may be busy: try again, or do without `--ask`"),
            Self::Broken { source: ResponseError::Closed, .. } => {
                Some("`listen.allowed_clients` may refuse this machine, or the worker ended")
            }
            Self::Broken { .. } => Some("`--ask` is for pools of PHP-FPM"),
            Self::Refused { status: 403, .. } => {
                Some("`security.limit_extensions` of the pool must allow `.php`")
            }
            Self::Refused { status: 404, .. } => {
                Some("the worker must be able to read `/tmp`: look at `open_basedir` and its user's rights")
            }
            Self::Refused { .. } => Some("the log of PHP-FPM says why"),
        }
    }
}

/// Asks the pool of these workers, of which any may answer, what PHP says of itself; it has `timeout` for it, as [`ASK_TIMEOUT`].
///
/// # Errors
///
/// See [`AskError`].
pub fn ask(workers: &[u32], timeout: Duration) -> Result<PhpAnswer, AskError> {
    let response = run_script(workers, QUESTION, timeout)?;
    parse_answer(&response.body).ok_or_else(|| refused(&response))
}

/// Has one of these workers run a script with this text.
///
/// # Errors
///
/// See [`AskError`]; what the script says is not looked at.
pub(crate) fn run_script(workers: &[u32], text: &str, timeout: Duration) -> Result<Response, AskError> {
    // One may just have ended.
    let door = workers.iter().find_map(|pid| Some((*pid, Door::of(*pid)?)));
    let Some((pid, door)) = door else {
        return Err(workers.first().map_or(AskError::NoWorker, |pid| AskError::NoSocket { pid: *pid }));
    };
    let address = door.name();
    if matches!(door, Door::Elsewhere(_)) {
        return Err(AskError::OtherNetwork { address });
    }
    let script = Script::write(pid, text).map_err(|source| AskError::NoPlace { pid, source })?;
    let end = Instant::now() + timeout;
    let mut connection = door.connect(end).map_err(|source| unreachable(&address, timeout, source))?;
    let path = script.path();
    let request = fastcgi::request(&[
        ("GATEWAY_INTERFACE", "CGI/1.1"),
        ("SERVER_PROTOCOL", "HTTP/1.1"),
        ("SERVER_SOFTWARE", "slip"),
        ("SERVER_NAME", "localhost"),
        ("SERVER_PORT", "80"),
        ("REMOTE_ADDR", "127.0.0.1"),
        ("REQUEST_METHOD", "GET"),
        ("REQUEST_URI", "/slip-doctor-ask"),
        ("SCRIPT_NAME", "/slip-doctor-ask"),
        ("SCRIPT_FILENAME", &path),
        ("QUERY_STRING", ""),
        ("CONTENT_LENGTH", ""),
    ]);
    let response = connection
        .write_all(&request)
        .map_err(ResponseError::from)
        .and_then(|()| read_response(&mut connection))
        .map_err(|source| match source {
            ResponseError::Io(error) if error.kind() == io::ErrorKind::TimedOut => {
                AskError::Busy { address: address.clone(), timeout }
            }
            source => AskError::Broken { address: address.clone(), source },
        })?;
    drop(script);
    Ok(response)
}

fn unreachable(address: &str, timeout: Duration, source: io::Error) -> AskError {
    let address = address.to_owned();
    match source.kind() {
        io::ErrorKind::TimedOut => AskError::Busy { address, timeout },
        _ => AskError::Unreachable { address, source },
    }
}

/// What PHP says in place of an answer: its message, or else the page.
fn refused(response: &Response) -> AskError {
    let texts = [&response.messages, &response.body].map(|text| String::from_utf8_lossy(text).into_owned());
    let line = texts.iter().flat_map(|text| text.lines()).map(str::trim).find(|line| !line.is_empty());
    let printable = |line: &str| line.chars().filter(|letter| !letter.is_control()).take(200).collect();
    AskError::Refused {
        status: response.status,
        reason: line.map_or_else(|| format!("status {}", response.status), printable),
    }
}
