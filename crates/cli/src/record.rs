//! `slip record`.

use std::ffi::OsString;
use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use slip_model::{Language, Mode, Process, RecordingInfo, Totals};
use slip_record::file::{FileError, Writer, load};
use slip_record::{
    ASK_TIMEOUT, Ending, Launched, OutsideSampler, OwnMemory, Progress, RunStart, Sampler, Session,
    SessionError, SessionOptions, Target, TargetIssue, TargetSet, ask, hold, launch, start_of, try_restoring,
    unix_ns,
};
use slip_report::{Format, Options as ReportOptions, utc};

use crate::args::{ModeName, RecordOptions, SamplerName, TargetOptions};
use crate::failure::{self, Failure, of_issue};
use crate::run::preload_for;
use crate::sampler::{WhyOutside, cannot_see, choose, look_of, words_of};

/// Most processes that are named because they could not be sampled.
const MAX_WARNINGS: usize = 5;

impl From<ModeName> for Mode {
    fn from(name: ModeName) -> Self {
        match name {
            ModeName::Wall => Mode::Wall,
            ModeName::Cpu => Mode::Cpu,
            ModeName::Gil => Mode::Gil,
            ModeName::Offcpu => Mode::Offcpu,
            ModeName::Exception => Mode::Exception,
        }
    }
}

/// The target that the options name; `started` is the process that we started ourselves.
pub(crate) fn target_of(options: &TargetOptions, started: Option<u32>) -> Result<(Target, String), Failure> {
    if options.children && options.fpm.is_some() {
        return Err(Failure::new(failure::USAGE, "`--children` goes with `--pid` or a command")
            .hint("`--fpm` follows all workers of the pool by itself"));
    }
    let pids = match started {
        Some(pid) => vec![pid],
        None => options.pid.clone(),
    };
    let children = if options.children { " --children" } else { "" };
    if let Some(pool) = &options.fpm {
        let target = Target::Fpm { pool: pool.clone(), master: options.fpm_master };
        Ok((target, format!("--fpm {pool}")))
    } else if pids.is_empty() {
        Err(Failure::new(failure::USAGE, "no target")
            .hint("name one: `--fpm POOL`, `--pid PID`, or for `record` and `trace` a command after `--`"))
    } else {
        let text = pids.iter().map(|pid| format!("--pid {pid}")).collect::<Vec<_>>().join(" ");
        let target = if options.children { Target::Trees(pids) } else { Target::Pids(pids) };
        Ok((target, format!("{text}{children}")))
    }
}

/// Signals by which a user or a system ends a program.
pub(crate) const ENDING_SIGNALS: [i32; 3] = [SIGINT, SIGTERM, SIGHUP];

/// Lets these signals set `stop` in the place of ending us: there is something to put right first.
pub(crate) fn listen(stop: &Arc<AtomicBool>) -> Result<(), Failure> {
    for signal in ENDING_SIGNALS {
        signal_hook::flag::register(signal, stop.clone()).map_err(cannot_listen)?;
    }
    Ok(())
}

pub(crate) fn cannot_listen(error: io::Error) -> Failure {
    Failure::io("cannot listen for signals".to_owned(), &error)
}

/// A recording that is in its file.
pub(crate) struct Recorded {
    pub(crate) ending: Ending,
    pub(crate) totals: Totals,
    /// The user has ended it.
    pub(crate) is_interrupted: bool,
    launched: Option<Launched>,
}

impl Recorded {
    /// Says if a command that was started has not ended well.
    #[allow(clippy::print_stderr, reason = "what is said to the user besides data")]
    pub(crate) fn note_status(&mut self) {
        let status = self.launched.as_mut().and_then(Launched::ended);
        if let Some(code) = status.filter(|code| *code != 0) {
            eprintln!("note: the command ended with status {code}");
        }
    }
}

/// Records, and says where the time goes.
#[allow(clippy::print_stderr, reason = "what is said to the user besides data")]
pub(crate) fn run(options: &RecordOptions) -> Result<(), Failure> {
    let path = options.output.clone().unwrap_or_else(default_name);
    let in_file = format!("what was recorded before is in `{}`", path.display());
    let mut recorded = record(options, &path, &in_file)?;
    eprintln!("saved: {}", path.display());
    if !options.quiet {
        let loaded = load(&path)?;
        let report = slip_report::render(&loaded.recording, Format::Markdown, &ReportOptions::default())?;
        crate::print(&report)?;
    }
    match recorded.ending {
        Ending::Stopped if recorded.is_interrupted => Err(Failure::silent(failure::INTERRUPTED)),
        Ending::TargetsGone if options.duration.is_some() && recorded.launched.is_none() => {
            let seconds = recorded.totals.duration_ns as f64 / 1e9;
            Err(Failure::new(failure::NO_TARGET, format!("the target ended after {seconds:.1} s"))
                .hint(format!("what was recorded until then is in `{}`", path.display())))
        }
        _ => {
            recorded.note_status();
            Ok(())
        }
    }
}

/// Records into a new file. `in_file` says where to look if it fails on the way.
#[allow(clippy::print_stderr, reason = "what is said to the user besides data")]
pub(crate) fn record(options: &RecordOptions, path: &Path, in_file: &str) -> Result<Recorded, Failure> {
    // Before anything is loaded into the kernel, or asked of a target.
    Writer::check(path, options.force)?;
    slip_record::use_huge_pages();
    let stop = Arc::new(AtomicBool::new(false));
    listen(&stop)?;
    let mode = if options.alloc { Mode::Alloc } else { Mode::from(options.mode()) };
    // Allocations have no clock.
    let interval_ns = if options.alloc { 0 } else { 1_000_000_000 / u64::from(options.rate) };
    let mut chosen = choose(options, interval_ns)?;
    let mut outside = OutsideSampler::new(look_of(options));
    let mut info = RecordingInfo {
        tool: format!("slip {}", env!("CARGO_PKG_VERSION")),
        started_unix_ns: unix_ns(),
        interval_ns,
        mode,
        target: String::new(),
        sampler: chosen.sampler.name().to_owned(),
        cannot_see: cannot_see(chosen.sampler.as_ref(), chosen.why_outside.as_ref()),
        host: crate::check::host(),
    };
    let session_options = SessionOptions {
        interval_ns,
        duration_ns: options.duration.map(|seconds| Duration::from_secs_f64(seconds).as_nanos() as u64),
        waits_for_interpreter: !options.command.is_empty(),
    };
    let duration_ns = session_options.duration_ns;
    let create = |info: &RecordingInfo| Writer::create(path, info, options.force);
    let (launched, writer, mut session);
    if let Some(program) = options.command.first() {
        let children = if options.target.children { " --children" } else { "" };
        info.target = format!("-- {program}{children}{}", words_of(options));
        // The file first: a command that cannot be recorded must not run.
        let environment =
            if options.alloc { vec![("LD_PRELOAD", preload_for(program)?)] } else { Vec::new() };
        writer = create(&info)?;
        launched = match start(&options.command, &environment, options.budget, chosen.sampler.as_mut()) {
            Ok(launched) => Some(launched),
            Err(failure) => {
                writer.discard();
                return Err(failure);
            }
        };
        let (target, _) = target_of(&options.target, launched.as_ref().map(Launched::pid))?;
        session = Session::new(session_options, TargetSet::find(target)?, chosen.sampler.as_mut());
        session.prepare()?;
    } else {
        launched = None;
        let (target, text) = target_of(&options.target, None)?;
        info.target = format!("{text}{}", words_of(options));
        for pid in &options.target.pid {
            // What serves no requests; it is sampled in any case.
            let _ = chosen.sampler.may_run(*pid, RunStart::Now, "");
        }
        session =
            Session::new(session_options.clone(), TargetSet::find(target.clone())?, chosen.sampler.as_mut());
        // A target that cannot be sampled must not cost the file that is to be overwritten.
        match session.prepare() {
            Err(SessionError::Issue { issue: TargetIssue::NeedsOutside { reason }, .. })
                if options.sampler == SamplerName::Auto && !options.budget && !options.alloc =>
            {
                let why = WhyOutside { reason, remedy: None };
                info.sampler = outside.name().to_owned();
                info.cannot_see = cannot_see(&outside, Some(&why));
                chosen.why_outside = Some(why);
                session = Session::new(session_options, TargetSet::find(target)?, &mut outside);
                session.prepare()?;
            }
            other => other?,
        }
        let is_php = |known: &Process| known.language == Language::Php;
        let processes = session.sink().processes();
        if !processes.is_empty()
            && processes.iter().all(is_php)
            && let Some(refusal) = refused_for_php(options, &info.sampler)
        {
            return Err(refusal);
        }
        // Before the watch: the requests are none of those that are measured.
        let workers: Vec<u32> = session.sink().processes().iter().map(|process| process.pid).collect();
        if options.ask {
            session = session.with_answer(ask(&workers, ASK_TIMEOUT)?);
        }
        if let Some((page, extension)) = &options.trial {
            session = session.with_trial(try_restoring(&workers, page, extension.as_deref())?);
        }
        writer = create(&info)?;
    }
    if let Some(why) = &chosen.why_outside {
        eprintln!("note: {}", why.sentence());
        if let Some(remedy) = &why.remedy {
            eprintln!("hint: {remedy}");
        }
    }
    if let Some(why) = &chosen.why_coarse {
        eprintln!("note: {why}");
    }

    if options.budget {
        session = session.with_facts();
    }
    let bar = progress_bar(duration_ns);
    let result = session.record(writer, &stop, |progress| show(&bar, progress));
    bar.finish_and_clear();
    let left_out = session.left_out();
    let own_memory = session.own_memory();
    let (ending, totals) = result.map_err(|error| match error {
        // A full disk says itself what is saved.
        SessionError::File(error) if !matches!(error, FileError::DiskFull { .. }) => {
            Failure::from(error).hint(in_file)
        }
        other => other.into(),
    })?;

    own_memory.into_iter().for_each(warn_of_own_memory);
    if totals.is_empty() {
        return Err(nothing_seen(ending, &totals, &left_out, options));
    }
    warn_of(&left_out);
    let is_interrupted = stop.load(Ordering::Relaxed);
    Ok(Recorded { ending, totals, is_interrupted, launched })
}

/// What is asked for that there is only with Python, by this sampler.
fn refused_for_php(options: &RecordOptions, sampler: &str) -> Option<Failure> {
    let (what, hint) = match options.mode() {
        ModeName::Gil => {
            ("PHP has no global interpreter lock", "`--mode cpu` counts the moments in which a worker runs")
        }
        ModeName::Exception => {
            ("whether PHP handles an exception is not read", "`--mode exception` is for Python")
        }
        _ if options.native && sampler != "kernel" => (
            "from outside, native functions are not seen in stacks of PHP",
            "as root `--sampler kernel` shows them; functions of PHP itself are in stacks without `--native`",
        ),
        _ if options.opcodes => ("instructions of PHP are not read", "`--opcodes` is for Python"),
        _ => return None,
    };
    Some(Failure::new(failure::USAGE, what).hint(hint))
}

/// Says what of an interpreter's memory is not seen.
#[allow(clippy::print_stderr, reason = "what is said to the user besides data")]
fn warn_of_own_memory(own: OwnMemory) {
    let (what, hint) = match own {
        OwnMemory::Pymalloc => (
            "Python cuts blocks of up to 512 bytes out of memory of its own (pymalloc): they are not in the recording",
            "with `PYTHONMALLOC=malloc` in its environment each block is one of libslipmalloc.so's",
        ),
        OwnMemory::ZendManager => (
            "PHP cuts what belongs to a request out of memory of its own (the Zend memory manager): it is not in the recording",
            "with `USE_ZEND_ALLOC=0` in its environment each block is one of libslipmalloc.so's",
        ),
    };
    eprintln!("warning: {what}");
    eprintln!("hint: {hint}");
}

/// Says which interpreters are not looked at.
#[allow(clippy::print_stderr, reason = "what is said to the user besides data")]
pub(crate) fn warn_of(left_out: &[(u32, TargetIssue)]) {
    let missed: Vec<&(u32, TargetIssue)> = left_out
        .iter()
        .filter(|(_, issue)| {
            matches!(
                issue,
                TargetIssue::Denied { .. }
                    | TargetIssue::Unsupported { .. }
                    | TargetIssue::NeedsOutside { .. }
                    | TargetIssue::NoMalloc(_)
            )
        })
        .collect();
    for (pid, issue) in missed.iter().take(MAX_WARNINGS) {
        eprintln!("warning: {}; it is not in the recording", of_issue(*pid, issue).words().0);
    }
    if missed.len() > MAX_WARNINGS {
        eprintln!("warning: {} more processes are not in the recording", missed.len() - MAX_WARNINGS);
    }
}

/// Why there is no recording.
#[allow(clippy::print_stderr, reason = "what is said to the user besides data")]
fn nothing_seen(
    ending: Ending,
    totals: &Totals,
    left_out: &[(u32, TargetIssue)],
    options: &RecordOptions,
) -> Failure {
    if ending == Ending::Stopped {
        eprintln!("note: interrupted before the first sample, nothing is saved");
        return Failure::silent(failure::INTERRUPTED);
    }
    if let Some((pid, issue)) = left_out.first() {
        return of_issue(*pid, issue);
    }
    let unreadable = totals.torn + totals.failed;
    if unreadable > 0 {
        let message = format!("no stack could be read: all of {unreadable} attempts failed");
        return failure::no_stack(&message, options.pause);
    }
    let seconds = totals.duration_ns as f64 / 1e9;
    if options.alloc {
        let message = format!("no block was told of in {seconds:.1} s: one in 512 KiB is, as a rule");
        return Failure::new(failure::NO_EVIDENCE, message)
            .hint("record for longer, or while it works; `SLIP_MALLOC_SAMPLE=65536` in its environment has more told");
    }
    let (message, longer) = match ending {
        Ending::TargetsGone => ("the target ended before the first sample".to_owned(), ""),
        _ => (format!("no sample was taken in {seconds:.1} s"), "for longer, or "),
    };
    Failure::new(failure::NO_EVIDENCE, message).hint(format!("record {longer}at a higher rate: `--rate 997`"))
}

/// Starts the command; with a budget its run is measured from its first moment on.
pub(crate) fn start(
    command: &[String],
    environment: &[(&str, OsString)],
    budget: bool,
    sampler: &mut dyn Sampler,
) -> Result<Launched, Failure> {
    if budget {
        return start_watched(command, sampler, "the budget is of requests alone");
    }
    launch(command, environment).map_err(|error| cannot_start(command, &error))
}

/// Starts the command once the kernel watches its process, which is held until then. `unless` says what follows if that cannot be.
#[allow(clippy::print_stderr, reason = "what is said to the user besides data")]
pub(crate) fn start_watched(
    command: &[String],
    sampler: &mut dyn Sampler,
    unless: &str,
) -> Result<Launched, Failure> {
    let held = hold(command).map_err(|error| cannot_start(command, &error))?;
    let title = command.first().and_then(|program| program.rsplit('/').next()).unwrap_or_default();
    if let Err(TargetIssue::Unsupported { reason }) = sampler.may_run(held.pid(), start_of(command), title) {
        eprintln!("note: {unless}: {reason}");
    }
    held.release().map_err(|error| cannot_start(command, &error))
}

fn cannot_start(command: &[String], error: &io::Error) -> Failure {
    Failure::new(failure::USAGE, format!("cannot start `{}`: {error}", command.join(" ")))
}

/// `slip-20261121-220455.slip`, in UTC.
fn default_name() -> PathBuf {
    let [year, month, day, hour, minute, second] = utc(unix_ns());
    PathBuf::from(format!("slip-{year:04}{month:02}{day:02}-{hour:02}{minute:02}{second:02}.slip"))
}

fn progress_bar(duration_ns: Option<u64>) -> ProgressBar {
    if !io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let (bar, template) = match duration_ns {
        Some(total) => (ProgressBar::new(total), "{bar:30} {msg}"),
        None => (ProgressBar::new_spinner(), "{spinner} {msg}"),
    };
    bar.with_style(ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar()))
}

fn show(bar: &ProgressBar, progress: Progress) {
    let totals = progress.totals;
    let torn = totals.torn as f64 * 100.0 / (totals.samples + totals.allocations + totals.torn).max(1) as f64;
    let waits = if totals.waits > 0 { format!(", {} waits", totals.waits) } else { String::new() };
    let samples = totals.samples + totals.allocations;
    bar.set_position(progress.elapsed_ns);
    bar.set_message(format!(
        "{:.0} s, {} processes, {} samples{waits}, {torn:.1} % torn, our CPU {:.1} %",
        progress.elapsed_ns as f64 / 1e9,
        progress.processes,
        samples,
        totals.own_cpu_ns as f64 * 100.0 / totals.duration_ns.max(1) as f64,
    ));
}
