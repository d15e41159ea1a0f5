//! The oldest glibc that what we ship runs with, whatever glibc the machine has that builds it.
//!
//! Owns how that is linked, for the build scripts of what is shipped, and the check of what came out. Never runs in what is shipped.
#![forbid(unsafe_code)]

mod needs;
mod stubs;

use std::path::PathBuf;
use std::{env, fmt};

pub use needs::{Need, needs};
pub use stubs::{GlibcError, write_stubs};

/// Version of glibc.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version(
    /// Such as 2, 28 or 2, 2, 5.
    pub [u32; 3],
);

/// That of Debian 10, Ubuntu 18.10 and Red Hat 8: everything that is called `manylinux_2_28` runs with it.
pub const OLDEST: Version = Version([2, 28, 0]);

impl Version {
    /// Reads the name of a version of symbols, such as `GLIBC_2.2.5`; `None` for others, such as `GLIBC_PRIVATE`.
    pub fn of_name(name: &str) -> Option<Self> {
        let mut numbers = [0; 3];
        let mut parts = name.strip_prefix("GLIBC_")?.split('.');
        for number in &mut numbers {
            match parts.next() {
                Some(part) => *number = part.parse().ok()?,
                None => break,
            }
        }
        parts.next().is_none().then_some(Self(numbers))
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [major, minor, patch] = self.0;
        write!(f, "{major}.{minor}")?;
        if patch > 0 { write!(f, ".{patch}") } else { Ok(()) }
    }
}

/// What the build script of a crate makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A program.
    Program,
    /// A shared library.
    Library,
}

/// To be called by the build script of what is shipped: a release build is linked so that it runs with [`OLDEST`]. Others, of which
/// there are many a day, are linked as the machine does it.
///
/// # Errors
///
/// See [`GlibcError`].
#[allow(clippy::print_stdout, reason = "how a build script speaks to cargo")]
pub fn link_for_oldest(kind: Kind) -> Result<(), GlibcError> {
    println!("cargo::rerun-if-changed=build.rs");
    let is = |name: &str, value: &str| env::var(name).is_ok_and(|found| found == value);
    let is_ours = is("CARGO_CFG_TARGET_ENV", "gnu") && is("CARGO_CFG_TARGET_ARCH", "x86_64");
    if !is_ours || !is("PROFILE", "release") {
        return Ok(());
    }
    let folder = PathBuf::from(env::var_os("OUT_DIR").unwrap_or_default()).join("glibc");
    write_stubs(&folder, OLDEST)?;
    // Before the folders of the system that other crates ask for: cargo puts its own first.
    println!("cargo::rustc-link-search=native={}", folder.display());
    let of = if kind == Kind::Program { "bins" } else { "cdylib" };
    let mut arguments = Vec::new();
    if kind == Kind::Program {
        arguments.push("-Wl,--wrap=__libc_start_main".to_owned());
        arguments.push(folder.join("start.o").display().to_string());
        // The machine's libgcc_s needs the machine's glibc, which is none of our business.
        arguments.push("-Wl,--allow-shlib-undefined".to_owned());
    }
    // What glibc has kept in its main library since 2.34 was in these before. They have been there ever since, empty.
    for argument in ["-Wl,--push-state,--no-as-needed", "-lpthread", "-ldl", "-lrt", "-Wl,--pop-state"] {
        arguments.push(argument.to_owned());
    }
    for argument in arguments {
        println!("cargo::rustc-link-arg-{of}={argument}");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_in_order() {
        let version = |name: &str| Version::of_name(name);
        assert_eq!(version("GLIBC_2.2.5"), Some(Version([2, 2, 5])));
        assert!(version("GLIBC_2.2.5") < version("GLIBC_2.28"));
        assert!(version("GLIBC_2.28") <= Some(OLDEST) && version("GLIBC_2.29") > Some(OLDEST));
        for other in ["GLIBC_PRIVATE", "GLIBC_ABI_DT_RELR", "GCC_3.0", "GLIBC_2.2.5.1", ""] {
            assert_eq!(version(other), None, "{other}");
        }
        assert_eq!([OLDEST.to_string(), Version([2, 2, 5]).to_string()], ["2.28", "2.2.5"]);
    }
}
