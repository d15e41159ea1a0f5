//! Regenerates committed files that are derived from something installed here. `cargo xtask` lists the commands.
//!
//! Owns the recipes of generated files. Never needs the network.

mod zend_offsets;

use anyhow::{Result, bail};

const USAGE: &str = "usage: cargo xtask zend-offsets [--check]

  zend-offsets   writes crates/zend/src/offsets/v*.rs from the headers of every PHP that is installed
                 (8.2 by php-config8.2, 8.4 in the root folder that fixtures/roots/roots makes)
      --check    changes nothing; fails if a file is not what the headers say";

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match args[..] {
        ["zend-offsets"] => zend_offsets::write(),
        ["zend-offsets", "--check"] => zend_offsets::check(),
        _ => bail!("{USAGE}"),
    }
}
