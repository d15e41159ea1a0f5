//! Stacks as a tree, for formats that write each node once and let samples name the innermost one.

use std::collections::HashMap;

use slip_model::{FrameId, Interner, StackId};

use crate::fold::{Element, Key, Place, TRUNCATED};
use crate::piece;

/// What the caller of this one is, and what is at it. Frames have the number that the format gave them.
pub(crate) type Node = (Option<u32>, Element<u32>);

/// The nodes that have been asked for. A parent has a smaller number than its children.
///
/// Takes time and memory with the number of distinct stacks and not with their depth, like the tree of the recording: so nothing
/// is cut, unlike in formats that write whole stacks.
pub(crate) struct Stacks<'a> {
    interner: &'a Interner,
    /// By stack, from [`without_kernel`].
    code_of: &'a [u32],
    number: &'a dyn Fn(FrameId) -> u32,
    nodes: Vec<Node>,
    known: HashMap<Node, u32>,
    /// By stack, whether its outer end is missing, and what is between its code and the kernel.
    of_stack: HashMap<(u32, bool, Option<&'static str>), u32>,
}

impl<'a> Stacks<'a> {
    pub(crate) fn new(
        interner: &'a Interner,
        code_of: &'a [u32],
        number: &'a dyn Fn(FrameId) -> u32,
    ) -> Self {
        Self { interner, code_of, number, nodes: Vec::new(), known: HashMap::new(), of_stack: HashMap::new() }
    }

    /// All that have been asked for, by number.
    pub(crate) fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// The innermost node of what [`Key::elements`] has for this key.
    pub(crate) fn node(&mut self, key: &Key) -> u32 {
        let code = self.code_of.get(key.stack as usize).copied().unwrap_or(0);
        let place = match key.place {
            Place::Idle => Some("[idle]"),
            Place::Engine => Some("[engine]"),
            Place::Code if code == 0 => Some("[no frame]"),
            Place::Code => None,
        };
        let mut at = key.truncated.then(|| self.intern((None, Element::Marker(TRUNCATED))));
        at = self.descend(0, code, (key.truncated, None), at);
        if let Some(place) = place {
            at = Some(self.intern((at, Element::Marker(place))));
        }
        at = self.descend(code, key.stack, (key.truncated, place), at);
        if let Some(reason) = key.reason {
            at = Some(self.intern((at, Element::Marker(piece::marker(reason)))));
        }
        // One of the two is always there: code, or what is in its place.
        at.unwrap_or_else(|| self.intern((None, Element::Marker("[no frame]"))))
    }

    /// The node of the stack `to`, if that of `from`, a stack around it, is `at`.
    fn descend(
        &mut self,
        from: u32,
        to: u32,
        (truncated, place): (bool, Option<&'static str>),
        mut at: Option<u32>,
    ) -> Option<u32> {
        let mut missing = Vec::new();
        let mut stack = to;
        while stack != from
            && let Some(node) = self.interner.node(StackId(stack))
        {
            if let Some(known) = self.of_stack.get(&(stack, truncated, place)) {
                at = Some(*known);
                break;
            }
            missing.push((stack, node.frame));
            // A parent is older than its child, or the recording is damaged.
            stack = if node.parent.0 < stack { node.parent.0 } else { 0 };
        }
        for (stack, frame) in missing.into_iter().rev() {
            let node = self.intern((at, Element::Frame((self.number)(frame))));
            self.of_stack.insert((stack, truncated, place), node);
            at = Some(node);
        }
        at
    }

    fn intern(&mut self, node: Node) -> u32 {
        let nodes = &mut self.nodes;
        *self.known.entry(node).or_insert_with(|| {
            nodes.push(node);
            // Fewer than there are stacks, thrice, whose numbers are read from a file of less than 4 GiB.
            (nodes.len() - 1) as u32
        })
    }
}

/// For each stack the one without its frames of the kernel and the server before them, which are its inner ones.
pub(crate) fn without_kernel(interner: &Interner) -> Vec<u32> {
    let mut code_of = vec![0_u32];
    for id in 1..interner.sizes().2 as u32 {
        let code = interner.node(StackId(id)).map_or(0, |node| {
            let is_known = node.parent.0 < id && interner.node(node.parent).is_some();
            let parent = if is_known { node.parent.0 } else { 0 };
            let code_of_parent = code_of[parent as usize];
            let is_beyond = interner.frame_at(node.frame).kind.is_beyond_program();
            if is_beyond || code_of_parent != parent { code_of_parent } else { id }
        });
        code_of.push(code);
    }
    code_of
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::piece::pieces;
    use crate::support::{both_languages, kernel_frames, samples_and_waits};
    use slip_model::{Frame, FrameKind, Sample, State};

    #[test]
    fn each_node_is_the_end_of_the_stack_that_other_formats_write() {
        for recording in [both_languages(), samples_and_waits(), kernel_frames()] {
            let interner = &recording.interner;
            let code_of = without_kernel(interner);
            let number = |frame: FrameId| frame.0;
            let mut stacks = Stacks::new(interner, &code_of, &number);
            for piece in pieces(&recording) {
                let key = Key::of(&piece, true).unwrap();
                let mut path: Vec<_> = interner
                    .frames_of(StackId(key.stack))
                    .map(|frame| (interner.frame_at(frame).kind, frame.0))
                    .collect();
                path.reverse();
                let expected: Vec<_> = key.elements(path).collect();
                let mut found = Vec::new();
                let mut at = Some(stacks.node(&key));
                while let Some(node) = at {
                    let (parent, element) = stacks.nodes()[node as usize];
                    assert!(parent.is_none_or(|parent| parent < node));
                    found.push(element);
                    at = parent;
                }
                found.reverse();
                assert_eq!(found, expected);
            }
        }
    }

    #[test]
    fn deep_stacks_take_no_time_and_damaged_ones_end() {
        let mut interner = Interner::new();
        let frames: Vec<_> =
            (0..100).map(|line| interner.frame(Frame { line, ..Frame::default() })).collect();
        let kernel = interner.frame(Frame { kind: FrameKind::Kernel, ..Frame::default() });
        let mut stack = StackId(0);
        for line in 0..200_000 {
            stack = interner.push(stack, if line < 100_000 { frames[line % 100] } else { kernel });
        }
        let code_of = without_kernel(&interner);
        let number = |frame: FrameId| frame.0;
        let mut stacks = Stacks::new(&interner, &code_of, &number);
        for id in (0..=stack.0).rev().step_by(100).chain([stack.0 + 1, u32::MAX]) {
            for state in [State::default(), State::ENGINE, State::TRUNCATED] {
                let sample = Sample { stack: StackId(id), state, ..Sample::default() };
                let piece = piece::Piece { sample, reason: None, count: 1, ns: 1 };
                stacks.node(&Key::of(&piece, true).unwrap());
            }
        }
        assert!(stacks.nodes().len() < 3 * interner.sizes().2 + 3);
    }
}
