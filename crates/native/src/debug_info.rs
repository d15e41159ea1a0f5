//! What a compiler says of a file's code (DWARF): the functions that were inlined where an address is, and the lines of the source.
//!
//! Read with `gimli`. `addr2line`, of the same authors, was not taken because it goes as deep into itself as functions are inlined into each
//! other, if a file says so, and keeps as much as there is.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use gimli::{
    AttributeValue, DebugInfoOffset, Dwarf, EndianSlice, LittleEndian, SectionId, Unit, UnitOffset, UnitType,
};

use crate::elf::{ReadAt, head, header};
use crate::sections::Sections;

/// Most of a file that is read, unpacked: ten times that of PHP. A browser's has 3 GiB, and none is read.
const MAX_BYTES: u64 = 256 << 20;

/// Largest list of the forms that entries have: those of PHP have 1 MiB. Each may be unpacked to twenty times of it.
const MAX_FORMS_BYTES: u64 = 8 << 20;

/// Most parts that a file was compiled in. PHP has 500.
const MAX_UNITS: usize = 1 << 16;

/// Places that are kept of one file, all together; each has up to 40 bytes.
const MAX_KEPT: usize = 2 << 20;

/// Longest that one file is looked into, all together.
const MAX_WORK: Duration = Duration::from_secs(10);

/// So often it is asked how long that was.
const STEPS_PER_LOOK: u32 = 1_024;

/// Functions may lie inside each other, as in [`crate::Elf::function_at`].
const MAX_NESTED: usize = 8;

/// Most functions that are inlined into each other. Compilers stop before.
const MAX_INLINED: usize = 64;

/// A name may be that of another entry's, and so on.
const MAX_REFERENCES: usize = 16;

/// Longest path.
const MAX_PATH_BYTES: usize = 1_024;

type Slice<'a> = EndianSlice<'a, LittleEndian>;

/// What is read of a file. What is only for debuggers is not.
const SECTIONS: [(SectionId, &str); 10] = [
    (SectionId::DebugAbbrev, ".debug_abbrev"),
    (SectionId::DebugInfo, ".debug_info"),
    (SectionId::DebugAddr, ".debug_addr"),
    (SectionId::DebugLine, ".debug_line"),
    (SectionId::DebugLineStr, ".debug_line_str"),
    (SectionId::DebugRanges, ".debug_ranges"),
    (SectionId::DebugRngLists, ".debug_rnglists"),
    (SectionId::DebugStr, ".debug_str"),
    (SectionId::DebugStrOffsets, ".debug_str_offsets"),
    (SectionId::DebugTypes, ".debug_types"),
];

/// A function at a line of its source.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SourceFrame {
    /// As people call it; empty if that is not told.
    pub function: String,
    /// Empty if that is not told.
    pub file: String,
    /// The line that is executed, or calls the next function; 0 if that is not told.
    pub line: u32,
    /// Where the function is declared; 0 if that is not told.
    pub first_line: u32,
}

/// What a file says of its source. It is looked into where it is asked.
#[derive(Debug)]
pub struct DebugInfo {
    own: Contents,
    /// What it has in common with other files, if that was put apart (`dwz`).
    common: Option<Contents>,
    /// Which addresses are in which of them.
    ranges: Spans,
    known: RefCell<HashMap<usize, Arc<KnownUnit>>>,
    inlined: RefCell<InlinedByFunction>,
    work: Work,
}

/// What is read of a file.
#[derive(Debug, Default)]
struct Contents {
    sections: Vec<(SectionId, Vec<u8>)>,
    /// Where the parts begin, in order.
    units: Vec<usize>,
}

/// By part and function.
type InlinedByFunction = HashMap<(usize, usize), Arc<[Inlined]>>;

/// Addresses, and what is there.
#[derive(Debug, Default)]
struct Spans(Vec<(Range<u64>, usize)>);

impl Spans {
    fn sorted(mut spans: Vec<(Range<u64>, usize)>) -> Self {
        spans.sort_unstable_by_key(|(range, of)| (range.start, *of));
        Self(spans)
    }

    /// What is around an address, the innermost first.
    fn at(&self, vaddr: u64) -> impl Iterator<Item = usize> {
        let behind = self.0.partition_point(|(range, _)| range.start <= vaddr);
        let before = self.0[..behind].iter().rev().take(MAX_NESTED);
        before.filter(move |(range, _)| range.contains(&vaddr)).map(|(_, of)| *of)
    }
}

/// A part that has been looked into.
#[derive(Debug)]
struct KnownUnit {
    /// Where their entries are.
    functions: Spans,
    lines: Vec<Row>,
}

#[derive(Clone, Copy, Debug)]
struct Row {
    begin: u64,
    end: u64,
    file: u32,
    line: u32,
}

/// A function that was inlined into another one.
#[derive(Clone, Debug)]
struct Inlined {
    range: Range<u64>,
    /// How deep its entry lies.
    depth: isize,
    entry: usize,
}

/// What an entry says of a function.
#[derive(Debug, Default)]
struct Said<'a> {
    name: Option<Slice<'a>>,
    /// The name is the one that is unlike all others.
    is_symbol: bool,
    first_line: u32,
    call_file: Option<u64>,
    call_line: u32,
}

/// Bounds for a file's claims.
#[derive(Debug, Default)]
struct Work {
    spent: Cell<Duration>,
    begun: Cell<Option<Instant>>,
    steps: Cell<u32>,
    kept: Cell<usize>,
}

impl Work {
    fn run<T>(&self, work: impl FnOnce() -> Option<T>) -> Option<T> {
        if self.spent.get() > MAX_WORK {
            return None;
        }
        let begun = Instant::now();
        self.begun.set(Some(begun));
        let result = work();
        self.spent.set(self.spent.get().saturating_add(begun.elapsed()));
        result
    }

    /// Goes on, unless it has taken too long.
    fn step(&self) -> Option<()> {
        self.steps.set(self.steps.get().wrapping_add(1));
        if !self.steps.get().is_multiple_of(STEPS_PER_LOOK) {
            return Some(());
        }
        let elapsed = self.begun.get().map_or(Duration::ZERO, |begun| begun.elapsed());
        (self.spent.get().saturating_add(elapsed) <= MAX_WORK).then_some(())
    }

    /// The same with something that is kept.
    fn keep(&self) -> Option<()> {
        self.kept.set(self.kept.get() + 1);
        if self.kept.get() > MAX_KEPT { None } else { self.step() }
    }
}

impl DebugInfo {
    /// Reads what a file says, and the file that has what was put apart from it, if there is one; `None` if it says nothing, or more than is read.
    pub fn read(read: &ReadAt<'_>, common: Option<&ReadAt<'_>>) -> Option<Self> {
        let own = Contents::read(read)?;
        let common = common.and_then(Contents::read);
        let mut info = Self {
            own,
            common,
            ranges: Spans::default(),
            known: RefCell::default(),
            inlined: RefCell::default(),
            work: Work::default(),
        };
        let (units, ranges) = info.work.run(|| Some(info.list(&info.dwarf(), true)))?;
        let common = info.work.run(|| info.dwarf().sup().map(|dwarf| info.list(dwarf, false).0));
        (info.own.units, info.ranges) = (units, Spans::sorted(ranges));
        if let (Some(contents), Some(units)) = (&mut info.common, common) {
            contents.units = units;
        }
        (!info.own.units.is_empty()).then_some(info)
    }

    /// What is kept of it in memory, but for what has been looked into since.
    pub fn len_bytes(&self) -> u64 {
        let contents = [&self.own].into_iter().chain(&self.common);
        let sections: usize =
            contents.flat_map(|contents| &contents.sections).map(|(_, bytes)| bytes.len()).sum();
        (sections + self.work.kept.get() * size_of::<Inlined>()) as u64
    }

    /// The function that an address of the file is in, and those that were inlined there into it and into each other, the outermost first;
    /// none if that is not told.
    pub fn frames_at(&self, vaddr: u64) -> Vec<SourceFrame> {
        let frames = || self.ranges.at(vaddr).find_map(|unit| self.frames_in(unit, vaddr));
        self.work.run(frames).unwrap_or_default()
    }

    fn dwarf(&self) -> Dwarf<Slice<'_>> {
        let mut dwarf = self.own.dwarf();
        if let Some(common) = &self.common {
            dwarf.set_sup(common.dwarf());
        }
        dwarf
    }

    /// The parts of a file, and where each has its code.
    fn list(&self, dwarf: &Dwarf<Slice<'_>>, has_code: bool) -> (Vec<usize>, Vec<(Range<u64>, usize)>) {
        let (mut units, mut ranges) = (Vec::new(), Vec::new());
        let mut headers = dwarf.units();
        while let Ok(Some(header)) = headers.next()
            && units.len() < MAX_UNITS
            && self.work.keep().is_some()
        {
            let Some(offset) = header.debug_info_offset() else { continue };
            let number = units.len();
            units.push(offset.0);
            if has_code
                && matches!(header.type_(), UnitType::Compilation | UnitType::Skeleton(_))
                && let Ok(unit) = dwarf.unit(header)
            {
                let add = |range| ranges.push((range, number));
                let _ = self.ranges_at(dwarf, &unit, UnitOffset(unit.header.size_of_header()), add);
            }
        }
        (units, ranges)
    }

    /// Where the code of an entry is.
    fn ranges_at(
        &self,
        dwarf: &Dwarf<Slice<'_>>,
        unit: &Unit<Slice<'_>>,
        entry: UnitOffset,
        mut add: impl FnMut(Range<u64>),
    ) -> Option<()> {
        let mut entries = unit.entries_raw(Some(entry)).ok()?;
        let form = entries.read_abbreviation().ok()??;
        let (mut low, mut high, mut len, mut list) = (None, None, None, None);
        for spec in form.attributes() {
            let attribute = entries.read_attribute(*spec).ok()?;
            let value = attribute.value();
            match attribute.name() {
                gimli::DW_AT_low_pc => low = dwarf.attr_address(unit, value).ok()?,
                gimli::DW_AT_high_pc => match value {
                    AttributeValue::Udata(value) => len = Some(value),
                    value => high = dwarf.attr_address(unit, value).ok()?,
                },
                gimli::DW_AT_ranges => list = dwarf.attr_ranges(unit, value).ok()?,
                _ => {}
            }
        }
        let mut add = |range: Range<u64>| {
            // What a linker has left out begins at 0.
            if range.start != 0 && range.start < range.end {
                add(range);
                return self.work.keep();
            }
            self.work.step()
        };
        let Some(mut list) = list else {
            let begin = low?;
            return add(begin..high.or_else(|| begin.checked_add(len?))?);
        };
        while let Ok(Some(range)) = list.next() {
            add(range.begin..range.end)?;
        }
        Some(())
    }

    fn known(&self, dwarf: &Dwarf<Slice<'_>>, unit: &Unit<Slice<'_>>, number: usize) -> Arc<KnownUnit> {
        if let Some(known) = self.known.borrow().get(&number) {
            return known.clone();
        }
        let mut functions = Vec::new();
        let _ = self.each_entry(unit, None, |tag, entry, _| {
            if tag == gimli::DW_TAG_subprogram {
                let add = |range| functions.push((range, entry.0));
                // One that cannot be read is not there.
                let _ = self.ranges_at(dwarf, unit, entry, add);
            }
        });
        let known = Arc::new(KnownUnit { functions: Spans::sorted(functions), lines: self.rows(unit) });
        self.known.borrow_mut().insert(number, known.clone());
        known
    }

    /// Goes through the entries of a part, or through those within one of them.
    fn each_entry(
        &self,
        unit: &Unit<Slice<'_>>,
        within: Option<UnitOffset>,
        mut then: impl FnMut(gimli::DwTag, UnitOffset, isize),
    ) -> Option<()> {
        let mut entries = unit.entries_raw(within).ok()?;
        let outer = entries.next_depth();
        let mut is_first = true;
        while !entries.is_empty() {
            self.work.step()?;
            let (offset, depth) = (entries.next_offset(), entries.next_depth());
            if within.is_some() && !is_first && depth <= outer {
                break;
            }
            if let Some(form) = entries.read_abbreviation().ok()? {
                entries.skip_attributes(form.attributes()).ok()?;
                if within.is_none() || !is_first {
                    then(form.tag(), offset, depth);
                }
            }
            is_first = false;
        }
        Some(())
    }

    /// Which lines the code of a part is of.
    fn rows(&self, unit: &Unit<Slice<'_>>) -> Vec<Row> {
        let mut found: Vec<Row> = Vec::new();
        let Some(program) = unit.line_program.clone() else { return found };
        let mut rows = program.rows();
        let mut last: Option<Row> = None;
        while let Ok(Some((_, row))) = rows.next_row()
            && self.work.step().is_some()
        {
            let begin = row.address();
            // Of several for one address the last one counts.
            if let Some(last) = last.filter(|last| last.begin < begin && last.begin != 0) {
                let is_same = |known: &Row| {
                    known.end == last.begin && (known.file, known.line) == (last.file, last.line)
                };
                match found.last_mut().filter(|known| is_same(known)) {
                    Some(known) => known.end = begin,
                    None => {
                        if self.work.keep().is_none() {
                            break;
                        }
                        found.push(Row { end: begin, ..last });
                    }
                }
            }
            let file = u32::try_from(row.file_index()).unwrap_or(u32::MAX);
            let line = row.line().and_then(|line| u32::try_from(line.get()).ok()).unwrap_or(0);
            last = (!row.end_sequence()).then_some(Row { begin, end: begin, file, line });
        }
        found.sort_unstable_by_key(|row| row.begin);
        found
    }

    fn frames_in(&self, number: usize, vaddr: u64) -> Option<Vec<SourceFrame>> {
        let dwarf = self.dwarf();
        let unit = self.own.unit(&dwarf, number)?;
        let known = self.known(&dwarf, &unit, number);
        let function = known.functions.at(vaddr).next()?;
        let behind = known.lines.partition_point(|row| row.begin <= vaddr);
        let before = known.lines[..behind].iter().rev().take(MAX_NESTED);
        let row = before.into_iter().find(|row| vaddr < row.end);
        let inlined = self.inlined(&dwarf, &unit, (number, function));
        let mut entries: Vec<&Inlined> =
            inlined.iter().filter(|inlined| inlined.range.contains(&vaddr)).take(MAX_INLINED).collect();
        entries.sort_by_key(|inlined| inlined.depth);
        let entries = [function].into_iter().chain(entries.into_iter().map(|inlined| inlined.entry));
        let said: Vec<Said<'_>> = entries.map(|entry| self.said(&dwarf, &unit, UnitOffset(entry))).collect();
        let callers = said.iter().skip(1).map(|called| (called.call_file, called.call_line));
        let innermost = row.map_or((None, 0), |row| (Some(u64::from(row.file)), row.line));
        let places = callers.chain([innermost]);
        let frame = |(said, (file, line)): (&Said<'_>, (Option<u64>, u32))| SourceFrame {
            function: said.name.map(|name| crate::readable(name.slice())).unwrap_or_default(),
            file: file.and_then(|file| path(&dwarf, &unit, file)).unwrap_or_default(),
            line,
            first_line: said.first_line,
        };
        Some(said.iter().zip(places).map(frame).collect())
    }

    /// All that was inlined into a function of a part.
    fn inlined(
        &self,
        dwarf: &Dwarf<Slice<'_>>,
        unit: &Unit<Slice<'_>>,
        function: (usize, usize),
    ) -> Arc<[Inlined]> {
        if let Some(inlined) = self.inlined.borrow().get(&function) {
            return inlined.clone();
        }
        let mut inlined = Vec::new();
        let _ = self.each_entry(unit, Some(UnitOffset(function.1)), |tag, entry, depth| {
            if tag == gimli::DW_TAG_inlined_subroutine {
                let add = |range| inlined.push(Inlined { range, depth, entry: entry.0 });
                let _ = self.ranges_at(dwarf, unit, entry, add);
            }
        });
        let inlined: Arc<[Inlined]> = inlined.into();
        self.inlined.borrow_mut().insert(function, inlined.clone());
        inlined
    }

    /// What an entry says of its function, and those that it refers to.
    fn said<'a>(&self, dwarf: &Dwarf<Slice<'a>>, unit: &Unit<Slice<'a>>, entry: UnitOffset) -> Said<'a> {
        let mut said = Said::default();
        let (mut contents, mut of) = (&self.own, dwarf);
        let mut other: Option<Unit<Slice<'a>>> = None;
        let mut next = Some(entry);
        for _ in 0..MAX_REFERENCES {
            let Some(entry) = next.take() else { break };
            let Some(reference) = said.add(of, other.as_ref().unwrap_or(unit), entry) else { break };
            let offset = match reference {
                AttributeValue::UnitRef(offset) => {
                    next = Some(offset);
                    continue;
                }
                AttributeValue::DebugInfoRef(offset) => offset,
                AttributeValue::DebugInfoRefSup(offset) => {
                    let (Some(common), Some(sup)) = (&self.common, dwarf.sup()) else { break };
                    (contents, of) = (common, sup);
                    offset
                }
                _ => break,
            };
            let behind = contents.units.partition_point(|begin| *begin <= offset.0);
            let Some(number) = behind.checked_sub(1) else { break };
            other = contents.unit(of, number);
            next = other.as_ref().map(|_| UnitOffset(offset.0 - contents.units[number]));
        }
        said
    }
}

impl Contents {
    fn read(read: &ReadAt<'_>) -> Option<Self> {
        let sections = Sections::read(read, header(&head(read)?)?);
        let mut left = MAX_BYTES;
        let mut contents = Vec::new();
        for (id, name) in SECTIONS {
            let limit = if id == SectionId::DebugAbbrev { MAX_FORMS_BYTES } else { left };
            match sections.contents(read, name, limit) {
                Some(bytes) => {
                    left = left.checked_sub(bytes.len() as u64)?;
                    contents.push((id, bytes));
                }
                // What one has without the other means something else.
                None if sections.named(name).is_some() => return None,
                None => {}
            }
        }
        Some(Self { sections: contents, units: Vec::new() })
    }

    fn dwarf(&self) -> Dwarf<Slice<'_>> {
        let of = |id: SectionId| {
            let bytes = self.sections.iter().find(|(own, _)| *own == id).map(|(_, bytes)| &bytes[..]);
            Ok::<_, gimli::Error>(EndianSlice::new(bytes.unwrap_or_default(), LittleEndian))
        };
        Dwarf::load(of).unwrap_or_default()
    }

    fn unit<'a>(&self, dwarf: &Dwarf<Slice<'a>>, number: usize) -> Option<Unit<Slice<'a>>> {
        let header = dwarf.unit_header(DebugInfoOffset(*self.units.get(number)?)).ok()?;
        dwarf.unit(header).ok()
    }
}

impl<'a> Said<'a> {
    /// Adds what is said there and was not said before; which entry says more.
    fn add(
        &mut self,
        dwarf: &Dwarf<Slice<'a>>,
        unit: &Unit<Slice<'a>>,
        entry: UnitOffset,
    ) -> Option<AttributeValue<Slice<'a>>> {
        let mut entries = unit.entries_raw(Some(entry)).ok()?;
        let form = entries.read_abbreviation().ok()??;
        let mut reference = None;
        for spec in form.attributes() {
            let attribute = entries.read_attribute(*spec).ok()?;
            let value = attribute.value();
            let number = || value.udata_value().and_then(|number| u32::try_from(number).ok()).unwrap_or(0);
            match attribute.name() {
                gimli::DW_AT_linkage_name | gimli::DW_AT_MIPS_linkage_name if !self.is_symbol => {
                    let name = dwarf.attr_string(unit, value).ok();
                    (self.is_symbol, self.name) = (name.is_some(), name.or(self.name));
                }
                gimli::DW_AT_name if self.name.is_none() => self.name = dwarf.attr_string(unit, value).ok(),
                gimli::DW_AT_decl_line if self.first_line == 0 => self.first_line = number(),
                gimli::DW_AT_call_line if self.call_line == 0 => self.call_line = number(),
                gimli::DW_AT_call_file => {
                    if let AttributeValue::FileIndex(file) = value {
                        self.call_file = self.call_file.or(Some(file));
                    }
                }
                gimli::DW_AT_abstract_origin | gimli::DW_AT_specification => reference = Some(value),
                _ => {}
            }
        }
        reference
    }
}

/// The path of a file of the source.
fn path(dwarf: &Dwarf<Slice<'_>>, unit: &Unit<Slice<'_>>, file: u64) -> Option<String> {
    let header = unit.line_program.as_ref()?.header();
    let file = header.file(file)?;
    let text = |value| dwarf.attr_string(unit, value).ok();
    let name = text(file.path_name())?;
    let folder = file.directory(header).filter(|_| file.directory_index() != 0).and_then(text);
    let mut path: Vec<u8> = Vec::new();
    for part in [unit.comp_dir, folder, Some(name)].into_iter().flatten() {
        if part.first() == Some(&b'/') {
            path.clear();
        } else if !path.is_empty() {
            path.push(b'/');
        }
        path.extend_from_slice(part.slice().get(..MAX_PATH_BYTES).unwrap_or(part.slice()));
    }
    let path = String::from_utf8_lossy(path.get(..MAX_PATH_BYTES).unwrap_or(&path)).into_owned();
    Some(path)
}
