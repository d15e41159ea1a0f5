//! Programs without an interpreter: their native stacks are all that is seen.

use std::collections::HashMap;

use slip_model::{Language, Process, ProcessId, RequestId, Sample, StackId, State, Thread, ThreadId};
use slip_probe::{Look, NativeCopy};
use slip_remote::{LiveProcess, OpenError};
use slip_zend::CodeCache;

use crate::native_code::Files;
use crate::native_stacks::NativeStacks;
use crate::outside::Options;
use crate::process::{SAME_PROGRAM_INTERVAL_NS, comm, has_interpreter, innermost, title};
use crate::{Sink, TargetIssue};

/// Threads whose names are kept: a program may start new ones all the time.
pub(crate) const MAX_THREADS: usize = 65_536;

/// A process that runs no interpreter.
#[derive(Debug)]
pub(crate) struct BareProcess {
    /// What the kernel's programs call it.
    pub(crate) id: u32,
    memory: LiveProcess,
    process: ProcessId,
    natives: NativeStacks,
    /// By the host's numbers.
    threads: HashMap<u32, ThreadId>,
    next_question_ns: u64,
    pub(crate) is_gone: bool,
}

impl BareProcess {
    pub(crate) fn open(
        pid: u32,
        id: u32,
        now_ns: u64,
        issue: TargetIssue,
        sink: &mut Sink,
    ) -> Result<Self, TargetIssue> {
        let memory = LiveProcess::open(pid).map_err(|error| match error {
            OpenError::NotFound { .. } => TargetIssue::NotFound,
            _ => issue,
        })?;
        let process = sink.add_process(Process {
            pid,
            ns_pid: innermost(pid).unwrap_or(pid),
            language: Language::Native,
            title: title(pid, Language::Native),
            first_ns: now_ns,
            ..Process::default()
        });
        Ok(Self {
            id,
            memory,
            process,
            natives: NativeStacks::default(),
            threads: HashMap::new(),
            next_question_ns: now_ns.saturating_add(SAME_PROGRAM_INTERVAL_NS),
            is_gone: false,
        })
    }

    pub(crate) fn pid(&self) -> u32 {
        self.memory.pid()
    }

    /// Asks now and then whether it still runs the same program, and whether that has loaded an interpreter since.
    pub(crate) fn look(&mut self, now_ns: u64, options: Options, code: &mut CodeCache) {
        if self.natives.take_change() {
            self.is_gone |= has_interpreter(self.pid(), options, code);
        }
        if now_ns >= self.next_question_ns {
            self.next_question_ns = now_ns.saturating_add(SAME_PROGRAM_INTERVAL_NS);
            self.is_gone |= !self.memory.runs_same_program();
        }
    }

    /// What a look says of a thread.
    pub(crate) fn see(
        &mut self,
        look: &Look,
        copy: Option<&NativeCopy>,
        (time_ns, now_ns): (u64, u64),
        files: &Files,
        sink: &mut Sink,
    ) -> Sample {
        let thread = self.thread(look.tid, sink);
        let stack = copy.map_or(StackId(0), |copy| {
            self.natives.stack(self.memory.pid(), now_ns, copy, files, &mut sink.interner)
        });
        let state = if look.wait.is_some() { State::default() } else { State::ON_CPU };
        Sample { time_ns, thread, stack, state, request: RequestId(0) }
    }

    fn thread(&mut self, tid: u32, sink: &mut Sink) -> ThreadId {
        if let Some(thread) = self.threads.get(&tid) {
            return *thread;
        }
        if self.threads.len() >= MAX_THREADS {
            self.threads.clear();
        }
        let name = comm(self.pid(), tid, &mut sink.interner);
        let thread = sink.add_thread(Thread { process: self.process, tid, name, ..Thread::default() });
        self.threads.insert(tid, thread);
        thread
    }

    pub(crate) fn finish(&self, now_ns: u64, sink: &mut Sink) {
        sink.end_process(self.process, now_ns);
    }
}
