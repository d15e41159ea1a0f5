//! The recording file, `NAME.slip`: one SQLite database that survives whatever happens to the one who writes it.
//!
//! Owns the format, [`Writer`] and [`load`]. Never formats anything for people, and never opens a connection to more
//! than the one file.
//!
//! What is in it, in short (`docs/internals/recording.md` has every column): `info`, what was asked for; `totals`, how
//! well it went; `strings` and `frames`, each distinct one once, and `stacks`; `processes` and `threads`; `blocks`,
//! the samples and the requests that ended; `waits`, the same for waits ([`wait_block`]); `budget`, where the
//! workers' time went; `served`, the requests of it ([`served_block`]); and `facts`, what was found beside times.
//! One hour of eight workers at 99 Hz has 2.85 million samples and half a
//! million requests, too many for rows: a row of `blocks` holds those of one flush or, packed, of up to one minute
//! (see [`block`]).
//!
//! Whoever writes holds a `flock` on the file for as long as it does. It tells a file that is still being written from
//! one whose writer died, and keeps a second writer from replacing it.
//!
//! Do not load a file in the process that writes it while another thread appends to it: closing the reader would drop
//! the writer's POSIX locks, as such locks belong to the process.

mod assemble;
pub mod block;
mod error;
mod fetch;
mod load;
mod planes;
mod salvage;
mod schema;
pub mod served_block;
mod tables;
pub mod wait_block;
mod writer;

pub use error::FileError;
pub use load::{Loaded, load};
pub use schema::{APPLICATION_ID, FORMAT_VERSION};
pub use writer::Writer;
