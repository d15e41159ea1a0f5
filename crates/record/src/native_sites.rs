//! Names who calls for memory, in programs without an interpreter: their stacks are unwound while they live.

use std::collections::HashMap;

use slip_model::{MemoryCall, MemoryCalls, MemorySite, MemorySum, NativeFrame};
use slip_native::{End, Registers};
use slip_probe::{MemoryCounts, MemoryPlace, MemoryStack};

use crate::native_code::{Files, NativeProcess};

/// Sites that are told: the others have next to no time.
const MAX_SITES: usize = 48;

/// Frames of a site that are told. What calls for memory is among the innermost.
const MAX_FRAMES: usize = 32;

/// Different stacks that are kept. A program may have ever new ones.
const MAX_STACKS: usize = 4_096;

/// What is known of who calls for memory.
#[derive(Debug, Default)]
pub(crate) struct NativeSites {
    processes: HashMap<u32, NativeProcess>,
    files: Files,
    /// What stacks there are, by number.
    stacks: Vec<SeenStack>,
    numbers: HashMap<SeenStack, usize>,
    /// How each place was come to, and how much of its time stands for that.
    ways: HashMap<MemoryPlace, Vec<(usize, u64)>>,
    unwound: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct SeenStack {
    frames: Vec<NativeFrame>,
    is_cut: bool,
}

impl NativeSites {
    /// A process without an interpreter is watched, or one that is about to become a program.
    pub(crate) fn expect(&mut self, pid: u32) {
        self.processes.entry(pid).or_default();
    }

    /// Reads where the code of processes is, as long as they are there, and unwinds what has come.
    pub(crate) fn add(&mut self, stacks: &[MemoryStack]) {
        for (pid, process) in &mut self.processes {
            process.follow(*pid);
        }
        for stack in stacks {
            let Some(process) = self.processes.get_mut(&stack.place.pid) else { continue };
            let seen = unwind(process, stack, &self.files);
            let Some(number) = self.number(seen) else { continue };
            self.unwound += 1;
            let ways = self.ways.entry(stack.place).or_default();
            match ways.iter_mut().find(|(known, _)| *known == number) {
                Some((_, ns)) => *ns = ns.saturating_add(stack.ns),
                None => ways.push((number, stack.ns)),
            }
        }
    }

    fn number(&mut self, seen: SeenStack) -> Option<usize> {
        if let Some(number) = self.numbers.get(&seen) {
            return Some(*number);
        }
        let number = self.stacks.len();
        (number < MAX_STACKS && !seen.frames.is_empty()).then(|| {
            self.stacks.push(seen.clone());
            self.numbers.insert(seen, number);
            number
        })
    }

    /// All calls so far, with who made them.
    pub(crate) fn calls(&self, counts: &MemoryCounts) -> MemoryCalls {
        let mut sums: Vec<MemorySum> =
            MemoryCall::ALL.into_iter().map(|call| MemorySum { call, calls: 0, ns: 0 }).collect();
        let mut sites: HashMap<(usize, MemoryCall), MemorySum> = HashMap::new();
        for sum in counts.places.iter().map(|(_, sum)| sum).chain(&counts.elsewhere) {
            add(&mut sums[sum.call as usize], sum.calls, sum.ns);
        }
        for (place, sum) in &counts.places {
            let ways = self.ways.get(place).map_or(&[][..], |ways| ways);
            for ((number, _), (calls, ns)) in ways.iter().zip(divide(sum, ways)) {
                let none = MemorySum { call: sum.call, calls: 0, ns: 0 };
                add(sites.entry((*number, sum.call)).or_insert(none), calls, ns);
            }
        }
        let mut sites: Vec<MemorySite> = sites
            .into_iter()
            .map(|((number, call), sum)| {
                let SeenStack { frames, is_cut } = self.stacks[number].clone();
                MemorySite { call, frames, is_cut, calls: sum.calls, ns: sum.ns }
            })
            .collect();
        sites.sort_by(|a, b| b.ns.cmp(&a.ns).then_with(|| (a.call, &a.frames).cmp(&(b.call, &b.frames))));
        sites.truncate(MAX_SITES);
        sums.retain(|sum| sum.calls > 0);
        MemoryCalls { sums, sites, stacks: self.unwound, lost: counts.lost }
    }
}

fn unwind(process: &mut NativeProcess, stack: &MemoryStack, files: &Files) -> SeenStack {
    let [bx, bp, r12_to_15 @ ..] = stack.registers;
    let MemoryPlace { pid, ip, sp, .. } = stack.place;
    let registers = Registers { ip, sp, bx, bp, r12_to_15 };
    let mut walk = process.walk(pid, &registers, &stack.bytes, files);
    if walk.end == End::Lost {
        // It may have loaded a library since.
        process.read_modules(pid);
        walk = process.walk(pid, &registers, &stack.bytes, files);
    }
    let is_cut = walk.end != End::Outermost || walk.addrs.len() > MAX_FRAMES;
    let frames = walk.addrs.into_iter().take(MAX_FRAMES).map(|addr| process.name(pid, addr, files)).collect();
    SeenStack { frames, is_cut }
}

fn add(to: &mut MemorySum, calls: u64, ns: u64) {
    to.calls = to.calls.saturating_add(calls);
    to.ns = to.ns.saturating_add(ns);
}

/// The calls and the time of a place, for each of the ways that it was come to. They add up to the place.
fn divide(sum: &MemorySum, ways: &[(usize, u64)]) -> Vec<(u64, u64)> {
    let all: u128 = ways.iter().map(|(_, ns)| u128::from(*ns).max(1)).sum();
    let (mut calls, mut ns, mut rest) = (sum.calls, sum.ns, all);
    let part =
        |of: u64, share: u128, rest: u128| u64::try_from(u128::from(of) * share / rest.max(1)).unwrap_or(of);
    ways.iter()
        .map(|(_, weight)| {
            let share = u128::from(*weight).max(1);
            let own = (part(calls, share, rest), part(ns, share, rest));
            (calls, ns, rest) = (calls - own.0, ns - own.1, rest - share);
            own
        })
        .collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "test code")]
mod tests {
    use super::*;

    fn place(sp: u64, call: MemoryCall) -> MemoryPlace {
        MemoryPlace { pid: 7, call, ip: 1, sp, caller: 0 }
    }

    fn seen(function: &str) -> SeenStack {
        let frame = NativeFrame { function: function.to_owned(), module: "a".to_owned() };
        SeenStack { frames: vec![frame], is_cut: false }
    }

    #[test]
    fn what_is_counted_is_divided_among_the_stacks_that_stand_for_it() {
        let mut sites = NativeSites::default();
        let [first, second] = ["first", "second"].map(|function| sites.number(seen(function)).unwrap());
        assert_eq!(sites.number(seen("first")), Some(first));
        sites.ways.insert(place(1, MemoryCall::Mmap), vec![(first, 5)]);
        sites.ways.insert(place(2, MemoryCall::Mmap), vec![(first, 100), (second, 200)]);
        let sum = |call, calls, ns| MemorySum { call, calls, ns };
        let counts = MemoryCounts {
            places: vec![
                (place(1, MemoryCall::Mmap), sum(MemoryCall::Mmap, 10, 1_000)),
                (place(2, MemoryCall::Mmap), sum(MemoryCall::Mmap, 4, 100)),
                (place(3, MemoryCall::Fault), sum(MemoryCall::Fault, 9, 7)),
            ],
            elsewhere: vec![sum(MemoryCall::Mmap, 1, 2)],
            lost: 3,
        };
        let calls = sites.calls(&counts);
        assert_eq!(calls.sums, [sum(MemoryCall::Mmap, 15, 1_102), sum(MemoryCall::Fault, 9, 7)]);
        let found: Vec<_> =
            calls.sites.iter().map(|site| (&*site.frames[0].function, site.calls, site.ns)).collect();
        assert_eq!(found, [("first", 11, 1_033), ("second", 3, 67)]);
        assert_eq!(calls.lost, 3);
    }

    #[test]
    fn ways_without_time_share_what_there_is() {
        let sum = MemorySum { call: MemoryCall::Brk, calls: 5, ns: u64::MAX };
        let parts = divide(&sum, &[(0, 0), (1, 0)]);
        assert_eq!(parts.iter().map(|part| part.0).sum::<u64>(), 5);
        assert_eq!(parts.iter().map(|part| u128::from(part.1)).sum::<u128>(), u128::from(u64::MAX));
        assert_eq!(divide(&sum, &[]), []);
    }
}
