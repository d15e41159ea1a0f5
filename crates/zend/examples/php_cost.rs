//! What one sample costs, by depth of the stack: `cargo run --release -p slip-zend --example php_cost`.
//!
//! The target is at rest and we sample without a pause, so caches are warm: this is the price of the reading itself. At
//! 1 kHz the same sample costs several times as much, because we wake up cold (see `flutter`).
#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "a measurement for people")]

use std::time::Instant;

use slip_model::Interner;
use slip_remote::LiveProcess;
use slip_testkit::{Launch, phps};
use slip_zend::{CodeCache, Engine, PhpReading, SampleOptions};

const SAMPLES: u32 = 20_000;

fn main() {
    println!("{:24} {:>6} {:>9} {:>9}", "target", "frames", "us first", "us");
    for php in phps() {
        for depth in [1, 10, 30, 100, 1_000] {
            let text = format!(
                "<?php function down($n) {{ if ($n == 0) {{ echo \"ready\\n\"; fgets(STDIN); return; }} down($n - 1); }} down({depth});"
            );
            let mut child = Launch::text(&php, "depth.php", text)
                .option("-dopcache.file_update_protection=0")
                .start()
                .unwrap();
            child.wait_ready().unwrap();
            std::thread::sleep(std::time::Duration::from_millis(20));
            let process = LiveProcess::open(child.pid()).unwrap();
            let mut code = CodeCache::default();
            let mut engine = Engine::attach(&process, &mut code).unwrap();
            let (mut interner, mut reading) = (Interner::new(), PhpReading::default());
            let options = SampleOptions::default();
            let before = Instant::now();
            engine.sample(&process, &mut interner, &mut code, &options, &mut reading).unwrap();
            let first = before.elapsed();
            let before = Instant::now();
            for _ in 0..SAMPLES {
                engine.sample(&process, &mut interner, &mut code, &options, &mut reading).unwrap();
            }
            println!(
                "{:24} {:6} {:9.1} {:9.2}",
                php.label,
                interner.frames_of(reading.stack.stack).count(),
                first.as_secs_f64() * 1e6,
                before.elapsed().as_secs_f64() * 1e6 / f64::from(SAMPLES),
            );
        }
    }
}
