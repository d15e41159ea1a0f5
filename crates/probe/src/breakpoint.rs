//! Programs at functions of a process, as libbpf-rs has no function for them.

use std::ffi::CString;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::ptr::NonNull;

use libbpf_rs::btf::{Btf, types};
use libbpf_rs::{AsRawLibbpf as _, Link, ProgramMut};
use libbpf_sys::{bpf_program__attach_uprobe_multi, bpf_uprobe_multi_opts};

use crate::ProbeError;

/// Where in a file a program is attached.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Place<'a> {
    Function(&'a str),
    /// Bytes from the file's begin.
    Offset {
        offset: usize,
        /// Where the file has a number of 16 bits that the kernel raises in each process with the breakpoint, as long as it is there.
        counter: Option<usize>,
    },
}

/// Whether the kernel can set breakpoints for one process alone.
pub(crate) fn sets_by_process(types: &Btf<'_>) -> bool {
    // The link that has a process (kernel/trace/bpf_trace.c).
    types.type_by_name::<types::Struct<'_>>("bpf_uprobe_multi_link").is_some()
}

/// Runs the program where process `pid` comes to that place, and at that of no other process.
pub(crate) fn attach_to_process(
    program: &ProgramMut<'_>,
    pid: u32,
    path: &Path,
    place: Place<'_>,
    is_at_return: bool,
) -> Result<Link, ProbeError> {
    let no_text = |_| ProbeError::Other(format!("{} cannot be a path", path.display()));
    let pid =
        libc::pid_t::try_from(pid).map_err(|_| ProbeError::Other(format!("{pid} cannot be a process")))?;
    let path_text = CString::new(path.as_os_str().as_bytes()).map_err(no_text)?;
    // As a pattern: a list of names libbpf does not find in a file without a table of all of its symbols, as distributions have them.
    let pattern = match place {
        Place::Function(name) => Some(CString::new(name).map_err(no_text)?),
        Place::Offset { .. } => None,
    };
    let (offsets, counters) = match place {
        Place::Offset { offset, counter } => {
            ([offset as libc::c_ulong], counter.map(|at| [at as libc::c_ulong]))
        }
        Place::Function(_) => ([0], None),
    };
    let mut options = bpf_uprobe_multi_opts {
        sz: size_of::<bpf_uprobe_multi_opts>() as _,
        retprobe: is_at_return,
        ..bpf_uprobe_multi_opts::default()
    };
    if pattern.is_none() {
        options.offsets = offsets.as_ptr();
        options.cnt = 1;
    }
    if let Some(counters) = &counters {
        options.ref_ctr_offsets = counters.as_ptr();
    }
    // SAFETY: the program belongs to `object`, which outlives the call; the path, the pattern, the options and the arrays that they point
    // to, of one element as `cnt` says, live until it returns, and libbpf keeps none of them.
    let link = unsafe {
        bpf_program__attach_uprobe_multi(
            program.as_libbpf_object().as_ptr(),
            pid,
            path_text.as_ptr(),
            pattern.as_ref().map_or(std::ptr::null(), |pattern| pattern.as_ptr()),
            &raw const options,
        )
    };
    let Some(link) = NonNull::new(link) else {
        return Err(ProbeError::Other(format!(
            "no breakpoint in {}: {}",
            path.display(),
            std::io::Error::last_os_error()
        )));
    };
    // SAFETY: libbpf made it just now, and nobody else has it.
    Ok(unsafe { Link::from_ptr(link) })
}
