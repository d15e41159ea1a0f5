//! What not to connect again would save.

use slip_model::{CallPart, Language};

use super::{CONNECT, calls, kept, servers, tls_ns};
use crate::case::{Case, parts_ns};
use crate::sites::{MIN_SAMPLES, Sites, is_in_kernel};
use crate::{Gain, ServerTime, Statement, Value};

/// Of these protocols the extension keeps connections.
const KEPT_PROTOCOLS: [&str; 2] = ["redis", "memcached"];

/// The kernel's functions that make a socket, and those that close one of TCP. Neither is a part of connecting as it is timed: from
/// `connect()` until something is sent.
const SOCKETS: [&str; 4] = ["__x64_sys_socket", "__sys_socket", "inet_shutdown", "inet_release"];

/// Those that wake the server, which connecting does, and the next command if it is connected already.
const WAKING: [&str; 3] = ["sock_def_readable", "__wake_up*", "try_to_wake_up"];

/// Commands of Redis after which the extension has nothing to forget, the most common ones (all of them: `plain` in `ext/src/framing.c`).
const PLAIN: &str = "APPEND DECR DECRBY DEL ECHO EXISTS EXPIRE GET GETSET HDEL HEXISTS HGET HGETALL HINCRBY HMGET HMSET HSET HSETNX INCR \
                     INCRBY LLEN LPOP LPUSH LRANGE MGET MSET PING PSETEX RPOP RPUSH SADD SET SETEX SETNX SISMEMBER TTL UNLINK";

/// Time of a unit: 19 times of 20 it is between these.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Between {
    pub(super) low_ns: u64,
    pub(super) high_ns: u64,
    /// Of which this is.
    pub(super) samples: u64,
}

impl Between {
    /// Time on a CPU for connections to this server in these functions of the kernel, and not in those. `None` if there are too few samples.
    fn of(case: &Case<'_>, server: &ServerTime, functions: &[&str], without: &[&str]) -> Option<Self> {
        let interner = &case.recording.interner;
        let sites = Sites::of(case.recording, |look| {
            let is_in = |functions| is_in_kernel(interner, look.sample.stack, functions);
            look.is_on_cpu() && is_in(functions) && !is_in(without)
        });
        if sites.count < MIN_SAMPLES || is_local(server) {
            return None;
        }
        // Samples do not tell which server it was.
        let all = servers(case).iter().filter(|other| !is_local(other));
        let all = all.fold(0_u64, |sum, other| sum.saturating_add(other.connects)).max(1);
        let of_server = |ns: u64| case.each(u128::from(ns) * u128::from(server.connects) / u128::from(all));
        // What no function of the program does may be for connections that the workers' own clients have made.
        let by_functions = sites.sites.iter().fold(0_u64, |sum, site| sum.saturating_add(site.ns));
        // Two standard deviations of so many samples.
        let error = |ns: u64| (ns / sites.count.isqrt()).saturating_mul(2);
        Some(Self {
            low_ns: of_server(by_functions.saturating_sub(error(by_functions))),
            high_ns: of_server(sites.ns.saturating_add(error(sites.ns))),
            samples: sites.count,
        })
    }

    /// For making sockets and closing them.
    pub(super) fn of_sockets(case: &Case<'_>, server: &ServerTime) -> Option<Self> {
        Self::of(case, server, &SOCKETS, &[])
    }

    /// For connecting, of which the unit has `ns` until something is sent: that without what is done where the connection is kept as well, by
    /// the program after connecting, and to wake the server.
    fn of_connecting(case: &Case<'_>, server: &ServerTime, ns: u64) -> Self {
        let agreed = calls(case, server).map_or(0, |calls| parts_ns(calls, &[CallPart::Connect]));
        let agreed_ns = case.each(agreed.into()).min(ns);
        let Some(kernel) = Self::of(case, server, &CONNECT, &WAKING) else {
            return Self { low_ns: agreed_ns, high_ns: ns, samples: 0 };
        };
        // A server on another machine answers while the CPU does something else.
        let is_apart = kernel.high_ns < agreed_ns;
        let apart_ns = if is_apart { agreed_ns } else { 0 };
        let low_ns = kernel.low_ns.saturating_add(apart_ns).clamp(agreed_ns, ns);
        let high_ns = kernel.high_ns.saturating_add(apart_ns).clamp(low_ns, ns);
        Self { low_ns, high_ns, samples: kernel.samples }
    }
}

/// What a client saves that keeps its connection, which takes so long of each unit.
pub(super) fn by_client(
    case: &Case<'_>,
    server: &ServerTime,
    ns: u64,
    sockets: Option<Between>,
    hello_ns: u64,
) -> Gain {
    let call_ns =
        calls(case, server).map_or_else(|| server.mean_ns().unwrap_or_default(), |calls| calls.mean_ns);
    // A client that keeps its connection may ask whether it is still there, when it begins to use it in a unit.
    let check_ns = call_ns.min(case.each(u128::from(call_ns) * u128::from(server.connects)));
    let (low, high) = (ns.saturating_sub(check_ns), ns.saturating_add(hello_ns));
    let sockets = sockets.unwrap_or_default();
    Gain {
        low: Value::Ns(low.saturating_add(sockets.low_ns)),
        high: Value::Ns(high.saturating_add(sockets.high_ns)),
        basis: Statement::new(
            "the connections' own time, and their sockets' as far as samples tell it; less one call if the client asks whether it is still there, and with what it sends first if that is not sent again",
        ),
    }
}

/// What keeping them by the extension saves, of the `ns` that a unit has for connecting and TLS: in the place of each it sends the protocol's
/// reset, as a command is sent, or nothing where there is nothing to forget.
pub(super) fn by_extension(case: &Case<'_>, server: &ServerTime, ns: u64, sockets: Option<Between>) -> Gain {
    let sent_ns = server.send_ns.checked_div(server.calls.into()).unwrap_or_default();
    let reset_ns = if is_plain(case, server) { 0 } else { case.each(sent_ns * u128::from(server.connects)) };
    // How long sending takes is not seen on a UNIX socket.
    let is_seen = server.send_ns > 0;
    let tls_ns = case.each(tls_ns(case, server).into());
    let connecting = Between::of_connecting(case, server, ns.saturating_sub(tls_ns));
    let low = connecting.low_ns.saturating_add(tls_ns).saturating_sub(reset_ns);
    let low = if is_seen { low } else { 0 };
    let high = connecting.high_ns.saturating_add(tls_ns);
    let sockets = sockets.unwrap_or_default();
    let basis = match (is_seen, reset_ns) {
        (false, _) => Statement::new(
            "at most the connections' own time, if the extension keeps them; less a reset where there is something to forget, and how long sending one takes was not seen here",
        ),
        (true, 0) => Statement::new(
            "what the kernel does for connections but wake the server, and for their sockets as far as samples tell it, if the extension keeps them; there is nothing to forget after these commands, so no reset is sent",
        ),
        (true, _) => Statement::new(
            "what the kernel does for connections but wake the server, and for their sockets as far as samples tell it, if the extension keeps them; less a reset for each where there is something to forget, which is sent as a command is: {time}",
        )
        .with("time", Value::Ns(reset_ns)),
    };
    Gain {
        low: Value::Ns(low.saturating_add(sockets.low_ns)),
        high: Value::Ns(high.saturating_add(sockets.high_ns)),
        basis,
    }
}

/// Whether the extension would keep connections to this server.
pub(super) fn may_keep(case: &Case<'_>, server: &ServerTime) -> bool {
    let is_php = case.recording.processes.iter().any(|process| process.language == Language::Php);
    is_php && KEPT_PROTOCOLS.contains(&&*server.endpoint.protocol) && kept(case, server).is_none()
}

/// Whether there is nothing to forget after what was said, as far as it was read.
fn is_plain(case: &Case<'_>, server: &ServerTime) -> bool {
    let commands = || calls(case, server).into_iter().flat_map(|calls| &calls.commands);
    let mut named = commands().filter(|command| !command.name.is_empty()).peekable();
    server.endpoint.protocol == "redis"
        && tls_ns(case, server) == 0
        && named.peek().is_some()
        && named.all(|command| PLAIN.split(' ').any(|plain| plain == command.name))
}

/// Whether it is on a UNIX socket.
fn is_local(server: &ServerTime) -> bool {
    server.endpoint.address.starts_with(['/', '@'])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_extension_knows_all_plain_commands() {
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/../../ext/src/framing.c");
        let source = std::fs::read_to_string(source).unwrap();
        let (_, plain) = source.split_once("plain[] = {").unwrap();
        let (plain, _) = plain.split_once('}').unwrap();
        for name in PLAIN.split(' ') {
            assert!(plain.contains(&format!("\"{}\"", name.to_lowercase())), "{name}");
        }
    }
}
