//! The types of results: those of the interpreter's own `_remote_debugging` where it has them (3.15 on), else ours with the same
//! names and fields, so that what takes the ones takes the others.

use std::ffi::{CStr, c_char, c_int};
use std::ptr;

use pyo3::exceptions::PyAttributeError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyType;

/// Bits of `ThreadInfo.status`.
pub(crate) const HAS_GIL: u32 = 1;
pub(crate) const ON_CPU: u32 = 2;
pub(crate) const UNKNOWN: u32 = 4;
pub(crate) const GIL_REQUESTED: u32 = 8;
pub(crate) const HAS_EXCEPTION: u32 = 16;
pub(crate) const MAIN_THREAD: u32 = 32;

/// Fields of one type, with what each is.
type Fields = &'static [(&'static CStr, &'static CStr)];

/// All types of results. Held as long as the interpreter lives.
#[derive(Debug)]
pub(crate) struct Types {
    pub(crate) interpreter: Py<PyType>,
    pub(crate) thread: Py<PyType>,
    pub(crate) frame: Py<PyType>,
    pub(crate) location: Py<PyType>,
    pub(crate) task: Py<PyType>,
    pub(crate) coroutine: Py<PyType>,
    pub(crate) awaited: Py<PyType>,
    pub(crate) gc_stats: Py<PyType>,
}

const INTERPRETER: (&CStr, &CStr, Fields) = (
    c"slipstream.InterpreterInfo",
    c"Information about an interpreter",
    &[(c"interpreter_id", c"Interpreter ID"), (c"threads", c"List of its threads")],
);
const THREAD: (&CStr, &CStr, Fields) = (
    c"slipstream.ThreadInfo",
    c"Information about a thread",
    &[
        (c"thread_id", c"Thread ID of the operating system"),
        (c"status", c"THREAD_STATUS_ flags"),
        (c"frame_info", c"List of its frames, the innermost first"),
    ],
);
const FRAME: (&CStr, &CStr, Fields) = (
    c"slipstream.FrameInfo",
    c"Information about a frame",
    &[
        (c"filename", c"Source file of the code"),
        (c"location", c"LocationInfo, or None for a synthetic frame"),
        (c"funcname", c"Qualified name of the function"),
        (c"opcode", c"Opcode being executed, or None if it was not asked for"),
    ],
);
const LOCATION: (&CStr, &CStr, Fields) = (
    c"slipstream.LocationInfo",
    c"Where in the source an instruction comes from",
    &[
        (c"lineno", c"Line"),
        (c"end_lineno", c"Line that it ends in"),
        (c"col_offset", c"Bytes before it in its line, or -1"),
        (c"end_col_offset", c"Bytes before its end in its last line, or -1"),
    ],
);
const TASK: (&CStr, &CStr, Fields) = (
    c"slipstream.TaskInfo",
    c"Information about an asyncio task",
    &[
        (c"task_id", c"Address of the task"),
        (c"task_name", c"Name of the task"),
        (c"coroutine_stack", c"List of CoroInfo"),
        (c"awaited_by", c"List of CoroInfo of those that wait for it"),
    ],
);
const COROUTINE: (&CStr, &CStr, Fields) = (
    c"slipstream.CoroInfo",
    c"Information about a coroutine",
    &[(c"call_stack", c"List of FrameInfo"), (c"task_name", c"Name, or address, of its task")],
);
const AWAITED: (&CStr, &CStr, Fields) = (
    c"slipstream.AwaitedInfo",
    c"The tasks of a thread",
    &[(c"thread_id", c"Thread ID of the operating system"), (c"awaited_by", c"List of TaskInfo")],
);
const GC_STATS: (&CStr, &CStr, Fields) = (
    c"slipstream.GCStatsInfo",
    c"What a garbage collection has left; the counts are of all collections of its generation up to it",
    &[
        (c"gen", c"Generation, 0 for the young one"),
        (c"iid", c"Interpreter ID"),
        (c"ts_start", c"When it began, in nanoseconds of the process's clock"),
        (c"ts_stop", c"When it ended"),
        (c"collections", c"Collections"),
        (c"collected", c"Objects that were freed"),
        (c"uncollectable", c"Objects that could not be freed"),
        (c"candidates", c"Objects that were looked at"),
        (c"heap_size", c"Objects that lived then"),
        (c"duration", c"Seconds that the collections took"),
    ],
);

/// Finds one of them.
type Get = fn(&Types) -> &Py<PyType>;

/// All of them by the name that CPython gives them.
const NAMES: [(&str, Get); 8] = [
    ("InterpreterInfo", |types| &types.interpreter),
    ("ThreadInfo", |types| &types.thread),
    ("FrameInfo", |types| &types.frame),
    ("LocationInfo", |types| &types.location),
    ("TaskInfo", |types| &types.task),
    ("CoroInfo", |types| &types.coroutine),
    ("AwaitedInfo", |types| &types.awaited),
    ("GCStatsInfo", |types| &types.gc_stats),
];

static TYPES: PyOnceLock<Types> = PyOnceLock::new();

impl Types {
    /// The types, made or found with the first call: an import of ours may be a part of that of `_remote_debugging`.
    pub(crate) fn get(py: Python<'_>) -> PyResult<&'static Types> {
        TYPES.get_or_try_init(py, || Self::of_interpreter(py).map_or_else(|| Self::own(py), Ok))
    }

    /// Those of the interpreter, if it has all of them.
    fn of_interpreter(py: Python<'_>) -> Option<Self> {
        let module = py.import("_remote_debugging").ok()?;
        let find = |name: &str| -> Option<Py<PyType>> {
            Some(module.getattr(name).ok()?.cast_into::<PyType>().ok()?.unbind())
        };
        // 3.14 has some of these with other fields.
        find("LocationInfo")?;
        Some(Self {
            interpreter: find("InterpreterInfo")?,
            thread: find("ThreadInfo")?,
            frame: find("FrameInfo")?,
            location: find("LocationInfo")?,
            task: find("TaskInfo")?,
            coroutine: find("CoroInfo")?,
            awaited: find("AwaitedInfo")?,
            // It came last, and grew; one with other fields is none of ours.
            gc_stats: find("GCStatsInfo")
                .filter(|known| has_fields(py, known, GC_STATS.2))
                .map_or_else(|| make_type(py, GC_STATS.0, GC_STATS.1, GC_STATS.2).ok(), Some)?,
        })
    }

    fn own(py: Python<'_>) -> PyResult<Self> {
        let make = |(name, doc, fields)| make_type(py, name, doc, fields);
        Ok(Self {
            interpreter: make(INTERPRETER)?,
            thread: make(THREAD)?,
            frame: make(FRAME)?,
            location: make(LOCATION)?,
            task: make(TASK)?,
            coroutine: make(COROUTINE)?,
            awaited: make(AWAITED)?,
            gc_stats: make(GC_STATS)?,
        })
    }
}

fn has_fields(py: Python<'_>, of: &Py<PyType>, fields: Fields) -> bool {
    let names = of.getattr(py, "__match_args__").and_then(|names| names.extract::<Vec<String>>(py));
    names.is_ok_and(|names| {
        names.iter().map(String::as_bytes).eq(fields.iter().map(|(name, _)| name.to_bytes()))
    })
}

fn make_type(
    py: Python<'_>,
    name: &'static CStr,
    doc: &'static CStr,
    fields: Fields,
) -> PyResult<Py<PyType>> {
    let text = |text: &'static CStr| text.as_ptr().cast::<c_char>();
    let mut list: Vec<ffi::PyStructSequence_Field> = fields
        .iter()
        .map(|(name, doc)| ffi::PyStructSequence_Field { name: text(name), doc: text(doc) })
        .collect();
    list.push(ffi::PyStructSequence_Field { name: ptr::null(), doc: ptr::null() });
    let mut desc = ffi::PyStructSequence_Desc {
        name: text(name),
        doc: text(doc),
        fields: list.as_mut_ptr(),
        n_in_sequence: fields.len() as c_int,
    };
    // SAFETY: the description and its fields outlive the call, and the texts live for ever.
    let made = unsafe { ffi::PyStructSequence_NewType(&raw mut desc) };
    // SAFETY: a new reference, or null with an error set.
    let made = unsafe { Bound::from_owned_ptr_or_err(py, made.cast()) }?;
    Ok(made.cast_into::<PyType>()?.unbind())
}

/// A new object of one of these types. `items` must be as many as it has fields.
pub(crate) fn new_struct<'py, const N: usize>(
    of: &Bound<'py, PyType>,
    items: [Bound<'py, PyAny>; N],
) -> PyResult<Bound<'py, PyAny>> {
    // SAFETY: `of` is a structseq type.
    let made = unsafe { ffi::PyStructSequence_New(of.as_type_ptr()) };
    // SAFETY: a new reference, or null with an error set.
    let made = unsafe { Bound::from_owned_ptr_or_err(of.py(), made) }?;
    for (at, item) in items.into_iter().enumerate() {
        // SAFETY: the object is new and nobody else's, has N fields, and takes over the reference.
        unsafe { ffi::PyStructSequence_SetItem(made.as_ptr(), at as ffi::Py_ssize_t, item.into_ptr()) };
    }
    Ok(made)
}

/// Tells the garbage collector of what [`new_struct`] has made, as `PyStructSequence_New` does not.
pub(crate) fn track(made: &Bound<'_, PyAny>) {
    // SAFETY: it lives.
    let is_known = unsafe { ffi::PyObject_GC_IsTracked(made.as_ptr()) } != 0;
    if !is_known {
        // SAFETY: it is a tuple, of which the collector may be told, has all its items, and the collector does not know it yet.
        unsafe { ffi::PyObject_GC_Track(made.as_ptr().cast()) };
    }
}

/// One of the types of results by its name, such as `FrameInfo`.
#[pyfunction]
pub(crate) fn result_type(py: Python<'_>, name: &str) -> PyResult<Py<PyType>> {
    let types = Types::get(py)?;
    let found = NAMES.iter().find(|(known, _)| *known == name);
    let (_, get) = found.ok_or_else(|| PyAttributeError::new_err(format!("there is no type {name}")))?;
    Ok(get(types).clone_ref(py))
}
