//! Whether this kernel takes the programs, and whether they see in it what is there: `probe_load`
//!
//! A thread of ours keeps a chain of frames, a state that leads to it and nothing else to do, and the clock must find exactly
//! these frames each time that it looks. That it finds the thread's state shows that a field of the kernel's own structures was
//! looked for in the right place. It asks for random numbers all the time, and the kernel's own stacks must name that call.
//! From Linux 5.15 on the thread also waits: for data of a pipe, whose type is in other structures.
//! And a worker of ours answers requests, whose budget each rung that the kernel has must tell (`budget.rs`).
//! Needs no file but its libraries, so that it can be all that a small virtual machine runs.

#![allow(clippy::print_stdout, reason = "this is the output of the command")]

mod budget;

use std::cell::Cell;
use std::collections::HashMap;
use std::env;
use std::fs;
use std::hint;
use std::io::{self, PipeReader, Read as _, Write as _};
use std::iter;
use std::process::{self, ExitCode};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use slip_model::WaitReason;
use slip_probe::{CopiedStack, Event, KernelAddr, Probe, ProbeOptions};
use slip_remote::{FrameLayout, RemoteAddr, StackPlan, ThreadPlan};

const INTERVAL_NS: u64 = 1_000_000;
const LOOKS: usize = 200;
/// A machine that is emulated may be slow.
const PATIENCE: Duration = Duration::from_secs(30);
const PERIOD: Duration = Duration::from_millis(10);
/// Longest wait that counts as one of ours, which takes at least half of it; and how many there are.
const WAIT: Duration = Duration::from_millis(4);
const WAITS: usize = 5;
/// Random numbers of one call, and `GRND_INSECURE` of `include/uapi/linux/random.h`: not to wait for good ones.
const RANDOM_BYTES: usize = 65_536;
const GRND_INSECURE: libc::c_uint = 4;
/// What the name of the call has in it.
const CALL: &str = "getrandom";
/// A number that nothing else here has.
const FRAMES: usize = 23;
/// What the instructions of the frames count from.
const FIRST_INSTRUCTION: u64 = 0x1000;

/// The caller's frame, the function, the instruction.
type Frame = [u64; 3];
/// `pthread_self()`, the innermost frame.
type State = [u64; 2];

thread_local! {
    /// The address of the thread's state, as an interpreter keeps it.
    static STATE: Cell<u64> = const { Cell::new(0) };
}

/// What the thread tells of itself.
struct Told {
    tid: u32,
    /// From the base of thread-local storage to `STATE`.
    slot: i64,
}

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    if let [what, server] = &arguments[..]
        && what == budget::WORKER
    {
        return budget::work(server).map_or(ExitCode::FAILURE, |()| ExitCode::SUCCESS);
    }
    match run().and_then(with_budgets) {
        Ok(text) => {
            println!("ok: {text}");
            ExitCode::SUCCESS
        }
        Err(text) => {
            println!("failed: {text}");
            ExitCode::FAILURE
        }
    }
}

/// Where there is what they need, budgets are kept too.
fn with_budgets(text: String) -> Result<String, String> {
    if !has_task_storage() {
        return Ok(text);
    }
    let budgets = budget::rungs(version()).iter().map(|rung| budget::check(*rung));
    Ok([Ok(text)].into_iter().chain(budgets).collect::<Result<Vec<_>, _>>()?.join("; "))
}

fn run() -> Result<String, String> {
    let waits = has_task_storage();
    let options = ProbeOptions {
        interval_ns: Some(INTERVAL_NS),
        waits,
        kernel_stacks: true,
        native_stacks: false,
        allocations: true,
    };
    let mut probe = Probe::start(options).map_err(|error| error.to_string())?;
    let frames = frames();
    let innermost = frames.as_ptr() as u64;
    let (sender, receiver) = mpsc::channel();
    let done = AtomicBool::new(false);
    let (reader, mut writer) = io::pipe().map_err(|error| error.to_string())?;
    let seen = thread::scope(|scope| {
        scope.spawn(|| run_and_wait(innermost, sender, &done, reader));
        let told = receiver.recv().map_err(|error| error.to_string());
        let result = told.and_then(|told| Ok((watch(&mut probe, &told, &frames)?, told.tid)));
        done.store(true, Ordering::Relaxed);
        for _ in 0..WAITS {
            thread::sleep(WAIT);
            let _ = writer.write(&[0]);
        }
        drop(writer);
        result
    });
    let (text, tid) = seen?;
    if !waits {
        return Ok(text);
    }
    // The thread has ended, and so have its waits.
    let taken = probe.stop().map_err(|error| error.to_string())?;
    let ours = taken.iter().filter(|(key, _)| key.tid == tid && key.reason() == WaitReason::Pipe);
    let (count, blocked_ns) =
        ours.fold((0, 0), |(count, ns), (_, waited)| (count + waited.count, ns + waited.blocked_ns));
    let least_ns = WAIT.as_nanos() as u64 / 2 * WAITS as u64;
    if count == 0 || blocked_ns < least_ns {
        return Err(format!("{count} waits for a pipe of {blocked_ns} ns, expected {WAITS}: {taken:?}"));
    }
    Ok(format!("{text}, {count} waits for a pipe"))
}

/// Programs that see waits, or keep budgets, need Linux 5.15.
fn has_task_storage() -> bool {
    version() >= (5, 15)
}

fn version() -> (u32, u32) {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let mut numbers = release.split('.').map_while(|number| number.trim().parse::<u32>().ok());
    (numbers.next().unwrap_or_default(), numbers.next().unwrap_or_default())
}

/// The innermost first.
fn frames() -> Vec<Frame> {
    let mut frames: Vec<Frame> =
        (0..FRAMES as u64).map(|at| [0, 2 * at + 1, FIRST_INSTRUCTION + at]).collect();
    let start = frames.as_ptr() as u64;
    for (at, frame) in frames.iter_mut().take(FRAMES - 1).enumerate() {
        frame[0] = start + (size_of::<Frame>() * (at + 1)) as u64;
    }
    frames
}

fn run_and_wait(innermost: u64, sender: mpsc::Sender<Told>, done: &AtomicBool, mut reader: PipeReader) {
    // SAFETY: asks for the thread that runs.
    let base = unsafe { libc::pthread_self() };
    let state: State = [base, innermost];
    let slot = STATE.with(|slot| {
        slot.set((&raw const state) as u64);
        (&raw const *slot) as i64 - base.cast_signed()
    });
    // SAFETY: asks for the thread that runs.
    let tid = unsafe { libc::gettid() }.cast_unsigned();
    // If nobody receives, `done` is set.
    let _ = sender.send(Told { tid, slot });
    let mut random = vec![0_u8; RANDOM_BYTES];
    while !done.load(Ordering::Relaxed) {
        hint::black_box(&state);
        // SAFETY: the buffer has so many bytes.
        unsafe { libc::getrandom(random.as_mut_ptr().cast(), random.len(), GRND_INSECURE) };
    }
    for _ in 0..WAITS {
        // The end of the pipe ends the waits too.
        let _ = reader.read(&mut [0]);
    }
    STATE.set(0);
}

fn watch(clock: &mut Probe, told: &Told, frames: &[Frame]) -> Result<String, String> {
    let word = size_of::<u64>();
    let plan = StackPlan {
        ranges: Vec::new(),
        threads: Some(ThreadPlan { slots: vec![told.slot], thread_id: 0, len: 2 * word }),
        current: RemoteAddr(word as u64),
        indirect: None,
        request: None,
        frame: FrameLayout {
            len: size_of::<Frame>(),
            previous: 0,
            identity: iter::once(word..2 * word).collect(),
            instruction: 2 * word..3 * word,
        },
        compiled: None,
        in_registers: false,
    };
    let id = process::id();
    clock.watch(id, id, &plan).map_err(|error| error.to_string())?;
    let mut stacks: HashMap<u64, CopiedStack> = HashMap::new();
    let mut kernel: Vec<KernelAddr> = Vec::new();
    let (mut looks, mut others) = (0, 0);
    let begin = Instant::now();
    while looks < LOOKS {
        if begin.elapsed() > PATIENCE {
            return Err(format!("{looks} looks in {PATIENCE:?}, {:?}", clock.counters()));
        }
        let _ = clock.wait(PERIOD);
        for event in clock.take().map_err(|error| error.to_string())? {
            match event {
                Event::Stack(stack) => {
                    stacks.insert(stack.key, stack);
                }
                Event::Look(look) if look.tid == told.tid => {
                    let seen = stacks.get(&look.key).map(|stack| stack.frames.as_slice());
                    let expected: Vec<u8> =
                        frames.iter().flatten().flat_map(|word| word.to_le_bytes()).collect();
                    if seen != Some(&expected) {
                        return Err(format!("another stack than the thread's: {look:?}"));
                    }
                    if look.in_kernel == look.kernel.is_empty() {
                        return Err(format!("in the kernel without a stack there, or the reverse: {look:?}"));
                    }
                    kernel.extend(look.kernel);
                    looks += 1;
                }
                Event::Look(_) => others += 1,
                Event::KernelStack(_) | Event::Native(_) | Event::Allocated(_) | Event::Freed(_) => {}
            }
        }
    }
    let lost = clock.counters().lost;
    kernel.sort_unstable();
    kernel.dedup();
    let symbols = clock.symbols().ok_or("nobody names the kernel's functions")?;
    let named = symbols.name(&kernel).map_err(|error| error.to_string())?;
    if !named.values().any(|symbol| symbol.name.contains(CALL)) {
        return Err(format!("no {CALL} among what {} addresses in the kernel are: {named:?}", kernel.len()));
    }
    let text =
        format!("{looks} looks at {FRAMES} frames as they are, {others} at other threads, {lost} lost");
    Ok(format!("{text}, {} of {} addresses in the kernel named", named.len(), kernel.len()))
}
