//! Starts real interpreters for tests and waits until they are ready.
//!
//! Owns where interpreters are found, how fixture programs are started and ended, and how a test says that it was
//! skipped. Never part of what users install.
//!
//! A fixture program prints what it knows to be true as JSON lines, then a line `ready`, and then blocks until its
//! standard input is closed:
//!
//! ```no_run
//! for python in slip_testkit::pythons() {
//!     let mut child = slip_testkit::Launch::script(&python, "python/nested.py").start().unwrap();
//!     let truth = child.wait_ready().unwrap();
//!     println!("{}: {} says {}", python.label, child.pid(), truth[0]);
//! }
//! ```

mod alone;
mod child;
mod cpu_time;
pub mod fpm;
mod interpreters;
mod launch;
mod shared;
mod skip;

pub use alone::alone;
pub use child::Child;
pub use cpu_time::{cpu_time_ns, wait_cpu_time};
pub use interpreters::{Interpreter, Runtime, phps, pythons};
pub use launch::{Launch, fixtures};
pub use shared::shared;
pub use skip::skip;

/// Longest wait for a process to get somewhere. The machine may be busy with other tests.
const PATIENCE: std::time::Duration = std::time::Duration::from_secs(60);
