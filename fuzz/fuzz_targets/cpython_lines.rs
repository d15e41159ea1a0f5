//! The decoder of location tables: any bytes give spans in ascending order, and not more than there are bytes.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: (i32, &[u8])| {
    let (first_line, table) = data;
    let spans = slip_cpython::line_spans(table, first_line);
    assert!(spans.len() <= table.len() + 1);
    assert!(spans.is_sorted_by_key(|span| span.start));
});
