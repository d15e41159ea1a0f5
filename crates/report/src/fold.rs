//! Samples and waits by stack of functions: what the formats for flame graphs have in common.

use std::cmp::Ordering;
use std::collections::HashMap;

use slip_model::{FrameKind, Interner, Recording, StackId, State, Thread, WaitReason};

use crate::piece::{self, Piece, pieces};
use crate::summary::{Function, FunctionTable};
use crate::text::clean_also;

/// What is appended to a stack, or stands in its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Place {
    /// Code.
    Code,
    /// In a request, but not in code.
    Engine,
    /// Between two requests.
    Idle,
}

/// What samples or waits that are counted together have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Key {
    /// Given by the caller: the thread, the root.
    pub(crate) root: u32,
    /// The stack, or what the caller made of it.
    pub(crate) stack: u32,
    pub(crate) place: Place,
    /// What was waited for; `None` for samples, and for waits of idle workers.
    pub(crate) reason: Option<WaitReason>,
    /// The outer end of the stack is missing.
    pub(crate) truncated: bool,
    /// Given by the caller: the route.
    pub(crate) extra: u32,
}

impl Key {
    /// Of one piece; `None` if it is idle and idle ones are left out.
    pub(crate) fn of(piece: &Piece, include_idle: bool) -> Option<Self> {
        let sample = &piece.sample;
        let place = if sample.state.has(State::IDLE) {
            if !include_idle {
                return None;
            }
            Place::Idle
        } else if sample.state.has(State::ENGINE) {
            Place::Engine
        } else {
            Place::Code
        };
        let stack = if place == Place::Idle { StackId(0) } else { sample.stack };
        let truncated = stack.0 != 0 && sample.state.has(State::TRUNCATED);
        let reason = piece.reason.filter(|_| place != Place::Idle);
        Some(Self { root: sample.thread.0, stack: stack.0, place, reason, truncated, extra: 0 })
    }

    /// All elements of the stack, the outermost first: the marker for a missing end, frames, what it is instead of code, the server that it
    /// waits for, frames of the kernel, and what it waits for.
    ///
    /// `path` has the frames, the outermost first, those of the kernel last.
    pub(crate) fn elements<T>(&self, path: Vec<(FrameKind, T)>) -> impl Iterator<Item = Element<T>> + use<T> {
        let outer = path.iter().position(|(kind, _)| kind.is_beyond_program()).unwrap_or(path.len());
        let place = match self.place {
            Place::Idle => Some("[idle]"),
            Place::Engine => Some("[engine]"),
            Place::Code if outer == 0 => Some("[no frame]"),
            Place::Code => None,
        };
        let mut frames = path.into_iter().map(|(_, frame)| Element::Frame(frame));
        let marker = |marker: Option<&'static str>| marker.map(Element::Marker);
        let code: Vec<_> = frames.by_ref().take(outer).collect();
        marker(self.truncated.then_some(TRUNCATED))
            .into_iter()
            .chain(code)
            .chain(marker(place))
            .chain(frames)
            .chain(marker(self.reason.map(piece::marker)))
    }
}

/// Part of a stack as formats write it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Element<T> {
    /// A frame, or what the caller has for one.
    Frame(T),
    /// What is not code.
    Marker(&'static str),
}

/// What stands in the place of the file of the kernel's own functions, as in `perf`; those of modules have `[module]`.
pub(crate) const KERNEL: &str = "[kernel.kallsyms]";

/// Deepest stack that is written. Samplers cut at 1,024; a malicious recording may have a million stacks, each a million
/// deep, which would take for ever to write.
pub(crate) const MAX_DEPTH: usize = 2_048;

/// Behind the name of a function that was inlined into the one before it.
pub(crate) const INLINED: &str = " (inlined)";

/// The marker for the missing outer end of a stack.
pub(crate) const TRUNCATED: &str = "[truncated]";

/// How often something was seen, and what time that stands for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Count {
    /// Samples, or waits.
    pub(crate) number: u64,
    pub(crate) ns: u64,
    pub(crate) on_cpu_ns: u64,
}

/// Counts samples and waits by key. Their order makes no difference.
pub(crate) fn fold(
    recording: &Recording,
    include_idle: bool,
    mut refine: impl FnMut(&Piece, Key) -> Key,
) -> HashMap<Key, Count> {
    let mut counts: HashMap<Key, Count> = HashMap::new();
    for piece in pieces(recording) {
        if piece.sample.thread.0 as usize >= recording.threads.len() {
            continue;
        }
        let Some(key) = Key::of(&piece, include_idle) else { continue };
        let count = counts.entry(refine(&piece, key)).or_default();
        count.number = count.number.saturating_add(piece.count);
        count.ns = count.ns.saturating_add(piece.ns);
        if key.place != Place::Idle {
            count.on_cpu_ns = count.on_cpu_ns.saturating_add(piece.on_cpu_ns());
        }
    }
    counts
}

/// Stacks of functions: those of the recording, without the lines.
pub(crate) struct FunctionTree {
    pub(crate) functions: Vec<Function>,
    /// By stack of the recording.
    node_of: Vec<u32>,
    /// Parent and function; node 0 is the root.
    nodes: Vec<(u32, u32)>,
}

impl FunctionTree {
    pub(crate) fn new(interner: &Interner) -> Self {
        let mut table = FunctionTable::new(interner);
        let mut nodes = vec![(0, 0)];
        let mut node_of = vec![0];
        let mut known: HashMap<(u32, u32), u32> = HashMap::new();
        for id in 1..interner.sizes().2 as u32 {
            let Some(stack) = interner.node(StackId(id)) else { break };
            // A parent is older than its child, or the recording is damaged.
            let parent = node_of.get(stack.parent.index()).copied().unwrap_or(0);
            let node = (parent, table.index(stack.frame) as u32);
            let number = *known.entry(node).or_insert_with(|| {
                nodes.push(node);
                (nodes.len() - 1) as u32
            });
            node_of.push(number);
        }
        Self { functions: table.functions, node_of, nodes }
    }

    /// The node of a stack; that of the empty one if there is no such stack.
    pub(crate) fn node(&self, stack: u32) -> u32 {
        self.node_of.get(stack as usize).copied().unwrap_or(0)
    }

    /// The functions of a node, outermost first, with their kinds.
    pub(crate) fn path(&self, node: u32) -> Vec<(FrameKind, u32)> {
        let mut path = Vec::new();
        let mut at = node;
        while at != 0 && path.len() < MAX_DEPTH {
            let (parent, function) = self.nodes[at as usize];
            path.push((self.functions[function as usize].kind, function));
            at = parent;
        }
        path.reverse();
        path
    }

    /// For each node its place when the tree is written depth first, with the children of a node by name.
    pub(crate) fn ranks(&self, interner: &Interner) -> Vec<u32> {
        let mut children: Vec<Vec<u32>> = vec![Vec::new(); self.nodes.len()];
        for (node, (parent, _)) in (0_u32..).zip(&self.nodes).skip(1) {
            children[*parent as usize].push(node);
        }
        let compare = |a: &u32, b: &u32| -> Ordering {
            let text = |node: &u32| {
                let function = self.functions[self.nodes[*node as usize].1 as usize];
                (interner.text(function.name), interner.text(function.file), function.first_line, *node)
            };
            // Later ones first: they are taken from the end of a list.
            text(b).cmp(&text(a))
        };
        let mut ranks = vec![0; self.nodes.len()];
        let mut open = vec![0];
        let mut rank = 0;
        while let Some(node) = open.pop() {
            ranks[node as usize] = rank;
            rank += 1;
            let mut below = std::mem::take(&mut children[node as usize]);
            below.sort_by(compare);
            open.append(&mut below);
        }
        ranks
    }
}

/// A function with its place, `Class::method (file.php:12)`: what py-spy and Excimer users expect of a frame, and the
/// same for all lines of the function, so that it is one box in a flame graph. Functions of the kernel end in `_[k]`, by which tools
/// colour them, after their module if they have one: `nft_do_chain [nf_tables]_[k]`. Native ones have what they are of behind them:
/// `pcre2_match_8 [libpcre2-8.so.0]`, or else their source, and `(inlined)` before it if they are a part of the one before.
pub(crate) fn function_label(interner: &Interner, function: &Function, special: &[char]) -> String {
    let name = interner.text(function.name);
    let name = if name.is_empty() { "[unnamed]".into() } else { clean_also(name, special) };
    let file = clean_also(interner.text(function.file), special);
    if function.kind == FrameKind::Kernel {
        return if file.is_empty() { format!("{name}_[k]") } else { format!("{name} {file}_[k]") };
    }
    if function.kind == FrameKind::Native && file.starts_with('[') {
        return format!("{name} {file}");
    }
    let name = if function.kind == FrameKind::Inlined { format!("{name}{INLINED}").into() } else { name };
    match (file.is_empty(), function.first_line) {
        (true, _) => name.into_owned(),
        (false, 0) => format!("{name} ({file})"),
        (false, line) => format!("{name} ({file}:{line})"),
    }
}

/// What a process is called.
pub(crate) fn process_label(recording: &Recording, thread: &Thread) -> String {
    match recording.processes.get(thread.process.0 as usize) {
        Some(process) if !process.title.is_empty() => process.title.clone(),
        _ => "[unnamed]".into(),
    }
}

/// What tells a thread from the others of its process; `None` if it is the only one and of the main interpreter.
pub(crate) fn thread_label(recording: &Recording, thread: &Thread, alone: bool) -> Option<String> {
    let name = recording.interner.text(thread.name);
    let name = if name.is_empty() { format!("thread {}", thread.tid) } else { name.to_owned() };
    match (alone, thread.interpreter) {
        (true, 0) => None,
        (false, 0) => Some(name),
        (_, number) => Some(format!("{name} (interpreter {number})")),
    }
}

/// For each thread, whether it is the only one of its process.
pub(crate) fn alone(recording: &Recording) -> Vec<bool> {
    let mut threads: HashMap<u32, u32> = HashMap::new();
    for thread in &recording.threads {
        *threads.entry(thread.process.0).or_default() += 1;
    }
    recording.threads.iter().map(|thread| threads[&thread.process.0] == 1).collect()
}
