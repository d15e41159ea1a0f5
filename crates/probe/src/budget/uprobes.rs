//! Programs at functions of targets. The kernel puts a breakpoint where the function begins: since Linux 6.6 into the memory of one
//! process, before into the file and so into every process that runs it, now or later.

use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use libbpf_rs::btf::Btf;
use libbpf_rs::{Link, Object, OpenObject, ProgramAttachType, UprobeOpts};

use super::run::entry_offset;
use crate::ProbeError;
use crate::breakpoint::{Place, attach_to_process, sets_by_process};
use crate::probe::{find_program, other};

/// Programs at functions of PHP, and whether they run when these return.
const PHP: [(&str, &str, bool); 3] = [
    ("account_php_shutdown", "php_request_shutdown", true),
    ("account_php_startup", "php_request_startup", false),
    ("account_php_script", "php_execute_script", false),
];

/// The program at the begin of another one, which has no interpreter.
const MAIN: &str = "account_main";

/// The breakpoints that were set.
#[derive(Debug)]
pub(super) struct Uprobes {
    /// The kernel sets them for one process alone.
    is_by_process: bool,
    /// By the process that was asked for. What it is attached to may be its file, and then has to stay.
    links: HashMap<u32, Vec<Link>>,
    /// Processes that tell of PHP's requests.
    php: HashSet<u32>,
    /// Files with breakpoints for all that run them, by device and inode.
    files: HashSet<(u64, u64)>,
}

impl Uprobes {
    /// Prepares the programs of `open`, which is not loaded yet. `types` are the kernel's.
    pub(super) fn prepare(open: &mut OpenObject, types: &Btf<'_>) -> Self {
        let is_by_process = sets_by_process(types);
        if is_by_process {
            let is_ours = |name: &OsStr| name == MAIN || PHP.iter().any(|(program, ..)| name == *program);
            for mut program in open.progs_mut().filter(|program| is_ours(program.name())) {
                program.set_attach_type(ProgramAttachType::TraceUprobeMulti);
            }
        }
        Self { is_by_process, links: HashMap::new(), php: HashSet::new(), files: HashSet::new() }
    }

    /// Whether a breakpoint is seen by the one process alone that it was asked for.
    pub(super) fn is_by_process(&self) -> bool {
        self.is_by_process
    }

    /// Has process `pid` tell of PHP's requests; nothing if it has ended.
    pub(super) fn attach_php(&mut self, object: &Object, pid: u32) -> Result<(), ProbeError> {
        let path = format!("/proc/{pid}/exe");
        let Ok(found) = fs::metadata(&path) else { return Ok(()) };
        let is_new = if self.is_by_process {
            self.php.insert(pid)
        } else {
            self.files.insert((found.dev(), found.ino()))
        };
        if !is_new {
            return Ok(());
        }
        for (program, function, is_at_return) in PHP {
            match self.attach(object, program, pid, Path::new(&path), Place::Function(function), is_at_return)
            {
                Ok(link) => self.links.entry(pid).or_default().push(link),
                Err(_) if !fs::exists(&path).unwrap_or(false) => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Has the begin of program `path` told, which process `pid` is about to become. False if that cannot be.
    pub(super) fn attach_main(&mut self, object: &Object, pid: u32, path: &Path) -> bool {
        let attach = |place| self.attach(object, MAIN, pid, path, place, false).ok();
        let link = attach(Place::Function("main"))
            .or_else(|| attach(Place::Offset { offset: entry_offset(path)?, counter: None }));
        let is_attached = link.is_some();
        self.links.entry(pid).or_default().extend(link);
        is_attached
    }

    fn attach(
        &self,
        object: &Object,
        program: &str,
        pid: u32,
        path: &Path,
        place: Place<'_>,
        is_at_return: bool,
    ) -> Result<Link, ProbeError> {
        let program = find_program(object, program)?;
        if self.is_by_process {
            return attach_to_process(&program, pid, path, place, is_at_return);
        }
        let (func_name, offset) = match place {
            Place::Function(name) => (Some(name.to_owned()), 0),
            Place::Offset { offset, .. } => (None, offset),
        };
        let options = UprobeOpts { func_name, retprobe: is_at_return, ..UprobeOpts::default() };
        program.attach_uprobe_with_opts(-1, path, offset, options).map_err(|error| other(&error))
    }

    /// Takes the breakpoints off again that were set for process `pid` alone.
    pub(super) fn forget(&mut self, pid: u32) {
        self.php.remove(&pid);
        if self.is_by_process
            && let Some(links) = self.links.remove(&pid)
        {
            // For each the kernel waits until no CPU can be in its program any more.
            std::thread::spawn(move || drop(links));
        }
    }

    /// All that are there, which are taken off when they are dropped.
    pub(super) fn take(&mut self) -> Vec<Link> {
        self.php.clear();
        self.files.clear();
        self.links.drain().flat_map(|(_, links)| links).collect()
    }
}
