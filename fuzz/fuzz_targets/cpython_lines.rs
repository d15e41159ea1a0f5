//! The decoder of location tables: any bytes give spans in ascending order, and not more than there are bytes; and a location has the
//! line of its span.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: (i32, u32, &[u8])| {
    let (first_line, offset, table) = data;
    let spans = slip_cpython::line_spans(table, first_line);
    assert!(spans.len() <= table.len() + 1);
    assert!(spans.is_sorted_by_key(|span| span.start));
    let span = spans.iter().rfind(|span| span.start <= offset);
    let line = slip_cpython::location_at(table, first_line, offset).and_then(|location| location.line);
    assert_eq!(span.map_or(0, |span| span.line), line.unwrap_or(0));
});
