//! The walk from the innermost function of a stack outwards.

use gimli::{
    CfaRule, Encoding, Evaluation, EvaluationResult, Expression, Location, Reader, Register, RegisterRule,
    UnwindContext, UnwindTableRow, Value, X86_64,
};

use crate::Elf;
use crate::tables::Section;

/// Deepest stack that is followed.
const MAX_FRAMES: usize = 128;

/// Longest calculation of an address: tables have a few steps, for the linker's stubs.
const MAX_STEPS: u32 = 100;

/// General registers, and the address that is returned to.
const REGISTERS: usize = 17;

/// What a function has to leave as it was: `rbx`, `rbp`, `r12` to `r15`.
const KEPT: [usize; 6] = [3, 6, 12, 13, 14, 15];

/// The registers of a thread that tables go by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Registers {
    /// `rip`
    pub ip: u64,
    /// `rsp`
    pub sp: u64,
    /// `rbx`
    pub bx: u64,
    /// `rbp`
    pub bp: u64,
    /// `r12` to `r15`
    pub r12_to_15: [u64; 4],
}

/// A copy of a stack, from its innermost byte on.
#[derive(Clone, Copy, Debug)]
pub struct Stack<'a> {
    /// The address of its first byte.
    pub begin: u64,
    /// What is there.
    pub bytes: &'a [u8],
}

impl Stack<'_> {
    fn read(&self, addr: u64) -> Option<u64> {
        let at = usize::try_from(addr.checked_sub(self.begin)?).ok()?;
        Some(u64::from_le_bytes(*self.bytes.get(at..)?.first_chunk()?))
    }
}

/// Where the code of a process is.
pub trait Code {
    /// What code there is at this address; `None` for none.
    fn at(&self, addr: u64) -> Option<Mapped<'_>>;
}

/// Code that a process has mapped.
#[derive(Clone, Copy, Debug)]
pub enum Mapped<'a> {
    /// Of this file, to whose addresses `bias` is to be added.
    File {
        /// The file.
        elf: &'a Elf,
        /// May wrap around.
        bias: u64,
    },
    /// Of no file, or of one that says nothing of it.
    Bare,
}

/// Why a walk has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// At the outermost function.
    Outermost,
    /// The copy of the stack ends before that.
    Cut,
    /// What is returned to is no code, or no table says how it is unwound.
    Lost,
    /// There are more frames than are followed.
    TooDeep,
}

/// The frames of a stack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unwound {
    /// An address within each function, innermost first: where it calls the one before.
    pub addrs: Vec<u64>,
    /// Why there are no more.
    pub end: End,
}

/// Walks a stack.
pub fn unwind(code: &impl Code, registers: &Registers, stack: &Stack<'_>) -> Unwound {
    let mut context = UnwindContext::new();
    let mut frame = Frame::of(registers);
    let mut addrs = Vec::new();
    let end = loop {
        let Some(found) = code.at(frame.addr()) else { break End::Lost };
        if addrs.len() == MAX_FRAMES {
            break End::TooDeep;
        }
        addrs.push(frame.addr());
        let caller = match found {
            Mapped::File { elf, bias } => frame.caller(elf, bias, &mut context, stack),
            Mapped::Bare => frame.caller_by_pointer(stack),
        };
        match caller {
            Ok(caller) => frame = caller,
            Err(end) => break end,
        }
    };
    Unwound { addrs, end }
}

/// What is known of the registers where a function calls the one before.
#[derive(Clone, Copy, Debug)]
struct Frame {
    registers: [Option<u64>; REGISTERS],
    ip: u64,
    sp: u64,
    /// The instruction at `ip` is the next one of this function: it has called nobody.
    is_interrupted: bool,
}

impl Frame {
    fn of(registers: &Registers) -> Self {
        let mut of = [None; REGISTERS];
        let [r12, r13, r14, r15] = registers.r12_to_15;
        let known = [registers.bx, registers.bp, r12, r13, r14, r15];
        for (number, value) in KEPT.into_iter().zip(known) {
            of[number] = Some(value);
        }
        of[usize::from(X86_64::RSP.0)] = Some(registers.sp);
        of[usize::from(X86_64::RA.0)] = Some(registers.ip);
        Self { registers: of, ip: registers.ip, sp: registers.sp, is_interrupted: true }
    }

    /// An address in the instruction that it executes.
    fn addr(&self) -> u64 {
        // What is returned to is behind the call, and may be another function.
        self.ip.wrapping_sub(u64::from(!self.is_interrupted))
    }

    fn register(&self, number: Register) -> Option<u64> {
        self.registers.get(usize::from(number.0)).copied().flatten()
    }

    /// The function that has called this one, by the tables of its file.
    fn caller(
        &self,
        elf: &Elf,
        bias: u64,
        context: &mut UnwindContext<usize>,
        stack: &Stack<'_>,
    ) -> Result<Self, End> {
        let Some(tables) = &elf.tables else { return self.caller_by_pointer(stack) };
        let by_row = tables.row(self.addr().wrapping_sub(bias), context, |section, entry, row| {
            let encoding = entry.cie().encoding();
            self.caller_by_row(section, encoding, row, stack)
                .map(|caller| Self { is_interrupted: entry.is_signal_trampoline(), ..caller })
        });
        by_row.unwrap_or(Err(End::Lost))
    }

    fn caller_by_row(
        &self,
        section: &Section<'_>,
        encoding: Encoding,
        row: &UnwindTableRow<usize>,
        stack: &Stack<'_>,
    ) -> Result<Self, End> {
        let calculate = |expression: &gimli::UnwindExpression<usize>, first: Option<u64>| {
            self.calculate(expression.get(section).ok()?, encoding, first, stack)
        };
        let cfa = match row.cfa() {
            CfaRule::RegisterAndOffset { register, offset } => {
                self.register(*register).and_then(|value| value.checked_add_signed(*offset))
            }
            CfaRule::Expression(expression) => calculate(expression, None),
        };
        let cfa = cfa.ok_or(End::Lost)?;
        let mut registers = [None; REGISTERS];
        for (number, caller) in (0_u16..).zip(&mut registers) {
            let own = self.register(Register(number));
            *caller = match row.register(Register(number)) {
                None if number == X86_64::RSP.0 => Some(cfa),
                None | Some(RegisterRule::SameValue) => own.filter(|_| KEPT.contains(&usize::from(number))),
                Some(RegisterRule::Offset(offset)) => {
                    cfa.checked_add_signed(offset).and_then(|at| stack.read(at))
                }
                Some(RegisterRule::ValOffset(offset)) => cfa.checked_add_signed(offset),
                Some(RegisterRule::Register(other)) => self.register(other),
                Some(RegisterRule::Expression(expression)) => {
                    calculate(&expression, Some(cfa)).and_then(|at| stack.read(at))
                }
                Some(RegisterRule::ValExpression(expression)) => calculate(&expression, Some(cfa)),
                Some(RegisterRule::Constant(value)) => Some(value),
                Some(RegisterRule::Undefined | RegisterRule::Architectural) => None,
            };
        }
        let ip = match (row.register(X86_64::RA), registers[usize::from(X86_64::RA.0)]) {
            (None | Some(RegisterRule::Undefined), _) | (_, Some(0)) => return Err(End::Outermost),
            (_, Some(ip)) => ip,
            (_, None) => return Err(End::Cut),
        };
        // Of what a signal has interrupted, it is told where its stack was.
        let sp = registers[usize::from(X86_64::RSP.0)].unwrap_or(cfa);
        self.checked(Self { registers, ip, sp, is_interrupted: false })
    }

    /// The same where no table is: code that was made while the program ran, or compiled without tables, may keep a pointer to the caller's.
    fn caller_by_pointer(&self, stack: &Stack<'_>) -> Result<Self, End> {
        let bp = self.register(X86_64::RBP).filter(|bp| *bp >= self.sp).ok_or(End::Lost)?;
        let ip = bp.checked_add(8).and_then(|at| stack.read(at)).ok_or(End::Cut)?;
        let sp = bp.checked_add(16).ok_or(End::Lost)?;
        let mut registers = [None; REGISTERS];
        registers[usize::from(X86_64::RBP.0)] = stack.read(bp);
        registers[usize::from(X86_64::RSP.0)] = Some(sp);
        registers[usize::from(X86_64::RA.0)] = Some(ip);
        if ip == 0 {
            return Err(End::Outermost);
        }
        self.checked(Self { registers, ip, sp, is_interrupted: false })
    }

    /// A caller is further out: so a walk ends.
    fn checked(&self, caller: Self) -> Result<Self, End> {
        if caller.sp > self.sp { Ok(caller) } else { Err(End::Lost) }
    }

    fn calculate<R: Reader<Offset = usize>>(
        &self,
        expression: Expression<R>,
        encoding: Encoding,
        first: Option<u64>,
        stack: &Stack<'_>,
    ) -> Option<u64> {
        let mut calculation = Evaluation::new(expression.0, encoding);
        calculation.set_max_iterations(MAX_STEPS);
        if let Some(first) = first {
            calculation.set_initial_value(first);
        }
        let mut result = calculation.evaluate().ok()?;
        loop {
            result = match result {
                EvaluationResult::Complete => break,
                EvaluationResult::RequiresRegister { register, .. } => {
                    calculation.resume_with_register(Value::Generic(self.register(register)?)).ok()?
                }
                EvaluationResult::RequiresMemory { address, size: 8, space: None, .. } => {
                    calculation.resume_with_memory(Value::Generic(stack.read(address)?)).ok()?
                }
                _ => return None,
            };
        }
        match calculation.as_result().first()?.location {
            Location::Address { address } => Some(address),
            Location::Value { value: Value::Generic(value) } => Some(value),
            _ => None,
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "test code")]
mod tests {
    use std::fs::File;
    use std::os::unix::fs::FileExt as _;

    use proptest::prelude::*;

    use super::*;

    /// All addresses are of one file.
    struct One(Elf);

    impl Code for One {
        fn at(&self, _addr: u64) -> Option<Mapped<'_>> {
            Some(Mapped::File { elf: &self.0, bias: 0 })
        }
    }

    /// Code of no file.
    struct Nameless(std::ops::Range<u64>);

    impl Code for Nameless {
        fn at(&self, addr: u64) -> Option<Mapped<'_>> {
            self.0.contains(&addr).then_some(Mapped::Bare)
        }
    }

    fn words(words: &[u64]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    #[test]
    fn where_no_table_is_frames_are_followed_by_their_pointers() {
        let bytes = words(&[7, 0x1020, 0x5002, 8, 0x1040, 0x5003, 9, 9, 0, 0]);
        let stack = Stack { begin: 0x1000, bytes: &bytes };
        let registers = Registers { ip: 0x5001, sp: 0x1000, bp: 0x1008, ..Registers::default() };
        let code = Nameless(0x5000..0x6000);
        let walk = unwind(&code, &registers, &stack);
        assert_eq!((walk.addrs, walk.end), (vec![0x5001, 0x5001, 0x5002], End::Outermost));
        let cut = Stack { bytes: &bytes[..40], ..stack };
        assert_eq!(unwind(&code, &registers, &cut).end, End::Cut);
        // A pointer that leads back.
        let bytes = words(&[7, 0x1008, 0x5002]);
        let walk = unwind(&code, &registers, &Stack { bytes: &bytes, ..stack });
        assert_eq!((walk.addrs.len(), walk.end), (2, End::Lost));
        assert_eq!(unwind(&Nameless(0..1), &registers, &stack).addrs, []);
    }

    fn own() -> Elf {
        let file = File::open("/proc/self/exe").unwrap();
        Elf::parse(&|at, buf| file.read_exact_at(buf, at).is_ok()).unwrap()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn any_stack_has_an_end(
            ips in prop::collection::vec(0..4_000_000_u64, 1..16),
            numbers in prop::collection::vec(any::<u64>(), 8),
            garbage in prop::collection::vec(any::<u8>(), 0..4_096),
        ) {
            thread_local!(static CODE: One = One(own()));
            let bytes: Vec<u8> = words(&ips).into_iter().chain(garbage).collect();
            let begin = numbers[0] / 2;
            let stack = Stack { begin, bytes: &bytes };
            for ip in ips {
                let registers = Registers { ip, sp: begin, bx: numbers[1], bp: begin + numbers[2] % 4_096, r12_to_15: [numbers[3]; 4] };
                let walk = CODE.with(|code| unwind(code, &registers, &stack));
                prop_assert!((1..=MAX_FRAMES).contains(&walk.addrs.len()));
            }
        }
    }
}
