//! The sampler that the kernel calls: the stacks of threads that run, copied while they stand still.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use slip_probe::{Clock, CopiedStack, Event, Look, ProbeError};
use slip_remote::{Copied, StackPlan};
use slip_zend::CodeCache;

use crate::outside::Options;
use crate::process::{Sampled, WatchedProcess};
use crate::schedule::monotonic_ns;
use crate::{Sampler, Sink, TargetIssue};

/// Most stacks that are kept of one process; then its are forgotten, and told again as they are seen.
const MAX_STACKS: usize = 32_768;

/// Events that were lost are counted this often: it takes a system call for each counter.
const COUNT_INTERVAL_NS: u64 = 250_000_000;

/// Samples threads that run by a clock of each CPU. Threads that wait are not seen.
#[derive(Debug)]
pub struct KernelSampler {
    options: Options,
    clock: Clock,
    processes: Vec<Target>,
    last_id: u32,
    code: CodeCache,
    /// Events that had no room in the ring, as far as they have been counted.
    lost: u64,
    next_count_ns: u64,
}

#[derive(Debug)]
struct Target {
    /// What the kernel calls it: a pid may be used again.
    id: u32,
    process: WatchedProcess,
    plan: StackPlan,
    stacks: HashMap<u64, CopiedStack>,
    is_gone: bool,
    /// Stacks that were taken now have been named already.
    has_begun: bool,
}

impl KernelSampler {
    /// A sampler without targets, whose clocks go off each `interval_ns`.
    ///
    /// # Errors
    ///
    /// As for [`Clock::start`].
    pub fn start(options: Options, interval_ns: u64) -> Result<Self, ProbeError> {
        let clock = Clock::start(interval_ns)?;
        Ok(Self {
            options,
            clock,
            processes: Vec::new(),
            last_id: 0,
            code: CodeCache::default(),
            lost: 0,
            next_count_ns: 0,
        })
    }

    fn count_lost(&mut self, sink: &mut Sink) {
        let lost = self.clock.counters().lost;
        sink.totals.failed += lost - self.lost;
        self.lost = lost;
    }

    fn store(&mut self, look: &Look, (now, now_ns): (Instant, u64), start_ns: u64, sink: &mut Sink) {
        let Some(target) = self.processes.iter_mut().find(|target| target.id == look.id) else { return };
        if look.is_foreign || target.is_gone {
            // A thread that has nothing to do with the interpreter.
            return;
        }
        if !std::mem::replace(&mut target.has_begun, true) {
            target.is_gone = target.process.begin_copied() == Sampled::Gone;
        }
        let stack = target.stacks.get(&look.key);
        if look.failed || (look.key != 0 && stack.is_none()) {
            sink.totals.failed += 1;
            return;
        }
        let copied = Copied {
            thread_state: look.thread_state,
            addrs: stack.map_or(&[], |stack| &stack.addrs),
            frames: stack.map_or(&[], |stack| &stack.frames),
            truncated: look.truncated,
            instruction: look.instruction,
            anchor: &look.anchor,
        };
        let age = Duration::from_nanos(now_ns.saturating_sub(look.time_ns));
        let at = now.checked_sub(age).unwrap_or(now);
        let time_ns = look.time_ns.saturating_sub(start_ns);
        target.process.store_copied((&copied, time_ns, at), self.options, sink, &mut self.code);
    }
}

impl Sampler for KernelSampler {
    fn name(&self) -> &'static str {
        "kernel"
    }

    fn cannot_see(&self) -> Vec<String> {
        vec![
            "threads that wait are not seen".to_owned(),
            "without opcache, PHP functions whose request ends before their names are read, some milliseconds later, are \
             dropped and counted as torn"
                .to_owned(),
            "stacks of more than 128 frames lack their outer end, and say so".to_owned(),
            "C functions below Python code, and native and kernel frames, are not shown".to_owned(),
        ]
    }

    fn add(&mut self, pid: u32, now_ns: u64, sink: &mut Sink) -> Result<(), TargetIssue> {
        let mut process = WatchedProcess::attach(pid, now_ns, sink, &mut self.code)?;
        let cannot = |reason: String| TargetIssue::Unsupported { reason };
        let plan = process.plan().ok_or(TargetIssue::NotReady)?;
        self.last_id += 1;
        self.clock.watch(pid, self.last_id, &plan).map_err(|error| cannot(error.to_string()))?;
        let stacks = HashMap::new();
        self.processes.push(Target {
            id: self.last_id,
            process,
            plan,
            stacks,
            is_gone: false,
            has_begun: false,
        });
        Ok(())
    }

    fn remove(&mut self, pid: u32, now_ns: u64, sink: &mut Sink) {
        let Self { processes, code, clock, .. } = self;
        for mut target in processes.extract_if(.., |target| target.process.pid() == pid) {
            clock.forget(pid);
            target.process.finish(sink, code);
            sink.end_process(target.process.id(), now_ns);
        }
    }

    fn pids(&self) -> Vec<u32> {
        self.processes.iter().map(|target| target.process.pid()).collect()
    }

    fn sample(&mut self, now_ns: u64, sink: &mut Sink) -> Vec<u32> {
        // The kernel's time is that of the same clock as ours.
        let (now, monotonic_ns) = (Instant::now(), monotonic_ns());
        let events = self.clock.take(Duration::ZERO).unwrap_or_default();
        for target in &mut self.processes {
            target.has_begun = false;
            target.is_gone = !target.process.is_there(now_ns);
        }
        for event in events {
            match event {
                Event::Look(look) => {
                    self.store(&look, (now, monotonic_ns), monotonic_ns.saturating_sub(now_ns), sink);
                }
                Event::Stack(stack) => {
                    if let Some(target) = self.processes.iter_mut().find(|target| target.id == stack.id) {
                        if target.stacks.len() >= MAX_STACKS {
                            self.clock.forget_stacks(target.stacks.drain().map(|(key, _)| key));
                        }
                        target.stacks.insert(stack.key, stack);
                    }
                }
            }
        }
        if now_ns >= self.next_count_ns {
            self.next_count_ns = now_ns.saturating_add(COUNT_INTERVAL_NS);
            self.count_lost(sink);
        }
        for target in self.processes.iter_mut().filter(|target| !target.is_gone) {
            if let Some(plan) = target.process.plan_anew().filter(|plan| *plan != target.plan)
                && self.clock.watch(target.process.pid(), target.id, &plan).is_ok()
            {
                target.plan = plan;
            }
        }
        let gone: Vec<u32> = self
            .processes
            .iter()
            .filter(|target| target.is_gone)
            .map(|target| target.process.pid())
            .collect();
        for pid in &gone {
            self.remove(*pid, now_ns, sink);
        }
        gone
    }

    fn finish(&mut self, sink: &mut Sink) {
        self.count_lost(sink);
        for target in &mut self.processes {
            target.process.finish(sink, &mut self.code);
        }
    }
}
