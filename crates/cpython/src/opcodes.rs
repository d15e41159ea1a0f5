//! Names of instructions. Each version numbers them anew, those that it puts in the place of others at run time too.
//!
//! `cargo xtask opcodes` writes the tables.

use crate::Version;

/// The table of each minor version of CPython 3.
const TABLES: [(u8, &str); 5] = [
    (11, include_str!("opcodes/v3_11.txt")),
    (12, include_str!("opcodes/v3_12.txt")),
    (13, include_str!("opcodes/v3_13.txt")),
    (14, include_str!("opcodes/v3_14.txt")),
    (15, include_str!("opcodes/v3_15.txt")),
];

/// What the instruction with this number is called in this version; `None` if it has none.
///
/// # Cost
///
/// A walk along a table of 256 lines: callers keep what they got.
pub fn opcode_name(version: Version, opcode: u8) -> Option<&'static str> {
    let is_it = |(minor, _): &&(u8, &str)| version.major() == 3 && *minor == version.minor();
    let (_, table) = TABLES.iter().find(is_it)?;
    let lines = table.lines().filter_map(|line| line.split_once(' '));
    lines.filter(|(number, _)| number.parse() == Ok(opcode)).map(|(_, name)| name).next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_mean_other_instructions_in_other_versions() {
        let name = |minor: u32, opcode| opcode_name(Version::from_hex(0x0300_00f0 | minor << 16), opcode);
        assert_eq!(name(11, 100), Some("LOAD_CONST"));
        assert_eq!(name(15, 0), Some("CACHE"));
        assert_ne!(name(13, 100), name(14, 100));
        assert_eq!(name(12, 255), None);
        assert_eq!(name(10, 100), None, "there is no table of that version");
    }

    #[test]
    fn every_line_of_a_table_has_a_number_and_a_name() {
        for (minor, table) in TABLES {
            let lines = table.lines().skip(1);
            let count = lines.clone().count();
            assert!(count > 150, "3.{minor}: {count}");
            for line in lines {
                let (number, name) = line.split_once(' ').unwrap();
                assert!(number.parse::<u8>().is_ok(), "3.{minor}: {line}");
                assert!(
                    name.bytes()
                        .all(|byte| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b'_')
                );
            }
        }
    }
}
