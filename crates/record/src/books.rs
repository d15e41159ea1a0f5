//! Keeps the budget of the workers that are recorded: what the books of their threads say, as a [`Budget`] of the recording.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::os::unix::fs::MetadataExt as _;

use slip_model::{Budget, Endpoint, Language, MemoryCalls, RunBegin, ServedRequest, Worker};
use slip_probe::{
    BudgetEvent, BudgetSource, BudgetTarget, CpuTime, ProbeError, Quotas, RunStart, Rung, ServedTimes,
    SlowCall, ThreadTimes, listens,
};
use slip_remote::{LiveProcess, Mapping, Symbols as _, command_line, parse_maps, thread_state};

use crate::native_sites::NativeSites;
use crate::title::title;
use crate::{Sink, TargetIssue};

/// What the runtime of CPython 3.8 and 3.9 has at most, which does not say how large it is: its lock lies in the first part.
const OLD_RUNTIME_BYTES: u64 = 4_096;

/// So much is told of why a way is not used.
const REASON_CHARS: usize = 160;

/// The books of one recording.
#[derive(Debug)]
pub struct Books {
    source: Box<dyn BudgetSource>,
    /// Why each finer way is not used.
    refused: Vec<(Rung, ProbeError)>,
    /// Titles by pid.
    titles: HashMap<u32, String>,
    /// Whether they run PHP.
    php: HashMap<u32, bool>,
    /// Those among them that have no breakpoints, which would tell their requests.
    untold: HashSet<u32>,
    /// PHP's code is not that of its file, where the breakpoints are, in one of them.
    has_moved: bool,
    /// Numbers of workers, by pid, thread and when they were first seen.
    numbers: HashMap<(u32, u32), u32>,
    workers: Vec<Worker>,
    /// Processes that were named, not found: those among them that serve no requests have a run.
    named: HashSet<u32>,
    /// Where the runs begin, if there are any.
    run_begin: Option<RunBegin>,
    /// Processes that are watched and run no interpreter.
    natives: Vec<u32>,
    /// Begin of the recording by `CLOCK_MONOTONIC`; 0 before it.
    start_ns: u64,
    quotas: Quotas,
    /// As it was at the begin.
    cpu_time: CpuTime,
    uses_uprobes: bool,
    /// Calls that were slow and have not been taken.
    slow: Vec<SlowCall>,
    /// Who calls for memory, of those without an interpreter.
    sites: NativeSites,
}

impl Books {
    /// Begins with no process, in the finest way that there is.
    ///
    /// # Errors
    ///
    /// As for [`Rung::start`].
    pub fn start(uses_uprobes: bool) -> Result<Self, ProbeError> {
        Self::start_at(Rung::ALL[0], uses_uprobes)
    }

    /// Begins with no process, in this way. Only with `uses_uprobes` anything is put into targets.
    ///
    /// # Errors
    ///
    /// As for [`Rung::start`].
    pub fn start_at(rung: Rung, uses_uprobes: bool) -> Result<Self, ProbeError> {
        Ok(Self::of(rung.start(uses_uprobes)?, uses_uprobes))
    }

    /// Begins with no process; `source` keeps the books.
    pub(crate) fn of(source: Box<dyn BudgetSource>, uses_uprobes: bool) -> Self {
        Self {
            source,
            refused: Vec::new(),
            titles: HashMap::new(),
            php: HashMap::new(),
            untold: HashSet::new(),
            has_moved: false,
            numbers: HashMap::new(),
            workers: Vec::new(),
            named: HashSet::new(),
            run_begin: None,
            natives: Vec::new(),
            start_ns: 0,
            quotas: Quotas::default(),
            cpu_time: CpuTime::now(),
            uses_uprobes,
            slow: Vec::new(),
            sites: NativeSites::default(),
        }
    }

    /// Begins with no process, in the finest way that is allowed here.
    ///
    /// # Errors
    ///
    /// Why it is not the finest, if none is.
    pub fn start_finest(uses_uprobes: bool) -> Result<Self, ProbeError> {
        let mut refused = Vec::new();
        for rung in Rung::ALL {
            match Self::start_at(rung, uses_uprobes) {
                Ok(books) => return Ok(Self { refused, ..books }),
                Err(error) => refused.push((rung, error)),
            }
        }
        Err(refused.into_iter().next().map_or(ProbeError::NoTypes, |(_, error)| error))
    }

    /// Why a coarser way is used than the finest, if that was left open.
    pub fn why_coarse(&self) -> Option<String> {
        // What the kernel's verifier says is long.
        let first_line = |error: &ProbeError| {
            error
                .to_string()
                .lines()
                .next()
                .unwrap_or_default()
                .chars()
                .take(REASON_CHARS)
                .collect::<String>()
        };
        let reason = first_line(&self.refused.first()?.1);
        if self.source.rung() == Rung::Proc {
            return Some(format!("the budget is kept by looks at /proc, not by the kernel: {reason}"));
        }
        let finer = |(rung, error): &(Rung, ProbeError)| format!("`{}`: {}", rung.name(), first_line(error));
        let finer: Vec<String> = self.refused.iter().map(finer).collect();
        Some(format!(
            "the budget is kept by `{}`, not by {}",
            self.source.rung().name(),
            finer.join(", nor by ")
        ))
    }

    /// Keeps the books of a process.
    ///
    /// # Errors
    ///
    /// As for [`BudgetSource::watch`].
    pub fn add(&mut self, pid: u32, language: Language, title: &str) -> Result<(), ProbeError> {
        let is_php = language == Language::Php;
        if !is_php && self.named.contains(&pid) && !self.is_by_looks() && !listens(pid) {
            self.watch_run(pid, RunStart::Now, title)?;
        }
        self.titles.insert(pid, title.to_owned());
        self.php.insert(pid, is_php);
        let is_told =
            is_php && self.uses_uprobes && !self.is_by_looks() && self.may_have_breakpoints(pid, title);
        // It may have the number of one that has ended.
        self.untold.remove(&pid);
        if is_php && !is_told {
            self.untold.insert(pid);
        }
        self.quotas.add(pid);
        let runtime = if is_php { None } else { runtime_of(pid) };
        let in_request = if is_php && self.is_by_looks() { request_marks_of(pid) } else { None };
        self.source.watch(pid, BudgetTarget { runtime, is_php: is_told, in_request })
    }

    /// Whether breakpoints do process `pid`, which runs PHP, no harm. With `opcache.huge_code_pages` PHP copies its code when it starts,
    /// and a copy of a breakpoint kills whoever meets it: none for who may still start, which does not listen, or may start again,
    /// which the master does when it reloads.
    fn may_have_breakpoints(&mut self, pid: u32, title: &str) -> bool {
        let breaks_others = !self.source.breaks_processes();
        let has_moved = has_moved_code(pid) || breaks_others && others_of(pid).any(has_moved_code);
        self.has_moved |= has_moved;
        !has_moved && !is_master(title) && listens(pid)
    }

    /// Notes that process `pid` was named: if it turns out to serve no requests, its whole run from then on is what is measured. With
    /// another `start` it is about to become a program, and its run is measured until it turns out to serve requests.
    ///
    /// # Errors
    ///
    /// As for [`BudgetSource::watch_run`].
    pub fn may_run(&mut self, pid: u32, start: RunStart, title: &str) -> Result<(), ProbeError> {
        if start == RunStart::Now {
            self.named.insert(pid);
            return Ok(());
        }
        self.watch_run(pid, start, title)
    }

    fn watch_run(&mut self, pid: u32, start: RunStart, title: &str) -> Result<(), ProbeError> {
        self.run_begin = Some(self.source.watch_run(pid, start)?);
        self.sites.expect(pid);
        self.php.entry(pid).or_insert(false);
        self.titles.insert(pid, title.to_owned());
        self.quotas.add(pid);
        Ok(())
    }

    /// Keeps the books of a process that was named and runs no interpreter.
    ///
    /// # Errors
    ///
    /// `issue`, if it was not named, or no run can be measured.
    pub(crate) fn add_native(
        books: Option<&mut Self>,
        pid: u32,
        issue: TargetIssue,
    ) -> Result<(), TargetIssue> {
        let Some(books) = books.filter(|books| books.named.contains(&pid)) else { return Err(issue) };
        books
            .watch_run(pid, RunStart::Now, &title(&command_line(pid), Language::Python))
            .map_err(|_| issue)?;
        books.natives.push(pid);
        Ok(())
    }

    /// Reads what has come of those that call for memory: who they are is read while they run.
    pub fn look_at_sites(&mut self) {
        // What cannot be had now is had with the next look.
        self.sites.add(&self.source.take_memory().unwrap_or_default());
    }

    fn memory_calls(&mut self) -> Option<MemoryCalls> {
        self.look_at_sites();
        self.source.memory_counts().ok().flatten().map(|counts| self.sites.calls(&counts))
    }

    /// Processes that are watched and run no interpreter.
    pub(crate) fn natives(&self) -> &[u32] {
        &self.natives
    }

    /// Those among them that have ended since the last call.
    pub(crate) fn take_ended_natives(&mut self) -> Vec<u32> {
        let is_there = |pid: u32| thread_state(pid, pid).is_some_and(|state| !matches!(state, 'Z' | 'X'));
        self.natives.extract_if(.., |pid| !is_there(*pid)).collect()
    }

    /// Ends that: what it has done stays in the books.
    pub fn remove(&mut self, pid: u32) {
        self.natives.retain(|native| *native != pid);
        self.source.forget(pid);
    }

    /// What is known by now, `now_ns` after the begin of the recording, by `CLOCK_MONOTONIC` since `start_ns`; and the requests
    /// that have ended since the last call.
    ///
    /// # Errors
    ///
    /// As for [`BudgetSource::threads`].
    pub fn take(&mut self, now_ns: u64, start_ns: u64) -> Result<(Budget, Vec<ServedRequest>), ProbeError> {
        self.start_ns = start_ns;
        let mut requests = Vec::new();
        for event in self.source.take()? {
            match event {
                BudgetEvent::Served(served) => requests.extend(self.served(&served)),
                BudgetEvent::ThreadEnded(times) => self.note(&times),
                BudgetEvent::Call(call) => self.slow.push(*call),
            }
        }
        for times in self.source.threads()? {
            self.note(&times);
        }
        let endpoints = self.source.endpoints()?;
        let throttled = self.quotas.so_far();
        let cpu_time = CpuTime::now().since(self.cpu_time);
        let budget = Budget {
            rung: self.source.rung().name().to_owned(),
            cannot_see: self.cannot_see(),
            window_ns: now_ns,
            workers: self.workers.clone(),
            calls: self.source.calls()?,
            commands: self.source.commands(&endpoints)?,
            endpoints,
            requests: Vec::new(),
            lost_requests: self.source.lost(),
            takers: self.source.takers()?,
            quota_periods: throttled.map(|throttled| throttled.periods),
            throttled_periods: throttled.unwrap_or_default().throttled_periods,
            throttled_ns: throttled.unwrap_or_default().ns,
            quota: self.quotas.strictest(),
            cpus_ns: cpu_time.all_ns,
            steal_ns: cpu_time.steal_ns,
            run_begin: self.run_begin,
            memory: self.memory_calls(),
        };
        Ok((budget, requests))
    }

    /// Takes the slow calls that have ended since the last call; requests that ended are left out. The servers come with them, if there
    /// are any.
    pub(crate) fn take_slow(&mut self) -> (Vec<SlowCall>, Vec<Endpoint>) {
        for event in self.source.take().unwrap_or_default() {
            match event {
                BudgetEvent::Served(_) => {}
                BudgetEvent::ThreadEnded(times) => self.note(&times),
                BudgetEvent::Call(call) => self.slow.push(*call),
            }
        }
        let slow = std::mem::take(&mut self.slow);
        let endpoints = if slow.is_empty() { None } else { self.source.endpoints().ok() };
        (slow, endpoints.unwrap_or_default())
    }

    /// Stores the budget so far, and the requests that have ended since: [`Books::take`].
    pub(crate) fn store(&mut self, now_ns: u64, start_ns: u64, sink: &mut Sink) {
        // What cannot be had now is had with the next flush.
        if let Ok((budget, requests)) = self.take(now_ns, start_ns) {
            sink.totals.runs = budget.workers.iter().filter(|worker| worker.is_run).count() as u64;
            sink.set_budget(budget);
            requests.into_iter().for_each(|request| sink.push_served(request));
        }
    }

    /// Ends the recording's last moment: nothing is added any more.
    pub fn stop(&mut self) {
        self.source.stop();
    }

    fn cannot_see(&self) -> Vec<String> {
        let moved = "PHP has moved its code to huge pages (opcache.huge_code_pages), away from breakpoints: its requests are told apart by \
                     their connections, and its start-up is not";
        let moved = self.has_moved.then(|| moved.to_owned());
        self.why_coarse().into_iter().chain(self.source.cannot_see()).chain(moved).collect()
    }

    fn is_by_looks(&self) -> bool {
        self.source.rung() == Rung::Proc
    }

    fn served(&mut self, served: &ServedTimes) -> Option<ServedRequest> {
        let is_php = *self.php.get(&served.pid)?;
        // FPM answers some alone, as its status page.
        let is_told = is_php && !self.untold.contains(&served.pid);
        if served.is_run || is_told && !served.is_started {
            return None;
        }
        // One that began before the recording is in the worker's time alone: not all of it belongs here.
        if served.begin_ns < self.start_ns {
            return None;
        }
        let since = |ns: u64| ns.saturating_sub(self.start_ns);
        let (queued_ns, begin_ns) = (since(served.queued_ns), since(served.begin_ns));
        let (response_ns, end_ns) = (since(served.response_ns), since(served.end_ns));
        let worker = self.number(served.pid, served.tid);
        let (serving, after) = (served.serving, served.after);
        Some(ServedRequest { worker, queued_ns, begin_ns, response_ns, end_ns, serving, after })
    }

    fn number(&mut self, pid: u32, tid: u32) -> u32 {
        let next = u32::try_from(self.workers.len()).unwrap_or(u32::MAX);
        let number = *self.numbers.entry((pid, tid)).or_insert(next);
        if number == next {
            let title = self.titles.get(&pid).cloned().unwrap_or_default();
            self.workers.push(Worker { pid, tid, title, ..Worker::default() });
        }
        number
    }

    /// Notes what a thread has done so far, if it is a worker. Others collect garbage, write logs, or start the workers, and serve
    /// nobody. Of PHP it is known which processes wait for requests; a thread of Python shows by its first one, or, to looks, by what
    /// it waits for.
    fn note(&mut self, times: &ThreadTimes) {
        let serves = times.ended + u64::from(times.opened) + times.crowded > 0;
        let is_php = self.php.get(&times.pid).copied().unwrap_or_default();
        let is_master = self.titles.get(&times.pid).is_some_and(|title| is_master(title));
        let is_waiting = self.is_by_looks() || is_php && times.pid == times.tid;
        let waits_for_requests = is_waiting && !is_master && times.idle_ns > 0;
        if times.is_unknown
            || is_master && self.is_by_looks()
            || !(serves || waits_for_requests || times.is_run)
            || !self.titles.contains_key(&times.pid)
        {
            return;
        }
        let number = self.number(times.pid, times.tid) as usize;
        let endpoints = times.endpoints.iter().filter(|time| time.calls + time.connects + time.wait_ns > 0);
        let endpoints = endpoints.copied().collect();
        if let Some(worker) = self.workers.get_mut(number) {
            worker.watched_ns = times.now_ns.saturating_sub(times.first_ns);
            worker.idle_ns = times.idle_ns;
            worker.between = times.between;
            worker.serving = times.serving;
            worker.after = times.after;
            worker.shared_ns = times.shared_ns;
            worker.loop_blocked_ns = times.loop_blocked_ns;
            worker.faults = times.faults;
            worker.memory_calls = times.memory_calls;
            worker.most_bytes = times.most_bytes;
            worker.endpoints = endpoints;
            worker.is_run = times.is_run;
        }
    }
}

/// Whether this is the title of a process that starts workers, and serves nobody.
fn is_master(title: &str) -> bool {
    title.contains("master process")
}

/// Where the runtime of CPython lies in process `pid`, which holds the global lock.
fn runtime_of(pid: u32) -> Option<(u64, u64)> {
    let process = LiveProcess::open(pid).ok()?;
    if let Some(range) = process.section(".PyRuntime") {
        return Some((range.addr.0, range.addr.0.saturating_add(range.len as u64)));
    }
    let begin = process.symbol("_PyRuntime")?.0;
    Some((begin, begin.saturating_add(OLD_RUNTIME_BYTES)))
}

/// Whether PHP in process `pid` runs from a copy of its code, or of a part of it: `opcache.huge_code_pages` makes one at the start, of no file.
fn has_moved_code(pid: u32) -> bool {
    let Ok(program) = fs::metadata(format!("/proc/{pid}/exe")) else { return false };
    let maps = parse_maps(&fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default());
    let own = || maps.iter().filter(|mapping| mapping.inode == program.ino());
    let (Some(begin), Some(end)) = (own().map(|own| own.start).min(), own().map(|own| own.end).max()) else {
        return false;
    };
    let is_inside = |mapping: &Mapping| (begin..end).contains(&mapping.start);
    maps.iter().any(|mapping| mapping.executable && mapping.inode == 0 && is_inside(mapping))
}

/// All processes that run the same file as process `pid`.
fn others_of(pid: u32) -> impl Iterator<Item = u32> {
    let file =
        |pid: u32| fs::metadata(format!("/proc/{pid}/exe")).ok().map(|found| (found.dev(), found.ino()));
    let wanted = file(pid);
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter(move |other| wanted.is_some() && file(*other) == wanted)
}

/// Where PHP says in process `pid` whether it is in a request.
fn request_marks_of(pid: u32) -> Option<[u64; 3]> {
    slip_zend::request_marks(&LiveProcess::open(pid).ok()?).map(|marks| marks.map(|mark| mark.0))
}
