//! When a thread was switched in and out, as the kernel notes it in a ring that we share with it.
//!
//! A look at a ring is one load: a thread whose ring has not grown has not run. The kernel takes about 0.2 us longer for
//! each switch that it notes (workers of WordPress: 56 in 9 ms, +0.2 % [-0.2, +0.6] CPU for a request in 800 pairs), so
//! a thread that switches all the time is left alone: [`Switches::are_too_many`].

use std::io;
use std::time::Duration;

use crate::ring::{Notes, Place, Ring, SWITCH_BYTES};

/// A thread that is switched more often than this, in or out, is left alone. Noting so many takes it 0.2 % of a CPU.
const MAX_PER_SECOND: u64 = 10_000;

/// For so long switches are counted: workers have bursts of them while they ask a database.
const WINDOW: Duration = Duration::from_secs(1);

/// The switches of one thread.
#[derive(Debug)]
pub(crate) struct Switches {
    ring: Ring,
    /// Bytes that had been written at the last look.
    seen: u64,
    /// How long the window has been open, and what had been written when it was opened.
    window: Duration,
    window_from: u64,
}

impl Switches {
    /// Watches thread `tid`. Needs no privilege for threads of the same user where `kernel.perf_event_paranoid` is at
    /// most 2.
    ///
    /// # Errors
    ///
    /// If the kernel refuses, as in most containers, or has no such thread; `EMFILE` if we have many files open.
    pub(crate) fn watch(tid: u32) -> io::Result<Self> {
        let ring = Ring::watch(tid, Notes::Switches)?;
        Ok(Self { ring, seen: 0, window: Duration::ZERO, window_from: 0 })
    }

    /// Has the CPU fetch the ring's header.
    pub(crate) fn prefetch(&self) {
        self.ring.prefetch();
    }

    /// Whether the thread has not run since the last call: it was off the CPU then and has not been switched in.
    pub(crate) fn is_resting(&mut self) -> bool {
        let written = self.written();
        let same = written == self.seen;
        self.seen = written;
        same && matches!(self.place(), Place::Out | Place::Preempted)
    }

    /// Whether it has switched at all since it is watched.
    pub(crate) fn have_begun(&self) -> bool {
        self.written() > 0
    }

    /// Whether the thread is switched so often that it should be left alone. Asked at each look, with the time since the
    /// last one or a little less.
    pub(crate) fn are_too_many(&mut self, since: Duration) -> bool {
        self.window += since;
        if self.window < WINDOW {
            return false;
        }
        let written = self.written();
        let switches = written.wrapping_sub(self.window_from) / SWITCH_BYTES;
        let most = self.window.as_secs_f64() * MAX_PER_SECOND as f64;
        (self.window, self.window_from) = (Duration::ZERO, written);
        switches as f64 > most
    }

    /// Where the thread is.
    pub(crate) fn place(&self) -> Place {
        self.ring.place(self.written())
    }

    /// Bytes that the kernel has written so far.
    fn written(&self) -> u64 {
        self.ring.written()
    }
}

/// Whether the kernel notes switches for us; asked of our own thread.
pub fn notes_switches() -> bool {
    Switches::watch(0).is_ok()
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::process::{Command, Stdio};

    use super::*;
    use crate::ring::PAGE_BYTES;

    #[test]
    fn a_thread_rests_until_it_is_switched_in() {
        if !notes_switches() {
            slip_testkit::skip("switches of threads", "the kernel does not permit perf_event_open");
            return;
        }
        let mut child = Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut switches = Switches::watch(child.id()).unwrap();
        let (mut input, mut output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        for _ in 0..1_000 {
            let before = switches.written();
            input.write_all(b"x").unwrap();
            // While it is being started it also waits for other things than for this.
            output.read_exact(&mut [0]).unwrap();
            while switches.written() == before || switches.place() != Place::Out || !switches.is_resting() {
                std::thread::yield_now();
            }
        }
        // It may have been running when it was first watched: then it was not switched in for the first byte.
        assert!(switches.written() / SWITCH_BYTES >= 1_999);
        assert!(switches.written() > PAGE_BYTES as u64, "the ring has gone round");
        drop(input);
        child.wait().unwrap();
        assert!(!switches.is_resting(), "it has run to its end");
    }

    #[test]
    fn a_thread_that_is_switched_all_the_time_is_left_alone() {
        if !notes_switches() {
            slip_testkit::skip("too many switches", "the kernel does not permit perf_event_open");
            return;
        }
        let mut switches = Switches::watch(0).unwrap();
        let (ping, pong) = (std::sync::mpsc::channel(), std::sync::mpsc::channel());
        let echo = std::thread::spawn(move || ping.1.iter().try_for_each(|()| pong.0.send(())));
        while switches.written() / SWITCH_BYTES <= 1_000 {
            ping.0.send(()).unwrap();
            pong.1.recv().unwrap();
        }
        assert!(!switches.are_too_many(WINDOW / 2), "the window is still open");
        assert!(!switches.are_too_many(WINDOW / 2), "1,000 in a second");
        while (switches.written() - switches.window_from) / SWITCH_BYTES <= MAX_PER_SECOND {
            ping.0.send(()).unwrap();
            pong.1.recv().unwrap();
        }
        assert!(switches.are_too_many(WINDOW));
        assert!(!switches.are_too_many(WINDOW), "a new window");
        drop(ping.0);
        echo.join().unwrap().unwrap();
    }
}
