//! What the programs in the kernel tell us: events of their rings, keys and values of their maps, lines that they print. They copy much
//! of it from targets, and may be of another build than we are.
#![no_main]

use libfuzzer_sys::fuzz_target;
use slip_model::CallPart;
use slip_probe::foreign::{
    LISTED_BYTES, address, budget_event, calls, command, event, kernel_symbol, memory_place, memory_stack,
    sleeper, taker, thread_times, waits,
};
use slip_probe::{BudgetEvent, Event, ThreadTimes};

/// As `bpf/sample.h` has them.
const MAX_FRAMES: usize = 128;
const FRAME_STRIDE: usize = 120;
const MAX_NATIVE_BYTES: usize = 16_384;
const MAX_KERNEL_FRAMES: usize = 127;

/// As `bpf/budget.h` has it, and as many protocols.
const COMMAND_BYTES: usize = 16;
const PROTOCOLS: u32 = 8;

fuzz_target!(|bytes: &[u8]| {
    sampler(bytes);
    budget(bytes);
    let text = String::from_utf8_lossy(bytes);
    for line in text.lines() {
        let _ = kernel_symbol(line);
    }
});

fn sampler(bytes: &[u8]) {
    match event(bytes) {
        Some(Event::Stack(stack)) => {
            let depth = stack.addrs.len();
            assert!(depth <= MAX_FRAMES && stack.frames.len() <= depth * FRAME_STRIDE);
        }
        Some(Event::Look(look)) => {
            assert!(look.anchor.len() + 8 * look.kernel.len() <= bytes.len());
            assert!(look.kernel.len() <= MAX_KERNEL_FRAMES);
            let _ = look.wait.map(|wait| wait.reason());
        }
        Some(Event::KernelStack(stack)) => assert!(stack.addrs.len() <= MAX_KERNEL_FRAMES),
        Some(Event::Native(copy)) => assert!(copy.stack.len() <= MAX_NATIVE_BYTES),
        Some(Event::Allocated(_) | Event::Freed(_)) | None => {}
    }
    let _ = sleeper(bytes).map(|sleeper| sleeper.key.reason());
    let (key, value) = bytes.split_at(bytes.len() / 2);
    let _ = waits(key, value);
}

fn budget(bytes: &[u8]) {
    match budget_event(bytes) {
        Some(BudgetEvent::Call(call)) => {
            for protocol in ["redis", "mysql", "http", ""] {
                is_name(&call.command(protocol));
            }
        }
        Some(BudgetEvent::ThreadEnded(times)) => adds_up(&times),
        Some(BudgetEvent::Served(_)) | None => {}
    }
    let mut listed = bytes.to_vec();
    listed.resize(LISTED_BYTES, bytes.last().copied().unwrap_or_default());
    adds_up(&thread_times(&listed).expect("it has the length of one"));
    if let Some(calls) = calls([bytes, bytes]) {
        assert_eq!(calls.parts.len(), CallPart::ALL.len());
    }
    let (key, value) = bytes.split_at(bytes.len() / 2);
    for protocol in 0..PROTOCOLS {
        if let Some(command) = command(protocol, key, value) {
            is_name(&command.name);
        }
    }
    let _ = (taker(key, value), address(bytes), memory_place(key, value));
    assert!(memory_stack(bytes).is_none_or(|stack| stack.bytes.len() < bytes.len()));
}

/// Nothing that a client sent is told but the name of a command.
fn is_name(name: &str) {
    assert!(name.len() <= COMMAND_BYTES);
    let is_in_name =
        |byte: u8| byte.is_ascii_uppercase() || byte.is_ascii_digit() || matches!(byte, b'_' | b'.');
    assert!(name.bytes().all(is_in_name));
}

/// Sums stay where they are when they are full.
fn adds_up(times: &ThreadTimes) {
    let _ = [times.between, times.serving, times.after].map(|parts| parts.total_ns());
    for (number, time) in (0..).zip(&times.endpoints) {
        assert_eq!(time.endpoint, number);
    }
}
