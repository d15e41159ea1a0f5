//! One place for messages and exit codes.

use std::borrow::Cow;
use std::io;

use slip_record::file::FileError;
use slip_record::{AskError, SessionError, TargetError, TargetIssue, TrialError};
use slip_report::{ReportError, clean};

use crate::malloc::words_of;

/// A limit that the user has set is exceeded.
pub(crate) const EXCEEDED: u8 = 1;
/// The allocator is not in use.
pub(crate) const NOT_IN_USE: u8 = 1;
/// Wrong use: an unknown option, a file that is no recording.
pub(crate) const USAGE: u8 = 2;
/// The target is gone, or there is none.
pub(crate) const NO_TARGET: u8 = 3;
/// Not an interpreter, or a version that is not supported.
pub(crate) const UNSUPPORTED: u8 = 4;
/// Not permitted.
pub(crate) const PERMISSION: u8 = 5;
/// Not enough evidence to say anything.
pub(crate) const NO_EVIDENCE: u8 = 6;
/// A file or the disk failed.
pub(crate) const IO: u8 = 7;
/// Interrupted; what was recorded is saved.
pub(crate) const INTERRUPTED: u8 = 130;

/// What the user is told when something does not work.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) code: u8,
    message: String,
    hint: Option<String>,
}

impl Failure {
    pub(crate) fn new(code: u8, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), hint: None }
    }

    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    pub(crate) fn io(what: String, error: &io::Error) -> Self {
        let code = if error.kind() == io::ErrorKind::PermissionDenied { PERMISSION } else { IO };
        Self::new(code, format!("{what}: {error}"))
    }

    /// What the user is told, in one line, and what can be done about it.
    pub(crate) fn words(&self) -> (Cow<'_, str>, Option<Cow<'_, str>>) {
        (clean(&self.message), self.hint.as_deref().map(clean))
    }

    /// An ending that needs no message: all was said already.
    pub(crate) fn silent(code: u8) -> Self {
        Self::new(code, "")
    }

    #[allow(clippy::print_stderr, reason = "this is where messages are printed")]
    pub(crate) fn say(&self) {
        let (message, hint) = self.words();
        if !message.is_empty() {
            eprintln!("error: {message}");
        }
        if let Some(hint) = hint {
            eprintln!("hint: {hint}");
        }
    }
}

impl From<AskError> for Failure {
    fn from(error: AskError) -> Self {
        let code = match &error {
            AskError::NoWorker => NO_TARGET,
            AskError::NoSocket { .. } => PERMISSION,
            AskError::OtherNetwork { .. } => UNSUPPORTED,
            AskError::NoPlace { source, .. } | AskError::Unreachable { source, .. }
                if source.kind() == io::ErrorKind::PermissionDenied =>
            {
                PERMISSION
            }
            _ => NO_EVIDENCE,
        };
        let failure = Self::new(code, error.to_string());
        match error.hint() {
            Some(hint) => failure.hint(hint),
            None => failure,
        }
    }
}

impl From<TrialError> for Failure {
    fn from(error: TrialError) -> Self {
        if let TrialError::Asked(error) = error {
            return error.into();
        }
        let code = match &error {
            TrialError::NoPool { .. } => NO_TARGET,
            TrialError::Elsewhere { .. } | TrialError::NoExtension { .. } => UNSUPPORTED,
            TrialError::Config { .. } => PERMISSION,
            _ => NO_EVIDENCE,
        };
        let failure = Self::new(code, error.to_string());
        match error.hint() {
            Some(hint) => failure.hint(hint),
            None => failure,
        }
    }
}

impl From<TargetError> for Failure {
    fn from(error: TargetError) -> Self {
        let code = match error {
            TargetError::AmbiguousPid { .. } | TargetError::AmbiguousPool { .. } => USAGE,
            _ => NO_TARGET,
        };
        Self { code, message: error.to_string(), hint: error.hint() }
    }
}

impl From<SessionError> for Failure {
    fn from(error: SessionError) -> Self {
        match error {
            SessionError::Target(error) => error.into(),
            SessionError::Issue { pid, issue } => of_issue(pid, &issue),
            SessionError::File(error) => error.into(),
            other => Self::new(IO, other.to_string()),
        }
    }
}

/// There are threads, but each stack that was read did not hold together.
pub(crate) fn no_stack(message: &str, paused: bool) -> Failure {
    let failure = Failure::new(NO_EVIDENCE, message);
    failure.hint(if paused {
        "it stood still, so its stack is one that we do not understand: please report it, with the interpreter's version"
    } else {
        "if the target is too fast, `--pause` stops it while it is read"
    })
}

/// Why a process cannot be sampled, in words.
pub(crate) fn of_issue(pid: u32, issue: &TargetIssue) -> Failure {
    match issue {
        TargetIssue::NotFound => Failure::new(NO_TARGET, format!("no process {pid}")),
        TargetIssue::Denied { reason, hint } => {
            Failure::new(PERMISSION, format!("not permitted to read process {pid}: {reason}")).hint(hint)
        }
        TargetIssue::NotAnInterpreter { program } => {
            Failure::new(UNSUPPORTED, format!("process {pid} (`{program}`) runs neither CPython nor PHP"))
                .hint("if the interpreter is one of its children, add `--children`")
        }
        TargetIssue::Unsupported { reason } => Failure::new(UNSUPPORTED, format!("process {pid}: {reason}")),
        TargetIssue::NeedsOutside { reason } => {
            Failure::new(UNSUPPORTED, format!("the kernel cannot sample process {pid}: {reason}"))
                .hint("`--sampler outside` may")
        }
        TargetIssue::NoAsyncio => {
            Failure::new(UNSUPPORTED, format!("process {pid} has not imported asyncio, so it has no tasks"))
        }
        TargetIssue::NoMalloc(reason) => {
            let (why, hint) = words_of(reason);
            let message = format!(
                "process {pid} does not use libslipmalloc.so, which tells of allocations: {}",
                clean(&why)
            );
            Failure::new(UNSUPPORTED, message).hint(hint)
        }
        TargetIssue::NotReady => {
            Failure::new(UNSUPPORTED, format!("the interpreter of process {pid} has not started yet"))
                .hint("try again in a moment")
        }
    }
}

impl From<ReportError> for Failure {
    fn from(error: ReportError) -> Self {
        match error {
            ReportError::NoTimes(_) => Self::new(USAGE, error.to_string())
                .hint("`md`, `collapsed`, `speedscope` and `pprof` show who allocates, and what is kept"),
            _ => Self::new(IO, error.to_string()),
        }
    }
}

impl From<FileError> for Failure {
    fn from(error: FileError) -> Self {
        let code = match &error {
            FileError::Exists { .. } | FileError::NotFound { .. } | FileError::NotASlipFile { .. } => USAGE,
            FileError::Newer { .. } => UNSUPPORTED,
            FileError::Denied { .. } => PERMISSION,
            FileError::Damaged { .. } => NO_EVIDENCE,
            // Among them a folder that does not exist: the command was right, the disk is not as it was thought to be.
            _ => IO,
        };
        let hint = error.hint();
        let cause = std::error::Error::source(&error).map_or(String::new(), |cause| format!(": {cause}"));
        Self { code, message: format!("{error}{cause}"), hint }
    }
}
