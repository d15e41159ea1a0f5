//! The readers of `/proc` and of control groups that budgets use: text of any process on the machine, as the paths of its sockets.
#![no_main]

use std::collections::HashSet;

use libfuzzer_sys::fuzz_target;
use slip_probe::foreign::{
    awaited_files, blocking_call, books, cpu_groups, listening, memory_group, path_key, servers, steal_ns,
    throttled_ns, tracepoint, waiting_call,
};

/// Numbers that servers have.
const ENDPOINTS: usize = 16;

/// Bytes of one look: how much later, what it found, the number of its request, and the number of its line.
const LOOK_BYTES: usize = 5;

fuzz_target!(|bytes: &[u8]| {
    let text = String::from_utf8_lossy(bytes);
    let own: HashSet<u64> = (0..32).collect();
    sockets(bytes, &text, &own);
    calls(bytes, &text);
    let _ = (throttled_ns(&text), steal_ns(&text), tracepoint(&text), memory_group(&text));
    assert!(cpu_groups(&text).iter().all(|group| group.starts_with("/sys/fs/cgroup")));
    looks(bytes, &text);
});

fn sockets(bytes: &[u8], text: &str, own: &HashSet<u64>) {
    let (_, paths) = listening(bytes, bytes, own);
    for path in &paths {
        // It stands there as it is.
        assert!(!path.is_empty() && bytes.windows(path.len()).any(|window| window == path));
        let _ = path_key(path);
    }
    let inodes: Vec<u64> = own.iter().copied().collect();
    let (addresses, numbers) = servers(text, text, &inodes);
    assert!(addresses.len() <= ENDPOINTS);
    assert!(numbers.into_iter().flatten().all(|number| (number as usize) < addresses.len()));
}

fn calls(bytes: &[u8], text: &str) {
    let _ = waiting_call(text);
    blocking_call(text);
    let [polled, selected, registered] = awaited_files(bytes, bytes, text);
    assert!(polled.len() <= bytes.len() / 8 && selected.len() <= bytes.len() * 8);
    assert!(registered.len() <= text.lines().count());
}

/// Each line is the `schedstat` of a look.
fn looks(bytes: &[u8], text: &str) {
    let lines: Vec<&str> = text.lines().take(64).collect();
    if lines.is_empty() {
        return;
    }
    let looks = bytes.chunks_exact(LOOK_BYTES).take(256).map(|look| {
        let later_ns = u32::from(u16::from_le_bytes([look[0], look[1]])) * 1_000;
        (later_ns, lines[usize::from(look[4]) % lines.len()], look[2] % 20, u64::from(look[3] % 4))
    });
    for is_worker in [false, true] {
        let times = books(is_worker, looks.clone());
        if !times.is_unknown {
            let all_ns = times.idle_ns + times.serving.total_ns() + times.between.total_ns();
            assert_eq!(all_ns, times.now_ns - times.first_ns);
        }
    }
}
