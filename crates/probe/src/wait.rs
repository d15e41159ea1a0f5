//! Waits of threads: what they have in common when they are counted together, and what they were for.

use std::os::unix::fs::MetadataExt;

use slip_model::WaitReason;

use crate::peers::Peer;
use crate::wire::TARGET_BYTES;

/// `struct slip_wait_key` and `struct slip_wait` of `bpf/sample.h`.
const KEY_BYTES: usize = 48;
const WAIT_BYTES: usize = 24;

/// `struct slip_thread`: a sleeper, another key with its turn, the target and its generation, and four words.
const THREAD_BYTES: usize = Sleeper::BYTES + KEY_BYTES + 8 + TARGET_BYTES + 32;

/// `SLIP_CALL_NONE`, `SLIP_CALL_STOPPED`, `SLIP_CALL_PREEMPTED`, `SLIP_FILE_NONE`
const CALL_NONE: i32 = -1;
const CALL_STOPPED: i32 = -3;
const CALL_PREEMPTED: i32 = -2;
const FILE_NONE: u32 = 1;

/// In the place of the key of a stack, which is odd: the thread waited already when its stack was not yet copied.
const BEFORE: u64 = 2;

/// Calls that a thread may be in for long and whose first argument is a file.
const FILE_CALLS: [i64; 12] = [
    libc::SYS_read,
    libc::SYS_write,
    libc::SYS_readv,
    libc::SYS_writev,
    libc::SYS_connect,
    libc::SYS_accept,
    libc::SYS_accept4,
    libc::SYS_sendto,
    libc::SYS_recvfrom,
    libc::SYS_sendmsg,
    libc::SYS_recvmsg,
    libc::SYS_fsync,
];

/// What the waits that are counted together have in common.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct WaitKey {
    /// Key of the stack; 0 if no frame runs.
    pub stack: u64,
    /// What [`slip_remote::StackPlan::request`] held; 0 without it.
    pub request: u64,
    /// Of the target.
    pub id: u32,
    /// As our pid namespace numbers it.
    pub tid: u32,
    pub(crate) call: i32,
    pub(crate) file: u32,
    /// Where in the kernel: names a [`crate::KernelStack`]. 0 if that was not asked, as of short waits.
    pub kernel: u64,
    /// The other side of the connection that it waits for, if there is one, and was not the one to connect.
    pub peer: Option<Peer>,
}

/// Waits with one key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Waited {
    /// Number of those that have ended.
    pub count: u64,
    /// How long they took until the thread was woken.
    pub blocked_ns: u64,
    /// From then on, until it had a CPU.
    pub ready_ns: u64,
}

/// A thread that has no CPU now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sleeper {
    /// What it waits for.
    pub key: WaitKey,
    /// Its process.
    pub pid: u32,
    /// Since when, by `CLOCK_MONOTONIC`.
    pub begin_ns: u64,
    /// Since when it is ready to go on; 0 if it is not.
    pub ready_ns: u64,
}

impl WaitKey {
    /// Of thread `tid` of process `pid`, target `id`, which has waited since before the kernel was asked to look. `None` if it
    /// does not wait, or the kernel does not say for what.
    pub fn of_waiting(pid: u32, tid: u32, id: u32) -> Option<Self> {
        let said = std::fs::read_to_string(format!("/proc/{pid}/task/{tid}/syscall")).ok()?;
        let (call, argument) = parse_call(&said)?;
        let type_of = |number| {
            let file = std::fs::metadata(format!("/proc/{pid}/fd/{number}")).ok()?;
            Some(file.mode() & libc::S_IFMT)
        };
        let takes_file = FILE_CALLS.contains(&i64::from(call));
        let file = argument.filter(|_| takes_file).and_then(type_of).unwrap_or(0);
        Some(Self { stack: BEFORE, request: 0, id, tid, call, file, kernel: 0, peer: None })
    }

    /// The key of all waits that are like these, wherever in the kernel.
    #[must_use]
    pub fn anywhere(self) -> Self {
        Self { kernel: 0, ..self }
    }

    /// What the thread waited for.
    pub fn reason(&self) -> WaitReason {
        match (self.call, self.file) {
            (CALL_PREEMPTED, _) => WaitReason::Cpu,
            (CALL_NONE, _) => WaitReason::PageFault,
            (CALL_STOPPED, _) => WaitReason::Stopped,
            (call, file) => reason_of_call(call, file),
        }
    }

    pub(crate) fn parse(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; KEY_BYTES] = bytes.first_chunk()?;
        let u64_at = |at: usize| Some(u64::from_le_bytes(*bytes.get(at..)?.first_chunk()?));
        let u32_at = |at: usize| Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?));
        Some(Self {
            stack: u64_at(0)?,
            request: u64_at(8)?,
            id: u32_at(16)?,
            tid: u32_at(20)?,
            call: u32_at(24)?.cast_signed(),
            file: u32_at(28)?,
            kernel: u64_at(32)?,
            peer: Peer::parse(u64_at(40)?),
        })
    }

    pub(crate) fn bytes(&self) -> [u8; KEY_BYTES] {
        let mut bytes = [0; KEY_BYTES];
        bytes[..8].copy_from_slice(&self.stack.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.request.to_le_bytes());
        bytes[16..20].copy_from_slice(&self.id.to_le_bytes());
        bytes[20..24].copy_from_slice(&self.tid.to_le_bytes());
        bytes[24..28].copy_from_slice(&self.call.to_le_bytes());
        bytes[28..32].copy_from_slice(&self.file.to_le_bytes());
        bytes[32..40].copy_from_slice(&self.kernel.to_le_bytes());
        bytes[40..].copy_from_slice(&self.peer.map_or(0, Peer::number).to_le_bytes());
        bytes
    }
}

/// The number of a system call and its first argument, of the text of `/proc/PID/task/TID/syscall`; `None` if it is in none.
pub(crate) fn parse_call(text: &str) -> Option<(i32, Option<u64>)> {
    let mut words = text.split_whitespace();
    let call = words.next()?.parse().ok()?;
    Some((call, words.next().and_then(|word| u64::from_str_radix(word.trim_start_matches("0x"), 16).ok())))
}

impl Waited {
    pub(crate) fn parse(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; WAIT_BYTES] = bytes.first_chunk()?;
        let u64_at = |at: usize| Some(u64::from_le_bytes(*bytes.get(at..)?.first_chunk()?));
        Some(Self { count: u64_at(0)?, blocked_ns: u64_at(8)?, ready_ns: u64_at(16)? })
    }
}

impl Sleeper {
    /// `struct slip_sleeper`
    pub(crate) const BYTES: usize = KEY_BYTES + 24;

    pub(crate) fn parse(bytes: &[u8]) -> Option<Self> {
        let u64_at = |at: usize| Some(u64::from_le_bytes(*bytes.get(at..)?.first_chunk()?));
        Some(Self {
            key: WaitKey::parse(bytes)?,
            pid: u32::from_le_bytes(*bytes.get(KEY_BYTES..)?.first_chunk()?),
            begin_ns: u64_at(KEY_BYTES + 8)?,
            ready_ns: u64_at(KEY_BYTES + 16)?,
        })
    }

    /// `struct slip_thread` of a thread of which nothing else is known.
    pub(crate) fn thread_bytes(&self) -> Vec<u8> {
        let pid = u64::from(self.pid).to_le_bytes();
        let sleeper =
            [&self.key.bytes()[..], &pid, &self.begin_ns.to_le_bytes(), &self.ready_ns.to_le_bytes()]
                .concat();
        [&sleeper[..], &[0; THREAD_BYTES - Self::BYTES]].concat()
    }
}

/// What a system call of x86-64 waits for (`arch/x86/entry/syscalls/syscall_64.tbl`), with the type of the file it is about.
fn reason_of_call(call: i32, file: u32) -> WaitReason {
    match file {
        libc::S_IFSOCK => return WaitReason::Socket,
        libc::S_IFIFO => return WaitReason::Pipe,
        libc::S_IFREG | libc::S_IFDIR | libc::S_IFBLK => return WaitReason::File,
        FILE_NONE => return WaitReason::Sleep,
        _ => {}
    }
    match i64::from(call) {
        libc::SYS_connect
        | libc::SYS_accept
        | libc::SYS_accept4
        | libc::SYS_sendto
        | libc::SYS_recvfrom
        | libc::SYS_sendmsg
        | libc::SYS_recvmsg
        | libc::SYS_sendmmsg
        | libc::SYS_recvmmsg => WaitReason::Socket,
        // A wait of `fcntl` is one for a lock of a file.
        libc::SYS_futex
        | FUTEX_WAITV
        | FUTEX_WAIT
        | libc::SYS_flock
        | libc::SYS_fcntl
        | libc::SYS_semop
        | libc::SYS_semtimedop => WaitReason::Lock,
        libc::SYS_nanosleep | libc::SYS_clock_nanosleep | libc::SYS_pause => WaitReason::Sleep,
        libc::SYS_poll
        | libc::SYS_ppoll
        | libc::SYS_select
        | libc::SYS_pselect6
        | libc::SYS_epoll_wait
        | libc::SYS_epoll_pwait
        | EPOLL_PWAIT2 => WaitReason::Poll,
        // `vfork` waits until the child runs another program.
        libc::SYS_wait4 | libc::SYS_waitid | libc::SYS_vfork | libc::SYS_clone | CLONE3 => WaitReason::Child,
        libc::SYS_open
        | libc::SYS_openat
        | OPENAT2
        | libc::SYS_stat
        | libc::SYS_lstat
        | libc::SYS_newfstatat
        | libc::SYS_statx
        | libc::SYS_access
        | libc::SYS_faccessat
        | libc::SYS_readlink
        | libc::SYS_readlinkat
        | libc::SYS_getdents64
        | libc::SYS_rename
        | libc::SYS_renameat
        | libc::SYS_renameat2
        | libc::SYS_unlink
        | libc::SYS_unlinkat
        | libc::SYS_mkdir
        | libc::SYS_mkdirat
        | libc::SYS_rmdir
        | libc::SYS_fsync
        | libc::SYS_fdatasync
        | libc::SYS_sync
        | libc::SYS_syncfs
        | libc::SYS_execve => WaitReason::File,
        _ => WaitReason::Other,
    }
}

/// System calls that the library does not name on all its targets.
const CLONE3: i64 = 435;
const OPENAT2: i64 = 437;
const EPOLL_PWAIT2: i64 = 441;
const FUTEX_WAITV: i64 = 449;
const FUTEX_WAIT: i64 = 455;

#[cfg(test)]
mod tests {
    use super::*;

    fn reason(call: i64, file: u32) -> WaitReason {
        WaitKey { call: i32::try_from(call).unwrap_or(0), file, ..WaitKey::default() }.reason()
    }

    #[test]
    fn the_file_says_more_than_the_call() {
        assert_eq!(reason(libc::SYS_read, libc::S_IFSOCK), WaitReason::Socket);
        assert_eq!(reason(libc::SYS_read, libc::S_IFIFO), WaitReason::Pipe);
        assert_eq!(reason(libc::SYS_read, libc::S_IFREG), WaitReason::File);
        assert_eq!(reason(libc::SYS_read, libc::S_IFCHR), WaitReason::Other);
        assert_eq!(reason(libc::SYS_poll, libc::S_IFSOCK), WaitReason::Socket);
        assert_eq!(reason(libc::SYS_poll, 0), WaitReason::Poll);
        assert_eq!(reason(libc::SYS_select, FILE_NONE), WaitReason::Sleep);
    }

    #[test]
    fn what_is_no_system_call_is_a_page_a_cpu_or_a_stop() {
        assert_eq!(reason(i64::from(CALL_NONE), 0), WaitReason::PageFault);
        assert_eq!(reason(i64::from(CALL_STOPPED), 0), WaitReason::Stopped);
        assert_eq!(reason(i64::from(CALL_PREEMPTED), 0), WaitReason::Cpu);
    }

    #[test]
    fn keys_and_sleepers_come_back() {
        let peer = Some(Peer::Port(6379, [127, 0, 0, 1].into()));
        let key = WaitKey { stack: 1, request: 2, id: 3, tid: 4, call: -2, file: 6, kernel: 8, peer };
        let sleeper = Sleeper { key, pid: 9, begin_ns: 7, ready_ns: 8 };
        assert_eq!(WaitKey::parse(&key.bytes()), Some(key));
        assert_eq!(Sleeper::parse(&sleeper.thread_bytes()), Some(sleeper));
        assert_eq!(Sleeper::parse(&[0; Sleeper::BYTES - 1]), None);
    }
}
