//! The readers of bytes that we did not write, as functions of these bytes alone: `fuzz/` gives them any. Nobody else needs them.

use std::collections::HashSet;
use std::iter;

use slip_model::{CommandTime, CpuTaker, EndpointCalls, MemorySum};

use crate::budget::{self, BudgetEvent, MemoryPlace, MemoryStack, ThreadTimes};
use crate::cpu_counters::{self, CpuTime};
use crate::polled;
use crate::symbols::{self, KernelSymbol};
use crate::wait::{self, Sleeper, WaitKey, Waited};
use crate::wire::{self, Event};

/// What the sampler's programs put into their ring.
pub fn event(bytes: &[u8]) -> Option<Event> {
    wire::parse(bytes)
}

/// What the budget's programs put into theirs.
pub fn budget_event(bytes: &[u8]) -> Option<BudgetEvent> {
    budget::wire::parse_event(bytes)
}

/// What [`thread_times`] takes: no more and no less.
pub const LISTED_BYTES: usize = budget::wire::LISTED_BYTES;

/// A thread as they list it.
pub fn thread_times(bytes: &[u8]) -> Option<ThreadTimes> {
    ThreadTimes::parse(bytes)
}

/// A thread that sleeps, as the sampler's programs list it.
pub fn sleeper(bytes: &[u8]) -> Option<Sleeper> {
    Sleeper::parse(bytes)
}

/// Waits, from a key and a value of their map.
pub fn waits(key: &[u8], value: &[u8]) -> Option<(WaitKey, Waited)> {
    Some((WaitKey::parse(key)?, Waited::parse(value)?))
}

/// Calls to a server, from what each CPU has noted.
pub fn calls<'a>(cpus: impl IntoIterator<Item = &'a [u8]>) -> Option<EndpointCalls> {
    let mut calls = EndpointCalls::default();
    cpus.into_iter().try_for_each(|cpu| budget::wire::add_calls(&mut calls, cpu))?;
    Some(calls)
}

/// A command where the protocol of this number is spoken, from a key and a value of the map.
pub fn command(protocol: u32, key: &[u8], value: &[u8]) -> Option<CommandTime> {
    budget::wire::command_time(key, value, |_| budget::wire::protocol(protocol))
}

/// The stack of who called for memory.
pub fn memory_stack(bytes: &[u8]) -> Option<MemoryStack> {
    MemoryStack::parse(bytes)
}

/// Where memory was called for, from a key and a value of the map.
pub fn memory_place(key: &[u8], value: &[u8]) -> Option<(MemoryPlace, MemorySum)> {
    budget::memory::parse_place(key, value)
}

/// Who had a CPU, from a key and a value of the map.
pub fn taker(key: &[u8], value: &[u8]) -> Option<CpuTaker> {
    budget::wire::takers(iter::once((key.to_vec(), value.to_vec()))).pop()
}

/// Where a server listens, from a key of the map.
pub fn address(key: &[u8]) -> Option<String> {
    budget::wire::address(key)
}

/// A line in which a program names a function of the kernel.
pub fn kernel_symbol(line: &str) -> Option<(usize, KernelSymbol)> {
    symbols::parse(line)
}

/// The number of a tracepoint, from the file `id`.
pub fn tracepoint(text: &str) -> Option<u64> {
    budget::tracefs::parse_number(text).ok()
}

/// Ports and paths on which the sockets with the inodes `own` listen, from `/proc/PID/net/tcp` and `unix`.
pub fn listening(tcp: &[u8], unix: &[u8], own: &HashSet<u64>) -> (HashSet<u16>, HashSet<Vec<u8>>) {
    let found = budget::listening::Listening::parse(&[tcp.to_vec()], unix, own);
    (found.ports, found.paths)
}

/// The key of a path on which a target listens.
pub fn path_key(path: &[u8]) -> Option<Vec<u8>> {
    budget::wire::path_key(path)
}

/// A control group's limit of memory, and what has happened because of it.
pub fn memory_group(text: &str) -> slip_model::MemoryGroup {
    let part = |number| text.split('\0').nth(number).unwrap_or_default().to_owned();
    crate::memory_groups::parse("", &[part(0), part(1), part(2), part(3)])
}

/// Folders of control groups, from `/proc/PID/cgroup`.
pub fn cpu_groups(text: &str) -> Vec<String> {
    cpu_counters::cpu_groups(text)
}

/// For how long a quota held a control group back, from `cpu.stat`; nanoseconds.
pub fn throttled_ns(text: &str) -> u64 {
    cpu_counters::parse_throttled(text).map_or(0, |throttled| throttled.ns)
}

/// What other machines had of our CPUs, from `/proc/stat`; nanoseconds.
pub fn steal_ns(text: &str) -> u64 {
    CpuTime::parse(text).steal_ns
}

/// The system call of a thread that waits and its first argument, from `/proc/PID/task/TID/syscall`: as the sampler reads it.
pub fn waiting_call(text: &str) -> Option<(i32, Option<u64>)> {
    wait::parse_call(text)
}

/// The same as the rung `proc` reads it: whether it is understood, with what the call waits for found out.
pub fn blocking_call(text: &str) -> bool {
    polled::call::parse(text).is_some_and(|doing| {
        if let polled::call::Doing::Calls(number, arguments) = doing {
            polled::call::awaits(number, arguments);
        }
        true
    })
}

/// Files that are waited for, from what `poll` and `select` are given, and from the `fdinfo` of an epoll file.
pub fn awaited_files(poll: &[u8], select: &[u8], fdinfo: &str) -> [Vec<u32>; 3] {
    [
        polled::call::polled(poll).collect(),
        polled::call::selected(select).collect(),
        polled::call::registered(fdinfo).collect(),
    ]
}

/// Servers to which the sockets with these inodes are connected, by the tables of `/proc/PID/net`; the number that each socket has.
pub fn servers(internet: &str, unix: &str, inodes: &[u64]) -> (Vec<String>, Vec<Option<u32>>) {
    use polled::socket::{Endpoints, Side, Sockets};
    let (mut sockets, mut endpoints) =
        (Sockets::of_tables(&[internet.to_owned()], unix), Endpoints::default());
    let mut numbers = Vec::new();
    for inode in inodes {
        let side = sockets.side((0, None), (0, *inode), 0, &mut endpoints);
        numbers.push(match side {
            Side::Outbound(number) | Side::Connects(number) => number,
            _ => None,
        });
    }
    (endpoints.list().into_iter().map(|endpoint| endpoint.address).collect(), numbers)
}

/// The books of a thread that is looked at: of each look how much later it is, the text of `schedstat`, whether it was idle, ran or
/// waited, and the number of its request.
pub fn books<'a>(is_worker: bool, looks: impl IntoIterator<Item = (u32, &'a str, u8, u64)>) -> ThreadTimes {
    polled::books_of(is_worker, looks)
}
