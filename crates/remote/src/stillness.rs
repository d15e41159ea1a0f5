//! Whether a process has stood still: then nothing in its memory has changed, and what was read of it still holds.
//!
//! A thread that is off the CPU writes nothing, and the kernel notes in a [`Ring`](crate::ring::Ring) when it is switched in again.
//! So if all threads of a process were off the CPU when its memory was read, and no ring has grown since, the memory is as it was:
//! known by one load for each thread, without a system call. What this cannot see is another process that writes into the target,
//! as a debugger does, or that shares its memory without being a thread of it.

use std::time::{Duration, Instant};

use crate::procfs::threads_of;
use crate::ring::{Notes, Place, Ring, SWITCH_BYTES};

/// Most threads that are watched: each takes a descriptor and two pages.
const MAX_THREADS: usize = 1_024;

/// How often the list of threads is read anew if it has changed again meanwhile.
const MAX_LISTINGS: usize = 4;

/// A thread that is switched more often than this, in or out, is left alone, and its process is never taken to stand still.
const MAX_PER_SECOND: u64 = 10_000;

/// For so long switches are counted, and so many looks lie between two looks at the clock.
const WINDOW: Duration = Duration::from_secs(1);
const LOOKS_PER_CLOCK: u32 = 256;

/// Watches all threads of a process.
#[derive(Debug)]
pub struct Stillness {
    pid: u32,
    threads: Vec<Watched>,
    /// All threads are watched.
    is_complete: bool,
    /// All were off the CPU at the last begin.
    all_rest: bool,
    looks: u32,
    window: Instant,
}

#[derive(Debug)]
struct Watched {
    tid: u32,
    ring: Ring,
    /// Bytes that had been written at the last begin, and when the window was opened.
    seen: u64,
    window_from: u64,
    /// It was off the CPU when it began to be watched.
    slept: bool,
    place: Place,
}

impl Watched {
    fn watch(pid: u32, tid: u32) -> Option<Self> {
        let ring = Ring::watch(tid, Notes::SwitchesAndTasks).ok()?;
        // In this order: if nothing has been noted after it was seen off the CPU, it still is. The kernel answers with a system
        // call only if the thread has been switched out in it; its state letter says `S` before that already.
        let text = std::fs::read(format!("/proc/{pid}/task/{tid}/syscall")).unwrap_or_default();
        let slept = !text.is_empty() && !text.starts_with(b"running");
        Some(Self { tid, ring, seen: 0, window_from: 0, slept, place: Place::Unknown })
    }

    fn rests(&self) -> bool {
        match self.place {
            Place::Out | Place::Preempted => true,
            Place::In => false,
            Place::Unknown => self.seen == 0 && self.slept,
        }
    }
}

impl Stillness {
    /// Watches process `pid`. Where the kernel refuses, it is never taken to stand still.
    pub fn watch(pid: u32) -> Self {
        let mut stillness = Self {
            pid,
            threads: Vec::new(),
            is_complete: false,
            all_rest: false,
            looks: 0,
            window: Instant::now(),
        };
        stillness.list();
        stillness
    }

    /// Whether all threads are watched.
    pub fn is_watching(&self) -> bool {
        self.is_complete
    }

    /// Call this before memory is read: [`Stillness::has_stood_still`] is about the time since.
    pub fn begin(&mut self) {
        self.all_rest = self.is_complete;
        if !self.is_complete {
            return;
        }
        self.looks += 1;
        if self.looks == LOOKS_PER_CLOCK {
            self.looks = 0;
            self.count_switches();
        }
        let mut is_listed_anew = false;
        for thread in &mut self.threads {
            let written = thread.ring.written();
            if written != thread.seen {
                is_listed_anew |= thread.ring.notes_more_than_switches(thread.seen, written);
                thread.seen = written;
                thread.place = thread.ring.place(written);
            }
            self.all_rest &= thread.rests();
        }
        if is_listed_anew {
            self.list();
            // What they do now is asked for at the next look.
            self.all_rest = false;
        }
    }

    /// Whether no thread has run since the last [`Stillness::begin`]. No system call.
    pub fn has_stood_still(&self) -> bool {
        self.all_rest && self.threads.iter().all(|thread| thread.ring.written() == thread.seen)
    }

    /// Whether a thread was on a CPU at the last [`Stillness::begin`], or could have run there; `None` if that is not known.
    pub fn is_on_cpu(&self, tid: u32) -> Option<bool> {
        let thread = self.threads.iter().find(|thread| thread.tid == tid)?;
        match thread.place {
            Place::In | Place::Preempted => Some(true),
            Place::Out => Some(false),
            Place::Unknown => thread.rests().then_some(false),
        }
    }

    /// Watches those threads that are there now.
    fn list(&mut self) {
        self.is_complete = false;
        for _ in 0..MAX_LISTINGS {
            let tids = threads_of(self.pid);
            let is_known = tids.len() == self.threads.len()
                && tids.iter().all(|tid| self.threads.iter().any(|thread| thread.tid == *tid));
            if is_known || tids.is_empty() || tids.len() > MAX_THREADS {
                self.is_complete = is_known && !tids.is_empty();
                break;
            }
            self.threads.retain(|thread| tids.contains(&thread.tid));
            for tid in tids {
                if self.threads.iter().any(|thread| thread.tid == tid) {
                    continue;
                }
                // If this fails it has ended since, or the kernel refuses, and the next listing is not the one we know.
                self.threads.extend(Watched::watch(self.pid, tid));
            }
        }
        if !self.is_complete {
            self.threads.clear();
        }
    }

    fn count_switches(&mut self) {
        let since = self.window.elapsed();
        if since < WINDOW {
            return;
        }
        self.window = Instant::now();
        let most = (since.as_secs_f64() * (MAX_PER_SECOND * SWITCH_BYTES) as f64) as u64;
        for thread in &mut self.threads {
            let written = thread.ring.written();
            let bytes = written.wrapping_sub(std::mem::replace(&mut thread.window_from, written));
            self.is_complete &= bytes <= most;
        }
        if !self.is_complete {
            self.threads.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::process::{Command, Stdio};
    use std::time::Duration;

    use super::*;

    /// A thread that has ended goes away sooner, also on a busy machine.
    const PATIENCE: Duration = Duration::from_secs(30);

    fn may_watch() -> bool {
        let may = crate::notes_switches();
        if !may {
            slip_testkit::skip("processes that stand still", "the kernel does not permit perf_event_open");
        }
        may
    }

    /// Waits until the process stands still.
    fn settle(stillness: &mut Stillness) {
        loop {
            stillness.begin();
            if stillness.has_stood_still() {
                break;
            }
            std::thread::yield_now();
        }
    }

    #[test]
    fn a_process_stands_still_until_it_is_switched_in() {
        if !may_watch() {
            return;
        }
        let mut child = Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (mut input, mut output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        input.write_all(b"x").unwrap();
        output.read_exact(&mut [0]).unwrap();
        let mut stillness = Stillness::watch(child.id());
        assert!(stillness.is_watching());
        for _ in 0..1_000 {
            settle(&mut stillness);
            assert!(stillness.is_on_cpu(child.id()).is_some());
            input.write_all(b"x").unwrap();
            output.read_exact(&mut [0]).unwrap();
            assert!(!stillness.has_stood_still(), "it has answered");
        }
        settle(&mut stillness);
        drop(input);
        child.wait().unwrap();
        assert!(!stillness.has_stood_still(), "it has run to its end");
        stillness.begin();
        assert!(!stillness.is_watching() && !stillness.has_stood_still());
    }

    #[test]
    fn threads_that_come_and_go_are_watched() {
        if !may_watch() {
            return;
        }
        let program = "import sys, threading
for line in sys.stdin:
    if line == 'start\\n':
        wait = threading.Event()
        thread = threading.Thread(target=wait.wait)
        thread.start()
    elif line == 'end\\n':
        wait.set()
        thread.join()
    print(len(threading.enumerate()), flush=True)
";
        let mut child = Command::new("python3")
            .args(["-c", program])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (mut input, mut output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let mut ask = |text: &[u8]| {
            input.write_all(text).unwrap();
            let mut answer = [0; 2];
            output.read_exact(&mut answer).unwrap();
            answer[0]
        };
        assert_eq!(ask(b"\n"), b'1');
        let mut stillness = Stillness::watch(child.id());
        for _ in 0..20 {
            settle(&mut stillness);
            assert_eq!(stillness.threads.len(), 1);
            assert_eq!(ask(b"start\n"), b'2');
            assert!(!stillness.has_stood_still());
            settle(&mut stillness);
            assert_eq!(stillness.threads.len(), 2);
            assert_eq!(ask(b"end\n"), b'1');
            // Who has joined a thread goes on a moment before the kernel has taken it away.
            let tasks = || std::fs::read_dir(format!("/proc/{}/task", child.id())).unwrap().count();
            let begin = Instant::now();
            while tasks() > 1 {
                assert!(begin.elapsed() < PATIENCE, "the thread does not end");
                std::thread::yield_now();
            }
        }
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
