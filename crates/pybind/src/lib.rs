//! The module `slipstream._native`: `RemoteUnwinder` and what belongs to it, for every CPython from 3.9 on.
//!
//! Owns what is Python's about it: the types, the errors and the containers that are handed out. Reading a target is
//! `slip-cpython`'s, system calls are `slip-remote`'s.

mod containers;
mod counted;
mod frames;
mod functions;
mod layout;
mod results;
mod types;
mod unwinder;

use pyo3::prelude::*;

#[pymodule(gil_used = true)]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<unwinder::RemoteUnwinder>()?;
    module.add_function(wrap_pyfunction!(functions::is_python_process, module)?)?;
    module.add_function(wrap_pyfunction!(functions::get_child_pids, module)?)?;
    module.add_function(wrap_pyfunction!(functions::get_gc_stats, module)?)?;
    module.add_function(wrap_pyfunction!(types::result_type, module)?)?;
    for (name, value) in [
        ("THREAD_STATUS_HAS_GIL", types::HAS_GIL),
        ("THREAD_STATUS_ON_CPU", types::ON_CPU),
        ("THREAD_STATUS_UNKNOWN", types::UNKNOWN),
        ("THREAD_STATUS_GIL_REQUESTED", types::GIL_REQUESTED),
        ("THREAD_STATUS_HAS_EXCEPTION", types::HAS_EXCEPTION),
        ("THREAD_STATUS_MAIN_THREAD", types::MAIN_THREAD),
        ("PROCESS_VM_READV_SUPPORTED", 1),
    ] {
        module.add(name, value)?;
    }
    module.add("__version__", env!("CARGO_PKG_VERSION"))
}
