//! Which request a worker is in, and what is known of it.
//!
//! **Idle.** A worker is idle if no frame runs, its server interface has not begun a request, and request memory is
//! empty. The last part matters: `php_request_shutdown` takes back the flag `SG(sapi_started)` before it gives memory
//! back, which takes milliseconds after a large request (1.3 ms after 48 MiB), and a new request allocates before the
//! flag is set. What remains of a worker's loop is waiting for a connection and reading the request's header. Command
//! line programs are never idle.
//!
//! **One request or the next?** Since 8.4 the engine draws a random number for each request. Before, the request's start
//! time tells, once the engine has noted it: always with opcache, otherwise when the script uses `$_SERVER`. Without
//! either, numbers that only grow within a request (included files, peak of memory) have become smaller.

use std::borrow::Cow;

use slip_model::{Interner, RequestFacts, StringId};
use slip_remote::{Head, Memory, Range, ReadError, RemoteAddr, Symbols, prefetch, read_u64};

use crate::bytes::{Batch, addr_at, u8_at, u32_at, u64_at};
use crate::code::Restarts;
use crate::functions::Proof;
use crate::offsets::{FCGI, MmHeap, Offsets};
use crate::strings::{MAX_PATH_BYTES, c_string, text};

/// Length of [`Restarts`].
pub(crate) const RESTARTS_BYTES: usize = 24;

/// Length of what proves the request.
const PROOF_BYTES: usize = 8;

/// Longest method that is kept.
const MAX_METHOD_BYTES: usize = 32;

/// Longest URI that is kept, its query string included.
const MAX_URI_BYTES: usize = 4_096;

/// Most variables that are looked at in one slot of FastCGI's table.
const MAX_BUCKETS: usize = 16;

/// As much of the script's path as is read at first.
const SCRIPT_BYTES: usize = 256;

/// How far before the place of a variable's name in the last request it and its value are looked for, and how much is read.
const STRINGS_BEFORE: u64 = 256;
const STRINGS_BYTES: usize = 1_024;

/// What lies closer to the begin of FastCGI's request is read together with it. Less than a page.
const MAX_BUCKET_GAP_BYTES: usize = 2_048;

/// The variable that holds the URI as the client sent it.
const REQUEST_URI: &[u8] = b"REQUEST_URI";

/// What a server interface is like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sapi {
    /// It serves one request after the other.
    pub(crate) serves: bool,
    /// The process runs one script and ends.
    pub(crate) one_script: bool,
    /// `SG(server_context)` is a FastCGI request.
    pub(crate) fastcgi: bool,
}

impl Sapi {
    pub(crate) fn named(name: &str) -> Self {
        let one_script = matches!(name, "cli" | "phpdbg");
        Self {
            one_script,
            serves: !one_script && name != "embed",
            fastcgi: matches!(name, "fpm-fcgi" | "cgi-fcgi"),
        }
    }
}

/// Where a process of PHP that serves FastCGI has a byte and a pointer which are both zero as long as it is in no request, and a number
/// of 64 bits that each request has for itself, or 0: `SG(sapi_started)`, `SG(request_info).path_translated` and
/// `SG(global_request_time)`. `None` of one that does not, or whose PHP we do not know.
///
/// The pointer is set when the request's header has been read, so while its body is read too; the byte holds until all shutdown
/// functions have run.
pub fn request_marks<T: Memory + Symbols + ?Sized>(target: &T) -> Option<[RemoteAddr; 3]> {
    let version = crate::detect(target).ok()??;
    let (offsets, _) = crate::offsets::table(version.zend_module_api_no)?;
    let table = &offsets.sapi_globals;
    let globals = Sapi::named(&version.sapi).fastcgi.then(|| target.symbol("sapi_globals"))??;
    let places = [table.sapi_started, table.path_translated, table.global_request_time];
    Some(places.map(|at| globals.offset(at as u64)))
}

/// What was copied of the engine's globals, together with the frames.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Globals {
    pub(crate) running: bool,
    pub(crate) vm_stack: RemoteAddr,
    pub(crate) opline_before_exception: RemoteAddr,
    included_files: u32,
    server_context: RemoteAddr,
    request_method: RemoteAddr,
    query_string: RemoteAddr,
    path_translated: RemoteAddr,
    request_uri: RemoteAddr,
    sapi_started: bool,
    /// Seconds since 1970 as a `double`, by its bits; 0 if it has not been noted.
    request_time: u64,
    heap: Option<Heap>,
}

/// The bytes that [`Globals`] are made of.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct GlobalsBytes<'a> {
    /// What proves the request, as it was before all else.
    pub(crate) proof: &'a [u8],
    pub(crate) executor: &'a [u8],
    pub(crate) sapi: &'a [u8],
    /// Empty if the heap is not known.
    pub(crate) heap: &'a [u8],
}

/// Request memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Heap {
    size: u64,
    peak: u64,
    shadow_key: Option<u64>,
}

/// Where the globals are copied from.
#[derive(Clone, Debug)]
pub(crate) struct Places {
    offsets: &'static Offsets,
    mm: &'static MmHeap,
    pub(crate) executor_globals: RemoteAddr,
    sapi_globals: RemoteAddr,
    /// Where opcache counts how often it has started anew; null without opcache.
    restarts: RemoteAddr,
    /// Null until it is found.
    pub(crate) heap: RemoteAddr,
}

impl Places {
    pub(crate) fn new(
        offsets: &'static Offsets,
        mm: &'static MmHeap,
        executor_globals: RemoteAddr,
        sapi_globals: RemoteAddr,
        restarts: RemoteAddr,
    ) -> Self {
        Self { offsets, mm, executor_globals, sapi_globals, restarts, heap: RemoteAddr::NULL }
    }

    /// Ranges of the executor's globals, of the server interface's, and of the heap if it is known; before them what proves
    /// the request, which is among them once more. We may lose the CPU between two ranges for long enough that the next
    /// request is copied from then on.
    pub(crate) fn ranges(&self, out: &mut Vec<Range>) {
        let (start, end) = self.executor_span();
        out.push(Range::new(self.proof_place(), PROOF_BYTES));
        out.push(Range::new(self.executor_globals.offset(start as u64), end - start));
        out.push(Range::new(self.sapi_globals, self.sapi_len()));
        if !self.heap.is_null() {
            out.push(Range::new(self.heap.offset(self.mm.size as u64), self.heap_len()));
        }
    }

    /// Ranges that tell later whether the request in which `globals` were copied goes on, as few as are needed; before them
    /// opcache's count of restarts.
    pub(crate) fn later_ranges(&self, proof: Proof, globals: &Globals, out: &mut Vec<Range>) {
        if !self.restarts.is_null() {
            out.push(Range::new(self.restarts, RESTARTS_BYTES));
        }
        if proof.value.is_some() && globals.sapi_started {
            out.push(Range::new(self.sapi_globals, self.sapi_len()));
            // Last, so that what was read before it is of the same request.
            out.push(Range::new(self.proof_place(), PROOF_BYTES));
        } else {
            self.ranges(out);
        }
    }

    /// How often opcache has started anew, and the rest of the bytes of [`Places::later_ranges`].
    pub(crate) fn later_restarts<'a>(&self, bytes: &'a [u8]) -> (Option<Restarts>, &'a [u8]) {
        match bytes.split_at_checked(RESTARTS_BYTES) {
            Some((restarts, rest)) if !self.restarts.is_null() => {
                (Some([0, 8, 16].map(|at| u64_at(restarts, at))), rest)
            }
            _ => (None, bytes),
        }
    }

    /// Whether the request goes on, by the rest of these bytes.
    pub(crate) fn goes_on(&self, bytes: &[u8], proof: Proof, globals: &Globals, sapi: Sapi) -> bool {
        if proof.value.is_none() || !globals.sapi_started {
            return self.globals(&self.bytes(bytes)).continues(globals, sapi);
        }
        let table = &self.offsets.sapi_globals;
        let forgets_path =
            !globals.path_translated.is_null() && addr_at(bytes, table.path_translated).is_null();
        u8_at(bytes, table.sapi_started) != 0
            && !forgets_path
            && Some(u64_at(bytes, self.sapi_len())) == proof.value
    }

    /// Where the value lies that tells requests apart best.
    pub(crate) fn proof_place(&self) -> RemoteAddr {
        match self.mm.shadow_key {
            Some(at) if !self.heap.is_null() => self.heap.offset(at as u64),
            _ => self.sapi_globals.offset(self.offsets.sapi_globals.global_request_time as u64),
        }
    }

    fn executor_span(&self) -> (usize, usize) {
        let table = &self.offsets.executor_globals;
        (table.included_files + self.offsets.hash_table.n_num_of_elements, table.opline_before_exception + 8)
    }

    fn sapi_len(&self) -> usize {
        let table = &self.offsets.sapi_globals;
        table.global_request_time.max(table.sapi_started) + 8
    }

    fn heap_len(&self) -> usize {
        self.mm.shadow_key.unwrap_or(0).max(self.mm.peak) + 8 - self.mm.size
    }

    /// A pointer among the executor's globals.
    fn executor_pointer(&self, executor: &[u8], field: usize) -> RemoteAddr {
        addr_at(executor, field - self.executor_span().0)
    }

    /// Takes apart what was copied of [`Places::ranges`], one after the other.
    pub(crate) fn bytes<'a>(&self, bytes: &'a [u8]) -> GlobalsBytes<'a> {
        let (start, end) = self.executor_span();
        let (proof, rest) = bytes.split_at_checked(PROOF_BYTES).unwrap_or_default();
        let (executor, rest) = rest.split_at_checked(end - start).unwrap_or_default();
        let (sapi, heap) = rest.split_at_checked(self.sapi_len()).unwrap_or_default();
        GlobalsBytes { proof, executor, sapi, heap }
    }

    /// The innermost frame.
    pub(crate) fn head(&self, bytes: &GlobalsBytes<'_>) -> Head {
        let table = &self.offsets.executor_globals;
        let current = self.executor_pointer(bytes.executor, table.current_execute_data);
        let start = self.executor_pointer(bytes.executor, table.vm_stack);
        let end = self.executor_pointer(bytes.executor, table.vm_stack_end);
        // The frames of generators lie elsewhere.
        let limit = if (start..end).contains(&current) { end } else { RemoteAddr::NULL };
        Head { current, limit }
    }

    /// What was copied.
    pub(crate) fn globals(&self, bytes: &GlobalsBytes<'_>) -> Globals {
        let (eg, sg) = (&self.offsets.executor_globals, &self.offsets.sapi_globals);
        let GlobalsBytes { executor, sapi, heap, .. } = *bytes;
        let heap = (!heap.is_empty()).then(|| Heap {
            size: u64_at(heap, 0),
            peak: u64_at(heap, self.mm.peak - self.mm.size),
            shadow_key: self.mm.shadow_key.map(|at| u64_at(heap, at - self.mm.size)),
        });
        Globals {
            running: !self.executor_pointer(executor, eg.current_execute_data).is_null(),
            vm_stack: self.executor_pointer(executor, eg.vm_stack),
            opline_before_exception: self.executor_pointer(executor, eg.opline_before_exception),
            included_files: u32_at(executor, 0),
            server_context: addr_at(sapi, sg.server_context),
            request_method: addr_at(sapi, sg.request_method),
            query_string: addr_at(sapi, sg.query_string),
            path_translated: addr_at(sapi, sg.path_translated),
            request_uri: addr_at(sapi, sg.request_uri),
            sapi_started: u8_at(sapi, sg.sapi_started) != 0,
            request_time: u64_at(sapi, sg.global_request_time),
            heap,
        }
    }

    /// Whether all of a copy was made during one request, as far as that can be told.
    pub(crate) fn is_of_one_request(&self, bytes: &GlobalsBytes<'_>, globals: &Globals) -> bool {
        u64_at(bytes.proof, 0)
            == globals.heap.and_then(|heap| heap.shadow_key).unwrap_or(globals.request_time)
    }

    /// What shows that a later read still belongs to the same request.
    pub(crate) fn proof(&self, sapi: Sapi, globals: &Globals) -> Proof {
        if sapi.one_script {
            return Proof { value: Some(1), place: None };
        }
        if let (Some(key), Some(at)) = (globals.heap.and_then(|heap| heap.shadow_key), self.mm.shadow_key) {
            return Proof { value: Some(key), place: Some(self.heap.offset(at as u64)) };
        }
        if globals.request_time != 0 {
            let place = self.sapi_globals.offset(self.offsets.sapi_globals.global_request_time as u64);
            return Proof { value: Some(globals.request_time), place: Some(place) };
        }
        Proof::default()
    }

    /// Finds the heap: the first word of every aligned chunk of request memory is its address.
    ///
    /// Null if there is none, as with `USE_ZEND_ALLOC=0`.
    pub(crate) fn find_heap<M: Memory + ?Sized>(
        &self,
        memory: &M,
        vm_stack: RemoteAddr,
    ) -> Result<RemoteAddr, ReadError> {
        let chunk_of = |addr: RemoteAddr| RemoteAddr(addr.0 & !(MmHeap::CHUNK_BYTES - 1));
        let word = |addr: RemoteAddr| match read_u64(memory, addr) {
            Ok(word) => Ok(RemoteAddr(word)),
            Err(ReadError::Unmapped { .. }) => Ok(RemoteAddr::NULL),
            Err(error) => Err(error),
        };
        let chunk = chunk_of(vm_stack);
        if chunk.is_null() {
            return Ok(RemoteAddr::NULL);
        }
        let heap = word(chunk)?;
        // The heap lies in the first chunk, which is never given back, and that chunk names it too.
        let first = chunk_of(heap);
        let fits = !first.is_null() && heap == first.offset(MmHeap::SLOT_IN_CHUNK) && word(first)? == heap;
        Ok(if fits { heap } else { RemoteAddr::NULL })
    }
}

impl Globals {
    /// Whether the worker waits for its next request.
    pub(crate) fn is_idle(&self, sapi: Sapi) -> bool {
        sapi.serves && !self.running && !self.sapi_started && self.heap.is_none_or(|heap| heap.size == 0)
    }

    /// Bytes of request memory in use; 0 if unknown.
    pub(crate) fn memory_bytes(&self) -> u64 {
        self.heap.map_or(0, |heap| heap.size)
    }

    /// Whether the request of `earlier` may still be going on.
    pub(crate) fn continues(&self, earlier: &Globals, sapi: Sapi) -> bool {
        let shut_down = (earlier.sapi_started && !self.sapi_started)
            || (!earlier.path_translated.is_null() && self.path_translated.is_null());
        sapi.one_script || !(self.is_idle(sapi) || shut_down || self.is_after(earlier, earlier.request_time))
    }

    /// Whether this is certainly a later request than `earlier` was in.
    fn is_after(&self, earlier: &Globals, noted_time: u64) -> bool {
        if let (Some(now), Some(then)) = (self.heap, earlier.heap)
            && let (Some(now), Some(then)) = (now.shadow_key, then.shadow_key)
        {
            return now != then;
        }
        if self.request_time != 0 && noted_time != 0 {
            return self.request_time != noted_time;
        }
        let peak = |globals: &Globals| globals.heap.map_or(0, |heap| heap.peak);
        self.included_files < earlier.included_files || peak(self) < peak(earlier)
    }
}

/// Follows a worker from request to request.
#[derive(Debug)]
pub(crate) struct Tracker {
    sapi: Sapi,
    /// Number of the request, from 1.
    number: u64,
    last: Option<Globals>,
    /// The server interface was seen to have begun the request.
    was_started: bool,
    /// Start time of the request as last seen: the engine forgets it before the request is over.
    noted_time: u64,
    facts: RequestFacts,
    sources: Sources,
    /// Facts and sources before texts were read anew, until it is clear that those are of the same request.
    before: (RequestFacts, Sources),
    has_before: bool,
    /// Where the client's URI was in the last request, and what its method and script were.
    clients: Option<VariablePlace>,
    method: LastText,
    script: LastText,
    has_read: bool,
    pub(crate) buffers: Box<Buffers>,
}

/// What texts are read with. Nothing in here lasts from one sample to the next.
#[derive(Debug, Default)]
pub(crate) struct Buffers {
    batch: Batch,
    /// What was read behind the texts; empty if nothing was, or if texts were read after it.
    after: Vec<u8>,
}

impl Buffers {
    /// Has the CPU fetch them.
    pub(crate) fn prefetch(&self) {
        prefetch(self);
        self.batch.prefetch();
        prefetch(self.after.as_slice());
    }
}

/// A text that is mostly the same in the next request, and its number.
#[derive(Debug, Default)]
struct LastText {
    bytes: Vec<u8>,
    number: StringId,
}

impl LastText {
    fn number(&mut self, interner: &mut Interner, bytes: &[u8], limit: usize) -> StringId {
        if self.bytes != bytes {
            self.number = interner.string(&text(bytes, limit));
            self.bytes.clear();
            self.bytes.extend_from_slice(bytes);
        }
        self.number
    }
}

/// Where the texts of the facts came from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Sources {
    pointers: Option<[RemoteAddr; 4]>,
    /// What proves that it is still the request they were read in.
    proof: Option<u64>,
    query: bool,
    /// Every text as it was read, for comparison: where, and its length in `bytes`, where they follow each other.
    texts: Vec<(RemoteAddr, usize)>,
    bytes: Vec<u8>,
    uri_is_clients: bool,
}

impl Sources {
    /// Forgets all; keeps the memory.
    fn clear(&mut self) {
        let (mut texts, mut bytes) = (std::mem::take(&mut self.texts), std::mem::take(&mut self.bytes));
        texts.clear();
        bytes.clear();
        *self = Self { texts, bytes, ..Self::default() };
    }

    fn push(&mut self, addr: RemoteAddr, text: &[u8]) {
        self.texts.push((addr, text.len()));
        self.bytes.extend_from_slice(text);
    }
}

impl Tracker {
    pub(crate) fn new(sapi: Sapi) -> Self {
        Self {
            sapi,
            number: 0,
            last: None,
            was_started: false,
            noted_time: 0,
            facts: RequestFacts::default(),
            sources: Sources::default(),
            before: (RequestFacts::default(), Sources::default()),
            has_before: false,
            clients: None,
            method: LastText::default(),
            script: LastText::default(),
            has_read: false,
            buffers: Box::default(),
        }
    }

    /// Has the CPU fetch what the next request is compared with.
    pub(crate) fn prefetch(&self) {
        prefetch(self.sources.bytes.as_slice());
        prefetch(self.method.bytes.as_slice());
        prefetch(self.script.bytes.as_slice());
    }

    /// Whether the last update read texts of the request.
    pub(crate) fn has_read(&self) -> bool {
        self.has_read
    }

    /// What the last update read of `after`, behind everything else; empty if it did not.
    pub(crate) fn after(&self) -> &[u8] {
        &self.buffers.after
    }

    /// Forgets the texts that the last update read: the request had moved on by then, and they may be anything.
    pub(crate) fn take_back(&mut self) {
        if std::mem::take(&mut self.has_before) {
            self.facts = self.before.0;
            std::mem::swap(&mut self.sources, &mut self.before.1);
        }
    }

    /// Takes note that no request is going on.
    pub(crate) fn end_request(&mut self) {
        self.last = None;
    }

    /// Takes note of one moment. `script` is the file of the outermost frame, if there is one; `after` is what to read
    /// behind the texts, if any are read.
    ///
    /// `None` if the worker is idle. The texts are read now, after that moment: unless [`Tracker::has_read`] is false, ask
    /// whether the request is still the same, and if not, [take them back](Tracker::take_back).
    #[allow(clippy::too_many_arguments, reason = "what is known of the moment")]
    pub(crate) fn update<M: Memory + ?Sized>(
        &mut self,
        memory: &M,
        interner: &mut Interner,
        globals: &Globals,
        proof: Proof,
        keep_query: bool,
        script: StringId,
        after: &[Range],
    ) -> Result<Option<RequestFacts>, ReadError> {
        self.has_read = false;
        self.has_before = false;
        self.buffers.after.clear();
        if globals.is_idle(self.sapi) {
            self.end_request();
            return Ok(None);
        }
        if !self.last.as_ref().is_some_and(|last| self.goes_on(last, globals)) {
            self.was_started = false;
            self.number += 1;
            self.noted_time = 0;
            self.facts = RequestFacts { key: self.number, ..RequestFacts::default() };
            self.sources.clear();
        }
        self.last = Some(*globals);
        self.was_started |= globals.sapi_started;
        if globals.request_time != 0 {
            self.noted_time = globals.request_time;
        }
        self.refresh_texts(memory, interner, globals, proof, keep_query, after)?;
        if self.facts.script == StringId::default() {
            // Before the engine has noted the script, and after it has forgotten it.
            self.facts.script = script;
        }
        self.facts.started_unix_ns = unix_ns(self.noted_time);
        self.facts.memory_bytes = globals.memory_bytes();
        Ok(Some(self.facts))
    }

    /// What is known of the request of a moment before the one that was noted last; `None` unless that was of the same.
    pub(crate) fn earlier(&mut self, globals: &Globals) -> Option<RequestFacts> {
        self.has_read = false;
        self.has_before = false;
        self.buffers.after.clear();
        let is_same =
            !globals.is_idle(self.sapi) && self.last.is_some_and(|last| last.continues(globals, self.sapi));
        is_same.then(|| RequestFacts { memory_bytes: globals.memory_bytes(), ..self.facts })
    }

    /// Whether the request that was seen `last` is the one seen now.
    fn goes_on(&self, last: &Globals, now: &Globals) -> bool {
        if self.sapi.one_script {
            return true;
        }
        // The flag is set once in a request.
        let is_next = self.was_started && !last.sapi_started && now.sapi_started;
        // Before it is set, the files may still be those of the request before: `zend_activate` forgets them after the
        // first allocations, and `sapi_activate` follows.
        let included_files = if self.was_started { last.included_files } else { 0 };
        !is_next && !now.is_after(&Globals { included_files, ..*last }, self.noted_time)
    }

    /// Reads what the engine says of the request, unless it is known, and `after` behind it. Without a proof that the
    /// request is the same, the texts are compared with what lies there now.
    fn refresh_texts<M: Memory + ?Sized>(
        &mut self,
        memory: &M,
        interner: &mut Interner,
        globals: &Globals,
        proof: Proof,
        keep_query: bool,
        after: &[Range],
    ) -> Result<(), ReadError> {
        let pointers =
            [globals.request_method, globals.request_uri, globals.query_string, globals.path_translated];
        // While a request ends, the engine forgets one thing after the other; we do not.
        let ending = !globals.sapi_started && self.sources.pointers.is_some();
        let same_pointers = self.sources.pointers == Some(pointers) && self.sources.query == keep_query;
        // A start time that is noted only now may be that of the next request.
        let proven = proof.value.is_some() && proof.value == self.sources.proof;
        if ending || (same_pointers && proven) {
            return Ok(());
        }
        self.has_read = true;
        if same_pointers && self.texts_are_the_same(memory, after)? {
            self.sources.proof = proof.value;
            return Ok(());
        }
        let mut batch = std::mem::take(&mut self.buffers.batch);
        let result = self.read_texts(memory, interner, globals, keep_query, &mut batch, after);
        self.buffers.batch = batch;
        if result? {
            self.sources.pointers = Some(pointers);
            self.sources.query = keep_query;
            self.sources.proof = proof.value;
        }
        Ok(())
    }

    /// Reads the texts, and `after` behind them. False, with nothing changed, if the engine has forgotten them.
    fn read_texts<M: Memory + ?Sized>(
        &mut self,
        memory: &M,
        interner: &mut Interner,
        globals: &Globals,
        keep_query: bool,
        batch: &mut Batch,
        after: &[Range],
    ) -> Result<bool, ReadError> {
        let asked = Asked::new(batch, globals, self.clients.as_ref(), self.sapi, after);
        batch.read(memory)?;
        let mut texts = asked.texts(batch, globals);
        copy_joined(batch, asked.after, &mut self.buffers.after);
        if self.sapi.fastcgi && !texts.has_env {
            // The answer has been sent and closed: the texts are gone.
            return Ok(false);
        }
        if self.sapi.fastcgi && texts.clients.is_none() {
            texts.clients = clients_uri(memory, globals.server_context)?;
            self.buffers.after.clear();
        }
        let uri_is_clients = self.sources.uri_is_clients;
        self.before.0 = self.facts;
        std::mem::swap(&mut self.sources, &mut self.before.1);
        self.has_before = true;
        self.sources.clear();
        self.sources.uri_is_clients = uri_is_clients;
        if let Some(method) = self.source(memory, texts.method, MAX_METHOD_BYTES)? {
            self.facts.method = self.method.number(interner, &method, MAX_METHOD_BYTES);
        }
        if let Some(script) = self.source(memory, texts.script, MAX_PATH_BYTES)? {
            self.facts.script = self.script.number(interner, &script, MAX_PATH_BYTES);
        }
        self.clients = texts.clients.as_ref().map(|clients| clients.place);
        if let Some(clients) = texts.clients
            && let Some(uri) = self.source(memory, clients.text, MAX_URI_BYTES)?
        {
            self.facts.uri = interner.string(&shown_uri(&uri, keep_query));
            self.sources.uri_is_clients = true;
        } else if !self.sources.uri_is_clients
            && let Some(mut uri) = self.source(memory, CText::at(globals.request_uri), MAX_URI_BYTES)?
        {
            if keep_query
                && !uri.contains(&b'?')
                && let Some(query) = self.source(memory, CText::at(globals.query_string), MAX_URI_BYTES)?
            {
                let uri = uri.to_mut();
                uri.push(b'?');
                uri.extend_from_slice(&query);
            }
            self.facts.uri = interner.string(&shown_uri(&uri, keep_query));
        }
        Ok(true)
    }

    /// A C string, remembered for comparison; `None` if it is empty. Read now, unless it was already.
    fn source<'a, M: Memory + ?Sized>(
        &mut self,
        memory: &M,
        text: CText<'a>,
        limit: usize,
    ) -> Result<Option<Cow<'a, [u8]>>, ReadError> {
        let bytes = match text.bytes.filter(|bytes| bytes.len() <= limit) {
            Some(bytes) => Cow::Borrowed(bytes),
            None if text.addr.is_null() => return Ok(None),
            None => {
                self.buffers.after.clear();
                Cow::Owned(c_string(memory, text.addr, limit)?)
            }
        };
        if bytes.is_empty() {
            return Ok(None);
        }
        self.sources.push(text.addr, &bytes);
        Ok(Some(bytes))
    }

    fn texts_are_the_same<M: Memory + ?Sized>(
        &mut self,
        memory: &M,
        after: &[Range],
    ) -> Result<bool, ReadError> {
        self.buffers.batch.clear();
        for (addr, len) in &self.sources.texts {
            self.buffers.batch.push(*addr, len + 1);
        }
        let after = push_all(&mut self.buffers.batch, after);
        self.buffers.batch.read(memory)?;
        copy_joined(&self.buffers.batch, after, &mut self.buffers.after);
        let mut then = &self.sources.bytes[..];
        let mut parts = self.sources.texts.iter().enumerate();
        Ok(parts.all(|(part, (_, len))| {
            let (bytes, rest) = then.split_at_checked(*len).unwrap_or_default();
            then = rest;
            self.buffers
                .batch
                .get(part)
                .and_then(<[u8]>::split_last)
                // A text that was cut goes on.
                .is_some_and(|(end, now)| now == bytes && (*end == 0 || bytes.len() >= MAX_METHOD_BYTES))
        }))
    }
}

/// A C string: where it is, and what it is if that was read already.
#[derive(Clone, Copy, Debug, Default)]
struct CText<'a> {
    addr: RemoteAddr,
    bytes: Option<&'a [u8]>,
}

impl<'a> CText<'a> {
    fn at(addr: RemoteAddr) -> Self {
        Self { addr, bytes: None }
    }

    /// The text that begins with `bytes`, if it ends there as well.
    fn of(addr: RemoteAddr, bytes: Option<&'a [u8]>) -> Self {
        let end = bytes.and_then(|bytes| bytes.iter().position(|byte| *byte == 0));
        Self { addr, bytes: end.and_then(|end| bytes?.get(..end)) }
    }
}

/// Where FastCGI keeps a variable: the workers of a pool get theirs in the same order, so that one request's place is
/// nearly always the next one's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct VariablePlace {
    bucket: RemoteAddr,
    name: RemoteAddr,
}

/// FastCGI's variable `REQUEST_URI`.
///
/// `SG(request_info).request_uri` is only the path of the script: `/index.php` for every page of an application with one
/// entry point.
#[derive(Clone, Copy, Debug, Default)]
struct ClientsUri<'a> {
    place: VariablePlace,
    text: CText<'a>,
}

/// What one system call reads of a request.
#[derive(Clone, Debug, Default)]
struct Texts<'a> {
    /// FastCGI still has the request's variables.
    has_env: bool,
    method: CText<'a>,
    script: CText<'a>,
    /// `None` if it was not where it was expected.
    clients: Option<ClientsUri<'a>>,
}

/// Which part of a batch is what.
#[derive(Clone, Debug)]
struct Asked {
    /// FastCGI's request, and the part of it from `head_at` on.
    head_at: u64,
    head: usize,
    expected: VariablePlace,
    /// Part of the batch, and where in it.
    bucket: (usize, usize),
    /// Name and value of the variable, and what lies around them.
    strings_at: RemoteAddr,
    strings: usize,
    /// `None` if it lies among the strings.
    method: Option<usize>,
    script: usize,
    /// What was asked for in the end.
    after: std::ops::Range<usize>,
}

impl Asked {
    fn new(
        batch: &mut Batch,
        globals: &Globals,
        expected: Option<&VariablePlace>,
        sapi: Sapi,
        after: &[Range],
    ) -> Self {
        batch.clear();
        let request = if sapi.fastcgi { globals.server_context } else { RemoteAddr::NULL };
        let expected = expected.copied().unwrap_or_default();
        let within = |addr: RemoteAddr, at: u64| if addr.is_null() { addr } else { addr.offset(at) };
        let head_at = FCGI.has_env.min(uri_slot());
        let head_len = usize::try_from(FCGI.has_env.max(uri_slot()) + 8 - head_at).unwrap_or(0);
        let head_addr = within(request, head_at);
        // The first variables lie behind the request, and less than a page between two places is mapped if they are.
        let bucket_at = expected.bucket.0.checked_sub(head_addr.0).and_then(|at| usize::try_from(at).ok());
        let bucket_at = bucket_at.filter(|at| (head_len..MAX_BUCKET_GAP_BYTES).contains(at));
        // Name and value follow each other, and move with the lengths of those before.
        let strings_at = RemoteAddr(expected.name.0.saturating_sub(STRINGS_BEFORE));
        let strings = Range::new(strings_at, STRINGS_BYTES);
        let to_end = |addr, len| (addr, to_page_end(addr, len));
        let mut push = |(addr, len)| batch.push(addr, len);
        let (head, bucket) = match bucket_at {
            Some(at) => {
                let both = push((head_addr, at + FCGI.bucket_len));
                (both, (both, at))
            }
            None => (push((head_addr, head_len)), (push((expected.bucket, FCGI.bucket_len)), 0)),
        };
        let is_among = strings.find(globals.request_method, MAX_METHOD_BYTES).is_some();
        Self {
            head_at,
            head,
            expected,
            bucket,
            strings_at,
            strings: push((strings_at, STRINGS_BYTES)),
            method: (!is_among).then(|| push(to_end(globals.request_method, MAX_METHOD_BYTES))),
            script: push(to_end(globals.path_translated, SCRIPT_BYTES)),
            after: push_all(batch, after),
        }
    }

    /// What was read.
    fn texts<'a>(&self, batch: &'a Batch, globals: &Globals) -> Texts<'a> {
        let head = batch.get(self.head);
        let strings = batch.get(self.strings);
        let string =
            |addr: RemoteAddr| strings?.get(usize::try_from(addr.0.checked_sub(self.strings_at.0)?).ok()?..);
        let clients = (|| {
            let bucket = batch.get(self.bucket.0)?.get(self.bucket.1..)?;
            let name = addr_at(bucket, FCGI.var);
            let is_uri = addr_at(head?, (uri_slot() - self.head_at) as usize) == self.expected.bucket
                && u32_at(bucket, FCGI.var_len) as usize == REQUEST_URI.len()
                && string(name)?.starts_with(REQUEST_URI);
            let value = addr_at(bucket, FCGI.val);
            let text = CText::of(value, string(value));
            (is_uri && text.bytes.is_some())
                .then_some(ClientsUri { place: VariablePlace { name, ..self.expected }, text })
        })();
        let method = match self.method {
            Some(part) => batch.get(part),
            None => string(globals.request_method),
        };
        Texts {
            has_env: head.is_some_and(|bytes| u32_at(bytes, (FCGI.has_env - self.head_at) as usize) != 0),
            method: CText::of(globals.request_method, method),
            script: CText::of(globals.path_translated, batch.get(self.script)),
            clients,
        }
    }
}

/// Adds ranges to a batch.
fn push_all(batch: &mut Batch, ranges: &[Range]) -> std::ops::Range<usize> {
    let mut parts = 0..0;
    for range in ranges {
        let part = batch.push(range.addr, range.len);
        parts = if parts.is_empty() { part..part + 1 } else { parts.start..part + 1 };
    }
    parts
}

/// Copies the bytes of these parts, one after the other; none if not all could be read.
fn copy_joined(batch: &Batch, parts: std::ops::Range<usize>, out: &mut Vec<u8>) {
    out.clear();
    for part in parts {
        match batch.get(part) {
            Some(bytes) => out.extend_from_slice(bytes),
            None => return out.clear(),
        }
    }
}

/// At most `len`, and not beyond the page: the next one may not be there.
fn to_page_end(addr: RemoteAddr, len: usize) -> usize {
    const PAGE_BYTES: u64 = 4_096;
    len.min(usize::try_from(PAGE_BYTES - addr.0 % PAGE_BYTES).unwrap_or(len))
}

/// Where `REQUEST_URI` is looked up in a FastCGI request.
fn uri_slot() -> u64 {
    FCGI.env_hash_table + 8 * FCGI.slot(REQUEST_URI)
}

/// The URI as it is shown.
fn shown_uri(bytes: &[u8], keep_query: bool) -> Cow<'_, str> {
    let path = bytes.split(|byte| *byte == b'?').next().unwrap_or_default();
    text(if keep_query { bytes } else { path }, MAX_URI_BYTES)
}

/// Looks for `REQUEST_URI` among FastCGI's variables; `None` if it is not there.
fn clients_uri<M: Memory + ?Sized>(
    memory: &M,
    request: RemoteAddr,
) -> Result<Option<ClientsUri<'static>>, ReadError> {
    let found = (|| {
        if request.is_null() {
            return Ok(None);
        }
        let mut bucket = RemoteAddr(read_u64(memory, request.offset(uri_slot()))?);
        for _ in 0..MAX_BUCKETS {
            if bucket.is_null() {
                break;
            }
            let mut bytes = vec![0; FCGI.bucket_len];
            memory.read(bucket, &mut bytes)?;
            let mut text = [0; REQUEST_URI.len()];
            let name = addr_at(&bytes, FCGI.var);
            if u32_at(&bytes, FCGI.var_len) as usize == text.len() {
                memory.read(name, &mut text)?;
                if text == REQUEST_URI && u32_at(&bytes, FCGI.val_len) > 0 {
                    let text = CText::at(addr_at(&bytes, FCGI.val));
                    return Ok(Some(ClientsUri { place: VariablePlace { bucket, name }, text }));
                }
            }
            bucket = addr_at(&bytes, FCGI.next);
        }
        Ok(None)
    })();
    match found {
        Err(ReadError::Unmapped { .. }) => Ok(None),
        other => other,
    }
}

/// Nanoseconds since 1970 out of the bits of seconds; 0 for what is no time.
fn unix_ns(bits: u64) -> u64 {
    /// Beyond it, nanoseconds since 1970 do not fit.
    const MAX_SECONDS: f64 = 1.8e10;
    let seconds = f64::from_bits(bits);
    if !(0.0..MAX_SECONDS).contains(&seconds) {
        return 0;
    }
    // The engine keeps whole microseconds; a double cannot hold more of today's time.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "checked above")]
    let micros = (seconds * 1e6 + 0.5) as u64;
    micros * 1_000
}

#[cfg(test)]
mod tests {
    use slip_remote::Image;

    use super::*;

    fn at(time: f64, included_files: u32, peak: u64) -> Globals {
        Globals {
            sapi_started: true,
            request_time: time.to_bits(),
            included_files,
            heap: Some(Heap { size: peak, peak, shadow_key: None }),
            ..Globals::default()
        }
    }

    #[test]
    fn requests_are_told_apart_by_what_cannot_go_back() {
        assert!(at(2.0, 1, 1).is_after(&at(1.0, 1, 1), 1.0_f64.to_bits()));
        assert!(!at(1.0, 1, 1).is_after(&at(1.0, 9, 9), 1.0_f64.to_bits()));
        // The start time is noted late, and forgotten early.
        assert!(!at(1.0, 2, 2).is_after(&at(0.0, 1, 1), 0));
        assert!(!at(0.0, 2, 2).is_after(&at(1.0, 1, 1), 1.0_f64.to_bits()));
        assert!(at(0.0, 1, 2).is_after(&at(0.0, 2, 2), 0));
        assert!(at(0.0, 2, 1).is_after(&at(0.0, 2, 2), 0));
        let keyed =
            |key| Globals { heap: Some(Heap { shadow_key: Some(key), ..Heap::default() }), ..at(0.0, 1, 1) };
        assert!(keyed(1).is_after(&keyed(2), 0));
        assert!(!keyed(1).is_after(&keyed(1), 0));
    }

    #[test]
    fn idle_is_more_than_not_running() {
        let fpm = Sapi::named("fpm-fcgi");
        let empty = Globals { heap: Some(Heap::default()), ..Globals::default() };
        assert!(empty.is_idle(fpm));
        assert!(!empty.is_idle(Sapi::named("cli")));
        assert!(!Globals { running: true, ..empty }.is_idle(fpm));
        assert!(!Globals { sapi_started: true, ..empty }.is_idle(fpm));
        // Giving memory back, or allocating for the next request.
        assert!(!Globals { heap: Some(Heap { size: 1, ..Heap::default() }), ..empty }.is_idle(fpm));
    }

    #[test]
    fn files_of_the_request_before_do_not_make_two_of_one_request() {
        let image = Image::default();
        let mut interner = Interner::new();
        let mut tracker = Tracker::new(Sapi::named("apache2handler"));
        let mut key = |globals: Globals| {
            let facts = tracker.update(
                &image,
                &mut interner,
                &globals,
                Proof::default(),
                false,
                StringId::default(),
                &[],
            );
            facts.unwrap().unwrap().key
        };
        let before = |included_files, peak| Globals { sapi_started: false, ..at(0.0, included_files, peak) };
        // The first allocation, then the files are forgotten, then the request begins.
        assert_eq!([before(3, 8), before(0, 99), at(0.0, 1, 99)].map(&mut key), [1, 1, 1]);
        // It ends, and the next one begins.
        assert_eq!([before(1, 99), at(0.0, 1, 99), at(0.0, 2, 99)].map(&mut key), [1, 2, 2]);
    }

    #[test]
    fn what_was_copied_before_the_last_look_does_not_make_two_of_one_request() {
        let image = Image::default();
        let mut interner = Interner::new();
        let mut tracker = Tracker::new(Sapi::named("fpm-fcgi"));
        let mut update = |tracker: &mut Tracker, globals: &Globals| {
            let none = (Proof::default(), StringId::default());
            let facts = tracker.update(&image, &mut interner, globals, none.0, false, none.1, &[]);
            facts.unwrap().map(|facts| facts.key)
        };
        let keys = |facts: Option<RequestFacts>| facts.map(|facts| facts.key);
        let (begun, grown, over) = (at(0.0, 1, 8), at(0.0, 3, 99), Globals::default());
        assert_eq!(update(&mut tracker, &grown), Some(1));
        assert_eq!(keys(tracker.earlier(&begun)), Some(1));
        // Of none, or of the one before.
        assert_eq!(keys(tracker.earlier(&over)), None);
        assert_eq!(keys(tracker.earlier(&at(0.0, 4, 99))), None);
        assert_eq!(update(&mut tracker, &grown), Some(1));
        assert_eq!(update(&mut tracker, &over), None);
        assert_eq!(keys(tracker.earlier(&grown)), None);
    }

    /// At the end of a request php-fpm frees the script's path, and only then forgets where it was.
    #[test]
    fn texts_that_were_read_after_they_were_freed_are_taken_back() {
        let (path, method) = (RemoteAddr(0x1000), RemoteAddr(0x2000));
        let mut image = Image::default();
        image.insert(path, &[0; 64]);
        image.insert(path, b"/srv/index.php");
        image.insert(method, &[0; 64]);
        image.insert(method, b"GET");
        let mut interner = Interner::new();
        let mut tracker = Tracker::new(Sapi::named("apache2handler"));
        let globals = Globals { path_translated: path, request_method: method, ..at(0.0, 1, 1) };
        let mut update = |tracker: &mut Tracker, image: &Image, globals: &Globals| {
            let facts = tracker
                .update(image, &mut interner, globals, Proof::default(), false, StringId::default(), &[])
                .unwrap();
            interner.text(facts.unwrap().script).to_owned()
        };
        assert_eq!(update(&mut tracker, &image, &globals), "/srv/index.php");
        image.insert(path, b"\x01\x02\x03");
        assert_ne!(update(&mut tracker, &image, &globals), "/srv/index.php");
        assert!(tracker.has_read());
        tracker.take_back();
        let late = Globals { path_translated: RemoteAddr::NULL, ..globals };
        assert_eq!(update(&mut tracker, &image, &late), "/srv/index.php");
    }

    #[test]
    fn times_that_are_none_are_zero() {
        assert_eq!(unix_ns(1_795_299_789.350_887_f64.to_bits()), 1_795_299_789_350_887_000);
        for bits in
            [0, f64::NAN.to_bits(), f64::INFINITY.to_bits(), (-1.0_f64).to_bits(), 1e300_f64.to_bits()]
        {
            assert_eq!(unix_ns(bits), 0);
        }
    }

    #[test]
    fn the_query_is_cut_unless_asked_for() {
        assert_eq!(shown_uri(b"/a/b?secret=1", false), "/a/b");
        assert_eq!(shown_uri(b"/a/b?secret=1", true), "/a/b?secret=1");
    }
}
