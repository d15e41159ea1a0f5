//! Who calls for memory, in programs without an interpreter: `bpf/memory.h`.

use std::cell::RefCell;
use std::collections::HashSet;
use std::rc::Rc;

use libbpf_rs::{MapCore as _, MapFlags, MapHandle, Object, RingBuffer, RingBufferBuilder};
use slip_model::{MemoryCall, MemorySum};

use super::wire::Words;
use crate::ProbeError;
use crate::probe::{find_map, other};

/// `struct slip_memory_place`
const PLACE_BYTES: usize = 32;

/// `SLIP_BUDGET_STACKS_LOST`
const STACKS_LOST: u32 = 2;

/// Places that are read at once.
const BATCH: u32 = 1_024;

/// Where a thread asks for memory: at one depth of its stack. What is asked there comes the same way nearly always.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MemoryPlace {
    /// The process, as our pid namespace numbers it.
    pub pid: u32,
    /// What is asked.
    pub call: MemoryCall,
    /// The instruction behind the system call, or the one that touches a page.
    pub ip: u64,
    /// The stack pointer.
    pub sp: u64,
    /// In the code of the program itself, who called; 0 if that is not known.
    pub caller: u64,
}

/// A copy of the stack of who asks for memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryStack {
    /// Where that is.
    pub place: MemoryPlace,
    /// For how much of the place's time it stands, nanoseconds.
    pub ns: u64,
    /// `rbx`, `rbp`, `r12` to `r15`.
    pub registers: [u64; 6],
    /// From the stack pointer on.
    pub bytes: Vec<u8>,
}

/// All that programs have asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MemoryCounts {
    /// By place.
    pub places: Vec<(MemoryPlace, MemorySum)>,
    /// What no place had room for.
    pub elsewhere: Vec<MemorySum>,
    /// Stacks for which there was no room.
    pub lost: u64,
}

impl MemoryPlace {
    fn parse(bytes: &[u8]) -> Option<Self> {
        let mut words = Words(bytes);
        let (pid, kind) = (words.u32()?, words.u32()?);
        let call = *MemoryCall::ALL.get(usize::try_from(kind).ok()?)?;
        Some(Self { pid, call, ip: words.u64()?, sp: words.u64()?, caller: words.u64()? })
    }
}

impl MemoryStack {
    /// From a `struct slip_memory_stack`; `None` if it is not one.
    pub(crate) fn parse(bytes: &[u8]) -> Option<Self> {
        let (place, rest) = bytes.split_at_checked(PLACE_BYTES)?;
        let mut words = Words(rest);
        let (_tid, length) = (words.u32()?, words.u32()?);
        let ns = words.u64()?;
        let mut registers = [0; 6];
        for register in &mut registers {
            *register = words.u64()?;
        }
        let bytes = words.0.get(..usize::try_from(length).ok()?)?.to_vec();
        Some(Self { place: MemoryPlace::parse(place)?, ns, registers, bytes })
    }
}

/// A place, and how often and for how long; `None` for bytes that are too short.
pub(crate) fn parse_place(key: &[u8], value: &[u8]) -> Option<(MemoryPlace, MemorySum)> {
    let place = MemoryPlace::parse(key)?;
    let mut words = Words(value);
    Some((place, MemorySum { call: place.call, calls: words.u64()?, ns: words.u64()? }))
}

/// What the programs tell of that.
pub(super) struct MemorySites {
    // The ring ends before what it calls.
    ring: RingBuffer<'static>,
    inbox: Rc<RefCell<Vec<MemoryStack>>>,
    places: MapHandle,
    elsewhere: MapHandle,
    counters: MapHandle,
    /// Those that run no interpreter, as far as it is known.
    pids: HashSet<u32>,
}

impl MemorySites {
    pub(super) fn of(object: &Object) -> Result<Self, ProbeError> {
        let inbox = Rc::new(RefCell::new(Vec::new()));
        let receiver = Rc::clone(&inbox);
        let stacks = find_map(object, "memory_stacks")?;
        let mut builder = RingBufferBuilder::new();
        builder
            .add(&stacks, move |bytes| {
                receiver.borrow_mut().extend(MemoryStack::parse(bytes));
                0
            })
            .map_err(|error| other(&error))?;
        Ok(Self {
            ring: builder.build().map_err(|error| other(&error))?,
            inbox,
            places: find_map(object, "memory_places")?,
            elsewhere: find_map(object, "memory_elsewhere")?,
            counters: find_map(object, "budget_counters")?,
            pids: HashSet::new(),
        })
    }

    /// Notes whether a process is one whose places are told. One that turns out to run an interpreter is none, nor ever was.
    pub(super) fn note(&mut self, pid: u32, has_sites: bool) {
        if has_sites {
            self.pids.insert(pid);
        } else {
            self.pids.remove(&pid);
        }
    }

    pub(super) fn take(&mut self) -> Result<Vec<MemoryStack>, ProbeError> {
        self.ring.consume().map_err(|error| other(&error))?;
        let stacks = std::mem::take(&mut *self.inbox.borrow_mut());
        Ok(stacks.into_iter().filter(|stack| self.pids.contains(&stack.place.pid)).collect())
    }

    /// `None` if nobody is watched who has places.
    pub(super) fn counts(&self) -> Result<Option<MemoryCounts>, ProbeError> {
        if self.pids.is_empty() {
            return Ok(None);
        }
        let all =
            self.places.lookup_batch(BATCH, MapFlags::ANY, MapFlags::ANY).map_err(|error| other(&error))?;
        let places = all
            .filter_map(|(key, value)| parse_place(&key, &value))
            .filter(|(place, _)| self.pids.contains(&place.pid))
            .collect();
        let elsewhere = (0_u32..).zip(MemoryCall::ALL).map(|(number, call)| {
            let cpus = self.elsewhere.lookup_percpu(&number.to_le_bytes(), MapFlags::ANY).ok().flatten();
            let mut sum = MemorySum { call, calls: 0, ns: 0 };
            for cpu in cpus.unwrap_or_default() {
                let mut words = Words(&cpu);
                sum.calls = sum.calls.saturating_add(words.u64().unwrap_or_default());
                sum.ns = sum.ns.saturating_add(words.u64().unwrap_or_default());
            }
            sum
        });
        let lost = self.counters.lookup_percpu(&STACKS_LOST.to_le_bytes(), MapFlags::ANY).ok().flatten();
        let lost = lost.unwrap_or_default().into_iter();
        let lost = lost.filter_map(|value| Some(u64::from_le_bytes(*value.first_chunk()?))).sum();
        let elsewhere = elsewhere.filter(|sum| sum.calls > 0).collect();
        Ok(Some(MemoryCounts { places, elsewhere, lost }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(kind: u32) -> Vec<u8> {
        let numbers = [7_u32.to_le_bytes(), kind.to_le_bytes()].concat();
        numbers.into_iter().chain([1_u64, 2, 3].into_iter().flat_map(u64::to_le_bytes)).collect()
    }

    #[test]
    fn a_stack_is_as_long_as_it_says() {
        let mut bytes = place(1);
        bytes.extend([8_u32, 3].into_iter().flat_map(u32::to_le_bytes));
        bytes.extend([500_u64, 11, 12, 13, 14, 15, 16].into_iter().flat_map(u64::to_le_bytes));
        bytes.extend(b"abcd");
        let stack = MemoryStack::parse(&bytes).unwrap();
        let expected = MemoryPlace { pid: 7, call: MemoryCall::Munmap, ip: 1, sp: 2, caller: 3 };
        assert_eq!((stack.place, stack.ns, stack.registers), (expected, 500, [11, 12, 13, 14, 15, 16]));
        assert_eq!(stack.bytes, b"abc");
        assert_eq!(MemoryStack::parse(&bytes[..bytes.len() - 2]), None);
        assert_eq!(MemoryStack::parse(&bytes[..40]), None);
    }

    #[test]
    fn a_place_of_no_kind_is_none() {
        let value: Vec<u8> = [9_u64, 10].into_iter().flat_map(u64::to_le_bytes).collect();
        let (_, sum) = parse_place(&place(6), &value).unwrap();
        assert_eq!(sum, MemorySum { call: MemoryCall::Fault, calls: 9, ns: 10 });
        assert_eq!((parse_place(&place(7), &value), parse_place(&place(6), &value[..15])), (None, None));
    }
}
