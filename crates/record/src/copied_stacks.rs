//! Stacks that the kernel has copied once, for looks that only name them.

use std::collections::HashMap;

use slip_probe::CopiedStack;

/// A stack that was not looked at for so many turns is given up: most are seen once and never again. (Eight busy workers of
/// WordPress have up to 4,000 such a second, of 3 KB each.) At four turns a second those that come back are copied again every
/// two seconds at most.
const KEPT_TURNS: u64 = 8;

/// The stacks of one process, by their keys.
#[derive(Debug, Default)]
pub(crate) struct CopiedStacks {
    stacks: HashMap<u64, Kept>,
    turn: u64,
}

#[derive(Debug)]
struct Kept {
    stack: CopiedStack,
    /// When it was looked at last.
    turn: u64,
    /// The kernel has been told to copy it anew, and looks that name it may still be on the way.
    is_given_up: bool,
}

impl CopiedStacks {
    pub(crate) fn len(&self) -> usize {
        self.stacks.len()
    }

    pub(crate) fn insert(&mut self, stack: CopiedStack) {
        self.stacks.insert(stack.key, Kept { stack, turn: self.turn, is_given_up: false });
    }

    /// The stack of a look.
    pub(crate) fn find(&mut self, key: u64) -> Option<&CopiedStack> {
        let kept = self.stacks.get_mut(&key)?;
        kept.turn = self.turn;
        Some(&kept.stack)
    }

    /// Drops all; the keys are those that the kernel has to copy anew.
    pub(crate) fn clear(&mut self) -> Vec<u64> {
        self.stacks.drain().map(|(key, _)| key).collect()
    }

    /// Keeps a stack after all.
    pub(crate) fn keep(&mut self, key: u64) {
        if let Some(kept) = self.stacks.get_mut(&key) {
            kept.is_given_up = false;
        }
    }

    /// Begins a turn: gives up what was not looked at for long, and drops what was given up in the last turn, which must have
    /// been long enough for all looks of before to have come. The keys are those that the kernel has to copy anew.
    pub(crate) fn turn(&mut self) -> Vec<u64> {
        self.turn += 1;
        let mut given_up = Vec::new();
        self.stacks.retain(|key, kept| {
            if kept.is_given_up {
                return false;
            }
            kept.is_given_up = kept.turn + KEPT_TURNS < self.turn;
            if kept.is_given_up {
                given_up.push(*key);
            }
            true
        });
        given_up
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stack(key: u64) -> CopiedStack {
        CopiedStack { key, ..CopiedStack::default() }
    }

    #[test]
    fn what_is_looked_at_stays() {
        let mut stacks = CopiedStacks::default();
        stacks.insert(stack(1));
        stacks.insert(stack(2));
        let mut given_up = Vec::new();
        for _ in 0..2 * KEPT_TURNS {
            assert!(stacks.find(1).is_some());
            given_up.extend(stacks.turn());
        }
        assert_eq!((given_up, stacks.len()), (vec![2], 1));
    }

    #[test]
    fn looks_that_are_on_the_way_find_their_stack() {
        let mut stacks = CopiedStacks::default();
        stacks.insert(stack(1));
        while stacks.turn().is_empty() {}
        assert!(stacks.find(1).is_some(), "it is still named by looks of before");
        assert!(stacks.turn().is_empty());
        assert!(stacks.find(1).is_none());
    }

    #[test]
    fn a_stack_that_is_copied_anew_stays() {
        let mut stacks = CopiedStacks::default();
        stacks.insert(stack(1));
        while stacks.turn().is_empty() {}
        stacks.insert(stack(1));
        stacks.turn();
        assert!(stacks.find(1).is_some());
    }
}
