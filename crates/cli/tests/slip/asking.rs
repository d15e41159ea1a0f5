//! `slip doctor --ask`: PHP's own word is in the sheet, and who is not asked is not disturbed.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use serde_json::Value;
use slip_testkit::fpm::{Build, Fpm, Pool, builds};

use crate::harness::{Ran, run};

/// What `slip doctor` says of a pool that is busy meanwhile.
fn doctor(fpm: &Fpm, arguments: &[&str]) -> Ran {
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                fpm.fetch("a.php", "/");
                // Looks tell requests apart by what is between them.
                thread::sleep(Duration::from_millis(15));
            }
        });
        let common = ["doctor", "--fpm", &fpm.pool, "-d", "3", "--rung", "proc", "--format", "json"];
        let ran = run(&[&common[..], arguments].concat());
        done.store(true, Ordering::Relaxed);
        ran
    })
}

fn start(build: &Build, settings: &str) -> Fpm {
    // Long enough to be seen by looks, and so many that something can be told.
    Fpm::start_pool(build, Pool { settings, ..Pool::default() }, &[("a.php", "<?php usleep(15000);")])
}

/// The entry of a rule in one of the sheet's lists.
fn of_rule<'a>(sheet: &'a Value, list: &str, rule: &str) -> Option<&'a Value> {
    sheet[list].as_array().unwrap().iter().find(|entry| entry["rule"] == rule)
}

#[test]
fn opcache_is_told_of_only_if_php_is_asked() {
    for build in builds() {
        let fpm = start(&build, "");
        let ran = doctor(&fpm, &["--ask"]);
        assert_eq!(ran.code, 0, "{}", ran.stderr);
        let sheet = ran.json();
        let found = of_rule(&sheet, "findings", "CFG011");
        if build.opcache {
            assert_eq!(found, None, "{}", build.label());
            assert!(of_rule(&sheet, "quiet", "CFG011").is_some());
        } else {
            assert_eq!(found.unwrap()["cause"], "not_loaded");
        }
        for rule in ["COW006", "CFG017", "CFG018", "CFG019"] {
            assert!(of_rule(&sheet, "quiet", rule).is_some(), "{rule}: {sheet}");
        }
        let served = doctor(&fpm, &[]).json();
        assert!(of_rule(&served, "too_little", "CFG011").is_some());
    }
}

#[test]
fn a_pool_that_refuses_ends_it_before_the_watch() {
    for build in builds().into_iter().filter(|build| !build.opcache) {
        let fpm = start(&build, "security.limit_extensions = .html");
        let ran = run(&["doctor", "--fpm", &fpm.pool, "-d", "600", "--rung", "proc", "--ask"]);
        assert_eq!(ran.code, 6, "{}", ran.stderr);
        assert!(ran.stderr.contains("PHP refused to run the question: "), "{}", ran.stderr);
        assert!(ran.stderr.contains("hint: `security.limit_extensions`"), "{}", ran.stderr);
    }
}

#[test]
fn only_a_pool_can_be_asked() {
    let ran = run(&["doctor", "--pid", "1", "--ask"]);
    assert_eq!(ran.code, 2, "{}", ran.stderr);
    assert!(ran.stderr.contains("--fpm"), "{}", ran.stderr);
}
