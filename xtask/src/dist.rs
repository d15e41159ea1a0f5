//! `make dist`: one tarball with the command, the allocator, man pages and completions, and the Python wheel.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};
use slip_glibc::{OLDEST, write_stubs};

use crate::wheel;

/// Packs `target/dist/slip-VERSION-x86_64-linux.tar.gz` and builds the wheel.
pub(crate) fn run() -> Result<()> {
    let name = format!("slip-{}-x86_64-linux", env!("CARGO_PKG_VERSION"));
    let folder = format!("target/dist/{name}");
    let _ = fs::remove_dir_all(&folder);
    for part in ["bin", "share/man/man1", "share/bash-completion/completions", "share/doc/slip"] {
        fs::create_dir_all(format!("{folder}/{part}"))?;
    }
    let slip = "target/release/slip";
    wheel::check_program(Path::new(slip))?;
    fs::copy(slip, format!("{folder}/bin/slip"))?;
    compile_malloc(Path::new("."), &Path::new(&folder).join("lib/slipstream"))?;
    for file in ["README.md", "LICENSE-MIT", "LICENSE-APACHE", "NOTICE", "CHANGELOG.md"] {
        fs::copy(file, format!("{folder}/share/doc/slip/{file}"))?;
    }
    shell(&format!("{slip} man {folder}/share/man/man1"))?;
    shell(&format!("{slip} completions bash > {folder}/share/bash-completion/completions/slip"))?;
    shell(&format!(
        "tar -C target/dist --sort=name --owner=0 --group=0 --numeric-owner -czf target/dist/{name}.tar.gz {name}"
    ))?;
    shell(&format!("cd target/dist && sha256sum {name}.tar.gz | tee {name}.tar.gz.sha256"))?;
    wheel::run()
}

/// Builds the allocator of the repository at `root` into `folder`, linked so that it runs with the oldest glibc.
fn compile_malloc(root: &Path, folder: &Path) -> Result<()> {
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
        shell(&format!("strip --strip-unneeded {library}"))?;
        wheel::check_program(Path::new(library))?;
    }
    Ok(())
}

fn shell(command: &str) -> Result<()> {
    if !Command::new("bash").args(["-c", command]).status()?.success() {
        bail!("failed: {command}");
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
        compile_malloc(&root, &folder).unwrap();
        let mut shell = Command::new("sh");
        shell.args(["-c", "grep libslipmalloc.so /proc/$$/maps"]);
        let output = shell.env("LD_PRELOAD", folder.join("libslipmalloc.so")).output().unwrap();
        fs::remove_dir_all(&folder).unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && said.is_empty(), "{said}");
    }
}
