//! Work on the repository itself: generated files, the test run, evidence, packing. `cargo xtask` lists the commands.
//!
//! Owns the recipes of generated files. Needs no network but for `wheel`, which
//! fetches what builds wheels once.

mod dist;
mod evidence;
mod malloc;
mod notice;
mod opcodes;
mod page;
mod test_run;
mod wheel;
mod zend_offsets;

use anyhow::{Result, bail};

const USAGE: &str = "usage: cargo xtask COMMAND

  test                     everything that must pass, with one line of counts at the end
  evidence [NAME]          re-measures docs/evidence.md, or one row of it
  dist                     packs target/dist/slip-*.tar.gz from the release build, and the wheel
  wheel                    builds target/dist/slipstream_prof-*.whl and checks that older systems can use it
  notice [--check]         writes NOTICE: the libraries that are linked in, with their licences
      --check              changes nothing; fails if the file is not what it should be
  page [--check]           writes crates/report/src/html/page.js, page.css and policy.txt from web/, by esbuild
      --check              changes nothing; fails if a file is not what it should be, or the types of web/ do not fit
  opcodes                  writes crates/cpython/src/opcodes/v*.txt, asked of every CPython that is installed
  zend-offsets             writes crates/zend/src/offsets/v*.rs from the headers of every PHP that is installed
                           (8.2 by php-config8.2, 8.4 in the root folder that fixtures/roots/roots makes)";

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match args[..] {
        ["test"] => test_run::run(),
        ["evidence"] => evidence::run(None),
        ["evidence", name] => evidence::run(Some(name)),
        ["dist"] => dist::run(),
        ["wheel"] => wheel::run(),
        ["notice"] => notice::write(),
        ["notice", "--check"] => notice::check(),
        ["page"] => page::write(),
        ["page", "--check"] => page::check(),
        ["opcodes"] => opcodes::write(),
        ["zend-offsets"] => zend_offsets::write(),
        _ => bail!("{USAGE}"),
    }
}
