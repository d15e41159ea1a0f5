//! One PHP process: attach once, then sample.

use std::sync::Arc;
use std::time::{Duration, Instant};

use slip_model::{Gil, Interner, Outcome, RequestFacts, StackId, StackReading, StringId};
use slip_remote::{
    Anchor, Calling, Chain, ChainReader, FrameLayout, Head, Memory, Range, ReadError, RemoteAddr,
    SharedRange, Symbols,
};

use crate::bytes::{addr_at, u32_at};
use crate::code::{Buffers, CodeCache, Owners};
use crate::detect::{AttachError, Version, detect};
use crate::frames::{Executor, Frames, Seen, Stack, layout};
use crate::functions::Proof;
use crate::offsets::{self, ANY, OPCACHE, Offsets, Opcache};
use crate::request::{Globals, GlobalsBytes, Places, RESTARTS_BYTES, Sapi, Tracker};
use crate::single_copy::{Found, SingleCopy};

/// Instructions that call a function or run a file, the same numbers in all versions since 7.3 (`zend_vm_opcodes.h`):
/// `INCLUDE_OR_EVAL`, `DO_FCALL`, `DO_ICALL`, `DO_UCALL`, `DO_FCALL_BY_NAME`, `CALL_TRAMPOLINE`.
const CALLING_OPCODES: [u8; 6] = [73, 60, 129, 130, 131, 158];

/// Instructions that may have called: `FETCH_OBJ_R`, `FETCH_OBJ_IS` and `FETCH_OBJ_FUNC_ARG` enter property hooks from 8.4
/// on, and `CHECK_UNDEF_ARGS` computes defaults in the frame of the function that is about to be called.
const PERHAPS_CALLING_OPCODES: [u8; 4] = [82, 91, 94, 199];

/// `ZEND_CALL_TOP`: the frame was entered by the engine, not by an instruction of its caller (`zend_compile.h`).
const ZEND_CALL_TOP: u32 = 1 << 17;

/// How much later than the frames functions and facts may be read if nothing proves that the request is the same.
///
/// We may lose the CPU in between for longer than a request takes, and then see the next request in the same place of
/// the same script. That takes a whole request and the way to the next one, of which the latter alone takes php-fpm 100 us.
/// Where looks take longer, it has to be seen that the process has read nothing meanwhile.
const MAX_UNPROVEN: Duration = Duration::from_micros(300);

/// Most copies of one sample: the first, two because the stack has grown, and one because it has moved.
const MAX_COPIES: usize = 4;

/// What a sample is taken with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SampleOptions {
    /// Keep the query string of URIs. It may hold what must not leave the machine.
    pub keep_query: bool,
}

/// What a PHP process is at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Phase {
    /// A worker between two requests: it waits for a connection, or reads a request's header.
    #[default]
    Idle,
    /// In a request, and no function runs: start-up, opening and compiling the script, output, freeing.
    Engine,
    /// Functions run: code, or destructors and shutdown functions at the end.
    Code,
}

/// One look at a PHP process.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PhpReading {
    /// The stack; empty unless `phase` is [`Phase::Code`], and when it is torn.
    pub stack: StackReading,
    /// What the process is at.
    pub phase: Phase,
    /// The request; `None` when idle, and when it ended while the sample was taken, which then is torn.
    pub request: Option<RequestFacts>,
}

impl Default for PhpReading {
    fn default() -> Self {
        Self {
            stack: StackReading {
                native_tid: 0,
                thread_key: 0,
                interpreter: 0,
                name: StringId::default(),
                gil: Gil::Unknown,
                outcome: Outcome::Clean,
                truncated: false,
                stack: StackId::default(),
            },
            phase: Phase::Idle,
            request: None,
        }
    }
}

/// A PHP process that is being sampled. Without thread safety PHP has one thread that runs code.
///
/// One engine belongs to one process, and to one interner for its whole life: it keeps the numbers of names.
#[derive(Debug)]
pub struct Engine {
    version: Version,
    sapi: Sapi,
    pub(crate) offsets: &'static Offsets,
    pub(crate) anchor: GlobalsAnchor,
    pub(crate) layout: FrameLayout,
    reader: ChainReader,
    chain: Box<Chain>,
    single: SingleCopy,
    owners: Arc<Owners>,
    pub(crate) frames: Frames,
    tracker: Tracker,
    /// Where it can be seen whether the request goes on, and what was there when texts had been read.
    ranges: Vec<Range>,
    globals_now: Vec<u8>,
    /// The request that runs code of an opcache which has not started anew since its code was read; 0 for none.
    known_in: u64,
    /// When a look of our own was over: what was copied before may only be told of now.
    looked_until: Option<Instant>,
    /// Looks have taken longer than [`MAX_UNPROVEN`].
    is_slow: bool,
    /// The stack segment that did not lead to the heap, so that it is not asked again.
    heapless: RemoteAddr,
    /// Where opcache puts what its JIT has compiled, and whether that has been seen to run.
    pub(crate) compiled: Option<Range>,
    pub(crate) runs_compiled: bool,
}

/// A stack, and what was copied with it.
pub(crate) struct Moment {
    pub(crate) outcome: Outcome,
    /// `None` if they could not be read either.
    pub(crate) globals: Option<Globals>,
    /// Frames run.
    pub(crate) running: bool,
    pub(crate) stack: Stack,
    /// When copying began, and [`Memory::io_calls`] before that, where looks are slow.
    pub(crate) at: Instant,
    pub(crate) io_calls: Option<u64>,
    /// All of it was copied at once, which may be some time ago.
    pub(crate) of_one_moment: bool,
}

/// The engine's globals, which say where the innermost frame is.
#[derive(Debug)]
pub(crate) struct GlobalsAnchor {
    offsets: &'static Offsets,
    pub(crate) places: Places,
}

impl Anchor for GlobalsAnchor {
    fn ranges(&self, out: &mut Vec<Range>) {
        self.places.ranges(out);
    }

    fn decode(&mut self, bytes: &[u8]) -> Option<Head> {
        Some(self.places.head(&self.places.bytes(bytes)))
    }

    /// A frame that has called user code stands at the instruction that calls, which is stored before the call and
    /// stays there until the next one is stored; a frame that has just been entered stands at its first one.
    fn calling(&self, read: &dyn Fn(RemoteAddr, &mut [u8]) -> bool, caller: &[u8], callee: &[u8]) -> Calling {
        let (frame, function) = (&self.offsets.execute_data, &self.offsets.function);
        let byte = |addr: RemoteAddr| {
            let mut byte = [0];
            read(addr, &mut byte).then_some(byte[0])
        };
        let is_internal = |bytes: &[u8]| {
            byte(addr_at(bytes, frame.func).offset(function.kind as u64))
                == Some(function.zend_internal_function)
        };
        if is_internal(caller) {
            return Calling::Yes;
        }
        let opline = addr_at(caller, frame.opline);
        let Some(opcode) = byte(opline.offset(self.offsets.op.opcode as u64)) else {
            return Calling::Unknown;
        };
        if CALLING_OPCODES.contains(&opcode) {
            return Calling::Yes;
        }
        let flags =
            callee.get(frame.this + self.offsets.zval.type_info..).and_then(|bytes| bytes.first_chunk());
        let by_engine = flags.is_none_or(|flags| u32::from_le_bytes(*flags) & ZEND_CALL_TOP != 0);
        // The engine itself calls for many instructions: magic methods, destructors, generators, property hooks.
        if by_engine || PERHAPS_CALLING_OPCODES.contains(&opcode) || is_internal(callee) {
            return Calling::Unknown;
        }
        Calling::No
    }
}

impl Engine {
    /// Looks at a process once, thoroughly enough that sampling needs no further checks. What is read of its code goes into
    /// `code`, which is the same for all processes of a recording.
    ///
    /// # Errors
    ///
    /// See [`AttachError`]; only `NotReady` is worth another try.
    pub fn attach<T: Memory + Symbols + ?Sized>(
        target: &T,
        code: &mut CodeCache,
    ) -> Result<Self, AttachError> {
        let version = detect(target)?.ok_or(AttachError::NotPhp)?;
        let unsupported = || AttachError::Unsupported { found: version.to_string() };
        let (offsets, mm) = offsets::table(version.zend_module_api_no).ok_or_else(unsupported)?;
        let symbol = |name| target.symbol(name).ok_or(AttachError::NotPhp);
        let opcache = find_opcache(target)?;
        let restarts = opcache.map(|(_, restarts)| restarts).unwrap_or_default();
        let places = Places::new(offsets, mm, symbol("executor_globals")?, symbol("sapi_globals")?, restarts);
        let frameless = target.symbol("zend_flf_functions").unwrap_or_default();
        let sapi = Sapi::named(&version.sapi);
        let owners = Arc::new(code.enter(opcache.map(|(range, _)| range)));
        let mut engine = Self {
            sapi,
            offsets,
            anchor: GlobalsAnchor { offsets, places },
            layout: layout(offsets),
            reader: ChainReader::new(layout(offsets)),
            chain: Box::default(),
            single: SingleCopy::default(),
            frames: Frames::new(offsets, Arc::clone(&owners), frameless),
            owners,
            tracker: Tracker::new(sapi),
            ranges: Vec::new(),
            globals_now: Vec::new(),
            known_in: 0,
            looked_until: None,
            is_slow: false,
            heapless: RemoteAddr::NULL,
            compiled: opcache.and_then(|(memory, _)| find_compiled(target, memory)),
            runs_compiled: false,
            version,
        };
        let mut ranges = Vec::new();
        engine.anchor.ranges(&mut ranges);
        let mut bytes = vec![0; ranges.iter().map(|range| range.len).sum()];
        if target.read_ranges(&ranges, &mut bytes)? < ranges.len() {
            return Err(AttachError::NotReady);
        }
        let places = &engine.anchor.places;
        let globals = places.globals(&places.bytes(&bytes));
        engine.look_for_heap(target, &globals)?;
        if !restarts.is_null() {
            let mut bytes = [0; RESTARTS_BYTES];
            target.read(restarts, &mut bytes)?;
            let (restarts, _) = engine.anchor.places.later_restarts(&bytes);
            restarts.map(|restarts| code.note_restarts(&engine.owners, restarts));
        }
        engine.expect_anchor();
        Ok(engine)
    }

    /// Forgets what is known of this process alone.
    pub fn detach(&self, code: &mut CodeCache) {
        code.leave(&self.owners);
    }

    /// Which PHP it is.
    pub fn version(&self) -> &Version {
        &self.version
    }

    /// Reads the stack, the phase and the request of one moment.
    ///
    /// Of a torn stack the phase is right and the stack empty: count it and go on.
    ///
    /// # Errors
    ///
    /// [`ReadError::Gone`] and [`ReadError::Denied`] as for [`Memory::read`]; [`ReadError::Unmapped`] if the globals
    /// themselves are not readable, as after `exec`: attach anew.
    ///
    /// # Cost
    ///
    /// One system call of about 2 us, and one more for each of: functions seen for the first time, new instructions of
    /// known functions, a new request, a stack that has grown, generators in `yield from`, an innermost frame at a
    /// frameless call. Without opcache, closures and included files cost one more, and PHP 8.2 one for all functions
    /// unless the script has used `$_SERVER`; two more, of `/proc/PID/io`, where that takes longer than 300 us.
    pub fn sample<M: Memory + ?Sized>(
        &mut self,
        memory: &M,
        interner: &mut Interner,
        code: &mut CodeCache,
        options: &SampleOptions,
        out: &mut PhpReading,
    ) -> Result<(), ReadError> {
        self.swap_buffers(&mut code.buffers);
        let result = self.take_sample(memory, interner, code, options, out);
        self.swap_buffers(&mut code.buffers);
        result
    }

    /// Has the CPU fetch what [`Engine::sample`] will look at, once the engine itself is there.
    pub fn prefetch(&self) {
        self.single.prefetch();
        self.frames.prefetch();
        self.tracker.prefetch();
    }

    /// What [`Engine::sample`] would say of a worker that is certainly idle.
    pub fn idle(&mut self, out: &mut PhpReading) {
        self.tracker.end_request();
        *out = PhpReading::default();
        out.stack.thread_key = self.anchor.places.executor_globals.0;
    }

    pub(crate) fn swap_buffers(&mut self, buffers: &mut Buffers) {
        std::mem::swap(&mut self.single.buffers, &mut buffers.copy);
        std::mem::swap(&mut self.frames.buffers, &mut buffers.frames);
        std::mem::swap(&mut self.tracker.buffers, &mut buffers.request);
    }

    fn take_sample<M: Memory + ?Sized>(
        &mut self,
        memory: &M,
        interner: &mut Interner,
        code: &mut CodeCache,
        options: &SampleOptions,
        out: &mut PhpReading,
    ) -> Result<(), ReadError> {
        let moment = self.copy_stack(memory, interner, code)?;
        self.looked_until = Some(Instant::now());
        self.complete(memory, interner, code, options, moment, out)
    }

    /// Finds out what else there is to know of a moment.
    pub(crate) fn complete<M: Memory + ?Sized>(
        &mut self,
        memory: &M,
        interner: &mut Interner,
        code: &mut CodeCache,
        options: &SampleOptions,
        moment: Moment,
        out: &mut PhpReading,
    ) -> Result<(), ReadError> {
        *out = PhpReading::default();
        out.stack.thread_key = self.anchor.places.executor_globals.0;
        let Moment { outcome, globals, running, stack, at, io_calls, of_one_moment } = moment;
        out.phase = if outcome == Outcome::Torn || running { Phase::Code } else { Phase::Engine };
        out.stack.stack = stack.id;
        out.stack.truncated = stack.truncated;
        out.stack.outcome = outcome;
        let Some(globals) = globals else { return Ok(()) };
        let proof = self.anchor.places.proof(self.sapi, &globals);
        self.ranges.clear();
        self.anchor.places.later_ranges(proof, &globals, &mut self.ranges);
        let (keep_query, after) = (options.keep_query, &self.ranges);
        // Requests are followed forward.
        let is_late = of_one_moment && self.looked_until.is_some_and(|until| at < until);
        out.request = if is_late {
            self.tracker.earlier(&globals)
        } else {
            self.tracker.update(memory, interner, &globals, proof, keep_query, stack.script, after)?
        };
        if let Some(request) = &out.request {
            let key = request.key;
            // A torn stack may be left from the request before.
            let is_new = outcome != Outcome::Torn && self.known_in != key && self.frames.share_code();
            if (is_new || self.tracker.has_read() || proof.value.is_none())
                && !(self.is_still_in(memory, code, &globals, proof)?
                    && (proof.value.is_some() || self.is_too_soon_for_the_next(memory, at, io_calls)))
            {
                // What was read after the frames, names or facts, may belong to the next request.
                self.tracker.take_back();
                out.request = None;
                // Names that were read for a stack of one moment have been held against its request already, and where no
                // frame runs there are none.
                if !of_one_moment || (proof.value.is_none() && running) {
                    drop_stack(&mut out.stack);
                }
            } else if is_new {
                self.known_in = key;
            }
        } else if is_late && !globals.is_idle(self.sapi) {
            // Of a request that had ended when we first looked.
            drop_stack(&mut out.stack);
        } else {
            out.phase = Phase::Idle;
        }
        if self.anchor.places.heap.is_null() {
            self.look_for_heap(memory, &globals)?;
        }
        Ok(())
    }

    /// Copies the stack and what belongs to the same moment.
    ///
    /// One copy is enough if every frame fits its caller. If one does not, or leads out of the copy, another copy is made,
    /// once; and if the frames lie elsewhere than last time, or are too many, they are found and copied twice.
    fn copy_stack<M: Memory + ?Sized>(
        &mut self,
        memory: &M,
        interner: &mut Interner,
        code: &mut CodeCache,
    ) -> Result<Moment, ReadError> {
        let mut outcome = Outcome::Clean;
        for _ in 0..MAX_COPIES {
            let io_calls = self.io_calls(memory);
            let at = Instant::now();
            if !self.single.take(memory)? {
                break;
            }
            let [proof, executor, sapi, heap] = [0, 1, 2, 3].map(|number| self.single.part(number));
            let bytes = GlobalsBytes { proof, executor, sapi, heap };
            let places = &self.anchor.places;
            let (globals, head) = (places.globals(&bytes), places.head(&bytes));
            let is_of_one_request = places.is_of_one_request(&bytes, &globals);
            self.single.note_head(head);
            let mut lacks = None;
            let mut unproven = false;
            for after in [false, true] {
                if after && !self.single.has_changed() {
                    break;
                }
                let mut walk = self.single.frames(after, &self.layout);
                let collected = self.frames.collect(memory, &mut walk)?;
                walk.by_ref().for_each(drop);
                match (walk.found(), collected) {
                    (Found::Elsewhere(frame), _) => lacks = Some(frame),
                    (Found::Unproven, _) => unproven = true,
                    (Found::Chain, Some(truncated)) if is_of_one_request => {
                        let moment = (&globals, head.limit, Some(at));
                        if let Some(stack) = self.name_frames(memory, interner, code, moment, truncated)? {
                            let running = !self.frames.buffers.addrs.is_empty();
                            return Ok(Moment {
                                outcome,
                                globals: Some(globals),
                                running,
                                stack,
                                at,
                                io_calls,
                                of_one_moment: false,
                            });
                        }
                    }
                    (Found::Chain, _) => {}
                }
            }
            match lacks {
                // A stack that has grown is copied once more: the first copy was not of it.
                Some(frame) if self.single.reach(frame, &self.layout) => {}
                // One that lies elsewhere has to be found first.
                Some(frame) if self.single.is_innermost(frame) => break,
                // But a frame that was replaced while it was copied leads to whatever was put there, an object or a number:
                // the stack has moved, and there is nothing to find.
                _ if !unproven && outcome == Outcome::Clean => outcome = Outcome::Repaired,
                _ => break,
            }
        }
        let io_calls = self.io_calls(memory);
        let at = Instant::now();
        self.chain.anchor.clear();
        let outcome = match self.reader.read(memory, &mut self.anchor, &mut self.chain) {
            // Request memory that is not what we took it for is looked for anew.
            Err(ReadError::Unmapped { .. }) if !self.anchor.places.heap.is_null() => {
                self.anchor.places.heap = RemoteAddr::NULL;
                self.expect_anchor();
                self.reader.read(memory, &mut self.anchor, &mut self.chain)?
            }
            other => other?,
        };
        let places = &self.anchor.places;
        let bytes = places.bytes(&self.chain.anchor);
        let (globals, head) = (places.globals(&bytes), places.head(&bytes));
        let mut copied = Moment {
            outcome,
            globals: Some(globals),
            running: true,
            stack: Stack::default(),
            at,
            io_calls,
            of_one_moment: false,
        };
        if outcome != Outcome::Torn && places.is_of_one_request(&bytes, &globals) {
            let frames = self.chain.bytes.chunks(self.layout.len);
            let collected = self.frames.collect(memory, self.chain.addrs.iter().copied().zip(frames))?;
            if let Some(truncated) = collected {
                let truncated = truncated || self.chain.truncated;
                let moment = (&globals, head.limit, Some(at));
                if let Some(stack) = self.name_frames(memory, interner, code, moment, truncated)? {
                    let running = !self.frames.buffers.addrs.is_empty();
                    return Ok(Moment { running, stack, ..copied });
                }
            }
        }
        if self.chain.anchor.is_empty() {
            copied.globals = None;
        }
        Ok(Moment { outcome: Outcome::Torn, ..copied })
    }

    /// Names the frames that were collected last, of the moment when the globals were these. `None` if they do not belong
    /// together.
    pub(crate) fn name_frames<M: Memory + ?Sized>(
        &mut self,
        memory: &M,
        interner: &mut Interner,
        code: &mut CodeCache,
        (globals, limit, at): (&Globals, RemoteAddr, Option<Instant>),
        truncated: bool,
    ) -> Result<Option<Stack>, ReadError> {
        if self.frames.buffers.addrs.is_empty() {
            return Ok(Some(Stack::default()));
        }
        let places = &self.anchor.places;
        let seen = Seen { proof: places.proof(self.sapi, globals), heap: places.heap, at };
        let table = &self.offsets.executor_globals;
        let executor = Executor {
            current_execute_data: places.executor_globals.offset(table.current_execute_data as u64),
            exception_op: places.executor_globals.offset(table.exception_op as u64),
            opline_before: globals.opline_before_exception,
            active_fiber: places.executor_globals.offset(table.active_fiber as u64),
        };
        let stack = self.frames.build(memory, interner, code, truncated, executor, &seen)?;
        if stack.is_some() {
            self.single.predict(&self.frames.buffers.addrs, &self.layout, limit);
        }
        Ok(stack)
    }

    /// Whether the request whose globals were copied goes on, and runs the code that is known.
    fn is_still_in<M: Memory + ?Sized>(
        &mut self,
        memory: &M,
        code: &mut CodeCache,
        globals: &Globals,
        proof: Proof,
    ) -> Result<bool, ReadError> {
        let mut bytes = std::mem::take(&mut self.globals_now);
        bytes.clear();
        bytes.extend_from_slice(self.tracker.after());
        if bytes.is_empty() {
            bytes.resize(self.ranges.iter().map(|range| range.len).sum(), 0);
            if memory.read_ranges(&self.ranges, &mut bytes)? < self.ranges.len() {
                return Ok(false);
            }
        }
        let (restarts, rest) = self.anchor.places.later_restarts(&bytes);
        let goes_on = self.sapi.one_script || self.anchor.places.goes_on(rest, proof, globals, self.sapi);
        let has_restarted = restarts.is_some_and(|restarts| code.note_restarts(&self.owners, restarts));
        self.globals_now = bytes;
        Ok(goes_on && !has_restarted)
    }

    /// Whether the next request cannot have begun since a moment, because the process is stopped, because it is not long ago, or because
    /// nothing was read since: the head of each request is.
    fn is_too_soon_for_the_next<M: Memory + ?Sized>(
        &mut self,
        memory: &M,
        at: Instant,
        io_calls: Option<u64>,
    ) -> bool {
        if memory.stands_still() || at.elapsed() < MAX_UNPROVEN {
            return true;
        }
        self.is_slow = true;
        io_calls.is_some() && memory.io_calls() == io_calls
    }

    /// What to compare with once the look is over, if that takes long here.
    fn io_calls<M: Memory + ?Sized>(&self, memory: &M) -> Option<u64> {
        if self.is_slow && self.sapi.fastcgi { memory.io_calls() } else { None }
    }

    /// Has the copies hold what [`Places::ranges`] asks for.
    fn expect_anchor(&mut self) {
        let field = self.offsets.executor_globals.current_execute_data as u64;
        let current = self.anchor.places.executor_globals.offset(field);
        self.ranges.clear();
        self.anchor.places.ranges(&mut self.ranges);
        self.single.expect_anchor(&self.ranges, current);
    }

    /// Finds request memory, once there is some.
    fn look_for_heap<M: Memory + ?Sized>(&mut self, memory: &M, globals: &Globals) -> Result<(), ReadError> {
        if globals.vm_stack.is_null() || globals.vm_stack == self.heapless {
            return Ok(());
        }
        self.anchor.places.heap = self.anchor.places.find_heap(memory, globals.vm_stack)?;
        self.expect_anchor();
        self.heapless = if self.anchor.places.heap.is_null() { globals.vm_stack } else { RemoteAddr::NULL };
        Ok(())
    }
}

/// Has a reading be without a stack.
fn drop_stack(reading: &mut StackReading) {
    reading.outcome = Outcome::Torn;
    reading.stack = StackId::default();
    reading.truncated = false;
}

/// opcache's shared memory, and where it counts its restarts.
///
/// `None` if there is none, or if it does not look as it should: no code is then believed for longer than a request.
fn find_opcache<T: Memory + Symbols + ?Sized>(
    target: &T,
) -> Result<Option<(SharedRange, RemoteAddr)>, ReadError> {
    for shared in target.shared_memory() {
        let mut bytes = [0; Opcache::LEN];
        match target.read(shared.range.addr, &mut bytes) {
            Ok(()) => {}
            Err(ReadError::Unmapped { .. }) => continue,
            Err(error) => return Err(error),
        }
        let inside = |at: usize| {
            let addr = addr_at(&bytes, at);
            shared.range.find(addr, Opcache::LEN).filter(|at| *at >= Opcache::LEN).map(|_| addr)
        };
        if u32_at(&bytes, OPCACHE.shared_segments_count) == 1
            && inside(OPCACHE.shared_segments).is_some()
            && let Some(globals) = inside(OPCACHE.app_shared_globals)
        {
            return Ok(Some((shared, globals.offset(OPCACHE.oom_restarts))));
        }
    }
    Ok(None)
}

/// Where the JIT puts its code: behind the rest of opcache's memory, of which it is a part.
fn find_compiled<T: Symbols + ?Sized>(target: &T, opcache: SharedRange) -> Option<Range> {
    let of_opcache = |shared: &SharedRange| shared.executable && shared.object == opcache.object;
    target.shared_memory().into_iter().find(of_opcache).map(|shared| shared.range)
}

const _: () = {
    // The anchor is decoded without checks.
    let table = &ANY.executor_globals;
    assert!(table.included_files < table.vm_stack_end && table.vm_stack < table.opline_before_exception);
};

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "test code")]
mod tests {
    use std::cell::{Cell, RefCell};

    use slip_remote::Image;

    use super::*;

    /// A recorded process whose stack moves while it is read.
    struct Moving<'a, F> {
        image: &'a Image,
        /// Is told of each read, and may change what it returns.
        change: RefCell<F>,
    }

    impl<F: FnMut(RemoteAddr, &mut [u8])> Memory for Moving<'_, F> {
        fn read(&self, addr: RemoteAddr, buf: &mut [u8]) -> Result<(), ReadError> {
            // What the change puts there need not be part of the recording.
            let result = self.image.read(addr, buf);
            (self.change.borrow_mut())(addr, buf);
            if addr == NEW_FRAME { Ok(()) } else { result }
        }
    }

    /// Where a call that is made meanwhile has its frame.
    const NEW_FRAME: RemoteAddr = RemoteAddr(0x7777_0000_0000);

    /// A process of PHP without opcache that stands in functions called by `{main}`, which is read again for each sample.
    struct Standing {
        image: Image,
        engine: Engine,
        code: CodeCache,
        interner: Interner,
        /// Frames, the innermost first.
        frames: Vec<RemoteAddr>,
        /// The function of the outermost one.
        main: RemoteAddr,
        reading: PhpReading,
    }

    impl Standing {
        fn each() -> impl Iterator<Item = Self> {
            ["zend-8.2-functions.json", "zend-8.4-functions.json"].into_iter().map(Self::open)
        }

        fn open(name: &str) -> Self {
            let path = slip_testkit::fixtures().join("images").join(name);
            let image: Image = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
            let mut code = CodeCache::default();
            let engine = Engine::attach(&image, &mut code).unwrap();
            let mut standing = Self {
                image,
                engine,
                code,
                interner: Interner::new(),
                frames: Vec::new(),
                main: RemoteAddr::NULL,
                reading: PhpReading::default(),
            };
            // The second one reads the frames in one copy.
            for _ in 0..2 {
                standing.sample(|_, _| {});
                assert_eq!(standing.reading.stack.outcome, Outcome::Clean);
            }
            standing.frames.clone_from(&standing.code.buffers.frames.addrs);
            let outermost = *standing.frames.last().unwrap();
            standing.main =
                RemoteAddr(standing.word(outermost, standing.engine.offsets.execute_data.func).unwrap());
            standing
        }

        fn word(&self, addr: RemoteAddr, at: usize) -> Result<u64, ReadError> {
            slip_remote::read_u64(&self.image, addr.offset(at as u64))
        }

        /// Samples once, with what is read changed.
        fn sample(&mut self, change: impl FnMut(RemoteAddr, &mut [u8])) {
            let memory = Moving { image: &self.image, change: RefCell::new(change) };
            let options = SampleOptions::default();
            self.engine
                .sample(&memory, &mut self.interner, &mut self.code, &options, &mut self.reading)
                .unwrap();
        }

        fn frame_len(&self) -> usize {
            self.engine.layout.len
        }
    }

    fn put(buf: &mut [u8], at: usize, word: u64) {
        buf[at..at + 8].copy_from_slice(&word.to_le_bytes());
    }

    #[test]
    fn a_call_is_looked_for_again_if_the_frames_above_it_have_moved() {
        for mut standing in Standing::each() {
            let (innermost, len) = (standing.frames[0], standing.frame_len());
            let previous = standing.engine.layout.previous;
            let before = standing.reading.stack;
            for (lost, expected) in [(1, Outcome::Clean), (2, Outcome::Clean), (u32::MAX, Outcome::Torn)] {
                let left = Cell::new(lost);
                standing.sample(|addr, buf| {
                    // So is a frame for which the arguments are still being computed.
                    if addr == innermost && buf.len() == len && left.get() > 0 {
                        left.set(left.get() - 1);
                        put(buf, previous, 0);
                    }
                });
                assert_eq!(standing.reading.stack.outcome, expected, "lost {lost} times");
                if expected == Outcome::Clean {
                    assert_eq!(left.get(), 0);
                    assert_eq!(standing.reading.stack, before);
                }
            }
        }
    }

    #[test]
    fn a_call_that_took_the_place_of_the_one_that_was_copied_is_not_taken_for_it() {
        for mut standing in Standing::each() {
            let (len, main) = (standing.frame_len(), standing.main);
            let outermost = *standing.frames.last().unwrap();
            let table = &standing.engine.offsets.execute_data;
            let (previous, func) = (table.prev_execute_data, table.func);
            let current = standing.engine.anchor.places.executor_globals;
            let current =
                current.offset(standing.engine.offsets.executor_globals.current_execute_data as u64);
            // The function has been read; a new call is innermost, and its caller lies where the frame was.
            let (has_read, is_replaced) = (Cell::new(false), Cell::new(false));
            standing.sample(|addr, buf| {
                if addr == main {
                    has_read.set(true);
                } else if addr == current && has_read.get() {
                    put(buf, 0, NEW_FRAME.0);
                } else if addr == NEW_FRAME {
                    buf.fill(0);
                    put(buf, previous, outermost.0);
                    is_replaced.set(true);
                } else if addr == outermost && buf.len() == len && is_replaced.get() {
                    put(buf, func, 0x1234_5678);
                } else if addr == outermost && buf.len() > len {
                    has_read.set(false);
                    is_replaced.set(false);
                }
            });
            assert_eq!(standing.reading.stack.outcome, Outcome::Torn);
        }
    }

    #[test]
    fn a_frame_that_was_replaced_while_it_was_copied_has_moved() {
        for mut standing in Standing::each() {
            let (innermost, len) = (standing.frames[0], standing.frame_len());
            let outermost = *standing.frames.last().unwrap();
            let previous = standing.engine.layout.previous;
            let before = standing.reading.stack;
            // A number of the callee's, and an object.
            for value in [28, 0x7ff0_1234_5678] {
                let copies = Cell::new(0);
                standing.sample(|addr, buf| {
                    if addr == outermost && buf.len() > len {
                        copies.set(copies.get() + 1);
                        if copies.get() == 1 {
                            let at = usize::try_from(innermost.0 - addr.0).unwrap();
                            put(buf, at + previous, value);
                        }
                    }
                });
                assert_eq!(copies.get(), 2);
                assert_eq!(standing.reading.stack, StackReading { outcome: Outcome::Repaired, ..before });
            }
        }
    }
}
