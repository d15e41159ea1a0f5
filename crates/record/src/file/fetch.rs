//! Copies the rows of a recording out of SQLite, without trusting any of them.

use std::sync::Arc;

use rusqlite::types::ValueRef;
use rusqlite::{Connection, Row};
use slip_model::{
    Allocated, Budget, Facts, Frame, FrameId, FrameKind, Process, ProcessId, RecordingInfo, StackId,
    StackNode, State, StringId, Thread, ThreadId, Totals,
};

use super::salvage::{Allowance, Health, read_table};
use super::schema;
use super::tables::{language_named, mode_named};

/// Rows as they were found, with the ids that they have.
#[derive(Debug, Default)]
pub(super) struct Fetched {
    pub(super) info: Option<RecordingInfo>,
    pub(super) totals: Option<Totals>,
    pub(super) strings: Vec<(u32, Arc<str>)>,
    pub(super) frames: Vec<(u32, Frame)>,
    pub(super) stacks: Vec<(u32, StackNode)>,
    pub(super) processes: Vec<Process>,
    pub(super) threads: Vec<Thread>,
    pub(super) blocks: Vec<BlockBytes>,
    pub(super) waits: Vec<BlockBytes>,
    pub(super) budget: Option<Budget>,
    pub(super) served: Vec<BlockBytes>,
    pub(super) facts: Option<Facts>,
    pub(super) allocations: Vec<Allocated>,
    /// Tables that are missing or of which something could not be read.
    pub(super) damaged: Vec<&'static str>,
}

/// A row of `blocks`, of `waits` or of `served`.
#[derive(Debug)]
pub(super) struct BlockBytes {
    /// Samples, waits or requests that it should have.
    pub(super) entries: u64,
    pub(super) data: Vec<u8>,
}

/// Copies everything out of the `usable` tables. What is wrong with them shows in [`Fetched::damaged`].
pub(super) fn rows(connection: &Connection, usable: &[&str], length: u64) -> Fetched {
    let mut fetched = Fetched::default();
    let mut allowance = Allowance { rows: length / 4 + 1_024, bytes: length + 4_096 };
    for (table, _) in schema::TABLES {
        let damaged = if usable.contains(&table) {
            fetched.table(connection, table, &mut allowance).damaged
        } else {
            !schema::LATER.contains(&table)
        };
        if damaged {
            fetched.damaged.push(table);
        }
    }
    fetched
}

impl Fetched {
    fn table(&mut self, connection: &Connection, table: &str, allowance: &mut Allowance) -> Health {
        match table {
            "info" => {
                let sql = "SELECT id, key, value FROM info WHERE id >= ?1 ORDER BY id";
                read_table(connection, allowance, sql, |_, row| take_info(&mut self.info, row))
            }
            "totals" => {
                let sql = "SELECT id, duration_ns, ticks_planned, ticks_taken, samples, filtered, repaired, torn, \
                           failed, own_cpu_ns, complete FROM totals WHERE id >= ?1 ORDER BY id";
                read_table(connection, allowance, sql, |_, row| {
                    self.totals = Some(totals(row)?);
                    Some(0)
                })
            }
            "strings" => {
                let sql = "SELECT id, text FROM strings WHERE id >= ?1 ORDER BY id";
                read_table(connection, allowance, sql, |id, row| {
                    let text = text(row, 1)?;
                    self.strings.push((number(id)?, Arc::from(&*text)));
                    Some(text.len())
                })
            }
            "frames" => {
                let sql =
                    "SELECT id, kind, name, file, first_line, line FROM frames WHERE id >= ?1 ORDER BY id";
                read_table(connection, allowance, sql, |id, row| {
                    self.frames.push((number(id)?, frame(row)?));
                    Some(0)
                })
            }
            "stacks" => {
                let sql = "SELECT id, parent, frame FROM stacks WHERE id >= ?1 ORDER BY id";
                read_table(connection, allowance, sql, |id, row| {
                    let node =
                        StackNode { parent: StackId(u32_at(row, 1)?), frame: FrameId(u32_at(row, 2)?) };
                    self.stacks.push((number(id)?, node));
                    Some(0)
                })
            }
            "processes" => {
                let sql = "SELECT id, pid, ns_pid, language, version, title, first_ns, ended_ns FROM processes \
                           WHERE id >= ?1 ORDER BY id";
                read_table(connection, allowance, sql, |id, row| {
                    let process = process(id, row)?;
                    let bytes = process.version.len() + process.title.len();
                    self.processes.push(process);
                    Some(bytes)
                })
            }
            "threads" => {
                let sql =
                    "SELECT id, process, tid, interpreter, name FROM threads WHERE id >= ?1 ORDER BY id";
                read_table(connection, allowance, sql, |id, row| {
                    self.threads.push(thread(id, row)?);
                    Some(0)
                })
            }
            "blocks" => {
                let sql = "SELECT id, samples, data FROM blocks WHERE id >= ?1 ORDER BY id";
                read_table(connection, allowance, sql, |_, row| take_block(&mut self.blocks, row))
            }
            schema::WAITS => {
                let sql = "SELECT id, waits, data FROM waits WHERE id >= ?1 ORDER BY id";
                read_table(connection, allowance, sql, |_, row| take_block(&mut self.waits, row))
            }
            schema::BUDGET => {
                let sql = "SELECT id, json FROM budget WHERE id >= ?1 ORDER BY id";
                read_table(connection, allowance, sql, |_, row| {
                    let json = text(row, 1)?;
                    self.budget = Some(serde_json::from_str(&json).ok()?);
                    Some(json.len())
                })
            }
            schema::SERVED => {
                let sql = "SELECT id, requests, data FROM served WHERE id >= ?1 ORDER BY id";
                read_table(connection, allowance, sql, |_, row| take_block(&mut self.served, row))
            }
            schema::FACTS => {
                let sql = "SELECT id, json FROM facts WHERE id >= ?1 ORDER BY id";
                read_table(connection, allowance, sql, |_, row| {
                    let json = text(row, 1)?;
                    self.facts = Some(serde_json::from_str(&json).ok()?);
                    Some(json.len())
                })
            }
            schema::ALLOCATIONS => {
                let sql = "SELECT id, thread, stack, state, samples, objects, bytes, kept_samples, kept_objects, \
                           kept_bytes FROM allocations WHERE id >= ?1 ORDER BY id";
                read_table(connection, allowance, sql, |_, row| {
                    self.allocations.push(allocated(row)?);
                    Some(0)
                })
            }
            _ => Health { damaged: true },
        }
    }
}

fn allocated(row: &Row<'_>) -> Option<Allocated> {
    Some(Allocated {
        thread: ThreadId(u32_at(row, 1)?),
        stack: StackId(u32_at(row, 2)?),
        state: State(u8::try_from(u32_at(row, 3)?).ok()?),
        samples: u64_at(row, 4)?,
        objects: u64_at(row, 5)?,
        bytes: u64_at(row, 6)?,
        kept_samples: u64_at(row, 7)?,
        kept_objects: u64_at(row, 8)?,
        kept_bytes: u64_at(row, 9)?,
    })
}

fn take_block(blocks: &mut Vec<BlockBytes>, row: &Row<'_>) -> Option<usize> {
    let data = row.get_ref(2).ok()?.as_blob().ok()?.to_vec();
    let bytes = data.len();
    blocks.push(BlockBytes { entries: u64_at(row, 1)?, data });
    Some(bytes)
}

fn take_info(info: &mut Option<RecordingInfo>, row: &Row<'_>) -> Option<usize> {
    let key = text(row, 1)?;
    let info = info.get_or_insert_default();
    let mut kept = key.len();
    let mut string = |field: &mut String| {
        *field = text(row, 2)?;
        kept += field.len();
        Some(())
    };
    match &*key {
        "tool" => string(&mut info.tool)?,
        "target" => string(&mut info.target)?,
        "sampler" => string(&mut info.sampler)?,
        "host" => string(&mut info.host)?,
        "cannot_see" => {
            let mut sentence = String::new();
            string(&mut sentence)?;
            info.cannot_see.push(sentence);
        }
        "started_unix_ns" => info.started_unix_ns = u64_at(row, 2)?,
        "interval_ns" => info.interval_ns = u64_at(row, 2)?,
        "mode" => info.mode = mode_named(&text(row, 2)?),
        // Of a later minor version.
        _ => {}
    }
    Some(kept)
}

fn totals(row: &Row<'_>) -> Option<Totals> {
    Some(Totals {
        duration_ns: u64_at(row, 1)?,
        ticks_planned: u64_at(row, 2)?,
        ticks_taken: u64_at(row, 3)?,
        samples: u64_at(row, 4)?,
        waits: 0,
        runs: 0,
        allocations: 0,
        filtered: u64_at(row, 5)?,
        repaired: u64_at(row, 6)?,
        torn: u64_at(row, 7)?,
        failed: u64_at(row, 8)?,
        own_cpu_ns: u64_at(row, 9)?,
        complete: u64_at(row, 10)? != 0,
    })
}

fn frame(row: &Row<'_>) -> Option<Frame> {
    let kind = u8::try_from(u32_at(row, 1)?).ok().and_then(FrameKind::from_number);
    Some(Frame {
        kind: kind?,
        name: StringId(u32_at(row, 2)?),
        file: StringId(u32_at(row, 3)?),
        first_line: u32_at(row, 4)?,
        line: u32_at(row, 5)?,
    })
}

fn process(id: i64, row: &Row<'_>) -> Option<Process> {
    Some(Process {
        id: ProcessId(number(id)?),
        pid: u32_at(row, 1)?,
        ns_pid: u32_at(row, 2)?,
        language: language_named(&text(row, 3)?),
        version: text(row, 4)?,
        title: text(row, 5)?,
        first_ns: u64_at(row, 6)?,
        ended_ns: u64_at(row, 7)?,
    })
}

fn thread(id: i64, row: &Row<'_>) -> Option<Thread> {
    Some(Thread {
        id: ThreadId(number(id)?),
        process: ProcessId(u32_at(row, 1)?),
        tid: u32_at(row, 2)?,
        interpreter: u64_at(row, 3)?,
        name: StringId(u32_at(row, 4)?),
    })
}

fn number(id: i64) -> Option<u32> {
    u32::try_from(id).ok()
}

fn u32_at(row: &Row<'_>, column: usize) -> Option<u32> {
    row.get_ref(column).ok()?.as_i64().ok()?.try_into().ok()
}

fn u64_at(row: &Row<'_>, column: usize) -> Option<u64> {
    Some(row.get_ref(column).ok()?.as_i64().ok()?.cast_unsigned())
}

/// Text as it stands; bytes that are no UTF-8 (a damaged file) become replacement characters.
fn text(row: &Row<'_>, column: usize) -> Option<String> {
    match row.get_ref(column).ok()? {
        ValueRef::Text(bytes) => Some(String::from_utf8_lossy(bytes).into_owned()),
        _ => None,
    }
}
