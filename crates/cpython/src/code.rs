//! What is known about the code objects of a target, and whether it still holds.
//!
//! A code object dies when nothing refers to it any more, and the next one may be put at the same address: programs that
//! `exec` in a loop do this all the time. An entry therefore holds only as long as it has been *confirmed*:
//!
//! - Where the interpreter counts the code objects that die (3.14 on), as long as the count has not changed. The count
//!   goes up before the memory is given back, and is read right after the first stack and before the others: what was
//!   confirmed under the same count was alive when the count was read.
//! - Elsewhere for [`CONFIRMED_NS`]: at rates below 200 Hz each sample confirms what it uses. Once an entry has been
//!   refuted, this target is one of those that do it, and each sample confirms what it uses for [`VOLATILE_NS`].
//!
//! To confirm means to read the witness again and to find the same bytes. From 3.12 on the witness is the piece of the
//! code object from its first line to its line table, which has a version number that no two code objects share. 3.11 has
//! no such number, and the pointers in that piece may come back with other content behind them (measured: up to 1.5 % of
//! the code objects that an `exec` loop puts at a used address): there, the witness is the content too.
//!
//! A stack that was copied some time ago is named now. Where a code object on it has been replaced since, nobody knows which
//! of the two it was ([`CodeCache::was_replaced_since`]).
//!
//! What remains is a code object that dies and whose successor runs between the confirmation and the copy of the stack,
//! some microseconds; compiling takes longer.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use slip_model::{Frame, FrameId, FrameKind, Interner, StringId};
use slip_remote::{Memory, Range, ReadError, RemoteAddr, read_c_string};

use crate::bytes::{addr_at, u32_at, u64_at};
use crate::dicts::read_addr;
use crate::lines::{LineFormat, LineSpan, line_spans};
use crate::offsets::{InstructionsAt, Offsets};
use crate::strings::Text;

/// How long an entry is taken for true without a count of dead code objects.
pub(crate) const CONFIRMED_NS: u64 = 5_000_000;

/// How long a target that has put a code object where another one was is expected to do so again.
const VOLATILE_NS: u64 = 10_000_000_000;

/// A code object that is found to have been replaced may have been so for some time. A stack that was copied no longer ago
/// than this is taken to be of the new one: those that are seen for the first time are named some 50 us later.
const NEW_FOR: Duration = Duration::from_millis(1);

/// How long it is remembered that a code object was replaced: stacks that were copied wait for their names less than that.
const REMEMBERED_FOR: Duration = Duration::from_secs(2);

/// Largest location table that we read. Some 3 bytes per line of source are usual.
const MAX_TABLE_BYTES: u64 = 1_024 * 1_024;

/// Most bytes of location tables that one sample reads. The lines of what comes after stay unknown this time; a program
/// would have to run a million new lines for that.
const MAX_TABLE_BYTES_PER_SAMPLE: usize = 4 * MAX_TABLE_BYTES as usize;

/// Most spans of lines kept; beyond, all is forgotten. A span takes 16 bytes, and large programs have some 100,000 on
/// their stacks over time.
const MAX_SPANS: usize = 4 * 1_024 * 1_024;

/// Most code objects kept; beyond, all is forgotten.
const MAX_CODES: usize = 256 * 1_024;

/// Bytes of names and tables that a witness holds where there is no version number.
const WITNESS_BYTES: usize = 160;

/// A code object as it was read once: another one that is put in its place has another number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CodeId(pub u32);

/// What a code object says about its source.
#[derive(Clone, Debug)]
pub struct CodeText {
    /// Which one it is.
    pub id: CodeId,
    /// `co_qualname`; up to CPython 3.10, which has none, `co_name`
    pub name: StringId,
    /// `co_filename`
    pub file: StringId,
    /// `co_firstlineno`
    pub first_line: i32,
    /// `co_linetable`, or `co_lnotab` up to CPython 3.9, see [`location_at`](crate::location_at); no lines if it is longer than 1 MiB.
    pub table: Vec<u8>,
    /// How to read it.
    pub format: LineFormat,
}

/// What is known about one code object.
#[derive(Debug)]
pub(crate) struct Code {
    id: CodeId,
    name: StringId,
    file: StringId,
    first_line: u32,
    /// Frames before this instruction are not complete, in bytes.
    first_traceable: u64,
    /// Where the instructions really are, if not where what is read of the code object ends, and their length in bytes.
    instructions: Option<RemoteAddr>,
    len: u64,
    spans: Vec<(LineSpan, Option<FrameId>)>,
    witness: Witness,
    confirmed: u64,
}

/// Pieces of memory that were read, and what they held.
#[derive(Debug, Default)]
struct Witness {
    ranges: Vec<Range>,
    bytes: Vec<u8>,
}

/// What an instruction of a frame turned out to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place<T> {
    /// Here.
    At(T),
    /// The frame is not complete: the function has not begun.
    Before,
    /// The instruction is not one of this code object: what was read does not belong together.
    Outside,
    /// The object is no code object.
    NoCode,
    /// The code object could not be read.
    Unreadable,
}

impl<T> Place<T> {
    /// The same, with what `place` makes of it.
    pub(crate) fn and_then<U>(self, place: impl FnOnce(T) -> Place<U>) -> Place<U> {
        match self {
            Place::At(found) => place(found),
            Place::Before => Place::Before,
            Place::Outside => Place::Outside,
            Place::NoCode => Place::NoCode,
            Place::Unreadable => Place::Unreadable,
        }
    }
}

/// What was found at the address of a code object.
#[derive(Debug)]
enum Entry {
    Code(Box<Code>),
    NoCode,
    Unreadable,
}

/// The code objects seen so far.
#[derive(Debug, Default)]
pub(crate) struct CodeCache {
    entries: HashMap<RemoteAddr, Entry>,
    spans: usize,
    table_bytes_left: usize,
    /// Entries that are good for this sample only.
    gaps: Vec<RemoteAddr>,
    /// What an entry must have been confirmed under to hold.
    epoch: u64,
    now_ns: u64,
    /// Until when each sample is to confirm all it uses.
    volatile_until_ns: u64,
    /// Where a code object was found in the place of another one, and when; the last ones come last.
    replaced: Vec<(RemoteAddr, Instant)>,
    /// `PyCode_Type`, once it is known.
    code_type: Option<RemoteAddr>,
    /// How many code objects have been read.
    read: u32,
    /// How often it was tried.
    loads: u32,
    /// The texts of those that were read since they were taken last, if somebody wants them.
    texts: Option<Vec<CodeText>>,
    ranges: Vec<Range>,
    bytes: Vec<u8>,
}

impl CodeCache {
    /// Begins a sample: only entries that were confirmed under this epoch hold.
    pub(crate) fn begin(&mut self, epoch: u64, now_ns: u64) {
        self.epoch = epoch;
        self.now_ns = now_ns;
        self.table_bytes_left = MAX_TABLE_BYTES_PER_SAMPLE;
        if self.entries.len() > MAX_CODES || self.spans > MAX_SPANS {
            self.forget_all();
        }
        // What could not be read, or was nothing, may have become something.
        for addr in std::mem::take(&mut self.gaps) {
            self.forget(addr);
        }
    }

    /// What entries must have been confirmed under to hold.
    pub(crate) fn epoch(&self) -> u64 {
        self.epoch
    }

    /// How often something was read that had not been read before, or not as it was: another number says that it was so in between.
    pub(crate) fn loads(&self) -> u32 {
        self.loads
    }

    /// Whether an entry was refuted lately.
    pub(crate) fn is_volatile(&self, now_ns: u64) -> bool {
        now_ns < self.volatile_until_ns
    }

    /// Whether something that this sample needed was not read, or not whole.
    pub(crate) fn has_gaps(&self) -> bool {
        !self.gaps.is_empty()
    }

    /// Makes sure that there are entries for `addrs` and that they hold.
    pub(crate) fn prepare<M: Memory + ?Sized>(
        &mut self,
        memory: &M,
        offsets: &Offsets,
        interner: &mut Interner,
        addrs: impl Iterator<Item = RemoteAddr>,
    ) -> Result<(), ReadError> {
        let mut doubtful = Vec::new();
        for addr in addrs {
            match self.entries.get_mut(&addr) {
                Some(Entry::Code(code)) if code.confirmed != self.epoch => {
                    // Taken for confirmed at once, so that a recursive function is not confirmed twice.
                    code.confirmed = self.epoch;
                    doubtful.push(addr);
                }
                Some(_) => {}
                None => self.load(memory, offsets, interner, addr)?,
            }
        }
        if doubtful.is_empty() {
            return Ok(());
        }
        for addr in self.refuted(memory, &doubtful)? {
            self.volatile_until_ns = self.now_ns.saturating_add(VOLATILE_NS);
            self.load(memory, offsets, interner, addr)?;
            self.note_replaced(addr);
        }
        Ok(())
    }

    /// Remembers that what lies at `addr` is not what was there before.
    pub(crate) fn note_replaced(&mut self, addr: RemoteAddr) {
        self.replaced.retain(|(known, at)| *known != addr && at.elapsed() < REMEMBERED_FOR);
        self.replaced.push((addr, Instant::now()));
    }

    /// Whether what lies at `addr` was found there only after this moment, so much later that it may have been put there in
    /// between.
    pub(crate) fn was_replaced_since(&self, addr: RemoteAddr, moment: Instant) -> bool {
        let found = self.replaced.iter().rev().find(|(known, _)| *known == addr);
        found.is_some_and(|(_, at)| at.saturating_duration_since(moment) > NEW_FOR)
    }

    /// Those of `addrs` whose witness has changed.
    fn refuted<M: Memory + ?Sized>(
        &mut self,
        memory: &M,
        addrs: &[RemoteAddr],
    ) -> Result<Vec<RemoteAddr>, ReadError> {
        self.ranges.clear();
        let witnesses: Vec<(RemoteAddr, &Witness)> = addrs
            .iter()
            .filter_map(|addr| match self.entries.get(addr) {
                Some(Entry::Code(code)) => Some((*addr, &code.witness)),
                _ => None,
            })
            .collect();
        for (_, witness) in &witnesses {
            self.ranges.extend_from_slice(&witness.ranges);
        }
        self.bytes.resize(self.ranges.iter().map(|range| range.len).sum(), 0);
        let whole = memory.read_ranges(&self.ranges, &mut self.bytes)?;
        let mut refuted = Vec::new();
        let (mut at, mut done) = (0, 0);
        for (addr, witness) in witnesses {
            let now = &self.bytes[at..at + witness.bytes.len()];
            at += witness.bytes.len();
            done += witness.ranges.len();
            // After a range that is no longer mapped nothing was read: then all that follow count as changed.
            if done > whole || now != witness.bytes {
                refuted.push(addr);
            }
        }
        Ok(refuted)
    }

    /// Reads the code object at `addr` anew.
    fn load<M: Memory + ?Sized>(
        &mut self,
        memory: &M,
        offsets: &Offsets,
        interner: &mut Interner,
        addr: RemoteAddr,
    ) -> Result<(), ReadError> {
        self.loads = self.loads.wrapping_add(1);
        let entry = match self.read_code(memory, offsets, interner, addr) {
            Ok(Some(code)) => Entry::Code(Box::new(code)),
            Ok(None) => Entry::NoCode,
            Err(ReadError::Unmapped { .. }) => Entry::Unreadable,
            Err(error) => return Err(error),
        };
        if !matches!(entry, Entry::Code(_)) {
            self.gaps.push(addr);
        }
        self.spans += entry.spans();
        if let Some(old) = self.entries.insert(addr, entry) {
            self.spans -= old.spans();
        }
        Ok(())
    }

    fn read_code<M: Memory + ?Sized>(
        &mut self,
        memory: &M,
        offsets: &Offsets,
        interner: &mut Interner,
        addr: RemoteAddr,
    ) -> Result<Option<Code>, ReadError> {
        let (code, object) = (&offsets.code, &offsets.object);
        let mut head = vec![0; code.code_adaptive];
        memory.read(addr, &mut head)?;
        let ob_type = addr_at(&head, object.ob_type);
        if self.code_type != Some(ob_type) {
            if !is_code_type(memory, offsets, ob_type)? {
                return Ok(None);
            }
            self.code_type = Some(ob_type);
        }

        let pointers = [code.qualname, code.filename, code.linetable].map(|field| addr_at(&head, field));
        let [name, file, table] = pointers;
        let head_lens = [object.str_ascii, object.str_ascii, object.bytes_data];
        let ranges = [0, 1, 2].map(|at| Range::new(pointers[at], head_lens[at]));
        let heads = read_all(memory, &ranges)?;
        let (name_head, rest) = heads.split_at(head_lens[0]);
        let (file_head, table_head) = rest.split_at(head_lens[1]);
        let (Some(mut name_text), Some(mut file_text)) =
            (Text::parse(object, name, name_head), Text::parse(object, file, file_head))
        else {
            // A code object, but its name or path is no text.
            return Err(ReadError::Unmapped { addr: name, len: head_lens[0] });
        };
        name_text.follow(memory)?;
        file_text.follow(memory)?;
        let table_len = u64_at(table_head, object.ob_size);
        let mut format = code.line_format;
        let table_len = if table_len > MAX_TABLE_BYTES {
            format = LineFormat::NONE;
            0
        } else {
            table_len as usize
        };
        let table_len = if table_len > self.table_bytes_left {
            self.gaps.push(addr);
            format = LineFormat::NONE;
            0
        } else {
            table_len
        };
        self.table_bytes_left -= table_len;
        let (first_traceable, instructions, len) = match code.instructions {
            InstructionsAt::End { firsttraceable } => {
                // The length is in code units; one that does not fit makes all instructions fall outside.
                let len = u64_at(&head, object.ob_size).checked_mul(2).unwrap_or(0);
                (u64::from(u32_at(&head, firsttraceable)) * 2, None, len)
            }
            InstructionsAt::Object { co_code } => {
                let bytes = addr_at(&head, co_code);
                let len = read_addr(memory, bytes.offset(object.ob_size as u64))?.0;
                (0, Some(bytes.offset(object.bytes_data as u64)), len)
            }
        };

        let table_data = Range::new(table.offset(object.bytes_data as u64), table_len);
        let from = code.firstlineno;
        let to = code.linetable + 8;
        // The heads once more, and last: what they say was true of all that was copied before if it is still so.
        let (head_again, name_again) = (Range::new(addr, to), Range::new(name, object.str_length + 8));
        let file_again = Range::new(file, object.str_length + 8);
        let texts = read_all(
            memory,
            &[name_text.data, file_text.data, table_data, head_again, name_again, file_again],
        )?;
        let (name_bytes, rest) = texts.split_at(name_text.data.len);
        let (file_bytes, rest) = rest.split_at(file_text.data.len);
        let (table_bytes, rest) = rest.split_at(table_data.len);
        let (head_again, rest) = rest.split_at(to);
        let (name_again, file_again) = rest.split_at(object.str_length + 8);
        let same = |now: &[u8], before: &[u8], at: usize, len: usize| {
            now.get(at..at + len).is_some_and(|now| before.get(at..at + len) == Some(now))
        };
        let same_text = |now: &[u8], before: &[u8]| {
            is_alive(now) && same(now, before, object.ob_type, 8) && same(now, before, object.str_length, 8)
        };
        if !is_alive(head_again)
            || !same(head_again, &head, object.ob_type, 8)
            || !same(head_again, &head, from, to - from)
            || !same_text(name_again, name_head)
            || !same_text(file_again, file_head)
        {
            return Err(ReadError::Unmapped { addr, len: to });
        }

        let mut witness = Witness::default();
        witness.push(Range::new(addr.offset(from as u64), to - from), &head[from..to]);
        if !code.has_version {
            for (data, bytes) in
                [(name_text.data, name_bytes), (file_text.data, file_bytes), (table_data, table_bytes)]
            {
                let len = bytes.len().min(WITNESS_BYTES);
                witness.push(Range::new(data.addr, len), &bytes[..len]);
            }
            // The lengths: a longer text may begin with a shorter one. Not the references beside them, whose number changes with
            // each function that is made of this code.
            for (addr, head, field) in
                [(name, name_head, object.str_length), (table, table_head, object.ob_size)]
            {
                witness.push(Range::new(addr.offset(field as u64), 8), &head[field..field + 8]);
            }
        }
        let first_line = u32_at(&head, code.firstlineno);
        let spans = line_spans(format, table_bytes, first_line.cast_signed());
        self.read = self.read.wrapping_add(1);
        let id = CodeId(self.read);
        let name = interner.string(&name_text.decode(name_bytes));
        let file = interner.string(&file_text.decode(file_bytes));
        if let Some(texts) = &mut self.texts {
            let (first_line, table) = (first_line.cast_signed(), table_bytes.to_vec());
            texts.push(CodeText { id, name, file, first_line, table, format });
        }
        Ok(Some(Code {
            id,
            name,
            file,
            first_line,
            first_traceable,
            instructions,
            len,
            spans: spans.into_iter().map(|span| (span, None)).collect(),
            witness,
            confirmed: self.epoch,
        }))
    }

    /// The code object at `addr` and how many bytes into its instructions `instr_ptr` is. The entry must have been prepared.
    fn locate(
        &mut self,
        offsets: &Offsets,
        addr: RemoteAddr,
        instr_ptr: RemoteAddr,
        may_be_incomplete: bool,
    ) -> Place<(&mut Code, u64)> {
        let code = match self.entries.get_mut(&addr) {
            Some(Entry::Code(code)) => code,
            Some(Entry::NoCode) => return Place::NoCode,
            Some(Entry::Unreadable) | None => return Place::Unreadable,
        };
        let start = addr.0.wrapping_add(offsets.code.code_adaptive as u64);
        // Before its first instruction a frame stands one code unit before the begin, in 3.11 and 3.12.
        let Some(offset) = instr_ptr.0.checked_sub(start) else {
            return if may_be_incomplete && instr_ptr.0.wrapping_add(2) == start {
                Place::Before
            } else {
                Place::Outside
            };
        };
        if offset >= code.len {
            return Place::Outside;
        }
        if may_be_incomplete && offset < code.first_traceable {
            return Place::Before;
        }
        Place::At((code, offset))
    }

    /// The function and the line of the instruction at `instr_ptr`, as for [`CodeCache::point`].
    pub(crate) fn frame(
        &mut self,
        offsets: &Offsets,
        interner: &mut Interner,
        addr: RemoteAddr,
        instr_ptr: RemoteAddr,
        may_be_incomplete: bool,
    ) -> Place<FrameId> {
        self.locate(offsets, addr, instr_ptr, may_be_incomplete).and_then(|(code, offset)| {
            let after = code.spans.partition_point(|(span, _)| u64::from(span.start) <= offset);
            let Some((span, frame)) = after.checked_sub(1).and_then(|at| code.spans.get_mut(at)) else {
                return Place::Outside;
            };
            let (name, file, first_line) = (code.name, code.file, code.first_line);
            Place::At(*frame.get_or_insert_with(|| {
                interner.frame(Frame { kind: FrameKind::Python, name, file, first_line, line: span.line })
            }))
        })
    }

    /// The code object at `addr`, and how many bytes into its instructions `instr_ptr` is. The entry must have been prepared.
    pub(crate) fn point(
        &mut self,
        offsets: &Offsets,
        addr: RemoteAddr,
        instr_ptr: RemoteAddr,
        may_be_incomplete: bool,
    ) -> Place<(CodeId, u32)> {
        self.locate(offsets, addr, instr_ptr, may_be_incomplete).and_then(|(code, offset)| {
            u32::try_from(offset).map_or(Place::Outside, |offset| Place::At((code.id, offset)))
        })
    }

    /// Where the instruction really is that frames of the code object at `addr` show as `instr_ptr`. The entry must have been prepared.
    pub(crate) fn address_of(
        &self,
        offsets: &Offsets,
        addr: RemoteAddr,
        instr_ptr: RemoteAddr,
    ) -> RemoteAddr {
        let instructions = match self.entries.get(&addr) {
            Some(Entry::Code(code)) => code.instructions,
            _ => None,
        };
        let start = addr.0.wrapping_add(offsets.code.code_adaptive as u64);
        instructions.map_or(instr_ptr, |real| real.offset(instr_ptr.0.wrapping_sub(start)))
    }

    /// The texts of the code objects that were read since the last call. Those read before the first call are read anew.
    pub(crate) fn take_texts(&mut self) -> Vec<CodeText> {
        if self.texts.is_none() {
            self.forget_all();
        }
        self.texts.replace(Vec::new()).unwrap_or_default()
    }

    /// Forgets all entries: each code object is read anew, and has another number.
    pub(crate) fn forget_all(&mut self) {
        self.entries.clear();
        self.gaps.clear();
        self.spans = 0;
    }

    /// Forgets one entry.
    pub(crate) fn forget(&mut self, addr: RemoteAddr) {
        if let Some(old) = self.entries.remove(&addr) {
            self.spans -= old.spans();
        }
    }
}

impl Entry {
    fn spans(&self) -> usize {
        match self {
            Entry::Code(code) => code.spans.len(),
            Entry::NoCode | Entry::Unreadable => 0,
        }
    }
}

impl Witness {
    fn push(&mut self, range: Range, bytes: &[u8]) {
        if range.len > 0 {
            self.ranges.push(range);
            self.bytes.extend_from_slice(bytes);
        }
    }
}

/// Whether an object, of which these are the first bytes, has not been freed. Its memory begins with the count of references, of which
/// nothing has 2^32; that of a free block does with the address of the next one, and there is nothing mapped so low, or with null.
fn is_alive(bytes: &[u8]) -> bool {
    let count = u64_at(bytes, 0);
    // The upper 16 bits are flags from 3.14 on.
    count & 0xffff_ffff != 0 && (count >> 32) & 0xffff == 0
}

/// Whether a type is that of code objects.
fn is_code_type<M: Memory + ?Sized>(
    memory: &M,
    offsets: &Offsets,
    ob_type: RemoteAddr,
) -> Result<bool, ReadError> {
    let name = read_addr(memory, ob_type.offset(offsets.object.tp_name as u64))?;
    Ok(read_c_string(memory, name, 8)? == b"code")
}

/// Reads all of `ranges` or fails.
pub(crate) fn read_all<M: Memory + ?Sized>(memory: &M, ranges: &[Range]) -> Result<Vec<u8>, ReadError> {
    let mut bytes = vec![0; ranges.iter().map(|range| range.len).sum()];
    let done = memory.read_ranges(ranges, &mut bytes)?;
    match ranges.get(done) {
        Some(missing) => Err(ReadError::Unmapped { addr: missing.addr, len: missing.len }),
        None => Ok(bytes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn freed_objects_are_told_by_their_first_bytes() {
        let is_alive = |first: u64| is_alive(&first.to_le_bytes());
        // One reference, many, and those of objects that live for ever: 3.12, 3.14 with its flags.
        for count in [1, 70_000, 0xffff_ffff, 0x0004_0000_c000_0000] {
            assert!(is_alive(count), "{count:#x}");
        }
        // The end of a list of free blocks, and blocks that follow: of a heap and of an arena.
        for next in [0, 0x0000_5555_5575_92a0, 0x0000_7fff_f7a0_1230] {
            assert!(!is_alive(next), "{next:#x}");
        }
    }
}
