//! PHP is asked by one request to its pool: every php-fpm of this machine answers, and who refuses is told with the reason.
#![allow(clippy::unwrap_used, reason = "test code")]

use std::fs;
use std::io::Read as _;
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

use slip_record::{ASK_TIMEOUT, AskError, ask};
use slip_testkit::fpm::{Build, Fpm, Pool, builds};

/// The machine may be busy with other tests.
const PATIENCE: Duration = Duration::from_secs(60);

/// Whether it sees our files: it has no root of its own.
fn is_here(build: &Build) -> bool {
    let (major, minor) = build.version;
    fs::exists(format!("/usr/sbin/php-fpm{major}.{minor}")).unwrap()
}

fn pool(build: &Build, settings: &str, ini: &[&str]) -> Fpm {
    Fpm::start_pool(build, Pool { settings, ini, ..Pool::default() }, &[("sleep.php", "<?php sleep(600);")])
}

#[test]
fn every_php_fpm_answers() {
    for build in builds() {
        for by_tcp in [false, true] {
            // A port that was free a moment ago.
            let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
            let listen = if by_tcp { format!("listen = 0.0.0.0:{port}\n") } else { String::new() };
            let fpm = pool(&build, &format!("{listen}php_admin_value[memory_limit] = 77M"), &[]);
            let label = build.label();
            let answer = ask(&fpm.workers(), PATIENCE).unwrap();
            let (major, minor) = build.version;
            assert!(answer.version.starts_with(&format!("{major}.{minor}.")), "{label}: {}", answer.version);
            assert_eq!(
                (&*answer.pool, answer.bytes("memory_limit")),
                (&*fpm.pool, Some(77 << 20)),
                "{label}"
            );
            assert_eq!(answer.unanswered, [""; 0], "{label}");
            let manager = answer.manager.unwrap();
            assert_eq!((&*manager.kind, manager.active), ("static", 1), "{label}");
            assert!(answer.realpath_bytes > 0, "{label}");
            let opcache = answer.opcache.map(|opcache| (opcache.enabled, opcache.max_keys > 10_000));
            assert_eq!(opcache, build.opcache.then_some((true, true)), "{label}");
        }
    }
}

#[test]
fn the_jit_and_files_that_are_preloaded_are_told() {
    for build in builds().into_iter().filter(|build| build.opcache) {
        let folder = tempfile::Builder::new().prefix("slip-preload-").tempdir().unwrap();
        let script = folder.path().join("preload.php");
        fs::write(&script, "<?php class Preloaded {}").unwrap();
        let path = script.display().to_string();
        // A root of its own does not have it.
        let preload = [format!("opcache.preload={path}"), "opcache.preload_user=root".to_owned()];
        let mut ini = vec!["opcache.jit=tracing", "opcache.jit_buffer_size=16M"];
        if is_here(&build) {
            ini.extend(preload.iter().map(String::as_str));
        }
        let fpm = pool(&build, "", &ini);
        let before = ask(&fpm.workers(), PATIENCE).unwrap();
        let jit = before.opcache.as_ref().unwrap().jit.unwrap();
        assert_eq!(
            (jit.enabled, jit.on, before.is_configured("opcache.jit")),
            (true, true, true),
            "{}",
            build.label()
        );
        assert!(jit.buffer_size > 0 && jit.buffer_free > 0);
        if is_here(&build) {
            let preloaded = before.opcache.unwrap().preload.unwrap();
            assert_eq!((preloaded.scripts, preloaded.newer, preloaded.missing), (1, 0, 0));
            let later = std::time::SystemTime::now() + Duration::from_secs(60);
            fs::File::options().write(true).open(&script).unwrap().set_modified(later).unwrap();
            let preloaded = ask(&fpm.workers(), PATIENCE).unwrap().opcache.unwrap().preload.unwrap();
            assert_eq!((preloaded.newer, preloaded.missing), (1, 0));
            assert_eq!(preloaded.examples, std::slice::from_ref(&path));
            fs::remove_file(&script).unwrap();
            let preloaded = ask(&fpm.workers(), PATIENCE).unwrap().opcache.unwrap().preload.unwrap();
            assert_eq!((preloaded.newer, preloaded.missing), (0, 1));
        }
    }
}

#[test]
fn functions_that_are_disabled_are_named() {
    for build in builds() {
        let fpm = pool(&build, "php_admin_value[disable_functions] = opcache_get_status,fpm_get_status", &[]);
        let answer = ask(&fpm.workers(), PATIENCE).unwrap();
        assert_eq!((answer.opcache, answer.manager), (None, None));
        let named = |name: &str| answer.unanswered.iter().any(|why| why.contains(name));
        assert_eq!((named("opcache_get_status"), named("fpm_get_status")), (build.opcache, true));
        let fpm = pool(&build, "", &["opcache.restrict_api=/nowhere"]);
        let answer = ask(&fpm.workers(), PATIENCE).unwrap();
        assert_eq!(answer.unanswered.iter().any(|why| why.contains("restrict_api")), build.opcache);
    }
}

#[test]
fn what_is_prepended_may_print_and_is_no_answer() {
    let folder = tempfile::Builder::new().prefix("slip-prepend-").tempdir().unwrap();
    let script = folder.path().join("before.php");
    fs::write(&script, "<?php echo \"\\nslip-answer {}\\n\";").unwrap();
    for build in builds().iter().filter(|build| is_here(build)) {
        let settings = format!("php_admin_value[auto_prepend_file] = {}", script.display());
        let answer = ask(&pool(build, &settings, &[]).workers(), PATIENCE).unwrap();
        assert_eq!((answer.version.is_empty(), answer.setting("auto_prepend_file")), (false, "1"));
    }
}

#[test]
fn who_refuses_is_told_with_a_hint() {
    for build in builds() {
        let fpm = pool(&build, "security.limit_extensions = .html", &[]);
        let error = ask(&fpm.workers(), PATIENCE).unwrap_err();
        assert!(matches!(error, AskError::Refused { status: 403, .. }), "{error:?}");
        assert!(error.hint().unwrap().contains("security.limit_extensions"));
        let fpm = pool(&build, "php_admin_value[open_basedir] = /nowhere", &[]);
        let error = ask(&fpm.workers(), PATIENCE).unwrap_err();
        assert!(matches!(error, AskError::Refused { status: 404, .. }), "{error:?}");
        assert!(error.hint().unwrap().contains("open_basedir"));
    }
}

#[test]
fn a_pool_that_is_busy_is_not_waited_for() {
    for build in builds() {
        let fpm = pool(&build, "", &[]);
        let mut busy = fpm.connect();
        busy.send("sleep.php", "/sleep", "GET", false);
        busy.finish(b"");
        let begin = Instant::now();
        let error = ask(&fpm.workers(), Duration::from_millis(300)).unwrap_err();
        assert!(matches!(error, AskError::Busy { .. }), "{error:?}");
        assert!(begin.elapsed() < ASK_TIMEOUT);
        assert!(error.hint().unwrap().contains("busy"));
    }
}

#[test]
fn who_is_no_pool_is_not_asked() {
    assert!(matches!(ask(&[], PATIENCE), Err(AskError::NoWorker)));
    let error = ask(&[u32::MAX], PATIENCE).unwrap_err();
    assert!(matches!(error, AskError::NoSocket { pid: u32::MAX }), "{error:?}");
}

#[test]
fn who_speaks_another_protocol_is_told_apart() {
    let program = "import socket\ns = socket.socket()\ns.bind(('127.0.0.1', 0))\ns.listen(5)\nprint('ready', flush=True)\n\
                   c = s.accept()[0]\nc.recv(9)\nc.sendall(b'HTTP/1.1 400 Bad Request\\r\\n\\r\\n')\ns.accept()\n";
    let Some(python) = slip_testkit::pythons().into_iter().next() else { return };
    let mut server = slip_testkit::Launch::text(&python, "server.py", program).start().unwrap();
    server.wait_ready().unwrap();
    let error = ask(&[server.pid()], PATIENCE).unwrap_err();
    assert!(matches!(error, AskError::Broken { .. }), "{error:?}");
    assert!(error.to_string().contains("does not speak FastCGI"), "{error}");
    // It is as it was: it takes connections.
    let port =
        error.to_string().split("127.0.0.1:").nth(1).unwrap().split(' ').next().unwrap().parse().unwrap();
    let mut next = TcpStream::connect(("127.0.0.1", port)).unwrap();
    assert_eq!(next.read(&mut [0]).unwrap(), 0);
}
