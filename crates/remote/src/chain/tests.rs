use std::cell::RefCell;
use std::collections::HashSet;

use super::*;

const STACK: u64 = 0x10_0000;
const ANCHOR: u64 = 0x5000;
/// Bytes of a frame: function, caller's frame, instruction pointer, one local.
const FRAME: u64 = 32;

/// What the begin of a piece costs (0.2 us), in bytes that could be copied meanwhile.
const PIECE_COST_BYTES: usize = 2_000;

/// A target that runs while it is read: after every few bytes copied it calls or returns.
struct Runner {
    state: RefCell<RunnerState>,
    /// One step of the target is taken for this many bytes; 0 makes it stand still.
    bytes_per_step: usize,
    /// A function that returns is taken out of its frame.
    clears: bool,
}

struct RunnerState {
    stack: Vec<u8>,
    /// Functions on the stack, outermost first.
    functions: Vec<u64>,
    random: u64,
    copied: usize,
    existed: HashSet<Vec<u64>>,
}

impl RunnerState {
    fn random(&mut self, below: u64) -> u64 {
        self.random =
            self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.random >> 33) % below
    }

    fn current(&self) -> u64 {
        match self.functions.len() {
            0 => 0,
            depth => STACK + (depth as u64 - 1) * FRAME,
        }
    }

    fn call(&mut self) {
        let at = self.functions.len() * FRAME as usize;
        // Which functions may be called depends on the caller, so that a stack that never was can be told.
        let function = self.functions.last().unwrap_or(&1) * 3 + self.random(3);
        let caller = self.current();
        self.stack[at..at + 8].copy_from_slice(&function.to_le_bytes());
        self.stack[at + 8..at + 16].copy_from_slice(&caller.to_le_bytes());
        self.stack[at + 16..at + 24].fill(0);
        if let Some(instruction) = at.checked_sub(FRAME as usize - 16) {
            let call = 1 + self.random(5);
            self.stack[instruction..instruction + 8].copy_from_slice(&call.to_le_bytes());
        }
        self.functions.push(function);
        self.existed.insert(self.functions.clone());
    }

    fn step(&mut self, clears: bool) {
        let depth = self.functions.len();
        if depth > 1 && (depth > 12 || self.random(2) == 0) {
            self.functions.pop();
            if clears {
                let over = (depth - 1) * FRAME as usize;
                self.stack[over..over + 8].fill(0);
            }
            let instruction = (depth - 2) * FRAME as usize + 16;
            self.stack[instruction..instruction + 8].fill(0);
            self.existed.insert(self.functions.clone());
        } else {
            self.call();
        }
    }
}

impl Runner {
    fn new(seed: u64, bytes_per_step: usize) -> Self {
        let mut state = RunnerState {
            stack: vec![0; 0x1000],
            functions: Vec::new(),
            random: seed,
            copied: 0,
            existed: HashSet::new(),
        };
        for _ in 0..6 {
            state.call();
        }
        Self { state: RefCell::new(state), bytes_per_step, clears: false }
    }
}

impl Memory for Runner {
    fn read(&self, addr: RemoteAddr, buf: &mut [u8]) -> Result<(), ReadError> {
        let mut state = self.state.borrow_mut();
        if self.bytes_per_step > 0 {
            // Finding the page takes the kernel longer than copying from it.
            state.copied += PIECE_COST_BYTES;
            while state.copied >= self.bytes_per_step {
                state.copied -= self.bytes_per_step;
                state.step(self.clears);
            }
        }
        let unmapped = ReadError::Unmapped { addr, len: buf.len() };
        // The kernel copies eight bytes at a time at least.
        for (nth, word) in buf.chunks_mut(8).enumerate() {
            let at = addr.0 + nth as u64 * 8;
            let value = if at == ANCHOR {
                state.current()
            } else {
                let from = usize::try_from(at.wrapping_sub(STACK)).unwrap();
                let bytes = state.stack.get(from..from + 8).ok_or_else(|| unmapped.clone())?;
                u64::from_le_bytes(bytes.try_into().unwrap())
            };
            word.copy_from_slice(&value.to_le_bytes()[..word.len()]);
            state.copied += 8;
            if self.bytes_per_step > 0 && state.copied >= self.bytes_per_step {
                state.copied = 0;
                state.step(self.clears);
            }
        }
        Ok(())
    }
}

/// Knows where the innermost frame is; `speaks` if its frames say whether they wait: their instruction is not 0 then.
struct FixedAnchor {
    speaks: bool,
}

impl Anchor for FixedAnchor {
    fn calling(&self, _: &dyn Fn(RemoteAddr, &mut [u8]) -> bool, caller: &[u8], _: &[u8]) -> Calling {
        match caller[16..24] {
            _ if !self.speaks => Calling::Unknown,
            [0, ..] => Calling::No,
            _ => Calling::Yes,
        }
    }

    fn ranges(&self, out: &mut Vec<Range>) {
        out.push(Range::new(RemoteAddr(ANCHOR), 8));
    }

    fn decode(&mut self, bytes: &[u8]) -> Option<Head> {
        let current = RemoteAddr(u64::from_le_bytes(bytes.try_into().unwrap()));
        Some(Head { current, limit: RemoteAddr(STACK + 0x1000) })
    }
}

fn reader() -> ChainReader {
    let function = 0..8;
    ChainReader::new(FrameLayout { len: 24, previous: 8, identity: vec![function], instruction: 16..24 })
}

fn functions(chain: &Chain) -> Vec<u64> {
    let mut functions: Vec<u64> =
        chain.bytes.chunks(24).map(|frame| u64::from_le_bytes(frame[..8].try_into().unwrap())).collect();
    functions.reverse();
    functions
}

#[test]
fn a_target_at_rest_reads_clean_in_one_call() {
    let target = Runner::new(1, 0);
    let (mut reader, mut chain) = (reader(), Chain::default());
    for _ in 0..3 {
        assert_eq!(reader.read(&target, &mut FixedAnchor { speaks: false }, &mut chain), Ok(Outcome::Clean));
        assert_eq!(functions(&chain), target.state.borrow().functions);
        assert!(!chain.truncated);
    }
    target.state.borrow_mut().functions.clear();
    assert_eq!(reader.read(&target, &mut FixedAnchor { speaks: false }, &mut chain), Ok(Outcome::Clean));
    assert!(chain.addrs.is_empty() && chain.bytes.is_empty());
}

#[test]
fn a_stack_that_is_shown_existed() {
    // From a call or return per 30 ns, which no interpreter reaches, to one per 3 us.
    let speeds = [300, 1_000, 3_000, 10_000, 30_000];
    for (bytes_per_step, speaks) in speeds.into_iter().flat_map(|speed| [(speed, false), (speed, true)]) {
        let mut counts = [0_u32; 3];
        let mut invented = 0;
        // One in a thousand is invented at the first speed: fewer tell nothing.
        for seed in 0..1_500 {
            let target = Runner::new(seed, bytes_per_step);
            let (mut reader, mut chain) = (reader(), Chain::default());
            for _ in 0..20 {
                let outcome = reader.read(&target, &mut FixedAnchor { speaks }, &mut chain).unwrap();
                counts[outcome as usize] += 1;
                if outcome != Outcome::Torn && !target.state.borrow().existed.contains(&functions(&chain)) {
                    invented += 1;
                }
            }
        }
        let shown = counts[Outcome::Clean as usize] + counts[Outcome::Repaired as usize];
        println!(
            "a step per {bytes_per_step} bytes, speaks {speaks}: clean, repaired, torn {counts:?}, invented {invented}"
        );
        // Only a target that goes there and back between two copies can fool us, and only by chance.
        assert!(invented * 500 <= shown, "{invented} of {shown} never existed");
    }
}

/// Its frames say as well whether their function has returned: it is taken out of them then.
struct TellingAnchor(FixedAnchor);

impl Anchor for TellingAnchor {
    fn ranges(&self, out: &mut Vec<Range>) {
        self.0.ranges(out);
    }

    fn decode(&mut self, bytes: &[u8]) -> Option<Head> {
        self.0.decode(bytes)
    }

    fn chunk(&self) -> Option<(RemoteAddr, RemoteAddr)> {
        Some((RemoteAddr(STACK), RemoteAddr(STACK + 0x1000)))
    }

    fn is_over(&self, frame: &[u8]) -> Option<bool> {
        Some(frame.iter().take(8).all(|byte| *byte == 0))
    }

    fn is_called(&self, frame: &[u8]) -> bool {
        self.is_over(frame) == Some(false)
    }

    fn calling(&self, read: &dyn Fn(RemoteAddr, &mut [u8]) -> bool, caller: &[u8], callee: &[u8]) -> Calling {
        if self.is_over(callee) == Some(true) { Calling::No } else { self.0.calling(read, caller, callee) }
    }
}

#[test]
fn the_stack_of_the_first_copy_existed_and_is_hardly_ever_torn() {
    for bytes_per_step in [1_000, 3_000, 10_000, 30_000] {
        let (mut invented, mut torn, mut looks) = (0, 0, 0);
        for seed in 0..500 {
            let mut target = Runner::new(seed, bytes_per_step);
            target.clears = true;
            let (mut reader, mut chain) = (reader(), Chain::default());
            let mut anchor = TellingAnchor(FixedAnchor { speaks: true });
            for _ in 0..20 {
                let outcome = reader.read(&target, &mut anchor, &mut chain).unwrap();
                looks += 1;
                torn += u32::from(outcome == Outcome::Torn);
                let existed = target.state.borrow().existed.contains(&functions(&chain));
                invented += u32::from(outcome != Outcome::Torn && !existed);
            }
        }
        println!("a step per {bytes_per_step} bytes: {invented} invented, {torn} torn of {looks}");
        assert!(invented * 500 <= looks, "{invented} of {looks} never existed");
        assert!(torn * 20 <= looks, "{torn} of {looks} are torn");
    }
}

/// Cannot be read any more.
struct Gone;

impl Memory for Gone {
    fn read(&self, _: RemoteAddr, _: &mut [u8]) -> Result<(), ReadError> {
        Err(ReadError::Gone { pid: 0 })
    }
}

#[test]
fn a_copy_that_is_judged_later_shows_what_was_when_it_was_made() {
    for bytes_per_step in [1_000, 3_000, 10_000, 30_000] {
        let (mut invented, mut torn, mut looks) = (0, 0, 0);
        for seed in 0..200 {
            let mut target = Runner::new(seed, bytes_per_step);
            target.clears = true;
            let (mut reader, mut chain, mut ranges) = (reader(), Chain::default(), Vec::new());
            let mut anchor = TellingAnchor(FixedAnchor { speaks: true });
            for _ in 0..10 {
                reader.read(&target, &mut anchor, &mut chain).unwrap();
                ranges.clear();
                if !reader.plan_copy(&anchor, &mut ranges) {
                    continue;
                }
                let copy = |_| {
                    let mut bytes = vec![0; total_len(&ranges)];
                    assert_eq!(target.read_ranges(&ranges, &mut bytes), Ok(ranges.len()));
                    (bytes, target.state.borrow().existed.clone())
                };
                let copies: Vec<_> = (0..4).map(copy).collect();
                for (mut bytes, existed) in copies {
                    let head = RemoteAddr(u64::from_le_bytes(bytes[bytes.len() - 8..].try_into().unwrap()));
                    let outcome = reader.read_copied(&Gone, &mut anchor, &mut chain, &mut bytes).unwrap();
                    // One that was not planned is not looked for.
                    looks += u32::from(reader.has_planned(head));
                    torn += u32::from(reader.has_planned(head) && outcome == Outcome::Torn);
                    assert_ne!(outcome, Outcome::Repaired);
                    invented += u32::from(outcome == Outcome::Clean && !existed.contains(&functions(&chain)));
                }
            }
        }
        println!("a step per {bytes_per_step} bytes: {invented} invented, {torn} torn of {looks}");
        assert!(looks > 1_000 && invented * 500 <= looks, "{invented} of {looks} never existed");
        // What a second copy would settle is torn.
        assert!(torn * 7 <= looks, "{torn} of {looks} are torn");
    }
}

#[test]
fn a_copy_that_is_too_short_is_torn() {
    let target = Runner::new(1, 0);
    let (mut reader, mut chain, mut ranges) = (reader(), Chain::default(), Vec::new());
    let mut anchor = TellingAnchor(FixedAnchor { speaks: true });
    for _ in 0..2 {
        reader.read(&target, &mut anchor, &mut chain).unwrap();
    }
    assert!(reader.plan_copy(&anchor, &mut ranges));
    let mut bytes = vec![0; total_len(&ranges) - 1];
    assert_eq!(reader.read_copied(&Gone, &mut anchor, &mut chain, &mut bytes), Ok(Outcome::Torn));
    assert!(chain.addrs.is_empty());
}

#[test]
fn a_callee_that_has_returned_before_the_anchor_was_read_is_found() {
    let target = Runner::new(1, 0);
    let (mut reader, mut chain) = (reader(), Chain::default());
    let mut anchor = TellingAnchor(FixedAnchor { speaks: true });
    let mut read = |target: &Runner| {
        assert_eq!(reader.read(target, &mut anchor, &mut chain), Ok(Outcome::Clean));
        functions(&chain)
    };
    let all = target.state.borrow().functions.clone();
    assert_eq!(read(&target), all);
    // The anchor says that two of them are over, their frames that they were not when they were copied.
    target.state.borrow_mut().functions.truncate(all.len() - 2);
    assert_eq!(read(&target), all);
    // One of them says so itself.
    let last = (all.len() - 1) * FRAME as usize;
    target.state.borrow_mut().stack[last..last + 8].fill(0);
    assert_eq!(read(&target), all[..all.len() - 1]);
}

#[test]
fn what_is_left_over_in_both_copies_is_not_shown() {
    let target = Runner::new(1, 0);
    let (mut reader, mut chain) = (reader(), Chain::default());
    let mut read = |speaks| {
        let outcome = reader.read(&target, &mut FixedAnchor { speaks }, &mut chain).unwrap();
        (outcome, functions(&chain))
    };
    let mut all = target.state.borrow().functions.clone();
    assert_eq!(read(true), (Outcome::Clean, all.clone()));
    // The caller of the innermost one runs in both copies, and only the anchor saw a call between them.
    let caller = (all.len() - 2) * FRAME as usize + 16;
    target.state.borrow_mut().stack[caller..caller + 8].fill(0);
    assert_eq!(read(false), (Outcome::Clean, all.clone()), "where frames do not say so nobody knows");
    all.pop();
    assert_eq!(read(true), (Outcome::Repaired, all));
}

#[test]
fn a_loop_and_a_wild_pointer_end() {
    let target = Runner::new(1, 0);
    let (mut reader, mut chain) = (reader(), Chain::default());
    let innermost = target.state.borrow().current();
    target.state.borrow_mut().stack[8..16].copy_from_slice(&innermost.to_le_bytes());
    assert_eq!(reader.read(&target, &mut FixedAnchor { speaks: false }, &mut chain), Ok(Outcome::Torn));
    target.state.borrow_mut().stack[8..16].copy_from_slice(&u64::MAX.to_le_bytes());
    assert_eq!(reader.read(&target, &mut FixedAnchor { speaks: false }, &mut chain), Ok(Outcome::Torn));
    assert!(chain.addrs.is_empty());
}

/// A function that C has called by way of what stands for the interpreter, and that has returned when the anchor is read.
struct ThroughC {
    is_shim_there: bool,
}

/// What stands for the interpreter and called the first function, further out in the C stack.
const ENTRY: u64 = SHIM + 0x800;

impl ThroughC {
    const CALLER: u64 = STACK + FRAME;
    const CALLEE: u64 = STACK + 2 * FRAME;

    fn word(&self, addr: u64) -> u64 {
        let (function, previous, instruction) = match addr & !0x1f {
            ENTRY => (SHIM, 0, 0),
            STACK => (1, ENTRY, 1),
            Self::CALLER => (2, STACK, 1),
            SHIM if self.is_shim_there => (SHIM, Self::CALLER, 0),
            Self::CALLEE => (3, SHIM, 0),
            ANCHOR => (Self::CALLER, 0, 0),
            _ => (0, 0, 0),
        };
        [function, previous, instruction, 0][(addr & 0x1f) as usize / 8]
    }
}

impl Memory for ThroughC {
    fn read(&self, addr: RemoteAddr, buf: &mut [u8]) -> Result<(), ReadError> {
        for (nth, word) in buf.chunks_mut(8).enumerate() {
            word.copy_from_slice(&self.word(addr.0 + nth as u64 * 8).to_le_bytes()[..word.len()]);
        }
        Ok(())
    }
}

struct ThroughCAnchor(TellingAnchor);

impl Anchor for ThroughCAnchor {
    fn ranges(&self, out: &mut Vec<Range>) {
        self.0.ranges(out);
    }

    fn decode(&mut self, bytes: &[u8]) -> Option<Head> {
        self.0.decode(bytes)
    }

    fn chunk(&self) -> Option<(RemoteAddr, RemoteAddr)> {
        self.0.chunk()
    }

    fn is_shim(&self, frame: &[u8]) -> bool {
        frame[..8] == SHIM.to_le_bytes()
    }

    fn is_over(&self, frame: &[u8]) -> Option<bool> {
        self.0.is_over(frame)
    }

    fn is_called(&self, frame: &[u8]) -> bool {
        self.0.is_called(frame)
    }

    fn calling(&self, read: &dyn Fn(RemoteAddr, &mut [u8]) -> bool, caller: &[u8], callee: &[u8]) -> Calling {
        if self.is_shim(caller) { Calling::Yes } else { self.0.calling(read, caller, callee) }
    }
}

#[test]
fn a_way_through_c_is_found_that_the_anchor_never_sees() {
    let (mut reader, mut chain) = (reader(), Chain::default());
    let mut anchor = ThroughCAnchor(TellingAnchor(FixedAnchor { speaks: true }));
    let mut read = |is_shim_there| {
        assert_eq!(reader.read(&ThroughC { is_shim_there }, &mut anchor, &mut chain), Ok(Outcome::Clean));
        functions(&chain)
    };
    let (caller, callee) = ([SHIM, 1, 2].as_slice(), [SHIM, 1, 2, SHIM, 3].as_slice());
    assert_eq!(read(true), caller, "it is not known yet where frames lie");
    assert_eq!(read(true), caller, "where the callee says that its caller is, nothing was copied");
    assert_eq!(read(true), callee);
    assert_eq!(read(false), callee, "what stands for the interpreter is remembered");
}

/// A function, what stands for the interpreter, and a generator that is linked only while it runs.
const FUNCTION: u64 = 0x1000;
const SHIM: u64 = 0x9000;
const GENERATOR: u64 = 0x7000;

/// A target whose generator is linked in each copy of a look as it is told, and whose shim is overwritten otherwise.
struct Blinking {
    current: u64,
    linked: [bool; 2],
    looks: RefCell<usize>,
}

impl Blinking {
    fn word(&self, addr: u64, linked: bool) -> u64 {
        match addr {
            ANCHOR => self.current,
            FUNCTION | GENERATOR => addr,
            SHIM if linked => addr,
            0x9008 if linked => FUNCTION,
            0x7008 if linked => SHIM,
            SHIM..0x9018 => 0xdead,
            _ => 0,
        }
    }
}

impl Memory for Blinking {
    fn read(&self, addr: RemoteAddr, buf: &mut [u8]) -> Result<(), ReadError> {
        self.read_ranges(&[Range::new(addr, buf.len())], buf).map(|_| ())
    }

    fn read_ranges(&self, ranges: &[Range], buf: &mut [u8]) -> Result<usize, ReadError> {
        *self.looks.borrow_mut() += 1;
        let (mut rest, mut after) = (buf, false);
        for range in ranges {
            let (bytes, tail) = rest.split_at_mut(range.len);
            rest = tail;
            after |= range.addr.0 == ANCHOR;
            for (nth, word) in bytes.chunks_mut(8).enumerate() {
                let value = self.word(range.addr.0 + nth as u64 * 8, self.linked[usize::from(after)]);
                word.copy_from_slice(&value.to_le_bytes());
            }
        }
        Ok(ranges.len())
    }
}

struct BlinkingAnchor;

impl Anchor for BlinkingAnchor {
    fn ranges(&self, out: &mut Vec<Range>) {
        out.push(Range::new(RemoteAddr(ANCHOR), 8));
    }

    fn decode(&mut self, bytes: &[u8]) -> Option<Head> {
        let current = RemoteAddr(u64::from_le_bytes(bytes.try_into().unwrap()));
        Some(Head { current, limit: RemoteAddr::NULL })
    }

    fn is_outermost(
        &self,
        _: &dyn Fn(RemoteAddr, &mut [u8]) -> bool,
        _: Head,
        addr: RemoteAddr,
        _: (&[u8], &[u8]),
    ) -> bool {
        addr.0 == FUNCTION
    }

    fn is_shim(&self, frame: &[u8]) -> bool {
        frame[..8] == SHIM.to_le_bytes()
    }
}

#[test]
fn a_generator_is_shown_if_it_runs_before_and_after() {
    let (mut reader, mut chain) = (reader(), Chain::default());
    let mut read = |linked| {
        let target = Blinking { current: GENERATOR, linked, looks: RefCell::default() };
        let outcome = reader.read(&target, &mut BlinkingAnchor, &mut chain).unwrap();
        (outcome, functions(&chain))
    };
    assert_eq!(read([true, true]), (Outcome::Clean, vec![FUNCTION, SHIM, GENERATOR]));
    // Another function may have been in its caller's place while it ran.
    for linked in [[true, false], [false, true], [false, false]] {
        assert_eq!(read(linked), (Outcome::Torn, vec![]), "{linked:?}");
    }
    assert_eq!(read([true, true]), (Outcome::Clean, vec![FUNCTION, SHIM, GENERATOR]));
}

#[test]
fn a_generator_is_expected_for_some_samples_after_it_has_run() {
    let (mut reader, mut chain) = (reader(), Chain::default());
    let mut read = |current| {
        let target = Blinking { current, linked: [true; 2], looks: RefCell::default() };
        assert_eq!(reader.read(&target, &mut BlinkingAnchor, &mut chain), Ok(Outcome::Clean));
        target.looks.into_inner()
    };
    read(GENERATOR);
    assert_eq!([FUNCTION, FUNCTION, FUNCTION, GENERATOR].map(&mut read), [1; 4]);
    for _ in 0..=MAX_AGE {
        assert_eq!(read(FUNCTION), 1);
    }
    assert!(read(GENERATOR) > 1, "it is forgotten at last");
}

/// A thread whose outermost frame is always the same.
#[derive(Default)]
struct WithOutermost {
    outermost: Vec<u8>,
}

impl Anchor for WithOutermost {
    fn ranges(&self, out: &mut Vec<Range>) {
        out.push(Range::new(RemoteAddr(ANCHOR), 8));
    }

    fn standing_frame(&self) -> Option<(RemoteAddr, &[u8])> {
        (!self.outermost.is_empty()).then_some((RemoteAddr(ANCHOR + 0x40), &self.outermost))
    }

    fn note_outermost(&mut self, addr: RemoteAddr, frame: &[u8]) {
        assert_eq!(addr, RemoteAddr(ANCHOR + 0x40));
        self.outermost = frame.to_vec();
    }

    fn decode(&mut self, bytes: &[u8]) -> Option<Head> {
        let current = RemoteAddr(u64::from_le_bytes(bytes[..8].try_into().unwrap()));
        Some(Head { current, limit: RemoteAddr::NULL })
    }
}

/// One frame, and the outermost one; notes what is copied.
struct TwoFrames(RefCell<Vec<Vec<Range>>>);

impl Memory for TwoFrames {
    fn read(&self, addr: RemoteAddr, buf: &mut [u8]) -> Result<(), ReadError> {
        for (nth, word) in buf.chunks_mut(8).enumerate() {
            let value: u64 = match addr.0 + nth as u64 * 8 {
                ANCHOR => FUNCTION,
                FUNCTION => FUNCTION,
                0x1008 => ANCHOR + 0x40,
                0x5040 => SHIM,
                _ => 0,
            };
            word.copy_from_slice(&value.to_le_bytes()[..word.len()]);
        }
        Ok(())
    }

    fn read_ranges(&self, ranges: &[Range], buf: &mut [u8]) -> Result<usize, ReadError> {
        self.0.borrow_mut().push(ranges.to_vec());
        let mut rest = buf;
        for range in ranges {
            let (bytes, tail) = rest.split_at_mut(range.len);
            self.read(range.addr, bytes)?;
            rest = tail;
        }
        Ok(ranges.len())
    }
}

#[test]
fn an_outermost_frame_that_never_changes_is_copied_once() {
    let target = TwoFrames(RefCell::default());
    let (mut reader, mut chain) = (reader(), Chain::default());
    let mut anchor = WithOutermost::default();
    for _ in 0..3 {
        assert_eq!(reader.read(&target, &mut anchor, &mut chain), Ok(Outcome::Clean));
        assert_eq!(functions(&chain), [SHIM, FUNCTION]);
        assert_eq!(chain.addrs, [RemoteAddr(FUNCTION), RemoteAddr(ANCHOR + 0x40)]);
    }
    let frame = Range::new(RemoteAddr(FUNCTION), 24);
    let last = target.0.borrow().last().cloned();
    assert_eq!(last, Some(vec![frame, Range::new(RemoteAddr(ANCHOR), 8), frame]));
}

/// A target that is stopped while a call begins: its frame is the innermost one, but its caller does not say yet that it waits.
struct Stopped(Runner);

impl Memory for Stopped {
    fn read(&self, addr: RemoteAddr, buf: &mut [u8]) -> Result<(), ReadError> {
        self.0.read(addr, buf)
    }

    fn stands_still(&self) -> bool {
        true
    }
}

/// As `FixedAnchor`, which speaks, but what it tells is the innermost frame at every moment.
struct ToldAnchor(FixedAnchor);

impl Anchor for ToldAnchor {
    fn calling(&self, read: &dyn Fn(RemoteAddr, &mut [u8]) -> bool, caller: &[u8], callee: &[u8]) -> Calling {
        self.0.calling(read, caller, callee)
    }

    fn names_innermost(&self) -> bool {
        true
    }

    fn ranges(&self, out: &mut Vec<Range>) {
        self.0.ranges(out);
    }

    fn decode(&mut self, bytes: &[u8]) -> Option<Head> {
        self.0.decode(bytes)
    }
}

#[test]
fn what_a_stopped_target_tells_is_not_judged_by_its_frames() {
    let runner = Runner::new(1, 0);
    let all = runner.state.borrow().functions.clone();
    let caller = (all.len() - 2) * FRAME as usize + 16;
    runner.state.borrow_mut().stack[caller..caller + 8].fill(0);
    let (mut reader, mut chain) = (reader(), Chain::default());
    let mut anchor = ToldAnchor(FixedAnchor { speaks: true });
    // Of one that runs the innermost frame may be left over.
    let _ = reader.read(&runner, &mut anchor, &mut chain);
    assert_ne!(functions(&chain), all);
    for _ in 0..3 {
        assert_eq!(reader.read(&Stopped(Runner::new(1, 0)), &mut anchor, &mut chain), Ok(Outcome::Clean));
        assert_eq!(functions(&chain), all);
    }
    assert_eq!(reader.read(&Stopped(runner), &mut anchor, &mut chain), Ok(Outcome::Clean));
    assert_eq!(functions(&chain), all);
}
