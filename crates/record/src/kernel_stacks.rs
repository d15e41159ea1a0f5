//! The kernel's own stacks, which go on where those of the interpreter end.

use std::collections::{HashMap, HashSet};

use slip_model::{Frame, FrameId, FrameKind, Interner, StackId};
use slip_probe::{Event, KernelAddr, KernelStack, KernelSymbol, KernelSymbols};

/// Most addresses whose frames are kept. The kernel has some hundred thousand calls, but programs and modules come and go.
const MAX_ADDRS: usize = 65_536;

/// Most stacks that are kept; then they are forgotten, and told again as they are seen.
const MAX_STACKS: usize = 16_384;

/// What the kernel does not name.
const UNKNOWN: &str = "[unknown]";

/// Frames of the kernel by address, and stacks in which threads were blocked by key.
#[derive(Debug, Default)]
pub(crate) struct KernelStacks {
    frames: HashMap<KernelAddr, FrameId>,
    /// Frames, the outermost first.
    stacks: HashMap<u64, Vec<FrameId>>,
}

impl KernelStacks {
    /// Names all addresses in these events that have not been seen yet, in one go.
    pub(crate) fn name(
        &mut self,
        events: &[Event],
        symbols: Option<&KernelSymbols>,
        interner: &mut Interner,
    ) {
        let addrs = events.iter().flat_map(|event| match event {
            Event::Look(look) => &look.kernel[..],
            Event::KernelStack(stack) => &stack.addrs[..],
            Event::Stack(_) | Event::Native(_) | Event::Allocated(_) | Event::Freed(_) => &[],
        });
        let unknown: HashSet<KernelAddr> =
            addrs.copied().filter(|addr| !self.frames.contains_key(addr)).collect();
        if unknown.is_empty() {
            return;
        }
        if self.frames.len() + unknown.len() > MAX_ADDRS {
            self.frames.clear();
        }
        let unknown: Vec<KernelAddr> = unknown.into_iter().collect();
        let named = symbols.and_then(|symbols| symbols.name(&unknown).ok()).unwrap_or_default();
        for addr in unknown {
            self.frames.insert(addr, frame(interner, named.get(&addr)));
        }
    }

    /// Keeps a stack in which a thread was blocked and whose addresses have been named. The keys are those that the kernel has to
    /// tell anew.
    pub(crate) fn insert(&mut self, stack: &KernelStack, interner: &mut Interner) -> Vec<u64> {
        let mut forgotten = Vec::new();
        if self.stacks.len() >= MAX_STACKS {
            forgotten.extend(self.stacks.drain().map(|(key, _)| key));
        }
        let frames = stack.addrs.iter().rev().map(|addr| self.frame(*addr, interner)).collect();
        self.stacks.insert(stack.key, frames);
        forgotten
    }

    /// `stack`, and on it the one of this key; alone if there is none, or it is not known.
    pub(crate) fn push_key(&self, stack: StackId, key: u64, interner: &mut Interner) -> StackId {
        let frames = self.stacks.get(&key).map_or(&[][..], |frames| frames);
        frames.iter().fold(stack, |stack, frame| interner.push(stack, *frame))
    }

    /// `stack`, and on it these frames, the innermost first.
    pub(crate) fn push(&self, stack: StackId, addrs: &[KernelAddr], interner: &mut Interner) -> StackId {
        addrs.iter().rev().fold(stack, |stack, addr| {
            let frame = self.frame(*addr, interner);
            interner.push(stack, frame)
        })
    }

    fn frame(&self, addr: KernelAddr, interner: &mut Interner) -> FrameId {
        self.frames.get(&addr).copied().unwrap_or_else(|| frame(interner, None))
    }
}

fn frame(interner: &mut Interner, symbol: Option<&KernelSymbol>) -> FrameId {
    let name = interner.string(symbol.map_or(UNKNOWN, |symbol| &symbol.name));
    let module = symbol.map_or("", |symbol| &symbol.module);
    let file = if module.is_empty() { String::new() } else { format!("[{module}]") };
    let file = interner.string(&file);
    interner.frame(Frame { kind: FrameKind::Kernel, name, file, ..Frame::default() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(interner: &Interner, stack: StackId) -> Vec<&str> {
        interner.frames_of(stack).map(|id| interner.text(interner.frame_at(id).name)).collect()
    }

    #[test]
    fn kernel_frames_are_inside_of_the_interpreter_s() {
        let (mut interner, mut stacks) = (Interner::new(), KernelStacks::default());
        let name = interner.string("read");
        let function = interner.frame(Frame { name, ..Frame::default() });
        let outer = interner.push(StackId(0), function);
        for (addr, name) in [(1, "vfs_read"), (2, "ksys_read")] {
            let symbol = KernelSymbol { name: name.into(), ..KernelSymbol::default() };
            stacks.frames.insert(KernelAddr(addr), frame(&mut interner, Some(&symbol)));
        }
        let stack = stacks.push(outer, &[KernelAddr(1), KernelAddr(2)], &mut interner);
        assert_eq!(names(&interner, stack), ["vfs_read", "ksys_read", "read"]);
        // One that was told by its key is the same.
        let told = KernelStack { key: 8, addrs: vec![KernelAddr(1), KernelAddr(2)] };
        stacks.insert(&told, &mut interner);
        assert_eq!(stacks.push_key(outer, 8, &mut interner), stack);
        assert_eq!(stacks.push_key(outer, 10, &mut interner), outer);
        let unknown = stacks.push(outer, &[KernelAddr(3)], &mut interner);
        assert_eq!(names(&interner, unknown), [UNKNOWN, "read"]);
    }

    #[test]
    fn modules_are_in_the_place_of_a_file() {
        let mut interner = Interner::new();
        let symbol = KernelSymbol { name: "nft_do_chain".into(), module: "nf_tables".into() };
        let id = frame(&mut interner, Some(&symbol));
        assert_eq!(interner.text(interner.frame_at(id).file), "[nf_tables]");
    }

    #[test]
    fn too_many_stacks_are_told_anew() {
        let (mut interner, mut stacks) = (Interner::new(), KernelStacks::default());
        let mut insert = |key| stacks.insert(&KernelStack { key, addrs: Vec::new() }, &mut interner);
        for key in 0..MAX_STACKS as u64 {
            assert!(insert(key).is_empty());
        }
        let forgotten = insert(1 << 40);
        assert_eq!((forgotten.len(), stacks.stacks.len()), (MAX_STACKS, 1));
    }
}
