//! CPython 3.12, x86-64 and other 64-bit machines.
//!
//! Taken with `offsetof` (see `fixtures/images/README.md`) from
//! <https://github.com/python/cpython/blob/v3.12.1/Include/cpython/pystate.h>,
//! [code.h](https://github.com/python/cpython/blob/v3.12.1/Include/cpython/code.h),
//! [pycore_frame.h](https://github.com/python/cpython/blob/v3.12.1/Include/internal/pycore_frame.h),
//! [pycore_interp.h](https://github.com/python/cpython/blob/v3.12.1/Include/internal/pycore_interp.h),
//! [pycore_runtime.h](https://github.com/python/cpython/blob/v3.12.1/Include/internal/pycore_runtime.h).

use super::{
    CodeOffsets, CurrentFrame, FrameOffsets, GilOffsets, GilPlace, InstructionsAt, InterpreterOffsets,
    ManagedDict, NativeId, ObjectOffsets, Offsets, Running, StatusOffsets, ThreadOffsets,
};
use crate::lines::LineFormat;

pub(super) const OFFSETS: Offsets = Offsets {
    interpreters_head: 40,
    interpreter: InterpreterOffsets {
        id: 8,
        next: 0,
        threads_head: 72,
        threads_main: None,
        gc_frame: None,
        gc_stats: None,
        modules: 944,
        code_object_generation: None,
    },
    gil: GilOffsets { place: GilPlace::InterpreterPointer(384), last_holder: 8, locked: 16 },
    thread: ThreadOffsets {
        next: 8,
        interp: 16,
        current: CurrentFrame::CFrame { cframe: 56, current_frame: 0, root_cframe: 272 },
        base_frame: None,
        thread_id: 136,
        native_thread_id: NativeId::Field(144),
        datastack: Some((232, 248)),
        status: StatusOffsets {
            is_read: false,
            gil: None,
            current_exception: 96,
            exc_info: 104,
            exc_state: 256,
            exc_previous: 8,
        },
    },
    frame: FrameOffsets {
        executable: 0,
        previous: 8,
        instr_ptr: 56,
        index_bytes: None,
        owner: 70,
        first_shim_owner: 3,
        last_owner: 3,
        running: Running::Stacktop,
        len: 72,
    },
    code: CodeOffsets {
        filename: 112,
        qualname: 128,
        linetable: 136,
        line_format: LineFormat::Locations,
        firstlineno: 68,
        instructions: InstructionsAt::End { firsttraceable: 176 },
        code_adaptive: 192,
        has_version: true,
    },
    object: ObjectOffsets {
        ob_type: 8,
        ob_size: 16,
        bytes_data: 32,
        str_length: 16,
        str_state: 32,
        str_ascii: 40,
        str_compact: 56,
        tp_name: 24,
        tp_basicsize: 32,
        tp_flags: 168,
        cached_keys: 880,
        dict_keys: 32,
        dict_values: 40,
        values_first: 0,
        managed_dict: ManagedDict::Tagged { either: 24 },
    },
    waiting: None,
};
