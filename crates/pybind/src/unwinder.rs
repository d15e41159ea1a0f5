//! `RemoteUnwinder`: CPython 3.15's surface, for targets of every version that we know.

use std::mem;
use std::sync::{Mutex, MutexGuard, PoisonError};

use pyo3::exceptions::{PyOSError, PyPermissionError, PyProcessLookupError, PyRuntimeError, PyValueError};
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyInt, PyList};
use slip_cpython::{
    AllTasks, AsyncioOffsets, AttachError, Interpreter, Keep, Look, LookRequest, TaskError, ThreadLook, Which,
};
use slip_model::{Interner, Outcome};
use slip_remote::{LiveProcess, OpenError, Pause, Pieces, ReadError, Remembered, Stillness, thread_state};

use crate::containers::{SeenInterpreter, SeenTaskList, SeenThread};
use crate::counted::{Counted, Reads};
use crate::frames::Frames;
use crate::functions::is_true;
use crate::results::Results;
use crate::types::{self, Types};

/// Deepest stack, as in CPython 3.15.
const MAX_FRAMES: usize = 1_024 + 512;

/// `mode`, as in `profiling.sampling.constants`.
const MODE_WALL: i32 = 0;
const MODE_CPU: i32 = 1;
const MODE_GIL: i32 = 2;
const MODE_ALL: i32 = 3;
const MODE_EXCEPTION: i32 = 4;

/// Reads the stacks of another Python process, which is neither stopped nor written to.
///
/// The surface is that of `_remote_debugging.RemoteUnwinder` of CPython 3.15; the process may run any CPython from 3.8 to 3.15.
#[pyclass(module = "slipstream", frozen)]
#[derive(Debug)]
pub(crate) struct RemoteUnwinder {
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    types: &'static Types,
    process: LiveProcess,
    python: Interpreter,
    interner: Interner,
    stillness: Stillness,
    request: LookRequest,
    mode: i32,
    skip_non_matching_threads: bool,
    look: Look,
    frames: Frames,
    /// What the last look gave; it holds as long as the process stands still.
    interpreters: Vec<SeenInterpreter>,
    threads: Vec<SeenThread>,
    is_whole: bool,
    /// The process runs another program by now: what is known is of the one before.
    is_over: bool,
    pause: Option<Pause>,
    asyncio: Option<AsyncioOffsets>,
    /// All tasks, and the running ones.
    tasks: [SeenTasks; 2],
    /// What was handed out: all tasks, the running ones, and stacks.
    results: [Results; 3],
    stats: Option<Stats>,
    reads: Reads,
}

/// Which tasks.
#[derive(Clone, Copy, Debug)]
enum Tasks {
    All = 0,
    Running = 1,
}

/// Where the results with stacks are, behind those with `Tasks`.
const STACKS: usize = 2;

/// Tasks as they were read last.
#[derive(Debug, Default)]
struct SeenTasks {
    pieces: Pieces,
    all: AllTasks,
    lists: Vec<SeenTaskList>,
    /// They hold as long as the process stands still.
    is_whole: bool,
}

/// What `get_stats` tells.
#[derive(Clone, Copy, Debug, Default)]
struct Stats {
    samples: u64,
    /// Samples that were the last one, or not.
    whole_hits: u64,
    misses: u64,
    frames_kept: u64,
    frames_read: u64,
}

/// Of all tasks, of running ones, and of stacks. Who runs a task does not stand still: those are never the same again.
fn no_results() -> [Results; 3] {
    [true, false, true].map(Results::new)
}

pub(crate) fn open_error(error: &OpenError) -> PyErr {
    match error {
        OpenError::Denied { hint, .. } => PyPermissionError::new_err(format!("{error}; {hint}")),
        _ => PyRuntimeError::new_err(error.to_string()),
    }
}

pub(crate) fn attach_error(error: AttachError) -> PyErr {
    match error {
        AttachError::Read(error) => read_error(&error),
        error => PyRuntimeError::new_err(error.to_string()),
    }
}

fn task_error(error: TaskError) -> PyErr {
    match error {
        TaskError::Read(error) => read_error(&error),
        error => PyRuntimeError::new_err(error.to_string()),
    }
}

pub(crate) fn read_error(error: &ReadError) -> PyErr {
    match error {
        ReadError::Gone { .. } => PyProcessLookupError::new_err(error.to_string()),
        ReadError::Denied { .. } => PyPermissionError::new_err(error.to_string()),
        _ => PyRuntimeError::new_err(error.to_string()),
    }
}

#[pymethods]
impl RemoteUnwinder {
    #[new]
    #[pyo3(signature = (pid, *, all_threads = false, only_active_thread = false, mode = 0, debug = false,
        skip_non_matching_threads = true, native = false, gc = false, opcodes = false, cache_frames = false, stats = false))]
    #[allow(clippy::fn_params_excessive_bools, clippy::too_many_arguments, reason = "CPython's signature")]
    fn new(
        py: Python<'_>,
        pid: i32,
        #[pyo3(from_py_with = is_true)] all_threads: bool,
        #[pyo3(from_py_with = is_true)] only_active_thread: bool,
        mode: i32,
        #[pyo3(from_py_with = is_true)] debug: bool,
        #[pyo3(from_py_with = is_true)] skip_non_matching_threads: bool,
        #[pyo3(from_py_with = is_true)] native: bool,
        #[pyo3(from_py_with = is_true)] gc: bool,
        #[pyo3(from_py_with = is_true)] opcodes: bool,
        #[pyo3(from_py_with = is_true)] cache_frames: bool,
        #[pyo3(from_py_with = is_true)] stats: bool,
    ) -> PyResult<Self> {
        // Errors always say what went wrong, and frames are always kept.
        let _ = (debug, cache_frames);
        if all_threads && only_active_thread {
            return Err(PyValueError::new_err("all_threads and only_active_thread cannot both be True"));
        }
        if !(MODE_WALL..=MODE_EXCEPTION).contains(&mode) {
            return Err(PyValueError::new_err(format!("there is no mode {mode}")));
        }
        let not_found = || PyRuntimeError::new_err(format!("there is no process {pid}"));
        let number = u32::try_from(pid).map_err(|_| not_found())?;
        let process = LiveProcess::open(number).map_err(|error| open_error(&error))?;
        let python = Interpreter::attach(&process).map_err(attach_error)?;
        let which = match (all_threads, only_active_thread) {
            (true, _) => Which::All,
            (_, true) => Which::Holders,
            _ => Which::Main,
        };
        let keep = match mode {
            MODE_GIL if skip_non_matching_threads => Keep::Holders,
            MODE_EXCEPTION if skip_non_matching_threads => Keep::WithException,
            _ => Keep::All,
        };
        let types = Types::get(py)?;
        Ok(Self {
            state: Mutex::new(State {
                types,
                stillness: Stillness::watch(number),
                process,
                python,
                interner: Interner::new(),
                request: LookRequest { which, keep, native, gc, opcodes, names: false },
                mode,
                skip_non_matching_threads,
                look: Look::default(),
                frames: Frames::new(types, opcodes),
                interpreters: Vec::new(),
                threads: Vec::new(),
                is_whole: false,
                is_over: false,
                pause: None,
                asyncio: None,
                tasks: <[SeenTasks; 2]>::default(),
                results: no_results(),
                stats: stats.then(Stats::default),
                reads: Reads::default(),
            }),
        })
    }

    /// The stacks of the threads that were asked for: a list of `InterpreterInfo`.
    ///
    /// Raises `RuntimeError` if the target changed so fast that no stack can be told, `ProcessLookupError` if it has ended.
    fn get_stack_trace<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        self.hand_out(STACKS, |state| state.stacks(py))
    }

    /// All tasks of asyncio, and who waits for each: a list of `AwaitedInfo`, one for each thread and one, with thread 0, for tasks
    /// whose thread has ended. CPython 3.14 on.
    ///
    /// Raises `RuntimeError` if the process has not imported asyncio, or its tasks changed while they were read.
    fn get_all_awaited_by<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        self.hand_out(Tasks::All as usize, |state| state.tasks(py, Tasks::All))
    }

    /// The running tasks, and those that wait for them, directly or through others: a list of `AwaitedInfo`, one for each thread that
    /// runs one. CPython 3.14 on.
    ///
    /// Raises `RuntimeError` as `get_all_awaited_by` does.
    fn get_async_stack_trace<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        self.hand_out(Tasks::Running as usize, |state| state.tasks(py, Tasks::Running))
    }

    /// Stops all threads of the process. False if they are stopped already.
    ///
    /// Raises `ProcessLookupError` if it has ended, `OSError` if it cannot be stopped.
    fn pause_threads(&self) -> PyResult<bool> {
        let state = &mut *self.lock();
        if state.pause.is_some() {
            return Ok(false);
        }
        let error = |error: std::io::Error| PyOSError::new_err((error.raw_os_error(), error.to_string()));
        state.pause = Some(Pause::stop(&state.process).map_err(error)?);
        Ok(true)
    }

    /// Lets them run on. False if they were not stopped.
    fn resume_threads(&self) -> bool {
        self.lock().pause.take().is_some()
    }

    /// What was read and what was kept since the beginning.
    fn get_stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let state = self.lock();
        let stats = state.stats.ok_or_else(|| {
            PyRuntimeError::new_err(
                "Statistics collection was not enabled. Create RemoteUnwinder with stats=True to collect statistics.",
            )
        })?;
        let reads = state.reads;
        let percent = |part: u64, whole: u64| {
            if whole == 0 { 0.0 } else { 100.0 * part as f64 / whole as f64 }
        };
        let dict = PyDict::new(py);
        for (name, value) in [
            ("total_samples", stats.samples),
            ("frame_cache_hits", stats.whole_hits),
            ("frame_cache_misses", stats.misses),
            ("frame_cache_partial_hits", stats.samples.saturating_sub(stats.whole_hits + stats.misses)),
            ("frames_read_from_cache", stats.frames_kept),
            ("frames_read_from_memory", stats.frames_read),
            ("memory_reads", reads.calls),
            ("memory_bytes_read", reads.bytes),
            ("stack_chunks_copied", 0),
            ("code_object_cache_hits", stats.frames_kept),
            ("code_object_cache_misses", state.frames.codes_read()),
            ("stale_cache_invalidations", 0),
            ("batched_read_attempts", reads.calls),
            ("batched_read_successes", reads.calls),
            ("batched_read_misses", 0),
            ("batched_read_segments_requested", reads.ranges),
            ("batched_read_segments_completed", reads.ranges_done),
        ] {
            dict.set_item(name, value)?;
        }
        let hits = stats.samples.saturating_sub(stats.misses);
        dict.set_item("frame_cache_hit_rate", percent(hits, stats.samples))?;
        let codes = stats.frames_kept + state.frames.codes_read();
        dict.set_item("code_object_cache_hit_rate", percent(stats.frames_kept, codes))?;
        dict.set_item("batched_read_success_rate", percent(reads.calls, reads.calls))?;
        dict.set_item("batched_read_segment_completion_rate", percent(reads.ranges_done, reads.ranges))?;
        Ok(dict)
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        // Who has the lock holds us as well, so that nothing is lost if less is shown.
        let Ok(state) = self.state.try_lock() else { return Ok(()) };
        state.results.iter().try_for_each(|results| results.traverse(&visit))
    }

    fn __clear__(&self) {
        let Ok(mut state) = self.state.try_lock() else { return };
        let results = mem::replace(&mut state.results, no_results());
        drop(state);
        drop(results);
    }
}

impl RemoteUnwinder {
    /// What `work` gives. What it has dropped of earlier results is freed when the lock is: that may run code of the caller, which may
    /// call us, or let another thread do so.
    fn hand_out<T>(&self, at: usize, work: impl FnOnce(&mut State) -> T) -> T {
        let mut state = self.lock();
        let result = work(&mut state);
        let dropped = state.results[at].take_dropped();
        drop(state);
        drop(dropped);
        result
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Forgets what was made for a target that makes ever new code.
    fn make_room(&mut self) {
        if self.frames.are_too_many() {
            self.frames = Frames::new(self.types, self.request.opcodes);
            self.interner = Interner::new();
            self.python.forget_codes();
            self.threads.clear();
            self.interpreters.clear();
            self.tasks = <[SeenTasks; 2]>::default();
        }
    }

    /// Begins to read: what was read before holds no longer than what is read now.
    fn begin(&mut self) -> PyResult<()> {
        self.is_whole = false;
        self.tasks.iter_mut().for_each(|tasks| tasks.is_whole = false);
        if self.is_over {
            return Err(self.over());
        }
        self.stillness.begin();
        self.make_room();
        Ok(())
    }

    /// Takes what was said of code objects that were met first, if the process has not begun another program meanwhile: that may have
    /// everything at the same addresses but what the code objects refer to, so that reading it does not fail.
    fn learn(&mut self, py: Python<'_>) -> PyResult<()> {
        let is_new = !self.look.texts.is_empty();
        self.frames.learn(py, &self.interner, &mut self.look.texts);
        if is_new && !self.process.runs_same_program() {
            self.is_over = true;
            return Err(self.over());
        }
        Ok(())
    }

    fn over(&self) -> PyErr {
        let pid = self.process.pid();
        if self.process.is_running() {
            PyRuntimeError::new_err(format!("process {pid} runs another program by now"))
        } else {
            read_error(&ReadError::Gone { pid })
        }
    }

    /// The stacks of threads.
    fn stacks<'py>(&mut self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        if let Some(stats) = &mut self.stats {
            stats.samples += 1;
        }
        if self.is_whole && self.stillness.has_stood_still() {
            if let Some(stats) = &mut self.stats {
                stats.whole_hits += 1;
                stats.frames_kept += self.look.points.len() as u64;
            }
        } else {
            self.look(py)?;
        }
        let groups = self.interpreters.iter().map(|interpreter| interpreter.group(&self.threads));
        self.results[STACKS].hand_out(py, self.types, &self.types.interpreter, groups)
    }

    /// Asyncio's tasks.
    fn tasks<'py>(&mut self, py: Python<'py>, which: Tasks) -> PyResult<Bound<'py, PyList>> {
        let at = which as usize;
        if !self.tasks[at].is_whole || !self.stillness.has_stood_still() {
            self.begin()?;
            self.read_tasks(py, which)?;
            self.tasks[at].is_whole = true;
        }
        let groups = self.tasks[at].lists.iter().map(SeenTaskList::group);
        self.results[at].hand_out(py, self.types, &self.types.awaited, groups)
    }

    fn read_tasks(&mut self, py: Python<'_>, which: Tasks) -> PyResult<()> {
        let asyncio = self.asyncio()?;
        let memory = Counted::new(&self.process, self.reads);
        let (interner, texts) = (&mut self.interner, &mut self.look.texts);
        let seen = &mut self.tasks[which as usize];
        let remembered = Remembered::new(&memory, &mut seen.pieces);
        let is_new = match which {
            Tasks::All => self.python.all_tasks(&remembered, interner, &asyncio, texts, &mut seen.all),
            Tasks::Running => {
                let lists = self.python.running_tasks(&remembered, interner, &asyncio, texts);
                lists.map(|lists| seen.all.lists = lists).map(|()| true)
            }
        };
        remembered.finish();
        self.reads = memory.reads();
        self.learn(py)?;
        if is_new.map_err(task_error)? {
            let seen = &mut self.tasks[which as usize];
            let updated = SeenTaskList::update_all(&mut seen.lists, py, &mut self.frames, &seen.all.lists);
            if updated.is_err() {
                // So that they are not taken for what was read.
                seen.all = AllTasks::default();
            }
            updated?;
        }
        Ok(())
    }

    /// Where asyncio keeps its tasks; the process may have imported it since we looked last.
    fn asyncio(&mut self) -> PyResult<AsyncioOffsets> {
        if let Some(asyncio) = self.asyncio {
            return Ok(asyncio);
        }
        let mut found = AsyncioOffsets::read(&self.process);
        if matches!(found, Err(TaskError::NoAsyncio)) {
            self.process.find_new_modules();
            found = AsyncioOffsets::read(&self.process);
        }
        let asyncio = found.map_err(task_error)?;
        self.asyncio = Some(asyncio);
        Ok(asyncio)
    }

    /// Reads the target.
    fn look(&mut self, py: Python<'_>) -> PyResult<()> {
        self.begin()?;
        let memory = Counted::new(&self.process, self.reads);
        let result = self.python.look(&memory, &mut self.interner, &self.request, &mut self.look);
        self.reads = memory.reads();
        self.learn(py)?;
        result.map_err(|error| read_error(&error))?;
        self.note(py)?;
        self.is_whole = true;
        Ok(())
    }

    /// Makes objects of what was seen.
    fn note(&mut self, py: Python<'_>) -> PyResult<()> {
        let look = &self.look;
        let mut count = 0;
        self.interpreters.truncate(look.interpreters.len());
        for (nth, interpreter) in look.interpreters.iter().enumerate() {
            let from = count;
            for thread in &look.threads[interpreter.threads.clone()] {
                let points = &look.points[thread.points.clone()];
                if thread.outcome == Outcome::Torn {
                    return Err(PyRuntimeError::new_err(
                        "Incomplete sample: the stack changed while it was read",
                    ));
                }
                if thread.truncated || points.len() > MAX_FRAMES {
                    return Err(PyRuntimeError::new_err("Too many stack frames (possible infinite loop)"));
                }
                let status = self.status(thread);
                if self.skip_non_matching_threads && self.mode == MODE_CPU && status & types::ON_CPU == 0 {
                    continue;
                }
                // As a rule the threads are those of last time.
                if self.threads.get(count).map(|seen| seen.key) != Some(thread.key) {
                    let known = self.threads[count.min(self.threads.len())..]
                        .iter()
                        .position(|seen| seen.key == thread.key);
                    match known {
                        Some(at) => self.threads.swap(count, count + at),
                        None => self.threads.insert(count, SeenThread::new(py, thread.key)),
                    }
                }
                self.threads[count].update(py, &mut self.frames, (thread.native_tid, status), points)?;
                count += 1;
            }
            let threads = from..count;
            match self.interpreters.get_mut(nth) {
                Some(seen) if seen.number == interpreter.id => seen.threads = threads,
                _ => {
                    let seen = SeenInterpreter {
                        number: interpreter.id,
                        id: PyInt::new(py, interpreter.id).unbind(),
                        threads,
                    };
                    self.interpreters.truncate(nth);
                    self.interpreters.push(seen);
                }
            }
        }
        // Those of other modes of the same threads are not worth keeping.
        self.threads.truncate(count);
        if let Some(stats) = &mut self.stats {
            stats.frames_read += look.points.len() as u64;
            stats.misses += 1;
        }
        Ok(())
    }

    fn status(&self, thread: &ThreadLook) -> u32 {
        let bits = [
            (thread.holds_gil, types::HAS_GIL),
            (thread.requests_gil, types::GIL_REQUESTED),
            (thread.has_exception, types::HAS_EXCEPTION),
            (thread.is_main, types::MAIN_THREAD),
        ];
        let status = bits.iter().filter(|(is_so, _)| *is_so).fold(0, |status, (_, bit)| status | bit);
        if self.mode != MODE_CPU && self.mode != MODE_ALL {
            return status | types::UNKNOWN;
        }
        let on_cpu = u32::try_from(thread.native_tid).ok().and_then(|tid| {
            self.stillness
                .is_on_cpu(tid)
                .or_else(|| thread_state(self.process.pid(), tid).map(|state| state == 'R'))
        });
        match on_cpu {
            None => status | types::UNKNOWN,
            Some(true) => status | types::ON_CPU,
            Some(false) => status,
        }
    }
}
