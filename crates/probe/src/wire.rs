//! What the programs in the kernel and we tell each other: `bpf/sample.h`.

use slip_remote::{RemoteAddr, StackPlan, ThreadPlan};

use crate::peers::Peer;
use crate::wait::WaitKey;

pub(crate) const MAX_FRAMES: usize = 128;
pub(crate) const FRAME_STRIDE: usize = 120;
const MAX_RANGES: usize = 6;
const RANGE_BYTES: usize = 1_024;
const ANCHOR_BYTES: usize = 3_072;
const MAX_SLOTS: usize = 2;
const STATE_BYTES: usize = 1_024;
const MAX_KEYS: usize = 2;

/// `struct slip_target`
pub(crate) const TARGET_BYTES: usize = MAX_RANGES * 16 + MAX_SLOTS * 8 + 32 + 4 * 12;

const EVENT_STACK: u32 = 1;
const EVENT_SAMPLE: u32 = 2;
const EVENT_WAIT: u32 = 3;
const EVENT_KERNEL_STACK: u32 = 4;
const EVENT_NATIVE: u32 = 5;
const EVENT_ALLOCATED: u32 = 6;
const EVENT_FREED: u32 = 7;
const STACK_HEADER: usize = 24;
const SAMPLE_HEADER: usize = 88;
const KERNEL_STACK_HEADER: usize = 16;
const MAX_KERNEL_FRAMES: usize = 127;
const NATIVE_HEADER: usize = 88;
const NATIVE_BYTES: usize = 16_384;

const TRUNCATED: u32 = 1;
const FAILED: u32 = 2;
const IN_KERNEL: u32 = 4;
const NO_STATE: u32 = 8;
const HAS_INSTRUCTION: u32 = 16;

/// The frame records of one stack, the innermost first, as they lay in memory at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CopiedStack {
    /// Of the target.
    pub id: u32,
    /// What looks at such a stack name it by.
    pub key: u64,
    /// Where the records lay.
    pub addrs: Vec<RemoteAddr>,
    /// The records, one after the other.
    pub frames: Vec<u8>,
}

/// An address of the kernel's own code.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct KernelAddr(pub u64);

impl KernelAddr {
    /// As if it were the address behind a call, as all but the innermost of a stack that was interrupted are.
    #[must_use]
    pub(crate) fn as_return_address(self) -> Self {
        Self(self.0.wrapping_add(1))
    }
}

/// A stack of the kernel's own, in which a thread was blocked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KernelStack {
    /// What [`WaitKey::kernel`] names it by.
    pub key: u64,
    /// Addresses behind calls, the innermost first. The kernel leaves out its scheduler's.
    pub addrs: Vec<KernelAddr>,
}

/// One look at one thread.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Look {
    /// Of the target.
    pub id: u32,
    /// `CLOCK_MONOTONIC`
    pub time_ns: u64,
    /// As our pid namespace numbers it.
    pub tid: u32,
    /// The stack, which was told before; 0 if no frame runs.
    pub key: u64,
    /// Frames that were copied.
    pub depth: u32,
    /// There were more.
    pub truncated: bool,
    /// Some of the target's memory could not be read. There is no stack.
    pub failed: bool,
    /// The thread was in the kernel.
    pub in_kernel: bool,
    /// The thread has no thread state: it does not run code of the interpreter's.
    pub is_foreign: bool,
    /// The innermost frame's instruction, if the engine had it in a register; null if compiled code ran, which keeps none.
    pub instruction: Option<RemoteAddr>,
    /// The thread state.
    pub thread_state: RemoteAddr,
    /// The thread is about to wait, for the first time since waits were taken last that it waits so; it does not run.
    pub wait: Option<WaitKey>,
    /// What the plan's ranges held.
    pub anchor: Vec<u8>,
    /// The kernel's own stack if the thread was in it and that is wanted: addresses behind calls, the innermost first. (That one
    /// is made to look like the others.)
    pub kernel: Vec<KernelAddr>,
}

/// What a thread does outside of the kernel: its registers, and the inner end of its stack of native code.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NativeCopy {
    /// Of the target.
    pub id: u32,
    /// That of the look which it belongs to, and which comes next of that thread.
    pub time_ns: u64,
    /// As our pid namespace numbers it.
    pub tid: u32,
    /// `rip`
    pub ip: u64,
    /// `rsp`
    pub sp: u64,
    /// `rbx`, `rbp`, `r12` to `r15`
    pub registers: [u64; 6],
    /// What is on the stack from `sp` on.
    pub stack: Vec<u8>,
}

/// A block that a process has taken, or is about to give back: one of those that `libslipmalloc.so` tells of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Allocation {
    /// Of the target.
    pub id: u32,
    /// `CLOCK_MONOTONIC`
    pub time_ns: u64,
    /// As our pid namespace numbers it.
    pub tid: u32,
    /// A look with the same thread and time comes next of that thread, and has the stack.
    pub has_look: bool,
    /// Where it is. A number of the target's.
    pub block: u64,
    /// So many were asked for. As the target says.
    pub bytes: u64,
    /// How many bytes of blocks it stands for. As the target says.
    pub stands_for: u64,
}

/// What the kernel tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A stack that was not known.
    Stack(CopiedStack),
    /// A look.
    Look(Look),
    /// A stack of the kernel's own that was not known.
    KernelStack(KernelStack),
    /// A stack of native code, before its look.
    Native(NativeCopy),
    /// A block that was taken, before its look.
    Allocated(Allocation),
    /// One that is about to be given back.
    Freed(Allocation),
}

/// What the kernel has to know of a target; `None` if it does not fit what it has room for.
pub(crate) fn target(plan: &StackPlan, id: u32) -> Option<[u8; TARGET_BYTES]> {
    let layout = &plan.frame;
    let mut keys: Vec<usize> = layout.identity.iter().map(|range| range.start).collect();
    keys.push(layout.instruction.start);
    let threads = plan.threads.as_ref();
    let slots = threads.map_or(&[][..], |threads| &threads.slots);
    let word_in_frame = |at: usize| at.is_multiple_of(8) && at + 8 <= layout.len;
    let word_in_state = |threads: &ThreadPlan, at: usize| at.is_multiple_of(8) && at + 8 <= threads.len;
    let fits_state = |threads: &ThreadPlan| {
        let current = usize::try_from(plan.current.0).is_ok_and(|at| word_in_state(threads, at));
        current && word_in_state(threads, threads.thread_id) && threads.len <= STATE_BYTES
    };
    let fits = plan.ranges.len() <= MAX_RANGES
        && plan.ranges.iter().all(|range| range.len <= RANGE_BYTES)
        && plan.ranges.iter().map(|range| range.len).sum::<usize>() <= ANCHOR_BYTES - RANGE_BYTES
        && slots.len() <= MAX_SLOTS
        && keys.len() <= MAX_KEYS
        && (16..=FRAME_STRIDE).contains(&layout.len)
        && keys.iter().all(|at| word_in_frame(*at))
        && word_in_frame(layout.previous)
        && threads.is_none_or(fits_state);
    if !fits {
        return None;
    }
    keys.resize(MAX_KEYS, keys[0]);
    let mut bytes = Vec::with_capacity(TARGET_BYTES);
    let mut u64s = |words: &[u64]| words.iter().for_each(|word| bytes.extend_from_slice(&word.to_le_bytes()));
    for at in 0..MAX_RANGES {
        let range = plan.ranges.get(at);
        let len = range.map_or(0, |range| range.len as u64 | u64::from(range.of_thread) << 32);
        u64s(&[range.map_or(0, |range| range.addr.0), len]);
    }
    for at in 0..MAX_SLOTS {
        u64s(&[slots.get(at).map_or(0, |slot| slot.cast_unsigned())]);
    }
    u64s(&[plan.current.0, plan.request.map_or(0, |at| at.0)]);
    u64s(&plan.compiled.map_or([0, 0], |code| [code.addr.0, code.end()]));
    let u32s = [
        plan.indirect.unwrap_or(0),
        usize::from(plan.indirect.is_some()),
        usize::from(threads.is_some()),
        threads.map_or(0, |threads| threads.thread_id),
        plan.ranges.len(),
        layout.len,
        layout.previous,
        keys[0],
        keys[1],
        usize::from(plan.in_registers),
        id as usize,
        threads.map_or(0, |threads| threads.len),
    ];
    for word in u32s {
        bytes.extend_from_slice(&u32::try_from(word).ok()?.to_le_bytes());
    }
    bytes.try_into().ok()
}

/// The same of a program without an interpreter.
pub(crate) fn bare_target(id: u32) -> [u8; TARGET_BYTES] {
    let mut bytes = [0; TARGET_BYTES];
    bytes[TARGET_BYTES - 8..TARGET_BYTES - 4].copy_from_slice(&id.to_le_bytes());
    bytes
}

/// Takes an event apart; `None` if it is none of ours.
pub(crate) fn parse(bytes: &[u8]) -> Option<Event> {
    let u32_at = |at: usize| Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?));
    let u64_at = |at: usize| Some(u64::from_le_bytes(*bytes.get(at..)?.first_chunk()?));
    let kernel_addrs = |at: usize, len: u32| {
        let len = usize::try_from(len).ok().filter(|len| *len <= 8 * MAX_KERNEL_FRAMES)?;
        let words = bytes.get(at..)?.get(..len)?.chunks_exact(8);
        let addr = |word: &[u8]| Some(KernelAddr(u64::from_le_bytes(*word.first_chunk()?)));
        words.map(addr).collect::<Option<Vec<_>>>()
    };
    match u32_at(0)? {
        EVENT_KERNEL_STACK => {
            let addrs = kernel_addrs(KERNEL_STACK_HEADER, u32_at(4)?)?;
            Some(Event::KernelStack(KernelStack { key: u64_at(8)?, addrs }))
        }
        EVENT_STACK => {
            let depth = usize::try_from(u32_at(16)?).ok().filter(|depth| *depth <= MAX_FRAMES)?;
            let len = usize::try_from(u32_at(20)?).ok().filter(|len| *len <= FRAME_STRIDE)?;
            let addrs = (0..depth).map(|at| u64_at(STACK_HEADER + 8 * at).map(RemoteAddr));
            let records = bytes.get(STACK_HEADER + 8 * MAX_FRAMES..)?;
            let records = records.get(..depth * FRAME_STRIDE)?.chunks_exact(FRAME_STRIDE);
            Some(Event::Stack(CopiedStack {
                id: u32_at(4)?,
                key: u64_at(8)?,
                addrs: addrs.collect::<Option<_>>()?,
                frames: records.flat_map(|record| &record[..len]).copied().collect(),
            }))
        }
        EVENT_NATIVE => {
            let len = usize::try_from(u32_at(20)?).ok().filter(|len| *len <= NATIVE_BYTES)?;
            let mut registers = [0; 6];
            for (register, at) in registers.iter_mut().rev().zip((40..).step_by(8)) {
                *register = u64_at(at)?;
            }
            Some(Event::Native(NativeCopy {
                id: u32_at(4)?,
                time_ns: u64_at(8)?,
                tid: u32_at(16)?,
                ip: u64_at(24)?,
                sp: u64_at(32)?,
                registers,
                stack: bytes.get(NATIVE_HEADER..)?.get(..len)?.to_vec(),
            }))
        }
        kind @ (EVENT_ALLOCATED | EVENT_FREED) => {
            let allocation = Allocation {
                id: u32_at(4)?,
                time_ns: u64_at(8)?,
                tid: u32_at(16)?,
                has_look: u32_at(20)? != 0,
                block: u64_at(24)?,
                bytes: u64_at(32)?,
                stands_for: u64_at(40)?,
            };
            Some(if kind == EVENT_FREED { Event::Freed(allocation) } else { Event::Allocated(allocation) })
        }
        kind @ (EVENT_SAMPLE | EVENT_WAIT) => {
            let flags = u32_at(20)?;
            let has = |flag: u32| flags & flag != 0;
            let wait = WaitKey {
                stack: u64_at(24)?,
                request: u64_at(56)?,
                id: u32_at(4)?,
                tid: u32_at(16)?,
                call: u32_at(64)?.cast_signed(),
                file: u32_at(68)?,
                kernel: 0,
                peer: Peer::parse(u64_at(80)?),
            };
            let instruction = RemoteAddr(u64_at(40)?);
            let anchor_bytes = usize::try_from(u32_at(52)?).ok().filter(|bytes| *bytes <= ANCHOR_BYTES)?;
            let mut kernel = kernel_addrs(SAMPLE_HEADER + anchor_bytes, u32_at(72)?)?;
            if let Some(innermost) = kernel.first_mut() {
                *innermost = innermost.as_return_address();
            }
            Some(Event::Look(Look {
                id: u32_at(4)?,
                time_ns: u64_at(8)?,
                tid: u32_at(16)?,
                key: u64_at(24)?,
                depth: u32_at(48)?,
                truncated: has(TRUNCATED),
                failed: has(FAILED),
                in_kernel: has(IN_KERNEL),
                is_foreign: has(NO_STATE),
                instruction: has(HAS_INSTRUCTION).then_some(instruction),
                thread_state: RemoteAddr(u64_at(32)?),
                wait: (kind == EVENT_WAIT).then_some(wait),
                anchor: bytes.get(SAMPLE_HEADER..)?.get(..anchor_bytes)?.to_vec(),
                kernel,
            }))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(bytes: &mut [u8], at: usize, value: &[u8]) {
        bytes[at..at + value.len()].copy_from_slice(value);
    }

    /// A look in the kernel with an anchor of 12 bytes, and two addresses.
    fn look() -> Vec<u8> {
        let mut bytes = vec![0; SAMPLE_HEADER + 12 + 16];
        put(&mut bytes, 0, &EVENT_SAMPLE.to_le_bytes());
        put(&mut bytes, 20, &IN_KERNEL.to_le_bytes());
        put(&mut bytes, 52, &12_u32.to_le_bytes());
        put(&mut bytes, 72, &16_u32.to_le_bytes());
        put(&mut bytes, SAMPLE_HEADER, b"twelve bytes");
        put(&mut bytes, SAMPLE_HEADER + 12, &0xffff_ffff_8100_0000_u64.to_le_bytes());
        put(&mut bytes, SAMPLE_HEADER + 20, &0xffff_ffff_8200_0000_u64.to_le_bytes());
        bytes
    }

    #[test]
    fn the_kernel_s_stack_is_behind_the_anchor() {
        let Some(Event::Look(look)) = parse(&look()) else { panic!("it is a look") };
        assert_eq!(look.anchor, b"twelve bytes");
        // The innermost is where it was interrupted, the other behind a call.
        assert_eq!(look.kernel, [KernelAddr(0xffff_ffff_8100_0001), KernelAddr(0xffff_ffff_8200_0000)]);
    }

    #[test]
    fn a_kernel_stack_is_told_by_itself() {
        let mut bytes = vec![0; KERNEL_STACK_HEADER + 8];
        put(&mut bytes, 0, &EVENT_KERNEL_STACK.to_le_bytes());
        put(&mut bytes, 4, &8_u32.to_le_bytes());
        put(&mut bytes, 8, &6_u64.to_le_bytes());
        put(&mut bytes, 16, &7_u64.to_le_bytes());
        let expected = KernelStack { key: 6, addrs: vec![KernelAddr(7)] };
        assert_eq!(parse(&bytes), Some(Event::KernelStack(expected)));
        put(&mut bytes, 4, &9_u32.to_le_bytes());
        assert_eq!(parse(&bytes), None);
    }

    #[test]
    fn a_native_stack_is_told_with_its_registers() {
        let mut bytes = vec![0; NATIVE_HEADER + 16];
        put(&mut bytes, 0, &EVENT_NATIVE.to_le_bytes());
        put(&mut bytes, 20, &16_u32.to_le_bytes());
        for (number, at) in (1_u64..).zip((24..NATIVE_HEADER).step_by(8)) {
            put(&mut bytes, at, &number.to_le_bytes());
        }
        put(&mut bytes, NATIVE_HEADER, &[9; 16]);
        let expected = NativeCopy {
            ip: 1,
            sp: 2,
            registers: [8, 7, 6, 5, 4, 3],
            stack: vec![9; 16],
            ..NativeCopy::default()
        };
        assert_eq!(parse(&bytes), Some(Event::Native(expected)));
        for claim in [17, NATIVE_BYTES as u32 + 1, u32::MAX] {
            put(&mut bytes, 20, &claim.to_le_bytes());
            assert_eq!(parse(&bytes), None, "{claim}");
        }
    }

    #[test]
    fn blocks_are_told() {
        let mut bytes = vec![0; 48];
        for (at, number) in [(0, EVENT_ALLOCATED), (4, 7), (16, 11), (20, 1)] {
            put(&mut bytes, at, &number.to_le_bytes());
        }
        for (at, number) in [(8, 1_u64), (24, 0x1000), (32, 100), (40, 1 << 19)] {
            put(&mut bytes, at, &number.to_le_bytes());
        }
        let expected = Allocation {
            id: 7,
            time_ns: 1,
            tid: 11,
            has_look: true,
            block: 0x1000,
            bytes: 100,
            stands_for: 1 << 19,
        };
        assert_eq!(parse(&bytes), Some(Event::Allocated(expected)));
        put(&mut bytes, 0, &EVENT_FREED.to_le_bytes());
        assert_eq!(parse(&bytes), Some(Event::Freed(expected)));
        assert_eq!(parse(&bytes[..47]), None);
    }

    #[test]
    fn events_that_are_cut_or_claim_too_much_are_none() {
        let whole = look();
        for len in 0..whole.len() {
            assert_eq!(parse(&whole[..len]), None, "{len}");
        }
        for at in [52, 72] {
            for claim in [8 * MAX_KERNEL_FRAMES as u32 + 8, ANCHOR_BYTES as u32 + 1, u32::MAX] {
                let mut bytes = whole.clone();
                put(&mut bytes, at, &claim.to_le_bytes());
                assert_eq!(parse(&bytes), None, "{at}: {claim}");
            }
        }
    }
}
