//! Where the structures of each version keep the fields that we read.
//!
//! Up to 3.12 there are fixed tables. From 3.13 on the target reports most offsets itself in `_Py_DebugOffsets`; the tables
//! of these versions say where in that report each field stands. How to make a table: `fixtures/images/README.md`.

mod report;
mod v3_10;
mod v3_11;
mod v3_12;
mod v3_13;
mod v3_14;
mod v3_15;
mod v3_8;
mod v3_9;

use slip_remote::{Calling, Head, Memory, RemoteAddr};

use crate::bytes::{addr_at, u32_at, u64_at};
use crate::lines::LineFormat;
use crate::{AttachError, Version};

/// Largest distance between the fields of an interpreter state that we read together.
const MAX_INTERPRETER_WINDOW: usize = 4 * 1_024;

/// Largest offset of any field of an interpreter or of the runtime: they have some 400 KiB at most so far.
const MAX_STATE_BYTES: usize = 16 * 1_024 * 1_024;

/// Largest part of a thread state that we read.
const MAX_THREAD_BYTES: usize = 2 * 1_024;

/// Largest part of a frame that we read; 88 bytes at most so far.
const MAX_FRAME_BYTES: usize = 256;

/// Largest code object, without its instructions.
const MAX_CODE_BYTES: usize = 1_024;

/// Largest offset within a string, dictionary or type.
const MAX_OBJECT_BYTES: usize = 4 * 1_024;

/// So far from the begin of its code object an instruction is looked for.
const MAX_INSTRUCTION_BYTES: u64 = 1_024 * 1_024;

/// The offsets of one build of CPython. All have been checked: within what is read of a structure, and small.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Offsets {
    /// `_PyRuntime.interpreters.head`
    pub(crate) interpreters_head: usize,
    pub(crate) interpreter: InterpreterOffsets,
    pub(crate) gil: GilOffsets,
    pub(crate) thread: ThreadOffsets,
    pub(crate) frame: FrameOffsets,
    pub(crate) code: CodeOffsets,
    pub(crate) object: ObjectOffsets,
    /// What stacks of asyncio's tasks need; from 3.14 on, where asyncio says where its tasks are.
    pub(crate) waiting: Option<WaitingOffsets>,
}

/// `PyGenObject`, which coroutines and asynchronous generators share, and what is found through it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WaitingOffsets {
    /// `gi_iframe`: the frame within the object.
    pub(crate) iframe: usize,
    /// `gi_frame_state`, one byte.
    pub(crate) frame_state: usize,
    pub(crate) states: FrameStates,
    /// `_PyInterpreterFrame.stackpointer`
    pub(crate) stackpointer: usize,
    /// `PySetObject`
    pub(crate) set_table: usize,
    pub(crate) set_mask: usize,
    /// `PyLongObject`
    pub(crate) long_tag: usize,
    pub(crate) long_digits: usize,
}

/// Values of `PyFrameState`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FrameStates {
    /// `FRAME_SUSPENDED_YIELD_FROM`: it waits for another object.
    pub(crate) waits: &'static [i8],
    /// `FRAME_EXECUTING`
    pub(crate) runs: &'static [i8],
    /// `FRAME_COMPLETED`, `FRAME_CLEARED`: it has no frame any more.
    pub(crate) over: &'static [i8],
    /// How far below the top of the stack the object is that it waits for.
    pub(crate) awaited: u64,
}

/// `PyInterpreterState`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct InterpreterOffsets {
    pub(crate) id: usize,
    pub(crate) next: usize,
    /// `threads.head`
    pub(crate) threads_head: usize,
    /// `threads.main`: the main thread, from 3.13 on. Before, it is the last one of the list.
    pub(crate) threads_main: Option<usize>,
    /// `gc.frame`: the frame whose code collects garbage right now, from 3.15 on.
    pub(crate) gc_frame: Option<usize>,
    /// Statistics of garbage collections, from 3.15 on.
    pub(crate) gc_stats: Option<GcStatsOffsets>,
    /// `imports.modules`; 3.11: `modules`
    pub(crate) modules: usize,
    /// `_code_object_generation`: counts the code objects that have died.
    pub(crate) code_object_generation: Option<usize>,
}

/// `struct gc_stats`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct GcStatsOffsets {
    /// `gc.generation_stats`: where an interpreter says where they are.
    pub(crate) pointer: usize,
    /// How many bytes the target says that they have.
    pub(crate) len: usize,
}

impl InterpreterOffsets {
    /// First and last plus one of the bytes that hold all fields.
    pub(crate) fn window(&self) -> (usize, usize) {
        let fields = [self.id, self.next, self.threads_head, self.modules];
        let more = [self.threads_main, self.gc_frame, self.code_object_generation];
        let fields = || fields.into_iter().chain(more.into_iter().flatten());
        (fields().min().unwrap_or(0), fields().max().unwrap_or(0) + 8)
    }
}

/// Where the state of the global interpreter lock lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GilPlace {
    /// In `_PyRuntime`, for all interpreters.
    Runtime(usize),
    /// Where this pointer of `PyInterpreterState` says: interpreters may share one.
    InterpreterPointer(usize),
}

/// `struct _gil_runtime_state`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct GilOffsets {
    pub(crate) place: GilPlace,
    pub(crate) last_holder: usize,
    pub(crate) locked: usize,
}

impl GilOffsets {
    /// Where the bytes that hold both fields begin, and how many they are.
    pub(crate) fn window(&self) -> (usize, usize) {
        let from = self.last_holder.min(self.locked);
        (from, self.last_holder.max(self.locked) + 8 - from)
    }

    /// The thread that holds the lock, by these bytes; null if none does.
    pub(crate) fn holder(&self, window: &[u8]) -> RemoteAddr {
        let (from, _) = self.window();
        let is_locked = u32_at(window, self.locked - from) == 1;
        if is_locked { addr_at(window, self.last_holder - from) } else { RemoteAddr::NULL }
    }
}

/// Where a thread state says which frame is innermost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CurrentFrame {
    /// `PyThreadState.current_frame`
    Direct(usize),
    /// `PyThreadState.cframe` points to a `_PyCFrame` on the C stack, which has `current_frame` and after it `previous`. The outermost
    /// is `PyThreadState.root_cframe`.
    CFrame { cframe: usize, current_frame: usize, root_cframe: usize },
}

/// `PyThreadState`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ThreadOffsets {
    pub(crate) next: usize,
    pub(crate) interp: usize,
    pub(crate) current: CurrentFrame,
    /// `base_frame`: the address of the outermost frame, which every thread has from 3.15 on. It stands for the interpreter, lies
    /// with the thread state and is written once, before the thread can be found.
    pub(crate) base_frame: Option<usize>,
    pub(crate) thread_id: usize,
    pub(crate) native_thread_id: NativeId,
    /// The chunk of the data stack in use, where frames of functions lie, and the first address after it. Up to 3.10 each frame
    /// is an object by itself.
    pub(crate) datastack: Option<(usize, usize)>,
    pub(crate) status: StatusOffsets,
}

/// Where the kernel's number of a thread is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NativeId {
    /// `PyThreadState.native_thread_id`
    Field(usize),
    /// The interpreter does not know it, up to 3.10. The C library does, see `native.rs`.
    Library {
        /// `PyThreadState.id`: no two thread states of an interpreter have the same.
        serial: usize,
        /// `gilstate_counter`, 4 bytes: 0 until the state belongs to its thread. Its `thread_id` is that of the thread which made it
        /// until then.
        counter: usize,
        /// How far from `pthread_self()` the library keeps it; `None` if that is not known of this library.
        tid: Option<u64>,
    },
}

impl NativeId {
    /// Where the last word of it lies in the thread state.
    fn last(&self) -> usize {
        match *self {
            NativeId::Field(at) => at,
            NativeId::Library { serial, counter, .. } => serial.max(counter),
        }
    }
}

/// What `PyThreadState` says about the interpreter's lock and about exceptions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StatusOffsets {
    /// Somebody asks for it.
    pub(crate) is_read: bool,
    /// `holds_gil` and `gil_requested`, 4 bytes each, from 3.15 on.
    pub(crate) gil: Option<(usize, usize)>,
    /// `current_exception`, which is being raised. 3.11: `curexc_type`
    pub(crate) current_exception: usize,
    /// `exc_info`: the innermost `_PyErr_StackItem`, whose exception is being handled; most often `exc_state`.
    pub(crate) exc_info: usize,
    /// `exc_state`
    pub(crate) exc_state: usize,
    /// `_PyErr_StackItem.previous_item`, the last field. `exc_value` is the first one; up to 3.10 `exc_type` is.
    pub(crate) exc_previous: usize,
}

impl StatusOffsets {
    /// Where the last word of it lies.
    fn last(&self) -> usize {
        let gil = self.gil.map_or(0, |(holds, requested)| holds.max(requested));
        let exceptions = self.current_exception.max(self.exc_info);
        gil.max(exceptions).max(self.exc_state.saturating_add(self.exc_previous))
    }
}

impl ThreadOffsets {
    /// How many bytes from the begin of the structure hold all fields.
    pub(crate) fn len(&self) -> usize {
        let current = match self.current {
            CurrentFrame::Direct(at) => at,
            CurrentFrame::CFrame { cframe, .. } => cframe,
        };
        let fields = [
            self.next,
            self.interp,
            current,
            self.base_frame.unwrap_or(0),
            self.thread_id,
            self.native_thread_id.last(),
            self.datastack.map_or(0, |(chunk, limit)| chunk.max(limit)),
            if self.status.is_read { self.status.last() } else { 0 },
        ];
        fields.into_iter().max().unwrap_or(0) + 8
    }

    /// How many bytes from the begin hold all that leads to the frames.
    pub(crate) fn way_len(&self) -> usize {
        let current = match self.current {
            CurrentFrame::Direct(at) => at,
            CurrentFrame::CFrame { cframe, current_frame, root_cframe } => {
                cframe.max(root_cframe + current_frame + 8)
            }
        };
        current.max(self.thread_id) + 8
    }

    /// How many bytes from the begin hold the links and the ids.
    pub(crate) fn links_len(&self) -> usize {
        let current = match (self.native_thread_id, self.current) {
            (NativeId::Library { .. }, CurrentFrame::Direct(at)) => at,
            _ => 0,
        };
        let fields = [self.next, self.interp, self.thread_id, self.native_thread_id.last(), current];
        fields.into_iter().max().unwrap_or(0) + 8
    }
}

/// `_PyInterpreterFrame`; 3.10 and before: `PyFrameObject`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FrameOffsets {
    /// `f_executable`; 3.12 and before: `f_code`
    pub(crate) executable: usize,
    /// `previous`; 3.10 and before: `f_back`
    pub(crate) previous: usize,
    /// `instr_ptr`: the instruction being executed. 3.11 and 3.12: `prev_instr`, the code unit before the next one. 3.10 and before:
    /// `f_lasti`, 4 bytes.
    pub(crate) instr_ptr: usize,
    /// `f_lasti` counts so many bytes from the begin of the instructions; `None` if it is a pointer.
    pub(crate) index_bytes: Option<i64>,
    /// `owner`; 3.10: `f_state`, before: `f_executing`
    pub(crate) owner: usize,
    /// From this owner on, a frame stands for the interpreter itself.
    pub(crate) first_shim_owner: u8,
    /// Beyond this owner, what was copied is no frame.
    pub(crate) last_owner: u8,
    /// How to tell that the frame runs.
    pub(crate) running: Running,
    /// Bytes before the locals.
    pub(crate) len: usize,
}

/// How a frame says whether it runs or waits for another one.
///
/// Up to 3.13 the evaluation loop takes the top of the value stack out of the frame (`stacktop`, 4 bytes right after
/// `instr_ptr`, is -1) while it runs it. From 3.14 on it may leave it there, but `instr_ptr` stands at the instruction
/// itself, so it waits only if that is one that enters a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Running {
    /// By `stacktop`. Frames that were entered from C have `is_entry` set, one byte before the owner: their caller has
    /// not been left by the loop, and its `stacktop` says nothing.
    StacktopWithEntry,
    /// By `stacktop`. Frames entered from C have a frame of the interpreter below them.
    Stacktop,
    /// By the instruction: these opcodes enter frames (`_PyOpcode` numbers of this version, specialised and
    /// instrumented forms included).
    Instruction(&'static [u8]),
    /// By a byte of its own, which stands in the place of the owner, up to 3.10: it is one of these as long as the loop is in the frame,
    /// be it that it runs it or that the frame waits for a callee.
    State { executing: &'static [u8] },
}

impl FrameOffsets {
    /// Whether a frame stands for the interpreter itself.
    pub(crate) fn is_shim(&self, frame: &[u8]) -> bool {
        (self.first_shim_owner..=self.last_owner).contains(&self.owner_of(frame))
    }

    /// Whether the loop was called for it, or for what this stands for: it then runs the frames that are called from there on.
    pub(crate) fn is_entry(&self, frame: &[u8]) -> bool {
        match self.running {
            Running::State { .. } => true,
            Running::StacktopWithEntry => frame.get(self.owner - 1).is_some_and(|is_entry| *is_entry != 0),
            Running::Stacktop | Running::Instruction(_) => self.is_shim(frame),
        }
    }

    /// Whether what was copied may be a frame at all: the memory of a generator that has ended may be anything.
    pub(crate) fn may_be_frame(&self, frame: &[u8]) -> bool {
        matches!(self.running, Running::State { .. }) || self.owner_of(frame) <= self.last_owner
    }

    /// Whether it may be a frame that is not complete. Those of generators are from the begin.
    pub(crate) fn may_be_incomplete(&self, frame: &[u8]) -> bool {
        matches!(self.running, Running::State { .. }) || self.owner_of(frame) != FRAME_OWNED_BY_GENERATOR
    }

    /// Bytes that change as the function goes on, and stay while it waits for a callee.
    pub(crate) fn instruction(&self) -> std::ops::Range<usize> {
        self.instr_ptr..self.instr_ptr + if self.index_bytes.is_some() { 4 } else { 8 }
    }

    fn owner_of(&self, frame: &[u8]) -> u8 {
        frame.get(self.owner).copied().unwrap_or(u8::MAX)
    }

    /// Whether a frame without a caller, of which two copies are given, is the outermost one of its thread.
    ///
    /// A generator has no caller while it is suspended. While it runs it always has one from 3.12 on, if only a frame of
    /// the interpreter. On 3.11 it has none if C code resumes it where no Python code runs, as servers in C do: then its
    /// `gi_frame_state`, which stands before the frame, says that it runs. It says so for some 10 ns before the frame is
    /// linked as well, so what was copied has to look the same, too.
    pub(crate) fn is_outermost(
        &self,
        read: &dyn Fn(RemoteAddr, &mut [u8]) -> bool,
        head: Head,
        addr: RemoteAddr,
        frame: (&[u8], &[u8]),
    ) -> bool {
        /// `hooks_inited`, `closed`, `running_async`, `frame_state` and padding (`Include/cpython/genobject.h` of 3.11).
        const FLAGS_BYTES: usize = 8;
        const FRAME_STATE: usize = 3;
        const FRAME_EXECUTING: u8 = 0;
        let innermost = addr == head.current;
        if let Running::State { executing } = self.running {
            // A generator is linked before the loop enters its frame, and until it has left it. Other frames are linked before it enters
            // them, and lose their caller when they are freed.
            let is_whole = |frame: &[u8]| {
                let is_alive = u64_at(frame, 0) != 0 && addr_at(frame, self.previous).is_null();
                is_alive && executing.contains(&self.owner_of(frame))
            };
            return is_whole(frame.0) && is_whole(frame.1);
        }
        match self.owner_of(frame.1) {
            // The first frame of a thread lies in a chunk of its stack, and so does the second one then.
            FRAME_OWNED_BY_THREAD => return !innermost || !head.limit.is_null(),
            FRAME_OWNED_BY_GENERATOR => {}
            _ => return self.is_shim(frame.1),
        }
        if self.running != Running::StacktopWithEntry {
            return false;
        }
        let mut generator = vec![0; FLAGS_BYTES + self.len];
        if !read(RemoteAddr(addr.0.wrapping_sub(FLAGS_BYTES as u64)), &mut generator) {
            return false;
        }
        let (flags, now) = generator.split_at(FLAGS_BYTES);
        let is_as_before = |then: &[u8]| match innermost {
            true => {
                let pointer = |at: usize| addr_at(then, at) == addr_at(now, at);
                pointer(self.executable) && pointer(self.previous) && self.has_lent_stacktop(then)
            }
            false => then == now,
        };
        flags[FRAME_STATE] == FRAME_EXECUTING
            && addr_at(now, self.previous).is_null()
            && [frame.0, frame.1, now].into_iter().all(is_as_before)
    }

    /// Whether the function of a frame has returned, from 3.14 on: it takes its code out of the frame before its caller goes on.
    /// What stands for the interpreter does not say.
    pub(crate) fn is_over(&self, frame: &[u8]) -> Option<bool> {
        match self.running {
            Running::Instruction(_) if self.is_shim(frame) => Some(false),
            Running::Instruction(_) => Some(addr_at(frame, self.executable).0 & !TAG_BITS == 0),
            Running::State { .. } | Running::StacktopWithEntry | Running::Stacktop => None,
        }
    }

    /// Whether what was copied can hardly be anything but the frame of a function that has been called and has not returned, from 3.11 on:
    /// it stands at an instruction that lies in its code object.
    pub(crate) fn is_called(&self, frame: &[u8]) -> bool {
        let is_live = self.is_over(frame) == Some(false) || self.runs(frame) == Some(true);
        let is_of_function = matches!(self.owner_of(frame), FRAME_OWNED_BY_THREAD | FRAME_OWNED_BY_GENERATOR);
        let code = addr_at(frame, self.executable).0 & !TAG_BITS;
        let instruction = addr_at(frame, self.instr_ptr).0;
        is_live && is_of_function && (1..MAX_INSTRUCTION_BYTES).contains(&instruction.wrapping_sub(code))
    }

    /// Whether the evaluation loop runs a frame, from 3.11 to 3.13: it puts the top of the value stack back where it enters another
    /// frame, and where it returns. What stands for the interpreter does not say.
    pub(crate) fn runs(&self, frame: &[u8]) -> Option<bool> {
        match self.running {
            Running::StacktopWithEntry | Running::Stacktop if !self.is_shim(frame) => {
                Some(self.has_lent_stacktop(frame))
            }
            _ => None,
        }
    }

    /// Whether the evaluation loop keeps the top of the value stack, up to 3.13.
    fn has_lent_stacktop(&self, frame: &[u8]) -> bool {
        let at = self.instr_ptr + 8;
        frame.get(at..at + 4).is_some_and(|bytes| bytes == (-1_i32).to_le_bytes())
    }

    /// Whether `caller` waits for `callee`, by what stands in the frames. With an empty one: whether it waits for any.
    pub(crate) fn calling(
        &self,
        read: &dyn Fn(RemoteAddr, &mut [u8]) -> bool,
        caller: &[u8],
        callee: &[u8],
    ) -> Calling {
        let opcode = || {
            let mut opcode = [0];
            read(addr_at(caller, self.instr_ptr), &mut opcode).then_some(opcode[0])
        };
        let runs = match self.running {
            // A frame that is freed has no references until it is taken for another call.
            Running::State { .. } if u64_at(callee, 0) == 0 => true,
            // The functions that trace a program are called out of frames which the loop has not entered yet, or has left.
            Running::State { executing } => {
                let is_in_loop = |frame: &[u8]| executing.contains(&self.owner_of(frame));
                let both = is_in_loop(caller) && is_in_loop(callee);
                return if both { Calling::Apart } else { Calling::Unknown };
            }
            Running::StacktopWithEntry
                if callee.get(self.owner - 1).is_some_and(|is_entry| *is_entry != 0) =>
            {
                return Calling::Unknown;
            }
            _ if self.is_over(callee) == Some(true) => true,
            // An instruction that enters frames by itself goes through C only where it meets what it was not specialised for, and one
            // without an argument does hardly ever.
            Running::Instruction(enter) if self.is_shim(callee) && !self.is_shim(caller) => {
                let hardly = |opcode| {
                    opcode <= HAVE_ARGUMENT || SPECIALIZED.contains(&opcode) && enter.contains(&opcode)
                };
                return if opcode().is_none_or(hardly) { Calling::Unknown } else { Calling::Yes };
            }
            _ if self.is_shim(caller) || !callee.is_empty() && self.is_shim(callee) => return Calling::Yes,
            Running::StacktopWithEntry | Running::Stacktop => self.has_lent_stacktop(caller),
            Running::Instruction(enter) => match opcode() {
                Some(opcode) => !enter.contains(&opcode),
                None => return Calling::Unknown,
            },
        };
        if runs { Calling::No } else { Calling::Yes }
    }
}

/// Owner of a frame that lies in a chunk of the thread's stack, in every version.
pub(crate) const FRAME_OWNED_BY_THREAD: u8 = 0;

/// Owner of a frame that lives in a generator, a coroutine or an asynchronous generator, in every version.
pub(crate) const FRAME_OWNED_BY_GENERATOR: u8 = 1;

/// `HAVE_ARGUMENT` of 3.14 and 3.15: instructions up to this one have none.
const HAVE_ARGUMENT: u8 = 43;

/// The specialised forms of instructions, from 3.14 on: `MIN_SPECIALIZED_OPCODE` to before `MIN_INSTRUMENTED_OPCODE`.
const SPECIALIZED: std::ops::Range<u8> = 129..233;

/// What to take off `f_executable`: references are tagged from 3.14 on, and objects are aligned everywhere.
pub(crate) const TAG_BITS: u64 = 3;

/// `PyCodeObject`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CodeOffsets {
    pub(crate) filename: usize,
    /// `co_qualname`; 3.10 and before have only `co_name`
    pub(crate) qualname: usize,
    /// `co_linetable`; 3.9 and before: `co_lnotab`
    pub(crate) linetable: usize,
    pub(crate) line_format: LineFormat,
    pub(crate) firstlineno: usize,
    pub(crate) instructions: InstructionsAt,
    /// The end of what we read: from 3.11 on the instructions, `co_code_adaptive`.
    pub(crate) code_adaptive: usize,
    /// Whether `co_version` lies between the first line and the line table: no two code objects have the same.
    pub(crate) has_version: bool,
}

/// Where the instructions of a code object are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum InstructionsAt {
    /// In it, at its end. `_co_firsttraceable`, in code units: frames that are not there yet are not complete.
    End { firsttraceable: usize },
    /// In the `bytes` object `co_code`, up to 3.10.
    Object { co_code: usize },
}

/// How an object with a `__dict__` that the interpreter manages keeps its attributes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ManagedDict {
    /// A dictionary pointer before the object, and a values pointer before that (3.11).
    Pair { dict: u64, values: u64 },
    /// One pointer before the object; the lowest bit is set if it is to values (3.12).
    Tagged { either: u64 },
    /// A dictionary pointer before the object; values behind the fields of the object (3.13 on).
    Inline { dict: u64 },
    /// A dictionary pointer in the object, where this field of its type says (up to 3.10).
    Plain { tp_dictoffset: u64 },
}

/// Strings, bytes, dictionaries, types.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ObjectOffsets {
    pub(crate) ob_type: usize,
    /// `PyVarObject.ob_size`
    pub(crate) ob_size: usize,
    /// `PyBytesObject.ob_sval`
    pub(crate) bytes_data: usize,
    pub(crate) str_length: usize,
    pub(crate) str_state: usize,
    /// `sizeof(PyASCIIObject)`
    pub(crate) str_ascii: usize,
    /// `sizeof(PyCompactUnicodeObject)`, also where the pointer of other strings stands.
    pub(crate) str_compact: usize,
    pub(crate) tp_name: usize,
    pub(crate) tp_basicsize: usize,
    pub(crate) tp_flags: usize,
    /// `PyHeapTypeObject.ht_cached_keys`
    pub(crate) cached_keys: usize,
    pub(crate) dict_keys: usize,
    pub(crate) dict_values: usize,
    /// `PyDictValues.values`
    pub(crate) values_first: usize,
    pub(crate) managed_dict: ManagedDict,
}

/// `PyDictKeysObject`, the same from 3.11 on.
pub(crate) mod dict_keys {
    pub(crate) const LOG2_INDEX_BYTES: usize = 9;
    pub(crate) const KIND: usize = 10;
    pub(crate) const NENTRIES: usize = 24;
    /// `dk_indices`; the entries follow it.
    pub(crate) const INDICES: usize = 32;
    /// `DICT_KEYS_GENERAL`: entries have a hash, a key and a value. Otherwise they have a key and a value.
    pub(crate) const GENERAL: u8 = 0;

    /// The same up to 3.10, where all are general (`Objects/dict-common.h`).
    pub(crate) mod old {
        /// How many indices there are.
        pub(crate) const SIZE: usize = 8;
        pub(crate) const NENTRIES: usize = 32;
        pub(crate) const INDICES: usize = 40;
    }
}

/// `PyModuleObject.md_dict`, the same in all versions.
pub(crate) const MODULE_DICT: u64 = 16;

impl Offsets {
    /// The fixed tables of versions whose structures do not say which version it is, and where each has `sys.__dict__`
    /// (`PyInterpreterState.sysdict`).
    pub(crate) fn unnamed() -> [(u8, &'static Self, usize); 3] {
        [
            (10, &v3_10::OFFSETS, v3_10::SYSDICT),
            (9, &v3_9::OFFSETS, v3_9::SYSDICT),
            (8, &v3_8::OFFSETS, v3_8::SYSDICT),
        ]
    }

    /// The instruction that a frame stands at, which runs this code object: up to 3.10 as if the instructions came right after what is
    /// read of the code object, as they do from then on.
    pub(crate) fn instruction_of(&self, code: RemoteAddr, frame: &[u8]) -> RemoteAddr {
        let Some(bytes) = self.frame.index_bytes else { return addr_at(frame, self.frame.instr_ptr) };
        let start = code.offset(self.code.code_adaptive as u64);
        let index = i64::from(u32_at(frame, self.frame.instr_ptr).cast_signed());
        // -1 before the first one, whatever it counts.
        let offset = if index < 0 { -2 } else { index * bytes };
        start.offset(offset.cast_unsigned())
    }

    /// The offsets of the interpreter of this version whose runtime is at `runtime`.
    pub(crate) fn of<M: Memory + ?Sized>(
        memory: &M,
        version: Version,
        runtime: RemoteAddr,
    ) -> Result<Self, AttachError> {
        let offsets = match version.minor() {
            8 => v3_8::OFFSETS,
            9 => v3_9::OFFSETS,
            10 => v3_10::OFFSETS,
            11 => v3_11::OFFSETS,
            12 => v3_12::OFFSETS,
            13 => v3_13::REPORT.read(memory, version, runtime)?,
            14 => v3_14::REPORT.read(memory, version, runtime)?,
            15 => v3_15::REPORT.read(memory, version, runtime)?,
            _ => return Err(AttachError::unsupported(version)),
        };
        offsets.check(version)?;
        Ok(offsets)
    }

    /// Holds the offsets against our bounds, so that nothing that uses them needs to.
    fn check(&self, version: Version) -> Result<(), AttachError> {
        let ensure = |holds: bool, what: &'static str| {
            if holds { Ok(()) } else { Err(AttachError::Layout { version, what }) }
        };
        let below = |limit: usize, fields: &[usize]| fields.iter().all(|field| *field < limit);

        ensure(below(MAX_STATE_BYTES, &[self.interpreters_head]), "runtime state")?;
        let (from, to) = self.interpreter.window();
        ensure(to < MAX_STATE_BYTES && to - from <= MAX_INTERPRETER_WINDOW, "interpreter state")?;

        let gc_stats = self.interpreter.gc_stats.map_or(0, |place| place.pointer);
        ensure(below(MAX_STATE_BYTES, &[gc_stats]), "interpreter state")?;

        let place = match self.gil.place {
            GilPlace::Runtime(at) | GilPlace::InterpreterPointer(at) => at,
        };
        let gil = &self.gil;
        ensure(below(MAX_STATE_BYTES, &[place]), "interpreter lock")?;
        ensure(below(MAX_OBJECT_BYTES, &[gil.last_holder, gil.locked]), "interpreter lock")?;

        let thread = &self.thread;
        ensure(thread.len() <= MAX_THREAD_BYTES && thread.status.last() < MAX_THREAD_BYTES, "thread state")?;
        if let CurrentFrame::CFrame { current_frame, .. } = self.thread.current {
            ensure(below(MAX_OBJECT_BYTES, &[current_frame]), "C frame")?;
        }

        let frame = &self.frame;
        ensure(frame.len <= MAX_FRAME_BYTES && (1..frame.len).contains(&frame.owner), "frame")?;
        let pointers = [frame.executable, frame.previous, frame.instr_ptr];
        ensure(pointers.iter().all(|field| field + 8 <= frame.len), "frame")?;
        ensure(frame.instr_ptr + 16 <= frame.len, "frame")?;

        let code = &self.code;
        ensure(code.code_adaptive <= MAX_CODE_BYTES, "code object")?;
        let pointers = [code.filename, code.qualname, code.linetable];
        ensure(pointers.iter().all(|field| field + 8 <= code.code_adaptive), "code object")?;
        let first = match code.instructions {
            InstructionsAt::End { firsttraceable } => firsttraceable,
            InstructionsAt::Object { co_code } => co_code,
        };
        ensure(first + 8 <= code.code_adaptive, "code object")?;
        let numbers = [code.firstlineno, first];
        ensure(numbers.iter().all(|field| field + 4 <= code.code_adaptive), "code object")?;
        ensure(pointers.iter().all(|field| *field > code.firstlineno), "code object")?;

        if let Some(waiting) = &self.waiting {
            let fields = [
                waiting.iframe,
                waiting.frame_state,
                waiting.set_table,
                waiting.set_mask,
                waiting.long_tag,
                waiting.long_digits,
            ];
            ensure(below(MAX_OBJECT_BYTES, &fields), "object")?;
            ensure(waiting.frame_state < waiting.iframe, "generator")?;
            ensure(waiting.stackpointer + 8 <= frame.len, "frame")?;
        }

        let object = &self.object;
        let fields = [
            object.ob_type,
            object.ob_size,
            object.bytes_data,
            object.str_ascii,
            object.str_compact,
            object.tp_name,
            object.tp_basicsize,
            object.tp_flags,
            object.cached_keys,
            object.dict_keys,
            object.dict_values,
            object.values_first,
        ];
        ensure(below(MAX_OBJECT_BYTES, &fields), "object")?;
        ensure(object.ob_size + 8 <= object.bytes_data, "bytes object")?;
        ensure(object.str_length + 8 <= object.str_ascii, "string object")?;
        ensure(object.str_state + 4 <= object.str_ascii, "string object")?;
        ensure(object.ob_type + 8 <= code.code_adaptive, "object")
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Offsets for tests of the readers of single objects.
    pub(crate) const OFFSETS: Offsets = v3_12::OFFSETS;

    #[test]
    fn the_fixed_tables_are_within_the_bounds() {
        v3_8::OFFSETS.check(Version::from_hex(0x0308_00f0)).unwrap();
        v3_9::OFFSETS.check(Version::from_hex(0x0309_00f0)).unwrap();
        v3_10::OFFSETS.check(Version::from_hex(0x030a_00f0)).unwrap();
        v3_11::OFFSETS.check(Version::from_hex(0x030b_00f0)).unwrap();
        v3_12::OFFSETS.check(Version::from_hex(0x030c_00f0)).unwrap();
    }

    #[test]
    fn caller_of_a_function_that_has_returned_runs() {
        const CALL: u8 = 53;
        let frame = FrameOffsets { running: Running::Instruction(&[CALL]), ..OFFSETS.frame };
        let bytes = |executable: u64| {
            let mut bytes = vec![0; frame.len];
            bytes[frame.executable..frame.executable + 8].copy_from_slice(&executable.to_le_bytes());
            bytes
        };
        let calling = |opcode: u8, executable| {
            let read = |_: RemoteAddr, buf: &mut [u8]| {
                buf[0] = opcode;
                true
            };
            frame.calling(&read, &bytes(0x1001), &bytes(executable))
        };
        assert_eq!(calling(CALL, 0x2001), Calling::Yes);
        assert_eq!(calling(CALL + 1, 0x2001), Calling::No);
        // No reference is tagged.
        assert_eq!([calling(CALL, 0), calling(CALL, 1)], [Calling::No; 2]);
    }

    #[test]
    fn a_function_that_is_called_stands_at_an_instruction_of_its_own() {
        let frame = FrameOffsets { running: Running::Instruction(&[]), ..OFFSETS.frame };
        let is_called = |executable: u64, instruction: u64, owner: u8| {
            let mut bytes = vec![0; frame.len];
            bytes[frame.executable..frame.executable + 8].copy_from_slice(&executable.to_le_bytes());
            bytes[frame.instr_ptr..frame.instr_ptr + 8].copy_from_slice(&instruction.to_le_bytes());
            bytes[frame.owner] = owner;
            frame.is_called(&bytes)
        };
        assert!(is_called(0x2001, 0x20d0, FRAME_OWNED_BY_THREAD));
        assert!(!is_called(0x2001, 0x1ff0, FRAME_OWNED_BY_THREAD));
        assert!(!is_called(0x2001, 0x2000 + MAX_INSTRUCTION_BYTES, FRAME_OWNED_BY_THREAD));
        assert!(!is_called(1, 0xd0, FRAME_OWNED_BY_THREAD), "it has returned");
        assert!(is_called(0x2001, 0x20d0, FRAME_OWNED_BY_GENERATOR));
        assert!(!is_called(0x2001, 0x20d0, frame.first_shim_owner));
    }

    #[test]
    fn frames_that_are_objects_say_whether_the_loop_is_in_them() {
        for offsets in [v3_8::OFFSETS, v3_9::OFFSETS, v3_10::OFFSETS] {
            let frame = offsets.frame;
            let Running::State { executing } = frame.running else { panic!("{:?}", frame.running) };
            let bytes = |references: u64, state: u8, f_back: u64| {
                let mut bytes = vec![0; frame.len];
                bytes[..8].copy_from_slice(&references.to_le_bytes());
                bytes[frame.previous..frame.previous + 8].copy_from_slice(&f_back.to_le_bytes());
                bytes[frame.owner] = state;
                bytes
            };
            let (runs, left) = (executing[0], 1 - executing[0]);
            let calling = |caller: &[u8], callee: &[u8]| frame.calling(&|_, _| false, caller, callee);
            let caller = bytes(1, runs, 0);
            assert_eq!(calling(&caller, &bytes(1, runs, 8)), Calling::Apart);
            assert_eq!(calling(&caller, &bytes(0, left, 8)), Calling::No, "it has been freed");
            assert_eq!(calling(&caller, &bytes(1, left, 8)), Calling::Unknown, "it may be traced");
            assert_eq!(calling(&bytes(1, left, 0), &bytes(1, runs, 8)), Calling::Unknown);
            let is_outermost = |first: &[u8], second: &[u8]| {
                frame.is_outermost(&|_, _| false, Head::default(), RemoteAddr(8), (first, second))
            };
            assert!(is_outermost(&caller, &caller));
            assert!(!is_outermost(&caller, &bytes(1, left, 0)), "a generator that waits");
            assert!(!is_outermost(&bytes(0, runs, 0), &caller), "a frame that is freed has no caller");
            assert!(!frame.is_shim(&caller) && frame.may_be_incomplete(&caller));
        }
    }

    #[test]
    fn offsets_that_lead_out_of_a_structure_are_refused() {
        let version = Version::from_hex(0x030c_00f0);
        type Change = fn(&mut Offsets);
        let changes: [Change; 8] = [
            |offsets| offsets.interpreters_head = usize::MAX / 2,
            |offsets| offsets.interpreter.modules = 1 << 30,
            |offsets| offsets.gil.locked = 1 << 20,
            |offsets| offsets.thread.datastack = Some((0, 1 << 20)),
            |offsets| offsets.frame.owner = offsets.frame.len,
            |offsets| offsets.frame.previous = offsets.frame.len - 7,
            |offsets| offsets.code.linetable = offsets.code.code_adaptive,
            |offsets| offsets.object.str_state = offsets.object.str_ascii,
        ];
        for (number, change) in changes.into_iter().enumerate() {
            let mut offsets = OFFSETS;
            change(&mut offsets);
            assert!(matches!(offsets.check(version), Err(AttachError::Layout { .. })), "change {number}");
        }
    }
}
