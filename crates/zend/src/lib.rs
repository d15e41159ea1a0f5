//! Reads the frames and the request of a PHP process from outside.
//!
//! Owns everything that knows the Zend engine: which versions there are and where they keep things, what a frame means,
//! how functions are named, when a worker is idle. Never makes a system call: all reads go through
//! [`slip_remote::Memory`], so a live process, a recorded image and fuzzed bytes are the same to it. Never writes into
//! a target.
//!
//! ```no_run
//! # fn run(target: &slip_remote::LiveProcess) -> Result<(), Box<dyn std::error::Error>> {
//! let mut code = slip_zend::CodeCache::default();
//! let mut engine = slip_zend::Engine::attach(target, &mut code)?;
//! let mut interner = slip_model::Interner::new();
//! let mut reading = slip_zend::PhpReading::default();
//! engine.sample(target, &mut interner, &mut code, &slip_zend::SampleOptions::default(), &mut reading)?;
//! println!("{:?}: {} frames", reading.phase, interner.frames_of(reading.stack.stack).count());
//! # Ok(()) }
//! ```
#![forbid(unsafe_code)]

mod bytes;
mod calls;
mod code;
mod copied;
mod detect;
mod frames;
mod functions;
mod offsets;
mod paths;
mod process;
mod request;
mod single_copy;
mod strings;

pub use code::CodeCache;
pub use detect::{AttachError, Version, detect, supported_versions};
pub use process::{Engine, Phase, PhpReading, SampleOptions};
pub use request::request_marks;
