//! Where in its file an instruction was written: the location tables of CPython 3.11 and later.
//!
//! The format is described in
//! <https://github.com/python/cpython/blob/v3.13.0/Objects/locations.md> (3.11 and 3.12 have the same).

/// Most code units (2 bytes) of a function that we follow a table for. The largest functions seen in practice are
/// modules of generated data with some millions.
const MAX_CODE_UNITS: u32 = 1 << 28;

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
/// beyond the table.
///
/// # Cost
///
/// A walk along the table up to the instruction, some nanoseconds for each entry.
pub fn location_at(table: &[u8], first_line: i32, offset: u32) -> Option<Location> {
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

/// Interprets a location table of a function that begins at `first_line`.
///
/// Neighbours of the same line are joined. There are never more spans than bytes, whatever the bytes are.
pub fn line_spans(table: &[u8], first_line: i32) -> Vec<LineSpan> {
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
        let spans = line_spans(&table, 10);
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
        let at = |offset| location_at(&table, 10, offset);
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
        assert_eq!(line_spans(&[], 7), [span(0, 0)]);
        assert_eq!(line_spans(&[0x7f; 40], 7), [span(0, 0)]);
    }

    #[test]
    fn lines_out_of_range_are_none() {
        // -5 from line 1.
        assert_eq!(line_spans(&[0x80 | 13 << 3, 0x0b], 1)[0], span(0, 0));
        // The largest delta that fits, many times over.
        let table = [0x80 | 13 << 3, 0x7e, 0x7f, 0x7f, 0x7f, 0x7f, 0x7f, 0x7f, 0x7f].repeat(10_000);
        assert!(line_spans(&table, i32::MAX).len() <= table.len());
    }
}
