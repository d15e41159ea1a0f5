//! The functions of the module.

use pyo3::prelude::*;

/// Whether the process runs a CPython that can be read.
#[pyfunction]
pub(crate) fn is_python_process(pid: i32) -> bool {
    let Ok(pid) = u32::try_from(pid) else { return false };
    slip_remote::LiveProcess::open(pid)
        .is_ok_and(|process| matches!(slip_cpython::detect(&process), Ok(Some(_))))
}

/// The ids of the processes that a process has started and that still run; with `recursive` also those that they have started.
#[pyfunction]
#[pyo3(signature = (pid, *, recursive = true))]
pub(crate) fn get_child_pids(pid: i32, recursive: bool) -> Vec<u32> {
    let Ok(pid) = u32::try_from(pid) else { return Vec::new() };
    if recursive { slip_remote::descendants(&[pid]) } else { slip_remote::children_of(pid) }
}
