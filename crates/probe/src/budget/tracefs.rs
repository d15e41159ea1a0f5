//! Tracepoints of system calls, whose numbers only tracefs tells. It need not be mounted.

use std::ffi::CStr;
use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::{AsRawFd, FromRawFd as _, OwnedFd};

/// Of `include/uapi/linux/mount.h`.
const FSCONFIG_CMD_CREATE: libc::c_uint = 6;

/// The file system of the kernel's tracing, mounted nowhere: it is ours alone, and gone with us.
#[derive(Debug)]
pub(super) struct Tracefs(OwnedFd);

impl Tracefs {
    /// Needs Linux 5.2 and `CAP_SYS_ADMIN`; otherwise where it is mounted by convention.
    pub(super) fn open() -> io::Result<Self> {
        Self::detached().or_else(|_| Ok(Self(File::open("/sys/kernel/tracing")?.into())))
    }

    fn detached() -> io::Result<Self> {
        // SAFETY: a string that outlives the call.
        let context = descriptor(unsafe { libc::syscall(libc::SYS_fsopen, c"tracefs".as_ptr(), 0) })?;
        let nothing = std::ptr::null::<libc::c_char>();
        // SAFETY: this command takes neither key nor value.
        let created = unsafe {
            libc::syscall(libc::SYS_fsconfig, context.as_raw_fd(), FSCONFIG_CMD_CREATE, nothing, nothing, 0)
        };
        if created < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the call takes numbers.
        Ok(Self(descriptor(unsafe { libc::syscall(libc::SYS_fsmount, context.as_raw_fd(), 0, 0) })?))
    }

    /// The number of `events/syscalls/NAME`.
    pub(super) fn system_call(&self, name: &str) -> io::Result<u64> {
        let path = format!("events/syscalls/{name}/id\0");
        let path = CStr::from_bytes_with_nul(path.as_bytes()).map_err(io::Error::other)?;
        // SAFETY: the descriptor is open and the path outlives the call.
        let file =
            unsafe { libc::openat(self.0.as_raw_fd(), path.as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC) };
        let mut text = String::new();
        File::from(descriptor(file.into())?).read_to_string(&mut text)?;
        parse_number(&text)
    }
}

/// What `id` of a tracepoint holds.
pub(crate) fn parse_number(text: &str) -> io::Result<u64> {
    text.trim().parse().map_err(io::Error::other)
}

/// A descriptor that a system call has just returned.
fn descriptor(number: libc::c_long) -> io::Result<OwnedFd> {
    let number = i32::try_from(number).map_err(io::Error::other)?;
    if number < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: it was just opened, and nobody else knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}
