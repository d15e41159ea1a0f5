//! Finds the interpreters of this machine.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::skip;

/// What an interpreter interprets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Runtime {
    /// CPython.
    Python,
    /// PHP.
    Php,
}

/// A program that runs fixture programs.
#[derive(Clone, Debug)]
pub struct Interpreter {
    /// What it interprets.
    pub runtime: Runtime,
    /// Major and minor version.
    pub version: (u32, u32),
    /// Name for messages: `python3.11 (system)`, `php8.4 opcache (root)`.
    pub label: String,
    /// The program, as seen inside `root`.
    pub program: PathBuf,
    /// Folder that the program takes for `/`.
    pub root: Option<PathBuf>,
    /// Arguments that make it this variant, before any others.
    pub args: Vec<OsString>,
}

impl Interpreter {
    /// A command that runs the interpreter with its own arguments. `chroot` replaces itself, so that the id of the
    /// process is that of the interpreter.
    pub fn command(&self) -> Command {
        let mut command = match &self.root {
            Some(root) => {
                let mut command = Command::new("chroot");
                command.arg(root).arg(&self.program);
                command
            }
            None => Command::new(&self.program),
        };
        command.args(&self.args);
        command
    }
}

/// The folder that `fixtures/roots/roots` built under this name, or a sentence that says why it cannot be used.
pub(crate) fn root(name: &str) -> Result<PathBuf, String> {
    let cache = match (std::env::var_os("SLIP_CACHE"), std::env::var_os("HOME")) {
        (Some(cache), _) => PathBuf::from(cache),
        (None, Some(home)) => Path::new(&home).join(".cache/slipstream"),
        (None, None) => return Err("neither SLIP_CACHE nor HOME is set".into()),
    };
    let root = cache.join("roots").join(name);
    if !root.is_dir() {
        return Err(format!("no root folder (build it: fixtures/roots/roots {name})"));
    }
    // SAFETY: geteuid takes nothing, touches no memory of ours and cannot fail.
    if unsafe { libc::geteuid() } != 0 {
        return Err("chroot needs root".into());
    }
    Ok(root)
}

/// CPython in each version that can be found, oldest first; what is expected and missing is reported by [`skip`].
///
/// Looks at `/usr/bin/python3.11`, at pyenv's versions from 3.7 on, of which the first is too old for us, and at 3.13 to 3.15 in the root folder `python`.
pub fn pythons() -> Vec<Interpreter> {
    let mut found = Vec::new();
    let mut add = |version: (u32, u32), origin: &str, program: PathBuf, root: Option<PathBuf>| {
        let label = format!("python{}.{} ({origin})", version.0, version.1);
        let real = root.as_deref().map_or_else(|| program.clone(), |root| inside(root, &program));
        if real.exists() {
            found.push(Interpreter {
                runtime: Runtime::Python,
                version,
                label,
                program,
                root,
                args: Vec::new(),
            });
        } else {
            skip(&label, &format!("{} does not exist", real.display()));
        }
    };
    add((3, 11), "system", "/usr/bin/python3.11".into(), None);
    match pyenv_versions() {
        Ok(versions) => {
            for (version, folder) in versions {
                add(version, "pyenv", folder.join("bin/python"), None);
            }
        }
        Err(reason) => skip("python of pyenv", &reason),
    }
    match root("python") {
        Ok(root) => {
            for minor in [13, 14, 15] {
                add((3, minor), "root", format!("/usr/bin/python3.{minor}").into(), Some(root.clone()));
            }
        }
        Err(reason) => skip("python3.13 to 3.15 (root)", &reason),
    }
    found.sort_by_key(|interpreter| interpreter.version);
    found
}

/// A version and the folder it is installed in.
type Installed = ((u32, u32), PathBuf);

/// pyenv's CPythons that are not too old to be of interest.
fn pyenv_versions() -> Result<Vec<Installed>, String> {
    let base = match (std::env::var_os("PYENV_ROOT"), std::env::var_os("HOME")) {
        (Some(base), _) => PathBuf::from(base),
        (None, Some(home)) => Path::new(&home).join(".pyenv"),
        (None, None) => return Err("neither PYENV_ROOT nor HOME is set".into()),
    };
    let folder = base.join("versions");
    let entries = std::fs::read_dir(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let mut versions = Vec::new();
    for entry in entries.flatten() {
        let name = entry.file_name();
        // Other implementations and free-threaded builds have names that do not begin with a plain number.
        let Some(version) = name.to_str().and_then(major_minor) else { continue };
        if version >= (3, 7) {
            versions.push((version, entry.path()));
        }
    }
    Ok(versions)
}

/// The first two numbers of `3.13.0`.
fn major_minor(text: &str) -> Option<(u32, u32)> {
    let mut parts = text.split('.');
    let major = parts.next()?.parse().ok()?;
    let minor = parts.next()?.parse().ok()?;
    parts.next()?.parse::<u32>().ok()?;
    Some((major, minor))
}

/// PHP in each version that can be found, without and with opcache; what is missing is reported by [`skip`].
///
/// Looks at `/usr/bin/php8.2` and at 8.4 in the root folder `php`. Both read their usual configuration files.
pub fn phps() -> Vec<Interpreter> {
    let mut found = Vec::new();
    let mut add = |version: (u32, u32), origin: &str, root: Option<PathBuf>| {
        let name = format!("php{}.{}", version.0, version.1);
        let program = Path::new("/usr/bin").join(&name);
        let real = root.as_deref().map_or_else(|| program.clone(), |root| inside(root, &program));
        if !real.exists() {
            return skip(&format!("{name} ({origin})"), &format!("{} does not exist", real.display()));
        }
        let plain = Interpreter {
            runtime: Runtime::Php,
            version,
            label: format!("{name} ({origin})"),
            program,
            root,
            args: vec!["-d".into(), "opcache.enable_cli=0".into()],
        };
        let mut cached = Interpreter {
            label: format!("{name} opcache ({origin})"),
            args: vec!["-d".into(), "opcache.enable_cli=1".into()],
            ..plain.clone()
        };
        // Debian's configuration loads opcache; to load it twice would print a warning.
        if !opcache_is_on(&cached) {
            cached.args.extend(["-d".into(), "zend_extension=opcache".into()]);
        }
        let works = opcache_is_on(&cached);
        let label = cached.label.clone();
        found.push(plain);
        if works {
            found.push(cached);
        } else {
            skip(&label, "opcache cannot be switched on");
        }
    };
    add((8, 2), "system", None);
    match root("php") {
        Ok(root) => add((8, 4), "root", Some(root)),
        Err(reason) => skip("php8.4 (root)", &reason),
    }
    found
}

/// Whether code runs out of opcache in this variant.
fn opcache_is_on(php: &Interpreter) -> bool {
    let code = "echo function_exists('opcache_get_status') && opcache_get_status() ? 'on' : 'off';";
    let output = php.command().args(["-r", code]).output();
    output.is_ok_and(|output| output.stdout == b"on")
}

/// `path` of a root folder as seen from outside.
fn inside(root: &Path, path: &Path) -> PathBuf {
    root.join(path.strip_prefix("/").unwrap_or(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_told_from_other_folders() {
        assert_eq!(major_minor("3.13.0"), Some((3, 13)));
        assert_eq!(major_minor("3.13.0t"), None);
        assert_eq!(major_minor("pypy3.10-7.3"), None);
        assert_eq!(major_minor("3.13-dev"), None);
    }
}
