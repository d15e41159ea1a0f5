//! The tasks of asyncio: what each waits for, and who waits for it.
//!
//! From CPython 3.14 on asyncio says in a section of its own (`.AsyncioDebug`) where a thread's running task, its list of tasks and
//! the fields of a task are. A task has a coroutine, which waits for another one and so on: that is its stack. Everything is read
//! one after the other, so it belongs together only if the target stands still or its tasks do not change meanwhile, as tasks that
//! wait do not.

use std::collections::{HashMap, HashSet};

use slip_model::Interner;
use slip_remote::{Memory, ReadError, Remembered, RemoteAddr, Symbols, read_c_string};
use thiserror::Error;

use crate::bytes::{addr_at, u32_at, u64_at};
use crate::code::{CodeText, Place};
use crate::dicts::{find_text, read_addr};
use crate::frames::code_of;
use crate::look::Point;
use crate::offsets::{TAG_BITS, WaitingOffsets};
use crate::process::{Interpreter, State};
use crate::strings::read_text;

/// Section with the offsets of asyncio.
const SECTION: &str = ".AsyncioDebug";

/// The module that has it.
const MODULE: &str = "_asyncio";

/// `struct _Py_AsyncioModuleDebugOffsets` of `Modules/_asynciomodule.c`: so many `uint64_t`.
const NUMBERS: usize = 13;

/// Largest task object, and how far into a thread's and an interpreter's state anything lies.
const MAX_TASK_BYTES: usize = 4 * 1_024;
const MAX_STATE_BYTES: u64 = 16 * 1_024 * 1_024;

/// Most tasks of a list, and most that wait for a running one, directly or through others.
const MAX_TASKS: usize = 1 << 16;
const MAX_WAITERS: usize = 1 << 14;

/// Deepest stack.
const MAX_FRAMES: usize = 1_024 + 512;

/// Most entries of a set.
const MAX_SET_ENTRIES: u64 = 1 << 16;

/// Longest name of a task, in characters.
const MAX_NAME_CHARS: usize = 255;

/// Most objects between a coroutine and the asynchronous generator that it waits for.
const MAX_WRAPPERS: usize = 16;

/// `Py_TPFLAGS_HEAPTYPE`, `Py_TPFLAGS_LONG_SUBCLASS`, `Py_TPFLAGS_UNICODE_SUBCLASS`
const HEAP_TYPE: u64 = 1 << 9;
const LONG_SUBCLASS: u64 = 1 << 24;
const UNICODE_SUBCLASS: u64 = 1 << 28;

/// Where the objects that wait on behalf of a generator have it: the first field of their structures, behind the head.
const WRAPPED: u64 = 16;

/// Hash of an entry of a set that was taken out.
const TOMBSTONE: u64 = u64::MAX;

/// Why tasks could not be read.
#[derive(Debug, Error)]
pub enum TaskError {
    /// Before 3.14 asyncio does not say where its tasks are.
    #[error("CPython before 3.14 does not say where asyncio's tasks are")]
    TooOld,
    /// It has not been imported.
    #[error("the process has not imported asyncio")]
    NoAsyncio,
    /// What asyncio says about its structures cannot be true.
    #[error("the structures of asyncio are not where they should be")]
    Layout,
    /// Something changed while it was read, or there is more of it than the limit allows.
    #[error("{0}")]
    Torn(&'static str),
    /// The memory could not be read.
    #[error(transparent)]
    Read(#[from] ReadError),
}

/// Where asyncio keeps its tasks in one process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AsyncioOffsets {
    task_size: usize,
    name: usize,
    awaited_by: usize,
    is_task: usize,
    awaited_by_is_set: usize,
    coro: usize,
    node: usize,
    interpreter_tasks: u64,
    running_loop: u64,
    running_task: u64,
    thread_tasks: u64,
}

/// The tasks of one thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskList {
    /// The kernel's number of the thread; 0 for tasks whose thread has ended.
    pub native_tid: u64,
    /// Its tasks.
    pub tasks: Vec<Task>,
}

/// All tasks, as [`Interpreter::all_tasks`] found them.
#[derive(Debug, Default)]
pub struct AllTasks {
    /// A list for each thread.
    pub lists: Vec<TaskList>,
    /// What was known of code objects and which lists of threads there were; `None` if the lists are not whole.
    key: Option<(u64, Vec<(RemoteAddr, RemoteAddr)>)>,
}

/// A task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Task {
    /// Address of the task.
    pub addr: RemoteAddr,
    /// `get_name()`
    pub name: String,
    /// It executes code, or so it was when its coroutine was read. Then all but [`Interpreter::running_tasks`] know only the
    /// outermost frame of its stack.
    pub runs: bool,
    /// What it executes or waits in, the innermost first.
    pub stack: Vec<Point>,
    /// Tasks and futures that wait for it, each with its own stack.
    pub awaited_by: Vec<(RemoteAddr, Vec<Point>)>,
}

/// What a type is to us.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// A coroutine or an asynchronous generator.
    Coroutine,
    /// A generator; it counts if it was reached from another one.
    Generator,
    /// What waits for something on behalf of another object.
    Wrapper,
    Other,
}

impl AsyncioOffsets {
    /// What asyncio says in this process.
    ///
    /// # Errors
    ///
    /// [`TaskError::NoAsyncio`] if it has not been imported; [`TaskError::Layout`] and [`TaskError::Read`].
    pub fn read<T: Memory + Symbols + ?Sized>(target: &T) -> Result<Self, TaskError> {
        let section = target.section(SECTION).ok_or(TaskError::NoAsyncio)?;
        let mut bytes = [0; NUMBERS * 8];
        target.read(section.addr, &mut bytes)?;
        let number = |at: usize| u64_at(&bytes, at * 8);
        let [task, interpreter, thread] = [0, 7, 9].map(number);
        let is_within = |fields: &[usize], size: u64| fields.iter().all(|field| number(*field) < size);
        let pointers = [1, 2, 5, 6].iter().all(|field| number(*field) + 8 <= task.min(1 << 32));
        if task > MAX_TASK_BYTES as u64
            || interpreter.max(thread) > MAX_STATE_BYTES
            || !pointers
            || !is_within(&[3, 4], task)
            || !is_within(&[8], interpreter)
            || !is_within(&[10, 11, 12], thread)
        {
            return Err(TaskError::Layout);
        }
        let small = |at: usize| usize::try_from(number(at)).unwrap_or(usize::MAX);
        Ok(Self {
            task_size: small(0),
            name: small(1),
            awaited_by: small(2),
            is_task: small(3),
            awaited_by_is_set: small(4),
            coro: small(5),
            node: small(6),
            interpreter_tasks: number(8),
            running_loop: number(10),
            running_task: number(11),
            thread_tasks: number(12),
        })
    }
}

/// Reads tasks; lives as long as one look.
struct Reader<'a, M: ?Sized> {
    python: &'a mut Interpreter,
    memory: &'a M,
    interner: &'a mut Interner,
    asyncio: &'a AsyncioOffsets,
    waiting: WaitingOffsets,
}

/// What is known of types. Those of the interpreter itself live as long as it, and what comes into the place of a class of the program is
/// another such class.
#[derive(Debug, Default)]
pub(crate) struct Types {
    kinds: HashMap<RemoteAddr, Kind>,
    /// `tp_flags` of those of the interpreter.
    flags: HashMap<RemoteAddr, u64>,
}

impl Interpreter {
    /// Finds where asyncio keeps its tasks.
    ///
    /// # Errors
    ///
    /// [`TaskError::TooOld`]; [`TaskError::NoAsyncio`] if no interpreter of the process has imported asyncio, which it may do yet;
    /// [`TaskError::Layout`] and [`TaskError::Read`].
    pub fn find_tasks<T: Memory + Symbols + ?Sized>(
        &mut self,
        target: &T,
    ) -> Result<AsyncioOffsets, TaskError> {
        self.offsets.waiting.ok_or(TaskError::TooOld)?;
        self.refresh(target)?;
        // Where the module is part of the program, what it says of itself is there before it is imported.
        for state in &self.states {
            let modules = read_addr(target, state.addr.offset(self.offsets.interpreter.modules as u64))?;
            if find_text(target, &self.offsets.object, modules, MODULE)?.is_some() {
                return AsyncioOffsets::read(target);
            }
        }
        Err(TaskError::NoAsyncio)
    }

    /// All tasks of all threads, and those whose thread has ended: a list for each of them.
    ///
    /// `texts` takes what is said of code objects that are met first, as [`Look::texts`](crate::Look::texts) does.
    ///
    /// # Errors
    ///
    /// See [`TaskError`].
    ///
    /// What is in `found` must be what the last call with the same pieces of memory gave; it is left alone if it still holds, and
    /// the result is false.
    pub fn all_tasks<M: Memory + ?Sized>(
        &mut self,
        memory: &Remembered<'_, M>,
        interner: &mut Interner,
        asyncio: &AsyncioOffsets,
        texts: &mut Vec<CodeText>,
        found: &mut AllTasks,
    ) -> Result<bool, TaskError> {
        self.begin(memory)?;
        let threads = self.states.iter().map(|state| (state.addr, state.fields.threads_head)).collect();
        let key = Some((self.epoch(self.now_ns), threads));
        if found.key == key && memory.is_unchanged()? {
            return Ok(false);
        }
        found.key = None;
        found.lists = self.read_tasks(memory, interner, asyncio, texts, None, |reader, state| {
            let mut lists = Vec::new();
            for thread in &state.threads {
                let tasks = reader.list(thread.addr.offset(asyncio.thread_tasks))?;
                lists.push(TaskList { native_tid: thread.links.native_thread_id, tasks });
            }
            let tasks = reader.list(state.addr.offset(asyncio.interpreter_tasks))?;
            lists.push(TaskList { native_tid: 0, tasks });
            Ok(lists)
        })?;
        found.key = key;
        Ok(true)
    }

    /// The running task of each thread that has one, and those that wait for it, directly or through others.
    ///
    /// # Errors
    ///
    /// See [`TaskError`].
    pub fn running_tasks<M: Memory + ?Sized>(
        &mut self,
        memory: &M,
        interner: &mut Interner,
        asyncio: &AsyncioOffsets,
        texts: &mut Vec<CodeText>,
    ) -> Result<Vec<TaskList>, TaskError> {
        // The thread that ran one last is copied with all else.
        self.count_sample();
        let ran = self.ran_task.take();
        let at = self
            .states
            .first()
            .and_then(|state| state.threads.iter().position(|thread| Some(thread.addr) == ran));
        let mut copied = match at.and_then(|at| self.read_with_thread(memory, at, true)) {
            Some(outcome) => ran.filter(|_| outcome.is_ok()),
            None => {
                self.refresh(memory)?;
                None
            }
        };
        self.begin_epoch();
        self.read_tasks(memory, interner, asyncio, texts, copied, |reader, state| {
            let mut lists = Vec::new();
            for at in 0..state.threads.len() {
                let is_copied = copied.take_if(|addr| *addr == state.threads[at].addr).is_some();
                let tasks = reader.running(state, at, is_copied)?;
                if !tasks.is_empty() {
                    reader.python.ran_task.get_or_insert(state.threads[at].addr);
                    lists.push(TaskList { native_tid: state.threads[at].links.native_thread_id, tasks });
                }
            }
            Ok(lists)
        })
    }

    fn read_tasks<M: Memory + ?Sized>(
        &mut self,
        memory: &M,
        interner: &mut Interner,
        asyncio: &AsyncioOffsets,
        texts: &mut Vec<CodeText>,
        copied: Option<RemoteAddr>,
        mut read: impl FnMut(&mut Reader<'_, M>, &mut State) -> Result<Vec<TaskList>, TaskError>,
    ) -> Result<Vec<TaskList>, TaskError> {
        let waiting = self.offsets.waiting.ok_or(TaskError::TooOld)?;
        texts.append(&mut self.codes.take_texts());
        let mut states = std::mem::take(&mut self.states);
        let mut reader = Reader { python: self, memory, interner, asyncio, waiting };
        let mut lists = Vec::new();
        let mut result = Ok(());
        for state in &mut states {
            let head = state.fields.threads_head;
            // The only thread, of which the state has just been copied.
            let is_known = matches!(&state.threads[..], [thread] if Some(thread.addr) == copied
                && thread.addr == head && thread.links.next.is_null());
            let walked = if is_known { Ok(()) } else { reader.python.walk_threads(memory, state, head) };
            result = walked
                .map_err(TaskError::from)
                .and_then(|()| read(&mut reader, state))
                .map(|mut found| lists.append(&mut found));
            if result.is_err() {
                break;
            }
        }
        self.states = states;
        texts.append(&mut self.codes.take_texts());
        result.map(|()| lists)
    }
}

impl<M: Memory + ?Sized> Reader<'_, M> {
    /// The tasks of a list: a ring of nodes, each within its task.
    fn list(&mut self, head: RemoteAddr) -> Result<Vec<Task>, TaskError> {
        let mut tasks = Vec::new();
        let mut seen = HashSet::new();
        let mut at = read_addr(self.memory, head)?;
        while at != head {
            // A list that has never been used is not even a ring.
            if at.is_null() && tasks.is_empty() {
                break;
            }
            if at.is_null() || tasks.len() >= MAX_TASKS || !seen.insert(at) {
                return Err(TaskError::Torn("The list of tasks changed while it was read"));
            }
            let addr = RemoteAddr(at.0.wrapping_sub(self.asyncio.node as u64));
            let bytes = self.task_bytes(addr)?;
            tasks.push(self.task(addr, &bytes)?);
            at = addr_at(&bytes, self.asyncio.node);
        }
        Ok(tasks)
    }

    /// The running task of thread number `at`, and those that wait for it. If the thread's chain is copied already, it is used where
    /// it is that of this task.
    fn running(&mut self, state: &mut State, at: usize, is_copied: bool) -> Result<Vec<Task>, TaskError> {
        let addr = state.threads[at].addr;
        let word = |offset: u64| read_addr(self.memory, addr.offset(offset));
        if word(self.asyncio.running_loop)?.is_null() {
            return Ok(Vec::new());
        }
        let running = word(self.asyncio.running_task)?;
        if running.is_null() {
            return Ok(Vec::new());
        }
        let bytes = self.task_bytes(running)?;
        let iframe = self.waiting.iframe as u64;
        let mut own_frame = untagged(&bytes, self.asyncio.coro).offset(iframe);
        // What is on the chain is a coroutine; anything else may stand for one.
        if !is_copied || !self.python.chain.addrs.contains(&own_frame) {
            let Some((coroutine, _)) = self.unwrap(untagged(&bytes, self.asyncio.coro))? else {
                return Err(TaskError::Torn("The running task has no coroutine"));
            };
            own_frame = coroutine.offset(iframe);
            let now_ns = self.python.now_ns;
            let thread = &mut state.threads[at];
            thread.expect(own_frame);
            thread.read(self.memory, &self.python.offsets, &mut self.python.chain, now_ns, false)?;
        }
        let chain = &self.python.chain;
        let Some(end) = chain.addrs.iter().position(|addr| *addr == own_frame) else {
            return Err(TaskError::Torn("The running task changed while it was read"));
        };
        if end >= MAX_FRAMES {
            return Err(TaskError::Torn("Too many async stack frames (possible infinite loop)"));
        }
        let len = self.python.offsets.frame.len;
        let frames = chain.bytes[..len * (end + 1)].to_vec();
        let mut stack = Vec::new();
        for frame in frames.chunks_exact(len) {
            stack.extend(self.point(frame)?);
        }
        let mut tasks = vec![Task { runs: true, ..self.task_with(running, &bytes, stack)? }];
        self.add_waiters(&bytes, &mut tasks)?;
        Ok(tasks)
    }

    /// Adds all that wait for the task of these bytes, each once.
    fn add_waiters(&mut self, bytes: &[u8], tasks: &mut Vec<Task>) -> Result<(), TaskError> {
        let mut seen: HashSet<RemoteAddr> = tasks.iter().map(|task| task.addr).collect();
        let mut todo = self.waiters(bytes)?;
        todo.reverse();
        while let Some(addr) = todo.pop() {
            if !seen.insert(addr) {
                continue;
            }
            if tasks.len() > MAX_WAITERS {
                return Err(TaskError::Torn("Too many task waiters (possible infinite loop)"));
            }
            let bytes = self.task_bytes(addr)?;
            tasks.push(self.task(addr, &bytes)?);
            let waiters = self.waiters(&bytes)?;
            todo.extend(waiters.into_iter().rev());
        }
        Ok(())
    }

    fn task_bytes(&self, addr: RemoteAddr) -> Result<Vec<u8>, ReadError> {
        let mut bytes = vec![0; self.asyncio.task_size];
        self.memory.read(addr, &mut bytes)?;
        Ok(bytes)
    }

    fn task(&mut self, addr: RemoteAddr, bytes: &[u8]) -> Result<Task, TaskError> {
        let (stack, runs) = self.stack(bytes)?;
        Ok(Task { runs, ..self.task_with(addr, bytes, stack)? })
    }

    fn task_with(&mut self, addr: RemoteAddr, bytes: &[u8], stack: Vec<Point>) -> Result<Task, TaskError> {
        let is_task = bytes.get(self.asyncio.is_task).is_some_and(|byte| *byte != 0);
        let name = if is_task { self.name(untagged(bytes, self.asyncio.name))? } else { String::new() };
        let mut awaited_by = Vec::new();
        for waiter in self.waiters(bytes)? {
            let bytes = self.task_bytes(waiter)?;
            awaited_by.push((waiter, self.stack(&bytes)?.0));
        }
        Ok(Task { addr, name, runs: false, stack, awaited_by })
    }

    /// The name of a task: a number until somebody asks for it.
    fn name(&mut self, addr: RemoteAddr) -> Result<String, TaskError> {
        let object = self.python.offsets.object;
        let of_type = read_addr(self.memory, addr.offset(object.ob_type as u64))?;
        let flags = self.type_flags(of_type)?;
        if flags & LONG_SUBCLASS != 0 {
            let mut head = vec![0; self.waiting.long_digits + 12];
            self.memory.read(addr, &mut head)?;
            // Digits of 30 bits; their count stands above three bits of flags.
            let count = (u64_at(&head, self.waiting.long_tag) >> 3).min(3) as usize;
            let digit = |at: usize| u128::from(u32_at(&head, self.waiting.long_digits + 4 * at));
            let number = (0..count).rev().fold(0, |number: u128, at| (number << 30) | digit(at));
            return Ok(format!("Task-{number}"));
        }
        if flags & UNICODE_SUBCLASS == 0 {
            return Err(TaskError::Torn("The name of a task is no text"));
        }
        let text =
            read_text(self.memory, &object, addr)?.ok_or(TaskError::Torn("The name of a task is no text"))?;
        Ok(text.chars().take(MAX_NAME_CHARS).collect())
    }

    /// The tasks and futures that wait for the one of these bytes.
    fn waiters(&self, bytes: &[u8]) -> Result<Vec<RemoteAddr>, TaskError> {
        let addr = untagged(bytes, self.asyncio.awaited_by);
        if addr.is_null() {
            return Ok(Vec::new());
        }
        if bytes.get(self.asyncio.awaited_by_is_set).is_none_or(|byte| *byte == 0) {
            return Ok(vec![addr]);
        }
        let mask = read_addr(self.memory, addr.offset(self.waiting.set_mask as u64))?.0;
        let table = read_addr(self.memory, addr.offset(self.waiting.set_table as u64))?;
        if mask >= MAX_SET_ENTRIES {
            return Err(TaskError::Torn("A set of waiters changed while it was read"));
        }
        // Entries are a key and its hash.
        let mut entries = vec![0; (mask as usize + 1) * 16];
        self.memory.read(table, &mut entries)?;
        let keys = entries.chunks_exact(16).map(|entry| (addr_at(entry, 0), u64_at(entry, 8)));
        Ok(keys.filter(|(key, hash)| !key.is_null() && *hash != TOMBSTONE).map(|(key, _)| key).collect())
    }

    /// What the task of these bytes waits in, the innermost first, and whether it executes code instead; nothing for a future that is
    /// no task.
    fn stack(&mut self, bytes: &[u8]) -> Result<(Vec<Point>, bool), TaskError> {
        let (mut points, mut runs) = (Vec::new(), false);
        if bytes.get(self.asyncio.is_task).is_none_or(|byte| *byte == 0) {
            return Ok((points, runs));
        }
        let mut next = self.unwrap(untagged(bytes, self.asyncio.coro))?;
        let mut is_inner = false;
        while let Some((addr, kind)) = next.take() {
            if kind == Kind::Generator && !is_inner {
                break;
            }
            if points.len() >= MAX_FRAMES {
                return Err(TaskError::Torn("Too many coroutine frames (possible infinite loop)"));
            }
            let len = self.python.offsets.frame.len;
            let mut generator = vec![0; self.waiting.iframe + len];
            self.memory.read(addr, &mut generator)?;
            let state = generator[self.waiting.frame_state].cast_signed();
            if self.waiting.states.over.contains(&state) {
                break;
            }
            runs |= self.waiting.states.runs.contains(&state);
            let frame = &generator[self.waiting.iframe..];
            let Some(point) = self.point(frame)? else { break };
            points.push(point);
            if self.waiting.states.waits.contains(&state) {
                let top = addr_at(frame, self.waiting.stackpointer).0 & !TAG_BITS;
                if top != 0 {
                    let awaited =
                        read_addr(self.memory, RemoteAddr(top.wrapping_sub(self.waiting.states.awaited)))?;
                    next = self.unwrap(RemoteAddr(awaited.0 & !TAG_BITS))?;
                    // A generator leads on only to what it is itself: it may also run anything else.
                    let own = addr_at(&generator, self.python.offsets.object.ob_type);
                    let goes_on = match next {
                        Some((to, Kind::Generator)) => {
                            read_addr(self.memory, to.offset(self.python.offsets.object.ob_type as u64))?
                                == own
                        }
                        _ => true,
                    };
                    next = next.filter(|_| goes_on);
                    is_inner = true;
                }
            }
        }
        points.reverse();
        Ok((points, runs))
    }

    /// The coroutine or generator that an object is or stands for.
    fn unwrap(&mut self, mut addr: RemoteAddr) -> Result<Option<(RemoteAddr, Kind)>, TaskError> {
        for _ in 0..MAX_WRAPPERS {
            if addr.is_null() {
                return Ok(None);
            }
            let of_type = read_addr(self.memory, addr.offset(self.python.offsets.object.ob_type as u64))?;
            match self.kind(of_type)? {
                Kind::Other => return Ok(None),
                Kind::Wrapper => addr = read_addr(self.memory, addr.offset(WRAPPED))?,
                kind => return Ok(Some((addr, kind))),
            }
        }
        Ok(None)
    }

    fn kind(&mut self, of_type: RemoteAddr) -> Result<Kind, TaskError> {
        if let Some(kind) = self.python.types.kinds.get(&of_type) {
            return Ok(*kind);
        }
        // A class of the program may have the same name.
        let kind = if self.type_flags(of_type)? & HEAP_TYPE != 0 {
            Kind::Other
        } else {
            let name = read_addr(self.memory, of_type.offset(self.python.offsets.object.tp_name as u64))?;
            match read_c_string(self.memory, name, 32)?.as_slice() {
                b"coroutine" | b"async_generator" => Kind::Coroutine,
                b"generator" => Kind::Generator,
                b"async_generator_asend"
                | b"async_generator_athrow"
                | b"anext_awaitable"
                | b"coroutine_wrapper" => Kind::Wrapper,
                _ => Kind::Other,
            }
        };
        self.python.types.kinds.insert(of_type, kind);
        Ok(kind)
    }

    /// `tp_flags`
    fn type_flags(&mut self, of_type: RemoteAddr) -> Result<u64, TaskError> {
        if let Some(flags) = self.python.types.flags.get(&of_type) {
            return Ok(*flags);
        }
        let at = of_type.offset(self.python.offsets.object.tp_flags as u64);
        let flags = read_addr(self.memory, at)?.0;
        if flags & HEAP_TYPE == 0 {
            self.python.types.flags.insert(of_type, flags);
        }
        Ok(flags)
    }

    /// Where a frame stands; `None` if it runs no code of the program.
    fn point(&mut self, frame: &[u8]) -> Result<Option<Point>, TaskError> {
        let offsets = &self.python.offsets;
        if !offsets.frame.may_be_frame(frame) || offsets.frame.is_shim(frame) {
            return Ok(None);
        }
        let (code, instruction) = (code_of(&offsets.frame, frame), addr_at(frame, offsets.frame.instr_ptr));
        if code.is_null() {
            return Ok(None);
        }
        let codes = &mut self.python.codes;
        codes.prepare(self.memory, offsets, self.interner, std::iter::once(code))?;
        Ok(match codes.point(offsets, code, instruction, false) {
            Place::At((code, offset)) => Some(Point::Code { code, offset, opcode: 0 }),
            Place::Unreadable => Some(Point::Unreadable),
            Place::NoCode | Place::Before => None,
            Place::Outside => return Err(TaskError::Torn("A frame changed while it was read")),
        })
    }
}

/// A reference among the fields of a task.
fn untagged(bytes: &[u8], at: usize) -> RemoteAddr {
    RemoteAddr(addr_at(bytes, at).0 & !TAG_BITS)
}
