//! Names of functions, as their authors wrote them.

use std::fmt::{self, Write};

use cpp_demangle::{DemangleOptions, Symbol};

/// Longer ones are cut: what a few letters stand for may be as long as memory is.
const MAX_NAME_BYTES: usize = 256;

/// Longer symbols are not looked into.
const MAX_SYMBOL_BYTES: usize = 1_024;

/// What compilers put behind a name when they make another function of it.
const CLONES: [&str; 6] = [".constprop.", ".isra.", ".part.", ".cold", ".lto_priv.", ".llvm."];

/// The name of a function, without its parameters, from its symbol.
pub fn readable(symbol: &[u8]) -> String {
    let symbol = String::from_utf8_lossy(symbol.get(..MAX_SYMBOL_BYTES).unwrap_or(symbol));
    let clone = CLONES.iter().filter_map(|clone| symbol.find(clone)).filter(|at| *at > 0).min();
    let symbol = &symbol[..clone.unwrap_or(symbol.len())];
    let mut name = Short::default();
    if let Ok(rust) = rustc_demangle::try_demangle(symbol)
        && is_rust(symbol)
    {
        // Without the hash.
        let _ = write!(name, "{rust:#}");
    } else if symbol.starts_with("_Z")
        && let Ok(parsed) = Symbol::new(symbol.as_bytes())
    {
        let options = DemangleOptions::new().no_params().no_return_type();
        let _ = parsed.structured_demangle(&mut name, &options);
    }
    if name.text.is_empty() {
        let _ = name.write_str(symbol);
    }
    name.text
}

/// C++ has names that begin alike.
fn is_rust(symbol: &str) -> bool {
    symbol.starts_with("_R")
        || symbol.strip_suffix('E').is_some_and(|name| {
            let hash = name.len().checked_sub(19).and_then(|at| name.get(at..));
            hash.is_some_and(|hash| hash.starts_with("17h"))
        })
}

/// A text that ends where it becomes too long.
#[derive(Debug, Default)]
struct Short {
    text: String,
}

impl Write for Short {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let room = MAX_NAME_BYTES.saturating_sub(self.text.len());
        if text.len() <= room {
            self.text.push_str(text);
            return Ok(());
        }
        let end = (0..=room).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
        self.text.push_str(&text[..end]);
        Err(fmt::Error)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn names_are_those_of_the_source() {
        let names = [
            ("parse_line", "parse_line"),
            ("parse_line.constprop.0", "parse_line"),
            ("grow.isra.0.cold", "grow"),
            ("_ZN5space3foo4growEi", "space::foo::grow"),
            ("_ZNSt6vectorIiSaIiEE7reserveEm", "std::vector<int, std::allocator<int> >::reserve"),
            ("_ZN4core3fmt5Write9write_fmt17h0123456789abcdefE", "core::fmt::Write::write_fmt"),
            ("_RNvC7mycrate3foo", "mycrate::foo"),
            ("_Z", "_Z"),
            ("", ""),
        ];
        for (symbol, name) in names {
            assert_eq!(readable(symbol.as_bytes()), name);
        }
    }

    #[test]
    fn a_name_that_grows_is_cut() {
        // Each `S_` stands for all before it.
        let symbol = format!("_Z1fI{}EvT_", "St4pairI".repeat(20) + &"S_S_E".repeat(20));
        assert!(readable(symbol.as_bytes()).len() <= MAX_NAME_BYTES);
        assert_eq!(readable("größe".repeat(1_000).as_bytes()).chars().last(), Some('ö'));
    }

    proptest! {
        #[test]
        fn any_symbol_has_a_short_name(symbol in prop::collection::vec(any::<u8>(), 0..80)) {
            prop_assert!(readable(&symbol).len() <= MAX_NAME_BYTES + 4);
            let cpp = [b"_ZN3fooI", &symbol[..]].concat();
            prop_assert!(readable(&cpp).len() <= MAX_NAME_BYTES + 4);
        }
    }
}
