//! What `budget.bpf.c` and we tell each other: `bpf/budget.h`.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::net::{Ipv4Addr, Ipv6Addr};

use super::RunStart;
use slip_model::{CallPart, CommandTime, CpuTaker, EndpointCalls, EndpointTime, Lengths, Part, PartTimes};

pub(super) const PARTS: usize = Part::ALL.len();
pub(crate) const ENDPOINTS: usize = 16;
const OPEN: usize = 32;
const PATH_BYTES: usize = 108;
/// `SLIP_COMMAND_BYTES`
const COMMAND_BYTES: usize = 16;
/// `SLIP_TASK_NAME_BYTES`
const TASK_NAME_BYTES: usize = 16;

/// Of x86-64.
const PAGE_BYTES: u64 = 4_096;

/// `struct slip_thread`
const THREAD_BYTES: usize = 120 + 5 * 8 * PARTS + ENDPOINTS * 48 + 48 + 56 + OPEN * 32 + 16;

/// `struct slip_listed`
pub(crate) const LISTED_BYTES: usize = 8 + THREAD_BYTES;

/// `struct slip_endpoint_key`
pub(super) const KEY_BYTES: usize = 4 + PATH_BYTES;

const EVENT_SERVED: u32 = 1;
const EVENT_THREAD_ENDED: u32 = 2;
const EVENT_CALL: u32 = 3;
const SHARED: u32 = 1;
const STARTED: u32 = 2;
const RUN: u32 = 4;
const CALL_TAKEN: u32 = 1;
const CALL_TAKEN_BY_WORKER: u32 = 2;
/// `SLIP_TARGET_SITES`
const TARGET_SITES: u32 = 1;
const TAKER_WORKER: u8 = 1;
const TAKER_PREFERRED: u8 = 2;

const IDLE: u32 = PARTS as u32;
const UNKNOWN: u32 = 128;
const RUNS: u32 = 1_024;

const AF_UNIX: u16 = 1;
const AF_INET: u16 = 2;
const AF_INET6: u16 = 10;

/// `struct slip_budget_options`
pub(super) fn options(unseen_fault_ns: u64, do_nothing: bool, by_address: bool) -> [u8; 10] {
    let mut bytes = [0; 10];
    bytes[..8].copy_from_slice(&unseen_fault_ns.to_le_bytes());
    bytes[8..].copy_from_slice(&[do_nothing.into(), by_address.into()]);
    bytes
}

/// A thread of a target, and all of its time since it was first known what it does. Moments are of `CLOCK_MONOTONIC`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ThreadTimes {
    /// Its process, as our pid namespace numbers it.
    pub pid: u32,
    /// Its number there.
    pub tid: u32,
    /// From when on its times are known; all of them add up to `now_ns - first_ns`.
    pub first_ns: u64,
    /// Up to when.
    pub now_ns: u64,
    /// Waiting for a request.
    pub idle_ns: u64,
    /// Of the others, while it had more than one open.
    pub shared_ns: u64,
    /// While it was busy and data had come that it read later, if it is an event loop.
    pub loop_blocked_ns: u64,
    /// In no request.
    pub between: PartTimes,
    /// In requests, up to the response.
    pub serving: PartTimes,
    /// In requests, after the response.
    pub after: PartTimes,
    /// By number of the endpoint.
    pub endpoints: [EndpointTime; ENDPOINTS],
    /// Requests that have ended.
    pub ended: u64,
    /// Requests that it could not be remembered to have.
    pub crowded: u64,
    /// Page faults in requests.
    pub faults: u64,
    /// Calls in requests that map memory or give it back.
    pub memory_calls: u64,
    /// The most memory that the process ever had at a time, once it has ended; else 0.
    pub most_bytes: u64,
    /// Requests that are under way.
    pub opened: u32,
    /// What it does is not known yet.
    pub is_unknown: bool,
    /// It serves no request: `serving` is its whole run, `between` the start-up and `after` the exit.
    pub is_run: bool,
}

/// A request that has ended. Moments are of `CLOCK_MONOTONIC`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ServedTimes {
    /// As in [`ThreadTimes`].
    pub pid: u32,
    /// As in [`ThreadTimes`].
    pub tid: u32,
    /// The thread had others open meanwhile.
    pub is_shared: bool,
    /// PHP has begun it.
    pub is_started: bool,
    /// It is no request, but the whole run of a thread.
    pub is_run: bool,
    /// When its data had come.
    pub queued_ns: u64,
    /// When the worker began.
    pub begin_ns: u64,
    /// When the last of the response was sent.
    pub response_ns: u64,
    /// When the worker had done.
    pub end_ns: u64,
    /// Up to the response.
    pub serving: PartTimes,
    /// After it.
    pub after: PartTimes,
}

/// A call to a server that was slow. Moments are of `CLOCK_MONOTONIC`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SlowCall {
    /// As in [`ThreadTimes`].
    pub pid: u32,
    /// As in [`ThreadTimes`].
    pub tid: u32,
    /// By number of the endpoint.
    pub endpoint: u32,
    /// When its answer was read.
    pub end_ns: u64,
    /// By number of the [`CallPart`]; they add up to the call.
    pub parts: [u64; CallPart::ALL.len()],
    /// Who had the CPU last before the thread got it to read the answer, and for how long the thread was ready then; `None` if that was
    /// not for long, or is not known.
    pub taker: Option<CpuTaker>,
    /// The first word that it sent, which may be anything: [`SlowCall::command`].
    pub(super) word: Vec<u8>,
}

impl SlowCall {
    /// The name of its command where this protocol is spoken; empty if it is not known, or may be something else.
    pub fn command(&self, protocol: &str) -> String {
        command(protocol, &self.word)
    }
}

/// What the programs tell as it happens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BudgetEvent {
    /// A request has ended.
    Served(Box<ServedTimes>),
    /// A thread has ended.
    ThreadEnded(Box<ThreadTimes>),
    /// A call to a server has ended that was slow.
    Call(Box<SlowCall>),
}

/// Numbers one after the other, as the kernel's structures have them.
pub(super) struct Words<'a>(pub(super) &'a [u8]);

impl Words<'_> {
    pub(super) fn u64(&mut self) -> Option<u64> {
        let (first, rest) = self.0.split_first_chunk::<8>()?;
        self.0 = rest;
        Some(u64::from_le_bytes(*first))
    }

    pub(super) fn u32(&mut self) -> Option<u32> {
        let (first, rest) = self.0.split_first_chunk::<4>()?;
        self.0 = rest;
        Some(u32::from_le_bytes(*first))
    }

    fn parts(&mut self) -> Option<PartTimes> {
        let mut times = PartTimes::default();
        for ns in &mut times.0 {
            *ns = self.u64()?;
        }
        Some(times)
    }

    /// All together, and how often for how long.
    fn lengths(&mut self) -> Option<Lengths> {
        let ns = self.u64()?;
        let mut buckets = Vec::with_capacity(BUCKETS);
        for _ in 0..BUCKETS {
            buckets.push(self.u32()?.into());
        }
        while buckets.last() == Some(&0) {
            buckets.pop();
        }
        Some(Lengths { ns, buckets })
    }
}

impl ThreadTimes {
    /// From a `struct slip_listed`; `None` if it is too short.
    pub(crate) fn parse(bytes: &[u8]) -> Option<Self> {
        let mut words = Words(bytes);
        let now_ns = words.u64()?;
        words.u64()?;
        let since_ns = words.u64()?;
        let (part, flags) = (words.u32()?, words.u32()?);
        words.u64()?;
        let (endpoint, opened, responded) = (words.u32()?, words.u32()?, words.u32()?);
        // From last_endpoint to random.
        words.0 = words.0.get(76..)?;
        let (mut current, mut tail) = (words.parts()?, words.parts()?);
        let mut endpoints = [EndpointTime::default(); ENDPOINTS];
        for (number, time) in (0..).zip(&mut endpoints) {
            *time = EndpointTime {
                endpoint: number,
                connects: words.u64()?,
                calls: words.u64()?,
                connect_ns: words.u64()?,
                transfer_ns: words.u64()?,
                wait_ns: words.u64()?,
                wake_ns: words.u64()?,
            };
        }
        let (pid, tid) = (words.u32()?, words.u32()?);
        let first_ns = words.u64()?;
        words.u64()?;
        let (mut idle_ns, mut shared_ns, loop_blocked_ns) = (words.u64()?, words.u64()?, words.u64()?);
        let (mut between, mut serving, mut after) = (words.parts()?, words.parts()?, words.parts()?);
        let (ended, crowded) = (words.u64()?, words.u64()?);
        let (faults, memory_calls, most_pages) = (words.u64()?, words.u64()?, words.u64()?);
        // looped_ns, loop_blocked_until_ns, open, is_shared, memory_told_ns
        words.0.get(16 + OPEN * 32 + 16..).filter(|rest| rest.is_empty())?;
        // What has come since belongs to what it is in.
        let rest = now_ns.saturating_sub(since_ns);
        let is_after = opened > 0 && opened == responded;
        if part == IDLE {
            idle_ns = idle_ns.saturating_add(rest);
        } else {
            let part =
                usize::try_from(part).ok().filter(|part| *part < PARTS).unwrap_or(Part::Other as usize);
            let times = if is_after { &mut tail } else { &mut current };
            times.0[part] = times.0[part].saturating_add(rest);
            if opened > 1 {
                shared_ns = shared_ns.saturating_add(rest);
            }
            if part == Part::Wait as usize
                && let Some(time) = endpoints.get_mut(endpoint as usize)
            {
                time.wait_ns = time.wait_ns.saturating_add(rest);
            }
        }
        if opened > 0 {
            serving.add(&current);
            after.add(&tail);
        } else {
            between.add(&current);
        }
        Some(Self {
            pid,
            tid,
            first_ns,
            now_ns,
            idle_ns,
            shared_ns,
            loop_blocked_ns,
            between,
            serving,
            after,
            endpoints,
            ended,
            crowded,
            faults,
            memory_calls,
            most_bytes: most_pages.saturating_mul(PAGE_BYTES),
            opened,
            is_unknown: flags & UNKNOWN != 0,
            is_run: flags & RUNS != 0,
        })
    }
}

/// What an event says; `None` for one that is not understood.
pub(crate) fn parse_event(bytes: &[u8]) -> Option<BudgetEvent> {
    let mut words = Words(bytes);
    match words.u32()? {
        EVENT_SERVED => {
            let (pid, tid, flags) = (words.u32()?, words.u32()?, words.u32()?);
            Some(BudgetEvent::Served(Box::new(ServedTimes {
                pid,
                tid,
                is_shared: flags & SHARED != 0,
                is_started: flags & STARTED != 0,
                is_run: flags & RUN != 0,
                queued_ns: words.u64()?,
                begin_ns: words.u64()?,
                response_ns: words.u64()?,
                end_ns: words.u64()?,
                serving: words.parts()?,
                after: words.parts()?,
            })))
        }
        EVENT_CALL => {
            let (pid, tid, endpoint) = (words.u32()?, words.u32()?, words.u32()?);
            let mut call = SlowCall { pid, tid, endpoint, end_ns: words.u64()?, ..SlowCall::default() };
            for ns in &mut call.parts {
                *ns = words.u64()?;
            }
            let (word, rest) = words.0.split_at_checked(COMMAND_BYTES)?;
            call.word = word.to_vec();
            let (name, mut rest) =
                rest.split_at_checked(TASK_NAME_BYTES).map(|(name, rest)| (name, Words(rest)))?;
            let flags = rest.u32()?;
            call.taker = (flags & CALL_TAKEN != 0).then(|| CpuTaker {
                name: task_name(name),
                is_worker: flags & CALL_TAKEN_BY_WORKER != 0,
                ns: call.parts[CallPart::Running as usize],
                ..CpuTaker::default()
            });
            Some(BudgetEvent::Call(Box::new(call)))
        }
        EVENT_THREAD_ENDED => Some(BudgetEvent::ThreadEnded(Box::new(ThreadTimes::parse(bytes.get(8..)?)?))),
        _ => None,
    }
}

/// What is told of a process: `struct slip_budget_target`.
pub(super) fn target(runtime: Option<(u64, u64)>, run: Option<&RunStart>, has_sites: bool) -> Vec<u8> {
    let (begin, end) = runtime.unwrap_or_default();
    let (script, run): (u64, u32) = match run {
        None => (0, 0),
        Some(RunStart::Now) => (0, 1),
        Some(RunStart::Exec) => (0, 2),
        Some(RunStart::Script { inode }) => (*inode, 3),
        Some(RunStart::Program { .. }) => (0, 3),
    };
    let mut bytes = Vec::new();
    bytes.extend_from_slice(&begin.to_le_bytes());
    bytes.extend_from_slice(&end.to_le_bytes());
    bytes.extend_from_slice(&script.to_le_bytes());
    bytes.extend_from_slice(&run.to_le_bytes());
    bytes.extend_from_slice(&if has_sites { TARGET_SITES } else { 0 }.to_le_bytes());
    bytes
}

/// The key of a UNIX socket by its path; an abstract name begins with `@`. `None` if it is too long.
pub(crate) fn path_key(path: &[u8]) -> Option<Vec<u8>> {
    let mut key = vec![0; KEY_BYTES];
    key[..2].copy_from_slice(&AF_UNIX.to_le_bytes());
    key.get_mut(4..4 + path.len())?.copy_from_slice(path);
    if path.first() == Some(&b'@') {
        key[4] = 0;
    }
    Some(key)
}

/// Where a server listens, from a `struct slip_endpoint_key`.
pub(crate) fn address(key: &[u8]) -> Option<String> {
    let family = u16::from_le_bytes(*key.first_chunk()?);
    let port = u16::from_be_bytes(*key.get(2..)?.first_chunk()?);
    let rest = key.get(4..)?;
    match family {
        AF_INET => Some(format!("{}:{port}", Ipv4Addr::from(*rest.first_chunk::<4>()?))),
        AF_INET6 => {
            let address = Ipv6Addr::from(*rest.first_chunk::<16>()?);
            // What is IPv4 to everybody else.
            Some(
                address
                    .to_ipv4_mapped()
                    .map_or_else(|| format!("[{address}]:{port}"), |old| format!("{old}:{port}")),
            )
        }
        AF_UNIX => {
            let (is_abstract, name) = (rest.first() == Some(&0), rest.strip_prefix(&[0]).unwrap_or(rest));
            let end = name.iter().position(|byte| *byte == 0).unwrap_or(name.len());
            let name = String::from_utf8_lossy(&name[..end]);
            Some(if is_abstract { format!("@{name}") } else { name.into_owned() })
        }
        _ => None,
    }
}

/// `SLIP_BUCKETS`
const BUCKETS: usize = 64;

/// `struct slip_call_times`
pub(super) const CALL_TIMES_BYTES: usize = 8 + CallPart::ALL.len() * (8 + 4 * BUCKETS);

/// What one CPU has noted of the calls to an endpoint, a `struct slip_call_times`, is added; `None` if it is too short.
pub(crate) fn add_calls(calls: &mut EndpointCalls, bytes: &[u8]) -> Option<()> {
    let mut words = Words(bytes.get(..CALL_TIMES_BYTES)?);
    calls.calls = calls.calls.saturating_add(words.u64()?);
    calls.parts.resize(CallPart::ALL.len(), Lengths::default());
    for part in &mut calls.parts {
        part.add(&words.lengths()?);
    }
    Some(())
}

/// Of these protocols the first word that was sent is shown if it is one of their commands: it could be anything else where a call
/// begins in the middle of what is being said. What Redis is sent has a form that tells.
const WORDS: [(&str, &str); 4] = [
    ("http", "GET HEAD POST PUT DELETE PATCH OPTIONS TRACE CONNECT PRI"),
    (
        "memcached",
        "GET GETS GAT GATS SET ADD REPLACE APPEND PREPEND CAS DELETE INCR DECR TOUCH STATS VERSION FLUSH_ALL QUIT MG MS MD MA MN ME",
    ),
    ("mysql", SQL),
    ("postgresql", SQL),
];

const SQL: &str = "SELECT INSERT UPDATE DELETE REPLACE MERGE WITH VALUES TABLE CALL DO EXECUTE PREPARE DEALLOCATE DECLARE FETCH CLOSE \
BEGIN START COMMIT ROLLBACK SAVEPOINT RELEASE END ABORT LOCK UNLOCK SET RESET SHOW USE DESCRIBE DESC EXPLAIN ANALYZE CREATE ALTER DROP \
TRUNCATE RENAME GRANT REVOKE LOAD COPY VACUUM DISCARD LISTEN NOTIFY UNLISTEN HANDLER OPTIMIZE CHECK REPAIR FLUSH KILL";

/// The name of a command; empty if it is not known, or may be something else.
pub(super) fn command(protocol: &str, name: &[u8]) -> String {
    let end = name.iter().position(|byte| *byte == 0).unwrap_or(name.len());
    let name = &name[..end];
    let is_in_name =
        |byte: &u8| byte.is_ascii_uppercase() || byte.is_ascii_digit() || matches!(byte, b'_' | b'.');
    let is_name = name.iter().all(is_in_name);
    let name = if is_name { String::from_utf8_lossy(name).into_owned() } else { String::new() };
    let words = WORDS.iter().find(|(of, _)| *of == protocol).map(|(_, words)| words);
    match words {
        Some(words) if !words.split(' ').any(|word| word == name) => String::new(),
        None if protocol != "redis" => String::new(),
        _ => name,
    }
}

/// From a `struct slip_command_key` and a `struct slip_command_times`; `None` if they are too short. `protocol` tells what is spoken
/// at an endpoint.
pub(crate) fn command_time<'a>(
    key: &[u8],
    times: &[u8],
    protocol: impl Fn(u32) -> &'a str,
) -> Option<CommandTime> {
    let endpoint = u32::from_le_bytes(*key.first_chunk()?);
    let name = command(protocol(endpoint), key.get(4..4 + COMMAND_BYTES)?);
    let mut words = Words(times);
    Some(CommandTime { endpoint, name, calls: words.u64()?, ns: words.u64()?, longest_ns: words.u64()? })
}

/// The kernel's name of a thread. Before Linux 5.17 what follows its end is left of an earlier one that was longer.
fn task_name(name: &[u8]) -> String {
    let end = name.iter().position(|byte| *byte == 0).unwrap_or(name.len());
    String::from_utf8_lossy(&name[..end]).into_owned()
}

/// Keys of those that had a CPU, with the times; the longest first. A name may have several keys.
pub(crate) fn takers(times: impl Iterator<Item = (Vec<u8>, Vec<u8>)>) -> Vec<CpuTaker> {
    let mut sums: BTreeMap<(String, bool), CpuTaker> = BTreeMap::new();
    for (key, value) in times {
        let Some(name) = key.get(..TASK_NAME_BYTES) else { continue };
        let mut words = Words(&value);
        let Some(lengths) = words.lengths() else { continue };
        let flags = key.get(TASK_NAME_BYTES).copied().unwrap_or_default();
        let (name, is_worker) = (task_name(name), flags & TAKER_WORKER != 0);
        let taker = sums.entry((name.clone(), is_worker)).or_default();
        (taker.name, taker.is_worker) = (name, is_worker);
        taker.ns = taker.ns.saturating_add(lengths.ns);
        taker.lengths.add(&lengths);
        if flags & TAKER_PREFERRED != 0 {
            taker.preferred_ns = taker.preferred_ns.saturating_add(lengths.ns);
        }
    }
    let mut found: Vec<CpuTaker> = sums.into_values().collect();
    found.sort_by_key(|taker| Reverse(taker.ns));
    found
}

/// `enum slip_protocol`
pub(crate) fn protocol(number: u32) -> &'static str {
    match number {
        1 => "redis",
        2 => "mysql",
        3 => "postgresql",
        4 => "memcached",
        5 => "http",
        6 => "tls",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_name_is_one_taker_whatever_follows_its_end() {
        let key = |name: &[u8; 16], is_worker: u8| [&name[..], &[is_worker]].concat();
        let time = |ns: u64| {
            // One of them, in the first bucket.
            let mut time = [ns.to_le_bytes(), 1_u64.to_le_bytes()].concat();
            time.resize(8 + 4 * BUCKETS, 0);
            time
        };
        let times = [
            (key(b"php-fpm8.2\0\0\0\0\0\0", 1), time(3)),
            (key(b"sh\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 0), time(2)),
            (key(b"sh\0-fpm8.2\0\0\0\0\0\0", 0), time(5)),
            (key(b"sh\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 2), time(4)),
        ];
        let found = takers(times.into_iter());
        let found: Vec<_> = found
            .iter()
            .map(|taker| (&*taker.name, taker.is_worker, taker.ns, taker.lengths.count(), taker.preferred_ns))
            .collect();
        assert_eq!(found, [("sh", false, 11, 3, 4), ("php-fpm8.2", true, 3, 1, 0)]);
    }

    #[test]
    fn addresses_are_written_as_people_write_them() {
        let inet = |family: u16, address: &[u8]| {
            let mut key = vec![0; KEY_BYTES];
            key[..2].copy_from_slice(&family.to_le_bytes());
            key[2..4].copy_from_slice(&6379_u16.to_be_bytes());
            key[4..4 + address.len()].copy_from_slice(address);
            address_of(&key)
        };
        fn address_of(key: &[u8]) -> String {
            address(key).unwrap()
        }
        assert_eq!(inet(AF_INET, &[127, 0, 0, 1]), "127.0.0.1:6379");
        assert_eq!(inet(AF_INET6, &Ipv6Addr::LOCALHOST.octets()), "[::1]:6379");
        assert_eq!(inet(AF_INET6, &Ipv4Addr::LOCALHOST.to_ipv6_mapped().octets()), "127.0.0.1:6379");
        assert_eq!(address_of(&path_key(b"/run/mysql.sock").unwrap()), "/run/mysql.sock");
        assert_eq!(address_of(&path_key(b"@abstract").unwrap()), "@abstract");
        assert_eq!((path_key(&[b'x'; 109]), address(&[])), (None, None));
    }

    #[test]
    fn calls_of_all_cpus_are_added() {
        let mut bytes = vec![0; CALL_TIMES_BYTES];
        bytes[..8].copy_from_slice(&3_u64.to_le_bytes());
        let write = 8 + CallPart::Write as usize * (8 + 4 * BUCKETS);
        bytes[write..write + 8].copy_from_slice(&900_u64.to_le_bytes());
        bytes[write + 12..write + 16].copy_from_slice(&3_u32.to_le_bytes());
        let mut calls = EndpointCalls::default();
        assert_eq!((add_calls(&mut calls, &bytes), add_calls(&mut calls, &bytes)), (Some(()), Some(())));
        let part = &calls.parts[CallPart::Write as usize];
        assert_eq!((calls.calls, part.ns, &*part.buckets), (6, 1_800, &[0, 6][..]));
        assert_eq!(add_calls(&mut calls, &bytes[1..]), None);
    }

    #[test]
    fn a_word_that_may_be_no_command_is_not_told() {
        let command = |protocol, name: &str| command(protocol, name.as_bytes());
        assert_eq!(
            (command("redis", "JSON.GET\0\0"), command("redis", "a key")),
            ("JSON.GET".into(), String::new())
        );
        assert_eq!(
            (command("mysql", "SELECT"), command("mysql", "HUNTER2")),
            ("SELECT".into(), String::new())
        );
        assert_eq!((command("http", "GET"), command("tls", "GET")), ("GET".into(), String::new()));
    }

    #[test]
    fn a_slow_call_has_its_command_only_where_the_word_is_one() {
        let mut bytes = Vec::new();
        for number in [EVENT_CALL, 7, 8, 2] {
            bytes.extend_from_slice(&number.to_le_bytes());
        }
        for ns in [900].into_iter().chain(1..=CallPart::ALL.len() as u64) {
            bytes.extend_from_slice(&u64::to_le_bytes(ns));
        }
        bytes.extend_from_slice(b"HUNTER2\0\0\0\0\0\0\0\0\0");
        bytes.extend_from_slice(b"mysqld\0\0\0\0\0\0\0\0\0\0");
        bytes.extend_from_slice(&CALL_TAKEN.to_le_bytes());
        assert_eq!(parse_event(&bytes[..bytes.len() - 1]), None);
        let Some(BudgetEvent::Call(call)) = parse_event(&bytes) else { panic!("no call") };
        assert_eq!((call.pid, call.tid, call.endpoint, call.end_ns), (7, 8, 2, 900));
        assert_eq!(call.parts, [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11]);
        assert_eq!((call.command("redis"), call.command("mysql")), ("HUNTER2".to_owned(), String::new()));
        assert_eq!(call.taker, Some(CpuTaker { name: "mysqld".to_owned(), ns: 10, ..CpuTaker::default() }));
        let flags = bytes.len() - 4;
        bytes[flags] = 0;
        let Some(BudgetEvent::Call(call)) = parse_event(&bytes) else { panic!("no call") };
        assert_eq!(call.taker, None);
    }

    #[test]
    fn a_thread_that_is_cut_off_is_none() {
        let bytes = vec![0; LISTED_BYTES];
        assert_eq!(ThreadTimes::parse(&bytes).map(|times| times.idle_ns), Some(0));
        assert_eq!(ThreadTimes::parse(&bytes[..LISTED_BYTES - 20]), None);
        assert_eq!(parse_event(&[1, 0, 0, 0, 5]), None);
        assert_eq!(parse_event(&[9; 400]), None);
    }
}
