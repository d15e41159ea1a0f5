//! Events of `perf_event_open` that need no hardware.

use std::io;
use std::os::fd::{AsRawFd as _, FromRawFd, OwnedFd};

/// `enum perf_type_id` (`include/uapi/linux/perf_event.h`).
const PERF_TYPE_SOFTWARE: u32 = 1;
const PERF_TYPE_TRACEPOINT: u32 = 2;
const PERF_FLAG_FD_CLOEXEC: libc::c_ulong = 8;
const PERF_EVENT_IOC_ENABLE: libc::c_ulong = 0x2400;
const PERF_EVENT_IOC_DISABLE: libc::c_ulong = 0x2401;

/// `struct perf_event_attr` as of its first version.
#[repr(C)]
#[derive(Default)]
struct Attr {
    kind: u32,
    size: u32,
    config: u64,
    sample_period: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    wakeup_events: u32,
    bp_type: u32,
    config1: u64,
}

/// Which events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PerfEvent {
    /// Of `enum perf_sw_ids`.
    Software(u64),
    /// By the number that tracefs gives a tracepoint.
    Tracepoint(u64),
}

/// Whose events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PerfScope {
    /// One thread's, wherever it runs.
    Thread(u32),
    /// One CPU's, whoever runs there.
    Cpu(u32),
}

/// Opens an event with the bits `flags` of `perf_event_attr`; it counts at once.
///
/// # Errors
///
/// If the kernel refuses, as in most containers, or has no such thread or CPU.
pub fn open_perf_event(
    event: PerfEvent,
    sample_period: u64,
    flags: u64,
    scope: PerfScope,
) -> io::Result<OwnedFd> {
    let (kind, config) = match event {
        PerfEvent::Software(number) => (PERF_TYPE_SOFTWARE, number),
        PerfEvent::Tracepoint(number) => (PERF_TYPE_TRACEPOINT, number),
    };
    let attr = Attr { kind, size: size_of::<Attr>() as u32, config, sample_period, flags, ..Attr::default() };
    let (tid, cpu) = match scope {
        PerfScope::Thread(tid) => (tid.cast_signed(), -1),
        PerfScope::Cpu(cpu) => (-1, cpu.cast_signed()),
    };
    // SAFETY: `attr` outlives the call and is as long as its `size` says; the other arguments are numbers.
    let fd = unsafe {
        libc::syscall(libc::SYS_perf_event_open, &raw const attr, tid, cpu, -1, PERF_FLAG_FD_CLOEXEC)
    };
    let Ok(fd @ 0..) = libc::c_int::try_from(fd) else { return Err(io::Error::last_os_error()) };
    // SAFETY: the kernel has just made this descriptor, for nobody else.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Has an event count no more, or again.
///
/// # Errors
///
/// If it is none.
pub fn set_perf_event_enabled(event: &OwnedFd, is_enabled: bool) -> io::Result<()> {
    let request = if is_enabled { PERF_EVENT_IOC_ENABLE } else { PERF_EVENT_IOC_DISABLE };
    // SAFETY: the descriptor is open, and these requests take a number.
    match unsafe { libc::ioctl(event.as_raw_fd(), request, 0) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
