//! Budgets of workers that are blocked by the machine: by time, files, locks and memory.

#![allow(clippy::unwrap_used, reason = "what fails here fails the test")]

mod budget_support;

use std::fs::File;
use std::io::Write as _;
use std::thread;
use std::time::Duration;

use slip_model::Part;
use slip_testkit::skip;

use self::budget_support::php::{CLOCKS, Watched, assert_drag, builds, fetch, fetch_all};
use self::budget_support::servers::serve_slowly;
use self::budget_support::{REQUESTS, alone, assert_most_blocked, drag, lose_from_cache};

#[test]
fn time_that_passes_is_sleep() {
    assert_drag("<?php $begin = hrtime(true); usleep(15000); echo hrtime(true) - $begin;", Part::Sleep);
}

#[test]
fn a_response_that_was_read_late_is_sleep() {
    let _alone = alone();
    let port = serve_slowly(Duration::ZERO);
    let script = format!(
        r#"<?php
        $server = stream_socket_client("tcp://127.0.0.1:{port}");
        fwrite($server, "*1\r\n$4\r\nPING\r\n");
        $begin = hrtime(true);
        usleep({});
        echo hrtime(true) - $begin;
        fgets($server);"#,
        drag().as_micros()
    );
    for build in builds() {
        let Some(watched) = Watched::start(&build, &script) else { return };
        let drag_ns = fetch_all(&watched.fpm);
        let (budget, _) = watched.finish(REQUESTS);
        assert_most_blocked(&budget, Part::Sleep, drag_ns, &build.label());
    }
}

#[test]
fn a_file_that_is_written_through_is_disk() {
    // What was there is cut off and written out as well, which may wait for the disk.
    let script = r#"
        echo without_cpu(function () {
            $file = fopen(__DIR__ . "/data", "w");
            for ($i = 0; $i < 50; $i++) {
                fwrite($file, str_repeat("x", 65536));
                fsync($file);
            }
            fclose($file);
        });"#;
    assert_drag(&format!("{CLOCKS}{script}"), Part::Disk);
}

#[test]
fn a_file_that_the_page_cache_has_lost_is_disk() {
    let _alone = alone();
    // Far from each other, so that nothing is read ahead.
    let script = r#"
        $file = fopen(__DIR__ . "/cold", "r");
        echo without_cpu(function () use ($file) {
            for ($i = 0; $i < 64; $i++) {
                fseek($file, $i * 37 % 64 * 1048576);
                fread($file, 4096);
            }
        });"#;
    for build in builds() {
        let text = format!("{CLOCKS} if (!file_exists(__DIR__ . '/cold')) exit('0'); {script}");
        let Some(watched) = Watched::start(&build, &text) else { return };
        let mut file = File::options()
            .read(true)
            .write(true)
            .create_new(true)
            .open(watched.fpm.outside.join("cold"))
            .unwrap();
        for _ in 0..64 {
            file.write_all(&[b'x'; 1 << 20]).unwrap();
        }
        file.sync_all().unwrap();
        let mut told_ns = 0;
        for _ in 0..REQUESTS {
            lose_from_cache(&file);
            told_ns += fetch(&watched.fpm);
        }
        let drag_ns = watched.blocked_ns(told_ns);
        let (budget, _) = watched.finish(REQUESTS);
        if drag_ns < 1_000_000 * REQUESTS {
            skip("files on a disk", "these stay in memory");
            return;
        }
        assert_most_blocked(&budget, Part::Disk, drag_ns, &format!("{}: cold file", build.label()));
    }
}

#[test]
fn a_lock_that_another_process_holds_is_told() {
    let _alone = alone();
    let script = r#"<?php
        $file = fopen(__DIR__ . "/lock", "c");
        $begin = hrtime(true);
        flock($file, LOCK_EX);
        echo hrtime(true) - $begin;"#;
    for build in builds() {
        let Some(watched) = Watched::start(&build, script) else { return };
        let file = File::create(watched.fpm.outside.join("lock")).unwrap();
        let (fpm, mut drag_ns) = (&watched.fpm, 0);
        for _ in 0..REQUESTS {
            file.lock().unwrap();
            thread::scope(|scope| {
                let asks = scope.spawn(|| fetch(fpm));
                thread::sleep(drag());
                file.unlock().unwrap();
                drag_ns += asks.join().unwrap();
            });
        }
        let (budget, _) = watched.finish(REQUESTS);
        assert_most_blocked(&budget, Part::Lock, drag_ns, &format!("{}: flock", build.label()));
    }
}
