//! What the places of a [`Look`](crate::Look) and of tasks are called.

use std::collections::HashMap;

use slip_model::{Frame, FrameId, FrameKind, Interner, StringId};

use crate::code::{CodeId, CodeText};
use crate::lines::{LineSpan, line_spans};
use crate::look::Point;

/// Most code objects and places whose names are kept. A large program runs some 10,000 functions and 100,000 places over time.
const MAX_CODES: usize = 64 * 1_024;
const MAX_PLACES: usize = 512 * 1_024;

/// What stands in the place of a frame that is no code of Python.
const NATIVE: &str = "<native>";
pub(crate) const GC: &str = "<GC>";
pub(crate) const UNREADABLE: &str = "[unreadable]";

/// Names for points; belongs to one [`Interpreter`](crate::Interpreter) and one [`Interner`].
#[derive(Debug, Default)]
pub struct Labels {
    codes: HashMap<CodeId, Label>,
    places: HashMap<(CodeId, u32), FrameId>,
}

/// A code object.
#[derive(Debug)]
struct Label {
    name: StringId,
    file: StringId,
    first_line: u32,
    spans: Vec<LineSpan>,
}

impl Labels {
    /// Whether there are so many that it is better to begin anew, with
    /// [`Interpreter::forget_codes`](crate::Interpreter::forget_codes).
    pub fn are_too_many(&self) -> bool {
        self.codes.len() > MAX_CODES || self.places.len() > MAX_PLACES
    }

    /// Takes what is said of code objects that were met first.
    pub fn learn(&mut self, texts: &mut Vec<CodeText>) {
        for text in texts.drain(..) {
            let CodeText { id, name, file, first_line, table, format } = text;
            let spans = line_spans(format, &table, first_line);
            let first_line = u32::try_from(first_line).unwrap_or(0);
            self.codes.insert(id, Label { name, file, first_line, spans });
        }
    }

    /// The frame of a point: the function and the line, or a marker.
    pub fn frame(&mut self, interner: &mut Interner, point: Point) -> FrameId {
        let (code, offset) = match point {
            Point::Code { code, offset, .. } => (code, offset),
            Point::Native => return marker(interner, NATIVE),
            Point::Gc => return marker(interner, GC),
            Point::Unreadable => return marker(interner, UNREADABLE),
        };
        if let Some(known) = self.places.get(&(code, offset)) {
            return *known;
        }
        let Some(label) = self.codes.get(&code) else { return marker(interner, UNREADABLE) };
        let after = label.spans.partition_point(|span| span.start <= offset);
        let line = after.checked_sub(1).and_then(|at| label.spans.get(at)).map_or(0, |span| span.line);
        let Label { name, file, first_line, .. } = *label;
        let frame = interner.frame(Frame { kind: FrameKind::Python, name, file, first_line, line });
        self.places.insert((code, offset), frame);
        frame
    }
}

/// A note of this name.
pub fn marker(interner: &mut Interner, name: &str) -> FrameId {
    let name = interner.string(name);
    interner.frame(Frame { kind: FrameKind::Marker, name, ..Frame::default() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lines::LineFormat;

    #[test]
    fn a_place_is_its_function_and_line() {
        let mut interner = Interner::new();
        let (name, file) = (interner.string("f"), interner.string("a.py"));
        // Two code units of line 7, then one of line 9: entries of one line each, with no columns.
        let table = vec![0x80 | (13 << 3) | 1, 0, 0x80 | (13 << 3), 4];
        let mut labels = Labels::default();
        let format = LineFormat::Locations;
        labels.learn(&mut vec![CodeText { id: CodeId(1), name, file, first_line: 7, table, format }]);
        let mut line = |offset| {
            let id = labels.frame(&mut interner, Point::Code { code: CodeId(1), offset, opcode: 0 });
            interner.frame_at(id)
        };
        let frame = Frame { kind: FrameKind::Python, name, file, first_line: 7, line: 7 };
        assert_eq!(line(2), frame);
        assert_eq!(line(4), Frame { line: 9, ..frame });
        assert_eq!(line(6), Frame { line: 0, ..frame });
        let unknown = labels.frame(&mut interner, Point::Code { code: CodeId(2), offset: 0, opcode: 0 });
        assert_eq!(interner.text(interner.frame_at(unknown).name), UNREADABLE);
        let native = labels.frame(&mut interner, Point::Native);
        assert_eq!(interner.frame_at(native).kind, FrameKind::Marker);
    }
}
