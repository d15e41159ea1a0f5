//! What a thread is blocked in, by the number and the arguments of its system call.

use slip_model::Part;

/// What `/proc/PID/task/TID/syscall` says of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Doing {
    /// It runs, or could.
    Runs,
    /// It is blocked, and not by a system call: by a page.
    Faults,
    /// It is blocked in the system call of this number.
    Calls(u32, [u64; 6]),
}

/// What a blocked thread waits for, as far as its system call tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Awaits {
    /// What is known without looking further.
    Part(Part),
    /// A connection that it is to accept.
    Connection,
    /// That this file is connected to a server.
    Connected(u32),
    /// Something of this file.
    File(u32),
    /// Something of the files in an array of `struct pollfd` of this address and length.
    Poll(u64, u64),
    /// Something of the files in two sets, up to this number.
    Select(u64, [u64; 2]),
    /// Something of the files that are registered with this one.
    Epoll(u32),
    /// A word at this address.
    Futex(u64),
}

/// Parses the text of `/proc/PID/task/TID/syscall`; `None` if it does not fit the format.
pub(crate) fn parse(text: &str) -> Option<Doing> {
    let mut words = text.split_ascii_whitespace();
    match words.next()? {
        "running" => Some(Doing::Runs),
        "-1" => Some(Doing::Faults),
        number => {
            let number = number.parse().ok()?;
            let mut arguments = [0; 6];
            for argument in &mut arguments {
                *argument = u64::from_str_radix(words.next()?.strip_prefix("0x")?, 16).ok()?;
            }
            Some(Doing::Calls(number, arguments))
        }
    }
}

/// What a thread waits for that is blocked in a system call of x86-64, as `blocked_part()` in `bpf/budget.bpf.c` has it.
pub(crate) fn awaits(number: u32, arguments: [u64; 6]) -> Awaits {
    let [first, second, third, ..] = arguments;
    // The kernel takes no more of a number than this.
    let file = first as u32;
    match number {
        43 | 288 => Awaits::Connection, // accept, accept4
        42 => Awaits::Connected(file),
        // read, write, close, ioctl, pread64, pwrite64, readv, writev, sendfile, sendto, recvfrom, sendmsg, recvmsg, fsync, fdatasync,
        // ftruncate, getdents64, splice, sync_file_range, fallocate, preadv, pwritev, recvmmsg, sendmmsg
        0 | 1 | 3 | 16..=20 | 40 | 44..=47 | 74 | 75 | 77 | 217 | 275 | 277 | 285 | 295 | 296 | 299 | 307 => {
            Awaits::File(file)
        }
        7 | 271 => Awaits::Poll(first, second), // poll, ppoll
        23 | 270 => Awaits::Select(first, [second, third]), // select, pselect6
        232 | 281 | 441 => Awaits::Epoll(file), // epoll_wait, epoll_pwait, epoll_pwait2
        202 => Awaits::Futex(first),
        35 | 230 => Awaits::Part(Part::Sleep), // nanosleep, clock_nanosleep
        65 | 72 | 73 | 220 => Awaits::Part(Part::Lock), // semop, fcntl, flock, semtimedop
        9..=12 | 25 | 28 => Awaits::Part(Part::Memory), // mmap, mprotect, munmap, brk, mremap, madvise
        // open, stat, fstat, lstat, access, rename, mkdir, unlink, openat, newfstatat, unlinkat, faccessat, statx
        2 | 4..=6 | 21 | 82 | 83 | 87 | 257 | 262 | 263 | 269 | 332 => Awaits::Part(Part::Disk),
        _ => Awaits::Part(Part::Other),
    }
}

/// The files in an array of `struct pollfd`. Negative numbers are left out, as the kernel does.
pub(crate) fn polled(bytes: &[u8]) -> impl Iterator<Item = u32> {
    bytes.chunks_exact(8).filter_map(|entry| u32::try_from(i32::from_le_bytes(*entry.first_chunk()?)).ok())
}

/// The files in a set as `select` has it.
pub(crate) fn selected(bytes: &[u8]) -> impl Iterator<Item = u32> {
    let bits = bytes.iter().flat_map(|byte| (0..8).map(move |bit| byte >> bit & 1 == 1));
    (0..).zip(bits).filter_map(|(number, is_in)| is_in.then_some(number))
}

/// The files that are registered with an epoll file, of the text of its `fdinfo`.
pub(crate) fn registered(text: &str) -> impl Iterator<Item = u32> {
    text.lines().filter_map(|line| line.strip_prefix("tfd:")?.split_ascii_whitespace().next()?.parse().ok())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_linux_prints_is_understood() {
        // Of php-fpm between requests, of a Python thread that waits for the lock, and of one that runs.
        let accepts = "43 0x9 0x7ffc2b5bb2b0 0x7ffc2b5bb29c 0x0 0x0 0x0 0x7ffc2b5bb258 0x7f2b8f3f4f23\n";
        let Some(Doing::Calls(number, arguments)) = parse(accepts) else { panic!() };
        assert_eq!(awaits(number, arguments), Awaits::Connection);
        let futex =
            "202 0x55d3c0a7e0f8 0x89 0x0 0x7f1c5e1fdc30 0x0 0xffffffff 0x7f1c5e1fdb90 0x7f1c60a0ef16\n";
        let Some(Doing::Calls(number, arguments)) = parse(futex) else { panic!() };
        assert_eq!(awaits(number, arguments), Awaits::Futex(0x55d3_c0a7_e0f8));
        assert_eq!(parse("running\n"), Some(Doing::Runs));
        assert_eq!(parse("-1 0x7ffc2b5bb258 0x7f2b8f3f4f23\n"), Some(Doing::Faults));
        for text in ["", "43", "43 0x9 0x1", "x 0x0 0x0 0x0 0x0 0x0 0x0"] {
            assert_eq!(parse(text), None, "{text}");
        }
    }

    #[test]
    fn files_that_are_waited_for_together_are_found() {
        let entry = |file: i32| [file.to_le_bytes(), [1, 0, 0, 0]].concat();
        let bytes = [entry(7), entry(-1), entry(300)].concat();
        assert_eq!(polled(&bytes).collect::<Vec<_>>(), [7, 300]);
        assert_eq!(selected(&[0b1001, 0, 2]).collect::<Vec<_>>(), [0, 3, 17]);
        let text = "pos:\t0\nflags:\t02000002\nmnt_id:\t15\nino:\t1060\n\
                    tfd:        5 events:       19 data: 7f1c00000005  pos:0 ino:f sdev:8\n\
                    tfd:       11 events:     2019 data:        b  pos:0 ino:3 sdev:8\n";
        assert_eq!(registered(text).collect::<Vec<_>>(), [5, 11]);
    }

    proptest! {
        #[test]
        fn any_text_is_parsed_or_refused(text in any::<String>(), bytes in prop::collection::vec(any::<u8>(), 0..100)) {
            if let Some(Doing::Calls(number, arguments)) = parse(&text) {
                awaits(number, arguments);
            }
            prop_assert!(polled(&bytes).count() <= bytes.len() / 8);
            prop_assert!(selected(&bytes).count() <= bytes.len() * 8);
            registered(&text).count();
        }
    }
}
