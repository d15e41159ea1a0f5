//! Starts a fixture program.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::{Child, Interpreter, Runtime};

/// The folder `fixtures` of the repository.
pub fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures")
}

/// What is to be started, and how.
///
/// The program always runs from a private copy of its folder, which is deleted when the child is dropped: a root folder
/// cannot see the repository, and interpreters leave caches beside their sources.
#[derive(Clone, Debug)]
pub struct Launch {
    interpreter: Interpreter,
    files: Files,
    /// Arguments for the interpreter, before the program.
    options: Vec<OsString>,
    program: Program,
    args: Vec<OsString>,
}

#[derive(Clone, Debug)]
enum Files {
    Folder(PathBuf),
    Text { name: String, text: Vec<u8> },
}

#[derive(Clone, Debug)]
enum Program {
    Script(PathBuf),
    Module(String),
}

impl Launch {
    /// Runs a script; `path` is below `fixtures/programs`, or absolute. The files beside it come along.
    pub fn script(interpreter: &Interpreter, path: impl AsRef<Path>) -> Self {
        let path = fixtures().join("programs").join(path);
        let folder = path.parent().map(Path::to_owned).unwrap_or_default();
        let name = path.file_name().map(PathBuf::from).unwrap_or_default();
        Self::new(interpreter, Files::Folder(folder), Program::Script(name))
    }

    /// Runs `python -m module` with `folder` (below `fixtures/programs`, or absolute) on the search path.
    pub fn module(interpreter: &Interpreter, folder: impl AsRef<Path>, module: &str) -> Self {
        let folder = fixtures().join("programs").join(folder);
        Self::new(interpreter, Files::Folder(folder), Program::Module(module.to_owned()))
    }

    /// Runs a script of this name and text.
    pub fn text(interpreter: &Interpreter, name: &str, text: impl Into<Vec<u8>>) -> Self {
        let files = Files::Text { name: name.to_owned(), text: text.into() };
        Self::new(interpreter, files, Program::Script(name.into()))
    }

    fn new(interpreter: &Interpreter, files: Files, program: Program) -> Self {
        Self { interpreter: interpreter.clone(), files, options: vec![], program, args: vec![] }
    }

    /// Adds an argument for the interpreter itself.
    #[must_use]
    pub fn option(mut self, option: impl Into<OsString>) -> Self {
        self.options.push(option.into());
        self
    }

    /// Adds an argument for the program.
    #[must_use]
    pub fn arg(mut self, arg: impl Into<OsString>) -> Self {
        self.args.push(arg.into());
        self
    }

    /// Starts the program.
    ///
    /// # Errors
    ///
    /// If its files cannot be copied or the interpreter cannot be executed.
    pub fn start(self) -> io::Result<Child> {
        let home = Home::make(self.interpreter.root.as_deref())?;
        match &self.files {
            Files::Folder(folder) => copy_folder(folder, &home.outside)?,
            Files::Text { name, text } => fs::write(home.outside.join(name), text)?,
        }
        let mut command = self.interpreter.command();
        command.args(&self.options);
        match &self.program {
            Program::Script(name) => command.arg(home.inside.join(name)),
            Program::Module(module) => command.arg("-m").arg(module),
        };
        if self.interpreter.runtime == Runtime::Python {
            command.env("PYTHONPATH", &home.inside).env("PYTHONUTF8", "1").env("PYTHONUNBUFFERED", "1");
        }
        command.args(&self.args);
        // A group of its own, so that processes which the program starts end with it.
        command.process_group(0).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let label = format!("{}, {:?}", self.interpreter.label, self.program);
        let process = command.spawn().map_err(|error| {
            io::Error::new(error.kind(), format!("{label}: {}: {error}", self.interpreter.program.display()))
        })?;
        Child::new(process, home, label)
    }
}

/// A private folder; deleted when dropped.
#[derive(Debug)]
pub(crate) struct Home {
    /// As this process sees it.
    pub(crate) outside: PathBuf,
    /// As the program sees it.
    pub(crate) inside: PathBuf,
}

impl Home {
    pub(crate) fn make(root: Option<&Path>) -> io::Result<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("slip-testkit.{}.{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let (outside, inside) = match root {
            Some(root) => (root.join("slip").join(&name), Path::new("/slip").join(&name)),
            None => {
                // The interpreter reports paths with symbolic links resolved or not, as it likes: leave none.
                let folder = fs::canonicalize(std::env::temp_dir())?.join(&name);
                (folder.clone(), folder)
            }
        };
        // A process that had this id may have been killed before it could delete its folder.
        if outside.exists() {
            fs::remove_dir_all(&outside)?;
        }
        fs::create_dir_all(&outside)?;
        Ok(Self { outside, inside })
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        // A leftover folder harms nobody, and a panic in drop hides the failure of the test.
        let _ = fs::remove_dir_all(&self.outside);
    }
}

fn copy_folder(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir_all(to)?;
    let entries = fs::read_dir(from)
        .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", from.display())))?;
    for entry in entries {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy_folder(&entry.path(), &target)?;
        } else {
            fs::copy(entry.path(), target)?;
        }
    }
    Ok(())
}
