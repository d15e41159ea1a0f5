//! CPython 3.9, x86-64 and other 64-bit machines.
//!
//! Taken with `offsetof` (see `fixtures/images/README.md`) from
//! <https://github.com/python/cpython/blob/v3.9.18/Include/cpython/pystate.h>,
//! [code.h](https://github.com/python/cpython/blob/v3.9.18/Include/cpython/code.h),
//! [frameobject.h](https://github.com/python/cpython/blob/v3.9.18/Include/cpython/frameobject.h),
//! [pycore_interp.h](https://github.com/python/cpython/blob/v3.9.18/Include/internal/pycore_interp.h),
//! [pycore_runtime.h](https://github.com/python/cpython/blob/v3.9.18/Include/internal/pycore_runtime.h).

use super::{
    CodeOffsets, CurrentFrame, FrameOffsets, GilOffsets, GilPlace, InstructionsAt, InterpreterOffsets,
    ManagedDict, NativeId, ObjectOffsets, Offsets, Running, StatusOffsets, ThreadOffsets,
};
use crate::lines::LineFormat;

/// `PyInterpreterState.sysdict`
pub(super) const SYSDICT: usize = 872;

pub(super) const OFFSETS: Offsets = Offsets {
    interpreters_head: 32,
    interpreter: InterpreterOffsets {
        id: 24,
        next: 0,
        threads_head: 8,
        threads_main: None,
        gc_frame: None,
        modules: 856,
        code_object_generation: None,
        gc_stats: None,
    },
    gil: GilOffsets { place: GilPlace::Runtime(352), last_holder: 8, locked: 16 },
    thread: ThreadOffsets {
        next: 8,
        interp: 16,
        current: CurrentFrame::Direct(24),
        base_frame: None,
        thread_id: 176,
        native_thread_id: NativeId::Library { serial: 256, counter: 160, tid: None },
        datastack: None,
        status: StatusOffsets {
            is_read: false,
            gil: None,
            current_exception: 88,
            exc_info: 144,
            exc_state: 112,
            exc_previous: 24,
        },
    },
    frame: FrameOffsets {
        executable: 32,
        previous: 24,
        instr_ptr: 104,
        index_bytes: Some(1),
        owner: 116,
        // No frame stands for the interpreter.
        first_shim_owner: 1,
        last_owner: 0,
        running: Running::State { executing: &[1] },
        len: 120,
    },
    code: CodeOffsets {
        filename: 104,
        qualname: 112,
        linetable: 120,
        line_format: LineFormat::Lnotab,
        firstlineno: 40,
        instructions: InstructionsAt::Object { co_code: 48 },
        code_adaptive: 128,
        has_version: false,
    },
    object: ObjectOffsets {
        ob_type: 8,
        ob_size: 16,
        bytes_data: 32,
        str_length: 16,
        str_state: 32,
        str_ascii: 48,
        str_compact: 72,
        tp_name: 24,
        tp_basicsize: 32,
        tp_flags: 168,
        cached_keys: 864,
        dict_keys: 32,
        dict_values: 40,
        values_first: 0,
        managed_dict: ManagedDict::Plain { tp_dictoffset: 288 },
    },
    waiting: None,
};
