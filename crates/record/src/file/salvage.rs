//! Reads the rows of a table that may be damaged, cut short or made to hurt.

use rusqlite::{Connection, ErrorCode, Row, Rows};

/// Most attempts to find the next readable row of one table. Each takes some microseconds; one gap takes about forty.
const MAX_PROBES: usize = 4_096;

/// Highest row id that anything of ours has.
const MAX_ID: i64 = u32::MAX as i64;

/// What may still be read. A sane file has each byte in one row only; a malicious one can point to the same pages over
/// and over, and would otherwise fill any memory.
#[derive(Debug)]
pub(super) struct Allowance {
    /// Rows left.
    pub(super) rows: u64,
    /// Bytes of text and blobs left.
    pub(super) bytes: u64,
}

/// How one table was read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Health {
    /// Something in it could not be read.
    pub(super) damaged: bool,
}

enum Pass {
    /// The end of the table.
    End,
    /// The row after this id, or its page, cannot be read.
    Unreadable { last_id: i64 },
    /// The allowance or the time is used up.
    Stop,
}

/// Hands each row of `sql` to `take`, skipping what is unreadable.
///
/// `sql` selects the id first, from `?1` on and in its order. `take` returns the bytes that it kept, or `None` if the
/// row does not have the types it should.
pub(super) fn read_table(
    connection: &Connection,
    allowance: &mut Allowance,
    sql: &str,
    mut take: impl FnMut(i64, &Row<'_>) -> Option<usize>,
) -> Health {
    let mut health = Health::default();
    let mut from = 0;
    let mut probes = 0;
    loop {
        match read_from(connection, allowance, sql, from, &mut health, &mut take) {
            Pass::End => return health,
            Pass::Stop => break,
            Pass::Unreadable { last_id } => {
                health.damaged = true;
                match next_readable(connection, sql, last_id + 1, &mut probes) {
                    Some(next) => from = next,
                    None => break,
                }
            }
        }
    }
    health.damaged = true;
    health
}

fn read_from(
    connection: &Connection,
    allowance: &mut Allowance,
    sql: &str,
    from: i64,
    health: &mut Health,
    take: &mut impl FnMut(i64, &Row<'_>) -> Option<usize>,
) -> Pass {
    let mut last_id = from - 1;
    let Ok(mut statement) = connection.prepare_cached(sql) else { return Pass::Stop };
    let Ok(mut rows) = statement.query([from]) else { return Pass::Stop };
    loop {
        let row = match rows.next() {
            Ok(Some(row)) => row,
            Ok(None) => return Pass::End,
            Err(error) if is_final(&error) => return Pass::Stop,
            Err(_) => return Pass::Unreadable { last_id },
        };
        let Ok(id) = row.get::<_, i64>(0) else { return Pass::Unreadable { last_id } };
        // Ids that do not grow come from pages that are in the tree twice.
        if id <= last_id || id > MAX_ID {
            return Pass::Unreadable { last_id };
        }
        last_id = id;
        match take(id, row) {
            None => health.damaged = true,
            Some(bytes) => {
                allowance.rows = allowance.rows.saturating_sub(1);
                allowance.bytes = allowance.bytes.saturating_sub(bytes as u64);
                if allowance.rows == 0 || allowance.bytes == 0 {
                    return Pass::Stop;
                }
            }
        }
    }
}

/// The smallest id above `bad` from which reading works again: doubling steps, then halving.
fn next_readable(connection: &Connection, sql: &str, bad: i64, probes: &mut usize) -> Option<i64> {
    let mut statement = connection.prepare_cached(sql).ok()?;
    let mut readable = |id: i64| {
        *probes += 1;
        let mut rows: Rows<'_> = statement.query([id]).ok()?;
        Some(match rows.next() {
            Ok(Some(row)) => row.get::<_, i64>(0).is_ok_and(|found| found >= id),
            Ok(None) => true,
            Err(error) if is_final(&error) => return None,
            Err(_) => false,
        })
    };
    let mut step = 1;
    let mut last_bad = bad;
    let mut good = loop {
        let at = bad.checked_add(step).filter(|at| *at <= MAX_ID)?;
        if readable(at)? {
            break at;
        }
        last_bad = at;
        step *= 2;
    };
    while good - last_bad > 1 {
        let middle = last_bad + (good - last_bad) / 2;
        if readable(middle)? {
            good = middle;
        } else {
            last_bad = middle;
        }
    }
    if *probes > MAX_PROBES { None } else { Some(good) }
}

/// Errors that the next row would meet too.
fn is_final(error: &rusqlite::Error) -> bool {
    matches!(
        error.sqlite_error_code(),
        Some(ErrorCode::OperationInterrupted | ErrorCode::OutOfMemory | ErrorCode::ApiMisuse)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const SQL: &str = "SELECT id, value FROM t WHERE id >= ?1 ORDER BY id";

    fn table() -> Connection {
        let connection = Connection::open_in_memory().unwrap();
        connection.execute_batch("CREATE TABLE t(id INTEGER PRIMARY KEY, value)").unwrap();
        for id in 0..50 {
            connection.execute("INSERT INTO t VALUES(?1, ?1)", [id]).unwrap();
        }
        connection
    }

    #[test]
    fn a_row_of_the_wrong_type_is_left_out() {
        let connection = table();
        connection.execute("UPDATE t SET value = 'x' WHERE id = 7", ()).unwrap();
        let mut seen = Vec::new();
        let mut allowance = Allowance { rows: 1_000, bytes: 1_000 };
        let health = read_table(&connection, &mut allowance, SQL, |id, row| {
            row.get::<_, i64>(1).ok()?;
            seen.push(id);
            Some(1)
        });
        assert!(health.damaged);
        assert_eq!(seen.len(), 49);
        assert_eq!(allowance.rows, 1_000 - 49);
    }

    #[test]
    fn the_budget_ends_it() {
        let mut allowance = Allowance { rows: 1_000, bytes: 30 };
        let mut seen = 0;
        let health = read_table(&table(), &mut allowance, SQL, |_, _| {
            seen += 1;
            Some(3)
        });
        assert_eq!((health.damaged, seen), (true, 10));
    }
}
