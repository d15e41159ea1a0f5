//! Where in its file an instruction was written: the line and location tables of CPython.
//!
//! The formats are described in <https://github.com/python/cpython/blob/v3.13.0/Objects/locations.md> (3.11 and 3.12 have the same) and
//! in `Objects/lnotab_notes.txt` of [3.10](https://github.com/python/cpython/blob/v3.10.13/Objects/lnotab_notes.txt) and
//! [3.9](https://github.com/python/cpython/blob/v3.9.18/Objects/lnotab_notes.txt).

/// Most code units (2 bytes) of a function that we follow a table for. The largest functions seen in practice are
/// modules of generated data with some millions.
const MAX_CODE_UNITS: u32 = 1 << 28;

/// How a table says which line an instruction belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LineFormat {
    /// `co_linetable` from CPython 3.11 on: entries for runs of instructions, with columns.
    Locations,
    /// `co_linetable` of CPython 3.10: for each run of instructions its length in bytes, and how far its line is from the one before.
    Ranges,
    /// `co_lnotab` up to CPython 3.9: how far in bytes, and how many lines, it is to where the next line begins.
    Lnotab,
}

impl LineFormat {
    /// In this one an empty table has no lines: for tables that are not read.
    pub const NONE: Self = Self::Locations;
}

/// The instructions from `start` to the next span belong to this line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LineSpan {
    /// Offset of the first instruction, in bytes.
    pub start: u32,
    /// The line; 0 if the instructions belong to none.
    pub line: u32,
}

/// Where an instruction was written, as `co_positions()` of its code object has it: what the compiler did not say is `None`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Location {
    /// The line it begins in.
    pub line: Option<u32>,
    /// The line it ends in.
    pub end_line: Option<u32>,
    /// Bytes of UTF-8 before it in its first line.
    pub column: Option<u32>,
    /// Bytes of UTF-8 before its end in its last line.
    pub end_column: Option<u32>,
}

/// The location of the instruction `offset` bytes from the begin of a function that begins at `first_line`; `None` if it lies
/// beyond the table. Tables up to CPython 3.10 have no columns, and no last lines: that is the first one, as where later ones have none.
///
/// # Cost
///
/// A walk along the table up to the instruction, some nanoseconds for each entry.
pub fn location_at(format: LineFormat, table: &[u8], first_line: i32, offset: u32) -> Option<Location> {
    if format != LineFormat::Locations {
        let spans = line_spans(format, table, first_line);
        let span = spans.iter().rfind(|span| span.start <= offset)?;
        let is_after = format == LineFormat::Ranges && spans.last() == Some(span);
        let line = (span.line > 0).then_some(span.line);
        return (!is_after).then_some(Location { line, end_line: line, column: None, end_column: None });
    }
    let mut table = Table { bytes: table, at: 0 };
    let mut line = i64::from(first_line);
    let mut end = 0_u32;
    while let Some(entry) = table.entry() {
        line = line.saturating_add(entry.line_delta);
        // At most eight for each byte of the table, which is no longer than the target's memory.
        end = end.saturating_add(entry.units * 2);
        if offset < end {
            let shown = |line: i64| u32::try_from(line).ok().filter(|_| entry.has_line);
            let (column, end_column) = entry.columns;
            let end_line = line.saturating_add(entry.end_line_delta);
            return Some(Location { line: shown(line), end_line: shown(end_line), column, end_column });
        }
    }
    None
}

/// Interprets the table of a function that begins at `first_line`.
///
/// Neighbours of the same line are joined. There is at most one span more than there are bytes, whatever the bytes are.
pub fn line_spans(format: LineFormat, table: &[u8], first_line: i32) -> Vec<LineSpan> {
    match format {
        LineFormat::Locations => location_spans(table, first_line),
        LineFormat::Ranges => range_spans(table, first_line),
        LineFormat::Lnotab => lnotab_spans(table, first_line),
    }
}

/// As `PyCode_Addr2Line` of 3.10 has it.
fn range_spans(table: &[u8], first_line: i32) -> Vec<LineSpan> {
    /// Instructions without a line.
    const NO_LINE: i8 = i8::MIN;
    let mut spans: Vec<LineSpan> = Vec::new();
    let (mut start, mut line) = (0, i64::from(first_line));
    for entry in table.chunks_exact(2) {
        let (bytes, delta) = (u32::from(entry[0]), entry[1].cast_signed());
        let shown = match delta {
            NO_LINE => 0,
            _ => {
                line += i64::from(delta);
                u32::try_from(line).unwrap_or(0)
            }
        };
        if bytes > 0 && spans.last().is_none_or(|last| last.line != shown) {
            spans.push(LineSpan { start, line: shown });
        }
        start += bytes;
    }
    // Instructions after the end of the table belong to no line.
    spans.push(LineSpan { start, line: 0 });
    spans
}

/// As `PyCode_Addr2Line` has it up to 3.9: the last line goes on to the end of the function.
fn lnotab_spans(table: &[u8], first_line: i32) -> Vec<LineSpan> {
    let (mut start, mut line) = (0, i64::from(first_line));
    let shown = |line: i64| u32::try_from(line).unwrap_or(0);
    let mut spans = vec![LineSpan { start, line: shown(line) }];
    for entry in table.chunks_exact(2) {
        start += u32::from(entry[0]);
        line += i64::from(entry[1].cast_signed());
        // Longer distances are told in steps, the first of which have no instructions.
        spans.pop_if(|last| last.start == start);
        if spans.last().is_none_or(|last| last.line != shown(line)) {
            spans.push(LineSpan { start, line: shown(line) });
        }
    }
    spans
}

fn location_spans(table: &[u8], first_line: i32) -> Vec<LineSpan> {
    let mut spans: Vec<LineSpan> = Vec::new();
    let mut table = Table { bytes: table, at: 0 };
    let mut line = i64::from(first_line);
    let mut units = 0;
    while let Some(entry) = table.entry() {
        line = line.saturating_add(entry.line_delta);
        let shown = if entry.has_line { u32::try_from(line).unwrap_or(0) } else { 0 };
        if spans.last().is_none_or(|last| last.line != shown) {
            spans.push(LineSpan { start: units * 2, line: shown });
        }
        units += entry.units;
        if units > MAX_CODE_UNITS {
            break;
        }
    }
    // Instructions after the end of the table belong to no line.
    spans.push(LineSpan { start: units * 2, line: 0 });
    spans
}

/// What one entry of the table says.
struct Entry {
    /// Length of the instructions in code units.
    units: u32,
    line_delta: i64,
    has_line: bool,
    /// From the line it begins in to that it ends in.
    end_line_delta: i64,
    /// The first column, and the one after the last.
    columns: (Option<u32>, Option<u32>),
}

struct Table<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Table<'_> {
    /// The next entry; `None` at the end.
    fn entry(&mut self) -> Option<Entry> {
        // A byte with the highest bit set begins an entry. Skipping others is what makes any garbage readable.
        let first = loop {
            let byte = self.byte()?;
            if byte & 0x80 != 0 {
                break byte;
            }
        };
        let units = u32::from(first & 7) + 1;
        let none = (None, None);
        let (mut end_line_delta, mut has_line) = (0, true);
        let (line_delta, columns) = match (first >> 3) & 15 {
            // Short forms: the same line, both columns in one more byte and these bits.
            code @ 0..=9 => {
                let columns = self.argument().map(|byte| {
                    let column = u32::from(code) << 3 | u32::from(byte >> 4);
                    (column, column + u32::from(byte & 15))
                });
                (0, columns.map_or(none, |(column, end)| (Some(column), Some(end))))
            }
            // One-line forms: this line or one of the next two, columns in two more bytes.
            code @ 10..=12 => {
                let columns = (self.argument().map(u32::from), self.argument().map(u32::from));
                (i64::from(code) - 10, columns)
            }
            // No columns.
            13 => (self.signed(), none),
            // The long form. Columns are one more than they are, as 0 stands for none.
            14 => {
                let line_delta = self.signed();
                end_line_delta = i64::try_from(self.unsigned()).unwrap_or(0);
                let mut column = || u32::try_from(self.unsigned()).ok()?.checked_sub(1);
                (line_delta, (column(), column()))
            }
            // No location.
            _ => {
                has_line = false;
                (0, none)
            }
        };
        self.skip();
        Some(Entry { units, line_delta, has_line, end_line_delta, columns })
    }

    /// The next byte, if it does not begin an entry.
    fn argument(&mut self) -> Option<u8> {
        let byte = *self.bytes.get(self.at).filter(|byte| **byte & 0x80 == 0)?;
        self.at += 1;
        Some(byte)
    }

    fn byte(&mut self) -> Option<u8> {
        let byte = *self.bytes.get(self.at)?;
        self.at += 1;
        Some(byte)
    }

    /// A number whose lowest bit is its sign.
    fn signed(&mut self) -> i64 {
        let number = self.unsigned();
        let magnitude = i64::try_from(number >> 1).unwrap_or(0);
        if number & 1 != 0 { -magnitude } else { magnitude }
    }

    /// A number in pieces of six bits, lowest first; bit 6 says that more follow.
    fn unsigned(&mut self) -> u64 {
        let mut number: u64 = 0;
        let mut shift = 0;
        while let Some(byte) = self.argument() {
            // A line needs 32 bits and the sign; what lies beyond is garbage.
            if shift < 36 {
                number |= u64::from(byte & 0x3f) << shift;
            }
            shift = (shift + 6).min(36);
            if byte & 0x40 == 0 {
                break;
            }
        }
        number
    }

    /// Moves to the next first byte.
    fn skip(&mut self) {
        while self.bytes.get(self.at).is_some_and(|byte| byte & 0x80 == 0) {
            self.at += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOCATIONS: LineFormat = LineFormat::Locations;

    fn span(start: u32, line: u32) -> LineSpan {
        LineSpan { start, line }
    }

    #[test]
    fn every_form_of_entry() {
        let table = [
            0x80 | 3 << 3 | 1,
            0x20, // short: 2 units, line 10
            0x80 | 10 << 3,
            0x05,
            0x20, // one line, +0: 1 unit, line 10
            0x80 | 11 << 3,
            0x05,
            0x7f, // one line, +1: line 11
            0x80 | 12 << 3 | 7,
            0x05,
            0x20,           // one line, +2: 8 units, line 13
            0x80 | 15 << 3, // no location
            0x80 | 13 << 3,
            0x07, // no columns, -3: line 10
            0x80 | 14 << 3 | 2,
            0x40 | 0x04,
            0x03,
            0x01,
            0x02,
            0x41,
            0x03, // long, +98: line 108
        ];
        let spans = line_spans(LOCATIONS, &table, 10);
        assert_eq!(
            spans,
            [span(0, 10), span(6, 11), span(8, 13), span(24, 0), span(26, 10), span(28, 108), span(34, 0)]
        );
    }

    #[test]
    fn every_form_of_entry_with_its_columns() {
        let table = [
            0x80 | 3 << 3 | 1,
            0x25, // short: 2 units, columns 26 to 31
            0x80 | 11 << 3,
            0x05,
            0x7f,           // one line, +1: line 11, columns 5 to 127
            0x80 | 15 << 3, // no location
            0x80 | 13 << 3,
            0x07, // no columns, -3: line 8
            0x80 | 14 << 3,
            0x02,
            0x03,
            0x00,
            0x42,
            0x01,           // long, +1: line 9 to 12, no first column, to 65
            0x80 | 10 << 3, // cut off
        ];
        let at = |offset| location_at(LOCATIONS, &table, 10, offset);
        let location = |lines: (u32, u32), columns: (Option<u32>, Option<u32>)| {
            let (line, end_line) = (Some(lines.0), Some(lines.1));
            Some(Location { line, end_line, column: columns.0, end_column: columns.1 })
        };
        let short = location((10, 10), (Some(26), Some(31)));
        assert_eq!([at(0), at(2), at(3)], [short; 3]);
        assert_eq!(at(4), location((11, 11), (Some(5), Some(127))));
        assert_eq!(at(6), Some(Location::default()));
        assert_eq!(at(8), location((8, 8), (None, None)));
        assert_eq!(at(10), location((9, 12), (None, Some(65))));
        assert_eq!(at(12), location((9, 9), (None, None)));
        assert_eq!([at(14), at(u32::MAX)], [None; 2]);
    }

    #[test]
    fn a_table_without_entries() {
        assert_eq!(line_spans(LOCATIONS, &[], 7), [span(0, 0)]);
        assert_eq!(line_spans(LOCATIONS, &[0x7f; 40], 7), [span(0, 0)]);
    }

    #[test]
    fn lines_out_of_range_are_none() {
        // -5 from line 1.
        assert_eq!(line_spans(LOCATIONS, &[0x80 | 13 << 3, 0x0b], 1)[0], span(0, 0));
        // The largest delta that fits, many times over.
        let table = [0x80 | 13 << 3, 0x7e, 0x7f, 0x7f, 0x7f, 0x7f, 0x7f, 0x7f, 0x7f].repeat(10_000);
        assert!(line_spans(LOCATIONS, &table, i32::MAX).len() <= table.len());
    }

    #[test]
    fn ranges_of_3_10() {
        // Lines 10, 12, none, 12 again, 9 in two pieces, and 300 by way of a piece without instructions.
        let table = [4, 0, 2, 2, 2, 0x80, 6, 0, 254, 0xfd, 10, 0, 0, 127, 0, 127, 2, 37];
        let spans = line_spans(LineFormat::Ranges, &table, 10);
        let expected =
            [span(0, 10), span(4, 12), span(6, 0), span(8, 12), span(14, 9), span(278, 300), span(280, 0)];
        assert_eq!(spans, expected);
        let line_at = |offset| location_at(LineFormat::Ranges, &table, 10, offset).map(|found| found.line);
        assert_eq!([line_at(0), line_at(6), line_at(277)], [Some(Some(10)), Some(None), Some(Some(9))]);
        assert_eq!([line_at(280), line_at(u32::MAX)], [None; 2]);
        assert_eq!(line_spans(LineFormat::Ranges, &[], 7), [span(0, 0)]);
    }

    #[test]
    fn lnotab_of_3_9() {
        // A decorated function, whose first instruction is a line below; back two lines; 300 lines further; 300 bytes further.
        let table = [0, 1, 4, 2, 6, 0xfe, 2, 127, 0, 127, 0, 46, 255, 0, 45, 1];
        let spans = line_spans(LineFormat::Lnotab, &table, 10);
        let expected = [span(0, 11), span(4, 13), span(10, 11), span(12, 311), span(312, 312)];
        assert_eq!(spans, expected);
        let line_at = |offset| location_at(LineFormat::Lnotab, &table, 10, offset).map(|found| found.line);
        assert_eq!([line_at(3), line_at(4), line_at(u32::MAX)], [11, 13, 312].map(|line| Some(Some(line))));
        // A function of one line needs no table.
        assert_eq!(line_spans(LineFormat::Lnotab, &[], 7), [span(0, 7)]);
        assert_eq!(line_spans(LineFormat::Lnotab, &[0, 0x80], 7), [span(0, 0)], "out of range");
    }
}
