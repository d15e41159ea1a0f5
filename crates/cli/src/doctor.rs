//! `slip doctor` and `slip explain`.

use std::path::{Path, PathBuf};

use slip_doctor::{Rule, Sheet, Unit};
use slip_model::Recording;
use slip_record::file::load;
use slip_record::{Ending, TrialPage};

use crate::args::{DoctorOptions, ModeName, RecordOptions, SamplerName};
use crate::failure::{self, Failure};
use crate::record::{Recorded, record};

/// Long enough for some hundred requests of a pool that has something to do, and short enough to wait for.
const SECONDS: f64 = 15.0;

/// Samples per second and thread: as for a recording.
const RATE_HZ: u32 = 99;

/// Watches, or reads a recording, and says what is wrong.
pub(crate) fn run(options: &DoctorOptions) -> Result<(), Failure> {
    if options.ask && options.target.fpm.is_none() {
        return Err(Failure::new(failure::USAGE, "only a pool of PHP-FPM can be asked")
            .hint("`--ask` goes with `--fpm POOL`"));
    }
    if options.trial.is_some() && options.target.fpm.is_none() {
        return Err(Failure::new(failure::USAGE, "only a page of a pool of PHP-FPM can be tried")
            .hint("`--trial` goes with `--fpm POOL`"));
    }
    let (recording, recorded) = match &options.file {
        Some(file) => {
            if options.duration.is_some() {
                return Err(Failure::new(failure::USAGE, "a recording is as long as it is")
                    .hint("`--duration` goes with a target"));
            }
            (read(file)?, None)
        }
        None => {
            let (recording, recorded) = watch(options)?;
            (recording, Some(recorded))
        }
    };
    let sheet = sheet(options, &recording)?;
    let text = slip_report::render_sheet(&sheet, options.format.into())
        .map_err(|error| Failure::new(failure::IO, error.to_string()))?;
    crate::print(&text)?;
    if let Some(mut recorded) = recorded {
        recorded.note_status();
        if recorded.ending == Ending::Stopped && recorded.is_interrupted {
            return Err(Failure::silent(failure::INTERRUPTED));
        }
    }
    judge(options, &sheet)
}

/// The recording's sheet.
fn sheet(options: &DoctorOptions, recording: &Recording) -> Result<Sheet, Failure> {
    let sheet = Sheet::of(recording, options.ops).ok_or_else(|| {
        Failure::new(failure::NO_EVIDENCE, "the recording has no budget").hint("record with `--budget`")
    })?;
    if options.ops.is_some() && sheet.unit != Unit::Operation {
        return Err(Failure::new(
            failure::NO_EVIDENCE,
            "there is no run of a program to divide by operations",
        )
        .hint("the unit of programs that serve requests is the request"));
    }
    Ok(sheet)
}

/// Whether that is well: the exit status.
fn judge(options: &DoctorOptions, sheet: &Sheet) -> Result<(), Failure> {
    if sheet.nothing.is_some() {
        let failure = Failure::new(failure::NO_EVIDENCE, "not enough evidence");
        return Err(match advice(sheet) {
            Some(advice) => failure.hint(advice),
            None => failure,
        });
    }
    let told: Vec<Option<bool>> = options.fail_on.iter().map(|limit| sheet.exceeds(limit)).collect();
    if told.contains(&Some(true)) {
        Err(Failure::silent(failure::EXCEEDED))
    } else if told.contains(&None) {
        Err(Failure::new(failure::NO_EVIDENCE, "whether a limit is exceeded cannot be told")
            .hint("`slip doctor` says above what it lacks for that"))
    } else {
        Ok(())
    }
}

/// How to get enough.
fn advice(sheet: &Sheet) -> Option<String> {
    if sheet.unit != Unit::Request {
        return None;
    }
    Some(match sheet.longer_seconds() {
        Some(seconds) => format!("watch for longer: `-d {seconds}`"),
        None => "watch while there are requests".to_owned(),
    })
}

/// A recording of before.
#[allow(clippy::print_stderr, reason = "what is said to the user besides data")]
fn read(file: &Path) -> Result<Recording, Failure> {
    let loaded = load(file)?;
    for warning in &loaded.warnings {
        eprintln!("warning: {}", slip_report::clean(&format!("{}: {warning}", file.display())));
    }
    Ok(loaded.recording)
}

/// Records, and reads that.
fn watch(options: &DoctorOptions) -> Result<(Recording, Recorded), Failure> {
    // Nobody else can read it, and it goes when we do.
    let folder = tempfile::tempdir()
        .map_err(|error| Failure::io("cannot make a folder for the recording".to_owned(), &error))?;
    let path = options.output.clone().unwrap_or_else(|| folder.path().join("doctor.slip"));
    let in_file = match &options.output {
        Some(path) => format!("what was recorded before is in `{}`", path.display()),
        None => "`--output FILE` keeps what was recorded before".to_owned(),
    };
    let recorded = record(&how(options)?, &path, &in_file)?;
    Ok((read(&path)?, recorded))
}

/// How it is recorded.
fn how(options: &DoctorOptions) -> Result<RecordOptions, Failure> {
    let is_started = !options.command.is_empty();
    Ok(RecordOptions {
        target: options.target.clone(),
        command: options.command.clone(),
        duration: options.duration.or_else(|| (!is_started).then_some(SECONDS)),
        rate: RATE_HZ,
        mode: Some(ModeName::Wall),
        tasks: None,
        sampler: SamplerName::Auto,
        output: None::<PathBuf>,
        force: options.force,
        keep_query: false,
        native: false,
        debuginfod: None,
        opcodes: false,
        no_gc: false,
        no_kernel_stacks: false,
        budget: true,
        rung: options.rung,
        no_uprobes: options.no_uprobes,
        alloc: false,
        pause: false,
        quiet: true,
        ask: options.ask,
        trial: trial(options)?,
    })
}

/// Which page is tried, with which extension. PHP-FPM looks for both in another folder than ours.
fn trial(options: &DoctorOptions) -> Result<Option<(TrialPage, Option<PathBuf>)>, Failure> {
    let whole = |path: &PathBuf| {
        path.canonicalize().map_err(|error| Failure::io(format!("cannot find `{}`", path.display()), &error))
    };
    let Some(script) = &options.trial else { return Ok(None) };
    let page = TrialPage { script: whole(script)?, url: options.url.clone() };
    Ok(Some((page, options.extension.as_ref().map(whole).transpose()?)))
}

/// Says what a rule means.
pub(crate) fn explain(rule: Option<&str>) -> Result<(), Failure> {
    let Some(name) = rule else { return crate::print(&slip_report::render_rules()) };
    let rule = Rule::named(name).ok_or_else(|| {
        Failure::new(failure::USAGE, format!("no rule is called `{name}`")).hint("`slip explain` lists them")
    })?;
    crate::print(&slip_report::render_rule(rule))
}
