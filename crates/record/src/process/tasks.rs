//! Tasks of asyncio as samples.

use std::collections::HashMap;

use slip_cpython::TaskError;
use slip_model::{Outcome, RequestId, Sample, State, StringId, Thread, ThreadId};
use slip_remote::{Pause, ReadError};

use super::{Reader, WatchedProcess, state_of, was_stored};
use crate::Sink;
use crate::outside::Options;
use crate::tasks::{TaskChoice, TaskLook, TaskState};

/// What tasks are counted for whose thread has ended.
const ENDED_THREADS: &str = "ended threads";

/// Tasks that were seen, and the stack of each.
#[derive(Debug, Default)]
pub(super) struct SeenTasks {
    /// What each thread does, by the target's number of it.
    states: HashMap<u64, State>,
    samples: Vec<Sample>,
    /// The thread that stands for those that have ended.
    ended: Option<ThreadId>,
}

impl WatchedProcess {
    /// Takes one sample of each task that was asked for. False if there is no thread at all.
    ///
    /// While no thread has run, what was seen last is taken again.
    pub(super) fn sample_tasks(
        &mut self,
        (now_ns, rests): (u64, bool),
        options: Options,
        choice: TaskChoice,
        sink: &mut Sink,
    ) -> Result<bool, ReadError> {
        if !rests {
            self.repeatable = false;
            let any = self.read_threads(sink)?;
            if !any {
                return Ok(false);
            }
            self.seen_tasks.samples.clear();
            match self.read_tasks(choice, sink) {
                Ok(look) => self.note_tasks(look, choice, sink),
                Err(TaskError::Read(error @ (ReadError::Gone { .. } | ReadError::Denied { .. }))) => {
                    return Err(error);
                }
                Err(_) => {
                    sink.totals.torn += 1;
                    return Ok(true);
                }
            }
            self.repeatable = self.readings.iter().all(|reading| reading.outcome != Outcome::Torn);
        }
        let samples = std::mem::take(&mut self.seen_tasks.samples);
        if samples.is_empty() {
            // Nothing to see is something that was looked at.
            sink.totals.filtered += 1;
        }
        for sample in &samples {
            if options.mode.counts(sample.state) {
                sink.push(Sample { time_ns: now_ns, ..*sample });
            } else {
                sink.totals.filtered += 1;
            }
        }
        self.seen_tasks.samples = samples;
        Ok(true)
    }

    /// Looks at all tasks now; `options` says whether the process is to be stopped meanwhile.
    pub(crate) fn look_at_tasks(&mut self, options: Options, sink: &mut Sink) -> Result<TaskLook, TaskError> {
        let paused = if options.pause { Pause::stop(&self.memory).ok() } else { None };
        let look = self.read_threads(sink).map_err(TaskError::from).and_then(|_| {
            let mut look = self.read_tasks(TaskChoice::All, sink)?;
            self.find_threads(&mut look, sink);
            Ok(look)
        });
        drop(paused);
        look
    }

    fn read_tasks(&mut self, choice: TaskChoice, sink: &mut Sink) -> Result<TaskLook, TaskError> {
        let (Reader::Python(python), Some(tasks)) = (&mut self.reader, &mut self.tasks) else {
            return Err(TaskError::NoAsyncio);
        };
        tasks.read(python, &self.memory, &mut sink.interner, choice)
    }

    /// Reads the threads: which there are, and what they do.
    fn read_threads(&mut self, sink: &mut Sink) -> Result<bool, ReadError> {
        let Reader::Python(interpreter) = &mut self.reader else { return Ok(false) };
        let mut readings = std::mem::take(&mut self.readings);
        readings.clear();
        let read = interpreter.sample(&self.memory, &mut sink.interner, &mut readings);
        if read.is_ok() {
            for (at, reading) in readings.iter().enumerate() {
                let (_, activity) = self.thread(at, reading, true, sink);
                self.seen_tasks.states.insert(reading.native_tid, state_of(reading, activity));
            }
            self.forget_ended(&readings);
            self.seen_tasks.states.retain(|tid, _| readings.iter().any(|reading| reading.native_tid == *tid));
            readings.iter_mut().for_each(was_stored);
        }
        let any = !readings.is_empty();
        self.readings = readings;
        read.map(|()| any)
    }

    /// Says which thread of the recording each thread is.
    fn find_threads(&mut self, look: &mut TaskLook, sink: &mut Sink) {
        for thread in &mut look.threads {
            let known = self.threads.iter().find(|known| known.native_tid == thread.native_tid);
            thread.thread = known.map(|known| known.known.id);
            if thread.native_tid == 0 && !look.tasks.is_empty() && thread.thread.is_none() {
                thread.thread = Some(self.ended_threads(sink));
            }
        }
    }

    /// The thread that stands for all that have ended.
    fn ended_threads(&mut self, sink: &mut Sink) -> ThreadId {
        let process = self.id;
        *self.seen_tasks.ended.get_or_insert_with(|| {
            let name: StringId = sink.interner.string(ENDED_THREADS);
            sink.add_thread(Thread { process, name, ..Thread::default() })
        })
    }

    /// Makes samples of tasks.
    fn note_tasks(&mut self, mut look: TaskLook, choice: TaskChoice, sink: &mut Sink) {
        self.find_threads(&mut look, sink);
        let stacks = look.stacks(&mut sink.interner);
        for (task, stack) in look.tasks.iter().zip(stacks) {
            let seen = look.threads[task.thread];
            let of_thread = self.seen_tasks.states.get(&seen.native_tid).copied().unwrap_or_default();
            let state = match task.state {
                TaskState::Runs => of_thread,
                TaskState::RunsUnseen => {
                    // Where it stands is not known; a task that only waits for the running one is no sample then.
                    sink.totals.torn += u64::from(choice == TaskChoice::All);
                    continue;
                }
                TaskState::Waits if choice == TaskChoice::Running => continue,
                TaskState::Waits => State::default(),
            };
            // One that has only just begun is counted with the next look.
            let Some(thread) = seen.thread else {
                sink.totals.torn += 1;
                continue;
            };
            // That the stack of the thread was repaired or cut says nothing of this one.
            let state = State(state.0 & !(State::REPAIRED.0 | State::TRUNCATED.0));
            let state = if stack.truncated { state.with(State::TRUNCATED) } else { state };
            self.seen_tasks.samples.push(Sample {
                time_ns: 0,
                thread,
                stack: stack.stack,
                state,
                request: RequestId(0),
            });
        }
    }
}
