//! The allocator as it is given away: for the oldest glibc that is promised, and without symbols.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};
use slip_glibc::{OLDEST, write_stubs};

use crate::wheel;

/// Where `slip`, which is in `bin`, looks for it.
pub(crate) const FOLDER: &str = "lib/slipstream";

/// How many libraries it is.
pub(crate) const LIBRARIES: usize = 3;

/// Builds the allocator of the repository at `root` into `folder`, linked so that it runs with the oldest glibc.
pub(crate) fn compile(root: &Path, folder: &Path) -> Result<()> {
    fs::create_dir_all(folder)?;
    let stubs = fs::canonicalize(folder)?.join("glibc");
    write_stubs(&stubs, OLDEST)?;
    // Threads and `dlsym` have libraries of their own there.
    let flags = format!("-L{} -lpthread -ldl", stubs.display());
    let output = Command::new(root.join("alloc/compile")).arg(folder).env("CFLAGS", flags).output()?;
    fs::remove_dir_all(stubs)?;
    if !output.status.success() {
        bail!("alloc/compile failed: {}", String::from_utf8_lossy(&output.stderr));
    }
    for library in String::from_utf8(output.stdout).context("alloc/compile")?.lines() {
        wheel::execute(Command::new("strip").args(["--strip-unneeded", library]))?;
        wheel::check_program(Path::new(library))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_allocator_runs_with_the_oldest_glibc() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let folder = std::env::temp_dir().join(format!("slip-dist-{}", std::process::id()));
        compile(&root, &folder).unwrap();
        let mut shell = Command::new("sh");
        shell.args(["-c", "grep libslipmalloc.so /proc/$$/maps"]);
        let output = shell.env("LD_PRELOAD", folder.join("libslipmalloc.so")).output().unwrap();
        fs::remove_dir_all(&folder).unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && said.is_empty(), "{said}");
    }
}
