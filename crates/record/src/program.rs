//! What a command is: a program, or a script and its interpreter.

use std::fs::{self, File};
use std::io::Read as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use slip_probe::RunStart;

/// Programs that open the script which their arguments name; with the number of a version behind.
const INTERPRETERS: [&str; 12] =
    ["python", "pypy", "php", "ruby", "perl", "node", "lua", "bash", "dash", "sh", "zsh", "Rscript"];

/// Options with which it is no file: the program itself follows, or the name of a module. To shells only the first means that.
const NO_FILE: [&str; 4] = ["-c", "-m", "-e", "-r"];

/// Where the run of this command begins, once it has been started.
pub fn start_of(command: &[String]) -> RunStart {
    let Some((program, arguments)) = command.split_first() else { return RunStart::Exec };
    let Some(path) = find(program, &std::env::var("PATH").unwrap_or_default()) else { return RunStart::Exec };
    let script = if begins_with(&path, b"#!") { Some(path.clone()) } else { script_of(&path, arguments) };
    match script.and_then(|script| fs::metadata(script).ok()) {
        Some(script) => RunStart::Script { inode: script.ino() },
        None => RunStart::Program { path },
    }
}

/// The file of a program, as the system looks for it.
pub(crate) fn find(program: &str, path: &str) -> Option<PathBuf> {
    let is_program = |path: &PathBuf| {
        fs::metadata(path).is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
    };
    if program.contains('/') {
        return Some(PathBuf::from(program)).filter(is_program);
    }
    path.split(':').map(|folder| Path::new(folder).join(program)).find(is_program)
}

fn begins_with(path: &Path, begin: &[u8; 2]) -> bool {
    let mut bytes = [0; 2];
    File::open(path).and_then(|mut file| file.read_exact(&mut bytes)).is_ok() && bytes == *begin
}

/// The script that an interpreter is given: the first argument that is a file.
fn script_of(interpreter: &Path, arguments: &[String]) -> Option<PathBuf> {
    let file = fs::canonicalize(interpreter).ok()?;
    let name = file.file_name()?.to_str()?;
    let name = name.trim_end_matches(|letter: char| letter.is_ascii_digit() || letter == '.');
    if !INTERPRETERS.contains(&name) {
        return None;
    }
    let no_file = if name.ends_with("sh") { &NO_FILE[..1] } else { &NO_FILE };
    let before = arguments.iter().take_while(|argument| !no_file.contains(&argument.as_str()));
    before.filter(|argument| !argument.starts_with('-')).map(PathBuf::from).find(|path| path.is_file())
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "test code")]
mod tests {
    use super::*;

    fn start(words: &[&str]) -> RunStart {
        start_of(&words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn a_script_begins_when_it_is_opened_and_a_program_by_itself() {
        let folder = tempfile::tempdir().unwrap();
        let script = folder.path().join("a");
        fs::write(&script, "#!/bin/sh\n").unwrap();
        fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
        let inode = fs::metadata(&script).unwrap().ino();
        let name = script.to_str().unwrap();
        let of_script = RunStart::Script { inode };
        assert_eq!(
            [start(&[name, "b"]), start(&["sh", "-c", name]), start(&["sh", "-e", name])],
            [
                of_script.clone(),
                RunStart::Program { path: find("sh", &std::env::var("PATH").unwrap()).unwrap() },
                of_script,
            ]
        );
        // What a program reads is no script.
        let RunStart::Program { path } = start(&["cat", name]) else { panic!("no interpreter") };
        assert!(path.ends_with("cat"));
        assert_eq!([start(&[]), start(&["no such program"])], [RunStart::Exec, RunStart::Exec]);
    }
}
