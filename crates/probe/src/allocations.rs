//! Programs at the two functions of `libslipmalloc.so` that tell of blocks.

use std::collections::HashMap;
use std::fs::File;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;

use libbpf_rs::btf::Btf;
use libbpf_rs::{Link, Object, OpenObject, ProgramAttachType, UprobeOpts};

use crate::ProbeError;
use crate::breakpoint::{Place, attach_to_process, sets_by_process};
use crate::probe::{find_program, other};

/// Of blocks that were given out, and of those that come back.
const PROGRAMS: [&str; 2] = ["on_allocated", "on_freed"];

/// Where a library has what tells of its blocks, in bytes from the begin of its file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AllocationHooks {
    /// `slipmalloc_sampled`
    pub sampled: u64,
    /// `slipmalloc_sample_freed`
    pub freed: u64,
    /// `slipmalloc_sampling`, which is not 0 while somebody listens: the kernel counts that, also if we are killed.
    pub listeners: u64,
}

/// The breakpoints that were set.
#[derive(Debug)]
pub(crate) struct Listening {
    /// The kernel sets them for one process alone.
    is_by_process: bool,
    by_process: HashMap<u32, Vec<Link>>,
    /// By device and inode: each process that has the file is interrupted there.
    by_file: HashMap<(u64, u64), Vec<Link>>,
}

impl Listening {
    /// Whether it is one of our programs.
    pub(crate) fn has(program: &str) -> bool {
        PROGRAMS.contains(&program)
    }

    /// Prepares the programs of `open`, which is not loaded yet.
    pub(crate) fn prepare(open: &mut OpenObject) -> Result<Self, ProbeError> {
        let types = Btf::from_vmlinux().map_err(|_| ProbeError::NoTypes)?;
        let is_by_process = sets_by_process(&types);
        if is_by_process {
            let is_ours = |name: &std::ffi::OsStr| PROGRAMS.iter().any(|program| name == *program);
            for mut program in open.progs_mut().filter(|program| is_ours(program.name())) {
                program.set_attach_type(ProgramAttachType::TraceUprobeMulti);
            }
        }
        Ok(Self { is_by_process, by_process: HashMap::new(), by_file: HashMap::new() })
    }

    pub(crate) fn is_by_process(&self) -> bool {
        self.is_by_process
    }

    /// Has process `pid` tell of its blocks, whose library is `file`.
    pub(crate) fn attach(
        &mut self,
        object: &Object,
        pid: u32,
        file: &File,
        hooks: AllocationHooks,
    ) -> Result<(), ProbeError> {
        // The file as it was found, whatever has its name by now.
        let path = PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()));
        let found = file.metadata().map_err(|error| ProbeError::Other(error.to_string()))?;
        let key = (found.dev(), found.ino());
        if !self.is_by_process && self.by_file.contains_key(&key) {
            return Ok(());
        }
        let number =
            |offset| usize::try_from(offset).map_err(|_| ProbeError::Other("no such offset".to_owned()));
        let counter = number(hooks.listeners)?;
        let mut links = Vec::new();
        // What is freed first: else blocks could be told whose end is not.
        for (program, offset) in PROGRAMS.into_iter().zip([hooks.sampled, hooks.freed]).rev() {
            let (program, offset) = (find_program(object, program)?, number(offset)?);
            links.push(if self.is_by_process {
                let place = Place::Offset { offset, counter: Some(counter) };
                attach_to_process(&program, pid, &path, place, false)?
            } else {
                let options = UprobeOpts { ref_ctr_offset: counter, ..UprobeOpts::default() };
                program.attach_uprobe_with_opts(-1, &path, offset, options).map_err(|error| other(&error))?
            });
        }
        if self.is_by_process {
            self.by_process.insert(pid, links);
        } else {
            self.by_file.insert(key, links);
        }
        Ok(())
    }

    /// Takes the breakpoints off again that were set for process `pid` alone.
    pub(crate) fn forget(&mut self, pid: u32) {
        if let Some(links) = self.by_process.remove(&pid) {
            // For each the kernel waits until no CPU can be in its program any more.
            std::thread::spawn(move || drop(links));
        }
    }

    /// Takes all off.
    pub(crate) fn clear(&mut self) {
        self.by_process.clear();
        self.by_file.clear();
    }
}
