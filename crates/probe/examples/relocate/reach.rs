//! Which instructions of a program can run.
//!
//! What a kernel does not have is no error behind a test for it: `if (bpf_core_field_exists(...))`. Relocation makes the test a
//! constant, and the verifier leaves out what cannot be reached. So we follow constants in registers along all branches, and
//! nothing else. What the verifier would also rule out by ranges counts as reachable here: a false alarm, never a false pass.

use libbpf_sys::bpf_insn;

/// What libbpf writes as the number of the helper where a relocation cannot be resolved (`bpf_core_poison_insn`).
const POISON: i32 = 195_896_080;

const CLASS: u8 = 0x07;
const LD: u8 = 0x00;
const LDX: u8 = 0x01;
const STX: u8 = 0x03;
const ALU: u8 = 0x04;
const JMP: u8 = 0x05;
const JMP32: u8 = 0x06;
const ALU64: u8 = 0x07;
/// The second operand is a register.
const BY_REGISTER: u8 = 0x08;
const ATOMIC: u8 = 0xc0;
const LDIMM64: u8 = 0x18;

/// Of `src_reg`, in calls and in `LDIMM64`.
const PSEUDO_CALL: u8 = 1;
const PSEUDO_KFUNC_CALL: u8 = 2;
const PSEUDO_BTF_ID: u8 = 3;
const PSEUDO_FUNC: u8 = 4;

/// What registers hold, where it is a constant.
type Registers = [Option<u64>; 11];
const UNKNOWN: Registers = [None; 11];

/// What of a program can run.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Reached {
    /// Numbers of the helpers that are called.
    pub(crate) helpers: Vec<i32>,
    /// Instructions whose relocation was not resolved.
    pub(crate) poisoned: Vec<usize>,
    /// Functions of the kernel that are called, by their numbers in the one that runs.
    pub(crate) functions: Vec<i32>,
    /// It jumps out of the program: we cannot say what happens.
    pub(crate) is_beyond_us: bool,
}

/// Follows a relocated program from its first instruction. `has_function` tells whether the kernel has what this one, which libbpf asks,
/// has by that number.
pub(crate) fn follow(code: &[bpf_insn], has_function: impl Fn(i32) -> bool) -> Reached {
    let mut reached = Reached::default();
    let mut before: Vec<Option<Registers>> = vec![None; code.len()];
    let mut waiting = vec![(0, UNKNOWN)];
    // Ends: what is known of an instruction's registers only ever becomes less.
    while let Some((at, registers)) = waiting.pop() {
        let Some(known) = before.get_mut(at) else {
            reached.is_beyond_us = true;
            continue;
        };
        let merged = known.map_or(registers, |known| merge(&known, &registers));
        if known.replace(merged) != Some(merged) {
            step(code, at, merged, &has_function, &mut waiting);
        }
    }
    for (at, insn) in code.iter().enumerate().filter(|(at, _)| before[*at].is_some()) {
        if insn.code == JMP | 0x80 {
            match insn.src_reg() {
                0 if insn.imm == POISON => reached.poisoned.push(at),
                0 => reached.helpers.push(insn.imm),
                PSEUDO_KFUNC_CALL => reached.functions.push(insn.imm),
                _ => {}
            }
        }
    }
    reached.helpers.sort_unstable();
    reached.helpers.dedup();
    reached.functions.sort_unstable();
    reached.functions.dedup();
    reached
}

fn merge(a: &Registers, b: &Registers) -> Registers {
    std::array::from_fn(|at| a[at].filter(|value| Some(*value) == b[at]))
}

/// Where the program may be after instruction `at`, and with what in its registers.
fn step(
    code: &[bpf_insn],
    at: usize,
    mut registers: Registers,
    has_function: &impl Fn(i32) -> bool,
    to: &mut Vec<(usize, Registers)>,
) {
    let insn = &code[at];
    let (dst, src) = (usize::from(insn.dst_reg()).min(10), usize::from(insn.src_reg()).min(10));
    // Out of the program, which is then said, if it is before its begin.
    let jump = |distance: i64| usize::try_from(at as i64 + 1 + distance).unwrap_or(usize::MAX);
    let immediate = i64::from(insn.imm).cast_unsigned();
    let operand = if insn.code & BY_REGISTER == 0 { Some(immediate) } else { registers[src] };
    let mut next = at + 1;
    match insn.code & CLASS {
        LD => {
            let high = code.get(at + 1).map_or(0, |second| second.imm);
            let whole = u64::from(high.cast_unsigned()) << 32 | u64::from(insn.imm.cast_unsigned());
            registers[dst] = match insn.src_reg() {
                0 if insn.code == LDIMM64 => Some(whole),
                // Whether it is there, all that a program asks of its address.
                PSEUDO_BTF_ID if insn.code == LDIMM64 => Some(has_function(insn.imm).into()),
                _ => None,
            };
            if insn.code == LDIMM64 {
                next = at + 2;
                if insn.src_reg() == PSEUDO_FUNC {
                    to.push((jump(insn.imm.into()), UNKNOWN));
                }
            } else {
                registers[..6].fill(None);
            }
        }
        LDX => registers[dst] = None,
        STX if insn.code & 0xe0 == ATOMIC => {
            registers[src] = None;
            registers[0] = None;
        }
        class @ (ALU | ALU64) => {
            let value = operand.and_then(|operand| compute(insn, registers[dst], operand));
            registers[dst] = value.map(|value| if class == ALU { u64::from(value as u32) } else { value });
        }
        class @ (JMP | JMP32) => match insn.code & 0xf0 {
            0x00 => next = jump(if class == JMP { insn.off.into() } else { insn.imm.into() }),
            0x80 => {
                if insn.src_reg() == PSEUDO_CALL {
                    to.push((jump(insn.imm.into()), UNKNOWN));
                }
                registers[..6].fill(None);
            }
            0x90 => return,
            _ => {
                let is_taken = registers[dst]
                    .zip(operand)
                    .and_then(|(left, right)| decide(insn.code & 0xf0, left, right, class == JMP32));
                if is_taken != Some(false) {
                    to.push((jump(insn.off.into()), registers));
                }
                if is_taken == Some(true) {
                    return;
                }
            }
        },
        _ => {}
    }
    to.push((next, registers));
}

/// The result of an instruction on constants; `None` for those that no test is made of.
fn compute(insn: &bpf_insn, left: Option<u64>, right: u64) -> Option<u64> {
    if insn.code & 0xf0 == 0xb0 {
        // With an offset it extends the sign.
        return (insn.off == 0).then_some(right);
    }
    let left = left?;
    // The low 32 bits of these are right for the narrow forms too.
    match insn.code & 0xf0 {
        0x00 => Some(left.wrapping_add(right)),
        0x10 => Some(left.wrapping_sub(right)),
        0x40 => Some(left | right),
        0x50 => Some(left & right),
        0xa0 => Some(left ^ right),
        0x60 if insn.code & CLASS == ALU64 => Some(left.wrapping_shl(right as u32)),
        0x70 if insn.code & CLASS == ALU64 => Some(left.wrapping_shr(right as u32)),
        _ => None,
    }
}

/// Whether a branch on constants is taken.
fn decide(operation: u8, left: u64, right: u64, is_narrow: bool) -> Option<bool> {
    let (left, right) =
        if is_narrow { (u64::from(left as u32), u64::from(right as u32)) } else { (left, right) };
    let signed = |value: u64| {
        if is_narrow { i64::from((value as u32).cast_signed()) } else { value.cast_signed() }
    };
    match operation {
        0x10 => Some(left == right),
        0x20 => Some(left > right),
        0x30 => Some(left >= right),
        0x40 => Some(left & right != 0),
        0x50 => Some(left != right),
        0x60 => Some(signed(left) > signed(right)),
        0x70 => Some(signed(left) >= signed(right)),
        0xa0 => Some(left < right),
        0xb0 => Some(left <= right),
        0xc0 => Some(signed(left) < signed(right)),
        0xd0 => Some(signed(left) <= signed(right)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EXIT: (u8, u8, u8, i16, i32) = (0x95, 0, 0, 0, 0);
    const POISONED: (u8, u8, u8, i16, i32) = (0x85, 0, 0, 0, POISON);

    fn follow(code: &[bpf_insn]) -> Reached {
        super::follow(code, |number| number == 7)
    }

    /// Code, destination, source, offset, immediate.
    fn program(code: &[(u8, u8, u8, i16, i32)]) -> Vec<bpf_insn> {
        let one = |&(code, dst, src, off, imm): &(u8, u8, u8, i16, i32)| {
            let mut insn = bpf_insn { code, off, imm, ..bpf_insn::default() };
            insn.set_dst_reg(dst);
            insn.set_src_reg(src);
            insn
        };
        code.iter().map(one).collect()
    }

    /// `if (CONDITION) poisoned;` where the condition was put into r1.
    fn guarded(condition: i32) -> Vec<bpf_insn> {
        program(&[(0xb7, 1, 0, 0, condition), (0x15, 1, 0, 1, 0), POISONED, EXIT])
    }

    #[test]
    fn what_is_missing_counts_only_where_it_can_be_reached() {
        assert_eq!(follow(&program(&[POISONED, EXIT])).poisoned, [0]);
        assert_eq!(follow(&guarded(1)).poisoned, [2]);
        assert_eq!(follow(&guarded(0)).poisoned, []);
    }

    #[test]
    fn a_call_forgets_only_the_registers_that_it_may_change() {
        let code = |register| {
            program(&[
                (0xb7, register, 0, 0, 0),
                (0x85, 0, 0, 0, 14),
                (0x15, register, 0, 1, 0),
                POISONED,
                EXIT,
            ])
        };
        assert_eq!(follow(&code(6)), Reached { helpers: vec![14], ..Reached::default() });
        assert_eq!(follow(&code(1)).poisoned, [3]);
    }

    #[test]
    fn two_ways_that_bring_different_constants_bring_none() {
        // if (r2) r1 = 1 else r1 = 0; if (r1) poisoned
        let code = program(&[
            (0xb7, 1, 0, 0, 0),
            (0x15, 2, 0, 1, 0),
            (0xb7, 1, 0, 0, 1),
            (0x15, 1, 0, 1, 0),
            POISONED,
            EXIT,
        ]);
        assert_eq!(follow(&code).poisoned, [4]);
    }

    #[test]
    fn loops_end_and_functions_of_the_program_are_followed() {
        // r1 = 0; do r1 += 1 while (r1 < r2); call the function behind the exit
        let code = program(&[
            (0xb7, 1, 0, 0, 0),
            (0x07, 1, 0, 0, 1),
            (0xad, 1, 2, -2, 0),
            (0x85, 0, PSEUDO_CALL, 0, 1),
            EXIT,
            POISONED,
            EXIT,
        ]);
        assert_eq!(follow(&code), Reached { poisoned: vec![5], ..Reached::default() });
    }

    #[test]
    fn a_jump_out_of_the_program_is_said() {
        assert!(follow(&program(&[(0x05, 0, 0, -9, 0)])).is_beyond_us);
    }

    #[test]
    fn functions_of_the_kernel_are_called_only_where_they_are_found() {
        // if (FUNCTION) FUNCTION()
        let code = |number| {
            program(&[
                (LDIMM64, 1, PSEUDO_BTF_ID, 0, number),
                (0, 0, 0, 0, 0),
                (0x15, 1, 0, 1, 0),
                (0x85, 0, PSEUDO_KFUNC_CALL, 0, number),
                EXIT,
            ])
        };
        assert_eq!(follow(&code(7)).functions, [7]);
        assert_eq!(follow(&code(8)), Reached::default());
    }
}
