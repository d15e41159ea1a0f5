//! Budgets of workers whose booted state the extension puts back: as those of workers that boot.

#![allow(clippy::unwrap_used, reason = "what fails here fails the test")]

mod budget_support;

use std::path::Path;

use slip_model::{Budget, Part, ServedRequest};
use slip_testkit::fpm::{Build, Fpm, Pool};

use self::budget_support::php::{Watched, builds, parse};
use self::budget_support::{DRAG, REQUESTS, alone, assert_most, assert_most_blocked, assert_share, ready_ns};

/// Boots for 15 ms, or has the booted state put back; then waits as long, computes as long, and works on after the response. Says by its
/// own clock what the boot took, the wait, the work, and all of it from the first line to the response.
const SCRIPT: &str = r#"<?php
    function busy() { $until = hrtime(true) + 15000000; while (hrtime(true) < $until); }
    $begin = hrtime(true);
    $boot = 0;
    if (!RESTORE) {
        $boot = -hrtime(true);
        busy();
        $booted = array_fill(0, 1000, "state");
        $boot += hrtime(true);
        SAVE;
    }
    $begin_wait = hrtime(true);
    usleep(15000);
    $wait = hrtime(true) - $begin_wait;
    $begin_work = hrtime(true);
    busy();
    $work = hrtime(true) - $begin_work;
    $all = hrtime(true) - $begin;
    echo count($booted), "\n$boot $wait $work ", $all;
    fastcgi_finish_request();
    usleep(15000);
"#;

/// What a request says of itself, in nanoseconds.
#[derive(Clone, Copy, Debug, Default)]
struct Told {
    boot: u64,
    wait: u64,
    work: u64,
    all: u64,
}

impl Told {
    fn of(output: &str) -> Self {
        let line = output.lines().last().unwrap();
        let [boot, wait, work, all] = line.split(' ').map(parse).collect::<Vec<_>>()[..] else {
            panic!("{output}")
        };
        Self { boot, wait, work, all }
    }

    fn plus(self, other: Self) -> Self {
        Self {
            boot: self.boot + other.boot,
            wait: self.wait + other.wait,
            work: self.work + other.work,
            all: self.all + other.all,
        }
    }
}

/// Some requests: what they say of themselves, and what the books say.
fn measure(build: &Build, extension: Option<&Path>) -> Option<(Told, Budget, Vec<ServedRequest>)> {
    let words = if extension.is_some() { ["restore_state()", "snapshot_state()"] } else { ["false", "true"] };
    let script = SCRIPT.replace("RESTORE", words[0]).replace("SAVE", words[1]);
    // Of a file that was edited just now nothing is saved.
    let settings = "php_admin_value[opcache.validate_timestamps] = 0";
    let pool = Pool { settings, extension, ..Pool::default() };
    let fpm = Fpm::start_pool(build, pool, &[("index.php", &script)]);
    // The first boots, the second is saved, and all later ones are restored.
    for _ in 0..4 {
        fpm.fetch("index.php", "/");
    }
    let watched = Watched::of(fpm)?;
    let told = (0..REQUESTS)
        .map(|_| Told::of(&watched.fpm.fetch("index.php", "/")))
        .fold(Told::default(), Told::plus);
    let (budget, requests) = watched.finish(REQUESTS);
    Some((told, budget, requests))
}

#[test]
fn restored_workers_are_measured_as_those_that_boot() {
    let _alone = alone();
    for build in builds() {
        let Some(extension) = build.extension() else { continue };
        for is_restored in [false, true] {
            let label = format!("{}, {}", build.label(), if is_restored { "restored" } else { "booted" });
            let Some((told, budget, requests)) = measure(&build, is_restored.then_some(&extension)) else {
                return;
            };
            assert_eq!(requests.len() as u64, REQUESTS, "{label}");
            assert_eq!(told.boot == 0, is_restored, "{label}: {told:?}");
            assert_most_blocked(&budget, Part::Sleep, told.wait, &label);
            let served = |part: fn(&ServedRequest) -> u64| requests.iter().map(part).sum::<u64>();
            // Its own clock does not tell when it had no CPU.
            let code_ns = served(|request| request.serving.of(Part::Code)) + ready_ns(&budget);
            assert_most(code_ns, told.boot + told.work, &format!("{label}: code"));
            let after_ns = served(|request| request.after.of(Part::Sleep));
            assert_most(after_ns, REQUESTS * DRAG.as_nanos() as u64, &format!("{label}: after the response"));
            // From the first line to the response; before it are PHP's own begin and, of restored ones, the state that is put back.
            assert_share(
                served(|request| request.serving.total_ns()),
                told.all,
                0.98..1.1,
                &format!("{label}: all"),
            );
        }
    }
}
