//! Where samplers put what they see: numbers for processes, threads and requests, and what is new since the last flush.

use slip_model::{
    Allocated, Batch, Budget, Facts, Interner, Process, ProcessId, Request, RequestId, Sample, SampleBlock,
    ServedRequest, Thread, ThreadId, Totals, Wait,
};
use slip_remote::prefetch;

/// How many stacks are known by their numbers, at least, and half of the most: as many as fit into a table of 0.8 MiB. Eight busy
/// workers of WordPress and 200 threads have 20,000 in ten seconds, and 200 new ones in each later one.
const REMEMBERED_STACKS: usize = 57_344;

/// Collects one recording.
#[derive(Debug, Default)]
pub struct Sink {
    /// Strings, frames and stacks.
    pub interner: Interner,
    /// Counters; the session fills in those about time.
    pub totals: Totals,
    processes: Vec<Process>,
    threads: Vec<Thread>,
    changed_processes: Vec<ProcessId>,
    changed_threads: Vec<ThreadId>,
    samples: SampleBlock,
    waits: Vec<Wait>,
    allocations: Vec<(u32, Allocated)>,
    requests: Vec<Request>,
    budget: Option<Budget>,
    facts: Option<Facts>,
    served: Vec<ServedRequest>,
    last_request: u32,
}

impl Sink {
    /// An empty sink, which knows all that was ever put into it.
    pub fn new() -> Self {
        Self::default()
    }

    /// One whose batches are stored: it forgets stacks, so that its memory does not grow as long as there are new ones.
    pub fn forgetful() -> Self {
        Self { interner: Interner::forgetful(REMEMBERED_STACKS), ..Self::default() }
    }

    /// Has the CPU fetch what samples are added to.
    pub(crate) fn prefetch(&self) {
        prefetch(self);
        let SampleBlock { time_ns, thread, stack, state, request } = &self.samples;
        time_ns.last().map(prefetch);
        thread.last().map(prefetch);
        stack.last().map(prefetch);
        state.last().map(prefetch);
        request.last().map(prefetch);
    }

    /// Adds a process; its `id` is given here.
    pub fn add_process(&mut self, mut process: Process) -> ProcessId {
        let id = ProcessId(u32::try_from(self.processes.len()).unwrap_or(u32::MAX));
        process.id = id;
        self.processes.push(process);
        self.changed_processes.push(id);
        id
    }

    /// Notes the end of a process.
    pub fn end_process(&mut self, id: ProcessId, now_ns: u64) {
        if let Some(process) = self.processes.get_mut(id.0 as usize) {
            process.ended_ns = now_ns;
            self.changed_processes.push(id);
        }
    }

    /// Adds a thread; its `id` is given here.
    pub fn add_thread(&mut self, mut thread: Thread) -> ThreadId {
        let id = ThreadId(u32::try_from(self.threads.len()).unwrap_or(u32::MAX));
        thread.id = id;
        self.threads.push(thread);
        self.changed_threads.push(id);
        id
    }

    /// Changes what is known of a thread.
    pub fn update_thread(&mut self, thread: Thread) {
        if let Some(known) = self.threads.get_mut(thread.id.0 as usize) {
            *known = thread;
            self.changed_threads.push(thread.id);
        }
    }

    /// Adds a sample.
    pub fn push(&mut self, sample: Sample) {
        self.totals.samples += 1;
        self.samples.push(sample);
    }

    /// Adds waits.
    pub fn push_wait(&mut self, wait: Wait) {
        self.totals.waits += 1;
        self.waits.push(wait);
    }

    /// Sets what is known of places of allocations, by their numbers, which begin at 0 and have no gaps.
    pub fn set_allocations(&mut self, allocations: Vec<(u32, Allocated)>) {
        self.allocations = allocations;
    }

    /// A number for a new request.
    pub fn next_request(&mut self) -> RequestId {
        self.last_request += 1;
        RequestId(self.last_request)
    }

    /// Adds a request that has ended.
    pub fn push_request(&mut self, request: Request) {
        self.requests.push(request);
    }

    /// Sets the budget of the workers' time so far, without its requests.
    pub fn set_budget(&mut self, budget: Budget) {
        self.budget = Some(budget);
    }

    /// Sets what was found beside times.
    pub fn set_facts(&mut self, facts: Facts) {
        self.facts = Some(facts);
    }

    /// Adds a request of the budget that has ended.
    pub fn push_served(&mut self, request: ServedRequest) {
        self.served.push(request);
    }

    /// Processes so far.
    pub fn processes(&self) -> &[Process] {
        &self.processes
    }

    /// Threads so far.
    pub fn threads(&self) -> &[Thread] {
        &self.threads
    }

    /// Samples since the last flush.
    pub fn samples(&self) -> &SampleBlock {
        &self.samples
    }

    /// Waits since the last flush.
    pub fn waits(&self) -> &[Wait] {
        &self.waits
    }

    /// Takes what is new since the last call.
    pub fn take_batch(&mut self) -> Batch {
        let mut processes = std::mem::take(&mut self.changed_processes);
        processes.sort_unstable();
        processes.dedup();
        let mut threads = std::mem::take(&mut self.changed_threads);
        threads.sort_unstable();
        threads.dedup();
        Batch {
            interned: self.interner.take_delta(),
            processes: processes.into_iter().map(|id| self.processes[id.0 as usize].clone()).collect(),
            threads: threads.into_iter().map(|id| self.threads[id.0 as usize]).collect(),
            samples: std::mem::take(&mut self.samples),
            waits: std::mem::take(&mut self.waits),
            allocations: std::mem::take(&mut self.allocations),
            requests: std::mem::take(&mut self.requests),
            budget: self.budget.take(),
            served: std::mem::take(&mut self.served),
            facts: self.facts.take(),
            totals: self.totals,
        }
    }
}
