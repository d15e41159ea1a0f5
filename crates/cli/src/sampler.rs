//! Which sampler takes the samples of `slip record`, and why it is not the better one.

use slip_model::Mode;
use slip_record::{
    Books, Debuginfod, KernelSampler, OutsideOptions, OutsideSampler, ProbeError, Sampler, TaskChoice,
};

use crate::args::{ModeName, RecordOptions, SamplerName, TasksName};
use crate::failure::{self, Failure};

/// Highest rate at which the kernel samples unless it is asked to by name: each sample is paid by the target, with 6 us and
/// more, while the one that reads from outside has a CPU of its own.
pub(crate) const MAX_KERNEL_HZ: u32 = 2_000;

/// A sampler, and why it is not the better one.
pub(crate) struct Chosen {
    pub(crate) sampler: Box<dyn Sampler>,
    pub(crate) why_outside: Option<WhyOutside>,
    /// Why the budget, if one is kept, is coarse, if that was not asked for.
    pub(crate) why_coarse: Option<String>,
}

/// What is in the header of a recording.
pub(crate) fn cannot_see(sampler: &dyn Sampler, why_outside: Option<&WhyOutside>) -> Vec<String> {
    why_outside.map(WhyOutside::sentence).into_iter().chain(sampler.cannot_see()).collect()
}

/// What keeps the kernel from sampling, and what helps.
pub(crate) struct WhyOutside {
    pub(crate) reason: String,
    pub(crate) remedy: Option<&'static str>,
}

impl WhyOutside {
    pub(crate) fn sentence(&self) -> String {
        format!("the stacks are read from outside, not by the kernel: {}", self.reason)
    }
}

pub(crate) fn look_of(options: &RecordOptions) -> OutsideOptions {
    OutsideOptions {
        mode: Mode::from(options.mode()),
        keep_query: options.keep_query,
        pause: options.pause,
        without_kernel_stacks: options.no_kernel_stacks,
        native: options.native,
        opcodes: options.opcodes,
        without_gc: options.no_gc,
        tasks: options.tasks.map(TaskChoice::from),
    }
}

impl From<TasksName> for TaskChoice {
    fn from(name: TasksName) -> Self {
        match name {
            TasksName::Running => Self::Running,
            TasksName::All => Self::All,
        }
    }
}

/// What is asked for that the kernel does not see, and the option that asks for it.
fn unseen_by_the_kernel(options: &RecordOptions) -> Option<(&'static str, &'static str)> {
    let asked = [
        (options.tasks.is_some(), ("the tasks of asyncio", "--async")),
        (options.mode() == ModeName::Exception, ("who handles an exception", "--mode exception")),
        (options.opcodes, ("which instruction is executed", "--opcodes")),
    ];
    asked.into_iter().find_map(|(is_asked, what)| is_asked.then_some(what))
}

/// The options that say what is looked at, as typed, for the header of a recording.
pub(crate) fn words_of(options: &RecordOptions) -> String {
    let mut words = String::new();
    match options.tasks {
        Some(TasksName::Running) => words.push_str(" --async running"),
        Some(TasksName::All) => words.push_str(" --async all"),
        None => {}
    }
    for (is_asked, word) in [
        (options.alloc, " --alloc"),
        (options.native, " --native"),
        (options.debuginfod.is_some(), " --debuginfod"),
        (options.opcodes, " --opcodes"),
        (options.no_gc, " --no-gc"),
    ] {
        words.push_str(if is_asked { word } else { "" });
    }
    words
}

/// The budget's books, if they are wanted.
fn start_books(options: &RecordOptions) -> Result<Option<Books>, Failure> {
    if !options.budget {
        return Ok(None);
    }
    let uses_uprobes = !options.no_uprobes;
    let books = match options.rung {
        Some(rung) => Books::start_at(rung, uses_uprobes),
        None => Books::start_finest(uses_uprobes),
    };
    books.map(Some).map_err(|error| {
        Failure::new(status_of(&error), error.to_string())
            .hint("as root it may be allowed; `--rung proc` needs nothing of the kernel, and is coarse")
    })
}

/// Who fetches debug files, if that is wanted.
fn start_debuginfod(options: &RecordOptions) -> Result<Option<Debuginfod>, Failure> {
    let Some(named) = &options.debuginfod else { return Ok(None) };
    let servers = named.clone().or_else(|| std::env::var("DEBUGINFOD_URLS").ok()).unwrap_or_default();
    if servers.trim().is_empty() {
        return Err(Failure::new(failure::USAGE, "no server is named that has debug files")
            .hint("`--debuginfod=URL` names one, or the environment's DEBUGINFOD_URLS"));
    }
    Debuginfod::start(&servers).map(Some).map_err(|error| {
        Failure::new(failure::UNSUPPORTED, format!("cannot run debuginfod-find: {error}"))
            .hint("it is in the package `debuginfod` of Debian and Ubuntu, and in `elfutils-debuginfod-client` of Fedora")
    })
}

pub(crate) fn status_of(error: &ProbeError) -> u8 {
    match error {
        ProbeError::Denied(_) => failure::PERMISSION,
        _ => failure::UNSUPPORTED,
    }
}

/// The sampler that was asked for, or the best that can be had.
pub(crate) fn choose(options: &RecordOptions, interval_ns: u64) -> Result<Chosen, Failure> {
    let how = look_of(options);
    if options.tasks.is_some() && options.mode() == ModeName::Exception {
        return Err(Failure::new(failure::USAGE, "which task handles an exception is not known")
            .hint("`--mode exception` goes with threads, without `--async`"));
    }
    if options.alloc {
        let kernel = KernelSampler::start_allocations(how).map_err(|error| {
            let hint = match error {
                ProbeError::Denied(_) => "run as root: the kernel copies the stacks of who allocates",
                _ => "`slip check` says what this kernel can do",
            };
            Failure::new(status_of(&error), error.to_string()).hint(hint)
        })?;
        return Ok(Chosen { sampler: Box::new(kernel), why_outside: None, why_coarse: None });
    }
    let debuginfod = start_debuginfod(options)?;
    let (kernel, why_outside) = choose_kernel(options, how, interval_ns)?;
    let kernel = match (kernel, debuginfod) {
        (Some(kernel), Some(servers)) => Some(kernel.with_debuginfod(servers)),
        (None, Some(_)) => {
            return Err(Failure::new(failure::USAGE, "from outside there are no native functions to be named")
                .hint("`--debuginfod` goes with the kernel's sampler; `--sampler kernel` says why it is not to be had"));
        }
        (kernel, None) => kernel,
    };
    let books = start_books(options)?;
    let why_coarse = books.as_ref().and_then(Books::why_coarse);
    let sampler: Box<dyn Sampler> = match (kernel, books) {
        (Some(kernel), Some(books)) => Box::new(kernel.with_books(books)),
        (Some(kernel), None) => Box::new(kernel),
        (None, Some(books)) => Box::new(OutsideSampler::new(how).with_books(books)),
        (None, None) => Box::new(OutsideSampler::new(how)),
    };
    Ok(Chosen { sampler, why_outside, why_coarse })
}

/// The sampler in the kernel; `None` for the one that reads from outside, and why if that is not what was asked for.
fn choose_kernel(
    options: &RecordOptions,
    how: OutsideOptions,
    interval_ns: u64,
) -> Result<(Option<KernelSampler>, Option<WhyOutside>), Failure> {
    let is_by_name = options.sampler == SamplerName::Kernel;
    if options.sampler == SamplerName::Outside {
        return Ok((None, None));
    }
    if how.mode == Mode::Gil || how.pause {
        if !is_by_name {
            return Ok((None, None));
        }
        return Err(Failure::new(
            failure::USAGE,
            "the kernel does not see who holds the global interpreter lock, and stops nobody",
        )
        .hint("`--mode gil` and `--pause` go with `--sampler outside`"));
    }
    if let Some((what, option)) = unseen_by_the_kernel(options) {
        if is_by_name {
            return Err(Failure::new(failure::USAGE, format!("the kernel does not see {what}"))
                .hint(format!("`{option}` goes with `--sampler outside`")));
        }
        let reason = format!("it does not see {what}");
        return Ok((None, Some(WhyOutside { reason, remedy: None })));
    }
    if options.rate > MAX_KERNEL_HZ && !is_by_name {
        return Ok((None, None));
    }
    match KernelSampler::start(how, interval_ns) {
        Ok(sampler) => Ok((Some(sampler), None)),
        Err(error) if is_by_name => Err(Failure::new(status_of(&error), error.to_string())
            .hint("as root it may be allowed; `--sampler outside` needs nothing of the kernel")),
        Err(error) => {
            let remedy = match error {
                ProbeError::Denied(_) => {
                    "as root, or with CAP_BPF, CAP_PERFMON and CAP_SYS_PTRACE, the kernel copies the stacks"
                }
                ProbeError::NoTypes => "a kernel built with CONFIG_DEBUG_INFO_BTF can",
                _ => "`slip check` says what this kernel can do",
            };
            // What the kernel's verifier says is long.
            let reason = error.to_string().lines().next().unwrap_or_default().to_owned();
            Ok((None, Some(WhyOutside { reason, remedy: Some(remedy) })))
        }
    }
}
