//! The functions of the module.

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::PyList;
use slip_cpython::{GcStats, GcStatsError, Interpreter};
use slip_remote::LiveProcess;

use crate::types::{Types, new_struct};
use crate::unwinder::{attach_error, open_error, read_error};

/// Flags are whatever is true or false in Python, as in CPython's own module.
pub(crate) fn is_true(value: &Bound<'_, PyAny>) -> PyResult<bool> {
    value.is_truthy()
}

/// Whether the process runs a CPython that can be read.
#[pyfunction]
pub(crate) fn is_python_process(pid: i32) -> bool {
    let Ok(pid) = u32::try_from(pid) else { return false };
    LiveProcess::open(pid).is_ok_and(|process| matches!(slip_cpython::detect(&process), Ok(Some(_))))
}

/// The ids of the processes that a process has started and that still run; with `recursive` also those that they have started.
#[pyfunction]
#[pyo3(signature = (pid, *, recursive = true))]
pub(crate) fn get_child_pids(pid: i32, #[pyo3(from_py_with = is_true)] recursive: bool) -> Vec<u32> {
    let Ok(pid) = u32::try_from(pid) else { return Vec::new() };
    if recursive { slip_remote::descendants(&[pid]) } else { slip_remote::children_of(pid) }
}

/// What the last garbage collections of a process have left: a list of `GCStatsInfo`, of the main interpreter or of all. Each keeps
/// the last eleven of the young generation and three of each older one; entries that were not needed yet are all 0. CPython 3.15 on.
///
/// Raises `RuntimeError` if there is no such process, it runs no CPython that is known, one before 3.15, or collected while it was
/// read; `PermissionError` if it may not be read.
#[pyfunction]
#[pyo3(signature = (pid, *, all_interpreters = false))]
pub(crate) fn get_gc_stats(
    py: Python<'_>,
    pid: i32,
    #[pyo3(from_py_with = is_true)] all_interpreters: bool,
) -> PyResult<Bound<'_, PyList>> {
    let not_found = |_| PyRuntimeError::new_err(format!("there is no process {pid}"));
    let process =
        LiveProcess::open(u32::try_from(pid).map_err(not_found)?).map_err(|error| open_error(&error))?;
    let mut python = Interpreter::attach(&process).map_err(attach_error)?;
    let stats = python.gc_stats(&process, all_interpreters).map_err(|error| match error {
        GcStatsError::Read(error) => read_error(&error),
        error => PyRuntimeError::new_err(error.to_string()),
    })?;
    let of = Types::get(py)?.gc_stats.bind(py);
    let list = PyList::empty(py);
    for GcStats {
        generation,
        interpreter,
        started_ns,
        ended_ns,
        collections,
        collected,
        uncollectable,
        candidates,
        heap_size,
        duration_s,
    } in stats
    {
        let number = |value: i64| value.into_pyobject(py).map(Bound::into_any);
        list.append(new_struct(
            of,
            [
                number(generation.into())?,
                interpreter.into_pyobject(py)?.into_any(),
                number(started_ns)?,
                number(ended_ns)?,
                number(collections)?,
                number(collected)?,
                number(uncollectable)?,
                number(candidates)?,
                number(heap_size)?,
                duration_s.into_pyobject(py)?.into_any(),
            ],
        )?)?;
    }
    Ok(list)
}
