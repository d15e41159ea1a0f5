//! Budgets for tests.

use proptest::prelude::*;
use slip_model::{Budget, CpuTaker, Endpoint, EndpointTime, PartTimes, ServedRequest, Worker};

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

/// Any budget, also one that contradicts itself.
pub(crate) fn any_budget() -> impl Strategy<Value = Budget> {
    // Few names, so that some endpoints are the same.
    let endpoint =
        (0..3_u8).prop_map(|name| Endpoint { address: format!("10.0.0.{name}:80"), protocol: String::new() });
    let taker =
        (any::<bool>(), ns()).prop_map(|(is_worker, ns)| CpuTaker { name: String::new(), is_worker, ns });
    (
        prop::collection::vec(worker(), 0..4),
        prop::collection::vec(endpoint, 0..4),
        prop::collection::vec(request(), 0..8),
        prop::collection::vec(taker, 0..3),
        prop::array::uniform4(ns()),
    )
        .prop_map(
            |(workers, endpoints, requests, takers, [window_ns, lost_requests, throttled_ns, steal_ns])| {
                Budget {
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
            },
        )
}
