//! Measures where the time of workers goes: programs in the kernel that keep the books of each thread.

mod fault;
mod hooks;
pub(crate) mod listening;
pub(crate) mod memory;
mod run;
pub(crate) mod tracefs;
mod uprobes;
pub(crate) mod wire;

use std::cell::RefCell;
use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::io::Read as _;
use std::os::fd::{AsRawFd as _, IntoRawFd as _};
use std::rc::Rc;

use libbpf_rs::btf::Btf;
use libbpf_rs::{
    Iter, Link, MapCore as _, MapFlags, MapHandle, Object, ObjectBuilder, RingBuffer, RingBufferBuilder,
};
use slip_model::{CommandTime, CpuTaker, Endpoint, EndpointCalls, RunBegin};
use slip_remote::{PerfEvent, PerfScope, open_perf_event};

use self::hooks::{ATTACHED, AtCalls, CALLS, HOOKS, Hooks, SENDING, traces};
use self::listening::Listening;
pub use self::listening::listens;
use self::memory::MemorySites;
pub use self::memory::{MemoryCounts, MemoryPlace, MemoryStack};
pub use self::run::RunStart;
use self::tracefs::Tracefs;
use self::uprobes::Uprobes;
pub(crate) use self::wire::ENDPOINTS;
pub use self::wire::{BudgetEvent, ServedTimes, SlowCall, ThreadTimes};
use crate::ProbeError;
use crate::clock;
use crate::probe::{find_map, find_program, listen_to_libbpf, loading, other};
use crate::rung::{BudgetSource, Rung};

/// The programs, compiled by `build.rs`.
static OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/budget.bpf.o"));

/// Of `enum perf_sw_ids`: faults, counted when they have been dealt with.
const FAULTS: [u64; 2] = [5, 6];

/// What is kept of sockets by their addresses.
const BY_ADDRESS: &str = "connections_by_address";

/// Programs at system calls that tell where the run of a program begins and ends; not there for who serves requests.
const RUNS: [AtCalls; 2] = [
    ("account_opened", &["sys_exit_open", "sys_exit_openat", "sys_exit_openat2"]),
    ("account_exit_group", &["sys_enter_exit_group"]),
];

/// What has to be known of a process to keep its books.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BudgetTarget {
    /// Begin and end of CPython's runtime, in which the global lock lies.
    pub runtime: Option<(u64, u64)>,
    /// It runs PHP, whose requests begin where two of its functions are called: breakpoints there do it no harm.
    pub is_php: bool,
    /// Where PHP has a byte and a pointer that are both zero as long as it is in no request, and a number that each request has for
    /// itself, or 0. Only who looks from outside needs them.
    pub in_request: Option<[u64; 3]>,
}

/// The programs, and what they keep.
pub struct BudgetProbe {
    // The ring ends before what it calls, and before its map.
    ring: RingBuffer<'static>,
    inbox: Rc<RefCell<Vec<BudgetEvent>>>,
    links: Vec<Link>,
    add_threads: Link,
    list_threads: Link,
    uprobes: Uprobes,
    /// Processes that serve no requests, as far as it is known.
    runs: HashMap<u32, RunStart>,
    uses_uprobes: bool,
    hooks: &'static Hooks,
    sees_sending: bool,
    unseen_fault_ns: u64,
    /// What tells of runs is attached.
    sees_runs: bool,
    memory: MemorySites,
    object: Object,
}

impl std::fmt::Debug for BudgetProbe {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BudgetProbe").field("waiting", &self.inbox.borrow().len()).finish_non_exhaustive()
    }
}

impl BudgetProbe {
    /// Loads the programs of this rung; no process is watched yet. Without `uses_uprobes` nothing is put into targets: the kernel puts
    /// a breakpoint at the two functions of PHP that tell when a request begins.
    ///
    /// # Errors
    ///
    /// As for [`Probe::start`](crate::Probe::start); [`ProbeError::Load`] of a rung that has no programs.
    pub fn start(rung: Rung, uses_uprobes: bool) -> Result<Self, ProbeError> {
        Self::start_programs(rung, uses_uprobes, false, u64::MAX)
    }

    /// The same, and calls to servers that take `slow_ns` or more are told one by one: [`BudgetEvent::Call`].
    ///
    /// # Errors
    ///
    /// As for [`BudgetProbe::start`].
    pub fn start_with_slow_calls(uses_uprobes: bool, slow_ns: u64) -> Result<Self, ProbeError> {
        Self::start_programs(Rung::Tracepoints, uses_uprobes, false, slow_ns)
    }

    /// The same with programs that do nothing: what having them at all costs.
    ///
    /// # Errors
    ///
    /// As for [`BudgetProbe::start`].
    pub fn start_empty() -> Result<Self, ProbeError> {
        Self::start_programs(Rung::Tracepoints, false, true, u64::MAX)
    }

    fn start_programs(
        rung: Rung,
        uses_uprobes: bool,
        do_nothing: bool,
        slow_ns: u64,
    ) -> Result<Self, ProbeError> {
        let hooks = HOOKS.into_iter().find(|hooks| hooks.rung == rung);
        let hooks = hooks.ok_or_else(|| ProbeError::Load(format!("{} has no programs", rung.name())))?;
        listen_to_libbpf();
        if !fs::exists("/sys/kernel/btf/vmlinux").unwrap_or(false) {
            return Err(ProbeError::NoTypes);
        }
        let types = Btf::from_vmlinux().map_err(|_| ProbeError::NoTypes)?;
        if let Some(reason) = hooks.missing(&types) {
            return Err(ProbeError::Load(reason.to_owned()));
        }
        let sees_sending = rung != Rung::Tracepoints || traces(&types, "tcp_sendmsg_locked");
        let is_used = |program: &str| {
            (hooks.have(program) || !HOOKS.iter().any(|others| others.have(program)))
                && (program != SENDING || sees_sending)
        };
        let unseen_fault_ns = fault::unseen_ns()?;
        let mut open = ObjectBuilder::default().open_memory(OBJECT).map_err(|error| loading(&error))?;
        for mut program in open.progs_mut() {
            let is_used = program.name().to_str().is_some_and(is_used);
            program.set_autoload(is_used);
        }
        for mut map in open.maps_mut() {
            if map.name().to_string_lossy().ends_with(".rodata")
                && let Some(first) = map.initial_value_mut().and_then(|values| values.first_chunk_mut())
            {
                *first = wire::options(unseen_fault_ns, do_nothing, hooks.by_address);
            }
            if map.name() == BY_ADDRESS && !hooks.by_address {
                map.set_max_entries(1).map_err(|error| other(&error))?;
            }
            if map.name().to_string_lossy().ends_with(".data")
                && let Some(places) = map.initial_value_mut().and_then(|values| values.first_chunk_mut())
            {
                *places = slow_ns.to_le_bytes();
            }
        }
        let uprobes = Uprobes::prepare(&mut open, &types);
        let object = open.load().map_err(|error| loading(&error))?;
        let inbox = Rc::new(RefCell::new(Vec::new()));
        let mut builder = RingBufferBuilder::new();
        let receiver = Rc::clone(&inbox);
        let served = find_map(&object, "served")?;
        builder
            .add(&served, move |bytes| {
                receiver.borrow_mut().extend(wire::parse_event(bytes));
                0
            })
            .map_err(|error| other(&error))?;
        let ring = builder.build().map_err(|error| other(&error))?;
        let attach = |name: &str| find_program(&object, name)?.attach().map_err(|error| other(&error));
        let (add_threads, list_threads) = (attach("add_threads")?, attach("list_threads")?);
        let mut links = Vec::new();
        for cpu in clock::online_cpus() {
            for kind in FAULTS {
                let event = open_perf_event(PerfEvent::Software(kind), 1, 0, PerfScope::Cpu(cpu));
                links.push(attach_perf(&object, "account_fault_end", event, cpu)?);
            }
        }
        attach_calls(&object, hooks.calls, &mut links)?;
        attach_calls(&object, &CALLS, &mut links)?;
        for program in hooks.attached.iter().chain(&ATTACHED).filter(|program| is_used(program)) {
            links.push(attach(program)?);
        }
        Ok(Self {
            ring,
            inbox,
            links,
            add_threads,
            list_threads,
            uprobes,
            runs: HashMap::new(),
            uses_uprobes,
            hooks,
            sees_sending,
            unseen_fault_ns,
            sees_runs: false,
            memory: MemorySites::of(&object)?,
            object,
        })
    }

    /// Whether it is seen that a thread begins to send on a TCP connection: by tracepoints since Linux 6.16.
    pub fn sees_sending(&self) -> bool {
        self.sees_sending
    }

    /// Keeps the books of process `pid`, as our pid namespace numbers it, from now on.
    ///
    /// # Errors
    ///
    /// [`ProbeError::Other`] if the kernel refuses.
    pub fn watch(&mut self, pid: u32, target: BudgetTarget) -> Result<(), ProbeError> {
        self.note_listening(pid)?;
        if target.is_php && self.uses_uprobes {
            self.uprobes.attach_php(&self.object, pid)?;
        }
        let targets = find_map(&self.object, "budget_targets")?;
        let run = self.runs.get(&pid);
        // What is given a script is an interpreter, also before we know which.
        let is_native = target.runtime.is_none() && !target.is_php;
        let has_sites = is_native && run.is_some_and(|run| !matches!(run, RunStart::Script { .. }));
        let value = wire::target(target.runtime, run, has_sites);
        self.memory.note(pid, has_sites);
        targets.update(&pid.to_le_bytes(), &value, MapFlags::ANY).map_err(|error| other(&error))?;
        let mut none = Vec::new();
        let mut list = Iter::new(&self.add_threads).map_err(|error| other(&error))?;
        list.read_to_end(&mut none).map_err(|error| ProbeError::Other(error.to_string()))?;
        Ok(())
    }

    /// Keeps the books of process `pid`, which serves no requests, from now on: its whole run is one. Says where that begins. A
    /// thread that asks for a connection after all, or reads from one that was accepted, is one that serves requests.
    ///
    /// # Errors
    ///
    /// [`ProbeError::Other`] if the kernel refuses.
    pub fn watch_run(&mut self, pid: u32, start: RunStart) -> Result<RunBegin, ProbeError> {
        if !self.sees_runs {
            attach_calls(&self.object, &RUNS, &mut self.links)?;
            self.sees_runs = true;
        }
        let start = match start {
            RunStart::Program { path }
                if !self.uses_uprobes || !self.uprobes.attach_main(&self.object, pid, &path) =>
            {
                RunStart::Exec
            }
            other => other,
        };
        let begin = start.begin();
        self.runs.insert(pid, start);
        self.watch(pid, BudgetTarget::default())?;
        Ok(begin)
    }

    /// Ends that. What its threads have done so far stays listed until they end.
    pub fn forget(&mut self, pid: u32) {
        self.uprobes.forget(pid);
        if let Ok(targets) = find_map(&self.object, "budget_targets") {
            // It may never have been watched.
            let _ = targets.delete(&pid.to_le_bytes());
        }
    }

    fn note_listening(&self, pid: u32) -> Result<(), ProbeError> {
        let listening = Listening::of(pid);
        let paths = find_map(&self.object, "listening_paths")?;
        for key in listening.paths.iter().filter_map(|path| wire::path_key(path)) {
            paths.update(&key, &[1], MapFlags::ANY).map_err(|error| other(&error))?;
        }
        let ports = find_map(&self.object, "listening_ports")?;
        for port in listening.ports {
            let at = u32::from(port).to_le_bytes();
            ports.update(&at, &[1], MapFlags::ANY).map_err(|error| other(&error))?;
        }
        Ok(())
    }

    /// Takes what has ended, in the order of its end.
    ///
    /// # Errors
    ///
    /// [`ProbeError::Other`] if the ring cannot be read.
    pub fn take(&mut self) -> Result<Vec<BudgetEvent>, ProbeError> {
        self.ring.consume().map_err(|error| other(&error))?;
        Ok(std::mem::take(&mut *self.inbox.borrow_mut()))
    }

    /// All threads of the targets as they are now, but for those that have ended.
    ///
    /// # Errors
    ///
    /// [`ProbeError::Other`] if the kernel does not list them.
    pub fn threads(&self) -> Result<Vec<ThreadTimes>, ProbeError> {
        let mut bytes = Vec::new();
        let mut list = Iter::new(&self.list_threads).map_err(|error| other(&error))?;
        list.read_to_end(&mut bytes).map_err(|error| ProbeError::Other(error.to_string()))?;
        Ok(bytes.chunks_exact(wire::LISTED_BYTES).filter_map(ThreadTimes::parse).collect())
    }

    /// Servers that were called, each with the number that [`ThreadTimes::endpoints`] have it by. The last number is that of
    /// all for which there was none.
    ///
    /// # Errors
    ///
    /// [`ProbeError::Other`] if the kernel refuses.
    pub fn endpoints(&self) -> Result<Vec<Endpoint>, ProbeError> {
        let (endpoints, protocols) =
            (find_map(&self.object, "endpoints")?, find_map(&self.object, "protocols")?);
        let mut found = vec![Endpoint::default(); wire::ENDPOINTS];
        for key in endpoints.keys() {
            let number = endpoints.lookup(&key, MapFlags::ANY).ok().flatten();
            let number = number.and_then(|bytes| Some(u32::from_le_bytes(*bytes.first_chunk()?)));
            let Some(endpoint) = number.and_then(|number| found.get_mut(number as usize)) else { continue };
            endpoint.address = wire::address(&key).unwrap_or_default();
        }
        for (number, endpoint) in (0_u32..).zip(&mut found) {
            let protocol = protocols.lookup(&number.to_le_bytes(), MapFlags::ANY).ok().flatten();
            let protocol = protocol.and_then(|bytes| Some(u32::from_le_bytes(*bytes.first_chunk()?)));
            endpoint.protocol = wire::protocol(protocol.unwrap_or_default()).to_owned();
        }
        if let Some(others) = found.last_mut().filter(|others| !others.address.is_empty()) {
            others.address = "others".to_owned();
        }
        Ok(found)
    }

    /// What the calls to each server were spent on.
    ///
    /// # Errors
    ///
    /// [`ProbeError::Other`] if the kernel refuses.
    pub fn calls(&self) -> Result<Vec<EndpointCalls>, ProbeError> {
        let times = find_map(&self.object, "call_times")?;
        let of_endpoint = |endpoint: u32| {
            let cpus = times.lookup_percpu(&endpoint.to_le_bytes(), MapFlags::ANY).ok().flatten()?;
            let mut calls = EndpointCalls { endpoint, ..EndpointCalls::default() };
            for cpu in &cpus {
                wire::add_calls(&mut calls, cpu)?;
            }
            calls.parts.iter().any(|part| part.ns > 0).then_some(calls)
        };
        Ok((0..wire::ENDPOINTS as u32).filter_map(of_endpoint).collect())
    }

    /// The commands of these calls, those of which there are most first. `endpoints` are as [`BudgetProbe::endpoints`] has them.
    ///
    /// # Errors
    ///
    /// [`ProbeError::Other`] if the kernel refuses.
    pub fn commands(&self, endpoints: &[Endpoint]) -> Result<Vec<CommandTime>, ProbeError> {
        let commands = find_map(&self.object, "commands")?;
        let protocol = |endpoint: u32| endpoints.get(endpoint as usize).map_or("", |found| &*found.protocol);
        // Words that may be no command are one.
        let mut found: BTreeMap<(u32, String), CommandTime> = BTreeMap::new();
        for key in commands.keys() {
            let Some(times) = commands.lookup(&key, MapFlags::ANY).ok().flatten() else { continue };
            let Some(command) = wire::command_time(&key, &times, protocol) else { continue };
            let sum = found.entry((command.endpoint, command.name.clone())).or_default();
            *sum = CommandTime {
                calls: sum.calls.saturating_add(command.calls),
                ns: sum.ns.saturating_add(command.ns),
                longest_ns: sum.longest_ns.max(command.longest_ns),
                ..command
            };
        }
        let mut found: Vec<CommandTime> = found.into_values().collect();
        found.sort_by_key(|command| Reverse(command.calls));
        Ok(found)
    }

    /// Who had a CPU while threads of targets were ready to run there, the longest first.
    ///
    /// # Errors
    ///
    /// [`ProbeError::Other`] if the kernel refuses.
    pub fn takers(&self) -> Result<Vec<CpuTaker>, ProbeError> {
        let takers = find_map(&self.object, "takers")?;
        let with_time = |key: Vec<u8>| {
            let ns = takers.lookup(&key, MapFlags::ANY).ok()??;
            Some((key, ns))
        };
        Ok(wire::takers(takers.keys().filter_map(with_time)))
    }

    /// Takes stacks of native programs that called for memory.
    ///
    /// # Errors
    ///
    /// [`ProbeError::Other`] if the ring cannot be read.
    pub fn take_memory(&mut self) -> Result<Vec<MemoryStack>, ProbeError> {
        self.memory.take()
    }

    /// How often and for how long native programs have called for memory, by place; `None` if none is watched.
    ///
    /// # Errors
    ///
    /// [`ProbeError::Other`] if the kernel refuses.
    pub fn memory_counts(&self) -> Result<Option<MemoryCounts>, ProbeError> {
        self.memory.counts()
    }

    /// Where it is noted, for those that walk its stack, that a slow call has ended.
    pub(crate) fn slow_calls(&self) -> Result<MapHandle, ProbeError> {
        find_map(&self.object, "slow_calls")
    }

    /// Requests, threads and slow calls that could not be told of, or not be remembered.
    pub fn lost(&self) -> u64 {
        let Ok(counters) = find_map(&self.object, "budget_counters") else { return 0 };
        let sum = |at: u32| -> u64 {
            let values =
                counters.lookup_percpu(&at.to_le_bytes(), MapFlags::ANY).ok().flatten().unwrap_or_default();
            values.iter().filter_map(|value| Some(u64::from_le_bytes(*value.first_chunk()?))).sum()
        };
        sum(0) + sum(1)
    }

    /// Keeps no books any more; what is there can still be listed.
    pub fn stop(&mut self) {
        let mut links = std::mem::take(&mut self.links);
        links.extend(self.uprobes.take());
        detach(links);
    }
}

/// Detaches programs, all at once: for each of them the kernel waits until no CPU can be in it any more.
fn detach(links: Vec<Link>) {
    std::thread::scope(|scope| {
        for link in links {
            scope.spawn(move || drop(link));
        }
    });
}

impl Drop for BudgetProbe {
    fn drop(&mut self) {
        self.stop();
    }
}

impl BudgetSource for BudgetProbe {
    fn rung(&self) -> Rung {
        self.hooks.rung
    }

    fn breaks_processes(&self) -> bool {
        self.uprobes.is_by_process()
    }

    fn cannot_see(&self) -> Vec<String> {
        let of_sockets: &[&str] = match self.hooks.rung {
            Rung::Syscalls => &[
                "what is sent and received by other calls than read, write, send and receive, as by io_uring or sendfile, is not seen",
                "data has come on a UNIX socket when the other side begins to send it, and on TCP also if some before it is missing",
                "waiting for several things that a new connection ends counts as sleep",
            ],
            _ if self.sees_sending => &["sending on a UNIX socket counts as code"],
            _ => &["sending to a server counts as code, before Linux 6.16"],
        };
        let mut limits: Vec<String> = of_sockets.iter().map(|limit| (*limit).to_owned()).collect();
        limits.extend([
            "of a time without a CPU, who had it last is named, for all of it".to_owned(),
            "when a response is complete is taken from when the worker goes to wait, or asks for the next request".to_owned(),
            format!(
                "of each page fault {} ns that are not seen count as memory's: its way into the kernel and back, as measured here beforehand",
                self.unseen_fault_ns
            ),
        ]);
        if !self.uses_uprobes {
            limits.push(
                "requests of PHP are told apart by their connections, and its start-up is not".to_owned(),
            );
        }
        limits
    }

    fn watch(&mut self, pid: u32, target: BudgetTarget) -> Result<(), ProbeError> {
        Self::watch(self, pid, target)
    }

    fn watch_run(&mut self, pid: u32, start: RunStart) -> Result<RunBegin, ProbeError> {
        Self::watch_run(self, pid, start)
    }

    fn forget(&mut self, pid: u32) {
        Self::forget(self, pid);
    }

    fn take(&mut self) -> Result<Vec<BudgetEvent>, ProbeError> {
        Self::take(self)
    }

    fn threads(&self) -> Result<Vec<ThreadTimes>, ProbeError> {
        Self::threads(self)
    }

    fn endpoints(&self) -> Result<Vec<Endpoint>, ProbeError> {
        Self::endpoints(self)
    }

    fn calls(&self) -> Result<Vec<EndpointCalls>, ProbeError> {
        Self::calls(self)
    }

    fn commands(&self, endpoints: &[Endpoint]) -> Result<Vec<CommandTime>, ProbeError> {
        Self::commands(self, endpoints)
    }

    fn takers(&self) -> Result<Vec<CpuTaker>, ProbeError> {
        Self::takers(self)
    }

    fn take_memory(&mut self) -> Result<Vec<MemoryStack>, ProbeError> {
        Self::take_memory(self)
    }

    fn memory_counts(&self) -> Result<Option<MemoryCounts>, ProbeError> {
        Self::memory_counts(self)
    }

    fn lost(&self) -> u64 {
        Self::lost(self)
    }

    fn stop(&mut self) {
        Self::stop(self);
    }
}

/// Attaches programs to tracepoints of system calls.
fn attach_calls(object: &Object, calls: &[AtCalls], links: &mut Vec<Link>) -> Result<(), ProbeError> {
    let tracefs =
        Tracefs::open().map_err(|error| ProbeError::Other(format!("tracefs cannot be opened: {error}")))?;
    for (program, names) in calls {
        for name in *names {
            let number = tracefs
                .system_call(name)
                .map_err(|error| ProbeError::Other(format!("no tracepoint {name}: {error}")))?;
            // The kernel calls the program whichever CPU this is.
            let event = open_perf_event(PerfEvent::Tracepoint(number), 0, 0, PerfScope::Cpu(0));
            links.push(attach_perf(object, program, event, 0)?);
        }
    }
    Ok(())
}

fn attach_perf(
    object: &Object,
    program: &str,
    event: std::io::Result<std::os::fd::OwnedFd>,
    cpu: u32,
) -> Result<Link, ProbeError> {
    let event = event.map_err(|error| ProbeError::Event { cpu, error })?;
    let link =
        find_program(object, program)?.attach_perf_event(event.as_raw_fd()).map_err(|error| other(&error))?;
    // The link closes it.
    let _ = event.into_raw_fd();
    Ok(link)
}
