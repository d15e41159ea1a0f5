//! Time on a CPU that programs take for time without one.

use std::fs::File;
use std::io::Read as _;

use slip_remote::{PerfEvent, PerfScope, open_perf_event};
use slip_testkit::cpu_time_ns;

/// `PERF_COUNT_SW_TASK_CLOCK` (`include/uapi/linux/perf_event.h`).
const TASK_CLOCK: u64 = 1;

/// What a hypervisor, or an interrupt, takes of the CPUs that some threads have meanwhile. By the clock of a thread's CPU time
/// (`getrusage`, `CLOCK_THREAD_CPUTIME_ID`, `schedstat`) it had none, if the kernel accounts for such time
/// (`update_rq_clock_task` in `kernel/sched/core.c`), and a program that subtracts this clock from the time that passed calls it blocked.
/// The thread was not: it had not given its CPU away. The kernel's event of the same name as the clock leaves nothing out, so the two
/// differ by just that.
pub(crate) struct Stolen(Vec<Thread>);

struct Thread {
    tid: u32,
    event: File,
    counted_ns: u64,
}

impl Stolen {
    /// From now on, of threads that are idle.
    pub(crate) fn start(tids: &[u32]) -> Self {
        Self(tids.iter().map(|tid| Thread::start(*tid)).collect())
    }

    /// Nanoseconds by now, when the threads are idle again.
    pub(crate) fn ns(&self) -> u64 {
        self.0.iter().map(Thread::ns).sum()
    }
}

impl Thread {
    fn start(tid: u32) -> Self {
        let event = open_perf_event(PerfEvent::Software(TASK_CLOCK), 0, 0, PerfScope::Thread(tid)).unwrap();
        Self { tid, event: event.into(), counted_ns: cpu_time_ns(tid) }
    }

    fn ns(&self) -> u64 {
        let mut value = [0; 8];
        (&self.event).read_exact(&mut value).unwrap();
        u64::from_ne_bytes(value).saturating_sub(cpu_time_ns(self.tid) - self.counted_ns)
    }
}
