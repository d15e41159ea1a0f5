//! Slow calls to servers, each with the stack that the thread had when it read the answer.

use std::collections::HashMap;

use slip_model::{CallPart, CpuTaker, Endpoint, Interner, StackId};
use slip_probe::SlowCall;

/// A look at a thread is told some microseconds after the call that it belongs to. So what has not come when the kernel was asked so
/// often again will not come.
const TURNS: u32 = 2;

/// What is not seen of calls.
pub const CANNOT_SEE: [&str; 8] = [
    "calls begin with the first byte that is sent: what connecting took is not in them",
    "of several questions that are sent before the first answer is read, one call is told",
    "a call whose answer is never read is not told, nor is one over UDP, as to a name server",
    "of what is sent over TLS the command is not seen",
    "of the time that a thread was ready to read its answer, who had that CPU last is named, for all of it; not of less than 20 \u{b5}s",
    "the stack of a process or PHP request that ends before its functions are named, some milliseconds after the call, is not shown",
    "what a process calls that a target has just started (`--children`) is not told before it is found, which takes some 0.3 s",
    "stacks have functions of PHP and Python alone, of more than 128 not the outer ones",
];

/// Why a slow call has no stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoStack {
    /// No function of an interpreter's ran in the thread.
    NoCode,
    /// No interpreter had been found in the process when the call ended: it has none, or had just begun.
    Unknown,
    /// It could not be read, or its functions were gone before they were named.
    Unreadable,
    /// None was told: the kernel had no room for it, or another thread came between.
    Lost,
}

/// A call to a server that was slow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TracedCall {
    /// Process id as this host numbers it.
    pub pid: u32,
    /// Kernel thread id as this host numbers it.
    pub tid: u32,
    /// When its answer was read, since the begin of the trace.
    pub end_ns: u64,
    /// Where the server listens, and what is spoken there.
    pub endpoint: Endpoint,
    /// The name of the command; empty if it is not known.
    pub command: String,
    /// What it was spent on, by number of the [`CallPart`].
    pub parts: [u64; CallPart::ALL.len()],
    /// Who had the CPU last before the thread got it to read the answer, and for how long the thread was ready for it; `None` if that
    /// was for less than 20 microseconds, or is not known.
    pub taker: Option<CpuTaker>,
    /// Where the thread read the answer.
    pub stack: Result<StackId, NoStack>,
}

impl TracedCall {
    /// From the first byte that was sent to the first of the answer that was read.
    pub fn total_ns(&self) -> u64 {
        self.parts.iter().fold(0, |sum, ns| sum.saturating_add(*ns))
    }

    /// Its parts that are longer than nothing, the longest first.
    pub fn longest_parts(&self) -> Vec<(CallPart, u64)> {
        let mut parts: Vec<_> = CallPart::ALL.into_iter().zip(self.parts).filter(|(_, ns)| *ns > 0).collect();
        parts.sort_by_key(|(_, ns)| std::cmp::Reverse(*ns));
        parts
    }
}

/// Takes slow calls as they come. The interner knows their stacks.
pub type OnCall = Box<dyn FnMut(&TracedCall, &Interner)>;

/// Joins slow calls with the looks at their threads, by thread and moment: both name the same one.
pub(crate) struct Trace {
    on_call: OnCall,
    /// With their servers, and the turns that they have waited for.
    waiting: Vec<(SlowCall, Endpoint, u32)>,
    /// Since when the kernel looks at processes, by `CLOCK_MONOTONIC`; and of those that it looks at no more, for how many turns.
    begun: HashMap<u32, (u64, Option<u32>)>,
    /// With the turns that they have been kept for: one may come before its call.
    looks: HashMap<(u32, u64), (Result<StackId, NoStack>, u32)>,
}

impl std::fmt::Debug for Trace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Trace").field("waiting", &self.waiting).finish_non_exhaustive()
    }
}

impl Trace {
    pub(crate) fn new(on_call: OnCall) -> Self {
        Self { on_call, waiting: Vec::new(), begun: HashMap::new(), looks: HashMap::new() }
    }

    /// What a look at thread `tid` has seen, at the end of a call.
    pub(crate) fn see(&mut self, tid: u32, end_ns: u64, stack: Result<StackId, NoStack>) {
        self.looks.insert((tid, end_ns), (stack, 0));
    }

    /// Notes that the kernel looks at the threads of process `pid` from now on.
    pub(crate) fn begin(&mut self, pid: u32, now_ns: u64) {
        self.begun.insert(pid, (now_ns, None));
    }

    /// Ends that. What it has called may not have been told yet.
    pub(crate) fn end(&mut self, pid: u32) {
        if let Some((_, ended)) = self.begun.get_mut(&pid) {
            *ended = Some(0);
        }
    }

    /// Tells the calls whose stacks have come, or will not come. `calls` are new ones, to servers among these `endpoints`, asked for
    /// before the looks that were seen last. `is_last` if nothing more comes.
    pub(crate) fn tell(
        &mut self,
        calls: Vec<SlowCall>,
        endpoints: &[Endpoint],
        start_ns: u64,
        is_last: bool,
        interner: &Interner,
    ) {
        for call in calls {
            // What has ended later than this may have a look.
            let is_known = self.begun.get(&call.pid).is_some_and(|(begin_ns, _)| call.end_ns >= *begin_ns);
            if !is_known {
                self.looks.entry((call.tid, call.end_ns)).or_insert((Err(NoStack::Unknown), 0));
            }
            let endpoint = endpoints.get(call.endpoint as usize).cloned().unwrap_or_default();
            self.waiting.push((call, endpoint, 0));
        }
        let mut still = Vec::new();
        for (call, endpoint, turn) in std::mem::take(&mut self.waiting) {
            let stack = match self.looks.remove(&(call.tid, call.end_ns)) {
                Some((stack, _)) => stack,
                None if turn >= TURNS || is_last => Err(NoStack::Lost),
                None => {
                    still.push((call, endpoint, turn + 1));
                    continue;
                }
            };
            let call = TracedCall {
                pid: call.pid,
                tid: call.tid,
                end_ns: call.end_ns.saturating_sub(start_ns),
                command: call.command(&endpoint.protocol),
                endpoint,
                parts: call.parts,
                taker: call.taker,
                stack,
            };
            (self.on_call)(&call, interner);
        }
        self.waiting = still;
        self.begun.retain(|_, (_, ended)| {
            *ended = ended.map(|turns| turns + 1);
            ended.is_none_or(|turns| turns <= TURNS)
        });
        // Those of calls that were lost.
        self.looks.retain(|_, (_, turns)| {
            *turns += 1;
            *turns <= TURNS
        });
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::rc::Rc;

    use super::*;

    type Told = Rc<RefCell<Vec<(u32, Result<StackId, NoStack>)>>>;

    fn trace() -> (Trace, Told) {
        let told = Told::default();
        let into = Rc::clone(&told);
        let on_call = move |call: &TracedCall, _: &Interner| into.borrow_mut().push((call.tid, call.stack));
        let mut trace = Trace::new(Box::new(on_call));
        for pid in [1, 2] {
            trace.begin(pid, 40);
        }
        (trace, told)
    }

    fn call(tid: u32, end_ns: u64) -> SlowCall {
        let mut call = SlowCall::default();
        (call.pid, call.tid, call.end_ns) = (tid, tid, end_ns);
        call
    }

    #[test]
    fn a_call_has_the_stack_of_its_own_moment_alone() {
        let (mut trace, told) = trace();
        trace.see(1, 50, Ok(StackId(3)));
        trace.see(2, 60, Ok(StackId(4)));
        trace.tell(vec![call(1, 50), call(2, 61)], &[], 0, false, &Interner::new());
        assert_eq!(*told.borrow(), [(1, Ok(StackId(3)))]);
        for _ in 0..TURNS {
            trace.tell(Vec::new(), &[], 0, false, &Interner::new());
        }
        assert_eq!(told.borrow()[1..], [(2, Err(NoStack::Lost))]);
    }

    #[test]
    fn a_stack_that_comes_later_than_its_call_is_awaited() {
        let (mut trace, told) = trace();
        trace.tell(vec![call(1, 50)], &[], 0, false, &Interner::new());
        assert!(told.borrow().is_empty());
        trace.see(1, 50, Err(NoStack::NoCode));
        trace.tell(Vec::new(), &[], 0, false, &Interner::new());
        assert_eq!(*told.borrow(), [(1, Err(NoStack::NoCode))]);
    }

    #[test]
    fn a_call_that_waits_for_its_stack_keeps_its_server() {
        let told = Rc::new(RefCell::new(Vec::new()));
        let into = Rc::clone(&told);
        let on_call = move |call: &TracedCall, _: &Interner| into.borrow_mut().push(call.endpoint.clone());
        let mut trace = Trace::new(Box::new(on_call));
        trace.begin(1, 40);
        let server = Endpoint { address: "127.0.0.1:6379".to_owned(), protocol: "redis".to_owned() };
        trace.tell(vec![call(1, 50)], std::slice::from_ref(&server), 0, false, &Interner::new());
        // Servers come with new calls alone.
        trace.tell(Vec::new(), &[], 0, true, &Interner::new());
        assert_eq!(*told.borrow(), [server]);
    }

    #[test]
    fn a_stack_may_come_before_its_call_and_is_not_kept_for_ever() {
        let (mut trace, told) = trace();
        trace.see(1, 50, Ok(StackId(3)));
        trace.tell(Vec::new(), &[], 0, false, &Interner::new());
        trace.tell(vec![call(1, 50)], &[], 0, false, &Interner::new());
        assert_eq!(*told.borrow(), [(1, Ok(StackId(3)))]);
        trace.see(1, 70, Ok(StackId(3)));
        for _ in 0..=TURNS {
            trace.tell(Vec::new(), &[], 0, false, &Interner::new());
        }
        assert!(trace.looks.is_empty());
    }

    #[test]
    fn a_call_from_before_the_first_look_has_no_stack_to_wait_for() {
        let (mut trace, told) = trace();
        trace.tell(vec![call(1, 39), call(3, 50)], &[], 0, false, &Interner::new());
        assert_eq!(*told.borrow(), [(1, Err(NoStack::Unknown)), (3, Err(NoStack::Unknown))]);
        assert!(trace.looks.is_empty());
    }

    #[test]
    fn a_process_that_has_ended_is_known_until_its_calls_have_been_told() {
        let (mut trace, told) = trace();
        trace.end(1);
        trace.see(1, 60, Ok(StackId(3)));
        trace.tell(vec![call(1, 60)], &[], 0, false, &Interner::new());
        assert_eq!(*told.borrow(), [(1, Ok(StackId(3)))]);
        for _ in 0..TURNS {
            trace.tell(Vec::new(), &[], 0, false, &Interner::new());
        }
        // The number has come again, of another one.
        trace.tell(vec![call(1, 70)], &[], 0, false, &Interner::new());
        assert_eq!(told.borrow()[1], (1, Err(NoStack::Unknown)));
    }

    #[test]
    fn at_the_end_no_call_is_kept_back() {
        let (mut trace, told) = trace();
        trace.tell(vec![call(1, 50)], &[], 0, true, &Interner::new());
        assert_eq!(*told.borrow(), [(1, Err(NoStack::Lost))]);
    }
}
