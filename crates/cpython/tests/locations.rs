//! Lines and columns of instructions: what we decode is what the interpreter itself does.

#![allow(clippy::unwrap_used, reason = "what fails here fails the test")]

mod common;

use common::supported_pythons;
use serde::Deserialize;
use slip_cpython::{LineFormat, Location, location_at};
use slip_testkit::Launch;

/// A line of the program: one function.
#[derive(Deserialize)]
struct Function {
    first_line: i32,
    /// Hexadecimal.
    table: String,
    /// How many instructions, and where they were written.
    runs: Vec<(usize, [Option<u32>; 4])>,
}

fn bytes_of(text: &str) -> Vec<u8> {
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    text.as_bytes().chunks_exact(2).map(byte).collect()
}

#[test]
fn every_instruction_of_some_modules() {
    // Before 3.11 there are no columns, and no function tells the lines of instructions: see the tests of `lines.rs`.
    for python in supported_pythons().into_iter().filter(|python| python.version >= (3, 11)) {
        let mut child = Launch::script(&python, "python/positions.py").start().unwrap();
        let mut instructions = 0;
        for line in child.wait_ready().unwrap() {
            let function: Function = serde_json::from_str(&line).unwrap();
            let table = bytes_of(&function.table);
            let expected = function.runs.iter().flat_map(|(count, run)| std::iter::repeat_n(*run, *count));
            let mut offset = 0;
            for [line, end_line, column, end_column] in expected {
                let location = Location { line, end_line, column, end_column };
                let found = location_at(LineFormat::Locations, &table, function.first_line, offset);
                assert_eq!(found, Some(location), "{}, {offset} of {}", python.label, function.table);
                offset += 2;
            }
            assert_eq!(
                location_at(LineFormat::Locations, &table, function.first_line, offset),
                None,
                "{}",
                python.label
            );
            instructions += offset / 2;
        }
        assert!(instructions > 10_000, "{}: {instructions}", python.label);
    }
}
