//! Compiles the programs of `bpf/` for the kernel.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Each with the instructions that it may use: those of a later set do not load before Linux 5.12.
const PROGRAMS: [(&str, &str); 3] = [("sample", "v2"), ("budget", "v3"), ("fault", "v3")];

fn main() {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../bpf");
    let out = PathBuf::from(env::var_os("OUT_DIR").unwrap_or_default());
    let libbpf = env::var_os("DEP_BPF_INCLUDE").unwrap_or_default();
    println!("cargo::rerun-if-changed={}", sources.display());
    println!("cargo::rerun-if-env-changed=CLANG");
    let clang = env::var_os("CLANG").unwrap_or_else(|| "clang".into());
    for (program, instructions) in PROGRAMS {
        let mut command = Command::new(&clang);
        command
            .args(["-target", "bpf", "-O2", "-g", "-std=gnu11", "-Wall", "-Wextra", "-Werror"])
            .arg(format!("-mcpu={instructions}"))
            .args(["-Wno-sign-compare", "-Wno-unused-parameter", "-D__TARGET_ARCH_x86"])
            .arg("-isystem")
            .arg(&libbpf)
            // Where Debian has <asm/types.h>.
            .args(["-isystem", "/usr/include/x86_64-linux-gnu"])
            .arg("-c")
            .arg(sources.join(format!("{program}.bpf.c")))
            .arg("-o")
            .arg(out.join(format!("{program}.bpf.o")));
        let result = command.status();
        match result {
            Ok(status) if status.success() => {}
            Ok(status) => panic!("clang failed on {program}.bpf.c: {status}"),
            Err(error) => panic!(
                "clang cannot be run: {error}\nhint: apt-get install clang libelf-dev zlib1g-dev, or `make setup`"
            ),
        }
    }
}
