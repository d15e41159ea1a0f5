//! `slip run`: becomes a command that has its blocks from `libslipmalloc.so`.

use std::env;
use std::ffi::{OsStr, OsString};
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use slip_record::preload_obstacle;

use crate::args::RunOptions;
use crate::failure::{self, Failure};
use crate::malloc::words_of_obstacle;

/// Names the library, in the place of the one that was installed.
const VARIABLE: &str = "SLIP_MALLOC_LIB";

/// Becomes the command; comes back only if that fails.
pub(crate) fn run(options: &RunOptions) -> Result<(), Failure> {
    let library = find_library(library_name(options))?;
    // The definitions ask for one.
    let Some((program, arguments)) = options.command.split_first() else {
        return Err(Failure::new(failure::USAGE, "no command"));
    };
    let shown = program.to_string_lossy();
    check_preloadable(&shown)?;
    let error = Command::new(program)
        .args(arguments)
        .env("LD_PRELOAD", preload(&library, env::var_os("LD_PRELOAD")))
        .exec();
    Err(cannot_start(&shown, error.kind(), &error.to_string()))
}

/// The value of `LD_PRELOAD` with which `program` gets its blocks from the library.
pub(crate) fn preload_for(program: &str) -> Result<OsString, Failure> {
    let library = find_library("libslipmalloc.so")?;
    check_preloadable(program)?;
    Ok(preload(&library, env::var_os("LD_PRELOAD")))
}

fn check_preloadable(program: &str) -> Result<(), Failure> {
    match preload_obstacle(program) {
        Ok(None) => Ok(()),
        Ok(Some(obstacle)) => {
            let (why, hint) = words_of_obstacle(&obstacle);
            Err(Failure::new(failure::UNSUPPORTED, format!("cannot preload into `{program}`: {why}"))
                .hint(hint))
        }
        Err(error) => Err(cannot_start(program, error.kind(), &error.to_string())),
    }
}

fn cannot_start(program: &str, kind: ErrorKind, error: &str) -> Failure {
    match kind {
        ErrorKind::NotFound => Failure::new(failure::NO_TARGET, format!("no program `{program}`")),
        ErrorKind::PermissionDenied => {
            Failure::new(failure::PERMISSION, format!("not permitted to execute `{program}`"))
        }
        _ => Failure::new(failure::IO, format!("cannot execute `{program}`: {error}")),
    }
}

/// Ours first: the first of several that have a `malloc()` gives out the blocks.
fn preload(library: &Path, before: Option<OsString>) -> OsString {
    let mut list = library.as_os_str().to_owned();
    if let Some(before) = before.filter(|before| !before.is_empty()) {
        list.push(":");
        list.push(before);
    }
    list
}

fn library_name(options: &RunOptions) -> &'static str {
    match (options.secure, options.debug) {
        (true, _) => "libslipmalloc-secure.so",
        (_, true) => "libslipmalloc-debug.so",
        _ => "libslipmalloc.so",
    }
}

fn find_library(name: &str) -> Result<PathBuf, Failure> {
    let named = env::var_os(VARIABLE).filter(|path| !path.is_empty());
    let own = env::current_exe().ok();
    let places = match &named {
        Some(path) => vec![PathBuf::from(path)],
        None => places(own.as_deref(), name),
    };
    let Some(found) = places.iter().find(|place| place.is_file()) else {
        let list: Vec<String> = places.iter().map(|place| format!("`{}`", place.display())).collect();
        let failure = Failure::new(failure::IO, format!("no {name}: looked for {}", list.join(", ")));
        return Err(failure.hint(match named {
            Some(_) => format!("{VARIABLE} names it: correct or unset it"),
            None => format!("`make install` installs it; {VARIABLE} may name it elsewhere"),
        }));
    };
    // Without a path from the root the loader would look where libraries are, and a service elsewhere.
    let found = std::path::absolute(found)
        .map_err(|error| Failure::io(format!("cannot find `{}`", found.display()), &error))?;
    if splits(found.as_os_str()) {
        let message = format!(
            "`{}` cannot be preloaded: the loader takes blanks and colons for the end of a path",
            found.display()
        );
        return Err(Failure::new(failure::UNSUPPORTED, message).hint("put the library elsewhere"));
    }
    Ok(found)
}

/// Beside the program, and where `make install` puts it.
fn places(program: Option<&Path>, name: &str) -> Vec<PathBuf> {
    let Some(folder) = program.and_then(Path::parent) else { return Vec::new() };
    let installed = folder.parent().map(|prefix| prefix.join("lib/slipstream").join(name));
    [Some(folder.join(name)), installed].into_iter().flatten().collect()
}

fn splits(path: &OsStr) -> bool {
    path.as_bytes().iter().any(|byte| b": \t\n$".contains(byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_library_is_beside_or_below_lib() {
        let found = places(Some(Path::new("/usr/local/bin/slip")), "a.so");
        assert_eq!(found, [Path::new("/usr/local/bin/a.so"), Path::new("/usr/local/lib/slipstream/a.so")]);
        assert_eq!(places(None, "a.so"), [] as [PathBuf; 0]);
    }

    #[test]
    fn what_is_preloaded_already_comes_behind() {
        let library = Path::new("/a/b.so");
        assert_eq!(preload(library, None), "/a/b.so");
        assert_eq!(preload(library, Some(OsString::new())), "/a/b.so");
        assert_eq!(preload(library, Some("/c.so /d.so".into())), "/a/b.so:/c.so /d.so");
    }

    #[test]
    fn a_path_that_the_loader_would_split() {
        assert!(splits(OsStr::new("/a b/c.so")) && splits(OsStr::new("/a:b/c.so")));
        assert!(!splits(OsStr::new("/a-b/c.so")));
    }
}
