//! Collapsed stacks: `root;...;leaf count`, one line per stack, sorted. The count is in samples or, if there are waits too,
//! in microseconds.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use slip_model::{Interner, Recording};

use crate::Options;
use crate::fold::{self, Element, FunctionTree, Key};
use crate::text::clean_also;

/// Separates frames.
pub(crate) const SPECIAL: &[char] = &[';'];

pub(crate) fn render(recording: &Recording, options: &Options) -> String {
    let tree = FunctionTree::new(&recording.interner);
    let (roots, root_of) = roots(recording, options.per_worker);
    let counts = fold::fold(recording, options.include_idle, |_, mut key| {
        key.root = root_of[key.root as usize];
        key.stack = tree.node(key.stack);
        key
    });
    let has_waits = !recording.waits.is_empty();
    let counts =
        counts.into_iter().map(|(key, count)| (key, if has_waits { count.ns } else { count.number }));
    let lines = lines(&recording.interner, &tree, &roots, counts);
    let mut text = String::new();
    for (line, sum) in lines {
        let count = if has_waits { sum.saturating_add(500) / 1_000 } else { sum };
        // What rounds to nothing would be a box without width.
        if count > 0 {
            let _ = writeln!(text, "{line} {count}");
        }
    }
    text
}

/// The sum of each line. Of keys the root is one of these, and the stack a node of the tree.
pub(crate) fn lines(
    interner: &Interner,
    tree: &FunctionTree,
    roots: &[String],
    sums: impl Iterator<Item = (Key, u64)>,
) -> BTreeMap<String, u64> {
    let labels: Vec<String> =
        tree.functions.iter().map(|function| fold::function_label(interner, function, SPECIAL)).collect();
    let mut lines: BTreeMap<String, u64> = BTreeMap::new();
    for (key, number) in sums {
        let mut line = roots[key.root as usize].clone();
        for element in key.elements(tree.path(key.stack)) {
            line.push(';');
            line.push_str(match element {
                Element::Frame(function) => labels[function as usize].as_str(),
                Element::Marker(marker) => marker,
            });
        }
        // Names that differ only in what has been cleaned away may end up the same.
        let sum = lines.entry(line).or_default();
        *sum = sum.saturating_add(number);
    }
    lines
}

/// The distinct beginnings of lines, and which one each thread has.
pub(crate) fn roots(recording: &Recording, per_worker: bool) -> (Vec<String>, Vec<u32>) {
    let mut roots: Vec<String> = Vec::new();
    let mut known = std::collections::HashMap::new();
    let alone = fold::alone(recording);
    let of_thread = recording.threads.iter().zip(alone).map(|(thread, alone)| {
        let mut root = clean_also(&fold::process_label(recording, thread), SPECIAL).into_owned();
        if per_worker && let Some(process) = recording.processes.get(thread.process.0 as usize) {
            let _ = write!(root, " (pid {})", process.pid);
        }
        if let Some(label) = fold::thread_label(recording, thread, alone) {
            root.push(';');
            root.push_str(&clean_also(&label, SPECIAL));
        }
        *known.entry(root.clone()).or_insert_with(|| {
            roots.push(root);
            (roots.len() - 1) as u32
        })
    });
    let of_thread = of_thread.collect();
    (roots, of_thread)
}
