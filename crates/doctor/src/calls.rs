//! What calls to servers were spent on.

use std::cmp::Reverse;

use slip_model::{Budget, CallPart, Endpoint};

use crate::requests::Spread;
use crate::shares;

/// The calls to one server, part by part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallTimes {
    /// Where it listens, and what is spoken there.
    pub endpoint: Endpoint,
    /// For how many calls those stand that were looked at.
    pub calls: u64,
    /// What a call takes on average; the parts of calls add up to it.
    pub mean_ns: u64,
    /// The parts that are longer than nothing, in the order in which a call has them.
    pub parts: Vec<CallPartTime>,
    /// The commands, those of which there are most first.
    pub commands: Vec<CommandCalls>,
}

/// A part of calls, or what comes once for a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallPartTime {
    /// Which.
    pub part: CallPart,
    /// All of it, nanoseconds.
    pub ns: u64,
    /// Its share of the time of calls, in tenths of a percent; these add up to 1000. `None` for what is of no call.
    pub tenths: Option<u64>,
    /// How many there were: calls, or connections.
    pub count: u64,
    /// Of one. The quantiles are within half an octave.
    pub spread: Spread,
}

/// Calls with one command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandCalls {
    /// Empty if it is not known.
    pub name: String,
    /// How many.
    pub calls: u64,
    /// What one takes on average.
    pub mean_ns: u64,
    /// The longest of those that were looked at for it.
    pub longest_ns: u64,
}

impl CallTimes {
    /// The calls of this budget, the server first that took most of the time of calls.
    pub(crate) fn of(budget: &Budget) -> Vec<Self> {
        let mut found: Vec<(u128, Self)> = Vec::new();
        for calls in &budget.calls {
            // One that is not there, in a file that somebody else made, has no name.
            let Some(endpoint) = budget.endpoints.get(calls.endpoint as usize) else { continue };
            let parts: Vec<_> =
                CallPart::ALL.into_iter().zip(&calls.parts).filter(|(_, lengths)| lengths.ns > 0).collect();
            let of_calls: Vec<u128> = parts
                .iter()
                .map(|(part, lengths)| if part.is_of_calls() { lengths.ns.into() } else { 0 })
                .collect();
            let total: u128 = of_calls.iter().sum();
            let parts = parts.iter().zip(shares(&of_calls)).map(|((part, lengths), tenths)| {
                let is_of_calls = part.is_of_calls();
                let count = if is_of_calls { calls.calls } else { lengths.count() };
                let quantile = |share| lengths.quantile_ns(share, count);
                let spread = Spread {
                    mean_ns: lengths.ns.checked_div(count).unwrap_or_default(),
                    p50_ns: quantile(0.5),
                    p95_ns: quantile(0.95),
                    p99_ns: quantile(0.99),
                };
                CallPartTime {
                    part: *part,
                    ns: lengths.ns,
                    tenths: is_of_calls.then_some(tenths),
                    count,
                    spread,
                }
            });
            let mut commands: Vec<CommandCalls> = budget
                .commands
                .iter()
                .filter(|command| command.endpoint == calls.endpoint)
                .map(|command| CommandCalls {
                    name: command.name.clone(),
                    calls: command.calls,
                    mean_ns: command.ns.checked_div(command.calls).unwrap_or_default(),
                    longest_ns: command.longest_ns,
                })
                .collect();
            commands.sort_by_key(|command| Reverse(command.calls));
            let mean = total.checked_div(calls.calls.into()).unwrap_or_default();
            let times = Self {
                endpoint: endpoint.clone(),
                calls: calls.calls,
                mean_ns: u64::try_from(mean).unwrap_or(u64::MAX),
                parts: parts.collect(),
                commands,
            };
            found.push((total, times));
        }
        found.sort_by_key(|(total, _)| Reverse(*total));
        found.into_iter().map(|(_, times)| times).collect()
    }
}

/// What a part is called.
pub fn call_part_name(part: CallPart) -> &'static str {
    match part {
        CallPart::Connect => "connect",
        CallPart::First => "first write",
        CallPart::Tls => "TLS",
        CallPart::Write => "write",
        CallPart::Flight => "in flight",
        CallPart::Queue => "server queue",
        CallPart::Work => "server work",
        CallPart::Remote => "remote",
        CallPart::Woken => "arrived",
        CallPart::Running => "woken",
        CallPart::Read => "running",
    }
}

/// What a part means, in a few words.
pub fn call_part_meaning(part: CallPart) -> &'static str {
    match part {
        CallPart::Connect => "until the server has agreed to the connection; once for each",
        CallPart::First => "from then until something is sent on it; once for each",
        CallPart::Tls => "the handshake of TLS; once for each connection",
        CallPart::Write => "the worker sends",
        CallPart::Flight => "on the way to the server and back",
        CallPart::Queue => "the server has not read it yet",
        CallPart::Work => "until the server answers",
        CallPart::Remote => "on the way and at the server, whose steps were not seen",
        CallPart::Woken => "the answer is there, until the worker is woken",
        CallPart::Running => "until the worker has a CPU",
        CallPart::Read => "until it reads the answer",
    }
}

#[cfg(test)]
mod tests {
    use slip_model::{CommandTime, EndpointCalls, Lengths};

    use super::*;
    use crate::support::budget;

    #[test]
    fn the_parts_of_calls_make_100_percent_and_those_of_connections_are_beside() {
        let times = CallTimes::of(&budget());
        let [redis] = &times[..] else { panic!("{times:?}") };
        assert_eq!((redis.calls, redis.mean_ns, &*redis.endpoint.protocol), (12, 2_500, "redis"));
        let parts: Vec<_> = redis.parts.iter().map(|row| (row.part, row.tenths, row.count)).collect();
        assert_eq!(
            parts,
            [(CallPart::Connect, None, 2), (CallPart::Write, Some(200), 12), (CallPart::Work, Some(800), 12)]
        );
        let commands: Vec<_> =
            redis.commands.iter().map(|row| (&*row.name, row.calls, row.mean_ns)).collect();
        assert_eq!(commands, [("GET", 10, 2_000), ("", 2, 5_000)]);
    }

    #[test]
    fn calls_to_a_server_that_is_not_there_are_left_out() {
        let calls = vec![EndpointCalls { endpoint: 9, calls: 1, parts: vec![Lengths::default()] }];
        let commands = vec![CommandTime { endpoint: 9, calls: 1, ..CommandTime::default() }];
        assert_eq!(CallTimes::of(&Budget { calls, commands, ..Budget::default() }), []);
    }
}
