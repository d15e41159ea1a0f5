//! `make dist`: one tarball with the command, the allocator, man pages and completions, and the Python wheel.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Result, bail};

use crate::{malloc, wheel};

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
    malloc::compile(Path::new("."), &Path::new(&folder).join(malloc::FOLDER))?;
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

fn shell(command: &str) -> Result<()> {
    if !Command::new("bash").args(["-c", command]).status()?.success() {
        bail!("failed: {command}");
    }
    Ok(())
}
