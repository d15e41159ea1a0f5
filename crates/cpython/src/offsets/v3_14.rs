//! CPython 3.14: where each field stands within the offsets that the target reports.
//!
//! The order is that of `_Py_DebugOffsets` in
//! <https://github.com/python/cpython/blob/v3.14.0/Include/internal/pycore_debug_offsets.h>

use super::Running;
use super::report::{Report, ThreadsMain};

pub(super) const REPORT: Report = Report {
    len: 95,
    runtime_size: 3,
    interpreters_head: 5,
    interpreter_size: 6,
    id: 7,
    next: 8,
    threads_head: 9,
    threads_main: ThreadsMain::Field(10),
    gc: 11,
    gc_frame: None,
    imports_modules: 12,
    ceval_gil: 15,
    gil_runtime_state: 16,
    gil_runtime_state_locked: 18,
    gil_runtime_state_holder: 19,
    code_object_generation: Some(20),
    thread_size: 22,
    thread_next: 24,
    interp: 25,
    current_frame: 26,
    base_frame: None,
    thread_id: 27,
    native_thread_id: 28,
    datastack_chunk: 29,
    gil: None,
    exc_state: 24,
    frame_size: 31,
    previous: 32,
    executable: 33,
    instr_ptr: 34,
    localsplus: 35,
    owner: 36,
    // CALL_FUNCTION_EX, CALL, CALL_KW, FOR_ITER, SEND, BINARY_OP_SUBSCR_GETITEM, the CALL_* and *_GEN that run Python
    // code, LOAD_ATTR_PROPERTY and _GETATTRIBUTE_OVERRIDDEN, instrumented forms, ENTER_EXECUTOR.
    running: Running::Instruction(&[
        4, 52, 55, 70, 106, 136, 143, 144, 145, 151, 153, 161, 162, 171, 179, 187, 197, 237, 238, 250, 251,
        252, 254, 255,
    ]),
    code_size: 39,
    filename: 40,
    qualname: 42,
    linetable: 43,
    firstlineno: 44,
    co_code_adaptive: 48,
    ob_type: 51,
    tp_name: 53,
    tp_flags: 55,
    ma_keys: 67,
    ma_values: 68,
    bytes_ob_size: 75,
    bytes_ob_sval: 76,
    unicode_state: 78,
    unicode_length: 79,
    asciiobject_size: 80,
    cached_keys: 880,
};
