//! Budgets of workers that have a CPU, or have to do without one.

#![allow(clippy::unwrap_used, reason = "what fails here fails the test")]

mod budget_support;

use std::thread;
use std::time::Duration;

use slip_model::{CpuQuota, Part};
use slip_testkit::fpm::{Fpm, Pool};

use self::budget_support::cpu::{Hogs, Quota, pin};
use self::budget_support::php::{CLOCKS, Watched, assert_drag, builds, fetch_all};
use self::budget_support::{REQUESTS, alone, assert_most, assert_share, ready_ns};

/// Computes, and says how long it had no CPU meanwhile.
fn computes() -> String {
    format!("{CLOCKS} echo without_cpu(function () {{ $used = cpu(); while (cpu() - $used < 20e6); }});")
}

#[test]
fn code_that_computes_is_code() {
    let script = format!("{CLOCKS} $used = cpu(); while (cpu() - $used < 15e6); echo (int) (cpu() - $used);");
    assert_drag(&script, Part::Code);
}

#[test]
fn a_cpu_that_others_have_is_told() {
    let _alone = alone();
    for build in builds() {
        let Some(watched) = Watched::start(&build, &computes()) else { return };
        pin(&watched.fpm.workers());
        let hogs = Hogs::start(8);
        let drag_ns = watched.blocked_ns(fetch_all(&watched.fpm));
        drop(hogs);
        let (budget, _) = watched.finish(REQUESTS);
        assert_most(ready_ns(&budget), drag_ns, &format!("{}: 8 hogs", build.label()));
        let first = &budget.takers[0];
        assert_eq!((&*first.name, first.is_worker), (Hogs::NAME, false), "{:?}", budget.takers);
    }
}

#[test]
fn workers_that_take_each_others_cpu_are_told() {
    let _alone = alone();
    for build in builds() {
        let pool = Pool { workers: 6, ..Pool::default() };
        let Some(watched) = Watched::start_pool(&build, pool, &computes()) else { return };
        pin(&watched.fpm.workers());
        let fpm = &watched.fpm;
        let told_ns = thread::scope(|scope| {
            let clients: Vec<_> = (0..6).map(|_| scope.spawn(|| fetch_all(fpm))).collect();
            clients.into_iter().map(|client| client.join().unwrap()).sum()
        });
        let drag_ns = watched.blocked_ns(told_ns);
        let (budget, _) = watched.finish(6 * REQUESTS);
        assert_most(ready_ns(&budget), drag_ns, &format!("{}: 6 workers", build.label()));
        let first = &budget.takers[0];
        assert!(first.is_worker && first.name.starts_with("php-fpm"), "{:?}", budget.takers);
    }
}

#[test]
fn a_quota_that_holds_a_worker_back_is_told() {
    let _alone = alone();
    let Some(build) = builds().into_iter().next() else { return };
    // The worker's own group has it, or one around that, as with a container in a pod.
    for below in ["", "inner"] {
        let quota = Quota::start(Duration::from_millis(5), Duration::from_millis(20), below);
        let Some(quota) = quota else { return };
        let fpm = Fpm::start_pool(&build, Pool::default(), &[("index.php", &computes())]);
        quota.add(&fpm.workers());
        let Some(watched) = Watched::of(fpm) else { return };
        let drag_ns = watched.blocked_ns(fetch_all(&watched.fpm));
        let (budget, _) = watched.finish(REQUESTS);
        assert_most(ready_ns(&budget), drag_ns, &format!("{}: quota", build.label()));
        // What of it was the quota's: the worker is not alone on the machine, and each CPU that it has been on counts.
        assert_share(budget.throttled_ns, drag_ns, 0.5..3.0, "as the kernel counts it");
        let group_ns = quota.throttled_ns();
        assert!(budget.throttled_ns <= group_ns, "the group, which is new: {group_ns} ns: {budget:?}");
        assert_eq!(budget.quota, Some(CpuQuota { quota_ns: 5_000_000, period_ns: 20_000_000 }));
        // Each takes 15 ms of its CPU, of which it may have 5 in a period.
        assert!((1..=budget.quota_periods.unwrap()).contains(&budget.throttled_periods), "{budget:?}");
        assert!(budget.cpus_ns > budget.steal_ns, "{budget:?}");
    }
}
