//! Time by function and by line, from the tree of distinct stacks.

use std::cmp::Reverse;
use std::collections::HashMap;

use slip_model::{FrameId, Interner, StackId, StringId};

use super::{Function, Line, StackCount};

/// Every function with time in it.
///
/// Works on the tree of stacks, so it takes time with the number of distinct stacks and not with their depth: a damaged
/// or malicious recording may have a million stacks, each a million deep.
pub(super) fn functions(interner: &Interner, stacks: &[StackCount]) -> Vec<Function> {
    let mut of = FunctionTable::new(interner);
    for (id, stack) in (0_u32..).zip(stacks) {
        if stack.ns > 0
            && let Some(node) = interner.node(StackId(id))
        {
            let function = of.function_mut(node.frame);
            function.own_ns = function.own_ns.saturating_add(stack.ns);
            function.own_on_cpu_ns = function.own_on_cpu_ns.saturating_add(stack.on_cpu_ns);
        }
    }
    add_totals(interner, stacks, &mut of);
    let mut functions = of.functions;
    functions.retain(|function| function.total_ns > 0);
    functions.sort_by(|a, b| {
        let text = |id: StringId| interner.text(id);
        (b.own_ns, b.total_ns).cmp(&(a.own_ns, a.total_ns)).then_with(|| {
            (text(a.name), text(a.file), a.first_line, a.kind).cmp(&(
                text(b.name),
                text(b.file),
                b.first_line,
                b.kind,
            ))
        })
    });
    functions
}

/// Every line that an innermost frame was executing, that with the most time first.
pub(super) fn lines(interner: &Interner, stacks: &[StackCount]) -> Vec<Line> {
    let frames = interner.sizes().1;
    let mut by_frame = vec![StackCount::default(); frames];
    for (id, stack) in (0_u32..).zip(stacks) {
        if stack.ns > 0
            && let Some(node) = interner.node(StackId(id))
            && let Some(line) = by_frame.get_mut(node.frame.index())
        {
            line.ns = line.ns.saturating_add(stack.ns);
            line.on_cpu_ns = line.on_cpu_ns.saturating_add(stack.on_cpu_ns);
        }
    }
    let mut lines: Vec<Line> = (0_u32..)
        .zip(by_frame)
        .filter(|(id, line)| line.ns > 0 && interner.frame_at(FrameId(*id)).line > 0)
        .map(|(id, line)| Line { frame: FrameId(id), own_ns: line.ns, own_on_cpu_ns: line.on_cpu_ns })
        .collect();
    lines.sort_by_cached_key(|line| {
        let frame = interner.frame_at(line.frame);
        (Reverse(line.own_ns), interner.text(frame.file), frame.line, interner.text(frame.name), line.frame)
    });
    lines
}

/// Numbers the functions that frames belong to.
#[derive(Debug)]
pub(crate) struct FunctionTable<'a> {
    interner: &'a Interner,
    /// The functions, by number.
    pub(crate) functions: Vec<Function>,
    /// By frame; `u32::MAX` for one that has not been asked for.
    of_frame: Vec<u32>,
    by_identity: HashMap<(u8, StringId, StringId, u32), u32>,
}

impl<'a> FunctionTable<'a> {
    pub(crate) fn new(interner: &'a Interner) -> Self {
        // One more, for a frame that does not exist.
        let of_frame = vec![u32::MAX; interner.sizes().1 + 1];
        Self { interner, functions: Vec::new(), of_frame, by_identity: HashMap::new() }
    }

    /// The number of the function of a frame.
    pub(crate) fn index(&mut self, id: FrameId) -> usize {
        let slot = id.index().min(self.of_frame.len() - 1);
        if self.of_frame[slot] == u32::MAX {
            let frame = self.interner.frame_at(id);
            let identity = (frame.kind as u8, frame.name, frame.file, frame.first_line);
            let functions = &mut self.functions;
            self.of_frame[slot] = *self.by_identity.entry(identity).or_insert_with(|| {
                functions.push(Function::of(&frame));
                // Fewer functions than frames, whose number has 32 bits.
                (functions.len() - 1) as u32
            });
        }
        self.of_frame[slot] as usize
    }

    fn function_mut(&mut self, id: FrameId) -> &mut Function {
        let at = self.index(id);
        &mut self.functions[at]
    }
}

/// Fills in [`Function::total_ns`]: the sum over the outermost frames of the function, as all others are below one.
fn add_totals(interner: &Interner, stacks: &[StackCount], of: &mut FunctionTable<'_>) {
    let mut tree = Tree::new(interner, stacks);
    // How often each function is on the way from the root to where the walk is.
    let mut open: Vec<u32> = Vec::new();
    let mut at = tree.next_with_time(tree.first_child[0]);
    if at == 0 {
        return;
    }
    loop {
        let function = of.index(tree.frame[at]);
        if open.len() <= function {
            open.resize(function + 1, 0);
        }
        if open[function] == 0 {
            let total_ns = &mut of.functions[function].total_ns;
            *total_ns = total_ns.saturating_add(tree.ns[at]);
        }
        open[function] += 1;

        let child = tree.next_with_time(tree.first_child[at]);
        if child != 0 {
            at = child;
            continue;
        }
        loop {
            open[of.index(tree.frame[at])] -= 1;
            let sibling = tree.next_with_time(tree.next_sibling[at]);
            if sibling != 0 {
                at = sibling;
                break;
            }
            at = tree.parent[at];
            if at == 0 {
                return;
            }
        }
    }
}

/// The stacks as a tree that can be walked from the root; node 0 is the root, and 0 also means "none".
struct Tree {
    parent: Vec<usize>,
    first_child: Vec<usize>,
    next_sibling: Vec<usize>,
    frame: Vec<FrameId>,
    /// Time with this stack and with any that begins with it.
    ns: Vec<u64>,
}

impl Tree {
    fn new(interner: &Interner, stacks: &[StackCount]) -> Self {
        let count = stacks.len().max(1);
        let mut tree = Self {
            parent: vec![0; count],
            first_child: vec![0; count],
            next_sibling: vec![0; count],
            frame: vec![FrameId(u32::MAX); count],
            ns: stacks.iter().map(|stack| stack.ns).collect(),
        };
        tree.ns.resize(count, 0);
        // A parent is older than its child, so that children come first when counting down.
        for at in (1..count).rev() {
            let Some(node) = u32::try_from(at).ok().and_then(|id| interner.node(StackId(id))) else {
                continue;
            };
            let parent = if node.parent.index() < at { node.parent.index() } else { 0 };
            tree.parent[at] = parent;
            tree.frame[at] = node.frame;
            tree.next_sibling[at] = tree.first_child[parent];
            tree.first_child[parent] = at;
            tree.ns[parent] = tree.ns[parent].saturating_add(tree.ns[at]);
        }
        tree
    }

    /// The first of `at` and its later siblings that has time.
    fn next_with_time(&mut self, mut at: usize) -> usize {
        while at != 0 && self.ns[at] == 0 {
            at = self.next_sibling[at];
        }
        at
    }
}
