//! Blocks that targets allocate and free: how much in which place, and what of it is still there.

use std::collections::{BTreeSet, HashMap};

use slip_model::{Allocated, Sample, StackId, State, ThreadId};
use slip_probe::Allocation;

use crate::malloc::OwnMemory;

/// Most blocks that are known to be there at a time: 512 GiB of memory with one of 512 KiB told.
const MAX_LIVE: usize = 1 << 20;

/// Blocks whose look is yet to come, which is the next that comes of their threads, but for what other CPUs tell meanwhile.
const MAX_PENDING: usize = 4_096;

/// What was allocated, by place, and the blocks of which the end is still to come.
#[derive(Debug, Default)]
pub(crate) struct Allocations {
    places: HashMap<(ThreadId, StackId, State), u32>,
    sums: Vec<Sums>,
    changed: BTreeSet<u32>,
    /// By target and address.
    live: HashMap<(u32, u64), Live>,
    /// By thread.
    pending: HashMap<u32, Allocation>,
    /// By target: the sizes that blocks are rounded up to, ascending.
    sizes: HashMap<u32, Vec<u32>>,
    /// Of all targets that there were.
    pub(crate) own_memory: BTreeSet<OwnMemory>,
    /// Blocks that were told.
    pub(crate) told: u64,
    /// Of these, those that are there but for which there was no room.
    pub(crate) crowded: u64,
}

/// Of a block of more than half the distance between two samples, it stands for only some others: so these are no whole numbers.
#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    thread: ThreadId,
    stack: StackId,
    state: State,
    samples: u64,
    objects: f64,
    bytes: f64,
    kept_samples: u64,
    kept_objects: f64,
    kept_bytes: f64,
}

#[derive(Clone, Copy, Debug)]
struct Live {
    place: u32,
    objects: f64,
    bytes: f64,
}

impl Allocations {
    /// Of a target whose library rounds blocks up to these sizes, and which has an allocator of its own beside that.
    pub(crate) fn begin(&mut self, id: u32, mut sizes: Vec<u32>, own: Option<OwnMemory>) {
        sizes.sort_unstable();
        self.own_memory.extend(own);
        self.sizes.insert(id, sizes);
    }

    /// The target has ended: what it had then stays what it kept.
    pub(crate) fn end(&mut self, id: u32) {
        self.sizes.remove(&id);
        self.live.retain(|(of, _), _| *of != id);
        self.pending.retain(|_, allocation| allocation.id != id);
    }

    /// A block whose look is yet to come; back comes one of that thread whose look has been lost.
    #[must_use]
    pub(crate) fn await_look(&mut self, allocation: Allocation) -> Option<Allocation> {
        let lost = self.pending.remove(&allocation.tid);
        if self.pending.len() >= MAX_PENDING {
            self.pending.clear();
        }
        self.pending.insert(allocation.tid, allocation);
        lost
    }

    /// The block that this look is of; a block before it whose look has been lost is forgotten.
    pub(crate) fn of_look(&mut self, id: u32, tid: u32, time_ns: u64) -> Option<Allocation> {
        let found = self.pending.remove(&tid);
        found.filter(|allocation| allocation.id == id && allocation.time_ns == time_ns)
    }

    /// A block was taken there.
    pub(crate) fn taken(&mut self, allocation: &Allocation, at: &Sample) {
        let mut state = State(at.state.0 & State::TRUNCATED.0);
        if at.state.has(State::ENGINE) || at.state.has(State::IDLE) {
            // Memory that a worker takes between two requests is none of their code's.
            state = state.with(State::ENGINE);
        }
        let place = *self.places.entry((at.thread, at.stack, state)).or_insert_with(|| {
            self.sums.push(Sums { thread: at.thread, stack: at.stack, state, ..Sums::default() });
            u32::try_from(self.sums.len() - 1).unwrap_or(u32::MAX)
        });
        // What the target says is believed as far as it is a number.
        let bytes = allocation.stands_for as f64;
        let objects = bytes / self.block_bytes(allocation) as f64;
        self.told += 1;
        self.change(place, |sums| {
            sums.samples += 1;
            sums.objects += objects;
            sums.bytes += bytes;
        });
        let key = (allocation.id, allocation.block);
        // That it was freed has been lost.
        self.freed(allocation.id, allocation.block);
        if self.live.len() >= MAX_LIVE {
            self.crowded += 1;
            return;
        }
        self.live.insert(key, Live { place, objects, bytes });
        self.change(place, |sums| {
            sums.kept_samples += 1;
            sums.kept_objects += objects;
            sums.kept_bytes += bytes;
        });
    }

    /// A block is given back. Nothing if it was taken before anybody listened.
    pub(crate) fn freed(&mut self, id: u32, block: u64) {
        let Some(live) = self.live.remove(&(id, block)) else { return };
        self.change(live.place, |sums| {
            sums.kept_samples = sums.kept_samples.saturating_sub(1);
            sums.kept_objects -= live.objects;
            sums.kept_bytes -= live.bytes;
            if sums.kept_samples == 0 {
                // Nothing is left of what has been added and taken off.
                sums.kept_objects = 0.0;
                sums.kept_bytes = 0.0;
            }
        });
    }

    fn change(&mut self, place: u32, change: impl FnOnce(&mut Sums)) {
        if let Some(sums) = self.sums.get_mut(place as usize) {
            change(sums);
            self.changed.insert(place);
        }
    }

    /// Bytes of a block, rounded up as the library does; larger ones are as they were asked for.
    fn block_bytes(&self, allocation: &Allocation) -> u64 {
        let sizes = self.sizes.get(&allocation.id).map_or(&[][..], Vec::as_slice);
        let at = sizes.partition_point(|size| u64::from(*size) < allocation.bytes);
        sizes.get(at).map_or(allocation.bytes, |size| u64::from(*size)).max(1)
    }

    /// Places that are new or have changed since the last call, with their numbers.
    pub(crate) fn take_changed(&mut self) -> Vec<(u32, Allocated)> {
        let changed = std::mem::take(&mut self.changed);
        changed.into_iter().filter_map(|at| Some((at, self.sums.get(at as usize)?.rounded()))).collect()
    }
}

impl Sums {
    fn rounded(&self) -> Allocated {
        Allocated {
            thread: self.thread,
            stack: self.stack,
            state: self.state,
            samples: self.samples,
            objects: whole(self.objects),
            bytes: whole(self.bytes),
            kept_samples: self.kept_samples,
            kept_objects: whole(self.kept_objects),
            kept_bytes: whole(self.kept_bytes),
        }
    }
}

/// The next whole number that a file can have.
fn whole(number: f64) -> u64 {
    // The largest one is none of those that have a fraction.
    (number.round().max(0.0) as u64).min(i64::MAX.unsigned_abs())
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIB: u64 = 1 << 10;

    fn block(id: u32, block: u64, bytes: u64, stands_for: u64) -> Allocation {
        Allocation { id, block, bytes, stands_for, tid: 11, time_ns: 5, has_look: true }
    }

    fn at(stack: u32, state: State) -> Sample {
        Sample { thread: ThreadId(1), stack: StackId(stack), state, ..Sample::default() }
    }

    #[test]
    fn what_is_freed_is_not_kept_whoever_frees_it() {
        let mut allocations = Allocations::default();
        allocations.begin(7, vec![64, 16, 32], None);
        allocations.taken(&block(7, 0x1000, 20, 512 * KIB), &at(3, State::ON_CPU));
        allocations.taken(&block(7, 0x2000, 20, 512 * KIB), &at(3, State::HAS_GIL));
        allocations.taken(&block(8, 0x1000, 1 << 20, 1 << 20), &at(4, State::IDLE));
        let list = allocations.take_changed();
        assert_eq!(list.len(), 2);
        let (number, of_three) = list[0];
        assert_eq!((number, of_three.samples, of_three.bytes, of_three.kept_bytes), (0, 2, 1 << 20, 1 << 20));
        assert_eq!(of_three.objects, (1 << 20) / 32, "blocks have the next size of the library's");
        assert_eq!((list[1].1.objects, list[1].1.state), (1, State::ENGINE));
        allocations.freed(7, 0x1000);
        allocations.freed(7, 0x1000);
        allocations.freed(7, 0x9000);
        let list = allocations.take_changed();
        assert_eq!(list.len(), 1, "the others are as they were");
        let kept = list[0].1;
        assert_eq!((kept.samples, kept.kept_samples, kept.kept_bytes), (2, 1, 512 * KIB));
        assert_eq!(kept.kept_objects, 512 * KIB / 32);
        assert!(allocations.take_changed().is_empty());
    }

    #[test]
    fn a_place_that_is_taken_again_was_freed() {
        let mut allocations = Allocations::default();
        allocations.taken(&block(7, 0x1000, 100, 1000), &at(1, State::ON_CPU));
        allocations.taken(&block(7, 0x1000, 100, 1000), &at(2, State::ON_CPU));
        let list = allocations.take_changed();
        assert_eq!((list[0].1.kept_bytes, list[1].1.kept_bytes), (0, 1000));
    }

    #[test]
    fn what_a_process_had_when_it_ended_is_kept() {
        let mut allocations = Allocations::default();
        allocations.taken(&block(7, 0x1000, 100, 1000), &at(1, State::ON_CPU));
        allocations.end(7);
        // Another one with its number would have another block there.
        allocations.freed(7, 0x1000);
        assert_eq!(allocations.take_changed()[0].1.kept_bytes, 1000);
        assert!(allocations.live.is_empty());
    }

    #[test]
    fn a_look_belongs_to_its_own_block() {
        let mut allocations = Allocations::default();
        assert_eq!(allocations.await_look(block(7, 1, 1, 1)), None);
        assert_eq!(allocations.await_look(block(7, 2, 1, 1)).map(|lost| lost.block), Some(1));
        assert_eq!(allocations.of_look(7, 12, 5), None, "another thread");
        assert_eq!(allocations.of_look(7, 11, 5).map(|found| found.block), Some(2));
        assert_eq!(allocations.of_look(7, 11, 5), None);
        assert_eq!(allocations.await_look(block(7, 3, 1, 1)), None);
        assert_eq!(allocations.of_look(7, 11, 6), None, "another time");
    }

    #[test]
    fn any_number_can_be_told() {
        let mut allocations = Allocations::default();
        for number in 0..3 {
            allocations.taken(&block(7, number, 0, u64::MAX), &at(1, State::ON_CPU));
        }
        let sums = allocations.take_changed()[0].1;
        assert_eq!((sums.bytes, sums.objects), (i64::MAX as u64, i64::MAX as u64));
    }
}
