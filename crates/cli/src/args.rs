//! What can be typed. Help, completions and man pages are made from it.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{Args as ClapArgs, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use slip_doctor::Limit;
use slip_record::{Rung, TrialPage};
use slip_tui::{FunctionColumn, WorkerColumn};

const EXIT_CODES: &str = "\
Exit codes:
  0    fine
  1    `slip doctor --fail-on`: the limit is exceeded; `slip malloc`: not in use
  2    wrong use: unknown option, value out of range, not a recording
  3    target gone, or none found
  4    not an interpreter, or an unsupported runtime or version
  5    not permitted
  6    not enough evidence
  7    a file or the disk failed
  130  interrupted; what was recorded is saved";

/// See where PHP-FPM and Python workers spend their time, from outside the process.
#[derive(Debug, Parser)]
#[command(name = "slip", version, about, after_help = EXIT_CODES, arg_required_else_help = true)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Sample running workers into a file and say where the time goes
    Record(RecordOptions),
    /// Show what workers do and where their time goes, while it happens
    Top(TopOptions),
    /// Print calls to servers that are slow, as they happen, each with its stack
    Trace(TraceOptions),
    /// Print what every thread is doing now
    Dump(DumpOptions),
    /// Turn a recording into text or into another tool's format
    Report(ReportOptions),
    /// Show a recording in the browser, at an address of this machine that nobody can guess
    View(ViewOptions),
    /// Say where all of the workers' time went, line by line, and what a request takes
    Budget(BudgetOptions),
    /// Watch for some seconds, and say what costs time, why, what it is not, what helps and how much
    Doctor(DoctorOptions),
    /// Say what a rule of `slip doctor` means and how it decides
    Explain {
        /// The rule: `WAKE003`; without it all are listed
        rule: Option<String>,
    },
    /// Compare what a request takes in two recordings, line by line
    Diff(DiffOptions),
    /// Print what workers keep of their connections, by the PHP extension
    Connections(ConnectionsOptions),
    /// Print what processes that use libslipmalloc.so have allocated, or say whether they use it
    #[command(subcommand)]
    Malloc(MallocCommand),
    /// Run a command with libslipmalloc.so in the place of the C library's malloc
    Run(RunOptions),
    /// Say what works on this machine, what is missing and how to fix it
    Check(CheckOptions),
    /// Print a completion script for a shell
    Completions {
        /// The shell
        shell: Shell,
    },
    /// Write man pages into a folder
    Man {
        /// An existing folder
        folder: PathBuf,
    },
}

/// What to look at: running processes.
#[derive(Clone, Debug, Default, ClapArgs)]
pub(crate) struct TargetOptions {
    /// A process, as this host or its container numbers it; may be given several times
    #[arg(short, long, value_name = "PID", group = "what")]
    pub(crate) pid: Vec<u32>,
    /// All workers of a PHP-FPM pool; those that come later are followed
    #[arg(long, value_name = "POOL", group = "what")]
    pub(crate) fpm: Option<String>,
    /// The FPM master, where several have a pool of that name
    #[arg(long, value_name = "PID", requires = "fpm")]
    pub(crate) fpm_master: Option<u32>,
    /// Also all descendants of the process: gunicorn, uwsgi, multiprocessing, celery
    #[arg(long)]
    pub(crate) children: bool,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct RecordOptions {
    #[command(flatten)]
    pub(crate) target: TargetOptions,
    /// A command to start and sample from its first moment
    #[arg(last = true, value_name = "COMMAND", group = "what")]
    pub(crate) command: Vec<String>,
    /// How long, in seconds; without it until the targets end or Ctrl-C
    #[arg(short, long, value_name = "SECONDS", value_parser = parse_seconds)]
    pub(crate) duration: Option<f64>,
    /// Samples per second and thread, 1 to 20000
    #[arg(short, long, value_name = "HZ", default_value = "99", value_parser = clap::value_parser!(u32).range(1..=20_000))]
    pub(crate) rate: u32,
    /// Which moments count: by default `wall`, and `cpu` with `--native`, as native functions are shown of what runs
    #[arg(short, long, value_enum)]
    pub(crate) mode: Option<ModeName>,
    /// Sample tasks of asyncio in the place of threads, each below those that wait for it: those that run, or all. CPython 3.14
    /// on, from outside
    #[arg(long = "async", value_enum, value_name = "WHICH", num_args = 0..=1, default_missing_value = "running")]
    pub(crate) tasks: Option<TasksName>,
    /// Who takes the samples
    #[arg(long, value_enum, default_value_t = SamplerName::Auto)]
    pub(crate) sampler: SamplerName,
    /// The file to write; by default slip-DATE-TIME.slip, in UTC
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// Overwrite the file if it exists
    #[arg(short, long)]
    pub(crate) force: bool,
    /// Keep query strings of request URIs, which may hold secrets
    #[arg(long)]
    pub(crate) keep_query: bool,
    /// Also show native functions, of the interpreter, its extensions and libraries, and of programs without an interpreter, while
    /// they run: in the kernel their stacks are copied and unwound afterwards. From outside only mark where C code called a
    /// function of Python, with `<native>` (CPython 3.12 on)
    #[arg(long, conflicts_with = "tasks")]
    pub(crate) native: bool,
    /// With `--native`: ask servers for debug files that are not here, those named or else in DEBUGINFOD_URLS. They come while the
    /// recording goes on, name functions from then on, and are kept for the next time. Needs `debuginfod-find`
    #[arg(long, requires = "native", value_name = "URLS", num_args = 0..=1, require_equals = true)]
    pub(crate) debuginfod: Option<Option<String>>,
    /// Show which instruction the innermost function of Python executes (from outside)
    #[arg(long, conflicts_with = "tasks")]
    pub(crate) opcodes: bool,
    /// Leave out the marks `<GC>` of functions that collect garbage (CPython 3.15 on, from outside)
    #[arg(long)]
    pub(crate) no_gc: bool,
    /// Leave out what runs in the kernel: it counts for the function that called it in any case
    #[arg(long)]
    pub(crate) no_kernel_stacks: bool,
    /// Also keep the budget of the workers' time: all of it, by request and by what it was spent on, for `slip budget`. A program
    /// that serves no requests, interpreter or not, has one of its whole run
    #[arg(long, conflicts_with_all = ["tasks", "native", "opcodes", "pause"])]
    pub(crate) budget: bool,
    /// With `--budget`: how it is kept; without this in the finest way that is allowed here, and if that is a coarse one, why
    #[arg(long, value_name = "RUNG", requires = "budget", value_parser = rungs())]
    pub(crate) rung: Option<Rung>,
    /// With `--budget`: put no breakpoints of the kernel into PHP, which tell when its requests begin
    #[arg(long, requires = "budget")]
    pub(crate) no_uprobes: bool,
    /// In the place of time: who allocates memory, and what of it is kept, by stacks. Of programs that use libslipmalloc.so, which tells of
    /// one block in 512 KiB; a COMMAND is started with it. What pymalloc and the Zend memory manager cut out of memory of their own is not
    /// seen: `PYTHONMALLOC=malloc` and `USE_ZEND_ALLOC=0` in the target's environment have each block come from it
    #[arg(long, conflicts_with_all = ["mode", "rate", "tasks", "sampler", "native", "opcodes", "no_gc", "no_kernel_stacks", "budget", "pause"])]
    pub(crate) alloc: bool,
    /// Stop each process while it is read: exact at any speed, but it costs the target time. If slip is killed with
    /// `kill -9` meanwhile, the target stays stopped until `kill -CONT PID`
    #[arg(long)]
    pub(crate) pause: bool,
    /// No summary at the end
    #[arg(short, long)]
    pub(crate) quiet: bool,
    /// PHP is asked, too; `slip doctor` says so.
    #[arg(skip)]
    pub(crate) ask: bool,
    /// And this page is tried, with this extension.
    #[arg(skip)]
    pub(crate) trial: Option<(TrialPage, Option<PathBuf>)>,
}

impl RecordOptions {
    /// Which moments count.
    pub(crate) fn mode(&self) -> ModeName {
        self.mode.unwrap_or(if self.native { ModeName::Cpu } else { ModeName::Wall })
    }
}

#[derive(Debug, ClapArgs)]
pub(crate) struct TopOptions {
    #[command(flatten)]
    pub(crate) target: TargetOptions,
    /// Print the tables once, as text, and end: for scripts
    #[arg(long)]
    pub(crate) once: bool,
    /// How long, in seconds; without it until `q` or until the targets end, and with `--once` 2
    #[arg(short, long, value_name = "SECONDS", value_parser = parse_seconds)]
    pub(crate) duration: Option<f64>,
    /// Samples per second and thread, 10 to 1000
    #[arg(short, long, value_name = "HZ", default_value = "19", value_parser = clap::value_parser!(u32).range(10..=1_000))]
    pub(crate) rate: u32,
    /// Seconds between two pictures; `+` and `-` change it
    #[arg(short, long, value_name = "SECONDS", default_value = "1", value_parser = ["0.5", "1", "2", "5", "10"], conflicts_with = "once")]
    pub(crate) interval: String,
    /// Who takes the samples
    #[arg(long, value_enum, default_value_t = TopSamplerName::Outside)]
    pub(crate) sampler: TopSamplerName,
    /// The column to sort by, of both tables if both have it
    #[arg(short, long, value_name = "COLUMN", value_parser = top_columns())]
    pub(crate) sort: Option<String>,
    /// Only workers and functions with this text in their row
    #[arg(long, value_name = "TEXT")]
    pub(crate) filter: Option<String>,
    /// A row for each thread
    #[arg(short, long)]
    pub(crate) threads: bool,
    /// Keep query strings of request URIs, which may hold secrets
    #[arg(long)]
    pub(crate) keep_query: bool,
    /// With `--once`: most functions
    #[arg(long, value_name = "N", default_value = "20", requires = "once", value_parser = clap::value_parser!(u32).range(1..=4_096))]
    pub(crate) top: u32,
    /// With `--once`: the form of the output
    #[arg(short, long, value_enum, default_value_t, requires = "once")]
    pub(crate) format: TopFormatName,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum TopSamplerName {
    /// We read the targets' memory while they run; a stack that moves meanwhile is dropped. What a thread is blocked in is looked up
    /// when it is shown
    Outside,
    /// The kernel copies the stacks of threads, and times each wait: exact, but a pool under full load makes us use 5 to 10 % of a
    /// core
    Kernel,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum TopFormatName {
    /// For people
    #[default]
    Table,
    /// For programs: `slip.top/1`
    Json,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct TraceOptions {
    #[command(flatten)]
    pub(crate) target: TargetOptions,
    /// A command to start and trace from its first moment
    #[arg(last = true, value_name = "COMMAND", group = "what")]
    pub(crate) command: Vec<String>,
    /// How long, in seconds; without it until the targets end or Ctrl-C
    #[arg(short, long, value_name = "SECONDS", value_parser = parse_seconds)]
    pub(crate) duration: Option<f64>,
    /// Calls that take so long or longer are printed: `500us`, `10ms`, `1s`; not less than 200us
    #[arg(long, value_name = "TIME", default_value = "10ms", value_parser = parse_slowness)]
    pub(crate) slower_than: u64,
    /// Only calls to servers whose address has this in it (`:6379`, `mysqld.sock`), or that speak this protocol (`redis`)
    #[arg(long, value_name = "SERVER")]
    pub(crate) endpoint: Option<String>,
    /// Most functions of a stack, from the innermost one on, or `all`
    #[arg(long, value_name = "N", default_value = "8", value_parser = parse_frames)]
    pub(crate) frames: usize,
    /// The form of the output
    #[arg(short, long, value_enum, default_value_t = TraceFormatName::Text)]
    pub(crate) format: TraceFormatName,
    /// How calls are seen: in the kernel
    #[arg(long, value_name = "RUNG", value_parser = rungs())]
    pub(crate) rung: Option<Rung>,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct DumpOptions {
    #[command(flatten)]
    pub(crate) target: TargetOptions,
    /// Print the tasks of asyncio, and which one waits for which, in the place of stacks of threads (CPython 3.14 on)
    #[arg(long = "async")]
    pub(crate) tasks: bool,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// Keep query strings of request URIs, which may hold secrets
    #[arg(long)]
    pub(crate) keep_query: bool,
    /// Stop each process while it is read. If slip is killed with `kill -9` meanwhile, the target stays stopped until
    /// `kill -CONT PID`
    #[arg(long)]
    pub(crate) pause: bool,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct ReportOptions {
    /// A recording
    pub(crate) file: PathBuf,
    /// The form of the output
    #[arg(short, long, value_enum, default_value_t = FormatName::Md)]
    pub(crate) format: FormatName,
    /// The file to write; by default standard output
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// With `--format html`: an earlier recording that this one is compared with
    #[arg(long, value_name = "BEFORE")]
    pub(crate) base: Option<PathBuf>,
    /// Rows of each table
    #[arg(long, value_name = "N", default_value = "10", value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pub(crate) top: u32,
    /// Count idle workers too
    #[arg(long)]
    pub(crate) idle: bool,
    /// Tell workers apart: a row each in Markdown, a root each in collapsed stacks (the other formats always do)
    #[arg(long)]
    pub(crate) per_worker: bool,
    /// With `--format collapsed`, of a recording of allocations: what is kept, in the place of all that was allocated (the other
    /// formats have both)
    #[arg(long)]
    pub(crate) kept: bool,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct ViewOptions {
    /// A recording
    pub(crate) file: PathBuf,
    /// An earlier recording that this one is compared with
    #[arg(long, value_name = "BEFORE")]
    pub(crate) base: Option<PathBuf>,
    /// The port to listen at; by default one that is free
    #[arg(long, value_name = "PORT", default_value = "0", hide_default_value = true)]
    pub(crate) port: u16,
    /// Count idle workers too
    #[arg(long)]
    pub(crate) idle: bool,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct BudgetOptions {
    /// A recording with a budget
    pub(crate) file: PathBuf,
    /// The form of the output
    #[arg(short, long, value_enum, default_value_t = BudgetFormatName::Table)]
    pub(crate) format: BudgetFormatName,
    /// How many operations the program did in its run: also say what each took. For programs that serve no requests
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) ops: Option<u64>,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct DoctorOptions {
    /// A recording with a budget, in the place of watching now
    #[arg(group = "what")]
    pub(crate) file: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) target: TargetOptions,
    /// A command to start and watch from its first moment, until it ends
    #[arg(last = true, value_name = "COMMAND", group = "what")]
    pub(crate) command: Vec<String>,
    /// How long, in seconds; without it 15, and a command until it ends
    #[arg(short, long, value_name = "SECONDS", value_parser = parse_seconds)]
    pub(crate) duration: Option<f64>,
    /// The form of the output
    #[arg(short, long, value_enum, default_value_t = BudgetFormatName::Table)]
    pub(crate) format: BudgetFormatName,
    /// End with status 1 if this is exceeded, on average for each request: a line of the sheet or a rule, and a time or a share;
    /// `boot>10ms`, `wake>5%`, `whole.p95>200ms`, `CONN002>1ms`; `any` for any finding. May be given several times
    #[arg(long, value_name = "LIMIT", value_parser = crate::limit::parse)]
    pub(crate) fail_on: Vec<Limit>,
    /// How many operations the program did in its run: times are for each. For programs that serve no requests
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) ops: Option<u64>,
    /// Keep the recording in this file
    #[arg(short, long, value_name = "FILE", conflicts_with = "file")]
    pub(crate) output: Option<PathBuf>,
    /// Overwrite that file if it exists
    #[arg(long, requires = "output")]
    pub(crate) force: bool,
    /// How the budget is kept; without this in the finest way that is allowed here
    #[arg(long, value_name = "RUNG", conflicts_with = "file", value_parser = rungs())]
    pub(crate) rung: Option<Rung>,
    /// Put no breakpoints of the kernel into PHP, which tell when its requests begin
    #[arg(long, conflicts_with = "file")]
    pub(crate) no_uprobes: bool,
    /// Ask PHP itself what only it can tell: opcache, JIT, preloading, persistent connections. Sends the pool one request, which runs a
    /// script of ours
    #[arg(long, conflicts_with = "file")]
    pub(crate) ask: bool,
    /// Try what restoring the booted state saves: before the watch, PHP-FPMs of our own with one worker each, which has the pool's
    /// settings, run this script some hundred times, with the extension and without. What the page does, it does as often
    #[arg(long, value_name = "SCRIPT", conflicts_with = "file")]
    pub(crate) trial: Option<PathBuf>,
    /// With `--trial`: the page, as a visitor asks for it: `https://shop.example/cart`
    #[arg(long, value_name = "URL", requires = "trial", default_value = "/")]
    pub(crate) url: String,
    /// With `--trial`: slipstream.so, if php.ini does not load it
    #[arg(long, value_name = "FILE", requires = "trial")]
    pub(crate) extension: Option<PathBuf>,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct DiffOptions {
    /// A recording with a budget
    #[arg(value_name = "A")]
    pub(crate) before: PathBuf,
    /// The one to compare with it
    #[arg(value_name = "B")]
    pub(crate) after: PathBuf,
    /// The form of the output
    #[arg(short, long, value_enum, default_value_t = BudgetFormatName::Table)]
    pub(crate) format: BudgetFormatName,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct ConnectionsOptions {
    #[command(flatten)]
    pub(crate) target: TargetOptions,
    /// The form of the output
    #[arg(short, long, value_enum, default_value_t)]
    pub(crate) format: ConnectionsFormatName,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum ConnectionsFormatName {
    /// For people
    #[default]
    Table,
    /// For programs: `slip.connections/1`
    Json,
}

#[derive(Debug, Subcommand)]
pub(crate) enum MallocCommand {
    /// Print what is allocated, by size, and what the allocator did for it
    Stats(MallocStatsOptions),
    /// Say whether libslipmalloc.so is in use, and if not, why; then it ends with status 1
    Check(MallocCheckOptions),
}

#[derive(Debug, ClapArgs)]
pub(crate) struct MallocStatsOptions {
    #[command(flatten)]
    pub(crate) target: TargetOptions,
    /// The form of the output
    #[arg(short, long, value_enum, default_value_t)]
    pub(crate) format: MallocFormatName,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct MallocCheckOptions {
    #[command(flatten)]
    pub(crate) target: TargetOptions,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum MallocFormatName {
    /// For people
    #[default]
    Table,
    /// For programs: `slip.malloc/1`
    Json,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct RunOptions {
    /// Preload libslipmalloc.so: the one that SLIP_MALLOC_LIB names, else the one that was installed with slip
    #[arg(long, required = true)]
    pub(crate) malloc: bool,
    /// The build that finds each double free at once, libslipmalloc-secure.so
    #[arg(long)]
    pub(crate) secure: bool,
    /// The build that gives each block a guard page and keeps what was freed inaccessible, libslipmalloc-debug.so: slow
    #[arg(long, conflicts_with = "secure")]
    pub(crate) debug: bool,
    /// The command; exit status and signals are its own
    #[arg(last = true, value_name = "COMMAND", required = true)]
    pub(crate) command: Vec<OsString>,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct CheckOptions {
    #[command(flatten)]
    pub(crate) target: TargetOptions,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ModeName {
    /// Every moment, running or waiting
    Wall,
    /// Moments in which the thread runs
    Cpu,
    /// Moments in which the thread holds the global interpreter lock
    Gil,
    /// Moments in which the thread waits
    Offcpu,
    /// Moments in which the thread raises an exception or handles one (Python, from outside)
    Exception,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum TasksName {
    /// Tasks that run code
    Running,
    /// All tasks: a sample of each at every moment
    All,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum SamplerName {
    /// `kernel` where it is allowed, up to 2000 Hz; else `outside`, and why
    Auto,
    /// We read the target's memory while it runs; a stack that moves meanwhile is dropped
    Outside,
    /// The kernel copies the stacks of threads that run or go to wait, which stand still, and times each wait
    Kernel,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum FormatName {
    /// Markdown, for people and prompts
    Md,
    /// A page for a browser, in one file that needs no network: budget, findings, requests, flame graph
    Html,
    /// JSON, for programs
    Json,
    /// Collapsed stacks, for flame graph tools
    Collapsed,
    /// speedscope.app
    Speedscope,
    /// pprof, for `go tool pprof`, Pyroscope, Parca
    Pprof,
    /// profiler.firefox.com, with requests and waits on the axis of time
    Firefox,
    /// Trace events, for `chrome://tracing`; Perfetto shows requests and waits of them
    Chrome,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum TraceFormatName {
    /// Plain text, for a terminal
    #[default]
    Text,
    /// JSON, one object a line, for programs
    Json,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum BudgetFormatName {
    /// Plain text, for a terminal
    Table,
    /// JSON, for programs
    Json,
    /// Markdown, for people and prompts
    Md,
}

/// The ways to keep a budget, by their names.
fn rungs() -> impl TypedValueParser<Value = Rung> {
    let values = Rung::ALL.map(|rung| PossibleValue::new(rung.name()).help(rung.meaning()));
    PossibleValuesParser::new(values)
        .try_map(|name| Rung::ALL.into_iter().find(|rung| rung.name() == name).ok_or("no such rung"))
}

/// The columns of both tables of `slip top`, by their names.
fn top_columns() -> PossibleValuesParser {
    let workers = WorkerColumn::ALL.map(WorkerColumn::name);
    let mut names: Vec<&str> =
        workers.into_iter().chain(FunctionColumn::ALL.map(FunctionColumn::name)).collect();
    // Both have one.
    names.sort_unstable();
    names.dedup();
    PossibleValuesParser::new(names)
}

fn parse_seconds(text: &str) -> Result<f64, String> {
    let number = text.strip_suffix('s').unwrap_or(text);
    match number.parse::<f64>() {
        Ok(seconds) if seconds > 0.0 && seconds <= 1e9 => Ok(seconds),
        _ => Err("seconds, more than 0".to_owned()),
    }
}

/// Of calls that are shorter the kernel looks at some alone.
const LEAST_SLOWNESS_NS: u64 = 200_000;

/// A time with its unit, in nanoseconds.
fn parse_slowness(text: &str) -> Result<u64, String> {
    let end =
        text.find(|character: char| !character.is_ascii_digit() && character != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let unit_ns = match unit {
        "us" | "µs" => 1e3,
        "ms" => 1e6,
        "s" => 1e9,
        _ => return Err("a time with its unit: `500us`, `10ms`, `1s`".to_owned()),
    };
    let ns = number.parse::<f64>().map_err(|error| error.to_string())? * unit_ns;
    if ns < LEAST_SLOWNESS_NS as f64 || ns > 1e15 {
        return Err("200us or more".to_owned());
    }
    Ok(ns as u64)
}

fn parse_frames(text: &str) -> Result<usize, String> {
    if text == "all" {
        return Ok(usize::MAX);
    }
    text.parse().map_err(|_| "a number, or `all`".to_owned())
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_definitions_fit_together() {
        Args::command().debug_assert();
    }

    #[test]
    fn slowness_has_a_unit() {
        assert_eq!((parse_slowness("500us"), parse_slowness("2.5ms")), (Ok(500_000), Ok(2_500_000)));
        assert_eq!(parse_slowness("1s"), Ok(1_000_000_000));
        for wrong in ["5", "ms", "", "-5ms", "1e3ms", "199us", "5 ms", "99999999s"] {
            assert!(parse_slowness(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_report_is_as_long_as_what_record_prints() {
        let Command::Report(options) = Args::parse_from(["slip", "report", "a.slip"]).command else {
            panic!("not understood")
        };
        assert_eq!(options.top as usize, slip_report::Options::default().top);
    }
}
