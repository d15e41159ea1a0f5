//! A recording: what was asked, what was seen, and how well.

use serde::Serialize;

use crate::{Budget, Facts, Interner, InternerDelta, ServedRequest, StackId, StringId};

number!(
    /// Index into [`Recording::processes`]. A pid alone does not name a process: pids come back.
    ProcessId
);
number!(
    /// Index into [`Recording::threads`].
    ThreadId
);
number!(
    /// Number of a request, from 1; 0 stands for none.
    RequestId
);

/// The language of a process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Language {
    /// CPython.
    #[default]
    Python,
    /// PHP (Zend engine).
    Php,
    /// None that is interpreted: a program of native code.
    Native,
}

/// Which moments count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// Every moment, running or waiting.
    #[default]
    Wall,
    /// Moments in which the thread is running or ready to run.
    Cpu,
    /// Moments in which the thread holds the global interpreter lock.
    Gil,
    /// Moments in which the thread waits.
    Offcpu,
    /// Moments in which the thread raises an exception or handles one.
    Exception,
    /// None: what counts are blocks of memory that were allocated.
    Alloc,
}

impl Mode {
    /// Whether a thread in this state counts.
    pub fn counts(self, state: State) -> bool {
        match self {
            Self::Wall => true,
            Self::Cpu => state.has(State::ON_CPU),
            Self::Gil => state.has(State::HAS_GIL),
            Self::Offcpu => !state.has(State::ON_CPU),
            Self::Exception => state.has(State::HAS_EXCEPTION),
            Self::Alloc => false,
        }
    }
}

/// What is known when a recording starts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct RecordingInfo {
    /// Version of the tool that wrote it.
    pub tool: String,
    /// Begin, nanoseconds since 1970.
    pub started_unix_ns: u64,
    /// Time between two samples of a thread, and so the weight of one sample.
    pub interval_ns: u64,
    /// Which moments count.
    pub mode: Mode,
    /// What was asked for, as typed (`--fpm www`), for the reader's orientation.
    pub target: String,
    /// Name of the sampler that took the samples (`outside`).
    pub sampler: String,
    /// What this sampler cannot see, one sentence each.
    pub cannot_see: Vec<String>,
    /// Kernel release and machine of the host.
    pub host: String,
}

/// A process that was sampled.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Process {
    /// Number of the process in this recording.
    pub id: ProcessId,
    /// Process id as this host numbers it.
    pub pid: u32,
    /// Process id in the innermost pid namespace of the target; equals `pid` outside containers.
    pub ns_pid: u32,
    /// Language.
    pub language: Language,
    /// Version of the interpreter, such as `3.13.1`.
    pub version: String,
    /// What the process is called: an FPM pool's title, or program and script. No further arguments.
    pub title: String,
    /// First sight, nanoseconds since the begin of the recording.
    pub first_ns: u64,
    /// Seen to have ended, nanoseconds since the begin of the recording; 0 while it runs.
    pub ended_ns: u64,
}

/// A thread that was sampled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Thread {
    /// Number of the thread in this recording.
    pub id: ThreadId,
    /// The process it belongs to.
    pub process: ProcessId,
    /// Kernel thread id as this host numbers it.
    pub tid: u32,
    /// Number of the (sub)interpreter; 0 is the main one.
    pub interpreter: u64,
    /// Name, by the program or by the kernel.
    pub name: StringId,
}

/// What a thread was doing at the moment of a sample: a set of flags.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct State(pub u8);

impl State {
    /// Running or ready to run.
    pub const ON_CPU: State = State(1);
    /// Whether it ran could not be read.
    pub const CPU_UNKNOWN: State = State(1 << 1);
    /// Held the global interpreter lock.
    pub const HAS_GIL: State = State(1 << 2);
    /// A worker between two requests; never counted as code.
    pub const IDLE: State = State(1 << 3);
    /// In a request, with no frame yet or any more: start-up, compilation, shutdown of the request.
    pub const ENGINE: State = State(1 << 4);
    /// The stack was cut at its outer end.
    pub const TRUNCATED: State = State(1 << 5);
    /// Part of the stack had to be read twice.
    pub const REPAIRED: State = State(1 << 6);
    /// Raised an exception or handled one. Known only where that decides which moments count.
    pub const HAS_EXCEPTION: State = State(1 << 7);

    /// Whether all flags of `other` are set.
    pub fn has(self, other: State) -> bool {
        self.0 & other.0 == other.0
    }

    /// This state with the flags of `other` as well.
    #[must_use]
    pub fn with(self, other: State) -> State {
        State(self.0 | other.0)
    }
}

/// One look at one thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sample {
    /// Nanoseconds since the begin of the recording.
    pub time_ns: u64,
    /// The thread.
    pub thread: ThreadId,
    /// Its stack.
    pub stack: StackId,
    /// What it was doing.
    pub state: State,
    /// The request it was working on.
    pub request: RequestId,
}

/// Samples by column, in the order they were taken.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SampleBlock {
    /// [`Sample::time_ns`].
    pub time_ns: Vec<u64>,
    /// [`Sample::thread`].
    pub thread: Vec<u32>,
    /// [`Sample::stack`].
    pub stack: Vec<u32>,
    /// [`Sample::state`].
    pub state: Vec<u8>,
    /// [`Sample::request`].
    pub request: Vec<u32>,
}

impl SampleBlock {
    /// Adds a sample at the end.
    pub fn push(&mut self, sample: Sample) {
        self.time_ns.push(sample.time_ns);
        self.thread.push(sample.thread.0);
        self.stack.push(sample.stack.0);
        self.state.push(sample.state.0);
        self.request.push(sample.request.0);
    }

    /// Number of samples.
    pub fn len(&self) -> usize {
        self.time_ns.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.time_ns.is_empty()
    }

    /// The samples one by one.
    pub fn iter(&self) -> impl Iterator<Item = Sample> + '_ {
        (0..self.len()).map(|at| Sample {
            time_ns: self.time_ns[at],
            thread: ThreadId(self.thread[at]),
            stack: StackId(self.stack[at]),
            state: State(self.state[at]),
            request: RequestId(self.request[at]),
        })
    }
}

/// What a thread waited for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum WaitReason {
    /// Something that none of the others names.
    #[default]
    Other,
    /// Ready to run: another thread had the CPU.
    Cpu,
    /// Data, room or a connection of a socket.
    Socket,
    /// Data of a pipe, or room in it.
    Pipe,
    /// A file system or a block device.
    File,
    /// A lock of threads or of processes.
    Lock,
    /// Time to pass.
    Sleep,
    /// A page of its own memory.
    PageFault,
    /// The first of several things, by `poll`, `select` or `epoll_wait`.
    Poll,
    /// The end of a child.
    Child,
    /// To be continued: a signal or a debugger has stopped it.
    Stopped,
}

impl WaitReason {
    /// All, by number.
    pub const ALL: [Self; 11] = [
        Self::Other,
        Self::Cpu,
        Self::Socket,
        Self::Pipe,
        Self::File,
        Self::Lock,
        Self::Sleep,
        Self::PageFault,
        Self::Poll,
        Self::Child,
        Self::Stopped,
    ];
}

/// Waits of one thread in one place for one reason that ended within a short time of each other. Not samples: every wait
/// counts, with its duration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wait {
    /// When they were added up, nanoseconds since the begin of the recording: within half a second after their end.
    pub time_ns: u64,
    /// The thread.
    pub thread: ThreadId,
    /// Its stack.
    pub stack: StackId,
    /// [`State::IDLE`], [`State::ENGINE`], [`State::HAS_GIL`] and [`State::TRUNCATED`] as for samples.
    pub state: State,
    /// The request it was working on.
    pub request: RequestId,
    /// What for.
    pub reason: WaitReason,
    /// Number of waits.
    pub count: u32,
    /// How long they took together.
    pub total_ns: u64,
}

/// Blocks that one thread has allocated in one place. Some are told, by chance, and each stands for others like it: these are estimates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Allocated {
    /// The thread that allocated them. Who frees them makes no difference.
    pub thread: ThreadId,
    /// Where.
    pub stack: StackId,
    /// [`State::ENGINE`] and [`State::TRUNCATED`] as for samples.
    pub state: State,
    /// Blocks that were told.
    pub samples: u64,
    /// Blocks that these stand for.
    pub objects: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Of the blocks that were told, those that are still there: at the end of the recording, or of their process if that came first.
    pub kept_samples: u64,
    /// Blocks that these stand for.
    pub kept_objects: u64,
    /// Their bytes.
    pub kept_bytes: u64,
}

/// One request of a worker, as far as the samples saw it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Request {
    /// Number of the request in this recording.
    pub id: RequestId,
    /// The worker.
    pub process: ProcessId,
    /// HTTP method.
    pub method: StringId,
    /// Path of the URI.
    pub uri: StringId,
    /// File of the script.
    pub script: StringId,
    /// Begin by the engine's own clock, nanoseconds since 1970; 0 if it did not note it.
    pub started_unix_ns: u64,
    /// First sample that saw it, nanoseconds since the begin of the recording.
    pub first_ns: u64,
    /// Last sample that saw it.
    pub last_ns: u64,
    /// Samples that saw it.
    pub samples: u32,
    /// Most request memory seen in use.
    pub peak_memory_bytes: u64,
}

/// How well the recording went.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Time covered so far.
    pub duration_ns: u64,
    /// Moments at which the schedule asked for a sample of everything.
    pub ticks_planned: u64,
    /// Moments at which one was taken.
    pub ticks_taken: u64,
    /// Samples stored.
    pub samples: u64,
    /// [`Wait`]s stored. Not kept in a file beside them.
    pub waits: u64,
    /// Threads whose whole run is in the budget. Not kept in a file beside it.
    pub runs: u64,
    /// Blocks that were told. Not kept in a file beside [`Allocated::samples`].
    pub allocations: u64,
    /// Looks at threads that the mode leaves out (`cpu`, `gil`, `exception`).
    pub filtered: u64,
    /// Samples of which a part was read twice.
    pub repaired: u64,
    /// Samples dropped because the target changed during the repair too.
    pub torn: u64,
    /// Samples lost to failed reads.
    pub failed: u64,
    /// CPU time of the recorder itself.
    pub own_cpu_ns: u64,
    /// The recording was closed in order; false after a crash or while it runs.
    pub complete: bool,
}

impl Totals {
    /// Whether no thread was looked at, at any moment.
    pub fn is_empty(&self) -> bool {
        self.samples == 0 && self.filtered == 0 && self.waits == 0 && self.runs == 0 && self.allocations == 0
    }
}

/// What a recording gains in one flush.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Batch {
    /// New strings, frames and stacks.
    pub interned: InternerDelta,
    /// New or changed processes.
    pub processes: Vec<Process>,
    /// New or changed threads.
    pub threads: Vec<Thread>,
    /// New samples.
    pub samples: SampleBlock,
    /// New waits.
    pub waits: Vec<Wait>,
    /// New or changed places of allocations, with the numbers that they have in [`Recording::allocations`].
    pub allocations: Vec<(u32, Allocated)>,
    /// Requests that ended, or were under way at the end of the recording, in any order.
    pub requests: Vec<Request>,
    /// The budget of the workers' time so far, without its requests: it takes the place of the one before.
    pub budget: Option<Budget>,
    /// New requests of the budget, in the order of their end.
    pub served: Vec<ServedRequest>,
    /// What was found beside times, if that was looked for: it takes the place of what was before.
    pub facts: Option<Facts>,
    /// Totals so far.
    pub totals: Totals,
}

/// A whole recording in memory.
#[derive(Clone, Debug, Default)]
pub struct Recording {
    /// What was known at the start.
    pub info: RecordingInfo,
    /// How well it went.
    pub totals: Totals,
    /// Strings, frames and stacks.
    pub interner: Interner,
    /// Processes by [`ProcessId`].
    pub processes: Vec<Process>,
    /// Threads by [`ThreadId`].
    pub threads: Vec<Thread>,
    /// Samples, oldest first.
    pub blocks: Vec<SampleBlock>,
    /// Waits, in the order of their end; none from a sampler that does not see their begin and end.
    pub waits: Vec<Wait>,
    /// Places of allocations, if these are what was recorded.
    pub allocations: Vec<Allocated>,
    /// Requests, in the order of their end; those under way at the end of the recording, as far as they were seen, last.
    pub requests: Vec<Request>,
    /// Where all of the workers' time went, if that was measured, with its requests.
    pub budget: Option<Budget>,
    /// What was found beside times, if that was looked for.
    pub facts: Option<Facts>,
}

impl Recording {
    /// All samples, oldest first.
    pub fn samples(&self) -> impl Iterator<Item = Sample> + '_ {
        self.blocks.iter().flat_map(SampleBlock::iter)
    }
}
