//! Where the programs that keep books are put: what all rungs have, and what tells each of them of sockets.

use libbpf_rs::btf::types::Func;
use libbpf_rs::btf::{Btf, BtfType};

use crate::rung::Rung;

/// A program, and the tracepoints of system calls that it is put at, which only tracefs can name.
pub(super) type AtCalls = (&'static str, &'static [&'static str]);

/// How a rung is told of what sockets do.
#[derive(Debug)]
pub(super) struct Hooks {
    pub(super) rung: Rung,
    /// What it asks of the kernel.
    needs: &'static [Place],
    /// What is said of a kernel without one of these.
    since: &'static str,
    /// Programs that say themselves where they go. What ends something comes before what begins it.
    pub(super) attached: &'static [&'static str],
    pub(super) calls: &'static [AtCalls],
    /// Programs are told of sockets by their addresses alone.
    pub(super) by_address: bool,
}

/// A place in the kernel at which a program may be put.
#[derive(Clone, Copy, Debug)]
enum Place {
    Tracepoint(&'static str),
    Function(&'static str),
}

/// The program at a tracepoint that came with Linux 6.16.
pub(super) const SENDING: &str = "account_sending";

/// All of them; each has the programs that the others do not need.
pub(super) const HOOKS: [&Hooks; 3] = [&TRACEPOINTS, &FENTRY, &SYSCALLS];

pub(super) static TRACEPOINTS: Hooks = Hooks {
    rung: Rung::Tracepoints,
    needs: &[
        Place::Tracepoint("sk_data_ready"),
        Place::Tracepoint("sock_send_length"),
        Place::Tracepoint("sock_recv_length"),
    ],
    since: "it does not trace what sockets send and receive, which Linux 6.3 does",
    attached: &["account_sent", SENDING, "account_received", "account_arrival"],
    calls: &[],
    by_address: false,
};

pub(super) static FENTRY: Hooks = Hooks {
    rung: Rung::Fentry,
    needs: &[
        Place::Function("tcp_sendmsg_locked"),
        Place::Function("tcp_sendmsg"),
        Place::Function("unix_stream_sendmsg"),
        Place::Function("inet_recvmsg"),
        Place::Function("inet6_recvmsg"),
        Place::Function("unix_stream_recvmsg"),
        Place::Function("sock_def_readable"),
    ],
    since: "it does not describe its functions of sockets",
    attached: &[
        "account_tcp_sent",
        "account_unix_sent",
        "account_sendmsg",
        "account_inet_received",
        "account_inet6_received",
        "account_unix_received",
        "account_readable",
    ],
    calls: &[],
    by_address: false,
};

pub(super) static SYSCALLS: Hooks = Hooks {
    rung: Rung::Syscalls,
    needs: &[Place::Tracepoint("tcp_probe")],
    since: "it does not trace the packets of TCP, which Linux 4.16 does",
    attached: &["account_packet"],
    calls: &[
        (
            "account_send_call_end",
            &["sys_exit_sendto", "sys_exit_sendmsg", "sys_exit_write", "sys_exit_writev"],
        ),
        (
            "account_send_call",
            &["sys_enter_sendto", "sys_enter_sendmsg", "sys_enter_write", "sys_enter_writev"],
        ),
        (
            "account_receive_call_end",
            &["sys_exit_recvfrom", "sys_exit_recvmsg", "sys_exit_read", "sys_exit_readv"],
        ),
    ],
    by_address: true,
};

/// Programs of every rung. What ends something comes before what begins it.
pub(super) const ATTACHED: [&str; 7] = [
    "account_state",
    "account_exit",
    "account_exec",
    "account_fork",
    "account_waking",
    "account_switch",
    "account_fault",
];

/// The same at system calls.
pub(super) const CALLS: [AtCalls; 7] = [
    (
        "account_memory_call_end",
        &[
            "sys_exit_mmap",
            "sys_exit_munmap",
            "sys_exit_brk",
            "sys_exit_madvise",
            "sys_exit_mremap",
            "sys_exit_mprotect",
        ],
    ),
    (
        "account_memory_call",
        &[
            "sys_enter_mmap",
            "sys_enter_munmap",
            "sys_enter_brk",
            "sys_enter_madvise",
            "sys_enter_mremap",
            "sys_enter_mprotect",
        ],
    ),
    ("account_connect_end", &["sys_exit_connect"]),
    ("account_close", &["sys_enter_close"]),
    ("account_connect", &["sys_enter_connect"]),
    ("account_listen_end", &["sys_exit_listen"]),
    ("account_accept", &["sys_enter_accept", "sys_enter_accept4"]),
];

impl Hooks {
    /// Why a kernel of these types does not have them.
    pub(super) fn missing(&self, types: &Btf<'_>) -> Option<&'static str> {
        let has = |place: &Place| match place {
            Place::Tracepoint(name) => traces(types, name),
            Place::Function(name) => types.type_by_name::<Func<'_>>(name).is_some(),
        };
        (!self.needs.iter().all(has)).then_some(self.since)
    }

    /// Whether they have this program.
    pub(super) fn have(&self, program: &str) -> bool {
        self.attached.contains(&program) || self.calls.iter().any(|(name, _)| *name == program)
    }
}

/// Whether a kernel of these types has a tracepoint.
pub(super) fn traces(types: &Btf<'_>, name: &str) -> bool {
    types.type_by_name::<BtfType<'_>>(&format!("btf_trace_{name}")).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rungs_share_no_program() {
        for (at, hooks) in HOOKS.iter().enumerate() {
            let all = hooks.attached.iter().copied().chain(hooks.calls.iter().map(|(name, _)| *name));
            for program in all {
                assert!(HOOKS[at + 1..].iter().all(|others| !others.have(program)), "{program}");
                assert!(!ATTACHED.contains(&program) && CALLS.iter().all(|(name, _)| *name != program));
            }
        }
    }
}
