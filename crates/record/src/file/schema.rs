//! The tables of a recording file, and how they are told from other people's.

use rusqlite::Connection;

/// `PRAGMA application_id` of a recording: `SLIP` in ASCII. `file(1)` shows it.
pub const APPLICATION_ID: u32 = 0x534c_4950;

/// `PRAGMA user_version`: the version of the format that this crate writes.
///
/// It grows when a reader of the version before would misread a file. New tables and new keys in `info` do not need
/// it: readers ignore what they do not know.
///
/// 2: frames of the kernel, which a reader of before would take for lost ones, and their time from the functions that they belong to.
/// 3: instructions, for the same reason, and the mode `exception`.
/// 4: functions of native code, and servers that are waited for, for the same reason.
/// 5: functions that were inlined into native ones, for the same reason, and the mode `alloc`, which a reader of before would take for `wall`,
/// with nothing seen.
pub const FORMAT_VERSION: u32 = 5;

/// The tables of versions 1 to 5, word for word as `sqlite_schema` keeps them.
pub(super) const TABLES: [(&str, &str); 13] = [
    ("info", "CREATE TABLE info(id INTEGER PRIMARY KEY, key TEXT, value)"),
    (
        "totals",
        "CREATE TABLE totals(id INTEGER PRIMARY KEY, duration_ns INTEGER, ticks_planned INTEGER, \
         ticks_taken INTEGER, samples INTEGER, filtered INTEGER, repaired INTEGER, torn INTEGER, failed INTEGER, \
         own_cpu_ns INTEGER, complete INTEGER)",
    ),
    ("strings", "CREATE TABLE strings(id INTEGER PRIMARY KEY, text TEXT)"),
    (
        "frames",
        "CREATE TABLE frames(id INTEGER PRIMARY KEY, kind INTEGER, name INTEGER, file INTEGER, \
         first_line INTEGER, line INTEGER)",
    ),
    ("stacks", "CREATE TABLE stacks(id INTEGER PRIMARY KEY, parent INTEGER, frame INTEGER)"),
    (
        "processes",
        "CREATE TABLE processes(id INTEGER PRIMARY KEY, pid INTEGER, ns_pid INTEGER, language TEXT, \
         version TEXT, title TEXT, first_ns INTEGER, ended_ns INTEGER)",
    ),
    (
        "threads",
        "CREATE TABLE threads(id INTEGER PRIMARY KEY, process INTEGER, tid INTEGER, interpreter INTEGER, \
         name INTEGER)",
    ),
    (
        "blocks",
        "CREATE TABLE blocks(id INTEGER PRIMARY KEY, first_ns INTEGER, last_ns INTEGER, samples INTEGER, \
         requests INTEGER, data BLOB)",
    ),
    (
        WAITS,
        "CREATE TABLE waits(id INTEGER PRIMARY KEY, first_ns INTEGER, last_ns INTEGER, waits INTEGER, \
         data BLOB)",
    ),
    (BUDGET, "CREATE TABLE budget(id INTEGER PRIMARY KEY, json TEXT)"),
    (
        SERVED,
        "CREATE TABLE served(id INTEGER PRIMARY KEY, first_ns INTEGER, last_ns INTEGER, requests INTEGER, \
         data BLOB)",
    ),
    (FACTS, "CREATE TABLE facts(id INTEGER PRIMARY KEY, json TEXT)"),
    (
        ALLOCATIONS,
        "CREATE TABLE allocations(id INTEGER PRIMARY KEY, thread INTEGER, stack INTEGER, state INTEGER, \
         samples INTEGER, objects INTEGER, bytes INTEGER, kept_samples INTEGER, kept_objects INTEGER, \
         kept_bytes INTEGER)",
    ),
];

/// The tables that came later: a file without them has no waits, budget, facts or allocations, and nothing is missing from it.
pub(super) const LATER: [&str; 5] = [WAITS, BUDGET, SERVED, FACTS, ALLOCATIONS];

/// Blocks of waits.
pub(super) const WAITS: &str = "waits";

/// The budget of the workers' time, without its requests.
pub(super) const BUDGET: &str = "budget";

/// Blocks of the requests of the budget.
pub(super) const SERVED: &str = "served";

/// What was found beside times.
pub(super) const FACTS: &str = "facts";

/// Places of allocations.
pub(super) const ALLOCATIONS: &str = "allocations";

/// Creates the tables in an empty database, in the transaction that is open.
pub(super) fn create(connection: &Connection) -> rusqlite::Result<()> {
    for (_, sql) in TABLES {
        connection.execute(sql, ())?;
    }
    connection.pragma_update(None, "application_id", APPLICATION_ID)?;
    connection.pragma_update(None, "user_version", FORMAT_VERSION)
}

/// The tables that are there and are ours to the letter.
///
/// In a file that somebody else made, a name could stand for a view that never ends or a virtual table with effects of
/// its own; those are not touched.
pub(super) fn usable(connection: &Connection) -> rusqlite::Result<Vec<&'static str>> {
    let mut found = Vec::new();
    let mut statement = connection.prepare("SELECT type, name, sql FROM sqlite_schema LIMIT 1000")?;
    let mut rows = statement.query(())?;
    while let Some(row) = rows.next()? {
        let (kind, name, sql) = (row.get_ref(0)?, row.get_ref(1)?, row.get_ref(2)?);
        let (Ok(kind), Ok(name), Ok(sql)) = (kind.as_str(), name.as_str(), sql.as_str()) else { continue };
        let known = TABLES.iter().find(|(known, _)| kind == "table" && *known == name);
        if let Some((known, known_sql)) = known
            && *known_sql == sql
            && !found.contains(known)
        {
            found.push(*known);
        }
    }
    Ok(found)
}
