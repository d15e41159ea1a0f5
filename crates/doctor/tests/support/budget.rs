//! A small budget that has everything, and whose sums can be done in the head.

use slip_model::{
    Budget, CallPart, CommandTime, CpuTaker, Endpoint, EndpointCalls, EndpointTime, Lengths, Part, PartTimes,
    ServedRequest, Worker,
};

/// These parts and no others.
pub(crate) fn times(parts: &[(Part, u64)]) -> PartTimes {
    let mut times = PartTimes::default();
    for (part, ns) in parts {
        times.0[*part as usize] += ns;
    }
    times
}

/// Twelve calls of 2.5 us each on average, two of them long at the server, and two connections.
fn redis_calls() -> EndpointCalls {
    let mut parts = vec![Lengths::default(); CallPart::ALL.len()];
    parts[CallPart::Connect as usize] =
        Lengths { ns: 20_000, buckets: vec![0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2] };
    parts[CallPart::Write as usize] = Lengths { ns: 6_000, buckets: vec![0, 12] };
    parts[CallPart::Work as usize] = Lengths { ns: 24_000, buckets: vec![0, 0, 0, 10, 0, 0, 0, 0, 2] };
    EndpointCalls { endpoint: 0, calls: 12, parts }
}

/// Two workers, watched for a millisecond each, two servers, and seven requests: four that had their worker for themselves, one
/// that had not, and two for which there was no room.
pub(crate) fn budget() -> Budget {
    use Part::{Boot, Client, Code, Connect, Gil, Memory, Preempted, Transfer, Wait, Wake};
    let usual = [(Boot, 10_000), (Memory, 5_000)];
    let request =
        |worker, [queued_ns, begin_ns]: [u64; 2], serving: &[(Part, u64)], after: &[(Part, u64)]| {
            let serving = times(&[&usual, serving].concat());
            let response_ns = begin_ns + serving.total_ns();
            let after = times(after);
            let end_ns = response_ns + after.total_ns();
            ServedRequest { worker, queued_ns, begin_ns, response_ns, end_ns, serving, after }
        };
    let first = request(
        0,
        [10_000, 30_000],
        &[
            (Code, 70_000),
            (Connect, 20_000),
            (Transfer, 20_000),
            (Wait, 80_000),
            (Wake, 35_000),
            (Gil, 10_000),
        ],
        &[(Code, 20_000)],
    );
    let second = request(
        1,
        [200_000, 200_000],
        &[
            (Code, 60_000),
            (Connect, 10_000),
            (Transfer, 10_000),
            (Wait, 60_000),
            (Wake, 15_000),
            (Gil, 10_000),
        ],
        &[(Code, 10_000)],
    );
    let third = request(
        0,
        [400_000, 400_000],
        &[
            (Code, 50_000),
            (Connect, 10_000),
            (Transfer, 10_000),
            (Wait, 50_000),
            (Client, 10_000),
            (Wake, 15_000),
            (Preempted, 10_000),
        ],
        &[(Code, 10_000)],
    );
    let fourth = request(
        1,
        [410_000, 440_000],
        &[
            (Code, 60_000),
            (Connect, 10_000),
            (Transfer, 20_000),
            (Wait, 120_000),
            (Wake, 15_000),
            (Gil, 10_000),
        ],
        &[(Code, 15_000), (Wait, 5_000)],
    );
    let shared = ServedRequest {
        worker: 1,
        queued_ns: 750_000,
        begin_ns: 750_000,
        response_ns: 900_000,
        end_ns: 900_000,
        ..ServedRequest::default()
    };
    let worker = |pid, requests: [&ServedRequest; 2], others: &[(Part, u64)], between: &[(Part, u64)]| {
        let mut worker = Worker {
            pid,
            tid: pid,
            title: "php-fpm: pool www".into(),
            watched_ns: 1_000_000,
            ..Worker::default()
        };
        worker.serving = times(others);
        worker.between = times(between);
        for request in requests {
            worker.serving.add(&request.serving);
            worker.after.add(&request.after);
        }
        let busy = [&worker.serving, &worker.between, &worker.after].map(PartTimes::total_ns);
        worker.idle_ns = worker.watched_ns - busy.iter().sum::<u64>();
        worker
    };
    let of_endpoint = |endpoint, calls, wait_ns| EndpointTime {
        endpoint,
        connects: 1,
        calls,
        connect_ns: 12_500,
        transfer_ns: 15_000,
        wait_ns,
        wake_ns: 20_000,
    };
    let workers = vec![
        Worker {
            endpoints: vec![of_endpoint(0, 6, 35_000), of_endpoint(1, 3, 85_000)],
            ..worker(101, [&first, &third], &[], &[(Code, 5_000), (Wait, 5_000)])
        },
        Worker {
            shared_ns: 60_000,
            loop_blocked_ns: 40_000,
            endpoints: vec![of_endpoint(0, 7, 55_000), of_endpoint(1, 5, 175_000)],
            ..worker(102, [&second, &fourth], &[(Code, 20_000), (Wait, 50_000), (Wake, 10_000)], &[])
        },
    ];
    let endpoint =
        |address: &str, protocol: &str| Endpoint { address: address.into(), protocol: protocol.into() };
    let taker = |name: &str, is_worker, ns| CpuTaker {
        name: name.into(),
        is_worker,
        ns,
        preferred_ns: 0,
        lengths: slip_model::Lengths::default(),
    };
    Budget {
        rung: "tracepoints".into(),
        cannot_see: vec!["What an answer is for.".into()],
        window_ns: 1_000_000,
        workers,
        endpoints: vec![endpoint("127.0.0.1:6379", "redis"), endpoint("/run/mysqld/mysqld.sock", "mysql")],
        calls: vec![redis_calls()],
        commands: vec![
            CommandTime { endpoint: 0, name: String::new(), calls: 2, ns: 10_000, longest_ns: 9_000 },
            CommandTime { endpoint: 0, name: "GET".into(), calls: 10, ns: 20_000, longest_ns: 3_000 },
        ],
        requests: vec![first, second, third, fourth, shared],
        lost_requests: 2,
        takers: vec![
            taker("", false, 30_000),
            taker("mysqld", false, 60_000),
            taker("php-fpm8.2", true, 5_000),
        ],
        quota_periods: Some(40),
        quota: None,
        throttled_periods: 2,
        throttled_ns: 30_000,
        steal_ns: 1_000,
        cpus_ns: 2_000_000,
        run_begin: None,
        memory: None,
    }
}
