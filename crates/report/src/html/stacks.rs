//! The stacks of one or two recordings as one tree of functions.

use std::collections::HashMap;

use slip_model::{FrameId, FrameKind, Recording};

use crate::fold::{Element, INLINED};
use crate::stacks::Stacks;
use crate::summary::FunctionTable;
use crate::text::clean;

/// A function, or a marker in the place of one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Name {
    pub(super) kind: u8,
    pub(super) name: String,
    pub(super) file: String,
    pub(super) line: u32,
}

/// The tree. A parent has a smaller number than its children.
#[derive(Debug, Default)]
pub(super) struct Tree {
    pub(super) names: Vec<Name>,
    name_of: HashMap<Name, u32>,
    /// Caller and function.
    pub(super) nodes: Vec<(Option<u32>, u32)>,
    node_of: HashMap<(Option<u32>, u32), u32>,
}

impl Tree {
    /// The number of the function of each frame; the last one is of frames that do not exist.
    pub(super) fn functions_of(&mut self, recording: &Recording) -> Vec<u32> {
        let interner = &recording.interner;
        let mut table = FunctionTable::new(interner);
        let index: Vec<usize> = (0..=interner.sizes().1 as u32).map(|id| table.index(FrameId(id))).collect();
        let numbers: Vec<u32> = table
            .functions
            .iter()
            .map(|function| {
                let name = interner.text(function.name);
                let name = if name.is_empty() { "[unnamed]" } else { name };
                let mut name = clean(name).into_owned();
                if function.kind == FrameKind::Inlined {
                    name.push_str(INLINED);
                }
                self.name(Name {
                    kind: kind(function.kind),
                    name,
                    file: clean(interner.text(function.file)).into_owned(),
                    line: function.first_line,
                })
            })
            .collect();
        index.into_iter().map(|at| numbers[at]).collect()
    }

    /// The number in this tree of each node of `stacks`, whose frames are functions of [`Tree::functions_of`].
    pub(super) fn merge(&mut self, stacks: &Stacks) -> Vec<u32> {
        let mut numbers: Vec<u32> = Vec::with_capacity(stacks.nodes().len());
        for (parent, element) in stacks.nodes() {
            let name = match element {
                Element::Frame(function) => *function,
                Element::Marker(marker) => self.name(Name { name: (*marker).to_owned(), ..Name::default() }),
            };
            let node = (parent.map(|parent| numbers[parent as usize]), name);
            let nodes = &mut self.nodes;
            numbers.push(*self.node_of.entry(node).or_insert_with(|| {
                nodes.push(node);
                (nodes.len() - 1) as u32
            }));
        }
        numbers
    }

    fn name(&mut self, name: Name) -> u32 {
        if let Some(known) = self.name_of.get(&name) {
            return *known;
        }
        let number = self.names.len() as u32;
        self.names.push(name.clone());
        self.name_of.insert(name, number);
        number
    }
}

/// Markers are 0.
fn kind(kind: FrameKind) -> u8 {
    match kind {
        FrameKind::Marker | FrameKind::Instruction => 0,
        FrameKind::Python => 1,
        FrameKind::Php => 2,
        FrameKind::PhpInternal => 3,
        FrameKind::Kernel => 4,
        FrameKind::Native | FrameKind::Inlined => 5,
        FrameKind::Server => 6,
    }
}
