//! Looks at threads in the kernel: at what runs when the clock of a CPU goes off, and at what leaves a CPU to wait.

use std::cell::RefCell;
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::os::fd::{AsFd as _, AsRawFd, FromRawFd, IntoRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::rc::Rc;
use std::sync::Mutex;
use std::time::Duration;

use libbpf_rs::{
    Iter, Link, MapCore, MapFlags, MapHandle, Object, ObjectBuilder, OpenObject, PrintLevel, ProgramMut,
    RingBuffer, RingBufferBuilder,
};
use slip_remote::StackPlan;
use thiserror::Error;

use crate::allocations::{AllocationHooks, Listening};
use crate::budget::BudgetProbe;
use crate::clock;
use crate::symbols::KernelSymbols;
use crate::wait::{Sleeper, WaitKey, Waited};
use crate::wire::{self, Event};

/// The program, compiled by `build.rs`.
static OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/sample.bpf.o"));

/// What libbpf has to say of the program that is being loaded.
static SAID: Mutex<String> = Mutex::new(String::new());

/// Programs that see waits, and maps that only they use: they need Linux 5.15.
const WAIT_PROGRAMS: [&str; 3] = ["on_switch", "on_wakeup", "list_sleepers"];
const WAIT_MAPS: [&str; 4] = ["waits_0", "waits_1", "sleepers", "generation"];

/// The program that looks at slow calls, and the map by which it is told of them: they need Linux 6.3.
const SLOW_PROGRAM: &str = "on_slow_call";
const SLOW_MAP: &str = "slow_calls";

/// The program that looks at threads where they call a function.
const FUNCTION_PROGRAM: &str = "on_function";

/// What stacks of native code are copied into, a buffer for each CPU. Their copy needs Linux 5.15.
const NATIVE_MAP: &str = "natives";

/// Waits that are taken at once.
const BATCH: u32 = 1_024;

/// Longest time that a program in the kernel may still run after it has been detached: they take microseconds.
const LAST_RUN: Duration = Duration::from_millis(1);

/// `PROC_PID_INIT_INO` of `include/linux/proc_ns.h`: the pid namespace in which every process has a number.
pub(crate) const INITIAL_NAMESPACE: u64 = 0xEFFF_FFFC;

/// What is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProbeOptions {
    /// The clocks go off so often; `None` for no clocks.
    pub interval_ns: Option<u64>,
    /// Threads that leave their CPU are looked at as well.
    pub waits: bool,
    /// Where a thread is in the kernel, its stack there is copied too; of waits, that of those of 0.1 ms and more.
    pub kernel_stacks: bool,
    /// Where the clock finds a thread, its registers and the inner end of its stack of native code are copied too.
    pub native_stacks: bool,
    /// Processes can be asked to tell of blocks that they allocate and free, see [`Probe::hear_allocations`].
    pub allocations: bool,
}

/// Why nothing can be sampled in the kernel.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ProbeError {
    /// The kernel does not allow it.
    #[error("the kernel refuses eBPF programs: {0}")]
    Denied(io::Error),
    /// The kernel does not describe its structures.
    #[error("the kernel has no description of its types (/sys/kernel/btf/vmlinux)")]
    NoTypes,
    /// The program was not accepted; what the kernel said.
    #[error("the kernel did not accept the program: {0}")]
    Load(String),
    /// The clock cannot be had.
    #[error("the clock of CPU {cpu} cannot be opened: {error}")]
    Event {
        /// Which.
        cpu: u32,
        /// Why.
        error: io::Error,
    },
    /// The process cannot be walked by the program.
    #[error("this interpreter's structures do not fit the program in the kernel")]
    Plan,
    /// We are in a container ourselves, and the process is in another one.
    #[error("the process is in another pid namespace, and we are not in the initial one")]
    Namespace,
    /// A system call that should not fail.
    #[error("{0}")]
    Other(String),
}

/// What happened on all CPUs since the begin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// The clock went off while a target ran.
    pub events: u64,
    /// Events for which the ring had no room.
    pub lost: u64,
    /// Stacks that could not be remembered, and are told again.
    pub forgotten: u64,
    /// Waits for which there was no room.
    pub waits_lost: u64,
}

/// The programs in the kernel, and the clocks that call them.
///
/// The clocks belong to the CPUs, not to the targets: one that belongs to a task is started and stopped at each of its
/// switches, which slows a target that switches often by 14 %.
pub struct Probe {
    // The ring ends before what it calls, and before its map.
    ring: RingBuffer<'static>,
    inbox: Rc<RefCell<Vec<Event>>>,
    links: Vec<Link>,
    listening: Option<Listening>,
    waits: Option<Waits>,
    targets: MapHandle,
    known: MapHandle,
    counters: MapHandle,
    symbols: Option<KernelSymbols>,
    object: Object,
}

/// What belongs to the programs that see waits.
struct Waits {
    list: Link,
    /// How often waits were taken, which says which of the two maps the programs use.
    turn: MapHandle,
    turns: u32,
    ended: [MapHandle; 2],
    sleepers: MapHandle,
    generation: MapHandle,
}

impl std::fmt::Debug for Probe {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Probe").field("waiting", &self.inbox.borrow().len()).finish_non_exhaustive()
    }
}

impl Probe {
    /// Loads the programs and starts the clocks; nothing is looked at yet.
    ///
    /// # Errors
    ///
    /// [`ProbeError::Denied`] without the capabilities `BPF` and `PERFMON`; [`ProbeError::NoTypes`] on a kernel without BTF;
    /// [`ProbeError::Load`] and [`ProbeError::Event`] where the kernel is too old or too strict.
    pub fn start(options: ProbeOptions) -> Result<Self, ProbeError> {
        Self::start_program("on_clock", options, None)
    }

    /// Looks at threads in the moment in which a slow call to a server ends, and at no other: a [`Look`](crate::Look) has the time of
    /// that end, as [`SlowCall::end_ns`](crate::SlowCall::end_ns). `budget` is what tells slow calls.
    ///
    /// # Errors
    ///
    /// As for [`Probe::start`].
    pub fn start_at_slow_calls(budget: &BudgetProbe) -> Result<Self, ProbeError> {
        let options = ProbeOptions {
            interval_ns: None,
            waits: false,
            kernel_stacks: false,
            native_stacks: false,
            allocations: false,
        };
        Self::start_program("on_clock", options, Some(budget))
    }

    /// Looks at threads where they call the function at `offset` of the file of a program or a library, and at no other time, native stacks
    /// included: for comparisons with what a debugger sees.
    ///
    /// # Errors
    ///
    /// As for [`Probe::start`].
    pub fn start_at_function(file: &Path, offset: usize) -> Result<Self, ProbeError> {
        let options = ProbeOptions {
            interval_ns: None,
            waits: false,
            kernel_stacks: false,
            native_stacks: true,
            allocations: false,
        };
        let mut probe = Self::start_program(FUNCTION_PROGRAM, options, None)?;
        let program = find_program(&probe.object, FUNCTION_PROGRAM)?;
        let link = program.attach_uprobe(false, -1, file, offset).map_err(|error| other(&error))?;
        probe.links.push(link);
        Ok(probe)
    }

    /// The same with a program that does nothing: what the clocks alone cost.
    ///
    /// # Errors
    ///
    /// As for [`Probe::start`].
    pub fn start_empty(interval_ns: u64) -> Result<Self, ProbeError> {
        Self::start_program(
            "on_clock_empty",
            ProbeOptions {
                interval_ns: Some(interval_ns),
                waits: false,
                kernel_stacks: false,
                native_stacks: false,
                allocations: false,
            },
            None,
        )
    }

    fn start_program(
        program: &str,
        options: ProbeOptions,
        budget: Option<&BudgetProbe>,
    ) -> Result<Self, ProbeError> {
        listen_to_libbpf();
        if !fs::exists("/sys/kernel/btf/vmlinux").unwrap_or(false) {
            return Err(ProbeError::NoTypes);
        }
        let mut open = ObjectBuilder::default().open_memory(OBJECT).map_err(|error| loading(&error))?;
        configure(&mut open, options, budget.is_some(), program == FUNCTION_PROGRAM)?;
        if let Some(budget) = budget {
            let known = budget.slow_calls()?;
            for mut map in open.maps_mut().filter(|map| map.name() == SLOW_MAP) {
                map.reuse_fd(known.as_fd()).map_err(|error| other(&error))?;
            }
        }
        let listening = if options.allocations { Some(Listening::prepare(&mut open)?) } else { None };
        let object = open.load().map_err(|error| loading(&error))?;
        let map = |name: &str| find_map(&object, name);
        let (targets, known, counters, events) =
            (map("targets")?, map("known")?, map("counters")?, map("events")?);
        let inbox = Rc::new(RefCell::new(Vec::new()));
        let mut builder = RingBufferBuilder::new();
        let receiver = Rc::clone(&inbox);
        builder
            .add(&events, move |bytes| {
                receiver.borrow_mut().extend(wire::parse(bytes));
                0
            })
            .map_err(|error| other(&error))?;
        let ring = builder.build().map_err(|error| other(&error))?;
        let mut links = Vec::new();
        if let Some(interval_ns) = options.interval_ns {
            let program = find_program(&object, program)?;
            let periods_ns = clock::periods_ns(interval_ns);
            let each = |cpu| periods_ns.iter().map(move |period_ns| (cpu, *period_ns));
            for (cpu, period_ns) in clock::online_cpus().into_iter().flat_map(each) {
                let clock = clock::open(cpu, period_ns).map_err(|error| ProbeError::Event { cpu, error })?;
                links.push(program.attach_perf_event(clock.as_raw_fd()).map_err(|error| other(&error))?);
                // The link closes it.
                let _ = clock.into_raw_fd();
            }
        }
        let attach = |name| find_program(&object, name)?.attach().map_err(|error| other(&error));
        if budget.is_some() {
            // Behind the program that tells it of slow calls: they run in the order in which they came.
            links.push(attach(SLOW_PROGRAM)?);
        }
        let waits = if options.waits {
            // Wake-ups first, so that no wait is seen to begin whose end is not.
            links.push(attach("on_wakeup")?);
            links.push(attach("on_switch")?);
            Some(Waits {
                list: attach("list_sleepers")?,
                turn: map("turn")?,
                turns: 0,
                ended: [map("waits_0")?, map("waits_1")?],
                sleepers: map("sleepers")?,
                generation: map("generation")?,
            })
        } else {
            None
        };
        let symbols = if options.kernel_stacks {
            let program = find_program(&object, "name_addresses")?;
            Some(KernelSymbols::new(&program, map("addresses")?).map_err(|error| other(&error))?)
        } else {
            None
        };
        Ok(Self { ring, inbox, links, listening, waits, targets, known, counters, symbols, object })
    }

    /// Has process `pid`, as our pid namespace numbers it, looked at from now on. Events name it `id`.
    ///
    /// # Errors
    ///
    /// [`ProbeError::Plan`] if the plan asks for more than the program can do; [`ProbeError::Namespace`] if the program
    /// cannot tell which process it is; [`ProbeError::Other`] for too many processes.
    pub fn watch(&self, pid: u32, id: u32, plan: &StackPlan) -> Result<(), ProbeError> {
        self.watch_target(pid, &wire::target(plan, id).ok_or(ProbeError::Plan)?)
    }

    /// The same of a process without an interpreter: there is no stack but that of its native code.
    ///
    /// # Errors
    ///
    /// As for [`Probe::watch`].
    pub fn watch_bare(&self, pid: u32, id: u32) -> Result<(), ProbeError> {
        self.watch_target(pid, &wire::bare_target(id))
    }

    fn watch_target(&self, pid: u32, target: &[u8]) -> Result<(), ProbeError> {
        let own = pid_namespace("self");
        if own.1 != INITIAL_NAMESPACE && pid_namespace(&pid.to_string()) != own {
            return Err(ProbeError::Namespace);
        }
        self.targets.update(&pid.to_le_bytes(), target, MapFlags::ANY).map_err(|error| other(&error))?;
        self.note_change().map_err(|error| other(&error))
    }

    /// Has process `pid`, which is watched, tell of blocks that it allocates and frees. Its library is `file`.
    ///
    /// # Errors
    ///
    /// [`ProbeError::Other`] if the kernel sets no breakpoints there, or if that was not asked for at the start.
    pub fn hear_allocations(
        &mut self,
        pid: u32,
        file: &File,
        hooks: AllocationHooks,
    ) -> Result<(), ProbeError> {
        let Self { listening: Some(listening), object, .. } = self else {
            return Err(ProbeError::Other("allocations were not asked for".to_owned()));
        };
        listening.attach(object, pid, file, hooks)
    }

    /// Whether other processes with the same library are interrupted, too, when they allocate.
    pub fn disturbs_others(&self) -> bool {
        self.listening.as_ref().is_some_and(|listening| !listening.is_by_process())
    }

    /// Ends that.
    pub fn forget(&mut self, pid: u32) {
        if let Some(listening) = &mut self.listening {
            listening.forget(pid);
        }
        // It may never have been watched.
        let _ = self.targets.delete(&pid.to_le_bytes());
        let _ = self.note_change();
    }

    /// Has the programs that see waits look at the targets again, of which they keep copies.
    fn note_change(&self) -> libbpf_rs::Result<()> {
        let Some(waits) = &self.waits else { return Ok(()) };
        let at = 0_u32.to_le_bytes();
        let known = waits.generation.lookup(&at, MapFlags::ANY)?.unwrap_or_default();
        let generation = u32::from_le_bytes(known.first_chunk().copied().unwrap_or_default());
        waits.generation.update(&at, &generation.wrapping_add(1).to_le_bytes(), MapFlags::ANY)
    }

    /// Has these stacks told again when they are seen again; those of which the kernel refuses that are left.
    pub fn forget_stacks(&self, keys: impl Iterator<Item = u64>) -> Vec<u64> {
        let is_refused = |key: &u64| match self.known.delete(&key.to_le_bytes()) {
            // The kernel may have forgotten it by itself.
            Err(error) => error.kind() != libbpf_rs::ErrorKind::NotFound,
            Ok(()) => false,
        };
        keys.filter(is_refused).collect()
    }

    /// Waits for what is to be named at once, at most for so long: whether it has come.
    ///
    /// # Errors
    ///
    /// That a signal came first, above all.
    pub fn wait(&self, timeout: Duration) -> io::Result<bool> {
        let mut ring = libc::pollfd { fd: self.ring.epoll_fd(), events: libc::POLLIN, revents: 0 };
        let limit = libc::timespec {
            tv_sec: libc::time_t::try_from(timeout.as_secs()).unwrap_or(libc::time_t::MAX),
            tv_nsec: timeout.subsec_nanos().into(),
        };
        // SAFETY: both structures outlive the call; without a mask none is changed.
        let ready = unsafe { libc::ppoll(&raw mut ring, 1, &raw const limit, std::ptr::null()) };
        if ready < 0 { Err(io::Error::last_os_error()) } else { Ok(ready > 0) }
    }

    /// Takes what has come, in the order of each CPU.
    ///
    /// # Errors
    ///
    /// [`ProbeError::Other`] if the ring cannot be read.
    pub fn take(&mut self) -> Result<Vec<Event>, ProbeError> {
        // Samples wake nobody.
        self.ring.consume().map_err(|error| other(&error))?;
        Ok(std::mem::take(&mut *self.inbox.borrow_mut()))
    }

    /// Names addresses of the kernel; `None` if its stacks are not wanted.
    pub fn symbols(&self) -> Option<&KernelSymbols> {
        self.symbols.as_ref()
    }

    /// What happened so far.
    pub fn counters(&self) -> Counters {
        let sum = |at: u32| -> u64 {
            let values = self.counters.lookup_percpu(&at.to_le_bytes(), MapFlags::ANY);
            let values = values.ok().flatten().unwrap_or_default();
            values.iter().filter_map(|value| Some(u64::from_le_bytes(*value.first_chunk()?))).sum()
        };
        Counters { events: sum(0), lost: sum(1), forgotten: sum(2), waits_lost: sum(3) }
    }

    /// Says that the thread of this key, of process `pid`, has waited since `since_ns` (`CLOCK_MONOTONIC`), unless the kernel
    /// has seen it leave a CPU itself, as a thread of this target. False if that cannot be said: before Linux 6.9 it can of the
    /// first thread of a process alone.
    pub fn note_sleeper(&self, key: WaitKey, pid: u32, since_ns: u64) -> bool {
        let Some(waits) = &self.waits else { return false };
        let Some(thread) = pidfd(key.tid) else { return false };
        let number = thread.as_raw_fd().to_le_bytes();
        let known = waits.sleepers.lookup(&number, MapFlags::ANY).ok().flatten();
        if known.and_then(|bytes| Sleeper::parse(&bytes)).is_some_and(|known| known.key.id == key.id) {
            return false;
        }
        // Another target's: the process has become another program since, by `exec`.
        let sleeper = Sleeper { key, pid, begin_ns: since_ns, ready_ns: 0 };
        waits.sleepers.update(&number, &sleeper.thread_bytes(), MapFlags::ANY).is_ok()
    }

    /// Threads of targets that have no CPU now.
    ///
    /// # Errors
    ///
    /// [`ProbeError::Other`] if the kernel does not list them.
    pub fn sleepers(&self) -> Result<Vec<Sleeper>, ProbeError> {
        let Some(waits) = &self.waits else { return Ok(Vec::new()) };
        let mut bytes = Vec::new();
        let mut list = Iter::new(&waits.list).map_err(|error| other(&error))?;
        list.read_to_end(&mut bytes).map_err(|error| ProbeError::Other(error.to_string()))?;
        Ok(bytes.chunks_exact(Sleeper::BYTES).filter_map(Sleeper::parse).collect())
    }

    /// Takes the waits that had ended when this was called last. A key whose waits are all under way has none that ended.
    ///
    /// # Errors
    ///
    /// [`ProbeError::Other`] if the kernel refuses.
    pub fn take_waits(&mut self) -> Result<Vec<(WaitKey, Waited)>, ProbeError> {
        let Some(waits) = &mut self.waits else { return Ok(Vec::new()) };
        let taken = take_all(&waits.ended[usize::from(waits.turns.is_multiple_of(2))])?;
        waits.turns = waits.turns.wrapping_add(1);
        let turn = waits.turns.to_le_bytes();
        waits.turn.update(&0_u32.to_le_bytes(), &turn, MapFlags::ANY).map_err(|error| other(&error))?;
        Ok(taken)
    }

    /// Looks at nothing any more, and takes all waits that have ended.
    ///
    /// # Errors
    ///
    /// [`ProbeError::Other`] if the kernel refuses.
    pub fn stop(&mut self) -> Result<Vec<(WaitKey, Waited)>, ProbeError> {
        self.links.clear();
        if let Some(listening) = &mut self.listening {
            listening.clear();
        }
        if self.waits.is_none() {
            return Ok(Vec::new());
        }
        std::thread::sleep(LAST_RUN);
        let mut taken = self.take_waits()?;
        taken.extend(self.take_waits()?);
        Ok(taken)
    }
}

/// Keeps what libbpf says of the object that is loaded next.
pub(crate) fn listen_to_libbpf() {
    libbpf_rs::set_print(Some((PrintLevel::Warn, |_, text| {
        if let Ok(mut said) = SAID.lock() {
            said.push_str(&text);
        }
    })));
    SAID.lock().map(|mut said| said.clear()).unwrap_or_default();
}

/// Fills in what the programs are told, and leaves out those that are not wanted.
fn configure(
    open: &mut OpenObject,
    options: ProbeOptions,
    slow_calls: bool,
    at_function: bool,
) -> Result<(), ProbeError> {
    let (device, inode) = match pid_namespace("self") {
        (_, INITIAL_NAMESPACE) => (0, 0),
        other => other,
    };
    for mut map in open.maps_mut() {
        let name = map.name().to_string_lossy().into_owned();
        if name.ends_with(".rodata")
            && let Some(values) = map.initial_value_mut()
            && let Some(places) = values.get_mut(..32)
        {
            places[..8].copy_from_slice(&device.to_le_bytes());
            places[8..16].copy_from_slice(&inode.to_le_bytes());
            places[16..24].copy_from_slice(&u64::from(options.kernel_stacks).to_le_bytes());
            places[24..].copy_from_slice(&u64::from(options.native_stacks).to_le_bytes());
        }
        let is_unwanted = !options.waits && WAIT_MAPS.contains(&&*name)
            || !slow_calls && name == SLOW_MAP
            || !options.native_stacks && name == NATIVE_MAP;
        if is_unwanted {
            map.set_autocreate(false).map_err(|error| other(&error))?;
        }
    }
    for mut program in open.progs_mut() {
        let name = program.name().to_string_lossy().into_owned();
        let is_wanted = if name == "name_addresses" {
            options.kernel_stacks
        } else if name == SLOW_PROGRAM {
            slow_calls
        } else if name == FUNCTION_PROGRAM {
            at_function
        } else if Listening::has(&name) {
            options.allocations
        } else {
            options.waits || !WAIT_PROGRAMS.contains(&&*name)
        };
        if !is_wanted {
            program.set_autoload(false);
        }
    }
    Ok(())
}

/// Device and inode of the pid namespace of a process; (0, 0) if it has ended.
pub(crate) fn pid_namespace(pid: &str) -> (u64, u64) {
    fs::metadata(format!("/proc/{pid}/ns/pid")).map_or((0, 0), |found| (found.dev(), found.ino()))
}

pub(crate) fn find_map(object: &Object, name: &str) -> Result<MapHandle, ProbeError> {
    let found = object.maps().find(|map| map.name() == name);
    let found = found.ok_or_else(|| ProbeError::Load(format!("it has no map {name}")))?;
    MapHandle::try_from(&found).map_err(|error| other(&error))
}

pub(crate) fn find_program<'a>(object: &'a Object, name: &str) -> Result<ProgramMut<'a>, ProbeError> {
    let found = object.progs_mut().find(|program| program.name() == name);
    found.ok_or_else(|| ProbeError::Load(format!("it lacks the program {name}")))
}

fn take_all(map: &MapHandle) -> Result<Vec<(WaitKey, Waited)>, ProbeError> {
    let taken =
        map.lookup_and_delete_batch(BATCH, MapFlags::ANY, MapFlags::ANY).map_err(|error| other(&error))?;
    Ok(taken.filter_map(|(key, value)| Some((WaitKey::parse(&key)?, Waited::parse(&value)?))).collect())
}

/// Of `include/uapi/linux/pidfd.h`; kernels before 6.9 do not have it.
const PIDFD_THREAD: libc::c_uint = libc::O_EXCL as libc::c_uint;

/// Whether the kernel has a name for each thread, not just for the first of a process: [`Probe::note_sleeper`] needs it.
pub fn names_threads() -> bool {
    open_pidfd(std::process::id(), PIDFD_THREAD).is_some()
}

/// A descriptor of a thread.
fn pidfd(tid: u32) -> Option<OwnedFd> {
    open_pidfd(tid, PIDFD_THREAD).or_else(|| open_pidfd(tid, 0))
}

fn open_pidfd(tid: u32, flags: libc::c_uint) -> Option<OwnedFd> {
    // SAFETY: the call takes numbers and returns a descriptor or -1.
    let number = unsafe { libc::syscall(libc::SYS_pidfd_open, tid as libc::pid_t, flags) };
    // SAFETY: a descriptor that was just opened, and that nobody else knows.
    (number >= 0).then(|| unsafe { OwnedFd::from_raw_fd(number as i32) })
}

pub(crate) fn other(error: &libbpf_rs::Error) -> ProbeError {
    ProbeError::Other(error.to_string())
}

pub(crate) fn loading(error: &libbpf_rs::Error) -> ProbeError {
    // EACCES is the verifier's word for a program that it does not accept.
    match io::Error::last_os_error() {
        denied if denied.raw_os_error() == Some(libc::EPERM) => ProbeError::Denied(denied),
        _ => {
            ProbeError::Load(format!("{error}\n{}", SAID.lock().map(|said| said.clone()).unwrap_or_default()))
        }
    }
}
