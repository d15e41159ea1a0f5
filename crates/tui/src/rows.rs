//! The rows of both tables: what is in them, and their order.

use std::cmp::{Ordering, Reverse};

use slip_model::{FrameKind, Language, LiveFunction, LivePlace, LiveThread, ThreadState, WaitReason, Window};
use slip_report::clean;

use crate::view::View;

/// A column of the workers, to sort by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WorkerColumn {
    /// Process id, and thread id.
    Pid,
    /// What it does.
    State,
    /// Time on a CPU.
    #[default]
    Cpu,
    /// Time without a CPU though it could run.
    Ready,
    /// How long its request has lasted.
    Time,
    /// Its request, or its program.
    Request,
    /// Its innermost function.
    Function,
}

impl WorkerColumn {
    /// All, in their order on the screen.
    pub const ALL: [Self; 7] =
        [Self::Pid, Self::State, Self::Cpu, Self::Ready, Self::Time, Self::Request, Self::Function];

    /// The name that the command line knows it by.
    pub fn name(self) -> &'static str {
        match self {
            Self::Pid => "pid",
            Self::State => "state",
            Self::Cpu => "cpu",
            Self::Ready => "ready",
            Self::Time => "time",
            Self::Request => "request",
            Self::Function => "function",
        }
    }

    /// The key that sorts by it.
    pub(crate) fn key(self) -> char {
        match self {
            Self::Pid => 'P',
            Self::State => 'S',
            Self::Cpu => 'C',
            Self::Ready => 'R',
            Self::Time => 'T',
            Self::Request => 'U',
            Self::Function => 'F',
        }
    }
}

/// A column of the functions, to sort by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FunctionColumn {
    /// Its own time.
    #[default]
    Own,
    /// Its own time on a CPU.
    Cpu,
    /// Its own time waiting.
    Wait,
    /// Its time with all that it has called.
    Total,
    /// Its name.
    Name,
    /// Its file and line.
    Where,
}

impl FunctionColumn {
    /// All, in their order on the screen.
    pub const ALL: [Self; 6] = [Self::Own, Self::Cpu, Self::Wait, Self::Total, Self::Name, Self::Where];

    /// The name that the command line knows it by.
    pub fn name(self) -> &'static str {
        match self {
            Self::Own => "own",
            Self::Cpu => "cpu",
            Self::Wait => "wait",
            Self::Total => "total",
            Self::Name => "name",
            Self::Where => "where",
        }
    }

    /// The key that sorts by it.
    pub(crate) fn key(self) -> char {
        match self {
            Self::Own => 'O',
            Self::Cpu => 'C',
            Self::Wait => 'W',
            Self::Total => 'A',
            Self::Name => 'N',
            Self::Where => 'L',
        }
    }
}

/// A process, or one of its threads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct WorkerRow<'a> {
    /// The thread, or the one of the process that has used most of the CPU in the window.
    pub(crate) thread: &'a LiveThread,
    /// Threads of the process; 1 if each has a row of its own.
    pub(crate) threads: usize,
    pub(crate) cpu_ns: Option<u64>,
    pub(crate) ready_ns: Option<u64>,
    /// Cleaned.
    pub(crate) request: String,
    /// Cleaned: the name of the innermost function, and its file and line.
    pub(crate) place: (String, String),
}

/// What a thread does, in a word or two.
pub fn state_word(state: ThreadState) -> &'static str {
    match state {
        ThreadState::Idle => "idle",
        ThreadState::Running => "running",
        ThreadState::Ready | ThreadState::Blocked(Some(WaitReason::Cpu)) => "ready",
        ThreadState::Unknown => "unknown",
        ThreadState::Blocked(None | Some(WaitReason::Other)) => "waits",
        ThreadState::Blocked(Some(WaitReason::Socket)) => "waits: socket",
        ThreadState::Blocked(Some(WaitReason::Pipe)) => "waits: pipe",
        ThreadState::Blocked(Some(WaitReason::File)) => "waits: file",
        ThreadState::Blocked(Some(WaitReason::Lock)) => "waits: lock",
        ThreadState::Blocked(Some(WaitReason::Sleep)) => "waits: sleep",
        ThreadState::Blocked(Some(WaitReason::PageFault)) => "waits: page",
        ThreadState::Blocked(Some(WaitReason::Poll)) => "waits: poll",
        ThreadState::Blocked(Some(WaitReason::Child)) => "waits: child",
        ThreadState::Blocked(Some(WaitReason::Stopped)) => "stopped",
    }
}

/// Where the states stand when sorted by them: what is going on first.
fn state_rank(state: ThreadState) -> u8 {
    match state {
        ThreadState::Running => 0,
        ThreadState::Ready => 1,
        ThreadState::Blocked(_) => 2,
        ThreadState::Unknown => 3,
        ThreadState::Idle => 4,
    }
}

/// The request of a worker in words, or what the process is called.
fn request_of(thread: &LiveThread, threads: usize, is_thread: bool) -> String {
    if let Some(request) = &thread.request {
        // PHP's command line has neither a method nor a URI.
        return match (&*request.method, &*request.uri) {
            (_, "") => clean(&request.script).into_owned(),
            (method, uri) => format!("{} {}", clean(method), clean(uri)),
        };
    }
    match thread.language {
        Language::Php if thread.state == ThreadState::Idle => String::new(),
        _ if is_thread => clean(&thread.name).into_owned(),
        _ if threads > 1 => format!("{} ({threads} threads)", clean(&thread.title)),
        _ => clean(&thread.title).into_owned(),
    }
}

fn place_of(thread: &LiveThread) -> (String, String) {
    match &thread.place {
        Some(place) => (clean(&place.name).into_owned(), file_line(place)),
        None if thread.is_engine && thread.state != ThreadState::Idle => {
            ("[engine]".to_owned(), String::new())
        }
        None => (String::new(), String::new()),
    }
}

fn file_line(place: &LivePlace) -> String {
    match (place.kind, place.line) {
        (FrameKind::PhpInternal | FrameKind::Marker, _) => String::new(),
        (_, 0) => clean(&place.file).into_owned(),
        (_, line) => format!("{}:{line}", clean(&place.file)),
    }
}

/// Where a function is: file and first line.
pub(crate) fn where_of(function: &LiveFunction) -> String {
    match (function.kind, function.first_line) {
        (FrameKind::PhpInternal, _) => "PHP itself".to_owned(),
        (FrameKind::Marker, _) => String::new(),
        (_, 0) => clean(&function.file).into_owned(),
        (_, line) => format!("{}:{line}", clean(&function.file)),
    }
}

/// The workers that the user wants to see, in the order asked for.
pub(crate) fn workers<'a>(view: &View, window: &'a Window) -> Vec<WorkerRow<'a>> {
    let row = |thread: &'a LiveThread, threads: &'a [LiveThread]| {
        let sum = |of: fn(&LiveThread) -> Option<u64>| {
            threads.iter().filter_map(of).reduce(|sum, ns| sum.saturating_add(ns))
        };
        WorkerRow {
            thread,
            threads: threads.len(),
            cpu_ns: sum(|thread| thread.cpu_ns),
            ready_ns: sum(|thread| thread.ready_ns),
            request: request_of(thread, threads.len(), view.threads),
            place: place_of(thread),
        }
    };
    let mut rows: Vec<WorkerRow<'a>> = if view.threads {
        window.threads.iter().map(|thread| row(thread, std::slice::from_ref(thread))).collect()
    } else {
        let processes = window.threads.chunk_by(|a, b| a.pid == b.pid);
        processes.filter_map(|threads| Some(row(busiest(threads)?, threads))).collect()
    };
    let filter = Filter::new(view.filter());
    rows.retain(|row| {
        let pid = row.thread.pid.to_string();
        let texts = [&pid, &row.request, &row.place.0, &row.place.1, state_word(row.thread.state)];
        filter.is_empty() || texts.iter().any(|text| filter.takes(text))
    });
    let (column, reversed) = view.worker_order();
    rows.sort_by(|a, b| {
        let order = match column {
            WorkerColumn::Pid => Ordering::Equal,
            WorkerColumn::State => state_rank(a.thread.state).cmp(&state_rank(b.thread.state)),
            WorkerColumn::Cpu => b.cpu_ns.cmp(&a.cpu_ns),
            WorkerColumn::Ready => b.ready_ns.cmp(&a.ready_ns),
            WorkerColumn::Time => age_of(b.thread).cmp(&age_of(a.thread)),
            WorkerColumn::Request => last_if_empty(&a.request).cmp(&last_if_empty(&b.request)),
            WorkerColumn::Function => last_if_empty(&a.place.0).cmp(&last_if_empty(&b.place.0)),
        };
        order.then((a.thread.pid, a.thread.tid).cmp(&(b.thread.pid, b.thread.tid)))
    });
    if reversed {
        rows.reverse();
    }
    rows
}

pub(crate) fn age_of(thread: &LiveThread) -> Option<u64> {
    thread.request.as_ref().map(|request| request.age_ns)
}

fn last_if_empty(text: &str) -> (bool, &str) {
    (text.is_empty(), text)
}

/// The thread that has used most of the CPU; the main one among equals.
fn busiest(threads: &[LiveThread]) -> Option<&LiveThread> {
    threads.iter().min_by_key(|thread| {
        (Reverse(thread.cpu_ns), state_rank(thread.state), thread.tid != thread.pid, thread.tid)
    })
}

/// The functions that the user wants to see, in the order asked for.
pub(crate) fn functions<'a>(view: &View, window: &'a Window) -> Vec<&'a LiveFunction> {
    let filter = Filter::new(view.filter());
    let mut rows: Vec<&LiveFunction> = window
        .functions
        .iter()
        .filter(|function| filter.is_empty() || filter.takes(&function.name) || filter.takes(&function.file))
        .collect();
    let (column, reversed) = view.function_order();
    // Stable: those with more time of their own come first among equals.
    match column {
        FunctionColumn::Own => {}
        FunctionColumn::Cpu => rows.sort_by_key(|function| Reverse(function.own_cpu_ns)),
        FunctionColumn::Wait => rows.sort_by_key(|function| Reverse(wait_ns(function))),
        FunctionColumn::Total => rows.sort_by_key(|function| Reverse(function.total_ns)),
        FunctionColumn::Name => rows.sort_by(|a, b| a.name.cmp(&b.name)),
        FunctionColumn::Where => {
            rows.sort_by(|a, b| (&a.file, a.first_line).cmp(&(&b.file, b.first_line)));
        }
    }
    if reversed {
        rows.reverse();
    }
    rows
}

/// Its own time that was not on a CPU.
pub(crate) fn wait_ns(function: &LiveFunction) -> u64 {
    function.own_ns.saturating_sub(function.own_cpu_ns)
}

/// A part of a text that is looked for, in upper or lower case.
struct Filter(String);

impl Filter {
    fn new(text: &str) -> Self {
        Self(text.to_lowercase())
    }

    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn takes(&self, text: &str) -> bool {
        text.to_lowercase().contains(&self.0)
    }
}
