//! The decoders of line and location tables: any bytes give spans in ascending order, and one more than there are bytes at most; and a
//! location has the line of its span.
#![no_main]

use slip_cpython::{LineFormat, line_spans, location_at};

libfuzzer_sys::fuzz_target!(|data: (i32, u32, &[u8])| {
    let (first_line, offset, table) = data;
    for format in [LineFormat::Locations, LineFormat::Ranges, LineFormat::Lnotab] {
        let spans = line_spans(format, table, first_line);
        assert!(spans.len() <= table.len() + 1);
        assert!(spans.is_sorted_by_key(|span| span.start));
        let span = spans.iter().rfind(|span| span.start <= offset);
        let line = location_at(format, table, first_line, offset).and_then(|location| location.line);
        assert_eq!(span.map_or(0, |span| span.line), line.unwrap_or(0), "{format:?}");
    }
});
