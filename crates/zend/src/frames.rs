//! From the chain of `zend_execute_data` to frames with names and lines.
//!
//! Frames are what `debug_backtrace()` shows, in its words, with these differences: top-level code of the main script
//! is a frame of its own, `{main}`; the class of a method is the one that declares it, so that the same code has one
//! name (PHP shows the same, `func->common.scope`); a class name that goes on with a NUL (anonymous classes) ends
//! there.
//!
//! **Lines.** The VM keeps the current instruction of the innermost PHP frame in a register and stores it only before
//! something that may call, throw or look at it. Its line, when no function of an extension is running, is therefore the
//! last one stored: at or before the current one. If the function has not stored one yet, what lies there is left from
//! another frame, and the line is 0 (typed loops under opcache). All other lines are exact, with two exceptions.
//! A generator of PHP 8.2 that waits in `yield from` is shown at the instruction it will go on with, as PHP does. And
//! before 8.4 the engine remembers the place of one exception only: if another comes up while destructors run for the
//! first one, the line of the first is lost (PHP shows one of another function; we show 0).

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use slip_model::{Frame, FrameKind, Interner, StackId, Step, StringId};
use slip_remote::{FrameLayout, Memory, ReadError, RemoteAddr, prefetch, read_u64};

use crate::bytes::{Batch, ByAddr, addr_at, u8_at, u32_at};
use crate::code::{CodeAddr, CodeCache, Owners};
use crate::functions::{Function, Functions, Kind, Moment, Opline, Proof, Wanted};
use crate::offsets::Offsets;
use crate::paths::{LastPrivate, Look, Node, PathKey, Paths};

/// Most generators that one `yield from` delegates through before we call it a loop.
const MAX_DELEGATION: usize = 4_096;

/// Most frames of one stack, the generators of all placeholders included.
const MAX_FRAMES: usize = 32_768;

/// How many calls deeper a stack may have become while its functions were read.
const MAX_NEW_FRAMES: usize = 64;

/// How often functions are read that look as if they had gone although their frames remain, or that took too long.
const MAX_LOOKS: usize = 3;

/// How often the chain is followed to a frame that has not changed: where calls take as long as reading a frame, one walk in ten
/// loses its way. The stack is the same, however often, and it has to be found in time ([`MAX_DELAY`]).
const MAX_WALKS: usize = 3;

/// Functions that come and go have to be read and their calls seen to go on within this time after the calls were seen
/// before, and a little more for each function. If it takes longer we have lost the CPU, and their calls may have ended
/// meanwhile and begun again, around others that lay in the same place when they were read.
const MAX_DELAY: Duration = Duration::from_micros(100);
const MAX_DELAY_OF_EACH: Duration = Duration::from_micros(20);

/// Most functions that PHP may have frameless variants of; 8.4 has 26.
const MAX_FRAMELESS: u32 = 4_096;

/// How a frame lies in memory, for [`slip_remote::ChainReader`].
pub(crate) fn layout(offsets: &Offsets) -> FrameLayout {
    let table = &offsets.execute_data;
    let func = table.func..table.func + 8;
    FrameLayout {
        len: frame_len(offsets),
        previous: table.prev_execute_data,
        identity: vec![func],
        instruction: table.opline..table.opline + 8,
    }
}

/// Bytes of a frame that are copied.
fn frame_len(offsets: &Offsets) -> usize {
    offsets.execute_data.prev_execute_data + 8
}

/// One frame as it lies in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Raw {
    addr: RemoteAddr,
    func: CodeAddr,
    opline: RemoteAddr,
    return_value: RemoteAddr,
    /// Called by the engine or a function of an extension, not by code.
    top: bool,
    /// `This`: the object or the class that the call is for.
    this: RemoteAddr,
    prev: RemoteAddr,
    /// On the chain, which the frame of a generator that waits is not.
    linked: bool,
}

/// What matters of the executor's globals beside the frames themselves.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Executor {
    /// `&EG(current_execute_data)`.
    pub(crate) current_execute_data: RemoteAddr,
    /// `&EG(exception_op)`: where oplines point while an exception looks for its handler.
    pub(crate) exception_op: RemoteAddr,
    /// `EG(opline_before_exception)`: where the exception came up.
    pub(crate) opline_before: RemoteAddr,
    /// `&EG(active_fiber)`.
    pub(crate) active_fiber: RemoteAddr,
}

/// What is known of the moment of a sample.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seen {
    pub(crate) proof: Proof,
    /// The heap of request memory; null if it is unknown.
    pub(crate) heap: RemoteAddr,
    /// When copying the frames began; `None` if all were copied at one moment, some time ago.
    pub(crate) at: Option<Instant>,
}

/// A generator that waits in `yield from`, and its frame.
type Delegation = (RemoteAddr, RemoteAddr);

/// Turns chains into stacks.
#[derive(Debug)]
pub(crate) struct Frames {
    offsets: &'static Offsets,
    owners: Arc<Owners>,
    /// `&zend_flf_functions`; null where calls always have frames.
    frameless: RemoteAddr,
    frameless_functions: HashMap<u32, RemoteAddr>,
    /// Frames of this sample that are at a frameless call but not in it.
    idle_frameless: Vec<usize>,
    /// Generators of the last sample, to be read in one go.
    delegations: Vec<Delegation>,
    /// Which of them is which.
    predicted: ByAddr<usize>,
    pub(crate) buffers: Box<Buffers>,
    last: LastPrivate,
    texts: Option<Texts>,
    /// What the last stack is made of, if that is wanted.
    pub(crate) steps: Option<Vec<Step>>,
}

/// What stacks are named with. Nothing in here lasts from one sample to the next.
#[derive(Debug, Default)]
pub(crate) struct Buffers {
    batch: Batch,
    /// Addresses of the frames of the chain.
    pub(crate) addrs: Vec<RemoteAddr>,
    raw: Vec<Raw>,
    wanted: Vec<Wanted>,
    keys: Vec<PathKey>,
}

impl Buffers {
    /// Has the CPU fetch them.
    pub(crate) fn prefetch(&self) {
        prefetch(self);
        prefetch(self.addrs.as_slice());
        prefetch(self.raw.as_slice());
        prefetch(self.keys.as_slice());
    }
}

/// Names that are not the target's.
#[derive(Clone, Copy, Debug)]
struct Texts {
    main: StringId,
    unreadable: StringId,
    eval: StringId,
    include: StringId,
    include_once: StringId,
    require: StringId,
    require_once: StringId,
}

/// Whether functions look as if they were no longer what the frames called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Doubt {
    /// They do not.
    None,
    /// Some do, and their frames are still there.
    Remain,
    /// Some do, and their frames are gone.
    Gone,
}

/// What has become of a call since its frame was copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Call {
    GoesOn,
    IsOver,
    /// The walk from the innermost frame led nowhere: what it passed moved. The frame itself is as it was.
    Lost,
}

/// A chain that has become a stack.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Stack {
    pub(crate) id: StackId,
    pub(crate) truncated: bool,
    /// File of the outermost frame; empty if that is not PHP code.
    pub(crate) script: StringId,
}

impl Frames {
    pub(crate) fn new(offsets: &'static Offsets, owners: Arc<Owners>, frameless: RemoteAddr) -> Self {
        Self {
            offsets,
            owners,
            frameless,
            frameless_functions: HashMap::new(),
            idle_frameless: Vec::new(),
            delegations: Vec::new(),
            predicted: ByAddr::default(),
            buffers: Box::default(),
            last: LastPrivate::default(),
            texts: None,
            steps: None,
        }
    }

    /// Has the CPU fetch what naming begins with.
    pub(crate) fn prefetch(&self) {
        self.last.prefetch();
    }

    /// Takes the frames of a chain, from the innermost one outwards, and replaces placeholders. `None` if a generator has
    /// moved on or what was copied is no frame; else whether frames were left out.
    pub(crate) fn collect<'a, M: Memory + ?Sized>(
        &mut self,
        memory: &M,
        chain: impl Iterator<Item = (RemoteAddr, &'a [u8])>,
    ) -> Result<Option<bool>, ReadError> {
        self.buffers.raw.clear();
        self.buffers.addrs.clear();
        let mut seen = Vec::new();
        let mut were_read = false;
        for (addr, bytes) in chain {
            if self.buffers.raw.len() >= MAX_FRAMES {
                return Ok(Some(true));
            }
            self.buffers.addrs.push(addr);
            let raw = self.raw(addr, bytes, true);
            if self.is_of_attribute(&raw) {
                continue;
            }
            if !raw.func.addr.is_null() {
                self.buffers.raw.push(raw);
                continue;
            }
            // No other frame lacks a function: this is not one any more.
            let Some(leaf) = self.waiting_generator(addr, bytes) else { return Ok(None) };
            if !were_read {
                self.read_delegations(memory)?;
                were_read = true;
            }
            let inner = self.buffers.raw.last().map(|raw| raw.addr);
            if !self.push_delegation(memory, leaf, inner, &mut seen)? {
                return Ok(None);
            }
        }
        self.delegations = seen;
        Ok(Some(false))
    }

    /// Whether any frame runs code in memory that processes share.
    pub(crate) fn share_code(&self) -> bool {
        let shared = |place| self.owners.is_shared(place);
        self.buffers.raw.iter().any(|raw| shared(raw.func) || shared(self.owners.place(raw.opline)))
    }

    /// Has frames of a moment that is over be of the function whose shared code they stood in, where that is certain: the copy
    /// of it that they name may be gone, and something else lie in its place.
    ///
    /// What called another by an instruction has it stored, which functions of extensions cannot have done: what lies in
    /// their frames is left from others. So may be what lies in the innermost one, until it has stored one of its own, unless it
    /// is a file's, which begins with its first one (`i_init_code_execute_data` in `Zend/zend_execute.c`). And the register of a
    /// function that has just returned holds that of its callee: if the frame's instruction is the register's, `stored`, what
    /// lies in the frame, must be of the same code.
    ///
    /// Whether any frame has another function now. Naming the frames may make known what was missing for that.
    pub(crate) fn place_by_code(&mut self, functions: &Functions, stored: Option<RemoteAddr>) -> bool {
        let mut is_any_placed = false;
        let of = |opline| functions.of_code(self.offsets, &self.owners, opline);
        for at in (0..self.buffers.raw.len()).rev() {
            let raw = &self.buffers.raw[at];
            if self.owners.is_shared(raw.func) {
                continue;
            }
            let Some(func) = of(raw.opline) else { continue };
            let is_called = |callee: &Raw, caller: &Raw| {
                callee.linked && caller.linked && !callee.top && callee.prev == caller.addr
            };
            let is_certain = match at.checked_sub(1) {
                Some(callee) => is_called(&self.buffers.raw[callee], raw),
                None if stored.is_some() => stored.and_then(of) == Some(func),
                None => self.buffers.raw.get(1).is_some_and(|caller| {
                    let op = functions.shared_op(&self.owners, caller.func, caller.opline);
                    let includes = op.is_some_and(|op| op.opcode == self.offsets.op.zend_include_or_eval);
                    includes && is_called(raw, caller)
                }),
            };
            if is_certain {
                self.buffers.raw[at].func = func;
                is_any_placed = true;
            }
        }
        is_any_placed
    }

    /// Names the frames that were [collected](Frames::collect). `None` if what was read beyond the chain no longer belongs to
    /// it.
    ///
    /// # Errors
    ///
    /// [`ReadError::Gone`] and [`ReadError::Denied`].
    pub(crate) fn build<M: Memory + ?Sized>(
        &mut self,
        memory: &M,
        interner: &mut Interner,
        code: &mut CodeCache,
        truncated: bool,
        executor: Executor,
        seen: &Seen,
    ) -> Result<Option<Stack>, ReadError> {
        // The real outermost frame was called by the engine; before a call the link to the caller is null.
        if !truncated
            && self.buffers.raw.last().is_some_and(|outermost| !outermost.top)
            && !self.are_of_destroyed_fiber(memory, executor)?
        {
            return Ok(None);
        }
        if let Some(steps) = &mut self.steps {
            steps.clear();
        }
        // Generators are not called by their neighbours. Of a stack that is known it is not known what it is made of.
        let is_plain = !truncated && self.delegations.is_empty() && self.steps.is_none();
        let (known, mut node) = if is_plain { self.known_frames(&code.paths) } else { (0, Node::root()) };
        let unknown = self.buffers.raw.len() - known;
        if unknown > 0 {
            let texts = *self.texts.get_or_insert_with(|| Texts::new(interner));
            let moment = Moment {
                offsets: self.offsets,
                owners: Arc::clone(&self.owners),
                proof: seen.proof,
                heap: seen.heap,
            };
            if !self.resolve(memory, interner, code, (unknown, seen.at), executor, &moment)? {
                return Ok(None);
            }
            for at in (0..unknown).rev() {
                node = self.name_frame(memory, interner, code, (node, at), executor, texts, is_plain)?;
            }
        }
        Ok(Some(Stack { id: node.stack, truncated, script: node.script }))
    }

    /// Whether the chain is that of a fiber which is being destroyed. Its frames are read once more.
    ///
    /// What a suspended fiber still has to do when nobody needs it any more, `finally` and destructors, runs above the frame
    /// at its bottom, which is linked to nobody then (`zend_fiber_object_destroy` in `Zend/zend_fibers.c`). But it is linked
    /// to nobody also for the moment in which a fiber suspends itself, and then who resumed it belongs to the stack. So the
    /// frames must be there after the fiber has been seen to be on its last way, which it never leaves.
    fn are_of_destroyed_fiber<M: Memory + ?Sized>(
        &mut self,
        memory: &M,
        executor: Executor,
    ) -> Result<bool, ReadError> {
        let Some(bottom) = self.buffers.raw.last().copied() else { return Ok(false) };
        let is_empty = bottom.return_value.is_null() && bottom.this.is_null();
        let mut fiber = [0; 8];
        if !is_empty || !read(memory, executor.active_fiber, &mut fiber)? {
            return Ok(false);
        }
        let fiber = addr_at(&fiber, 0);
        if fiber.is_null() {
            return Ok(false);
        }
        let table = &self.offsets.fiber;
        let len = frame_len(self.offsets);
        let Buffers { batch, raw, addrs, .. } = &mut *self.buffers;
        batch.clear();
        let flags = batch.push(fiber.offset(table.flags as u64), 1);
        let stack_bottom = batch.push(fiber.offset(table.stack_bottom as u64), 8);
        let current = batch.push(executor.current_execute_data, 8);
        let parts: Vec<usize> = raw.iter().map(|raw| batch.push(raw.addr, len)).collect();
        batch.read(memory)?;
        let addr = |part: usize| batch.get(part).map_or(RemoteAddr::NULL, |bytes| addr_at(bytes, 0));
        let is_destroyed =
            batch.get(flags).is_some_and(|flags| u8_at(flags, 0) & table.zend_fiber_flag_destroyed != 0);
        if !is_destroyed || addr(stack_bottom) != bottom.addr || addrs.first() != Some(&addr(current)) {
            return Ok(false);
        }
        for (at, part) in parts.into_iter().enumerate() {
            let then = self.buffers.raw[at];
            let now = self.buffers.batch.get(part).map(|bytes| self.raw(then.addr, bytes, then.linked));
            let Some(now) = now.filter(|now| *now == Raw { opline: now.opline, ..then }) else {
                return Ok(false);
            };
            self.buffers.raw[at] = now;
        }
        Ok(true)
    }

    /// How many frames, counted from the outermost, were named before, and where they led.
    fn known_frames(&mut self, paths: &Paths) -> (usize, Node) {
        let mut keys = std::mem::take(&mut self.buffers.keys);
        keys.clear();
        self.last.begin(paths);
        let mut key = PathKey::default();
        for at in (0..self.buffers.raw.len()).rev() {
            let look = self.look(at);
            let Some(next) = paths.key(&self.owners, &mut self.last, key, &look) else { break };
            key = next;
            keys.push(key);
        }
        let known = (1..=keys.len()).rev().find_map(|known| Some((known, paths.find(keys[known - 1])?)));
        self.buffers.keys = keys;
        known.unwrap_or((0, Node::root()))
    }

    /// Makes sure that the functions of the innermost `unknown` frames, copied some time ago, are known, and that these frames can have called
    /// each other. False if not, or if what was read no longer belongs to the chain.
    fn resolve<M: Memory + ?Sized>(
        &mut self,
        memory: &M,
        interner: &mut Interner,
        code: &mut CodeCache,
        (unknown, copied_at): (usize, Option<Instant>),
        executor: Executor,
        moment: &Moment,
    ) -> Result<bool, ReadError> {
        code.functions.begin();
        self.buffers.wanted.clear();
        // And the one that has called the outermost of them.
        for (at, raw) in self.buffers.raw.iter().take(unknown + 1).enumerate() {
            let exception = self.handles_exception(executor, raw);
            let opline = if exception { executor.opline_before } else { raw.opline };
            // Both may be an instruction of another function.
            self.buffers.wanted.push(Wanted { func: raw.func, opline, exact: at > 0 && !exception });
        }
        let max_delay = MAX_DELAY + MAX_DELAY_OF_EACH * u32::try_from(self.buffers.wanted.len()).unwrap_or(0);
        let (mut looks, mut seen_at) = (0, copied_at.unwrap_or_else(Instant::now));
        loop {
            if !code.functions.resolve(memory, interner, &self.buffers.wanted, moment)? {
                return Ok(false);
            }
            if copied_at.is_none() {
                // The calls may be long over.
                if !self.buffers.wanted.iter().all(|wanted| self.is_of_moment(&code.functions, wanted)) {
                    code.functions.forget_new();
                    return Ok(false);
                }
                break;
            }
            looks += 1;
            let now = Instant::now();
            match self.doubtful_frames(memory, &code.functions, executor)? {
                Doubt::None => break,
                Doubt::Remain
                    if self.can_be_shown(&code.functions)
                        && (memory.stands_still() || seen_at.elapsed() < max_delay) =>
                {
                    break;
                }
                // A function that was read while another took its place is whole at the second look.
                Doubt::Remain if looks < MAX_LOOKS => seen_at = now,
                Doubt::Remain => return Ok(false),
                Doubt::Gone => {
                    code.functions.forget_new();
                    return Ok(false);
                }
            }
        }
        for at in 1..self.buffers.wanted.len() {
            if !self.link_holds(memory, code, (&self.buffers.raw[at - 1], &self.buffers.raw[at]), executor)? {
                return Ok(false);
            }
        }
        if self.frameless.is_null() {
            return Ok(true);
        }
        self.resolve_frameless(memory, interner, code, unknown, executor, moment)
    }

    /// What frame `at` shows of itself.
    fn look(&self, at: usize) -> Look {
        let raw = &self.buffers.raw[at];
        let caller = self.buffers.raw.get(at + 1).filter(|_| !raw.return_value.is_null());
        Look {
            func: raw.func,
            opline: raw.opline,
            result: caller.map(|caller| raw.return_value.0.wrapping_sub(caller.addr.0)),
            top: raw.top,
            innermost: at == 0,
        }
    }

    fn raw(&self, addr: RemoteAddr, bytes: &[u8], linked: bool) -> Raw {
        let table = &self.offsets.execute_data;
        Raw {
            addr,
            func: self.owners.place(addr_at(bytes, table.func)),
            opline: addr_at(bytes, table.opline),
            return_value: addr_at(bytes, table.return_value),
            top: u32_at(bytes, table.this + self.offsets.zval.type_info) & table.zend_call_top != 0,
            this: addr_at(bytes, table.this),
            prev: addr_at(bytes, table.prev_execute_data),
            linked,
        }
    }

    /// Whether this is the frame that stands for the place of an attribute while its constructor runs. `debug_backtrace()`
    /// takes a file and a line from it and does not show it.
    ///
    /// It has nothing but an instruction and a function behind it on the stack of the VM, made for it alone
    /// (`call_attribute_constructor` in `ext/reflection/php_reflection.c`). The functions of other frames lie elsewhere: on
    /// that stack there are frames and their variables.
    fn is_of_attribute(&self, raw: &Raw) -> bool {
        let (op, func) = (raw.addr.offset(self.offsets.execute_data.size as u64), raw.func.addr);
        raw.opline == op
            && func == op.offset(self.offsets.op.size as u64)
            && raw.return_value.is_null()
            && !raw.top
    }

    /// The generator whose `execute_fake` this frame is.
    ///
    /// While a generator waits in `yield from`, the frame of the innermost one is linked to this placeholder, which
    /// stands for all generators between (`zend_generator_check_placeholder_frame` in `Zend/zend_generators.c`).
    fn waiting_generator(&self, addr: RemoteAddr, bytes: &[u8]) -> Option<RemoteAddr> {
        let (table, zval) = (&self.offsets.execute_data, &self.offsets.zval);
        let is_object = u8_at(bytes, table.this + zval.type_info) == zval.is_object;
        if !addr_at(bytes, table.func).is_null() || !is_object {
            return None;
        }
        let generator = addr_at(bytes, table.this);
        (generator.offset(self.offsets.generator.execute_fake as u64) == addr).then_some(generator)
    }

    /// Pushes the frames of the generators from the one that `leaf` delegates to last, outwards to `leaf` itself.
    ///
    /// They were not copied together with the chain. They cannot move as long as the generator that runs for them is
    /// the one whose frame, `inner`, is on the chain: false if it is not.
    fn push_delegation<M: Memory + ?Sized>(
        &mut self,
        memory: &M,
        leaf: RemoteAddr,
        inner: Option<RemoteAddr>,
        seen: &mut Vec<Delegation>,
    ) -> Result<bool, ReadError> {
        let table = &self.offsets.generator;
        let len = frame_len(self.offsets);
        let mut waiting = Vec::new();
        let mut generator = leaf;
        for _ in 0..MAX_DELEGATION {
            let predicted = self.predicted.get(&generator).copied();
            let from = table.execute_data.min(table.node_parent);
            let mut node = [0; 128];
            let node_len = table.execute_data.max(table.node_parent) + 8 - from;
            let Some(node) = node.get_mut(..node_len) else { return Ok(false) };
            match predicted.and_then(|at| self.buffers.batch.get(2 * at)) {
                Some(bytes) if bytes.len() == node.len() => node.copy_from_slice(bytes),
                _ => {
                    if !read(memory, generator.offset(from as u64), node)? {
                        return Ok(false);
                    }
                }
            }
            let frame = addr_at(node, table.execute_data - from);
            let parent = addr_at(node, table.node_parent - from);
            seen.push((generator, frame));
            if parent.is_null() {
                // This one runs. It has no frame any more while it is being destroyed.
                let runs = frame.is_null() || inner.is_none_or(|inner| inner == frame);
                self.buffers.raw.extend(waiting.into_iter().rev());
                return Ok(runs);
            }
            let predicted =
                predicted.filter(|at| self.delegations.get(*at).is_some_and(|(_, known)| *known == frame));
            let mut copy = vec![0; len];
            match predicted.and_then(|at| self.buffers.batch.get(2 * at + 1)) {
                Some(bytes) if bytes.len() == len => copy.copy_from_slice(bytes),
                _ => {
                    if !read(memory, frame, &mut copy)? {
                        return Ok(false);
                    }
                }
            }
            let raw = self.raw(frame, &copy, false);
            if raw.func.addr.is_null() {
                return Ok(false);
            }
            waiting.push(raw);
            generator = parent;
        }
        Ok(false)
    }

    /// Reads the generators of the last sample.
    fn read_delegations<M: Memory + ?Sized>(&mut self, memory: &M) -> Result<(), ReadError> {
        let table = &self.offsets.generator;
        let from = table.execute_data.min(table.node_parent);
        let node_len = table.execute_data.max(table.node_parent) + 8 - from;
        let len = frame_len(self.offsets);
        self.buffers.batch.clear();
        self.predicted.clear();
        for (at, (generator, frame)) in self.delegations.iter().enumerate() {
            self.predicted.insert(*generator, at);
            self.buffers.batch.push(generator.offset(from as u64), node_len);
            self.buffers.batch.push(*frame, len);
        }
        self.buffers.batch.read(memory)
    }

    /// Functions are read after the frames. Those that come and go within a request may have gone meanwhile, and others may
    /// lie in their place. Looks whether the calls of such functions still go on, and those around them.
    fn doubtful_frames<M: Memory + ?Sized>(
        &mut self,
        memory: &M,
        functions: &Functions,
        executor: Executor,
    ) -> Result<Doubt, ReadError> {
        let doubtful = self.buffers.wanted.iter().position(|wanted| self.is_doubtful(functions, wanted));
        let Some(doubtful) = doubtful else { return Ok(Doubt::None) };
        for _ in 0..MAX_WALKS {
            match self.follow(memory, doubtful, executor)? {
                Call::GoesOn => return Ok(Doubt::Remain),
                Call::IsOver => break,
                Call::Lost => {}
            }
        }
        Ok(Doubt::Gone)
    }

    /// Whether the call that frame `last` is for still goes on, and those around it. The chain is followed from what is the
    /// innermost frame now, for what an ended call has left on the stack looks like its frame.
    ///
    /// Each frame is read after the one that leads to it: then the one that it leads to has been on the chain since the walk
    /// began, whatever is called and returns meanwhile.
    fn follow<M: Memory + ?Sized>(
        &mut self,
        memory: &M,
        last: usize,
        executor: Executor,
    ) -> Result<Call, ReadError> {
        // A generator that waits is not linked; the one that runs for it is.
        let Some(first) = (0..=last).rev().find(|at| self.buffers.raw[*at].linked) else {
            return Ok(Call::IsOver);
        };
        let len = frame_len(self.offsets);
        let previous = self.offsets.execute_data.prev_execute_data;
        let Buffers { batch, raw, .. } = &mut *self.buffers;
        batch.clear();
        let current = batch.push(executor.current_execute_data, 8);
        // The innermost frame first, which is the order in which they lead to each other.
        for raw in raw.iter() {
            batch.push(raw.addr, len);
        }
        batch.read(memory)?;
        if !self.are_as_then(first, last, current + 1) {
            return Ok(Call::IsOver);
        }
        let (batch, raw) = (&self.buffers.batch, &self.buffers.raw);
        let mut addr = batch.get(current).map_or(RemoteAddr::NULL, |bytes| addr_at(bytes, 0));
        let mut bytes = vec![0; len];
        // The first of the frames above `first` that has not been passed yet, unless a call that was made meanwhile came before.
        let mut next = Some(0);
        // Calls made meanwhile come first.
        for _ in 0..raw.len() + MAX_NEW_FRAMES {
            if addr == raw[first].addr {
                if next.is_some() {
                    return Ok(Call::GoesOn);
                }
                // It was copied before the frames that lead there now.
                return self.remain(memory, first, last);
            }
            let known = next.and_then(|next| (next..first).find(|at| raw[*at].addr == addr));
            next = known.map(|at| at + 1);
            addr = match known.and_then(|at| batch.get(current + 1 + at)) {
                Some(frame) => addr_at(frame, previous),
                None if !addr.is_null() && read(memory, addr, &mut bytes)? => addr_at(&bytes, previous),
                None => return Ok(Call::Lost),
            };
        }
        Ok(Call::Lost)
    }

    /// Reads frame `first` and those around it once more.
    fn remain<M: Memory + ?Sized>(
        &mut self,
        memory: &M,
        first: usize,
        last: usize,
    ) -> Result<Call, ReadError> {
        let len = frame_len(self.offsets);
        let Buffers { batch, raw, .. } = &mut *self.buffers;
        batch.clear();
        for raw in raw.iter() {
            batch.push(raw.addr, len);
        }
        batch.read(memory)?;
        Ok(if self.are_as_then(first, last, 0) { Call::GoesOn } else { Call::IsOver })
    }

    /// Whether frame `first` and those around it, which are the parts of the batch from `parts` on, are what they were. Who
    /// calls has not moved; who was called, up to frame `last`, may have.
    fn are_as_then(&self, first: usize, last: usize, parts: usize) -> bool {
        let Buffers { batch, raw, .. } = &*self.buffers;
        (first..raw.len()).all(|at| {
            let now = batch.get(parts + at).map(|bytes| self.raw(raw[at].addr, bytes, raw[at].linked));
            now.is_some_and(|now| {
                now == Raw { opline: now.opline, ..raw[at] } && (at <= last || now.opline == raw[at].opline)
            })
        })
    }

    /// Whether one frame can have called the other. One that was copied just before its call or just after the return may be
    /// linked to another that never called it: the engine's own bookkeeping tells.
    fn link_holds<M: Memory + ?Sized>(
        &self,
        memory: &M,
        code: &mut CodeCache,
        (callee, caller): (&Raw, &Raw),
        executor: Executor,
    ) -> Result<bool, ReadError> {
        let function = |raw: &Raw| code.functions.get(raw.func);
        let (Some(called), Some(calling)) = (function(callee), function(caller)) else { return Ok(true) };
        if callee.top || (called.kind == Kind::Internal && called.name == StringId::default()) {
            // Called by the engine, from wherever; the bottom of a fiber is no call at all.
            return Ok(true);
        }
        match calling.kind {
            // Functions of extensions call through the engine.
            Kind::Internal => return Ok(false),
            Kind::Unreadable => return Ok(true),
            Kind::User | Kind::Code if self.handles_exception(executor, caller) => return Ok(true),
            Kind::User | Kind::Code => {}
        }
        let Some(op) = self.op(caller, calling, executor) else { return Ok(false) };
        // Code returns its result into a variable of its caller, or nowhere. A call whose missing arguments are still being
        // computed has a frame that does not say it yet (`start_fake_frame` in `Zend/zend_execute.c`).
        let result = caller.addr.offset(u64::from(op.result_var));
        let has_begun = op.opcode != self.offsets.op.zend_check_undef_args;
        let by_code = matches!(called.kind, Kind::User | Kind::Code);
        if by_code && has_begun && !callee.return_value.is_null() && callee.return_value != result {
            return Ok(false);
        }
        let table = &self.offsets.op;
        let kind_fits = match called.kind {
            Kind::Unreadable => return Ok(true),
            Kind::Code => op.opcode == table.zend_include_or_eval || op.opcode == table.zend_user_opcode,
            Kind::User => self.calls(op.opcode) && op.opcode != table.zend_do_icall,
            Kind::Internal => self.calls(op.opcode) && op.opcode != table.zend_do_ucall,
        };
        match called.called {
            Some(name) if kind_fits && self.names_callee(op.opcode) => {
                let at = self.owners.place(caller.opline);
                code.calls.fits(memory, self.offsets, &self.owners, (calling, at, op), name)
            }
            _ => Ok(kind_fits),
        }
    }

    /// Whether an instruction belongs to a call that another one began by name.
    fn names_callee(&self, opcode: u8) -> bool {
        let table = &self.offsets.op;
        [
            table.zend_do_fcall,
            table.zend_do_icall,
            table.zend_do_ucall,
            table.zend_do_fcall_by_name,
            table.zend_check_undef_args,
        ]
        .contains(&opcode)
    }

    /// Whether an instruction puts a frame above its own without calling through the engine, which marks the frames that it
    /// makes as its own ([`Raw::top`]).
    fn calls(&self, opcode: u8) -> bool {
        let table = &self.offsets.op;
        [
            table.zend_do_fcall,
            table.zend_do_icall,
            table.zend_do_ucall,
            table.zend_do_fcall_by_name,
            table.zend_call_trampoline,
            // Defaults of arguments that a call with names has left out are computed in the frame of the callee.
            table.zend_check_undef_args,
            // Property hooks; since 8.4. Those of other instructions are called through the engine.
            table.zend_fetch_obj_r,
            table.zend_fetch_obj_func_arg,
            // Put in the place of any of these by extensions.
            table.zend_user_opcode,
        ]
        .contains(&opcode)
    }

    /// Whether each frame's function is one that has the frame's instruction, or was none in an earlier sample either.
    fn can_be_shown(&self, functions: &Functions) -> bool {
        self.buffers.wanted.iter().all(|wanted| {
            functions.get(wanted.func).is_some_and(|function| {
                function.is_readable(self.offsets, wanted) || function.is_unreadable_for_long()
            })
        })
    }

    /// Whether the function of a frame looks as if it had gone.
    fn is_doubtful(&self, functions: &Functions, wanted: &Wanted) -> bool {
        functions.get(wanted.func).is_none_or(|function| function.is_doubtful(self.offsets, wanted))
    }

    /// Whether the function of a frame is still the one that the frame was of.
    fn is_of_moment(&self, functions: &Functions, wanted: &Wanted) -> bool {
        functions.get(wanted.func).is_some_and(|function| function.is_of_moment(self.offsets, wanted))
    }

    fn handles_exception(&self, executor: Executor, raw: &Raw) -> bool {
        let past = raw.opline.0.wrapping_sub(executor.exception_op.0);
        past < self.offsets.executor_globals.exception_op_len as u64
    }

    /// The instruction that a frame is at.
    fn op(&self, raw: &Raw, function: &Function, executor: Executor) -> Option<Opline> {
        let opline = if self.handles_exception(executor, raw) { executor.opline_before } else { raw.opline };
        function.op(opline)
    }

    /// Finds out which frames are at a frameless call that has not begun or is over, although something has been called from
    /// there. False if that has returned by now.
    ///
    /// An argument of the call is undefined then: before it, the handler runs for the warning that says so; after it, the
    /// first argument is marked like this and freed, and its destructor may run (`ZEND_FRAMELESS_ICALL_1` in
    /// `Zend/zend_vm_def.h`). `debug_backtrace()` decides by the same (`zend_fetch_debug_backtrace` in
    /// `Zend/zend_builtin_functions.c`).
    fn find_idle_frameless<M: Memory + ?Sized>(
        &mut self,
        memory: &M,
        functions: &Functions,
        unknown: usize,
        executor: Executor,
    ) -> Result<bool, ReadError> {
        self.idle_frameless.clear();
        let (table, zval) = (&self.offsets.op, &self.offsets.zval);
        let Some(first) = table.zend_frameless_icall_0 else { return Ok(true) };
        let Buffers { batch, raw, .. } = &mut *self.buffers;
        batch.clear();
        let mut calls = Vec::new();
        // The innermost frame has called nothing.
        for (at, raw) in raw.iter().enumerate().take(unknown).skip(1) {
            let op = functions.get(raw.func).and_then(|function| function.op(raw.opline));
            if let Some(op) = op.filter(|op| frameless_call(self.offsets, *op).is_some()) {
                // The third argument is in another instruction, behind the first.
                let part = batch.push(raw.opline, 2 * table.size);
                calls.push((at, usize::from(op.opcode - first), part));
            }
        }
        let Some(innermost) = calls.first().map(|(at, ..)| *at) else { return Ok(true) };
        batch.read(memory)?;
        let mut vars = Vec::new();
        for (at, count, part) in calls {
            let Some(code) = batch.get(part) else { return Ok(false) };
            let operands = [
                (table.op1_type, table.op1_var),
                (table.op2_type, table.op2_var),
                (table.size + table.op1_type, table.size + table.op1_var),
            ];
            let in_frame =
                operands.iter().take(count).filter(|(kind, _)| u8_at(code, *kind) != table.is_const);
            vars.extend(in_frame.map(|(_, var)| (at, raw[at].addr.offset(u64::from(u32_at(code, *var))))));
        }
        batch.clear();
        for (_, var) in &vars {
            batch.push(var.offset(zval.type_info as u64), 1);
        }
        batch.read(memory)?;
        for (part, (at, _)) in vars.iter().enumerate() {
            match batch.get(part) {
                Some([kind]) if *kind == zval.is_undef => self.idle_frameless.push(*at),
                Some(_) => {}
                None => return Ok(false),
            }
        }
        Ok(self.follow(memory, innermost - 1, executor)? == Call::GoesOn)
    }

    /// Reads the names of the functions that frames call without a frame. False if what was read no longer belongs to the
    /// chain.
    fn resolve_frameless<M: Memory + ?Sized>(
        &mut self,
        memory: &M,
        interner: &mut Interner,
        code: &mut CodeCache,
        unknown: usize,
        executor: Executor,
        moment: &Moment,
    ) -> Result<bool, ReadError> {
        if !self.find_idle_frameless(memory, &code.functions, unknown, executor)? {
            return Ok(false);
        }
        self.buffers.wanted.clear();
        let mut calls = Vec::new();
        for raw in &self.buffers.raw[..unknown] {
            let op = code.functions.get(raw.func).and_then(|function| function.op(raw.opline));
            calls.extend(op.and_then(|op| frameless_call(self.offsets, op)));
        }
        for call in calls {
            let func = match self.frameless_functions.get(&call) {
                Some(func) => *func,
                None => {
                    // `zend_flf_functions[call]`, filled once when PHP starts.
                    let func = read_u64(memory, self.frameless)
                        .and_then(|array| read_u64(memory, RemoteAddr(array).offset(u64::from(call) * 8)));
                    let func = match func {
                        Ok(func) => RemoteAddr(func),
                        Err(ReadError::Unmapped { .. }) => RemoteAddr::NULL,
                        Err(error) => return Err(error),
                    };
                    self.frameless_functions.insert(call, func);
                    func
                }
            };
            if !func.is_null() {
                let func = self.owners.place(func);
                self.buffers.wanted.push(Wanted { func, opline: RemoteAddr::NULL, exact: false });
            }
        }
        code.functions.resolve(memory, interner, &self.buffers.wanted, moment)
    }

    /// Appends frame `at` of the raw ones to the stack that `node` stands for, if it is one that PHP would show, and
    /// remembers it if it is always shown like this.
    #[allow(clippy::too_many_arguments, reason = "what a frame depends on")]
    fn name_frame<M: Memory + ?Sized>(
        &mut self,
        memory: &M,
        interner: &mut Interner,
        code: &mut CodeCache,
        (node, at): (Node, usize),
        executor: Executor,
        texts: Texts,
        is_plain: bool,
    ) -> Result<Node, ReadError> {
        let raw = self.buffers.raw[at];
        let functions = &code.functions;
        let Some(function) = functions.get(raw.func) else { return Ok(Node::aside(node.stack, node.script)) };
        let op = self.op(&raw, function, executor);
        let line = op.map_or(0, |op| op.lineno);
        let including = self.including(functions, at, executor);
        // What the engine calls while it opens or compiles a file: stream wrappers, autoloaders.
        let opening = match function.kind {
            Kind::Internal | Kind::User if function.name != StringId::default() => including,
            _ => None,
        };
        let internal = |name| Frame { kind: FrameKind::PhpInternal, name, ..Frame::default() };
        let frame = match function.kind {
            Kind::Unreadable => {
                Some(Frame { kind: FrameKind::Marker, name: texts.unreadable, ..Frame::default() })
            }
            // A placeholder of the engine: the bottom of a fiber, the constructor of a class that has none.
            Kind::Internal if function.name == StringId::default() => None,
            Kind::Internal => Some(internal(function.name)),
            Kind::User | Kind::Code => Some(Frame {
                kind: FrameKind::Php,
                name: match (function.kind, including) {
                    (Kind::User, _) => function.name,
                    (_, Some(kind)) => self.construct(kind, texts),
                    (_, None) if at + 1 == self.buffers.raw.len() => texts.main,
                    // Included by a function of an extension: an autoloader without a function of its own.
                    (_, None) => texts.include,
                },
                file: function.file,
                first_line: function.line_start,
                line,
            }),
        };
        let frameless = match op.and_then(|op| frameless_call(self.offsets, op)) {
            // An exception has ended it.
            Some(_) if self.handles_exception(executor, &raw) => None,
            Some(call) => match self.frameless_functions.get(&call).map(|func| self.owners.place(*func)) {
                Some(func) if self.runs_frameless(memory, at, func, op)? => {
                    functions.get(func).map(|function| function.name)
                }
                _ => None,
            },
            None => None,
        };
        let shown =
            [opening.map(|kind| internal(self.construct(kind, texts))), frame, frameless.map(internal)];
        let (mut stack, mut script) = (node.stack, node.script);
        // The engine calls its loop for code that is not called by code, a generator that waits for another one excepted.
        let is_entry = raw.top && raw.linked && matches!(function.kind, Kind::User | Kind::Code);
        for (number, frame) in shown.into_iter().enumerate() {
            if let Some(steps) = self.steps.as_mut().filter(|_| number == 1 && is_entry) {
                steps.push(Step::Entry);
            }
            let Some(frame) = frame else { continue };
            if stack == StackId(0) {
                script = frame.file;
            }
            let frame = interner.frame(frame);
            stack = interner.push(stack, frame);
            if let Some(steps) = &mut self.steps {
                steps.push(Step::Frame(frame));
            }
        }
        let is_frameless = op.is_some_and(|op| frameless_call(self.offsets, op).is_some());
        let remember = is_plain
            && !is_frameless
            && !self.handles_exception(executor, &raw)
            && function.lasts(self.offsets, raw.opline);
        Ok(if remember {
            code.paths.add(&self.owners, (node, (stack, script)), &self.look(at), function)
        } else {
            Node::aside(stack, script)
        })
    }

    /// Whether frame `at`, whose stored opline is a frameless call, is still in it.
    ///
    /// It is, if it has called back into PHP with all its arguments. The innermost frame may be long past it, with the opline
    /// of the call still stored. While such a call runs its result is null (`ZEND_FRAMELESS_ICALL_1` in
    /// `Zend/zend_vm_def.h`), and it nearly always returns something else, so the result tells. It is read a few
    /// microseconds after the frames: what it answers is true of that moment.
    fn runs_frameless<M: Memory + ?Sized>(
        &self,
        memory: &M,
        at: usize,
        called: CodeAddr,
        op: Option<Opline>,
    ) -> Result<bool, ReadError> {
        if let Some(inner) = at.checked_sub(1).and_then(|inner| self.buffers.raw.get(inner)) {
            // An observer gives the call a frame of its own.
            return Ok(inner.func != called && !self.idle_frameless.contains(&at));
        }
        let result = self.buffers.raw[at].addr.offset(u64::from(op.map_or(0, |op| op.result_var)));
        let zval = &self.offsets.zval;
        let mut type_info = [0];
        Ok(read(memory, result.offset(zval.type_info as u64), &mut type_info)?
            && type_info[0] == zval.is_null)
    }

    /// The kind of include that the caller of frame `at` is executing.
    fn including(&self, functions: &Functions, at: usize, executor: Executor) -> Option<u32> {
        let caller = self.buffers.raw.get(at + 1)?;
        let op = self.op(caller, functions.get(caller.func)?, executor)?;
        (op.opcode == self.offsets.op.zend_include_or_eval).then_some(op.extended_value)
    }

    /// The name of a kind of include.
    fn construct(&self, kind: u32, texts: Texts) -> StringId {
        let table = &self.offsets.op;
        match kind {
            kind if kind == table.zend_eval => texts.eval,
            kind if kind == table.zend_include_once => texts.include_once,
            kind if kind == table.zend_require => texts.require,
            kind if kind == table.zend_require_once => texts.require_once,
            _ => texts.include,
        }
    }
}

impl Texts {
    fn new(interner: &mut Interner) -> Self {
        Self {
            main: interner.string("{main}"),
            unreadable: interner.string("[unreadable]"),
            eval: interner.string("eval"),
            include: interner.string("include"),
            include_once: interner.string("include_once"),
            require: interner.string("require"),
            require_once: interner.string("require_once"),
        }
    }
}

/// The number of the frameless function that an instruction calls.
fn frameless_call(offsets: &Offsets, op: Opline) -> Option<u32> {
    let first = offsets.op.zend_frameless_icall_0?;
    // ZEND_FRAMELESS_ICALL_0 to _3: one for each number of arguments.
    let calls = (first..=first.saturating_add(3)).contains(&op.opcode);
    (calls && op.extended_value < MAX_FRAMELESS).then_some(op.extended_value)
}

/// Reads into `buf`; false if that is not mapped.
fn read<M: Memory + ?Sized>(memory: &M, addr: RemoteAddr, buf: &mut [u8]) -> Result<bool, ReadError> {
    match memory.read(addr, buf) {
        Ok(()) => Ok(true),
        Err(ReadError::Unmapped { .. }) => Ok(false),
        Err(error) => Err(error),
    }
}
