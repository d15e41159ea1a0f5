//! Rows of the tables: how the writer puts them in.
//!
//! SQLite's integers have a sign. Numbers of 64 bits are stored bit for bit, so one above 2^63 shows as negative there.

use rusqlite::{Connection, params};
use slip_model::{
    Allocated, Budget, Facts, InternerDelta, Language, Mode, Process, RecordingInfo, Thread, Totals,
};

/// The only row of `totals`, of `budget` and of `facts`.
const ONLY_ROW: i64 = 1;

/// Stores what is known at the start.
pub(super) fn insert_info(connection: &Connection, info: &RecordingInfo) -> rusqlite::Result<()> {
    let mut insert = connection.prepare("INSERT INTO info(key, value) VALUES(?1, ?2)")?;
    insert.execute(params!["tool", info.tool])?;
    insert.execute(params!["started_unix_ns", info.started_unix_ns.cast_signed()])?;
    insert.execute(params!["interval_ns", info.interval_ns.cast_signed()])?;
    insert.execute(params!["mode", mode_name(info.mode)])?;
    insert.execute(params!["target", info.target])?;
    insert.execute(params!["sampler", info.sampler])?;
    for sentence in &info.cannot_see {
        insert.execute(params!["cannot_see", sentence])?;
    }
    insert.execute(params!["host", info.host])?;
    Ok(())
}

/// Replaces when the recording begins.
pub(super) fn update_started(connection: &Connection, started_unix_ns: u64) -> rusqlite::Result<()> {
    let sql = "UPDATE info SET value = ?1 WHERE key = 'started_unix_ns'";
    connection.execute(sql, params![started_unix_ns.cast_signed()]).map(|_| ())
}

/// Stores new strings, frames and stacks.
pub(super) fn insert_interned(connection: &Connection, delta: &InternerDelta) -> rusqlite::Result<()> {
    let mut insert = connection.prepare_cached("INSERT INTO strings(id, text) VALUES(?1, ?2)")?;
    for (id, text) in (delta.first_string..).zip(&delta.strings) {
        insert.execute(params![id, &**text])?;
    }
    let mut insert = connection.prepare_cached(
        "INSERT INTO frames(id, kind, name, file, first_line, line) VALUES(?1, ?2, ?3, ?4, ?5, ?6)",
    )?;
    for (id, frame) in (delta.first_frame..).zip(&delta.frames) {
        let kind = frame.kind as u8;
        insert.execute(params![id, kind, frame.name.0, frame.file.0, frame.first_line, frame.line])?;
    }
    let mut insert = connection.prepare_cached("INSERT INTO stacks(id, parent, frame) VALUES(?1, ?2, ?3)")?;
    for (id, node) in (delta.first_stack..).zip(&delta.stacks) {
        insert.execute(params![id, node.parent.0, node.frame.0])?;
    }
    Ok(())
}

/// Stores new or changed processes.
pub(super) fn upsert_processes(connection: &Connection, processes: &[Process]) -> rusqlite::Result<()> {
    let mut insert = connection.prepare_cached(
        "INSERT OR REPLACE INTO processes(id, pid, ns_pid, language, version, title, first_ns, ended_ns) \
         VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
    )?;
    for process in processes {
        insert.execute(params![
            process.id.0,
            process.pid,
            process.ns_pid,
            language_name(process.language),
            process.version,
            process.title,
            process.first_ns.cast_signed(),
            process.ended_ns.cast_signed(),
        ])?;
    }
    Ok(())
}

/// Stores new or changed threads.
pub(super) fn upsert_threads(connection: &Connection, threads: &[Thread]) -> rusqlite::Result<()> {
    let mut insert = connection.prepare_cached(
        "INSERT OR REPLACE INTO threads(id, process, tid, interpreter, name) VALUES(?1, ?2, ?3, ?4, ?5)",
    )?;
    for thread in threads {
        insert.execute(params![
            thread.id.0,
            thread.process.0,
            thread.tid,
            thread.interpreter.cast_signed(),
            thread.name.0,
        ])?;
    }
    Ok(())
}

/// One row of `blocks`.
pub(super) struct BlockRow<'a> {
    pub(super) id: i64,
    pub(super) first_ns: u64,
    pub(super) last_ns: u64,
    pub(super) samples: usize,
    pub(super) requests: usize,
    pub(super) data: &'a [u8],
}

/// Stores a block.
pub(super) fn insert_block(connection: &Connection, row: &BlockRow<'_>) -> rusqlite::Result<()> {
    let mut insert = connection.prepare_cached(
        "INSERT INTO blocks(id, first_ns, last_ns, samples, requests, data) VALUES(?1, ?2, ?3, ?4, ?5, ?6)",
    )?;
    insert.execute(params![
        row.id,
        row.first_ns.cast_signed(),
        row.last_ns.cast_signed(),
        row.samples,
        row.requests,
        row.data,
    ])?;
    Ok(())
}

/// Removes the blocks `first..=last`.
pub(super) fn delete_blocks(connection: &Connection, first: i64, last: i64) -> rusqlite::Result<()> {
    let mut delete = connection.prepare_cached("DELETE FROM blocks WHERE id BETWEEN ?1 AND ?2")?;
    delete.execute(params![first, last])?;
    Ok(())
}

/// One row of `waits`.
pub(super) struct WaitsRow<'a> {
    pub(super) id: i64,
    pub(super) first_ns: u64,
    pub(super) last_ns: u64,
    pub(super) waits: usize,
    pub(super) data: &'a [u8],
}

/// Stores a block of waits.
pub(super) fn insert_waits(connection: &Connection, row: &WaitsRow<'_>) -> rusqlite::Result<()> {
    let mut insert = connection
        .prepare_cached("INSERT INTO waits(id, first_ns, last_ns, waits, data) VALUES(?1, ?2, ?3, ?4, ?5)")?;
    insert.execute(params![
        row.id,
        row.first_ns.cast_signed(),
        row.last_ns.cast_signed(),
        row.waits,
        row.data
    ])?;
    Ok(())
}

/// Removes the blocks of waits `first..=last`.
pub(super) fn delete_waits(connection: &Connection, first: i64, last: i64) -> rusqlite::Result<()> {
    let mut delete = connection.prepare_cached("DELETE FROM waits WHERE id BETWEEN ?1 AND ?2")?;
    delete.execute(params![first, last])?;
    Ok(())
}

/// Stores new or changed places of allocations.
pub(super) fn upsert_allocations(
    connection: &Connection,
    allocations: &[(u32, Allocated)],
) -> rusqlite::Result<()> {
    let mut insert = connection.prepare_cached(
        "INSERT OR REPLACE INTO allocations(id, thread, stack, state, samples, objects, bytes, kept_samples, \
         kept_objects, kept_bytes) VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)",
    )?;
    for (id, allocated) in allocations {
        insert.execute(params![
            id,
            allocated.thread.0,
            allocated.stack.0,
            allocated.state.0,
            allocated.samples.cast_signed(),
            allocated.objects.cast_signed(),
            allocated.bytes.cast_signed(),
            allocated.kept_samples.cast_signed(),
            allocated.kept_objects.cast_signed(),
            allocated.kept_bytes.cast_signed(),
        ])?;
    }
    Ok(())
}

/// Stores the budget so far.
pub(super) fn replace_budget(connection: &Connection, budget: &Budget) -> rusqlite::Result<()> {
    let json = serde_json::to_string(budget)
        .map_err(|source| rusqlite::Error::ToSqlConversionFailure(source.into()))?;
    let mut insert = connection.prepare_cached("INSERT OR REPLACE INTO budget(id, json) VALUES(?1, ?2)")?;
    insert.execute(params![ONLY_ROW, json])?;
    Ok(())
}

/// Stores what was found beside times.
pub(super) fn replace_facts(connection: &Connection, facts: &Facts) -> rusqlite::Result<()> {
    let json = serde_json::to_string(facts)
        .map_err(|source| rusqlite::Error::ToSqlConversionFailure(source.into()))?;
    let mut insert = connection.prepare_cached("INSERT OR REPLACE INTO facts(id, json) VALUES(?1, ?2)")?;
    insert.execute(params![ONLY_ROW, json])?;
    Ok(())
}

/// One row of `served`.
pub(super) struct ServedRow<'a> {
    pub(super) id: i64,
    pub(super) first_ns: u64,
    pub(super) last_ns: u64,
    pub(super) requests: usize,
    pub(super) data: &'a [u8],
}

/// Stores a block of requests of the budget.
pub(super) fn insert_served(connection: &Connection, row: &ServedRow<'_>) -> rusqlite::Result<()> {
    let mut insert = connection.prepare_cached(
        "INSERT INTO served(id, first_ns, last_ns, requests, data) VALUES(?1, ?2, ?3, ?4, ?5)",
    )?;
    insert.execute(params![
        row.id,
        row.first_ns.cast_signed(),
        row.last_ns.cast_signed(),
        row.requests,
        row.data
    ])?;
    Ok(())
}

/// Removes the blocks of requests of the budget `first..=last`.
pub(super) fn delete_served(connection: &Connection, first: i64, last: i64) -> rusqlite::Result<()> {
    let mut delete = connection.prepare_cached("DELETE FROM served WHERE id BETWEEN ?1 AND ?2")?;
    delete.execute(params![first, last])?;
    Ok(())
}

/// Stores the totals so far.
pub(super) fn replace_totals(connection: &Connection, totals: &Totals) -> rusqlite::Result<()> {
    let mut insert = connection.prepare_cached(
        "INSERT OR REPLACE INTO totals(id, duration_ns, ticks_planned, ticks_taken, samples, filtered, repaired, \
         torn, failed, own_cpu_ns, complete) VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)",
    )?;
    insert.execute(params![
        ONLY_ROW,
        totals.duration_ns.cast_signed(),
        totals.ticks_planned.cast_signed(),
        totals.ticks_taken.cast_signed(),
        totals.samples.cast_signed(),
        totals.filtered.cast_signed(),
        totals.repaired.cast_signed(),
        totals.torn.cast_signed(),
        totals.failed.cast_signed(),
        totals.own_cpu_ns.cast_signed(),
        totals.complete,
    ])?;
    Ok(())
}

const MODES: [(Mode, &str); 6] = [
    (Mode::Wall, "wall"),
    (Mode::Cpu, "cpu"),
    (Mode::Gil, "gil"),
    (Mode::Offcpu, "offcpu"),
    (Mode::Exception, "exception"),
    (Mode::Alloc, "alloc"),
];
const LANGUAGES: [(Language, &str); 3] =
    [(Language::Python, "python"), (Language::Php, "php"), (Language::Native, "native")];

fn mode_name(mode: Mode) -> &'static str {
    MODES.iter().find(|(known, _)| *known == mode).map_or("", |(_, name)| name)
}

/// The mode of this name; `wall` for one that is not known.
pub(super) fn mode_named(name: &str) -> Mode {
    MODES.iter().find(|(_, known)| *known == name).map_or(Mode::Wall, |(mode, _)| *mode)
}

fn language_name(language: Language) -> &'static str {
    LANGUAGES.iter().find(|(known, _)| *known == language).map_or("", |(_, name)| name)
}

/// The language of this name; Python for one that is not known.
pub(super) fn language_named(name: &str) -> Language {
    LANGUAGES.iter().find(|(_, known)| *known == name).map_or(Language::Python, |(language, _)| *language)
}
