//! Interning: each distinct string, frame and stack is kept once and named by a small number.

use std::sync::Arc;

use rustc_hash::FxHashMap as HashMap;
use serde::Serialize;

number!(
    /// Names an interned string. `StringId(0)` is the empty string.
    StringId
);
number!(
    /// Names an interned frame.
    FrameId
);
number!(
    /// Names an interned stack by its innermost frame. `StackId(0)` is the stack without frames.
    StackId
);

/// What a frame stands for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
#[repr(u8)]
pub enum FrameKind {
    /// A function, method, class body or module written in Python.
    #[default]
    Python = 0,
    /// A function, method, closure or file written in PHP.
    Php = 1,
    /// A function that the PHP engine or an extension implements in C. It has no file and no line.
    PhpInternal = 2,
    /// Not code: a note in angle or square brackets, such as `[unreadable]`.
    Marker = 3,
    /// A function of the kernel, inside of all others of its stack. Its file is the module in square brackets, or empty.
    Kernel = 4,
    /// The instruction that the innermost function executes, in square brackets: no function, inside of that one.
    Instruction = 5,
    /// A function of a program or a library itself, compiled. Its file is that program or library in square brackets.
    Native = 6,
    /// No function: the server that a thread waits for, inside of all its own functions and outside of those of the kernel. Its name is an
    /// address with its port, or the path of a UNIX socket.
    Server = 7,
}

impl FrameKind {
    /// Whether such frames are inside of all that the program itself runs.
    pub fn is_beyond_program(self) -> bool {
        matches!(self, Self::Kernel | Self::Server)
    }

    /// The kind that `number` stands for in a recording.
    pub fn from_number(number: u8) -> Option<Self> {
        let all = [
            Self::Python,
            Self::Php,
            Self::PhpInternal,
            Self::Marker,
            Self::Kernel,
            Self::Instruction,
            Self::Native,
            Self::Server,
        ];
        all.into_iter().find(|kind| *kind as u8 == number)
    }
}

/// One function at one line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Frame {
    /// What the frame stands for.
    pub kind: FrameKind,
    /// Qualified name: `Class.method` in Python, `Class::method` in PHP.
    pub name: StringId,
    /// Path as the interpreter knows it; empty where there is none.
    pub file: StringId,
    /// First line of the function; 0 if unknown.
    pub first_line: u32,
    /// The line being executed; 0 if unknown.
    pub line: u32,
}

/// A stack as a tree node: its innermost frame, and the stack of the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct StackNode {
    /// The stack of the caller; `StackId(0)` for the outermost frame. Always smaller than the node's own number.
    pub parent: StackId,
    /// The innermost frame.
    pub frame: FrameId,
}

/// What has been interned since the last call of [`Interner::take_delta`]; numbers go on without a gap.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InternerDelta {
    /// The number of the first string in `strings`.
    pub first_string: u32,
    /// New strings.
    pub strings: Vec<Arc<str>>,
    /// The number of the first frame in `frames`.
    pub first_frame: u32,
    /// New frames.
    pub frames: Vec<Frame>,
    /// The number of the first stack in `stacks`.
    pub first_stack: u32,
    /// New stacks.
    pub stacks: Vec<StackNode>,
}

/// Keeps strings, frames and stacks once each.
///
/// Hashes fast rather than safely: each frame of each sample is looked up, and a target that makes its names collide
/// only slows its own recording down.
///
/// Programs have ever new stacks: threads are interrupted at any line. Who stores them as they come has no use for all of them
/// ([`Interner::forgetful`]); a stack that is seen again after it was forgotten then has two numbers, and whoever reads what was
/// stored makes one of them.
#[derive(Clone, Debug)]
pub struct Interner {
    strings: Vec<Arc<str>>,
    string_ids: HashMap<Arc<str>, StringId>,
    frames: Vec<Frame>,
    frame_ids: HashMap<Frame, FrameId>,
    /// From number `first_stack` on.
    stacks: Vec<StackNode>,
    first_stack: usize,
    stack_ids: HashMap<StackNode, StackId>,
    /// Those that were looked up before the last `remembered` others.
    older_stack_ids: HashMap<StackNode, StackId>,
    /// Most entries of either table.
    remembered: usize,
    taken: (usize, usize, usize),
}

impl Default for Interner {
    fn default() -> Self {
        Self::new()
    }
}

impl Interner {
    /// An interner that holds the empty string and the empty stack.
    pub fn new() -> Self {
        let empty: Arc<str> = Arc::from("");
        let root = StackNode { parent: StackId(0), frame: FrameId(u32::MAX) };
        Self {
            strings: vec![empty.clone()],
            string_ids: HashMap::from_iter([(empty, StringId(0))]),
            frames: Vec::new(),
            frame_ids: HashMap::default(),
            stacks: vec![root],
            first_stack: 0,
            stack_ids: HashMap::default(),
            older_stack_ids: HashMap::default(),
            remembered: usize::MAX,
            taken: (1, 0, 1),
        }
    }

    /// One that knows the last `remembered` stacks that were looked up by their numbers, and up to as many of those before; what
    /// they are it knows until they are taken.
    pub fn forgetful(remembered: usize) -> Self {
        Self { remembered: remembered.max(1), ..Self::new() }
    }

    /// Interns `text`.
    pub fn string(&mut self, text: &str) -> StringId {
        if let Some(id) = self.string_ids.get(text) {
            return *id;
        }
        let id = StringId(next(self.strings.len()));
        let text: Arc<str> = Arc::from(text);
        self.strings.push(text.clone());
        self.string_ids.insert(text, id);
        id
    }

    /// Interns `frame`.
    pub fn frame(&mut self, frame: Frame) -> FrameId {
        if let Some(id) = self.frame_ids.get(&frame) {
            return *id;
        }
        let id = FrameId(next(self.frames.len()));
        self.frames.push(frame);
        self.frame_ids.insert(frame, id);
        id
    }

    /// The stack that calls `frame` from `parent`.
    pub fn push(&mut self, parent: StackId, frame: FrameId) -> StackId {
        let node = StackNode { parent, frame };
        if let Some(id) = self.stack_ids.get(&node) {
            return *id;
        }
        let known = self.older_stack_ids.get(&node).copied();
        let id = known.unwrap_or_else(|| {
            self.stacks.push(node);
            StackId(next(self.first_stack + self.stacks.len() - 1))
        });
        if self.stack_ids.len() >= self.remembered {
            self.older_stack_ids.clear();
            std::mem::swap(&mut self.stack_ids, &mut self.older_stack_ids);
        }
        self.stack_ids.insert(node, id);
        id
    }

    /// The stack with these frames, innermost first.
    pub fn stack(&mut self, leaf_first: &[FrameId]) -> StackId {
        leaf_first.iter().rev().fold(StackId(0), |parent, frame| self.push(parent, *frame))
    }

    /// The text of a string; empty for a number that was never given out.
    pub fn text(&self, id: StringId) -> &str {
        self.strings.get(id.index()).map_or("", |text| text)
    }

    /// The text of a string, to be kept; as [`Interner::text`].
    pub fn shared_text(&self, id: StringId) -> Arc<str> {
        self.strings.get(id.index()).or(self.strings.first()).cloned().unwrap_or_default()
    }

    /// The frame behind a number; a nameless one for a number that was never given out.
    pub fn frame_at(&self, id: FrameId) -> Frame {
        self.frames.get(id.index()).copied().unwrap_or_default()
    }

    /// The node behind a number; `None` for the empty stack and for a number that is not known.
    pub fn node(&self, id: StackId) -> Option<StackNode> {
        let at = id.index().checked_sub(self.first_stack)?;
        if id.0 == 0 { None } else { self.stacks.get(at).copied() }
    }

    /// The frames of a stack, innermost first.
    pub fn frames_of(&self, id: StackId) -> impl Iterator<Item = FrameId> + '_ {
        let mut at = id;
        std::iter::from_fn(move || {
            let node = self.node(at)?;
            // A parent is always older than its child, which also ends the walk on a damaged file.
            at = if node.parent < at { node.parent } else { StackId(0) };
            Some(node.frame)
        })
    }

    /// How many strings, frames and stacks there are; the empty string and the empty stack count.
    pub fn sizes(&self) -> (usize, usize, usize) {
        (self.strings.len(), self.frames.len(), self.first_stack + self.stacks.len())
    }

    /// What was interned since the last call.
    pub fn take_delta(&mut self) -> InternerDelta {
        let (strings, frames, stacks) = self.taken;
        self.taken = self.sizes();
        let new_stacks = if self.remembered == usize::MAX {
            self.stacks[stacks..].to_vec()
        } else {
            let known = stacks - self.first_stack;
            self.first_stack = self.taken.2;
            std::mem::take(&mut self.stacks).split_off(known)
        };
        InternerDelta {
            first_string: next(strings),
            strings: self.strings[strings..].to_vec(),
            first_frame: next(frames),
            frames: self.frames[frames..].to_vec(),
            first_stack: next(stacks),
            stacks: new_stacks,
        }
    }

    /// Puts entries back under the numbers they had, as a reader of recordings does.
    ///
    /// Returns false, and changes nothing, if the numbers do not go on where this interner ends or an entry points
    /// to one that does not exist: such a file is damaged.
    pub fn apply(&mut self, delta: &InternerDelta) -> bool {
        let (strings, frames, stacks) = self.sizes();
        let all_strings = strings + delta.strings.len();
        let all_frames = frames + delta.frames.len();
        let in_order = delta.first_string as usize == strings
            && delta.first_frame as usize == frames
            && delta.first_stack as usize == stacks;
        let frames_fit = delta
            .frames
            .iter()
            .all(|frame| frame.name.index() < all_strings && frame.file.index() < all_strings);
        let stacks_fit = delta
            .stacks
            .iter()
            .enumerate()
            .all(|(at, node)| node.parent.index() < stacks + at && node.frame.index() < all_frames);
        if !(in_order && frames_fit && stacks_fit) {
            return false;
        }
        for text in &delta.strings {
            self.string_ids.entry(text.clone()).or_insert(StringId(next(self.strings.len())));
            self.strings.push(text.clone());
        }
        for frame in &delta.frames {
            self.frame_ids.entry(*frame).or_insert(FrameId(next(self.frames.len())));
            self.frames.push(*frame);
        }
        for node in &delta.stacks {
            self.stack_ids.entry(*node).or_insert(StackId(next(self.first_stack + self.stacks.len())));
            self.stacks.push(*node);
        }
        self.taken = self.sizes();
        true
    }
}

/// A length as the next number. Four billion distinct entries do not fit in memory, so the cast cannot be reached.
fn next(length: usize) -> u32 {
    u32::try_from(length).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_stack_has_one_number() {
        let mut interner = Interner::new();
        let name = interner.string("f");
        let frame = interner.frame(Frame { name, line: 3, ..Frame::default() });
        let other = interner.frame(Frame { name, line: 4, ..Frame::default() });
        let stack = interner.stack(&[frame, other]);
        assert_eq!(stack, interner.stack(&[frame, other]));
        assert_eq!(interner.frames_of(stack).collect::<Vec<_>>(), [frame, other]);
        assert_ne!(stack, interner.stack(&[other, frame]));
    }

    #[test]
    fn what_is_looked_up_again_is_remembered() {
        let mut interner = Interner::forgetful(4);
        let frames: Vec<FrameId> =
            (1..100).map(|line| interner.frame(Frame { line, ..Frame::default() })).collect();
        let (first, second) = (interner.push(StackId(0), frames[0]), interner.push(StackId(0), frames[1]));
        for frame in &frames[2..] {
            let other = interner.push(StackId(0), *frame);
            assert_eq!(interner.push(StackId(0), frames[0]), first);
            assert_eq!(interner.frames_of(other).collect::<Vec<_>>(), [*frame]);
        }
        let again = interner.push(StackId(0), frames[1]);
        assert_ne!(again, second, "it was forgotten");
        assert!(interner.frames_of(again).eq(interner.frames_of(second)));
        let (known, mut copy) = (interner.sizes(), Interner::new());
        assert!(copy.apply(&interner.take_delta()));
        assert_eq!((copy.sizes(), interner.sizes()), (known, known));
        let next = interner.push(first, frames[1]);
        assert_eq!(next.index(), known.2);
        assert!(copy.apply(&interner.take_delta()));
        assert_eq!(copy.frames_of(next).collect::<Vec<_>>(), [frames[1], frames[0]]);
    }

    #[test]
    fn deltas_rebuild_the_interner() {
        let mut source = Interner::new();
        let mut copy = Interner::new();
        for round in 0..3 {
            let name = source.string(&format!("f{round}"));
            let frame = source.frame(Frame { name, ..Frame::default() });
            source.push(StackId(round), frame);
            assert!(copy.apply(&source.take_delta()));
        }
        assert_eq!(copy.sizes(), source.sizes());
        assert_eq!(copy.text(StringId(2)), "f1");
    }

    #[test]
    fn a_delta_that_points_nowhere_is_refused() {
        let mut interner = Interner::new();
        let node = StackNode { parent: StackId(7), frame: FrameId(0) };
        let delta =
            InternerDelta { first_string: 1, first_stack: 1, stacks: vec![node], ..InternerDelta::default() };
        assert!(!interner.apply(&delta));
        assert_eq!(interner.sizes(), (1, 0, 1));
    }
}
