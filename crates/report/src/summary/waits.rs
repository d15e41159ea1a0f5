//! What threads waited for.

use std::cmp::Reverse;
use std::collections::HashMap;

use slip_model::{FrameId, Interner, StackId, State, WaitReason};

use super::FunctionTable;
use crate::piece::Piece;

/// What threads waited for. Empty if the sampler does not see waits.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WaitSummary {
    /// Waits in requests and in code.
    pub count: u64,
    /// How long they took together.
    pub total_ns: u64,
    /// The others, of workers between two requests.
    pub idle_count: u64,
    /// How long those took together.
    pub idle_ns: u64,
    /// The reasons of those that are not idle, that with the most time first.
    pub reasons: Vec<ReasonSummary>,
    /// Those in code, by stack and reason, sorted.
    pub stacks: Vec<StackWaits>,
}

/// The waits for one reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReasonSummary {
    /// What for.
    pub reason: WaitReason,
    /// Number of waits.
    pub count: u64,
    /// How long they took together.
    pub total_ns: u64,
    /// A frame of the function that was innermost for most of that time; `None` if no function is known.
    pub most_in: Option<FrameId>,
}

/// The waits with one stack for one reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StackWaits {
    /// The stack.
    pub stack: StackId,
    /// What for.
    pub reason: WaitReason,
    /// Number of waits.
    pub count: u64,
    /// How long they took together.
    pub total_ns: u64,
}

impl WaitSummary {
    /// The waits with this stack, by reason.
    pub fn of_stack(&self, stack: StackId) -> &[StackWaits] {
        let from = self.stacks.partition_point(|waits| waits.stack < stack);
        let length = self.stacks[from..].partition_point(|waits| waits.stack == stack);
        &self.stacks[from..from + length]
    }
}

/// Number and time of waits.
type Sum = (u64, u64);

fn add(sum: &mut Sum, (count, ns): Sum) {
    *sum = (sum.0.saturating_add(count), sum.1.saturating_add(ns));
}

#[derive(Debug, Default)]
pub(super) struct Scan {
    idle: Sum,
    engine: HashMap<WaitReason, Sum>,
    stacks: HashMap<(StackId, WaitReason), Sum>,
}

impl Scan {
    /// Counts waits; samples are passed over. `stack` is known, or 0.
    pub(super) fn take(&mut self, piece: &Piece, stack: StackId) {
        let Some(reason) = piece.reason else { return };
        let sum = if piece.sample.state.has(State::IDLE) {
            &mut self.idle
        } else if piece.sample.state.has(State::ENGINE) {
            self.engine.entry(reason).or_default()
        } else {
            self.stacks.entry((stack, reason)).or_default()
        };
        add(sum, (piece.count, piece.ns));
    }

    pub(super) fn finish(self, interner: &Interner) -> WaitSummary {
        let (idle_count, idle_ns) = self.idle;
        let stack = |((stack, reason), (count, total_ns))| StackWaits { stack, reason, count, total_ns };
        let mut stacks: Vec<StackWaits> = self.stacks.into_iter().map(stack).collect();
        stacks.sort_unstable_by_key(|waits| (waits.stack, waits.reason));

        let mut sums = self.engine;
        let mut table = FunctionTable::new(interner);
        // By reason and function: the time, and the frame of the first stack that ends in it.
        let mut functions: HashMap<(WaitReason, usize), (u64, FrameId)> = HashMap::new();
        for waits in &stacks {
            add(sums.entry(waits.reason).or_default(), (waits.count, waits.total_ns));
            if waits.stack.0 != 0
                && let Some(node) = interner.node(waits.stack)
            {
                let of = functions.entry((waits.reason, table.index(node.frame)));
                let (ns, _) = of.or_insert((0, node.frame));
                *ns = ns.saturating_add(waits.total_ns);
            }
        }
        let most_in = |reason: WaitReason| {
            let of_reason = functions.iter().filter(|((of, _), _)| *of == reason).map(|(_, most)| *most);
            // The smaller number decides among equals, so that the order of the map does not.
            of_reason.max_by_key(|(ns, frame)| (*ns, Reverse(*frame))).map(|(_, frame)| frame)
        };
        let mut reasons: Vec<ReasonSummary> = sums
            .iter()
            .map(|(reason, (count, total_ns))| ReasonSummary {
                reason: *reason,
                count: *count,
                total_ns: *total_ns,
                most_in: most_in(*reason),
            })
            .collect();
        reasons.sort_unstable_by_key(|of| (Reverse((of.total_ns, of.count)), of.reason));
        let mut all = (0, 0);
        reasons.iter().for_each(|of| add(&mut all, (of.count, of.total_ns)));
        WaitSummary { count: all.0, total_ns: all.1, idle_count, idle_ns, reasons, stacks }
    }
}
