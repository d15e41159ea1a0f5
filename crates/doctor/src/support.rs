//! Budgets for tests.

use proptest::prelude::*;
use slip_model::{
    Budget, CallPart, CommandTime, CpuTaker, Endpoint, EndpointCalls, EndpointTime, Language, Lengths,
    MemoryCall, MemoryCalls, MemorySite, MemorySum, NativeFrame, Part, PartTimes, Process, Recording,
    RecordingInfo, ServedRequest, Thread, Worker,
};

use crate::case::Case;
use crate::{BudgetTable, Finding, Verdict};

#[path = "../tests/support/budget.rs"]
mod by_hand;

pub(crate) use by_hand::{budget, times};

/// Any number, often one at the ends.
fn ns() -> BoxedStrategy<u64> {
    prop_oneof![Just(0), Just(u64::MAX), any::<u64>(), 0..1_000_u64].boxed()
}

fn part_times() -> BoxedStrategy<PartTimes> {
    // On the heap: values of proptest are large, and a test has a small stack.
    let any = prop::collection::vec(ns(), 14).prop_map(|ns| PartTimes(std::array::from_fn(|part| ns[part])));
    prop_oneof![Just(PartTimes::default()), any].boxed()
}

fn worker() -> impl Strategy<Value = Worker> {
    let endpoint = prop::array::uniform6(ns()).prop_flat_map(
        |[connects, calls, connect_ns, transfer_ns, wait_ns, wake_ns]| {
            (0..5_u32).prop_map(move |endpoint| EndpointTime {
                endpoint,
                connects,
                calls,
                connect_ns,
                transfer_ns,
                wait_ns,
                wake_ns,
            })
        },
    );
    (prop::array::uniform4(ns()), prop::array::uniform3(part_times()), prop::collection::vec(endpoint, 0..6))
        .prop_map(
            |([watched_ns, idle_ns, shared_ns, loop_blocked_ns], [between, serving, after], endpoints)| {
                Worker {
                    watched_ns,
                    idle_ns,
                    between,
                    serving,
                    after,
                    shared_ns,
                    loop_blocked_ns,
                    endpoints,
                    ..Worker::default()
                }
            },
        )
}

fn request() -> impl Strategy<Value = ServedRequest> {
    (any::<u32>(), prop::array::uniform4(ns()), part_times(), part_times()).prop_map(
        |(worker, [queued_ns, begin_ns, response_ns, end_ns], serving, after)| ServedRequest {
            worker,
            queued_ns,
            begin_ns,
            response_ns,
            end_ns,
            serving,
            after,
        },
    )
}

fn memory_calls() -> impl Strategy<Value = MemoryCalls> {
    let call = || prop::sample::select(&MemoryCall::ALL[..]);
    let sum = (call(), ns(), ns()).prop_map(|(call, calls, ns)| MemorySum { call, calls, ns });
    // Few names, so that some callers are the same.
    let frame = (0..4_usize, 0..3_usize).prop_map(|(function, module)| NativeFrame {
        function: ["", "mmap", "main", "take"][function].into(),
        module: ["", "libc.so.6", "words"][module].into(),
    });
    let site = (call(), prop::collection::vec(frame, 0..12), any::<bool>(), ns(), ns())
        .prop_map(|(call, frames, is_cut, calls, ns)| MemorySite { call, frames, is_cut, calls, ns });
    (prop::collection::vec(sum, 0..8), prop::collection::vec(site, 0..6), ns(), ns())
        .prop_map(|(sums, sites, stacks, lost)| MemoryCalls { sums, sites, stacks, lost })
}

/// Any budget, also one that contradicts itself.
pub(crate) fn any_budget() -> impl Strategy<Value = Budget> {
    // Few names, so that some endpoints are the same.
    let endpoint =
        (0..3_u8).prop_map(|name| Endpoint { address: format!("10.0.0.{name}:80"), protocol: String::new() });
    let taker = (any::<bool>(), ns(), ns()).prop_map(|(is_worker, ns, preferred_ns)| CpuTaker {
        name: String::new(),
        is_worker,
        ns,
        lengths: slip_model::Lengths { ns, buckets: vec![1, ns % 1_000] },
        preferred_ns,
    });
    (
        prop::collection::vec(worker(), 0..4),
        prop::collection::vec(endpoint, 0..4),
        prop::collection::vec(request(), 0..8),
        prop::collection::vec(taker, 0..3),
        prop::array::uniform4(ns()),
        prop::option::of(memory_calls()),
    )
        .prop_map(|(workers, endpoints, requests, takers, numbers, memory)| {
            let [window_ns, lost_requests, throttled_ns, steal_ns] = numbers;
            Budget {
                memory,
                window_ns,
                workers,
                endpoints,
                requests,
                lost_requests,
                takers,
                throttled_ns,
                steal_ns,
                ..Budget::default()
            }
        })
}

/// A worker of PHP that was asked `count` times, each time with these parts, and was idle for a millisecond before each.
pub(crate) fn pool(count: u64, parts: &[(Part, u64)]) -> Recording {
    const IDLE_NS: u64 = 1_000_000;
    let serving = times(parts);
    let mut worker = Worker { pid: 7, tid: 7, ..Worker::default() };
    let mut budget = Budget { rung: "tracepoints".into(), ..Budget::default() };
    for _ in 0..count {
        let begin_ns = worker.watched_ns + IDLE_NS;
        let end_ns = begin_ns + serving.total_ns();
        worker.serving.add(&serving);
        worker.idle_ns += IDLE_NS;
        worker.watched_ns = end_ns;
        budget.requests.push(ServedRequest {
            queued_ns: begin_ns,
            begin_ns,
            response_ns: end_ns,
            end_ns,
            serving,
            ..ServedRequest::default()
        });
    }
    budget.window_ns = worker.watched_ns;
    budget.cpus_ns = 2 * budget.window_ns;
    budget.quota_periods = Some(0);
    budget.workers.push(worker);
    let process = Process { pid: 7, language: Language::Php, version: "8.2.36".into(), ..Process::default() };
    Recording {
        info: RecordingInfo { interval_ns: 10_000_000, ..RecordingInfo::default() },
        budget: Some(budget),
        processes: vec![process],
        threads: vec![Thread { tid: 7, ..Thread::default() }],
        ..Recording::default()
    }
}

/// The budget of a recording that has one.
pub(crate) fn of(recording: &mut Recording) -> &mut Budget {
    recording.budget.as_mut().unwrap()
}

/// A server, and calls to it: how many there are of each command, and lengths of the parts of calls.
pub(crate) fn serve(
    recording: &mut Recording,
    [address, protocol]: [&str; 2],
    time: EndpointTime,
    parts: &[(CallPart, Lengths)],
    commands: &[(&str, u64, u64)],
) {
    let budget = of(recording);
    let endpoint = u32::try_from(budget.endpoints.len()).unwrap();
    budget.endpoints.push(Endpoint { address: address.into(), protocol: protocol.into() });
    budget.workers[0].endpoints.push(EndpointTime { endpoint, ..time });
    let mut lengths = vec![Lengths::default(); CallPart::ALL.len()];
    for (part, of) in parts {
        lengths[*part as usize] = of.clone();
    }
    budget.calls.push(EndpointCalls { endpoint, calls: time.calls, parts: lengths });
    budget.commands.extend(commands.iter().map(|(name, calls, ns)| CommandTime {
        endpoint,
        name: (*name).into(),
        calls: *calls,
        ns: *ns,
        longest_ns: *ns,
    }));
}

/// Lengths of `count` things that take as long each.
pub(crate) fn lengths(count: u64, ns: u64) -> Lengths {
    let mut buckets = vec![0; 64];
    let bucket = (0..64).rev().find(|bucket| {
        let octave = 1_u64 << (8 + bucket / 2);
        ns >= if bucket % 2 == 0 { octave } else { octave + octave / 2 }
    });
    buckets[bucket.unwrap_or(0)] = count;
    Lengths { ns: count * ns, buckets }
}

/// What a rule says, and that each of its sentences has all of its values.
pub(crate) fn ask(judge: fn(&Case<'_>) -> Verdict, recording: &Recording) -> Verdict {
    let table = BudgetTable::of(recording).unwrap();
    let verdict = judge(&Case::new(recording, recording.budget.as_ref().unwrap(), &table));
    assert_whole(&verdict);
    verdict
}

pub(crate) fn assert_whole(verdict: &Verdict) {
    match verdict {
        Verdict::Found(findings) => {
            for statement in findings.iter().flat_map(Finding::statements) {
                assert!(statement.is_whole(), "{statement:?}");
            }
        }
        Verdict::Quiet(statement) | Verdict::TooLittle(statement) | Verdict::NotOf(statement) => {
            assert!(statement.is_whole(), "{statement:?}");
        }
    }
}

/// The only finding of a rule.
#[track_caller]
pub(crate) fn found(judge: fn(&Case<'_>) -> Verdict, recording: &Recording) -> Finding {
    match ask(judge, recording) {
        Verdict::Found(mut findings) if findings.len() == 1 => findings.remove(0),
        other => panic!("{other:?}"),
    }
}

/// That it looked and found nothing.
#[track_caller]
pub(crate) fn assert_quiet(judge: fn(&Case<'_>) -> Verdict, recording: &Recording) {
    let verdict = ask(judge, recording);
    assert!(matches!(verdict, Verdict::Quiet(_)), "{verdict:?}");
}
