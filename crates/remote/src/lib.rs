//! Finds another process and reads its memory, maps and symbols.
//!
//! Owns every system call that touches a target. Never writes into a target and never stops one; the single
//! exception is [`Pause`], which exists for `--pause` alone. Knows no interpreter.

mod chain;
mod descriptors;
mod discover;
mod elf;
mod image;
mod live;
mod mapped;
mod maps;
mod memory;
mod offsets;
mod pages;
mod pause;
mod perf;
mod plan;
mod prefetch;
mod procfs;
mod program;
mod remembered;
mod ring;
mod smaps;
mod sockets;
mod stillness;
mod switches;

pub use chain::{Anchor, Calling, Chain, ChainReader, FrameLayout, Head};
pub use descriptors::are_getting_scarce;
pub use discover::{FpmPool, descendants, find_fpm_pool, find_host_pid, is_fpm_worker};
pub use elf::elf_symbol;
pub use image::{Image, ImageRecorder};
pub use live::{LiveProcess, OpenError};
pub use mapped::{FileId, open_common_files, open_debug_file, open_linked_files, open_mapped, open_perf_map};
pub use maps::{Mapping, parse_maps};
pub use memory::{
    Memory, Range, ReadError, RemoteAddr, SharedObject, SharedRange, Symbols, read_c_string, read_u64,
};
pub use offsets::symbol_offsets;
pub use pages::{PageMap, SharedPages, compare_pages};
pub use pause::Pause;
pub use perf::{PerfEvent, PerfScope, open_perf_event, set_perf_event_enabled};
pub use plan::{Copied, PlanRange, StackPlan, ThreadPlan};
pub use prefetch::prefetch;
pub use procfs::{
    Activity, ActivityReader, ChildrenReader, ProcessStat, WaitPlace, children_of, command_line,
    environment_value, has_secure_execution, parse_stat, process_stat, status_value, thread_state,
    threads_of,
};
pub use program::{ProgramKind, parse_program, program_kind};
pub use remembered::{Pieces, Remembered};
pub use smaps::{CountedMapping, MemoryCounts, counted_mappings, memory_counts, parse_smaps};
pub use sockets::{SocketFacts, SocketName, SocketReader};
pub use stillness::Stillness;
pub use switches::notes_switches;
