//! Which line an instruction belongs to: the location tables of CPython 3.11 and later.
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
        let (line_delta, has_line) = match (first >> 3) & 15 {
            // Short forms: the same line, columns in one more byte.
            0..=9 => (0, true),
            // One-line forms: this line or one of the next two, columns in two more bytes.
            code @ 10..=12 => (i64::from(code) - 10, true),
            // No columns, and the long form, whose end line and columns are skipped as all that is not a first byte.
            13 | 14 => (self.signed(), true),
            // No location.
            _ => (0, false),
        };
        self.skip();
        Some(Entry { units, line_delta, has_line })
    }

    fn byte(&mut self) -> Option<u8> {
        let byte = *self.bytes.get(self.at)?;
        self.at += 1;
        Some(byte)
    }

    /// A number in pieces of six bits, lowest first; bit 6 says that more follow, bit 0 of the number is the sign.
    fn signed(&mut self) -> i64 {
        let mut number: u64 = 0;
        let mut shift = 0;
        while let Some(byte) = self.bytes.get(self.at).filter(|byte| **byte & 0x80 == 0) {
            self.at += 1;
            // A line needs 32 bits and the sign; what lies beyond is garbage.
            if shift < 36 {
                number |= u64::from(byte & 0x3f) << shift;
            }
            shift = (shift + 6).min(36);
            if byte & 0x40 == 0 {
                break;
            }
        }
        let magnitude = i64::try_from(number >> 1).unwrap_or(0);
        if number & 1 != 0 { -magnitude } else { magnitude }
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
