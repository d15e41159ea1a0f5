//! CPython 3.15: where each field stands within the offsets that the target reports.
//!
//! The order is that of `_Py_DebugOffsets` in
//! <https://github.com/python/cpython/blob/v3.15.0/Include/internal/pycore_debug_offsets.h>

use super::report::{Report, ReportWaiting, ThreadsMain};
use super::{FrameStates, Running};

pub(super) const REPORT: Report = Report {
    len: 111,
    runtime_size: 3,
    interpreters_head: 5,
    interpreter_size: 6,
    id: 7,
    next: 8,
    threads_head: 9,
    threads_main: ThreadsMain::Field(10),
    gc: 11,
    gc_frame: Some(96),
    gc_stats: Some((97, 98)),
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
    base_frame: Some(27),
    thread_id: 30,
    native_thread_id: 31,
    datastack_chunk: 32,
    gil: Some((34, 35)),
    exc_state: 32,
    frame_size: 39,
    previous: 40,
    executable: 41,
    instr_ptr: 42,
    localsplus: 43,
    owner: 44,
    // CALL_FUNCTION_EX, CALL, CALL_KW, FOR_ITER, SEND, BINARY_OP_SUBSCR_GETITEM, the CALL_* and *_GEN that run Python
    // code, LOAD_ATTR_PROPERTY and _GETATTRIBUTE_OVERRIDDEN, instrumented forms, ENTER_EXECUTOR.
    running: Running::Instruction(&[
        4, 50, 53, 68, 105, 136, 144, 145, 146, 152, 154, 156, 164, 165, 174, 185, 193, 202, 203, 236, 237,
        249, 250, 251, 253, 254,
    ]),
    code_size: 47,
    filename: 48,
    qualname: 50,
    linetable: 51,
    firstlineno: 52,
    co_code_adaptive: 56,
    ob_type: 59,
    tp_name: 61,
    tp_flags: 63,
    ma_keys: 79,
    ma_values: 80,
    bytes_ob_size: 87,
    bytes_ob_sval: 88,
    unicode_state: 90,
    unicode_length: 91,
    asciiobject_size: 92,
    waiting: Some(ReportWaiting {
        iframe: 101,
        frame_state: 102,
        // FRAME_SUSPENDED_YIELD_FROM and its _LOCKED form; FRAME_CLEARED.
        states: FrameStates { waits: &[2, 3], runs: &[4], over: &[5], awaited: 16 },
        stackpointer: 45,
        set_table: 76,
        set_mask: 77,
        long_tag: 84,
        long_digits: 85,
    }),
    cached_keys: 888,
};
