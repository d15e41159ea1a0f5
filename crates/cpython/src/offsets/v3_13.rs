//! CPython 3.13: where each field stands within the offsets that the target reports.
//!
//! The order is that of `_Py_DebugOffsets` in
//! <https://github.com/python/cpython/blob/v3.13.0/Include/internal/pycore_runtime.h>

use super::Running;
use super::report::Report;

pub(super) const REPORT: Report = Report {
    len: 73,
    runtime_size: 3,
    interpreters_head: 5,
    interpreter_size: 6,
    id: 7,
    next: 8,
    threads_head: 9,
    imports_modules: 11,
    ceval_gil: 14,
    gil_runtime_state: 15,
    gil_runtime_state_locked: 17,
    gil_runtime_state_holder: 18,
    code_object_generation: None,
    thread_size: 19,
    thread_next: 21,
    interp: 22,
    current_frame: 23,
    thread_id: 24,
    native_thread_id: 25,
    datastack_chunk: 26,
    frame_size: 28,
    previous: 29,
    executable: 30,
    instr_ptr: 31,
    localsplus: 32,
    owner: 33,
    running: Running::Stacktop,
    code_size: 34,
    filename: 35,
    qualname: 37,
    linetable: 38,
    firstlineno: 39,
    co_code_adaptive: 43,
    ob_type: 45,
    tp_name: 47,
    tp_flags: 49,
    ma_keys: 57,
    ma_values: 58,
    bytes_ob_size: 65,
    bytes_ob_sval: 66,
    unicode_state: 68,
    unicode_length: 69,
    asciiobject_size: 70,
    cached_keys: 880,
};
