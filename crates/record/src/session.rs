//! One recording from begin to end: schedule, targets, sampler, and the file in a thread of its own.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use slip_model::{Batch, Facts, PhpAnswer, Totals, Trial, Window};
use thiserror::Error;

use crate::facts::FactsKeeper;
use crate::file::{FileError, Writer};
use crate::left_out::LeftOut;
use crate::live::LiveFold;
use crate::malloc::OwnMemory;
use crate::schedule::{Schedule, Wake, monotonic_ns, own_cpu_ns, unix_ns};
use crate::target::{TargetError, TargetSet};
use crate::{Sampler, Sink, TargetIssue};

/// Samples reach the file this often: what a crash can lose, of which more than a second is promised not to be.
const FLUSH_INTERVAL_NS: u64 = 800_000_000;

/// Processes that come and go are looked for this often.
const REFRESH_INTERVAL_NS: u64 = 250_000_000;

/// A sampler that has to be asked only now and then is asked this often while a process is about to become an interpreter.
const AWAIT_INTERVAL_NS: u64 = 10_000_000;

/// The first seconds decide what a started command is.
const EARLY_NS: u64 = 3_000_000_000;

/// A process that is no interpreter may become one by `exec`; it is asked again, first after this time, then after
/// twice as long each time.
const FIRST_RETRY_NS: u64 = 2_000_000;
const MAX_RETRY_NS: u64 = 1_000_000_000;

/// Flushes that may wait for the disk before sampling has to.
const MAX_WAITING_FLUSHES: usize = 4;

/// A batch is tried so often while a reader keeps the file locked: each try waits 0.25 s, so a reader has ten seconds and
/// the end of a recording is not put off for ever.
const MAX_TRIES: usize = 40;

/// What a session is to do.
#[derive(Clone, Debug)]
pub struct SessionOptions {
    /// Time between two samples.
    pub interval_ns: u64,
    /// How long; `None` until the targets end or the user stops it.
    pub duration_ns: Option<u64>,
    /// A process that we started: while it runs, an interpreter may still appear.
    pub waits_for_interpreter: bool,
}

/// How a session ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The time asked for has passed.
    Duration,
    /// Every target has ended.
    TargetsGone,
    /// The user stopped it.
    Stopped,
}

/// Why a session could not go on. What was recorded before is in the file.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum SessionError {
    /// The target was not found.
    #[error(transparent)]
    Target(#[from] TargetError),
    /// A process cannot be sampled.
    #[error("process {pid} cannot be sampled")]
    Issue {
        /// The process.
        pid: u32,
        /// Why.
        issue: TargetIssue,
    },
    /// The file cannot be written.
    #[error(transparent)]
    File(#[from] FileError),
}

/// What is going on, for a progress display.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    /// Time since the begin.
    pub elapsed_ns: u64,
    /// Processes sampled now.
    pub processes: usize,
    /// Counters so far.
    pub totals: Totals,
}

/// A recording session.
pub struct Session<'a> {
    options: SessionOptions,
    targets: TargetSet,
    sampler: &'a mut dyn Sampler,
    sink: Sink,
    /// Processes that cannot be sampled yet, when to ask again and after what time then.
    waiting: BTreeMap<u32, (u64, u64)>,
    /// Processes that were interpreters and are not now.
    left: BTreeSet<u32>,
    left_out: LeftOut,
    /// What is found beside times, if that is wanted.
    facts: Option<FactsKeeper>,
    /// What PHP said before.
    php: Option<PhpAnswer>,
    trial: Option<Trial>,
}

impl std::fmt::Debug for Session<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Session").field("options", &self.options).field("targets", &self.targets).finish()
    }
}

impl<'a> Session<'a> {
    /// A session that samples `targets`.
    pub fn new(options: SessionOptions, targets: TargetSet, sampler: &'a mut dyn Sampler) -> Self {
        Self {
            options,
            targets,
            sampler,
            sink: Sink::forgetful(),
            waiting: BTreeMap::new(),
            left: BTreeSet::new(),
            left_out: LeftOut::default(),
            facts: None,
            php: None,
            trial: None,
        }
    }

    /// The same, and at the end the memory of workers is looked at: what they share with the process they were forked from, huge pages,
    /// swap, and limits of control groups. That reads some small files, and 8 bytes for each page of their memory.
    #[must_use]
    pub fn with_facts(self) -> Self {
        let mut facts = FactsKeeper::default();
        // Those that were found already.
        self.sampler.pids().into_iter().for_each(|pid| facts.add(pid));
        Self { facts: Some(facts), ..self }
    }

    /// The same, and its sink knows all that was ever put into it: for who looks at stacks as they come.
    #[must_use]
    pub fn remembering(self) -> Self {
        Self { sink: Sink::new(), ..self }
    }

    /// The same, and its facts have what PHP said when it was asked.
    #[must_use]
    pub fn with_answer(self, php: PhpAnswer) -> Self {
        Self { php: Some(php), ..self }.with_facts()
    }

    /// The same, and its facts have what a trial of the extension found.
    #[must_use]
    pub fn with_trial(self, trial: Trial) -> Self {
        Self { trial: Some(trial), ..self }.with_facts()
    }

    /// Finds the processes and their interpreters, before anything is written.
    ///
    /// # Errors
    ///
    /// [`SessionError::Issue`] if a process that was named cannot be sampled, or none of a tree or pool can.
    pub fn prepare(&mut self) -> Result<(), SessionError> {
        self.refresh(0);
        if self.options.waits_for_interpreter {
            return Ok(());
        }
        let left_out = self.left_out.list();
        // Processes of a tree may import asyncio at any time, and further ones may come that do.
        if self.targets.may_grow() && left_out.iter().any(|(_, issue)| *issue == TargetIssue::NoAsyncio) {
            return Ok(());
        }
        let mut left_out = left_out.into_iter();
        let none = self.sampler.is_empty();
        if let Some((pid, issue)) = left_out.find(|(pid, _)| none || self.targets.is_explicit(*pid)) {
            return Err(SessionError::Issue { pid, issue });
        }
        if none && let Some(pid) = self.waiting.keys().next() {
            return Err(SessionError::Issue { pid: *pid, issue: TargetIssue::NotReady });
        }
        Ok(())
    }

    /// Processes of the target that could not be sampled, with the reasons; first those that may be interpreters. Of
    /// those that have ended only the last.
    pub fn left_out(&self) -> Vec<(u32, TargetIssue)> {
        self.left_out.list()
    }

    /// As [`Sampler::own_memory`].
    pub fn own_memory(&self) -> Vec<OwnMemory> {
        self.sampler.own_memory()
    }

    /// What was collected, for those who need no file.
    pub fn sink(&mut self) -> &mut Sink {
        &mut self.sink
    }

    /// Records into a new file until the end; `progress` is called about once a second.
    ///
    /// If nothing was seen, no sample and none that the mode leaves out, the file is taken away again.
    ///
    /// # Errors
    ///
    /// [`SessionError::File`]; what was written before stays readable.
    pub fn record(
        &mut self,
        mut writer: Writer,
        stop: &AtomicBool,
        mut progress: impl FnMut(Progress),
    ) -> Result<(Ending, Totals), SessionError> {
        if let Err(error) = writer.begin(unix_ns()) {
            writer.discard();
            return Err(error.into());
        }
        let file = FileThread::start(writer);
        let start_ns = monotonic_ns();
        let cpu_before_ns = own_cpu_ns();
        let ending = match self.await_interpreter(start_ns, stop, false) {
            Some(ending) => ending,
            None => {
                let mut store = |sink: &mut Sink, _: &dyn Sampler, now| {
                    progress(now);
                    file.offer(sink.take_batch()).then_some(FLUSH_INTERVAL_NS)
                };
                self.sample_until_end(start_ns, cpu_before_ns, stop, FLUSH_INTERVAL_NS, &mut store)
            }
        };
        let pids = self.sampler.pids();
        self.sampler.finish(monotonic_ns() - start_ns, &mut self.sink);
        self.note_time(start_ns, cpu_before_ns);
        self.find_facts(&pids, cpu_before_ns);
        let totals = Totals { complete: true, ..self.sink.totals };
        file.finish(self.sink.take_batch(), totals)?;
        Ok((ending, totals))
    }

    /// Lets the sampler look until the end, and stores nothing; the last that it has to say of all comes back.
    pub fn watch(&mut self, stop: &AtomicBool) -> (Ending, Batch) {
        let start_ns = monotonic_ns();
        let cpu_before_ns = own_cpu_ns();
        let ending = match self.await_interpreter(start_ns, stop, true) {
            Some(ending) => ending,
            None => {
                let mut forget = |sink: &mut Sink, _: &dyn Sampler, _| {
                    sink.take_batch();
                    Some(FLUSH_INTERVAL_NS)
                };
                self.sample_until_end(start_ns, cpu_before_ns, stop, FLUSH_INTERVAL_NS, &mut forget)
            }
        };
        self.sampler.finish(monotonic_ns() - start_ns, &mut self.sink);
        self.note_time(start_ns, cpu_before_ns);
        (ending, self.sink.take_batch())
    }

    /// Lets the sampler look until the end, and stores nothing: `tell` gets what was seen, again and again, and says after what time it
    /// wants to be told again; `None` ends it. The last window is told when it ends; functions reach back `span_ns`.
    ///
    /// How it ended comes back, and after what time.
    pub fn watch_windows(
        &mut self,
        stop: &AtomicBool,
        first_ns: u64,
        span_ns: u64,
        mut tell: impl FnMut(Window) -> Option<u64>,
    ) -> (Ending, u64) {
        let start_ns = monotonic_ns();
        let cpu_before_ns = own_cpu_ns();
        let mut fold = LiveFold::new(self.options.interval_ns, span_ns);
        let mut store = |sink: &mut Sink, sampler: &dyn Sampler, now: Progress| {
            let batch = sink.take_batch();
            tell(fold.window(now.elapsed_ns, &batch, sampler.open_requests(), &sink.interner))
        };
        let ending = self.sample_until_end(start_ns, cpu_before_ns, stop, first_ns, &mut store);
        let now_ns = monotonic_ns() - start_ns;
        let Self { sampler, sink, .. } = self;
        // The end closes requests that are under way: they have not ended.
        let open = sampler.open_requests();
        sampler.finish(now_ns, sink);
        let mut batch = sink.take_batch();
        batch.requests.retain(|request| !open.iter().any(|known| known.id == request.id));
        tell(fold.window(now_ns, &batch, open, &sink.interner));
        (ending, now_ns)
    }

    /// Takes samples and has them stored, first after `first_flush_ns`, with how far it has got. `store` says after what time it wants
    /// them next; `None` ends it.
    fn sample_until_end(
        &mut self,
        start_ns: u64,
        cpu_before_ns: u64,
        stop: &AtomicBool,
        first_flush_ns: u64,
        store: &mut dyn FnMut(&mut Sink, &dyn Sampler, Progress) -> Option<u64>,
    ) -> Ending {
        // No tick was due while there was nothing to sample.
        let first_ns = if self.options.waits_for_interpreter { monotonic_ns() } else { start_ns };
        let end_ns = self.options.duration_ns.map(|duration| start_ns + duration);
        let fetch_interval_ns = self.sampler.fetch_interval_ns();
        let interval_ns = fetch_interval_ns.unwrap_or(self.options.interval_ns);
        let mut schedule = Schedule::new(first_ns, interval_ns, end_ns);
        // What is fetched late is not missed, and fetched at once.
        let is_tick = u64::from(fetch_interval_ns.is_none());
        if fetch_interval_ns.is_none() {
            schedule = schedule.catching_up();
        }
        let (mut next_flush_ns, mut next_refresh_ns) = (first_flush_ns, 0);
        loop {
            if stop.load(Ordering::Relaxed) {
                return Ending::Stopped;
            }
            let Self { sampler, sink, .. } = self;
            let now_ns = match schedule.wait(|until_ns| sampler.rest(until_ns, start_ns, sink)) {
                Wake::Tick { now_ns, due } => {
                    self.sink.totals.ticks_planned += is_tick * due;
                    now_ns - start_ns
                }
                Wake::End { due } => {
                    self.sink.totals.ticks_planned += is_tick * due;
                    return Ending::Duration;
                }
                Wake::Signal => continue,
            };
            if now_ns >= next_refresh_ns {
                next_refresh_ns = now_ns + REFRESH_INTERVAL_NS;
                self.refresh(now_ns);
            }
            let gone = self.sampler.sample(now_ns, &mut self.sink);
            self.sink.totals.ticks_taken += is_tick;
            if let Some(asked_ns) = self.sampler.fetch_interval_ns() {
                let most_ns = if self.waiting.is_empty() { u64::MAX } else { AWAIT_INTERVAL_NS };
                schedule.set_interval(asked_ns.min(most_ns));
            }
            // A process that runs another program now may become an interpreter again, as one behind a shell does.
            for pid in gone.iter().filter(|pid| self.targets.has(**pid)) {
                self.waiting.insert(*pid, (now_ns, FIRST_RETRY_NS));
                self.left.insert(*pid);
            }
            if !gone.is_empty() || !self.targets.is_settled() {
                // Others take their place at once.
                next_refresh_ns = now_ns;
            }
            if self.sampler.is_empty() && self.nothing_more_can_come(now_ns) {
                return Ending::TargetsGone;
            }
            if now_ns >= next_flush_ns {
                self.sampler.before_flush(now_ns, &mut self.sink);
                self.note_time(start_ns, cpu_before_ns);
                let progress = Progress {
                    elapsed_ns: now_ns,
                    processes: self.sampler.pids().len(),
                    totals: self.sink.totals,
                };
                let Some(wait_ns) = store(&mut self.sink, &*self.sampler, progress) else {
                    return Ending::Stopped;
                };
                next_flush_ns = now_ns.saturating_add(wait_ns);
            }
        }
    }

    /// The watch has ended: what this takes is not in its time, but in what it costs.
    fn find_facts(&mut self, pids: &[u32], cpu_before_ns: u64) {
        if let Some(facts) = &self.facts {
            let found = facts.collect(pids, self.sink.processes());
            self.sink.set_facts(Facts { php: self.php.take(), trial: self.trial.take(), ..found });
            self.sink.totals.own_cpu_ns = own_cpu_ns() - cpu_before_ns;
        }
    }

    fn note_time(&mut self, start_ns: u64, cpu_before_ns: u64) {
        self.sink.totals.duration_ns = monotonic_ns() - start_ns;
        self.sink.totals.own_cpu_ns = own_cpu_ns() - cpu_before_ns;
    }

    fn nothing_more_can_come(&mut self, now_ns: u64) -> bool {
        if self.targets.may_grow() {
            return false;
        }
        // A process that is still about to become an interpreter.
        let any_started = self.look_for_targets(now_ns);
        let awaited = |pid| self.options.waits_for_interpreter || self.left.contains(pid);
        !any_started && !self.waiting.keys().any(awaited)
    }

    /// Looks for processes that came and went; whether any came.
    fn look_for_targets(&mut self, now_ns: u64) -> bool {
        let change = self.targets.refresh();
        for pid in change.ended {
            // Its pid may belong to another process by now, which is among those that have started then.
            self.sampler.remove(pid, now_ns, &mut self.sink);
            self.waiting.remove(&pid);
            self.left.remove(&pid);
            self.left_out.end(pid);
        }
        let any_started = !change.started.is_empty();
        for pid in change.started {
            self.waiting.insert(pid, (now_ns, FIRST_RETRY_NS));
        }
        any_started
    }

    /// Looks for processes that came and went, and for interpreters in those that have none yet.
    fn refresh(&mut self, now_ns: u64) {
        self.look_for_targets(now_ns);
        let due: Vec<u32> =
            self.waiting.iter().filter(|(_, (when, _))| *when <= now_ns).map(|(pid, _)| *pid).collect();
        let sampled = self.sampler.pids();
        for pid in due {
            if sampled.contains(&pid) {
                self.waiting.remove(&pid);
                continue;
            }
            match self.sampler.add(pid, now_ns, &mut self.sink) {
                Ok(()) => {
                    self.waiting.remove(&pid);
                    self.left_out.remove(pid);
                    if let Some(facts) = &mut self.facts {
                        facts.add(pid);
                    }
                }
                Err(TargetIssue::NotFound) => {
                    self.waiting.remove(&pid);
                }
                Err(issue) => {
                    if issue != TargetIssue::NotReady {
                        self.left_out.add(pid, issue);
                    }
                    if let Some((when, delay)) = self.waiting.get_mut(&pid) {
                        *when = now_ns + *delay;
                        *delay = (*delay * 2).min(MAX_RETRY_NS);
                    }
                }
            }
        }
    }

    /// A command that was just started becomes an interpreter at some moment: look closely, so as not to miss its begin.
    /// Says how the recording ended, if it did so meanwhile. Whoever `tells` what it sees as it comes does so of a process that is none yet.
    fn await_interpreter(&mut self, start_ns: u64, stop: &AtomicBool, tells: bool) -> Option<Ending> {
        while self.options.waits_for_interpreter && self.sampler.is_empty() {
            let now_ns = monotonic_ns() - start_ns;
            if stop.load(Ordering::Relaxed) {
                return Some(Ending::Stopped);
            }
            if self.options.duration_ns.is_some_and(|duration| now_ns > duration) {
                return Some(Ending::Duration);
            }
            if now_ns > EARLY_NS {
                return None;
            }
            self.refresh(now_ns);
            self.sampler.look_at_natives();
            if tells && self.sampler.is_empty() {
                self.sampler.sample(now_ns, &mut self.sink);
            }
            if self.sampler.is_empty() && self.nothing_more_can_come(now_ns) {
                return Some(Ending::TargetsGone);
            }
            std::thread::sleep(Duration::from_nanos(FIRST_RETRY_NS));
        }
        None
    }
}

/// Writes batches in a thread of its own: a slow disk must not delay samples.
struct FileThread {
    sender: SyncSender<Batch>,
    thread: JoinHandle<Result<Writer, FileError>>,
}

impl FileThread {
    fn start(mut writer: Writer) -> Self {
        let (sender, batches) = sync_channel::<Batch>(MAX_WAITING_FLUSHES);
        let thread = std::thread::spawn(move || {
            for batch in batches {
                while_busy(|| writer.append(&batch))?;
            }
            Ok(writer)
        });
        Self { sender, thread }
    }

    /// Hands over a batch. If several wait for the disk already, this waits too: samples are then missed, and counted.
    ///
    /// False if writing has failed; [`FileThread::finish`] has the reason.
    fn offer(&self, batch: Batch) -> bool {
        self.sender.send(batch).is_ok()
    }

    fn finish(self, last: Batch, totals: Totals) -> Result<(), SessionError> {
        // If this fails the thread has ended with an error, which is what counts.
        let _ = self.sender.send(last);
        drop(self.sender);
        match self.thread.join() {
            Ok(result) => {
                let mut writer = result?;
                if totals.is_empty() {
                    writer.discard();
                    return Ok(());
                }
                Ok(while_busy(|| writer.finish(totals))?)
            }
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }
}

/// Tries again while a reader keeps the file locked.
fn while_busy(mut work: impl FnMut() -> Result<(), FileError>) -> Result<(), FileError> {
    for _ in 1..MAX_TRIES {
        match work() {
            Err(FileError::Busy { .. }) => {}
            other => return other,
        }
    }
    work()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "test code")]
mod tests {
    use std::path::PathBuf;

    use slip_model::RecordingInfo;

    use super::*;
    use crate::Target;
    use crate::file::load;

    /// Samples nothing of a process that it takes for an interpreter, or for none.
    #[derive(Default)]
    struct FakeSampler {
        refuses: bool,
        pids: Vec<u32>,
        attempts: u64,
        looks: u64,
        /// With this look, all processes are other programs; 0 for never.
        leaves_at: u64,
        /// Ends while it is sampled.
        ends: Option<std::process::Child>,
    }

    impl Sampler for FakeSampler {
        fn name(&self) -> &'static str {
            "fake"
        }

        fn cannot_see(&self) -> Vec<String> {
            Vec::new()
        }

        fn add(&mut self, pid: u32, _now_ns: u64, _sink: &mut Sink) -> Result<(), TargetIssue> {
            self.attempts += 1;
            if self.refuses {
                return Err(TargetIssue::NotAnInterpreter { program: "fake".to_owned() });
            }
            self.pids.push(pid);
            Ok(())
        }

        fn pids(&self) -> Vec<u32> {
            self.pids.clone()
        }

        fn remove(&mut self, pid: u32, _now_ns: u64, _sink: &mut Sink) {
            self.pids.retain(|known| *known != pid);
        }

        fn sample(&mut self, _now_ns: u64, _sink: &mut Sink) -> Vec<u32> {
            self.looks += 1;
            if let Some(mut child) = self.ends.take() {
                child.kill().unwrap();
                child.wait().unwrap();
            }
            if self.looks == self.leaves_at { std::mem::take(&mut self.pids) } else { Vec::new() }
        }

        fn finish(&mut self, _now_ns: u64, _sink: &mut Sink) {}
    }

    /// Records process `pid` at 1 kHz.
    fn record(
        sampler: &mut FakeSampler,
        pid: u32,
        duration_ns: u64,
        waits_for_interpreter: bool,
    ) -> (Ending, Totals) {
        let folder = tempfile::tempdir().unwrap();
        let options =
            SessionOptions { interval_ns: 1_000_000, duration_ns: Some(duration_ns), waits_for_interpreter };
        let targets = TargetSet::find(Target::Pids(vec![pid])).unwrap();
        let mut session = Session::new(options, targets, sampler);
        session.prepare().unwrap();
        let path = folder.path().join("a.slip");
        let writer = Writer::create(&path, &RecordingInfo::default(), false).unwrap();
        session.record(writer, &AtomicBool::new(false), |_| {}).unwrap()
    }

    #[test]
    fn a_recording_has_all_ticks_that_are_due_until_its_end() {
        let mut sampler = FakeSampler::default();
        let (ending, totals) = record(&mut sampler, std::process::id(), 10_000_000, false);
        assert_eq!(ending, Ending::Duration);
        assert_eq!(totals.ticks_planned, 10, "taken or missed, none is due later");
        assert_eq!(sampler.looks, totals.ticks_taken);
    }

    /// Watches our own process, and has `tell` say when it wants the next window; when each that was told ended.
    fn windows(duration_ns: u64, next: impl Fn(usize) -> Option<u64>) -> (Ending, Vec<u64>) {
        let mut sampler = FakeSampler::default();
        let options = SessionOptions {
            interval_ns: 1_000_000,
            duration_ns: Some(duration_ns),
            waits_for_interpreter: false,
        };
        let targets = TargetSet::find(Target::Pids(vec![std::process::id()])).unwrap();
        let mut session = Session::new(options, targets, &mut sampler);
        session.prepare().unwrap();
        let mut ends = Vec::new();
        let (ending, _) = session.watch_windows(&AtomicBool::new(false), 0, u64::MAX, |window| {
            ends.push(window.end_ns);
            next(ends.len())
        });
        (ending, ends)
    }

    #[test]
    fn the_last_window_is_told_at_the_end() {
        let (ending, ends) = windows(10_000_000, |_| Some(u64::MAX));
        assert_eq!((ending, ends.len()), (Ending::Duration, 2), "{ends:?}");
        assert!(ends[0] < ends[1] && ends[1] >= 10_000_000, "{ends:?}");
        let (ending, ends) = windows(600_000_000_000, |told| (told < 3).then_some(1_000_000));
        assert_eq!((ending, ends.len()), (Ending::Stopped, 4), "{ends:?}");
        assert!(ends.is_sorted(), "{ends:?}");
    }

    #[test]
    fn a_command_that_ends_without_an_interpreter_is_not_waited_for() {
        let mut command = std::process::Command::new("true").spawn().unwrap();
        let mut sampler = FakeSampler { refuses: true, ..FakeSampler::default() };
        let (ending, totals) = record(&mut sampler, command.id(), 600_000_000_000, true);
        command.wait().unwrap();
        assert_eq!((ending, totals.ticks_planned), (Ending::TargetsGone, 0));
    }

    #[test]
    fn a_recording_ends_after_its_duration_also_without_an_interpreter() {
        let mut sampler = FakeSampler { refuses: true, ..FakeSampler::default() };
        let (ending, _) = record(&mut sampler, std::process::id(), 5_000_000, true);
        assert_eq!(ending, Ending::Duration);
        assert!(sampler.attempts <= 2, "{} attempts: the next are after 2 and 6 ms", sampler.attempts);
    }

    #[test]
    fn an_interpreter_that_becomes_another_program_and_one_again_is_sampled_again() {
        let mut sampler = FakeSampler { leaves_at: 3, ..FakeSampler::default() };
        let (ending, _) = record(&mut sampler, std::process::id(), 100_000_000, false);
        assert_eq!(ending, Ending::Duration);
        assert_eq!((sampler.attempts, sampler.pids.len()), (2, 1));
    }

    #[test]
    fn a_process_that_has_ended_is_not_sampled_on_under_its_pid() {
        let child = std::process::Command::new("cat").stdin(std::process::Stdio::piped()).spawn().unwrap();
        let pid = child.id();
        let mut sampler = FakeSampler { ends: Some(child), ..FakeSampler::default() };
        let (ending, _) = record(&mut sampler, pid, 60_000_000_000, false);
        assert_eq!((ending, sampler.pids.len()), (Ending::TargetsGone, 0));
    }

    #[test]
    fn a_reader_that_holds_the_lock_for_longer_than_a_flush_waits_does_not_end_the_recording() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.slip");
        let mut writer = Writer::create(&path, &RecordingInfo::default(), false).unwrap();
        let reader = rusqlite::Connection::open(&path).unwrap();
        for last in [false, true] {
            reader.execute_batch("BEGIN EXCLUSIVE").unwrap();
            let totals = Totals { duration_ns: 7, ..Totals::default() };
            let mut refused = 0;
            while_busy(|| {
                let batch = Batch { totals, ..Batch::default() };
                let result = if last { writer.finish(totals) } else { writer.append(&batch) };
                if matches!(result, Err(FileError::Busy { .. })) {
                    refused += 1;
                    reader.execute_batch("COMMIT").unwrap();
                }
                result
            })
            .unwrap();
            assert_eq!(refused, 1);
            let saved = load(&path).unwrap().recording.totals;
            assert_eq!((saved.duration_ns, saved.complete), (7, last));
        }
    }

    #[test]
    fn a_reader_that_never_lets_go_ends_the_recording() {
        let mut tries = 0;
        let result = while_busy(|| {
            tries += 1;
            Err(FileError::Busy { path: PathBuf::from("a.slip") })
        });
        assert!(matches!(result, Err(FileError::Busy { .. })));
        assert_eq!(tries, MAX_TRIES);
    }
}
