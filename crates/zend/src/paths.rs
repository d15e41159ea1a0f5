//! Stacks that were named before.
//!
//! Samples of one application share most of their frames. Once frames have been named and found to fit their callers
//! (`Frames::build`), the same frames with the same callers need no second look: they are a path in a tree, from the
//! outermost frame inwards, and each node knows the number of its stack. A step names all that the outcome depends on:
//! the function, the instruction that its frame stands at, and the caller's variable that gets its result.
//!
//! Only functions that last are kept ([`Function::lasts`]).

use std::collections::HashMap;

use slip_model::{StackId, StringId};
use slip_remote::RemoteAddr;

use crate::bytes::AddrHash;
use crate::code::{CodeAddr, Owner, Owners};
use crate::functions::{Function, Kind};

/// Most steps that are remembered; then all are forgotten. About 64 bytes each.
const MAX_STEPS: usize = 262_144;

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

/// Number of a node; 0 is the root.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct NodeNo(u32);

/// Stands for all functions that are shown in the same way, in whichever process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct FunctionNo(u32);

/// From a caller to its callee.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Step {
    opline: RemoteAddr,
    result: u64,
    code: Code,
    parent: NodeNo,
    top: bool,
    innermost: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Code {
    Shared(CodeAddr),
    Private(FunctionNo),
}

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

/// Where a path has led so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Node {
    number: NodeNo,
    pub(crate) stack: StackId,
    /// File of the outermost frame.
    pub(crate) script: StringId,
}

/// All paths.
#[derive(Debug, Default)]
pub(crate) struct Paths {
    steps: HashMap<Step, Node, AddrHash>,
    last: u32,
    /// Internal functions, by address alone: their frames have no instruction, and what lies in its place is left over.
    internal: HashMap<CodeAddr, FunctionNo, AddrHash>,
    /// Functions whose code is shared but which are not, by address and the instruction that the frame stands at:
    /// included files lie at the same addresses one after the other.
    private: HashMap<(CodeAddr, RemoteAddr), FunctionNo, AddrHash>,
    numbers: HashMap<Identity, FunctionNo, AddrHash>,
    /// How often everything was forgotten.
    generation: u64,
}

/// The last stack of one process, from the outermost frame: the next one nearly always begins like it.
#[derive(Debug, Default)]
pub(crate) struct LastPath {
    steps: Vec<(Look, Node)>,
    /// How many of them the stack at hand has as well.
    same: usize,
    generation: u64,
}

impl LastPath {
    /// Begins a stack.
    pub(crate) fn begin(&mut self, paths: &Paths) {
        self.same = 0;
        if self.generation != paths.generation {
            self.steps.clear();
            self.generation = paths.generation;
        }
    }

    /// The node of the next frame, if all frames so far are those of the last stack.
    pub(crate) fn next(&mut self, look: &Look) -> Option<Node> {
        let (known, node) = self.steps.get(self.same)?;
        if known != look {
            self.steps.truncate(self.same);
            return None;
        }
        self.same += 1;
        Some(*node)
    }

    /// Notes where the next frame has led, if that is to be found again.
    pub(crate) fn add(&mut self, look: &Look, node: Node) {
        if self.same == self.steps.len() && !node.is_aside() {
            self.steps.push((*look, node));
            self.same += 1;
        }
    }
}

impl Node {
    /// A stack off the paths: nothing that follows is remembered.
    pub(crate) fn aside(stack: StackId, script: StringId) -> Self {
        Self { number: NodeNo::ASIDE, stack, script }
    }

    pub(crate) fn is_aside(self) -> bool {
        self.number == NodeNo::ASIDE
    }
}

impl NodeNo {
    const ASIDE: Self = Self(u32::MAX);
}

impl Paths {
    /// The node that a frame leads to, if the same step was taken before.
    pub(crate) fn next(&self, owners: &Owners, from: Node, look: &Look) -> Option<Node> {
        let (code, has_code) = if owners.is_shared(look.func) {
            (Code::Shared(look.func), true)
        } else if let Some(number) = self.internal.get(&look.func) {
            (Code::Private(*number), false)
        } else {
            (Code::Private(*self.private.get(&(look.func, look.opline))?), true)
        };
        self.steps.get(&step(from, code, look, has_code)).copied()
    }

    /// Remembers where a frame leads to.
    pub(crate) fn add(
        &mut self,
        owners: &Owners,
        (from, to): (Node, (StackId, StringId)),
        look: &Look,
        function: &Function,
    ) -> Node {
        let places = self.internal.len() + self.private.len();
        if self.steps.len() >= MAX_STEPS || places.max(self.numbers.len()) >= MAX_PLACES {
            self.clear();
        }
        let code = if owners.is_shared(look.func) {
            Code::Shared(look.func)
        } else {
            let identity = Identity {
                kind: function.kind,
                name: function.name,
                file: function.file,
                line_start: function.line_start,
                called: function.called,
                opcodes: owners.place(function.opcodes()),
            };
            let next = FunctionNo(u32::try_from(self.numbers.len()).unwrap_or(u32::MAX));
            let number = *self.numbers.entry(identity).or_insert(next);
            if function.kind == Kind::Internal {
                self.internal.insert(look.func, number);
            } else {
                self.private.insert((look.func, look.opline), number);
            }
            Code::Private(number)
        };
        self.last += 1;
        let node = Node { number: NodeNo(self.last), stack: to.0, script: to.1 };
        let has_code = owners.is_shared(look.func) || function.kind != Kind::Internal;
        *self.steps.entry(step(from, code, look, has_code)).or_insert(node)
    }

    /// Forgets a process that has ended.
    pub(crate) fn forget(&mut self, owner: Owner) {
        self.internal.retain(|func, _| func.owner != owner);
        self.private.retain(|(func, _), _| func.owner != owner);
    }

    /// Forgets everything. Nodes get new numbers, so that no way leads on from those that somebody still holds.
    pub(crate) fn clear(&mut self) {
        self.steps.clear();
        self.numbers.clear();
        self.internal.clear();
        self.private.clear();
        self.generation += 1;
    }
}

/// The step that a frame is.
fn step(from: Node, code: Code, look: &Look, has_code: bool) -> Step {
    Step {
        opline: if has_code { look.opline } else { RemoteAddr::NULL },
        // Only code returns into a variable of its caller.
        result: look.result.filter(|_| has_code && !look.top).unwrap_or(NO_RESULT),
        code,
        parent: from.number,
        top: look.top,
        innermost: look.innermost,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(func: u64) -> Look {
        let func = CodeAddr { addr: RemoteAddr(func), ..CodeAddr::default() };
        Look { func, opline: RemoteAddr(8), result: None, top: false, innermost: false }
    }

    fn node(number: u32) -> Node {
        Node { number: NodeNo(number), stack: StackId(number), ..Node::default() }
    }

    #[test]
    fn the_last_path_is_followed_as_far_as_it_is_the_same() {
        let mut paths = Paths::default();
        let mut last = LastPath::default();
        last.begin(&paths);
        for number in 1..4 {
            assert_eq!(last.next(&look(number.into())), None);
            last.add(&look(number.into()), node(number));
        }
        // The same, then shorter, then another after the first, and nothing off the paths.
        last.begin(&paths);
        assert_eq!([1, 2, 3].map(|func| last.next(&look(func))), [1, 2, 3].map(|number| Some(node(number))));
        assert_eq!(last.next(&look(4)), None);
        last.begin(&paths);
        assert_eq!(last.next(&look(1)), Some(node(1)));
        assert_eq!(last.next(&look(9)), None);
        last.add(&look(9), node(9));
        last.add(&look(10), Node::aside(StackId(5), StringId(0)));
        last.begin(&paths);
        assert_eq!([1, 9].map(|func| last.next(&look(func))), [Some(node(1)), Some(node(9))]);
        assert_eq!(last.next(&look(10)), None);
        paths.clear();
        last.begin(&paths);
        assert_eq!(last.next(&look(1)), None);
    }
}
