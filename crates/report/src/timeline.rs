//! What each thread did, in the order of time: what formats with a time axis have in common.

use slip_model::Recording;

use crate::fold::{self, Key};
use crate::piece::pieces;

/// A sample or waits that were stored together, or more of them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Row {
    /// Of the first one, nanoseconds since the begin of the recording.
    pub(crate) time_ns: u64,
    /// Where; `None` if the thread becomes idle here and idle ones are left out. Such a row has no time.
    pub(crate) key: Option<Key>,
    /// Time that it stands for.
    pub(crate) ns: u64,
    /// What of that the thread was running or ready to run.
    pub(crate) on_cpu_ns: u64,
}

/// Rows by number of the thread.
pub(crate) struct Timeline {
    pub(crate) rows: Vec<Vec<Row>>,
    /// Rows are when they were. Otherwise each stack of a thread has one row, and they follow each other without a gap.
    pub(crate) is_in_order: bool,
}

/// How many rows of all threads keep the order of time, and whether equal neighbours become one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Detail {
    pub(crate) most_rows: usize,
    pub(crate) joins: bool,
}

impl Timeline {
    pub(crate) fn of(recording: &Recording, include_idle: bool, detail: Detail) -> Self {
        let in_order = in_order(recording, include_idle, detail);
        let is_in_order = in_order.is_some();
        Self { rows: in_order.unwrap_or_else(|| by_stack(recording, include_idle)), is_in_order }
    }
}

fn in_order(recording: &Recording, include_idle: bool, detail: Detail) -> Option<Vec<Vec<Row>>> {
    let mut of_threads: Vec<Vec<Row>> = vec![Vec::new(); recording.threads.len()];
    let mut count = 0;
    for piece in pieces(recording) {
        let Some(rows) = of_threads.get_mut(piece.sample.thread.0 as usize) else { continue };
        let key = Key::of(&piece, include_idle);
        let row = match key {
            Some(key) => Row {
                time_ns: piece.sample.time_ns,
                key: Some(key),
                ns: piece.ns,
                on_cpu_ns: if key.place == fold::Place::Idle { 0 } else { piece.on_cpu_ns() },
            },
            None => Row { time_ns: piece.sample.time_ns, key, ns: 0, on_cpu_ns: 0 },
        };
        match rows.last_mut() {
            Some(last) if last.key == row.key && (detail.joins || row.key.is_none()) => {
                last.ns = last.ns.saturating_add(row.ns);
                last.on_cpu_ns = last.on_cpu_ns.saturating_add(row.on_cpu_ns);
            }
            _ => {
                count += 1;
                if count > detail.most_rows {
                    return None;
                }
                rows.push(row);
            }
        }
    }
    // Waits come after all samples, and a damaged recording may have any order.
    of_threads.iter_mut().for_each(|rows| rows.sort_by_key(|row| row.time_ns));
    Some(of_threads)
}

fn by_stack(recording: &Recording, include_idle: bool) -> Vec<Vec<Row>> {
    let counts = fold::fold(recording, include_idle, |_, key| key);
    let mut counts: Vec<_> = counts.into_iter().collect();
    counts.sort_unstable_by_key(|(key, _)| *key);
    let mut of_threads: Vec<Vec<Row>> = vec![Vec::new(); recording.threads.len()];
    for (key, count) in counts {
        let rows = &mut of_threads[key.root as usize];
        let time_ns = rows.last().map_or(0, |last| last.time_ns.saturating_add(last.ns));
        rows.push(Row { time_ns, key: Some(key), ns: count.ns, on_cpu_ns: count.on_cpu_ns });
    }
    of_threads
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::support::{both_languages, samples_and_waits};

    const ALL: Detail = Detail { most_rows: usize::MAX, joins: false };

    fn sums(timeline: &Timeline) -> (u64, u64) {
        let rows = timeline.rows.iter().flatten();
        rows.fold((0, 0), |(ns, on_cpu_ns), row| (ns + row.ns, on_cpu_ns + row.on_cpu_ns))
    }

    #[test]
    fn no_detail_changes_a_sum() {
        for recording in [both_languages(), samples_and_waits()] {
            for include_idle in [false, true] {
                let counts = fold::fold(&recording, include_idle, |_, key| key);
                let expected = counts
                    .values()
                    .fold((0, 0), |(ns, on_cpu_ns), count| (ns + count.ns, on_cpu_ns + count.on_cpu_ns));
                for detail in [ALL, Detail { joins: true, ..ALL }, Detail { most_rows: 3, joins: true }] {
                    let timeline = Timeline::of(&recording, include_idle, detail);
                    assert_eq!(sums(&timeline), expected, "{detail:?}");
                    assert_eq!(timeline.is_in_order, detail.most_rows > 3);
                    for rows in &timeline.rows {
                        assert!(rows.is_sorted_by_key(|row| row.time_ns));
                    }
                }
            }
        }
    }

    #[test]
    fn idle_time_that_is_left_out_is_a_gap_of_one_row() {
        let timeline = Timeline::of(&both_languages(), false, ALL);
        let gaps = |rows: &[Row]| rows.iter().filter(|row| row.key.is_none()).count();
        assert_eq!(timeline.rows.iter().map(|rows| gaps(rows)).collect::<Vec<_>>(), [1, 1, 0, 0, 0]);
        assert_eq!(timeline.rows[0].len(), 1 + 24);
        assert!(timeline.rows[0][0].key.is_none());
    }
}
