//! Stacks that were named before.
//!
//! Samples of one application share most of their frames. Once frames have been named and found to fit their callers
//! (`Frames::build`), the same frames with the same callers need no second look. What such a path of frames, from the
//! outermost inwards, has led to is kept under its [`PathKey`], a hash of all that the outcome depends on: of each frame
//! the function, the instruction that it stands at, and its caller's variable that gets its result. Keys need no look at
//! what is known, so the whole stack is asked for first, then the one without its innermost frame, and so on. Nearly
//! always the first or second is known: two or three cache misses in place of as many for each frame.
//!
//! Only functions that last are kept ([`Function::lasts`]).

use std::collections::HashMap;
use std::hash::{BuildHasher, Hasher};

use slip_model::{StackId, StringId};
use slip_remote::{RemoteAddr, prefetch};

use crate::bytes::AddrHash;
use crate::code::{CodeAddr, Owner, Owners};
use crate::functions::{Function, Kind};

/// Most paths that are remembered; then all are forgotten. As many as fit into a table of 2 MiB.
const MAX_PATHS: usize = 114_688;

/// Most places of private functions that are remembered, and most functions; then all are forgotten.
const MAX_PLACES: usize = 262_144;

/// The caller's variable that gets the result does not matter.
const NO_RESULT: u64 = u64::MAX;

/// What a frame shows of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Look {
    pub(crate) func: CodeAddr,
    pub(crate) opline: RemoteAddr,
    /// Where its result goes, counted from its caller's frame; `None` if nowhere or if there is no caller.
    pub(crate) result: Option<u64>,
    /// Called by the engine.
    pub(crate) top: bool,
    pub(crate) innermost: bool,
}

/// Stands for a path of frames. Two paths have the same key with a probability of 2^-64, and the hash is another one in each
/// recording: with as many paths as are kept, one new path in 2^46 is taken for another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct PathKey(u64);

/// Stands for all functions that are shown in the same way, in whichever process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct FunctionNo(u64);

/// What a function is known by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Identity {
    kind: Kind,
    name: StringId,
    file: StringId,
    line_start: u32,
    called: Option<u64>,
    opcodes: CodeAddr,
}

/// Where a path has led.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Node {
    /// `None` if nothing that follows is to be remembered.
    key: Option<PathKey>,
    pub(crate) stack: StackId,
    /// File of the outermost frame.
    pub(crate) script: StringId,
}

/// All paths.
#[derive(Debug, Default)]
pub(crate) struct Paths {
    known: HashMap<PathKey, (StackId, StringId), KeyHash>,
    hash: AddrHash,
    /// Internal functions, by address alone: their frames have no instruction, and what lies in its place is left over.
    internal: HashMap<CodeAddr, FunctionNo, AddrHash>,
    /// Functions whose code is shared but which are not, by address and the instruction that the frame stands at:
    /// included files lie at the same addresses one after the other.
    private: HashMap<(CodeAddr, RemoteAddr), FunctionNo, AddrHash>,
    numbers: HashMap<Identity, FunctionNo, AddrHash>,
    /// Numbers are not used again, for there may be keys that were made with them.
    last_number: u64,
    /// How often everything was forgotten.
    generation: u64,
}

/// The private functions of the last stack of one process, from the outermost frame: the next one nearly always begins
/// like it.
#[derive(Debug, Default)]
pub(crate) struct LastPrivate {
    frames: Vec<(CodeAddr, RemoteAddr, Code)>,
    /// How many the stack at hand has had so far.
    at: usize,
    generation: u64,
}

/// What stands for a function in a key, and whether its frames have an instruction.
#[derive(Clone, Copy, Debug)]
struct Code {
    number: u64,
    owner: Owner,
    has_code: bool,
}

impl LastPrivate {
    /// Has the CPU fetch them.
    pub(crate) fn prefetch(&self) {
        prefetch(self.frames.as_slice());
    }

    /// Begins a stack.
    pub(crate) fn begin(&mut self, paths: &Paths) {
        self.at = 0;
        if self.generation != paths.generation {
            self.frames.clear();
            self.generation = paths.generation;
        }
    }

    /// What stands for the next private function of the stack.
    fn next(&mut self, paths: &Paths, look: &Look) -> Option<Code> {
        let known = self.frames.get_mut(self.at);
        self.at += 1;
        if let Some((func, opline, code)) = &known
            && *func == look.func
            && (*opline == look.opline || !code.has_code)
        {
            return Some(*code);
        }
        let internal = paths.internal.get(&look.func).map(|number| (*number, false));
        let (number, has_code) =
            internal.or_else(|| Some((*paths.private.get(&(look.func, look.opline))?, true)))?;
        let code = Code { number: number.0, owner: Owner::default(), has_code };
        match known {
            Some(known) => *known = (look.func, look.opline, code),
            None => self.frames.push((look.func, look.opline, code)),
        }
        Some(code)
    }
}

impl Node {
    /// A stack off the paths: nothing that follows is remembered.
    pub(crate) fn aside(stack: StackId, script: StringId) -> Self {
        Self { key: None, stack, script }
    }

    /// No frame yet.
    pub(crate) fn root() -> Self {
        Self { key: Some(PathKey::default()), ..Self::default() }
    }
}

impl Paths {
    /// The key of a path that goes on with one more frame; `None` if its function was never seen.
    pub(crate) fn key(
        &self,
        owners: &Owners,
        last: &mut LastPrivate,
        from: PathKey,
        look: &Look,
    ) -> Option<PathKey> {
        let code = if owners.is_shared(look.func) {
            Code { number: look.func.addr.0, owner: look.func.owner, has_code: true }
        } else {
            last.next(self, look)?
        };
        Some(self.next_key(from, code, look))
    }

    /// Where a path has led; `None` if it was never taken.
    pub(crate) fn find(&self, key: PathKey) -> Option<Node> {
        let (stack, script) = *self.known.get(&key)?;
        Some(Node { key: Some(key), stack, script })
    }

    /// Remembers where a frame leads to, unless it is off the paths already.
    pub(crate) fn add(
        &mut self,
        owners: &Owners,
        (from, to): (Node, (StackId, StringId)),
        look: &Look,
        function: &Function,
    ) -> Node {
        let Some(from) = from.key else { return Node::aside(to.0, to.1) };
        let places = self.internal.len() + self.private.len();
        if self.known.len() >= MAX_PATHS || places.max(self.numbers.len()) >= MAX_PLACES {
            self.clear();
        }
        let code = if owners.is_shared(look.func) {
            Code { number: look.func.addr.0, owner: look.func.owner, has_code: true }
        } else {
            let identity = Identity {
                kind: function.kind,
                name: function.name,
                file: function.file,
                line_start: function.line_start,
                called: function.called,
                opcodes: owners.place(function.opcodes()),
            };
            let number = *self.numbers.entry(identity).or_insert_with(|| {
                self.last_number += 1;
                FunctionNo(self.last_number)
            });
            let has_code = function.kind != Kind::Internal;
            if has_code {
                self.private.insert((look.func, look.opline), number);
            } else {
                self.internal.insert(look.func, number);
            }
            Code { number: number.0, owner: Owner::default(), has_code }
        };
        let key = self.next_key(from, code, look);
        self.known.insert(key, to);
        Node { key: Some(key), stack: to.0, script: to.1 }
    }

    fn next_key(&self, from: PathKey, code: Code, look: &Look) -> PathKey {
        // Only code returns into a variable of its caller.
        let result = look.result.filter(|_| code.has_code && !look.top).unwrap_or(NO_RESULT);
        let opline = if code.has_code { look.opline } else { RemoteAddr::NULL };
        let flags = u64::from(look.top) << 1 | u64::from(look.innermost);
        PathKey(self.hash.hash_one((from, opline, result, code.number, code.owner, flags)))
    }

    /// Forgets a process that has ended.
    pub(crate) fn forget(&mut self, owner: Owner) {
        self.internal.retain(|func, _| func.owner != owner);
        self.private.retain(|(func, _), _| func.owner != owner);
    }

    /// Forgets everything.
    pub(crate) fn clear(&mut self) {
        self.known.clear();
        self.numbers.clear();
        self.internal.clear();
        self.private.clear();
        self.generation += 1;
    }
}

/// Keys are hashes already.
#[derive(Clone, Debug, Default)]
struct KeyHash;

impl BuildHasher for KeyHash {
    type Hasher = KeyHasher;

    fn build_hasher(&self) -> KeyHasher {
        KeyHasher(0)
    }
}

/// See [`KeyHash`].
#[derive(Debug)]
struct KeyHasher(u64);

impl Hasher for KeyHasher {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(*byte);
        }
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = number;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::code::CodeCache;

    fn look_of(owners: &Owners, func: u64, opline: u64) -> Look {
        let func = owners.place(RemoteAddr(func));
        Look { func, opline: RemoteAddr(opline), result: Some(80), top: false, innermost: false }
    }

    /// The key of a path through private functions that are known.
    fn key_of(paths: &Paths, owners: &Owners, last: &mut LastPrivate, looks: &[Look]) -> Option<PathKey> {
        last.begin(paths);
        looks.iter().try_fold(PathKey::default(), |key, look| paths.key(owners, last, key, look))
    }

    #[test]
    fn a_path_is_known_by_all_of_its_frames() {
        let owners = CodeCache::default().enter(None);
        let look = |func, opline| look_of(&owners, func, opline);
        let mut paths = Paths::default();
        let mut last = LastPrivate::default();
        let numbers = [(1, 8), (2, 8), (3, 16)];
        for (number, (func, opline)) in (1..).zip(numbers) {
            paths.private.insert((look(func, opline).func, RemoteAddr(opline)), FunctionNo(number));
        }
        paths.internal.insert(look(9, 0).func, FunctionNo(9));
        let stacks = [
            vec![look(1, 8)],
            vec![look(1, 8), look(2, 8)],
            vec![look(1, 8), look(3, 16)],
            vec![look(2, 8), look(1, 8)],
            vec![Look { top: true, ..look(1, 8) }, look(2, 8)],
            vec![look(1, 8), Look { innermost: true, ..look(2, 8) }],
            vec![look(1, 8), Look { result: None, ..look(2, 8) }],
            vec![look(1, 8), look(9, 8), look(2, 8)],
        ];
        let keys: Vec<PathKey> =
            stacks.iter().map(|stack| key_of(&paths, &owners, &mut last, stack).unwrap()).collect();
        for (at, key) in keys.iter().enumerate() {
            assert!(!keys[..at].contains(key));
            assert_eq!(key_of(&paths, &owners, &mut last, &stacks[at]), Some(*key));
        }
        // What lies in the place of an internal function's instruction and result is left over.
        let other = [look(1, 8), Look { result: Some(96), ..look(9, 24) }, look(2, 8)];
        assert_eq!(key_of(&paths, &owners, &mut last, &other), Some(keys[7]));
        // Nobody has seen this one.
        assert_eq!(key_of(&paths, &owners, &mut last, &[look(1, 8), look(2, 24)]), None);
        paths.clear();
        assert_eq!(key_of(&paths, &owners, &mut last, &stacks[0]), None);
    }
}
