//! CPython 3.11, x86-64 and other 64-bit machines. The same from 3.11.0 to the last release, with and without `--enable-shared`.
//!
//! Taken with `offsetof` (see `fixtures/images/README.md`) from
//! <https://github.com/python/cpython/blob/v3.11.2/Include/cpython/pystate.h>,
//! [code.h](https://github.com/python/cpython/blob/v3.11.2/Include/cpython/code.h),
//! [pycore_frame.h](https://github.com/python/cpython/blob/v3.11.2/Include/internal/pycore_frame.h),
//! [pycore_interp.h](https://github.com/python/cpython/blob/v3.11.2/Include/internal/pycore_interp.h),
//! [pycore_runtime.h](https://github.com/python/cpython/blob/v3.11.2/Include/internal/pycore_runtime.h).

use super::{
    CodeOffsets, CurrentFrame, FrameOffsets, GilOffsets, GilPlace, InstructionsAt, InterpreterOffsets,
    ManagedDict, NativeId, ObjectOffsets, Offsets, Running, StatusOffsets, ThreadOffsets,
};
use crate::lines::LineFormat;

pub(super) const OFFSETS: Offsets = Offsets {
    interpreters_head: 40,
    interpreter: InterpreterOffsets {
        id: 48,
        next: 0,
        threads_head: 16,
        threads_main: None,
        gc_frame: None,
        gc_stats: None,
        modules: 888,
        code_object_generation: None,
    },
    gil: GilOffsets { place: GilPlace::Runtime(360), last_holder: 8, locked: 16 },
    thread: ThreadOffsets {
        next: 8,
        interp: 16,
        current: CurrentFrame::CFrame { cframe: 56, current_frame: 8, root_cframe: 336 },
        base_frame: None,
        thread_id: 152,
        native_thread_id: NativeId::Field(160),
        datastack: Some((296, 312)),
        status: StatusOffsets {
            is_read: false,
            gil: None,
            current_exception: 96,
            exc_info: 120,
            exc_state: 320,
            exc_previous: 8,
        },
    },
    frame: FrameOffsets {
        executable: 32,
        previous: 48,
        instr_ptr: 56,
        index_bytes: None,
        owner: 69,
        // There are no such frames yet.
        first_shim_owner: 3,
        last_owner: 2,
        running: Running::StacktopWithEntry,
        len: 72,
    },
    code: CodeOffsets {
        filename: 112,
        qualname: 128,
        linetable: 136,
        line_format: LineFormat::Locations,
        firstlineno: 72,
        instructions: InstructionsAt::End { firsttraceable: 168 },
        code_adaptive: 184,
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
        cached_keys: 872,
        dict_keys: 32,
        dict_values: 40,
        values_first: 0,
        managed_dict: ManagedDict::Pair { dict: 24, values: 32 },
    },
    waiting: None,
};
