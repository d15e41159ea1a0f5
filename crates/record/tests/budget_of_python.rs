//! Budgets of Python services, behind servers that others wrote: what a request spends its time on, against what it measures itself.

#![allow(clippy::unwrap_used, reason = "what fails here fails the test")]

mod budget_support;

use std::io::Write as _;

use slip_model::Part;
use slip_testkit::skip;
use tempfile::NamedTempFile;

use self::budget_support::python::{Server, assert_drag, gunicorn, uvicorn, uwsgi};
use self::budget_support::stolen::Stolen;
use self::budget_support::{REQUESTS, alone, assert_most_blocked, lose_from_cache, take};

/// What a path drags by.
const DRAGS: [(&str, Part); 3] = [("/sleep", Part::Sleep), ("/code", Part::Code), ("/memory", Part::Memory)];

/// The same for servers whose Python has threads. Without any nobody takes its global lock away.
const LOCKS: [(&str, Part); 2] = [("/lock", Part::Lock), ("/gil", Part::Gil)];

#[track_caller]
fn assert_drags(server: Option<Server>, drags: &[(&str, Part)]) {
    let _alone = alone();
    let Some(server) = server else { return };
    for (path, part) in drags {
        assert_drag(&server, path, *part);
    }
}

#[test]
fn gunicorn_with_one_request_at_a_time() {
    assert_drags(gunicorn(&[]), &[&DRAGS[..], &LOCKS].concat());
}

#[test]
fn gunicorn_with_threads() {
    assert_drags(gunicorn(&["--threads", "3"]), &[&DRAGS[..], &LOCKS].concat());
}

#[test]
fn uwsgi_with_one_request_at_a_time() {
    assert_drags(uwsgi(), &DRAGS);
}

#[test]
fn uvicorn_with_asyncio() {
    assert_drags(uvicorn(), &[&DRAGS[..], &LOCKS].concat());
}

#[test]
fn a_mapped_file_that_the_page_cache_has_lost_is_disk() {
    let _alone = alone();
    let Some(server) = gunicorn(&[]) else { return };
    let Some(mut books) = server.books() else { return };
    let mut file = NamedTempFile::new_in("/var/tmp").unwrap();
    file.write_all(&[b'x'; 8 << 20]).unwrap();
    file.as_file().sync_all().unwrap();
    let path = format!("/cold/{}", file.path().file_name().unwrap().display());
    let stolen = Stolen::start(&server.pids());
    let mut told_ns = 0;
    for _ in 0..REQUESTS {
        // Not by the service, which would wait for other CPUs to let go of the pages.
        lose_from_cache(file.as_file());
        told_ns += server.fetch(&path);
    }
    let (budget, _) = take(&mut books, REQUESTS);
    let drag_ns = told_ns.saturating_sub(stolen.ns());
    if drag_ns < 1_000_000 * REQUESTS {
        skip("files on a disk", "these stay in memory");
        return;
    }
    assert_most_blocked(&budget, Part::Disk, drag_ns, "gunicorn: cold page");
}
