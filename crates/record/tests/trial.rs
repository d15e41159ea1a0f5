//! A page is tried on PHP-FPMs of our own: what comes of it, and that nothing of them stays.

#![allow(clippy::unwrap_used, reason = "what fails here fails the test")]

use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use slip_record::{TrialError, TrialPage, try_restoring};
use slip_testkit::fpm::{Build, Fpm, Pool, builds};

/// Boots for some milliseconds, unless that is restored.
const PAGE: &str = r#"<?php
if (!restore_state()) {
    $sum = 0;
    for ($i = 0; $i < 300000; $i++) {
        $sum = ($sum * 31 + $i) % 1000003;
    }
    snapshot_state();
}
echo $sum;
"#;

/// Those whose files are ours, with opcache, and the extension for them.
fn tried() -> impl Iterator<Item = (Build, PathBuf)> {
    let tried = builds().into_iter().filter(|build| build.opcache && !build.has_root());
    tried.filter_map(|build| {
        let extension = build.extension()?;
        Some((build, extension))
    })
}

/// A pool with this script, which has been there for some time: opcache takes none that is too young.
fn start(build: &Build, script: &str) -> (Fpm, TrialPage) {
    // Of a file that was edited just now nothing is saved.
    let settings = "php_admin_value[opcache.validate_timestamps] = 0";
    let fpm = Fpm::start_pool(build, Pool { settings, ..Pool::default() }, &[("index.php", script)]);
    let path = fpm.outside.join("index.php");
    let file = File::options().write(true).open(&path).unwrap();
    file.set_modified(SystemTime::now() - Duration::from_secs(60)).unwrap();
    // It is known as a worker of its pool from then on.
    fpm.fetch("index.php", "/");
    (fpm, TrialPage { script: path, url: "https://shop.example/cart?item=1".to_owned() })
}

#[test]
fn what_restoring_saves_is_measured() {
    for (build, extension) in tried() {
        let (fpm, page) = start(&build, PAGE);
        let trial = try_restoring(&fpm.workers(), &page, Some(&extension)).unwrap();
        assert!(trial.is_restored(), "{trial:?}");
        assert_eq!(&*trial.page, "https://shop.example/cart");
        assert!(trial.saved_low_ns > 0 && trial.restored_ns < trial.plain_ns, "{trial:?}");
    }
}

#[test]
fn a_page_that_cannot_be_restored_is_told_with_the_reason() {
    for (build, extension) in tried() {
        let (fpm, page) = start(&build, "<?php echo 1;");
        let trial = try_restoring(&fpm.workers(), &page, Some(&extension)).unwrap();
        assert_eq!((trial.restores, trial.is_restored()), (0, false), "it does not ask for that");
        let (fpm, page) = start(&build, "<?php http_response_code(500);");
        let failed = try_restoring(&fpm.workers(), &page, Some(&extension));
        assert!(matches!(failed, Err(TrialError::Page { .. })), "{failed:?}");
        let (fpm, page) = start(&build, "<?php echo 1;");
        let failed = try_restoring(&fpm.workers(), &page, None);
        assert!(matches!(failed, Err(TrialError::NoExtension { .. })), "{failed:?}");
        let failed = try_restoring(&fpm.workers(), &page, Some(Path::new("/does/not/exist.so")));
        assert!(matches!(failed, Err(TrialError::NoExtension { .. })), "{failed:?}");
    }
}
