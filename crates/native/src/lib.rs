//! Unwinds native stacks from copies of them, and names what is on them.
//!
//! Owns the tables for that which programs and libraries have for exceptions (`.eh_frame`), and their symbols. Never touches a process or
//! opens a file: bytes come in, all of them somebody else's, so whatever they say, it ends soon, takes little memory, and never panics.
//!
//! This is `gimli` with a walk of our own around it. `framehop` does the same with a cache of rules, and was not taken because it evaluates
//! expressions without end, if a file asks for it.
#![forbid(unsafe_code)]

mod debug_info;
mod elf;
mod names;
mod perf_map;
mod sections;
mod symbols;
mod tables;
mod unwind;
mod xz;

pub use debug_info::{DebugInfo, SourceFrame};
pub use elf::{DebugFile, Elf, Found, ReadAt};
pub use names::readable;
pub use perf_map::PerfMap;
pub use sections::{CommonLink, DebugLink, build_id, checksum, common_link, parse_debug_link};
pub use unwind::{Code, End, Mapped, Registers, Stack, Unwound, unwind};
