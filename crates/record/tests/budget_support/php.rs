//! Pools of php-fpm whose books are kept.

use slip_model::{Budget, Language, Part, ServedRequest};
use slip_testkit::fpm::{Build, Fpm, Pool};

use super::keeper::Kept;
use super::stolen::Stolen;
use super::{REQUESTS, alone, assert_most, assert_most_blocked, kept, serving_ns, take};

/// What a script needs to know how much of a time it had no CPU.
pub(crate) const CLOCKS: &str = r#"<?php
    function cpu() {
        $used = getrusage();
        return 1e9 * ($used["ru_utime.tv_sec"] + $used["ru_stime.tv_sec"]) + 1e3 * ($used["ru_utime.tv_usec"] + $used["ru_stime.tv_usec"]);
    }
    function without_cpu($work) {
        [$begin, $used] = [hrtime(true), cpu()];
        $work();
        return (int) (hrtime(true) - $begin - (cpu() - $used));
    }
"#;

/// Of each version one: where a script comes from changes nothing here.
pub(crate) fn builds() -> Vec<Build> {
    slip_testkit::fpm::builds().into_iter().filter(|build| build.opcache).collect()
}

/// A pool whose books are kept.
pub(crate) struct Watched {
    pub(crate) fpm: Fpm,
    books: Kept,
    stolen: Stolen,
}

impl Watched {
    /// With one worker.
    pub(crate) fn start(build: &Build, script: &str) -> Option<Self> {
        Self::start_pool(build, Pool::default(), script)
    }

    pub(crate) fn start_pool(build: &Build, pool: Pool<'_>, script: &str) -> Option<Self> {
        Self::of(Fpm::start_pool(build, pool, &[("index.php", script)]))
    }

    pub(crate) fn of(fpm: Fpm) -> Option<Self> {
        let workers = fpm.workers();
        // What is done once is not what is measured.
        for _ in 0..2 * workers.len() {
            fpm.fetch("index.php", "/");
        }
        let mut books = kept()?;
        for pid in &workers {
            books.add(*pid, Language::Php, "pool");
        }
        Some(Self { fpm, books, stolen: Stolen::start(&workers) })
    }

    /// What scripts say that they were without a CPU, less what they had one of that was taken from them.
    pub(crate) fn blocked_ns(&self, told_ns: u64) -> u64 {
        told_ns.saturating_sub(self.stolen.ns())
    }

    /// The books, once so many requests have ended.
    pub(crate) fn finish(mut self, count: u64) -> (Budget, Vec<ServedRequest>) {
        take(&mut self.books, count)
    }
}

/// Nanoseconds that one request says that it took.
pub(crate) fn fetch(fpm: &Fpm) -> u64 {
    parse(&fpm.fetch("index.php", "/"))
}

/// Nanoseconds that some requests say that they took.
pub(crate) fn fetch_all(fpm: &Fpm) -> u64 {
    (0..REQUESTS).map(|_| fetch(fpm)).sum()
}

/// What some requests say that they took, and in the line before for what else.
pub(crate) fn fetch_all_and_rest(fpm: &Fpm) -> (u64, u64) {
    (0..REQUESTS).fold((0, 0), |(sum, rest_sum), _| {
        let output = fpm.fetch("index.php", "/");
        let (rest, drag) = output.trim().rsplit_once('\n').unwrap();
        (sum + parse(drag), rest_sum + parse(rest))
    })
}

/// What a script has written last.
pub(crate) fn parse(output: &str) -> u64 {
    output.trim().rsplit('\n').next().unwrap().parse().unwrap_or_else(|_| panic!("{output}"))
}

/// With each build of php-fpm: the script is asked some times, and its drag is in `part`.
#[track_caller]
pub(crate) fn assert_drag(script: &str, part: Part) {
    let _alone = alone();
    for build in builds() {
        let Some(watched) = Watched::start(&build, script) else { return };
        let told_ns = fetch_all(&watched.fpm);
        let blocked_ns = watched.blocked_ns(told_ns);
        let (budget, requests) = watched.finish(REQUESTS);
        assert_eq!(requests.len() as u64, REQUESTS, "{}", build.label());
        if part == Part::Code {
            assert_most(serving_ns(&budget, part), told_ns, &build.label());
        } else {
            assert_most_blocked(&budget, part, blocked_ns, &build.label());
        }
    }
}
