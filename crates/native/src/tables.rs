//! The tables by which functions are unwound.

use gimli::{
    BaseAddresses, EhFrame, EhFrameOffset, EndianSlice, FrameDescriptionEntry, LittleEndian, UnwindContext,
    UnwindSection as _, UnwindTableRow,
};

use crate::elf::{Load, ReadAt, block};

/// Largest tables that are read: three times those of a browser.
const MAX_TABLES_BYTES: u64 = 64 << 20;

/// Longest entry that is looked into. That of a large function has some hundred bytes.
const MAX_ENTRY_BYTES: usize = 1 << 16;

/// The version of the index and how its numbers are written: relative to where they are, of 4 bytes, and relative to its begin. All linkers
/// write it so.
const INDEX_FORM: [u8; 4] = [1, 0x1b, 0x03, 0x3b];
const INDEX_HEAD_BYTES: u64 = 12;
const INDEX_ROW_BYTES: usize = 8;

pub(crate) type Section<'a> = EhFrame<EndianSlice<'a, LittleEndian>>;

/// `.eh_frame` and its index, `.eh_frame_hdr`.
#[derive(Clone, Debug)]
pub(crate) struct Tables {
    bytes: Vec<u8>,
    /// Where the file has them.
    vaddr: u64,
    /// Of the index, and of what it is of.
    index_vaddr: u64,
    frames_vaddr: u64,
    /// Functions in the index.
    count: usize,
}

impl Tables {
    /// Reads those whose index is at an address.
    pub(crate) fn read(read: &ReadAt<'_>, loads: &[Load], index_vaddr: u64) -> Option<Self> {
        let is_in = |load: &&Load, vaddr: u64| {
            vaddr.checked_sub(load.vaddr).is_some_and(|within| within < load.bytes)
        };
        let load = loads.iter().find(|load| is_in(load, index_vaddr))?;
        let offset = |vaddr: u64| load.offset.checked_add(vaddr - load.vaddr);
        let head = block(read, offset(index_vaddr)?, INDEX_HEAD_BYTES, INDEX_HEAD_BYTES)?;
        let (form, rest) = head.split_first_chunk()?;
        let (frames, rest) = rest.split_first_chunk()?;
        let count = u32::from_le_bytes(*rest.first_chunk()?);
        if *form != INDEX_FORM {
            return None;
        }
        let relative = i64::from(i32::from_le_bytes(*frames));
        let frames_vaddr = index_vaddr.checked_add(4)?.checked_add_signed(relative)?;
        if !is_in(&load, frames_vaddr) {
            return None;
        }
        // One comes right behind the other, in either order.
        let vaddr = index_vaddr.min(frames_vaddr);
        let bytes = load.bytes - (vaddr - load.vaddr);
        let bytes = block(read, offset(vaddr)?, bytes, MAX_TABLES_BYTES)?;
        Some(Self { bytes, vaddr, index_vaddr, frames_vaddr, count: usize::try_from(count).ok()? })
    }

    pub(crate) fn len_bytes(&self) -> u64 {
        self.bytes.len() as u64
    }

    fn from(&self, vaddr: u64) -> &[u8] {
        let at = vaddr.checked_sub(self.vaddr).and_then(|at| usize::try_from(at).ok());
        at.and_then(|at| self.bytes.get(at..)).unwrap_or_default()
    }

    /// Where the entry is whose function is the last that begins before `vaddr`, from the begin of `.eh_frame` on.
    fn find(&self, vaddr: u64) -> Option<usize> {
        let rows = self.from(self.index_vaddr.checked_add(INDEX_HEAD_BYTES)?);
        let rows = rows.get(..self.count.checked_mul(INDEX_ROW_BYTES)?)?.as_chunks::<INDEX_ROW_BYTES>().0;
        let relative = |row: &[u8; INDEX_ROW_BYTES], at: usize| {
            let number = row.get(at..)?.first_chunk()?;
            self.index_vaddr.checked_add_signed(i32::from_le_bytes(*number).into())
        };
        let behind = rows.partition_point(|row| relative(row, 0).is_some_and(|begin| begin <= vaddr));
        let entry = relative(rows.get(behind.checked_sub(1)?)?, 4)?;
        usize::try_from(entry.checked_sub(self.frames_vaddr)?).ok()
    }

    fn section(&self) -> (Section<'_>, BaseAddresses) {
        let mut section = EhFrame::new(self.from(self.frames_vaddr), LittleEndian);
        section.set_address_size(8);
        let bases = BaseAddresses::default()
            .set_eh_frame(self.frames_vaddr)
            .set_eh_frame_hdr(self.index_vaddr)
            .set_text(0)
            .set_got(0);
        (section, bases)
    }

    fn entry<'a>(
        &self,
        section: &Section<'a>,
        bases: &BaseAddresses,
        vaddr: u64,
    ) -> Option<FrameDescriptionEntry<EndianSlice<'a, LittleEndian>>> {
        let at = EhFrameOffset(self.find(vaddr)?);
        let entry = section.fde_from_offset(bases, at, Section::cie_from_offset).ok()?;
        let is_short = entry.entry_len().max(entry.cie().entry_len()) <= MAX_ENTRY_BYTES;
        (is_short && entry.contains(vaddr)).then_some(entry)
    }

    /// Where the function at this address begins; `None` if no table says.
    pub(crate) fn begin_of(&self, vaddr: u64) -> Option<u64> {
        let (section, bases) = self.section();
        self.entry(&section, &bases, vaddr).map(|entry| entry.initial_address())
    }

    /// Whether what begins there is a part of a function, put apart by the compiler: it begins with what the function has on its stack, not with
    /// the address that is returned to alone.
    pub(crate) fn is_part(&self, vaddr: u64, context: &mut UnwindContext<usize>) -> bool {
        let is_entered = |row: &UnwindTableRow<usize>| {
            *row.cfa() == gimli::CfaRule::RegisterAndOffset { register: gimli::X86_64::RSP, offset: 8 }
        };
        let begin = self.begin_of(vaddr);
        let entered = begin.and_then(|begin| self.row(begin, context, |_, _, row| is_entered(row)));
        entered == Some(false)
    }

    /// How the function at this address is unwound there; `None` if no table says.
    pub(crate) fn row<T>(
        &self,
        vaddr: u64,
        context: &mut UnwindContext<usize>,
        then: impl FnOnce(
            &Section<'_>,
            &FrameDescriptionEntry<EndianSlice<'_, LittleEndian>>,
            &UnwindTableRow<usize>,
        ) -> T,
    ) -> Option<T> {
        let (section, bases) = self.section();
        let entry = self.entry(&section, &bases, vaddr)?;
        let row = entry.unwind_info_for_address(&section, &bases, context, vaddr).ok()?;
        Some(then(&section, &entry, row))
    }
}
