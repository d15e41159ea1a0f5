//! What is known about functions, and how long it may be believed.
//!
//! A frame names its function by address. What lies at that address changes: without opcache every request compiles
//! into the memory of the one before, at the very same addresses if the scripts have the same shape; closures and
//! included files come and go within a request, with opcache too. So what was read once is believed by this rule:
//!
//! | lives | which | believed |
//! |---|---|---|
//! | [`Lifetime::Persistent`] | functions of extensions; functions in opcache's memory | until opcache starts anew |
//! | [`Lifetime::SharedCode`] | a copy in request memory (included file) of code in opcache's memory | as above, if the frame's opline lies in that code |
//! | [`Lifetime::Bound`] | the same of a closure | never: the same code may be bound to another class next, and to none while it is made |
//! | [`Lifetime::Request`] | functions and methods declared in request memory: freed at its end, never before | while the request is proven to be the same |
//! | [`Lifetime::Volatile`] | all else: closures, included files and `eval` without opcache, trampolines | never: read again for each sample |
//!
//! And always: the frame's opline, where it is known to be exact, lies within the function's code. Reading again is one
//! batch: the function's header and its texts are compared with the last time. The proof ([`Proof`]) is a value that the
//! engine sets anew for each request; it was copied together with the frames, and is read once more behind whatever is
//! read later. Without a proof (PHP 8.2 without opcache, before the script has used `$_SERVER`) everything in request
//! memory is volatile.
//!
//! Of a stack that was copied some time ago, copies in request memory may be gone before anybody asks what they were. The
//! code that they are copies of is still there, and known by the range that its instructions lie in ([`Functions::of_code`]).
//!
//! The same function of another process is a guess that saves reading it bit by bit: its header and texts are compared
//! with what lies there in one batch, as when reading again. Shared code (`code.rs`) is read once for all processes.

use std::collections::hash_map::Entry;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use slip_model::{Interner, StringId};
use slip_remote::{Memory, Range, ReadError, RemoteAddr};

use crate::bytes::{AddrHash, Batch, ByAddr, addr_at, u8_at, u32_at, u64_at};
use crate::calls::hash_of_name;
use crate::code::{CodeAddr, Owner, Owners};
use crate::offsets::{MmHeap, Offsets};
use crate::strings::{MAX_NAME_BYTES, MAX_PATH_BYTES, class_name, text};

/// Most functions that are remembered, of all processes together; then all are forgotten. About 0.5 KiB each.
const MAX_FUNCTIONS: usize = 65_536;

/// Most opcodes that are remembered; then all are forgotten.
const MAX_OPS: usize = 524_288;

/// Most opcodes of one function that we believe: a longer one is no function.
const MAX_OPS_OF_FUNCTION: u32 = 1 << 24;

/// A function as a frame names it, and what the frame was executing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Wanted {
    pub(crate) func: CodeAddr,
    /// Null if no opline is to be looked up.
    pub(crate) opline: RemoteAddr,
    /// The opline is certainly an instruction of this function, if it is one of PHP's.
    pub(crate) exact: bool,
}

/// Evidence that two samples saw the same request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Proof {
    /// Equal values: the same request. `None`: nobody knows.
    pub(crate) value: Option<u64>,
    /// Where the value can be read again; `None` if it cannot change.
    pub(crate) place: Option<RemoteAddr>,
}

/// What a sample knows of its moment.
#[derive(Clone, Debug)]
pub(crate) struct Moment {
    pub(crate) offsets: &'static Offsets,
    pub(crate) owners: Arc<Owners>,
    pub(crate) proof: Proof,
    /// The heap of request memory; null if it is unknown.
    pub(crate) heap: RemoteAddr,
}

/// How long what was read stays true. See the top of this file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lifetime {
    Persistent,
    SharedCode,
    Bound,
    Request,
    Volatile,
}

/// The part of `zend_function` that never changes while the function lives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Header {
    kind: u8,
    fn_flags: u32,
    function_name: RemoteAddr,
    scope: RemoteAddr,
    opcodes: RemoteAddr,
    last: u32,
    filename: RemoteAddr,
    line_start: u32,
    line_end: u32,
}

/// One `zend_op`, as far as we need it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Opline {
    pub(crate) opcode: u8,
    pub(crate) lineno: u32,
    pub(crate) extended_value: u32,
    pub(crate) result_var: u32,
}

/// What kind of thing is executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Kind {
    /// Implemented in C; without a name it is one of the engine's own placeholders.
    Internal,
    /// A function, method or closure written in PHP.
    User,
    /// Top-level code of a file or of `eval`.
    Code,
    /// What lies there is not a function.
    Unreadable,
}

/// A function that has been read.
#[derive(Debug)]
pub(crate) struct Function {
    pub(crate) kind: Kind,
    /// `name` or `Class::name`; empty for top-level code and placeholders.
    pub(crate) name: StringId,
    /// Empty for internal functions.
    pub(crate) file: StringId,
    pub(crate) line_start: u32,
    /// What call sites call it; `None` if they call it by another name.
    pub(crate) called: Option<u64>,
    header: Header,
    /// Texts as they were read, and where.
    texts: Vec<(RemoteAddr, Vec<u8>)>,
    lifetime: Lifetime,
    /// Only expected: so it is in another process.
    is_expected: bool,
    proof: Option<u64>,
    /// The sample that found this here.
    first_round: u64,
    /// The sample that checked it last.
    round: u64,
    /// The call of [`Functions::resolve`] that compares it with the target.
    verified_by: u64,
    ops: ByAddr<Opline>,
}

impl Function {
    /// The same function where it has not been read yet.
    fn elsewhere(&self, lifetime: Lifetime, (round, call): (u64, u64)) -> Self {
        Self {
            kind: self.kind,
            name: self.name,
            file: self.file,
            line_start: self.line_start,
            called: self.called,
            header: self.header,
            texts: self.texts.clone(),
            lifetime,
            is_expected: true,
            proof: None,
            first_round: round,
            round,
            verified_by: call,
            ops: ByAddr::default(),
        }
    }

    /// Whether an earlier sample found nothing here either.
    pub(crate) fn is_unreadable_for_long(&self) -> bool {
        self.kind == Kind::Unreadable && self.first_round < self.round
    }

    /// Whether it is a function, and one that fits its frame.
    pub(crate) fn is_readable(&self, offsets: &Offsets, wanted: &Wanted) -> bool {
        self.kind != Kind::Unreadable && (!wanted.exact || within(offsets, self, wanted.opline))
    }

    /// Whether frames of this function at `opline` will be named the same whenever they come up.
    pub(crate) fn lasts(&self, offsets: &Offsets, opline: RemoteAddr) -> bool {
        match self.lifetime {
            _ if self.kind == Kind::Unreadable => false,
            Lifetime::Persistent => true,
            Lifetime::SharedCode => !opline.is_null() && within(offsets, self, opline),
            Lifetime::Bound | Lifetime::Request | Lifetime::Volatile => false,
        }
    }

    /// Whether what was read may be what lies there after the function has gone. What is read anew in each sample always
    /// may.
    pub(crate) fn is_doubtful(&self, offsets: &Offsets, wanted: &Wanted) -> bool {
        let elsewhere = !within(offsets, self, wanted.opline);
        let new = self.first_round == self.round;
        match self.lifetime {
            _ if self.kind == Kind::Unreadable => true,
            Lifetime::Volatile | Lifetime::Bound => true,
            Lifetime::SharedCode => new && elsewhere,
            Lifetime::Request | Lifetime::Persistent => false,
        }
    }

    /// Whether this is the function that a frame was of at an earlier moment: its code has the instruction at which the frame
    /// stood. Code is never shared by functions of different names, and other code takes the place of code that has gone
    /// only where programs compile in a loop. Functions without code that come and go cannot be told apart.
    pub(crate) fn is_of_moment(&self, offsets: &Offsets, wanted: &Wanted) -> bool {
        match self.kind {
            Kind::Unreadable => false,
            Kind::Internal => self.lifetime != Lifetime::Volatile,
            // The innermost function may not have stored an instruction of its own yet.
            Kind::User | Kind::Code => !wanted.exact || within(offsets, self, wanted.opline),
        }
    }

    /// First instruction.
    pub(crate) fn opcodes(&self) -> RemoteAddr {
        self.header.opcodes
    }

    /// The instruction at `addr`, if it is one of this function's.
    pub(crate) fn op(&self, addr: RemoteAddr) -> Option<Opline> {
        self.ops.get(&addr).copied()
    }
}

/// All functions seen lately.
#[derive(Debug, Default)]
pub(crate) struct Functions {
    entries: HashMap<CodeAddr, Function, AddrHash>,
    /// By address alone, the function of a process that was read last: workers come from one master, so most functions of
    /// extensions lie where they lie in the others.
    by_addr: ByAddr<CodeAddr>,
    /// By the address of shared code, a function that has this code.
    by_code: HashMap<CodeAddr, CodeAddr, AddrHash>,
    /// First instructions of shared code that is a function of its own, whoever has a copy of it. `entries` has it there.
    codes: BTreeSet<CodeAddr>,
    ops: usize,
    round: u64,
    call: u64,
    /// What this round has read.
    new: Vec<CodeAddr>,
    batch: Batch,
    /// Functions to be read, each once.
    loading: HashSet<CodeAddr, AddrHash>,
    /// Oplines to be read, each once for each function, and which part of the batch they are: closures made at the same
    /// place are functions of their own that have their code in common (`zend_create_closure` in `Zend/zend_closures.c`).
    pending: HashSet<(CodeAddr, RemoteAddr), AddrHash>,
    op_reads: Vec<(Wanted, usize)>,
}

/// A function that is being read.
#[derive(Debug, Default)]
struct Load {
    func: CodeAddr,
    /// Where the frame is in it, or was when its frames were copied.
    opline: RemoteAddr,
    header: Header,
    class_name: RemoteAddr,
    parts: [usize; 4],
    name_len: usize,
    file_len: usize,
    class_len: usize,
    in_chunk: bool,
    texts: Vec<(RemoteAddr, Vec<u8>)>,
    name: Vec<u8>,
    file: Vec<u8>,
    class: Vec<u8>,
    /// The header was the same before its texts were read and after: it is not half of what was there before.
    is_whole: bool,
}

impl Load {
    fn new(want: Wanted, header: Option<Header>) -> Self {
        let header = header.unwrap_or_default();
        Self { func: want.func, opline: want.opline, header, ..Self::default() }
    }
}

impl Functions {
    /// The function at `func`, if [`Functions::resolve`] was asked for it in this sample.
    pub(crate) fn get(&self, func: CodeAddr) -> Option<&Function> {
        self.entries.get(&func).filter(|function| function.round == self.round && !function.is_expected)
    }

    /// The function that an instruction belongs to, if it lies in shared code that has one name, whoever has a copy of it: files,
    /// and functions that are neither closures nor methods. `None` if it has not been read yet.
    pub(crate) fn of_code(&self, offsets: &Offsets, owners: &Owners, opline: RemoteAddr) -> Option<CodeAddr> {
        let place = owners.place(opline);
        let code = owners.is_shared(place).then(|| self.codes.range(..=place).next_back().copied())??;
        let function = self.entries.get(&code).filter(|_| code.owner == place.owner)?;
        within(offsets, function, opline).then_some(code)
    }

    /// The instruction at `opline`, if it lies in memory that processes share, where none changes, and was read for `func`.
    pub(crate) fn shared_op(&self, owners: &Owners, func: CodeAddr, opline: RemoteAddr) -> Option<Opline> {
        owners.is_shared(owners.place(opline)).then(|| self.entries.get(&func)?.op(opline))?
    }

    /// Begins a sample: what the last one checked has to prove itself again.
    pub(crate) fn begin(&mut self) {
        self.round += 1;
        self.new.clear();
        if self.entries.len() > MAX_FUNCTIONS || self.ops > MAX_OPS {
            self.clear();
        }
    }

    /// Forgets everything.
    pub(crate) fn clear(&mut self) {
        self.entries.clear();
        self.by_addr.clear();
        self.by_code.clear();
        self.codes.clear();
        self.ops = 0;
    }

    /// Forgets the functions in the memory of a process that has ended.
    pub(crate) fn forget(&mut self, owner: Owner) {
        self.entries.retain(|func, _| func.owner != owner);
        self.ops = self.entries.values().map(|function| function.ops.len()).sum();
    }

    /// Forgets what this sample has read: it may be a mixture of what was there and what came after it.
    pub(crate) fn forget_new(&mut self) {
        for func in self.new.drain(..) {
            if let Entry::Occupied(entry) = self.entries.entry(func)
                && entry.get().first_round == self.round
            {
                self.ops -= entry.remove().ops.len();
            }
        }
    }

    /// Makes sure that everything wanted is known and still true.
    ///
    /// False if the request ended meanwhile: what was read then does not belong to the frames.
    ///
    /// # Errors
    ///
    /// [`ReadError::Gone`] and [`ReadError::Denied`]; what is unreadable becomes [`Kind::Unreadable`].
    pub(crate) fn resolve<M: Memory + ?Sized>(
        &mut self,
        memory: &M,
        interner: &mut Interner,
        wanted: &[Wanted],
        moment: &Moment,
    ) -> Result<bool, ReadError> {
        let (mut verify, mut load) = (Vec::new(), Vec::new());
        self.pending.clear();
        self.loading.clear();
        self.op_reads.clear();
        self.call += 1;
        let offsets = moment.offsets;
        let mut batch = std::mem::take(&mut self.batch);
        batch.clear();
        for want in wanted {
            let op_needed = match self.entries.get_mut(&want.func) {
                Some(entry) => {
                    let fits = !want.exact || within(offsets, entry, want.opline);
                    let verifying = entry.verified_by == self.call;
                    // What may have gone at any moment is read again with each look of a sample.
                    let comes_and_goes = matches!(entry.lifetime, Lifetime::Volatile | Lifetime::Bound);
                    let checked = entry.round == self.round
                        && !entry.is_expected
                        && entry.kind != Kind::Unreadable
                        && fits
                        && (verifying || !comes_and_goes);
                    if !checked && !verifying && !is_fresh(entry, want, moment) {
                        entry.verified_by = self.call;
                        verify.push(*want);
                    }
                    entry.round = self.round;
                    // One that is looked at anew may turn out to be other code, whose instruction is wanted then.
                    entry.verified_by == self.call
                        || entry.kind != Kind::Internal
                            && within(offsets, entry, want.opline)
                            && !entry.ops.contains_key(&want.opline)
                }
                None => {
                    let known = self.by_addr.get(&want.func.addr).and_then(|func| self.entries.get(func));
                    if let Some(known) = known {
                        let expected = known.elsewhere(known.lifetime, (self.round, self.call));
                        self.entries.insert(want.func, expected);
                        self.new.push(want.func);
                        verify.push(*want);
                    } else if self.loading.insert(want.func) {
                        load.push(*want);
                    }
                    true
                }
            };
            if op_needed && !want.opline.is_null() && self.pending.insert((want.func, want.opline)) {
                self.op_reads.push((*want, 0));
            }
        }
        if verify.is_empty() && load.is_empty() && self.op_reads.is_empty() {
            self.batch = batch;
            return Ok(true);
        }
        let result = self.refresh(memory, interner, &mut batch, &verify, load, moment);
        self.batch = batch;
        result
    }

    fn refresh<M: Memory + ?Sized>(
        &mut self,
        memory: &M,
        interner: &mut Interner,
        batch: &mut Batch,
        verify: &[Wanted],
        load: Vec<Wanted>,
        moment: &Moment,
    ) -> Result<bool, ReadError> {
        let offsets = moment.offsets;
        let header_len = offsets.function.line_end + 4;
        let mut firsts = Vec::with_capacity(verify.len());
        for want in verify {
            firsts.push(batch.push(want.func.addr, header_len));
            for (addr, bytes) in self.entries.get(&want.func).map_or(&[][..], |entry| &entry.texts) {
                batch.push(*addr, bytes.len());
            }
        }
        let load: Vec<(Wanted, usize)> =
            load.into_iter().map(|want| (want, batch.push(want.func.addr, header_len))).collect();
        let op_from = offsets.op.result_var;
        for (want, part) in &mut self.op_reads {
            *part = batch.push(want.opline.offset(op_from as u64), offsets.op.size - op_from);
        }
        let proof = moment.proof.place.map(|place| batch.push(place, 8));
        batch.read(memory)?;
        let same_request = proof.is_none_or(|part| proves(batch, part, moment));

        let mut loads = Vec::new();
        for (want, first) in verify.iter().zip(firsts) {
            let header = batch.get(first).map(|bytes| header(offsets, bytes));
            let Some(entry) = self.entries.get_mut(&want.func) else { continue };
            let same_texts = || {
                let parts = (first + 1..).zip(&entry.texts);
                parts.into_iter().all(|(part, (_, bytes))| batch.get(part) == Some(bytes))
            };
            // An unreadable function is tried again each time.
            let same = entry.kind != Kind::Unreadable && header == Some(entry.header) && same_texts();
            self.ops -= entry.ops.len();
            entry.ops.clear();
            if same {
                // What was read after the request ended is true, but not of this request.
                entry.proof = if same_request { moment.proof.value } else { None };
                entry.is_expected = false;
            } else {
                loads.push(Load::new(*want, header));
            }
        }
        for (want, part) in load {
            loads.push(Load::new(want, batch.get(part).map(|bytes| header(offsets, bytes))));
        }
        loads.retain(|load| !self.adopt(load, moment));
        let op_reads = std::mem::take(&mut self.op_reads);
        let ops: Vec<(Wanted, Option<Opline>)> = op_reads
            .iter()
            .map(|(want, part)| (*want, batch.get(*part).map(|bytes| opline(offsets, bytes))))
            .collect();
        self.op_reads = op_reads;
        let loaded =
            same_request && (loads.is_empty() || self.load(memory, interner, batch, loads, moment)?);
        if !loaded {
            return Ok(false);
        }
        for (want, op) in ops {
            let Some(entry) = self.entries.get_mut(&want.func) else { continue };
            if let Some(op) = op
                && within(offsets, entry, want.opline)
                && entry.ops.insert(want.opline, op).is_none()
            {
                self.ops += 1;
            }
        }
        Ok(true)
    }

    /// Takes the texts of a function from another one whose code is the same and which has them in the same shared memory.
    /// False if there is none.
    fn adopt(&mut self, load: &Load, moment: &Moment) -> bool {
        let code = moment.owners.place(load.header.opcodes);
        let is_shared = |addr: RemoteAddr| moment.owners.is_shared(moment.owners.place(addr));
        let known = self.by_code.get(&code).and_then(|func| self.entries.get(func));
        let Some(known) = known.filter(|known| {
            known.header == load.header
                && !known.is_expected
                && matches!(known.lifetime, Lifetime::SharedCode | Lifetime::Bound)
                && known.texts.iter().all(|(addr, _)| is_shared(*addr))
        }) else {
            return false;
        };
        let mut function = known.elsewhere(known.lifetime, (self.round, self.call));
        function.is_expected = false;
        function.proof = moment.proof.value;
        // Read twice now, and the same both times.
        self.note_code(&function, moment);
        self.insert(load.func, function);
        true
    }

    /// Remembers what the code of a function in request memory is, beyond the life of that copy.
    fn note_code(&mut self, function: &Function, moment: &Moment) {
        let is_shared = |addr: RemoteAddr| moment.owners.is_shared(moment.owners.place(addr));
        let code = moment.owners.place(function.header.opcodes);
        if function.lifetime == Lifetime::SharedCode
            && function.texts.iter().all(|(addr, _)| is_shared(*addr))
            && self.codes.insert(code)
        {
            let mut function = function.elsewhere(Lifetime::Persistent, (self.round, self.call));
            function.is_expected = false;
            self.entries.insert(code, function);
        }
    }

    fn insert(&mut self, func: CodeAddr, function: Function) {
        self.new.push(func);
        if let Some(old) = self.entries.insert(func, function) {
            self.ops -= old.ops.len();
        }
    }

    /// Reads functions that are new or have changed. Their headers are there; texts and class names follow, level by
    /// level, each level in one batch.
    fn load<M: Memory + ?Sized>(
        &mut self,
        memory: &M,
        interner: &mut Interner,
        batch: &mut Batch,
        mut loads: Vec<Load>,
        moment: &Moment,
    ) -> Result<bool, ReadError> {
        let offsets = moment.offsets;
        let head_len = offsets.string.val;
        let chunk = |addr: RemoteAddr| RemoteAddr(addr.0 & !(MmHeap::CHUNK_BYTES - 1));

        batch.clear();
        for load in &mut loads {
            load.parts = [
                batch.push(load.header.function_name, head_len),
                batch.push(load.header.filename, head_len),
                batch.push(pointee(load.header.scope, offsets.class_entry.name), 8),
                batch.push(chunk(load.func.addr), 8),
            ];
        }
        batch.read(memory)?;
        for load in &mut loads {
            let len = |part: usize, limit: usize| {
                batch.get(part).map_or(0, |head| {
                    // One byte more than we keep tells that the text goes on.
                    usize::try_from(u64_at(head, offsets.string.len)).unwrap_or(usize::MAX).min(limit + 1)
                })
            };
            load.name_len = len(load.parts[0], MAX_NAME_BYTES);
            load.file_len = len(load.parts[1], MAX_PATH_BYTES);
            load.class_name = batch.get(load.parts[2]).map_or(RemoteAddr::NULL, |bytes| addr_at(bytes, 0));
            load.in_chunk = batch
                .get(load.parts[3])
                .is_some_and(|bytes| addr_at(bytes, 0) == moment.heap && !moment.heap.is_null());
        }

        // Length and text together: what is compared later must not end where the text used to end.
        let text_range = |string: RemoteAddr, len: usize| {
            Range::new(pointee(string, offsets.string.len), head_len - offsets.string.len + len)
        };
        batch.clear();
        for load in &mut loads {
            let name = text_range(load.header.function_name, load.name_len);
            let file = text_range(load.header.filename, load.file_len);
            load.parts[0] = batch.push(name.addr, name.len);
            load.parts[1] = batch.push(file.addr, file.len);
            load.parts[2] = batch.push(load.class_name, head_len);
        }
        batch.read(memory)?;
        let text_at = head_len - offsets.string.len;
        for load in &mut loads {
            for (part, string, out) in [
                (load.parts[0], load.header.function_name, &mut load.name),
                (load.parts[1], load.header.filename, &mut load.file),
            ] {
                if let Some(bytes) = batch.get(part) {
                    load.texts.push((pointee(string, offsets.string.len), bytes.to_vec()));
                    out.extend_from_slice(bytes.get(text_at..).unwrap_or_default());
                }
            }
            load.class_len = batch.get(load.parts[2]).map_or(0, |head| {
                usize::try_from(u64_at(head, offsets.string.len))
                    .unwrap_or(usize::MAX)
                    .min(MAX_NAME_BYTES + 1)
            });
        }

        batch.clear();
        for load in &mut loads {
            let class = text_range(load.class_name, load.class_len);
            load.parts[0] = batch.push(class.addr, class.len);
            load.parts[1] = batch.push(load.func.addr, offsets.function.line_end + 4);
        }
        let proof = moment.proof.place.map(|place| batch.push(place, 8));
        batch.read(memory)?;
        for load in &mut loads {
            if let Some(bytes) = batch.get(load.parts[0]) {
                let class = load.class_name.0.to_le_bytes().to_vec();
                load.texts.push((pointee(load.header.scope, offsets.class_entry.name), class));
                load.texts.push((pointee(load.class_name, offsets.string.len), bytes.to_vec()));
                load.class.extend_from_slice(class_name(bytes.get(text_at..).unwrap_or_default()));
            }
            load.is_whole = batch.get(load.parts[1]).map(|bytes| header(offsets, bytes)) == Some(load.header);
        }
        if proof.is_some_and(|part| !proves(batch, part, moment)) {
            return Ok(false);
        }
        for load in loads {
            let (func, opline, is_whole) = (load.func, load.opline, load.is_whole);
            let mut function = self.finish(load, interner, moment);
            if let (Some(old), Kind::Unreadable) = (self.entries.get_mut(&func), function.kind) {
                if old.kind == Kind::Unreadable {
                    function.first_round = old.first_round;
                } else if old.proof.is_some()
                    && old.proof == moment.proof.value
                    && !opline.is_null()
                    && within(offsets, old, opline)
                {
                    // A closure that has gone since its frame was copied; the frame was in its code.
                    continue;
                }
            }
            if function.lifetime == Lifetime::Persistent && !moment.owners.is_shared(func) {
                self.by_addr.insert(func.addr, func);
            }
            if matches!(function.lifetime, Lifetime::SharedCode | Lifetime::Bound) {
                self.by_code.insert(moment.owners.place(function.header.opcodes), func);
            }
            if is_whole {
                self.note_code(&function, moment);
            }
            self.insert(func, function);
        }
        Ok(true)
    }

    /// Makes a function of what was read.
    fn finish(&self, load: Load, interner: &mut Interner, moment: &Moment) -> Function {
        let (table, header) = (&moment.offsets.function, load.header);
        let internal = header.kind == table.zend_internal_function;
        let user = header.kind == table.zend_user_function || header.kind == table.zend_eval_code;
        let sane = user
            && !header.opcodes.is_null()
            && (1..=MAX_OPS_OF_FUNCTION).contains(&header.last)
            && !load.file.is_empty();
        let named = !header.function_name.is_null();
        let kind = match (internal, sane) {
            // A name that cannot be read is no name.
            (true, _) if named && load.name.is_empty() => Kind::Unreadable,
            (true, _) => Kind::Internal,
            (false, true) if !named => Kind::Code,
            (false, true) if !load.name.is_empty() => Kind::User,
            _ => Kind::Unreadable,
        };
        let mut name = text(&load.name, MAX_NAME_BYTES).into_owned();
        if !load.class.is_empty() && !name.is_empty() {
            name = format!("{}::{name}", text(&load.class, MAX_NAME_BYTES));
        }
        let is_shared = |place| moment.owners.is_shared(place);
        let comes_and_goes =
            table.zend_acc_closure | table.zend_acc_fake_closure | table.zend_acc_call_via_trampoline;
        let lifetime =
            if header.fn_flags & table.zend_acc_call_via_trampoline != 0 || kind == Kind::Unreadable {
                Lifetime::Volatile
            } else if moment.heap.is_null() {
                // Another allocator (`USE_ZEND_ALLOC=0`): nothing tells request memory from other memory.
                if internal && header.fn_flags & comes_and_goes == 0 {
                    Lifetime::Persistent
                } else {
                    Lifetime::Volatile
                }
            } else if is_shared(load.func) || (internal && !load.in_chunk) {
                Lifetime::Persistent
            } else if user && is_shared(moment.owners.place(header.opcodes)) {
                match header.fn_flags & comes_and_goes != 0 {
                    _ if kind == Kind::Code => Lifetime::SharedCode,
                    true => Lifetime::Bound,
                    false if header.scope.is_null() => Lifetime::SharedCode,
                    // A method of a class that is linked anew in each request.
                    false => Lifetime::Request,
                }
            } else if named && header.fn_flags & comes_and_goes == 0 {
                Lifetime::Request
            } else {
                Lifetime::Volatile
            };
        let (name, file) = match kind {
            Kind::Unreadable => (StringId::default(), StringId::default()),
            Kind::Internal => (interner.string(&name), StringId::default()),
            Kind::User | Kind::Code => {
                (interner.string(&name), interner.string(&text(&load.file, MAX_PATH_BYTES)))
            }
        };
        Function {
            kind,
            name,
            file,
            line_start: header.line_start,
            called: (header.fn_flags & comes_and_goes == 0 && !load.name.starts_with(b"__"))
                .then(|| hash_of_name(&load.name)),
            header,
            texts: load.texts,
            lifetime,
            is_expected: false,
            proof: moment.proof.value,
            first_round: self.round,
            round: self.round,
            verified_by: self.call,
            ops: ByAddr::default(),
        }
    }
}

/// The address `at` bytes behind a pointer; null stays null.
fn pointee(pointer: RemoteAddr, at: usize) -> RemoteAddr {
    if pointer.is_null() { pointer } else { pointer.offset(at as u64) }
}

fn proves(batch: &Batch, part: usize, moment: &Moment) -> bool {
    batch.get(part).map(|bytes| u64_at(bytes, 0)) == moment.proof.value
}

/// Whether what is known may be believed without another look.
fn is_fresh(entry: &Function, want: &Wanted, moment: &Moment) -> bool {
    let inside = within(moment.offsets, entry, want.opline);
    match entry.lifetime {
        _ if entry.is_expected => false,
        Lifetime::Persistent => inside || !want.exact,
        // A copy whose frame shows no opline of its code may have become a copy of other code.
        Lifetime::SharedCode => inside && !want.opline.is_null(),
        Lifetime::Request => {
            let same_request = moment.proof.value.is_some() && entry.proof == moment.proof.value;
            same_request && (inside || !want.exact)
        }
        Lifetime::Bound | Lifetime::Volatile => false,
    }
}

/// Whether `opline` is an instruction of this function. Internal functions have none, and leave the frame's alone.
fn within(offsets: &Offsets, entry: &Function, opline: RemoteAddr) -> bool {
    if entry.kind == Kind::Internal || opline.is_null() {
        return true;
    }
    let size = offsets.op.size as u64;
    let past = opline.0.wrapping_sub(entry.header.opcodes.0);
    past < u64::from(entry.header.last) * size && past.is_multiple_of(size)
}

fn header(offsets: &Offsets, bytes: &[u8]) -> Header {
    let table = &offsets.function;
    let kind = u8_at(bytes, table.kind);
    let common = Header {
        kind,
        // Other flags, such as "deprecated", may be set late.
        fn_flags: u32_at(bytes, table.fn_flags)
            & (table.zend_acc_closure | table.zend_acc_fake_closure | table.zend_acc_call_via_trampoline),
        function_name: addr_at(bytes, table.function_name),
        scope: addr_at(bytes, table.scope),
        ..Header::default()
    };
    if kind == table.zend_internal_function {
        return common;
    }
    Header {
        opcodes: addr_at(bytes, table.opcodes),
        last: u32_at(bytes, table.last),
        filename: addr_at(bytes, table.filename),
        line_start: u32_at(bytes, table.line_start),
        line_end: u32_at(bytes, table.line_end),
        ..common
    }
}

/// The instruction whose bytes from `result` on are given.
fn opline(offsets: &Offsets, bytes: &[u8]) -> Opline {
    let table = &offsets.op;
    let at = |field: usize| field - table.result_var;
    Opline {
        opcode: u8_at(bytes, at(table.opcode)),
        lineno: u32_at(bytes, at(table.lineno)),
        extended_value: u32_at(bytes, at(table.extended_value)),
        result_var: u32_at(bytes, at(table.result_var)),
    }
}
