//! Looks at a busy thread that are copied one by one, each at its time, and judged several together.
//!
//! Between two looks the target and a halted CPU take our code out of the caches: at 1 kHz a third of what a look took beside waking
//! up and reading went into fetching some 500 lines of code for following, naming and storing a stack. So a look copies what it
//! would have read first, compares some fields, and leaves the rest to be done for a bunch of them.
//!
//! Nothing is believed of a copy because it has waited:
//!
//! - The chain is that of the copy alone, by the same rules as if it was judged at once
//!   ([`ChainReader::read_copied`](slip_remote::ChainReader::read_copied)). Where these ask for a second copy it is torn: the moment is
//!   over, and another one must not stand for it.
//! - Code objects are named by what is at their address when the bunch is judged. That is what was there when the copy was made as long as
//!   no code object has died since, and one that is on a stack lives. The interpreter counts those that die, before it gives their
//!   memory back, and the count comes with each copy, after the chain: one that finds another count ends the bunch. After the last
//!   name has been read the count is asked once more, if anything was read for the first time. If it is another one, nobody knows what was
//!   read, and stacks from the first on for which that was done are torn. So only versions that count (3.14 on) have bunches.
//! - Instructions, too, are those of living code objects. One that was specialised since is taken for what it is now, as otherwise for
//!   `INSTRUCTIONS_NS`: of a caller whose callee has not returned it says whether it calls that by itself.
//! - Whatever else would have a look read more ends the bunch before that look, which is then made as if there was none: other threads or
//!   interpreters, a collection of garbage, frames in memory that was not copied.

use slip_model::{Interner, Outcome, StackReading};
use slip_remote::{Memory, Range, ReadError};

use crate::bytes::addr_at;
use crate::dicts::read_addr;
use crate::process::{ALONE_NS, Fields, Interpreter};

/// Most looks of a bunch. The first one that is judged takes as long as one that is judged at once; with 16 that is a sixteenth.
const MAX_LOOKS: usize = 16;

/// A longer copy takes more time by itself than judging it at once, and memory of ours, which a target must not have us take.
const MAX_COPY_BYTES: usize = 64 * 1_024;

/// Length of the pointer to the first interpreter, which ends a copy.
const HEAD_BYTES: usize = 8;

/// Copies that wait to be judged, all of the same ranges.
#[derive(Debug, Default)]
pub(crate) struct Bunch {
    /// The chain's, the interpreter's, and where the list of interpreters begins, which is not always copied.
    ranges: Vec<Range>,
    /// Where the thread's state and the interpreter's begin in a copy, and how long it is.
    thread_at: usize,
    trail_at: usize,
    len: usize,
    copies: Vec<Vec<u8>>,
    looks: usize,
    /// When the list of interpreters has to be looked at.
    head_due_ns: u64,
}

impl Bunch {
    pub(crate) fn forget(&mut self) {
        self.looks = 0;
    }
}

impl Interpreter {
    /// Looks at the only thread, and leaves it to [`Interpreter::settle`] to say what there was to see. False if it has to be looked at by
    /// [`Interpreter::sample`], as at first and when anything is not as it was: after the bunch has been settled, because a sample
    /// gives up what has not been.
    ///
    /// `now_ns` may begin anywhere, and goes on.
    ///
    /// # Errors
    ///
    /// As for [`Interpreter::sample`].
    ///
    /// # Cost
    ///
    /// One system call.
    pub fn glance<M: Memory + ?Sized>(&mut self, memory: &M, now_ns: u64) -> Result<bool, ReadError> {
        if self.bunch.looks == 0 && !self.plan_bunch(memory) {
            return Ok(false);
        }
        let bunch = &mut self.bunch;
        let Some(copy) = bunch.copies.get_mut(bunch.looks) else { return Ok(false) };
        let with_head = now_ns >= bunch.head_due_ns;
        let (len, ranges) = match with_head {
            true => (bunch.len, &bunch.ranges[..]),
            false => (bunch.len - HEAD_BYTES, &bunch.ranges[..bunch.ranges.len() - 1]),
        };
        if memory.read_ranges(ranges, &mut copy[..len])? < ranges.len() {
            return Ok(false);
        }
        let [state] = &self.states[..] else { return Ok(false) };
        let [thread] = &state.threads[..] else { return Ok(false) };
        let (from, to) = self.offsets.interpreter.window();
        let fields = Fields::parse(&self.offsets, &copy[bunch.trail_at..bunch.trail_at + to - from]);
        let is_as_known = (!with_head || addr_at(copy, len - HEAD_BYTES) == state.addr)
            && fields.next.is_null()
            && fields.threads_head == thread.addr
            && fields.gc_frame.is_null()
            && fields.code_object_generation == state.fields.code_object_generation
            && thread.is_as_planned(&self.offsets, &copy[bunch.thread_at..bunch.trail_at]);
        if is_as_known {
            bunch.looks += 1;
            if with_head {
                bunch.head_due_ns = now_ns.saturating_add(ALONE_NS);
            }
        }
        Ok(is_as_known)
    }

    /// Whether the looks have to be settled before the next one.
    pub fn is_bunch_full(&self) -> bool {
        self.bunch.looks == MAX_LOOKS
    }

    /// Says what is copied by each look; false if looks cannot wait, as things are.
    fn plan_bunch<M: Memory + ?Sized>(&mut self, memory: &M) -> bool {
        if self.offsets.interpreter.code_object_generation.is_none() || !self.is_main_alone() {
            return false;
        }
        self.list_ranges(memory, false);
        let bunch = &mut self.bunch;
        bunch.ranges.clear();
        let [thread] = &mut self.states[0].threads[..] else { return false };
        if !thread.plan_copy(&self.offsets, &mut bunch.ranges) {
            return false;
        }
        let len = |ranges: &[Range]| ranges.iter().map(|range| range.len).sum::<usize>();
        bunch.trail_at = len(&bunch.ranges);
        bunch.thread_at = bunch.trail_at - self.offsets.thread.len();
        bunch.ranges.extend_from_slice(&self.ranges);
        let head = self.runtime.offset(self.offsets.interpreters_head as u64);
        bunch.ranges.push(Range::new(head, HEAD_BYTES));
        bunch.len = len(&bunch.ranges);
        if bunch.len > MAX_COPY_BYTES {
            return false;
        }
        bunch.copies.resize_with(MAX_LOOKS, Vec::new);
        bunch.copies.iter_mut().for_each(|copy| copy.resize(bunch.len, 0));
        true
    }

    /// Judges the looks that were left to it into `out`, whose former content is lost: a reading for each, in their order.
    ///
    /// `interner` must be the same as for [`Interpreter::sample`].
    ///
    /// # Errors
    ///
    /// As for [`Interpreter::sample`]. Looks for which `out` has no reading then are lost.
    ///
    /// # Cost
    ///
    /// No system call while nothing new turns up, but for the instructions of callers that call functions of Python all the time.
    pub fn settle<M: Memory + ?Sized>(
        &mut self,
        memory: &M,
        interner: &mut Interner,
        out: &mut Vec<StackReading>,
    ) -> Result<(), ReadError> {
        out.clear();
        let looks = std::mem::take(&mut self.bunch.looks);
        let mut copies = std::mem::take(&mut self.bunch.copies);
        let loads = self.codes.loads();
        let mut first_loaded = None;
        let mut result = Ok(());
        for (nth, copy) in copies.iter_mut().take(looks).enumerate() {
            result = self.settle_one(memory, interner, copy, out);
            if first_loaded.is_none() && self.codes.loads() != loads {
                first_loaded = Some(nth);
            }
            if result.is_err() {
                break;
            }
        }
        self.bunch.copies = copies;
        if let Some(first) = first_loaded
            && !self.has_same_count(memory)
        {
            for reading in out.iter_mut().skip(first) {
                reading.outcome = Outcome::Torn;
            }
        }
        result
    }

    /// Whether no code object has died since the last look that was settled.
    fn has_same_count<M: Memory + ?Sized>(&self, memory: &M) -> bool {
        let count = self.offsets.interpreter.code_object_generation.zip(self.states.first());
        count.is_some_and(|(at, state)| {
            let now = read_addr(memory, state.addr.offset(at as u64));
            now.is_ok_and(|now| now.0 == state.fields.code_object_generation)
        })
    }

    fn settle_one<M: Memory + ?Sized>(
        &mut self,
        memory: &M,
        interner: &mut Interner,
        copy: &mut Vec<u8>,
        out: &mut Vec<StackReading>,
    ) -> Result<(), ReadError> {
        self.count_sample();
        self.bytes.clear();
        self.bytes.extend_from_slice(&copy[self.bunch.trail_at..]);
        // It was the known one, so this always is.
        self.note_states(false);
        self.begin_epoch();
        let mut states = std::mem::take(&mut self.states);
        let mut result = Ok(());
        if let Some(state) = states.first_mut()
            && let Some(thread) = state.threads.first_mut()
        {
            thread.sampled = self.samples;
            let chain = (&mut self.chain, self.now_ns);
            let outcome = thread.read_copied(memory, &self.offsets, chain, copy);
            let mut round = self.round(memory, interner, out);
            result = outcome.and_then(|outcome| self.emit(&mut round, state, 0, outcome));
        }
        self.states = states;
        result
    }
}
