//! Every kind of stack is read exactly as `debug_backtrace()` of the same moment shows it: every theme on every PHP of
//! this machine, with and without opcache.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod common;

use common::{Watch, assert_same, start};
use slip_model::Outcome;
use slip_remote::LiveProcess;
use slip_testkit::phps;
use slip_zend::Phase;

fn check(theme: &str) {
    let phps = phps();
    assert!(!phps.is_empty(), "no PHP on this machine");
    for php in phps {
        let (child, truth) = start(&php, theme);
        let process = LiveProcess::open(child.pid()).unwrap();
        let mut watch = Watch::attach(&process);
        let (major, minor) = php.version;
        assert!(watch.engine.version().text.starts_with(&format!("{major}.{minor}.")));
        assert_eq!(watch.engine.version().sapi, "cli");
        let what = format!("{theme} on {}", php.label);
        let found = watch.sample_until(&process, "fgets");
        assert_same(&what, &found, &truth);
        // Again, from what is remembered.
        for _ in 0..2 {
            watch.sample(&process);
            assert_same(&format!("{what}, again"), &watch.frames(), &truth);
            assert_eq!(watch.reading.phase, Phase::Code);
            assert_eq!(watch.reading.stack.outcome, Outcome::Clean);
            assert!(!watch.reading.stack.truncated);
        }
        let request = watch.reading.request.unwrap();
        assert!(
            watch.interner.text(request.script).ends_with(&format!("{theme}.php")) || theme == "shutdown"
        );
        assert!(request.memory_bytes > 100_000, "{what}: {} bytes", request.memory_bytes);
    }
}

macro_rules! themes {
    ($($theme:ident)*) => {
        $(
            #[test]
            fn $theme() {
                check(stringify!($theme));
            }
        )*

        #[test]
        fn every_program_is_a_theme() {
            let mut themes = vec![$(stringify!($theme)),*];
            themes.sort_unstable();
            let mut programs: Vec<String> = std::fs::read_dir(slip_testkit::fixtures().join("programs/php"))
                .unwrap()
                .filter_map(|entry| Some(entry.ok()?.file_name().to_str()?.strip_suffix(".php")?.to_owned()))
                .filter(|name| !name.starts_with("bench_"))
                .collect();
            programs.sort_unstable();
            assert_eq!(themes, programs);
        }
    };
}

themes! {
    attributes callbacks closures exceptions exceptions_nested fibers fibers_and_generators fibers_destroyed
    fibers_destroyed_variables frameless functions generators handlers includes magic methods names namespaced output
    property_hooks recursion shutdown stream_wrapper yield_from yield_from_shared
}
