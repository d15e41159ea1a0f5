//! Reads the offsets that a target of 3.13 or later reports about itself.

use slip_remote::{Memory, RemoteAddr};

use super::{
    CodeOffsets, CurrentFrame, FrameOffsets, FrameStates, GcStatsOffsets, GilOffsets, GilPlace,
    InstructionsAt, InterpreterOffsets, ManagedDict, NativeId, ObjectOffsets, Offsets, Running,
    StatusOffsets, ThreadOffsets, WaitingOffsets,
};
use crate::bytes::u64_at;
use crate::lines::LineFormat;
use crate::{AttachError, Version};

/// Where each field stands within `_Py_DebugOffsets` of a version: the number of the `uint64_t`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Report {
    /// How many numbers there are.
    pub(crate) len: usize,
    /// `runtime_state.`
    pub(crate) runtime_size: usize,
    pub(crate) interpreters_head: usize,
    /// `interpreter_state.`
    pub(crate) interpreter_size: usize,
    pub(crate) id: usize,
    pub(crate) next: usize,
    pub(crate) threads_head: usize,
    pub(crate) threads_main: ThreadsMain,
    pub(crate) gc: usize,
    pub(crate) gc_frame: Option<usize>,
    /// `generation_stats_size` and `generation_stats`
    pub(crate) gc_stats: Option<(usize, usize)>,
    pub(crate) imports_modules: usize,
    pub(crate) ceval_gil: usize,
    pub(crate) gil_runtime_state: usize,
    pub(crate) gil_runtime_state_locked: usize,
    pub(crate) gil_runtime_state_holder: usize,
    pub(crate) code_object_generation: Option<usize>,
    /// `thread_state.`
    pub(crate) thread_size: usize,
    pub(crate) thread_next: usize,
    pub(crate) interp: usize,
    pub(crate) current_frame: usize,
    pub(crate) base_frame: Option<usize>,
    pub(crate) thread_id: usize,
    pub(crate) native_thread_id: usize,
    pub(crate) datastack_chunk: usize,
    /// `holds_gil` and `gil_requested`
    pub(crate) gil: Option<(usize, usize)>,
    /// Not reported: how far `exc_state` is from `datastack_chunk`.
    pub(crate) exc_state: usize,
    /// `interpreter_frame.`
    pub(crate) frame_size: usize,
    pub(crate) previous: usize,
    pub(crate) executable: usize,
    pub(crate) instr_ptr: usize,
    pub(crate) localsplus: usize,
    pub(crate) owner: usize,
    /// Not reported: how to tell that a frame runs.
    pub(crate) running: Running,
    /// `code_object.`
    pub(crate) code_size: usize,
    pub(crate) filename: usize,
    pub(crate) qualname: usize,
    pub(crate) linetable: usize,
    pub(crate) firstlineno: usize,
    pub(crate) co_code_adaptive: usize,
    /// `pyobject.`, `type_object.`, `dict_object.`, `bytes_object.`, `unicode_object.`
    pub(crate) ob_type: usize,
    pub(crate) tp_name: usize,
    pub(crate) tp_flags: usize,
    pub(crate) ma_keys: usize,
    pub(crate) ma_values: usize,
    pub(crate) bytes_ob_size: usize,
    pub(crate) bytes_ob_sval: usize,
    pub(crate) unicode_state: usize,
    pub(crate) unicode_length: usize,
    pub(crate) asciiobject_size: usize,
    pub(crate) waiting: Option<ReportWaiting>,
    /// Not reported by this version, so as the header files have it: `PyHeapTypeObject.ht_cached_keys`.
    pub(crate) cached_keys: usize,
}

/// `gen_object.`, `interpreter_frame.`, `set_object.`, `long_object.`
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReportWaiting {
    pub(crate) iframe: usize,
    pub(crate) frame_state: usize,
    /// Not reported.
    pub(crate) states: FrameStates,
    pub(crate) stackpointer: usize,
    pub(crate) set_table: usize,
    pub(crate) set_mask: usize,
    pub(crate) long_tag: usize,
    pub(crate) long_digits: usize,
}

/// Where `threads.main` is found.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ThreadsMain {
    /// It is reported.
    Field(usize),
    /// It comes right after `threads.head`.
    AfterHead,
}

/// `current_exception` and `exc_info` come this much before `thread_id`.
const CURRENT_EXCEPTION: usize = 40;
const EXC_INFO: usize = 32;

/// `datastack_limit` comes two pointers after `datastack_chunk`.
const DATASTACK_LIMIT: usize = 16;

/// `_co_firsttraceable` and `co_extra` come right before the instructions.
const FIRSTTRACEABLE: usize = 16;

/// `sizeof(PyCompactUnicodeObject) - sizeof(PyASCIIObject)`
const COMPACT_MORE: usize = 16;

/// From this owner on (`FRAME_OWNED_BY_CSTACK`, later `FRAME_OWNED_BY_INTERPRETER`), frames are not Python's.
const FIRST_SHIM_OWNER: u8 = 3;

/// From 3.14 on, when both of them exist; 3.13 has no 4.
const LAST_OWNER: u8 = 4;

impl Report {
    /// Reads the report at `runtime`.
    ///
    /// The target may say anything: sizes are compared with ours, and the caller checks the rest.
    pub(crate) fn read<M: Memory + ?Sized>(
        &self,
        memory: &M,
        version: Version,
        runtime: RemoteAddr,
    ) -> Result<Offsets, AttachError> {
        let mut bytes = vec![0; self.len * 8];
        memory.read(runtime, &mut bytes)?;
        // What does not fit into a number of ours is out of every bound that is checked later.
        let field =
            |number: usize| usize::try_from(u64_at(&bytes, number * 8)).unwrap_or(usize::MAX).min(1 << 40);

        let within = [
            ("runtime state", self.runtime_size, &[self.interpreters_head][..]),
            (
                "interpreter state",
                self.interpreter_size,
                &[
                    self.id,
                    self.next,
                    self.threads_head,
                    self.imports_modules,
                    self.ceval_gil,
                    self.gil_runtime_state,
                ],
            ),
            (
                "interpreter lock",
                self.interpreter_size,
                &[self.gil_runtime_state_locked, self.gil_runtime_state_holder],
            ),
            (
                "thread state",
                self.thread_size,
                &[
                    self.thread_next,
                    self.interp,
                    self.current_frame,
                    self.base_frame.unwrap_or(self.current_frame),
                    self.thread_id,
                    self.native_thread_id,
                ],
            ),
            ("frame", self.frame_size, &[self.previous, self.executable, self.instr_ptr, self.localsplus]),
            (
                "code object",
                self.code_size,
                &[self.filename, self.qualname, self.linetable, self.firstlineno, self.co_code_adaptive],
            ),
        ];
        for (what, size, fields) in within {
            if fields.iter().any(|number| field(*number) >= field(size)) {
                return Err(AttachError::Layout { version, what });
            }
        }
        let distance =
            |to: usize, from: usize, what| to.checked_sub(from).ok_or(AttachError::Layout { version, what });
        let in_gil = |number| distance(field(number), field(self.gil_runtime_state), "interpreter lock");
        let last_holder = in_gil(self.gil_runtime_state_holder)?;
        let locked = in_gil(self.gil_runtime_state_locked)?;
        let before_id = |bytes| distance(field(self.thread_id), bytes, "thread state");
        let (current_exception, exc_info) = (before_id(CURRENT_EXCEPTION)?, before_id(EXC_INFO)?);
        let firsttraceable = distance(field(self.co_code_adaptive), FIRSTTRACEABLE, "code object")?;
        Ok(Offsets {
            interpreters_head: field(self.interpreters_head),
            interpreter: InterpreterOffsets {
                id: field(self.id),
                next: field(self.next),
                threads_head: field(self.threads_head),
                threads_main: Some(match self.threads_main {
                    ThreadsMain::Field(number) => field(number),
                    ThreadsMain::AfterHead => field(self.threads_head) + 8,
                }),
                gc_frame: self.gc_frame.map(|number| field(self.gc) + field(number)),
                gc_stats: self.gc_stats.map(|(len, pointer)| GcStatsOffsets {
                    pointer: field(self.gc) + field(pointer),
                    len: field(len),
                }),
                modules: field(self.imports_modules),
                code_object_generation: self.code_object_generation.map(field),
            },
            gil: GilOffsets {
                place: GilPlace::InterpreterPointer(field(self.ceval_gil)),
                last_holder,
                locked,
            },
            thread: ThreadOffsets {
                next: field(self.thread_next),
                interp: field(self.interp),
                current: CurrentFrame::Direct(field(self.current_frame)),
                base_frame: self.base_frame.map(field),
                thread_id: field(self.thread_id),
                native_thread_id: NativeId::Field(field(self.native_thread_id)),
                datastack: Some((field(self.datastack_chunk), field(self.datastack_chunk) + DATASTACK_LIMIT)),
                status: StatusOffsets {
                    is_read: false,
                    gil: self.gil.map(|(holds, requested)| (field(holds), field(requested))),
                    current_exception,
                    exc_info,
                    exc_state: field(self.datastack_chunk) + self.exc_state,
                    exc_previous: 8,
                },
            },
            frame: FrameOffsets {
                executable: field(self.executable),
                previous: field(self.previous),
                instr_ptr: field(self.instr_ptr),
                index_bytes: None,
                owner: field(self.owner),
                first_shim_owner: FIRST_SHIM_OWNER,
                last_owner: LAST_OWNER,
                running: self.running,
                len: field(self.localsplus),
            },
            code: CodeOffsets {
                filename: field(self.filename),
                qualname: field(self.qualname),
                linetable: field(self.linetable),
                line_format: LineFormat::Locations,
                firstlineno: field(self.firstlineno),
                instructions: InstructionsAt::End { firsttraceable },
                code_adaptive: field(self.co_code_adaptive),
                has_version: true,
            },
            object: ObjectOffsets {
                ob_type: field(self.ob_type),
                ob_size: field(self.bytes_ob_size),
                bytes_data: field(self.bytes_ob_sval),
                str_length: field(self.unicode_length),
                str_state: field(self.unicode_state),
                str_ascii: field(self.asciiobject_size),
                str_compact: field(self.asciiobject_size) + COMPACT_MORE,
                tp_name: field(self.tp_name),
                tp_basicsize: 32,
                tp_flags: field(self.tp_flags),
                cached_keys: self.cached_keys,
                dict_keys: field(self.ma_keys),
                dict_values: field(self.ma_values),
                values_first: 8,
                managed_dict: ManagedDict::Inline { dict: 24 },
            },
            waiting: self.waiting.map(|waiting| WaitingOffsets {
                iframe: field(waiting.iframe),
                frame_state: field(waiting.frame_state),
                states: waiting.states,
                stackpointer: field(waiting.stackpointer),
                set_table: field(waiting.set_table),
                set_mask: field(waiting.set_mask),
                long_tag: field(waiting.long_tag),
                long_digits: field(waiting.long_digits),
            }),
        })
    }
}
