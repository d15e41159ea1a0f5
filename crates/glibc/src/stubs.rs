//! Libraries to link with in place of the machine's own, which have of each of its symbols what an older glibc had.
//!
//! A linker takes the newest version of a symbol, and since glibc 2.34 threads, locks and `dlsym` have one, with the same function behind
//! it as before: what is linked there does not start with an older one. Here each has the newest version that the older one knew, and
//! what it did not know is missing, so that linking fails where it is used. Nothing of these libraries gets into what is linked
//! but `start.c` and `stat.c`.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::{fs, io};

use object::read::elf::{FileHeader, Sym};
use object::{Endianness, elf};
use thiserror::Error;

use crate::Version;

type Header = elf::FileHeader64<Endianness>;

/// The libraries that have symbols, the way the linker is asked for them, and those that have none left.
const WITH_SYMBOLS: [(&str, &str); 2] = [("libc.so.6", "libc.so.6"), ("libm.so.6", "libm.so")];
const WITHOUT: [(&str, &str); 4] = [
    ("libpthread.so.0", "libpthread.so"),
    ("libdl.so.2", "libdl.so"),
    ("librt.so.1", "librt.so"),
    ("libutil.so.1", "libutil.so"),
];

/// Why they could not be made, or a file not be read.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum GlibcError {
    /// A file could not be read or written.
    #[error("{path}: {source}")]
    File {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// It is no ELF file that we can read.
    #[error(transparent)]
    Elf(#[from] object::Error),
    /// A library of the machine has no versions of symbols.
    #[error("{0} has no versions of symbols")]
    NoVersions(PathBuf),
    /// The compiler or the archiver failed, or is not there.
    #[error("{tool}: {message}")]
    Tool {
        /// The program.
        tool: String,
        /// What it, or the system, said.
        message: String,
    },
}

/// A symbol that the older glibc has.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Symbol {
    version: Version,
    /// As the version is called.
    version_name: String,
    /// Where a variable is and how many bytes it has; `None` for a function.
    data: Option<(u64, u64)>,
}

/// Makes the libraries in `folder`: what is linked with `-Lfolder` needs no newer glibc than `oldest`.
///
/// A program must also be linked with `--wrap=__libc_start_main` and `start.o` of the folder.
///
/// # Errors
///
/// See [`GlibcError`].
pub fn write_stubs(folder: &Path, oldest: Version) -> Result<(), GlibcError> {
    fs::create_dir_all(folder).map_err(|source| GlibcError::File { path: folder.to_owned(), source })?;
    for (soname, name) in WITH_SYMBOLS {
        let path = found_by_compiler(soname)?;
        let bytes = fs::read(&path).map_err(|source| GlibcError::File { path: path.clone(), source })?;
        let symbols = symbols_up_to(&bytes, oldest)?.ok_or(GlibcError::NoVersions(path))?;
        write_library(folder, soname, name, &symbols)?;
    }
    for (soname, name) in WITHOUT {
        write_library(folder, soname, name, &BTreeMap::new())?;
    }
    for (object, source) in [("start.o", include_str!("start.c")), ("stat.o", include_str!("stat.c"))] {
        compile(folder, object, source)?;
    }
    run(Command::new("ar").arg("rcs").arg(folder.join("libslipstat.a")).arg(folder.join("stat.o")))?;
    let script = format!(
        "GROUP ( {} {} {} AS_NEEDED ( {} ) )\n",
        folder.join("libc.so.6").display(),
        folder.join("libslipstat.a").display(),
        found_by_compiler("libc_nonshared.a")?.display(),
        found_by_compiler("ld-linux-x86-64.so.2")?.display(),
    );
    write(&folder.join("libc.so"), &script)
}

/// Of each symbol the newest version that is not newer than `oldest`. `None` if the library has no versions.
fn symbols_up_to(bytes: &[u8], oldest: Version) -> Result<Option<BTreeMap<String, Symbol>>, GlibcError> {
    let header = Header::parse(bytes)?;
    let endian = header.endian()?;
    let sections = header.sections(endian, bytes)?;
    let Some(versions) = sections.versions(endian, bytes)? else { return Ok(None) };
    let table = sections.symbols(endian, bytes, elf::SHT_DYNSYM)?;
    let mut found: BTreeMap<String, Symbol> = BTreeMap::new();
    for (index, symbol) in table.enumerate() {
        let is_data = match symbol.st_type() {
            elf::STT_FUNC | elf::STT_GNU_IFUNC => false,
            elf::STT_OBJECT => true,
            _ => continue,
        };
        // The names of the versions are absolute symbols.
        if matches!(symbol.st_shndx(endian), elf::SHN_UNDEF | elf::SHN_ABS) {
            continue;
        }
        let Some(version) = versions.version(versions.version_index(endian, index))? else { continue };
        let version_name = String::from_utf8_lossy(version.name()).into_owned();
        let Some(version) = Version::of_name(&version_name).filter(|version| *version <= oldest) else {
            continue;
        };
        let name = String::from_utf8_lossy(symbol.name(endian, table.strings())?).into_owned();
        let data = is_data.then(|| (symbol.st_value(endian), symbol.st_size(endian)));
        let symbol = Symbol { version, version_name, data };
        match found.get(&name) {
            Some(known) if known.version >= version => {}
            _ => _ = found.insert(name, symbol),
        }
    }
    Ok(Some(found))
}

fn write_library(
    folder: &Path,
    soname: &str,
    name: &str,
    symbols: &BTreeMap<String, Symbol>,
) -> Result<(), GlibcError> {
    let (source, map) = (folder.join(format!("{name}.s")), folder.join(format!("{name}.map")));
    write(&source, &assembly(symbols))?;
    write(&map, &version_script(symbols))?;
    let mut command = Command::new(compiler());
    command.args(["-shared", "-nostdlib", &format!("-Wl,-soname,{soname}")]);
    if !symbols.is_empty() {
        command.arg(format!("-Wl,--version-script={}", map.display()));
    }
    run(command.arg("-o").arg(folder.join(name)).arg(&source)).map(|_| ())
}

/// Names without code, and variables of the right size: a program may have the variable itself, and the library uses that one.
fn assembly(symbols: &BTreeMap<String, Symbol>) -> String {
    let mut text = String::from(".section .note.GNU-stack,\"\",@progbits\n.text\n");
    // Several names may be of one variable.
    let mut variables: BTreeMap<u64, Vec<(&str, u64)>> = BTreeMap::new();
    for (name, symbol) in symbols {
        match symbol.data {
            None => _ = writeln!(text, ".globl {name}\n.type {name}, @function\n{name}: .byte 0"),
            Some((addr, size)) => variables.entry(addr).or_default().push((name, size)),
        }
    }
    text += ".bss\n";
    for names in variables.values() {
        text += ".balign 32\n";
        for (name, size) in names {
            _ = writeln!(text, ".globl {name}\n.type {name}, @object\n.size {name}, {size}\n{name}:");
        }
        _ = writeln!(text, ".zero {}", names.iter().map(|(_, size)| *size).max().unwrap_or(0).max(1));
    }
    text
}

fn version_script(symbols: &BTreeMap<String, Symbol>) -> String {
    let mut versions: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (name, symbol) in symbols {
        versions.entry(&symbol.version_name).or_default().push(name);
    }
    versions.iter().map(|(version, names)| format!("{version} {{ {}; }};\n", names.join("; "))).collect()
}

fn compile(folder: &Path, object: &str, source: &str) -> Result<(), GlibcError> {
    let path = folder.join(Path::new(object).with_extension("c"));
    write(&path, source)?;
    let mut command = Command::new(compiler());
    // Without what a distribution switches on: it would ask for functions of its own.
    command.args([
        "-O2",
        "-fPIC",
        "-fno-stack-protector",
        "-U_FORTIFY_SOURCE",
        "-Wall",
        "-Wextra",
        "-Werror",
    ]);
    run(command.arg("-c").arg("-o").arg(folder.join(object)).arg(path)).map(|_| ())
}

/// The one that Rust links with.
fn compiler() -> &'static str {
    "cc"
}

/// Where the compiler finds a library.
fn found_by_compiler(name: &str) -> Result<PathBuf, GlibcError> {
    let output = run(Command::new(compiler()).arg(format!("-print-file-name={name}")))?;
    let path = PathBuf::from(String::from_utf8_lossy(&output.stdout).trim());
    // If it finds none it says the name.
    path.canonicalize().map_err(|source| GlibcError::File { path, source })
}

fn write(path: &Path, text: &str) -> Result<(), GlibcError> {
    fs::write(path, text).map_err(|source| GlibcError::File { path: path.to_owned(), source })
}

fn run(command: &mut Command) -> Result<Output, GlibcError> {
    let tool = command.get_program().to_string_lossy().into_owned();
    match command.output() {
        Ok(output) if output.status.success() => Ok(output),
        Ok(output) => {
            Err(GlibcError::Tool { tool, message: String::from_utf8_lossy(&output.stderr).trim().to_owned() })
        }
        Err(error) => Err(GlibcError::Tool { tool, message: error.to_string() }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::OLDEST;

    fn symbol(version: [u32; 3], version_name: &str, data: Option<(u64, u64)>) -> Symbol {
        Symbol { version: Version(version), version_name: version_name.to_owned(), data }
    }

    #[test]
    fn names_of_one_variable_stay_together() {
        let symbols = BTreeMap::from([
            ("environ".to_owned(), symbol([2, 2, 5], "GLIBC_2.2.5", Some((64, 8)))),
            ("__environ".to_owned(), symbol([2, 2, 5], "GLIBC_2.2.5", Some((64, 8)))),
            ("fcntl64".to_owned(), symbol([2, 28, 0], "GLIBC_2.28", None)),
        ]);
        assert_eq!(
            version_script(&symbols),
            "GLIBC_2.2.5 { __environ; environ; };\nGLIBC_2.28 { fcntl64; };\n"
        );
        assert_eq!(assembly(&symbols).matches(".zero 8\n").count(), 1);
    }

    #[test]
    fn the_machines_own_library_has_what_programs_need() {
        let bytes = fs::read(found_by_compiler("libc.so.6").unwrap()).unwrap();
        let symbols = symbols_up_to(&bytes, OLDEST).unwrap().unwrap();
        assert_eq!(symbols["pthread_create"].version_name, "GLIBC_2.2.5");
        assert_eq!(symbols["memcpy"].version_name, "GLIBC_2.14");
        assert_eq!(symbols["fcntl64"].version_name, "GLIBC_2.28");
        assert!(symbols.contains_key("__xstat") && !symbols.contains_key("gettid"));
        assert!(symbols.values().all(|symbol| symbol.version <= OLDEST));
    }
}
