//! The walk of a native stack: registers and stack are the target's, and so are the files whose tables it goes by.
#![no_main]

use libfuzzer_sys::fuzz_target;
use slip_native::{Code, Elf, Mapped, Registers, Stack, readable, unwind};

/// Of the input: registers, the length of the stack, and the stack. The rest is the file, or its tables.
const REGISTERS_BYTES: usize = 64;
const MOST_FRAMES: usize = 128;
const MOST_NAME_BYTES: usize = 260;

/// The head of a file whose only segment is all of it, with tables behind the head.
const HEAD_BYTES: usize = 64 + 2 * 56;

struct One(Elf);

impl Code for One {
    fn at(&self, addr: u64) -> Option<Mapped<'_>> {
        Some(if addr % 16 == 15 { Mapped::Bare } else { Mapped::File { elf: &self.0, bias: addr / 2 % 4 } })
    }
}

fuzz_target!(|bytes: &[u8]| {
    assert!(readable(bytes).len() <= MOST_NAME_BYTES);
    let Some((numbers, rest)) = bytes.split_first_chunk::<REGISTERS_BYTES>() else { return };
    let Some((length, rest)) = rest.split_first_chunk::<2>() else { return };
    let stack_bytes = usize::from(u16::from_le_bytes(*length)).min(rest.len());
    let (stack, file) = rest.split_at(stack_bytes);
    let number = |at: usize| u64::from_le_bytes(std::array::from_fn(|byte| numbers[8 * at + byte]));
    let registers = Registers {
        ip: number(0),
        sp: number(1),
        bx: number(2),
        bp: number(3),
        r12_to_15: std::array::from_fn(|at| number(4 + at)),
    };
    let stack = Stack { begin: number(1), bytes: stack };
    for file in [file.to_vec(), with_head(file)] {
        let read = |at: u64, buf: &mut [u8]| {
            let from = usize::try_from(at).ok();
            let found = from.and_then(|from| file.get(from..from.checked_add(buf.len())?));
            found.map(|found| buf.copy_from_slice(found)).is_some()
        };
        let Some(elf) = Elf::parse(&read) else { continue };
        let _ = (elf.bias(number(4), number(5)), elf.function_at(number(6)), elf.len_bytes());
        assert!(unwind(&One(elf), &registers, &stack).addrs.len() <= MOST_FRAMES);
    }
});

/// An ELF file whose tables are these.
fn with_head(tables: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; HEAD_BYTES];
    let all = (HEAD_BYTES + 4 + tables.len()) as u64;
    let mut put = |at: usize, field: &[u8]| bytes[at..at + field.len()].copy_from_slice(field);
    put(0, b"\x7fELF\x02\x01\x01");
    put(18, &62_u16.to_le_bytes());
    put(20, &1_u32.to_le_bytes());
    put(32, &64_u64.to_le_bytes());
    for (at, number) in [(52, 64_u16), (54, 56), (56, 2)] {
        put(at, &number.to_le_bytes());
    }
    // PT_LOAD, readable and executable, and PT_GNU_EH_FRAME.
    for (at, kind, offset, size) in [(64, 1_u32, 0, all), (120, 0x6474_e550, HEAD_BYTES as u64, all)] {
        put(at, &kind.to_le_bytes());
        put(at + 4, &5_u32.to_le_bytes());
        for (field, number) in [(8, offset), (16, offset), (24, offset), (32, size), (40, size)] {
            put(at + field, &number.to_le_bytes());
        }
    }
    bytes.extend([1, 0x1b, 0x03, 0x3b]);
    bytes.extend(tables);
    bytes
}
