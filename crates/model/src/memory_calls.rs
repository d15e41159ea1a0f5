//! Who asks the kernel for memory, in programs without an interpreter.

use serde::{Deserialize, Serialize};

/// What is asked of the kernel's memory management.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[repr(u8)]
pub enum MemoryCall {
    /// `mmap`
    Mmap,
    /// `munmap`
    Munmap,
    /// `brk`
    Brk,
    /// `madvise`
    Madvise,
    /// `mremap`
    Mremap,
    /// `mprotect`
    Mprotect,
    /// No call: a page is touched that is not mapped yet.
    Fault,
}

impl MemoryCall {
    /// All, by number.
    pub const ALL: [Self; 7] =
        [Self::Mmap, Self::Munmap, Self::Brk, Self::Madvise, Self::Mremap, Self::Mprotect, Self::Fault];

    /// As the manual calls it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Mmap => "mmap",
            Self::Munmap => "munmap",
            Self::Brk => "brk",
            Self::Madvise => "madvise",
            Self::Mremap => "mremap",
            Self::Mprotect => "mprotect",
            Self::Fault => "page fault",
        }
    }
}

/// A function of a program, or of one of its libraries.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct NativeFrame {
    /// Its name, as its author wrote it; empty if it is not known.
    pub function: String,
    /// The name of the file that it is in, without folders; empty for code of no file.
    pub module: String,
}

/// A way through the program to a call for memory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemorySite {
    /// What is asked there.
    pub call: MemoryCall,
    /// Innermost first. Empty where no stack was seen.
    pub frames: Vec<NativeFrame>,
    /// The outer end is missing.
    pub is_cut: bool,
    /// How often: exact as long as calls at one depth of the stack come the same way, else by their share of the time there.
    pub calls: u64,
    /// For how long, together.
    pub ns: u64,
}

/// All calls for memory of programs without an interpreter, and all of their page faults, in their runs without start-up and exit.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryCalls {
    /// How often each was, and for how long: all of them.
    pub sums: Vec<MemorySum>,
    /// Who called, those with most time first. The rest of each sum was called by others.
    pub sites: Vec<MemorySite>,
    /// Stacks that this is concluded from.
    pub stacks: u64,
    /// Stacks for which there was no room.
    pub lost: u64,
}

/// So many calls of a kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemorySum {
    /// Of this.
    pub call: MemoryCall,
    /// How often.
    pub calls: u64,
    /// For how long, together.
    pub ns: u64,
}

impl MemoryCalls {
    /// How often this was called.
    pub fn calls(&self, call: MemoryCall) -> u64 {
        self.sums.iter().filter(|sum| sum.call == call).fold(0, |calls, sum| calls.saturating_add(sum.calls))
    }

    /// For how long all of them together took.
    pub fn ns(&self) -> u64 {
        self.sums.iter().fold(0, |ns, sum| ns.saturating_add(sum.ns))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_are_of_one_kind_and_of_all() {
        for (number, call) in MemoryCall::ALL.into_iter().enumerate() {
            assert_eq!(call as usize, number, "{}", call.name());
        }
        let sum = |call, calls, ns| MemorySum { call, calls, ns };
        let sums = vec![sum(MemoryCall::Mmap, 3, 5), sum(MemoryCall::Fault, u64::MAX, u64::MAX)];
        let calls = MemoryCalls { sums, ..MemoryCalls::default() };
        assert_eq!(
            (calls.calls(MemoryCall::Mmap), calls.calls(MemoryCall::Brk), calls.ns()),
            (3, 0, u64::MAX)
        );
    }
}
